//! The block scorer, many blocks and a few query rows at a time.

use crate::simd::Simd;
use strata_ops::math::butterfly;
use strata_ops::qsa::INDEX_DIM;

/// Values of one query row made ready for `heads` indexer heads: whole fours of heads.
pub(crate) const fn prepared_len(heads: usize) -> usize {
    heads.next_multiple_of(4) * INDEX_DIM
}

/// Reorders one query row `[heads][128]` to `[heads][4][32]`: element 4 l + j of a head at `[j][l]`. Heads beyond the
/// last, up to a whole four, are zero: they add +0 to a score that is never negative.
#[inline(always)]
pub(crate) fn prepare_index(q: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    for (q, out) in q.as_chunks::<INDEX_DIM>().0.iter().zip(out.as_chunks_mut::<INDEX_DIM>().0) {
        lanes4(q, out);
    }
}

#[inline(always)]
fn lanes4(x: &[f32; INDEX_DIM], out: &mut [f32; INDEX_DIM]) {
    for l in 0..32 {
        for j in 0..4 {
            out[32 * j + l] = x[4 * l + j];
        }
    }
}

/// Scores of the blocks of `keys` for each prepared query row of `q` (rows of `prepared` values): block b of row r goes
/// to `out[r * stride + b]`.
pub(crate) type ScoreFn = unsafe fn(keys: &[[f32; INDEX_DIM]], q: &[f32], prepared: usize, out: &mut [f32], stride: usize);

/// [`ScoreFn`] in plain Rust.
#[inline(always)]
fn score_body(keys: &[[f32; INDEX_DIM]], q: &[f32], prepared: usize, out: &mut [f32], stride: usize) {
    let mut k = [0.0f32; INDEX_DIM];
    for (b, key) in keys.iter().enumerate() {
        lanes4(key, &mut k);
        let k = k.as_chunks::<32>().0;
        for (r, q) in q.chunks_exact(prepared).enumerate() {
            let mut score = 0.0f32;
            for q in q.as_chunks::<INDEX_DIM>().0 {
                let q = q.as_chunks::<32>().0;
                // a loop, not a closure: a closure would not be compiled for the level
                let mut p = [0.0f32; 32];
                for l in 0..32 {
                    p[l] = k[3][l].mul_add(q[3][l], k[2][l].mul_add(q[2][l], k[1][l].mul_add(q[1][l], k[0][l] * q[0][l])));
                }
                let d = butterfly(p);
                score += if d > 0.0 { d } else { 0.0 };
            }
            out[r * stride + b] = score;
        }
    }
}

crate::versions! { mod portable = super::score_body; (keys: &[[f32; INDEX_DIM]], q: &[f32], prepared: usize, out: &mut [f32], stride: usize) }

/// The scorer of a level.
pub(super) fn pick(level: Simd) -> ScoreFn {
    #[cfg(target_arch = "x86_64")]
    match level {
        Simd::Scalar => {}
        Simd::Avx2 => return x86::score_avx2,
        Simd::Avx512 | Simd::Avx512Vnni | Simd::Avx512Vbmi => return x86::score_avx512,
    }
    portable::pick(level)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use strata_ops::qsa::INDEX_DIM;

    /// Lanes 0..8 of `[j]`, j = 0..4, of 32 neighbouring values: a 4 x 4 transpose in each half.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn transpose(x: &[f32; 32]) -> [__m256; 4] {
        // SAFETY: four values from 4 i and from 4 i + 16, at most 28, of 32.
        let row = |i: usize| unsafe { _mm256_loadu2_m128(x.as_ptr().add(4 * i + 16), x.as_ptr().add(4 * i)) };
        let (r0, r1, r2, r3) = (row(0), row(1), row(2), row(3));
        let (a, b) = (_mm256_unpacklo_ps(r0, r1), _mm256_unpackhi_ps(r0, r1));
        let (c, d) = (_mm256_unpacklo_ps(r2, r3), _mm256_unpackhi_ps(r2, r3));
        [_mm256_shuffle_ps::<0x44>(a, c), _mm256_shuffle_ps::<0xee>(a, c), _mm256_shuffle_ps::<0x44>(b, d), _mm256_shuffle_ps::<0xee>(b, d)]
    }

    /// Lanes 8 g..8 g + 8 of the dot of a key part with one prepared head.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn part(k: &[__m256; 4], q: &[f32; INDEX_DIM], g: usize) -> __m256 {
        // SAFETY: eight values from 32 j + 8 g, at most 120, of 128.
        let q = |j: usize| unsafe { _mm256_loadu_ps(q.as_ptr().add(32 * j + 8 * g)) };
        let p = _mm256_fmadd_ps(k[1], q(1), _mm256_mul_ps(k[0], q(0)));
        _mm256_fmadd_ps(k[3], q(3), _mm256_fmadd_ps(k[2], q(2), p))
    }

    /// Levels 16, 8 and 4 of the butterfly: c_0..c_3 of one head.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn fold(k: &[[__m256; 4]; 4], q: &[f32; INDEX_DIM]) -> __m128 {
        let even = _mm256_add_ps(part(&k[0], q, 0), part(&k[2], q, 2));
        let odd = _mm256_add_ps(part(&k[1], q, 1), part(&k[3], q, 3));
        let t = _mm256_add_ps(even, odd);
        _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps::<1>(t))
    }

    macro_rules! score {
        ($name:ident, $features:literal) => {
            #[target_feature(enable = $features)]
            pub(super) unsafe fn $name(keys: &[[f32; INDEX_DIM]], q: &[f32], prepared: usize, out: &mut [f32], stride: usize) {
                for (b, key) in keys.iter().enumerate() {
                    let parts = key.as_chunks::<32>().0;
                    let k = [transpose(&parts[0]), transpose(&parts[1]), transpose(&parts[2]), transpose(&parts[3])];
                    for (r, q) in q.chunks_exact(prepared).enumerate() {
                        let mut score = 0.0f32;
                        for four in q.as_chunks::<INDEX_DIM>().0.as_chunks::<4>().0 {
                            let (mut c0, mut c1, mut c2, mut c3) =
                                (fold(&k, &four[0]), fold(&k, &four[1]), fold(&k, &four[2]), fold(&k, &four[3]));
                            _MM_TRANSPOSE4_PS(&mut c0, &mut c1, &mut c2, &mut c3);
                            let d = _mm_add_ps(_mm_add_ps(c0, c2), _mm_add_ps(c1, c3));
                            // NaN and -0 give the second operand
                            let d = _mm_max_ps(d, _mm_setzero_ps());
                            let mut s = [0.0f32; 4];
                            // SAFETY: four values.
                            unsafe { _mm_storeu_ps(s.as_mut_ptr(), d) };
                            score = (((score + s[0]) + s[1]) + s[2]) + s[3];
                        }
                        out[r * stride + b] = score;
                    }
                }
            }
        };
    }

    score!(score_avx2, "avx2,fma");
    score!(score_avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma");
}
