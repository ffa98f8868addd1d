//! Drafts by the MTP block: its cache follows the trunk's true residuals, a chain of its own rows goes ahead of them.
//!
//! While nothing is drafted the block does not follow: a plain step only keeps its residual, and the next draft begins with the
//! rows of the newest of these. Older ones are left out of the block's cache, where later rows then stand closer to the
//! prompt than in the text. That can cost a draft its accuracy, never the text.

use crate::draft_length::DraftLength;
use crate::error::EngineError;
use crate::evaluate::best;
use crate::options::EngineOptions;
use crate::sampler::ExpInPlace;
use strata_model::{Model, MtpSequence, Scratch};
use strata_ops::backend::{Backend, OpError};

/// Drafts for one sequence.
pub(crate) struct Drafter<B: Backend> {
    seq: MtpSequence<B>,
    /// Wide residuals of committed positions whose rows the block has not run, `[space, wide]`, a ring: the oldest is in
    /// row `oldest`.
    carry: B::Buf,
    space: usize,
    oldest: usize,
    carried: usize,
    /// The tokens after those positions but for the last, whose next token is the newest one.
    next: Vec<u32>,
    /// Rows made from the trunk's residuals.
    true_rows: usize,
    min_p: f32,
    exp: ExpInPlace,
    /// Probabilities of the window's drafts, where someone asked for them.
    promised: Vec<f32>,
    /// Drafts made for the window, those that did not stay in it included.
    made: usize,
}

/// Residuals that plain steps keep at most.
const KEPT: usize = 8;

impl<B: Backend> Drafter<B> {
    pub fn new(b: &B, model: &Model<B>, options: &EngineOptions) -> Result<Self, OpError> {
        let c = model.config();
        let window = options.spec + 1;
        // their rows are made in one call, which holds a window at least
        let space = KEPT.min(options.chunk.min(options.capacity)).max(window);
        Ok(Drafter {
            seq: MtpSequence::new(b, c, options.kv, options.capacity, options.mtp_dense)?,
            carry: b.buf(space * c.wide(), "draft input")?,
            space,
            oldest: 0,
            carried: 0,
            next: Vec::with_capacity(space),
            true_rows: 0,
            min_p: options.spec_min_p,
            exp: options.exp,
            promised: Vec::with_capacity(options.spec),
            made: 0,
        })
    }

    pub fn clear(&mut self, b: &B) {
        self.seq.truncate(b, 0);
        (self.oldest, self.carried) = (0, 0);
        self.next.clear();
        self.true_rows = 0;
    }

    /// After the trunk ran `n` rows of a prompt, whose next tokens are `next`: all of them, or all but the last row's
    /// at the prompt's end.
    pub fn follow_prompt(&mut self, b: &B, model: &Model<B>, s: &mut Scratch<B>, next: &[u32], n: usize) -> Result<(), EngineError> {
        let c = model.config();
        if next.len() < n {
            b.copy(s.residual(), (n - 1) * c.wide(), &mut self.carry, 0, c.wide());
            (self.oldest, self.carried) = (0, 1);
        }
        if !next.is_empty() {
            s.mtp_input_from_residual(b, c, 0, 0, next.len());
            model.mtp_forward(b, &mut self.seq, s, next)?;
            self.true_rows += next.len();
        }
        Ok(())
    }

    /// After a window was verified and `tokens.len()` rows of it were kept: row i is followed by `tokens[i]`.
    pub fn follow(&mut self, b: &B, model: &Model<B>, s: &mut Scratch<B>, tokens: &[u32]) {
        let c = model.config();
        self.seq.truncate(b, self.true_rows);
        b.copy(s.residual(), 0, &mut self.carry, 0, tokens.len() * c.wide());
        (self.oldest, self.carried) = (0, tokens.len());
        self.next.clear();
        self.next.extend_from_slice(&tokens[..tokens.len() - 1]);
    }

    /// After a plain step with `token`: keeps its residual, in place of the oldest if there is no space.
    pub fn skip(&mut self, b: &B, model: &Model<B>, s: &Scratch<B>, token: u32) {
        let wide = model.config().wide();
        self.seq.truncate(b, self.true_rows);
        if self.carried > 0 {
            self.next.push(token);
        }
        if self.carried == self.space {
            self.oldest = (self.oldest + 1) % self.space;
            self.carried -= 1;
            self.next.remove(0);
        }
        let row = (self.oldest + self.carried) % self.space;
        b.copy(s.residual(), 0, &mut self.carry, row * wide, wide);
        self.carried += 1;
    }

    /// Drafts made for the last window, and the probabilities of those that stayed in it.
    pub fn last(&self) -> (usize, &[f32]) {
        (self.made, &self.promised)
    }

    /// Runs the carried rows, now that `token`, the one after the last of them, is known.
    pub fn complete(&mut self, b: &B, model: &Model<B>, s: &mut Scratch<B>, token: u32) -> Result<(), EngineError> {
        let rows = self.carried;
        self.seq.truncate(b, self.true_rows);
        if rows > 0 {
            let until_end = rows.min(self.space - self.oldest);
            s.mtp_input(b, model.config(), &self.carry, self.oldest, 0, until_end);
            s.mtp_input(b, model.config(), &self.carry, 0, until_end, rows - until_end);
            self.next.push(token);
            model.mtp_forward(b, &mut self.seq, s, &self.next)?;
            self.true_rows += rows;
            self.carried = 0;
            self.next.clear();
        }
        Ok(())
    }

    /// Drafts up to `n` tokens after `current` and appends them to `window`; `length` may stop earlier.
    #[allow(clippy::too_many_arguments)]
    pub fn draft(
        &mut self,
        b: &B,
        model: &Model<B>,
        s: &mut Scratch<B>,
        current: u32,
        n: usize,
        mut length: Option<&mut DraftLength>,
        logits: &mut [f32],
        window: &mut Vec<u32>,
    ) -> Result<(), EngineError> {
        let c = model.config();
        self.promised.clear();
        self.made = 0;
        let mut row = self.carried.saturating_sub(1);
        self.complete(b, model, s, current)?;
        for i in 0..n {
            model.mtp_head(b, s, row, 1)?;
            let logits = &mut logits[..c.vocab];
            b.read(s.logits(), 0, logits);
            let token = best(logits) as u32;
            self.made += 1;
            if self.min_p > 0.0 || length.is_some() {
                let p = probability(logits, token, self.exp);
                if p < self.min_p || length.as_mut().is_some_and(|l| !l.keeps(p)) {
                    break;
                }
                self.promised.push(p);
            }
            window.push(token);
            if length.as_ref().is_some_and(|l| !l.goes_on()) {
                break;
            }
            if i + 1 < n {
                s.mtp_input_from_residual(b, c, row, 0, 1);
                model.mtp_forward(b, &mut self.seq, s, &[token])?;
                row = 0;
            }
        }
        Ok(())
    }
}

/// Probability of the most probable token; the logits are used up.
fn probability(logits: &mut [f32], best: u32, exp: ExpInPlace) -> f32 {
    let max = logits[best as usize];
    logits.iter_mut().for_each(|l| *l -= max);
    exp(logits);
    (1.0 / logits.iter().map(|e| f64::from(*e)).sum::<f64>()) as f32
}
