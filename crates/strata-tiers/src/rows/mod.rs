//! Rows of the n-gram table, which is never in memory: a few a token, known before the first layer runs.

mod clock;
mod counts;
mod direct;
mod extents;
mod io;
mod mapped;
#[cfg(test)]
mod tests;
#[cfg(target_os = "linux")]
mod uring;

pub(crate) use clock::cost as cached_row_cost;
pub(crate) use counts::Counters;
pub use counts::RowCounts;
pub(crate) use direct::DirectReader;
pub(crate) use io::{block_size, open_direct};
pub(crate) use mapped::MappedReader;

use strata_model::StorageError;
use strata_quant::{DType, dequantize, first_non_finite};

/// A table in a file.
#[derive(Clone, Debug)]
pub(crate) struct TableAt {
    pub file: String,
    pub name: String,
    pub dtype: DType,
    pub cols: usize,
    pub rows: u64,
    /// Where it starts in the file.
    pub offset: u64,
}

impl TableAt {
    pub fn row_bytes(&self) -> usize {
        self.cols / self.dtype.block_len() * self.dtype.block_bytes()
    }

    /// Where row `id` starts in the file.
    fn at(&self, id: u64) -> u64 {
        self.offset + id * self.row_bytes() as u64
    }

    fn check_id(&self, id: u64) -> Result<(), StorageError> {
        if id < self.rows {
            return Ok(());
        }
        Err(StorageError::Unavailable {
            what: format!("{}: tensor {}", self.file, self.name),
            expected: format!("a row below {}", self.rows),
            found: id.to_string(),
        })
    }

    /// An error if a scale of row `id`, whose bytes these are, is not finite.
    fn check(&self, id: u64, bytes: &[u8]) -> Result<(), StorageError> {
        let Some(block) = first_non_finite(self.dtype, bytes) else { return Ok(()) };
        let block = id * (self.cols / self.dtype.block_len()) as u64 + block as u64;
        Err(StorageError::NotFinite { file: self.file.clone(), name: self.name.clone(), dtype: self.dtype, block })
    }

    /// The values of a row.
    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        dequantize(self.dtype, bytes, out).expect("a row's bytes are as many as its values ask for");
    }
}
