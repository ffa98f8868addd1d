//! Kernels of the family `tests`.

use super::Kernel;

pub(super) static KERNELS: &[Kernel] = &[];
