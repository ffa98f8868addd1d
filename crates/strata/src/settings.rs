//! Every switch, once: flags and environment fill these structs, and reports are made of them.

use clap::builder::{BoolishValueParser, PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, ValueEnum};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use std::path::PathBuf;
use strata_cpu::simd::Simd;
use strata_engine::sampler::SamplingParams;
use strata_ops::qsa::kv::KvKind;
use strata_tiers::{Choices, NgramMode};

use crate::error::CliError;

/// How weights meet activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Act {
    /// Quantised weights take activations of 8 bits: the way to run.
    Int8,
    /// Every weight as f32, with f32 activations: slow, for verification.
    F32,
}

/// How many tokens are drafted at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spec {
    /// As many as pay, none included; none for a model without an MTP block.
    Auto,
    Fixed(usize),
}

impl Spec {
    /// Drafts that pay are rarely longer.
    const AUTO: usize = 6;

    /// The most tokens that are drafted, for a model with or without an MTP block.
    pub fn most(self, has_mtp: bool) -> usize {
        match self {
            Spec::Auto if has_mtp => Spec::AUTO,
            Spec::Auto => 0,
            Spec::Fixed(n) => n,
        }
    }
}

impl Serialize for Spec {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Spec::Auto => s.serialize_str("auto"),
            Spec::Fixed(n) => n.serialize(s),
        }
    }
}

/// Which model, and how it is run.
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "Model and engine")]
pub struct EngineSettings {
    /// GGUF file, or the first of a split model, or synth:NAME:TYPE[,FIELD=N..] for random weights in memory. Without it: the
    /// reference model that is part of this program
    #[arg(long, value_name = "FILE", env = "STRATA_MODEL")]
    pub model: Option<PathBuf>,
    /// GGUF file with the MTP block, for a model file that has none
    #[arg(long, value_name = "FILE", env = "STRATA_MTP")]
    pub mtp: Option<PathBuf>,
    /// Tokens that prompt and answer may have together. Default: for `run` what they need, for `chat` and `serve` up to 32768
    #[arg(long, value_name = "N", env = "STRATA_CTX", value_parser = RangedU64ValueParser::<usize>::new().range(2..))]
    pub ctx: Option<usize>,
    /// Format of the KV cache; f32 only with `--act f32`, whose default it is
    #[arg(long, value_name = "KIND", env = "STRATA_KV", default_value = "int8", default_value_if("act", "f32", "f32"), value_parser = kv_parser())]
    #[serde(serialize_with = "kv_name")]
    pub kv: KvKind,
    /// Activations of the matrix products
    #[arg(long, value_name = "KIND", env = "STRATA_ACT", default_value = "int8")]
    pub act: Act,
    /// Tokens drafted at a time by the MTP block (0 is off); `auto` chooses at every step, by measured times. Never changes the
    /// answer
    #[arg(long, value_name = "N|auto", env = "STRATA_SPEC", default_value = "auto", value_parser = spec_parser())]
    pub spec: Spec,
    /// Drafting stops before a token with a smaller probability than this
    #[arg(long, value_name = "P", env = "STRATA_SPEC_MIN_P", default_value = "0")]
    #[serde(serialize_with = "short")]
    pub spec_min_p: f32,
    /// Attend to every cell in the MTP block, instead of selecting as the trunk does
    #[arg(long, env = "STRATA_MTP_DENSE", value_parser = BoolishValueParser::new())]
    pub mtp_dense: bool,
    /// Threads that compute
    #[arg(long, value_name = "N", env = "STRATA_THREADS", default_value_t = default_threads(), value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    pub threads: usize,
    /// Prompt tokens run at a time
    #[arg(long, value_name = "N", env = "STRATA_CHUNK", default_value = "512", value_parser = RangedU64ValueParser::<usize>::new().range(1..=65_536))]
    pub chunk: usize,
    /// Instructions to use. Default: the best of this CPU
    #[arg(long, value_name = "LEVEL", env = "STRATA_SIMD", default_value = Simd::best().name(), value_parser = simd_parser())]
    #[serde(serialize_with = "simd_name")]
    pub simd: Simd,
    #[command(flatten)]
    #[serde(flatten)]
    pub memory: MemorySettings,
}

/// How rows of the n-gram table are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ngram {
    /// Past the page cache where the table is large and the system can, else from the mapped file.
    Auto,
    /// Past the page cache, or an error.
    Direct,
    /// From the mapped file.
    Mmap,
}

/// A switch that follows the system's limits unless it is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Auto {
    Auto,
    Off,
}

/// Where weights live (docs/MEMORY.md). Never changes the answer.
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "Memory")]
pub struct MemorySettings {
    /// Memory to plan with, such as 48GiB. Default: what this machine, or its control group, has left
    #[arg(long, value_name = "SIZE", env = "STRATA_RAM", value_parser = strata_tiers::parse_size)]
    pub ram: Option<u64>,
    /// Experts to keep in memory, such as 20GiB; the others are read from the file ahead of their use. Default: as many as fit
    #[arg(long, value_name = "SIZE", env = "STRATA_RESIDENT_BUDGET", value_parser = strata_tiers::parse_size)]
    pub resident_budget: Option<u64>,
    /// How rows of the n-gram table are read
    #[arg(long, value_name = "WAY", env = "STRATA_NGRAM", default_value = "auto")]
    pub ngram: Ngram,
    /// Memory for rows of the n-gram table used lately
    #[arg(long, value_name = "SIZE", env = "STRATA_NGRAM_CACHE", default_value = "64MiB", value_parser = strata_tiers::parse_size)]
    pub ngram_cache: u64,
    /// Lock resident weights in memory where the system's limits allow it
    #[arg(long, value_name = "WHEN", env = "STRATA_MLOCK", default_value = "auto")]
    pub mlock: Auto,
    /// Guess the experts of the next layer, so that reads start earlier
    #[arg(long, value_name = "WHEN", env = "STRATA_LOOKAHEAD", default_value = "auto")]
    pub lookahead: Auto,
}

impl MemorySettings {
    /// As the planner takes them.
    pub fn choices(&self) -> Choices {
        Choices {
            ram: self.ram,
            resident_budget: self.resident_budget,
            ngram: match self.ngram {
                Ngram::Auto => NgramMode::Auto,
                Ngram::Direct => NgramMode::Direct,
                Ngram::Mmap => NgramMode::Mmap,
            },
            row_cache: self.ngram_cache,
            lock: self.mlock == Auto::Auto,
        }
    }
}

/// How tokens are drawn and when the answer ends.
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingSettings {
    /// Most tokens to generate
    #[arg(short = 'n', long = "n", value_name = "N", env = "STRATA_N", default_value = "256", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub n: Option<usize>,
    /// Temperature; 0 always takes the most probable token
    #[arg(long, value_name = "T", env = "STRATA_TEMP", default_value = "0")]
    #[serde(serialize_with = "short")]
    pub temp: f32,
    /// Draw among the K most probable tokens (0 is off)
    #[arg(long, value_name = "K", env = "STRATA_TOP_K", default_value = "0")]
    pub top_k: u32,
    /// Draw among the most probable tokens that have this share together (1 is off)
    #[arg(long, value_name = "P", env = "STRATA_TOP_P", default_value = "1")]
    #[serde(serialize_with = "short")]
    pub top_p: f32,
    /// Leave out tokens with less than this share of the most probable one's probability (0 is off)
    #[arg(long, value_name = "P", env = "STRATA_MIN_P", default_value = "0")]
    #[serde(serialize_with = "short")]
    pub min_p: f32,
    /// Divides the logits of tokens that are in the prompt or the answer (1 is off)
    #[arg(long, value_name = "X", env = "STRATA_REPETITION_PENALTY", default_value = "1")]
    #[serde(serialize_with = "short")]
    pub repetition_penalty: f32,
    /// Subtracted from the logits of tokens that are in the answer (0 is off)
    #[arg(long, value_name = "X", env = "STRATA_PRESENCE_PENALTY", default_value = "0", allow_negative_numbers = true)]
    #[serde(serialize_with = "short")]
    pub presence_penalty: f32,
    /// Subtracted once for each time a token is in the answer (0 is off)
    #[arg(long, value_name = "X", env = "STRATA_FREQUENCY_PENALTY", default_value = "0", allow_negative_numbers = true)]
    #[serde(serialize_with = "short")]
    pub frequency_penalty: f32,
    /// How many of the newest tokens the penalties see. Default: all
    #[arg(long, value_name = "N", env = "STRATA_PENALTY_LAST_N")]
    pub penalty_last_n: Option<usize>,
    /// Seed of the draws: the same seed gives the same answer
    #[arg(long, value_name = "S", env = "STRATA_SEED", default_value = "0")]
    pub seed: u64,
    /// End the answer before this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Go on after stop tokens, for benchmarks
    #[arg(long, env = "STRATA_IGNORE_EOS", value_parser = BoolishValueParser::new())]
    pub ignore_eos: bool,
}

impl EngineSettings {
    /// Checks what one flag demands of another.
    ///
    /// # Errors
    /// A combination that does not exist, or instructions that this CPU lacks.
    pub fn check(&self) -> Result<(), CliError> {
        if self.kv == KvKind::F32 && self.act != Act::F32 {
            return Err(CliError::Usage("--kv f32: expected it with --act f32, found --act int8".into()));
        }
        let available = Simd::available();
        if !available.contains(&self.simd) {
            let names: Vec<&str> = available.iter().map(|s| s.name()).collect();
            let (names, found) = (names.join(", "), self.simd.name());
            return Err(CliError::Usage(format!("--simd: expected one of {names} on this CPU, found {found}")));
        }
        Ok(())
    }
}

impl SamplingSettings {
    /// The sampler's parameters.
    ///
    /// # Errors
    /// One of them is out of range.
    pub fn params(&self, logprobs: Option<u8>) -> Result<SamplingParams, CliError> {
        let params = SamplingParams {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            penalty_last_n: self.penalty_last_n,
            seed: self.seed,
            logprobs,
        };
        params.validate()?;
        Ok(params)
    }
}

/// Where the value of a switch comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    Flag,
    Env,
    Default,
}

/// One switch as a report shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Its name in reports: the flag's, with `_` for `-`.
    pub name: String,
    pub flag: String,
    pub env: Option<String>,
    pub value: Value,
    pub origin: Origin,
    /// What it is without flag and environment; `None` where that depends on the input.
    pub default: Option<String>,
    /// True if its value never changes a token.
    pub exact: bool,
}

/// Switches that decide speed and memory but never a token.
const EXACT: [&str; 14] = [
    "mtp",
    "ctx",
    "spec",
    "spec_min_p",
    "mtp_dense",
    "threads",
    "chunk",
    "simd",
    "ram",
    "resident_budget",
    "ngram",
    "ngram_cache",
    "mlock",
    "lookahead",
];

/// The switches of the command `name` that have a value in `values`, in the order of its help.
pub fn report(name: &str, matches: &ArgMatches, values: &Map<String, Value>) -> Vec<Setting> {
    let command = crate::cli::command();
    let (Some(command), Some(matches)) = (command.find_subcommand(name), matches.subcommand_matches(name)) else {
        return Vec::new();
    };
    let of = |arg: &clap::Arg| {
        let name = arg.get_id().as_str();
        let origin = match matches.try_contains_id(name).ok().and_then(|_| matches.value_source(name)) {
            Some(ValueSource::CommandLine) => Origin::Flag,
            Some(ValueSource::EnvVariable) => Origin::Env,
            _ => Origin::Default,
        };
        let defaults: Vec<_> = arg.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
        Some(Setting {
            name: name.to_owned(),
            flag: format!("--{}", arg.get_long()?),
            env: arg.get_env().map(|e| e.to_string_lossy().into_owned()),
            value: values.get(name)?.clone(),
            origin,
            default: (!defaults.is_empty()).then(|| defaults.join(",")),
            exact: EXACT.contains(&name),
        })
    };
    command.get_arguments().filter_map(of).collect()
}

/// A group of switches as JSON, by name.
pub fn values(group: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(group) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// One thread for each core that this process may use.
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Draft lengths.
pub fn spec_parser() -> impl Fn(&str) -> Result<Spec, String> + Clone + Send + Sync + 'static {
    |s| match (s, s.parse()) {
        ("auto", _) => Ok(Spec::Auto),
        (_, Ok(n @ 0..=16)) => Ok(Spec::Fixed(n)),
        _ => Err("expected auto or 0 to 16".into()),
    }
}

/// KV formats by name.
pub fn kv_parser() -> impl TypedValueParser<Value = KvKind> {
    PossibleValuesParser::new(KvKind::ALL.map(KvKind::name)).try_map(|s| KvKind::from_name(&s).ok_or("no such format"))
}

/// Instruction-set levels by name.
pub fn simd_parser() -> impl TypedValueParser<Value = Simd> {
    const LEVELS: [Simd; 5] = [Simd::Scalar, Simd::Avx2, Simd::Avx512, Simd::Avx512Vnni, Simd::Avx512Vbmi];
    PossibleValuesParser::new(LEVELS.map(Simd::name)).try_map(|s| LEVELS.into_iter().find(|l| l.name() == s).ok_or("no such level"))
}

fn kv_name<S: Serializer>(kv: &KvKind, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(kv.name())
}

fn simd_name<S: Serializer>(simd: &Simd, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(simd.name())
}

/// The shortest decimal number that means this f32 (0.7, not 0.699999988).
fn short<S: Serializer>(x: &f32, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_f64(x.to_string().parse().unwrap_or(f64::from(*x)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_switches_exist() {
        let command = crate::cli::command();
        let run = command.find_subcommand("run").unwrap();
        for name in EXACT {
            assert!(run.get_arguments().any(|a| a.get_id() == name), "{name}");
        }
    }

    #[test]
    fn the_command_tree_is_well_formed() {
        crate::cli::command().debug_assert();
    }

    #[test]
    fn short_numbers() {
        #[derive(Serialize)]
        struct X(#[serde(serialize_with = "short")] f32);
        assert_eq!(serde_json::to_string(&[X(0.7), X(1.0), X(1e-5)]).unwrap(), "[0.7,1.0,0.00001]");
    }
}
