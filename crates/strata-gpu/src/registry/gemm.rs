//! Products of many tokens: three kernels a quantised format, one a float format.

use super::{Kernel, Needs, kernel};

const FLOATS: &str = "products/gemm/floats.cu";
const ARGS: &str = "plppppppppiii";

macro_rules! table {
    ($($name:literal),*) => {
        &[
            kernel("gemm_f32", FLOATS, "pppiii", 256),
            kernel("gemm_f16", FLOATS, "pppiii", 256),
            kernel("gemm_bf16", FLOATS, "pppiii", 256),
            $(
                kernel(concat!("gemm_matrix_", $name), concat!("products/gemm/", $name, ".cu"), ARGS, 384).needs(Needs::Matrix(75)),
                kernel(concat!("gemm_matrix_", $name, "_32"), concat!("products/gemm/", $name, ".cu"), ARGS, 128).needs(Needs::Matrix(75)),
                kernel(concat!("gemm_dot_", $name), concat!("products/gemm/", $name, ".cu"), ARGS, 256),
            )*
        ]
    };
}

pub(super) static KERNELS: &[Kernel] = table!(
    "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_0", "mxfp4", "nvfp4", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "iq3_s",
    "iq3_xxs", "iq2_s", "iq2_xs", "iq2_xxs", "iq1_m", "iq1_s"
);
