//! Few activation rows: eight weight rows are read as they lie in the file, each block once, its codes only ever in
//! registers. The integer sums of the eight rows become one vector, a lane a row, and go into the chains together.

mod chains;
mod fours;
mod narrow;
mod pairs;
pub(super) mod permuted;
mod sixteen;
mod turned;
mod wide;

use super::super::Matrix;
use super::super::kernel::Tile;
use super::unpack::{Blocks, ROWS, Unpack};
use chains::Ends;
use sixteen::SIXTEEN;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;
use strata_ops::matmul::{CHAINS_NARROW, CHAINS_WIDE};

/// Activation rows that share the codes of a block at most.
pub(super) const SHARE: usize = 4;

/// Blocks of a row of activations that are brought into [`fours::Places`] once for all weight rows: rows of 10,240.
const ONCE: usize = 160;

/// Weight rows that meet one share of the activation rows before the next share does: they stay in the first cache or near it.
const NEAR: usize = 8 * ROWS;

/// Memory answers after 500 cycles and more, in which short rows of few bits a weight are long done with.
const AHEAD: usize = 10 * 1024;

/// # Safety
/// AVX2, FMA, F16C (and AVX-512 VL with VNNI for `VNNI`); otherwise as a [`super::super::kernel::Kernel`].
#[inline(always)]
pub(super) unsafe fn run<F: Unpack, const VNNI: bool>(w: &Matrix, tile: &Tile<'_>) {
    let blocks = w.cols / F::LEN;
    let mut places = MaybeUninit::<[fours::Places; ONCE]>::uninit();
    let once = F::FOURS && tile.items.len() == 1 && blocks <= ONCE;
    if once {
        let codes = tile.acts.codes32(tile.act_rows.get(tile.items.start)).as_ptr().cast::<u8>();
        for s in 0..blocks {
            // SAFETY: the activations have the blocks of a row, and so do the places.
            unsafe { (*places.as_mut_ptr())[s] = fours::Places::new::<F>(codes.add(64 * s)) };
        }
    }
    let places = if once { places.as_ptr().cast() } else { std::ptr::null() };
    let ends = if F::LEN == 256 { Ends::of::<CHAINS_WIDE>(blocks) } else { Ends::of::<CHAINS_NARROW>(blocks) };
    let job = Job { w, tile, blocks, ends: &ends, places };
    let eight = F::LEN < 256 && !F::FOURS;
    for r in tile.rows.clone().step_by(NEAR) {
        let rows = r..(r + NEAR).min(tile.rows.end);
        let mut i = tile.items.start;
        while i < tile.items.end {
            let left = tile.items.end - i;
            let share = if left <= SHARE || eight && left == 2 * SHARE { left } else { left.div_ceil(left.div_ceil(SHARE)) };
            // SAFETY: the caller's promise.
            unsafe {
                match share {
                    1 => job.multiply::<F, 1, VNNI>(rows.clone(), i),
                    2 => job.multiply::<F, 2, VNNI>(rows.clone(), i),
                    3 => job.multiply::<F, 3, VNNI>(rows.clone(), i),
                    8 => job.multiply::<F, 8, VNNI>(rows.clone(), i),
                    _ => job.multiply::<F, 4, VNNI>(rows.clone(), i),
                }
            }
            i += share;
        }
    }
}

/// What all rows of a tile have in common.
struct Job<'a> {
    w: &'a Matrix,
    tile: &'a Tile<'a>,
    blocks: usize,
    ends: &'a Ends,
    /// The only activation row's codes by places, if they have been made.
    places: *const fours::Places,
}

impl Job<'_> {
    /// The outputs of items `i..i + T` for `rows`.
    ///
    /// # Safety
    /// As [`run`]; the tile has these rows and items.
    #[inline(always)]
    unsafe fn multiply<F: Unpack, const T: usize, const VNNI: bool>(&self, rows: Range<usize>, i: usize) {
        let (w, tile) = (self.w, self.tile);
        let items = Items::<T>::new::<F>(tile, i);
        if T > 1 && VNNI && F::LEN < 256 && !F::FOURS && F::SPAN != 16 && w.rows >= SIXTEEN {
            for r in rows.step_by(SIXTEEN) {
                // the last rows overlap those before, which is harmless
                let first = r.min(w.rows - SIXTEEN);
                let blocks = Blocks { first: w.row(first).as_ptr(), stride: w.row_bytes };
                let panel = Panel { rows: blocks, next: next(w, SIXTEEN), blocks: self.blocks, ends: self.ends, places: self.places };
                // SAFETY: the caller's promise.
                unsafe {
                    let total = panel.sixteen::<F, T>(&items);
                    for (t, total) in total.into_iter().enumerate() {
                        let mut y = [0.0; SIXTEEN];
                        _mm512_storeu_ps(y.as_mut_ptr(), total);
                        tile.store(i + t, first, &y);
                    }
                }
            }
            return;
        }
        // a matrix of fewer rows has each of them eight times
        let (step, stride) = if w.rows < ROWS { (1, 0) } else { (ROWS, w.row_bytes) };
        for r in rows.step_by(step) {
            // the last eight rows overlap those before, which is harmless
            let first = if w.rows < ROWS { r } else { r.min(w.rows - ROWS) };
            let rows = Blocks { first: w.row(first).as_ptr(), stride };
            let panel = Panel { rows, next: next(w, ROWS), blocks: self.blocks, ends: self.ends, places: self.places };
            // SAFETY: the caller's promise.
            unsafe {
                let total = if F::LEN == 256 {
                    panel.wide::<F, T, VNNI>(&items)
                } else if F::FOURS {
                    panel.fours::<F, T, VNNI>(&items)
                } else if T == 2 * SHARE || T > 1 && VNNI {
                    panel.turned::<F, T, VNNI>(&items)
                } else if VNNI {
                    panel.pairs::<F, T>(&items)
                } else {
                    panel.narrow::<F, T>(&items)
                };
                store(tile, i, first, step, total);
            }
        }
    }
}

/// Writes the outputs of items `i..i + T` for `step` rows, all eight or one.
///
/// # Safety
/// AVX; otherwise as [`Tile::store`].
#[inline(always)]
unsafe fn store<const T: usize>(tile: &Tile<'_>, i: usize, first: usize, step: usize, total: [__m256; T]) {
    for (t, total) in total.into_iter().enumerate() {
        let mut y = [0.0; ROWS];
        // SAFETY: the caller's promise.
        unsafe {
            _mm256_storeu_ps(y.as_mut_ptr(), total);
            if step == ROWS { tile.store(i + t, first, &y) } else { tile.store(i + t, first, &[y[0]]) }
        }
    }
}

/// Activation rows: their codes, the sums of these and their scales.
struct Items<const T: usize> {
    codes: [*const u8; T],
    /// Of 32 codes, or of [`strata_ops::matmul::SUM_SPAN`] of formats that are 256 wide.
    sums32: [*const i32; T],
    sums256: [*const i16; T],
    scales: [*const f32; T],
}

impl<const T: usize> Items<T> {
    /// Items `i..i + T`, as the format wants them.
    #[inline(always)]
    fn new<F: Unpack>(tile: &Tile<'_>, i: usize) -> Items<T> {
        let acts = tile.acts;
        let mut items = Items {
            codes: [std::ptr::null(); T],
            sums32: [std::ptr::null(); T],
            sums256: [std::ptr::null(); T],
            scales: [std::ptr::null(); T],
        };
        for t in 0..T {
            let row = tile.act_rows.get(i + t);
            if F::LEN == 256 {
                items.codes[t] = acts.codes256(row).as_ptr().cast();
                items.sums256[t] = acts.sums256(row).as_ptr();
                items.scales[t] = acts.scales256(row).as_ptr();
            } else {
                items.codes[t] = acts.codes32(row).as_ptr().cast();
                items.sums32[t] = acts.sums32(row).as_ptr();
                items.scales[t] = acts.scales32(row).as_ptr();
            }
        }
        items
    }
}

/// Bytes from a panel of rows to those that are sent for while they are worked on: the next panel, or of short rows one that comes
/// later, at least [`AHEAD`] bytes away.
#[inline(always)]
fn next(w: &Matrix, rows: usize) -> usize {
    let panel = rows * w.row_bytes;
    AHEAD.div_ceil(panel) * panel
}

/// Eight rows, or sixteen.
struct Panel<'a> {
    rows: Blocks,
    /// Bytes from a row to the one that is sent for meanwhile.
    next: usize,
    blocks: usize,
    ends: &'a Ends,
    /// See [`Job::places`].
    places: *const fours::Places,
}

impl Panel<'_> {
    /// [`Panel::send_for_rows`] of eight.
    ///
    /// # Safety
    /// As that.
    #[inline(always)]
    unsafe fn send_for_all<F: Unpack>(&self, s: usize) {
        // SAFETY: as above.
        unsafe { self.send_for_rows::<F, ROWS>(s) }
    }

    /// Sends for a part of the next `N` rows, which lie one after another, while block `s` of these is worked on.
    ///
    /// # Safety
    /// None: a prefetch may name any address.
    #[inline(always)]
    unsafe fn send_for_rows<F: Unpack, const N: usize>(&self, s: usize) {
        let ahead = self.rows.first.wrapping_add(self.next + s * N * size_of::<F::Bytes>());
        for line in 0..(N * size_of::<F::Bytes>()).div_ceil(64) {
            // SAFETY: as above.
            unsafe { _mm_prefetch(ahead.wrapping_add(64 * line).cast(), _MM_HINT_T0) };
        }
    }
}
