//! IQ2: eight magnitudes an entry.

use super::super::super::unpack::{joined32, load512};
use super::Permuted;
use super::bits::*;
use super::look_up::Index;
use super::planes::{IQ2_S_PLANES, IQ2_S_STEPS, IQ2_VALUES, IQ2_XS_PLANES, IQ2_XXS_PLANES, Values};
use std::arch::x86_64::*;
use strata_quant::formats::{IQ2_S, IQ2_XS, IQ2_XXS};

impl Permuted for IQ2_XXS {
    const EACH: usize = 8;
    const SIGNS: &'static [i64] = &eight_signs(even(0));
    const VALUES: [&'static Values; 2] = [&IQ2_VALUES[0], &IQ2_VALUES[1]];

    #[inline(always)]
    unsafe fn entries<const TWO: bool>(a: *const u8, b: *const u8) -> [__m512i; 3] {
        // SAFETY: the caller's promise, here and in every function of this file.
        unsafe {
            let index = _mm512_permutex2var_epi32(load512(a.add(2)), EVEN_LANES.get(), load512(b.add(2)));
            let [low, high] = Index::<TWO, _>::new(index, []).of_planes(&IQ2_XXS_PLANES);
            [low, high, _mm512_multishift_epi64_epi8(SEVENS.get(), second_words(a, b))]
        }
    }

    #[inline(always)]
    unsafe fn scales(a: *const u8, b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { upper_scales(second_words(a, b)) }
    }
}

/// The second word of each of the sub-blocks of two blocks of IQ2_XXS.
///
/// # Safety
/// As [`Permuted`].
#[inline(always)]
unsafe fn second_words(a: *const u8, b: *const u8) -> __m512i {
    // SAFETY: as above.
    unsafe { _mm512_permutex2var_epi32(load512(a.add(2)), ODD_LANES.get(), load512(b.add(2))) }
}

impl Permuted for IQ2_XS {
    const EACH: usize = 8;
    const SIGNS: &'static [i64] = &eight_signs(even(1));
    const VALUES: [&'static Values; 2] = [&IQ2_VALUES[0], &IQ2_VALUES[1]];

    #[inline(always)]
    unsafe fn entries<const TWO: bool>(a: *const u8, b: *const u8) -> [__m512i; 3] {
        // SAFETY: as above.
        unsafe {
            // the lower bytes of 32 words and then the upper ones, of which the lowest bit is the index's ninth
            let a = _mm512_permutexvar_epi8(EVEN_ODD.get(), load512(a.add(2)));
            let b = _mm512_permutexvar_epi8(EVEN_ODD.get(), load512(b.add(2)));
            let upper = _mm512_shuffle_i64x2::<0xee>(a, b);
            let index = Index::<TWO, _>::new(_mm512_shuffle_i64x2::<0x44>(a, b), [bits::<1>(upper)]);
            let [low, high] = index.of_planes(&IQ2_XS_PLANES);
            [low, high, upper]
        }
    }

    #[inline(always)]
    unsafe fn scales(a: *const u8, b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { odd16(_mm512_multishift_epi64_epi8(LANE_NIBBLES.get(), eight_of_each(a.add(66), b.add(66)))) }
    }
}

impl Permuted for IQ2_S {
    const EACH: usize = 8;
    const SIGNS: &'static [i64] = &eight_signs([1, 2, 4, 8, 16, 32, 64, 128]);
    const VALUES: [&'static Values; 2] = [&IQ2_VALUES[0], &IQ2_VALUES[1]];

    #[inline(always)]
    unsafe fn entries<const TWO: bool>(a: *const u8, b: *const u8) -> [__m512i; 3] {
        // SAFETY: as above.
        unsafe {
            let pairs = _mm512_multishift_epi64_epi8(PAIRS.get(), eight_of_each(a.add(66), b.add(66)));
            let index = Index::<TWO, _>::new(joined32(a.add(2), b.add(2)), [bits::<1>(pairs), bits::<2>(pairs)]);
            let (low, high) = (index.of_plane(&IQ2_S_PLANES.low), index.of_steps(&IQ2_S_STEPS, pairs));
            [low, high, joined32(a.add(34), b.add(34))]
        }
    }

    #[inline(always)]
    unsafe fn scales(a: *const u8, b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { odd16(_mm512_multishift_epi64_epi8(LANE_NIBBLES.get(), eight_of_each(a.add(74), b.add(74)))) }
    }
}
