//! Sizes of a model: presets, configuration files, and fields by name.

use crate::error::SynthError;
use std::path::Path;

/// Sizes that a synthetic model may have. Head sizes (256, indexer and gated DeltaNet 128), rotary width and kernel
/// widths are those of the released model: kernels are defined for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    pub layers: u64,
    /// Every so many layers one is attention, the others are gated DeltaNet.
    pub attention_every: u64,
    pub hidden: u64,
    /// Residual streams.
    pub streams: u64,
    pub low_rank: u64,
    pub heads: u64,
    pub kv_heads: u64,
    /// Key and value heads of gated DeltaNet.
    pub key_heads: u64,
    pub value_heads: u64,
    pub experts: u64,
    /// Experts that a token uses.
    pub used: u64,
    /// Width of an expert, and of the shared one.
    pub ff: u64,
    pub shared_ff: u64,
    pub vocab: u64,
    pub context: u64,
    /// Tokens that sparse attention attends to, besides the tail.
    pub budget: u64,
    /// About the rows of the n-gram table; 0 for a model without the module.
    pub ngram_rows: u64,
    /// 1 adds the multi-token-prediction block.
    pub mtp: u64,
}

/// Hash heads of the n-gram module: orders 2 and 3, eight heads each.
pub(crate) const NGRAM_HEADS: u64 = 16;

/// Names of the configurations that are built in.
pub const PRESETS: [&str; 2] = ["qwen3.8-flash-next", "refmodel"];

const FLASH_NEXT: Shape = Shape {
    layers: 48,
    attention_every: 4,
    hidden: 2560,
    streams: 4,
    low_rank: 320,
    heads: 24,
    kv_heads: 2,
    key_heads: 16,
    value_heads: 48,
    experts: 512,
    used: 10,
    ff: 640,
    shared_ff: 640,
    vocab: 248_320,
    context: 262_144,
    budget: 2048,
    ngram_rows: 320_000_000,
    mtp: 0,
};

const REFMODEL: Shape = Shape {
    layers: 8,
    hidden: 256,
    low_rank: 32,
    heads: 4,
    key_heads: 2,
    value_heads: 4,
    experts: 24,
    used: 4,
    ff: 64,
    shared_ff: 64,
    vocab: 4096,
    context: 32_768,
    budget: 256,
    ngram_rows: 24_000,
    ..FLASH_NEXT
};

/// A size by name: its key in a `config.json`, its range, and where it is.
struct Field {
    name: &'static str,
    json: &'static str,
    min: u64,
    max: u64,
    at: fn(&mut Shape) -> &mut u64,
}

const fn field(name: &'static str, json: &'static str, min: u64, max: u64, at: fn(&mut Shape) -> &mut u64) -> Field {
    Field { name, json, min, max, at }
}

/// Limits are far above any real model, and low enough that no product of sizes overflows.
const FIELDS: [Field; 18] = [
    field("layers", "num_hidden_layers", 1, 4096, |s| &mut s.layers),
    field("attention_every", "full_attention_interval", 1, 4096, |s| &mut s.attention_every),
    field("hidden", "hidden_size", 32, 1 << 16, |s| &mut s.hidden),
    field("streams", "hc_count", 1, 64, |s| &mut s.streams),
    field("low_rank", "hc_lowrank", 1, 1 << 14, |s| &mut s.low_rank),
    field("heads", "num_attention_heads", 1, 1024, |s| &mut s.heads),
    field("kv_heads", "num_key_value_heads", 1, 1024, |s| &mut s.kv_heads),
    field("key_heads", "linear_num_key_heads", 1, 1024, |s| &mut s.key_heads),
    field("value_heads", "linear_num_value_heads", 1, 1024, |s| &mut s.value_heads),
    field("experts", "num_experts", 1, 65_536, |s| &mut s.experts),
    field("used", "num_experts_per_tok", 1, 1024, |s| &mut s.used),
    field("ff", "moe_intermediate_size", 1, 1 << 16, |s| &mut s.ff),
    field("shared_ff", "shared_expert_intermediate_size", 1, 1 << 16, |s| &mut s.shared_ff),
    field("vocab", "vocab_size", 300, 1 << 22, |s| &mut s.vocab),
    field("context", "max_position_embeddings", 2, 1 << 24, |s| &mut s.context),
    field("budget", "indexer_budget", 4, 1 << 20, |s| &mut s.budget),
    field("ngram_rows", "", 0, 1 << 36, |s| &mut s.ngram_rows),
    field("mtp", "mtp_num_hidden_layers", 0, 1, |s| &mut s.mtp),
];

impl Shape {
    /// A built-in configuration, or that of a `config.json` of the model family.
    ///
    /// # Errors
    /// No such configuration, or a file that cannot be read or holds something else.
    pub fn named(name: &str) -> Result<Shape, SynthError> {
        match name {
            "qwen3.8-flash-next" => Ok(FLASH_NEXT),
            "refmodel" => Ok(REFMODEL),
            file if file.ends_with(".json") => Shape::from_json(Path::new(file)),
            _ => Err(SynthError::Preset { expected: PRESETS.join(", "), found: name.to_owned() }),
        }
    }

    /// The configuration of a `config.json`: the model's own or its `text_config`. Sizes that it leaves out are the
    /// released model's.
    fn from_json(path: &Path) -> Result<Shape, SynthError> {
        let bad = |detail: String| SynthError::Config { path: path.to_owned(), detail };
        let text = std::fs::read_to_string(path).map_err(|error| SynthError::Io { path: path.to_owned(), error })?;
        let json: serde_json::Value = serde_json::from_str(&text).map_err(|e| bad(format!("expected JSON: {e}")))?;
        let json = json.get("text_config").unwrap_or(&json);
        let model = json.get("model_type").and_then(|m| m.as_str()).unwrap_or("nothing");
        if !model.starts_with("qwen4_exp") {
            return Err(bad(format!("model_type: expected qwen4_exp or qwen4_exp_text, found {model}")));
        }
        let mut shape = Shape { mtp: 0, ..FLASH_NEXT };
        for f in FIELDS.iter().filter(|f| !f.json.is_empty() && f.name != "mtp") {
            let Some(value) = json.get(f.json) else { continue };
            let n = value.as_u64().ok_or_else(|| bad(format!("{}: expected a whole number, found {value}", f.json)))?;
            f.set(&mut shape, n).map_err(|e| bad(e.to_string()))?;
        }
        if json.get("shared_expert_intermediate_size").is_none() {
            shape.shared_ff = shape.ff;
        }
        if let Some(base) = json.get("ngram_vocab_size_base").and_then(serde_json::Value::as_u64) {
            shape.set("ngram_rows", base.saturating_mul(NGRAM_HEADS))?;
        }
        Ok(shape)
    }

    /// Names of all fields.
    pub fn fields() -> impl Iterator<Item = &'static str> {
        FIELDS.iter().map(|f| f.name)
    }

    /// Sets a field by its name.
    ///
    /// # Errors
    /// There is no such field, or the value is out of its range.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), SynthError> {
        match FIELDS.iter().find(|f| f.name == name) {
            Some(f) => f.set(self, value),
            None => Err(SynthError::Field { expected: Shape::fields().collect::<Vec<_>>().join(", "), found: name.to_owned() }),
        }
    }

    /// Checks what one size demands of another.
    ///
    /// # Errors
    /// Names the field whose value does not fit the others.
    pub fn check(&self) -> Result<(), SynthError> {
        let bad =
            |field: &str, expected: String, found: u64| Err(SynthError::Value { field: field.into(), expected, found: found.to_string() });
        if !self.hidden.is_multiple_of(32) {
            return bad("hidden", "a multiple of 32".into(), self.hidden);
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return bad("kv_heads", format!("a divisor of the {} query heads", self.heads), self.kv_heads);
        }
        if !self.value_heads.is_multiple_of(self.key_heads) {
            return bad("key_heads", format!("a divisor of the {} value heads", self.value_heads), self.key_heads);
        }
        if self.used > self.experts {
            return bad("used", format!("at most the {} experts", self.experts), self.used);
        }
        if !self.budget.is_multiple_of(4) {
            return bad("budget", "a multiple of 4".into(), self.budget);
        }
        if self.ngram_rows != 0 && self.ngram_rows < 2 * NGRAM_HEADS {
            return bad("ngram_rows", format!("0 or at least {}", 2 * NGRAM_HEADS), self.ngram_rows);
        }
        Ok(())
    }

    /// Width of the residual of all streams.
    pub(crate) fn wide(&self) -> u64 {
        self.streams * self.hidden
    }

    /// True if layer `i` is attention.
    pub(crate) fn is_attention(&self, i: u64) -> bool {
        i % self.attention_every == self.attention_every - 1
    }
}

impl Field {
    fn set(&self, shape: &mut Shape, value: u64) -> Result<(), SynthError> {
        if !(self.min..=self.max).contains(&value) {
            let expected = format!("{} to {}", self.min, self.max);
            return Err(SynthError::Value { field: self.name.into(), expected, found: value.to_string() });
        }
        *(self.at)(shape) = value;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_sound_and_fields_are_checked() {
        for name in PRESETS {
            Shape::named(name).unwrap().check().unwrap();
        }
        assert!(Shape::named("nothing").unwrap_err().to_string().contains("refmodel"));
        let mut s = REFMODEL;
        s.set("layers", 3).unwrap();
        assert_eq!(s.layers, 3);
        assert!(s.set("layers", 0).unwrap_err().to_string().contains("layers: expected 1 to 4096, found 0"));
        assert!(s.set("depth", 1).unwrap_err().to_string().contains("'depth'"));
        for (name, value) in [("hidden", 100), ("kv_heads", 3), ("key_heads", 3), ("used", 25), ("budget", 6), ("ngram_rows", 5)] {
            let mut s = REFMODEL;
            s.set(name, value).unwrap();
            let e = s.check().unwrap_err().to_string();
            assert!(e.contains(name) && e.contains(&value.to_string()), "{e}");
        }
    }

    #[test]
    fn configuration_files() {
        let dir = std::env::temp_dir().join(format!("strata-synth-config-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("config.json");
        let name = file.to_str().unwrap();
        std::fs::write(
            &file,
            r#"{"model_type":"qwen4_exp","text_config":{"model_type":"qwen4_exp_text","hidden_size":512,"num_hidden_layers":6,"moe_intermediate_size":96,"ngram_vocab_size_base":1500}}"#,
        )
        .unwrap();
        let s = Shape::named(name).unwrap();
        assert_eq!((s.hidden, s.layers, s.ff, s.shared_ff, s.ngram_rows, s.heads), (512, 6, 96, 96, 24_000, 24));
        for (text, word) in
            [("{", "JSON"), (r#"{"model_type":"llama"}"#, "llama"), (r#"{"model_type":"qwen4_exp","hidden_size":0}"#, "hidden")]
        {
            std::fs::write(&file, text).unwrap();
            let e = Shape::named(name).unwrap_err().to_string();
            assert!(e.contains(word) && e.contains("config.json"), "{e}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(Shape::named(name).is_err());
    }
}
