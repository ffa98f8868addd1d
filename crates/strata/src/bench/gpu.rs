//! Times of a card's kernels.

use super::BenchArgs;
use crate::error::CliError;
use crate::output;
use std::process::ExitCode;
use strata_gpu::Device;
use strata_gpu::bench::{BENCHES, Bench};

/// A line for each benchmark.
pub fn list() -> impl Iterator<Item = String> {
    BENCHES.iter().map(|b| format!("{:<24} {} {}\n", b.name, b.about, b.numbers))
}

/// True if `name` begins the name of a benchmark.
pub fn is_one(name: &str) -> bool {
    BENCHES.iter().any(|b| b.name.starts_with(name))
}

/// Runs the benchmarks on a device.
///
/// # Errors
/// An unknown name, or a device that is not there or fails.
pub fn run(backend: &str, args: &BenchArgs) -> Result<ExitCode, CliError> {
    let chosen = select(&args.ops)?;
    let device = Device::open(backend)?;
    output::print(&format!("{} ({}), {} units\n", device.info().name, device.info().arch, device.info().units))?;
    for bench in chosen {
        output::print(&format!("{}: {}\n", bench.name, bench.about))?;
        let mut failed = None;
        (bench.run)(&device, &args.numbers, &mut |line| {
            if failed.is_none() {
                failed = output::print(&format!("  {line}\n")).err();
            }
        })?;
        failed.map_or(Ok(()), Err)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The benchmarks whose names begin with one of `names`; all without names.
fn select(names: &[String]) -> Result<Vec<&'static Bench>, CliError> {
    if let Some(unknown) = names.iter().find(|n| !is_one(n)) {
        let known: Vec<&str> = BENCHES.iter().map(|b| b.name).collect();
        return Err(CliError::Usage(format!("bench: expected the beginning of one of {}, found {unknown}", known.join(", "))));
    }
    Ok(BENCHES.iter().filter(|b| names.is_empty() || names.iter().any(|n| b.name.starts_with(n.as_str()))).collect())
}
