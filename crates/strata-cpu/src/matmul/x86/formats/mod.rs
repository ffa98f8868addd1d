//! The formats' blocks taken apart with AVX2, one file a family.

pub(super) mod codebook;
mod k_quants;
mod narrow;
