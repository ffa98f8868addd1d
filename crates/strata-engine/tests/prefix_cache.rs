//! Answers of a runner with a prefix cache are those of an engine that reads every prompt from its start, and it reads only what is
//! new.

#[path = "common/asked.rs"]
mod asked;
mod common;

use asked::on_cpu;
use common::{Fixture, Rng, engine, greedy, refmodel};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use strata_engine::prefix_cache::{CacheOptions, DiskOptions};
use strata_engine::sampler::SamplingParams;
use strata_engine::{
    Batch, EngineOptions, Generate, Kind, Mark, Reason, Request, Runner, RunnerOptions, SessionError, Sink, Token, Update, Usage,
};
use strata_model::{Model, ModelOptions, WeightMode};
use strata_ops::qsa::kv::KvKind;

struct Tap(Sender<Update>);

impl Sink for Tap {
    fn send(&mut self, update: Update) -> bool {
        self.0.send(update).is_ok()
    }
}

fn runner(options: EngineOptions, slots: usize, bytes: u64) -> Runner {
    runner_with(options, slots, &CacheOptions { bytes, ..Default::default() })
}

fn runner_with(options: EngineOptions, slots: usize, cache: &CacheOptions) -> Runner {
    let cpu = on_cpu(2);
    let model = Model::bind(&cpu, &refmodel(), None, ModelOptions { mtp: options.spec > 0, ..Default::default() }).unwrap();
    let batch = Batch::new(cpu, model, options, slots).unwrap();
    Runner::start_with_cache(batch, RunnerOptions { queue: 64 }, cache).unwrap()
}

/// A turn of a conversation: all that was said, and where it may be kept.
#[derive(Clone)]
struct Turn {
    prompt: Vec<u32>,
    marks: Vec<Mark>,
    params: SamplingParams,
    most: usize,
}

impl Turn {
    fn submit(&self, r: &Runner) -> Receiver<Update> {
        let (to, from) = channel();
        let kind = Kind::Generate(Generate { max_tokens: self.most, ..Generate::new(self.params) });
        let request = Request { prompt: self.prompt.clone(), kind, deadline: None, marks: self.marks.clone(), use_cache: true };
        r.submit(request, Box::new(Tap(to))).unwrap();
        from
    }

    fn alone(&self, e: &mut strata_engine::Engine<strata_cpu::backend::Cpu>) -> Vec<Token> {
        e.clear();
        let mut out = vec![e.start(&self.prompt, &self.params, &mut |_, _| true).unwrap()];
        while out.len() < self.most {
            e.step(&self.params, &|_| false, &mut out).unwrap();
        }
        out.truncate(self.most);
        out
    }
}

fn answer(from: &Receiver<Update>) -> (Vec<Token>, Usage) {
    let mut tokens = Vec::new();
    for update in from.iter() {
        match update {
            Update::Token(t) => tokens.push(t),
            Update::Ended { reason: Reason::Length | Reason::Stop, usage } => return (tokens, usage),
            Update::Ended { reason, .. } => panic!("{reason:?}"),
            _ => {}
        }
    }
    panic!("no end")
}

/// Random conversations that begin with one of two system turns, are continued and edited; each turn with its answer.
fn conversations(rng: &mut Rng, kv: KvKind, turns: usize) -> Vec<(Turn, Vec<Token>)> {
    let source = Fixture::load("prose1500").ids;
    let mut alone = engine(WeightMode::AsStored, EngineOptions { kv, capacity: 1024, ..Default::default() });
    let mut all: Vec<(Turn, Vec<Token>)> = Vec::new();
    for _ in 0..turns {
        let mut words = |n: usize| {
            let at = rng.below(source.len() - n);
            source[at..at + n].to_vec()
        };
        let (lots, some) = (words(150), words(40));
        let (mut prompt, mut marks) = match all.get(rng.below(all.len().max(1))) {
            // goes on, or asks again from where the question began
            Some((t, a)) if rng.below(4) > 0 && t.prompt.len() < 700 => {
                let mut p = t.prompt.clone();
                if rng.below(3) > 0 {
                    p.extend(a.iter().map(|t| t.id));
                } else {
                    p.truncate(t.marks[rng.below(t.marks.len())].at);
                }
                let marks = t.marks.iter().copied().filter(|m| m.at <= p.len()).collect();
                (p, marks)
            }
            _ => (source[rng.below(2) * 700..][..90].to_vec(), vec![Mark { at: 90, pinned: true }]),
        };
        let n = 1 + rng.below(40);
        prompt.extend(&if rng.below(3) == 0 { lots } else { some }[..n.max(4)]);
        marks.push(Mark { at: prompt.len() - rng.below(4), pinned: false });
        let params = [
            SamplingParams { seed: rng.below(100) as u64, logprobs: Some(2), ..Default::default() },
            SamplingParams { repetition_penalty: 1.3, seed: 3, ..Default::default() },
            greedy(),
        ][rng.below(3)];
        let turn = Turn { prompt, marks, params, most: 1 + rng.below(60) };
        let expected = turn.alone(&mut alone);
        all.push((turn, expected));
    }
    all
}

#[test]
fn a_hit_never_changes_a_bit() {
    let kinds = [KvKind::Int8, KvKind::F16, KvKind::Q4_0, KvKind::K8V4, KvKind::F32];
    for (i, kv) in kinds.into_iter().enumerate() {
        let mut rng = Rng(40 + i as u64);
        let all = conversations(&mut rng, kv, if i == 0 { 40 } else { 12 });
        let runs: &[(usize, usize, u64)] =
            if i == 0 { &[(64, 0, 64 << 20), (128, 3, 12 << 20), (1, 0, 16 << 20)] } else { &[(64, i % 3, 64 << 20)] };
        for &(chunk, spec, bytes) in runs {
            let r = runner(EngineOptions { kv, capacity: 1024, chunk, spec, ..Default::default() }, 2, bytes);
            let (mut read, mut kept, mut open) = (0, 0, Vec::new());
            let mut check = |(i, from): (usize, Receiver<Update>)| {
                let (tokens, usage) = answer(&from);
                assert_eq!(tokens, all[i].1, "{} chunk {chunk}, {spec} drafts, turn {i}, {} kept", kv.name(), usage.cached);
                kept += usage.cached;
                read += usage.prompt - usage.cached;
            };
            for i in (0..all.len()).chain(0..all.len() / 2) {
                open.push((i, all[i].0.submit(&r)));
                while open.len() > rng.below(4) {
                    check(open.swap_remove(rng.below(open.len())));
                }
            }
            open.into_iter().for_each(&mut check);
            let s = r.status();
            println!("{} chunk {chunk}, {spec} drafts: read {read}, kept {kept}, {:?}", kv.name(), s.cache);
            assert!(s.cache.hits > 3 && kept > read / 2 && s.cache.bytes <= bytes);
            assert!(bytes >= 24 << 20 || s.cache.evicted > 0);
            r.stop(Instant::now() + Duration::from_secs(60));
        }
    }
}

#[test]
fn a_follow_up_reads_only_its_new_tokens() {
    let source = Fixture::load("needle6000").ids;
    for spec in [0, 2] {
        let r = runner(EngineOptions { capacity: 4096, spec, ..Default::default() }, 1, 1 << 30);
        let turn = |prompt: Vec<u32>, marks: &[usize]| Turn {
            prompt,
            marks: marks.iter().map(|at| Mark { at: *at, pinned: false }).collect(),
            params: greedy(),
            most: 40,
        };
        let first = turn(source[..3000].to_vec(), &[2996]);
        let (tokens, usage) = answer(&first.submit(&r));
        assert_eq!(usage.cached, 0);
        let mut prompt = first.prompt.clone();
        prompt.extend(tokens.iter().map(|t| t.id));
        let end = prompt.len() - 1;
        prompt.extend(&source[3100..3120]);
        // in the slot, and after another conversation took the slot; the last token of the answer was not run
        for taken in [false, true] {
            if taken {
                answer(&turn(source[500..600].to_vec(), &[]).submit(&r));
            }
            let (_, usage) = answer(&turn(prompt.clone(), &[prompt.len() - 4]).submit(&r));
            assert_eq!((usage.prompt - usage.cached, usage.cached), (21, end), "taken: {taken}");
        }
        // another question from where the first began, the same prompt again, and one that begins alike
        let (_, usage) = answer(&turn([&first.prompt[..2996], &source[10..30]].concat(), &[]).submit(&r));
        assert_eq!(usage.cached, 2996);
        let (again, usage) = answer(&first.submit(&r));
        assert_eq!((again, usage.cached), (tokens, 2996));
        let (_, usage) = answer(&turn([&first.prompt[..2500], &source[10..30]].concat(), &[]).submit(&r));
        assert_eq!(usage.cached, 2048, "from the place that every prompt has there");
    }
}

#[test]
fn a_conversation_goes_on_after_a_restart() {
    let source = Fixture::load("prose1500").ids;
    let dir = std::env::temp_dir().join(format!("strata-prefix-cache-test-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let disk = Some(DiskOptions { dir: dir.clone(), bytes: 1 << 30 });
    let options = EngineOptions { capacity: 1024, spec: 2, ..Default::default() };
    let start = |model| runner_with(options, 1, &CacheOptions { bytes: 1 << 28, model, disk: disk.clone() });
    let stop = |r: Runner| r.stop(Instant::now() + Duration::from_secs(60));
    let turn = |prompt: Vec<u32>| Turn { prompt, marks: Vec::new(), params: greedy(), most: 40 };
    let first = turn(source[..500].to_vec());
    let r = start(1);
    let (tokens, _) = answer(&first.submit(&r));
    stop(r);
    let said: Vec<u32> = first.prompt.iter().copied().chain(tokens.iter().map(|t| t.id)).collect();
    let next = turn([&said[..], &source[600..620]].concat());
    let mut alone = engine(WeightMode::AsStored, EngineOptions { capacity: 1024, ..Default::default() });
    let expected = next.alone(&mut alone);
    let ask = |model| {
        let r = start(model);
        let (tokens, usage) = answer(&next.submit(&r));
        assert_eq!(tokens, expected, "{} kept", usage.cached);
        let disk = r.status().cache.disk;
        stop(r);
        (usage.cached, disk.refused)
    };
    assert_eq!(ask(1), (said.len() - 1, 0));
    // files that have changed are not believed
    for file in std::fs::read_dir(&dir).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    let (kept, refused) = ask(1);
    assert!(kept == 0 && refused > 0);
    // another model's are removed
    let (kept, refused) = ask(2);
    assert!(kept == 0 && refused > 0);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_session_is_saved_and_put_back_by_name() {
    let source = Fixture::load("prose1500").ids;
    let file = std::env::temp_dir().join(format!("strata-session-test-{}.state", std::process::id()));
    let options = EngineOptions { capacity: 1024, ..Default::default() };
    let start = |model| runner_with(options, 2, &CacheOptions { bytes: 1 << 28, model, disk: None });
    let turn = |prompt: &[u32]| Turn { prompt: prompt.to_vec(), marks: Vec::new(), params: greedy(), most: 10 };
    let r = start(1);
    assert!(matches!(r.save_session(2, &file), Err(SessionError::Slot { slots: 2, found: 2 })));
    assert!(matches!(r.save_session(0, &file), Err(SessionError::Empty(0))));
    answer(&turn(&source[..300]).submit(&r));
    let slot = (0..2).find(|s| r.save_session(*s, &file).is_ok()).unwrap();
    assert_eq!(r.save_session(slot, &file).unwrap(), 309, "the last token of the answer was not run");
    let (expected, usage) = answer(&turn(&source[..330]).submit(&r));
    assert_eq!(usage.cached, 299, "from before the last token of the prompt");
    drop(r);
    let r = start(1);
    assert_eq!(r.restore_session(&file).unwrap(), 309);
    let (_, usage) = answer(&turn(&source[..330]).submit(&r));
    assert_eq!(usage.cached, 0, "the answer was not the text");
    let (tokens, _) = answer(&turn(&source[..300]).submit(&r));
    let said: Vec<u32> = source[..300].iter().copied().chain(tokens.iter().map(|t| t.id)).collect();
    let (_, usage) = answer(&turn(&[&said[..], &source[..20]].concat()).submit(&r));
    assert_eq!(usage.cached, 309);
    assert_eq!(answer(&turn(&source[..330]).submit(&r)).0, expected);
    let other = start(2);
    assert!(matches!(other.restore_session(&file), Err(SessionError::File(_))), "another model's");
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(r.restore_session(&file), Err(SessionError::File(_))));
    r.stop(Instant::now());
    assert!(matches!(r.save_session(0, &file), Err(SessionError::Stopping)));
}
