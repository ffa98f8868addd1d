//! Errors of a run.

use crate::sampler::{HistoryError, ParamError, SampleError};
use strata_model::ForwardError;
use strata_ops::backend::OpError;
use thiserror::Error;

/// Why an engine could not be made or a run stopped.
#[derive(Debug, Error)]
pub enum EngineError {
    #[error(transparent)]
    Forward(#[from] ForwardError),
    #[error(transparent)]
    Op(#[from] OpError),
    #[error(transparent)]
    Params(#[from] ParamError),
    #[error(transparent)]
    Sample(#[from] SampleError),
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error("the prompt is empty: expected at least one token")]
    EmptyPrompt,
    #[error("the prompt has {found} tokens, the context holds {capacity} and one must be left for an answer")]
    PromptTooLong { found: usize, capacity: usize },
    #[error("{field}: expected {expected}, found {found}")]
    Option { field: &'static str, expected: String, found: String },
    #[error("the grammar: {0}")]
    Constraint(String),
    /// A fault of this program's.
    #[error("a step panicked")]
    Panicked,
    /// What ended several requests at once.
    #[error("{0}")]
    Step(String),
    #[error("the runner's thread could not be started: {0}")]
    Thread(std::io::Error),
    #[error("the prefix cache's directory cannot be used: {0}")]
    Cache(std::io::Error),
    #[error("checkpoint: {field}: expected {expected}, found {found}")]
    Checkpoint { field: &'static str, expected: String, found: String },
    #[error("stopped by the caller")]
    Cancelled,
}

impl EngineError {
    /// The same for another of the requests that it ended.
    pub(crate) fn repeat(&self) -> EngineError {
        match self {
            EngineError::Forward(e) => EngineError::Forward(e.clone()),
            EngineError::Panicked => EngineError::Panicked,
            e => EngineError::Step(e.to_string()),
        }
    }
}
