//! What the MTP block knows of a slot, as plain values, and back.

use super::Drafter;
use crate::checkpoint::{Page, load, paged, zeroed};
use std::sync::Arc;
use strata_model::{Config, MtpSequence};
use strata_ops::backend::{Backend, OpError};

/// The MTP block's part of a checkpoint. Nothing in it depends on a token that is not run: the row of the last position waits for
/// its next token.
pub(crate) struct Drafted {
    /// Rows of the block's cache; of these, those before the first one that was left out.
    pub rows: usize,
    pub whole: usize,
    pub open: Vec<f32>,
    /// Residuals of the positions whose rows are not made, oldest first, `[.., wide]`, and the tokens after all but the last.
    pub carried: Vec<f32>,
    pub next: Vec<u32>,
    pub pages: Vec<Arc<Page>>,
}

impl<B: Backend> Drafter<B> {
    /// Saves a slot between two steps. The first `common` tokens of `parent` are the slot's.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn save(&self, b: &B, c: &Config, slot: usize, parent: Option<&Drafted>, common: usize) -> Result<Drafted, OpError> {
        let (f, seq, wide) = (&self.slots[slot], &self.seqs[slot], c.wide());
        // in the middle of a prompt the last row is made already; its residual is the only one in the ring
        let (rows, carried) = if f.carried == 0 && f.true_rows > 0 { (f.true_rows - 1, 1) } else { (f.true_rows, f.carried) };
        let mut saved = Drafted {
            rows,
            whole: f.whole,
            open: zeroed(MtpSequence::<B>::open_len(c), "checkpoint")?,
            carried: zeroed(carried * wide, "checkpoint")?,
            next: f.next.clone(),
            pages: Vec::new(),
        };
        seq.save_open(b, rows, &mut saved.open);
        for (i, to) in saved.carried.chunks_exact_mut(wide).enumerate() {
            b.read(&self.carry, (slot * self.space + (f.oldest + i) % self.space) * wide, to);
        }
        let (from, shared) = parent.map_or((&[][..], 0), |p| (&p.pages[..], p.shared(common).min(rows).min(f.whole)));
        saved.pages = paged(rows, c.qsa.block, seq.block_bytes(b), from, shared, |blocks, out| seq.save_blocks(b, blocks, out))?;
        Ok(saved)
    }

    /// Puts a slot back, whose tokens up to `common` are the checkpoint's.
    pub fn restore(&mut self, b: &B, c: &Config, slot: usize, from: &Drafted, common: usize) {
        let (f, seq, wide) = (&mut self.slots[slot], &mut self.seqs[slot], c.wide());
        let kept = from.shared(common).min(f.true_rows).min(f.whole);
        load(kept, c.qsa.block, &from.pages, |first, bytes| seq.load_blocks(b, first, bytes));
        seq.resume(b, from.rows, &from.open);
        let rows = from.carried.len() / wide;
        let dropped = rows.saturating_sub(self.space);
        b.write(&mut self.carry, slot * self.space * wide, &from.carried[dropped * wide..]);
        (f.oldest, f.carried, f.true_rows) = (0, rows - dropped, from.rows);
        f.whole = if dropped > 0 { from.whole.min(from.rows) } else { from.whole };
        f.next.clear();
        f.next.extend_from_slice(&from.next[dropped.min(from.next.len())..]);
    }

    /// True if a part has the shapes of this block's and is of a sequence of `tokens` tokens.
    pub fn fits(&self, c: &Config, from: &Drafted, tokens: usize) -> bool {
        let carried = from.carried.len() / c.wide();
        from.open.len() == MtpSequence::<B>::open_len(c)
            && from.carried.len() == carried * c.wide()
            && from.next.len() == carried.saturating_sub(1)
            && from.next.iter().all(|t| (*t as usize) < c.vocab)
            && from.rows.checked_add(carried).is_some_and(|n| n <= tokens)
    }

    /// Bytes of a saved slot beside its cells, and of a block of these.
    pub fn checkpoint_bytes(&self, b: &B, c: &Config) -> (usize, usize) {
        (4 * (MtpSequence::<B>::open_len(c) + self.space * c.wide()), self.seqs[0].block_bytes(b))
    }

    pub fn block_bytes(&self, b: &B, slot: usize) -> usize {
        self.seqs[slot].block_bytes(b)
    }

    /// A slot of which the block knows nothing, although tokens are run.
    pub fn start_late(&mut self, b: &B, slot: usize) {
        self.clear(b, slot);
        self.slots[slot].whole = 0;
    }
}

impl Drafted {
    /// Rows that another sequence has too, if its first `common` tokens are the same and it left out none of them: a row is made of
    /// its token and the next.
    fn shared(&self, common: usize) -> usize {
        common.saturating_sub(1).min(self.rows).min(self.whole)
    }

    /// Bytes beside the pages.
    pub fn bytes(&self) -> usize {
        4 * (self.open.len() + self.carried.len() + self.next.len())
    }
}
