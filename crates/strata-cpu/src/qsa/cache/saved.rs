//! Cells of a cache as bytes, and back: exactly what is stored, so that a cache that takes them goes on with the same bits.

use super::{QsaCache, RAW_RING, Side};
use bytemuck::{cast_slice, cast_slice_mut};
use std::ops::Range;
use strata_ops::qsa::kv::RowKind;
use strata_ops::qsa::{BLOCK, GROUPS, HEAD_DIM, INDEX_DIM, Q4_ROW};

/// Bytes of a block's pooled key.
const POOLED: usize = INDEX_DIM * 4;

impl Side {
    /// The arrays of this kind as bytes, with the bytes of a row in each. Unused ones are empty.
    fn arrays(&self, kind: RowKind) -> [(&[u8], usize); 2] {
        match kind {
            RowKind::F32 => [(cast_slice(&self.f32), HEAD_DIM * 4), (&[], 0)],
            RowKind::F16 => [(cast_slice(&self.f16), HEAD_DIM * 2), (&[], 0)],
            RowKind::Int8 => [(cast_slice(&self.codes), HEAD_DIM), (cast_slice(&self.scales), GROUPS * 2)],
            RowKind::Q4_0 => [(&self.q4, Q4_ROW), (&[], 0)],
        }
    }

    fn arrays_mut(&mut self, kind: RowKind) -> [(&mut [u8], usize); 2] {
        match kind {
            RowKind::F32 => [(cast_slice_mut(&mut self.f32), HEAD_DIM * 4), (&mut [], 0)],
            RowKind::F16 => [(cast_slice_mut(&mut self.f16), HEAD_DIM * 2), (&mut [], 0)],
            RowKind::Int8 => [(cast_slice_mut(&mut self.codes), HEAD_DIM), (cast_slice_mut(&mut self.scales), GROUPS * 2)],
            RowKind::Q4_0 => [(&mut self.q4, Q4_ROW), (&mut [], 0)],
        }
    }
}

impl QsaCache {
    /// Bytes of a block in [`QsaCache::save`].
    pub fn block_bytes(&self) -> usize {
        (self.kind.keys().row_bytes() + self.kind.values().row_bytes()) * BLOCK * self.kv_heads + POOLED
    }

    /// Copies blocks: the arrays of keys, those of values, pooled keys, each for all the blocks. The last block may be incomplete;
    /// the places of its missing cells, and of its pooled key, have no meaning.
    ///
    /// # Panics
    /// If a block has no cell, or `out` is not their size.
    pub fn save(&self, blocks: Range<usize>, out: &mut [u8]) {
        assert!(blocks.end <= self.len.div_ceil(BLOCK) && out.len() == blocks.len() * self.block_bytes());
        let rows = blocks.start * BLOCK * self.kv_heads..blocks.end * BLOCK * self.kv_heads;
        let mut out = out;
        for (from, width) in self.k.arrays(self.kind.keys()).into_iter().chain(self.v.arrays(self.kind.values())) {
            let (to, rest) = out.split_at_mut(rows.len() * width);
            to.copy_from_slice(&from[rows.start * width..rows.end * width]);
            out = rest;
        }
        let pooled: &[u8] = cast_slice(&self.pooled[blocks.start * INDEX_DIM..(self.len / BLOCK).min(blocks.end) * INDEX_DIM]);
        let (to, rest) = out.split_at_mut(pooled.len());
        to.copy_from_slice(pooled);
        rest.fill(0);
    }

    /// Puts saved blocks back from block `first` on. They count from [`QsaCache::resume`] on.
    ///
    /// # Panics
    /// If these are not whole blocks or the cache has no room for them.
    pub fn load(&mut self, first: usize, saved: &[u8]) {
        let blocks = saved.len() / self.block_bytes();
        assert!(saved.len() == blocks * self.block_bytes() && first + blocks <= self.capacity.div_ceil(BLOCK));
        let (at, rows) = (first * BLOCK * self.kv_heads, blocks * BLOCK * self.kv_heads);
        let mut saved = saved;
        for (to, width) in self.k.arrays_mut(self.kind.keys()).into_iter().chain(self.v.arrays_mut(self.kind.values())) {
            let (from, rest) = saved.split_at(rows * width);
            to[at * width..(at + rows) * width].copy_from_slice(from);
            saved = rest;
        }
        // an incomplete block at the end of the capacity has no place for a pooled key
        let pooled: &mut [u8] = cast_slice_mut(&mut self.pooled[first * INDEX_DIM..]);
        let n = pooled.len().min(saved.len());
        pooled[..n].copy_from_slice(&saved[..n]);
    }

    /// What appending after the first `len` cells needs beside the saved blocks, `[4, 128]`: the key that scores the tail, then the
    /// raw index keys of the incomplete block's cells, then zeros.
    ///
    /// # Panics
    /// If the cache is shorter, the raw keys are gone, or `out` has another size.
    pub fn open(&self, len: usize, out: &mut [f32]) {
        let open = len / BLOCK * BLOCK;
        assert!(len <= self.len && (open == len || open >= self.raw_from) && out.len() == BLOCK * INDEX_DIM);
        out.fill(0.0);
        if len == 0 {
            return;
        }
        out[..INDEX_DIM].copy_from_slice(&self.dead);
        for cell in open..len {
            out[(cell - open + 1) * INDEX_DIM..][..INDEX_DIM].copy_from_slice(&self.ring[cell % RAW_RING * INDEX_DIM..][..INDEX_DIM]);
        }
    }

    /// Makes the first `len` cells, which are stored, the cache's. `open` is what [`QsaCache::open`] gave for them.
    ///
    /// # Panics
    /// If there is no room for the cells, or `open` has another size.
    pub fn resume(&mut self, len: usize, open: &[f32]) {
        assert!(len <= self.capacity && open.len() == BLOCK * INDEX_DIM);
        let first = len / BLOCK * BLOCK;
        self.dead.copy_from_slice(&open[..INDEX_DIM]);
        for cell in first..len {
            self.ring[cell % RAW_RING * INDEX_DIM..][..INDEX_DIM].copy_from_slice(&open[(cell - first + 1) * INDEX_DIM..][..INDEX_DIM]);
        }
        self.len = len;
        self.raw_from = first;
    }
}
