//! `strata synth`: a synthetic model file; and `synth:` names, which make the same model in memory.

use crate::error::CliError;
use crate::{output, progress};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use strata_gguf::Gguf;
use strata_synth::{Plan, Recipe, Shape, SynthError};

/// `strata synth`.
#[derive(Args, Debug)]
pub struct SynthArgs {
    /// The file to write
    pub out: PathBuf,
    /// Sizes to start from: qwen3.8-flash-next, refmodel, or a config.json of the model family
    #[arg(long, value_name = "NAME", default_value = "qwen3.8-flash-next")]
    pub config: String,
    /// Type of the experts' gate and up matrices
    #[arg(long = "type", value_name = "TYPE")]
    pub dtype: String,
    /// Type of the experts' down matrices. Default: --type, or a 32-wide type where rows are not whole blocks of it
    #[arg(long, value_name = "TYPE")]
    pub down: Option<String>,
    /// Type of the other matrices
    #[arg(long, value_name = "TYPE", default_value = "Q6_K")]
    pub dense: String,
    /// Type of token embedding and head
    #[arg(long, value_name = "TYPE", default_value = "Q6_K")]
    pub emb: String,
    /// Type of the n-gram table
    #[arg(long, value_name = "TYPE", default_value = "IQ4_NL")]
    pub table: String,
    /// Add the multi-token-prediction block
    #[arg(long)]
    pub mtp: bool,
    #[command(flatten)]
    pub sizes: Sizes,
    /// Other weights for another number
    #[arg(long, value_name = "S", default_value = "1")]
    pub seed: u64,
    /// Threads that make weights; the bytes are the same for any number
    #[arg(long, value_name = "N", default_value_t = crate::settings::default_threads(), value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    pub threads: usize,
}

/// Sizes that replace those of the configuration.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sizes, instead of the configuration's")]
pub struct Sizes {
    #[arg(long, value_name = "N", help = "Layers")]
    pub layers: Option<u64>,
    #[arg(long, value_name = "N", help = "One layer of so many is attention")]
    pub attention_every: Option<u64>,
    #[arg(long, value_name = "N", help = "Width of a residual stream")]
    pub hidden: Option<u64>,
    #[arg(long, value_name = "N", help = "Residual streams")]
    pub streams: Option<u64>,
    #[arg(long, value_name = "N", help = "Rank of the hyper-connections' gates", alias = "lowrank")]
    pub low_rank: Option<u64>,
    #[arg(long, value_name = "N", help = "Query heads")]
    pub heads: Option<u64>,
    #[arg(long, value_name = "N", help = "Key and value heads of attention")]
    pub kv_heads: Option<u64>,
    #[arg(long, value_name = "N", help = "Key heads of gated DeltaNet", alias = "kh")]
    pub key_heads: Option<u64>,
    #[arg(long, value_name = "N", help = "Value heads of gated DeltaNet", alias = "vh")]
    pub value_heads: Option<u64>,
    #[arg(long, value_name = "N", help = "Experts of a layer")]
    pub experts: Option<u64>,
    #[arg(long, value_name = "N", help = "Experts that a token uses")]
    pub used: Option<u64>,
    #[arg(long, value_name = "N", help = "Width of an expert")]
    pub ff: Option<u64>,
    #[arg(long, value_name = "N", help = "Width of the shared expert. Default: --ff, where that is given")]
    pub shared_ff: Option<u64>,
    #[arg(long, value_name = "N", help = "Ids of the vocabulary")]
    pub vocab: Option<u64>,
    #[arg(long, value_name = "N", help = "Positions that the model knows")]
    pub context: Option<u64>,
    #[arg(long, value_name = "N", help = "Tokens that sparse attention attends to")]
    pub budget: Option<u64>,
    #[arg(long, value_name = "N", help = "About the rows of the n-gram table; 0 leaves the module out")]
    pub ngram_rows: Option<u64>,
}

impl Sizes {
    /// The sizes given, by their field's name.
    fn given(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [
            ("layers", self.layers),
            ("attention_every", self.attention_every),
            ("hidden", self.hidden),
            ("streams", self.streams),
            ("low_rank", self.low_rank),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("key_heads", self.key_heads),
            ("value_heads", self.value_heads),
            ("experts", self.experts),
            ("used", self.used),
            ("ff", self.ff),
            ("shared_ff", self.shared_ff.or(self.ff)),
            ("vocab", self.vocab),
            ("context", self.context),
            ("budget", self.budget),
            ("ngram_rows", self.ngram_rows),
        ];
        all.into_iter().filter_map(|(name, n)| Some((name, n?)))
    }
}

impl SynthArgs {
    fn recipe(&self) -> Result<Recipe, SynthError> {
        let mut recipe = Recipe::new(Shape::named(&self.config)?, &self.dtype)?;
        let types =
            [("down", self.down.as_deref()), ("dense", Some(&*self.dense)), ("emb", Some(&*self.emb)), ("table", Some(&*self.table))];
        for (field, name) in types {
            name.map_or(Ok(()), |n| recipe.set(field, n))?;
        }
        for (field, n) in self.sizes.given() {
            recipe.shape.set(field, n)?;
        }
        recipe.shape.set("mtp", self.mtp.into())?;
        recipe.seed = self.seed;
        Ok(recipe)
    }
}

/// Writes the file.
///
/// # Errors
/// Sizes or types that cannot be, or a file that cannot be written.
pub fn run(args: &SynthArgs) -> Result<ExitCode, CliError> {
    let recipe = args.recipe()?;
    let line = progress::bytes(Plan::new(&recipe)?.file_len()?);
    let start = Instant::now();
    let written = strata_synth::write(&recipe, &args.out, args.threads, &mut |done, _| line.set(done))?;
    let seconds = start.elapsed().as_secs_f64();
    drop(line);
    output::print(&format!(
        "{}: {} tensors, {:.3} B parameters, {}, seed {}, {:.2} s, {}/s\n",
        args.out.display(),
        written.tensors,
        written.parameters as f64 / 1e9,
        output::bytes(written.bytes),
        recipe.seed,
        seconds,
        output::bytes((written.bytes as f64 / seconds.max(1e-9)) as u64),
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// The recipe of a model that is named, not stored: what follows `synth:`.
pub fn named(path: &Path) -> Option<&str> {
    path.to_str()?.strip_prefix("synth:")
}

/// Makes a model in memory, and says how much it takes.
///
/// # Errors
/// A recipe that is none, or more memory than is free.
pub fn open(text: &str) -> Result<Gguf, SynthError> {
    let recipe = Recipe::parse(text)?;
    let gguf = strata_synth::in_memory(&recipe, &format!("synth:{text}"), strata_tiers::machine().available)?;
    output::note(&format!("synth:{text}: {} of random weights in memory, seed {}", output::bytes(gguf.total_bytes()), recipe.seed));
    Ok(gguf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_paths() {
        assert_eq!(named(Path::new("synth:refmodel:Q4_K")), Some("refmodel:Q4_K"));
        assert_eq!(named(Path::new("dir/synth:refmodel:Q4_K")), None);
    }

    #[test]
    fn every_size_of_a_recipe_has_a_flag() {
        let command = crate::cli::command();
        let synth = command.find_subcommand("synth").unwrap();
        for field in Shape::fields() {
            assert!(synth.get_arguments().any(|a| a.get_id() == field), "{field}");
        }
    }
}
