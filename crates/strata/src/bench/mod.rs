//! `strata bench`: speed of a whole model, of single ops of the CPU, and of a card's kernels.

mod gpu;
mod model;
mod ops;
mod stats;

use crate::error::CliError;
use crate::output;
use crate::settings::{Spec, kv_parser, spec_parser};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::process::ExitCode;
use strata_cpu::simd::Simd;
use strata_ops::qsa::kv::KvKind;

/// `strata bench`.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Model files, or synth:... names; several are separated by commas. Without it: the reference model
    #[arg(short = 'm', long = "model", value_name = "FILE[,FILE..]")]
    pub models: Vec<String>,
    /// Prompt lengths; 0 leaves the test out
    #[arg(short = 'p', long, value_name = "N[,N..]", value_delimiter = ',', default_value = "512")]
    pub prompt: Vec<usize>,
    /// Numbers of generated tokens; 0 leaves the test out
    #[arg(short = 'n', long, value_name = "N[,N..]", value_delimiter = ',', default_value = "128")]
    pub generate: Vec<usize>,
    /// Tokens in the context before each test
    #[arg(short = 'd', long, value_name = "N[,N..]", value_delimiter = ',', default_value = "0")]
    pub depth: Vec<usize>,
    /// Numbers of threads. Default: one a core
    #[arg(short = 't', long, value_name = "N[,N..]", value_delimiter = ',', value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    pub threads: Vec<usize>,
    /// Timed repetitions of each test, or rounds of each op; one more is run before, untimed
    #[arg(short = 'r', long, value_name = "N", default_value = "5", value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub repetitions: usize,
    /// Formats of the KV cache
    #[arg(long, value_name = "KIND[,KIND..]", value_delimiter = ',', default_value = "int8", value_parser = kv_parser())]
    pub kv: Vec<KvKind>,
    /// Draft lengths, or auto, of the generating tests
    #[arg(long, value_name = "N[,N..]", value_delimiter = ',', default_value = "0", value_parser = spec_parser())]
    pub spec: Vec<Spec>,
    /// Instructions to use. Default: the best of this CPU
    #[arg(long, value_name = "LEVEL[,LEVEL..]", value_delimiter = ',', value_parser = crate::settings::simd_parser())]
    pub simd: Vec<Simd>,
    /// Single ops instead of a model, by name or the start of it (see --list)
    #[arg(long = "op", value_name = "NAME[,NAME..]", value_delimiter = ',')]
    pub ops: Vec<String>,
    /// Formats of the ops' matrices. Default: all
    #[arg(long, value_name = "TYPE[,TYPE..]", value_delimiter = ',')]
    pub types: Vec<String>,
    /// The numbers of a GPU benchmark's published form, in order (see --list); those left out take their defaults
    pub numbers: Vec<usize>,
    /// Where to measure. Default: cpu, or cuda for the name of a GPU benchmark
    #[arg(long, value_name = "BACKEND", value_parser = ["cpu", "cuda", "hip", "shim-cuda", "shim-gfx12", "shim-gfx11"])]
    pub backend: Option<String>,
    /// List the ops and the GPU benchmarks
    #[arg(long)]
    pub list: bool,
    /// Print one JSON object
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print comma-separated values
    #[arg(long)]
    pub csv: bool,
    /// Further flags of the engine, after `--`: those of `run`, such as --chunk
    #[arg(last = true, value_name = "ENGINE FLAGS")]
    pub engine: Vec<OsString>,
}

/// Runs the benchmarks.
///
/// # Errors
/// An unknown name, a model that cannot be run, or a device that is not there or fails.
pub fn run(args: &BenchArgs) -> Result<ExitCode, CliError> {
    if args.list {
        let ops = ops::OPS.iter().map(|o| format!("{:<24} cpu: {}\n", o.name, o.about));
        return output::print(&ops.chain(gpu::list()).collect::<String>()).map(|()| ExitCode::SUCCESS);
    }
    let for_card = !args.ops.is_empty() && args.ops.iter().all(|o| !ops::is_one(o) && gpu::is_one(o));
    match args.backend.as_deref().unwrap_or(if for_card { "cuda" } else { "cpu" }) {
        "cpu" if args.ops.is_empty() => model::run(args),
        "cpu" => ops::run(args),
        card => gpu::run(card, args),
    }
}

impl BenchArgs {
    fn threads(&self) -> Vec<usize> {
        if self.threads.is_empty() { vec![crate::settings::default_threads()] } else { self.threads.clone() }
    }

    fn levels(&self) -> Vec<Simd> {
        if self.simd.is_empty() { vec![Simd::best()] } else { self.simd.clone() }
    }
}

/// The program and the machine, as every report names them.
fn machine() -> Value {
    json!({
        "strata": env!("CARGO_PKG_VERSION"),
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
        "cpu": crate::doctor::cpu_model(),
        "architecture": std::env::consts::ARCH,
        "cores": crate::settings::default_threads(),
        "simd_available": Simd::available().iter().map(|s| s.name()).collect::<Vec<_>>(),
    })
}

/// Prints rows: one object, comma-separated values, or a table. A column is its name, the text of a row's value, and whether it
/// is a number.
fn print(args: &BenchArgs, what: &str, rows: &[Value], table: &dyn Fn(&Value) -> Vec<(&'static str, String)>) -> Result<(), CliError> {
    if args.json {
        let mut report = machine();
        report[what] = json!(rows);
        return output::print_json(&report);
    }
    if args.csv {
        return output::print(&csv(rows));
    }
    let cells: Vec<Vec<(&str, String)>> = rows.iter().map(table).collect();
    let Some(first) = cells.first() else { return Ok(()) };
    let width = |i: usize| cells.iter().map(|r| r[i].1.chars().count()).chain([first[i].0.len()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..first.len()).map(width).collect();
    let line = |row: &mut dyn Iterator<Item = &str>| {
        let cells = row.zip(&widths).map(|(c, w)| format!(" {c:<w$} |", w = *w));
        format!("|{}\n", cells.collect::<String>())
    };
    let rules: Vec<String> = widths.iter().map(|w| "-".repeat(*w)).collect();
    let mut text = line(&mut first.iter().map(|c| c.0));
    text += &line(&mut rules.iter().map(String::as_str));
    cells.iter().for_each(|r| text += &line(&mut r.iter().map(|c| c.1.as_str())));
    let m = machine();
    text += &format!(
        "\nstrata {} ({}), {}\n",
        env!("CARGO_PKG_VERSION"),
        m["build"].as_str().unwrap_or(""),
        m["cpu"].as_str().unwrap_or("unknown CPU")
    );
    output::print(&text)
}

/// Rows of objects with the same keys; lists are joined by spaces.
fn csv(rows: &[Value]) -> String {
    let text = |v: &Value| match v {
        Value::String(s) => s.clone(),
        Value::Null => String::new(),
        Value::Array(a) => a.iter().map(Value::to_string).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    };
    let quoted = |s: String| if s.contains([',', '"', '\n']) { format!("\"{}\"", s.replace('"', "\"\"")) } else { s };
    let keys: Vec<&String> = rows.first().and_then(Value::as_object).into_iter().flat_map(|o| o.keys()).collect();
    let row = |v: &Value| keys.iter().map(|k| quoted(text(&v[k.as_str()]))).collect::<Vec<_>>().join(",");
    let head = keys.iter().map(|k| (*k).clone()).collect::<Vec<_>>().join(",");
    std::iter::once(head).chain(rows.iter().map(row)).map(|l| l + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_need_quotes_get_them() {
        let rows = [json!({"a": "x,y", "b": [1.5, 2], "c": null}), json!({"a": "say \"hi\"", "b": [], "c": 3})];
        assert_eq!(csv(&rows), "a,b,c\n\"x,y\",1.5 2,\n\"say \"\"hi\"\"\",,3\n");
        assert_eq!(csv(&[]), "\n");
    }
}
