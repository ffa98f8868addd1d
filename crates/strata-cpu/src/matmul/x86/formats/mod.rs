//! The formats' blocks taken apart with AVX2, one file a family.

mod codebook;
mod iq1;
mod k_quants;
mod narrow;
pub(super) mod permuted;
pub(super) mod tables;
