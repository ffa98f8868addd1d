//! Products of the 256-wide formats: eight rows are unpacked a block at a time and meet every activation row of a
//! tile. A lane of the float part is a row.

use super::kernel::{Kernel, Tile};
use super::unpack::{Iq4Xs, Q4K, Q5K, Q6K, ROWS, Unpacked, Wide};
use super::{Matrix, Store};
use crate::simd::Simd;
use std::arch::x86_64::*;
use strata_ops::matmul::{CHAINS_WIDE, SUM_SPAN, segment};
use strata_quant::DType;

/// Activation rows that meet an unpacked block at most.
const CHUNK: usize = 64;

/// The kernel of a 256-wide format at a level above scalar.
pub(super) fn pick(dtype: DType, simd: Simd) -> Kernel {
    let level = match simd {
        Simd::Scalar | Simd::Avx2 => 0,
        Simd::Avx512 => 1,
        Simd::Avx512Vnni => 2,
    };
    let all: [Kernel; 3] = match dtype {
        DType::Q4_K => [q4_k, q4_k_512, q4_k_vnni],
        DType::Q5_K => [q5_k, q5_k_512, q5_k_vnni],
        DType::Q6_K => [q6_k, q6_k_512, q6_k_vnni],
        _ => [iq4_xs, iq4_xs_512, iq4_xs_vnni],
    };
    all[level]
}

macro_rules! kernels {
    ($($avx2:ident, $avx512:ident, $vnni:ident: $format:ident;)*) => {$(
        #[target_feature(enable = "avx2,fma,f16c")]
        unsafe fn $avx2(w: &Matrix, tile: &Tile<'_>) {
            // SAFETY: the features are enabled here; the rest is the promise of whoever calls a kernel.
            unsafe { run::<$format, Avx2>(w, tile) }
        }

        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
        unsafe fn $avx512(w: &Matrix, tile: &Tile<'_>) {
            // SAFETY: as above.
            unsafe { run::<$format, Avx512<false>>(w, tile) }
        }

        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
        unsafe fn $vnni(w: &Matrix, tile: &Tile<'_>) {
            // SAFETY: as above.
            unsafe { run::<$format, Avx512<true>>(w, tile) }
        }
    )*};
}

kernels! {
    q4_k, q4_k_512, q4_k_vnni: Q4K;
    q5_k, q5_k_512, q5_k_vnni: Q5K;
    q6_k, q6_k_512, q6_k_vnni: Q6K;
    iq4_xs, iq4_xs_512, iq4_xs_vnni: Iq4Xs;
}

/// The integer dot products of a level.
trait Dots {
    /// `start` plus the sub-scaled dot products of unpacked rows with the 256 codes at `acts`: to be summed over lanes.
    ///
    /// # Safety
    /// The CPU has the level; there are 256 codes in -127..=127.
    unsafe fn dots<F: Wide>(w: &Unpacked, acts: *const i8, start: [__m256i; ROWS]) -> [__m256i; ROWS];
}

struct Avx2;

impl Dots for Avx2 {
    #[inline(always)]
    unsafe fn dots<F: Wide>(w: &Unpacked, acts: *const i8, start: [__m256i; ROWS]) -> [__m256i; ROWS] {
        // SAFETY: the caller's promise; a row has 8 vectors of codes and of scales, and `Unpacked` is aligned.
        unsafe {
            let mut sums = start;
            for (r, sum) in sums.iter_mut().enumerate() {
                let codes = w.codes[r].as_ptr().cast::<__m256i>();
                let scales = w.scales[r].as_ptr().cast::<__m256i>();
                for j in 0..8 {
                    let a = _mm256_loadu_si256(acts.cast::<__m256i>().add(j));
                    let code = _mm256_load_si256(codes.add(j));
                    // a pair is at most 2 * 127 * 127
                    let pairs = if F::SIGNED {
                        _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(a, code))
                    } else {
                        _mm256_maddubs_epi16(code, a)
                    };
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, _mm256_load_si256(scales.add(j))));
                }
            }
            sums
        }
    }
}

struct Avx512<const VNNI: bool>;

impl<const VNNI: bool> Dots for Avx512<VNNI> {
    #[inline(always)]
    unsafe fn dots<F: Wide>(w: &Unpacked, acts: *const i8, start: [__m256i; ROWS]) -> [__m256i; ROWS] {
        // SAFETY: the caller's promise; a row has 4 vectors of codes and of scales, and `Unpacked` is aligned.
        unsafe {
            let mut sums = start;
            for r in 0..ROWS {
                let codes = w.codes[r].as_ptr().cast::<__m512i>();
                let scales = w.scales[r].as_ptr().cast::<__m512i>();
                let mut sum = _mm512_zextsi256_si512(start[r]);
                for j in 0..4 {
                    let a = _mm512_loadu_si512(acts.cast::<__m512i>().add(j));
                    let code = _mm512_load_si512(codes.add(j));
                    let pairs = if F::SIGNED {
                        let a = _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(code), _mm512_setzero_si512(), a);
                        _mm512_maddubs_epi16(_mm512_abs_epi8(code), a)
                    } else {
                        _mm512_maddubs_epi16(code, a)
                    };
                    let scales = _mm512_load_si512(scales.add(j));
                    sum = if VNNI {
                        _mm512_dpwssd_epi32(sum, pairs, scales)
                    } else {
                        _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, scales))
                    };
                }
                sums[r] = _mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
            }
            sums
        }
    }
}

/// The sums of the lanes of each of eight vectors.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn lane_sums(v: [__m256i; ROWS]) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let [a, b, c, d] =
            [_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]), _mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7])];
        let (low, high) = (_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
        _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31))
    }
}

/// # Safety
/// The CPU has the level of `D`, AVX2, FMA and F16C; otherwise as a [`Kernel`].
#[inline(always)]
unsafe fn run<F: Wide, D: Dots>(w: &Matrix, tile: &Tile<'_>) {
    let Store::Rows(bytes) = &w.store else { unreachable!("the matrix was bound to this kernel") };
    let blocks = w.cols / 256;
    let row_bytes = blocks * F::BYTES;
    let mut unpacked = Unpacked::new();
    // SAFETY: AVX by the caller's promise.
    let zero = unsafe { _mm256_setzero_ps() };
    let (mut totals, mut chains) = ([zero; CHUNK], [zero; CHUNK]);
    for r in tile.rows.clone().step_by(ROWS) {
        // rows beyond the last are the last again, and not stored
        let rows: [&[u8]; ROWS] = std::array::from_fn(|k| &bytes[(r + k).min(tile.rows.end - 1) * row_bytes..][..row_bytes]);
        for first in tile.items.clone().step_by(CHUNK) {
            let items = first..(first + CHUNK).min(tile.items.end);
            // SAFETY: the caller's promise.
            unsafe {
                // +0 plus the first chain is the first chain: a chain is never -0 (see the 32-wide formats; after a
                // minimum's FMA it is -0 only if it was -0 before)
                let (totals, chains) = (&mut totals[..items.len()], &mut chains[..items.len()]);
                totals.fill(zero);
                for c in 0..CHAINS_WIDE {
                    chains.fill(zero);
                    for s in segment(c, blocks, CHAINS_WIDE) {
                        for (k, row) in rows.iter().enumerate() {
                            F::unpack(&row[s * F::BYTES..][..F::BYTES], k, &mut unpacked);
                        }
                        for (chain, i) in chains.iter_mut().zip(items.clone()) {
                            *chain = continue_chain::<F, D>(*chain, &unpacked, tile, tile.act_rows.get(i), s);
                        }
                    }
                    for (total, chain) in totals.iter_mut().zip(&*chains) {
                        *total = _mm256_add_ps(*total, *chain);
                    }
                }
                for (total, i) in totals.iter().zip(items) {
                    let mut y = [0.0; ROWS];
                    _mm256_storeu_ps(y.as_mut_ptr(), *total);
                    tile.store(i, r, &y);
                }
            }
        }
    }
}

/// `chain` after block `s` of activation row `t`.
///
/// # Safety
/// As [`run`]; the activations have the row and block.
#[inline(always)]
unsafe fn continue_chain<F: Wide, D: Dots>(chain: __m256, w: &Unpacked, tile: &Tile<'_>, t: usize, s: usize) -> __m256 {
    let codes = &tile.acts.codes256(t)[s * 256..][..256];
    let sums = &tile.acts.sums256(t)[s * (256 / SUM_SPAN)..][..256 / SUM_SPAN];
    let scale = tile.acts.scales256(t)[s];
    // SAFETY: the slices have what is read; the level by the caller's promise.
    unsafe {
        let zero = [_mm256_setzero_si256(); ROWS];
        let mut of_sums = zero;
        if F::OFFSET || F::MINIMA {
            let sums = _mm256_loadu_si256(sums.as_ptr().cast());
            for (of_sums, factors) in of_sums.iter_mut().zip(&w.sum_factors) {
                *of_sums = _mm256_madd_epi16(_mm256_load_si256(factors.as_ptr().cast()), sums);
            }
        }
        let isum = lane_sums(D::dots::<F>(w, codes.as_ptr(), if F::OFFSET { of_sums } else { zero }));
        let scale = _mm256_set1_ps(scale);
        let d = _mm256_mul_ps(_mm256_load_ps(w.d.as_ptr()), scale);
        let chain = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(isum), chain);
        if !F::MINIMA {
            return chain;
        }
        let dmin = _mm256_mul_ps(_mm256_load_ps(w.dmin.as_ptr()), scale);
        // fnmadd is fma(-dmin, ..)
        _mm256_fnmadd_ps(dmin, _mm256_cvtepi32_ps(lane_sums(of_sums)), chain)
    }
}
