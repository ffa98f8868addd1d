//! GGUF block formats: layouts, decode and encode, one file a family.
//!
//! A weight row is a whole number of blocks of one [`DType`]. This crate knows the bytes of a block, the integers and
//! scales in them and the `f32` values they stand for; products with activations are defined in `strata-ops`.
//!
//! To add a format: an implementation of [`BlockFormat`] in its family's file under `formats/`, a row in the table of
//! `dtype.rs`, and its name in the oracle script of the tests.

mod block;
mod dtype;
mod encode;
mod format;
#[allow(non_camel_case_types, reason = "names are those of the GGUF ecosystem")]
pub mod formats;
pub mod testing;

pub use block::{BlockFormat, ByteArray, Encode, FloatFormat, IntegerForm, Integers, Scales, Visitor, half_at};
pub use dtype::{DType, UnknownDType};
pub use format::{QuantizeError, SizeError, can_encode, dequantize, first_non_finite, quantize, quantize_weighted};
