//! The thread that owns a batch: takes requests, steps, and tells each request's sink what it got.

use crate::batch::Batch;
use crate::error::EngineError;
use crate::request::{Refused, Request, Sink};
use std::sync::Arc;
use std::time::{Duration, Instant};
use strata_ops::backend::Backend;

/// Sizes of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunnerOptions {
    /// Requests that wait at most.
    pub queue: usize,
}

/// A request that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// A handle; clones are the same runner.
#[derive(Clone)]
pub struct Runner {
    shared: Arc<()>,
}

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
    /// Requests that were taken, ended by themselves, were cancelled, ran out of time, failed, were refused.
    pub submitted: u64,
    pub completed: u64,
    pub cancelled: u64,
    pub timed_out: u64,
    pub failed: u64,
    pub refused: u64,
    /// Time spent in steps.
    pub busy: Duration,
}

impl Runner {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start<B>(batch: Batch<B>, options: RunnerOptions) -> Result<Runner, EngineError>
    where
        Batch<B>: Send + 'static,
        B: Backend + 'static,
    {
        let _ = (batch, options);
        todo!()
    }

    pub fn facts(&self) -> Facts {
        todo!()
    }

    /// Takes a request; `sink` hears of it from then on.
    ///
    /// # Errors
    /// The queue is full, the runner is stopping, or the prompt or a parameter is out of range.
    pub fn submit(&self, request: Request, sink: Box<dyn Sink>) -> Result<RequestId, Refused> {
        let _ = (request, sink);
        todo!()
    }

    /// Ends a request within a step. Its sink hears of it.
    pub fn cancel(&self, id: RequestId) {
        let _ = id;
        todo!()
    }

    pub fn status(&self) -> Status {
        todo!()
    }

    /// Takes no more requests; those taken go on until `until`, and are then ended. Returns when all have ended and the thread has.
    pub fn stop(&self, until: Instant) {
        let _ = (until, &self.shared);
        todo!()
    }
}
