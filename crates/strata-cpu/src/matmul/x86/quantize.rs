//! [`strata_ops::matmul::quantize_row`] and the sums of its codes, in registers: a compiler makes four times as many instructions of
//! the definition.

use std::arch::x86_64::*;
use strata_ops::matmul::{ACT_BLOCK_NARROW, ACT_BLOCK_WIDE, ActRows, SUM_SPAN, TINY};

/// [`ActRows::fill`].
///
/// # Safety
/// AVX2.
#[target_feature(enable = "avx2")]
pub unsafe fn fill_avx2(rows: &mut ActRows<'_>, x: &[f32]) {
    // SAFETY: the feature is enabled here.
    unsafe {
        rows.fill_by(x, |x, codes, scales, sums| narrow(x, codes, scales, sums), |x, codes, scales, sums| wide(x, codes, scales, sums))
    }
}

/// Blocks of 32.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn narrow(x: &[f32], codes: &mut [i8], scales: &mut [f32], sums: &mut [i32]) {
    let (x, codes) = (x.as_chunks::<ACT_BLOCK_NARROW>().0, codes.as_chunks_mut::<ACT_BLOCK_NARROW>().0);
    for (((x, codes), scale), sum) in x.iter().zip(codes).zip(scales).zip(sums) {
        // SAFETY: the caller's promise.
        unsafe {
            let amax = largest(magnitudes(x));
            if amax < TINY {
                (*scale, *codes, *sum) = (0.0, [0; ACT_BLOCK_NARROW], 0);
                continue;
            }
            *scale = amax / 127.0;
            let eights = sums_of_eight(coded(x, 127.0 / amax, codes));
            let half = _mm_add_epi32(_mm256_castsi256_si128(eights), _mm256_extracti128_si256(eights, 1));
            *sum = _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_unpackhi_epi64(half, half))) - 32 * 128;
        }
    }
}

/// Blocks of 256.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn wide(x: &[f32], codes: &mut [i8], scales: &mut [f32], sums: &mut [i16]) {
    const UNITS: usize = ACT_BLOCK_WIDE / 32;
    let (x, codes) = (x.as_chunks::<32>().0.as_chunks::<UNITS>().0, codes.as_chunks_mut::<32>().0.as_chunks_mut::<UNITS>().0);
    let sums = sums.as_chunks_mut::<{ 32 / SUM_SPAN }>().0.as_chunks_mut::<UNITS>().0;
    for (((x, codes), scale), sums) in x.iter().zip(codes).zip(scales).zip(sums) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut m = _mm256_setzero_si256();
            for x in x {
                m = _mm256_max_epi32(m, magnitudes(x));
            }
            let amax = largest(m);
            if amax < TINY {
                (*scale, *codes, *sums) = (0.0, [[0; 32]; UNITS], [[0; 2]; UNITS]);
                continue;
            }
            *scale = amax / 127.0;
            let inv = 127.0 / amax;
            for ((x, codes), sums) in x.iter().zip(codes).zip(sums) {
                let eights = sums_of_eight(coded(x, inv, codes));
                let sixteens = _mm256_add_epi32(eights, _mm256_unpackhi_epi64(eights, eights));
                let sum = |s: __m128i| (_mm_cvtsi128_si32(s) - 16 * 128) as i16;
                *sums = [sum(_mm256_castsi256_si128(sixteens)), sum(_mm256_extracti128_si256(sixteens, 1))];
            }
        }
    }
}

/// The largest bit patterns of magnitudes in each of eight lanes: they order like the magnitudes, NaN above all.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn magnitudes(x: &[f32; 32]) -> __m256i {
    // SAFETY: the caller's promise; 32 values.
    unsafe {
        let sign = _mm256_set1_epi32(0x7fff_ffff);
        let m = |i: usize| _mm256_and_si256(_mm256_loadu_si256(x.as_ptr().add(8 * i).cast()), sign);
        _mm256_max_epi32(_mm256_max_epi32(m(0), m(1)), _mm256_max_epi32(m(2), m(3)))
    }
}

/// The largest of eight lanes.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn largest(m: __m256i) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let m = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
        let m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
        f32::from_bits(_mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1))) as u32)
    }
}

/// Writes the codes of 32 values, and gives them.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn coded(x: &[f32; 32], inv: f32, codes: &mut [i8; 32]) -> __m256i {
    // SAFETY: the caller's promise; 32 values and codes.
    unsafe {
        let (inv, magic, low) = (_mm256_set1_ps(inv), _mm256_set1_ps(12_582_912.0), _mm256_set1_epi32(0xff));
        // the low byte of the sum's bits, see the definition
        let code = |i: usize| {
            let v = _mm256_loadu_ps(x.as_ptr().add(8 * i));
            _mm256_and_si256(_mm256_castps_si256(_mm256_add_ps(_mm256_mul_ps(v, inv), magic)), low)
        };
        let (first, second) = (_mm256_packus_epi32(code(0), code(1)), _mm256_packus_epi32(code(2), code(3)));
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let all = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(first, second), order);
        _mm256_storeu_si256(codes.as_mut_ptr().cast(), all);
        all
    }
}

/// The sums of every eight codes, each raised by 128, as 64-bit integers.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn sums_of_eight(codes: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_sad_epu8(_mm256_xor_si256(codes, _mm256_set1_epi8(-128)), _mm256_setzero_si256()) }
}
