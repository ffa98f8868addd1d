//! Requests that share steps get the tokens that they get alone, whoever comes and goes beside them.

mod common;
#[path = "common/faulty.rs"]
mod faulty;

use common::{Fixture, Rng, engine, greedy, refmodel};
use faulty::{Fault, Faulty};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use strata_cpu::backend::Cpu;
use strata_cpu::pool::Pool;
use strata_cpu::simd::Simd;
use strata_engine::sampler::SamplingParams;
use strata_engine::scheduler::{Scheduler, SchedulerLimits, Ticket};
use strata_engine::{Batch, EngineError, EngineOptions, Event, Token, Work};
use strata_model::{ForwardError, Model, ModelOptions, WeightMode};
use strata_ops::backend::Backend;
use strata_ops::qsa::kv::KvKind;

const SLOTS: usize = 4;

#[derive(Clone)]
struct Request {
    prompt: Vec<u32>,
    params: SamplingParams,
    most: usize,
    /// Ends at a token that this divides.
    stop: u32,
}

impl Request {
    fn random(rng: &mut Rng, source: &[u32]) -> Request {
        let len = if rng.below(4) == 0 { 200 + rng.below(100) } else { 1 + rng.below(60) };
        let at = rng.below(source.len() - len);
        let seed = rng.below(1000) as u64;
        let params = match rng.below(4) {
            0 => greedy(),
            1 => SamplingParams { seed, logprobs: Some(2), ..Default::default() },
            2 => SamplingParams { temperature: 0.7, top_k: 20, seed, ..Default::default() },
            _ => SamplingParams { top_p: 0.9, repetition_penalty: 1.2, frequency_penalty: 0.2, seed, ..Default::default() },
        };
        Request { prompt: source[at..at + len].to_vec(), params, most: 1 + rng.below(20), stop: 23 + rng.below(100) as u32 }
    }

    fn ends(&self, id: u32) -> bool {
        id.is_multiple_of(self.stop)
    }

    fn is_done(&self, tokens: &[Token]) -> bool {
        tokens.len() >= self.most || tokens.last().is_some_and(|t| self.ends(t.id))
    }
}

fn cpu(threads: usize) -> Cpu {
    Cpu::new(Arc::new(Pool::new(threads)), Simd::best()).unwrap()
}

fn batch<B: Backend>(backend: B, options: EngineOptions) -> Batch<B> {
    let model = Model::bind(&backend, &refmodel(), None, ModelOptions { mtp: options.spec > 0, ..Default::default() }).unwrap();
    Batch::new(backend, model, options, SLOTS).unwrap()
}

/// Answers of each request alone.
fn alone(kv: KvKind, requests: &[Request]) -> Vec<Vec<Token>> {
    let mut e = engine(WeightMode::AsStored, EngineOptions { kv, capacity: 512, ..Default::default() });
    let mut answer = |r: &Request| {
        e.clear();
        let mut out = vec![e.start(&r.prompt, &r.params, &mut |_, _| true).unwrap()];
        while !r.is_done(&out) {
            e.step(&r.params, &|id| r.ends(id), &mut out).unwrap();
        }
        out.truncate(r.most);
        out
    };
    requests.iter().map(&mut answer).collect()
}

/// What a slot is doing.
struct Running {
    request: usize,
    out: Vec<Token>,
}

/// Serves all requests in random steps, some of them cut off and asked again; returns steps, and steps of several slots.
fn serve<B: Backend>(batch: &mut Batch<B>, requests: &[Request], expected: &[Vec<Token>], rng: &mut Rng) -> (usize, usize) {
    let mut queue: VecDeque<usize> = (0..requests.len()).collect();
    let mut slots: Vec<Option<Running>> = (0..SLOTS).map(|_| None).collect();
    let (mut steps, mut shared, mut events) = (0, 0, Vec::new());
    while !queue.is_empty() || slots.iter().any(Option::is_some) {
        for (slot, running) in slots.iter_mut().enumerate() {
            if running.is_none()
                && rng.below(2) == 0
                && let Some(request) = queue.pop_front()
            {
                let r = &requests[request];
                batch.begin(slot, &r.prompt, &r.params).unwrap();
                assert!(batch.unread(slot) > 0 && !batch.is_started(slot));
                *running = Some(Running { request, out: Vec::new() });
            }
        }
        let mut work: Vec<Work> = Vec::new();
        for slot in (0..SLOTS).filter(|s| slots[*s].is_some()) {
            if rng.below(5) > 0 {
                let most = [4, 32][rng.below(2)];
                work.insert(rng.below(work.len() + 1), Work { slot, rows: 1 + rng.below(most) });
            }
        }
        let running = |slot: usize| slots[slot].as_ref().unwrap();
        batch.step(&work, &|slot, id| requests[running(slot).request].ends(id), &mut events).unwrap();
        (steps, shared) = (steps + 1, shared + usize::from(work.len() > 1));
        for Event { slot, token } in events.drain(..) {
            slots[slot].as_mut().unwrap().out.push(token.unwrap());
        }
        for (slot, running) in slots.iter_mut().enumerate() {
            let Some(Running { request, out }) = running else { continue };
            let r = &requests[*request];
            if r.is_done(out) {
                out.truncate(r.most);
                assert_eq!(out, &expected[*request], "request {request}, slot {slot}");
                *running = None;
            } else if rng.below(40) == 0 {
                queue.push_back(*request);
                batch.clear(slot);
                *running = None;
            }
        }
    }
    (steps, shared)
}

#[test]
fn answers_do_not_depend_on_company() {
    let source = Fixture::load("prose1500").ids;
    // threads, drafts, and whether their number is chosen by measured times
    let runs = [(KvKind::Int8, &[(1, 0, false), (2, 2, false), (1, 4, true)][..]), (KvKind::Q4_0, &[(2, 0, false), (1, 3, false)])];
    for (kv, runs) in runs {
        let mut rng = Rng(7);
        let mut requests: Vec<Request> = (0..10).map(|_| Request::random(&mut rng, &source)).collect();
        let first = alone(kv, &requests);
        // second turns: where a slot still has the first one, only the new tokens are read
        for (i, answer) in first.iter().enumerate().take(5) {
            let mut next = Request::random(&mut rng, &source);
            let turn: Vec<u32> = requests[i].prompt.iter().copied().chain(answer.iter().map(|t| t.id)).collect();
            next.prompt.truncate(20);
            next.prompt.splice(..0, turn);
            requests.push(next);
        }
        let expected = alone(kv, &requests);
        for &(threads, spec, spec_auto) in runs {
            let options = EngineOptions { kv, capacity: 512, chunk: 128, spec, spec_auto, ..Default::default() };
            let mut b = batch(cpu(threads), options);
            let (steps, shared) = serve(&mut b, &requests, &expected, &mut rng);
            println!("{} {threads} threads, {spec} drafts (auto: {spec_auto}): {steps} steps, {shared} shared", kv.name());
            assert!(shared > 20);
        }
    }
}

#[test]
fn the_scheduler_drives_a_batch() {
    let source = Fixture::load("prose1500").ids;
    let mut rng = Rng(11);
    let requests: Vec<Request> = (0..10).map(|_| Request::random(&mut rng, &source)).collect();
    let expected = alone(KvKind::Int8, &requests);
    let mut b = batch(cpu(1), EngineOptions { capacity: 512, chunk: 64, spec: 2, ..Default::default() });
    let limits = SchedulerLimits { slots: SLOTS, queue: requests.len(), rows: b.max_rows(), window: 3 };
    let mut s = Scheduler::new(limits).unwrap();
    let mut open: HashMap<Ticket, Running> =
        (0..requests.len()).map(|request| (s.submit(None).unwrap(), Running { request, out: Vec::new() })).collect();
    assert_eq!(s.submit(None).unwrap_err().waiting, requests.len());
    let (mut work, mut events, mut cancelled, mut step) = (Vec::new(), Vec::new(), None, 0);
    while !open.is_empty() {
        while let Some(e) = s.ended(Duration::ZERO) {
            assert_eq!(Some(e.ticket), cancelled);
            // asked once more
            let request = open.remove(&e.ticket).unwrap().request;
            e.slot.into_iter().for_each(|slot| b.clear(slot));
            open.insert(s.submit(None).unwrap(), Running { request, out: Vec::new() });
        }
        let mut begin = |t: Ticket, slot: usize| {
            let r = &requests[open[&t].request];
            b.begin(slot, &r.prompt, &r.params).unwrap();
            b.unread(slot)
        };
        while s.admit(&mut begin).is_some() {}
        s.work(&mut work);
        let request = |slot: usize| &requests[open[&s.holder(slot).unwrap()].request];
        b.step(&work, &|slot, id| request(slot).ends(id), &mut events).unwrap();
        for Event { slot, token } in events.drain(..) {
            open.get_mut(&s.holder(slot).unwrap()).unwrap().out.push(token.unwrap());
        }
        for slot in 0..SLOTS {
            let Some(t) = s.holder(slot) else { continue };
            let Running { request, out } = open.get_mut(&t).unwrap();
            if requests[*request].is_done(out) {
                out.truncate(requests[*request].most);
                assert_eq!(out, &expected[*request], "request {request}");
                open.remove(&t);
                s.finish(slot);
            }
        }
        step += 1;
        if step == 4 {
            cancelled = (0..SLOTS).find_map(|slot| s.holder(slot));
            assert!(s.cancel(cancelled.unwrap()));
        }
    }
    assert!(cancelled.is_some() && s.running() + s.waiting() == 0);
}

#[test]
fn a_kept_prefix_is_not_read_again() {
    let source = Fixture::load("prose300").ids;
    let mut b = batch(cpu(2), EngineOptions { capacity: 512, ..Default::default() });
    let mut events = Vec::new();
    b.begin(2, &source[..100], &greedy()).unwrap();
    b.step(&[Work { slot: 2, rows: 100 }], &|_, _| false, &mut events).unwrap();
    assert_eq!((b.committed(2), b.unread(2), b.stats(2).prompt_tokens), (&source[..100], 0, 100));
    b.begin(2, &source[..130], &greedy()).unwrap();
    assert_eq!(b.unread(2), 30);
    b.begin(2, &source[1..130], &greedy()).unwrap();
    assert_eq!(b.unread(2), 129);
}

#[test]
fn a_slot_that_fails_does_not_touch_the_others() {
    let source = Fixture::load("prose300").ids;
    let requests: Vec<Request> =
        (0..3).map(|i| Request { prompt: source[i * 50..i * 50 + 20].to_vec(), params: greedy(), most: 12, stop: 1 << 30 }).collect();
    let expected = alone(KvKind::Int8, &requests);
    for spec in [0, 3] {
        // slots 0 and 1 read 20 rows each: the fault is in slot 2's
        let mut b = batch(Faulty::new(cpu(2), Fault::NotFinite(40)), EngineOptions { capacity: 512, spec, ..Default::default() });
        let (mut events, mut out) = (Vec::new(), vec![Vec::new(); 3]);
        let mut failures = 0;
        for (slot, r) in requests.iter().enumerate() {
            b.begin(slot, &r.prompt, &r.params).unwrap();
        }
        while out.iter().any(|o: &Vec<Token>| o.len() < 12) {
            b.step(&[0, 1, 2].map(|slot| Work { slot, rows: 20 }), &|_, _| false, &mut events).unwrap();
            for Event { slot, token } in events.drain(..) {
                match token {
                    Ok(token) => out[slot].push(token),
                    Err(e) => {
                        assert!(matches!(&e, EngineError::Forward(ForwardError::NotFinite { which, .. }) if which == &[2]), "{e:?}");
                        assert!(b.committed(slot).is_empty() && !b.is_started(slot));
                        failures += 1;
                        b.begin(slot, &requests[slot].prompt, &greedy()).unwrap();
                    }
                }
            }
        }
        assert_eq!(failures, 1);
        for (found, expected) in out.iter().zip(&expected) {
            assert_eq!(&found[..12], &expected[..], "{spec} drafts");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut b = batch(cpu(1), EngineOptions { capacity: 64, chunk: 16, ..Default::default() });
    let mut events = Vec::new();
    b.begin(0, &[1; 40], &greedy()).unwrap();
    let e = b.step(&[Work { slot: 0, rows: 17 }], &|_, _| false, &mut events).unwrap_err();
    assert!(matches!(e, EngineError::Forward(ForwardError::TooManyRows { found: 17, limit: 16 })), "{e:?}");
    assert_eq!(b.unread(0), 40, "nothing has changed");
    assert!(matches!(b.begin(1, &[], &greedy()), Err(EngineError::EmptyPrompt)));
    assert!(matches!(b.begin(1, &[1; 64], &greedy()), Err(EngineError::PromptTooLong { found: 64, capacity: 64 })));
    // a slot without a prompt and one whose context is full get nothing
    b.begin(0, &[1; 63], &greedy()).unwrap();
    while !b.is_full(0) {
        b.step(&[Work { slot: 0, rows: 8 }, Work { slot: 1, rows: 8 }], &|_, _| false, &mut events).unwrap();
    }
    assert_eq!(events.len(), 2, "the last token of the context, and the one after it");
    b.step(&[Work { slot: 0, rows: 1 }], &|_, _| false, &mut events).unwrap();
    assert_eq!(events.len(), 2);
    let model = Model::bind(&cpu(1), &refmodel(), None, ModelOptions { mtp: false, ..Default::default() }).unwrap();
    assert!(matches!(Batch::new(cpu(1), model, EngineOptions::default(), 0), Err(EngineError::Option { field: "slots", .. })));
}
