//! Quantised products: weights repacked at load, activations quantised on the device, mat-vec for up to eight columns.

pub mod repack;
