//! Who takes part in the next step: requests wait in a bounded queue, get a slot in the order they came, and share the rows of
//! each step.
//!
//! Pure and deterministic: no model, no clock, no threads. Time is a [`Duration`] since a moment that the caller chose. Between two
//! steps the caller hears who ended ([`Scheduler::ended`]), gives slots to those next in line ([`Scheduler::admit`]) and takes the
//! work of the step ([`Scheduler::work`]).
//!
//! A step has a budget of rows. Every request with a slot gets one, so that none starves. Then sequences that decode get the rest of
//! their windows, in turn; what is left is dealt to the prompts row by row in a circle that goes on where the last step stopped:
//! of two prompts that read on in the same steps, neither gets two rows more than the other.

use crate::step::Work;
use std::collections::VecDeque;
use std::time::Duration;
use thiserror::Error;

/// Sizes of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerLimits {
    /// Requests that run at a time.
    pub slots: usize,
    /// Requests that wait at most.
    pub queue: usize,
    /// Rows of a step; at least one for each slot.
    pub rows: usize,
    /// Rows that a sequence can use in a step once it decodes: one and its drafts.
    pub window: usize,
}

/// A request, as the scheduler names it: they are numbered from 0 in the order they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

/// The queue holds as many requests as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{waiting} requests are waiting, which is the limit")]
pub struct Full {
    pub waiting: usize,
}

/// Sizes that no scheduler can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{field}: expected at least {expected}, found {found}")]
pub struct BadLimits {
    pub field: &'static str,
    pub expected: usize,
    pub found: usize,
}

/// Why a request was ended by the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Cancelled,
    /// Its deadline has passed.
    Deadline,
}

/// A request that ended before its answer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub ticket: Ticket,
    /// The slot it had, which is free now and should be cleared.
    pub slot: Option<usize>,
    pub cause: Cause,
}

/// A request that may run.
#[derive(Clone, Copy, Debug)]
struct Request {
    ticket: Ticket,
    deadline: Option<Duration>,
    cancelled: bool,
}

/// A request with a slot.
#[derive(Clone, Copy, Debug)]
struct Running {
    request: Request,
    /// Tokens of the prompt that no step has taken; 0: it decodes.
    unread: usize,
    /// Of these, the next step takes so many at most.
    most: usize,
}

/// The requests of a server, waiting and running.
pub struct Scheduler {
    limits: SchedulerLimits,
    waiting: VecDeque<Request>,
    slots: Vec<Option<Running>>,
    issued: u64,
    /// The slot that the next row dealt to prompts, and to windows, is offered first.
    next_prompt: usize,
    next_window: usize,
    /// Rows of each slot in the step being planned.
    rows: Vec<usize>,
}

impl Request {
    fn cause(&self, now: Duration) -> Option<Cause> {
        match self.deadline {
            _ if self.cancelled => Some(Cause::Cancelled),
            Some(d) if d <= now => Some(Cause::Deadline),
            _ => None,
        }
    }
}

impl Scheduler {
    /// A scheduler without requests. All its memory is taken here.
    ///
    /// # Errors
    /// No slot, no row for a window, or fewer rows than slots.
    pub fn new(limits: SchedulerLimits) -> Result<Scheduler, BadLimits> {
        let SchedulerLimits { slots, queue, rows, window } = limits;
        for (field, expected, found) in [("slots", 1, slots), ("window", 1, window), ("rows", slots, rows)] {
            if found < expected {
                return Err(BadLimits { field, expected, found });
            }
        }
        Ok(Scheduler {
            limits,
            waiting: VecDeque::with_capacity(queue),
            slots: vec![None; slots],
            issued: 0,
            next_prompt: 0,
            next_window: 0,
            rows: vec![0; slots],
        })
    }

    pub fn limits(&self) -> SchedulerLimits {
        self.limits
    }

    /// Requests that wait for a slot.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Requests with a slot.
    pub fn running(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// Who has a slot.
    pub fn holder(&self, slot: usize) -> Option<Ticket> {
        self.slots[slot].map(|r| r.request.ticket)
    }

    /// Takes a request into the queue; from `deadline` on it is ended.
    ///
    /// # Errors
    /// The queue is full.
    pub fn submit(&mut self, deadline: Option<Duration>) -> Result<Ticket, Full> {
        if self.waiting.len() >= self.limits.queue {
            return Err(Full { waiting: self.waiting.len() });
        }
        let ticket = Ticket(self.issued);
        self.issued += 1;
        self.waiting.push_back(Request { ticket, deadline, cancelled: false });
        Ok(ticket)
    }

    /// Ends a request before the next step; false if there is none of that name.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        let running = self.slots.iter_mut().flatten().map(|r| &mut r.request);
        match running.chain(&mut self.waiting).find(|r| r.ticket == ticket) {
            Some(r) => {
                r.cancelled = true;
                true
            }
            None => false,
        }
    }

    /// Frees the slot of a request whose answer is complete.
    pub fn finish(&mut self, slot: usize) {
        self.slots[slot] = None;
    }

    /// One request that was cancelled or whose deadline has passed; ask until there is none.
    pub fn ended(&mut self, now: Duration) -> Option<Ended> {
        for (slot, s) in self.slots.iter_mut().enumerate() {
            if let Some((ticket, cause)) = s.and_then(|r| Some((r.request.ticket, r.request.cause(now)?))) {
                *s = None;
                return Some(Ended { ticket, slot: Some(slot), cause });
            }
        }
        let (i, cause) = self.waiting.iter().enumerate().find_map(|(i, r)| Some((i, r.cause(now)?)))?;
        self.waiting.remove(i).map(|r| Ended { ticket: r.ticket, slot: None, cause })
    }

    /// The request that waited longest.
    pub fn next(&self) -> Option<Ticket> {
        self.waiting.front().map(|r| r.ticket)
    }

    /// Slots that nobody has, ascending.
    pub fn free(&self) -> impl Iterator<Item = usize> {
        (0..self.slots.len()).filter(|s| self.slots[*s].is_none())
    }

    /// Gives the request that waited longest a slot, where `unread` tokens of its prompt are to be read (what the slot or a cache
    /// already holds is not); with 0 it is refused.
    ///
    /// # Panics
    /// If the slot is not free.
    pub fn place(&mut self, slot: usize, unread: usize) {
        assert!(self.slots[slot].is_none(), "slot {slot} is free");
        if let Some(request) = self.waiting.pop_front() {
            self.slots[slot] = (unread > 0).then_some(Running { request, unread, most: usize::MAX });
        }
    }

    /// [`Scheduler::place`] in the first free slot, if there is one and a request waits; `unread(ticket, slot)` says what is to be
    /// read.
    pub fn admit(&mut self, unread: impl FnOnce(Ticket, usize) -> usize) -> Option<(Ticket, usize)> {
        let (slot, ticket) = (self.free().next()?, self.next()?);
        self.place(slot, unread(ticket, slot));
        Some((ticket, slot))
    }

    /// A slot takes at most `rows` rows of its prompt in the next step, at least 1.
    pub fn limit(&mut self, slot: usize, rows: usize) {
        self.slots[slot].iter_mut().for_each(|r| r.most = rows);
    }

    /// The work of the next step, in the order of slots, at most the budget in all. It is taken as done: who is not to go on is
    /// finished or cancelled afterwards.
    pub fn work(&mut self, out: &mut Vec<Work>) {
        out.clear();
        let (slots, window) = (&mut self.slots, self.limits.window);
        for (rows, s) in self.rows.iter_mut().zip(&*slots) {
            *rows = usize::from(s.is_some());
        }
        let left = self.limits.rows - self.rows.iter().sum::<usize>();
        let wants = |slot: usize| slots[slot].map_or(0, |r| if r.unread == 0 { window } else { 0 });
        let left = deal(&mut self.rows, &mut self.next_window, left, wants);
        deal(&mut self.rows, &mut self.next_prompt, left, |slot| slots[slot].map_or(0, |r| r.unread.min(r.most)));
        for (slot, (s, rows)) in slots.iter_mut().zip(&self.rows).enumerate() {
            if let Some(r) = s {
                r.unread -= (*rows).min(r.unread);
                r.most = usize::MAX;
                out.push(Work { slot, rows: *rows });
            }
        }
    }
}

/// Deals up to `left` rows one by one in a circle that begins at `next`, to slots that have fewer than they want; gives back what
/// nobody wants. Whole rounds are dealt at once.
fn deal(rows: &mut [usize], next: &mut usize, mut left: usize, wants: impl Fn(usize) -> usize) -> usize {
    let n = rows.len();
    let open = |rows: &[usize], slot: usize| wants(slot).saturating_sub(rows[slot]);
    loop {
        let (takers, least) = (0..n).map(|s| open(rows, s)).filter(|w| *w > 0).fold((0, usize::MAX), |(k, m), w| (k + 1, w.min(m)));
        if takers == 0 || left == 0 {
            return left;
        }
        // nobody's wish ends within these rounds but in the last of them; the rest, less than a round, goes from `next` on
        let rounds = least.min(left / takers);
        let single = if rounds == 0 { left } else { 0 };
        left -= rounds * takers + single;
        for (slot, r) in rows.iter_mut().enumerate() {
            *r += if wants(slot) > *r { rounds } else { 0 };
        }
        let mut dealt = 0;
        while dealt < single {
            let given = usize::from(open(rows, *next) > 0);
            rows[*next] += given;
            dealt += given;
            *next = (*next + 1) % n;
        }
    }
}
