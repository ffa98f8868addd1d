//! Q8_0, Q4_0 and IQ4_NL with AVX2: eight interleaved rows at a time.

use super::kernel::{Kernel, Tile};
use super::lanes::Lanes;
use super::{Matrix, Store};
use std::arch::x86_64::*;
use std::ops::Range;
use strata_ops::matmul::blocks::IQ4_VALUES;
use strata_ops::matmul::{CHAINS_NARROW, segment};
use strata_quant::DType;

/// Rows of a group.
pub(super) const LANES: usize = 8;
/// Activation rows that share a load of weights.
const ITEMS: usize = 4;

/// The kernel of a 32-wide format.
pub(super) fn pick(dtype: DType) -> Kernel {
    match dtype {
        DType::Q8_0 => q8_0,
        DType::Q4_0 => q4_0,
        _ => iq4_nl,
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn q8_0(w: &Matrix, tile: &Tile<'_>) {
    // SAFETY: the features are enabled here; the rest is the promise of whoever calls a kernel.
    unsafe { run::<Q8>(w, tile) }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn q4_0(w: &Matrix, tile: &Tile<'_>) {
    // SAFETY: as above.
    unsafe { run::<Q4>(w, tile) }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn iq4_nl(w: &Matrix, tile: &Tile<'_>) {
    // SAFETY: as above.
    unsafe { run::<Iq4>(w, tile) }
}

/// The integer part of a format.
trait Format {
    /// Bytes of codes in a block of one row.
    const CODE_BYTES: usize;

    /// Dot products of a block of [`LANES`] rows with blocks of `T` activation rows; `sums` are the sums of their codes
    /// and `negatives` the magnitudes of the rows' negative codes.
    ///
    /// # Safety
    /// AVX2; `codes` has `LANES * CODE_BYTES` bytes, 32-byte aligned, each of `acts` 32, `negatives` [`LANES`] values.
    unsafe fn dots<const T: usize>(codes: *const u8, negatives: *const i16, acts: [*const i8; T], sums: [*const i32; T]) -> [__m256i; T];
}

/// `n`, hidden from the compiler where weights are shared: it would unroll the steps, take the activation rows one after
/// another and run out of registers for the weights.
#[inline(always)]
fn opaque<const T: usize>(n: usize) -> usize {
    let mut n = n;
    if T > 1 {
        // SAFETY: an empty instruction that only seems to change `n`.
        unsafe { std::arch::asm!("/* {0} */", inout(reg) n, options(pure, nomem, nostack, preserves_flags)) };
    }
    n
}

/// Four activation codes in every lane.
///
/// # Safety
/// AVX2; 4 bytes at `acts + 4 * step`.
#[inline(always)]
unsafe fn four(acts: *const i8, step: usize) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_set1_epi32(acts.cast::<i32>().add(step).read_unaligned()) }
}

/// Sums of pairs of adjacent 16-bit integers.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn add_pairs(x: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_madd_epi16(x, _mm256_set1_epi16(1)) }
}

/// Four signed codes in every lane, ready for products with unsigned-times-signed instructions.
#[derive(Clone, Copy)]
struct Signed {
    code: __m256i,
    magnitude: __m256i,
    negative: __m256i,
}

impl Signed {
    /// # Safety
    /// AVX2.
    #[inline(always)]
    unsafe fn new(code: __m256i) -> Signed {
        // SAFETY: the caller's promise.
        unsafe { Signed { code, magnitude: _mm256_abs_epi8(code), negative: _mm256_cmpgt_epi8(_mm256_setzero_si256(), code) } }
    }

    /// `sum` plus the dot product with `a`, if `MANY` less the magnitudes of the negative codes.
    ///
    /// w a = |w| (-a) = |w| (!a) + |w| for negative w, and the last term is the same for every activation row: one
    /// exclusive or in place of the slower sign instruction. Exact either way: |w| <= 128 and -128 <= !a, a <= 127, so
    /// a pair of products fits 16 bits.
    ///
    /// # Safety
    /// AVX2.
    #[inline(always)]
    unsafe fn dot<const MANY: bool>(self, sum: __m256i, a: __m256i) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe {
            let a = if MANY { _mm256_xor_si256(a, self.negative) } else { _mm256_sign_epi8(a, self.code) };
            _mm256_add_epi32(sum, add_pairs(_mm256_maddubs_epi16(self.magnitude, a)))
        }
    }
}

/// What sums of [`Signed::dot`] start at.
///
/// # Safety
/// AVX2; `negatives` has [`LANES`] values.
#[inline(always)]
unsafe fn signed_start<const T: usize>(negatives: *const i16) -> [__m256i; T] {
    // SAFETY: the caller's promise.
    unsafe { [if T > 1 { _mm256_cvtepi16_epi32(_mm_loadu_si128(negatives.cast())) } else { _mm256_setzero_si256() }; T] }
}

struct Q8;

impl Format for Q8 {
    const CODE_BYTES: usize = 32;

    #[inline(always)]
    unsafe fn dots<const T: usize>(codes: *const u8, negatives: *const i16, acts: [*const i8; T], _sums: [*const i32; T]) -> [__m256i; T] {
        // SAFETY: the caller's promise covers the 8 steps of a block.
        unsafe {
            let mut isum = signed_start(negatives);
            for pair in 0..opaque::<T>(4) {
                for step in [2 * pair, 2 * pair + 1] {
                    let w = Signed::new(_mm256_load_si256(codes.cast::<__m256i>().add(step)));
                    for t in 0..T {
                        let a = four(acts[t], step);
                        isum[t] = if T > 1 { w.dot::<true>(isum[t], a) } else { w.dot::<false>(isum[t], a) };
                    }
                }
            }
            isum
        }
    }
}

struct Q4;

impl Format for Q4 {
    const CODE_BYTES: usize = 16;

    #[inline(always)]
    unsafe fn dots<const T: usize>(codes: *const u8, _negatives: *const i16, acts: [*const i8; T], sums: [*const i32; T]) -> [__m256i; T] {
        // SAFETY: the caller's promise covers the 4 steps of a block.
        unsafe {
            // a pair of products is at most 2 * 15 * 127, so eight of them fit 16 bits
            let mut pairs = [_mm256_setzero_si256(); T];
            let low = _mm256_set1_epi8(15);
            for step in 0..opaque::<T>(4) {
                let w = _mm256_load_si256(codes.cast::<__m256i>().add(step));
                let (w_low, w_high) = (_mm256_and_si256(w, low), _mm256_and_si256(_mm256_srli_epi16(w, 4), low));
                for t in 0..T {
                    pairs[t] = _mm256_add_epi16(pairs[t], _mm256_maddubs_epi16(w_low, four(acts[t], step)));
                    pairs[t] = _mm256_add_epi16(pairs[t], _mm256_maddubs_epi16(w_high, four(acts[t], step + 4)));
                }
            }
            let mut isum = [_mm256_setzero_si256(); T];
            for t in 0..T {
                // codes stand for code - 8
                let offset = _mm256_set1_epi32(-8 * *sums[t]);
                isum[t] = _mm256_add_epi32(add_pairs(pairs[t]), offset);
            }
            isum
        }
    }
}

struct Iq4;

impl Format for Iq4 {
    const CODE_BYTES: usize = 16;

    #[inline(always)]
    unsafe fn dots<const T: usize>(codes: *const u8, negatives: *const i16, acts: [*const i8; T], _sums: [*const i32; T]) -> [__m256i; T] {
        // SAFETY: the caller's promise covers the 4 steps of a block.
        unsafe {
            let mut isum = signed_start(negatives);
            let low = _mm256_set1_epi8(15);
            let values = _mm256_broadcastsi128_si256(_mm_loadu_si128(IQ4_VALUES.as_ptr().cast()));
            for step in 0..opaque::<T>(4) {
                let w = _mm256_load_si256(codes.cast::<__m256i>().add(step));
                for (nibbles, step) in [(w, step), (_mm256_srli_epi16(w, 4), step + 4)] {
                    let w = Signed::new(_mm256_shuffle_epi8(values, _mm256_and_si256(nibbles, low)));
                    for t in 0..T {
                        let a = four(acts[t], step);
                        isum[t] = if T > 1 { w.dot::<true>(isum[t], a) } else { w.dot::<false>(isum[t], a) };
                    }
                }
            }
            isum
        }
    }
}

/// # Safety
/// AVX2, FMA and F16C; otherwise as a [`Kernel`].
#[inline(always)]
unsafe fn run<F: Format>(w: &Matrix, tile: &Tile<'_>) {
    let Store::Lanes(lanes) = &w.store else { unreachable!("the matrix was packed for this kernel") };
    let groups = tile.rows.start / LANES..tile.rows.end.div_ceil(LANES);
    // SAFETY: the caller's promise, here and below.
    unsafe {
        if w.cols <= WHOLE_ROWS {
            let chunk = (CACHED / w.cols.max(1) / LANES).max(1);
            for first in groups.clone().step_by(chunk) {
                let groups = first..(first + chunk).min(groups.end);
                for (i, share) in Shares(tile.items.clone()) {
                    for group in groups.clone() {
                        let mut total = [_mm256_setzero_ps(); ITEMS];
                        panel_of::<F>(share, lanes, group, tile, i, 0..CHAINS_NARROW, &mut total);
                        store(tile, i, group, &total[..share]);
                    }
                }
            }
            return;
        }
        for group in groups {
            for first in tile.items.clone().step_by(CHUNK) {
                let items = first..(first + CHUNK).min(tile.items.end);
                let mut total = [_mm256_setzero_ps(); CHUNK];
                for c in 0..CHAINS_NARROW {
                    for (i, share) in Shares(items.clone()) {
                        panel_of::<F>(share, lanes, group, tile, i, c..c + 1, &mut total[i - first..]);
                    }
                }
                store(tile, first, group, &total[..items.len()]);
            }
        }
    }
}

/// Rows of up to this many columns are multiplied in one go; wider ones a segment at a time, so that what the
/// activation rows have in common stays in the first cache.
const WHOLE_ROWS: usize = 2048;
/// Weights that stay in the first cache while activation rows pass by.
const CACHED: usize = 16 * 1024;
/// Activation rows that pass by a segment of weights.
const CHUNK: usize = 64;

/// Items in shares of up to [`ITEMS`], as even as can be: five are 3 and 2, not 4 and 1. Gives the first item and the
/// number of items of each share. An iterator, since a closure would not be compiled with the caller's features.
struct Shares(Range<usize>);

impl Iterator for Shares {
    type Item = (usize, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<(usize, usize)> {
        let (i, left) = (self.0.start, self.0.len());
        let share = left.div_ceil(left.div_ceil(ITEMS).max(1));
        self.0.start += share;
        (share > 0).then_some((i, share))
    }
}

/// [`panel`] for `share` items.
///
/// # Safety
/// As [`panel`].
#[inline(always)]
unsafe fn panel_of<F: Format>(
    share: usize,
    lanes: &Lanes,
    group: usize,
    tile: &Tile<'_>,
    i: usize,
    chains: Range<usize>,
    total: &mut [__m256],
) {
    // SAFETY: the caller's promise.
    unsafe {
        match share {
            1 => panel::<F, 1>(lanes, group, tile, i, chains, total),
            2 => panel::<F, 2>(lanes, group, tile, i, chains, total),
            3 => panel::<F, 3>(lanes, group, tile, i, chains, total),
            _ => panel::<F, ITEMS>(lanes, group, tile, i, chains, total),
        }
    }
}

/// Adds `chains` of a group of rows for items `i..i + T` to `total`.
///
/// # Safety
/// As [`run`]; the tile has these items, `total` as many places.
#[inline(always)]
unsafe fn panel<F: Format, const T: usize>(
    lanes: &Lanes,
    group: usize,
    tile: &Tile<'_>,
    i: usize,
    chains: Range<usize>,
    total: &mut [__m256],
) {
    let rows: [usize; T] = std::array::from_fn(|t| tile.act_rows.get(i + t));
    let acts = rows.map(|r| tile.acts.codes32(r).as_ptr());
    let act_scales = rows.map(|r| tile.acts.scales32(r).as_ptr());
    let sums = rows.map(|r| tile.acts.sums32(r).as_ptr());
    let scales = lanes.scales(group).as_ptr();
    let negatives = lanes.negatives(group).as_ptr();
    let codes = lanes.codes(group).as_ptr();
    let total: &mut [__m256; T] = total.first_chunk_mut().expect("a place for every item");
    // SAFETY: blocks are counted by `lanes`, whose slices of a group hold that many, and activation rows are as wide
    // by the caller's promise.
    unsafe {
        for c in chains {
            let mut chain = [_mm256_setzero_ps(); T];
            for s in segment(c, lanes.blocks(), CHAINS_NARROW) {
                let codes = codes.add(s * LANES * F::CODE_BYTES);
                let isum = F::dots(codes, negatives.add(s * LANES), acts.map(|a| a.add(s * 32)), sums.map(|a| a.add(s)));
                let d = _mm256_cvtph_ps(_mm_loadu_si128(scales.add(s * LANES).cast()));
                for t in 0..T {
                    let scale = _mm256_mul_ps(d, _mm256_set1_ps(*act_scales[t].add(s)));
                    chain[t] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(isum[t]), chain[t]);
                }
            }
            // the total starts at +0, and a chain is never -0 (it starts at +0, and a rounded product times an integer
            // does not underflow): +0 plus the first chain is the first chain
            for t in 0..T {
                total[t] = _mm256_add_ps(total[t], chain[t]);
            }
        }
    }
}

/// Writes the outputs of a group of rows for the items from `i` on.
///
/// # Safety
/// As [`run`]; the tile has these items.
#[inline(always)]
unsafe fn store(tile: &Tile<'_>, i: usize, group: usize, total: &[__m256]) {
    for (t, total) in total.iter().enumerate() {
        let mut y = [0.0; LANES];
        // SAFETY: `y` has the lanes; the rest is the caller's promise.
        unsafe {
            _mm256_storeu_ps(y.as_mut_ptr(), *total);
            tile.store(i + t, group * LANES, &y);
        }
    }
}
