//! One answer: prefill, decode, text, stop conditions, time.

use crate::error::CliError;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strata_cpu::backend::Cpu;
use strata_engine::sampler::SamplingParams;
use strata_engine::{Engine, EngineError, Stats, Token};
use strata_text::{StopStrings, StreamDecoder, Tokenizer};

/// When an answer ends, besides at stop tokens.
pub struct Limits<'a> {
    /// Most tokens.
    pub n: usize,
    /// Stop tokens are tokens like others.
    pub ignore_eos: bool,
    pub stop: &'a [String],
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// A stop token, the last of the answer.
    StopToken,
    /// A stop string.
    StopString,
    /// As many tokens as were asked for.
    Length,
    /// The context is full.
    Context,
    /// The user stopped it.
    Interrupted,
}

impl Finish {
    pub fn name(self) -> &'static str {
        match self {
            Finish::StopToken => "stop_token",
            Finish::StopString => "stop_string",
            Finish::Length => "length",
            Finish::Context => "context",
            Finish::Interrupted => "interrupted",
        }
    }
}

/// An answer.
pub struct Answer {
    pub tokens: Vec<Token>,
    pub text: String,
    pub finish: Finish,
    /// Prompt tokens that were run: those not kept from the answer before.
    pub prompt_run: usize,
    pub prefill: Duration,
    pub decode: Duration,
    /// Counts of this answer.
    pub steps: usize,
    pub drafted: usize,
    pub accepted: usize,
}

impl Answer {
    pub fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|t| t.id).collect()
    }

    /// Prompt tokens a second, with the first token of the answer.
    pub fn prefill_rate(&self) -> Option<f64> {
        rate(self.prompt_run, self.prefill)
    }

    /// Tokens a second after the first.
    pub fn decode_rate(&self) -> Option<f64> {
        rate(self.tokens.len().saturating_sub(1), self.decode)
    }

    /// Share of the drafted tokens that were right.
    pub fn acceptance(&self) -> Option<f64> {
        (self.drafted > 0).then(|| self.accepted as f64 / self.drafted as f64)
    }
}

fn rate(tokens: usize, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64())
}

/// Who watches an answer come.
pub trait Watch {
    /// Takes text that is certain.
    fn text(&mut self, text: &str) -> io::Result<()>;
    /// `done` of `all` prompt tokens have been run.
    fn prompt(&mut self, done: usize, all: usize);
    /// True to end the answer.
    fn stopped(&self) -> bool;
}

/// Text and tokens so far.
struct Collector<'a> {
    decoder: StreamDecoder,
    stops: StopStrings,
    limits: &'a Limits<'a>,
    stop_ids: &'a [u32],
    tokens: Vec<Token>,
    text: String,
}

impl Collector<'_> {
    fn is_stop(&self, id: u32) -> bool {
        !self.limits.ignore_eos && self.stop_ids.contains(&id)
    }

    /// Takes tokens until one ends the answer.
    fn take(&mut self, new: impl Iterator<Item = Token>, watch: &mut dyn Watch) -> Result<Option<Finish>, CliError> {
        for token in new {
            let id = token.id;
            self.tokens.push(token);
            if self.is_stop(id) {
                return Ok(Some(Finish::StopToken));
            }
            let out = self.stops.push(&self.decoder.push(id));
            self.emit(&out.text, watch)?;
            if out.matched.is_some() {
                return Ok(Some(Finish::StopString));
            }
            if self.tokens.len() >= self.limits.n {
                return Ok(Some(Finish::Length));
            }
        }
        Ok(None)
    }

    fn emit(&mut self, text: &str, watch: &mut dyn Watch) -> Result<(), CliError> {
        if !text.is_empty() {
            self.text.push_str(text);
            watch.text(text).map_err(CliError::Output)?;
        }
        Ok(())
    }
}

/// Runs `prompt` and generates until something ends the answer.
///
/// # Errors
/// Whatever the engine refuses, bad stop strings, or text that cannot be written.
pub fn generate(
    engine: &mut Engine<Cpu>,
    tokenizer: &Arc<Tokenizer>,
    prompt: &[u32],
    params: &SamplingParams,
    limits: &Limits<'_>,
    watch: &mut dyn Watch,
) -> Result<Answer, CliError> {
    let stop_ids = tokenizer.stop_ids();
    let mut c = Collector {
        decoder: StreamDecoder::new(Arc::clone(tokenizer), true),
        stops: StopStrings::new(limits.stop)?,
        limits,
        stop_ids,
        tokens: Vec::new(),
        text: String::new(),
    };
    let before = engine.stats();
    let start = Instant::now();
    let first = engine.start(prompt, params, &mut |done, all| {
        watch.prompt(done, all);
        !watch.stopped()
    });
    let prefill = start.elapsed();
    let mut finish = match first {
        Ok(token) => c.take(std::iter::once(token), watch)?,
        Err(EngineError::Cancelled) => Some(Finish::Interrupted),
        Err(e) => return Err(e.into()),
    };
    let start = Instant::now();
    let mut new = Vec::new();
    while finish.is_none() {
        if watch.stopped() {
            finish = Some(Finish::Interrupted);
        } else if engine.is_full() {
            finish = Some(Finish::Context);
        } else {
            let stop = |id: u32| !limits.ignore_eos && stop_ids.contains(&id);
            engine.step(params, &stop, &mut new)?;
            finish = c.take(new.drain(..), watch)?;
        }
    }
    let decode = start.elapsed();
    let finish = finish.unwrap_or(Finish::Length);
    if finish != Finish::StopString {
        let mut rest = c.stops.push(&c.decoder.finish()).text;
        rest.push_str(&std::mem::replace(&mut c.stops, StopStrings::new::<&str>(&[])?).finish());
        c.emit(&rest, watch)?;
    }
    let Stats { prompt_tokens, steps, drafted, accepted } = engine.stats();
    // a cancelled start leaves the engine cleared, counts and all
    let since = |now: usize, then: usize| now.saturating_sub(then);
    Ok(Answer {
        finish,
        prompt_run: since(prompt_tokens, before.prompt_tokens),
        prefill,
        decode,
        steps: since(steps, before.steps),
        drafted: since(drafted, before.drafted),
        accepted: since(accepted, before.accepted),
        tokens: c.tokens,
        text: c.text,
    })
}
