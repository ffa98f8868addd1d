//! F32, F16 and BF16 with AVX2: a vector is the eight lanes of a row's sum, several rows at a time.

use super::super::Matrix;
use super::super::kernel::{Kernel, Tile};
use super::float512;
use super::unpack::joined16;
use crate::simd::Simd;
use std::arch::x86_64::*;
use strata_ops::matmul::FLOAT_LANES;
use strata_quant::DType;

/// The kernel of a float format.
pub(super) fn pick(dtype: DType, simd: Simd) -> Kernel {
    match (dtype, simd >= Simd::Avx512) {
        (DType::F32, false) => f32_rows,
        (DType::F32, true) => float512::f32_rows,
        (DType::F16, false) => f16_rows,
        (DType::F16, true) => float512::f16_rows,
        (_, false) => bf16_rows,
        (_, true) => float512::bf16_rows,
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn f32_rows(w: &Matrix, tile: &Tile<'_>) {
    // SAFETY: the features are enabled here; the rest is the promise of whoever calls a kernel.
    unsafe { run::<F32>(w, tile) }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn f16_rows(w: &Matrix, tile: &Tile<'_>) {
    // SAFETY: as above.
    unsafe { run::<F16>(w, tile) }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn bf16_rows(w: &Matrix, tile: &Tile<'_>) {
    // SAFETY: as above.
    unsafe { run::<Bf16>(w, tile) }
}

/// A float format. Weights may lie at any address.
pub(super) trait Float {
    /// Bytes of a value.
    const BYTES: usize;

    /// Eight values.
    ///
    /// # Safety
    /// AVX2 and F16C; there are eight values.
    unsafe fn eight(from: *const u8) -> __m256;

    /// Eight values from one place, then eight from another.
    ///
    /// # Safety
    /// AVX-512 F, DQ, AVX2 and F16C; there are eight values each.
    unsafe fn two_eights(a: *const u8, b: *const u8) -> __m512;

    /// One value.
    ///
    /// # Safety
    /// There is a value.
    unsafe fn one(from: *const u8) -> f32;
}

pub(super) struct F32;

impl Float for F32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn eight(from: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_ps(from.cast()) }
    }

    #[inline(always)]
    unsafe fn two_eights(a: *const u8, b: *const u8) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_insertf32x8(_mm512_castps256_ps512(Self::eight(a)), Self::eight(b), 1) }
    }

    #[inline(always)]
    unsafe fn one(from: *const u8) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<f32>().read_unaligned() }
    }
}

pub(super) struct F16;

impl Float for F16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn eight(from: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }

    #[inline(always)]
    unsafe fn two_eights(a: *const u8, b: *const u8) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_cvtph_ps(joined16(a, b)) }
    }

    #[inline(always)]
    unsafe fn one(from: *const u8) -> f32 {
        // SAFETY: the caller's promise.
        half::f16::from_bits(unsafe { from.cast::<u16>().read_unaligned() }).to_f32()
    }
}

pub(super) struct Bf16;

impl Float for Bf16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn eight(from: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())), 16)) }
    }

    #[inline(always)]
    unsafe fn two_eights(a: *const u8, b: *const u8) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(joined16(a, b)), 16)) }
    }

    #[inline(always)]
    unsafe fn one(from: *const u8) -> f32 {
        // SAFETY: the caller's promise.
        f32::from_bits(u32::from(unsafe { from.cast::<u16>().read_unaligned() }) << 16)
    }
}

/// # Safety
/// AVX2, FMA and F16C; otherwise as a [`Kernel`].
#[inline(always)]
pub(super) unsafe fn run<F: Float>(w: &Matrix, tile: &Tile<'_>) {
    let mut r = tile.rows.start;
    while r < tile.rows.end {
        // chains of sums wait for themselves: eight of them at a time keep the units busy
        let rows = match tile.rows.end - r {
            8.. => 8,
            4.. => 4,
            _ => 1,
        };
        let mut i = tile.items.start;
        while i < tile.items.end {
            let items = if tile.items.end - i >= 2 { 2 } else { 1 };
            // SAFETY: the caller's promise.
            unsafe {
                match (rows, items) {
                    (8, 2) => {
                        panel::<F, 4, 2>(w, tile, r, i);
                        panel::<F, 4, 2>(w, tile, r + 4, i);
                    }
                    (8, _) => panel::<F, 8, 1>(w, tile, r, i),
                    (4, 2) => panel::<F, 4, 2>(w, tile, r, i),
                    (4, _) => panel::<F, 4, 1>(w, tile, r, i),
                    (_, 2) => panel::<F, 1, 2>(w, tile, r, i),
                    _ => panel::<F, 1, 1>(w, tile, r, i),
                }
            }
            i += items;
        }
        r += rows;
    }
}

/// Outputs of rows `r..r + R` for items `i..i + T`.
///
/// # Safety
/// As [`run`]; the tile has these rows and items.
#[inline(always)]
unsafe fn panel<F: Float, const R: usize, const T: usize>(w: &Matrix, tile: &Tile<'_>, r: usize, i: usize) {
    let rows: [*const u8; R] = std::array::from_fn(|k| w.row(r + k).as_ptr());
    let acts: [*const f32; T] = std::array::from_fn(|t| tile.acts.f32_row(tile.act_rows.get(i + t)).as_ptr());
    let body = w.cols / FLOAT_LANES * FLOAT_LANES;
    // SAFETY: rows have `cols` values by the slices above, activation rows by the caller's promise.
    unsafe {
        let mut sums = [[_mm256_setzero_ps(); T]; R];
        let mut at = 0;
        while at < body {
            let mut a = [_mm256_setzero_ps(); T];
            for t in 0..T {
                a[t] = _mm256_loadu_ps(acts[t].add(at));
            }
            for k in 0..R {
                let w = F::eight(rows[k].add(at * F::BYTES));
                for t in 0..T {
                    sums[k][t] = _mm256_fmadd_ps(w, a[t], sums[k][t]);
                }
            }
            at += FLOAT_LANES;
        }
        for t in 0..T {
            let mut y = [0.0; R];
            for k in 0..R {
                let mut lanes = sums[k][t];
                if body < w.cols {
                    let mut p = [0.0f32; FLOAT_LANES];
                    _mm256_storeu_ps(p.as_mut_ptr(), lanes);
                    for (l, p) in p.iter_mut().take(w.cols - body).enumerate() {
                        *p = F::one(rows[k].add((body + l) * F::BYTES)).mul_add(*acts[t].add(body + l), *p);
                    }
                    lanes = _mm256_loadu_ps(p.as_ptr());
                }
                y[k] = butterfly(lanes);
            }
            tile.store(i + t, r, &y);
        }
    }
}

/// Lane 0 of the xor butterfly.
///
/// # Safety
/// AVX.
#[inline(always)]
unsafe fn butterfly(p: __m256) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let p = _mm_add_ps(_mm256_castps256_ps128(p), _mm256_extractf128_ps(p, 1));
        let p = _mm_add_ps(p, _mm_movehl_ps(p, p));
        _mm_cvtss_f32(_mm_add_ss(p, _mm_movehdup_ps(p)))
    }
}
