//! The kernels of one instruction-set level.

use crate::simd::Simd;

/// Kernels of a level.
#[derive(Clone, Copy, Debug)]
pub struct QsaKernels {
    level: Simd,
}

impl QsaKernels {
    /// The kernels of `level`, or of the best level of this CPU if it has not got that one.
    pub fn new(level: Simd) -> QsaKernels {
        let level = if Simd::available().contains(&level) { level } else { Simd::best() };
        QsaKernels { level }
    }

    /// The kernels of the best level of this CPU.
    pub fn best() -> QsaKernels {
        QsaKernels::new(Simd::best())
    }

    /// The level in use.
    pub fn level(&self) -> Simd {
        self.level
    }
}
