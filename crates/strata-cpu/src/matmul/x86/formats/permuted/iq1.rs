//! IQ1: eight of -1, 0 and 1 an entry, moved up or down.

use super::super::super::unpack::{joined16, joined32};
use super::Permuted;
use super::bits::*;
use super::look_up::Index;
use super::planes::{IQ1_PLANES, IQ1_RUNS, IQ1_VALUES, Values};
use std::arch::x86_64::*;
use strata_quant::formats::{IQ1_M, IQ1_S};

/// The ranks of 64 entries, by the lower eight bits of their indices and bytes that have the ones above in their lowest three.
///
/// # Safety
/// As [`Permuted`].
#[inline(always)]
unsafe fn ranks<const TWO: bool>(index: __m512i, upper: __m512i) -> [__m512i; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let above = [bits::<1>(upper), bits::<2>(upper), bits::<4>(upper)];
        let index = Index::<TWO, _>::new(index, above);
        [index.of_plane(&IQ1_PLANES.low), index.of_runs(&IQ1_RUNS, upper)]
    }
}

impl Permuted for IQ1_S {
    const EACH: usize = 8;
    const SIGNS: &'static [i64] = &eight_signs([1 << 7; 8]);
    const VALUES: [&'static Values; 2] = [&IQ1_VALUES[0], &IQ1_VALUES[1]];

    #[inline(always)]
    unsafe fn entries<const TWO: bool>(a: *const u8, b: *const u8) -> [__m512i; 3] {
        // SAFETY: the caller's promise, here and in every function of this file.
        unsafe {
            let words = _mm512_cvtepu32_epi64(joined16(a.add(34), b.add(34)));
            let [low, high] = ranks::<TWO>(joined32(a.add(2), b.add(2)), _mm512_multishift_epi64_epi8(THREES.get(), words));
            [low, high, _mm512_multishift_epi64_epi8(TOPS.get(), words)]
        }
    }

    #[inline(always)]
    unsafe fn scales(a: *const u8, b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe {
            let words = _mm512_cvtepu16_epi32(joined16(a.add(34), b.add(34)));
            _mm512_ternarylogic_epi32::<0xf8>(_mm512_set1_epi32(1), _mm512_srli_epi32::<11>(words), _mm512_set1_epi32(14))
        }
    }
}

impl Permuted for IQ1_M {
    const EACH: usize = 8;
    const SIGNS: &'static [i64] = &eight_signs([1 << 3; 8]);
    const VALUES: [&'static Values; 2] = [&IQ1_VALUES[0], &IQ1_VALUES[1]];

    #[inline(always)]
    unsafe fn entries<const TWO: bool>(a: *const u8, b: *const u8) -> [__m512i; 3] {
        // SAFETY: as above.
        unsafe {
            let nibbles = _mm512_cvtepu32_epi64(joined16(a.add(32), b.add(32)));
            let nibbles = _mm512_multishift_epi64_epi8(NIBBLES.get(), nibbles);
            let [low, high] = ranks::<TWO>(joined32(a, b), nibbles);
            [low, high, nibbles]
        }
    }

    #[inline(always)]
    unsafe fn scales(a: *const u8, b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe {
            let threes = _mm512_multishift_epi64_epi8(LANE_THREES.get(), eight_of_each(a.add(48), b.add(48)));
            _mm512_ternarylogic_epi32::<0xf8>(_mm512_set1_epi16(1), threes, _mm512_set1_epi16(14))
        }
    }
}
