//! Products spread over the threads.

use super::Matrix;
use super::kernel::{Output, RowMap, Tile};
use crate::pool::Pool;
use std::ops::Range;
use strata_ops::matmul::{ActForm, Acts, act_form};

/// Multiply-adds below which a job is not worth waking the pool for.
pub(super) const SMALL: usize = 50_000;
/// Multiply-adds for a byte that goes from core to core (some 5 bytes a nanosecond) below which a job is not worth it either,
/// unless it is a large one: what is late then comes while there is other work.
const PER_BYTE: usize = 16;
const LARGE: usize = 1 << 20;
/// Multiply-adds a task should have at least.
pub(super) const GRAIN: usize = 32_000;
/// Tiles start at multiples of this many rows: the rows of a group of any packed layout divide it.
pub(super) const ROW_STEP: usize = 16;
/// Activations of a tile should stay in the second cache: this many values at most.
const TILE_VALUES: usize = 128 * 1024;
/// Matrices in one job at most; more take several jobs.
const MAX_PARTS: usize = 8;

/// How a product of `rows` weight rows is cut into tiles.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    rows: usize,
    rows_each: usize,
    items_each: usize,
}

impl Grid {
    /// Tiles of about `grain` multiply-adds or more where there are about `items` activation rows.
    pub fn new(rows: usize, items: usize, cols: usize, grain: usize) -> Grid {
        let items_each = (TILE_VALUES / cols.max(1) / 8 * 8).max(8);
        let wanted = grain / (cols * items_each.min(items)).max(1);
        Grid { rows, rows_each: wanted.div_ceil(ROW_STEP).saturating_mul(ROW_STEP).clamp(ROW_STEP, rows.max(ROW_STEP)), items_each }
    }

    pub fn row_tiles(&self) -> usize {
        self.rows.div_ceil(self.rows_each)
    }

    pub fn row_tile(&self, t: usize) -> Range<usize> {
        t * self.rows_each..((t + 1) * self.rows_each).min(self.rows)
    }

    pub fn item_tiles(&self, items: usize) -> usize {
        items.div_ceil(self.items_each)
    }

    pub fn item_tile(&self, t: usize, items: Range<usize>) -> Range<usize> {
        let start = items.start + t * self.items_each;
        start..(start + self.items_each).min(items.end)
    }
}

/// The grain that spreads `work` multiply-adds over the pool; `None` if the caller does it all. `bytes` of activations and outputs
/// would have to go from core to core.
pub(super) fn grain(pool: &Pool, work: usize, bytes: usize) -> Option<usize> {
    let pays = work >= LARGE || work >= SMALL.max(PER_BYTE * bytes);
    (pool.threads() > 1 && pays).then(|| (work / (pool.threads() * 4)).max(GRAIN))
}

/// Bytes of `n` rows of activations and of `outputs` outputs.
pub(super) fn moved(acts: &Acts, n: usize, outputs: usize) -> usize {
    let value = if acts.forms().has(ActForm::F32) { 5 } else { 1 };
    n * acts.cols() * value + 4 * outputs
}

/// One matrix of a job.
#[derive(Clone, Copy)]
struct Part<'a> {
    w: &'a Matrix,
    out: Output,
    grid: Grid,
}

/// `out[t] = W acts[t]` for the first `n` rows of `acts`; `out` begins with `[n, w.rows()]`.
///
/// # Panics
/// If `acts` does not fit `w` (width, form, rows) or `out` is too short.
pub fn matmul(pool: &Pool, w: &Matrix, acts: &Acts, n: usize, out: &mut [f32]) {
    matmul_many(pool, acts, n, [(w, out)]);
}

/// [`matmul`] for several matrices and their outputs in one job of the pool.
///
/// # Panics
/// As [`matmul`].
pub fn matmul_many<'a>(pool: &Pool, acts: &Acts, n: usize, products: impl IntoIterator<Item = (&'a Matrix, &'a mut [f32])>) {
    let mut products = products.into_iter();
    loop {
        let mut parts = [None; MAX_PARTS];
        let mut work = 0;
        let mut count = 0;
        for (slot, (w, out)) in parts.iter_mut().zip(products.by_ref()) {
            check(w, acts, n);
            let len = n * w.rows;
            assert!(out.len() >= len, "{n} x {} outputs where there is space for {}", w.rows, out.len());
            *slot = Some((w, Output::new(&mut out[..len], w.rows)));
            work += len * w.cols;
            count += 1;
        }
        if count == 0 {
            return;
        }
        run(pool, acts, n, parts, work);
        if count < MAX_PARTS {
            return;
        }
    }
}

fn run(pool: &Pool, acts: &Acts, n: usize, parts: [Option<(&Matrix, Output)>; MAX_PARTS], work: usize) {
    let outputs = parts.iter().flatten().map(|(w, _)| n * w.rows).sum();
    let grain = grain(pool, work, moved(acts, n, outputs));
    let parts = parts.map(|p| p.map(|(w, out)| Part { w, out, grid: Grid::new(w.rows, n, w.cols, grain.unwrap_or(usize::MAX)) }));
    let tiles = |p: &Part<'_>| p.grid.row_tiles() * p.grid.item_tiles(n);
    let total = parts.iter().flatten().map(tiles).sum();
    let task = |mut t: usize, _worker: usize| {
        for part in parts.iter().flatten() {
            if t >= tiles(part) {
                t -= tiles(part);
                continue;
            }
            // tiles that share weight rows follow each other
            let across = part.grid.item_tiles(n);
            let tile = Tile {
                acts,
                rows: part.grid.row_tile(t / across),
                first: 0,
                items: part.grid.item_tile(t % across, 0..n),
                act_rows: RowMap::Same,
                out_rows: RowMap::Same,
                out: part.out,
            };
            // SAFETY: the matrix picked its kernel with its layout; shapes were checked; tiles do not overlap, and the
            // outputs are borrowed for the whole call.
            unsafe { (part.w.kernel)(part.w, &tile) };
            return;
        }
    };
    match grain {
        Some(_) => pool.run(total, &task),
        None => (0..total).for_each(|t| task(t, 0)),
    }
}

/// Checks that the first `n` rows of `acts` can be multiplied with `w`.
pub(super) fn check(w: &Matrix, acts: &Acts, n: usize) {
    assert_eq!(w.cols, acts.cols(), "columns of the matrix and of the activations");
    assert!(acts.forms().has(act_form(w.dtype)), "the activations are not prepared for {}", w.dtype);
    assert!(n <= acts.max_rows(), "{n} rows of activations of {}", acts.max_rows());
}
