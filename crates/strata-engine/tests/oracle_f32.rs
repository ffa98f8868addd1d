//! The scalar verification arm (dequantised weights, f32 activations and cache) against the oracle, which was
//! computed from the same weights by another implementation: logits, MTP rows, continuations, and every decision.

mod common;

use common::*;
use std::collections::HashMap;
use std::slice::from_mut;
use strata_engine::EngineOptions;
use strata_model::{Limits, MtpSequence, Observer, Scratch, Segment, Sequence, WeightMode};
use strata_ops::backend::Backend;
use strata_ops::qsa::kv::KvKind;

const TOLERANCE: f32 = 2e-3;

fn options(capacity: usize) -> EngineOptions {
    EngineOptions { kv: KvKind::F32, capacity, score_rows: 64, ..Default::default() }
}

/// Largest difference to the oracle's top 20 of a row.
fn top_difference(logits: &[f32], values: &[f32], ids: &[i64]) -> f32 {
    values.iter().zip(ids).map(|(v, id)| (logits[*id as usize] - v).abs()).fold(0.0, f32::max)
}

/// A router's choice: experts, their weights, and the margin between the last taken and the first left out.
type Choice = (Vec<u32>, Vec<f32>, f32);

/// Collects what a pass decides, by layer and position.
#[derive(Default)]
struct Decisions {
    rows: HashMap<usize, Vec<u64>>,
    experts: HashMap<(usize, usize), Choice>,
    blocks: HashMap<(usize, usize), (Vec<u32>, Vec<f32>)>,
    residual: HashMap<(usize, usize), Vec<f32>>,
    keep_residual: bool,
}

impl Observer for Decisions {
    fn ngram_rows(&mut self, position: usize, rows: &[u64]) {
        self.rows.insert(position, rows.to_vec());
    }

    fn residual(&mut self, layer: usize, position: usize, wide: &[f32]) {
        if self.keep_residual {
            self.residual.insert((layer, position), wide.to_vec());
        }
    }

    fn experts(&mut self, layer: usize, position: usize, logits: &[f32], ids: &[u32], weights: &[f32]) {
        // the margin between the last expert taken and the first left out
        let last = logits[*ids.last().expect("experts are taken") as usize];
        let left =
            logits.iter().enumerate().filter(|(i, _)| !ids.contains(&(*i as u32))).map(|(_, l)| *l).fold(f32::NEG_INFINITY, f32::max);
        self.experts.insert((layer, position), (ids.to_vec(), weights.to_vec(), last - left));
    }

    fn selection(&mut self, layer: usize, position: usize, blocks: &[u32], scores: &[f32]) {
        self.blocks.insert((layer, position), (blocks.to_vec(), scores.to_vec()));
    }
}

/// Every logit of every position, and every decision that the fixtures hold, prompt by prompt.
fn check_prompt(name: &'static str) {
    let f = Fixture::load(name);
    let (values, ids) = (f.floats("top20_values"), f.ints("top20_ids"));
    let last = f.floats("last_logits");
    let mut e = engine(WeightMode::DequantizedF32, options(f.ids.len() + 1));
    let mut seen = Decisions { keep_residual: f.has("hidden_layers"), ..Default::default() };
    let (mut worst, mut rows) = (0.0f32, 0);
    e.score(&f.ids, 0, Some(&mut seen), &mut |p, logits| {
        let at = p * 20..(p + 1) * 20;
        let d = top_difference(logits, &values[at.clone()], &ids[at]);
        assert!(d <= TOLERANCE, "{name}: position {p} differs by {d}");
        worst = worst.max(d);
        rows += 1;
        if p + 1 == f.ids.len() {
            let d = logits.iter().zip(&last).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(d <= TOLERANCE, "{name}: the last row differs by {d}");
        }
    })
    .expect("the prompt runs");
    assert_eq!(rows, f.ids.len());
    println!("{name}: {rows} rows, largest logit difference {worst:e}");

    let want = f.ints("ple_rows");
    for (p, want) in f.positions("ple_rows_positions").into_iter().zip(want.chunks_exact(16)) {
        let got: Vec<i64> = seen.rows[&p].iter().map(|r| *r as i64).collect();
        assert_eq!(got, want, "{name}: n-gram rows of position {p}");
    }

    let positions = f.positions("router_positions");
    let (ids, weights) = (f.ints("router_ids"), f.floats("router_weights"));
    let mut margin = f32::INFINITY;
    for layer in 0..8 {
        for (i, p) in positions.iter().enumerate() {
            let at = (layer * positions.len() + i) * 4;
            let (got, got_weights, gap) = &seen.experts[&(layer, *p)];
            let got: Vec<i64> = got.iter().map(|e| i64::from(*e)).collect();
            assert_eq!(got, ids[at..at + 4], "{name}: experts of layer {layer}, position {p} (margin {gap})");
            assert!(got_weights.iter().zip(&weights[at..at + 4]).all(|(a, b)| (a - b).abs() < 1e-4));
            margin = margin.min(*gap);
        }
    }
    println!("{name}: {} router choices equal, smallest margin {margin}", 8 * positions.len());

    let positions = f.positions("qsa_positions");
    if !positions.is_empty() {
        let (blocks, cut) = (f.ints("qsa_blocks"), f.floats("qsa_cut_scores"));
        let mut compared = 0;
        for (l, layer) in [3, 7].into_iter().enumerate() {
            for (i, p) in positions.iter().enumerate() {
                let at = (l * positions.len() + i) * 64;
                let want: Vec<u32> = blocks[at..at + 64].iter().filter(|b| **b >= 0).map(|b| *b as u32).collect();
                match seen.blocks.get(&(layer, *p)) {
                    Some((got, scores)) => {
                        let gap = cut[(l * positions.len() + i) * 2] - cut[(l * positions.len() + i) * 2 + 1];
                        assert_eq!(*got, want, "{name}: blocks of layer {layer}, position {p} (score gap {gap} at the cut)");
                        // the fixture's scores carry the factor 1 / sqrt(128), which changes no order
                        let mut sorted = scores.clone();
                        sorted.sort_by(|a, b| b.total_cmp(a));
                        let scaled = sorted[63] / 128f32.sqrt();
                        assert!((scaled - cut[(l * positions.len() + i) * 2]).abs() < 1e-3);
                        compared += 1;
                    }
                    // every complete block is taken
                    None => assert_eq!(want, (0..(*p as u32 + 1) / 4).collect::<Vec<_>>(), "{name}: position {p}"),
                }
            }
        }
        println!("{name}: {compared} selections equal");
    }

    if f.has("hidden_layers") {
        let want = f.floats("hidden_layers");
        let n = f.ids.len();
        let mut worst = 0.0f32;
        for ((layer, p), wide) in &seen.residual {
            for (s, stream) in wide.chunks_exact(256).enumerate() {
                let w = &want[((layer * n + p) * 4 + s) * 18..][..18];
                let mean = stream.iter().sum::<f32>() / 256.0;
                let rms = (stream.iter().map(|x| x * x).sum::<f32>() / 256.0).sqrt();
                let got = [mean, rms].into_iter().chain(stream[..16].iter().copied());
                worst = got.zip(w).map(|(a, b)| (a - b).abs()).fold(worst, f32::max);
            }
        }
        println!("{name}: residuals of {} rows, largest difference {worst:e}", seen.residual.len());
        assert_eq!(seen.residual.len(), 8 * n);
        assert!(worst < TOLERANCE);
    }
}

#[test]
fn short_prompts_equal_the_oracle() {
    for name in ["short", "chat", "chat2", "prose300"] {
        check_prompt(name);
    }
}

#[test]
fn the_long_prose_equals_the_oracle() {
    check_prompt("prose1500");
}

#[test]
fn the_needle_prompt_equals_the_oracle() {
    check_prompt("needle6000");
}

#[test]
fn greedy_continuations_equal_the_oracle() {
    for name in PROMPTS {
        let f = Fixture::load(name);
        let mut e = engine(WeightMode::DequantizedF32, options(f.ids.len() + 65));
        let got = generate(&mut e, &f.ids, 64, &greedy());
        let want: Vec<u32> = f.ints("greedy_ids").into_iter().map(|i| i as u32).collect();
        assert_eq!(got, want, "{name}");
    }
}

#[test]
fn mtp_rows_equal_the_oracle() {
    for name in ["chat", "prose300"] {
        let f = Fixture::load(name);
        let n = f.ids.len();
        let cpu = cpu();
        let m = model(&cpu, WeightMode::DequantizedF32);
        let c = m.config().clone();
        let mut s = Scratch::new(&cpu, &m, Limits { rows: n, head_rows: n, capacity: n + 1 }).expect("it fits");
        let mut seq = Sequence::new(&cpu, &m, KvKind::F32, n + 1, 0).expect("it fits");
        let mut mtp = MtpSequence::new(&cpu, &c, KvKind::F32, n + 1, false).expect("it fits");
        let all = [Segment { seq: 0, rows: n, commit: true }];
        m.forward(&cpu, from_mut(&mut seq), &all, &f.ids, &mut s, None).expect("the prompt runs");
        s.mtp_input_from_residual(&cpu, &c, 0, 0, n);
        let mut next = f.ids[1..].to_vec();
        next.push(f.ints("greedy_ids")[0] as u32);
        m.mtp_forward(&cpu, from_mut(&mut mtp), &all, &next, &mut s).expect("the rows run");
        m.mtp_head(&cpu, &mut s, 0..n).expect("the head runs");
        let mut logits = vec![0.0; n * c.vocab];
        cpu.read(s.logits(), 0, &mut logits);
        let (values, ids) = (f.floats("mtp_joint_top20_values"), f.ints("mtp_joint_top20_ids"));
        let mut worst = 0.0f32;
        for (p, row) in logits.chunks_exact(c.vocab).enumerate() {
            let at = p * 20..(p + 1) * 20;
            worst = worst.max(top_difference(row, &values[at.clone()], &ids[at]));
        }
        println!("{name}: {n} MTP rows, largest logit difference {worst:e}");
        assert!(worst <= TOLERANCE, "{name}: {worst}");
    }
}
