//! Decode speed with drafts over decode speed without, on question items and on prose, in pairs of runs.
//!
//!     cargo bench -p strata-engine --bench drafts [-- ROUNDS THREADS LENGTH...]
//!
//! LENGTH is `auto` (the default) or a number of drafts. A round runs every prompt with each length, in turn and in turned order;
//! its figure is the tokens after the first of every answer over the time they took, beside that of no drafts. Texts must be equal.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{refmodel, root, tokenizer};
use std::sync::Arc;
use std::time::{Duration, Instant};
use strata_cpu::backend::{Cpu, exp_in_place};
use strata_cpu::pool::Pool;
use strata_cpu::simd::Simd;
use strata_engine::sampler::SamplingParams;
use strata_engine::{Engine, EngineOptions};
use strata_model::{Model, ModelOptions};

/// Question items and prose continuations.
const ITEMS: usize = 24;
const PIECES: usize = 6;
/// Most tokens of an answer.
const MOST: usize = 160;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let number = |i: usize, default: usize| args.get(i).map_or(default, |a| a.parse().expect("rounds and threads are numbers"));
    let (rounds, threads) = (number(0, 5), number(1, 2));
    let lengths: Vec<&str> = if args.len() > 2 { args[2..].iter().map(String::as_str).collect() } else { vec!["auto"] };
    let (gguf, tokenizer) = (refmodel(), tokenizer());

    let read = |name: &str| std::fs::read_to_string(root().join("tests/data").join(name)).expect("the text is in the repository");
    let question = |line: &str| {
        let item: serde_json::Value = serde_json::from_str(line).expect("an item is JSON");
        let text = item["messages"][0]["content"].as_str().expect("an item has a question");
        let prompt = format!("<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
        tokenizer.encode(&prompt, true).expect("the question encodes")
    };
    let tasks: Vec<Vec<u32>> = read("qa_items.jsonl").lines().take(ITEMS).map(question).collect();
    let prose = tokenizer.encode(&read("heldout_prose.txt"), false).expect("prose encodes");
    let pieces: Vec<Vec<u32>> = prose.chunks_exact(prose.len() / PIECES).take(PIECES).map(|c| c[..256].to_vec()).collect();

    let make = |length: &str| {
        let cpu = Cpu::new(Arc::new(Pool::pinned(threads).expect("threads start")), Simd::best()).expect("the CPU has its best level");
        let model = Model::bind(&cpu, &gguf, None, ModelOptions::default()).expect("the model binds");
        let (spec, spec_auto) = if length == "auto" { (6, true) } else { (length.parse().expect("a length is auto or a number"), false) };
        let options = EngineOptions { capacity: 2048, spec, spec_auto, exp: exp_in_place(Simd::best()), ..EngineOptions::default() };
        Engine::new(cpu, model, options).expect("the engine starts")
    };
    let mut engines: Vec<(&str, Engine<Cpu>)> = std::iter::once("0").chain(lengths).map(|l| (l, make(l))).collect();
    let stops = tokenizer.stop_ids().to_vec();
    for (name, prompts, stop) in [("tasks", &tasks, true), ("prose", &pieces, false)] {
        let mut rates: Vec<Vec<f64>> = vec![Vec::new(); engines.len()];
        let mut text = None;
        // one round more: the first warms up
        for round in 0..=rounds {
            let mut order: Vec<usize> = (0..engines.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for i in order {
                let (tokens, time, ids) = run(&mut engines[i].1, prompts, |id| stop && stops.contains(&id));
                assert!(text.get_or_insert_with(|| ids.clone()) == &ids, "drafts changed a text");
                if round > 0 {
                    rates[i].push(tokens as f64 / time.as_secs_f64());
                }
            }
        }
        println!("{name}: no drafts {:.0} tok/s", median(&rates[0]));
        for (i, (length, engine)) in engines.iter().enumerate().skip(1) {
            let ratios: Vec<f64> = rates[i].iter().zip(&rates[0]).map(|(a, b)| a / b).collect();
            let each: Vec<String> = ratios.iter().map(|r| format!("{r:.3}")).collect();
            let accepted = engine.stats().acceptance().map_or_else(|| "nothing drafted".into(), |a| format!("{:.0} % right", a * 100.0));
            println!("{name}: {length}: {:.3} of it, median ({}); last answer: {accepted}", median(&ratios), each.join(" "));
        }
    }
}

/// Tokens after the first of every answer, the time they took, and all of them.
fn run(engine: &mut Engine<Cpu>, prompts: &[Vec<u32>], stop: impl Fn(u32) -> bool) -> (usize, Duration, Vec<u32>) {
    let (mut tokens, mut time, mut ids) = (0, Duration::ZERO, Vec::new());
    for prompt in prompts {
        engine.clear();
        let mut out = vec![engine.start(prompt, &SamplingParams::default(), &mut |_, _| true).expect("the prompt runs")];
        let start = Instant::now();
        while out.len() < MOST && !out.iter().any(|t| stop(t.id)) {
            engine.step(&SamplingParams::default(), &stop, &mut out).expect("a step runs");
        }
        time += start.elapsed();
        out.truncate(MOST);
        tokens += out.len() - 1;
        ids.extend(out.iter().map(|t| t.id));
    }
    (tokens, time, ids)
}

fn median(x: &[f64]) -> f64 {
    let mut x = x.to_vec();
    x.sort_by(f64::total_cmp);
    x[x.len() / 2]
}
