//! Selection of up to a tile of query rows: scores of their blocks, then the ids of the best.

use super::cache::QsaCache;
use super::index::{prepare_index, prepared_len};
use super::kernels::QsaKernels;
use super::shape::QsaShape;
use strata_ops::qsa::score::tail_score;
use strata_ops::qsa::{BLOCK, INDEX_DIM};

/// Query rows that one thread scores together: every pooled key is read once for all of them.
pub(crate) const TILE: usize = 8;

/// Keys of the scorer.
#[derive(Clone, Copy)]
pub(crate) struct IndexKeys<'a> {
    pub pooled: &'a [[f32; INDEX_DIM]],
    pub dead: &'a [f32; INDEX_DIM],
}

impl<'a> IndexKeys<'a> {
    pub fn of(cache: &'a QsaCache) -> IndexKeys<'a> {
        IndexKeys { pooled: cache.pooled().as_chunks::<INDEX_DIM>().0, dead: cache.dead() }
    }
}

/// Working memory of the selection of up to [`TILE`] rows.
pub(crate) struct Select {
    /// Prepared indexer queries.
    pub iq: Vec<f32>,
    /// `[row][stride]`
    pub scores: Vec<f32>,
    pub stride: usize,
    keys: Vec<u32>,
    rest: Vec<u32>,
    ids: Vec<i32>,
}

impl Select {
    /// For tiles of `tile` rows over up to `capacity` cells.
    pub fn new(shape: &QsaShape, tile: usize, capacity: usize) -> Select {
        let stride = capacity / BLOCK + 1;
        // short caches are attended to whole: nothing is scored
        let (rows, keys) = if capacity / BLOCK > shape.budget_blocks() { (tile, stride) } else { (0, 0) };
        Select {
            iq: vec![0.0; rows * prepared_len(shape.index_heads())],
            scores: vec![0.0; rows * stride],
            stride,
            keys: vec![0; keys],
            rest: vec![0; keys],
            ids: vec![0; if rows > 0 { shape.max_width() } else { 0 }],
        }
    }

    /// Bytes of [`Select::new`].
    pub fn bytes(shape: &QsaShape, tile: usize, capacity: usize) -> u128 {
        let stride = capacity / BLOCK + 1;
        let (rows, keys) = if capacity / BLOCK > shape.budget_blocks() { (tile, stride) } else { (0, 0) };
        let ids = if rows > 0 { shape.max_width() } else { 0 };
        4 * (rows * prepared_len(shape.index_heads()) + rows * stride + 2 * keys + ids) as u128
    }

    /// Scores of blocks `0..=n_kv / 4` of rows whose sequences have `first_n_kv`, `first_n_kv + 1`, ... cells; `iq` is
    /// `[rows][heads][128]`.
    pub fn score(&mut self, kernels: &QsaKernels, keys: IndexKeys<'_>, iq: &[f32], heads: usize, first_n_kv: usize) {
        let prepared = prepared_len(heads);
        let rows = iq.len() / (heads * INDEX_DIM);
        for (q, out) in iq.chunks_exact(heads * INDEX_DIM).zip(self.iq.chunks_exact_mut(prepared)) {
            prepare_index(q, out);
        }
        // blocks complete for every row together, then the last ones row by row
        let common = first_n_kv / BLOCK;
        kernels.score(&keys.pooled[..common], &self.iq[..rows * prepared], prepared, &mut self.scores, self.stride);
        for (row, q) in iq.chunks_exact(heads * INDEX_DIM).enumerate() {
            let n_kv = first_n_kv + row;
            let scores = &mut self.scores[row * self.stride..][..n_kv / BLOCK + 1];
            let own = &self.iq[row * prepared..][..prepared];
            kernels.score(&keys.pooled[common..n_kv / BLOCK], own, prepared, &mut scores[common..], 0);
            scores[n_kv / BLOCK] = tail_score(keys.dead, q, n_kv);
        }
    }

    /// The ids that a scored row selects.
    pub fn ids(&mut self, kernels: &QsaKernels, row: usize, n_kv: usize, width: usize) -> &[i32] {
        let scores = &self.scores[row * self.stride..][..n_kv / BLOCK + 1];
        let n = kernels.top_k(scores, n_kv, width, &mut self.ids, &mut self.keys, &mut self.rest);
        &self.ids[..n]
    }
}
