//! GGUF block formats: layouts, decode and encode, one file a family.
//!
//! A weight row is a whole number of blocks of one [`DType`]. This crate knows the bytes of a block and the
//! `f32` values they stand for; products with activations are defined in `strata-ops`.
//!
//! To add a format: a row in `dtype.rs`, its functions in its family's file, an arm in `format.rs`, and its name in
//! the oracle script of the tests.

mod codebooks;
mod dtype;
mod float;
mod format;
mod iq4;
mod iq_grid;
mod k_quants;
mod q_simple;
pub mod testing;

pub use codebooks::{IQ2_XS_GRID, IQ2_XS_SIGNS, IQ3_S_GRID};
pub use dtype::{DType, UnknownDType};
pub use format::{QuantizeError, SizeError, dequantize, first_non_finite, quantize};
pub use iq4::IQ4_VALUES;
