//! The keys and tensors of a synthetic model, names and shapes as real files have them.

use crate::error::SynthError;
use crate::fill::{Filler, Units, Values};
use crate::recipe::{Recipe, fallback};
use crate::shape::{NGRAM_HEADS, Shape};
use crate::{hash, tokens};
use strata_gguf::{GgufWriter, Metadata};
use strata_quant::DType;

/// Head size of attention, of the indexer and of gated DeltaNet.
const HEAD: u64 = 256;
const INDEX_HEADS: u64 = 4;
const INDEX_HEAD: u64 = 128;
const DELTA_HEAD: u64 = 128;
const TAPS: u64 = 4;
/// Seed of the released model's hash.
const HASH_SEED: u64 = 1234;

/// One tensor: sizes fastest dimension first.
pub(crate) struct Tensor {
    pub name: String,
    pub dtype: DType,
    pub dims: Vec<u64>,
    pub filler: Filler,
}

impl Tensor {
    pub fn byte_len(&self) -> u64 {
        self.dims.iter().product::<u64>() / self.dtype.block_len() as u64 * self.dtype.block_bytes() as u64
    }
}

/// A model to be made: what stands in its file, before any of its bytes exist.
pub struct Plan {
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<Tensor>,
}

impl Plan {
    /// Plans a model.
    ///
    /// # Errors
    /// Sizes that contradict each other, or a type that random blocks cannot be made of.
    pub fn new(recipe: &Recipe) -> Result<Plan, SynthError> {
        recipe.shape.check()?;
        let mut plan = Plan { metadata: metadata(recipe), tensors: Vec::new() };
        Tensors { plan: &mut plan, r: recipe, s: &recipe.shape, units: Units::default() }.all();
        Ok(plan)
    }

    /// Bytes of the whole file.
    ///
    /// # Errors
    /// A tensor is larger than a file can be.
    pub fn file_len(&self) -> Result<u64, SynthError> {
        Ok(self.writer()?.file_len())
    }

    /// Number of weights.
    pub fn parameters(&self) -> u64 {
        self.tensors.iter().map(|t| t.dims.iter().product::<u64>()).sum()
    }

    pub(crate) fn writer(&self) -> Result<GgufWriter, SynthError> {
        let mut writer = GgufWriter::new(self.metadata.clone())?;
        for t in &self.tensors {
            writer.tensor(&t.name, t.dtype, &t.dims)?;
        }
        Ok(writer)
    }
}

fn metadata(r: &Recipe) -> Metadata {
    let s = &r.shape;
    let mut m = Metadata::default();
    m.insert("general.architecture", "qwen4exp");
    m.insert("general.name", format!("synthetic {} {}", r.experts, r.down).as_str());
    let blocks = s.layers + s.mtp;
    let sizes = [
        ("block_count", blocks),
        ("context_length", s.context),
        ("embedding_length", s.hidden),
        ("attention.head_count", s.heads),
        ("attention.head_count_kv", s.kv_heads),
        ("attention.key_length", HEAD),
        ("attention.value_length", HEAD),
        ("rope.dimension_count", 64),
        ("expert_count", s.experts),
        ("expert_used_count", s.used),
        ("expert_feed_forward_length", s.ff),
        ("expert_shared_feed_forward_length", s.shared_ff),
        ("ssm.conv_kernel", TAPS),
        ("ssm.state_size", DELTA_HEAD),
        ("ssm.group_count", s.key_heads),
        ("ssm.time_step_rank", s.value_heads),
        ("ssm.inner_size", s.value_heads * DELTA_HEAD),
        ("full_attention_interval", s.attention_every),
        ("hyper_connection.count", s.streams),
        ("hyper_connection.low_rank", s.low_rank),
        ("attention.indexer.head_count", INDEX_HEADS),
        ("attention.indexer.key_length", INDEX_HEAD),
        ("attention.indexer.top_k", s.budget),
    ];
    let key = |name: &str| format!("qwen4exp.{name}");
    for (name, value) in sizes {
        m.insert(key(name), value as u32);
    }
    m.insert(key("attention.layer_norm_rms_epsilon"), 1e-6f32);
    m.insert(key("rope.freq_base"), 1e7f32);
    m.insert(key("rope.dimension_sections"), vec![11i32, 11, 10, 0]);
    // the extra block, if there is one, counts as dense
    let ratios: Vec<i32> = (0..blocks).map(|i| if i < s.layers && s.is_attention(i) { 4 } else { 0 }).collect();
    m.insert(key("attention.compress_ratios"), ratios);
    if s.mtp > 0 {
        m.insert(key("nextn_predict_layers"), 1u32);
    }
    if s.ngram_rows > 0 {
        let sizes = head_sizes(s);
        m.insert(key("ple.layers"), vec![ngram_layer(s) as i32]);
        for (name, value) in [("ngram_size", 3), ("heads_per_ngram", 8), ("conv_kernel", TAPS), ("eos_token_id", s.vocab - 2)] {
            m.insert(key(&format!("ple.{name}")), value as u32);
        }
        m.insert(key("embedding_length_per_layer_input"), (s.hidden / NGRAM_HEADS) as u32);
        m.insert(key("ple.layer_multipliers"), hash::multipliers(HASH_SEED, s.vocab, 3));
        m.insert(key("ple.head_offsets"), hash::offsets(&sizes));
        m.insert(key("ple.head_vocab_sizes"), sizes);
    }
    tokens::put(&mut m, s.vocab);
    m
}

fn head_sizes(s: &Shape) -> Vec<u64> {
    hash::primes(s.ngram_rows / NGRAM_HEADS, NGRAM_HEADS as usize)
}

/// The layer that the n-gram module precedes.
fn ngram_layer(s: &Shape) -> u64 {
    1.min(s.layers - 1)
}

/// Appends tensors.
struct Tensors<'a> {
    plan: &'a mut Plan,
    r: &'a Recipe,
    s: &'a Shape,
    units: Units,
}

/// Norm gains: about 1, but no two alike.
const GAIN: Values = Values::Between(0.9, 1.1);

impl Tensors<'_> {
    fn add(&mut self, name: String, dtype: DType, dims: &[u64], values: Values) {
        let filler = Filler::new(self.r.seed, &name, dtype, values, &mut self.units);
        self.plan.tensors.push(Tensor { name, dtype, dims: dims.to_vec(), filler });
    }

    fn floats(&mut self, name: String, dims: &[u64], values: Values) {
        self.add(name, DType::F32, dims, values);
    }

    /// A matrix whose outputs have about `gain` times the root mean square of its inputs.
    fn matrix(&mut self, name: String, dtype: DType, dims: &[u64], gain: f32) {
        self.add(name, fallback(dtype, dims[0]), dims, Values::Around(gain / (dims[0] as f32).sqrt()));
    }

    fn all(&mut self) {
        let (s, r) = (self.s, self.r);
        self.add("token_embd.weight".into(), fallback(r.embedding, s.hidden), &[s.hidden, s.vocab], Values::Around(1.0));
        // logits spread by two, so that draws and perplexities mean something
        self.matrix("output.weight".into(), r.embedding, &[s.hidden, s.vocab], 4.0);
        self.hyper("output_hc", false);
        if s.ngram_rows > 0 {
            let rows = head_sizes(s).iter().sum::<u64>().next_multiple_of(128);
            let width = s.hidden / NGRAM_HEADS;
            self.add("per_layer_token_embd.weight".into(), fallback(r.table, width), &[width, rows], Values::Around(1.0));
        }
        for i in 0..s.layers {
            self.block(i, s.is_attention(i));
        }
        if s.mtp > 0 {
            self.block(s.layers, true);
            let b = format!("blk.{}.nextn.", s.layers);
            self.matrix(format!("{b}eh_proj.weight"), r.dense, &[2 * s.hidden, s.hidden], 1.0);
            self.floats(format!("{b}enorm.weight"), &[s.hidden], GAIN);
            self.floats(format!("{b}hnorm.weight"), &[s.wide()], GAIN);
            self.hyper(&format!("{b}hc_head"), false);
        }
    }

    fn hyper(&mut self, prefix: &str, inject: bool) {
        let (s, dense) = (self.s, self.r.dense);
        self.floats(format!("{prefix}_norm.weight"), &[s.wide()], GAIN);
        // the read divides by the number of streams before its gates
        self.matrix(format!("{prefix}_down.weight"), dense, &[s.wide(), s.low_rank], 4.0);
        self.matrix(format!("{prefix}_up.weight"), dense, &[s.low_rank, s.wide()], 2.0);
        if inject {
            self.floats(format!("{prefix}_inject.weight"), &[s.wide(), s.streams], Values::Around(2.0 / (s.wide() as f32).sqrt()));
        }
    }

    fn block(&mut self, i: u64, attention: bool) {
        let b = format!("blk.{i}.");
        self.hyper(&format!("{b}hc_attn"), true);
        self.hyper(&format!("{b}hc_ffn"), true);
        if attention {
            self.attention(&b)
        } else {
            self.delta(&b)
        }
        if i == ngram_layer(self.s) && self.s.ngram_rows > 0 {
            self.ngram(&b);
        }
        self.experts(&b);
    }

    fn delta(&mut self, b: &str) {
        let (s, dense) = (self.s, self.r.dense);
        let inner = s.value_heads * DELTA_HEAD;
        let conv = 2 * s.key_heads * DELTA_HEAD + inner;
        self.matrix(format!("{b}attn_qkv.weight"), dense, &[s.hidden, conv], 2.0);
        self.matrix(format!("{b}attn_gate.weight"), dense, &[s.hidden, inner], 2.0);
        let small = Values::Around(1.0 / (s.hidden as f32).sqrt());
        self.floats(format!("{b}ssm_beta.weight"), &[s.hidden, s.value_heads], small);
        self.floats(format!("{b}ssm_alpha.weight"), &[s.hidden, s.value_heads], small);
        // memories from a few tokens to hundreds of them
        self.floats(format!("{b}ssm_a"), &[s.value_heads], Values::Between(-8.0, -0.5));
        self.floats(format!("{b}ssm_dt.bias"), &[s.value_heads], Values::Between(-5.0, -2.0));
        self.floats(format!("{b}ssm_conv1d.weight"), &[TAPS, conv], Values::Around(0.5));
        self.floats(format!("{b}ssm_norm.weight"), &[DELTA_HEAD], GAIN);
        self.matrix(format!("{b}ssm_out.weight"), dense, &[inner, s.hidden], 0.5);
    }

    fn attention(&mut self, b: &str) {
        let (s, dense) = (self.s, self.r.dense);
        let (q, kv) = (s.heads * HEAD, s.kv_heads * HEAD);
        self.matrix(format!("{b}attn_q.weight"), dense, &[s.hidden, 2 * q], 2.0);
        self.matrix(format!("{b}attn_k.weight"), dense, &[s.hidden, kv], 2.0);
        self.matrix(format!("{b}attn_v.weight"), dense, &[s.hidden, kv], 2.0);
        self.matrix(format!("{b}attn_output.weight"), dense, &[q, s.hidden], 0.5);
        self.floats(format!("{b}attn_q_norm.weight"), &[HEAD], GAIN);
        self.floats(format!("{b}attn_k_norm.weight"), &[HEAD], GAIN);
        self.matrix(format!("{b}indexer.q_proj.weight"), DType::Q8_0, &[s.hidden, INDEX_HEADS * INDEX_HEAD], 2.0);
        self.matrix(format!("{b}indexer.k_proj.weight"), DType::Q8_0, &[s.hidden, INDEX_HEAD], 2.0);
        self.floats(format!("{b}indexer.q_norm.weight"), &[INDEX_HEAD], GAIN);
        self.floats(format!("{b}indexer.k_norm.weight"), &[INDEX_HEAD], GAIN);
    }

    fn ngram(&mut self, b: &str) {
        let (s, dense) = (self.s, self.r.dense);
        self.matrix(format!("{b}ple_key.weight"), dense, &[s.hidden, s.wide()], 1.0);
        self.matrix(format!("{b}ple_value.weight"), dense, &[s.hidden, s.hidden], 1.0);
        for part in ["key", "query", "conv"] {
            self.floats(format!("{b}ple_norm_{part}.weight"), &[s.wide()], GAIN);
        }
        self.floats(format!("{b}ple_conv1d.weight"), &[TAPS, s.wide()], Values::Around(0.2));
    }

    fn experts(&mut self, b: &str) {
        let (s, r) = (self.s, self.r);
        self.floats(format!("{b}ffn_gate_inp.weight"), &[s.hidden, s.experts], Values::Around(3.0 / (s.hidden as f32).sqrt()));
        self.matrix(format!("{b}ffn_gate_exps.weight"), r.experts, &[s.hidden, s.ff, s.experts], 3.0);
        self.matrix(format!("{b}ffn_up_exps.weight"), r.experts, &[s.hidden, s.ff, s.experts], 3.0);
        self.matrix(format!("{b}ffn_down_exps.weight"), r.down, &[s.ff, s.hidden, s.experts], 0.5);
        self.matrix(format!("{b}ffn_gate_shexp.weight"), r.dense, &[s.hidden, s.shared_ff], 3.0);
        self.matrix(format!("{b}ffn_up_shexp.weight"), r.dense, &[s.hidden, s.shared_ff], 3.0);
        self.matrix(format!("{b}ffn_down_shexp.weight"), r.dense, &[s.shared_ff, s.hidden], 0.5);
        self.floats(format!("{b}ffn_gate_inp_shexp.weight"), &[s.hidden], Values::Around(1.0 / (s.hidden as f32).sqrt()));
    }
}
