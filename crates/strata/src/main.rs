//! The command line of Strata.
//!
//! `cli` holds the flags, `settings` what they (and the environment) set, `load` makes a model and an engine of them,
//! and one file a command does the rest. No arithmetic lives here.

mod bench;
mod chat;
mod cli;
mod doctor;
mod error;
mod evaluate;
mod generate;
mod hash;
mod inspect;
mod kernels;
mod load;
mod memory;
mod output;
mod parity;
mod progress;
mod prompt;
mod quantize;
mod run;
mod serve;
mod settings;
mod synth;
mod tokenize;

use std::process::ExitCode;

fn main() -> ExitCode {
    strata_tiers::explain_sigbus();
    let (cli, matches) = match cli::parse() {
        Ok(parsed) => parsed,
        Err(e) => e.exit(),
    };
    let result = match cli.command {
        cli::Command::Run(args) => run::run(args, &matches),
        cli::Command::Chat(args) => chat::run(args),
        cli::Command::Serve(args) => serve::run(&args),
        cli::Command::Inspect(args) => inspect::run(&args),
        cli::Command::Quantize(args) => quantize::run(&args),
        cli::Command::Tokenize(args) => tokenize::run(&args),
        cli::Command::Doctor(args) => doctor::run(&args, &matches),
        cli::Command::Parity(args) => parity::run(&args),
        cli::Command::Bench(args) => bench::run(&args),
        cli::Command::Perplexity(args) => evaluate::perplexity(&args),
        cli::Command::Kld(args) => evaluate::kld(&args),
        cli::Command::Synth(args) => synth::run(&args),
        cli::Command::Kernels(args) => kernels::run(&args),
    };
    match result {
        Ok(code) => code,
        Err(e) => {
            if let Some(line) = e.line() {
                output::note(&format!("error: {line}"));
            }
            e.exit_code()
        }
    }
}
