//! Errors of drivers, compilers and launches.

use thiserror::Error;

/// What went wrong with a device, a compiler or a launch.
#[derive(Debug, Error)]
pub enum GpuError {
    /// A library, driver or compiler is not on this machine. `tried` lists what was looked for.
    #[error("{what} was not found (tried {tried}): {hint}")]
    Missing { what: &'static str, tried: String, hint: String },
    /// A library lacks a function.
    #[error("{library} has no function {function}: an older release than this build knows?")]
    MissingFunction { library: String, function: &'static str },
    /// A driver call failed.
    #[error("{call} failed with {code} ({name})")]
    Driver { call: &'static str, code: i32, name: String },
    /// A compiler refused a kernel file.
    #[error("compiling {file} for {arch} failed:\n{log}")]
    Compile { file: String, arch: String, log: String },
    /// There is no such kernel, or none for this device.
    #[error("kernel {kernel}: {reason}")]
    Kernel { kernel: String, reason: String },
    /// Arguments or sizes of a launch that the kernel does not take.
    #[error("launch of {kernel}: expected {expected}, found {found}")]
    Launch { kernel: String, expected: String, found: String },
    /// More memory than the device has.
    #[error("device memory: expected {bytes} bytes to be free on {device}")]
    OutOfMemory { bytes: usize, device: String },
    /// Reading or writing a cache or source file failed.
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, GpuError>;
