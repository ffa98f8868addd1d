//! Weight matrices times activations: the scalar definition (NUMERICS.md section 2).
//!
//! Quantised weights meet activations quantised to int8. Products inside a block are exact integers, sub-scales
//! included; one FMA a block turns them into floats, in chains over contiguous segments of the row. Float weights
//! meet `f32` activations in a lane tree.

mod acts;
mod dot;

pub use acts::{ActRows, Acts, Forms, quantize_row};
pub use dot::dot_row;

use strata_quant::DType;

/// Values that share one activation scale, for weight formats with 32-wide blocks.
pub const ACT_BLOCK_NARROW: usize = 32;
/// Values that share one activation scale, for weight formats with 256-wide blocks.
pub const ACT_BLOCK_WIDE: usize = 256;
/// Chains a row for formats with blocks of up to 64 values.
pub const CHAINS_NARROW: usize = 8;
/// Chains a row for formats with blocks of 256 values.
pub const CHAINS_WIDE: usize = 4;
/// Lanes of the sum over a row of float weights.
pub const FLOAT_LANES: usize = 8;
/// Values covered by one of the activation sums kept for 256-wide formats (the narrowest sub-block).
pub const SUM_SPAN: usize = 16;
/// An activation block whose largest magnitude is below this (2^-100) is all zeros.
pub const TINY: f32 = f32::from_bits(0x0d80_0000);

/// The blocks of segment `c` when a row of `blocks` blocks is cut into `chains` segments.
#[inline(always)]
pub fn segment(c: usize, blocks: usize, chains: usize) -> std::ops::Range<usize> {
    c * blocks / chains..(c + 1) * blocks / chains
}

/// What a weight format wants activations to look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActForm {
    /// `f32`, as they are.
    F32,
    /// int8 codes with a scale for every 32 values.
    Q32,
    /// int8 codes with a scale for every 256 values.
    Q256,
}

/// The activation form of a weight format.
pub fn act_form(dtype: DType) -> ActForm {
    match dtype.block_len() {
        1 => ActForm::F32,
        ACT_BLOCK_WIDE => ActForm::Q256,
        _ => ActForm::Q32,
    }
}
