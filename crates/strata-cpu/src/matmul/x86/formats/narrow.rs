//! The formats of 32- and 64-wide blocks.

use super::super::unpack::{
    Blocks, Unpack, joined16, joined32, load, load16, looked_up, mask, nibbles, of_table, twice, two_nibbles, up_128, word,
};
use std::arch::x86_64::*;
use strata_quant::formats::{FP4_VALUES, IQ4_NL, IQ4_VALUES, MXFP4, NVFP4, Q2_0, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};

impl Unpack for Q8_0 {
    const SIGNED: bool = true;

    type Head = ();

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, _head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            let q = load(b.add(2));
            (_mm256_abs_epi8(q), q)
        }
    }

    #[inline(always)]
    unsafe fn pair<const J: usize>(a: *const u8, b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_xor_si512(joined32(a.add(2), b.add(2)), _mm512_set1_epi8(-128)) }
    }
}

impl Unpack for Q4_0 {
    const OFFSET: i8 = 8;

    type Head = ();

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, _head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            let u = nibbles(b.add(2));
            (u, u)
        }
    }

    #[inline(always)]
    unsafe fn pair<const J: usize>(a: *const u8, b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { two_nibbles(a.add(2), b.add(2)) }
    }
}

impl Unpack for Q4_1 {
    const MIN_UNIT: f32 = -1.0;

    type Head = ();

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, _head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            let u = nibbles(b.add(4));
            (u, u)
        }
    }

    #[inline(always)]
    unsafe fn pair<const J: usize>(a: *const u8, b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { two_nibbles(a.add(4), b.add(4)) }
    }
}

/// 32 nibbles with their fifth bits.
///
/// # Safety
/// AVX2; 16 bytes.
#[inline(always)]
unsafe fn five_bits(low: *const u8, high: u32) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_or_si256(nibbles(low), _mm256_and_si256(mask(high), _mm256_set1_epi8(16))) }
}

/// [`five_bits`] of two places.
///
/// # Safety
/// AVX-512 F, BW and DQ; 16 bytes each.
#[inline(always)]
unsafe fn two_five_bits([a, b]: [*const u8; 2], high: [u32; 2]) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let (u, high) = (two_nibbles(a, b), u64::from(high[0]) | u64::from(high[1]) << 32);
        _mm512_mask_add_epi8(u, high, u, _mm512_set1_epi8(16))
    }
}

impl Unpack for Q5_0 {
    const OFFSET: i8 = 16;

    type Head = ();

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, _head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            let u = five_bits(b.add(6), word(b.add(2)));
            (u, u)
        }
    }

    #[inline(always)]
    unsafe fn pair<const J: usize>(a: *const u8, b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { two_five_bits([a, b].map(|p| p.add(6)), [a, b].map(|p| word(p.add(2)))) }
    }
}

impl Unpack for Q5_1 {
    const MIN_UNIT: f32 = -1.0;

    type Head = ();

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, _head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            let u = five_bits(b.add(8), word(b.add(4)));
            (u, u)
        }
    }

    #[inline(always)]
    unsafe fn pair<const J: usize>(a: *const u8, b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { two_five_bits([a, b].map(|p| p.add(8)), [a, b].map(|p| word(p.add(4)))) }
    }
}

impl Unpack for IQ4_NL {
    const SIGNED: bool = true;

    type Head = ();

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, _head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe { looked_up(nibbles(b.add(2)), &IQ4_VALUES) }
    }

    #[inline(always)]
    unsafe fn pair<const J: usize>(a: *const u8, b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { of_table(two_nibbles(a.add(2), b.add(2)), const { &up_128(&IQ4_VALUES) }.as_ptr()) }
    }
}

impl Unpack for MXFP4 {
    const SIGNED: bool = true;

    type Head = ();

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, _head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe { looked_up(nibbles(b.add(1)), &FP4_VALUES) }
    }

    #[inline(always)]
    unsafe fn pair<const J: usize>(a: *const u8, b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { of_table(two_nibbles(a.add(1), b.add(1)), const { &up_128(&FP4_VALUES) }.as_ptr()) }
    }

    #[inline(always)]
    unsafe fn d(b: Blocks, _term: usize) -> __m256 {
        // SAFETY: as above.
        unsafe {
            let e = |k: usize| *b.of(k) as i8;
            let e = _mm256_cvtepu8_epi32(_mm_setr_epi8(e(0), e(1), e(2), e(3), e(4), e(5), e(6), e(7), 0, 0, 0, 0, 0, 0, 0, 0));
            // 2^(e - 128): the two smallest are subnormal
            let normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
            let small = _mm256_sllv_epi32(_mm256_set1_epi32(0x0020_0000), e);
            _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)))
        }
    }
}

impl Unpack for NVFP4 {
    const SIGNED: bool = true;

    type Head = ();

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, _head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            // eight bytes hold sixteen values: low nibbles, then high ones
            let q = _mm256_permute4x64_epi64(twice(b.add(4 + 16 * J)), 0x50);
            let q = _mm256_and_si256(_mm256_srlv_epi64(q, _mm256_setr_epi64x(0, 4, 0, 4)), _mm256_set1_epi8(15));
            looked_up(q, &FP4_VALUES)
        }
    }

    #[inline(always)]
    unsafe fn pair<const J: usize>(a: *const u8, b: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe {
            let q = joined16(a.add(4 + 16 * J), b.add(4 + 16 * J));
            let q = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3), _mm512_castsi256_si512(q));
            let q = _mm512_and_si512(_mm512_srlv_epi64(q, _mm512_setr_epi64(0, 4, 0, 4, 0, 4, 0, 4)), _mm512_set1_epi8(15));
            of_table(q, const { &up_128(&FP4_VALUES) }.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn d(b: Blocks, term: usize) -> __m256 {
        // SAFETY: as above.
        unsafe {
            let four = |k: usize| word(b.of(k)) as i32;
            let four = _mm256_setr_epi32(four(0), four(1), four(2), four(3), four(4), four(5), four(6), four(7));
            let x = _mm256_and_si256(_mm256_srl_epi32(four, _mm_cvtsi32_si128(8 * term as i32)), _mm256_set1_epi32(0xff));
            let x = _mm256_andnot_si256(_mm256_cmpeq_epi32(x, _mm256_set1_epi32(0x7f)), x);
            let x = _mm256_and_si256(x, _mm256_set1_epi32(0x7f));
            // exponent and mantissa in the places of an f32, the exponent made what it is there. Subnormals are above a power of
            // two by what they are; that way no float is subnormal, which would be slow
            let exponent = |e: i32| _mm256_set1_epi32(e << 23);
            let bits = _mm256_slli_epi32(x, 20);
            let normal = _mm256_castsi256_ps(_mm256_add_epi32(bits, exponent(119)));
            let above = _mm256_castsi256_ps(_mm256_add_epi32(bits, exponent(120)));
            let small = _mm256_sub_ps(above, _mm256_castsi256_ps(exponent(120)));
            _mm256_blendv_ps(normal, small, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(8), x)))
        }
    }
}

impl Unpack for Q2_0 {
    const OFFSET: i8 = 1;
    const FOURS: bool = true;

    type Head = ();

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, _head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            let q = _mm256_broadcastsi128_si256(load16(b.add(2)));
            let (lo, hi) = (0x0302_0100 + 0x0808_0808 * J as i32, 0x0706_0504 + 0x0808_0808 * J as i32);
            let each = |four: i32| {
                // a byte of places four times over
                let p = |i: i32| i64::from(four >> (8 * i) & 255) * 0x0101_0101;
                (p(0) | p(1) << 32, p(2) | p(3) << 32)
            };
            let ((p0, p1), (p2, p3)) = (each(lo), each(hi));
            let x = _mm256_shuffle_epi8(q, _mm256_setr_epi64x(p0, p1, p2, p3));
            // of each four equal bytes: value i is bits 2i
            let y = _mm256_blend_epi16(x, _mm256_srli_epi16(x, 4), 0xaa);
            let even = _mm256_and_si256(y, _mm256_set1_epi16(0x0003));
            let odd = _mm256_and_si256(_mm256_srli_epi16(y, 2), _mm256_set1_epi16(0x0300));
            let u = _mm256_or_si256(even, odd);
            (u, u)
        }
    }
}
