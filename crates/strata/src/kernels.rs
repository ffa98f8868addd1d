//! `strata kernels`: the table of GPU kernels and what is known of each.

use crate::cli::{KernelsArgs, KernelsCommand};
use crate::error::CliError;
use crate::output;
use std::process::ExitCode;
use strata_gpu::registry;

/// Runs the command.
///
/// # Errors
/// What the command could not do.
pub fn run(args: &KernelsArgs) -> Result<ExitCode, CliError> {
    match args.command {
        KernelsCommand::List => {
            let lines = registry::all().map(|k| {
                let exact = if k.exact { "exact" } else { "not exact" };
                format!("{:<32} {:<32} {:<14} {:>4} threads  {:?}  {exact}\n", k.name, k.file, k.args, k.threads, k.needs)
            });
            output::print(&lines.collect::<String>())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
