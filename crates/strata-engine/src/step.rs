//! One step of a batch: drafts, one pass over the rows of all its slots, the head, draws, and what follows from them.

use crate::batch::Batch;
use crate::error::EngineError;
use crate::sampler::Origin;
use crate::slot::{Slot, Token};
use crate::speculate::Drafter;
use std::ops::Range;
use strata_model::{ForwardError, Limits, Segment};
use strata_ops::backend::Backend;

/// What a step does for a slot: reads on in its prompt, or runs its newest token and drafts after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    pub slot: usize,
    /// Rows it may take in the pass: tokens of the prompt, or the newest token and its drafts.
    pub rows: usize,
}

/// What a step gave a slot.
#[derive(Debug)]
pub struct Event {
    pub slot: usize,
    /// A token, or why the slot was cleared.
    pub token: Result<Token, EngineError>,
}

/// How a slot takes part in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Tokens of the prompt.
    Prompt,
    /// The newest token alone, moved past at once.
    Plain,
    /// The newest token and its drafts.
    Window,
}

/// A slot's part in a step.
#[derive(Clone, Debug)]
struct Task {
    slot: usize,
    kind: Kind,
    /// Rows of the pass; those the slot may take, before the pass.
    rows: Range<usize>,
    /// Rows of the head call.
    logits: Range<usize>,
    failed: bool,
}

/// What a step works on, in memory that is taken once.
pub(crate) struct Lists {
    tasks: Vec<Task>,
    segments: Vec<Segment>,
    tokens: Vec<u32>,
    head_rows: Vec<usize>,
}

impl Lists {
    pub fn new(slots: usize, limits: &Limits) -> Lists {
        Lists {
            tasks: Vec::with_capacity(slots),
            segments: Vec::with_capacity(slots),
            tokens: Vec::with_capacity(limits.rows),
            head_rows: Vec::with_capacity(limits.head_rows),
        }
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Task>() * self.tasks.capacity()
            + size_of::<Segment>() * self.segments.capacity()
            + 4 * self.tokens.capacity()
            + 8 * self.head_rows.capacity()
    }
}

impl<B: Backend> Batch<B> {
    /// Takes the slots of `work` further in one pass and appends what they got to `out`, slot by slot: the first token after a
    /// prompt that was read to its end, the tokens after the newest one. Nothing is appended after a token for which
    /// `stop(slot, token)` is true, nor for a slot whose answer has ended ([`Batch::ending`]) or that has no prompt. A slot that fails is cleared;
    /// it does not touch the others.
    ///
    /// # Errors
    /// More rows than [`Batch::max_rows`]: nothing has changed. Weights that cannot be read: all slots of `work` are cleared.
    ///
    /// # Panics
    /// If a slot has two entries or no rows.
    pub fn step(&mut self, work: &[Work], stop: &dyn Fn(usize, u32) -> bool, out: &mut Vec<Event>) -> Result<(), EngineError> {
        let rows = work.iter().map(|w| w.rows).fold(0, usize::saturating_add);
        if rows > self.max_rows() {
            return Err(ForwardError::TooManyRows { found: rows, limit: self.max_rows() }.into());
        }
        let r = self.try_step(work, stop, out);
        if r.is_err() {
            work.iter().for_each(|w| self.clear(w.slot));
        }
        r
    }

    fn try_step(&mut self, work: &[Work], stop: &dyn Fn(usize, u32) -> bool, out: &mut Vec<Event>) -> Result<(), EngineError> {
        let start = (self.options.clock)();
        self.plan(work);
        // times say what a draft is worth only where nothing else is in the pass
        let alone = self.lists.tasks.len() == 1 && self.lists.tasks[0].kind != Kind::Prompt;
        let drafts = self.drafter.is_some() && self.length.as_mut().is_none_or(|l| alone && l.begin());
        self.draft(drafts, alone, out)?;
        self.tell_constraints(out);
        let drafted = (self.options.clock)();
        self.pass(out)?;
        self.read_logits(out)?;
        self.read_means(out)?;
        let first = out.len();
        for t in 0..self.lists.tasks.len() {
            self.draw_all(t, stop, out);
        }
        self.follow(out)?;
        if let (true, Some(l), Some(d)) = (alone && out.len() > first, &mut self.length, &self.drafter) {
            let end = (self.options.clock)();
            if drafts {
                let (made, promised) = d.last(self.lists.tasks[0].slot);
                l.draft_step(made, drafted - start, self.lists.tasks[0].rows.len(), end - drafted, out.len() - first, promised);
            } else {
                l.plain_step(end - start);
            }
        }
        Ok(())
    }

    /// The tasks of a step.
    fn plan(&mut self, work: &[Work]) {
        self.lists.tasks.clear();
        for w in work {
            assert!(w.rows > 0 && self.lists.tasks.iter().all(|t| t.slot != w.slot), "a slot has one entry of at least one row");
            let (kind, most) = match self.unread(w.slot) {
                0 if !self.is_started(w.slot) || self.ending(w.slot).is_some() => continue,
                0 => (Kind::Plain, self.options.capacity - self.seqs[w.slot].len()),
                unread => (Kind::Prompt, unread),
            };
            self.lists.tasks.push(Task { slot: w.slot, kind, rows: 0..w.rows.min(most), logits: 0..0, failed: false });
        }
    }

    /// Fills the windows of slots with a newest token: with drafts behind it, if `drafts`.
    fn draft(&mut self, drafts: bool, alone: bool, out: &mut Vec<Event>) -> Result<(), EngineError> {
        for t in &mut self.lists.tasks {
            let s = &mut self.slots[t.slot];
            s.window.clear();
            s.window.extend(s.current);
            if drafts && t.kind == Kind::Plain {
                t.kind = Kind::Window;
            }
        }
        let (b, model) = (&self.backend, &self.model);
        let Some(d) = &mut self.drafter else { return Ok(()) };
        d.begin();
        for t in &self.lists.tasks {
            // the block's rows of the tokens before, now that the one after them is known
            let (token, drafts) = match t.kind {
                Kind::Prompt => (self.slots[t.slot].history.tokens()[self.seqs[t.slot].len()], 0),
                Kind::Window => (self.slots[t.slot].window[0], t.rows.len().min(self.options.spec + 1) - 1),
                Kind::Plain => continue,
            };
            d.complete(b, model, &mut self.scratch, t.slot, token, drafts);
        }
        let length = if alone { self.length.as_mut() } else { None };
        let slots = &mut self.slots;
        d.run(b, model, &mut self.scratch)?;
        d.draft(b, model, &mut self.scratch, length, &mut self.logits, &mut |slot, token| slots[slot].window.push(token))?;
        self.drafts_failed(out);
        Ok(())
    }

    /// Tells the grammars of the slots that will draw which tokens the pass runs behind what they know.
    fn tell_constraints(&mut self, out: &mut Vec<Event>) {
        for t in 0..self.lists.tasks.len() {
            let Task { slot, kind, ref rows, failed, .. } = self.lists.tasks[t];
            let draws = kind != Kind::Prompt || rows.len() == self.unread(slot);
            let s = &mut self.slots[slot];
            if !failed
                && draws
                && let Err(e) = s.answer.ahead(s.window.get(1..).unwrap_or_default())
            {
                self.fail(slot, e, out);
            }
        }
    }

    /// Fails the slots of which the drafter could make nothing.
    fn drafts_failed(&mut self, out: &mut Vec<Event>) {
        while let Some((slot, e)) = self.drafter.as_mut().and_then(Drafter::failure) {
            self.fail(slot, e.into(), out);
        }
    }

    /// Clears a slot and says why.
    fn fail(&mut self, slot: usize, error: EngineError, out: &mut Vec<Event>) {
        self.clear(slot);
        self.lists.tasks.iter_mut().filter(|t| t.slot == slot).for_each(|t| t.failed = true);
        out.push(Event { slot, token: Err(error) });
    }

    /// The trunk over the rows of all tasks.
    fn pass(&mut self, out: &mut Vec<Event>) -> Result<(), EngineError> {
        self.lists.segments.clear();
        self.lists.tokens.clear();
        for t in self.lists.tasks.iter_mut().filter(|t| !t.failed) {
            let (s, start) = (&self.slots[t.slot], self.lists.tokens.len());
            match t.kind {
                Kind::Prompt => self.lists.tokens.extend_from_slice(&s.history.tokens()[self.seqs[t.slot].len()..][..t.rows.len()]),
                Kind::Plain | Kind::Window => self.lists.tokens.extend_from_slice(&s.window),
            }
            t.rows = start..self.lists.tokens.len();
            self.lists.segments.push(Segment { seq: t.slot, rows: t.rows.len(), commit: t.kind != Kind::Window });
        }
        if self.lists.segments.is_empty() {
            return Ok(());
        }
        match self.model.forward(&self.backend, &mut self.seqs, &self.lists.segments, &self.lists.tokens, &mut self.scratch, None) {
            Err(ForwardError::NotFinite { place, which }) => {
                for slot in which {
                    self.fail(slot, ForwardError::NotFinite { place: place.clone(), which: vec![slot] }.into(), out);
                }
                Ok(())
            }
            r => Ok(r?),
        }
    }

    /// Logits of the rows that a token follows.
    fn read_logits(&mut self, out: &mut Vec<Event>) -> Result<(), EngineError> {
        self.lists.head_rows.clear();
        for t in self.lists.tasks.iter_mut().filter(|t| !t.failed) {
            let start = self.lists.head_rows.len();
            let s = &mut self.slots[t.slot];
            match t.kind {
                Kind::Prompt => {
                    s.stats.prompt_tokens += t.rows.len();
                    if s.mean.is_none() && self.seqs[t.slot].len() == s.history.tokens().len() {
                        self.lists.head_rows.push(t.rows.end - 1);
                    }
                }
                Kind::Plain | Kind::Window => self.lists.head_rows.extend(t.rows.clone()),
            }
            t.logits = start..self.lists.head_rows.len();
        }
        let n = self.lists.head_rows.len();
        if n == 0 {
            return Ok(());
        }
        match self.model.head(&self.backend, &mut self.scratch, self.lists.head_rows.iter().copied()) {
            Err(ForwardError::NotFinite { place, which }) => {
                for t in 0..self.lists.tasks.len() {
                    let (slot, of) = (self.lists.tasks[t].slot, self.lists.tasks[t].logits.clone());
                    if !self.lists.tasks[t].failed && which.iter().any(|row| of.contains(row)) {
                        self.fail(slot, ForwardError::NotFinite { place: place.clone(), which: vec![slot] }.into(), out);
                    }
                }
            }
            r => r?,
        }
        let vocab = self.model.config().vocab;
        self.backend.read(self.scratch.logits(), 0, &mut self.logits[..n * vocab]);
        Ok(())
    }

    /// Adds the rows of texts to embed to their means.
    fn read_means(&mut self, out: &mut Vec<Event>) -> Result<(), EngineError> {
        for t in 0..self.lists.tasks.len() {
            let Task { slot, ref rows, failed, .. } = self.lists.tasks[t];
            if failed || self.slots[slot].mean.is_none() {
                continue;
            }
            match self.add_to_mean(slot, rows.clone()) {
                Err(EngineError::Forward(ForwardError::NotFinite { place, .. })) => {
                    self.fail(slot, ForwardError::NotFinite { place, which: vec![slot] }.into(), out);
                }
                r => r?,
            }
        }
        Ok(())
    }

    /// Draws the tokens of a task and keeps the rows of a window that were right.
    fn draw_all(&mut self, task: usize, stop: &dyn Fn(usize, u32) -> bool, out: &mut Vec<Event>) {
        let Task { slot, kind, logits, failed, .. } = self.lists.tasks[task].clone();
        if failed || logits.is_empty() {
            return;
        }
        let first = out.len();
        for (i, row) in logits.clone().enumerate() {
            let token = match self.draw(slot, row) {
                Ok(token) => token,
                Err(e) => return self.fail(slot, e, out),
            };
            let id = token.id;
            out.push(Event { slot, token: Ok(token) });
            let s = &mut self.slots[slot];
            s.current = Some(id);
            let right = s.window.get(i + 1) == Some(&id);
            s.stats.accepted += usize::from(right);
            if !right || s.answer.ending.is_some() || stop(slot, id) {
                break;
            }
        }
        let s = &mut self.slots[slot];
        if kind != Kind::Prompt {
            s.stats.steps += 1;
        }
        if kind == Kind::Window {
            let kept = out.len() - first;
            s.stats.drafted += logits.len() - 1;
            self.seqs[slot].commit(&self.backend, self.model.config(), kept);
            s.window.clear();
            s.window.extend(out[first..].iter().filter_map(|e| e.token.as_ref().ok()).map(|t| t.id));
        }
    }

    /// Lets the drafter follow what the trunk ran.
    fn follow(&mut self, out: &mut Vec<Event>) -> Result<(), EngineError> {
        let (b, model, s) = (&self.backend, &self.model, &mut self.scratch);
        let Some(d) = &mut self.drafter else { return Ok(()) };
        d.begin();
        for t in self.lists.tasks.iter().filter(|t| !t.failed) {
            let slot = &self.slots[t.slot];
            match t.kind {
                // nothing will be drafted after a text to embed
                Kind::Prompt if slot.mean.is_some() => {}
                Kind::Prompt => {
                    let end = self.seqs[t.slot].len();
                    // not the token that was drawn after the prompt
                    let prompt = slot.history.tokens().len() - usize::from(slot.current.is_some());
                    let next = &slot.history.tokens()[end - t.rows.len() + 1..(end + 1).min(prompt)];
                    d.follow_prompt(b, model, s, t.slot, t.rows.clone(), next);
                }
                Kind::Plain => d.skip(b, model, s, t.slot, t.rows.start, slot.window[0]),
                Kind::Window => d.follow(b, model, s, t.slot, t.rows.start, &slot.window),
            }
        }
        d.run(b, model, s)?;
        self.drafts_failed(out);
        Ok(())
    }

    /// Draws the token after a row of the last head call and adds it to the slot's history.
    fn draw(&mut self, slot: usize, row: usize) -> Result<Token, EngineError> {
        let vocab = self.model.config().vocab;
        let logits = &self.logits[row * vocab..(row + 1) * vocab];
        let Slot { history, params, answer, .. } = &mut self.slots[slot];
        let s = self.sampler.sample(logits, params, answer.next(history, params)?, &mut self.top)?;
        answer.take(s.token)?;
        history.push(s.token, Origin::Generated)?;
        Ok(Token { id: s.token, logprob: s.logprob, top: self.top[..s.top_len].to_vec() })
    }
}
