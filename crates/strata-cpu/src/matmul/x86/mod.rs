//! Products on x86: the weights are read as they lie in the file.
//!
//! Few activation rows ([`rows`]): a dot product a row, eight rows at a time. Many ([`gemm`]): sixteen rows are taken apart into a
//! panel in the cache, a lane a row, which all activation rows of the tile then meet.

mod float;
mod float512;
mod formats;
mod gemm;
mod inner;
mod panel;
mod quantize;
mod rows;
mod unpack;
mod vector;

use super::Matrix;
use super::kernel::{Kernel, Tile};
use crate::simd::Simd;
use formats::permuted::Permuted;
use gemm::Form;
use strata_quant::{DType, formats as f};
use unpack::Unpack;

pub(crate) use formats::tables::look_up;
pub(super) use quantize::fill_avx2;

/// Tiles of up to this many activation rows are multiplied row by row, and those of codebooks with VBMI. Of formats of 256 values six
/// rows and more are up to a third faster in [`gemm`] when weights are in a cache, but a tenth slower when they come from memory.
const FEW: usize = 8;
const FEW_PERMUTED: usize = 12;

/// The kernel of a format at a level; none for formats and levels that have no vector form. `two`: codebooks
/// are permuted from two registers at once.
pub(super) fn pick(dtype: DType, simd: Simd, two: bool) -> Option<Kernel> {
    if simd == Simd::Scalar {
        return None;
    }
    Some(match dtype {
        DType::F32 | DType::F16 | DType::BF16 => float::pick(dtype, simd),
        DType::Q8_0 => of::<f::Q8_0>(simd),
        DType::Q4_0 => of::<f::Q4_0>(simd),
        DType::Q4_1 => of::<f::Q4_1>(simd),
        DType::Q5_0 => of::<f::Q5_0>(simd),
        DType::Q5_1 => of::<f::Q5_1>(simd),
        DType::Q2_0 => of::<f::Q2_0>(simd),
        DType::MXFP4 => of::<f::MXFP4>(simd),
        DType::NVFP4 => of::<f::NVFP4>(simd),
        DType::Q2_K => of::<f::Q2_K>(simd),
        DType::Q3_K => of::<f::Q3_K>(simd),
        DType::Q4_K => of::<f::Q4_K>(simd),
        DType::Q5_K => of::<f::Q5_K>(simd),
        DType::Q6_K => of::<f::Q6_K>(simd),
        DType::IQ4_NL => of::<f::IQ4_NL>(simd),
        DType::IQ4_XS => of::<f::IQ4_XS>(simd),
        DType::IQ3_S => codebook::<f::IQ3_S>(simd, two),
        DType::IQ3_XXS => codebook::<f::IQ3_XXS>(simd, two),
        DType::IQ2_S => codebook::<f::IQ2_S>(simd, two),
        DType::IQ2_XS => codebook::<f::IQ2_XS>(simd, two),
        DType::IQ2_XXS => codebook::<f::IQ2_XXS>(simd, two),
        DType::IQ1_M => codebook::<f::IQ1_M>(simd, two),
        DType::IQ1_S => codebook::<f::IQ1_S>(simd, two),
    })
}

/// The kernel of a block format.
fn of<F: Unpack>(simd: Simd) -> Kernel {
    match simd {
        Simd::Scalar | Simd::Avx2 => avx2::<F>,
        Simd::Avx512 => avx512::<F>,
        Simd::Avx512Vnni | Simd::Avx512Vbmi => vnni::<F>,
    }
}

/// The kernel of a codebook format.
fn codebook<F: Permuted>(simd: Simd, two: bool) -> Kernel {
    match simd {
        Simd::Avx512Vbmi if two => vbmi::<F, true>,
        Simd::Avx512Vbmi => vbmi::<F, false>,
        _ => of::<F>(simd),
    }
}

unsafe fn avx2<F: Unpack>(w: &Matrix, tile: &Tile<'_>) {
    // SAFETY: the level is AVX2 or more; the rest is the promise of whoever calls a kernel, here and below.
    unsafe { if few(w, tile) { rows_avx2::<F>(w, tile) } else { gemm::run(w, tile, const { &Form::avx2::<F>() }) } }
}

unsafe fn avx512<F: Unpack>(w: &Matrix, tile: &Tile<'_>) {
    // SAFETY: as above.
    unsafe { if few(w, tile) { rows_avx2::<F>(w, tile) } else { gemm::run(w, tile, const { &Form::avx512::<F>() }) } }
}

unsafe fn vnni<F: Unpack>(w: &Matrix, tile: &Tile<'_>) {
    // SAFETY: as above.
    unsafe { if few(w, tile) { rows_vnni::<F>(w, tile) } else { gemm::run(w, tile, const { &Form::vnni::<F>() }) } }
}

unsafe fn vbmi<F: Permuted, const TWO: bool>(w: &Matrix, tile: &Tile<'_>) {
    // SAFETY: as above.
    unsafe { if tile.items.len() <= FEW_PERMUTED && rows::permuted::fits(w) { rows_vbmi::<F, TWO>(w, tile) } else { vnni::<F>(w, tile) } }
}

/// Whether rows are multiplied one by one.
fn few(w: &Matrix, tile: &Tile<'_>) -> bool {
    tile.items.len() <= FEW || w.rows < unpack::ROWS
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn rows_avx2<F: Unpack>(w: &Matrix, tile: &Tile<'_>) {
    // SAFETY: the features are enabled here; the rest is the caller's promise.
    unsafe { rows::run::<F, false>(w, tile) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn rows_vnni<F: Unpack>(w: &Matrix, tile: &Tile<'_>) {
    // SAFETY: as above.
    unsafe { rows::run::<F, true>(w, tile) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512bitalg,gfni,avx2,fma,f16c")]
unsafe fn rows_vbmi<F: Permuted, const TWO: bool>(w: &Matrix, tile: &Tile<'_>) {
    // SAFETY: as above.
    unsafe { rows::permuted::run::<F, TWO>(w, tile) }
}
