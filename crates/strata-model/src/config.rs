//! Sizes and constants of a model, all from metadata.

use crate::error::BindError;
use strata_gguf::Gguf;
use strata_ops::backend::{GdnShape, QsaGeometry};
use strata_ops::rope::RopeScaling;

/// What mixes tokens in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    Gdn,
    Qsa,
}

/// The hashed n-gram (PLE) module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NgramConfig {
    /// The layer that it precedes, 0-based.
    pub layer: usize,
    pub ngram_size: usize,
    pub heads_per_ngram: usize,
    pub conv_taps: usize,
    /// The id on which the context is cut.
    pub eos: u32,
    /// Values in a table row.
    pub row_width: usize,
    pub multipliers: Vec<u64>,
    pub head_sizes: Vec<u64>,
    pub head_offsets: Vec<u64>,
}

impl NgramConfig {
    /// Hash heads, hence table rows a token.
    pub fn heads(&self) -> usize {
        self.head_sizes.len()
    }

    /// Width of the concatenated embedding.
    pub fn embedding(&self) -> usize {
        self.heads() * self.row_width
    }
}

/// A model's configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub layers: Vec<LayerKind>,
    /// The file holds an MTP block after the trunk's layers.
    pub has_mtp: bool,
    /// The compress ratio that the file states for the MTP block (0: dense by another engine's reading).
    pub mtp_compress_ratio: Option<i64>,
    pub context: usize,
    pub vocab: usize,
    pub hidden: usize,
    pub eps: f32,
    pub streams: usize,
    pub low_rank: usize,
    pub qsa: QsaGeometry,
    pub rope_dims: usize,
    pub rope_theta: f32,
    pub rope_scaling: RopeScaling,
    pub gdn: GdnShape,
    pub conv_taps: usize,
    pub experts: usize,
    pub experts_used: usize,
    pub expert_width: usize,
    pub shared_width: usize,
    pub ngram: Option<NgramConfig>,
}

/// The largest value accepted for a size in metadata: far above any real model, far below overflow.
const MAX_SIZE: u64 = 1 << 24;

/// Reads `qwen4exp.*` keys of one file with range checks.
struct Keys<'a> {
    gguf: &'a Gguf,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("qwen4exp.{name}")
    }

    fn bad(&self, name: &str, expected: impl Into<String>, found: impl ToString) -> BindError {
        BindError::Config {
            file: self.gguf.path().display().to_string(),
            key: self.key(name),
            expected: expected.into(),
            found: found.to_string(),
        }
    }

    fn size_in(&self, name: &str, range: std::ops::RangeInclusive<u64>) -> Result<usize, BindError> {
        let v = self.gguf.metadata().u64(&self.key(name))?;
        if !range.contains(&v) {
            return Err(self.bad(name, format!("{} to {}", range.start(), range.end()), v));
        }
        Ok(v as usize)
    }

    fn size(&self, name: &str) -> Result<usize, BindError> {
        self.size_in(name, 1..=MAX_SIZE)
    }

    /// A size that some files give as one number and some as an array with a number a layer (0 where the layer has
    /// none): every non-zero number must be the same.
    fn size_or_array(&self, name: &str) -> Result<usize, BindError> {
        match self.gguf.metadata().get::<Vec<i64>>(&self.key(name)) {
            Ok(all) => {
                let mut values = all.iter().filter(|v| **v != 0);
                let first = values.next().copied().unwrap_or(0);
                if first < 1 || first as u64 > MAX_SIZE || values.any(|v| *v != first) {
                    return Err(self.bad(name, "one size for every attention layer", format!("{all:?}")));
                }
                Ok(first as usize)
            }
            Err(_) => self.size(name),
        }
    }

    fn float(&self, name: &str) -> Result<f32, BindError> {
        let v = self.gguf.metadata().f32(&self.key(name))?;
        if !v.is_finite() || v <= 0.0 {
            return Err(self.bad(name, "a positive number", v));
        }
        Ok(v)
    }

    fn float_or(&self, name: &str, default: f32) -> Result<f32, BindError> {
        if self.gguf.metadata().contains(&self.key(name)) { self.float(name) } else { Ok(default) }
    }

    fn rope_scaling(&self) -> Result<RopeScaling, BindError> {
        if !self.gguf.metadata().contains(&self.key("rope.scaling.type")) {
            return Ok(RopeScaling::None);
        }
        let kind = self.gguf.metadata().str(&self.key("rope.scaling.type"))?;
        match kind {
            "none" => Ok(RopeScaling::None),
            "linear" => Ok(RopeScaling::Linear { factor: self.float("rope.scaling.factor")? }),
            "yarn" => Ok(RopeScaling::Yarn {
                factor: self.float("rope.scaling.factor")?,
                original_context: self.size_in("rope.scaling.original_context_length", 1..=1 << 31)? as u32,
                beta_fast: self.float_or("rope.scaling.yarn_beta_fast", 32.0)?,
                beta_slow: self.float_or("rope.scaling.yarn_beta_slow", 1.0)?,
                attention_factor: if self.gguf.metadata().contains(&self.key("rope.scaling.attn_factor")) {
                    Some(self.float("rope.scaling.attn_factor")?)
                } else {
                    None
                },
            }),
            other => Err(self.bad("rope.scaling.type", "none, linear or yarn", other)),
        }
    }

    fn ngram(&self, layers: usize) -> Result<Option<NgramConfig>, BindError> {
        if !self.gguf.metadata().contains(&self.key("ple.layers")) {
            return Ok(None);
        }
        let at = self.gguf.metadata().get::<Vec<i64>>(&self.key("ple.layers"))?;
        let layer = match at[..] {
            [] => return Ok(None),
            [l] if l >= 0 && (l as u64) < layers as u64 => l as usize,
            _ => {
                return Err(self.bad("ple.layers", format!("one layer below {layers}"), format!("{at:?}")));
            }
        };
        let ngram_size = self.size_in("ple.ngram_size", 2..=16)?;
        let heads_per_ngram = self.size_in("ple.heads_per_ngram", 1..=1024)?;
        let heads = (ngram_size - 1) * heads_per_ngram;
        let list = |name: &str, len: usize| -> Result<Vec<u64>, BindError> {
            let v = self.gguf.metadata().get::<Vec<u64>>(&self.key(name))?;
            if v.len() != len {
                return Err(self.bad(name, format!("{len} numbers"), v.len()));
            }
            Ok(v)
        };
        let head_sizes = list("ple.head_vocab_sizes", heads)?;
        if let Some(z) = head_sizes.iter().find(|s| **s == 0 || **s > 1 << 40) {
            return Err(self.bad("ple.head_vocab_sizes", "sizes from 1 to 2^40", z));
        }
        let head_offsets = list("ple.head_offsets", heads)?;
        if let Some(z) = head_offsets.iter().find(|s| **s > 1 << 48) {
            return Err(self.bad("ple.head_offsets", "offsets up to 2^48", z));
        }
        Ok(Some(NgramConfig {
            layer,
            ngram_size,
            heads_per_ngram,
            conv_taps: self.size_in("ple.conv_kernel", 1..=16)?,
            eos: self.size_in("ple.eos_token_id", 0..=u64::from(u32::MAX))? as u32,
            row_width: self.size("embedding_length_per_layer_input")?,
            multipliers: list("ple.layer_multipliers", ngram_size)?,
            head_sizes,
            head_offsets,
        }))
    }
}

impl Config {
    /// Reads and checks the configuration of a file. `vocab` is the number of ids of the tokenizer or of the token
    /// embedding.
    pub fn from_gguf(gguf: &Gguf, vocab: usize) -> Result<Config, BindError> {
        let arch = gguf.metadata().str("general.architecture")?;
        if arch != "qwen4exp" {
            return Err(BindError::Architecture { file: gguf.path().display().to_string(), found: arch.to_string() });
        }
        let k = Keys { gguf };
        let blocks = k.size_in("block_count", 1..=4096)?;
        let nextn = if gguf.metadata().contains(&k.key("nextn_predict_layers")) { k.size_in("nextn_predict_layers", 0..=1)? } else { 0 };
        let trunk =
            blocks.checked_sub(nextn).filter(|n| *n > 0).ok_or_else(|| k.bad("block_count", "more than nextn_predict_layers", blocks))?;
        let ratios = layer_ratios(&k, blocks)?;
        let layers: Vec<LayerKind> = ratios[..trunk].iter().map(|r| if *r == 0 { LayerKind::Gdn } else { LayerKind::Qsa }).collect();
        // a file with the MTP block alone still describes the trunk's layers
        let block = ratios[..trunk].iter().copied().find(|r| *r != 0).unwrap_or(4);

        let heads = k.size_or_array("attention.head_count")?;
        let kv_heads = k.size_or_array("attention.head_count_kv")?;
        if !heads.is_multiple_of(kv_heads) {
            return Err(k.bad("attention.head_count_kv", format!("a divisor of the {heads} query heads"), kv_heads));
        }
        let head_dim = k.size("attention.key_length")?;
        let value_dim = k.size("attention.value_length")?;
        if value_dim != head_dim {
            return Err(k.bad("attention.value_length", head_dim.to_string(), value_dim));
        }
        let eps = k.float("attention.layer_norm_rms_epsilon")?;
        let index_dim = k.size("attention.indexer.key_length")?;
        let qsa = QsaGeometry {
            heads,
            kv_heads,
            head_dim,
            index_heads: k.size("attention.indexer.head_count")?,
            index_dim,
            block: block as usize,
            budget_blocks: k.size("attention.indexer.top_k")? / block as usize,
            eps,
            dense: false,
        };
        for (name, found, want) in [("attention.key_length", head_dim, 256), ("attention.indexer.key_length", index_dim, 128)] {
            if found != want {
                return Err(k.bad(name, format!("{want} (the head size that the attention kernels are defined for)"), found));
            }
        }
        if qsa.budget_blocks == 0 {
            return Err(k.bad("attention.indexer.top_k", "at least one block", "less"));
        }
        let rope_dims = k.size("rope.dimension_count")?;
        if !rope_dims.is_multiple_of(2) || rope_dims > head_dim.min(index_dim) {
            return Err(k.bad("rope.dimension_count", format!("an even number up to {}", head_dim.min(index_dim)), rope_dims));
        }

        let key_dim = k.size("ssm.state_size")?;
        let value_heads = k.size("ssm.time_step_rank")?;
        let key_heads = k.size("ssm.group_count")?;
        let inner = k.size("ssm.inner_size")?;
        if !inner.is_multiple_of(value_heads) || !(inner / value_heads).is_multiple_of(strata_ops::gdn::COLUMNS) {
            return Err(k.bad(
                "ssm.inner_size",
                format!("{value_heads} heads of a multiple of {} values", strata_ops::gdn::COLUMNS),
                inner,
            ));
        }
        if !key_dim.is_multiple_of(strata_ops::gdn::LANES) {
            return Err(k.bad("ssm.state_size", format!("a multiple of {}", strata_ops::gdn::LANES), key_dim));
        }
        if !value_heads.is_multiple_of(key_heads) {
            return Err(k.bad("ssm.group_count", format!("a divisor of the {value_heads} value heads"), key_heads));
        }

        let experts = k.size_in("expert_count", 1..=65_536)?;
        let experts_used = k.size("expert_used_count")?;
        if experts_used > experts {
            return Err(k.bad("expert_used_count", format!("at most {experts}"), experts_used));
        }
        Ok(Config {
            has_mtp: nextn == 1,
            mtp_compress_ratio: (nextn == 1).then(|| ratios[trunk]),
            ngram: k.ngram(trunk)?,
            layers,
            context: k.size_in("context_length", 1..=1 << 31)?,
            vocab,
            hidden: k.size("embedding_length")?,
            eps,
            streams: k.size_in("hyper_connection.count", 1..=64)?,
            low_rank: k.size("hyper_connection.low_rank")?,
            qsa,
            rope_dims,
            rope_theta: k.float("rope.freq_base")?,
            rope_scaling: k.rope_scaling()?,
            gdn: GdnShape { key_heads, value_heads, key_dim, value_dim: inner / value_heads },
            conv_taps: k.size_in("ssm.conv_kernel", 1..=16)?,
            experts,
            experts_used,
            expert_width: k.size("expert_feed_forward_length")?,
            shared_width: k.size("expert_shared_feed_forward_length")?,
        })
    }

    /// Width of the residual of all streams.
    pub fn wide(&self) -> usize {
        self.streams * self.hidden
    }
}

/// The compress ratio of every block: from its key, or by the interval where the key is absent.
fn layer_ratios(k: &Keys<'_>, blocks: usize) -> Result<Vec<i64>, BindError> {
    let name = "attention.compress_ratios";
    if k.gguf.metadata().contains(&k.key(name)) {
        let r = k.gguf.metadata().get::<Vec<i64>>(&k.key(name))?;
        if r.len() != blocks {
            return Err(k.bad(name, format!("{blocks} numbers, one a block"), r.len()));
        }
        if let Some(bad) = r.iter().find(|r| **r != 0 && **r != 4) {
            return Err(k.bad(name, "0 (gated DeltaNet) or 4 cells a block", bad));
        }
        return Ok(r);
    }
    let every = k.size("full_attention_interval")?;
    Ok((0..blocks).map(|i| if (i + 1) % every == 0 { 4 } else { 0 }).collect())
}
