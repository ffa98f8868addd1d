//! IQ1, IQ2 and IQ3: groups of four or eight codes from a table.

use super::super::unpack::{Blocks, ROWS, Unpack, eight_subs, halves, load, load16, long, signs, spread_nibbles, word};
use std::arch::x86_64::*;
use strata_quant::formats::{
    IQ1_GRID, IQ1_M, IQ1_S, IQ2_S, IQ2_S_GRID, IQ2_XS, IQ2_XS_GRID, IQ2_XXS, IQ2_XXS_GRID, IQ3_S, IQ3_S_GRID, IQ3_XXS, IQ3_XXS_GRID,
};

/// Four groups of eight codes.
///
/// # Safety
/// AVX2; the table has the indices.
#[inline(always)]
unsafe fn eights<const N: usize>(grid: &[[i8; 8]; N], at: [usize; 4]) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let e = |i: usize| grid.as_ptr().add(at[i]).cast::<i64>().read_unaligned();
        _mm256_set_m128i(_mm_set_epi64x(e(3), e(2)), _mm_set_epi64x(e(1), e(0)))
    }
}

/// Eight groups of four codes.
///
/// # Safety
/// AVX2; the table has the indices.
#[inline(always)]
unsafe fn fours<const N: usize>(grid: &[[i8; 4]; N], at: [usize; 8]) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let e = |i: usize| grid.as_ptr().add(at[i]).cast::<i32>().read_unaligned();
        _mm256_set_m128i(_mm_setr_epi32(e(4), e(5), e(6), e(7)), _mm_setr_epi32(e(0), e(1), e(2), e(3)))
    }
}

/// Looks up groups of four codes, and nothing else: what a product of IQ3 is measured against.
///
/// # Safety
/// AVX2; indices below 512.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn look_up_fours(at: &[u16]) -> [u64; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut all = _mm256_setzero_si256();
        for i in at.as_chunks::<8>().0 {
            let at = |k: usize| usize::from((&raw const i[k]).read_volatile());
            all = _mm256_xor_si256(all, fours(&IQ3_S_GRID, [at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)]));
        }
        let mut out = [0; 4];
        _mm256_storeu_si256(out.as_mut_ptr().cast(), all);
        out
    }
}

/// Looks up groups of eight codes, and nothing else: what a product of IQ2 is measured against.
///
/// # Safety
/// AVX2; indices below 512.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn look_up_eights(at: &[u16]) -> [u64; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut all = _mm256_setzero_si256();
        for i in at.as_chunks::<4>().0 {
            let at = |k: usize| usize::from((&raw const i[k]).read_volatile());
            all = _mm256_xor_si256(all, eights(&IQ2_XS_GRID, [at(0), at(1), at(2), at(3)]));
        }
        let mut out = [0; 4];
        _mm256_storeu_si256(out.as_mut_ptr().cast(), all);
        out
    }
}

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
        let low = _mm256_set1_epi8(15);
        let a = _mm256_shuffle_epi8(odd, _mm256_and_si256(x, low));
        let b = _mm256_shuffle_epi8(odd, _mm256_and_si256(_mm256_srli_epi16(x, 4), low));
        _mm256_xor_si256(x, _mm256_xor_si256(a, b))
    }
}

/// The signs of eight sub-blocks whose 32-bit words have four sign indices of seven bits each.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn four_sevens(x: __m256i, to: &mut [u32; 8]) {
    // SAFETY: the caller's promise.
    unsafe {
        let part = |x: __m256i, m: i32| _mm256_and_si256(x, _mm256_set1_epi32(m));
        let low = _mm256_or_si256(part(x, 0x7f), part(_mm256_slli_epi32(x, 1), 0x7f00));
        let high = _mm256_or_si256(part(_mm256_slli_epi32(x, 2), 0x7f_0000), part(_mm256_slli_epi32(x, 3), 0x7f00_0000));
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

impl Unpack for IQ3_S {
    const SIGNED: bool = true;

    type Head = [u16; 64];

    #[inline(always)]
    unsafe fn head(b: *const u8, to: &mut Self::Head) {
        // SAFETY: the caller's promise, here and in every function of this file.
        unsafe {
            // indices of 9 bits, sixteen at a time
            let bit = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768);
            for k in 0..4 {
                let low = _mm256_cvtepu8_epi16(load16(b.add(2 + 16 * k)));
                let high = _mm256_set1_epi16(b.add(66 + 2 * k).cast::<i16>().read_unaligned());
                let high = _mm256_cmpeq_epi16(_mm256_and_si256(high, bit), bit);
                let index = _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi16(256)));
                _mm256_storeu_si256(to.as_mut_ptr().add(16 * k).cast(), index);
            }
        }
    }

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            let i = head.as_ptr().add(8 * J);
            let at = |k: usize| usize::from(i.add(k).read_volatile());
            let u = fours(&IQ3_S_GRID, [at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)]);
            (u, signs(word(b.add(74 + 4 * J))))
        }
    }

    #[inline(always)]
    unsafe fn subs(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { eight_subs(odd(spread_nibbles(word(b.add(106))))) }
    }
}

impl Unpack for IQ3_XXS {
    const SIGNED: bool = true;
    const D_UNIT: f32 = 0.25;

    type Head = [u32; 8];

    #[inline(always)]
    unsafe fn head(b: *const u8, to: &mut Self::Head) {
        // SAFETY: as above.
        unsafe { four_sevens(load(b.add(66)), to) }
    }

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            let at = |k: usize| usize::from(b.add(2 + 8 * J + k).read_volatile());
            let u = fours(&IQ3_XXS_GRID, [at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)]);
            (u, signs(head[J]))
        }
    }

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

    type Head = [u32; 8];

    #[inline(always)]
    unsafe fn head(b: *const u8, to: &mut Self::Head) {
        // SAFETY: as above.
        unsafe { four_sevens(second_words(b), to) }
    }

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            let at = |k: usize| usize::from(b.add(2 + 8 * J + k).read_volatile());
            (eights(&IQ2_XXS_GRID, [at(0), at(1), at(2), at(3)]), signs(head[J]))
        }
    }

    #[inline(always)]
    unsafe fn subs(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { upper_subs(second_words(b)) }
    }
}

impl Unpack for IQ2_XS {
    const SIGNED: bool = true;
    const D_UNIT: f32 = 0.125;

    type Head = ([u16; 32], [u32; 8]);

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

    #[inline(always)]
    unsafe fn unit<const J: usize>(_b: *const u8, head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            let i = head.0.as_ptr().add(4 * J);
            let at = |k: usize| usize::from(i.add(k).read_volatile());
            (eights(&IQ2_XS_GRID, [at(0), at(1), at(2), at(3)]), signs(head.1[J]))
        }
    }

    #[inline(always)]
    unsafe fn subs(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { sixteen_subs(b.add(66)) }
    }
}

impl Unpack for IQ2_S {
    const SIGNED: bool = true;
    const D_UNIT: f32 = 0.125;

    type Head = ();

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, _head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            let (low, high) = (b.add(2 + 4 * J), usize::from(b.add(66 + J).read_volatile()));
            let at = |k: usize| usize::from(low.add(k).read_volatile()) | (high << (8 - 2 * k) & 0x300);
            (eights(&IQ2_S_GRID, [at(0), at(1), at(2), at(3)]), signs(word(b.add(34 + 4 * J))))
        }
    }

    #[inline(always)]
    unsafe fn subs(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { sixteen_subs(b.add(74)) }
    }
}

impl Unpack for IQ1_S {
    const OFFSET: i8 = 9;
    const D_UNIT: f32 = 0.125;

    type Head = ();

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, _head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            let word = usize::from(b.add(34 + 2 * J).cast::<u16>().read_unaligned());
            let at = |k: usize| usize::from(b.add(2 + 4 * J + k).read_volatile()) | (word << 8 >> (3 * k) & 0x700);
            let g = eights(&IQ1_GRID, [at(0), at(1), at(2), at(3)]);
            // moved down: two less than up
            let u = _mm256_add_epi8(g, _mm256_set1_epi8(10 - 2 * (word >> 15) as i8));
            (u, u)
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
    const OFFSET: i8 = 9;

    type Head = ();

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, _head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            let high = usize::from(b.add(32 + 2 * J).cast::<u16>().read_unaligned());
            let at = |k: usize| usize::from(b.add(4 * J + k).read_volatile()) | (high << 8 >> (4 * k) & 0x700);
            let g = eights(&IQ1_GRID, [at(0), at(1), at(2), at(3)]);
            // bit 3 of a group's nibble moves its codes down: two less than up
            let bit = _mm256_srlv_epi64(_mm256_set1_epi64x(high as i64), _mm256_setr_epi64x(2, 6, 10, 14));
            let places = _mm256_setr_epi64x(0, 0x0808_0808_0808_0808, 0, 0x0808_0808_0808_0808);
            let two = _mm256_shuffle_epi8(_mm256_and_si256(bit, _mm256_set1_epi64x(2)), places);
            let u = _mm256_add_epi8(g, _mm256_sub_epi8(_mm256_set1_epi8(10), two));
            (u, u)
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
