//! Weight matrices times activations, to the bits of `strata_ops::matmul`.
//!
//! A [`Matrix`] is bound once for a SIMD level, which may repack its bytes, and then multiplied from any number of
//! threads. The work is cut into tiles of weight rows and activation rows; every output is the work of one tile, so
//! the cut never changes a bit.

mod experts;
#[cfg(target_arch = "x86_64")]
mod float;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod lanes;
#[cfg(target_arch = "x86_64")]
mod narrow;
#[cfg(target_arch = "x86_64")]
mod narrow_avx2;
#[cfg(target_arch = "x86_64")]
mod narrow_avx512;
mod parity;
mod prepare;
mod product;
mod scalar;
mod table;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod unpack;
#[cfg(target_arch = "x86_64")]
mod wide;

pub use experts::{ExpertGroup, ExpertStack, matmul_experts};
pub use parity::{matmul_parity, matmul_parity_of};
pub use prepare::{prepare, prepare_two_orders};
pub use product::{matmul, matmul_many};
pub use table::Table;

use crate::simd::Simd;
use bytes::Bytes;
use kernel::Kernel;
#[cfg(target_arch = "x86_64")]
use lanes::Lanes;
#[cfg(target_arch = "x86_64")]
use strata_ops::matmul::{ActForm, act_form};
use strata_quant::DType;
use thiserror::Error;

/// Why a matrix or table could not be bound. The caller knows the tensor's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MatrixError {
    #[error("rows of {cols} values are not a whole number of {dtype} blocks ({} values)", dtype.block_len())]
    Width { dtype: DType, cols: usize },
    #[error("{rows} x {cols} values of {dtype} take {expected} bytes, found {found}")]
    Bytes { dtype: DType, rows: usize, cols: usize, expected: u128, found: usize },
}

/// A weight matrix `[rows, cols]`, ready for products.
pub struct Matrix {
    dtype: DType,
    rows: usize,
    cols: usize,
    store: Store,
    kernel: Kernel,
}

/// Where the weights are.
enum Store {
    /// GGUF rows, shared with whoever mapped the file.
    Rows(Bytes),
    /// Interleaved rows.
    #[cfg(target_arch = "x86_64")]
    Lanes(Lanes),
}

impl Matrix {
    /// Binds `rows` rows of `cols` values for the level `simd`.
    ///
    /// # Errors
    /// If a row is not a whole number of blocks or `bytes` has another size than the shape asks for.
    ///
    /// # Panics
    /// If the CPU does not have the level.
    pub fn new(dtype: DType, rows: usize, cols: usize, bytes: Bytes, simd: Simd) -> Result<Matrix, MatrixError> {
        assert!(Simd::available().contains(&simd), "this CPU does not have {}", simd.name());
        check_shape(dtype, rows, cols, bytes.len())?;
        let (store, kernel) = bind(dtype, rows, cols, bytes, simd);
        Ok(Matrix { dtype, rows, cols, store, kernel })
    }

    /// The format of the weights.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Rows: outputs of a product.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns: inputs of a product.
    pub fn cols(&self) -> usize {
        self.cols
    }
}

/// The layout and kernel of a format at a level.
#[cfg(target_arch = "x86_64")]
fn bind(dtype: DType, rows: usize, cols: usize, bytes: Bytes, simd: Simd) -> (Store, Kernel) {
    match (act_form(dtype), simd) {
        (_, Simd::Scalar) => (Store::Rows(bytes), scalar::pick(simd)),
        (ActForm::F32, _) => (Store::Rows(bytes), float::pick(dtype)),
        // no vector form of their own: the definition, compiled for the level
        _ if !has_vector_form(dtype) => (Store::Rows(bytes), scalar::pick(simd)),
        (ActForm::Q256, _) => (Store::Rows(bytes), wide::pick(dtype, simd)),
        (ActForm::Q32, Simd::Avx2) => {
            (Store::Lanes(Lanes::new::<{ narrow_avx2::LANES }>(dtype, rows, cols, &bytes)), narrow_avx2::pick(dtype))
        }
        (ActForm::Q32, Simd::Avx512 | Simd::Avx512Vnni) => {
            let vnni = simd == Simd::Avx512Vnni;
            (Store::Lanes(Lanes::new::<{ narrow_avx512::LANES }>(dtype, rows, cols, &bytes)), narrow_avx512::pick(dtype, vnni))
        }
    }
}

/// Whether `wide` or `narrow` has kernels of a block format.
#[cfg(target_arch = "x86_64")]
fn has_vector_form(dtype: DType) -> bool {
    matches!(dtype, DType::Q8_0 | DType::Q4_0 | DType::IQ4_NL | DType::Q4_K | DType::Q5_K | DType::Q6_K | DType::IQ4_XS)
}

/// The layout and kernel of a format at a level.
#[cfg(not(target_arch = "x86_64"))]
fn bind(_dtype: DType, _rows: usize, _cols: usize, bytes: Bytes, simd: Simd) -> (Store, Kernel) {
    (Store::Rows(bytes), scalar::pick(simd))
}

/// Checks that `found` bytes hold `rows` rows of `cols` values; gives the bytes of a row.
fn check_shape(dtype: DType, rows: usize, cols: usize, found: usize) -> Result<usize, MatrixError> {
    let row_bytes = dtype.row_bytes(cols).ok_or(MatrixError::Width { dtype, cols })?;
    let expected = rows as u128 * row_bytes as u128;
    if expected != found as u128 {
        return Err(MatrixError::Bytes { dtype, rows, cols, expected, found });
    }
    Ok(row_bytes)
}
