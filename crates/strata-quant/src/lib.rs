//! GGUF block formats: layouts and decode, one file a family.
//!
//! A weight row is a whole number of blocks of one [`DType`]. This crate knows the bytes of a block and the
//! `f32` values they stand for; products with activations are defined in `strata-ops`.

mod dtype;
pub use dtype::{DType, UnknownDType};
