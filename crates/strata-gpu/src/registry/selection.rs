//! Kernels of the family `selection`.

use super::Kernel;

pub(super) static KERNELS: &[Kernel] = &[];
