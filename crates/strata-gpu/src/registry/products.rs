//! Kernels of the family `products`: quantisation and mat-vec, every format for one to eight columns.

use super::{Kernel, Needs, kernel};

/// Arguments of a mat-vec of block formats and of float formats.
const BLOCKS: &str = "ppppppuuupuu";
const FLOATS: &str = "pppuuuu";

macro_rules! mat_vec {
    ($format:literal, $variant:literal) => {
        kernel(concat!("mat_vec_", $format, "_c", $variant), concat!("products/mat_vec/", $format, ".cu"), BLOCKS, 128)
    };
    ($format:literal, $columns:literal, float) => {
        mat_vec!($format, $columns, float, 128)
    };
    ($format:literal, $columns:literal, float, $threads:literal) => {
        kernel(concat!("mat_vec_", $format, "_c", $columns), "products/mat_vec/floats.cu", FLOATS, $threads)
    };
}
macro_rules! table {
    ([$($split:literal),*] [$($rows:literal),*] [$($matrix:literal),*] [$($float:literal),*]) => {
        &[
            kernel("quantize_q32", "products/quantize.cu", "ppppuu", 256),
            kernel("quantize_q256", "products/quantize.cu", "pppppuu", 256),
            $(mat_vec!($split, "1_split"), mat_vec!($split, "4_split"),)*
            $(mat_vec!($rows, "2_r1"), mat_vec!($rows, "4_r2"), mat_vec!($rows, "8_r1"),)*
            $(mat_vec!($matrix, "8_matrix").needs(Needs::Cuda(75)),)*
            $(mat_vec!($float, "1_split", float, 32), mat_vec!($float, "1", float), mat_vec!($float, "4", float), mat_vec!($float, "8", float),)*
        ]
    };
}

pub(super) static KERNELS: &[Kernel] = table!(
    [
        "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_0", "mxfp4", "nvfp4", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs",
        "iq3_s", "iq3_xxs", "iq2_s", "iq2_xs", "iq2_xxs", "iq1_m", "iq1_s"
    ]
    ["q8_0", "q4_k", "q5_k", "q6_k", "iq4_xs"]
    ["q4_k", "q5_k", "q6_k", "iq4_xs"]
    ["f32", "f16", "bf16"]
);
