//! Kernels of the family `products`: quantisation and mat-vec, every format for one to eight columns.

use super::{Kernel, kernel};

/// Arguments of a mat-vec of block formats and of float formats.
const BLOCKS: &str = "ppppppuuupu";
const FLOATS: &str = "pppuuu";

macro_rules! blocks {
    ($($name:literal),*) => { [$(blocks!(@one $name, "1_ahead", "1_r1", "2_r1", "3_r1", "4_r1", "5_r1", "6_r1", "8_r1", "2_r2", "3_r2", "4_r2")),*] };
    (@one $name:literal, $($variant:literal),*) => {
        [$(kernel(concat!("mat_vec_", $name, "_c", $variant), concat!("products/mat_vec/", $name, ".cu"), BLOCKS, 128)),*]
    };
}
macro_rules! floats {
    ($($name:literal),*) => { [$(floats!(@one $name, "1", "2", "3", "4", "5", "6", "8")),*] };
    (@one $name:literal, $($cols:literal),*) => {
        [$(kernel(concat!("mat_vec_", $name, "_c", $cols), "products/mat_vec/floats.cu", FLOATS, 128)),*]
    };
}

const BLOCK_KERNELS: [[Kernel; 11]; 9] = blocks!("q4_0", "q8_0", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "iq3_s", "iq2_xs");
const FLOAT_KERNELS: [[Kernel; 7]; 3] = floats!("f32", "f16", "bf16");
const BLOCK_KERNELS: [[[Kernel; 2]; 8]; 9] = blocks!("q4_0", "q8_0", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "iq3_s", "iq2_xs");
const FLOAT_KERNELS: [[Kernel; 8]; 3] = floats!("f32", "f16", "bf16");
const QUANTIZE: [Kernel; 2] =
    [kernel("quantize_q32", "products/quantize.cu", "ppppuu", 256), kernel("quantize_q256", "products/quantize.cu", "ppppuu", 256)];

static ALL: [Kernel; 122] = {
    let mut all = [QUANTIZE[0]; 122];
    all.split_at_mut(99).0.copy_from_slice(BLOCK_KERNELS.as_flattened());
    all.split_at_mut(99).1.split_at_mut(21).0.copy_from_slice(FLOAT_KERNELS.as_flattened());
    all[121] = QUANTIZE[1];
    all
};
pub(super) static KERNELS: &[Kernel] = &ALL;
