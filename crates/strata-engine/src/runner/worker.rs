//! What the runner's thread does.

use super::{RequestId, Shared, SlotStatus, State, Status};
use crate::answer::Ending;
use crate::batch::Batch;
use crate::error::EngineError;
use crate::prefix_cache::Reuse;
use crate::request::{Kind, Mark, Reason, Request, Sink, Update, Usage};
use crate::scheduler::{Cause, Scheduler, Ticket};
use crate::slot::{Stats, Token};
use crate::step::{Event, Work};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;
use strata_ops::backend::Backend;

/// A request that was taken and has not ended.
pub(super) struct Job {
    id: RequestId,
    prompt: Vec<u32>,
    /// Until it gets its slot.
    kind: Option<Kind>,
    marks: Vec<Mark>,
    use_cache: bool,
    deadline: Option<Instant>,
    sink: Box<dyn Sink>,
    submitted: Instant,
    /// When it got its slot, whether it has had a step, when its first token came.
    started: Option<Instant>,
    stepped: bool,
    first: Option<Instant>,
    /// Tokens of the prompt that are read.
    read: usize,
    /// The slot's counts that are in `usage` already.
    counted: Stats,
    usage: Usage,
}

impl Job {
    pub fn new(id: RequestId, request: Request, sink: Box<dyn Sink>) -> Job {
        let Request { prompt, kind, deadline, marks, use_cache } = request;
        Job {
            id,
            usage: Usage { prompt: prompt.len(), ..Usage::default() },
            prompt,
            kind: Some(kind),
            marks,
            use_cache,
            deadline,
            sink,
            submitted: Instant::now(),
            started: None,
            stepped: false,
            first: None,
            read: 0,
            counted: Stats::default(),
        }
    }

    /// False if nobody wants more. A sink that panics is one that wants no more.
    fn send(&mut self, update: Update) -> bool {
        catch_unwind(AssertUnwindSafe(|| self.sink.send(update))).unwrap_or(false)
    }

    /// Notes that a token, or the embedding, came.
    fn came(&mut self, now: Instant) {
        let first = *self.first.get_or_insert(now);
        self.usage.prefill = first - self.started.unwrap_or(first);
        self.usage.decode = now - first;
    }

    /// Adds what the slot's counts say beyond the last time.
    fn count(&mut self, now: Stats, s: &mut Status) {
        let before = std::mem::replace(&mut self.counted, now);
        let (drafted, accepted) = (now.drafted - before.drafted, now.accepted - before.accepted);
        self.usage.drafted += drafted;
        self.usage.accepted += accepted;
        s.prompt_tokens += (now.prompt_tokens - before.prompt_tokens) as u64;
        s.drafted_tokens += drafted as u64;
        s.accepted_tokens += accepted as u64;
    }

    fn status(&self) -> SlotStatus {
        SlotStatus { request: Some(self.id.0), prompt: self.prompt.len(), read: self.read, generated: self.usage.generated }
    }
}

pub(super) struct Worker<B: Backend> {
    batch: Batch<B>,
    scheduler: Scheduler,
    reuse: Reuse,
    shared: Arc<Shared>,
    jobs: BTreeMap<Ticket, Job>,
    /// Deadlines are counted from here.
    epoch: Instant,
    /// When each slot became free.
    freed: Vec<Instant>,
    /// When the last step ended, if requests go on since then.
    stepped: Option<Instant>,
    work: Vec<Work>,
    events: Vec<Event>,
}

impl<B: Backend> Worker<B> {
    pub fn new(batch: Batch<B>, scheduler: Scheduler, reuse: Reuse, shared: Arc<Shared>) -> Worker<B> {
        let (epoch, slots) = (Instant::now(), batch.slots());
        Worker {
            batch,
            scheduler,
            reuse,
            shared,
            jobs: BTreeMap::new(),
            epoch,
            freed: vec![epoch; slots],
            stepped: None,
            work: Vec::with_capacity(slots),
            events: Vec::new(),
        }
    }

    /// Gives back all memory but what others look at.
    pub fn into_shared(self) -> Arc<Shared> {
        self.shared
    }

    /// Serves until it is stopped.
    pub fn run(&mut self) {
        while self.take_commands() {
            self.end_requests(false);
            self.admit();
            for slot in 0..self.batch.slots() {
                self.scheduler.limit(slot, self.reuse.limit(&self.batch, slot));
            }
            self.scheduler.work(&mut self.work);
            if self.work.is_empty() {
                self.stepped = None;
                continue;
            }
            let end = self.step();
            self.deliver(end);
        }
    }

    /// Ends all requests, after a panic.
    pub fn abandon(&mut self) {
        let mut state = self.shared.lock();
        state.stop = Some(self.epoch);
        let new = std::mem::take(&mut state.new);
        state.sessions.clear();
        drop(state);
        self.jobs.extend(new.into_iter().map(|j| (Ticket(j.id.0), j)));
        while let Some((ticket, _)) = self.jobs.first_key_value() {
            self.end(*ticket, Some(Reason::Failed(EngineError::Panicked)));
        }
    }

    /// Takes what others asked for; waits while there is nothing to do. False: the runner is to end, and all requests have.
    fn take_commands(&mut self) -> bool {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        if self.jobs.is_empty() {
            // what comes next did not wait for a step
            self.stepped = None;
        }
        while self.jobs.is_empty() && state.new.is_empty() && state.sessions.is_empty() {
            if state.stop.is_some() {
                return false;
            }
            state.cancelled.clear();
            state = shared.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.take(&mut state);
        let stop = state.stop.is_some_and(|t| t <= Instant::now());
        let sessions = std::mem::take(&mut state.sessions);
        drop(state);
        sessions.into_iter().for_each(|s| s.serve(&mut self.batch, &mut self.reuse));
        if stop {
            self.jobs.keys().for_each(|t| {
                self.scheduler.cancel(*t);
            });
            self.end_requests(true);
        }
        true
    }

    fn take(&mut self, state: &mut MutexGuard<'_, State>) {
        for job in state.new.drain(..) {
            let deadline = job.deadline.map(|t| t.saturating_duration_since(self.epoch));
            // no more are open than it holds, and it numbers them as they come
            let ticket = self.scheduler.submit(deadline);
            debug_assert_eq!(ticket, Ok(Ticket(job.id.0)));
            self.jobs.insert(Ticket(job.id.0), job);
        }
        for id in state.cancelled.drain(..) {
            self.scheduler.cancel(Ticket(id.0));
        }
    }

    /// Ends those that were cancelled or are out of time.
    fn end_requests(&mut self, stopping: bool) {
        let now = self.epoch.elapsed();
        while let Some(e) = self.scheduler.ended(now) {
            if let Some(slot) = e.slot {
                self.release(slot);
            }
            let reason = match e.cause {
                _ if stopping => Reason::Stopped,
                Cause::Cancelled => Reason::Cancelled,
                Cause::Deadline => Reason::Deadline,
            };
            self.end(e.ticket, Some(reason));
        }
    }

    /// Gives free slots to those who waited longest.
    fn admit(&mut self) {
        while let Some(ticket) = self.scheduler.next() {
            let Some(slot) = self.choose(ticket) else { return };
            let Some(job) = self.jobs.get_mut(&ticket) else { return self.scheduler.place(slot, 0) };
            match job.kind {
                Some(Kind::Generate(_)) if job.use_cache => self.reuse.begin(&mut self.batch, slot, &job.prompt, &job.marks),
                _ => {
                    self.batch.clear(slot);
                    self.reuse.ignore(slot);
                }
            }
            let begun = match job.kind.take() {
                Some(Kind::Generate(asked)) => self.batch.begin_answer(slot, &job.prompt, asked),
                Some(Kind::Embed) | None => self.batch.begin_embedding(slot, &job.prompt),
            };
            if let Err(e) = begun {
                self.scheduler.place(slot, 0);
                self.end(ticket, Some(Reason::Failed(e)));
                continue;
            }
            self.scheduler.place(slot, self.batch.unread(slot));
            let cached = self.batch.committed(slot).len();
            let now = Instant::now();
            let waited = now - job.submitted;
            job.started = Some(now);
            job.read = cached;
            job.counted = self.batch.stats(slot);
            (job.usage.cached, job.usage.waited) = (cached, waited);
            let wanted = job.send(Update::Started { waited, cached });
            let mut state = self.shared.lock();
            state.status.cached_tokens += cached as u64;
            state.status.slots[slot] = job.status();
            drop(state);
            if !wanted {
                self.finish(slot, ticket, None);
            }
        }
    }

    /// The free slot where a request's prompt is read soonest; of several the one that was left longest ago.
    fn choose(&self, ticket: Ticket) -> Option<usize> {
        let prompt =
            self.jobs.get(&ticket).filter(|j| j.use_cache && matches!(j.kind, Some(Kind::Generate(_)))).map_or(&[][..], |j| &j.prompt);
        self.reuse.choose(&self.batch, prompt, self.scheduler.free(), |slot| self.freed[slot])
    }

    /// Runs the work; gives the time at its end. After an error of all its slots they are empty, and `events` says so.
    fn step(&mut self) -> Instant {
        let begin = Instant::now();
        self.events.clear();
        let (batch, work, events) = (&mut self.batch, &self.work, &mut self.events);
        let r = catch_unwind(AssertUnwindSafe(|| batch.step(work, &|_, _| false, events)));
        if let Err(e) = r.unwrap_or(Err(EngineError::Panicked)) {
            self.events.clear();
            for w in &self.work {
                self.batch.clear(w.slot);
                self.events.push(Event { slot: w.slot, token: Err(e.repeat()) });
            }
        }
        let end = Instant::now();
        let mut state = self.shared.lock();
        let s = &mut state.status;
        s.steps += 1;
        s.busy += end - begin;
        s.step.add(end - begin);
        if let Some(t) = self.stepped.replace(end) {
            s.between_steps.add(begin - t);
        }
        for w in &self.work {
            let Some(job) = self.scheduler.holder(w.slot).and_then(|t| self.jobs.get_mut(&t)) else { continue };
            if !std::mem::replace(&mut job.stepped, true) {
                s.first_step.add(begin - job.submitted.max(self.freed[w.slot]));
            }
        }
        end
    }

    /// Tells everyone what the step that ended then gave them.
    fn deliver(&mut self, end: Instant) {
        let mut events = std::mem::take(&mut self.events);
        for i in 0..self.work.len() {
            let slot = self.work[i].slot;
            let Some(ticket) = self.scheduler.holder(slot) else { continue };
            let failed = events.iter().any(|e| e.slot == slot && e.token.is_err());
            let mine = events.extract_if(.., |e| e.slot == slot).map(|e| e.token);
            match self.tell(slot, ticket, mine, failed, end) {
                ControlFlow::Continue(()) => self.reuse.stepped(&self.batch, slot),
                ControlFlow::Break(reason) => self.finish(slot, ticket, reason),
            }
        }
        self.events = events;
        self.shared.lock().status.cache = self.reuse.stats();
    }

    /// Tells a request what a step gave it; breaks off with the reason if it has ended, without one if its sink wants no more.
    fn tell(
        &mut self,
        slot: usize,
        ticket: Ticket,
        tokens: impl Iterator<Item = Result<Token, EngineError>>,
        failed: bool,
        end: Instant,
    ) -> ControlFlow<Option<Reason>> {
        let go_on = |wanted: bool| if wanted { ControlFlow::Continue(()) } else { ControlFlow::Break(None) };
        let Some(job) = self.jobs.get_mut(&ticket) else { return ControlFlow::Break(None) };
        if !failed {
            job.count(self.batch.stats(slot), &mut self.shared.lock().status);
            let (read, prompt) = (job.prompt.len() - self.batch.unread(slot), job.prompt.len());
            if std::mem::replace(&mut job.read, read) < read {
                go_on(job.send(Update::Read { read, prompt }))?;
            }
        }
        for token in tokens {
            let token = match token {
                Ok(token) => token,
                Err(e) => return ControlFlow::Break(Some(Reason::Failed(e))),
            };
            job.came(end);
            job.usage.generated += 1;
            self.shared.lock().status.generated_tokens += 1;
            go_on(job.send(Update::Token(token)))?;
        }
        self.shared.lock().status.slots[slot] = job.status();
        if let Some(embedding) = self.batch.take_embedding(slot) {
            job.came(end);
            go_on(job.send(Update::Embedding(embedding)))?;
            return ControlFlow::Break(Some(Reason::Stop));
        }
        match self.batch.ending(slot) {
            None => ControlFlow::Continue(()),
            Some(Ending::Stop) => ControlFlow::Break(Some(Reason::Stop)),
            Some(Ending::Length) => ControlFlow::Break(Some(Reason::Length)),
        }
    }

    /// Takes the slot of a request and ends it.
    fn finish(&mut self, slot: usize, ticket: Ticket, reason: Option<Reason>) {
        self.scheduler.finish(slot);
        self.release(slot);
        let whole = matches!(reason, Some(Reason::Stop | Reason::Length));
        self.end(ticket, reason);
        if whole {
            self.reuse.ended(&self.batch, slot);
        }
    }

    /// Makes a slot ready for another request, which may go on with what is in it.
    fn release(&mut self, slot: usize) {
        self.batch.finish(slot);
        self.freed[slot] = Instant::now();
        self.shared.lock().status.slots[slot] = SlotStatus::default();
    }

    /// Ends a request that has no slot any more; without a reason its sink has refused to hear more.
    fn end(&mut self, ticket: Ticket, reason: Option<Reason>) {
        let Some(mut job) = self.jobs.remove(&ticket) else { return };
        let mut state = self.shared.lock();
        state.open -= 1;
        let s = &mut state.status;
        *match &reason {
            Some(Reason::Stop | Reason::Length) => &mut s.completed,
            Some(Reason::Deadline) => &mut s.timed_out,
            Some(Reason::Failed(_)) => &mut s.failed,
            Some(Reason::Cancelled | Reason::Stopped) | None => &mut s.cancelled,
        } += 1;
        drop(state);
        if job.started.is_none() {
            job.usage.waited = job.submitted.elapsed();
        }
        if let Some(reason) = reason {
            let usage = job.usage;
            job.send(Update::Ended { reason, usage });
        }
        // a sink may panic when it is dropped, too
        let _ = catch_unwind(AssertUnwindSafe(move || drop(job)));
    }
}
