//! The model that a server serves.

use crate::metrics::Metrics;
use crate::status::Recent;
use serde_json::Value;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use strata_engine::sampler::SamplingParams;
use strata_engine::{EngineError, Generate, Kind, Reason, Refused, Request, Runner, Sink, Update};
use strata_grammar::{GrammarError, Grammars};
use strata_text::{CallFormat, ChatTemplate, Tokenizer};

/// Threads that compute masks while the model runs.
const MASK_THREADS: usize = 2;

/// What a server is given once a model is loaded and warm.
pub struct ModelInfo {
    /// What it is called in the API.
    pub name: String,
    /// Other names that requests may give.
    pub aliases: Vec<String>,
    pub runner: Runner,
    /// Requests that wait at most.
    pub queue: usize,
    pub tokenizer: Arc<Tokenizer>,
    /// The compiled chat template and its source; without it there are no conversations.
    pub template: Option<(ChatTemplate, String)>,
    /// How its memory is used, for the status: any JSON object.
    pub memory: Box<dyn Fn() -> Value + Send + Sync>,
}

/// A model with what is derived from it once.
pub struct Served {
    pub name: String,
    pub aliases: Vec<String>,
    pub runner: Runner,
    pub queue: usize,
    pub tokenizer: Arc<Tokenizer>,
    pub template: Option<ChatTemplate>,
    /// Makes constraints; an error where the vocabulary does not allow any.
    pub grammars: Result<Grammars, GrammarError>,
    /// How the template has calls of tools written.
    pub calls: Option<CallFormat>,
    /// Seconds since 1970 at which it was ready.
    pub created: u64,
    /// A text of more bytes than this has more tokens than the context, for certain.
    pub most_text: usize,
    pub metrics: Arc<Metrics>,
    pub recent: Recent,
    pub memory: Box<dyn Fn() -> Value + Send + Sync>,
}

impl Served {
    pub fn new(info: ModelInfo) -> Served {
        let ModelInfo { name, aliases, runner, queue, tokenizer, template, memory } = info;
        let vocab = 0..tokenizer.vocab_size() as u32;
        let longest = vocab.filter_map(|id| tokenizer.token_bytes(id)).map(<[u8]>::len).max().unwrap_or(1);
        // normalising shrinks no text to less than a quarter
        let most_text = runner.facts().context.saturating_mul(longest).saturating_mul(4);
        Served {
            grammars: Grammars::new(&tokenizer, MASK_THREADS),
            metrics: Arc::new(Metrics::new(&name, &runner)),
            recent: Recent::default(),
            created: crate::app::unix_time(),
            calls: template.as_ref().and_then(|(_, source)| CallFormat::of_template(source)),
            template: template.map(|(t, _)| t),
            name,
            aliases,
            runner,
            queue,
            tokenizer,
            most_text,
            memory,
        }
    }

    /// Whether a request's `model` means this one.
    pub fn is_called(&self, name: &str) -> bool {
        name == self.name || self.aliases.iter().any(|a| a == name || a == "*")
    }
}

/// Runs one token through the model, so that the first request finds everything in its place.
///
/// # Errors
/// The model fails.
pub fn warm(runner: &Runner) -> Result<(), EngineError> {
    struct Done(SyncSender<Reason>);
    impl Sink for Done {
        fn send(&mut self, update: Update) -> bool {
            match update {
                Update::Ended { reason, .. } => self.0.send(reason).is_ok(),
                _ => true,
            }
        }
    }
    let generate =
        Generate { params: SamplingParams::default(), choice: 0, max_tokens: 1, stop: Vec::new(), bias: Vec::new(), constraint: None };
    let request = Request { prompt: vec![0], kind: Kind::Generate(generate), deadline: None, marks: Vec::new(), use_cache: false };
    let (to, done) = sync_channel(1);
    match runner.submit(request, Box::new(Done(to))) {
        Ok(_) => {}
        Err(Refused::Bad(e)) => return Err(e),
        Err(Refused::QueueFull { .. } | Refused::Stopping) => return Ok(()),
    }
    match done.recv() {
        Ok(Reason::Failed(e)) => Err(e),
        _ => Ok(()),
    }
}
