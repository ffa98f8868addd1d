//! Weight matrices times activations, to the bits of `strata_ops::matmul`.
//!
//! A [`Matrix`] is bound once for a SIMD level, which never copies its bytes, and then multiplied from any number of
//! threads. The work is cut into tiles of weight rows and activation rows; every output is the work of one tile, so
//! the cut never changes a bit.

mod experts;
mod kernel;
mod parity;
mod prepare;
mod product;
mod scalar;
mod table;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use experts::{ExpertGroup, ExpertStack, matmul_experts};
pub use parity::{matmul_parity, matmul_parity_of};
pub use prepare::{prepare, prepare_two_orders};
pub use product::{matmul, matmul_many};
pub use table::Table;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::look_up;

use crate::simd::Simd;
use bytes::Bytes;
use kernel::Kernel;
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
    row_bytes: usize,
    /// GGUF rows, shared with whoever mapped the file.
    bytes: Bytes,
    kernel: Kernel,
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
        let row_bytes = check_shape(dtype, rows, cols, bytes.len())?;
        Ok(Matrix { dtype, rows, cols, row_bytes, bytes, kernel: pick(dtype, simd) })
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

    /// The bytes of row `r`.
    #[inline(always)]
    fn row(&self, r: usize) -> &[u8] {
        &self.bytes[r * self.row_bytes..][..self.row_bytes]
    }
}

/// The kernel of a format at a level.
fn pick(dtype: DType, simd: Simd) -> Kernel {
    #[cfg(target_arch = "x86_64")]
    if let Some(kernel) = x86::pick(dtype, simd, crate::simd::permutes_two()) {
        return kernel;
    }
    let _ = (dtype, simd);
    scalar::pick()
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
