//! `strata kernels`: the table of GPU kernels, what is known of each, and the dispatch among them.

use crate::cli::{AuditArgs, KernelsArgs, KernelsCommand, TuneArgs};
use crate::error::CliError;
use crate::output;
use std::process::ExitCode;
use strata_gpu::{Device, audit, registry, tune};

/// Runs the command.
///
/// # Errors
/// What the command could not do.
pub fn run(args: &KernelsArgs) -> Result<ExitCode, CliError> {
    match &args.command {
        KernelsCommand::List => list(),
        KernelsCommand::Audit(args) => check(args),
        KernelsCommand::Tune(args) => measure(args),
    }
}

fn list() -> Result<ExitCode, CliError> {
    let lines = registry::all().map(|k| {
        let exact = if k.exact { "exact" } else { "not exact" };
        format!("{:<32} {:<32} {:<14} {:>4} threads  {:?}  {exact}\n", k.name, k.file, k.args, k.threads, k.needs)
    });
    output::print(&lines.collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

/// Non-zero if a kernel breaks a rule.
fn check(args: &AuditArgs) -> Result<ExitCode, CliError> {
    let options = audit::Options { tables: &args.tables, update: args.update, json: args.json };
    let mut failed = None;
    let passed = audit::run(&args.arch, options, &mut |text| {
        if failed.is_none() {
            failed = output::print(text).err();
        }
    })?;
    failed.map_or(Ok(()), Err)?;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn measure(args: &TuneArgs) -> Result<ExitCode, CliError> {
    let device = Device::open(&args.backend)?;
    output::print(&format!("{} ({}), {} units\n", device.info().name, device.info().arch, device.info().units))?;
    let mut failed = None;
    let path = tune::tune(&device, &mut |line| {
        if failed.is_none() {
            failed = output::print(&format!("{line}\n")).err();
        }
    })?;
    failed.map_or(Ok(()), Err)?;
    output::print(&format!("written to {}\n", path.display()))?;
    Ok(ExitCode::SUCCESS)
}
