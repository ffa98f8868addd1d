//! What a model asks of the memory around it: where weights live, and how those that are not in memory are read.
//!
//! Nothing here has an effect on values. [`Mapped`] is the plain form, with every weight in its mapped file; tests hold
//! every other form to its bits.

use bytes::Bytes;
use strata_gguf::{Gguf, TensorInfo};
use strata_quant::DType;
use thiserror::Error;

/// Why weights could not be read.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum StorageError {
    #[error("{file}: cannot read {bytes} bytes at offset {offset}: {cause}")]
    Read { file: String, offset: u64, bytes: u64, cause: String },
    #[error("{what}: expected {expected}, found {found}")]
    Unavailable { what: String, expected: String, found: String },
    #[error("{file}: tensor {name} ({dtype}): block {block} holds a scale or value that is not finite")]
    NotFinite { file: String, name: String, dtype: DType, block: u64 },
    #[error("out of memory: {what} needs {bytes} bytes")]
    OutOfMemory { what: String, bytes: u64 },
}

/// Reads rows of a table that is not in memory.
pub trait RowReader: Send {
    /// Says which rows the next [`RowReader::collect`] will ask for, so that they can be on their way. A hint.
    fn request(&mut self, rows: &[u64]);

    /// Writes the values of `rows`, one row after another, into `out`, whatever was requested before.
    ///
    /// # Errors
    /// A row cannot be read, or holds a scale that is not finite. Never wrong values.
    fn collect(&mut self, rows: &[u64], out: &mut [f32]) -> Result<(), StorageError>;
}

/// Is told which experts a pass computes. Layers count from 0; the MTP block is the one after the trunk's.
pub trait ExpertWatch: Send + Sync {
    /// The experts `ids` (row by row, repeats and all) of `layer` are computed next.
    fn needed(&self, layer: usize, ids: &[u32]);

    /// True if a guess of the experts of `layer` for `rows` rows is worth its work.
    fn wants(&self, layer: usize, rows: usize) -> bool;

    /// The experts that `layer` will probably need.
    fn predicted(&self, layer: usize, ids: &[u32]);
}

/// The bytes of a stack of experts.
pub struct StackBytes {
    pub bytes: Bytes,
    /// How many of the first experts are checked when the model is bound; the others are when they are first used.
    pub checked: usize,
}

/// Where the weights of a model live.
pub trait Storage: Send + Sync {
    /// True if only sizes are asked for: no value is read.
    fn sizes_only(&self) -> bool {
        false
    }

    /// A matrix that every token reads.
    ///
    /// # Errors
    /// It cannot be read, or there is no memory for it.
    fn dense(&self, gguf: &Gguf, t: &TensorInfo) -> Result<Bytes, StorageError>;

    /// A stack of `experts` experts of `layer`, one after another.
    ///
    /// # Errors
    /// It cannot be read.
    fn stack(&self, gguf: &Gguf, t: &TensorInfo, layer: usize, experts: usize) -> Result<StackBytes, StorageError>;

    /// A stack whose bytes are copied when it is bound (gate and up in one tensor).
    fn copied_stack(&self, gguf: &Gguf, t: &TensorInfo) -> Bytes {
        gguf.data(t)
    }

    /// The token embedding, of which each token reads one row.
    fn embedding(&self, gguf: &Gguf, t: &TensorInfo) -> Bytes {
        gguf.data(t)
    }

    /// A reader for a table that is larger than memory; `None` if its mapped bytes serve.
    ///
    /// # Errors
    /// The way of reading that was asked for is not available here.
    fn rows(&self, gguf: &Gguf, t: &TensorInfo, per_token: usize) -> Result<Option<Box<dyn RowReader>>, StorageError> {
        let _ = (gguf, t, per_token);
        Ok(None)
    }

    /// Who is told of experts.
    fn watch(&self) -> Option<std::sync::Arc<dyn ExpertWatch>> {
        None
    }
}

/// Every weight where its file is mapped, everything checked when the model is bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mapped;

impl Storage for Mapped {
    fn dense(&self, gguf: &Gguf, t: &TensorInfo) -> Result<Bytes, StorageError> {
        Ok(gguf.data(t))
    }

    fn stack(&self, gguf: &Gguf, t: &TensorInfo, _layer: usize, experts: usize) -> Result<StackBytes, StorageError> {
        Ok(StackBytes { bytes: gguf.data(t), checked: experts })
    }
}
