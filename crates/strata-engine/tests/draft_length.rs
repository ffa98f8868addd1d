//! A draft length chosen from measured times never changes the text, however the times fall.

mod common;

use common::{Fixture, engine, greedy};
use strata_engine::EngineOptions;
use strata_engine::sampler::SamplingParams;
use strata_model::WeightMode;

/// `n` tokens after `prompt`, the prompt of a second turn, and the tokens after that; and how many were drafted.
fn two_turns(options: EngineOptions, params: &SamplingParams, n: usize) -> (Vec<u32>, Vec<u32>, Vec<u32>, usize) {
    let mut e = engine(WeightMode::AsStored, options);
    let mut answer = |prompt: &[u32]| {
        let mut out = vec![e.start(prompt, params, &mut |_, _| true).expect("the prompt runs")];
        while out.len() < n {
            e.step(params, &|_| false, &mut out).expect("a step runs");
        }
        let ids: Vec<u32> = out.iter().take(n).map(|t| t.id).collect();
        (ids, e.committed().to_vec(), e.stats().drafted)
    };
    let (one, mut prompt, _) = answer(&Fixture::load("prose300").ids);
    prompt.extend([5, 6, 7]);
    let (two, _, drafted) = answer(&prompt);
    (one, prompt, two, drafted)
}

#[test]
fn a_measured_length_gives_the_same_text() {
    let sampled = SamplingParams { temperature: 0.8, seed: 5, ..Default::default() };
    let plain = EngineOptions { capacity: 1024, ..Default::default() };
    let mut all_drafted = 0;
    for params in [greedy(), sampled] {
        let expected = two_turns(plain, &params, 70).0;
        // one draft and a chunk of one leave space for two residuals only: older ones are dropped all the time
        for (spec, chunk) in [(1, 1), (6, 512)] {
            let (one, prompt, two, drafted) = two_turns(EngineOptions { spec, chunk, spec_auto: true, ..plain }, &params, 70);
            assert_eq!(one, expected, "at most {spec} drafts, chunk {chunk}");
            all_drafted += drafted;
            // the second turn goes on with residuals of plain steps; the same prompt read afresh, without drafts, has the same answer
            let mut fresh = engine(WeightMode::AsStored, plain);
            let mut out = vec![fresh.start(&prompt, &params, &mut |_, _| true).expect("the prompt runs")];
            while out.len() < two.len() {
                fresh.step(&params, &|_| false, &mut out).expect("a step runs");
            }
            assert_eq!(two, out.iter().map(|t| t.id).collect::<Vec<_>>(), "second turn, at most {spec} drafts, chunk {chunk}");
        }
    }
    assert!(all_drafted > 0, "something was drafted");
}
