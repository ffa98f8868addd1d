//! Bytes of checkpoints that share pages: each page counts once.

use crate::checkpoint::Checkpoint;
use std::collections::HashMap;
use std::sync::Arc;

/// The pages of a set of checkpoints.
#[derive(Default)]
pub(crate) struct PagePool {
    /// How many of the checkpoints hold a page, by its address: it lives as long as they do.
    held: HashMap<usize, usize>,
    bytes: u64,
}

impl PagePool {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts a checkpoint in.
    pub fn add(&mut self, c: &Checkpoint) {
        self.bytes += c.own_bytes();
        for page in c.all_pages() {
            let n = self.held.entry(Arc::as_ptr(page).addr()).or_insert(0);
            self.bytes += if *n == 0 { page.0.len() as u64 } else { 0 };
            *n += 1;
        }
    }

    /// Counts out one that was counted in.
    pub fn remove(&mut self, c: &Checkpoint) {
        self.bytes -= c.own_bytes();
        for page in c.all_pages() {
            let at = Arc::as_ptr(page).addr();
            if let Some(n) = self.held.get_mut(&at) {
                *n -= 1;
                if *n == 0 {
                    self.held.remove(&at);
                    self.bytes -= page.0.len() as u64;
                }
            }
        }
    }
}
