//! Why no token was drawn.

use super::ParamError;
use thiserror::Error;

/// Errors of [`Sampler::sample`](super::Sampler::sample). None of them draws a token.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum SampleError {
    /// A parameter is out of range.
    #[error("sampling parameters: {0}")]
    Params(#[from] ParamError),
    /// The row of logits is not as long as the vocabulary.
    #[error("logits: expected {expected} values, found {found}")]
    Logits { expected: usize, found: usize },
    /// The model gave NaN or an infinity.
    #[error("logits: token {token} has {value}, expected a finite number")]
    NonFinite { token: u32, value: f32 },
    /// A finite logit left the range of f32 under bias, penalties and temperature.
    #[error("logits: token {token} became {value} after bias, penalties and temperature, expected a finite number")]
    Overflow { token: u32, value: f32 },
    /// A bias is for an id that is not one of the vocabulary.
    #[error("bias: token {token} is not below the vocabulary size {vocab}")]
    Bias { token: u32, vocab: usize },
    /// The mask does not have one bit a token.
    #[error("token mask: expected {expected} words, found {found}")]
    Mask { expected: usize, found: usize },
    /// The mask forbids every token.
    #[error("token mask: no token is allowed")]
    NothingAllowed,
    /// Penalties are on and no history was given.
    #[error("penalties need a history, found none")]
    NoHistory,
    /// The history counts another vocabulary.
    #[error("history: expected a vocabulary of {expected}, found {found}")]
    HistoryVocab { expected: usize, found: usize },
    /// The history was built for another `penalty_last_n`.
    #[error("history: expected penalty_last_n {expected:?}, found {found:?}")]
    HistoryWindow { expected: Option<usize>, found: Option<usize> },
    /// The buffer for the most probable tokens is shorter than asked for.
    #[error("logprobs: expected room for {expected} tokens, found {found}")]
    TopBuffer { expected: usize, found: usize },
}
