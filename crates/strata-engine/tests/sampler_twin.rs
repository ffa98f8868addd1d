//! The sampler against a naive twin: the definition word for word, by full sorts and 128-bit integers over the whole row.

use proptest::prelude::*;
use strata_engine::sampler::{Draw, History, Origin, SampleError, Sampled, Sampler, SamplingParams, TokenLogprob, philox4x32_10};
use strata_ops::math;

type Context = [(u32, Origin)];

fn floor32(x: f32) -> u128 {
    (f64::from(x) * 4_294_967_296.0).floor() as u128
}

fn mass(l: f32, best: f32) -> u128 {
    floor32(math::exp(l - best))
}

fn best_of(row: &[f32], ids: &[usize]) -> f32 {
    ids.iter().map(|&i| row[i]).fold(f32::NEG_INFINITY, f32::max)
}

fn by_rank(row: &[f32], ids: &mut [usize]) {
    ids.sort_by(|&a, &b| row[b].partial_cmp(&row[a]).unwrap().then(a.cmp(&b)));
}

/// Where a token is drawn.
#[derive(Clone, Copy, Default)]
struct At<'a> {
    context: &'a Context,
    bias: &'a [(u32, f32)],
    position: u64,
    choice: u32,
}

/// Token, its log-probability and the most probable tokens.
fn twin(raw: &[f32], p: &SamplingParams, a: &At<'_>, allowed: &[bool]) -> (u32, f32, Vec<(u32, f32)>) {
    let At { context, bias, position, choice } = *a;
    let mut row = raw.to_vec();
    for (t, b) in bias {
        row[*t as usize] += b;
    }
    let from = context.len() - context.len().min(p.penalty_last_n.unwrap_or(usize::MAX));
    for (i, l) in row.iter_mut().enumerate() {
        let mine: Vec<_> = context[from..].iter().filter(|t| t.0 as usize == i).collect();
        let generated = mine.iter().filter(|t| t.1 == Origin::Generated).count();
        if !mine.is_empty() && p.repetition_penalty != 1.0 {
            *l = if *l > 0.0 { *l / p.repetition_penalty } else { *l * p.repetition_penalty };
        }
        if generated > 0 {
            *l -= generated as f32 * p.frequency_penalty;
            *l -= p.presence_penalty;
        }
    }
    let mut ids: Vec<usize> = (0..raw.len()).filter(|&i| allowed[i]).collect();
    let token = if p.temperature == 0.0 || p.top_k == 1 {
        by_rank(&row, &mut ids);
        ids[0]
    } else {
        row.iter_mut().for_each(|l| *l /= p.temperature);
        let best = best_of(&row, &ids);
        let w = |i: usize| mass(row[i], best);
        by_rank(&row, &mut ids);
        if p.top_k > 0 {
            ids.truncate(p.top_k as usize);
        }
        let total: u128 = ids.iter().map(|&i| w(i)).sum();
        let mut sum = 0;
        let mut kept = Vec::new();
        for &i in &ids {
            kept.push(i);
            sum += w(i);
            if sum << 32 >= floor32(p.top_p) * total {
                break;
            }
        }
        let w_max = kept.iter().map(|&i| w(i)).max().unwrap();
        kept.retain(|&i| w(i) << 32 >= floor32(p.min_p) * w_max);
        kept.sort();
        let total: u128 = kept.iter().map(|&i| w(i)).sum();
        let key = [p.seed as u32, (p.seed >> 32) as u32];
        let x = philox4x32_10([position as u32, (position >> 32) as u32, choice, 0], key);
        let r = ((u128::from(x[0]) + (u128::from(x[1]) << 32)) * total) >> 64;
        let mut sum = 0;
        *kept
            .iter()
            .find(|&&i| {
                sum += w(i);
                sum > r
            })
            .unwrap()
    };
    let mut all: Vec<usize> = (0..raw.len()).collect();
    let best = best_of(raw, &all);
    let total: u128 = all.iter().map(|&i| mass(raw[i], best)).sum();
    let log_sum = math::log((total as f64 / 4_294_967_296.0) as f32);
    let logprob = |i: usize| (raw[i] - best) - log_sum;
    by_rank(raw, &mut all);
    all.truncate(p.logprobs.unwrap_or(0).into());
    (token as u32, logprob(token), all.iter().map(|&i| (i as u32, logprob(i))).collect())
}

fn words(allowed: &[bool]) -> Vec<u32> {
    // bits past the vocabulary are set, to see that they are ignored
    allowed.chunks(32).map(|c| c.iter().enumerate().fold(!0, |w, (i, &a)| if a { w } else { w & !(1 << i) })).collect()
}

fn params() -> impl Strategy<Value = SamplingParams> {
    let temperature = prop_oneof![Just(0.0f32), Just(1.0), 0.05f32..3.0, Just(1e-5), Just(1e30)];
    let share = || prop_oneof![Just(0.0f32), Just(1.0), 0.0f32..1.0, 0.0f32..0.02, Just(1e-12), Just(1.0 - f32::EPSILON / 2.0)];
    let filters = (temperature, 0u32..40, share(), share());
    let penalties = (prop_oneof![Just(1.0f32), 0.5f32..2.0], -2.0f32..2.0, -2.0f32..2.0, prop::option::of(0usize..12));
    (filters, penalties, any::<u64>(), prop::option::of(0u8..9)).prop_map(|(f, q, seed, logprobs)| SamplingParams {
        temperature: f.0,
        top_k: f.1,
        top_p: f.2,
        min_p: f.3,
        repetition_penalty: q.0,
        presence_penalty: q.1,
        frequency_penalty: q.2,
        penalty_last_n: q.3,
        seed,
        logprobs,
    })
}

/// Rows with ties, with both zeros, near and far from their maximum.
fn row() -> impl Strategy<Value = Vec<f32>> {
    let coarse = (-8i32..8).prop_map(|v| v as f32 * 0.5);
    let near = (-20i32..20).prop_map(|v| f32::from_bits((3.0f32.to_bits() as i32 + v) as u32));
    let value = prop_oneof![4 => coarse, 3 => -30.0f32..30.0, 2 => near, 1 => -1e6f32..1e6, 1 => Just(0.0f32), 1 => Just(-0.0f32)];
    let gentle = (0.0f32..5.0).prop_map(|v| v - 2.5);
    prop_oneof![prop::collection::vec(value, 1..120), prop::collection::vec(gentle, 200..700)]
}

fn context(vocab: usize) -> impl Strategy<Value = Vec<(u32, Origin)>> {
    let token = (0..vocab as u32, any::<bool>()).prop_map(|(t, g)| (t, if g { Origin::Generated } else { Origin::Prompt }));
    prop::collection::vec(token, 0..20)
}

fn run(raw: &[f32], p: &SamplingParams, a: &At<'_>, allowed: Option<&[u32]>) -> Result<(Sampled, [TokenLogprob; 16]), SampleError> {
    let mut history = History::new(raw.len(), 32, p.penalty_last_n);
    a.context.iter().for_each(|&(t, o)| history.push(t, o).unwrap());
    let mut top = [TokenLogprob::default(); 16];
    let at = Draw { position: a.position, choice: a.choice, history: Some(&history), bias: a.bias, allowed };
    Sampler::new(raw.len() as u32).sample(raw, p, at, &mut top).map(|s| (s, top))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    #[test]
    fn equals_the_twin(
        (raw, context, bias, mut allowed) in row().prop_flat_map(|r| {
            let n = r.len();
            let bias = prop::collection::vec((0..n as u32, prop_oneof![-3.0f32..3.0, -100.0f32..100.0]), 0..6);
            (Just(r), context(n), bias, prop::collection::vec(prop::bool::weighted(0.7), n))
        }),
        p in params(),
        masked: bool,
        at: usize,
        position: u64,
        choice: u32,
    ) {
        let n = raw.len();
        allowed[at % n] = true;
        if !masked {
            allowed.fill(true);
        }
        let mask = words(&allowed);
        let at = At { context: &context, bias: &bias, position, choice };
        let (token, logprob, want_top) = twin(&raw, &p, &at, &allowed);
        let (got, top) = run(&raw, &p, &at, masked.then_some(&mask)).unwrap();
        prop_assert_eq!(got.token, token);
        prop_assert_eq!(got.logprob.map(f32::to_bits), p.logprobs.map(|_| logprob.to_bits()));
        let got_top: Vec<_> = top[..got.top_len].iter().map(|t| (t.token, t.logprob.to_bits())).collect();
        prop_assert_eq!(got_top, want_top.iter().map(|&(t, l)| (t, l.to_bits())).collect::<Vec<_>>());
    }
}

/// The whole vocabulary of the model, where sums pass 2^49: the twin still agrees, at a few shapes of distribution.
#[test]
fn equals_the_twin_at_full_vocabulary() {
    const VOCAB: usize = 248_320;
    let noise = |i: usize| philox4x32_10([i as u32, 0, 0, 0], [7, 7])[0] as f32 / 4e9;
    let flat = vec![1.5f32; VOCAB];
    let gentle: Vec<f32> = (0..VOCAB).map(|i| noise(i) * 4.0).collect();
    let peaked: Vec<f32> = (0..VOCAB).map(|i| -4.0 * (noise(i) * 1e5).ln()).collect();
    let allowed = vec![true; VOCAB];
    for (i, row) in [flat, gentle, peaked].iter().enumerate() {
        for (top_k, top_p, min_p) in [(0, 1.0, 0.0), (0, 0.9, 0.0), (1000, 0.95, 0.0), (0, 1.0, 0.3)] {
            let p = SamplingParams { top_k, top_p, min_p, temperature: 0.8, logprobs: Some(3), seed: 11, ..Default::default() };
            let at = At { position: 99, choice: 1, ..At::default() };
            let (token, logprob, _) = twin(row, &p, &at, &allowed);
            let (got, _) = run(row, &p, &at, None).unwrap();
            assert_eq!((got.token, got.logprob), (token, Some(logprob)), "row {i}, {p:?}");
        }
    }
}

/// The tests above can fail: a twin whose parameter is off by a little disagrees somewhere.
#[test]
fn a_twin_of_other_parameters_disagrees() {
    let raw: Vec<f32> = (0..100).map(|i| (i * 37 % 41) as f32 * 0.1).collect();
    let context = [(40, Origin::Prompt), (17, Origin::Generated), (17, Origin::Generated)];
    let allowed = vec![true; raw.len()];
    let p = SamplingParams { temperature: 0.7, ..Default::default() };
    let pairs = [
        (p, SamplingParams { seed: 1, ..p }),
        (p, SamplingParams { temperature: 0.71, ..p }),
        (SamplingParams { top_k: 20, ..p }, SamplingParams { top_k: 19, ..p }),
        (SamplingParams { top_p: 0.8, ..p }, SamplingParams { top_p: 0.75, ..p }),
        (SamplingParams { min_p: 0.3, ..p }, SamplingParams { min_p: 0.35, ..p }),
        (SamplingParams { repetition_penalty: 1.2, ..p }, p),
        (SamplingParams { presence_penalty: 0.5, ..p }, p),
        (SamplingParams { frequency_penalty: 0.5, ..p }, SamplingParams { presence_penalty: 0.5, ..p }),
        (SamplingParams { repetition_penalty: 1.2, penalty_last_n: Some(2), ..p }, SamplingParams { repetition_penalty: 1.2, ..p }),
    ];
    for (ours, theirs) in pairs {
        let at = |position| At { context: &context, position, ..At::default() };
        let differs = |i: u64| run(&raw, &ours, &at(i), None).unwrap().0.token != twin(&raw, &theirs, &at(i), &allowed).0;
        assert!((0..1000).any(differs), "{theirs:?}");
        let agrees = |i: u64| run(&raw, &ours, &at(i), None).unwrap().0.token == twin(&raw, &ours, &at(i), &allowed).0;
        assert!((0..1000).all(agrees), "{ours:?}");
    }
    // and a bias, of which the order counts: 1e8 leaves nothing of the other
    let at = |bias, position| At { context: &context, bias, position, ..At::default() };
    let (to, fro) = ([(40, 1e8f32), (40, -1e8), (40, 3.0)], [(40, 1e8f32), (40, 3.0), (40, -1e8)]);
    let differs = |i: u64| run(&raw, &p, &at(&to, i), None).unwrap().0.token != twin(&raw, &p, &at(&fro, i), &allowed).0;
    assert!((0..1000).any(differs));
    let bad = run(&raw, &p, &at(&[(100, 1.0)], 0), None).err();
    assert_eq!(bad, Some(SampleError::Bias { token: 100, vocab: 100 }));
}
