//! The `qwen4exp` architecture (Qwen3.8-Flash-Next): configuration from GGUF metadata, weight binding with exact
//! name and shape checks, and the forward pass, written once over [`strata_ops::backend::Backend`].
//!
//! One file a layer kind: `hyper` (hyper-connections), `gdn`, `qsa`, `moe`, `ngram` (PLE), `mtp`.

mod block;
mod config;
mod error;
mod gdn;
mod hyper;
mod model;
mod moe;
mod mtp;
mod ngram;
mod observer;
mod qsa;
mod saved;
mod scratch;
mod segment;
mod sequence;
mod storage;
mod unseen;
mod weights;

pub use config::{Config, LayerKind, NgramConfig};
pub use error::{BindError, ForwardError};
pub use model::{Model, ModelOptions};
pub use mtp::Mtp;
pub use ngram::NgramHash;
pub use observer::Observer;
pub use scratch::{Limits, Scratch};
pub use segment::Segment;
pub use sequence::{MtpSequence, Sequence};
pub use storage::{ExpertWatch, Mapped, RowReader, StackBytes, Storage, StorageError};
pub use weights::WeightMode;
