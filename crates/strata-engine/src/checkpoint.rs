//! All states of a sequence at one of its lengths, as plain values: what a slot needs to go on there without reading its tokens
//! again. Every later bit is that of a sequence which read them.
//!
//! What recurs is copied whole. Cells of attention only grow, so they are cut into immutable pages, which checkpoints with a
//! common prefix share.

use crate::answer::Answer;
use crate::batch::Batch;
use crate::error::EngineError;
use crate::prefix_cache::{Configuration, FileError, Shapes, disk};
use crate::sampler::Origin;
use crate::speculate::Drafted;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use strata_model::MtpSequence;
use strata_ops::backend::{Backend, OpError};

/// Cells of a page. The last page of a checkpoint may have fewer.
pub(crate) const PAGE: usize = 256;

/// Cells as a backend stores them, of all attention layers (or of the MTP block).
pub(crate) struct Page(pub Vec<u8>);

/// All states of a sequence at a length.
pub struct Checkpoint {
    pub(crate) tokens: Vec<u32>,
    pub(crate) states: Vec<f32>,
    pub(crate) pages: Vec<Arc<Page>>,
    pub(crate) mtp: Option<Drafted>,
}

impl Checkpoint {
    /// The tokens that are run.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Bytes beside the pages.
    pub(crate) fn own_bytes(&self) -> u64 {
        (4 * (self.tokens.len() + self.states.len()) + self.mtp.as_ref().map_or(0, Drafted::bytes)) as u64
    }

    pub(crate) fn all_pages(&self) -> impl Iterator<Item = &Arc<Page>> {
        self.pages.iter().chain(self.mtp.iter().flat_map(|m| &m.pages))
    }

    /// Writes it to a file, which appears whole or not at all, in place of one that was there.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, of: &Configuration, path: &Path) -> io::Result<()> {
        disk::write_file(self, of, path)
    }

    /// Reads a file of [`Checkpoint::save`].
    ///
    /// # Errors
    /// It cannot be read, is of another configuration, or has changed.
    pub fn open(of: &Configuration, path: &Path) -> Result<Checkpoint, FileError> {
        disk::read_file(path, of)
    }

    /// Bytes of memory, those of pages that others share included.
    pub fn bytes(&self) -> u64 {
        self.own_bytes() + self.all_pages().map(|p| p.0.len() as u64).sum::<u64>()
    }
}

/// Tokens that both begin with.
pub(crate) fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// A zeroed array.
pub(crate) fn zeroed<T: Clone + Default>(len: usize, what: &str) -> Result<Vec<T>, OpError> {
    let mut v = Vec::new();
    v.try_reserve_exact(len).map_err(|_| OpError::OutOfMemory { what: what.into(), bytes: len as u128 * size_of::<T>() as u128 })?;
    v.resize(len, T::default());
    Ok(v)
}

/// Pages of `cells` cells: those of `parent` that are full below `shared` cells, then new ones.
pub(crate) fn paged(
    cells: usize,
    block: usize,
    block_bytes: usize,
    parent: &[Arc<Page>],
    shared: usize,
    mut save: impl FnMut(Range<usize>, &mut [u8]),
) -> Result<Vec<Arc<Page>>, OpError> {
    let mut pages: Vec<Arc<Page>> = parent[..shared / PAGE].to_vec();
    while pages.len() * PAGE < cells {
        let start = pages.len() * PAGE;
        let blocks = start / block..(start + PAGE).min(cells).div_ceil(block);
        let mut bytes = zeroed(blocks.len() * block_bytes, "page of a checkpoint")?;
        save(blocks, &mut bytes);
        pages.push(Arc::new(Page(bytes)));
    }
    Ok(pages)
}

/// Hands the pages that hold more than the first `kept` cells to `load(first block, bytes)`.
pub(crate) fn load(kept: usize, block: usize, pages: &[Arc<Page>], mut load: impl FnMut(usize, &[u8])) {
    for (i, page) in pages.iter().enumerate().skip(kept / PAGE) {
        load(i * PAGE / block, &page.0);
    }
}

/// True if these pages hold so many cells.
fn hold(pages: &[Arc<Page>], cells: usize, block: usize, block_bytes: usize) -> bool {
    let blocks = |page: usize| (cells - page * PAGE).min(PAGE).div_ceil(block);
    pages.len() == cells.div_ceil(PAGE) && pages.iter().enumerate().all(|(i, p)| p.0.len() == blocks(i) * block_bytes)
}

impl<B: Backend> Batch<B> {
    /// Everything about a slot's sequence at its committed length. Pages of `parent` are shared as far as the tokens are the same.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn checkpoint(&self, slot: usize, parent: Option<&Checkpoint>) -> Result<Checkpoint, EngineError> {
        let (b, c, seq) = (&self.backend, self.model.config(), &self.seqs[slot]);
        let tokens = self.committed(slot);
        let shared = parent.map_or(0, |p| common(&p.tokens, tokens));
        let mut states = zeroed(seq.states_len(c), "checkpoint")?;
        seq.save_states(b, c, &mut states);
        let from = parent.map_or(&[][..], |p| &p.pages);
        let pages = paged(tokens.len(), c.qsa.block, seq.block_bytes(b), from, shared, |blocks, out| seq.save_blocks(b, blocks, out))?;
        let mtp = self.drafter.as_ref().map(|d| d.save(b, c, slot, parent.and_then(|p| p.mtp.as_ref()), shared)).transpose()?;
        Ok(Checkpoint { tokens: tokens.to_vec(), states, pages, mtp })
    }

    /// What files of checkpoints of this batch are bound to. `model`: [`identity`](crate::prefix_cache::identity) of its files.
    pub fn configuration(&self, model: u128) -> Configuration {
        let (b, c, seq) = (&self.backend, self.model.config(), &self.seqs[0]);
        let shapes = Shapes {
            states: seq.states_len(c),
            block_bytes: seq.block_bytes(b),
            mtp_block_bytes: self.drafter.as_ref().map_or(0, |d| d.block_bytes(b, 0)),
            block: c.qsa.block,
            open: MtpSequence::<B>::open_len(c),
            wide: c.wide(),
            drafts: self.drafter.is_some(),
            vocab: c.vocab,
            capacity: self.options.capacity,
        };
        Configuration::new(model, self.options.kv.name(), shapes)
    }

    /// Bytes of a checkpoint: its states, and each of its cells.
    pub fn checkpoint_bytes(&self) -> (u64, u64) {
        let (b, c, seq) = (&self.backend, self.model.config(), &self.seqs[0]);
        let mtp = self.drafter.as_ref().map_or((0, 0), |d| d.checkpoint_bytes(b, c));
        let cell = (seq.block_bytes(b) + mtp.1).div_ceil(c.qsa.block) + size_of::<u32>();
        ((4 * seq.states_len(c) + mtp.0) as u64, cell as u64)
    }

    /// Makes a slot the sequence of a checkpoint, with no newest token: [`Batch::begin`] with a longer prompt goes on from there.
    /// Cells that the slot holds already, as far as its tokens are the same, are left where they are.
    ///
    /// # Errors
    /// A checkpoint of other shapes than this batch's, or one that does not fit. The slot is then unchanged.
    pub fn restore(&mut self, slot: usize, from: &Checkpoint) -> Result<(), EngineError> {
        self.check(slot, from)?;
        let kept = common(&from.tokens, self.committed(slot));
        let (b, c, seq) = (&self.backend, self.model.config(), &mut self.seqs[slot]);
        load(kept, c.qsa.block, &from.pages, |first, bytes| seq.load_blocks(b, first, bytes));
        seq.resume(b, c, &from.tokens, &from.states);
        match (&mut self.drafter, &from.mtp) {
            (Some(d), Some(m)) => d.restore(b, c, slot, m, kept),
            (Some(d), None) => d.start_late(b, slot),
            (None, _) => {}
        }
        let s = &mut self.slots[slot];
        s.current = None;
        s.answer = Answer::default();
        s.mean = None;
        s.history.reset(None);
        from.tokens.iter().try_for_each(|t| s.history.push(*t, Origin::Prompt))?;
        Ok(())
    }

    /// True shapes, whatever a file said.
    pub(crate) fn check(&self, slot: usize, from: &Checkpoint) -> Result<(), EngineError> {
        let (b, c, seq) = (&self.backend, self.model.config(), &self.seqs[slot]);
        let bad = |field, expected: String, found: String| Err(EngineError::Checkpoint { field, expected, found });
        let (n, block) = (from.tokens.len(), c.qsa.block);
        if n >= self.options.capacity {
            return bad("tokens", format!("fewer than the context, {}", self.options.capacity), n.to_string());
        }
        if let Some(t) = from.tokens.iter().find(|t| **t as usize >= c.vocab) {
            return bad("tokens", format!("ids below {}", c.vocab), t.to_string());
        }
        if from.states.len() != seq.states_len(c) {
            return bad("states", format!("{} values", seq.states_len(c)), from.states.len().to_string());
        }
        if !hold(&from.pages, n, block, seq.block_bytes(b)) {
            return bad("pages", format!("those of {n} cells"), format!("{} pages", from.pages.len()));
        }
        if let (Some(d), Some(m)) = (&self.drafter, &from.mtp)
            && !(d.fits(c, m, n) && hold(&m.pages, m.rows, block, d.block_bytes(b, slot)))
        {
            return bad("MTP block", format!("the rows of {n} tokens"), format!("{} and {} pages", m.rows, m.pages.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
