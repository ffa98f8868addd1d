//! Quantised products: weights repacked at load, activations quantised on the device, mat-vec for up to eight columns.

pub mod gemm;
pub mod mat_vec;
pub mod quantize;
pub mod repack;
pub mod tables;
mod variant;

pub use mat_vec::{DeviceWeights, mat_vec, mat_vec_experts};
pub use quantize::DeviceActs;
pub use variant::{MAX_COLUMNS, Variant, VariantEntry, VariantTable};
