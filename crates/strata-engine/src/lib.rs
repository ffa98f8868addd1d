//! Sequences, prefill and decode, speculative decoding, sampling.
//!
//! An [`Engine`] runs one sequence on a bound model. Output never depends on chunk size, speculation or cache reuse:
//! each token is drawn from the logits of its position with a generator keyed by seed and position.

mod draft_length;
mod engine;
mod error;
pub mod evaluate;
mod options;
pub mod sampler;
mod score;
mod speculate;

pub use engine::{Engine, Stats, Token};
pub use error::EngineError;
pub use options::EngineOptions;
pub use score::{PairRow, score_pair};
