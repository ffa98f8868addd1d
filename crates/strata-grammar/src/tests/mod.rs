//! Random answers under constraints, checked by other means than the constraints.

mod answers;
mod calls;
mod check;
mod hostile;
mod masks;

use crate::{Body, Grammars, Spec};
use std::sync::{Arc, LazyLock};
use strata_engine::Constraint;
use strata_gguf::{Gguf, StringArray};
use strata_text::{Tokenizer, TokenizerSource};

pub static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let gguf = Gguf::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/refmodel-q8_0.gguf")).unwrap();
    let meta = gguf.metadata();
    let strings = |key: &str| meta.get::<&StringArray>(key).unwrap().iter().map(str::to_owned).collect();
    Arc::new(
        Tokenizer::new(TokenizerSource {
            model: "gpt2".into(),
            pre: meta.str("tokenizer.ggml.pre").unwrap().to_owned(),
            tokens: strings("tokenizer.ggml.tokens"),
            token_types: meta.get("tokenizer.ggml.token_type").unwrap(),
            merges: strings("tokenizer.ggml.merges"),
            bos: None,
            eos: meta.get_opt("tokenizer.ggml.eos_token_id").unwrap(),
            padding: None,
            add_bos: false,
            chat_template: None,
        })
        .unwrap(),
    )
});

pub static GRAMMARS: LazyLock<Grammars> = LazyLock::new(|| Grammars::new(&TOKENIZER, 2).unwrap());

pub fn spec(body: Body) -> Spec {
    Spec { body, after_thinking: false }
}

pub fn compile(spec: &Spec) -> Box<dyn Constraint> {
    GRAMMARS.compile(spec).unwrap_or_else(|e| panic!("{e} in {spec:?}"))
}

pub fn id(text: &str) -> u32 {
    TOKENIZER.id_of(text).unwrap()
}

/// xorshift64*
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n
    }
}

pub fn is_set(mask: Option<&[u32]>, id: u32) -> bool {
    mask.is_none_or(|m| m[id as usize / 32] >> (id % 32) & 1 == 1)
}

/// The ids that a mask allows.
pub fn list(mask: Option<&[u32]>) -> Vec<u32> {
    (0..TOKENIZER.vocab_size() as u32).filter(|&id| is_set(mask, id)).collect()
}

/// An answer drawn without a model.
pub struct Drawn {
    pub ids: Vec<u32>,
    pub complete: bool,
}

impl Drawn {
    /// Its text, without control tokens.
    pub fn text(&self) -> String {
        TOKENIZER.decode(&self.ids, true)
    }
}

/// Draws uniformly from what is allowed; half of the time from the tokens among these that may close something, and now and then the
/// end tag of a value in pieces, so that answers end.
#[derive(Default)]
pub struct Sampler {
    script: Vec<u32>,
}

impl Sampler {
    pub fn one(&mut self, constraint: &mut dyn Constraint, random: &mut Random) -> u32 {
        let allowed = list(constraint.allowed().unwrap());
        assert!(!allowed.is_empty());
        if self.script.is_empty() && random.below(8) == 0 {
            self.script = TOKENIZER.encode("\n</parameter>\n", false).unwrap();
            self.script.reverse();
        }
        match self.script.pop() {
            Some(token) if allowed.contains(&token) => return token,
            _ => self.script.clear(),
        }
        let closes = |id: &u32| {
            let bytes = TOKENIZER.token_bytes(*id).unwrap_or_default();
            let ends = TOKENIZER.stop_ids().contains(id) || TOKENIZER.token_str(*id).unwrap().starts_with("</");
            ends || bytes.iter().any(|b| b"\"}]".contains(b))
        };
        let closing: Vec<u32> = allowed.iter().copied().filter(closes).collect();
        let from = if closing.is_empty() || random.below(2) == 0 { &allowed } else { &closing };
        from[random.below(from.len())]
    }
}

pub fn draw(constraint: &mut dyn Constraint, random: &mut Random, max: usize) -> Drawn {
    let (mut ids, mut sampler) = (Vec::new(), Sampler::default());
    for _ in 0..max {
        let token = sampler.one(constraint, random);
        ids.push(token);
        if constraint.accept(token).unwrap() {
            return Drawn { ids, complete: true };
        }
    }
    Drawn { ids, complete: false }
}
