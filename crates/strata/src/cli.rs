//! Commands and flags.

use crate::settings::{EngineSettings, SamplingSettings};
use clap::builder::RangedU64ValueParser;
use clap::{ArgGroup, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

/// Runs qwen4exp models from GGUF files on the CPU: every answer is the same whatever the instruction set, the number of
/// threads, the chunk size and the speculation.
#[derive(Parser, Debug)]
#[command(name = "strata", version, about, long_about = None, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Answers one prompt
    Run(RunArgs),
    /// Holds a conversation
    Chat(ChatArgs),
    /// Serves the model over HTTP: OpenAI's and Anthropic's APIs, and a page to chat (also `strata --serve`)
    Serve(ServeArgs),
    /// Shows what a GGUF file holds
    Inspect(InspectArgs),
    /// Writes a model with its weights in another format
    Quantize(QuantizeArgs),
    /// Turns text into token ids, or ids into text
    Tokenize(TokenizeArgs),
    /// Shows this machine, the ops it gets, and every switch
    Doctor(DoctorArgs),
    /// Proves on this machine that the fast code gives the bits of the definitions
    Parity(ParityArgs),
    /// Times a model, single ops, or the kernels of a device
    Bench(crate::bench::BenchArgs),
    /// How well a model predicts a text
    Perplexity(crate::evaluate::PerplexityArgs),
    /// How far a model's predictions are from another's
    Kld(crate::evaluate::KldArgs),
    /// Writes a synthetic model: random weights, any size
    Synth(crate::synth::SynthArgs),
    /// The GPU kernels: list, resources, dispatch tables
    Kernels(KernelsArgs),
}

/// The text or the ids to start from.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("input").args(["prompt", "prompt_file", "ids"]).required(true))]
pub struct PromptArgs {
    /// The prompt; `-` reads it from standard input
    pub prompt: Option<OsString>,
    /// File that holds the prompt
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
    /// The prompt as token ids, taken as they are
    #[arg(long, value_name = "ID,ID,...", value_delimiter = ',', num_args = 1)]
    pub ids: Option<Vec<u32>>,
    /// Take the prompt as plain text, without the chat template
    #[arg(long, conflicts_with_all = ["chat", "system", "think"])]
    pub raw: bool,
    /// Put the prompt into the model's chat template as the user's message. Default for text where the model has one
    #[arg(long, conflicts_with = "ids")]
    pub chat: bool,
    /// The system's message
    #[arg(long, value_name = "TEXT", conflicts_with = "ids")]
    pub system: Option<String>,
    /// Let the model think before it answers
    #[arg(long, conflicts_with = "ids")]
    pub think: bool,
}

/// `strata run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    pub input: PromptArgs,
    #[command(flatten)]
    pub engine: EngineSettings,
    #[command(flatten)]
    pub sampling: SamplingSettings,
    /// Print one JSON object at the end instead of the text as it comes
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// With each token its log-probability, and those of the N most probable tokens of its place (with --json)
    #[arg(long, value_name = "N", requires = "json", help_heading = "Output", value_parser = RangedU64ValueParser::<u8>::new())]
    pub logprobs: Option<u8>,
}

/// `strata chat`.
#[derive(Args, Debug)]
pub struct ChatArgs {
    /// The system's message
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Let the model think before it answers; /think changes it
    #[arg(long)]
    pub think: bool,
    /// After each answer print speeds and counts on standard error
    #[arg(long)]
    pub stats: bool,
    #[command(flatten)]
    pub engine: EngineSettings,
    #[command(flatten)]
    pub sampling: SamplingSettings,
}

/// `strata serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Address to listen at: 127.0.0.1 is for this machine alone, 0.0.0.0 for all
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", help_heading = "Server")]
    pub host: IpAddr,
    /// Port to listen at; 0 takes a free one
    #[arg(long, value_name = "N", default_value = "8080", help_heading = "Server")]
    pub port: u16,
    /// Requests must carry a key of this file, one a line; SIGHUP reads it again
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    pub api_key_file: Option<PathBuf>,
    /// Listen for other machines without a key
    #[arg(long, help_heading = "Server")]
    pub insecure: bool,
    /// A name besides this machine's own that requests may be addressed to; may be given several times, `*` is any
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    pub allowed_host: Vec<String>,
    /// A web page, such as https://example.org, that may use the API; may be given several times, `*` is any
    #[arg(long, value_name = "ORIGIN", help_heading = "Server")]
    pub cors_origin: Vec<String>,
    /// Another name of the model in requests; may be given several times, `*` is any
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    pub alias: Vec<String>,
    /// Sequences that run at a time, each with a context of its own
    #[arg(long, value_name = "N", default_value = "4", help_heading = "Server", value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    pub max_seqs: usize,
    /// Requests that wait at most; those that come then are refused
    #[arg(long, value_name = "N", default_value = "128", help_heading = "Server", value_parser = RangedU64ValueParser::<usize>::new().range(1..=65_536))]
    pub queue: usize,
    /// Memory for states of prompts and answers, so that what begins alike is read once; 0 keeps only what the sequences hold
    #[arg(long, value_name = "SIZE", default_value = "1GiB", help_heading = "Prefix cache", value_parser = strata_tiers::parse_size)]
    pub cache: u64,
    /// Directory for the states at the ends of answers and of system turns: they outlive the server
    #[arg(long, value_name = "DIR", help_heading = "Prefix cache")]
    pub cache_dir: Option<PathBuf>,
    /// Bytes of the files in --cache-dir at most
    #[arg(long, value_name = "SIZE", default_value = "16GiB", requires = "cache_dir", help_heading = "Prefix cache", value_parser = strata_tiers::parse_size)]
    pub cache_disk: u64,
    /// Directory where /slots saves and restores sessions; without it these actions are refused
    #[arg(long, value_name = "DIR", help_heading = "Prefix cache")]
    pub slot_save_path: Option<PathBuf>,
    /// Bytes of a request at most
    #[arg(long, value_name = "SIZE", default_value = "16MiB", help_heading = "Server", value_parser = strata_tiers::parse_size)]
    pub max_body: u64,
    /// Seconds after which a request is ended, waiting included. Default: none
    #[arg(long, value_name = "SECONDS", help_heading = "Server", value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    pub request_timeout: Option<u64>,
    /// Seconds that answers have to end when the server is told to
    #[arg(long, value_name = "SECONDS", default_value = "30", help_heading = "Server", value_parser = RangedU64ValueParser::<u64>::new().range(0..=86_400))]
    pub grace: u64,
    /// Write a line about each request on standard error: never what it says
    #[arg(long, help_heading = "Server")]
    pub log: bool,
    #[command(flatten)]
    pub engine: EngineSettings,
}

/// `strata inspect`.
#[derive(Args, Debug)]
pub struct InspectArgs {
    /// GGUF file, or the first of a split model. Without it: the reference model that is part of this program
    #[arg(value_name = "FILE", env = "STRATA_MODEL")]
    pub file: Option<PathBuf>,
    /// List every tensor, not only the largest (--json always does)
    #[arg(long)]
    pub tensors: bool,
    /// Print long arrays of the metadata whole
    #[arg(long)]
    pub full: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `strata quantize`.
#[derive(Args, Debug)]
pub struct QuantizeArgs {
    /// GGUF file, or the first of a split model
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// File to write, whole or not at all
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// Format of the matrices, for example Q4_K or IQ3_S. Rows that are no whole number of its blocks take a 32-wide format;
    /// token_embd and output at least Q6_K; vectors, norms, routers, injections, convolutions, alpha, beta and the indexer stay
    #[arg(long = "type", value_name = "T")]
    pub dtype: String,
    /// Format of the tensors whose names match, before all other rules; `source` leaves them as they are. The first that matches
    /// counts
    #[arg(long, value_name = "REGEX=T")]
    pub keep: Vec<String>,
    /// Importance of the inputs of each matrix, as llama.cpp's tools write it (GGUF or .dat)
    #[arg(long, value_name = "FILE")]
    pub imatrix: Option<PathBuf>,
    /// Threads; the bytes do not depend on it
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    pub threads: Option<usize>,
    /// Print the plan and write nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// `strata tokenize`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("input").args(["text", "file", "ids"]).required(true))]
pub struct TokenizeArgs {
    /// The text; `-` reads it from standard input
    pub text: Option<OsString>,
    /// File that holds the text
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Ids to turn into text instead
    #[arg(long, value_name = "ID,ID,...", value_delimiter = ',', num_args = 1)]
    pub ids: Option<Vec<u32>>,
    /// Take strings such as <|im_end|> in the text for their tokens
    #[arg(long, conflicts_with = "ids")]
    pub special: bool,
    /// Print only the ids, as `run --ids` takes them
    #[arg(long, conflicts_with = "json")]
    pub ids_only: bool,
    /// GGUF file whose tokenizer to use. Without it: the reference model that is part of this program
    #[arg(long, value_name = "FILE", env = "STRATA_MODEL")]
    pub model: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `strata doctor`: the switches of `run`, to see what they come to.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub engine: EngineSettings,
    #[command(flatten)]
    pub sampling: SamplingSettings,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// `strata parity`.
#[derive(Args, Debug)]
pub struct ParityArgs {
    /// Suites to run, by name or the start of it. Default: all
    pub names: Vec<String>,
    /// What to compare with the definitions: this CPU's own code, the GPU kernels run on the CPU (shim, or one of its sides), or a card
    #[arg(long, value_name = "BACKEND", default_value = "cpu", value_parser = ["cpu", "shim", "shim-cuda", "shim-gfx12", "shim-gfx11", "cuda", "hip"])]
    pub backend: String,
    /// List the suites
    #[arg(long)]
    pub list: bool,
    /// Run the published sizes instead of small ones
    #[arg(long)]
    pub full: bool,
    /// Print every case
    #[arg(long, short)]
    pub verbose: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `strata kernels`.
#[derive(Args, Debug)]
pub struct KernelsArgs {
    #[command(subcommand)]
    pub command: KernelsCommand,
}

#[derive(Subcommand, Debug)]
pub enum KernelsCommand {
    /// Lists every kernel: file, arguments, needs, exactness
    List,
    /// Compiles every kernel and checks registers, spills, instructions and the EXEC rule, against the committed tables. Needs no GPU
    Audit(AuditArgs),
    /// Measures the thresholds of dispatch on a device and keeps them for it. No answer depends on them
    Tune(TuneArgs),
}

/// `strata kernels audit`.
#[derive(Args, Debug)]
pub struct AuditArgs {
    /// Architectures, such as sm_90a or gfx1201; `all` for the common ones
    #[arg(long, value_name = "ARCH,ARCH,...", required = true)]
    pub arch: String,
    /// Write the tables instead of comparing with them
    #[arg(long)]
    pub update: bool,
    /// Directory of the tables
    #[arg(long, value_name = "DIR", default_value = "kernels/resources")]
    pub tables: PathBuf,
    /// Print one JSON object an architecture
    #[arg(long)]
    pub json: bool,
}

/// `strata kernels tune`.
#[derive(Args, Debug)]
pub struct TuneArgs {
    /// The device
    #[arg(long, value_name = "BACKEND", default_value = "cuda", value_parser = ["cuda", "hip", "shim-cuda", "shim-gfx12", "shim-gfx11"])]
    pub backend: String,
}

/// The command tree, with the defaults that differ from command to command.
pub fn command() -> clap::Command {
    // drafts play no part where every position's logits are wanted
    let scoring = |c: clap::Command| {
        let c = c.mut_arg("ctx", |a| a.help("Tokens of a window. Default: 2048"));
        ["mtp", "spec", "spec_min_p", "mtp_dense"].into_iter().fold(c, |c, name| c.mut_arg(name, |a| a.hide(true)))
    };
    Cli::command().mut_subcommand("perplexity", scoring).mut_subcommand("kld", scoring).mut_subcommand("chat", |c| {
        c.mut_arg("n", |a| a.default_value(None::<&str>).help("Most tokens of an answer. Default: until the context is full"))
            .mut_arg("temp", |a| a.default_value("0.7"))
            .mut_arg("top_p", |a| a.default_value("0.95"))
    })
}

/// Reads the command line and the environment.
///
/// # Errors
/// What clap found wrong, or its answer to `--help` and `--version`.
pub fn parse() -> Result<(Cli, ArgMatches), clap::Error> {
    // `--serve` in the place of a command is the command
    let given = std::env::args_os().enumerate().map(|(i, arg)| if i == 1 && arg == "--serve" { "serve".into() } else { arg });
    let matches = command().try_get_matches_from(given)?;
    let cli = Cli::from_arg_matches(&matches)?;
    Ok((cli, matches))
}
