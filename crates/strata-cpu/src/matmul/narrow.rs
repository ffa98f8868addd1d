//! Products of interleaved rows of the 32-wide formats, for any vector width.

use super::kernel::Tile;
use super::lanes::Lanes;
use super::{Matrix, Store};
use std::marker::PhantomData;
use std::ops::Range;
use strata_ops::matmul::{CHAINS_NARROW, segment};

/// A 32-wide format at a SIMD level.
///
/// # Safety
/// Every function needs the CPU to have the level. They are `#[inline(always)]`, to be compiled inside a function that
/// enables its features.
pub(super) trait Narrow {
    /// Rows of a group, lanes of a vector.
    const LANES: usize;
    /// Bytes of codes in a block of one row.
    const CODE_BYTES: usize;
    /// Activation rows that share a load of weights, at most 8.
    const ITEMS: usize;
    /// A float in every lane.
    type Floats: Copy;
    /// A 32-bit integer in every lane.
    type Ints: Copy;

    /// Dot products of a block of `LANES` rows with blocks of `T` activation rows; `sums` are the sums of their codes
    /// and `negatives` the magnitudes of the rows' negative codes.
    ///
    /// # Safety
    /// `codes` has `LANES * CODE_BYTES` bytes, aligned like a vector, each of `acts` 32, `negatives` `LANES` values.
    unsafe fn dots<const T: usize>(codes: *const u8, negatives: *const i16, acts: [*const i8; T], sums: [*const i32; T])
    -> [Self::Ints; T];

    /// # Safety
    /// As the trait says.
    unsafe fn zero() -> Self::Floats;

    /// # Safety
    /// As the trait says.
    unsafe fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats;

    /// `LANES` scales from `f16`.
    ///
    /// # Safety
    /// There are that many.
    unsafe fn scales(from: *const u16) -> Self::Floats;

    /// `fma(d * a, f32(isum), chain)`.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn step(chain: Self::Floats, d: Self::Floats, a: f32, isum: Self::Ints) -> Self::Floats;

    /// Writes the lanes.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn store(y: Self::Floats, to: &mut [f32; 16]);
}

/// `n`, hidden from the compiler where weights are shared: it would unroll the steps, take the activation rows one after
/// another and run out of registers for the weights.
#[inline(always)]
pub(super) fn opaque<const T: usize>(n: usize) -> usize {
    let mut n = n;
    if T > 1 {
        // SAFETY: an empty instruction that only seems to change `n`.
        unsafe { std::arch::asm!("/* {0} */", inout(reg) n, options(pure, nomem, nostack, preserves_flags)) };
    }
    n
}

/// Four activation codes as one integer.
///
/// # Safety
/// There are 4 bytes at `acts + 4 * step`.
#[inline(always)]
pub(super) unsafe fn four(acts: *const i8, step: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { acts.cast::<i32>().add(step).read_unaligned() }
}

/// # Safety
/// The CPU has the level of `F`; otherwise as a [`super::kernel::Kernel`].
#[inline(always)]
pub(super) unsafe fn run<F: Narrow>(w: &Matrix, tile: &Tile<'_>) {
    let Store::Lanes(lanes) = &w.store else { unreachable!("the matrix was packed for this kernel") };
    let groups = tile.rows.start / F::LANES..tile.rows.end.div_ceil(F::LANES);
    // SAFETY: the caller's promise, here and below.
    unsafe {
        if w.cols <= WHOLE_ROWS || tile.items.len() <= F::ITEMS {
            let chunk = (CACHED / w.cols.max(1) / F::LANES).max(1);
            for first in groups.clone().step_by(chunk) {
                let groups = first..(first + chunk).min(groups.end);
                for (i, share) in Shares::<F>(tile.items.clone(), PhantomData) {
                    for group in groups.clone() {
                        let mut total = [F::zero(); MAX_ITEMS];
                        panel_of::<F>(share, lanes, group, tile, i, 0..CHAINS_NARROW, &mut total);
                        store::<F>(tile, i, group, &total[..share]);
                    }
                }
            }
            return;
        }
        let mut totals = [F::zero(); CHUNK];
        for group in groups {
            for first in tile.items.clone().step_by(CHUNK) {
                let items = first..(first + CHUNK).min(tile.items.end);
                let total = &mut totals[..items.len()];
                total.fill(F::zero());
                for c in 0..CHAINS_NARROW {
                    for (i, share) in Shares::<F>(items.clone(), PhantomData) {
                        panel_of::<F>(share, lanes, group, tile, i, c..c + 1, &mut total[i - first..]);
                    }
                }
                store::<F>(tile, first, group, total);
            }
        }
    }
}

/// Rows of up to this many columns are multiplied in one go; wider ones a segment at a time, so that a segment of the
/// weights and of many activation rows stays in the first cache.
const WHOLE_ROWS: usize = 2048;
/// Weights that stay in the first cache while activation rows pass by.
const CACHED: usize = 16 * 1024;
/// The largest [`Narrow::ITEMS`].
const MAX_ITEMS: usize = 8;
/// Activation rows that pass by a segment of weights.
const CHUNK: usize = 64;

/// Items in shares of up to [`Narrow::ITEMS`], as even as can be: five are 3 and 2, not 4 and 1. Gives the first item and the
/// number of items of each share. An iterator, since a closure would not be compiled with the caller's features.
struct Shares<F>(Range<usize>, PhantomData<F>);

impl<F: Narrow> Iterator for Shares<F> {
    type Item = (usize, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<(usize, usize)> {
        let (i, left) = (self.0.start, self.0.len());
        let share = left.div_ceil(left.div_ceil(F::ITEMS).max(1));
        self.0.start += share;
        (share > 0).then_some((i, share))
    }
}

/// [`panel`] for `share` items.
///
/// # Safety
/// As [`panel`].
#[inline(always)]
unsafe fn panel_of<F: Narrow>(
    share: usize,
    lanes: &Lanes,
    group: usize,
    tile: &Tile<'_>,
    i: usize,
    chains: Range<usize>,
    total: &mut [F::Floats],
) {
    // SAFETY: the caller's promise.
    unsafe {
        match share {
            1 => panel::<F, 1>(lanes, group, tile, i, chains, total),
            2 => panel::<F, 2>(lanes, group, tile, i, chains, total),
            3 => panel::<F, 3>(lanes, group, tile, i, chains, total),
            4 => panel::<F, 4>(lanes, group, tile, i, chains, total),
            5 if F::ITEMS > 4 => panel::<F, 5>(lanes, group, tile, i, chains, total),
            6 if F::ITEMS > 4 => panel::<F, 6>(lanes, group, tile, i, chains, total),
            7 if F::ITEMS > 4 => panel::<F, 7>(lanes, group, tile, i, chains, total),
            8 if F::ITEMS > 4 => panel::<F, 8>(lanes, group, tile, i, chains, total),
            _ => unreachable!("shares have up to ITEMS items"),
        }
    }
}

/// Adds `chains` of a group of rows for items `i..i + T` to `total`.
///
/// # Safety
/// As [`run`]; the tile has these items, `total` as many places.
#[inline(always)]
unsafe fn panel<F: Narrow, const T: usize>(
    lanes: &Lanes,
    group: usize,
    tile: &Tile<'_>,
    i: usize,
    chains: Range<usize>,
    total: &mut [F::Floats],
) {
    let rows: [usize; T] = std::array::from_fn(|t| tile.act_rows.get(i + t));
    let acts = rows.map(|r| tile.acts.codes32(r).as_ptr());
    let act_scales = rows.map(|r| tile.acts.scales32(r).as_ptr());
    let sums = rows.map(|r| tile.acts.sums32(r).as_ptr());
    let scales = lanes.scales(group).as_ptr();
    let negatives = lanes.negatives(group).as_ptr();
    let codes = lanes.codes(group).as_ptr();
    let total: &mut [F::Floats; T] = total.first_chunk_mut().expect("a place for every item");
    // SAFETY: blocks are counted by `lanes`, whose slices of a group hold that many, and activation rows are as wide
    // by the caller's promise.
    unsafe {
        for c in chains {
            let mut chain = [F::zero(); T];
            for s in segment(c, lanes.blocks(), CHAINS_NARROW) {
                let codes = codes.add(s * F::LANES * F::CODE_BYTES);
                let isum = F::dots(codes, negatives.add(s * F::LANES), acts.map(|a| a.add(s * 32)), sums.map(|a| a.add(s)));
                let d = F::scales(scales.add(s * F::LANES));
                for t in 0..T {
                    chain[t] = F::step(chain[t], d, *act_scales[t].add(s), isum[t]);
                }
            }
            // the total starts at +0, and a chain is never -0 (it starts at +0, and a rounded product times an integer
            // does not underflow): +0 plus the first chain is the first chain
            for t in 0..T {
                total[t] = F::add(total[t], chain[t]);
            }
        }
    }
}

/// Writes the outputs of a group of rows for the items from `i` on.
///
/// # Safety
/// As [`run`]; the tile has these items.
#[inline(always)]
unsafe fn store<F: Narrow>(tile: &Tile<'_>, i: usize, group: usize, total: &[F::Floats]) {
    for (t, total) in total.iter().enumerate() {
        let mut y = [0.0; 16];
        // SAFETY: the caller's promise.
        unsafe {
            F::store(*total, &mut y);
            tile.store(i + t, group * F::LANES, &y[..F::LANES]);
        }
    }
}
