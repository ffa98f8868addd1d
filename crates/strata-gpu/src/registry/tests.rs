//! Kernels of the words' unit tests and of the measured limits.

use super::{Kernel, Needs, kernel};

const FILE: &str = "tests/lane.cu";
const LIMITS: &str = "tests/limits.cu";

pub(super) static KERNELS: &[Kernel] = &[
    kernel("test_lanes", FILE, "ppp", 32),
    kernel("test_wave_sum", FILE, "pp", 32),
    kernel("test_bytes", FILE, "pppp", 32),
    kernel("test_barriers", FILE, "pp", 256),
    kernel("test_async", FILE, "pp", 64),
    kernel("test_math", FILE, "ppi", 256),
    kernel("test_matrix_s8", FILE, "ppp", 32).needs(Needs::Matrix(75)),
    kernel("test_matrix_f16", FILE, "ppp", 32).needs(Needs::Matrix(75)),
    kernel("test_divergent", FILE, "pp", 32).needs(Needs::Shim),
    kernel("test_unwaited", FILE, "pp", 32).needs(Needs::Shim),
    kernel("test_overrun", FILE, "pp", 32).needs(Needs::Shim),
    kernel("limit_read", LIMITS, "ppl", 256),
    kernel("limit_copy", LIMITS, "ppl", 256),
    kernel("limit_fma", LIMITS, "pffi", 256),
    kernel("limit_dot4", LIMITS, "pui", 256),
    kernel("limit_matrix_s8", LIMITS, "pui", 128).needs(Needs::Matrix(75)),
    kernel("limit_matrix_f16", LIMITS, "pui", 128).needs(Needs::Matrix(75)),
];
