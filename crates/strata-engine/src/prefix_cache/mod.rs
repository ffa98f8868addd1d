//! Checkpoints by the tokens they follow, within a budget of bytes.
//!
//! A checkpoint stands for itself: it needs no other, because pages are held by all that use them. So the one to give up is
//! the one that was used least recently, wherever it is in the tree; leaves first, as for caches of pages alone, would give up the
//! newest turn of a conversation and keep all its older ones. Pinned ones, the beginnings of many prompts, go last; they may take
//! half of the budget, beyond which those used least recently lose their pins.

pub(crate) mod disk;
mod format;
mod identity;
mod places;
mod pool;
mod reuse;
mod spacing;
mod tree;

#[cfg(test)]
mod tests;

use crate::checkpoint::Checkpoint;
pub use disk::{DiskOptions, DiskStats};
pub(crate) use format::Shapes;
pub use format::{Configuration, FileError};
pub use identity::identity;
use pool::PagePool;
pub use reuse::{CacheOptions, Reuse};
pub use spacing::{Spacing, spacing};
use std::collections::BTreeMap;
use std::sync::Arc;
use tree::{NodeId, RadixTree};

struct Entry {
    checkpoint: Arc<Checkpoint>,
    pinned: bool,
    /// When it was used last, in uses.
    used: u64,
}

/// Counts since the cache was made, and its contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    pub checkpoints: usize,
    /// Bytes of all of them, shared pages once.
    pub bytes: u64,
    pub budget: u64,
    pub lookups: u64,
    /// Look-ups that found something.
    pub hits: u64,
    pub inserted: u64,
    pub evicted: u64,
    pub disk: DiskStats,
}

/// The cache. Not a promise of anything: what it holds may be gone at the next call, and nothing but time depends on it.
pub struct PrefixCache {
    tree: RadixTree<Entry>,
    pool: PagePool,
    /// The order in which entries are given up.
    order: BTreeMap<(bool, u64), NodeId>,
    uses: u64,
    /// Bytes of pinned checkpoints, shared pages with each.
    pinned: u64,
    stats: CacheStats,
}

impl PrefixCache {
    /// A cache of at most `budget` bytes.
    pub fn new(budget: u64) -> PrefixCache {
        PrefixCache {
            tree: RadixTree::new(),
            pool: PagePool::default(),
            order: BTreeMap::new(),
            uses: 0,
            pinned: 0,
            stats: CacheStats { budget, ..CacheStats::default() },
        }
    }

    pub fn stats(&self) -> CacheStats {
        CacheStats { checkpoints: self.order.len(), bytes: self.pool.bytes(), ..self.stats }
    }

    /// The longest checkpoint that `tokens` begin with and that leaves at least one of them to read.
    pub fn lookup(&mut self, tokens: &[u32]) -> Option<Arc<Checkpoint>> {
        self.stats.lookups += 1;
        let id = self.tree.longest(tokens, tokens.len().saturating_sub(1))?;
        self.stats.hits += 1;
        self.touch(id, false);
        self.tree.get(id).map(|e| Arc::clone(&e.checkpoint))
    }

    /// The length of what [`PrefixCache::lookup`] would find. Counts as no use.
    pub fn longest(&self, tokens: &[u32]) -> usize {
        let id = self.tree.longest(tokens, tokens.len().saturating_sub(1));
        id.and_then(|id| self.tree.get(id)).map_or(0, |e| e.checkpoint.tokens().len())
    }

    /// A checkpoint that shares as many first tokens as any: the parent for a new one of these tokens.
    pub fn nearest(&self, tokens: &[u32]) -> Option<&Arc<Checkpoint>> {
        self.tree.nearest(tokens).and_then(|id| self.tree.get(id)).map(|e| &e.checkpoint)
    }

    /// True if there is a checkpoint of exactly these tokens, which now counts as used; `pinned` pins it.
    pub fn renew(&mut self, tokens: &[u32], pinned: bool) -> bool {
        let found = self.tree.find(tokens);
        found.into_iter().for_each(|id| self.touch(id, pinned));
        found.is_some()
    }

    /// Takes a checkpoint and gives up others until all fit, never the new one. False if it is not kept: it is empty, larger than
    /// the budget, or there is one of its tokens, which then counts as used.
    pub fn insert(&mut self, checkpoint: Arc<Checkpoint>, pinned: bool) -> bool {
        if checkpoint.tokens().is_empty() || checkpoint.bytes() > self.stats.budget || self.renew(checkpoint.tokens(), pinned) {
            return false;
        }
        self.pool.add(&checkpoint);
        self.uses += 1;
        let entry = Entry { checkpoint: Arc::clone(&checkpoint), pinned: false, used: self.uses };
        let Some(id) = self.tree.insert(checkpoint.tokens(), entry) else { return false };
        self.stats.inserted += 1;
        while self.pool.bytes() > self.stats.budget
            && let Some((_, first)) = self.order.pop_first()
        {
            self.stats.evicted += 1;
            if let Some(gone) = self.tree.remove(first) {
                self.pinned -= if gone.pinned { gone.checkpoint.bytes() } else { 0 };
                self.pool.remove(&gone.checkpoint);
            }
        }
        self.order.insert((false, self.uses), id);
        if pinned {
            self.touch(id, true);
        }
        true
    }

    fn touch(&mut self, id: NodeId, pin: bool) {
        let Some(e) = self.tree.get_mut(id) else { return };
        self.order.remove(&(e.pinned, e.used));
        self.pinned += if pin && !e.pinned { e.checkpoint.bytes() } else { 0 };
        self.uses += 1;
        (e.pinned, e.used) = (e.pinned || pin, self.uses);
        self.order.insert((e.pinned, e.used), id);
        while self.pinned > self.stats.budget / 2
            && let Some((&key, &id)) = self.order.range((true, 0)..).next()
            && let Some(e) = self.tree.get_mut(id)
        {
            e.pinned = false;
            self.pinned -= e.checkpoint.bytes();
            self.order.remove(&key);
            self.order.insert((false, key.1), id);
        }
    }
}
