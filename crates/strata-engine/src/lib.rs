//! Sequences, prefill and decode, speculative decoding, sampling.
//!
//! A [`Batch`] runs several sequences on a bound model, an [`Engine`] is the batch of one. Output never depends on chunk size,
//! speculation, cache reuse or on what else is in a step: each token is drawn from the logits of its position with a generator
//! keyed by seed and position.

mod answer;
mod batch;
mod checkpoint;
mod draft_length;
mod embed;
mod engine;
mod error;
pub mod evaluate;
mod options;
pub mod prefix_cache;
mod request;
mod runner;
pub mod sampler;
pub mod scheduler;
mod score;
mod slot;
mod speculate;
mod step;

pub use answer::Ending;
pub use batch::Batch;
pub use checkpoint::Checkpoint;
pub use engine::Engine;
pub use error::EngineError;
pub use options::{Clock, EngineOptions};
pub use request::{Constraint, Generate, Kind, Mark, Reason, Refused, Request, Sink, Update, Usage};
pub use runner::{Facts, Histogram, RequestId, Runner, RunnerOptions, SessionError, SlotStatus, Status};
pub use score::{PairRow, score_pair};
pub use slot::{Stats, Token};
pub use step::{Event, Work};
