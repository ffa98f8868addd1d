//! Why a synthetic model cannot be made.

use std::path::PathBuf;
use strata_gguf::{GgufError, WriteError};
use thiserror::Error;

/// What is wrong with a recipe, or with the place it should go to. Sizes are in bytes.
#[derive(Debug, Error)]
pub enum SynthError {
    #[error("synth: expected NAME:TYPE[,FIELD=VALUE...], found '{0}'")]
    Form(String),
    #[error("synth: configuration: expected {expected} or a config.json, found '{found}'")]
    Preset { expected: String, found: String },
    #[error("synth: {field}: expected a tensor type of {expected}, found '{found}'")]
    Type { field: String, expected: String, found: String },
    #[error("synth: expected one of the fields {expected}, found '{found}'")]
    Field { expected: String, found: String },
    #[error("synth: {field}: expected {expected}, found {found}")]
    Value { field: String, expected: String, found: String },
    #[error("{}: {detail}", path.display())]
    Config { path: PathBuf, detail: String },
    #[error(
        "synth: the model takes {needed} bytes of memory, expected at most {available} (what is free; smaller: layers, experts, ngram_rows)"
    )]
    Memory { needed: u64, available: u64 },
    #[error("synth: {needed} bytes of memory cannot be had: {error}")]
    Alloc { needed: u64, error: std::io::Error },
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("synth: {0}")]
    Write(#[from] WriteError),
    #[error(transparent)]
    Gguf(#[from] GgufError),
}
