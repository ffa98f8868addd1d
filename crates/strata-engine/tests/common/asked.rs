//! Random requests with everything that can be asked, and their answers by the plainest of means.
#![allow(dead_code)]

use crate::common::{Rng, mixed};
use std::sync::Arc;
use strata_cpu::backend::Cpu;
use strata_cpu::pool::Pool;
use strata_cpu::simd::Simd;
use strata_engine::sampler::{Draw, History, Origin, Sampler, SamplingParams, TokenLogprob};
use strata_engine::{Batch, Constraint, Engine, EngineOptions, Generate, Token};
use strata_model::{Limits, Model, ModelOptions, Scratch, Segment, Sequence};
use strata_ops::backend::Backend;
use strata_ops::qsa::kv::KvKind;

/// A grammar without a meaning: three of four tokens are allowed, which follows from the last token and how many there were. It
/// panics when it is not told of the next pass as promised.
#[derive(Clone, Debug)]
pub struct Lottery {
    pub seed: u64,
    /// Tokens of a complete answer.
    pub length: usize,
    accepted: Vec<u32>,
    drafts: Vec<u32>,
    /// Tokens accepted when it was last told of a pass; before the first: none.
    told: Option<usize>,
    mask: Vec<u32>,
}

impl Lottery {
    pub fn new(seed: u64, length: usize, vocab: usize) -> Lottery {
        Lottery { seed, length, accepted: Vec::new(), drafts: Vec::new(), told: None, mask: vec![0; vocab.div_ceil(32)] }
    }

    pub fn allows(&self, token: u32) -> bool {
        let last = self.accepted.last().copied().unwrap_or(0);
        let all = self.seed ^ u64::from(token) << 40 ^ u64::from(last) << 16 ^ self.accepted.len() as u64;
        !mixed(all).is_multiple_of(4)
    }
}

impl Constraint for Lottery {
    fn ahead(&mut self, drafts: &[u32]) {
        assert_ne!(self.told, Some(self.accepted.len()), "a pass draws at least one token");
        self.drafts = drafts.to_vec();
        self.told = Some(self.accepted.len());
    }

    fn allowed(&mut self) -> Result<Option<&[u32]>, String> {
        let told = self.told.expect("it is told of a pass before it is asked");
        assert!(self.drafts.starts_with(&self.accepted[told..]), "a row is drawn if the drafts before it were right");
        for (word, w) in (0..).step_by(32).zip(0..self.mask.len()) {
            self.mask[w] = (0..32).fold(0, |m, bit| m | u32::from(self.allows(word + bit)) << bit);
        }
        Ok(Some(&self.mask))
    }

    fn accept(&mut self, token: u32) -> Result<bool, String> {
        assert!(self.allows(token), "what it does not allow is not drawn");
        self.accepted.push(token);
        Ok(self.accepted.len() == self.length)
    }
}

/// What is asked of an answer.
#[derive(Clone, Debug)]
pub struct Asked {
    pub prompt: Vec<u32>,
    pub params: SamplingParams,
    pub choice: u32,
    pub most: usize,
    pub stop: Vec<u32>,
    pub bias: Vec<(u32, f32)>,
    pub grammar: Option<Lottery>,
}

impl Asked {
    pub fn random(rng: &mut Rng, source: &[u32], vocab: usize) -> Asked {
        let len = 1 + rng.below(60);
        let at = rng.below(source.len() - len);
        let seed = rng.below(1000) as u64;
        let params = match rng.below(4) {
            0 => SamplingParams { temperature: 0.0, logprobs: Some(3), ..Default::default() },
            1 => SamplingParams { seed, logprobs: Some(2), ..Default::default() },
            2 => SamplingParams { temperature: 0.7, top_k: 20, seed, ..Default::default() },
            _ => SamplingParams { top_p: 0.9, repetition_penalty: 1.2, frequency_penalty: 0.2, seed, ..Default::default() },
        };
        let token = |rng: &mut Rng| source[rng.below(source.len())];
        let bias = match rng.below(2) {
            0 => Vec::new(),
            // one of them twice
            _ => (0..9).map(|i| (source[at + i % len.min(8)], [-100.0, -1.5, 0.3, 4.0][rng.below(4)])).collect(),
        };
        let grammar = (rng.below(2) == 0).then(|| Lottery::new(seed, 2 + rng.below(30), vocab));
        let stop = (0..rng.below(12)).map(|_| token(rng)).collect();
        Asked { prompt: source[at..at + len].to_vec(), params, choice: rng.below(3) as u32, most: 1 + rng.below(20), stop, bias, grammar }
    }

    pub fn generate(&self) -> Generate {
        Generate {
            params: self.params,
            choice: self.choice,
            max_tokens: self.most,
            stop: self.stop.clone(),
            bias: self.bias.clone(),
            constraint: self.grammar.clone().map(|g| Box::new(g) as Box<dyn Constraint>),
        }
    }

    /// The answer token by token, each from the logits of all before it, which are read anew, with bias and mask by hand. True: a
    /// stop, false: cut off.
    pub fn answer(&self, e: &mut Engine<Cpu>) -> (Vec<Token>, bool) {
        let vocab = e.model().config().vocab;
        let mut sampler = Sampler::new(vocab as u32);
        let mut history = History::new(vocab, self.prompt.len() + self.most, self.params.penalty_last_n);
        self.prompt.iter().for_each(|t| history.push(*t, Origin::Prompt).unwrap());
        let (mut grammar, mut out, mut top) = (self.grammar.clone(), Vec::new(), [TokenLogprob::default(); 8]);
        loop {
            let tokens = history.tokens().to_vec();
            let mut raw = Vec::new();
            e.score(&tokens, tokens.len() - 1, None, &mut |_, l| raw.extend_from_slice(l)).unwrap();
            let mut biased = raw.clone();
            self.bias.iter().for_each(|(t, b)| biased[*t as usize] += b);
            let mut mask = vec![0u32; vocab.div_ceil(32)];
            for t in (0..vocab as u32).filter(|t| grammar.as_ref().is_none_or(|g| g.allows(*t))) {
                mask[t as usize / 32] |= 1 << (t % 32);
            }
            let at = Draw { position: tokens.len() as u64, choice: self.choice, history: Some(&history), allowed: Some(&mask), bias: &[] };
            let id = sampler.sample(&biased, &self.params, at, &mut top).unwrap().token;
            // log-probabilities are those of the raw logits
            let mut only = vec![0u32; vocab.div_ceil(32)];
            only[id as usize / 32] = 1 << (id % 32);
            let s = sampler.sample(&raw, &self.params, Draw { history: Some(&history), allowed: Some(&only), ..at }, &mut top).unwrap();
            assert_eq!(s.token, id);
            out.push(Token { id, logprob: s.logprob, top: top[..s.top_len].to_vec() });
            history.push(id, Origin::Generated).unwrap();
            let complete = grammar.as_mut().is_some_and(|g| {
                g.accepted.push(id);
                g.accepted.len() == g.length
            });
            if complete || self.stop.contains(&id) {
                return (out, true);
            }
            if out.len() == self.most {
                return (out, false);
            }
        }
    }
}

/// The mean of the hidden states before the head, read token by token and added up by position.
pub fn embedding(text: &[u32], kv: KvKind) -> Vec<f32> {
    let cpu = super::common::cpu();
    let model = super::common::model(&cpu, strata_model::WeightMode::AsStored);
    let limits = Limits { rows: 1, head_rows: 1, capacity: text.len() };
    let mut s = Scratch::new(&cpu, &model, limits).unwrap();
    let mut seqs = vec![Sequence::new(&cpu, &model, kv, text.len(), 0).unwrap()];
    let (mut row, mut sum) = (vec![0.0f32; model.config().hidden], vec![0.0f64; model.config().hidden]);
    for t in text {
        model.forward(&cpu, &mut seqs, &[Segment { seq: 0, rows: 1, commit: true }], &[*t], &mut s, None).unwrap();
        model.final_hidden(&cpu, &mut s, std::iter::once(0)).unwrap();
        cpu.read(s.final_hidden(), 0, &mut row);
        for (s, x) in sum.iter_mut().zip(&row) {
            *s += f64::from(*x);
        }
    }
    sum.iter().map(|s| (s / text.len() as f64) as f32).collect()
}

pub fn on_cpu(threads: usize) -> Cpu {
    Cpu::new(Arc::new(Pool::new(threads)), Simd::best()).unwrap()
}

pub fn batch<B: Backend>(backend: B, options: EngineOptions, slots: usize) -> Batch<B> {
    let options_of_model = ModelOptions { mtp: options.spec > 0, ..Default::default() };
    let model = Model::bind(&backend, &super::common::refmodel(), None, options_of_model).unwrap();
    Batch::new(backend, model, options, slots).unwrap()
}
