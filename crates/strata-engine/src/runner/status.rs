//! What a runner tells of itself.

use super::histogram::Histogram;
use crate::prefix_cache::CacheStats;
use std::time::Duration;

/// What never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Tokens that a sequence can hold, prompt and answer.
    pub context: usize,
    pub slots: usize,
    pub vocab: usize,
    pub hidden: usize,
    /// Tokens drafted at a time, at most.
    pub spec: usize,
}

/// What a slot is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SlotStatus {
    pub request: Option<u64>,
    /// Tokens of its prompt, those of them read, tokens drawn.
    pub prompt: usize,
    pub read: usize,
    pub generated: usize,
}

/// Counts since the start, and the moment's state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    pub waiting: usize,
    pub slots: Vec<SlotStatus>,
    pub steps: u64,
    /// Tokens read by steps; taken from the cache; drawn; drafted; drafts that were right.
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub generated_tokens: u64,
    pub drafted_tokens: u64,
    pub accepted_tokens: u64,
    /// Requests that were taken, ended by themselves, were cancelled (by the caller, its sink or a stop), ran out of time, failed,
    /// were refused.
    pub submitted: u64,
    pub completed: u64,
    pub cancelled: u64,
    pub timed_out: u64,
    pub failed: u64,
    pub refused: u64,
    /// The prefix cache.
    pub cache: CacheStats,
    /// Time spent in steps.
    pub busy: Duration,
    /// The scheduling delay: from the moment a request was there and a slot was free for it to its first step.
    pub first_step: Histogram,
    /// From the end of a step to the beginning of the next, where requests went on.
    pub between_steps: Histogram,
    /// Length of steps.
    pub step: Histogram,
}
