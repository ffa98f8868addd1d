//! Query-sparse attention on the CPU: KV cache, block selection and attention over the selected cells.
//! Definitions are in [`strata_ops::qsa`]; every instruction set and thread count gives the same bits.

mod attend;
mod cache;
pub(crate) mod disjoint;
mod error;
mod float;
#[cfg(target_arch = "x86_64")]
mod float_x86;
mod given;
mod group;
mod index;
mod int8;
#[cfg(target_arch = "x86_64")]
mod int8_x86;
mod kernels;
mod largest;
mod prefetch;
mod row;
mod scratch;
mod select;
mod shape;
#[cfg(test)]
mod tests;
mod topk;

pub use attend::{QueryRows, SequenceQueries, attend, attend_all, select};
pub use cache::{IndexNorm, NewCells, QsaCache, RAW_RING};
pub use error::QsaError;
pub use given::attend_given;
pub use kernels::QsaKernels;
pub use scratch::QsaScratch;
pub use shape::{MAX_GROUP, MAX_INDEX_HEADS, QsaShape};

/// Parts that the parity suites drive directly.
pub(crate) mod internal {
    pub(crate) use super::group::Inner;
    pub(crate) use super::group::{ChunkBuf, GroupQuery};
    pub(crate) use super::row::{Cells, row_alone, row_spread};
    pub(crate) use super::select::{IndexKeys, Select, TILE};
}
