//! Q2_K to Q6_K and IQ4_XS.

use super::super::unpack::{Unpack, eight_subs, load, load16, long, looked_up, nibbles, of_table, two_nibbles, word};
use std::arch::x86_64::*;
use strata_quant::formats::{IQ4_VALUES, IQ4_XS, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K};

/// The six-bit sub-scales and minima of Q4_K and Q5_K, eight bytes each.
///
/// # Safety
/// A block of either.
#[inline(always)]
unsafe fn k_scales(b: *const u8) -> (u64, u64) {
    // SAFETY: the caller's promise.
    let (x, y, z) = unsafe { (word(b.add(4)), word(b.add(8)), word(b.add(12))) };
    let two = |x: u32| (x >> 6 & 0x0303_0303) << 4;
    let scales = u64::from(x & 0x3f3f_3f3f) | u64::from(z & 0x0f0f_0f0f | two(x)) << 32;
    let mins = u64::from(y & 0x3f3f_3f3f) | u64::from(z >> 4 & 0x0f0f_0f0f | two(y)) << 32;
    (scales, mins)
}

/// The minima of Q4_K and Q5_K, one for every 16 values.
///
/// # Safety
/// A block of either; AVX2.
#[inline(always)]
unsafe fn k_mins(b: *const u8) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let mins = _mm_cvtsi64_si128(k_scales(b).1 as i64);
        _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(mins, mins))
    }
}

impl Unpack for Q4_K {
    type Head = ();

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, _head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: the caller's promise, here and in every function of this file.
        unsafe {
            let q = load(b.add(16 + J / 2 * 32));
            let q = if J.is_multiple_of(2) { q } else { _mm256_srli_epi16(q, 4) };
            (_mm256_and_si256(q, _mm256_set1_epi8(15)), q)
        }
    }

    #[inline(always)]
    unsafe fn subs(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { eight_subs(k_scales(b).0) }
    }

    #[inline(always)]
    unsafe fn mins(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { k_mins(b) }
    }
}

impl Unpack for Q5_K {
    type Head = ();

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, _head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            let q = load(b.add(48 + J / 2 * 32));
            let q = if J.is_multiple_of(2) { q } else { _mm256_srli_epi16(q, 4) };
            // the fifth bit of sub-block j is bit j of these bytes
            let fifth = bits(load(b.add(16)), 4 - J as i32);
            (or(_mm256_and_si256(q, _mm256_set1_epi8(15)), _mm256_and_si256(fifth, _mm256_set1_epi8(16))), q)
        }
    }

    #[inline(always)]
    unsafe fn subs(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { eight_subs(k_scales(b).0) }
    }

    #[inline(always)]
    unsafe fn mins(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { k_mins(b) }
    }
}

impl Unpack for Q6_K {
    const OFFSET: i8 = 32;
    const D_AT: usize = 208;

    type Head = ();

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, _head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            let (half, run) = (J / 4, J % 4);
            let q = load(b.add(half * 64 + run % 2 * 32));
            let q = if run < 2 { q } else { _mm256_srli_epi16(q, 4) };
            let high = bits(load(b.add(128 + half * 32)), 4 - 2 * run as i32);
            (or(_mm256_and_si256(q, _mm256_set1_epi8(15)), _mm256_and_si256(high, _mm256_set1_epi8(0x30))), q)
        }
    }

    #[inline(always)]
    unsafe fn subs(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_cvtepi8_epi16(load16(b.add(192))) }
    }
}

/// Unit `J` of 256 codes of two bits in the order of Q2_K and Q3_K.
///
/// # Safety
/// AVX2; 64 bytes.
#[inline(always)]
unsafe fn pairs<const J: usize>(at: *const u8) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_and_si256(bits(load(at.add(J / 4 * 32)), -2 * (J % 4) as i32), _mm256_set1_epi8(3)) }
}

/// Units `A` and `A + 1` of them.
///
/// # Safety
/// AVX-512 BW; 64 bytes.
#[inline(always)]
unsafe fn two_pairs<const A: usize>(at: *const u8) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let down = halves_of(2 * (A % 4) as i32 * 0x0001_0001, (2 * (A % 4) as i32 + 2) * 0x0001_0001);
        let q = _mm512_broadcast_i64x4(load(at.add(A / 4 * 32)));
        _mm512_and_si512(_mm512_srlv_epi16(q, down), _mm512_set1_epi8(3))
    }
}

/// Eight times `a`, eight times `b`.
///
/// # Safety
/// AVX-512 F.
#[inline(always)]
unsafe fn halves_of(a: i32, b: i32) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_inserti64x4(_mm512_set1_epi32(a), _mm256_set1_epi32(b), 1) }
}

/// Shifts up (down if `up` is negative) in 16-bit lanes.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn bits(x: __m256i, up: i32) -> __m256i {
    // SAFETY: the caller's promise. (The shifts by a register become shifts by a constant.)
    unsafe {
        if up == 0 {
            x
        } else if up > 0 {
            _mm256_sll_epi16(x, _mm_cvtsi32_si128(up))
        } else {
            _mm256_srl_epi16(x, _mm_cvtsi32_si128(-up))
        }
    }
}

/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn or(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_or_si256(a, b) }
}

impl Unpack for Q2_K {
    const D_AT: usize = 80;
    const MIN_AT: usize = 82;

    type Head = ();

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, _head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            let u = pairs::<J>(b.add(16));
            (u, u)
        }
    }

    #[inline(always)]
    unsafe fn two<const A: usize, const B: usize>(b: *const u8, _head: &Self::Head) -> (__m512i, u64) {
        // SAFETY: as above.
        unsafe { (two_pairs::<A>(b.add(16)), 0) }
    }

    #[inline(always)]
    unsafe fn subs(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_cvtepu8_epi16(_mm_and_si128(load16(b), _mm_set1_epi8(15))) }
    }

    #[inline(always)]
    unsafe fn mins(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(load16(b), 4), _mm_set1_epi8(15))) }
    }
}

impl Unpack for Q3_K {
    const OFFSET: i8 = 4;
    const D_AT: usize = 108;

    type Head = ();

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, _head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe {
            // the third bit of run j is bit j of these bytes
            let third = _mm256_and_si256(bits(load(b), 2 - J as i32), _mm256_set1_epi8(4));
            let u = or(pairs::<J>(b.add(32)), third);
            (u, u)
        }
    }

    #[inline(always)]
    unsafe fn two<const A: usize, const B: usize>(b: *const u8, _head: &Self::Head) -> (__m512i, u64) {
        // SAFETY: as above.
        unsafe {
            // rotations, as some bits go up and some down
            let up = halves_of((34 - A as i32) % 32, (34 - B as i32) % 32);
            let third = _mm512_rolv_epi32(_mm512_broadcast_i64x4(load(b)), up);
            (_mm512_or_si512(two_pairs::<A>(b.add(32)), _mm512_and_si512(third, _mm512_set1_epi8(4))), 0)
        }
    }

    #[inline(always)]
    unsafe fn subs(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe {
            // sixteen nibbles: eight low ones, then eight high ones, and above them two bits each: four times the lowest, the next, ...
            let low = _mm_srlv_epi64(_mm_set1_epi64x(long(b.add(96)) as i64), _mm_set_epi64x(4, 0));
            let high = _mm_srlv_epi32(_mm_set1_epi32(word(b.add(104)) as i32), _mm_setr_epi32(0, 2, 4, 6));
            let high = _mm_slli_epi16(_mm_and_si128(high, _mm_set1_epi8(3)), 4);
            let subs = _mm_or_si128(_mm_and_si128(low, _mm_set1_epi8(15)), high);
            _mm256_cvtepi8_epi16(_mm_sub_epi8(subs, _mm_set1_epi8(32)))
        }
    }
}

impl Unpack for IQ4_XS {
    const SIGNED: bool = true;

    type Head = ();

    #[inline(always)]
    unsafe fn unit<const J: usize>(b: *const u8, _head: &Self::Head) -> (__m256i, __m256i) {
        // SAFETY: as above.
        unsafe { looked_up(nibbles(b.add(8 + J * 16)), &IQ4_VALUES) }
    }

    #[inline(always)]
    unsafe fn two<const A: usize, const B: usize>(b: *const u8, _head: &Self::Head) -> (__m512i, u64) {
        // SAFETY: as above.
        unsafe {
            let nibbles = two_nibbles(b.add(8 + A * 16), b.add(8 + B * 16));
            let s = of_table(nibbles, IQ4_VALUES.as_ptr().cast());
            (_mm512_abs_epi8(s), _mm512_movepi8_mask(s))
        }
    }

    #[inline(always)]
    unsafe fn subs(b: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe {
            // eight nibbles, and above them eight pairs of bits
            let low = _mm256_srlv_epi32(_mm256_set1_epi32(word(b.add(4)) as i32), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
            let high = _mm256_srlv_epi32(_mm256_set1_epi32(word(b) as i32), _mm256_setr_epi32(16, 18, 20, 22, 24, 26, 28, 30));
            let high = _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4);
            let subs = _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(15)), high);
            let subs = _mm256_sub_epi32(subs, _mm256_set1_epi32(32));
            _mm256_permute4x64_epi64(_mm256_packs_epi32(subs, subs), 0x88)
        }
    }
}
