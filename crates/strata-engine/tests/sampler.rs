//! What the sampler promises: distribution, repeatability, ties, extremes, speculation and errors.

use strata_engine::sampler::{
    Draw, History, Origin, ParamError, SampleError, Sampled, Sampler, SamplingParams, TokenLogprob, philox4x32_10,
};

const VOCAB: usize = 248_320;

fn sample(raw: &[f32], p: SamplingParams, position: u64) -> Result<Sampled, SampleError> {
    Sampler::new(raw.len() as u32).sample(raw, &p, Draw { position, ..Default::default() }, &mut [])
}

fn token(raw: &[f32], p: SamplingParams, position: u64) -> u32 {
    sample(raw, p, position).unwrap().token
}

/// Pearson's statistic of drawn counts against probabilities.
fn chi_square(counts: &[u32], probability: &[f64]) -> f64 {
    let n: f64 = counts.iter().map(|&c| f64::from(c)).sum();
    counts.iter().zip(probability).map(|(&c, p)| (f64::from(c) - n * p).powi(2) / (n * p)).sum()
}

#[test]
fn draws_follow_the_distribution_over_positions_and_choices() {
    let raw: Vec<f32> = (0..24).map(|i| (i * 7 % 24) as f32 * 0.15).collect();
    let temperature = 0.8f32;
    let e: Vec<f64> = raw.iter().map(|&l| f64::from(l / temperature).exp()).collect();
    let probability: Vec<f64> = e.iter().map(|x| x / e.iter().sum::<f64>()).collect();
    let p = SamplingParams { temperature, seed: 0x0123_4567_89ab_cdef, ..Default::default() };
    let mut sampler = Sampler::new(24);
    let (mut positions, mut choices) = ([0u32; 24], [0u32; 24]);
    for i in 0..20_000u32 {
        positions[sampler.sample(&raw, &p, Draw { position: i.into(), ..Default::default() }, &mut []).unwrap().token as usize] += 1;
        choices[sampler.sample(&raw, &p, Draw { position: 5, choice: i, ..Default::default() }, &mut []).unwrap().token as usize] += 1;
    }
    // 23 degrees of freedom: above 49.7 once in a thousand seeds
    let (a, b) = (chi_square(&positions, &probability), chi_square(&choices, &probability));
    assert!(a < 49.7 && b < 49.7, "{a} {b}");
    // and the test sees a distribution that is off by a few percent
    let tilted: Vec<f64> = probability.iter().enumerate().map(|(i, p)| p * if i % 2 == 0 { 1.07 } else { 0.93 }).collect();
    let c = chi_square(&positions, &tilted);
    assert!(c > 49.7, "{c}");
}

#[test]
fn a_draw_depends_on_seed_position_and_choice_only() {
    let raw: Vec<f32> = (0..1000).map(|i| (i * 13 % 97) as f32 * 0.02).collect();
    let p = SamplingParams { top_p: 0.9, seed: 42, ..Default::default() };
    let mut sampler = Sampler::new(1000);
    let mut at = |p: &SamplingParams, i: u64, c: u32| {
        sampler.sample(&raw, p, Draw { position: i, choice: c, ..Default::default() }, &mut []).unwrap().token
    };
    let forward: Vec<u32> = (0..200).map(|i| at(&p, i, 0)).collect();
    let mut backward: Vec<u32> = (0..200).rev().map(|i| at(&p, i, 0)).collect();
    backward.reverse();
    assert_eq!(forward, backward);
    let fresh: Vec<u32> = (0..200).map(|i| token(&raw, p, i)).collect();
    assert_eq!(forward, fresh);
    let other_choice: Vec<u32> = (0..200).map(|i| at(&p, i, 1)).collect();
    let high_position: Vec<u32> = (0..200).map(|i| at(&p, i | 1 << 32, 0)).collect();
    let high_seed: Vec<u32> = (0..200).map(|i| at(&SamplingParams { seed: 42 | 1 << 32, ..p }, i, 0)).collect();
    assert!(forward != other_choice && forward != high_position && forward != high_seed);
}

/// Tokens that any implementation of the definition must give; they change only with the definition.
#[test]
fn known_answers() {
    let raw: Vec<f32> = (0..512).map(|i| (i * 193 % 512) as f32 / 64.0).collect();
    let all = SamplingParams { seed: 2026, ..Default::default() };
    let filtered = SamplingParams { temperature: 0.7, top_k: 100, top_p: 0.9, min_p: 0.05, ..all };
    let tokens = |p: SamplingParams| (0..8).map(|i| token(&raw, p, i)).collect::<Vec<_>>();
    assert_eq!(tokens(all), KNOWN_ALL);
    assert_eq!(tokens(filtered), KNOWN_FILTERED);
}
const KNOWN_ALL: [u32; 8] = [267, 183, 374, 477, 82, 50, 496, 443];
const KNOWN_FILTERED: [u32; 8] = [265, 183, 374, 480, 90, 53, 496, 443];

#[test]
fn greedy_takes_the_lowest_of_equals_and_top_k_1_is_greedy() {
    let raw = [1.0, -0.0, 3.0, 0.0, 3.0, 2.0];
    assert_eq!(token(&raw, SamplingParams { temperature: 0.0, ..Default::default() }, 0), 2);
    assert_eq!(token(&[-5.0, -0.0, 0.0], SamplingParams { temperature: 0.0, ..Default::default() }, 0), 1);
    // two neighbours that round to one quotient
    let t = 1.9f32;
    let next = |l: f32| f32::from_bits(l.to_bits() + 1);
    let low = (0..100).map(|i| 1.95 + i as f32 * 1e-3).find(|&l| l / t == next(l) / t).unwrap();
    for i in 0..50 {
        let p = SamplingParams { top_k: 1, temperature: t, seed: 9, ..Default::default() };
        assert_eq!(token(&[low, next(low)], p, i), 1);
        assert_eq!(token(&raw, p, i), 2);
    }
}

#[test]
fn ties_at_the_edge_of_top_k_and_top_p_keep_the_lowest_ids() {
    let raw = [0.0f32; 40];
    for i in 0..200 {
        assert!(token(&raw, SamplingParams { top_k: 3, ..Default::default() }, i) < 3);
        // a quarter of 40 equal masses is reached exactly by ten
        assert!(token(&raw, SamplingParams { top_p: 0.25, ..Default::default() }, i) < 10);
    }
    let reached = |p: SamplingParams| (0..400).map(|i| token(&raw, p, i)).max().unwrap();
    assert_eq!(reached(SamplingParams { top_p: 0.25, ..Default::default() }), 9);
    assert_eq!(reached(SamplingParams { top_k: 3, ..Default::default() }), 2);
}

#[test]
fn the_least_top_p_and_the_greatest_min_p_keep_the_best() {
    let raw: Vec<f32> = (0..300).map(|i| (i * 7 % 300) as f32 * 0.01).collect();
    let best = (0..300).find(|i| i * 7 % 300 == 299).unwrap() as u32;
    for i in 0..100 {
        for top_p in [0.0, 1e-30, 1e-9, 0.003] {
            assert_eq!(token(&raw, SamplingParams { top_p, ..Default::default() }, i), best);
        }
        assert_eq!(token(&raw, SamplingParams { min_p: 1.0, ..Default::default() }, i), best);
    }
}

#[test]
fn equal_logits_at_full_vocabulary_use_all_of_it() {
    let raw = vec![-3.25f32; VOCAB];
    let p = SamplingParams { logprobs: Some(2), seed: 5, ..Default::default() };
    let mut sampler = Sampler::new(VOCAB as u32);
    let mut top = [TokenLogprob::default(); 2];
    let mut quarters = [0u32; 4];
    for i in 0..80 {
        let s = sampler.sample(&raw, &p, Draw { position: i, ..Default::default() }, &mut top).unwrap();
        // u scaled to the vocabulary, as every mass is 2^32
        let x = philox4x32_10([i as u32, 0, 0, 0], [5, 0]);
        let u = u128::from(x[1]) << 32 | u128::from(x[0]);
        assert_eq!(u128::from(s.token), (u * VOCAB as u128) >> 64);
        quarters[s.token as usize * 4 / VOCAB] += 1;
        assert!((f64::from(s.logprob.unwrap()) + (VOCAB as f64).ln()).abs() < 1e-6);
        assert_eq!([top[0].token, top[1].token], [0, 1]);
    }
    assert!(quarters.iter().all(|&q| q > 8), "{quarters:?}");
}

#[test]
fn extreme_logits_are_sampled_without_overflow() {
    let p = SamplingParams { logprobs: Some(0), ..Default::default() };
    let raw = [f32::MAX, -f32::MAX, 0.0, f32::MIN_POSITIVE];
    for i in 0..50 {
        let s = sample(&raw, p, i).unwrap();
        assert_eq!((s.token, s.logprob), (0, Some(0.0)));
    }
    let small = [1e-45f32, -1e-45, 0.0, -0.0];
    let seen: std::collections::BTreeSet<u32> = (0..200).map(|i| token(&small, p, i)).collect();
    assert_eq!(seen.len(), 4);
    let cold = SamplingParams { temperature: SamplingParams::MIN_TEMPERATURE, ..p };
    assert_eq!(token(&[1.0, 1.01, 0.0], cold, 3), 1);
}

/// The stated error of log-probabilities, against f64.
#[test]
fn logprobs_are_close_to_f64() {
    let raw: Vec<f32> = (0..VOCAB).map(|i| (i * 7919 % VOCAB) as f32 / 8000.0 - 12.0).collect();
    let best = raw.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = raw.iter().map(|&l| f64::from(l - best).exp()).sum();
    let mut top = [TokenLogprob::default(); 20];
    let p = SamplingParams { logprobs: Some(20), temperature: 0.3, ..Default::default() };
    let s = Sampler::new(VOCAB as u32).sample(&raw, &p, Draw::default(), &mut top).unwrap();
    let exact = |t: u32| f64::from(raw[t as usize] - best) - sum.ln();
    assert!((f64::from(s.logprob.unwrap()) - exact(s.token)).abs() < 6e-5);
    assert_eq!(s.top_len, 20);
    for w in top.windows(2) {
        assert!(w[0].logprob > w[1].logprob);
    }
    for t in top {
        assert!((f64::from(t.logprob) - exact(t.token)).abs() < 6e-5);
    }
}

#[test]
fn a_mask_comes_before_the_filters() {
    let raw: Vec<f32> = (0..70).map(|i| i as f32).collect();
    // allows 3, 35 and 64
    let mask = [1 << 3, 1 << 3, 1 << 0];
    let mut sampler = Sampler::new(70);
    let mut draw = |p: SamplingParams, m: &[u32], i| {
        sampler.sample(&raw, &p, Draw { position: i, allowed: Some(m), ..Default::default() }, &mut []).map(|s| s.token)
    };
    assert_eq!(draw(SamplingParams { temperature: 0.0, ..Default::default() }, &mask, 0), Ok(64));
    let hot = SamplingParams { temperature: 50.0, top_k: 2, ..Default::default() };
    let seen: std::collections::BTreeSet<_> = (0..100).map(|i| draw(hot, &mask, i).unwrap()).collect();
    assert_eq!(Vec::from_iter(seen), [35, 64]);
    assert_eq!(draw(hot, &[0, 0, 0], 0), Err(SampleError::NothingAllowed));
    // a bit past the vocabulary allows nothing
    assert_eq!(draw(hot, &[0, 0, 1 << 6], 0), Err(SampleError::NothingAllowed));
    assert_eq!(draw(hot, &[!0, !0], 0), Err(SampleError::Mask { expected: 3, found: 2 }));
}

/// Rows of a verified window, sampled with the draft before them pushed, give the text of one token at a time.
#[test]
fn a_speculative_window_gives_the_same_tokens() {
    let vocab = 50u32;
    let logits = |last: u32| -> Vec<f32> { (0..vocab).map(|i| ((i * 17 + last * 29) % 50) as f32 * 0.06).collect() };
    let p = SamplingParams {
        repetition_penalty: 1.2,
        presence_penalty: 0.3,
        frequency_penalty: 0.4,
        penalty_last_n: Some(20),
        seed: 77,
        ..Default::default()
    };
    let mut sampler = Sampler::new(vocab);
    let mut plain = History::new(50, 128, p.penalty_last_n);
    plain.push(1, Origin::Prompt).unwrap();
    for i in 1..100 {
        let row = logits(*plain.tokens().last().unwrap());
        let t = sampler.sample(&row, &p, Draw { position: i, history: Some(&plain), ..Default::default() }, &mut []).unwrap().token;
        plain.push(t, Origin::Generated).unwrap();
    }
    let text = plain.tokens();
    let mut spec = History::new(50, 128, p.penalty_last_n);
    spec.push(1, Origin::Prompt).unwrap();
    while spec.tokens().len() < 100 {
        // a draft of four, right for a number of tokens that varies
        let start = spec.tokens().len();
        let right = start % 5;
        let draft: Vec<u32> = (0..4).map(|k| text.get(start + k).map_or(0, |&t| if k < right { t } else { (t + 1) % 50 })).collect();
        let mut sampled = Vec::new();
        for k in 0..=4 {
            let row = logits(*spec.tokens().last().unwrap());
            sampled.push(
                sampler
                    .sample(&row, &p, Draw { position: (start + k) as u64, history: Some(&spec), ..Default::default() }, &mut [])
                    .unwrap()
                    .token,
            );
            if let Some(&d) = draft.get(k) {
                spec.push(d, Origin::Generated).unwrap();
            }
        }
        let accepted = draft.iter().zip(&sampled).take_while(|(d, s)| d == s).count();
        spec.truncate(start + accepted);
        spec.push(sampled[accepted], Origin::Generated).unwrap();
    }
    assert_eq!(spec.tokens()[..100], text[..100]);
}

#[test]
fn errors_name_what_is_wrong() {
    let p = SamplingParams::default();
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0usize, 1023, 1024, 2999] {
            let mut raw = vec![0.5f32; 3000];
            raw[at] = bad;
            for temperature in [0.0, 1.0] {
                match sample(&raw, SamplingParams { temperature, ..p }, 0) {
                    Err(SampleError::NonFinite { token, value }) => {
                        assert_eq!((token as usize, value.to_bits()), (at, bad.to_bits()))
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    let raw = [1.0f32; 8];
    let params = |e: ParamError| SampleError::Params(e);
    let bad = SamplingParams { min_p: 2.0, ..p };
    assert_eq!(sample(&raw, bad, 0), Err(params(bad.validate().unwrap_err())));
    let top = SampleError::TopBuffer { expected: 4, found: 0 };
    assert_eq!(sample(&raw, SamplingParams { logprobs: Some(4), ..p }, 0), Err(top));
    let mut sampler = Sampler::new(9);
    let short = sampler.sample(&raw, &p, Draw::default(), &mut []);
    assert_eq!(short, Err(SampleError::Logits { expected: 9, found: 8 }));
    assert_eq!(sample(&[], p, 0), Err(SampleError::NothingAllowed));

    let penalised = SamplingParams { repetition_penalty: 1.5, penalty_last_n: Some(64), ..p };
    assert_eq!(sample(&raw, penalised, 0), Err(SampleError::NoHistory));
    let mut with = |p: SamplingParams, vocab, window, l: f32| {
        let mut h = History::new(vocab, 4, window);
        h.push(2, Origin::Generated).unwrap();
        let raw = [l; 9];
        sampler.sample(&raw, &p, Draw { history: Some(&h), ..Default::default() }, &mut [])
    };
    let vocab = SampleError::HistoryVocab { expected: 9, found: 8 };
    assert_eq!(with(penalised, 8, Some(64), 1.0), Err(vocab));
    let window = SampleError::HistoryWindow { expected: Some(64), found: None };
    assert_eq!(with(penalised, 9, None, 1.0), Err(window));
    let overflow = SampleError::Overflow { token: 2, value: f32::NEG_INFINITY };
    assert_eq!(with(penalised, 9, Some(64), -3e38), Err(overflow));
    let hot = SampleError::Overflow { token: 0, value: f32::INFINITY };
    assert_eq!(with(SamplingParams { temperature: 0.5, ..p }, 9, None, 3e38), Err(hot));
    assert_eq!(hot.to_string(), "logits: token 0 became inf after bias, penalties and temperature, expected a finite number");
}
