//! Products of many tokens: three kernels a quantised format, one a float format.

use super::{Kernel, Needs, kernel};

const FLOATS: &str = "products/gemm/floats.cu";
const ARGS: &str = "plppppppppiii";

macro_rules! table {
    ($($name:literal $threads:literal),*) => {
        &[
            kernel("gemm_f32", FLOATS, "pppiii", 256),
            kernel("gemm_f16", FLOATS, "pppiii", 256),
            kernel("gemm_bf16", FLOATS, "pppiii", 256),
            $(
                kernel(concat!("gemm_matrix_", $name), concat!("products/gemm/", $name, ".cu"), ARGS, $threads).needs(Needs::Matrix(75)),
                kernel(concat!("gemm_matrix_", $name, "_32"), concat!("products/gemm/", $name, ".cu"), ARGS, 128).needs(Needs::Matrix(75)),
                kernel(concat!("gemm_dot_", $name), concat!("products/gemm/", $name, ".cu"), ARGS, 256),
            )*
        ]
    };
}

pub(super) static KERNELS: &[Kernel] = table!(
    "q8_0" 384, "q4_0" 384, "iq4_nl" 384, "q4_k" 256, "q5_k" 256, "q6_k" 256, "iq4_xs" 256, "iq3_s" 256, "iq2_xs" 256
);
