//! A runner's answers are those of each request alone, by bits, whoever comes, goes and is cut off beside it; and its limits hold.

#[path = "common/asked.rs"]
mod asked;
mod common;
#[path = "common/faulty.rs"]
mod faulty;

use asked::{Asked, batch, embedding, on_cpu};
use common::{Fixture, Rng, engine, greedy};
use faulty::{Fault, Faulty};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use strata_engine::{
    Constraint, EngineError, EngineOptions, Generate, Kind, Mark, Reason, Refused, Request, RequestId, Runner, RunnerOptions, Sink, Status,
    Token, Update, Usage,
};
use strata_model::WeightMode;
use strata_ops::qsa::kv::KvKind;

const SLOTS: usize = 4;

/// A sink that says no, or panics, after some updates.
struct Tap {
    to: Sender<Update>,
    left: usize,
    panics: bool,
}

impl Sink for Tap {
    fn send(&mut self, update: Update) -> bool {
        if self.left == 0 {
            assert!(!self.panics, "a sink that panics");
            return false;
        }
        self.left -= 1;
        self.to.send(update).is_ok()
    }
}

fn tap() -> (Box<Tap>, Receiver<Update>) {
    let (to, from) = channel();
    (Box::new(Tap { to, left: usize::MAX, panics: false }), from)
}

/// All that a request got, in the order that is promised.
#[derive(Debug)]
struct Got {
    started: bool,
    tokens: Vec<Token>,
    embedding: Option<Vec<f32>>,
    ended: Option<(Reason, Usage)>,
}

/// Waits until nothing more comes.
fn got(from: &Receiver<Update>) -> Got {
    let mut g = Got { started: false, tokens: Vec::new(), embedding: None, ended: None };
    let (mut last, mut kept) = (0, 0);
    for update in from.iter() {
        assert!(g.ended.is_none(), "`Ended` is the last");
        match update {
            Update::Started { cached, .. } => {
                assert!(!g.started && g.tokens.is_empty());
                (g.started, last, kept) = (true, cached, cached);
            }
            Update::Read { read, prompt } => {
                assert!(g.started && g.tokens.is_empty() && last < read && read <= prompt);
                last = read;
            }
            Update::Token(t) => g.tokens.push(t),
            Update::Embedding(e) => g.embedding = Some(e),
            Update::Ended { reason, usage } => {
                assert!(usage.cached == kept && usage.generated == g.tokens.len() && usage.accepted <= usage.drafted);
                g.ended = Some((reason, usage));
            }
        }
    }
    g
}

fn request(prompt: &[u32], asked: Generate) -> Request {
    Request { prompt: prompt.to_vec(), kind: Kind::Generate(asked), deadline: None, marks: Vec::new(), use_cache: true }
}

fn plain(prompt: &[u32], max_tokens: usize) -> Request {
    request(prompt, Generate { max_tokens, ..Generate::new(greedy()) })
}

fn runner(options: EngineOptions, queue: usize) -> Runner {
    Runner::start(batch(on_cpu(2), options, SLOTS), RunnerOptions { queue }).unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Polls until the runner's status is as expected.
fn wait(r: &Runner, what: &str, is: impl Fn(&Status) -> bool) -> Status {
    let end = soon();
    loop {
        let s = r.status();
        if is(&s) {
            return s;
        }
        assert!(Instant::now() < end, "{what}: {s:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Sends all requests, cancels some; returns how many answers were whole and how many were cut off.
fn serve(r: &Runner, asked: &[Asked], expected: &[(Vec<Token>, bool)], rng: &mut Rng) -> Result<(usize, usize), String> {
    let mut open: Vec<(usize, RequestId, Receiver<Update>)> = Vec::new();
    for (i, a) in asked.iter().enumerate() {
        let (to, from) = tap();
        let mut q = request(&a.prompt, a.generate());
        q.use_cache = rng.below(4) > 0;
        open.push((i, r.submit(q, to).unwrap(), from));
        if rng.below(3) == 0 {
            std::thread::sleep(Duration::from_millis(rng.below(30) as u64));
        }
        // some at once, so that a fast machine has not answered all that are cancelled
        if i % 8 == 7 {
            r.cancel(open[i].1);
        } else if rng.below(5) == 0 {
            r.cancel(open[rng.below(open.len())].1);
        }
    }
    let (mut whole, mut cut) = (0, 0);
    for (i, _, from) in open {
        let g = got(&from);
        let (tokens, stops) = &expected[i];
        let matches = match g.ended.as_ref().map(|e| &e.0) {
            Some(Reason::Stop) => g.tokens == *tokens && *stops,
            Some(Reason::Length) => g.tokens == *tokens && !*stops,
            Some(Reason::Cancelled) => tokens.starts_with(&g.tokens),
            _ => false,
        };
        if !matches {
            return Err(format!("request {i}: {:?} instead of {tokens:?}, {:?}", g.tokens, g.ended));
        }
        *(if matches!(g.ended, Some((Reason::Cancelled, _))) { &mut cut } else { &mut whole }) += 1;
    }
    Ok((whole, cut))
}

#[test]
fn answers_are_those_of_each_request_alone() {
    let source = Fixture::load("prose1500").ids;
    for (kv, runs) in [(KvKind::Int8, &[(2, 0, false), (2, 3, false), (1, 4, true)][..]), (KvKind::F16, &[(1, 2, false)])] {
        let mut alone = engine(WeightMode::AsStored, EngineOptions { kv, capacity: 512, ..Default::default() });
        let vocab = alone.model().config().vocab;
        let mut rng = Rng(5);
        let mut asked: Vec<Asked> = (0..24).map(|_| Asked::random(&mut rng, &source, vocab)).collect();
        let mut expected: Vec<_> = asked.iter().map(|a| a.answer(&mut alone)).collect();
        // second turns, some of which find the first in a slot
        for i in 0..8 {
            let mut next = Asked::random(&mut rng, &source, vocab);
            let turn: Vec<u32> = asked[i].prompt.iter().copied().chain(expected[i].0.iter().map(|t| t.id)).collect();
            next.prompt.splice(..0, turn);
            expected.push(next.answer(&mut alone));
            asked.push(next);
        }
        assert!(expected.iter().filter(|e| e.1).count() > 5 && expected.iter().filter(|e| !e.1).count() > 5);
        for &(threads, spec, spec_auto) in runs {
            let options = EngineOptions { kv, capacity: 512, chunk: 64, spec, spec_auto, ..Default::default() };
            let r = Runner::start(batch(on_cpu(threads), options, SLOTS), RunnerOptions { queue: 64 }).unwrap();
            let (whole, cut) = serve(&r, &asked, &expected, &mut rng).unwrap();
            let s = r.status();
            println!("{} {threads} threads, {spec} drafts: {whole} whole, {cut} cut off, {} steps", kv.name(), s.steps);
            println!("first step {:?}, between steps {:?} at most", s.first_step.quantile(0.99), s.between_steps.max());
            assert!(whole > 16 && cut > 2);
            assert_eq!((s.submitted, s.completed, s.cancelled), (asked.len() as u64, whole as u64, cut as u64));
            assert_eq!((s.waiting, s.failed, s.refused, s.step.count()), (0, 0, 0, s.steps));
            assert!(s.first_step.count() >= s.completed && s.first_step.count() <= s.submitted);
            // they shared steps
            assert!(s.steps < s.generated_tokens, "{} steps, {} tokens", s.steps, s.generated_tokens);
            assert!(s.slots.iter().all(|x| x.request.is_none()));
            assert!(s.drafted_tokens == 0 || spec > 0);
            assert!(s.accepted_tokens > 0 || spec == 0 || spec_auto, "drafts are right now and then");
            r.stop(soon());
        }
        // each part of what is asked tells in the answers, and so does a fault of the device
        let changes: [fn(&mut Asked); 4] =
            [|a| a.choice += 1, |a| a.bias.clear(), |a| a.grammar = None, |a| a.grammar.iter_mut().for_each(|g| g.seed += 1)];
        let r = runner(EngineOptions { kv, capacity: 512, ..Default::default() }, 64);
        for change in changes {
            let mut other = asked.clone();
            other.iter_mut().for_each(change);
            serve(&r, &other, &expected, &mut Rng(1)).unwrap_err();
        }
        let faulty = Faulty::new(on_cpu(2), Fault::ConvAdvance);
        let r = Runner::start(batch(faulty, EngineOptions { kv, capacity: 512, ..Default::default() }, SLOTS), RunnerOptions { queue: 64 });
        serve(&r.unwrap(), &asked, &expected, &mut Rng(1)).unwrap_err();
    }
}

#[test]
fn embeddings_run_beside_answers() {
    let source = Fixture::load("prose1500").ids;
    let r = runner(EngineOptions { capacity: 256, chunk: 32, ..Default::default() }, 16);
    let mut open = Vec::new();
    for i in 0..6 {
        let (to, from) = tap();
        let text = &source[i * 50..i * 50 + [1, 40, 256][i % 3]];
        let kind = Kind::Embed;
        r.submit(Request { prompt: text.to_vec(), kind, deadline: None, marks: Vec::new(), use_cache: true }, to).unwrap();
        let (more, rest) = tap();
        r.submit(plain(&source[i * 50..i * 50 + 20], 12), more).unwrap();
        open.push((text, &source[i * 50..i * 50 + 20], from, rest));
    }
    let mut alone = engine(WeightMode::AsStored, EngineOptions { capacity: 256, ..Default::default() });
    for (text, prompt, from, rest) in open {
        let g = got(&from);
        assert_eq!(g.embedding, Some(embedding(text, KvKind::Int8)), "{} tokens", text.len());
        let (reason, usage) = g.ended.unwrap();
        assert!(matches!(reason, Reason::Stop) && usage.prompt == text.len() && usage.generated == 0 && usage.cached == 0);
        let found: Vec<u32> = got(&rest).tokens.iter().map(|t| t.id).collect();
        assert_eq!(found, common::generate(&mut alone, prompt, 12, &greedy()));
    }
}

#[test]
fn a_queue_has_an_end() {
    let source = Fixture::load("prose300").ids;
    let r = runner(EngineOptions { capacity: 4096, ..Default::default() }, 2);
    let mut open = Vec::new();
    for _ in 0..SLOTS + 2 {
        let (to, from) = tap();
        open.push((r.submit(plain(&source[..10], 4000), to).unwrap(), from));
    }
    let (to, from) = tap();
    let e = r.submit(plain(&source[..10], 4000), to).unwrap_err();
    assert!(matches!(e, Refused::QueueFull { waiting: 2 }), "{e}");
    assert!(got(&from).ended.is_none(), "one that was refused hears nothing");
    wait(&r, "all slots are taken", |s| s.slots.iter().all(|x| x.generated > 0));
    assert_eq!((r.status().waiting, r.status().refused), (2, 1));
    // a place in the queue comes back with each that ends, and those in front get the slot
    r.cancel(open[0].0);
    let g = got(&open[0].1);
    assert!(matches!(g.ended, Some((Reason::Cancelled, u)) if u.generated == g.tokens.len()));
    let (to, _last) = tap();
    let last = r.submit(plain(&source[..10], 4000), to).unwrap();
    wait(&r, "the first in line runs", |s| s.slots.iter().any(|x| x.request == Some(open[SLOTS].0.0)));
    // one that waits is cancelled without a slot
    r.cancel(last);
    wait(&r, "the line is shorter", |s| s.waiting == 1 && s.cancelled == 2);
    drop(r);
    for (_, from) in &open[1..] {
        let g = got(from);
        assert!(matches!(g.ended, Some((Reason::Stopped, _))), "without a handle all end: {:?}", g.ended);
    }
}

#[test]
fn what_cannot_run_is_refused_at_once() {
    let r = runner(EngineOptions { capacity: 64, ..Default::default() }, 8);
    let f = r.facts();
    assert_eq!((f.context, f.slots, f.spec), (64, SLOTS, 0));
    let refused = |q: Request| match r.submit(q, tap().0) {
        Err(Refused::Bad(e)) => e.to_string(),
        other => panic!("{other:?}"),
    };
    let with = |change: fn(&mut Generate)| {
        let mut g = Generate::new(greedy());
        change(&mut g);
        refused(request(&[1, 2], g))
    };
    assert!(refused(plain(&[], 1)).contains("empty"));
    assert!(refused(plain(&[1; 64], 1)).contains("64 tokens"));
    assert!(refused(plain(&[1, f.vocab as u32], 1)).contains("position 1"));
    assert!(with(|g| g.max_tokens = 0).contains("max_tokens"));
    assert!(with(|g| g.params.top_p = 2.0).contains("top_p"));
    assert!(with(|g| g.bias = vec![(1 << 30, 1.0)]).contains("bias"));
    assert!(with(|g| g.bias = vec![(1, f32::NAN)]).contains("bias"));
    let marks = |at: &[usize]| Request { marks: at.iter().map(|at| Mark { at: *at, pinned: false }).collect(), ..plain(&[1; 9], 1) };
    assert!(refused(marks(&[4, 4])).contains("marks") && refused(marks(&[10])).contains("marks"));
    let embed = |n| Request { kind: Kind::Embed, ..plain(&vec![1; n], 1) };
    assert!(refused(embed(65)).contains("65 tokens"));
    r.submit(embed(64), tap().0).unwrap();
    assert_eq!((r.status().refused, r.status().submitted), (10, 1));
}

#[test]
fn deadlines_and_cancellations_take_one_step() {
    let source = Fixture::load("prose1500").ids;
    let r = runner(EngineOptions { capacity: 2048, chunk: 16, ..Default::default() }, 8);
    // out of time before it came, while it reads, while it answers
    let mut open = Vec::new();
    for (prompt, ms) in [(10, 0), (1400, 60), (10, 60)] {
        let (to, from) = tap();
        let deadline = Instant::now() + Duration::from_millis(ms);
        r.submit(Request { deadline: Some(deadline), ..plain(&source[..prompt], 2000) }, to).unwrap();
        open.push((deadline, from));
    }
    for (deadline, from) in open {
        let g = got(&from);
        assert!(matches!(g.ended, Some((Reason::Deadline, _))), "{:?}", g.ended);
        assert!(Instant::now() >= deadline);
    }
    assert_eq!(r.status().timed_out, 3);
    for prompt in [1400, 10] {
        let (to, from) = tap();
        let id = r.submit(plain(&source[..prompt], 2000), to).unwrap();
        wait(&r, "it runs", |s| s.slots.iter().any(|x| x.request == Some(id.0) && x.read > 0));
        let before = r.status().steps;
        r.cancel(id);
        let g = got(&from);
        // the step that runs when it is asked for may not be counted yet
        let steps = r.status().steps - before;
        assert!(matches!(g.ended, Some((Reason::Cancelled, _))) && steps <= 2, "{steps} steps");
        assert!(prompt < 100 || g.tokens.is_empty());
    }
    // a name that nobody has, or has no more
    r.cancel(RequestId(0));
    r.cancel(RequestId(1 << 40));
    let (to, from) = tap();
    r.submit(plain(&source[..10], 3), to).unwrap();
    assert_eq!(got(&from).tokens.len(), 3);
}

/// A grammar that fails at some token, by an error, a panic, or a mask without a token.
struct Broken(usize, u8);

impl Constraint for Broken {
    fn ahead(&mut self, _: &[u32]) {}

    fn allowed(&mut self) -> Result<Option<&[u32]>, String> {
        match (self.0, self.1) {
            (0, 0) => Err("too deep".into()),
            (0, 1) => panic!("a grammar that panics"),
            (0, _) => Ok(Some(&[])),
            _ => Ok(None),
        }
    }

    fn accept(&mut self, _: u32) -> Result<bool, String> {
        self.0 -= 1;
        Ok(false)
    }
}

#[test]
fn what_breaks_takes_nobody_with_it() {
    let source = Fixture::load("prose300").ids;
    let expected = common::generate(
        &mut engine(WeightMode::AsStored, EngineOptions { capacity: 512, ..Default::default() }),
        &source[..20],
        60,
        &greedy(),
    );
    for spec in [0, 2] {
        let r = runner(EngineOptions { capacity: 512, spec, ..Default::default() }, 32);
        let (to, steady) = tap();
        r.submit(plain(&source[..20], 60), to).unwrap();
        let mut open = Vec::new();
        for (left, panics) in [(0, false), (0, true), (1, true), (2, false), (4, true), (5, false)] {
            let (mut to, from) = tap();
            (to.left, to.panics) = (left, panics);
            r.submit(plain(&source[10..40], 60), to).unwrap();
            open.push((left, from));
        }
        for (left, from) in open {
            let g = got(&from);
            assert!(g.ended.is_none() && g.started == (left > 0), "{left}: {g:?}");
        }
        for (at, how) in [(0, 0), (3, 0), (2, 1), (2, 2)] {
            let (to, from) = tap();
            let constraint: Option<Box<dyn Constraint>> = Some(Box::new(Broken(at, how)));
            r.submit(request(&source[10..40], Generate { constraint, ..Generate::new(greedy()) }), to).unwrap();
            let g = got(&from);
            assert_eq!(g.tokens.len(), at);
            let Some((Reason::Failed(e), _)) = g.ended else { panic!("{g:?}") };
            assert_eq!(matches!(e, EngineError::Constraint(_)), how < 2, "{e}");
        }
        let found: Vec<u32> = got(&steady).tokens.iter().map(|t| t.id).collect();
        assert_eq!(found, expected);
        let s = r.status();
        assert_eq!((s.cancelled, s.failed, s.completed), (6, 4, 1));
        r.stop(soon());
    }
    // a value that is not finite, in the first pass that three requests share
    let options = EngineOptions { capacity: 512, ..Default::default() };
    let r = Runner::start(batch(Faulty::new(on_cpu(2), Fault::NotFinite(0)), options, SLOTS), RunnerOptions { queue: 8 }).unwrap();
    let open: Vec<_> = (0..3)
        .map(|_| {
            let (to, from) = tap();
            r.submit(plain(&source[..20], 60), to).unwrap();
            from
        })
        .collect();
    let all: Vec<Got> = open.iter().map(got).collect();
    let failed = |g: &&Got| matches!(&g.ended, Some((Reason::Failed(EngineError::Forward(_)), _)));
    assert_eq!(all.iter().filter(failed).count(), 1);
    for g in all.iter().filter(|g| !failed(g)) {
        assert_eq!(g.tokens.iter().map(|t| t.id).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_stop_lets_answers_end_or_cuts_them_off() {
    let source = Fixture::load("prose300").ids;
    for cut in [false, true] {
        let r = runner(EngineOptions { capacity: 4096, ..Default::default() }, 8);
        let open: Vec<_> = (0..SLOTS + 2)
            .map(|_| {
                let (to, from) = tap();
                r.submit(plain(&source[..10], if cut { 4000 } else { 30 }), to).unwrap();
                from
            })
            .collect();
        wait(&r, "all slots are taken", |s| s.slots.iter().all(|x| x.generated > 0));
        let other = r.clone();
        let until = if cut { Instant::now() + Duration::from_millis(30) } else { soon() };
        let stopper = std::thread::spawn(move || other.stop(until));
        let end = soon();
        loop {
            let (to, _from) = tap();
            match r.submit(plain(&source[..10], 1), to) {
                Err(Refused::Stopping) => break,
                _ => assert!(Instant::now() < end),
            }
        }
        r.stop(soon());
        stopper.join().unwrap();
        for (i, from) in open.iter().enumerate() {
            let g = got(from);
            match g.ended {
                Some((Reason::Length, _)) => assert!(!cut && g.tokens.len() == 30),
                Some((Reason::Stopped, _)) => assert!(cut && (g.started || i >= SLOTS)),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(r.submit(plain(&source[..10], 1), tap().0), Err(Refused::Stopping)));
    }
}

#[test]
fn a_runner_without_work_sleeps_and_a_slot_goes_to_who_can_use_it() {
    let source = Fixture::load("prose300").ids;
    let r = runner(EngineOptions { capacity: 512, ..Default::default() }, 8);
    let ask = |prompt: &[u32], use_cache: bool| {
        let (to, from) = tap();
        r.submit(Request { use_cache, ..plain(prompt, 5) }, to).unwrap();
        let g = got(&from);
        let tokens: Vec<u32> = g.tokens.iter().map(|t| t.id).collect();
        (tokens, g.ended.unwrap().1.cached)
    };
    let mut alone = engine(WeightMode::AsStored, EngineOptions { capacity: 512, ..Default::default() });
    let mut check = |prompt: &[u32], use_cache: bool, kept: usize| {
        let (tokens, cached) = ask(prompt, use_cache);
        assert_eq!((&tokens, cached), (&common::generate(&mut alone, prompt, 5, &greedy()), kept), "{} tokens", prompt.len());
        tokens
    };
    // one slot after the other, as each was free longest
    let turns: Vec<&[u32]> = (0..SLOTS).map(|i| &source[i * 20..i * 20 + 30]).collect();
    let first: Vec<Vec<u32>> = turns.iter().map(|t| check(t, true, 0)).collect();
    for i in [2, 0, 3, 1] {
        let next: Vec<u32> = turns[i].iter().chain(&first[i]).chain(&source[200..210]).copied().collect();
        // the newest token of the first turn was not run
        check(&next, true, 34);
    }
    // a state cannot go back, and a prompt has a token to read
    let whole: Vec<u32> = turns[1].iter().chain(&first[1]).chain(&source[200..210]).copied().collect();
    check(&whole, true, 0);
    check(&whole[..20], true, 0);
    check(turns[0], true, 0);
    let next: Vec<u32> = turns[0].iter().chain(&first[0]).chain(&source[200..210]).copied().collect();
    check(&next, false, 0);
    let s = wait(&r, "all has ended", |s| s.completed == s.submitted);
    assert_eq!(s.cached_tokens, 4 * 34);
    assert_eq!(s.between_steps.count(), s.steps - s.submitted, "time without work is no time between steps");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(r.status(), s, "without work nothing happens");
}
