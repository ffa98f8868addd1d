//! Runs device code on the CPU: one fiber a thread of a workgroup, 32 neighbouring fibers a wave, collectives and barriers as
//! meeting points. It needs a C++17 compiler on the machine and an x86-64 CPU with AVX2; it shows exactness, out-of-bounds
//! accesses (with sanitizers) and some races (by other schedules), never speed.

mod build;
mod driver;

pub use build::compiler;
use driver::ShimDriver;

use crate::driver::Driver;
use crate::error::Result;
use std::sync::Arc;

/// Which vendor's instructions the shim follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShimSide {
    /// NVIDIA: shuffles, byte_perm, dp4a, mma, clusters.
    Cuda,
    /// AMD gfx12: DPP, permlanes, perm, WMMA of RDNA4.
    Gfx12,
    /// AMD gfx11: the same with the WMMA layout of RDNA3.
    Gfx11,
}

impl ShimSide {
    /// Every side.
    pub const ALL: [ShimSide; 3] = [ShimSide::Cuda, ShimSide::Gfx12, ShimSide::Gfx11];

    /// The architecture name of the side's device.
    pub const fn arch(self) -> &'static str {
        match self {
            ShimSide::Cuda => "shim-cuda",
            ShimSide::Gfx12 => "shim-gfx12",
            ShimSide::Gfx11 => "shim-gfx11",
        }
    }

    const fn defines(self) -> &'static [&'static str] {
        match self {
            ShimSide::Cuda => &["STRATA_CUDA=1"],
            ShimSide::Gfx12 => &["STRATA_HIP=1", "STRATA_WMMA=12"],
            ShimSide::Gfx11 => &["STRATA_HIP=1", "STRATA_WMMA=11"],
        }
    }
}

/// The order in which ready threads run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// In order of becoming ready.
    #[default]
    Forward,
    /// The latest first.
    Reversed,
    /// Drawn by a seed.
    Random(u64),
}

impl Order {
    /// From `STRATA_SHIM_ORDER`: `forward`, `reversed` or a seed.
    fn from_env() -> Order {
        match std::env::var("STRATA_SHIM_ORDER").as_deref() {
            Ok("reversed") => Order::Reversed,
            Ok(seed) => seed.parse().map_or(Order::Forward, Order::Random),
            Err(_) => Order::Forward,
        }
    }
}

/// A shim device of a side; the schedule is that of `STRATA_SHIM_ORDER`.
///
/// # Errors
/// No C++ compiler, or a CPU that is not x86-64 with AVX2, FMA and F16C.
pub fn open(side: ShimSide) -> Result<Arc<dyn Driver>> {
    open_ordered(side, Order::from_env())
}

/// A shim device with a schedule.
///
/// # Errors
/// As [`open`].
pub fn open_ordered(side: ShimSide, order: Order) -> Result<Arc<dyn Driver>> {
    Ok(Arc::new(ShimDriver::new(side, order)?))
}

/// Builds a kernel file for a side; the image is the path of a shared object.
pub(crate) fn image(file: &str, side: ShimSide, defines: &[&str]) -> Result<Vec<u8>> {
    build::image(file, side, defines)
}
