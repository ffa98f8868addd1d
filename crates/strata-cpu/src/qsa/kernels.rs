//! The kernels of one instruction-set level.

use super::float;
use super::group::{self, ChunkBuf, GroupQuery, Inner};
use super::index::{self, ScoreFn};
use super::int8;
use super::topk;
use crate::simd::Simd;
use strata_ops::qsa::INDEX_DIM;
use strata_ops::qsa::attend::Merge;
use strata_ops::qsa::kv::{KvRows, Rows};

crate::versions! { mod prepare = group::prepare; (keys: &Rows<'_>, q: &[f32], out: &mut GroupQuery) }
crate::versions! { mod chunk = group::chunk; (kv: &KvRows<'_>, kv_head: usize, q: &GroupQuery, cells: &[i32], buf: &mut ChunkBuf, inner: Inner) }
crate::versions! { mod merge = group::merge; (buf: &ChunkBuf, states: &mut [Merge]) }
crate::versions! { mod merge_stored = group::merge_stored; (ml: &[[f32; 2]], acc: &[f32], state: &mut Merge) }
crate::versions! { mod finish = group::finish; (values: &Rows<'_>, states: &[Merge], out: &mut [f32]) }
crate::versions! { mod top_k = topk::top_k; (scores: &[f32], n_kv: usize, width: usize, ids: &mut [i32], keys: &mut [u32], rest: &mut [u32]) -> usize }

/// Kernels of a level. The level chooses code, never bits.
#[derive(Clone, Copy, Debug)]
pub struct QsaKernels {
    level: Simd,
    prepare: prepare::Kernel,
    chunk: chunk::Kernel,
    merge: merge::Kernel,
    merge_stored: merge_stored::Kernel,
    finish: finish::Kernel,
    top_k: top_k::Kernel,
    score: ScoreFn,
    inner: Inner,
}

impl QsaKernels {
    /// The kernels of `level`, or of the best level of this CPU if it has not got that one.
    pub fn new(level: Simd) -> QsaKernels {
        let level = if Simd::available().contains(&level) { level } else { Simd::best() };
        let (dots, values) = int8::pick(level);
        QsaKernels {
            level,
            prepare: prepare::pick(level),
            chunk: chunk::pick(level),
            merge: merge::pick(level),
            merge_stored: merge_stored::pick(level),
            finish: finish::pick(level),
            top_k: top_k::pick(level),
            score: index::pick(level),
            inner: Inner { float_dots: float::pick(level), dots, values },
        }
    }

    /// The kernels of the best level of this CPU.
    pub fn best() -> QsaKernels {
        QsaKernels::new(Simd::best())
    }

    /// The level in use.
    pub fn level(&self) -> Simd {
        self.level
    }

    /// With another scorer: the negative control of a suite.
    pub(crate) fn with_score(self, score: ScoreFn) -> QsaKernels {
        QsaKernels { score, ..self }
    }

    /// With another top-k: the negative control of a suite.
    pub(crate) fn with_top_k(self, top_k: top_k::Kernel) -> QsaKernels {
        QsaKernels { top_k, ..self }
    }

    /// With another chunk kernel: the negative control of a suite.
    pub(crate) fn with_chunk(self, chunk: chunk::Kernel) -> QsaKernels {
        QsaKernels { chunk, ..self }
    }

    pub(crate) fn prepare(&self, keys: &Rows<'_>, q: &[f32], out: &mut GroupQuery) {
        // SAFETY: `new` takes a level of this CPU only; the same holds for every call below.
        unsafe { (self.prepare)(keys, q, out) }
    }

    pub(crate) fn chunk(&self, kv: &KvRows<'_>, kv_head: usize, q: &GroupQuery, cells: &[i32], buf: &mut ChunkBuf) {
        // SAFETY: as in `prepare`.
        unsafe { (self.chunk)(kv, kv_head, q, cells, buf, self.inner) }
    }

    pub(crate) fn merge(&self, buf: &ChunkBuf, states: &mut [Merge]) {
        // SAFETY: as in `prepare`.
        unsafe { (self.merge)(buf, states) }
    }

    pub(crate) fn merge_stored(&self, ml: &[[f32; 2]], acc: &[f32], state: &mut Merge) {
        // SAFETY: as in `prepare`.
        unsafe { (self.merge_stored)(ml, acc, state) }
    }

    pub(crate) fn finish(&self, values: &Rows<'_>, states: &[Merge], out: &mut [f32]) {
        // SAFETY: as in `prepare`.
        unsafe { (self.finish)(values, states, out) }
    }

    pub(crate) fn top_k(&self, scores: &[f32], n_kv: usize, width: usize, ids: &mut [i32], keys: &mut [u32], rest: &mut [u32]) -> usize {
        // SAFETY: as in `prepare`.
        unsafe { (self.top_k)(scores, n_kv, width, ids, keys, rest) }
    }

    /// Scores of the blocks of `keys` for prepared query rows, see [`ScoreFn`].
    pub(crate) fn score(&self, keys: &[[f32; INDEX_DIM]], q: &[f32], prepared: usize, out: &mut [f32], stride: usize) {
        // SAFETY: as in `prepare`.
        unsafe { (self.score)(keys, q, prepared, out, stride) }
    }
}
