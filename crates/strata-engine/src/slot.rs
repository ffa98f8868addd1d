//! One sequence's side on the host: its tokens, how the next are drawn, and what the caller is told of it.

use crate::answer::Answer;
use crate::embed::Mean;
use crate::options::EngineOptions;
use crate::sampler::{History, SamplingParams, TokenLogprob};

/// A generated token.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    pub id: u32,
    /// Natural logarithm of its probability, if asked for.
    pub logprob: Option<f32>,
    /// The most probable tokens at its place, if asked for, best first.
    pub top: Vec<TokenLogprob>,
}

/// Counts since the slot was made or cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Tokens run through the trunk as prompts.
    pub prompt_tokens: usize,
    /// Trunk passes that gave tokens.
    pub steps: usize,
    /// Tokens drafted, and how many of them were right.
    pub drafted: usize,
    pub accepted: usize,
}

impl Stats {
    /// Share of drafted tokens that were right; `None` before any draft.
    pub fn acceptance(&self) -> Option<f64> {
        (self.drafted > 0).then(|| self.accepted as f64 / self.drafted as f64)
    }
}

/// A place for one sequence.
pub(crate) struct Slot {
    /// The prompt and the tokens drawn after it.
    pub history: History,
    pub params: SamplingParams,
    pub answer: Answer,
    /// The embedding, if that is asked for and not an answer.
    pub mean: Option<Mean>,
    /// The newest token: drawn but not run. There is none before the whole prompt was run.
    pub current: Option<u32>,
    /// The tokens of a window: the current one and the drafts, then those that were kept.
    pub window: Vec<u32>,
    pub stats: Stats,
}

impl Slot {
    pub fn new(vocab: usize, options: &EngineOptions) -> Slot {
        Slot {
            history: History::new(vocab, options.capacity + options.spec + 1, None),
            params: SamplingParams::default(),
            answer: Answer::default(),
            mean: None,
            current: None,
            window: Vec::with_capacity(options.spec + 1),
            stats: Stats::default(),
        }
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        self.history.bytes() + 4 * self.window.capacity()
    }

    pub fn clear(&mut self) {
        self.history.reset(None);
        self.current = None;
        self.answer = Answer::default();
        self.mean = None;
        self.stats = Stats::default();
    }
}
