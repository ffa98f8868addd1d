//! int8 activations against the oracle: agreement, divergence and continuations with each cache kind.
//!
//! The bounds are 1.15 times llama.cpp's figures on the same weights (docs/ACCURACY.md says how they were taken).

mod common;

use common::*;
use strata_cpu::backend::Cpu;
use strata_engine::{Engine, EngineOptions};
use strata_model::WeightMode;
use strata_ops::qsa::kv::KvKind;

/// Agreement with the oracle over the prompts under 400 tokens.
struct Agreement {
    rows: usize,
    top1: usize,
    kl: f64,
    worst: f32,
}

fn with_kv(kv: KvKind, capacity: usize) -> Engine<Cpu> {
    engine(WeightMode::AsStored, EngineOptions { kv, capacity, score_rows: 64, ..Default::default() })
}

/// KL(oracle || ours) of a row over 21 outcomes: the oracle's top 20 and the rest.
fn divergence(logits: &[f32], values: &[f32], ids: &[i64], logsumexp: f32) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|l| f64::from(l - max).exp()).sum();
    let (mut kl, mut p_rest, mut q_rest) = (0.0, 1.0, 1.0);
    for (v, id) in values.iter().zip(ids) {
        let p = f64::from(v - logsumexp).exp();
        let q = f64::from(logits[*id as usize] - max).exp() / sum;
        kl += p * (p / q).ln();
        p_rest -= p;
        q_rest -= q;
    }
    if p_rest > 1e-12 { kl + p_rest * (p_rest / q_rest.max(1e-12)).ln() } else { kl }
}

fn agreement(kv: KvKind) -> Agreement {
    let mut a = Agreement { rows: 0, top1: 0, kl: 0.0, worst: 0.0 };
    let mut e = with_kv(kv, 512);
    for name in ["short", "chat", "chat2", "prose300"] {
        let f = Fixture::load(name);
        let (values, ids, lse) = (f.floats("top20_values"), f.ints("top20_ids"), f.floats("logsumexp"));
        e.score(&f.ids, 0, None, &mut |p, logits| {
            let (v, i) = (&values[p * 20..(p + 1) * 20], &ids[p * 20..(p + 1) * 20]);
            let best = (0..logits.len()).fold(0, |b, t| if logits[t] > logits[b] { t } else { b });
            a.rows += 1;
            a.top1 += usize::from(best as i64 == i[0]);
            a.kl += divergence(logits, v, i, lse[p]);
            a.worst = v.iter().zip(i).map(|(v, i)| (logits[*i as usize] - v).abs()).fold(a.worst, f32::max);
        })
        .expect("the prompt runs");
    }
    a.kl /= a.rows as f64;
    println!(
        "{}: {} rows, top-1 {:.4}, mean KL {:.3e}, largest logit difference {:.3}",
        kv.name(),
        a.rows,
        a.top1 as f64 / a.rows as f64,
        a.kl,
        a.worst
    );
    a
}

#[test]
fn divergence_is_zero_for_equal_rows_and_positive_otherwise() {
    let logits: Vec<f32> = (0..40).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
    let mut ids: Vec<i64> = (0..40).collect();
    ids.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
    ids.truncate(20);
    let values: Vec<f32> = ids.iter().map(|i| logits[*i as usize]).collect();
    let lse = logits.iter().map(|l| f64::from(*l).exp()).sum::<f64>().ln() as f32;
    assert!(divergence(&logits, &values, &ids, lse).abs() < 1e-6);
    let mut other = logits.clone();
    other[ids[0] as usize] += 0.5;
    assert!(divergence(&other, &values, &ids, lse) > 1e-3);
}

#[test]
fn agreement_with_the_oracle_is_as_good_as_llama_cpp() {
    let f16 = agreement(KvKind::F16);
    assert!(f16.kl <= 1.15 * common::llama::KL_F16, "mean KL {}", f16.kl);
    assert!((f16.rows - f16.top1) as f64 <= 1.15 * common::llama::TOP1_MISSES_F16, "{} of {} rows differ", f16.rows - f16.top1, f16.rows);
    let int8 = agreement(KvKind::Int8);
    assert!(int8.kl <= 1.15 * common::llama::KL_Q8, "mean KL {}", int8.kl);
    assert!(
        (int8.rows - int8.top1) as f64 <= 1.15 * common::llama::TOP1_MISSES_Q8,
        "{} of {} rows differ",
        int8.rows - int8.top1,
        int8.rows
    );
    for kv in [KvKind::Q4_0, KvKind::K8V4] {
        let a = agreement(kv);
        assert!(a.kl < 0.1, "{}: mean KL {}", kv.name(), a.kl);
    }
}

/// A continuation leaves the oracle's only where the oracle's two best tokens are close.
#[test]
fn continuations_leave_the_oracle_only_at_close_choices() {
    for (kv, bound) in [(KvKind::F16, 0.15), (KvKind::Int8, 0.3)] {
        for name in PROMPTS {
            let f = Fixture::load(name);
            let mut e = with_kv(kv, f.ids.len() + 65);
            let got = generate(&mut e, &f.ids, 64, &greedy());
            let margins = f.floats("greedy_margin");
            let want = f.ints("greedy_ids");
            match got.iter().zip(&want).position(|(a, b)| i64::from(*a) != *b) {
                Some(at) => {
                    println!("{} {name}: leaves the oracle after {at} tokens at a margin of {}", kv.name(), margins[at]);
                    assert!(
                        margins[at] < bound,
                        "{} {name}: leaves the oracle after {at} tokens at a margin of {}",
                        kv.name(),
                        margins[at]
                    );
                }
                None => println!("{} {name}: 64 tokens equal", kv.name()),
            }
        }
    }
}
