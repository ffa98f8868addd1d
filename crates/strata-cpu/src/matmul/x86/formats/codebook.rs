//! IQ2 and IQ3: groups of four or eight codes from a table.

use super::super::unpack::{Unpack, eight_subs, load, long, mask, signs, spread_nibbles, word};
use super::tables::{IQ2_S_CODES, IQ2_XS_CODES, IQ2_XXS_CODES, IQ3_S_CODES, IQ3_XXS_CODES, index, merge, merged, two_of, unit_of};
use std::arch::x86_64::*;
use strata_quant::formats::{IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};

/// Completes bytes of seven sign bits: the eighth makes the number of set bits even.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn even(x: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        // 0x80 for an odd number of bits of a nibble
        let odd = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
        let both = _mm256_xor_si256(x, _mm256_srli_epi16(x, 4));
        _mm256_xor_si256(x, _mm256_shuffle_epi8(odd, _mm256_and_si256(both, _mm256_set1_epi8(15))))
    }
}

/// The signs of eight sub-blocks whose 32-bit words have four sign indices of seven bits each.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn four_sevens(x: __m256i, to: &mut [u8; 32]) {
    // SAFETY: the caller's promise.
    unsafe {
        // two indices to each 16 bits, then one to each 8
        let two = _mm256_blend_epi16(x, _mm256_slli_epi32(x, 2), 0xaa);
        let (low, high) = (_mm256_set1_epi16(0x7f), _mm256_set1_epi16(0x7f00));
        let (low, high) = (_mm256_and_si256(two, low), _mm256_and_si256(_mm256_slli_epi16(two, 1), high));
        _mm256_storeu_si256(to.as_mut_ptr().cast(), even(_mm256_or_si256(low, high)));
    }
}

/// The odd sub-scales 2 s + 1 of eight words with s in the upper four bits.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn upper_subs(x: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let odd = _mm256_or_si256(_mm256_slli_epi32(_mm256_srli_epi32(x, 28), 1), _mm256_set1_epi32(1));
        let subs = _mm_packus_epi32(_mm256_castsi256_si128(odd), _mm256_extracti128_si256(odd, 1));
        _mm256_broadcastsi128_si256(subs)
    }
}

/// The odd sub-scales of nibbles as bytes.
#[inline(always)]
fn odd(nibbles: u64) -> u64 {
    nibbles << 1 | 0x0101_0101_0101_0101
}

/// Sixteen odd sub-scales from eight bytes.
///
/// # Safety
/// AVX2; the bytes exist.
#[inline(always)]
unsafe fn sixteen_subs(at: *const u8) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let x = _mm_cvtsi64_si128(long(at) as i64);
        let n = _mm_and_si128(_mm_unpacklo_epi8(x, _mm_srli_epi16(x, 4)), _mm_set1_epi8(15));
        let n = _mm256_cvtepu8_epi16(n);
        _mm256_or_si256(_mm256_add_epi16(n, n), _mm256_set1_epi16(1))
    }
}

/// Units of a format whose codes have signs: its table, where number `i` of its indices comes from, and where its 32 bytes of signs are.
macro_rules! signed_units {
    ($table:ident, |$b:ident, $head:ident, $i:ident| $at:expr, $signs:expr) => {
        #[inline(always)]
        unsafe fn unit<const J: usize>($b: *const u8, $head: &Self::Head) -> (__m256i, __m256i) {
            // SAFETY: as above.
            unsafe {
                let u = unit_of(&$table.0, J, |$i| $at);
                (u, signs::<J>($signs))
            }
        }

        #[inline(always)]
        unsafe fn two<const A: usize, const B: usize>($b: *const u8, $head: &Self::Head) -> (__m512i, u64) {
            // SAFETY: as above.
            unsafe { (two_of(&$table.0, A, |$i| $at), long($signs.add(4 * A))) }
        }
    };
}

impl Unpack for IQ3_S {
    const SIGNED: bool = true;

    type Head = [u16; 64];

    #[inline(always)]
    unsafe fn head(b: *const u8, to: &mut Self::Head) {
        // SAFETY: the caller's promise, here and in every function of this file.
        unsafe {
            for (k, to) in to.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                let ninth = _mm256_abs_epi8(mask(word(b.add(66 + 4 * k))));
                merge(load(b.add(2 + 32 * k)), ninth, to);
            }
        }
    }

    signed_units!(IQ3_S_CODES, |b, head, i| index(head, merged(i)), b.add(74));

    #[inline(always)]
    unsafe fn subs(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { eight_subs(odd(spread_nibbles(word(b.add(106))))) }
    }
}

impl Unpack for IQ3_XXS {
    const SIGNED: bool = true;
    const D_UNIT: f32 = 0.25;

    type Head = [u8; 32];

    #[inline(always)]
    unsafe fn head(b: *const u8, to: &mut Self::Head) {
        // SAFETY: as above.
        unsafe { four_sevens(load(b.add(66)), to) }
    }

    signed_units!(IQ3_XXS_CODES, |b, head, i| index(&*b.add(2).cast::<[u8; 64]>(), i), head.as_ptr());

    #[inline(always)]
    unsafe fn subs(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { upper_subs(load(b.add(66))) }
    }
}

/// The second word of each of the eight sub-blocks of IQ2_XXS.
///
/// # Safety
/// AVX2; a block.
#[inline(always)]
unsafe fn second_words(b: *const u8) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let (x, y) = (_mm256_castsi256_ps(load(b.add(2))), _mm256_castsi256_ps(load(b.add(34))));
        _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(x, y, 0xdd)), 0xd8)
    }
}

impl Unpack for IQ2_XXS {
    const SIGNED: bool = true;
    const D_UNIT: f32 = 0.125;

    type Head = [u8; 32];

    #[inline(always)]
    unsafe fn head(b: *const u8, to: &mut Self::Head) {
        // SAFETY: as above.
        unsafe { four_sevens(second_words(b), to) }
    }

    signed_units!(IQ2_XXS_CODES, |b, head, i| index(&*b.add(2).cast::<[u8; 64]>(), i / 4 * 8 + i % 4), head.as_ptr());

    #[inline(always)]
    unsafe fn subs(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { upper_subs(second_words(b)) }
    }
}

impl Unpack for IQ2_XS {
    const SIGNED: bool = true;
    const D_UNIT: f32 = 0.125;

    type Head = ([u16; 32], [u8; 32]);

    #[inline(always)]
    unsafe fn head(b: *const u8, to: &mut Self::Head) {
        // SAFETY: as above.
        unsafe {
            let words = [load(b.add(2)), load(b.add(34))];
            let sevens = _mm256_packus_epi16(_mm256_srli_epi16(words[0], 9), _mm256_srli_epi16(words[1], 9));
            _mm256_storeu_si256(to.1.as_mut_ptr().cast(), even(_mm256_permute4x64_epi64(sevens, 0xd8)));
            for (k, words) in words.into_iter().enumerate() {
                _mm256_storeu_si256(to.0.as_mut_ptr().add(16 * k).cast(), _mm256_and_si256(words, _mm256_set1_epi16(511)));
            }
        }
    }

    signed_units!(IQ2_XS_CODES, |_b, head, i| index(&head.0, i), head.1.as_ptr());

    #[inline(always)]
    unsafe fn subs(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { sixteen_subs(b.add(66)) }
    }
}

impl Unpack for IQ2_S {
    const SIGNED: bool = true;
    const D_UNIT: f32 = 0.125;

    type Head = [u16; 32];

    #[inline(always)]
    unsafe fn head(b: *const u8, to: &mut Self::Head) {
        // SAFETY: as above.
        unsafe {
            // pairs of bits: nibbles, each twice, of which one half counts
            let x = _mm_cvtsi64_si128(long(b.add(66)) as i64);
            let nibbles = _mm256_castsi128_si256(_mm_unpacklo_epi8(x, _mm_srli_epi16(x, 4)));
            let nibbles = _mm256_permute4x64_epi64(nibbles, 0x50);
            let half = _mm256_and_si256(_mm256_unpacklo_epi8(nibbles, nibbles), _mm256_set1_epi16(0x0c03));
            let down = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0));
            merge(load(b.add(2)), _mm256_shuffle_epi8(down, half), to);
        }
    }

    signed_units!(IQ2_S_CODES, |b, head, i| index(head, merged(i)), b.add(34));

    #[inline(always)]
    unsafe fn subs(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { sixteen_subs(b.add(74)) }
    }
}
