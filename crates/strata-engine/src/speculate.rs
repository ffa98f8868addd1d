//! Drafts by the MTP block: its cache follows the trunk's true residuals, a chain of its own rows goes ahead of them.
//!
//! While nothing is drafted the block does not follow: a plain step only keeps its residual, and the next draft begins with the
//! rows of the newest of these. Older ones are left out of the block's cache, where later rows then stand closer to the
//! prompt than in the text. That can cost a draft its accuracy, never the text.
//!
//! Rows of several slots are run together: they are queued, then run in one call.

mod saved;

use crate::draft_length::DraftLength;
use crate::error::EngineError;
use crate::evaluate::best;
use crate::options::EngineOptions;
use crate::sampler::ExpInPlace;
use std::ops::Range;
use strata_model::{ForwardError, Model, MtpSequence, Scratch, Segment};
use strata_ops::backend::{Backend, OpError};

pub(crate) use saved::Drafted;

/// Drafts for the slots of a batch.
pub(crate) struct Drafter<B: Backend> {
    seqs: Vec<MtpSequence<B>>,
    slots: Vec<Followed>,
    /// Wide residuals of committed positions whose rows the block has not run, `[slots, space, wide]`: a ring for each slot.
    carry: B::Buf,
    space: usize,
    min_p: f32,
    exp: ExpInPlace,
    // rows of the next call of the block
    segments: Vec<Segment>,
    next: Vec<u32>,
    chains: Vec<Chain>,
    /// Slots for which a call of the block gave a value that is not finite.
    failed: Vec<(usize, ForwardError)>,
}

/// How far the block has followed a slot.
struct Followed {
    /// Where the oldest of `carried` residuals is in the slot's ring.
    oldest: usize,
    carried: usize,
    /// The tokens after those positions but for the last, whose next token is the newest one.
    next: Vec<u32>,
    /// Rows made from the trunk's residuals.
    true_rows: usize,
    /// Rows before the first one that was left out: those are the rows of their positions.
    whole: usize,
    /// Probabilities of the window's drafts, where someone asked for them.
    promised: Vec<f32>,
    /// Drafts made for the window, those that did not stay in it included.
    made: usize,
}

/// A slot that may be drafted for: from a row of the last call of the block, so many tokens at most.
#[derive(Clone, Copy)]
struct Chain {
    slot: usize,
    row: usize,
    left: usize,
}

/// Residuals that plain steps keep at most.
const KEPT: usize = 8;

/// Residuals of a slot that can wait for the block: their rows are made in one call, which holds a window at least.
pub(crate) fn space(options: &EngineOptions) -> usize {
    KEPT.min(options.chunk.min(options.capacity)).max(options.spec + 1)
}

impl<B: Backend> Drafter<B> {
    pub fn new(b: &B, model: &Model<B>, options: &EngineOptions, slots: usize) -> Result<Self, OpError> {
        let (c, space) = (model.config(), space(options));
        let followed = || Followed {
            oldest: 0,
            carried: 0,
            next: Vec::with_capacity(space),
            true_rows: 0,
            whole: usize::MAX,
            promised: Vec::with_capacity(options.spec),
            made: 0,
        };
        let seq = |_| MtpSequence::new(b, c, options.kv, options.capacity, options.mtp_dense);
        Ok(Drafter {
            seqs: (0..slots).map(seq).collect::<Result<_, _>>()?,
            slots: (0..slots).map(|_| followed()).collect(),
            carry: b.buf(slots * space * c.wide(), "draft input")?,
            space,
            min_p: options.spec_min_p,
            exp: options.exp,
            segments: Vec::with_capacity(slots),
            next: Vec::with_capacity(options.chunk.min(slots.saturating_mul(options.capacity)).max(slots * space)),
            chains: Vec::with_capacity(slots),
            failed: Vec::new(),
        })
    }

    pub fn clear(&mut self, b: &B, slot: usize) {
        self.seqs[slot].truncate(b, 0);
        let f = &mut self.slots[slot];
        (f.oldest, f.carried, f.true_rows, f.whole) = (0, 0, 0, usize::MAX);
        f.next.clear();
    }

    /// A slot that failed in a call of the block since this was asked last.
    pub fn failure(&mut self) -> Option<(usize, ForwardError)> {
        self.failed.pop()
    }

    /// Drafts made for a slot's last window, and the probabilities of those that stayed in it.
    pub fn last(&self, slot: usize) -> (usize, &[f32]) {
        (self.slots[slot].made, &self.slots[slot].promised)
    }

    /// Begins the queue of a call.
    pub fn begin(&mut self) {
        self.segments.clear();
        self.next.clear();
        self.chains.clear();
    }

    /// Queues the rows of a prompt that the trunk ran as rows `rows` of its call, whose next tokens are `next`: all of them, or
    /// all but the last row's at the prompt's end.
    pub fn follow_prompt(&mut self, b: &B, model: &Model<B>, s: &mut Scratch<B>, slot: usize, rows: Range<usize>, next: &[u32]) {
        let (c, f) = (model.config(), &mut self.slots[slot]);
        // a checkpoint needs the last row's residual even where the row is made now: its next token is not of the checkpoint
        b.copy(s.residual(), (rows.end - 1) * c.wide(), &mut self.carry, slot * self.space * c.wide(), c.wide());
        (f.oldest, f.carried) = (0, rows.len() - next.len());
        if !next.is_empty() {
            s.mtp_input_from_residual(b, c, rows.start, self.next.len(), next.len());
            f.true_rows += next.len();
            self.queue(slot, next);
        }
    }

    /// After a window was verified from row `row` of the trunk's call and `tokens.len()` rows of it were kept: each is followed by
    /// one of `tokens`.
    pub fn follow(&mut self, b: &B, model: &Model<B>, s: &Scratch<B>, slot: usize, row: usize, tokens: &[u32]) {
        let (wide, f) = (model.config().wide(), &mut self.slots[slot]);
        self.seqs[slot].truncate(b, f.true_rows);
        b.copy(s.residual(), row * wide, &mut self.carry, slot * self.space * wide, tokens.len() * wide);
        (f.oldest, f.carried) = (0, tokens.len());
        f.next.clear();
        f.next.extend_from_slice(&tokens[..tokens.len() - 1]);
    }

    /// After a plain step with `token`, row `row` of the trunk's call: keeps its residual, in place of the oldest if there is
    /// no space.
    pub fn skip(&mut self, b: &B, model: &Model<B>, s: &Scratch<B>, slot: usize, row: usize, token: u32) {
        let (wide, f) = (model.config().wide(), &mut self.slots[slot]);
        self.seqs[slot].truncate(b, f.true_rows);
        if f.carried > 0 {
            f.next.push(token);
        }
        if f.carried == self.space {
            f.oldest = (f.oldest + 1) % self.space;
            f.carried -= 1;
            f.whole = f.whole.min(f.true_rows);
            f.next.remove(0);
        }
        let at = slot * self.space + (f.oldest + f.carried) % self.space;
        b.copy(s.residual(), row * wide, &mut self.carry, at * wide, wide);
        f.carried += 1;
    }

    /// Queues the carried rows of a slot, now that `token`, the one after the last of them, is known. Then up to `drafts` tokens
    /// may be drafted.
    pub fn complete(&mut self, b: &B, model: &Model<B>, s: &mut Scratch<B>, slot: usize, token: u32, drafts: usize) {
        let (c, f, at) = (model.config(), &mut self.slots[slot], self.next.len());
        self.seqs[slot].truncate(b, f.true_rows);
        f.promised.clear();
        f.made = 0;
        let rows = std::mem::take(&mut f.carried);
        if rows == 0 {
            return;
        }
        let until_end = rows.min(self.space - f.oldest);
        s.mtp_input(b, c, &self.carry, slot * self.space + f.oldest, at, until_end);
        s.mtp_input(b, c, &self.carry, slot * self.space, at + until_end, rows - until_end);
        f.next.push(token);
        f.true_rows += rows;
        self.segments.push(Segment { seq: slot, rows, commit: true });
        self.next.append(&mut f.next);
        if drafts > 0 {
            self.chains.push(Chain { slot, row: at + rows - 1, left: drafts });
        }
    }

    fn queue(&mut self, slot: usize, next: &[u32]) {
        self.segments.push(Segment { seq: slot, rows: next.len(), commit: true });
        self.next.extend_from_slice(next);
    }

    /// Runs the rows of the queue.
    pub fn run(&mut self, b: &B, model: &Model<B>, s: &mut Scratch<B>) -> Result<(), EngineError> {
        if self.segments.is_empty() {
            return Ok(());
        }
        match model.mtp_forward(b, &mut self.seqs, &self.segments, &self.next, s) {
            Err(ForwardError::NotFinite { place, which }) => which.into_iter().for_each(|slot| self.fail(slot, &place)),
            r => r?,
        }
        self.segments.clear();
        self.next.clear();
        Ok(())
    }

    fn fail(&mut self, slot: usize, place: &str) {
        self.chains.retain(|c| c.slot != slot);
        self.failed.push((slot, ForwardError::NotFinite { place: place.to_string(), which: vec![slot] }));
    }

    /// Drafts tokens for the slots whose rows were run last and hands them to `take(slot, token)`, one after another;
    /// `length` may stop earlier.
    pub fn draft(
        &mut self,
        b: &B,
        model: &Model<B>,
        s: &mut Scratch<B>,
        mut length: Option<&mut DraftLength>,
        logits: &mut [f32],
        take: &mut dyn FnMut(usize, u32),
    ) -> Result<(), EngineError> {
        let c = model.config();
        while !self.chains.is_empty() {
            let n = self.chains.len();
            match model.mtp_head(b, s, self.chains.iter().map(|x| x.row)) {
                Err(ForwardError::NotFinite { place, which }) => {
                    // rows after those that failed move up
                    which.iter().rev().for_each(|i| self.fail(self.chains[*i].slot, &place));
                    continue;
                }
                r => r?,
            }
            b.read(s.logits(), 0, &mut logits[..n * c.vocab]);
            let mut going = 0;
            for i in 0..n {
                let chain = self.chains[i];
                let Some(token) = self.next_draft(chain, &mut logits[i * c.vocab..][..c.vocab], &mut length, take) else { continue };
                s.mtp_input_from_residual(b, c, chain.row, going, 1);
                self.queue(chain.slot, &[token]);
                self.chains[going] = Chain { row: going, left: chain.left - 1, ..chain };
                going += 1;
            }
            self.chains.truncate(going);
            self.run(b, model, s)?;
        }
        Ok(())
    }

    /// The next draft of a chain; `None` if nothing is to be drafted after it.
    fn next_draft(
        &mut self,
        chain: Chain,
        logits: &mut [f32],
        length: &mut Option<&mut DraftLength>,
        take: &mut dyn FnMut(usize, u32),
    ) -> Option<u32> {
        let f = &mut self.slots[chain.slot];
        let token = best(logits) as u32;
        f.made += 1;
        if self.min_p > 0.0 || length.is_some() {
            let p = probability(logits, token, self.exp);
            if p < self.min_p || length.as_mut().is_some_and(|l| !l.keeps(p)) {
                return None;
            }
            f.promised.push(p);
        }
        take(chain.slot, token);
        (chain.left > 1 && length.as_ref().is_none_or(|l| l.goes_on())).then_some(token)
    }
}

/// Probability of the most probable token; the logits are used up.
fn probability(logits: &mut [f32], best: u32, exp: ExpInPlace) -> f32 {
    let max = logits[best as usize];
    logits.iter_mut().for_each(|l| *l -= max);
    exp(logits);
    (1.0 / logits.iter().map(|e| f64::from(*e)).sum::<f64>()) as f32
}
