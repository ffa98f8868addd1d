//! What becomes of integer sums: lanes to rows, and the chains of floats.

use super::super::unpack::ROWS;
use std::arch::x86_64::*;
use strata_ops::matmul::segment;

/// The chains of a row's segments, of which there are `C`, for `T` items.
pub(super) struct Chains<const T: usize, const C: usize> {
    pub chain: [__m256; T],
    pub total: [__m256; T],
    blocks: usize,
    /// The segment and the block behind it.
    c: usize,
    end: usize,
}

impl<const T: usize, const C: usize> Chains<T, C> {
    /// # Safety
    /// AVX.
    #[inline(always)]
    pub unsafe fn new(blocks: usize) -> Self {
        // SAFETY: the caller's promise.
        let zero = unsafe { [_mm256_setzero_ps(); T] };
        let mut chains = Chains { chain: zero, total: zero, blocks, c: 0, end: 0 };
        chains.skip(0);
        chains
    }

    /// Goes to the segment that ends behind block `s`.
    #[inline(always)]
    fn skip(&mut self, s: usize) {
        while self.c < C {
            self.end = segment(self.c, self.blocks, C).end;
            if self.end > s {
                return;
            }
            self.c += 1;
        }
    }

    /// Ends the segment if block `s` is its last. An empty segment would add +0.
    ///
    /// The total starts at +0, and a chain is never -0 (it starts at +0, and a rounded product times an integer does not
    /// underflow): +0 plus the first chain is the first chain.
    ///
    /// # Safety
    /// AVX.
    #[inline(always)]
    pub unsafe fn after(&mut self, s: usize) {
        if s + 1 == self.end {
            self.skip(s + 1);
            for t in 0..T {
                // SAFETY: the caller's promise.
                unsafe {
                    self.total[t] = _mm256_add_ps(self.total[t], self.chain[t]);
                    self.chain[t] = _mm256_setzero_ps();
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
