//! Products of many tokens: three kernels a format.

use super::{Kernel, Needs, kernel};

const ARGS: &str = "plppppppppiii";

macro_rules! table {
    ($($name:literal),*) => {
        &[
            $(
                kernel(concat!("gemm_matrix_", $name), concat!("products/gemm/", $name, ".cu"), ARGS, 256).needs(Needs::Matrix(75)),
                kernel(concat!("gemm_matrix_", $name, "_32"), concat!("products/gemm/", $name, ".cu"), ARGS, 128).needs(Needs::Matrix(75)),
                kernel(concat!("gemm_dot_", $name), concat!("products/gemm/", $name, ".cu"), ARGS, 256),
            )*
        ]
    };
}

pub(super) static KERNELS: &[Kernel] = table!("q8_0", "q4_0", "iq4_nl", "q4_k", "q5_k", "q6_k", "iq4_xs", "iq3_s", "iq2_xs");
