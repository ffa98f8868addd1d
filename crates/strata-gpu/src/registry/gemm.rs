//! Products of many tokens: every format in two forms and two shapes of tile.

use super::{Kernel, Needs, kernel};

const ARGS: &str = "plppppppppiii";

macro_rules! table {
    ($($name:literal),*) => {
        &[
            $(
                kernel(concat!("gemm_matrix_", $name), "products/gemm_matrix.cu", ARGS, 256).needs(Needs::Matrix(75)),
                kernel(concat!("gemm_matrix_", $name, "_32"), "products/gemm_matrix.cu", ARGS, 128).needs(Needs::Matrix(75)),
                kernel(concat!("gemm_dot_", $name), "products/gemm_dot.cu", ARGS, 256),
                kernel(concat!("gemm_dot_", $name, "_32"), "products/gemm_dot.cu", ARGS, 128),
            )*
        ]
    };
}

pub(super) static KERNELS: &[Kernel] = table!("q8_0", "q4_0", "iq4_nl", "q4_k", "q5_k", "q6_k", "iq4_xs", "iq3_s", "iq2_xs");
