//! A whole model: prompts and generated tokens a second, at depths, as llama-bench counts them.

use super::stats::put;
use super::{BenchArgs, print};
use crate::error::CliError;
use crate::load::Loaded;
use crate::output;
use crate::settings::EngineSettings;
use clap::{Args, FromArgMatches};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use strata_cpu::backend::Cpu;
use strata_engine::Engine;
use strata_engine::sampler::SamplingParams;
use strata_quant::testing::SplitMix64;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Test {
    depth: usize,
    /// Prompt tokens, or tokens generated: one of them is 0.
    prompt: usize,
    generate: usize,
}

impl Test {
    fn name(&self) -> String {
        let what = if self.prompt > 0 { format!("pp{}", self.prompt) } else { format!("tg{}", self.generate) };
        if self.depth > 0 { format!("{what} @ d{}", self.depth) } else { what }
    }

    fn capacity(&self) -> usize {
        self.depth + self.prompt + self.generate + 2
    }
}

/// Runs every test of every model.
///
/// # Errors
/// A model or a setting that cannot be used.
pub fn run(args: &BenchArgs) -> Result<ExitCode, CliError> {
    let base = engine_settings(args)?;
    let models = models(&args.models);
    let mut rows = Vec::new();
    for model in models {
        let settings = EngineSettings { model, ..base.clone() };
        let loaded = Loaded::open(&settings)?;
        for simd in args.levels() {
            for threads in args.threads() {
                for kv in &args.kv {
                    for (i, spec) in args.spec.iter().enumerate() {
                        let settings = EngineSettings { threads, kv: *kv, spec: *spec, simd, ..settings.clone() };
                        settings.check()?;
                        // prompts do not draft: once is enough
                        for test in tests(args).filter(|t| i == 0 || t.generate > 0) {
                            rows.push(one(args, &loaded, &settings, test)?);
                        }
                    }
                }
            }
        }
    }
    print(args, "tests", &rows, &columns)?;
    Ok(ExitCode::SUCCESS)
}

/// The engine's settings: those after `--`, and else their defaults.
fn engine_settings(args: &BenchArgs) -> Result<EngineSettings, CliError> {
    let command = EngineSettings::augment_args(clap::Command::new("bench").no_binary_name(true).disable_help_flag(true));
    let matches = command.try_get_matches_from(&args.engine);
    let settings = matches.and_then(|m| EngineSettings::from_arg_matches(&m));
    settings.map_err(|e| CliError::Usage(e.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()))
}

/// Models by name; none is the bundled one. A comma ends a name, but not before a field of a synthetic model.
fn models(names: &[String]) -> Vec<Option<PathBuf>> {
    let mut all: Vec<String> = Vec::new();
    for name in names {
        for (i, part) in name.split(',').enumerate() {
            match all.last_mut() {
                Some(last) if i > 0 && last.starts_with("synth:") && part.contains('=') => *last += &format!(",{part}"),
                _ => all.push(part.to_owned()),
            }
        }
    }
    if all.is_empty() { vec![None] } else { all.into_iter().map(|n| Some(n.into())).collect() }
}

fn tests(args: &BenchArgs) -> impl Iterator<Item = Test> {
    args.depth
        .iter()
        .flat_map(|&depth| {
            let prompts = args.prompt.iter().map(move |&prompt| Test { depth, prompt, generate: 0 });
            prompts.chain(args.generate.iter().map(move |&generate| Test { depth, prompt: 0, generate }))
        })
        .filter(|t| t.prompt + t.generate > 0)
}

/// Times a test, after one run that is not timed.
fn one(args: &BenchArgs, model: &Loaded, settings: &EngineSettings, test: Test) -> Result<Value, CliError> {
    let (mut engine, _tiers) = model.engine(settings, test.capacity())?;
    let ids = ids(model.config.vocab, test.depth.max(1) + test.prompt);
    // drawn at temperature 1, so that tokens, and with them experts, change from step to step
    let params = SamplingParams { temperature: 1.0, seed: 1, ..SamplingParams::default() };
    timed(&mut engine, &ids, &params, warm_up(test))?;
    let mut rates = Vec::with_capacity(args.repetitions);
    for i in 0..args.repetitions {
        output::note_if_terminal(&format!("{} {} {}/{}", model.name(), test.name(), i + 1, args.repetitions));
        rates.push(timed(&mut engine, &ids, &params, test)?);
    }
    let acceptance = engine.stats().acceptance();
    let weights = || model.gguf.tensors().chain(model.mtp.iter().flat_map(|m| m.tensors()));
    let mut row = json!({
        "model": model.name(),
        "model_bytes": weights().map(|t| t.byte_len).sum::<u64>(),
        "parameters": weights().map(|t| t.cols() * t.rows()).sum::<u64>(),
        "simd": settings.simd.name(),
        "threads": settings.threads,
        "kv": settings.kv.name(),
        "spec": settings.spec,
        "chunk": settings.chunk,
        "test": test.name(),
        "depth": test.depth,
        "n_prompt": test.prompt,
        "n_gen": test.generate,
        "acceptance": acceptance,
    });
    put(&mut row, "tok_s", &rates);
    Ok(row)
}

/// A short form of a test.
fn warm_up(test: Test) -> Test {
    Test { depth: test.depth.min(64), prompt: test.prompt.min(64), generate: test.generate.min(8) }
}

/// Tokens a second of one run.
fn timed(engine: &mut Engine<Cpu>, ids: &[u32], params: &SamplingParams, test: Test) -> Result<f64, CliError> {
    let go_on: &mut dyn FnMut(usize, usize) -> bool = &mut |_, _| true;
    engine.clear();
    if test.prompt > 0 {
        if test.depth > 0 {
            engine.start(&ids[..test.depth], params, go_on)?;
        }
        let start = Instant::now();
        // what has been run is not run again
        engine.start(&ids[..test.depth + test.prompt], params, go_on)?;
        return Ok(test.prompt as f64 / start.elapsed().as_secs_f64());
    }
    engine.start(&ids[..test.depth.max(1)], params, go_on)?;
    let mut out = Vec::with_capacity(test.generate + 32);
    let start = Instant::now();
    while out.len() < test.generate && !engine.is_full() {
        engine.step(params, &|_| false, &mut out)?;
    }
    Ok(out.len() as f64 / start.elapsed().as_secs_f64())
}

/// Random ids, none of the last few, which are control tokens in most vocabularies.
fn ids(vocab: usize, n: usize) -> Vec<u32> {
    let mut rng = SplitMix64::new(7);
    let most = vocab.saturating_sub(16).max(1) as u64;
    (0..n).map(|_| (rng.next_u64() % most) as u32).collect()
}

fn columns(r: &Value) -> Vec<(&'static str, String)> {
    let text = |k: &str| r[k].as_str().map_or_else(|| r[k].to_string(), str::to_owned);
    let number = |k: &str| r[k].as_f64().unwrap_or(0.0);
    let file = text("model");
    let name = if file.starts_with("synth:") { file } else { file.rsplit('/').next().unwrap_or_default().to_owned() };
    let mut columns = vec![
        ("model", name),
        ("size", output::bytes(r["model_bytes"].as_u64().unwrap_or(0))),
        ("params", format!("{:.2} B", number("parameters") / 1e9)),
        ("simd", text("simd")),
        ("threads", text("threads")),
        ("kv", text("kv")),
        ("spec", text("spec")),
        ("test", text("test")),
        ("t/s, median", format!("{:.2} ± {:.2}", number("tok_s_median"), number("tok_s_mad"))),
        ("min to max", format!("{:.2} to {:.2}", number("tok_s_min"), number("tok_s_max"))),
    ];
    if let Some(share) = r["acceptance"].as_f64() {
        columns[6].1 += &format!(" ({:.0} % right)", 100.0 * share);
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_models_are_cut_at_commas() {
        let got = models(&["a.gguf,synth:refmodel:Q4_K,layers=2,experts=4,b.gguf".into(), "layers=2".into()]);
        let want = ["a.gguf", "synth:refmodel:Q4_K,layers=2,experts=4", "b.gguf", "layers=2"];
        assert_eq!(got, want.map(|w| Some(PathBuf::from(w))));
        assert_eq!(models(&[]), [None]);
    }

    #[test]
    fn tests_are_named_as_elsewhere() {
        let t = |depth, prompt, generate| Test { depth, prompt, generate }.name();
        assert_eq!((t(0, 512, 0), t(4096, 0, 64)), ("pp512".into(), "tg64 @ d4096".into()));
    }
}
