//! Suite `engine_hash`: whole runs of the bundled model. Instructions, threads, chunk size and speculation must not change a
//! token, nor a bit of its log-probability; KV format and sampling may, and each pair of them has its own answer.

use super::{Event, Report};
use crate::error::CliError;
use crate::hash::token_hash_hex;
use crate::load;
use std::sync::Arc;
use strata_cpu::backend::{Cpu, exp_in_place};
use strata_cpu::parity::CaseReport;
use strata_cpu::pool::Pool;
use strata_cpu::simd::Simd;
use strata_engine::sampler::SamplingParams;
use strata_engine::{Engine, EngineOptions, Token};
use strata_model::{Model, ModelOptions};
use strata_ops::qsa::kv::KvKind;

const THREADS: [usize; 2] = [1, 2];
const CHUNKS: [usize; 4] = [512, 64, 7, 1];
const SPECS: [usize; 3] = [0, 2, 4];
const KINDS: [KvKind; 4] = [KvKind::Int8, KvKind::F16, KvKind::Q4_0, KvKind::K8V4];
/// Tokens generated in a run.
const GENERATED: usize = 48;
/// About 300 tokens, so that the attention of the last ones and of the answer is sparse.
const PROMPT: &str = include_str!("prompt.txt");

/// What may change the answer.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Group {
    pub kv: KvKind,
    pub sampled: bool,
}

impl Group {
    pub fn label(self) -> String {
        format!("{} {}", self.kv.name(), if self.sampled { "sampled" } else { "greedy" })
    }
}

/// What must not.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub level: Simd,
    pub threads: usize,
    pub chunk: usize,
    pub spec: usize,
}

impl Way {
    pub fn label(self) -> String {
        let Way { level, threads, chunk, spec } = self;
        format!("{} threads {threads} chunk {chunk} spec {spec}", level.name())
    }
}

pub(super) fn groups() -> impl Iterator<Item = Group> {
    KINDS.into_iter().flat_map(|kv| [false, true].map(|sampled| Group { kv, sampled }))
}

/// Every way with every group (`full`), or two ways for each group that have each value of each dimension among them.
fn plan(full: bool) -> Vec<(Way, Vec<Group>)> {
    let levels = Simd::available();
    let (levels, groups) = (&levels, groups().collect::<Vec<_>>());
    let mut plan: Vec<(Way, Vec<Group>)> = Vec::new();
    for (l, level) in levels.iter().enumerate() {
        for threads in THREADS {
            let ways = CHUNKS.into_iter().flat_map(|chunk| SPECS.map(|spec| Way { level: *level, threads, chunk, spec }));
            for (i, way) in ways.enumerate() {
                let wanted = |g: usize| (g + 5 * i + 3 * l) % (12 * levels.len() / 2) == threads;
                let some = groups.iter().enumerate().filter(|(g, _)| full || wanted(*g)).map(|(_, g)| *g).collect::<Vec<_>>();
                if !some.is_empty() {
                    plan.push((way, some));
                }
            }
        }
    }
    plan
}

/// Runs the suite.
///
/// # Errors
/// The bundled model cannot be bound or run.
pub fn run(full: bool, report: Report<'_>) -> Result<(), CliError> {
    compare(plan(full), |params| params, report)
}

/// Compares the runs of a plan with the plainest run of their group. `change` is for the negative control: a change of the
/// compared runs' sampling must be seen.
fn compare(plan: Vec<(Way, Vec<Group>)>, change: fn(SamplingParams) -> SamplingParams, report: Report<'_>) -> Result<(), CliError> {
    let gguf = load::open(None)?;
    let (tokenizer, _) = load::tokenizer(&gguf)?;
    let prompt = tokenizer.encode(PROMPT, false).map_err(|error| CliError::Tokenizer { file: load::name_of(&gguf), error })?;
    let plainest = Way { level: Simd::Scalar, threads: 1, chunk: CHUNKS[0], spec: 0 };
    let mut bound = Bound::new(&gguf, plainest)?;
    let mut right: Vec<(Group, Vec<Token>)> = Vec::new();
    for g in groups().filter(|g| plan.iter().any(|(_, groups)| groups.contains(g))) {
        let answer = bound.answer(plainest, g, params(g), &prompt, GENERATED)?;
        let ids: Vec<u32> = answer.iter().map(|t| t.id).collect();
        report(Event::Note(format!("{} {}", g.label(), token_hash_hex(&ids))));
        right.push((g, answer));
    }
    for (way, groups) in plan {
        if (bound.level, bound.threads) != (way.level, way.threads) {
            bound = Bound::new(&gguf, way)?;
        }
        for (g, want) in right.iter().filter(|(g, _)| groups.contains(g)) {
            let got = bound.answer(way, *g, change(params(*g)), &prompt, GENERATED)?;
            report(Event::Case(CaseReport {
                suite: "engine_hash",
                case: format!("{} {}", g.label(), way.label()),
                compared: 2 * GENERATED as u64,
                differing: differing(&got, want),
                max_err64: None,
            }));
        }
    }
    Ok(())
}

/// Ids and log-probabilities that are not the same to the bit.
pub(super) fn differing(got: &[Token], want: &[Token]) -> u64 {
    let bits = |t: &Token| t.logprob.map(f32::to_bits);
    let pairs = got.iter().zip(want).map(|(a, b)| u64::from(a.id != b.id) + u64::from(bits(a) != bits(b)));
    pairs.sum::<u64>() + 2 * got.len().abs_diff(want.len()) as u64
}

pub(super) fn params(g: Group) -> SamplingParams {
    let logprobs = Some(0);
    if g.sampled {
        SamplingParams { temperature: 0.8, top_p: 0.95, seed: 7, logprobs, ..SamplingParams::default() }
    } else {
        SamplingParams { temperature: 0.0, logprobs, ..SamplingParams::default() }
    }
}

/// The model bound for a level and a number of threads; engines borrow it one after another.
pub(super) struct Bound {
    pub level: Simd,
    pub threads: usize,
    parts: Option<(Cpu, Model<Cpu>)>,
}

impl Bound {
    pub fn new(gguf: &strata_gguf::Gguf, way: Way) -> Result<Bound, CliError> {
        let cpu = Cpu::new(Arc::new(Pool::new(way.threads)), way.level)?;
        let model = Model::bind(&cpu, gguf, None, ModelOptions::default())?;
        Ok(Bound { level: way.level, threads: way.threads, parts: Some((cpu, model)) })
    }

    /// The first `n` tokens after the prompt.
    pub fn answer(&mut self, way: Way, g: Group, params: SamplingParams, prompt: &[u32], n: usize) -> Result<Vec<Token>, CliError> {
        let (cpu, model) = self.parts.take().expect("the parts are put back after every run");
        let capacity = prompt.len() + n;
        let options = EngineOptions {
            kv: g.kv,
            capacity,
            chunk: way.chunk,
            spec: way.spec,
            exp: exp_in_place(way.level),
            ..EngineOptions::default()
        };
        let mut engine = Engine::new(cpu, model, options)?;
        let mut tokens = vec![engine.start(prompt, &params, &mut |_, _| true)?];
        while tokens.len() < n {
            engine.step(&params, &|_| false, &mut tokens)?;
        }
        tokens.truncate(n);
        self.parts = Some(engine.into_parts());
        Ok(tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_plan_has_every_value_and_the_full_one_everything() {
        let small = plan(false);
        let runs = small.iter().map(|(_, groups)| groups.len()).sum::<usize>();
        assert!((16..=32).contains(&runs), "{runs} runs");
        assert!(groups().all(|g| small.iter().filter(|(_, groups)| groups.contains(&g)).count() >= 2));
        let with = |f: &dyn Fn(&Way) -> bool| small.iter().any(|(w, _)| f(w));
        assert!(Simd::available().iter().all(|l| with(&|w| w.level == *l)));
        assert!(THREADS.iter().all(|t| with(&|w| w.threads == *t)));
        assert!(SPECS.iter().all(|s| with(&|w| w.spec == *s)));
        assert!(CHUNKS.iter().all(|c| with(&|w| w.chunk == *c)));
        let runs = plan(true).iter().map(|(_, groups)| groups.len()).sum::<usize>();
        assert_eq!(runs, Simd::available().len() * 2 * 4 * 3 * 8);
    }

    /// Differences of some ways from the plainest one, with some change of their sampling.
    fn differences(plan: Vec<(Way, Vec<Group>)>, change: fn(SamplingParams) -> SamplingParams) -> Vec<u64> {
        let mut seen = Vec::new();
        let report: Report<'_> = &mut |event| match event {
            Event::Case(case) => seen.push(case.differing),
            Event::Note(_) => {}
        };
        compare(plan, change, report).unwrap();
        seen
    }

    const INT8: Group = Group { kv: KvKind::Int8, sampled: false };
    const Q4: Group = Group { kv: KvKind::Q4_0, sampled: true };

    #[test]
    fn hashes_do_not_depend_on_how_they_are_computed() {
        let way = |level, threads, chunk, spec| (Way { level, threads, chunk, spec }, vec![INT8, Q4]);
        let plan = vec![way(Simd::best(), 2, 64, 4), way(Simd::best(), 1, 7, 2), way(Simd::best(), 1, 1, 0), way(Simd::Scalar, 2, 512, 2)];
        assert_eq!(differences(plan, |params| params), [0; 8]);
    }

    #[test]
    fn another_seed_is_seen() {
        let way = Way { level: Simd::best(), threads: 1, chunk: 64, spec: 2 };
        let seen = differences(vec![(way, vec![Q4])], |params| SamplingParams { seed: 8, ..params });
        assert!(seen.len() == 1 && seen[0] > 0, "{seen:?}");
    }

    #[test]
    fn one_other_token_is_a_difference() {
        let t = |id, logprob| Token { id, logprob: Some(logprob), top: Vec::new() };
        let a = [t(1, -0.5), t(2, 0.0)];
        assert_eq!(differing(&a, &a), 0);
        assert_eq!(differing(&a, &[t(1, -0.5), t(3, 0.0)]), 1);
        assert_eq!(differing(&a, &[t(1, -0.5), t(2, -0.0)]), 1);
        assert_eq!(differing(&a[..1], &a), 2);
    }
}
