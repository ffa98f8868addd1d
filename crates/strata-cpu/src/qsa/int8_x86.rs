//! The integer kernels of [`super::int8`] for AVX2, AVX-512 and VNNI.
//!
//! Codes and digits are widened to 16 bits: |digits 1 and 2| <= 32640 and |code| <= 128, so a pair of products is
//! below 2^23 and 64 of them below 2^29: nothing saturates or wraps.

use std::arch::x86_64::*;
use strata_ops::qsa::{CHUNK, GROUPS, HEAD_DIM, INT8_GROUP};

/// A [`super::int8::DotsFn`] for one instruction set; `$dot(acc, a, b)` adds 16 products of i16 in pairs to 8 i32.
/// Two rows at a time: their 64 codes of a group stay in eight registers for all heads.
macro_rules! dots {
    ($name:ident, $features:literal, $dot:path) => {
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name(rows: &[&[i8; HEAD_DIM]; 8], d0: &[i16], d12: &[i16], s0: &mut [i32], s12: &mut [i32]) {
            let heads = d0.len() / HEAD_DIM;
            assert!(d12.len() == heads * HEAD_DIM && s0.len() >= heads * GROUPS * 8 && s12.len() >= heads * GROUPS * 8);
            for (pair, rows) in rows.as_chunks::<2>().0.iter().enumerate() {
                for g in 0..GROUPS {
                    // SAFETY: group g of a row is codes 64 g..64 g + 64 of 256; group g of head h is 64 digits from
                    // 256 h + 64 g; results go to 8 (4 h + g) + 2 pair and the next. The assertion covers all heads.
                    unsafe {
                        let load =
                            |r: &[i8; HEAD_DIM], i: usize| _mm256_cvtepi8_epi16(_mm_loadu_si128(r.as_ptr().add(64 * g + 16 * i).cast()));
                        let a = [load(rows[0], 0), load(rows[0], 1), load(rows[0], 2), load(rows[0], 3)];
                        let b = [load(rows[1], 0), load(rows[1], 1), load(rows[1], 2), load(rows[1], 3)];
                        for h in 0..heads {
                            let q0: *const __m256i = d0.as_ptr().add(HEAD_DIM * h + 64 * g).cast();
                            let q12: *const __m256i = d12.as_ptr().add(HEAD_DIM * h + 64 * g).cast();
                            let zero = _mm256_setzero_si256();
                            let (mut a0, mut b0, mut a12, mut b12) = (zero, zero, zero, zero);
                            for i in 0..4 {
                                let x = _mm256_loadu_si256(q0.add(i));
                                (a0, b0) = ($dot(a0, x, a[i]), $dot(b0, x, b[i]));
                                let x = _mm256_loadu_si256(q12.add(i));
                                (a12, b12) = ($dot(a12, x, a[i]), $dot(b12, x, b[i]));
                            }
                            // the four sums of eight, side by side
                            let low = _mm256_add_epi32(_mm256_unpacklo_epi32(a0, b0), _mm256_unpackhi_epi32(a0, b0));
                            let high = _mm256_add_epi32(_mm256_unpacklo_epi32(a12, b12), _mm256_unpackhi_epi32(a12, b12));
                            let all = _mm256_add_epi32(_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high));
                            let sums = _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256::<1>(all));
                            let at = 8 * (GROUPS * h + g) + 2 * pair;
                            _mm_storel_epi64(s0.as_mut_ptr().add(at).cast(), sums);
                            _mm_storel_epi64(s12.as_mut_ptr().add(at).cast(), _mm_unpackhi_epi64(sums, sums));
                        }
                    }
                }
            }
        }
    };
}

/// Adds 16 products of i16 in pairs to 8 i32.
#[inline]
#[target_feature(enable = "avx2")]
fn madd(acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi32(acc, _mm256_madd_epi16(a, b))
}

/// Adds 32 products of i16 in pairs to 16 i32.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn madd_512(acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
    _mm512_add_epi32(acc, _mm512_madd_epi16(a, b))
}

dots!(dots_avx2, "avx2", madd);
dots!(dots_avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2", madd);
dots!(dots_vnni, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2", _mm256_dpwssd_epi32);

/// The pair of digits of two neighbouring cells as one i32.
#[inline(always)]
fn pair(d: &[i16; CHUNK], i: usize) -> i32 {
    i32::from(d[2 * i] as u16) | i32::from(d[2 * i + 1]) << 16
}

/// A [`super::int8::ValuesFn`] on AVX2: 32 dimensions at a time in eight accumulators.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn values_avx2(
    pairs: &[[i16; 128]],
    d0: &[i16; CHUNK],
    d12: &[i16; CHUNK],
    s0: &mut [i32; INT8_GROUP],
    s12: &mut [i32; INT8_GROUP],
) {
    for half in 0..2 {
        let zero = _mm256_setzero_si256();
        let (mut a, mut b) = ([zero; 4], [zero; 4]);
        for (i, v) in pairs.iter().enumerate() {
            let (x0, x12) = (_mm256_set1_epi32(pair(d0, i)), _mm256_set1_epi32(pair(d12, i)));
            for k in 0..4 {
                // SAFETY: 16 values from 64 half + 16 k, at most 112, of 128.
                let v = unsafe { _mm256_loadu_si256(v.as_ptr().add(64 * half + 16 * k).cast()) };
                (a[k], b[k]) = (madd(a[k], x0, v), madd(b[k], x12, v));
            }
        }
        for k in 0..4 {
            // SAFETY: 8 values from 32 half + 8 k, at most 56, of 64.
            unsafe {
                _mm256_storeu_si256(s0.as_mut_ptr().add(32 * half + 8 * k).cast(), a[k]);
                _mm256_storeu_si256(s12.as_mut_ptr().add(32 * half + 8 * k).cast(), b[k]);
            }
        }
    }
}

/// A [`super::int8::ValuesFn`] on 512-bit registers: all 64 dimensions in eight accumulators.
macro_rules! values_512 {
    ($name:ident, $features:literal, $dot:path) => {
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name(
            pairs: &[[i16; 128]],
            d0: &[i16; CHUNK],
            d12: &[i16; CHUNK],
            s0: &mut [i32; INT8_GROUP],
            s12: &mut [i32; INT8_GROUP],
        ) {
            let zero = _mm512_setzero_si512();
            let (mut a, mut b) = ([zero; 4], [zero; 4]);
            for (i, v) in pairs.iter().enumerate() {
                let (x0, x12) = (_mm512_set1_epi32(pair(d0, i)), _mm512_set1_epi32(pair(d12, i)));
                for k in 0..4 {
                    // SAFETY: 32 values from 32 k, at most 96, of 128.
                    let v = unsafe { _mm512_loadu_si512(v.as_ptr().add(32 * k).cast()) };
                    (a[k], b[k]) = ($dot(a[k], x0, v), $dot(b[k], x12, v));
                }
            }
            for k in 0..4 {
                // SAFETY: 16 values from 16 k, at most 48, of 64.
                unsafe {
                    _mm512_storeu_si512(s0.as_mut_ptr().add(16 * k).cast(), a[k]);
                    _mm512_storeu_si512(s12.as_mut_ptr().add(16 * k).cast(), b[k]);
                }
            }
        }
    };
}

values_512!(values_avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2", madd_512);
values_512!(values_vnni, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2", _mm512_dpwssd_epi32);
