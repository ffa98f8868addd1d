//! IQ1: groups of eight codes from a table, moved up or down.

use super::super::unpack::{Blocks, GROUPS, ROWS, Unpack, halves, load, load16, load512, long, twice, widen};
use super::tables::{IQ1_CODES, IQ1_UP, index, merge, merged, two_of, unit_of};
use std::arch::x86_64::*;
use strata_quant::formats::{IQ1_M, IQ1_S};

impl Unpack for IQ1_S {
    const OFFSET: i8 = IQ1_UP + 1;
    const D_UNIT: f32 = 0.125;

    type Head = [u16; 32];

    #[inline(always)]
    unsafe fn head(b: *const u8, to: &mut Self::Head) {
        // SAFETY: the caller's promise, here and in every function of this file.
        unsafe {
            // each group's word (the upper byte alone for the last of four), three bits of it brought to place 8 by a product
            let words = twice(b.add(34));
            let places =
                _mm256_setr_epi8(0, 1, 0, 1, 0, 1, 1, -1, 2, 3, 2, 3, 2, 3, 3, -1, 4, 5, 4, 5, 4, 5, 5, -1, 6, 7, 6, 7, 6, 7, 7, -1);
            let up = _mm256_set1_epi64x(0x0080_0004_0020_0100);
            for (k, to) in to.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                let words = if k == 0 { words } else { _mm256_bsrli_epi128(words, 8) };
                let high = _mm256_mullo_epi16(_mm256_shuffle_epi8(words, places), up);
                let low = _mm256_cvtepu8_epi16(load16(b.add(2 + 16 * k)));
                let index = _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi16(0x700)));
                _mm256_storeu_si256(to.as_mut_ptr().cast(), index);
            }
        }
    }

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            let (u, none) = Self::loose::<J>(b, head);
            // moved down: two less than up
            let two = b.add(35 + 2 * J).read() >> 6 & 2;
            (_mm256_add_epi8(u, _mm256_set1_epi8(2 - two as i8)), none)
        }
    }

    #[inline(always)]
    unsafe fn loose<const J: usize>(_b: *const u8, head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            let u = unit_of(&IQ1_CODES.0, J, |i| index(head, i));
            (u, u)
        }
    }

    #[inline(always)]
    unsafe fn two<const A: usize, const B: usize>(_b: *const u8, head: &Self::Head) -> (__m512i, u64) {
        // SAFETY: as above.
        unsafe { (two_of(&IQ1_CODES.0, A, |i| index(head, i)), 0) }
    }

    #[inline(always)]
    unsafe fn rest(b: *const u8, subs: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe {
            // one more or one less, by the highest bit, and what the table has on top taken away
            let down = _mm256_srai_epi16(twice(b.add(34)), 15);
            let codes = _mm256_add_epi16(_mm256_add_epi16(down, down), _mm256_set1_epi16(1 - i16::from(IQ1_UP)));
            widen(_mm256_mullo_epi16(subs, codes))
        }
    }

    #[inline(always)]
    unsafe fn subs(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe {
            let three = _mm_and_si128(_mm_srli_epi16(load16(b.add(34)), 11), _mm_set1_epi16(14));
            _mm256_broadcastsi128_si256(_mm_or_si128(three, _mm_set1_epi16(1)))
        }
    }
}

impl Unpack for IQ1_M {
    const OFFSET: i8 = IQ1_UP + 1;

    /// Indices, and what is added to the codes of a group: two, or nothing where they are moved down.
    type Head = ([u16; 32], [u8; 32]);

    #[inline(always)]
    unsafe fn head(b: *const u8, to: &mut Self::Head) {
        // SAFETY: as above.
        unsafe {
            let x = load16(b.add(32));
            let y = _mm_srli_epi16(x, 4);
            let nibbles = _mm256_set_m128i(_mm_unpackhi_epi8(x, y), _mm_unpacklo_epi8(x, y));
            merge(load(b), _mm256_and_si256(nibbles, _mm256_set1_epi8(7)), &mut to.0);
            let two = _mm256_srli_epi16(_mm256_andnot_si256(nibbles, _mm256_set1_epi8(8)), 2);
            _mm256_storeu_si256(to.1.as_mut_ptr().cast(), two);
        }
    }

    #[inline(always)]
    unsafe fn unit<const J: usize>(_b: *const u8, head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            let u = unit_of(&IQ1_CODES.0, J, |i| index(&head.0, merged(i)));
            let two = _mm256_shuffle_epi8(twice(head.1.as_ptr().add(J / 4 * 16)), load(GROUPS.of(J % 4)));
            (_mm256_add_epi8(u, two), two)
        }
    }

    #[inline(always)]
    unsafe fn two<const A: usize, const B: usize>(_b: *const u8, head: &Self::Head) -> (__m512i, u64) {
        // SAFETY: as above.
        unsafe {
            let u = two_of(&IQ1_CODES.0, A, |i| index(&head.0, merged(i)));
            let all = _mm512_broadcast_i32x4(load16(head.1.as_ptr().add(A / 4 * 16)));
            (_mm512_add_epi8(u, _mm512_shuffle_epi8(all, load512(GROUPS.of(A % 4)))), 0)
        }
    }

    #[inline(always)]
    unsafe fn subs(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe {
            // four three-bit numbers in each of four words
            let x = _mm256_cvtepu16_epi64(_mm_cvtsi64_si128(long(b.add(48)) as i64));
            let x = _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 8, 9, 8, 9, 8, 9, 8, 9)));
            // to bits 9 to 11 of their own lane by a product, then down
            let up = _mm256_mullo_epi16(x, _mm256_set1_epi64x(0x0001_0008_0040_0200));
            let three = _mm256_and_si256(_mm256_srli_epi16(up, 8), _mm256_set1_epi16(14));
            _mm256_or_si256(three, _mm256_set1_epi16(1))
        }
    }

    #[inline(always)]
    unsafe fn d(b: Blocks, _term: usize) -> __m256 {
        // SAFETY: as above.
        unsafe {
            let mut bits = [0u16; ROWS];
            for (k, bits) in bits.iter_mut().enumerate() {
                let x = long(b.of(k).add(48)) & 0xf000_f000_f000_f000;
                *bits = (x >> 12 | x >> 24 | x >> 36 | x >> 48) as u16;
            }
            halves(Blocks { first: bits.as_ptr().cast(), stride: 2 }, 0, 0.125)
        }
    }
}
