//! The reference model's evaluations, by the protocol it was published with: held-out prose in windows of 2,048,
//! question items and needle items, where an item counts only if every token of its answer is the most probable one.
//!
//! Minutes long: `cargo test --release -p strata-engine --test evaluation -- --ignored --nocapture`.

mod common;

use common::*;
use strata_cpu::backend::Cpu;
use strata_engine::evaluate::{Divergence, Perplexity, windows};
use strata_engine::{Engine, EngineOptions, score_pair};
use strata_model::WeightMode;
use strata_ops::qsa::kv::KvKind;
use strata_text::Tokenizer;

fn engine_for(weights: WeightMode, kv: KvKind, capacity: usize) -> Engine<Cpu> {
    engine(weights, EngineOptions { kv, capacity, score_rows: 64, ..Default::default() })
}

fn argmax(logits: &[f32]) -> u32 {
    (0..logits.len()).fold(0, |b, t| if logits[t] > logits[b] { t } else { b }) as u32
}

const WINDOW: usize = 2048;

fn prose(tok: &Tokenizer) -> Vec<u32> {
    let text = std::fs::read_to_string(root().join("tests/data/heldout_prose.txt")).expect("the text is in the repository");
    tok.encode(&text, false).expect("prose encodes")
}

/// Perplexity of `ids` in windows of `context` that do not overlap, and the positions that counted.
fn perplexity(e: &mut Engine<Cpu>, ids: &[u32], context: usize) -> (f64, u64) {
    let mut p = Perplexity::default();
    for w in windows(ids.len(), context, context) {
        e.score(&ids[w.start..][..w.len], w.from, None, &mut |at, logits| p.add(logits, ids[w.start + at + 1])).expect("a window runs");
    }
    (p.value(), p.loss.n)
}

/// The definition, written out: exp of the mean of -ln softmax.
#[test]
fn perplexity_is_its_definition() {
    let ids = &prose(&tokenizer())[..200];
    let mut e = engine_for(WeightMode::AsStored, KvKind::Int8, 128);
    let (mut loss, mut n) = (0.0, 0);
    for start in [0, 64, 128] {
        e.score(&ids[start..start + 64], 0, None, &mut |p, logits| {
            let exps: Vec<f64> = logits.iter().map(|l| f64::from(*l).exp()).collect();
            loss -= (exps[ids[start + p + 1] as usize] / exps.iter().sum::<f64>()).ln();
            n += 1;
        })
        .expect("a window runs");
    }
    let (got, scored) = perplexity(&mut e, ids, 64);
    assert_eq!((scored, n), (192, 192));
    assert!((got / (loss / 192.0).exp() - 1.0).abs() < 1e-9, "{got}");
}

#[test]
fn divergence_in_step_is_that_of_two_runs() {
    let ids = &prose(&tokenizer())[..150];
    let mut a =
        engine(WeightMode::AsStored, EngineOptions { capacity: 256, chunk: 64, score_rows: 7, kv: KvKind::Q4_0, ..Default::default() });
    let mut b = engine(WeightMode::AsStored, EngineOptions { capacity: 256, chunk: 50, score_rows: 64, ..Default::default() });
    let mut rows: [Vec<Vec<f32>>; 2] = Default::default();
    a.score(ids, 9, None, &mut |_, l| rows[0].push(l.to_vec())).expect("a text runs");
    b.score(ids, 9, None, &mut |_, l| rows[1].push(l.to_vec())).expect("a text runs");
    let (mut at, mut d) = (9, Divergence::default());
    score_pair(&mut a, &mut b, ids, 9, &mut |p, x, y| {
        assert_eq!(p, at);
        assert!(x == rows[0][at - 9] && y == rows[1][at - 9], "position {p}");
        d.add(y, x, ids[(p + 1) % ids.len()]);
        at += 1;
    })
    .expect("a text runs twice");
    assert_eq!(at, ids.len());
    assert!(d.kl_mean.mean > 0.0 && d.quantiles([0.0])[0] >= 0.0);
}

/// True if every token of the answer is the most probable one.
fn answered(e: &mut Engine<Cpu>, tok: &Tokenizer, user: &str, answer: &str) -> bool {
    let prompt = tok
        .encode(&format!("<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"), true)
        .expect("a prompt encodes");
    let answer = tok.encode(&format!("{answer}<|im_end|>"), true).expect("an answer encodes");
    let all = [prompt.clone(), answer.clone()].concat();
    let mut right = true;
    e.score(&all[..all.len() - 1], prompt.len() - 1, None, &mut |p, logits| {
        right &= argmax(logits) == all[p + 1];
    })
    .expect("an item runs");
    right
}

/// Items of a file of questions with their lengths (0 where the file has none): how many of how many are right.
fn items(e: &mut Engine<Cpu>, tok: &Tokenizer, file: &str, max_length: u64) -> Vec<(u64, usize, usize)> {
    let text = std::fs::read_to_string(root().join("tests/data").join(file)).expect("the items are in the repository");
    let mut out: Vec<(u64, usize, usize)> = Vec::new();
    for line in text.lines() {
        let item: serde_json::Value = serde_json::from_str(line).expect("an item is JSON");
        let length = item["length"].as_u64().unwrap_or(0);
        if length > max_length {
            continue;
        }
        let user = item["messages"][0]["content"].as_str().expect("a question");
        let right = answered(e, tok, user, item["answer"].as_str().expect("an answer"));
        match out.iter_mut().find(|o| o.0 == length) {
            Some(o) => {
                o.1 += usize::from(right);
                o.2 += 1;
            }
            None => out.push((length, usize::from(right), 1)),
        }
    }
    out
}

#[test]
#[ignore = "minutes long"]
fn prose_perplexity_is_the_references() {
    let ids = prose(&tokenizer());
    for (weights, kv, bounded) in [
        (WeightMode::DequantizedF32, KvKind::F32, true),
        (WeightMode::AsStored, KvKind::F16, true),
        (WeightMode::AsStored, KvKind::Int8, true),
        (WeightMode::AsStored, KvKind::Q4_0, false),
        (WeightMode::AsStored, KvKind::K8V4, false),
    ] {
        let (ppl, scored) = perplexity(&mut engine_for(weights, kv, WINDOW), &ids, WINDOW);
        assert_eq!(scored, 16_384);
        println!("{weights:?} {}: perplexity {ppl:.3}", kv.name());
        assert!(!bounded || (ppl / 128.5 - 1.0).abs() < 0.02, "{}: {ppl}", kv.name());
    }
}

#[test]
#[ignore = "minutes long"]
fn question_items_are_answered_as_by_the_reference() {
    let tok = tokenizer();
    for (weights, kv, range) in [
        (WeightMode::DequantizedF32, KvKind::F32, 157..=157),
        (WeightMode::AsStored, KvKind::F16, 150..=200),
        (WeightMode::AsStored, KvKind::Int8, 148..=200),
        (WeightMode::AsStored, KvKind::Q4_0, 0..=200),
        (WeightMode::AsStored, KvKind::K8V4, 0..=200),
    ] {
        let got = items(&mut engine_for(weights, kv, 2048), &tok, "qa_items.jsonl", 0);
        println!("{weights:?} {}: {} of {} question items", kv.name(), got[0].1, got[0].2);
        assert_eq!(got[0].2, 200);
        assert!(range.contains(&got[0].1), "{}: {} right", kv.name(), got[0].1);
    }
}

#[test]
#[ignore = "minutes long"]
fn needles_are_found_as_by_the_reference() {
    let tok = tokenizer();
    let want = [(512, 6), (1024, 5), (2048, 7), (4096, 6), (8192, 5)];
    for kv in [KvKind::F16, KvKind::Int8, KvKind::Q4_0, KvKind::K8V4] {
        let got = items(&mut engine_for(WeightMode::AsStored, kv, 9000), &tok, "needles.jsonl", 8192);
        println!("{}: needles {got:?} (length, found, items)", kv.name());
        for (length, found) in want {
            let g = got.iter().find(|g| g.0 == length).expect("the length has items");
            let bounded = matches!(kv, KvKind::F16 | KvKind::Int8);
            assert!(!bounded || g.1.abs_diff(found) <= 2, "{} at {length}: {} found, the reference {found}", kv.name(), g.1);
        }
    }
}
