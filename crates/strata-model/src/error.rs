//! What can go wrong when a model is bound or run.

use crate::storage::StorageError;
use strata_gguf::GgufError;
use strata_ops::backend::OpError;
use strata_quant::DType;
use thiserror::Error;

/// Why a GGUF file cannot be used as a model.
#[derive(Debug, Error)]
pub enum BindError {
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error(transparent)]
    Op(#[from] OpError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("{file}: general.architecture: expected qwen4exp, found {found}")]
    Architecture { file: String, found: String },
    #[error("{file}: {key}: expected {expected}, found {found}")]
    Config { file: String, key: String, expected: String, found: String },
    #[error("{file}: tensor {name} is missing (expected shape {expected:?})")]
    MissingTensor { file: String, name: String, expected: Vec<u64> },
    #[error("{file}: tensor {name}: expected shape {expected:?}, found {found:?}")]
    Shape { file: String, name: String, expected: Vec<u64>, found: Vec<u64> },
    #[error("{file}: tensor {name} is not part of a qwen4exp model with this configuration")]
    UnexpectedTensor { file: String, name: String },
    #[error("{file}: tensor {name} ({dtype}): block {block} holds a scale or value that is not finite")]
    NotFinite { file: String, name: String, dtype: DType, block: usize },
    #[error("{file} holds no MTP block (nextn_predict_layers is 0 or absent)")]
    NoMtp { file: String },
}

/// Why a forward pass gave no answer.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ForwardError {
    #[error("token id {id} at position {position} is out of range: the vocabulary has {vocab} ids")]
    TokenOutOfRange { id: u32, position: usize, vocab: usize },
    #[error("the sequence would hold {needed} tokens, more than its capacity of {capacity}")]
    ContextFull { needed: usize, capacity: usize },
    #[error("a call of {found} rows is more than the {limit} that the working memory was made for")]
    TooManyRows { found: usize, limit: usize },
    /// `which`: the sequences of a forward pass or the rows of a head call in which it appeared. The others ran as they would
    /// have without these, whose state is of no use any more.
    #[error("a value that is not finite appeared in {place}")]
    NotFinite { place: String, which: Vec<usize> },
    #[error(transparent)]
    Storage(#[from] StorageError),
}
