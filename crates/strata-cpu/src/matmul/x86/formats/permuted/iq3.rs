//! IQ3: four magnitudes an entry.

use super::super::super::unpack::{load, load512, long, word};
use super::Permuted;
use super::bits::*;
use super::look_up::Index;
use super::planes::{IQ3_S_PLANES, IQ3_S_VALUES, IQ3_XXS_PLANES, IQ3_XXS_VALUES, Values};
use std::arch::x86_64::*;
use strata_quant::formats::{IQ3_S, IQ3_XXS};

/// The eight words at `at`, each twice.
///
/// # Safety
/// As [`Permuted`]; the bytes exist.
#[inline(always)]
unsafe fn words_twice(at: *const u8) -> __m512i {
    // SAFETY: the caller's promise, here and in every function of this file.
    unsafe { _mm512_permutexvar_epi32(TWICE.get(), _mm512_castsi256_si512(load(at))) }
}

impl Permuted for IQ3_XXS {
    const EACH: usize = 4;
    const SIGNS: &'static [i64] = &FOUR_SIGNS;
    const VALUES: [&'static Values; 2] = [&IQ3_XXS_VALUES; 2];

    #[inline(always)]
    unsafe fn entries<const TWO: bool>(a: *const u8, _b: *const u8) -> [__m512i; 3] {
        // SAFETY: as above.
        unsafe {
            let [low, high] = Index::<TWO, _>::new(load512(a.add(2)), []).of_planes(&IQ3_XXS_PLANES);
            let sevens = _mm512_multishift_epi64_epi8(SEVENS.get(), words_twice(a.add(66)));
            let eights = _mm512_gf2p8affine_epi64_epi8::<0>(sevens, _mm512_set1_epi64(EVEN));
            [low, high, _mm512_multishift_epi64_epi8(NIBBLES.get(), eights)]
        }
    }

    #[inline(always)]
    unsafe fn scales(a: *const u8, _b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { upper_scales(words_twice(a.add(66))) }
    }
}

impl Permuted for IQ3_S {
    const EACH: usize = 4;
    const SIGNS: &'static [i64] = &FOUR_SIGNS;
    const VALUES: [&'static Values; 2] = [&IQ3_S_VALUES; 2];

    #[inline(always)]
    unsafe fn entries<const TWO: bool>(a: *const u8, _b: *const u8) -> [__m512i; 3] {
        // SAFETY: as above.
        unsafe {
            let [low, high] = Index::<TWO, _>::new(load512(a.add(2)), [long(a.add(66))]).of_planes(&IQ3_S_PLANES);
            [low, high, _mm512_multishift_epi64_epi8(NIBBLES.get(), words_twice(a.add(74)))]
        }
    }

    #[inline(always)]
    unsafe fn scales(a: *const u8, _b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { odd32(_mm512_multishift_epi64_epi8(PAIR_NIBBLES.get(), _mm512_set1_epi32(word(a.add(106)) as i32))) }
    }
}
