//! Few activation rows: eight weight rows are read as they lie in the file, each block once, its codes only ever in
//! registers. The integer sums of the eight rows become one vector, a lane a row, and go into the chains together.

mod chains;
mod narrow;
mod wide;

use super::super::Matrix;
use super::super::kernel::Tile;
use super::unpack::{Blocks, ROWS, Unpack};
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Activation rows that share the codes of a block at most.
pub(super) const SHARE: usize = 4;

/// Blocks of a row of activations that are brought into [`narrow::Places`] once for all weight rows: rows of 10,240.
const ONCE: usize = 160;

/// # Safety
/// AVX2, FMA, F16C (and AVX-512 VL with VNNI for `VNNI`); otherwise as a [`super::super::kernel::Kernel`].
#[inline(always)]
pub(super) unsafe fn run<F: Unpack, const VNNI: bool>(w: &Matrix, tile: &Tile<'_>) {
    let blocks = w.cols / F::LEN;
    let mut places = MaybeUninit::<[narrow::Places; ONCE]>::uninit();
    let once = F::FOURS && tile.items.len() == 1 && blocks <= ONCE;
    if once {
        let codes = tile.acts.codes32(tile.act_rows.get(tile.items.start)).as_ptr().cast::<u8>();
        for s in 0..blocks {
            // SAFETY: the activations have the blocks of a row, and so do the places.
            unsafe { (*places.as_mut_ptr())[s] = narrow::by_places(codes.add(64 * s)) };
        }
    }
    let places = if once { places.as_ptr().cast() } else { std::ptr::null() };
    // a matrix of fewer rows has each of them eight times
    let (step, stride) = if w.rows < ROWS { (1, 0) } else { (ROWS, w.row_bytes) };
    for r in tile.rows.clone().step_by(step) {
        // the last eight rows overlap those before, which is harmless
        let first = if w.rows < ROWS { r } else { r.min(w.rows - ROWS) };
        let rows = Blocks { first: w.row(first).as_ptr(), stride };
        let panel = Panel { rows, next: ROWS * w.row_bytes, blocks, first, step, places, tile };
        let mut i = tile.items.start;
        while i < tile.items.end {
            let left = tile.items.end - i;
            let share = left.div_ceil(left.div_ceil(SHARE));
            // SAFETY: the caller's promise.
            unsafe {
                match share {
                    1 => panel.multiply::<F, 1, VNNI>(i),
                    2 => panel.multiply::<F, 2, VNNI>(i),
                    3 => panel.multiply::<F, 3, VNNI>(i),
                    _ => panel.multiply::<F, 4, VNNI>(i),
                }
            }
            i += share;
        }
    }
}

/// Eight rows.
struct Panel<'a> {
    rows: Blocks,
    /// Bytes from a row to the one that takes its place next.
    next: usize,
    blocks: usize,
    /// The first row.
    first: usize,
    /// Rows that are different.
    step: usize,
    /// The only activation row's codes by places, if they have been made.
    places: *const narrow::Places,
    tile: &'a Tile<'a>,
}

impl Panel<'_> {
    /// The outputs of items `i..i + T`.
    ///
    /// # Safety
    /// As [`run`]; the tile has these items.
    #[inline(always)]
    unsafe fn multiply<F: Unpack, const T: usize, const VNNI: bool>(&self, i: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let total = if F::LEN == 256 {
                self.wide::<F, T, VNNI>(i)
            } else if F::FOURS {
                self.fours::<F, T>(i)
            } else {
                self.narrow::<F, T, VNNI>(i)
            };
            for (t, total) in total.into_iter().enumerate() {
                let mut y = [0.0; ROWS];
                _mm256_storeu_ps(y.as_mut_ptr(), total);
                self.tile.store(i + t, self.first, &y[..self.step]);
            }
        }
    }

    /// Sends for a part of the next eight rows, which lie one after another, while block `s` of these is worked on.
    ///
    /// # Safety
    /// None: a prefetch may name any address.
    #[inline(always)]
    unsafe fn send_for_all<F: Unpack>(&self, s: usize) {
        let ahead = self.rows.first.wrapping_add(self.next + s * ROWS * size_of::<F::Bytes>());
        for line in 0..(ROWS * size_of::<F::Bytes>()).div_ceil(64) {
            // SAFETY: as above.
            unsafe { _mm_prefetch(ahead.wrapping_add(64 * line).cast(), _MM_HINT_T0) };
        }
    }
}
