//! Selection and attention of query rows.

use super::cache::QsaCache;
use super::disjoint::Disjoint;
use super::error::{QsaError, check_len};
use super::index::{prepare_index, prepared_len};
use super::kernels::QsaKernels;
use super::row::{Cells, row_alone, row_spread};
use super::scratch::{QsaScratch, Shared, Worker, lock};
use super::select::{IndexKeys, Select, TILE};
use super::shape::QsaShape;
use crate::pool::Pool;
use std::ops::Range;
use std::sync::Mutex;
use strata_ops::qsa::kv::KvRows;
use strata_ops::qsa::score::{scores, tail_score};
use strata_ops::qsa::topk::top_k;
use strata_ops::qsa::{BLOCK, HEAD_DIM, INDEX_DIM, selection_width};

/// Cells (of all rows) from which it pays to wake other threads.
const SHARED_CELLS: usize = 256;
/// Blocks that one task scores at least.
const SCORE_GRAIN: usize = 512;

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

/// The query rows of one sequence.
#[derive(Clone, Copy)]
pub struct SequenceQueries<'a> {
    pub cache: &'a QsaCache,
    pub rows: QueryRows<'a>,
    /// Which row of the output the first of them has.
    pub at: usize,
}

/// What every part of a call needs.
struct Call<'a> {
    kernels: &'a QsaKernels,
    keys: IndexKeys<'a>,
    kv: KvRows<'a>,
    shape: &'a QsaShape,
    rows: QueryRows<'a>,
}

impl<'a> Call<'a> {
    fn new(kernels: &'a QsaKernels, shape: &'a QsaShape, s: &SequenceQueries<'a>) -> Call<'a> {
        Call { kernels, keys: IndexKeys::of(s.cache), kv: s.cache.rows(), shape, rows: s.rows }
    }

    /// Cells that all rows attend to, about.
    fn cells(&self) -> usize {
        self.rows.n.checked_sub(1).map_or(0, |last| self.width(last).saturating_mul(self.rows.n))
    }

    fn n_kv(&self, row: usize) -> usize {
        self.rows.first_pos + row + 1
    }

    /// Cells that a row attends to.
    fn width(&self, row: usize) -> usize {
        if self.rows.dense { self.n_kv(row) } else { selection_width(self.n_kv(row), self.shape.budget_blocks()) }
    }

    fn iq(&self, rows: Range<usize>) -> &[f32] {
        let n = self.shape.index_heads() * INDEX_DIM;
        &self.rows.iq[rows.start * n..rows.end * n]
    }

    fn q(&self, row: usize) -> &[f32] {
        let n = self.shape.heads() * HEAD_DIM;
        &self.rows.q[row * n..(row + 1) * n]
    }

    /// Rows `tile`, one thread, one row after the other; `out` is theirs.
    fn tile(&self, tile: Range<usize>, worker: &mut Worker, out: &mut [f32]) {
        // rows that select come last: they have the longer sequences
        let first = tile.clone().find(|r| self.width(*r) < self.n_kv(*r)).unwrap_or(tile.end);
        if first < tile.end {
            let iq = self.iq(first..tile.end);
            worker.select.score(self.kernels, self.keys, iq, self.shape.index_heads(), self.n_kv(first));
        }
        for (row, out) in tile.zip(out.chunks_exact_mut(self.shape.heads() * HEAD_DIM)) {
            if row < first {
                row_alone(self.kernels, &self.kv, self.q(row), Cells::All(self.n_kv(row)), &mut worker.heads, out);
            } else {
                let ids = worker.select.ids(self.kernels, row - first, self.n_kv(row), self.width(row));
                row_alone(self.kernels, &self.kv, self.q(row), Cells::Ids(ids), &mut worker.heads, out);
            }
        }
    }

    /// One row spread over the threads: blocks, then chunks, then heads.
    fn spread(&self, pool: &Pool, row: usize, workers: &[Mutex<Worker>], shared: &mut (Select, Shared), out: &mut [f32]) {
        let (select, shared) = shared;
        let (n_kv, width) = (self.n_kv(row), self.width(row));
        let cells = if width < n_kv {
            let prepared = &mut select.iq[..prepared_len(self.shape.index_heads())];
            prepare_index(self.iq(row..row + 1), prepared);
            let (prepared, scores) = (&*prepared, Disjoint::new(&mut select.scores));
            pool.ranges(n_kv / BLOCK, SCORE_GRAIN, &|blocks, _| {
                // SAFETY: the ranges of one job do not overlap.
                let out = unsafe { scores.range(blocks.clone()) };
                self.kernels.score(&self.keys.pooled[blocks], prepared, prepared.len(), out, 0);
            });
            select.scores[n_kv / BLOCK] = tail_score(self.keys.dead, self.iq(row..row + 1), n_kv);
            Cells::Ids(select.ids(self.kernels, 0, n_kv, width))
        } else {
            Cells::All(n_kv)
        };
        row_spread(pool, self.kernels, &self.kv, self.q(row), cells, workers, shared, out);
    }
}

/// Attention of query rows over the cells of `cache` that each selects: `out` is `[n, heads, 256]`, before the output
/// gate. The cells of the rows must have been appended.
///
/// # Errors
/// [`QsaError`] if a buffer has the wrong length, a row lies beyond the cache, the cache is of another shape or the
/// scratch is too small.
pub fn attend(
    pool: &Pool,
    kernels: &QsaKernels,
    cache: &QsaCache,
    shape: &QsaShape,
    rows: &QueryRows<'_>,
    out: &mut [f32],
    scratch: &mut QsaScratch,
) -> Result<(), QsaError> {
    check_len("out", out.len(), rows.n * shape.heads() * HEAD_DIM)?;
    attend_all(pool, kernels, shape, &[Some(SequenceQueries { cache, rows: *rows, at: 0 })], out, scratch)
}

/// [`attend`] for the rows of several sequences; each writes to its own rows of `out`.
///
/// # Errors
/// As [`attend`], for the first sequence of which it is true, or output rows of two sequences that overlap. Nothing is computed.
pub fn attend_all(
    pool: &Pool,
    kernels: &QsaKernels,
    shape: &QsaShape,
    seqs: &[Option<SequenceQueries<'_>>],
    out: &mut [f32],
    scratch: &mut QsaScratch,
) -> Result<(), QsaError> {
    let all = || seqs.iter().flatten();
    for (i, s) in all().enumerate() {
        check(pool, shape, s, out, scratch)?;
        let apart = |o: &SequenceQueries<'_>| o.at + o.rows.n <= s.at || s.at + s.rows.n <= o.at;
        if let Some(o) = all().take(i).find(|o| !apart(o)) {
            return Err(QsaError::Overlap { row: o.at.max(s.at) });
        }
    }
    let cells = |s: &SequenceQueries<'_>| Call::new(kernels, shape, s).cells();
    let (threads, wide) = (pool.threads(), shape.heads() * HEAD_DIM);
    let n: usize = all().map(|s| s.rows.n).sum();
    let tile = (n / (4 * threads)).clamp(1, TILE);
    let QsaScratch { workers, shared, .. } = scratch;
    let out = Disjoint::new(out);
    // SAFETY: the rows of no two sequences overlap (checked above), and one task has a row of a sequence.
    let rows_of = |s: &SequenceQueries<'_>, r: Range<usize>| unsafe { out.range((s.at + r.start) * wide..(s.at + r.end) * wide) };
    if let Some(shared) = shared.as_mut().filter(|_| n < 2 * threads) {
        for s in all() {
            for row in 0..s.rows.n {
                let out = rows_of(s, row..row + 1);
                if cells(s) >= SHARED_CELLS {
                    Call::new(kernels, shape, s).spread(pool, row, workers, shared, out);
                } else {
                    Call::new(kernels, shape, s).tile(row..row + 1, &mut lock(&workers[0]), out);
                }
            }
        }
        return Ok(());
    }
    let task = |t: usize, w: usize| {
        let mut t = t;
        for s in all() {
            let tiles = s.rows.n.div_ceil(tile);
            if t < tiles {
                let r = t * tile..((t + 1) * tile).min(s.rows.n);
                return Call::new(kernels, shape, s).tile(r.clone(), &mut lock(&workers[w]), rows_of(s, r));
            }
            t -= tiles;
        }
    };
    let tasks = all().map(|s| s.rows.n.div_ceil(tile)).sum();
    if all().map(cells).fold(0, usize::saturating_add) < SHARED_CELLS {
        (0..tasks).for_each(|t| task(t, 0));
    } else {
        pool.run(tasks, &task);
    }
    Ok(())
}

fn check(pool: &Pool, shape: &QsaShape, s: &SequenceQueries<'_>, out: &[f32], scratch: &QsaScratch) -> Result<(), QsaError> {
    let (cache, rows, wide) = (s.cache, &s.rows, shape.heads() * HEAD_DIM);
    check_len("q", rows.q.len(), rows.n * wide)?;
    // the output may have rows of others after these
    let end = s.at.saturating_add(rows.n).saturating_mul(wide);
    check_len("out", out.len().min(end), end)?;
    check_len("index q", rows.iq.len(), rows.n * shape.index_heads() * INDEX_DIM)?;
    let end = rows.first_pos.saturating_add(rows.n);
    if end > cache.len() {
        return Err(QsaError::Beyond { last: end - 1, len: cache.len() });
    }
    let need = |field, made: usize, asked: usize| if asked <= made { Ok(()) } else { Err(QsaError::Scratch { field, made, asked }) };
    need("rows", scratch.rows, rows.n)?;
    need("cells", scratch.capacity, cache.len())?;
    need("threads", scratch.workers.len(), pool.threads())?;
    if scratch.shape != *shape || cache.kv_heads() != shape.kv_heads() {
        return Err(QsaError::OtherShape);
    }
    Ok(())
}

/// What one row at position `pos` selects: writes the scores of blocks `0..=(pos + 1) / 4` and the ascending ids of the
/// selected cells, and returns their number. Scores are written also where all cells are selected. This is the
/// definition, for tests and inspection; [`attend`] gives the same bits faster.
///
/// # Errors
/// [`QsaError`] if a buffer is too short or the row lies beyond the cache.
pub fn select(
    cache: &QsaCache,
    shape: &QsaShape,
    iq: &[f32],
    pos: usize,
    scores_out: &mut [f32],
    ids_out: &mut [i32],
) -> Result<usize, QsaError> {
    if pos >= cache.len() {
        return Err(QsaError::Beyond { last: pos, len: cache.len() });
    }
    let n_kv = pos + 1;
    let width = selection_width(n_kv, shape.budget_blocks());
    check_len("index q", iq.len(), shape.index_heads() * INDEX_DIM)?;
    check_len("scores", scores_out.len().min(n_kv / BLOCK + 1), n_kv / BLOCK + 1)?;
    check_len("ids", ids_out.len().min(width), width)?;
    scores(cache.pooled(), cache.dead(), iq, n_kv, scores_out);
    Ok(top_k(scores_out, n_kv, width, ids_out))
}
