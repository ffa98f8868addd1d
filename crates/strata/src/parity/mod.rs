//! `strata parity`: every exactness suite, on this machine.

mod engine_hash;
mod format_hash;

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
use strata_gpu::Device;
use strata_gpu::parity::arch_defaults_cases;
use strata_gpu::shim::ShimSide;

/// What a suite tells while it runs.
enum Event {
    Case(CaseReport),
    /// A line for the report.
    Note(String),
}

type Report<'a> = &'a mut dyn FnMut(Event);

/// Runs a suite: published sizes or small ones.
type Run = Box<dyn Fn(bool, Report<'_>) -> Result<(), CliError>>;

/// A suite: fast code against its definition, by bits.
struct Suite {
    name: &'static str,
    about: &'static str,
    run: Run,
}

fn suite(name: &'static str, about: &'static str, run: impl Fn(bool, Report<'_>) -> Result<(), CliError> + 'static) -> Suite {
    Suite { name, about, run: Box::new(run) }
}

/// A suite of an op at every level of this CPU.
fn levels(name: &'static str, about: &'static str, of: fn(Arm, bool, &mut dyn FnMut(CaseReport))) -> Suite {
    suite(name, about, move |full, report| {
        for level in Simd::available() {
            of(Arm::Level(level), full, &mut |case| report(Event::Case(at_level(case, level))));
        }
        Ok(())
    })
}

/// The case with its level named, where its suite has not done so.
fn at_level(c: CaseReport, level: Simd) -> CaseReport {
    let named = c.case.split(' ').any(|word| word == level.name());
    if named { c } else { CaseReport { case: format!("{} {}", level.name(), c.case), ..c } }
}

/// The suites of the CPU's own code.
fn cpu_suites() -> Vec<Suite> {
    vec![
        levels("ops_parity", "elementary functions, norms, gates, gated DeltaNet, experts' sums", cpu::ops_parity_of),
        levels("matmul_parity", "matrix products, every format", matmul_parity_of),
        levels("qsa_scores_parity", "block scores of the sparse attention", cpu::qsa_scores_parity_of),
        levels("qsa_topk_active_parity", "top-k of the sparse attention, where it selects", cpu::qsa_topk_active_parity_of),
        levels("qsa_attn_parity", "attention over selected cells, every KV format", cpu::qsa_attn_parity_of),
        suite("arch_defaults_test", "GPU defaults of architectures: exact, in effect, overridden by explicit values", |_full, report| {
            arch_defaults_cases(&mut |case| report(Event::Case(case)));
            Ok(())
        }),
        suite("engine_hash", "the bundled model's tokens: instructions, threads, chunks, speculation; every KV format", engine_hash::run),
        suite("format_hash", "synthetic models of every weight format, rows up to 10,240 wide: the same matrix", format_hash::run),
    ]
}

/// The suites of GPU kernels, on each of the devices.
fn gpu_suites(devices: Vec<Device>) -> Vec<Suite> {
    let over = |s: &'static strata_gpu::parity::Suite| {
        let devices = devices.clone();
        suite(s.name, s.about, move |full, report| {
            for device in &devices {
                let arch = &device.info().arch;
                (s.run)(device, full, &mut |c| report(Event::Case(CaseReport { case: format!("{arch} {}", c.case), ..c })))?;
            }
            Ok(())
        })
    };
    strata_gpu::parity::SUITES.iter().map(over).collect()
}

/// The suites of a backend; `shim` is all three of its sides.
fn suites(backend: &str) -> Result<Vec<Suite>, CliError> {
    let open = |names: &[&str]| names.iter().map(|n| Device::open(n)).collect::<Result<Vec<_>, _>>();
    Ok(match backend {
        "cpu" => cpu_suites(),
        "shim" => gpu_suites(open(&ShimSide::ALL.map(ShimSide::arch))?),
        one => gpu_suites(open(&[one])?),
    })
}

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
    let suites = select(suites(&args.backend)?, &args.names)?;
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
        output::print_json(&json!({"full": args.full, "backend": args.backend, "levels": levels, "suites": results, "passed": all_well}))?;
    }
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The suites whose names begin with one of `names`; all without names.
fn select(suites: Vec<Suite>, names: &[String]) -> Result<Vec<Suite>, CliError> {
    if let Some(unknown) = names.iter().find(|n| !suites.iter().any(|s| s.name.starts_with(n.as_str()))) {
        let known: Vec<&str> = suites.iter().map(|s| s.name).collect();
        return Err(CliError::Usage(format!("parity: expected the beginning of one of {}, found {unknown}", known.join(", "))));
    }
    Ok(suites.into_iter().filter(|s| names.is_empty() || names.iter().any(|n| s.name.starts_with(n.as_str()))).collect())
}
