//! What is asked of a runner, and what it answers.

use crate::error::EngineError;
use crate::runner::Facts;
use crate::sampler::SamplingParams;
use crate::slot::Token;
use std::time::{Duration, Instant};
use strata_model::ForwardError;
use thiserror::Error;

/// One request: a prompt and what to do with it.
pub struct Request {
    pub prompt: Vec<u32>,
    pub kind: Kind,
    /// From this moment on it is ended.
    pub deadline: Option<Instant>,
    /// Lengths of the prompt at which its state is worth keeping, ascending: the end of the system turn, the ends of turns.
    pub marks: Vec<Mark>,
    /// Read states from the prefix cache, and leave states there. The answer is the same either way.
    pub use_cache: bool,
}

/// A place of a prompt whose state is worth keeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Tokens before it.
    pub at: usize,
    /// Keep it longer than others: many prompts begin like this (the system turn).
    pub pinned: bool,
}

/// What to do with a prompt.
pub enum Kind {
    Generate(Generate),
    /// The mean of the final hidden states of its tokens.
    Embed,
}

/// How an answer is drawn and when it ends.
pub struct Generate {
    pub params: SamplingParams,
    /// Which of the answers to one prompt this is: the draws of each differ.
    pub choice: u32,
    /// Tokens of the answer at most; at least 1.
    pub max_tokens: usize,
    /// Tokens that end the answer. The one drawn is the answer's last.
    pub stop: Vec<u32>,
    /// Added to the logits of tokens before anything else. Log-probabilities are those without it.
    pub bias: Vec<(u32, f32)>,
    /// Says which tokens may come next.
    pub constraint: Option<Box<dyn Constraint>>,
}

impl Generate {
    /// An answer as long as the context allows, with nothing beside its parameters.
    pub fn new(params: SamplingParams) -> Generate {
        Generate { params, choice: 0, max_tokens: usize::MAX, stop: Vec::new(), bias: Vec::new(), constraint: None }
    }

    /// Checks what does not depend on the prompt.
    ///
    /// # Errors
    /// Parameters out of range, an answer of no token, a bias that is not finite or not for one of the `vocab` tokens.
    pub fn check(&self, vocab: usize) -> Result<(), EngineError> {
        let bad = |field, expected: String, found: String| Err(EngineError::Option { field, expected, found });
        self.params.validate()?;
        if self.max_tokens == 0 {
            return bad("max_tokens", "at least 1".into(), "0".into());
        }
        match self.bias.iter().find(|(t, v)| *t as usize >= vocab || !v.is_finite()) {
            Some((t, v)) if v.is_finite() => bad("bias", format!("tokens below {vocab}"), t.to_string()),
            Some((t, v)) => bad("bias", "finite values".into(), format!("{v} for token {t}")),
            None => Ok(()),
        }
    }
}

impl Request {
    /// Checks a request before it is taken.
    ///
    /// # Errors
    /// A prompt that is empty, too long or has ids out of range, marks that are not ascending places of the prompt, or
    /// [`Generate::check`].
    pub fn check(&self, facts: &Facts) -> Result<(), EngineError> {
        let room = match &self.kind {
            Kind::Generate(g) => {
                g.check(facts.vocab)?;
                1
            }
            Kind::Embed => 0,
        };
        check_prompt(&self.prompt, room, facts.context, facts.vocab)?;
        let ascending = self.marks.windows(2).all(|m| m[0].at < m[1].at);
        if !ascending || self.marks.last().is_some_and(|m| m.at > self.prompt.len()) {
            let (expected, found) = (format!("ascending lengths up to {}", self.prompt.len()), format!("{:?}", self.marks));
            return Err(EngineError::Option { field: "marks", expected, found });
        }
        Ok(())
    }
}

/// Looks for a reason to refuse a prompt after which `room` tokens must fit.
pub(crate) fn check_prompt(prompt: &[u32], room: usize, capacity: usize, vocab: usize) -> Result<(), EngineError> {
    if prompt.is_empty() {
        return Err(EngineError::EmptyPrompt);
    }
    if prompt.len() + room > capacity {
        return Err(EngineError::PromptTooLong { found: prompt.len(), capacity });
    }
    match prompt.iter().position(|t| *t as usize >= vocab) {
        Some(i) => Err(ForwardError::TokenOutOfRange { id: prompt[i], position: i, vocab }.into()),
        None => Ok(()),
    }
}

/// A grammar over tokens. Deterministic: what it allows follows from the tokens accepted, never from time.
pub trait Constraint: Send {
    /// Tells of the tokens of the next pass: those of `drafts`, in this order, behind what was accepted. An implementation can begin
    /// to compute the masks that will be asked for while the pass runs.
    fn ahead(&mut self, drafts: &[u32]);

    /// The tokens that may come now: bit `i % 32` of word `i / 32` is token i. `None` allows all.
    ///
    /// # Errors
    /// The grammar went past its limits, in words.
    fn allowed(&mut self) -> Result<Option<&[u32]>, String>;

    /// Takes the token drawn. True if nothing may follow it: the answer is complete.
    ///
    /// # Errors
    /// As [`Constraint::allowed`].
    fn accept(&mut self, token: u32) -> Result<bool, String>;
}

/// Where the answers to one request go. It is called on the runner's thread and must not wait.
pub trait Sink: Send {
    /// Takes an update; false: nobody wants more, the request is cancelled.
    fn send(&mut self, update: Update) -> bool;
}

/// A step of a request's life, in this order: `Started`, `Read` any number of times, `Token` any number of times or `Embedding`,
/// `Ended`. `Ended` is always the last and always comes, unless the sink refused an update.
#[derive(Debug)]
pub enum Update {
    /// It got a slot.
    Started {
        /// Time in the queue.
        waited: Duration,
        /// Tokens of the prompt whose state was kept.
        cached: usize,
    },
    /// Tokens of the prompt that are read, of all of it, those of the cache included.
    Read {
        read: usize,
        prompt: usize,
    },
    Token(Token),
    /// One value for each hidden dimension.
    Embedding(Vec<f32>),
    Ended {
        reason: Reason,
        usage: Usage,
    },
}

/// Why a request ended.
#[derive(Debug)]
pub enum Reason {
    /// A stop token was drawn, or the grammar is complete.
    Stop,
    /// `max_tokens`, or the context is full.
    Length,
    Cancelled,
    Deadline,
    /// The runner is stopping.
    Stopped,
    Failed(EngineError),
}

/// What a request cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt: usize,
    pub cached: usize,
    pub generated: usize,
    pub drafted: usize,
    pub accepted: usize,
    pub waited: Duration,
    /// From the slot to the first token.
    pub prefill: Duration,
    /// From the first token to the last.
    pub decode: Duration,
}

/// A request that was not taken.
#[derive(Debug, Error)]
pub enum Refused {
    #[error("{waiting} requests are waiting, which is the limit")]
    QueueFull { waiting: usize },
    #[error("the server is stopping")]
    Stopping,
    /// Its prompt or parameters.
    #[error(transparent)]
    Bad(#[from] EngineError),
}
