//! The model that a server serves.

use serde_json::Value;
use std::sync::Arc;
use strata_engine::Runner;
use strata_text::{ChatTemplate, Tokenizer};

/// What a server is given once a model is loaded and warm.
pub struct ModelInfo {
    /// What it is called in the API.
    pub name: String,
    pub runner: Runner,
    pub tokenizer: Arc<Tokenizer>,
    /// The compiled chat template and its source; without it there are no conversations.
    pub template: Option<(ChatTemplate, String)>,
    /// How its memory is used, for the status: any JSON object.
    pub memory: Box<dyn Fn() -> Value + Send + Sync>,
}

/// A model with what is derived from it once.
pub struct Served {
    pub name: String,
    pub runner: Runner,
    pub tokenizer: Arc<Tokenizer>,
    pub template: Option<ChatTemplate>,
    /// Seconds since 1970 at which it was ready.
    pub created: u64,
    /// A text of more bytes than this has more tokens than the context, for certain.
    pub most_text: usize,
    pub memory: Box<dyn Fn() -> Value + Send + Sync>,
}

impl Served {
    pub fn new(info: ModelInfo) -> Served {
        let ModelInfo { name, runner, tokenizer, template, memory } = info;
        let vocab = 0..tokenizer.vocab_size() as u32;
        let longest = vocab.filter_map(|id| tokenizer.token_bytes(id)).map(<[u8]>::len).max().unwrap_or(1);
        let created = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
        // normalising shrinks no text to less than a quarter
        let most_text = runner.facts().context.saturating_mul(longest).saturating_mul(4);
        Served { name, runner, tokenizer, template: template.map(|(t, _)| t), created, most_text, memory }
    }
}
