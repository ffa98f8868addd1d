//! What becomes of integer sums: lanes to rows, and the chains of floats.

use super::super::unpack::ROWS;
use std::arch::x86_64::*;
use strata_ops::matmul::{CHAINS_NARROW, CHAINS_WIDE, segment};

/// The blocks behind the segments of a row that are not empty, and none at the end.
pub(super) struct Ends([usize; MOST + 1]);

/// Segments of a row at most.
const MOST: usize = if CHAINS_NARROW > CHAINS_WIDE { CHAINS_NARROW } else { CHAINS_WIDE };

impl Ends {
    /// Of a row of `blocks` blocks in `C` segments.
    #[inline(always)]
    pub fn of<const C: usize>(blocks: usize) -> Ends {
        let (mut ends, mut n) = ([usize::MAX; MOST + 1], 0);
        for c in 0..C {
            let s = segment(c, blocks, C);
            if !s.is_empty() {
                ends[n] = s.end;
                n += 1;
            }
        }
        Ends(ends)
    }
}

/// A vector of floats.
///
/// # Safety
/// The functions need the instructions of the vector.
pub(super) trait Floats: Copy {
    /// # Safety
    /// As the trait says.
    unsafe fn zero() -> Self;

    /// # Safety
    /// As the trait says.
    unsafe fn add(self, other: Self) -> Self;
}

impl Floats for __m256 {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise, here and below.
        unsafe { _mm256_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_add_ps(self, other) }
    }
}

impl Floats for __m512 {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: as above.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_add_ps(self, other) }
    }
}

/// The chains of the segments of rows, a lane a row, for `T` items.
pub(super) struct Chains<'a, V, const T: usize> {
    pub chain: [V; T],
    pub total: [V; T],
    ends: &'a Ends,
    /// The present segment.
    c: usize,
}

impl<'a, V: Floats, const T: usize> Chains<'a, V, T> {
    /// # Safety
    /// As [`Floats`].
    #[inline(always)]
    pub unsafe fn new(ends: &'a Ends) -> Self {
        // SAFETY: the caller's promise.
        let zero = unsafe { [V::zero(); T] };
        Chains { chain: zero, total: zero, ends, c: 0 }
    }

    /// Ends the segment if block `s` is its last. An empty segment would add +0.
    ///
    /// The total starts at +0, and a chain is never -0 (it starts at +0, and a rounded product times an integer does not
    /// underflow): +0 plus the first chain is the first chain.
    ///
    /// # Safety
    /// As [`Floats`].
    #[inline(always)]
    pub unsafe fn after(&mut self, s: usize) {
        if s + 1 == self.ends.0[self.c] {
            self.c += 1;
            for t in 0..T {
                // SAFETY: the caller's promise.
                unsafe {
                    self.total[t] = self.total[t].add(self.chain[t]);
                    self.chain[t] = V::zero();
                }
            }
        }
    }
}

/// The sums of the lanes of each half of eight vectors: all first halves, all second halves.
///
/// # Safety
/// AVX2.
#[inline(always)]
pub(super) unsafe fn half_sums(v: &[__m256i; ROWS]) -> (__m256i, __m256i) {
    // SAFETY: the caller's promise.
    unsafe {
        let [a, b, c, d] =
            [_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]), _mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7])];
        let (low, high) = (_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
        (_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31))
    }
}

/// [`half_sums`] of 16-bit lanes, of which four fit 16 bits.
///
/// # Safety
/// AVX2.
#[inline(always)]
pub(super) unsafe fn half_sums16(v: &[__m256i; ROWS]) -> (__m256i, __m256i) {
    // SAFETY: the caller's promise.
    unsafe {
        let [a, b, c, d] =
            [_mm256_hadd_epi16(v[0], v[1]), _mm256_hadd_epi16(v[2], v[3]), _mm256_hadd_epi16(v[4], v[5]), _mm256_hadd_epi16(v[6], v[7])];
        let ones = _mm256_set1_epi16(1);
        let (low, high) = (_mm256_madd_epi16(_mm256_hadd_epi16(a, b), ones), _mm256_madd_epi16(_mm256_hadd_epi16(c, d), ones));
        (_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31))
    }
}

/// The sums of the lanes of each quarter of four vectors, of which each half belongs to a row, the first to rows 0 to 3: a lane a row,
/// those of the rows' first quarters and those of their second ones.
///
/// # Safety
/// AVX-512 F.
#[inline(always)]
pub(super) unsafe fn pair_sums(v: &[__m512i; ROWS / 2]) -> [__m256i; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let low = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
        let high = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
        let all = _mm512_add_epi32(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high));
        let by_quarters = _mm512_shuffle_i64x2::<0b11_01_10_00>(all, all);
        [_mm512_castsi512_si256(by_quarters), _mm512_extracti64x4_epi64(by_quarters, 1)]
    }
}

/// The sums of the lanes of each of eight vectors.
///
/// # Safety
/// AVX2.
#[inline(always)]
pub(super) unsafe fn lane_sums(v: &[__m256i; ROWS]) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let (first, second) = half_sums(v);
        _mm256_add_epi32(first, second)
    }
}
