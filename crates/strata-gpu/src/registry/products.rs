//! Kernels of the family `products`.

use super::Kernel;

pub(super) static KERNELS: &[Kernel] = &[];
