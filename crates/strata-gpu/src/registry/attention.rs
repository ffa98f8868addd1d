//! Kernels of the family `attention`.

use super::Kernel;

pub(super) static KERNELS: &[Kernel] = &[];
