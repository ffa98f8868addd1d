//! Tables whose rows are looked up, not multiplied: token embeddings and the n-gram table.

use super::{MatrixError, check_shape};
use bytes::Bytes;
use strata_quant::DType;

/// A table `[rows, cols]` over shared GGUF bytes.
pub struct Table {
    dtype: DType,
    rows: usize,
    cols: usize,
    row_bytes: usize,
    bytes: Bytes,
}

impl Table {
    /// Binds `rows` rows of `cols` values.
    ///
    /// # Errors
    /// If a row is not a whole number of blocks or `bytes` has another size than the shape asks for.
    pub fn new(dtype: DType, rows: usize, cols: usize, bytes: Bytes) -> Result<Table, MatrixError> {
        let row_bytes = check_shape(dtype, rows, cols, bytes.len())?;
        Ok(Table { dtype, rows, cols, row_bytes, bytes })
    }

    /// Rows of the table.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The values of row `r`.
    ///
    /// # Panics
    /// If there is no such row or `out` has not [`Table::cols`] values.
    pub fn row(&self, r: usize, out: &mut [f32]) {
        assert!(r < self.rows, "row {r} of a table of {}", self.rows);
        assert_eq!(out.len(), self.cols, "values of a table row");
        strata_quant::dequantize(self.dtype, &self.bytes[r * self.row_bytes..][..self.row_bytes], out).expect("the sizes were checked");
    }

    /// Rows `ids`, one after another, into `out` (`[ids.len(), cols]`).
    ///
    /// # Panics
    /// As [`Table::row`].
    pub fn gather(&self, ids: &[u64], out: &mut [f32]) {
        assert_eq!(out.len(), ids.len() * self.cols, "values of {} table rows", ids.len());
        for (id, out) in ids.iter().zip(out.chunks_exact_mut(self.cols.max(1))) {
            self.row(usize::try_from(*id).unwrap_or(usize::MAX), out);
        }
    }
}
