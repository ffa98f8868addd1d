//! `strata perplexity` and `strata kld`: how well a model predicts a text, and how far its predictions are from another's.

mod logits_file;

use crate::error::CliError;
use crate::load::Loaded;
use crate::settings::{Act, EngineSettings, Spec};
use crate::{output, progress, prompt};
use clap::builder::RangedU64ValueParser;
use clap::{ArgGroup, Args};
use logits_file::{Header, LogitsReader, LogitsWriter};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use strata_cpu::backend::Cpu;
use strata_engine::evaluate::{Divergence, Perplexity, Window, windows};
use strata_engine::{Engine, score_pair};

/// Tokens of a window without `--ctx`.
const WINDOW: usize = 2048;
/// Bytes of logits that one head call may give.
const LOGIT_BYTES: usize = 32 << 20;
/// Largest text that is read.
const MAX_TEXT: u64 = 1 << 30;

/// The text and how it is cut.
#[derive(Args, Debug)]
pub struct TextArgs {
    /// File that holds the text
    #[arg(long, value_name = "FILE")]
    pub text: PathBuf,
    /// Tokens from the start of one window (of --ctx tokens) to the next; each counts its last N positions, the first all.
    /// Default: --ctx, windows that do not overlap
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub stride: Option<usize>,
    /// Use at most this many windows
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub windows: Option<usize>,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// `strata perplexity`.
#[derive(Args, Debug)]
pub struct PerplexityArgs {
    #[command(flatten)]
    pub text: TextArgs,
    #[command(flatten)]
    pub engine: EngineSettings,
}

/// `strata kld`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("against").args(["base", "base_logits", "save_logits"]).required(true))]
pub struct KldArgs {
    /// Model to compare with, run in step with --model: a GGUF file, `bundled`, or synth:...
    #[arg(long, value_name = "FILE")]
    pub base: Option<PathBuf>,
    /// KV cache of the base. Default: --kv
    #[arg(long, value_name = "KIND", requires = "base", value_parser = crate::settings::kv_parser())]
    pub base_kv: Option<strata_ops::qsa::kv::KvKind>,
    /// Activations of the base. Default: --act
    #[arg(long, value_name = "KIND", requires = "base")]
    pub base_act: Option<Act>,
    /// Logits to compare with, saved earlier from the same text with the same --ctx and --stride
    #[arg(long, value_name = "FILE")]
    pub base_logits: Option<PathBuf>,
    /// Save the logits of --model (4 bytes an id and position) instead of comparing them
    #[arg(long, value_name = "FILE")]
    pub save_logits: Option<PathBuf>,
    #[command(flatten)]
    pub text: TextArgs,
    #[command(flatten)]
    pub engine: EngineSettings,
}

/// A text as windows of ids.
struct Job {
    ids: Vec<u32>,
    windows: Vec<Window>,
    context: usize,
    stride: usize,
}

impl Job {
    /// Reads and cuts the text.
    fn new(args: &TextArgs, settings: &EngineSettings, model: &Loaded) -> Result<Job, CliError> {
        let (text, source_name) = prompt::text(Some(&args.text), None, MAX_TEXT, "it is held in memory")?;
        let ids = model.tokenizer.encode(&text, false);
        let ids = ids.map_err(|error| CliError::Tokenizer { file: model.name(), error })?;
        let context = settings.ctx.unwrap_or(WINDOW.min(model.config.context));
        let stride = args.stride.unwrap_or(context);
        if stride > context {
            return Err(CliError::Usage(format!("--stride: expected at most the {context} tokens of a window, found {stride}")));
        }
        let windows: Vec<Window> = windows(ids.len(), context, stride).take(args.windows.unwrap_or(usize::MAX)).collect();
        if windows.is_empty() {
            return Err(CliError::Usage(format!("{source_name}: expected a text of at least 2 tokens, found {}", ids.len())));
        }
        Ok(Job { ids, windows, context, stride })
    }

    /// Positions that count.
    fn scored(&self) -> usize {
        self.windows.iter().map(|w| w.len - w.from).sum()
    }

    /// Positions that are run.
    fn run(&self) -> usize {
        self.windows.iter().map(|w| w.len).sum()
    }

    fn window(&self, w: &Window) -> &[u32] {
        &self.ids[w.start..w.start + w.len]
    }

    fn header(&self, vocab: usize) -> Header {
        let (context, stride, scored) = (self.context as u64, self.stride as u64, self.scored() as u64);
        Header { vocab: vocab as u64, context, stride, scored, text: crate::hash::token_hash(&self.ids) }
    }

    /// What both reports say of the text.
    fn json(&self) -> Value {
        json!({"tokens": self.ids.len(), "scored": self.scored(), "windows": self.windows.len(), "ctx": self.context, "stride": self.stride})
    }

    fn text(&self, seconds: f64) -> String {
        format!(
            "{} of {} tokens scored in {} windows of {}; {:.1} s, {:.1} tok/s",
            self.scored(),
            self.ids.len(),
            self.windows.len(),
            self.context,
            seconds,
            self.run() as f64 / seconds.max(1e-9)
        )
    }

    /// Runs `one(window)` for each, with progress.
    fn each(&self, mut one: impl FnMut(&Window) -> Result<(), CliError>) -> Result<f64, CliError> {
        let line = progress::tokens(self.run() as u64);
        let (start, mut done) = (Instant::now(), 0);
        for w in &self.windows {
            one(w)?;
            done += w.len as u64;
            line.set(done);
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// An engine of a model for windows of this job.
    fn engine(&self, model: &Loaded, settings: &EngineSettings) -> Result<Engine<Cpu>, CliError> {
        let rows = (LOGIT_BYTES / size_of::<f32>() / model.config.vocab.max(1)).clamp(1, 256);
        // no drafts: every position's logits are wanted
        model.engine_for(&EngineSettings { spec: Spec::Fixed(0), ..settings.clone() }, self.context.max(2), rows)
    }
}

/// Prints the perplexity of a text.
///
/// # Errors
/// Settings, a model or a text that cannot be used.
pub fn perplexity(args: &PerplexityArgs) -> Result<ExitCode, CliError> {
    let model = Loaded::open(&args.engine)?;
    let job = Job::new(&args.text, &args.engine, &model)?;
    let mut engine = job.engine(&model, &args.engine)?;
    let mut p = Perplexity::default();
    let seconds =
        job.each(|w| Ok(engine.score(job.window(w), w.from, None, &mut |at, logits| p.add(logits, job.ids[w.start + at + 1]))?))?;
    if args.text.json {
        let mut v = json!({
            "model": model.name(), "perplexity": p.value(), "error": p.error(), "loss": p.loss.mean, "loss_error": p.loss.error(),
            "seconds": seconds, "tok_s": job.run() as f64 / seconds.max(1e-9),
        });
        v["text"] = job.json();
        output::print_json(&v)?;
    } else {
        output::print(&format!("perplexity {:.4} +/- {:.4}\n", p.value(), p.error()))?;
        output::note(&job.text(seconds));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints how far a model's predictions are from another's, or saves them.
///
/// # Errors
/// Settings, models or a text that cannot be used, or saved logits of something else.
pub fn kld(args: &KldArgs) -> Result<ExitCode, CliError> {
    let model = Loaded::open(&args.engine)?;
    let job = Job::new(&args.text, &args.engine, &model)?;
    let header = job.header(model.config.vocab);
    if let Some(path) = &args.save_logits {
        let mut engine = job.engine(&model, &args.engine)?;
        let mut file = LogitsWriter::create(path, &header)?;
        let seconds = job.each(|w| {
            let mut failed = None;
            engine.score(job.window(w), w.from, None, &mut |_, logits| failed = failed.take().or(file.write(logits).err()))?;
            failed.map_or(Ok(()), Err)
        })?;
        file.finish()?;
        output::print(&format!("{}: {} rows of {} logits\n", path.display(), header.scored, header.vocab))?;
        output::note(&job.text(seconds));
        return Ok(ExitCode::SUCCESS);
    }
    let mut d = Divergence::default();
    let (seconds, base_name) = if let Some(path) = &args.base_logits {
        let mut file = LogitsReader::open(path, &header)?;
        let mut engine = job.engine(&model, &args.engine)?;
        let seconds = job.each(|w| {
            let mut failed = None;
            engine.score(job.window(w), w.from, None, &mut |at, logits| match file.next() {
                Ok(base) => d.add(base, logits, job.ids[w.start + at + 1]),
                Err(e) => failed = failed.take().or(Some(e)),
            })?;
            failed.map_or(Ok(()), Err)
        })?;
        (seconds, path.display().to_string())
    } else {
        let bundled = args.base.as_ref().is_some_and(|p| p.as_os_str() == "bundled");
        let base_settings = EngineSettings {
            model: args.base.clone().filter(|_| !bundled),
            mtp: None,
            kv: args.base_kv.unwrap_or(args.engine.kv),
            act: args.base_act.unwrap_or(args.engine.act),
            ..args.engine.clone()
        };
        let base = Loaded::open(&base_settings)?;
        same_ids(&job, args, &base_settings, &base)?;
        let (mut a, mut b) = (job.engine(&model, &args.engine)?, job.engine(&base, &base_settings)?);
        let seconds = job.each(|w| {
            Ok(score_pair(&mut a, &mut b, job.window(w), w.from, &mut |at, model, base| d.add(base, model, job.ids[w.start + at + 1]))?)
        })?;
        (seconds, base.name())
    };
    report(args, &job, &d, &model.name(), &base_name, seconds)
}

/// An error unless the base's tokenizer cuts the text alike.
fn same_ids(job: &Job, args: &KldArgs, settings: &EngineSettings, base: &Loaded) -> Result<(), CliError> {
    let other = Job::new(&args.text, settings, base)?;
    if other.ids == job.ids {
        return Ok(());
    }
    let at = other.ids.iter().zip(&job.ids).position(|(a, b)| a != b).unwrap_or(other.ids.len().min(job.ids.len()));
    let found = format!("{} ids, the first other one at {at}", other.ids.len());
    Err(CliError::Usage(format!("{}: expected the {} ids that --model makes of the text, found {found}", base.name(), job.ids.len())))
}

fn report(args: &KldArgs, job: &Job, d: &Divergence, model: &str, base: &str, seconds: f64) -> Result<ExitCode, CliError> {
    let [median, p90, p95, p99, p999, max] = d.quantiles([0.5, 0.9, 0.95, 0.99, 0.999, 1.0]);
    if args.text.json {
        let mut v = json!({
            "model": model, "base": base,
            "kl": {"mean": d.kl_mean.mean, "error": d.kl_mean.error(), "median": median, "p90": p90, "p95": p95, "p99": p99, "p999": p999, "max": max},
            "same_top": {"share": d.same_top.mean, "error": d.same_top.error()},
            "perplexity": d.perplexity.value(), "perplexity_error": d.perplexity.error(),
            "base_perplexity": d.base_perplexity.value(), "base_perplexity_error": d.base_perplexity.error(),
            "loss_difference": {"mean": d.loss_difference.mean, "error": d.loss_difference.error()},
            "seconds": seconds, "tok_s": job.run() as f64 / seconds.max(1e-9),
        });
        v["text"] = job.json();
        output::print_json(&v)?;
        return Ok(ExitCode::SUCCESS);
    }
    let difference = d.loss_difference;
    output::print(&format!(
        "KL divergence of {model} from {base}, nats\n  mean    {:.6} +/- {:.6}\n  median  {median:.6}\n  90 %    {p90:.6}\n  95 %    {p95:.6}\n  99 %    {p99:.6}\n  99.9 %  {p999:.6}\n  largest {max:.6}\n\
         same most probable token {:.3} +/- {:.3} %\nperplexity {:.4} +/- {:.4}, base {:.4} +/- {:.4}, ratio {:.6} +/- {:.6}\n",
        d.kl_mean.mean,
        d.kl_mean.error(),
        100.0 * d.same_top.mean,
        100.0 * d.same_top.error(),
        d.perplexity.value(),
        d.perplexity.error(),
        d.base_perplexity.value(),
        d.base_perplexity.error(),
        difference.mean.exp(),
        difference.mean.exp() * difference.error(),
    ))?;
    output::note(&job.text(seconds));
    Ok(ExitCode::SUCCESS)
}
