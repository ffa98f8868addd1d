//! The prefix cache and the slots of a batch: what a request begins with, where its prompt is cut, what is kept of it.

use super::disk::{Disk, DiskOptions};
use super::places::places;
use super::spacing::{Spacing, spacing};
use super::{CacheStats, PrefixCache};
use crate::batch::Batch;
use crate::checkpoint::{Checkpoint, PAGE, common};
use crate::request::Mark;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use strata_ops::backend::Backend;

/// What a cache may take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheOptions {
    /// Bytes of memory; 0 keeps nothing but what the slots hold.
    pub bytes: u64,
    /// What [`identity`](super::identity) says of the model: files of its states are bound to it.
    pub model: u128,
    /// A directory, for the ends of answers and what is pinned.
    pub disk: Option<DiskOptions>,
}

/// A prefix cache that serves a batch.
pub struct Reuse {
    cache: PrefixCache,
    disk: Option<Disk>,
    spacing: Spacing,
    slots: Vec<Kept>,
}

/// What is kept of a slot's sequence.
#[derive(Default)]
struct Kept {
    /// Lengths at which a checkpoint is to be made, and whether it is pinned.
    places: VecDeque<(usize, bool)>,
    /// Length of its last checkpoint; 0: none.
    last: usize,
    /// Keep the state at the end of its answer.
    end: bool,
}

impl Reuse {
    /// A cache for a batch.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub fn new<B: Backend>(batch: &Batch<B>, options: &CacheOptions) -> io::Result<Reuse> {
        let (states, cell) = batch.checkpoint_bytes();
        let open = |d: &DiskOptions| Disk::open(&d.dir, d.bytes, batch.configuration(options.model));
        Ok(Reuse {
            disk: options.disk.as_ref().map(open).transpose()?,
            cache: PrefixCache::new(options.bytes),
            spacing: spacing(options.bytes, states, cell, batch.options().capacity),
            slots: (0..batch.slots()).map(|_| Kept::default()).collect(),
        })
    }

    pub fn stats(&self) -> CacheStats {
        CacheStats { disk: self.disk.as_ref().map(Disk::stats).unwrap_or_default(), ..self.cache.stats() }
    }

    pub fn spacing(&self) -> Spacing {
        self.spacing
    }

    /// The one of `free` slots for a prompt: where the fewest of its tokens must be read, then where most of its cells are, then the
    /// one first in `order`.
    pub fn choose<B: Backend, O: Ord>(
        &self,
        batch: &Batch<B>,
        prompt: &[u32],
        free: impl Iterator<Item = usize>,
        order: impl Fn(usize) -> O,
    ) -> Option<usize> {
        let found = self.cache.longest(prompt).max(self.disk.as_ref().map_or(0, |d| d.longest(prompt)));
        free.max_by_key(|&slot| {
            let cells = common(batch.committed(slot), prompt);
            (found.max(held(batch, slot, prompt)), cells / PAGE, Reverse(order(slot)))
        })
    }

    /// Prepares a slot for a prompt, which is to be begun next: puts back the longest beginning of it that is kept, if the slot does not
    /// hold a longer one.
    pub fn begin<B: Backend>(&mut self, batch: &mut Batch<B>, slot: usize, prompt: &[u32], marks: &[Mark]) {
        let held_before = held(batch, slot, prompt);
        self.fetch(prompt, held_before);
        let mut last = if held_before > 0 { self.slots[slot].last } else { 0 };
        if let Some(found) = self.cache.lookup(prompt)
            && found.tokens().len() > held_before
        {
            last = found.tokens().len();
            // one of other shapes was not made here: it is of no use, and the slot is as it was
            if batch.restore(slot, &found).is_err() {
                last = 0;
            }
        }
        let run = held(batch, slot, prompt);
        let places = places(last, run, prompt.len(), marks, self.spacing).into();
        self.slots[slot] = Kept { places, last, end: true };
    }

    /// Takes a checkpoint from disk into memory, where that spares many tokens.
    fn fetch(&mut self, prompt: &[u32], held: usize) {
        let have = self.cache.longest(prompt).max(held);
        if let Some(disk) = &self.disk
            && disk.longest(prompt) >= have + self.spacing.least
            && let Some(found) = disk.load(prompt)
        {
            self.cache.insert(Arc::new(found), false);
        }
    }

    /// Nothing is to be kept of a slot's next sequence.
    pub fn ignore(&mut self, slot: usize) {
        self.slots[slot] = Kept::default();
    }

    /// Tokens of the slot's prompt that the next step may read at most, so that it ends where a checkpoint is to be made.
    pub fn limit<B: Backend>(&self, batch: &Batch<B>, slot: usize) -> usize {
        let run = batch.committed(slot).len();
        self.slots[slot].places.iter().find(|p| p.0 > run).map_or(usize::MAX, |p| p.0 - run)
    }

    /// Makes a checkpoint after a step, if this is a place for one.
    pub fn stepped<B: Backend>(&mut self, batch: &Batch<B>, slot: usize) {
        let run = batch.committed(slot).len();
        let places = &mut self.slots[slot].places;
        while let Some((at, pinned)) = places.pop_front_if(|p| p.0 <= run) {
            if at == run {
                return self.keep(batch, slot, pinned, pinned);
            }
        }
    }

    /// Makes a checkpoint of a complete answer, whose last token is not run. A few tokens are read again sooner than kept.
    pub fn ended<B: Backend>(&mut self, batch: &Batch<B>, slot: usize) {
        let run = batch.committed(slot).len();
        let kept = &mut self.slots[slot];
        kept.places.clear();
        if std::mem::take(&mut kept.end) && run >= kept.last + self.spacing.least {
            self.keep(batch, slot, false, true);
        }
    }

    fn keep<B: Backend>(&mut self, batch: &Batch<B>, slot: usize, pinned: bool, store: bool) {
        let tokens = batch.committed(slot);
        self.slots[slot].last = tokens.len();
        if self.cache.stats().budget == 0 || self.cache.renew(tokens, pinned) {
            return;
        }
        // without the memory for it there is one hit less
        if let Ok(c) = batch.checkpoint(slot, self.cache.nearest(tokens).map(|c| &**c)) {
            let c = Arc::new(c);
            self.cache.insert(Arc::clone(&c), pinned);
            if let (Some(disk), true) = (&self.disk, store) {
                disk.store(c);
            }
        }
    }

    /// Adds a checkpoint from elsewhere; false if there is no room for it.
    pub fn add(&mut self, checkpoint: Arc<Checkpoint>) -> bool {
        self.cache.renew(checkpoint.tokens(), false) || self.cache.insert(checkpoint, false)
    }
}

/// Tokens of a prompt that a slot needs not read.
fn held<B: Backend>(batch: &Batch<B>, slot: usize, prompt: &[u32]) -> usize {
    let run = batch.committed(slot);
    if run.len() < prompt.len() && prompt.starts_with(run) { run.len() } else { 0 }
}
