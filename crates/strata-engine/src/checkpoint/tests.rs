//! A slot that goes on from a checkpoint against one that read all tokens.

use super::*;
use crate::options::EngineOptions;
use crate::sampler::SamplingParams;
use crate::slot::{Stats, Token};
use crate::step::Work;
use strata_cpu::backend::Cpu;
use strata_cpu::pool::Pool;
use strata_cpu::simd::Simd;
use strata_gguf::Gguf;
use strata_model::{LayerKind, Model, ModelOptions};
use strata_ops::qsa::kv::KvKind;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Token ids of a text.
fn text(name: &str) -> Vec<u32> {
    let bytes = std::fs::read(format!("{ROOT}/tests/data/oracle/{name}.safetensors")).unwrap();
    let all = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    all.tensor("input_ids").unwrap().data().as_chunks::<4>().0.iter().map(|c| u32::from_le_bytes(*c)).collect()
}

fn batch(kv: KvKind, spec: usize, slots: usize, chunk: usize) -> Batch<Cpu> {
    let gguf = Gguf::open(format!("{ROOT}/models/refmodel-q8_0.gguf")).unwrap();
    let cpu = Cpu::new(Arc::new(Pool::new(2)), Simd::best()).unwrap();
    let model = Model::bind(&cpu, &gguf, None, ModelOptions { mtp: spec > 0, ..Default::default() }).unwrap();
    Batch::new(cpu, model, EngineOptions { kv, capacity: 2048, chunk, spec, ..Default::default() }, slots).unwrap()
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Everything about an answer: tokens with the probabilities of the best, and what was drafted for them.
type Answer = (Vec<Token>, Stats);

fn params() -> SamplingParams {
    SamplingParams { temperature: 0.8, seed: 5, logprobs: Some(3), ..Default::default() }
}

/// Reads on to the length `to` of the prompt, in chunks.
fn read(b: &mut Batch<Cpu>, slot: usize, to: usize, rng: &mut Rng) -> Vec<Token> {
    let mut events = Vec::new();
    while b.committed(slot).len() < to {
        let rows = (1 + rng.below(b.options.chunk)).min(to - b.committed(slot).len());
        b.step(&[Work { slot, rows }], &|_, _| false, &mut events).unwrap();
    }
    events.into_iter().map(|e| e.token.unwrap()).collect()
}

/// The first `n` tokens after a prompt, from wherever the slot is, and the states it ends with.
fn answer(b: &mut Batch<Cpu>, slot: usize, prompt: &[u32], n: usize, rng: &mut Rng) -> Answer {
    let before = b.stats(slot);
    b.begin(slot, prompt, &params()).unwrap();
    let mut out = read(b, slot, prompt.len(), rng);
    let mut events = Vec::new();
    while out.len() < n {
        b.step(&[Work { slot, rows: 1 + b.options.spec }], &|_, _| false, &mut events).unwrap();
        out.extend(events.drain(..).map(|e| e.token.unwrap()));
    }
    let after = b.stats(slot);
    let drafted = Stats {
        prompt_tokens: 0,
        steps: after.steps - before.steps,
        drafted: after.drafted - before.drafted,
        accepted: after.accepted - before.accepted,
    };
    (out, drafted)
}

fn same(a: &Checkpoint, b: &Checkpoint) -> bool {
    let bits = |x: &[f32]| x.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let parts = |c: &Checkpoint| c.mtp.as_ref().map(|m| (m.rows, m.whole, bits(&m.open), bits(&m.carried), m.next.clone()));
    a.tokens == b.tokens && bits(&a.states) == bits(&b.states) && parts(a) == parts(b)
}

#[test]
fn a_restored_slot_goes_on_with_the_bits_of_one_that_read_all() {
    let source = text("prose1500");
    let kinds = [(KvKind::Int8, 0), (KvKind::Int8, 3), (KvKind::F16, 2), (KvKind::Q4_0, 3), (KvKind::K8V4, 0), (KvKind::F32, 4)];
    for (seed, (kv, spec)) in kinds.into_iter().enumerate() {
        let mut rng = Rng(seed as u64);
        let mut hot = batch(kv, spec, 3, 200);
        let mut cold = batch(kv, spec, 1, 333);
        let mut kept: Vec<Checkpoint> = Vec::new();
        let mut drafted = 0;
        for round in 0..10 {
            let slot = rng.below(3);
            // from nothing, from what the slot holds, or from a checkpoint: one of its own past, or another's
            let base: Vec<u32> = match rng.below(5) {
                0 => Vec::new(),
                1 => hot.committed(slot).to_vec(),
                _ if kept.is_empty() => Vec::new(),
                _ => {
                    let from = &kept[rng.below(kept.len())];
                    hot.restore(slot, from).unwrap();
                    from.tokens.clone()
                }
            };
            let more = if rng.below(3) == 0 { 300 + rng.below(400) } else { 1 + rng.below(60) };
            let at = rng.below(source.len() - more);
            let prompt: Vec<u32> = base.iter().copied().chain(source[at..at + more].iter().copied()).take(1900).collect();
            if prompt.len() <= base.len() {
                continue;
            }
            let n = 2 + rng.below(14);
            hot.begin(slot, &prompt, &params()).unwrap();
            assert_eq!(hot.unread(slot), prompt.len() - base.len());
            // a place within the prompt, then its end, then the answer's
            let within = base.len() + rng.below(prompt.len() - base.len());
            read(&mut hot, slot, within, &mut rng);
            let parent = kept.iter().max_by_key(|k| common(&k.tokens, hot.committed(slot)));
            let middle = hot.checkpoint(slot, parent).unwrap();
            if let (true, Some(parent)) = (round > 2, parent) {
                let shared = common(&parent.tokens, &middle.tokens) / PAGE;
                assert!(middle.pages[..shared].iter().zip(&parent.pages).all(|(a, b)| Arc::ptr_eq(a, b)));
            }
            kept.push(middle);
            let found = answer(&mut hot, slot, &prompt, n, &mut rng);
            kept.push(hot.checkpoint(slot, kept.last()).unwrap());
            cold.clear(0);
            let wanted = answer(&mut cold, 0, &prompt, n, &mut rng);
            assert_eq!(found, wanted, "{} with {spec} drafts, round {round}", kv.name());
            assert!(same(&hot.checkpoint(slot, None).unwrap(), &cold.checkpoint(0, None).unwrap()), "round {round}");
            drafted += found.1.accepted;
        }
        assert!(spec == 0 || drafted > 0);
    }
}

/// Ranges of a checkpoint's states by what they are.
fn parts(b: &Batch<Cpu>) -> Vec<(&'static str, Range<usize>)> {
    let c = b.model.config();
    let (mut at, mut parts) = (0, Vec::new());
    let mut part = |name, len| {
        parts.push((name, at..at + len));
        at += len;
    };
    let conv = strata_ops::conv::state_rows(c.conv_taps, 1) * c.gdn.conv_dim();
    for kind in &c.layers {
        match kind {
            LayerKind::Gdn => {
                part("convolution", conv);
                part("delta rule", c.gdn.state_len());
            }
            LayerKind::Qsa => {
                part("key of the tail", c.qsa.index_dim);
                part("open block", (c.qsa.block - 1) * c.qsa.index_dim);
            }
        }
    }
    let p = c.ngram.as_ref().unwrap();
    part("n-gram convolution", strata_ops::conv::state_rows(p.conv_taps, p.ngram_size) * c.wide());
    assert_eq!(at, b.seqs[0].states_len(c));
    parts
}

#[test]
fn every_part_of_a_checkpoint_is_needed() {
    let source = text("prose1500");
    let (prompt, at, rng) = (&source[..1400], 1355, &mut Rng(1));
    let mut b = batch(KvKind::Int8, 3, 1, 512);
    b.begin(0, prompt, &params()).unwrap();
    read(&mut b, 0, at, rng);
    let good = b.checkpoint(0, None).unwrap();
    let copy = || Checkpoint {
        tokens: good.tokens.clone(),
        states: good.states.clone(),
        pages: good.pages.clone(),
        mtp: good.mtp.as_ref().map(|m| Drafted {
            open: m.open.clone(),
            carried: m.carried.clone(),
            next: m.next.clone(),
            pages: m.pages.clone(),
            ..*m
        }),
    };
    // the states at the end too: what is wrong spreads, even where it changes no token
    let mut run = |from: &Checkpoint, prompt: &[u32]| {
        b.clear(0);
        b.restore(0, from).unwrap();
        let (tokens, stats) = answer(&mut b, 0, prompt, 40, rng);
        (tokens, stats, b.checkpoint(0, None).unwrap())
    };
    let (tokens, stats, last) = run(&good, prompt);
    let (again, _, still) = run(&copy(), prompt);
    assert!(again == tokens && same(&last, &still));
    let names = ["convolution", "delta rule", "open block", "n-gram convolution"];
    let places = parts(&batch(KvKind::Int8, 0, 1, 8));
    for name in names {
        let mut broken = copy();
        let of = places.iter().filter(|p| p.0 == name);
        of.for_each(|(_, range)| broken.states[range.clone()].fill(0.0));
        let (found, _, end) = run(&broken, prompt);
        assert!(found != tokens || end.states != last.states, "{name}");
    }
    // a page
    let mut broken = copy();
    broken.pages[3] = Arc::new(Page(vec![0; good.pages[3].0.len()]));
    assert!(run(&broken, prompt).0 != tokens);
    // the tokens that the n-gram hash looks back at
    let mut broken = copy();
    broken.tokens[at - 1] += 1;
    let other: Vec<u32> = broken.tokens.iter().chain(&prompt[at..]).copied().collect();
    assert!(run(&broken, &other).0 != tokens);
    // the MTP block's state changes drafts, never the text
    for part in 0..3 {
        let mut broken = copy();
        let m = broken.mtp.as_mut().unwrap();
        match part {
            0 => broken.mtp = None,
            1 => m.carried.fill(0.0),
            _ => m.pages.iter_mut().for_each(|p| *p = Arc::new(Page(vec![0; p.0.len()]))),
        }
        let (found, drafts, end) = run(&broken, prompt);
        let pages = |c: &Checkpoint| c.mtp.as_ref().map(|m| m.pages.iter().map(|p| p.0.clone()).collect::<Vec<_>>());
        assert!(found == tokens && (drafts != stats || pages(&end) != pages(&last)), "part {part}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let source = text("prose300");
    let rng = &mut Rng(3);
    let mut b = batch(KvKind::Int8, 0, 2, 64);
    b.begin(0, &source[..290], &params()).unwrap();
    read(&mut b, 0, 280, rng);
    let good = b.checkpoint(0, None).unwrap();
    let copy = || Checkpoint { tokens: good.tokens.clone(), states: good.states.clone(), pages: good.pages.clone(), mtp: None };
    let field = |b: &mut Batch<Cpu>, c: &Checkpoint| match b.restore(0, c) {
        Err(EngineError::Checkpoint { field, .. }) => field,
        r => panic!("{r:?}"),
    };
    let mut bad = copy();
    bad.tokens[7] = u32::MAX;
    assert_eq!(field(&mut b, &bad), "tokens");
    bad = copy();
    bad.states.pop();
    assert_eq!(field(&mut b, &bad), "states");
    bad = copy();
    bad.pages.pop();
    assert_eq!(field(&mut b, &bad), "pages");
    bad = copy();
    bad.tokens.push(1);
    assert_eq!(field(&mut b, &bad), "pages");
    bad.tokens.extend([1; 4000]);
    assert_eq!(field(&mut b, &bad), "tokens");
    let mut other = batch(KvKind::F16, 0, 1, 64);
    assert_eq!(field(&mut other, &good), "pages");
    assert_eq!(b.committed(0), &source[..280], "the slot is as it was");
}
