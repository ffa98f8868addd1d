//! What can be wrong with a GGUF file.

use std::path::PathBuf;

use strata_quant::DType;
use thiserror::Error;

/// A fault in a file: which file, and what.
#[derive(Debug, Error)]
#[error("{}: {kind}", file.display())]
pub struct GgufError {
    /// The file, or `(memory)` for bytes without one.
    pub file: PathBuf,
    /// The fault.
    pub kind: Box<ErrorKind>,
}

impl GgufError {
    pub(crate) fn new(file: impl Into<PathBuf>, kind: ErrorKind) -> Self {
        Self { file: file.into(), kind: Box::new(kind) }
    }
}

/// The fault itself. Offsets and sizes are in bytes, offsets from the start of the file.
#[derive(Debug, Error)]
pub enum ErrorKind {
    #[error("cannot read: {0}")]
    Io(#[from] std::io::Error),
    #[error("not a GGUF file: expected the magic 'GGUF', found bytes {found:02x?}")]
    Magic { found: [u8; 4] },
    #[error("big-endian GGUF is not supported: expected a little-endian version, found {found:#010x}")]
    BigEndian { found: u32 },
    #[error("expected GGUF version 2 or 3, found {found}")]
    Version { found: u32 },
    #[error("truncated: {what} at offset {offset} needs {needed} bytes, found {remaining}")]
    Truncated { what: &'static str, offset: u64, needed: u64, remaining: u64 },
    #[error("{what} at offset {offset}: expected UTF-8")]
    Utf8 { what: &'static str, offset: u64 },

    #[error("key '{key}' appears twice, expected once")]
    DuplicateKey { key: String },
    #[error("key '{key}': expected a value type in 0..=12, found {found}")]
    ValueType { key: String, found: u32 },
    #[error("key '{key}': expected 0 or 1 for a bool, found {found}")]
    Bool { key: String, found: u8 },
    #[error("key '{key}': arrays nested deeper than {max}")]
    ArrayDepth { key: String, max: usize },
    #[error("key '{key}' is missing, expected {expected}")]
    MissingKey { key: String, expected: &'static str },
    #[error("key '{key}': expected {expected}, found {found}")]
    WrongType { key: String, expected: &'static str, found: String },
    #[error("key 'general.alignment': expected a power of two, found {found}")]
    Alignment { found: u64 },

    #[error("tensor '{tensor}' appears twice, expected once; the first is in {first}")]
    DuplicateTensor { tensor: String, first: String },
    #[error("tensor '{tensor}': unknown or unsupported type id {id}")]
    TensorType { tensor: String, id: u32 },
    #[error("tensor '{tensor}': expected at most {max} dimensions, found {found}")]
    DimCount { tensor: String, max: usize, found: u32 },
    #[error("tensor '{tensor}': expected non-zero dimensions whose size fits 64 bits, found {dims:?} of {dtype}")]
    Dims { tensor: String, dims: Vec<u64>, dtype: DType },
    #[error("tensor '{tensor}': expected rows of a multiple of {block_len} values ({dtype}), found {cols}")]
    RowLength { tensor: String, dtype: DType, block_len: usize, cols: u64 },
    #[error("tensor '{tensor}': expected an offset that is a multiple of {alignment}, found {offset}")]
    Unaligned { tensor: String, alignment: u64, offset: u64 },
    #[error("tensor '{tensor}': expected its {byte_len} bytes at data offset {offset} to end by {available}")]
    OutOfFile { tensor: String, offset: u64, byte_len: u64, available: u64 },
    #[error("tensor '{tensor}' at data offset {offset} overlaps tensor '{previous}', which ends at {previous_end}")]
    Overlap { tensor: String, offset: u64, previous: String, previous_end: u64 },

    #[error("a split file of {count} shards: expected a name ending in -{shard:05}-of-{count:05}.gguf")]
    SplitName { shard: u64, count: u64 },
    #[error("this is shard {found} of {count}: expected the first shard, open that one")]
    NotFirstShard { found: u64, count: u64 },
    #[error("key '{key}': expected {expected} as the first shard and the file name say, found {found}")]
    SplitMismatch { key: &'static str, expected: u64, found: u64 },
    #[error("one of {count} shards: a split model cannot be read from bytes, expected a path")]
    SplitBytes { count: u64 },
    #[error("key 'split.tensors.count' is {expected}, found {found} tensors in all shards")]
    SplitTensorCount { expected: u64, found: u64 },
}
