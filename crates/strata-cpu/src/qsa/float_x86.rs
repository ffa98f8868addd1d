//! The float dots of [`super::float`] for AVX2 and AVX-512: four heads at a time, lanes in their defined order.

use std::arch::x86_64::*;
use strata_ops::qsa::HEAD_DIM;

/// Eight neighbouring rows of eight values, transposed: value j of every row in vector j.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn transpose(x: &[f32; 64]) -> [__m256; 8] {
    // SAFETY: four values from 8 i + at and four from 8 (i + 4) + at, at most 60, of 64.
    let load = |i: usize, at: usize| unsafe { _mm256_loadu2_m128(x.as_ptr().add(8 * (i + 4) + at), x.as_ptr().add(8 * i + at)) };
    let mut out = [_mm256_setzero_ps(); 8];
    for at in [0, 4] {
        // rows i and i + 4 side by side: a 4 x 4 transpose in each half gives rows 0..8 in order
        let (r0, r1, r2, r3) = (load(0, at), load(1, at), load(2, at), load(3, at));
        let (a, b) = (_mm256_unpacklo_ps(r0, r1), _mm256_unpackhi_ps(r0, r1));
        let (c, d) = (_mm256_unpacklo_ps(r2, r3), _mm256_unpackhi_ps(r2, r3));
        out[at] = _mm256_shuffle_ps::<0x44>(a, c);
        out[at + 1] = _mm256_shuffle_ps::<0xee>(a, c);
        out[at + 2] = _mm256_shuffle_ps::<0x44>(b, d);
        out[at + 3] = _mm256_shuffle_ps::<0xee>(b, d);
    }
    out
}

/// For four heads: lanes 8 g..8 g + 8 plus lanes 8 g + 16..8 g + 24, level 16 of the butterfly.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn level_16(k: &[[__m256; 8]; 4], q: &[[f32; HEAD_DIM]; 4], g: usize) -> [__m256; 4] {
    // SAFETY: eight values from 32 j + 8 part, at most 248, of 256.
    let q = |h: usize, j: usize, part: usize| unsafe { _mm256_loadu_ps(q[h].as_ptr().add(32 * j + 8 * part)) };
    let (mut a, mut b) = ([_mm256_setzero_ps(); 4], [_mm256_setzero_ps(); 4]);
    for h in 0..4 {
        (a[h], b[h]) = (_mm256_mul_ps(k[g][0], q(h, 0, g)), _mm256_mul_ps(k[g + 2][0], q(h, 0, g + 2)));
    }
    for (j, (x, y)) in k[g].iter().zip(&k[g + 2]).enumerate().skip(1) {
        for h in 0..4 {
            (a[h], b[h]) = (_mm256_fmadd_ps(*x, q(h, j, g), a[h]), _mm256_fmadd_ps(*y, q(h, j, g + 2), b[h]));
        }
    }
    for h in 0..4 {
        a[h] = _mm256_add_ps(a[h], b[h]);
    }
    a
}

macro_rules! dots {
    ($name:ident, $features:literal) => {
        /// A [`super::float::FloatDotsFn`].
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name(key: &[f32; HEAD_DIM], q: &[f32], out: &mut [f32]) {
            let parts = key.as_chunks::<64>().0;
            let k = [transpose(&parts[0]), transpose(&parts[1]), transpose(&parts[2]), transpose(&parts[3])];
            let fours = q.as_chunks::<HEAD_DIM>().0.as_chunks::<4>().0;
            for (q, out) in fours.iter().zip(out.as_chunks_mut::<4>().0) {
                let (even, odd) = (level_16(&k, q, 0), level_16(&k, q, 1));
                // levels 8 and 4, then 2 and 1 across the four heads
                let fold = |h: usize| {
                    let t = _mm256_add_ps(even[h], odd[h]);
                    _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps::<1>(t))
                };
                let (mut c0, mut c1, mut c2, mut c3) = (fold(0), fold(1), fold(2), fold(3));
                _MM_TRANSPOSE4_PS(&mut c0, &mut c1, &mut c2, &mut c3);
                // SAFETY: four values.
                unsafe { _mm_storeu_ps(out.as_mut_ptr(), _mm_add_ps(_mm_add_ps(c0, c2), _mm_add_ps(c1, c3))) };
            }
        }
    };
}

dots!(dots_avx2, "avx2,fma");
dots!(dots_avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma");
