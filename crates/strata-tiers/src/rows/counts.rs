//! What row reads came to.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the model was bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// Rows asked for, repeats and all.
    pub rows: u64,
    /// Of them, found in the row cache.
    pub cached: u64,
    /// Of them, repeats of one in the same call.
    pub repeated: u64,
    /// Reads past the page cache, and their bytes.
    pub reads: u64,
    pub read_bytes: u64,
    /// Reads that had to be sent again: cut short or interrupted.
    pub again: u64,
    /// Rows that were not asked for ahead.
    pub late: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub rows: AtomicU64,
    pub cached: AtomicU64,
    pub repeated: AtomicU64,
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub again: AtomicU64,
    pub late: AtomicU64,
}

impl Counters {
    pub fn add(to: &AtomicU64, n: usize) {
        to.fetch_add(n as u64, Ordering::Relaxed);
    }

    pub fn get(&self) -> RowCounts {
        let of = |x: &AtomicU64| x.load(Ordering::Relaxed);
        RowCounts {
            rows: of(&self.rows),
            cached: of(&self.cached),
            repeated: of(&self.repeated),
            reads: of(&self.reads),
            read_bytes: of(&self.read_bytes),
            again: of(&self.again),
            late: of(&self.late),
        }
    }
}
