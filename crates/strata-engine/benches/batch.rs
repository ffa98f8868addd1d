//! Decoding several sequences at once, beside decoding one and beside one sequence that reads a prompt in chunks of as many rows.
//!
//!     cargo bench -p strata-engine --bench batch [-- ROUNDS THREADS SEQUENCES MODEL]
//!
//! MODEL is a file or a recipe (`synth:refmodel:Q4_K,experts=96`). All figures are tokens a second at the same positions, 64 to 192,
//! taken in turn; ratios are of one round. `rows` is the same pass without head and sampling: each sequence reads one token of
//! its prompt.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Fixture, refmodel};
use std::sync::Arc;
use std::time::Instant;
use strata_cpu::backend::{Cpu, exp_in_place};
use strata_cpu::pool::Pool;
use strata_cpu::simd::Simd;
use strata_engine::sampler::SamplingParams;
use strata_engine::{Batch, EngineOptions, Event, Work};
use strata_gguf::Gguf;
use strata_model::{Model, ModelOptions};
use strata_synth::{Recipe, in_memory};

/// Where tokens are counted from, and how many of each sequence are.
const DEPTH: usize = 64;
const TOKENS: usize = 128;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let number = |i: usize, default: usize| args.get(i).map_or(default, |a| a.parse().expect("rounds, threads and sequences are numbers"));
    let (rounds, threads, slots) = (number(0, 7), number(1, 2), number(2, 8));
    let gguf = match args.get(3).map(|m| m.strip_prefix("synth:").ok_or(m)) {
        None => refmodel(),
        Some(Ok(recipe)) => in_memory(&Recipe::parse(recipe).expect("a recipe"), recipe, 8 << 30).expect("the model fits"),
        Some(Err(file)) => Gguf::open(file).expect("a model"),
    };
    let cpu = Cpu::new(Arc::new(Pool::pinned(threads).expect("threads start")), Simd::best()).expect("the CPU has its best level");
    let model = Model::bind(&cpu, &gguf, None, ModelOptions { mtp: false, ..ModelOptions::default() }).expect("the model binds");
    let vocab = model.config().vocab as u32;
    let options = EngineOptions { capacity: 512, exp: exp_in_place(Simd::best()), ..EngineOptions::default() };
    let mut batch = Batch::new(cpu, model, options, slots).expect("the batch fits");
    let ids: Vec<u32> = Fixture::load("needle6000").ids.iter().map(|t| t % vocab).collect();
    let texts: Vec<&[u32]> = ids.chunks_exact(DEPTH + TOKENS + 1).take(slots).collect();
    assert!(slots > 0 && TOKENS.is_multiple_of(slots) && texts.len() == slots, "a number of sequences that divides {TOKENS}, at most 31");

    let mut rates = [const { Vec::new() }; 4];
    // one round more: the first warms up
    for round in 0..=rounds {
        let one = decode(&mut batch, &texts[..1]);
        let many = decode(&mut batch, &texts);
        let rows = read_side_by_side(&mut batch, &texts);
        let chunks = read_in_chunks(&mut batch, &texts);
        if round > 0 {
            [one, many, rows, chunks].into_iter().zip(&mut rates).for_each(|(r, all)| all.push(r));
        }
    }
    let [one, many, rows, chunks] = &rates;
    println!("{threads} threads, {slots} sequences, {rounds} rounds; tokens a second, median (least to most)");
    for (name, r) in [("one decodes", one), ("all decode", many), ("all read a row", rows), ("one reads chunks", chunks)] {
        println!("{name:>18}: {}", spread(r, 0));
    }
    for (name, a, b) in [("all / one", many, one), ("all / chunks", many, chunks), ("rows / chunks", rows, chunks)] {
        let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
        println!("{name:>18}: {}", spread(&ratios, 3));
    }
}

/// Gives each text's first `DEPTH` tokens, or all of them, to a slot and reads it up to there.
fn prepare(batch: &mut Batch<Cpu>, texts: &[&[u32]], events: &mut Vec<Event>, whole: bool) {
    let params = SamplingParams { seed: 1, ..SamplingParams::default() };
    for (slot, text) in texts.iter().enumerate() {
        batch.clear(slot);
        batch.begin(slot, if whole { text } else { &text[..DEPTH] }, &params).expect("the prompt fits");
        batch.step(&[Work { slot, rows: DEPTH }], &|_, _| false, events).expect("the prompt runs");
    }
    events.clear();
}

/// Tokens a second of `steps` steps that take `tokens` tokens; step i does `work(i)`.
fn timed(batch: &mut Batch<Cpu>, events: &mut Vec<Event>, steps: usize, tokens: usize, work: impl Fn(usize) -> Vec<Work>) -> f64 {
    let work: Vec<Vec<Work>> = (0..steps).map(work).collect();
    let start = Instant::now();
    for w in &work {
        batch.step(w, &|_, _| false, events).expect("a step runs");
    }
    tokens as f64 / start.elapsed().as_secs_f64()
}

fn decode(batch: &mut Batch<Cpu>, texts: &[&[u32]]) -> f64 {
    let mut events = Vec::with_capacity(2 * TOKENS * texts.len());
    prepare(batch, texts, &mut events, false);
    let all = |_| (0..texts.len()).map(|slot| Work { slot, rows: 1 }).collect();
    let rate = timed(batch, &mut events, TOKENS, TOKENS * texts.len(), all);
    assert_eq!(events.len(), TOKENS * texts.len());
    rate
}

fn read_side_by_side(batch: &mut Batch<Cpu>, texts: &[&[u32]]) -> f64 {
    let mut events = Vec::new();
    prepare(batch, texts, &mut events, true);
    let rate = timed(batch, &mut events, TOKENS, TOKENS * texts.len(), |_| (0..texts.len()).map(|slot| Work { slot, rows: 1 }).collect());
    assert!(events.is_empty() && batch.unread(0) == 1);
    rate
}

fn read_in_chunks(batch: &mut Batch<Cpu>, texts: &[&[u32]]) -> f64 {
    let mut events = Vec::new();
    prepare(batch, texts, &mut events, true);
    let (rows, each) = (texts.len(), TOKENS / texts.len());
    let rate = timed(batch, &mut events, each * rows, each * rows * rows, |i| vec![Work { slot: i / each, rows }]);
    assert!(events.is_empty());
    rate
}

fn spread(x: &[f64], digits: usize) -> String {
    let mut x = x.to_vec();
    x.sort_by(f64::total_cmp);
    format!("{:.digits$} ({:.digits$} to {:.digits$})", x[x.len() / 2], x[0], x[x.len() - 1])
}
