//! 64 entries of a codebook at once: permuted from registers, or gathered from memory where there are too many.

use super::super::super::unpack::load512;
use super::planes::{Planes, Words};
use std::arch::x86_64::*;

/// The bytes of 64 entries by the lower eight bits of their indices and masks of the bits above.
///
/// # Safety
/// As [`super::Permuted`].
#[inline(always)]
pub(super) unsafe fn look_up<const ENTRIES: usize>(planes: &'static Planes<ENTRIES>, index: __m512i, above: [u64; 1]) -> [__m512i; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let masks = [_mm512_movepi8_mask(index), above[0]];
        if ENTRIES == 256 {
            [of_256(&planes.low, index, masks), of_256(&planes.high, index, masks)]
        } else {
            [of_512(&planes.low, index, masks), of_512(&planes.high, index, masks)]
        }
    }
}

/// One of 128 bytes by the lower seven bits of each index.
///
/// # Safety
/// As [`super::Permuted`]; there are so many bytes.
#[inline(always)]
unsafe fn of_128(plane: &'static [u8], index: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_permutex2var_epi8(load512(plane.as_ptr()), index, load512(plane.as_ptr().add(64))) }
}

/// One of 256 bytes; a mask has the eighth bits.
///
/// # Safety
/// As [`of_128`].
#[inline(always)]
unsafe fn of_256(plane: &'static [u8], index: __m512i, masks: [u64; 2]) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_mask_blend_epi8(masks[0], of_128(&plane[..128], index), of_128(&plane[128..], index)) }
}

/// One of 512 bytes; a mask has the ninth bits.
///
/// # Safety
/// As [`of_128`].
#[inline(always)]
unsafe fn of_512(plane: &'static [u8], index: __m512i, masks: [u64; 2]) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_mask_blend_epi8(masks[1], of_256(&plane[..256], index, masks), of_256(&plane[256..], index, masks)) }
}

/// The bytes of 64 entries of a table too large for registers: gathered from memory, sixteen at once. An index is a byte
/// of `index` and above it one of `upper`.
///
/// # Safety
/// As [`super::Permuted`]; the table has the entries.
#[inline(always)]
pub(super) unsafe fn gather<const ENTRIES: usize>(words: &'static Words<ENTRIES>, index: __m512i, upper: __m512i) -> [__m512i; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let lower = _mm512_set1_epi16(0xff);
        // of entries 0 and 2 of every four, of 1 and 3
        let even = _mm512_ternarylogic_epi32::<0xca>(lower, index, _mm512_slli_epi16::<8>(upper));
        let odd = _mm512_ternarylogic_epi32::<0xca>(lower, _mm512_srli_epi16::<8>(index), upper);
        let (even, odd) = (gather_pairs(words, even), gather_pairs(words, odd));
        [
            _mm512_ternarylogic_epi32::<0xca>(lower, even, _mm512_slli_epi16::<8>(odd)),
            _mm512_ternarylogic_epi32::<0xca>(lower, _mm512_srli_epi16::<8>(even), odd),
        ]
    }
}

/// The entries of pairs of 16-bit indices.
///
/// # Safety
/// As [`gather`].
#[inline(always)]
unsafe fn gather_pairs<const ENTRIES: usize>(words: &'static Words<ENTRIES>, index: __m512i) -> __m512i {
    // SAFETY: the caller's promise; behind the last entry there is one more.
    unsafe {
        let at = words.words.as_ptr().cast();
        let first = _mm512_i32gather_epi32::<2>(_mm512_and_si512(index, _mm512_set1_epi32(0xffff)), at);
        let second = _mm512_i32gather_epi32::<2>(_mm512_srli_epi32::<16>(index), at);
        _mm512_mask_blend_epi16(0xaaaa_aaaa, first, _mm512_slli_epi32::<16>(second))
    }
}
