//! From settings to a model with its tokenizer, and to an engine.

use crate::error::CliError;
use crate::progress;
use crate::settings::{Act, Auto, EngineSettings, Spec};
use crate::synth;
use std::path::Path;
use std::sync::Arc;
use strata_cpu::backend::{Cpu, exp_in_place};
use strata_cpu::pool::Pool;
use strata_cpu::sizes::Sizer;
use strata_engine::{Batch, Engine, EngineError, EngineOptions};
use strata_gguf::{Gguf, GgufError, Metadata, StringArray};
use strata_model::{BindError, Config, ForwardError, Model, ModelOptions, WeightMode};
use strata_text::{ChatTemplate, RenderLimits, Tokenizer, TokenizerSource};
use strata_tiers::{Facts, ModelFacts, Recorder, Tiers};

/// The reference model: trunk and MTP block.
#[cfg(feature = "bundled-model")]
static BUNDLED: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/refmodel-q8_0.gguf"));

/// What the bundled model is called in reports.
pub const BUNDLED_NAME: &str = "refmodel-q8_0 (bundled)";

/// The tensor whose rows are the vocabulary.
const EMBEDDING: &str = "token_embd.weight";

/// An open model file with all that is small about it; weights are bound by [`Loaded::engine`].
pub struct Loaded {
    pub gguf: Gguf,
    pub mtp: Option<Gguf>,
    pub config: Config,
    pub tokenizer: Arc<Tokenizer>,
    template: Option<String>,
}

/// What there is to be memory for, besides weights.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// Tokens of a sequence.
    pub capacity: usize,
    /// Rows of logits that are asked for at a time.
    pub score_rows: usize,
    /// Sequences.
    pub slots: usize,
    /// Bytes of the prefix cache.
    pub prefix_cache: u64,
}

impl Space {
    /// One sequence.
    pub fn of(capacity: usize) -> Space {
        Space { capacity, score_rows: 1, slots: 1, prefix_cache: 0 }
    }
}

/// Opens a GGUF file, makes a synthetic model (`synth:...`), or takes the bundled one.
///
/// # Errors
/// The file is not a well-formed GGUF file, or there is no such synthetic model.
pub fn open(path: Option<&Path>) -> Result<Gguf, CliError> {
    match path {
        Some(p) => match synth::named(p) {
            Some(recipe) => Ok(synth::open(recipe)?),
            None => Ok(Gguf::open(p)?),
        },
        #[cfg(feature = "bundled-model")]
        None => Ok(Gguf::from_bytes(bytes::Bytes::from_static(BUNDLED))?),
        #[cfg(not(feature = "bundled-model"))]
        None => Ok(Gguf::open("models/refmodel-q8_0.gguf")?),
    }
}

/// The file's name in messages.
pub fn name_of(gguf: &Gguf) -> String {
    if gguf.path() == Path::new("(memory)") { BUNDLED_NAME.into() } else { gguf.path().display().to_string() }
}

/// The tokenizer of a file, and its chat template.
///
/// # Errors
/// A key is missing, has another type, or makes no tokenizer.
pub fn tokenizer(gguf: &Gguf) -> Result<(Tokenizer, Option<String>), CliError> {
    let mut source = tokenizer_source(gguf.metadata())?;
    let template = source.chat_template.take();
    let tokenizer = Tokenizer::new(source).map_err(|error| CliError::Tokenizer { file: name_of(gguf), error })?;
    Ok((tokenizer, template))
}

fn tokenizer_source(m: &Metadata) -> Result<TokenizerSource, GgufError> {
    let strings = |key: &str| -> Result<Vec<String>, GgufError> { Ok(m.get::<&StringArray>(key)?.iter().map(str::to_owned).collect()) };
    Ok(TokenizerSource {
        model: m.str("tokenizer.ggml.model")?.to_owned(),
        pre: m.str("tokenizer.ggml.pre")?.to_owned(),
        tokens: strings("tokenizer.ggml.tokens")?,
        token_types: m.get("tokenizer.ggml.token_type")?,
        merges: strings("tokenizer.ggml.merges")?,
        bos: m.get_opt("tokenizer.ggml.bos_token_id")?,
        eos: m.get_opt("tokenizer.ggml.eos_token_id")?,
        padding: m.get_opt("tokenizer.ggml.padding_token_id")?,
        add_bos: m.get_opt("tokenizer.ggml.add_bos_token")?.unwrap_or(false),
        chat_template: m.get_opt::<&str>("tokenizer.chat_template")?.map(str::to_owned),
    })
}

impl Loaded {
    /// Opens the files that the settings name.
    ///
    /// # Errors
    /// A file that is no model of this architecture, or settings that contradict each other.
    pub fn open(settings: &EngineSettings) -> Result<Loaded, CliError> {
        settings.check()?;
        let gguf = open(settings.model.as_deref())?;
        let mtp = settings.mtp.as_deref().map(Gguf::open).transpose()?;
        let rows = gguf.tensor(EMBEDDING).and_then(|t| t.dims.get(1).copied());
        let config = Config::from_gguf(&gguf, rows.unwrap_or(1) as usize)?;
        let (tokenizer, template) = tokenizer(&gguf)?;
        if rows.is_none() {
            let expected = vec![config.hidden as u64, tokenizer.vocab_size() as u64];
            return Err(BindError::MissingTensor { file: name_of(&gguf), name: EMBEDDING.into(), expected }.into());
        }
        Ok(Loaded { gguf, mtp, config, tokenizer: Arc::new(tokenizer), template })
    }

    pub fn name(&self) -> String {
        name_of(&self.gguf)
    }

    pub fn has_template(&self) -> bool {
        self.template.is_some()
    }

    /// The source of the chat template; empty where there is none.
    pub fn template_source(&self) -> String {
        self.template.clone().unwrap_or_default()
    }

    /// The compiled chat template.
    ///
    /// # Errors
    /// The file has none (`hint` says what to do), or it does not compile.
    pub fn template(&self, hint: &'static str) -> Result<ChatTemplate, CliError> {
        let source = self.template.as_ref().ok_or_else(|| CliError::NoTemplate { file: self.name(), hint })?;
        let made = ChatTemplate::new(source, &self.tokenizer, RenderLimits::default());
        made.map_err(|error| CliError::Template { file: self.name(), error })
    }

    /// Checks a prompt before the work of binding begins.
    ///
    /// # Errors
    /// It is empty, leaves no room for an answer, or has an id outside the vocabulary.
    pub fn check_prompt(&self, ids: &[u32], capacity: usize) -> Result<(), CliError> {
        if ids.is_empty() {
            return Err(EngineError::EmptyPrompt.into());
        }
        if ids.len() >= capacity {
            return Err(EngineError::PromptTooLong { found: ids.len(), capacity }.into());
        }
        let vocab = self.config.vocab;
        match ids.iter().position(|id| *id as usize >= vocab) {
            Some(position) => Err(ForwardError::TokenOutOfRange { id: ids[position], position, vocab }.into()),
            None => Ok(()),
        }
    }

    /// An engine for sequences of up to `capacity` tokens, and the tiers of its weights.
    ///
    /// # Errors
    /// The weights do not fit the configuration, an option is out of range, or memory is short.
    pub fn engine(&self, s: &EngineSettings, capacity: usize) -> Result<(Engine<Cpu>, Tiers), CliError> {
        self.engine_in_tiers(s, Space::of(capacity))
    }

    /// A batch with a slot for each sequence, and the tiers of its weights.
    ///
    /// # Errors
    /// As [`Loaded::engine`].
    pub fn batch(&self, s: &EngineSettings, space: Space) -> Result<(Batch<Cpu>, Tiers), CliError> {
        let _spinner = progress::loading(&self.name(), self.gguf.total_bytes());
        let (cpu, model, tiers) = self.model_in_tiers(s, space)?;
        let batch = Batch::new(cpu, model, self.engine_options(s, space), space.slots)?;
        tiers.sample();
        Ok((batch, tiers))
    }

    /// An engine that may be asked for `score_rows` rows of logits at a time.
    ///
    /// # Errors
    /// As [`Loaded::engine`].
    pub fn engine_for(&self, s: &EngineSettings, capacity: usize, score_rows: usize) -> Result<Engine<Cpu>, CliError> {
        Ok(self.engine_in_tiers(s, Space { score_rows, ..Space::of(capacity) })?.0)
    }

    fn engine_in_tiers(&self, s: &EngineSettings, space: Space) -> Result<(Engine<Cpu>, Tiers), CliError> {
        let _spinner = progress::loading(&self.name(), self.gguf.total_bytes());
        let (cpu, model, tiers) = self.model_in_tiers(s, space)?;
        let engine = Engine::new(cpu, model, self.engine_options(s, space))?;
        tiers.sample();
        Ok((engine, tiers))
    }

    /// The model, bound where a plan puts its weights.
    fn model_in_tiers(&self, s: &EngineSettings, space: Space) -> Result<(Cpu, Model<Cpu>, Tiers), CliError> {
        let facts = self.facts(s, space)?;
        let plan = strata_tiers::plan(&facts);
        let lookahead = s.memory.lookahead == Auto::Auto;
        let tiers = Tiers::new(facts, plan, lookahead, self.gguf.path());
        let cpu = Cpu::new(Arc::new(Pool::pinned(s.threads)?), s.simd)?;
        let model = Model::bind_in(&cpu, &self.gguf, self.mtp.as_ref(), self.model_options(s), &tiers)?;
        Ok((cpu, model, tiers))
    }

    /// What a plan is made from: the model is bound, and a batch made of it, on a device that only counts.
    ///
    /// # Errors
    /// As [`Loaded::engine`], but for memory.
    pub fn facts(&self, s: &EngineSettings, space: Space) -> Result<Facts, CliError> {
        let program = strata_tiers::usage().anonymous;
        let (sizer, recorder) = (Sizer::new(s.threads), Recorder::new());
        let model = Model::bind_in(&sizer, &self.gguf, self.mtp.as_ref(), self.model_options(s), &recorder)?;
        let vectors = sizer.sizes();
        let batch = Batch::new(sizer, model, self.engine_options(s, space), space.slots)?;
        let work = batch.backend().sizes().since(vectors);
        let model = ModelFacts {
            mapped: self.gguf.is_mapped(),
            program,
            vectors: vectors.total(),
            context: space.capacity as u64,
            used: self.config.experts_used as u64,
            kv: work.kv,
            work: work.buffers + work.scratch,
            sampling: batch.host_bytes(),
            prefix_cache: space.prefix_cache,
            ..recorder.facts(s.act == Act::F32)
        };
        let direct = match recorder.table().filter(|_| model.mapped) {
            Some((file, offset)) => strata_tiers::probe_direct(&file, offset),
            None => Err("there is no such table in a file".into()),
        };
        Ok(Facts { machine: strata_tiers::machine(), model, choices: s.memory.choices(), direct })
    }

    /// A number for this model and the way it is bound, to tell files of its states from others'. `remember` is a directory where the
    /// hashes of its files are noted.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn identity(&self, s: &EngineSettings, remember: Option<&Path>) -> Result<u128, CliError> {
        let mut binding = format!("{:?} {} {}", s.act, s.mtp_dense, self.most_drafts(s) > 0);
        let mut files: Vec<&Path> = Vec::new();
        for g in std::iter::once(&self.gguf).chain(&self.mtp) {
            if g.is_mapped() {
                files.extend(g.files());
            } else {
                // in memory: part of this program, or made by it from the name
                binding += &format!(" {} {} {}", g.path().display(), g.total_bytes(), env!("CARGO_PKG_VERSION"));
            }
        }
        let failed = |error| CliError::File { path: self.gguf.path().to_owned(), error };
        strata_engine::prefix_cache::identity(&files, &binding, remember).map_err(failed)
    }

    fn model_options(&self, s: &EngineSettings) -> ModelOptions {
        let weights = match s.act {
            Act::Int8 => WeightMode::AsStored,
            Act::F32 => WeightMode::DequantizedF32,
        };
        // the block costs memory: it is bound where it drafts, or where its file was named and so must be good
        ModelOptions { weights, mtp: self.most_drafts(s) > 0 || self.mtp.is_some(), mtp_dense: s.mtp_dense }
    }

    fn most_drafts(&self, s: &EngineSettings) -> usize {
        s.spec.most(self.config.has_mtp || self.mtp.is_some())
    }

    fn engine_options(&self, s: &EngineSettings, space: Space) -> EngineOptions {
        EngineOptions {
            kv: s.kv,
            capacity: space.capacity,
            chunk: s.chunk,
            spec: self.most_drafts(s),
            spec_auto: s.spec == Spec::Auto,
            spec_min_p: s.spec_min_p,
            mtp_dense: s.mtp_dense,
            exp: exp_in_place(s.simd),
            score_rows: space.score_rows,
            ..EngineOptions::default()
        }
    }
}
