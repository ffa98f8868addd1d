//! The reference model, its oracle fixtures, and engines on them.
#![allow(dead_code)]

use safetensors::{Dtype, SafeTensors};
use std::path::PathBuf;
use std::sync::Arc;
use strata_cpu::backend::Cpu;
use strata_cpu::pool::Pool;
use strata_cpu::simd::Simd;
use strata_engine::sampler::SamplingParams;
use strata_engine::{Engine, EngineOptions};
use strata_gguf::Gguf;
use strata_model::{Model, ModelOptions, WeightMode};

pub const PROMPTS: [&str; 6] = ["short", "chat", "chat2", "prose300", "prose1500", "needle6000"];

pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

pub fn refmodel() -> Gguf {
    Gguf::open(root().join("models/refmodel-q8_0.gguf")).expect("the reference model is in the repository")
}

/// One prompt's oracle tensors.
pub struct Fixture {
    bytes: Vec<u8>,
    pub name: &'static str,
    pub ids: Vec<u32>,
}

impl Fixture {
    pub fn load(name: &'static str) -> Fixture {
        let bytes = std::fs::read(root().join(format!("tests/data/oracle/{name}.safetensors"))).expect("the fixture is in the repository");
        let mut f = Fixture { bytes, name, ids: Vec::new() };
        f.ids = f.ints("input_ids").into_iter().map(|i| i as u32).collect();
        f
    }

    fn tensors(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes).expect("a fixture is well formed")
    }

    pub fn has(&self, name: &str) -> bool {
        self.tensors().tensor(name).is_ok()
    }

    pub fn shape(&self, name: &str) -> Vec<usize> {
        self.tensors().tensor(name).expect(name).shape().to_vec()
    }

    pub fn floats(&self, name: &str) -> Vec<f32> {
        let all = self.tensors();
        let t = all.tensor(name).expect(name);
        assert_eq!(t.dtype(), Dtype::F32, "{name}");
        t.data().as_chunks::<4>().0.iter().map(|c| f32::from_le_bytes(*c)).collect()
    }

    pub fn ints(&self, name: &str) -> Vec<i64> {
        let all = self.tensors();
        let t = all.tensor(name).expect(name);
        match t.dtype() {
            Dtype::I16 => t.data().as_chunks::<2>().0.iter().map(|c| i64::from(i16::from_le_bytes(*c))).collect(),
            Dtype::I32 => t.data().as_chunks::<4>().0.iter().map(|c| i64::from(i32::from_le_bytes(*c))).collect(),
            other => panic!("{name} is {other:?}"),
        }
    }

    /// Positions listed for a kind of tensor in the index of the fixtures.
    pub fn positions(&self, key: &str) -> Vec<usize> {
        let text = std::fs::read_to_string(root().join("tests/data/oracle/index_q8_0.json")).expect("the index is in the repository");
        let index: serde_json::Value = serde_json::from_str(&text).expect("the index is JSON");
        match &index[self.name][key] {
            serde_json::Value::Array(v) => v.iter().map(|p| p.as_u64().expect("a position") as usize).collect(),
            serde_json::Value::String(s) if s == "all" => (0..self.ids.len()).collect(),
            _ => Vec::new(),
        }
    }
}

/// A CPU device on two threads with the best instructions there are.
pub fn cpu() -> Cpu {
    Cpu::new(Arc::new(Pool::new(2)), Simd::best()).expect("the best level is available")
}

pub fn model(cpu: &Cpu, weights: WeightMode) -> Model<Cpu> {
    Model::bind(cpu, &refmodel(), None, ModelOptions { weights, ..Default::default() }).expect("the reference model binds")
}

pub fn engine(weights: WeightMode, options: EngineOptions) -> Engine<Cpu> {
    let cpu = cpu();
    let model = model(&cpu, weights);
    Engine::new(cpu, model, options).expect("the engine fits")
}

pub fn greedy() -> SamplingParams {
    SamplingParams { temperature: 0.0, ..Default::default() }
}

/// `n` tokens after `prompt`, whatever they are.
pub fn generate(e: &mut Engine<Cpu>, prompt: &[u32], n: usize, params: &SamplingParams) -> Vec<u32> {
    e.clear();
    let mut out = vec![e.start(prompt, params, &mut |_, _| true).expect("a prompt runs")];
    while out.len() < n {
        e.step(params, &|_| false, &mut out).expect("a step runs");
    }
    out.truncate(n);
    out.into_iter().map(|t| t.id).collect()
}

/// llama.cpp's figures on the trunk file over the same rows (docs/ACCURACY.md).
pub mod llama {
    /// Mean KL divergence from the oracle, f16 cache.
    pub const KL_F16: f64 = 0.023386;
    /// Rows of 414 whose most probable token differs from the oracle's, f16 cache.
    pub const TOP1_MISSES_F16: f64 = 35.0;
    /// The same with its q8_0 cache.
    pub const KL_Q8: f64 = 0.022584;
    pub const TOP1_MISSES_Q8: f64 = 30.0;
}

/// The reference model's tokenizer.
pub fn tokenizer() -> strata_text::Tokenizer {
    let g = refmodel();
    let m = g.metadata();
    let strings = |key: &str| -> Vec<String> {
        match m.value(key) {
            Some(strata_gguf::Value::Array(strata_gguf::Array::String(a))) => a.iter().map(str::to_string).collect(),
            other => panic!("{key}: {other:?}"),
        }
    };
    strata_text::Tokenizer::new(strata_text::TokenizerSource {
        model: m.str("tokenizer.ggml.model").expect("a key").to_string(),
        pre: m.str("tokenizer.ggml.pre").expect("a key").to_string(),
        tokens: strings("tokenizer.ggml.tokens"),
        token_types: m.get("tokenizer.ggml.token_type").expect("a key"),
        merges: strings("tokenizer.ggml.merges"),
        eos: m.u32("tokenizer.ggml.eos_token_id").ok(),
        ..Default::default()
    })
    .expect("the reference model's tokenizer is sound")
}

/// Random numbers from a seed, the same everywhere.
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mixed(self.0) % n as u64) as usize
    }
}

/// All bits of `z` in each bit.
pub fn mixed(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
