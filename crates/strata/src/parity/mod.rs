//! `strata parity`: every exactness suite, on this machine.

mod engine_hash;

use crate::cli::ParityArgs;
use crate::error::CliError;
use crate::output;
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Instant;
use strata_cpu::matmul::matmul_parity_of;
use strata_cpu::parity::{self as cpu, Arm, CaseReport};
use strata_cpu::simd::Simd;

/// What a suite tells while it runs.
enum Event {
    Case(CaseReport),
    /// A line for the report.
    Note(String),
}

type Report<'a> = &'a mut dyn FnMut(Event);

/// A suite: fast code against its definition, by bits.
struct Suite {
    name: &'static str,
    about: &'static str,
    run: fn(full: bool, Report<'_>) -> Result<(), CliError>,
}

/// The ops' suites at every level of this CPU.
macro_rules! levels {
    ($suite:path) => {
        |full, report| {
            for level in Simd::available() {
                $suite(Arm::Level(level), full, &mut |case| report(Event::Case(at_level(case, level))));
            }
            Ok(())
        }
    };
}

/// The case with its level named, where its suite has not done so.
fn at_level(c: CaseReport, level: Simd) -> CaseReport {
    let named = c.case.split(' ').any(|word| word == level.name());
    if named { c } else { CaseReport { case: format!("{} {}", level.name(), c.case), ..c } }
}

static SUITES: [Suite; 6] = [
    Suite {
        name: "ops_parity",
        about: "elementary functions, norms, gates, gated DeltaNet, experts' sums",
        run: levels!(cpu::ops_parity_of),
    },
    Suite { name: "matmul_parity", about: "matrix products, every format", run: levels!(matmul_parity_of) },
    Suite { name: "qsa_scores_parity", about: "block scores of the sparse attention", run: levels!(cpu::qsa_scores_parity_of) },
    Suite {
        name: "qsa_topk_active_parity",
        about: "top-k of the sparse attention, where it selects",
        run: levels!(cpu::qsa_topk_active_parity_of),
    },
    Suite { name: "qsa_attn_parity", about: "attention over selected cells, every KV format", run: levels!(cpu::qsa_attn_parity_of) },
    Suite {
        name: "engine_hash",
        about: "the bundled model's tokens: instructions, threads, chunks, speculation; every KV format",
        run: engine_hash::run,
    },
];

/// What a suite came to.
#[derive(Default)]
struct Totals {
    cases: u64,
    compared: u64,
    differing: u64,
    /// Cases with a difference.
    failed: Vec<String>,
    notes: Vec<String>,
    max_err64: Option<f64>,
}

/// Runs the suites.
///
/// # Errors
/// An unknown name, or a suite that cannot run. Differences are no error but a non-zero exit.
pub fn run(args: &ParityArgs) -> Result<ExitCode, CliError> {
    let suites = select(&args.names)?;
    if args.list {
        let lines = suites.iter().map(|s| format!("{:<24} {}\n", s.name, s.about));
        output::print(&lines.collect::<String>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut all_well, mut results) = (true, Vec::<Value>::new());
    if !args.json {
        output::print(&format!(
            "{:<24} {:>7} {:>14} {:>10} {:>11} {:>9}\n",
            "suite", "cases", "compared", "differing", "max error", "seconds"
        ))?;
    }
    for suite in suites {
        let start = Instant::now();
        let mut t = Totals::default();
        let (show, tick) = (args.verbose && !args.json, std::io::stderr().is_terminal());
        let mut broken = None;
        (suite.run)(args.full, &mut |event| {
            let case = match event {
                Event::Case(case) => case,
                Event::Note(note) => return t.notes.push(note),
            };
            t.cases += 1;
            t.compared += case.compared;
            t.differing += case.differing;
            t.max_err64 = case.max_err64.into_iter().chain(t.max_err64).reduce(f64::max);
            let line = format!("  {} {}: {} compared, {} differ\n", case.suite, case.case, case.compared, case.differing);
            if case.differing > 0 {
                t.failed.push(case.case.clone());
            }
            if show || (case.differing > 0 && !args.json) {
                broken = broken.take().or(output::print(&line).err());
            } else if tick {
                let _ = write!(std::io::stderr(), "\r{}: {} cases", suite.name, t.cases);
            }
        })?;
        if tick {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        broken.map_or(Ok(()), Err)?;
        // a suite that compared nothing proves nothing
        let passed = t.differing == 0 && t.compared > 0;
        all_well &= passed;
        let seconds = start.elapsed().as_secs_f64();
        let error = t.max_err64.map_or("-".to_owned(), |e| format!("{e:.2e}"));
        if args.json {
            results.push(json!({
                "suite": suite.name, "cases": t.cases, "compared": t.compared, "differing": t.differing, "failed": t.failed, "notes": t.notes,
                "max_err64": t.max_err64, "seconds": seconds, "passed": passed,
            }));
        } else {
            let verdict = if passed { "" } else { "  FAILED" };
            let (name, cases, compared, differing) = (suite.name, t.cases, t.compared, t.differing);
            output::print(&format!("{name:<24} {cases:>7} {compared:>14} {differing:>10} {error:>11} {seconds:>9.1}{verdict}\n"))?;
            t.notes.iter().try_for_each(|note| output::print(&format!("  {note}\n")))?;
        }
    }
    if args.json {
        let levels: Vec<&str> = Simd::available().iter().map(|s| s.name()).collect();
        output::print_json(&json!({"full": args.full, "levels": levels, "suites": results, "passed": all_well}))?;
    }
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The suites whose names begin with one of `names`; all without names.
fn select(names: &[String]) -> Result<Vec<&'static Suite>, CliError> {
    if let Some(unknown) = names.iter().find(|n| !SUITES.iter().any(|s| s.name.starts_with(n.as_str()))) {
        let known: Vec<&str> = SUITES.iter().map(|s| s.name).collect();
        return Err(CliError::Usage(format!("parity: expected the beginning of one of {}, found {unknown}", known.join(", "))));
    }
    Ok(SUITES.iter().filter(|s| names.is_empty() || names.iter().any(|n| s.name.starts_with(n.as_str()))).collect())
}
