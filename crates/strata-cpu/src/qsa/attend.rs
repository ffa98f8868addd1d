//! Selection and attention of query rows.

use super::cache::QsaCache;
use super::disjoint::Disjoint;
use super::error::{QsaError, check_len};
use super::kernels::QsaKernels;
use super::scratch::QsaScratch;
use super::shape::QsaShape;
use crate::pool::Pool;
use strata_ops::qsa::{BLOCK, HEAD_DIM, INDEX_DIM, attend::attend_head, score::scores, selection_width, topk::top_k};

/// Query rows of one call, at consecutive positions of the sequence.
#[derive(Clone, Copy, Debug)]
pub struct QueryRows<'a> {
    /// Queries `[n, heads, 256]`, normed and rotated.
    pub q: &'a [f32],
    /// Indexer queries `[n, index_heads, 128]`, normed and rotated.
    pub iq: &'a [f32],
    /// Position of the first row. The row at position p sees cells 0..=p.
    pub first_pos: usize,
    /// Rows.
    pub n: usize,
    /// Attend to every cell and skip the selection.
    pub dense: bool,
}

/// Attention of query rows over the cells of `cache` that each selects: `out` is `[n, heads, 256]`, before the output
/// gate. The cells of the rows must have been appended.
///
/// # Errors
/// [`QsaError`] if a buffer has the wrong length, a row lies beyond the cache or the scratch is too small.
pub fn attend(
    pool: &Pool,
    _kernels: &QsaKernels,
    cache: &QsaCache,
    shape: &QsaShape,
    rows: &QueryRows<'_>,
    out: &mut [f32],
    scratch: &mut QsaScratch,
) -> Result<(), QsaError> {
    check_len("q", rows.q.len(), rows.n * shape.heads() * HEAD_DIM)?;
    check_len("out", out.len(), rows.n * shape.heads() * HEAD_DIM)?;
    check_len("index q", rows.iq.len(), rows.n * shape.index_heads() * INDEX_DIM)?;
    if rows.first_pos + rows.n > cache.len() {
        return Err(QsaError::Beyond { last: rows.first_pos + rows.n - 1, len: cache.len() });
    }
    if scratch.capacity < cache.len() {
        return Err(QsaError::Scratch { field: "cells", made: scratch.capacity, asked: cache.len() });
    }
    if scratch.workers.len() < pool.threads() {
        return Err(QsaError::Scratch { field: "threads", made: scratch.workers.len(), asked: pool.threads() });
    }
    let out = Disjoint::new(out);
    let (kv, wide) = (cache.rows(), shape.heads() * HEAD_DIM);
    pool.run(rows.n, &|i, w| {
        let mut worker = scratch.workers[w].lock().unwrap_or_else(|e| e.into_inner());
        let worker = &mut *worker;
        let n_kv = rows.first_pos + i + 1;
        let width = if rows.dense { n_kv } else { selection_width(n_kv, shape.budget_blocks()) };
        if width < n_kv {
            let iq = &rows.iq[i * shape.index_heads() * INDEX_DIM..][..shape.index_heads() * INDEX_DIM];
            scores(cache.pooled(), cache.dead(), iq, n_kv, &mut worker.scores);
        }
        let n = top_k(&worker.scores, n_kv, width, &mut worker.ids);
        // SAFETY: one task has the row.
        let out = unsafe { out.range(i * wide..(i + 1) * wide) };
        for (h, out) in out.as_chunks_mut::<HEAD_DIM>().0.iter_mut().enumerate() {
            let q = rows.q[i * wide..].as_chunks::<HEAD_DIM>().0[h];
            attend_head(&kv, h / shape.group(), &q, &worker.ids[..n], out);
        }
    });
    Ok(())
}

/// What one row at position `pos` selects: writes the scores of blocks `0..=(pos + 1) / 4` and the ascending ids of the
/// selected cells, and returns their number. Scores are written also where all cells are selected.
///
/// # Errors
/// [`QsaError`] if a buffer has the wrong length (`scores` and `ids` may be longer) or the row lies beyond the cache.
pub fn select(
    _kernels: &QsaKernels,
    cache: &QsaCache,
    shape: &QsaShape,
    iq: &[f32],
    pos: usize,
    scores_out: &mut [f32],
    ids_out: &mut [i32],
) -> Result<usize, QsaError> {
    let n_kv = pos + 1;
    if n_kv > cache.len() {
        return Err(QsaError::Beyond { last: pos, len: cache.len() });
    }
    check_len("index q", iq.len(), shape.index_heads() * INDEX_DIM)?;
    let width = selection_width(n_kv, shape.budget_blocks());
    check_len("scores", scores_out.len().min(n_kv / BLOCK + 1), n_kv / BLOCK + 1)?;
    check_len("ids", ids_out.len().min(width), width)?;
    scores(cache.pooled(), cache.dead(), iq, n_kv, scores_out);
    Ok(top_k(scores_out, n_kv, width, ids_out))
}
