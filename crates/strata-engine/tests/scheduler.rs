//! The scheduler's promises, on random requests: bounds, order, fairness, no starvation, cancellation and deadlines within a step.

use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use strata_engine::Work;
use strata_engine::scheduler::{BadLimits, Cause, Full, Scheduler, SchedulerLimits, Ticket};

/// What happens between two steps.
#[derive(Clone, Debug)]
enum Op {
    /// A prompt of so many tokens, an answer of so many steps, a deadline so many steps ahead.
    Submit {
        prompt: usize,
        answer: usize,
        deadline: Option<u64>,
    },
    /// Cancels one of the requests that are there.
    Cancel(usize),
    Step,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (1usize..400, 1usize..20, proptest::option::weighted(0.2, 1u64..30))
            .prop_map(|(prompt, answer, deadline)| Op::Submit { prompt, answer, deadline }),
        1 => (0usize..64).prop_map(Op::Cancel),
        8 => Just(Op::Step),
    ]
}

fn limits() -> impl Strategy<Value = SchedulerLimits> {
    (1usize..9, 0usize..6, 0usize..80, 1usize..6).prop_map(|(slots, queue, more, window)| SchedulerLimits {
        slots,
        queue,
        rows: slots + more,
        window,
    })
}

#[derive(Clone, Debug)]
struct Known {
    unread: usize,
    answer: usize,
    deadline: Option<Duration>,
    cancelled: bool,
    slot: Option<usize>,
    /// Steps since it got its slot.
    steps: usize,
}

/// Runs the operations against a plain account of what must hold; gives the work of every step.
fn check(limits: SchedulerLimits, ops: &[Op]) -> Vec<Vec<Work>> {
    let mut s = Scheduler::new(limits).unwrap();
    let mut known: BTreeMap<Ticket, Known> = BTreeMap::new();
    let mut line: VecDeque<Ticket> = VecDeque::new();
    // rows by which one prompt is ahead of another since both are read, by slots
    let mut ahead: BTreeMap<(Ticket, Ticket), isize> = BTreeMap::new();
    let (mut now, mut work, mut all) = (Duration::ZERO, Vec::new(), Vec::new());
    for op in ops {
        match *op {
            Op::Submit { prompt, answer, deadline } => {
                let deadline = deadline.map(|d| now + Duration::from_secs(d));
                match s.submit(deadline) {
                    Ok(t) => {
                        assert!(line.len() < limits.queue);
                        line.push_back(t);
                        known.insert(t, Known { unread: prompt, answer, deadline, cancelled: false, slot: None, steps: 0 });
                    }
                    Err(full) => assert_eq!((full, line.len()), (Full { waiting: limits.queue }, limits.queue)),
                }
            }
            Op::Cancel(i) if !known.is_empty() => {
                let t = *known.keys().nth(i % known.len()).unwrap();
                assert!(s.cancel(t));
                known.get_mut(&t).unwrap().cancelled = true;
            }
            Op::Cancel(_) => {}
            Op::Step => {
                while let Some(e) = s.ended(now) {
                    let k = known.remove(&e.ticket).unwrap();
                    assert_eq!(e.slot, k.slot);
                    let cause = if k.cancelled { Cause::Cancelled } else { Cause::Deadline };
                    assert!(e.cause == cause && (k.cancelled || k.deadline.unwrap() <= now));
                    line.retain(|t| *t != e.ticket);
                }
                assert!(known.values().all(|k| !k.cancelled && k.deadline.is_none_or(|d| d > now)), "all of them have ended");
                while let Some((t, slot)) = s.admit(|t, _| known[&t].unread) {
                    assert_eq!(line.pop_front(), Some(t), "first come, first served");
                    assert!(known.values().all(|k| k.slot != Some(slot)), "the slot was free");
                    known.get_mut(&t).unwrap().slot = Some(slot);
                }
                assert!(line.is_empty() || s.running() == limits.slots, "nobody waits beside a free slot");
                s.work(&mut work);
                all.push(work.clone());
                check_work(limits, &work, &s, &known);
                for a in &work {
                    for b in &work {
                        let (ta, tb) = (s.holder(a.slot).unwrap(), s.holder(b.slot).unwrap());
                        let wants = |w: &Work, t: &Ticket| known[t].unread > w.rows;
                        if ta < tb && wants(a, &ta) && wants(b, &tb) {
                            let d = ahead.entry((ta, tb)).or_default();
                            *d += a.rows as isize - b.rows as isize;
                            assert!(d.abs() <= 1, "{ta:?} is {d} rows ahead of {tb:?}");
                        }
                    }
                }
                for w in &work {
                    let t = s.holder(w.slot).unwrap();
                    let k = known.get_mut(&t).unwrap();
                    k.steps += 1;
                    if k.unread > 0 {
                        k.unread -= w.rows;
                    } else {
                        k.answer -= 1;
                    }
                    if k.unread == 0 && k.answer == 0 {
                        known.remove(&t);
                        s.finish(w.slot);
                    }
                }
                now += Duration::from_secs(1);
            }
        }
        assert_eq!((s.waiting(), s.running()), (line.len(), known.len() - line.len()));
    }
    all
}

/// One step's work against the requests it is for.
fn check_work(limits: SchedulerLimits, work: &[Work], s: &Scheduler, known: &BTreeMap<Ticket, Known>) {
    assert_eq!(work.len(), s.running(), "each request with a slot has a part");
    let of = |w: &Work| &known[&s.holder(w.slot).unwrap()];
    let rows: usize = work.iter().map(|w| w.rows).sum();
    assert!(rows <= limits.rows && work.iter().all(|w| w.rows > 0));
    assert!(work.windows(2).all(|w| w[0].slot < w[1].slot));
    let full = |w: &Work| w.rows == if of(w).unread == 0 { limits.window } else { of(w).unread };
    assert!(work.iter().all(|w| w.rows <= if of(w).unread == 0 { limits.window } else { of(w).unread }));
    assert!(rows == limits.rows || work.iter().all(full), "no row is left while someone wants it");
    let short = work.iter().any(|w| of(w).unread == 0 && !full(w));
    assert!(!short || work.iter().all(|w| of(w).unread == 0 || w.rows == 1), "decodes come before prompts");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn promises_hold(limits in limits(), ops in proptest::collection::vec(op(), 1..300)) {
        let work = check(limits, &ops);
        prop_assert_eq!(work, check(limits, &ops), "the same requests, the same steps");
    }

    /// However busy the others are, a prompt is read within as many steps as it has tokens.
    #[test]
    fn nobody_starves(slots in 2usize..9, window in 1usize..6, prompt in 1usize..60) {
        let limits = SchedulerLimits { slots, queue: 16, rows: slots, window };
        let mut s = Scheduler::new(limits).unwrap();
        let mut work = Vec::new();
        for _ in 0..slots {
            s.submit(None).unwrap();
        }
        let mut mine = None;
        while let Some((_, slot)) = s.admit(|_, slot| if slot == slots - 1 { prompt } else { 1 }) {
            mine = Some(slot);
        }
        for _ in 0..prompt {
            s.work(&mut work);
        }
        // now it decodes like all others: with two rows a slot each has two
        let mine = mine.unwrap();
        prop_assert_eq!(work.iter().find(|w| w.slot == mine).map(|w| w.rows), Some(1));
        let mut s2 = Scheduler::new(SchedulerLimits { rows: 2 * slots, window: 2, ..limits }).unwrap();
        for _ in 0..slots {
            s2.submit(None).unwrap();
        }
        while s2.admit(|_, _| 1).is_some() {}
        s2.work(&mut work);
        s2.work(&mut work);
        prop_assert!(work.iter().all(|w| w.rows == 2));
    }
}

#[test]
fn rows_are_shared_as_documented() {
    let limits = SchedulerLimits { slots: 4, queue: 8, rows: 20, window: 3 };
    let mut s = Scheduler::new(limits).unwrap();
    let mut work = Vec::new();
    let prompts = [1, 100, 100, 5];
    for _ in prompts {
        s.submit(None).unwrap();
    }
    while s.admit(|_, slot| prompts[slot]).is_some() {}
    let mut step = |s: &mut Scheduler| {
        s.work(&mut work);
        work.iter().map(|w| w.rows).collect::<Vec<_>>()
    };
    assert_eq!(step(&mut s), [1, 7, 7, 5]);
    // slots 0 and 3 decode now; 14 rows for two prompts
    assert_eq!(step(&mut s), [3, 7, 7, 3]);
    s.finish(0);
    assert_eq!(step(&mut s), [9, 8, 3], "17 rows for two prompts: the odd one to the first");
    assert_eq!(step(&mut s), [8, 9, 3], "and then to the second");
}

#[test]
fn a_request_that_is_refused_takes_no_slot() {
    let mut s = Scheduler::new(SchedulerLimits { slots: 1, queue: 2, rows: 4, window: 1 }).unwrap();
    let (a, b) = (s.submit(None).unwrap(), s.submit(Some(Duration::from_secs(3))).unwrap());
    assert_eq!(s.submit(None), Err(Full { waiting: 2 }));
    assert_eq!(s.admit(|_, _| 0), Some((a, 0)));
    assert_eq!(s.admit(|_, _| 9), Some((b, 0)));
    assert!(!s.cancel(a), "it is gone");
    assert_eq!(s.ended(Duration::from_secs(2)).map(|e| e.cause), None);
    let e = s.ended(Duration::from_secs(3)).unwrap();
    assert_eq!((e.ticket, e.slot, e.cause), (b, Some(0), Cause::Deadline));
    let bad = |slots, rows, window| Scheduler::new(SchedulerLimits { slots, queue: 0, rows, window }).err();
    assert_eq!(bad(4, 3, 1), Some(BadLimits { field: "rows", expected: 4, found: 3 }));
    assert_eq!(bad(0, 3, 1), Some(BadLimits { field: "slots", expected: 1, found: 0 }));
    assert_eq!(bad(1, 3, 0), Some(BadLimits { field: "window", expected: 1, found: 0 }));
}
