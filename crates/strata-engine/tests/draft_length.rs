//! A draft length chosen from measured times never changes the text, however the times fall.

mod common;

use common::{Fixture, engine, greedy};
use std::cell::Cell;
use std::time::Duration;
use strata_engine::EngineOptions;
use strata_engine::sampler::SamplingParams;
use strata_model::WeightMode;

/// A clock that goes on by a random time whenever it is looked at: no machine decides what is drafted here.
fn random_clock() -> Duration {
    thread_local!(static NOW: Cell<(u64, Duration)> = const { Cell::new((1, Duration::ZERO)) });
    NOW.with(|now| {
        let (state, time) = now.get();
        let state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let time = time + Duration::from_micros(1000 + (state >> 54));
        now.set((state, time));
        time
    })
}

/// `n` tokens after `prompt`, the prompt of a second turn, and the tokens after that; and how many were drafted, in how many steps.
fn two_turns(options: EngineOptions, params: &SamplingParams, n: usize) -> (Vec<u32>, Vec<u32>, Vec<u32>, [usize; 2]) {
    let mut e = engine(WeightMode::AsStored, options);
    let mut answer = |prompt: &[u32]| {
        let mut out = vec![e.start(prompt, params, &mut |_, _| true).expect("the prompt runs")];
        while out.len() < n {
            e.step(params, &|_| false, &mut out).expect("a step runs");
        }
        let ids: Vec<u32> = out.iter().take(n).map(|t| t.id).collect();
        let stats = e.stats();
        (ids, e.committed().to_vec(), [stats.drafted, stats.steps])
    };
    let (one, mut prompt, first) = answer(&Fixture::load("prose300").ids);
    prompt.extend([5, 6, 7]);
    let (two, _, second) = answer(&prompt);
    (one, prompt, two, [first[0] + second[0], first[1] + second[1]])
}

#[test]
fn a_measured_length_gives_the_same_text() {
    let sampled = SamplingParams { temperature: 0.8, seed: 5, ..Default::default() };
    let plain = EngineOptions { capacity: 1024, ..Default::default() };
    for params in [greedy(), sampled] {
        let expected = two_turns(plain, &params, 70).0;
        // one draft and a chunk of one leave space for two residuals only: older ones are dropped all the time
        for (spec, chunk) in [(1, 1), (6, 512)] {
            let options = EngineOptions { spec, chunk, spec_auto: true, clock: random_clock, ..plain };
            let (one, prompt, two, [drafted, steps]) = two_turns(options, &params, 70);
            assert_eq!(one, expected, "at most {spec} drafts, chunk {chunk}");
            assert!(drafted > 0, "something was drafted");
            assert!(drafted < steps * spec, "something was not drafted: {drafted} in {steps} steps");
            println!("{drafted} drafted in {steps} steps");
            // the second turn goes on with residuals of plain steps; the same prompt read afresh, without drafts, has the same answer
            let mut fresh = engine(WeightMode::AsStored, plain);
            let mut out = vec![fresh.start(&prompt, &params, &mut |_, _| true).expect("the prompt runs")];
            while out.len() < two.len() {
                fresh.step(&params, &|_| false, &mut out).expect("a step runs");
            }
            assert_eq!(two, out.iter().map(|t| t.id).collect::<Vec<_>>(), "second turn, at most {spec} drafts, chunk {chunk}");
        }
    }
}
