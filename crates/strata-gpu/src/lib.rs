//! Kernels for NVIDIA and AMD GPUs from one source.
//!
//! `kernels/` holds the device code. Here are its drivers (opened at run time), its compilers, the table of kernels, the
//! launchers that choose among exact variants, and the suites that compare every variant with the CPU's definitions by bits.
//! [`shim`] runs the same device code on the CPU, one fiber a thread.

pub mod attention;
pub mod audit;
pub mod bench;
pub mod compile;
pub mod defaults;
pub mod device;
pub mod driver;
pub mod error;
pub mod parity;
pub mod products;
pub mod registry;
pub mod selection;
pub mod shim;
#[cfg(test)]
mod source_rules;
pub mod sources;
#[cfg(test)]
mod testing;
pub mod tune;

pub use device::{Arg, Buffer, Device};
pub use driver::Grid;
pub use error::{GpuError, Result};
