//! Query-sparse attention on the CPU: KV cache, block selection and attention over the selected cells.
//! Definitions are in [`strata_ops::qsa`]; every instruction set and thread count gives the same bits.

mod attend;
mod cache;
mod disjoint;
mod error;
mod kernels;
mod scratch;
mod shape;

pub use attend::{QueryRows, attend, select};
pub use cache::{IndexNorm, NewCells, QsaCache, RAW_RING};
pub use error::QsaError;
pub use kernels::QsaKernels;
pub use scratch::QsaScratch;
pub use shape::{MAX_GROUP, MAX_INDEX_HEADS, QsaShape};
