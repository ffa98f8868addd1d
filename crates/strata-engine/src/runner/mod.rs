//! The thread that owns a batch: takes requests, steps, and tells each request's sink what it got.
//!
//! Between two steps it takes what was submitted and cancelled, ends what was cancelled or is out of time, gives free slots to those
//! who waited longest, and deals the rows of the next step ([`Scheduler`](crate::scheduler::Scheduler)). With nothing to do it
//! sleeps. What it does for one request can fail, and its sink or grammar can panic, without harm to the others.

mod histogram;
mod session;
mod status;
mod worker;

pub use histogram::Histogram;
pub use session::SessionError;
pub use status::{Facts, SlotStatus, Status};

use crate::batch::Batch;
use crate::error::EngineError;
use crate::prefix_cache::{CacheOptions, Configuration, Reuse};
use crate::request::{Refused, Request, Sink};
use crate::scheduler::{Scheduler, SchedulerLimits};
use session::Command;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;
use strata_ops::backend::Backend;
use worker::{Job, Worker};

/// Sizes of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunnerOptions {
    /// Requests that wait at most while all slots are taken.
    pub queue: usize,
}

/// A request that was taken: they are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// A handle; clones are the same runner. With the last of them the runner ends, and what still runs is cut off.
#[derive(Clone)]
pub struct Runner {
    handle: Arc<Handle>,
}

struct Handle {
    facts: Facts,
    configuration: Configuration,
    /// Requests that may be open: those with a slot and those that wait.
    most: usize,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the runner's thread and others look at.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Something is there for the thread.
    wake: Condvar,
    /// The thread has ended all requests.
    gone: Condvar,
}

#[derive(Default)]
struct State {
    new: Vec<Job>,
    cancelled: Vec<RequestId>,
    sessions: Vec<Command>,
    /// Number of the next request.
    next: u64,
    /// Requests taken and not ended.
    open: usize,
    /// No more requests; those there are end then.
    stop: Option<Instant>,
    gone: bool,
    status: Status,
}

impl Shared {
    /// Nobody panics with the lock held; if one did, the counts in it would still be of use.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runner {
    /// Starts the thread. Prefixes are kept in the slots only.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start<B>(batch: Batch<B>, options: RunnerOptions) -> Result<Runner, EngineError>
    where
        Batch<B>: Send + 'static,
        B: Backend + 'static,
    {
        Runner::start_with_cache(batch, options, &CacheOptions::default())
    }

    /// [`Runner::start`] with a prefix cache.
    ///
    /// # Errors
    /// The thread could not be started, or the cache's directory not be used.
    pub fn start_with_cache<B>(batch: Batch<B>, options: RunnerOptions, cache: &CacheOptions) -> Result<Runner, EngineError>
    where
        Batch<B>: Send + 'static,
        B: Backend + 'static,
    {
        let c = batch.model().config();
        let (slots, spec) = (batch.slots(), batch.options().spec);
        let facts = Facts { context: batch.options().capacity, slots, vocab: c.vocab, hidden: c.hidden, spec };
        let most = slots.saturating_add(options.queue);
        let limits = SchedulerLimits { slots, queue: most, rows: batch.max_rows(), window: spec + 1 };
        // a batch has a slot and a row for each
        let scheduler = Scheduler::new(limits).map_err(|e| EngineError::Step(e.to_string()))?;
        let status = Status { slots: vec![SlotStatus::default(); slots], ..Status::default() };
        let state = Mutex::new(State { status, ..State::default() });
        let shared = Arc::new(Shared { state, wake: Condvar::new(), gone: Condvar::new() });
        let configuration = batch.configuration(cache.model);
        let reuse = Reuse::new(&batch, cache).map_err(EngineError::Cache)?;
        let mut worker = Worker::new(batch, scheduler, reuse, shared.clone());
        let work = move || {
            // a panic past those that are foreseen ends the runner, but leaves nobody waiting
            if catch_unwind(AssertUnwindSafe(|| worker.run())).is_err() {
                worker.abandon();
            }
            let shared = worker.into_shared();
            shared.lock().gone = true;
            shared.gone.notify_all();
        };
        let thread = Builder::new().name("strata-runner".into()).spawn(work).map_err(EngineError::Thread)?;
        Ok(Runner { handle: Arc::new(Handle { facts, configuration, most, shared, thread: Mutex::new(Some(thread)) }) })
    }

    pub fn facts(&self) -> Facts {
        self.handle.facts
    }

    /// Takes a request; `sink` hears of it from then on.
    ///
    /// # Errors
    /// The queue is full, the runner is stopping, or the prompt or a parameter is out of range.
    pub fn submit(&self, request: Request, sink: Box<dyn Sink>) -> Result<RequestId, Refused> {
        let checked = request.check(&self.handle.facts);
        let mut state = self.handle.shared.lock();
        let refused = match checked {
            _ if state.stop.is_some() => Refused::Stopping,
            Err(e) => Refused::Bad(e),
            Ok(()) if state.open >= self.handle.most => Refused::QueueFull { waiting: self.handle.most - self.handle.facts.slots },
            Ok(()) => {
                let id = RequestId(state.next);
                state.next += 1;
                state.open += 1;
                state.status.submitted += 1;
                state.new.push(Job::new(id, request, sink));
                self.handle.shared.wake.notify_one();
                return Ok(id);
            }
        };
        state.status.refused += 1;
        Err(refused)
    }

    /// Ends a request within a step. Its sink hears of it.
    pub fn cancel(&self, id: RequestId) {
        let mut state = self.handle.shared.lock();
        if state.open > 0 && id.0 < state.next {
            state.cancelled.push(id);
            self.handle.shared.wake.notify_one();
        }
    }

    pub fn status(&self) -> Status {
        let state = self.handle.shared.lock();
        let running = state.status.slots.iter().filter(|s| s.request.is_some()).count();
        Status { waiting: state.open.saturating_sub(running), ..state.status.clone() }
    }

    /// Takes no more requests; those taken go on until `until`, and are then ended. Returns when all have ended and the thread has.
    /// Not to be called by a sink.
    pub fn stop(&self, until: Instant) {
        let mut state = self.handle.shared.stop(until);
        while !state.gone {
            state = self.handle.shared.gone.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        let thread = self.handle.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // its panics were caught
        thread.map(JoinHandle::join);
    }
}

impl Shared {
    fn stop(&self, until: Instant) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.stop = Some(state.stop.map_or(until, |t| t.min(until)));
        self.wake.notify_one();
        state
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // not joined: the last handle may be a sink's
        drop(self.shared.stop(Instant::now()));
    }
}
