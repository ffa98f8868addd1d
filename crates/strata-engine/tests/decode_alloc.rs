//! Steady-state decode allocates nothing, with and without drafts, whatever the cache kind; nor do steps of several sequences,
//! some of which still read their prompts.

mod common;

use common::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use strata_engine::sampler::SamplingParams;
use strata_engine::{Batch, EngineOptions, Work};
use strata_model::WeightMode;
use strata_ops::qsa::kv::KvKind;

/// Counts every allocation of every thread.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system's allocator does the work; counting changes nothing about it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn decode_allocates_nothing() {
    one_sequence();
    several_sequences();
}

fn several_sequences() {
    let prompt = Fixture::load("prose1500").ids;
    for (spec, spec_auto) in [(0, false), (3, false), (3, true)] {
        let (kv, cpu) = (KvKind::Int8, cpu());
        let options = EngineOptions { kv, capacity: 2048, chunk: 64, spec, spec_auto, ..Default::default() };
        let model = model(&cpu, WeightMode::AsStored);
        let mut b = Batch::new(cpu, model, options, 4).expect("the batch fits");
        let mut events = Vec::with_capacity(1024);
        for slot in 0..4 {
            let len = if slot == 0 { 1400 } else { 20 + 10 * slot };
            b.begin(slot, &prompt[..len], &greedy()).expect("a prompt");
        }
        let work = [(0, 32), (1, 16), (2, 2), (3, 4)].map(|(slot, rows)| Work { slot, rows });
        let mut step = |n| (0..n).for_each(|_| b.step(&work, &|_, _| false, &mut events).expect("a step runs"));
        step(30);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        // slot 0 reads its prompt for half of the steps
        step(24);
        let found = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert_eq!(found, 0, "four sequences with {spec} drafts: {found} allocations in 24 steps");
        assert_eq!(b.unread(0), 0);
    }
}

fn one_sequence() {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    drop(std::hint::black_box(vec![1u8; 100]));
    assert!(ALLOCATIONS.load(Ordering::Relaxed) > before, "the counter counts");

    let prompt = Fixture::load("prose300").ids;
    let sampled =
        SamplingParams { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.02, repetition_penalty: 1.1, seed: 3, ..Default::default() };
    for kv in [KvKind::Int8, KvKind::F16, KvKind::Q4_0, KvKind::K8V4] {
        for (spec, spec_auto) in [(0, false), (3, false), (3, true)] {
            for params in [greedy(), sampled] {
                let mut e = engine(WeightMode::AsStored, EngineOptions { kv, capacity: 512, spec, spec_auto, ..Default::default() });
                let mut out = Vec::with_capacity(512);
                out.push(e.start(&prompt, &params, &mut |_, _| true).expect("the prompt runs"));
                // the first steps may still fill caches of the system's
                for _ in 0..4 {
                    e.step(&params, &|_| false, &mut out).expect("a step runs");
                }
                let before = ALLOCATIONS.load(Ordering::Relaxed);
                for _ in 0..24 {
                    e.step(&params, &|_| false, &mut out).expect("a step runs");
                }
                let found = ALLOCATIONS.load(Ordering::Relaxed) - before;
                assert_eq!(found, 0, "{} with {spec} drafts: {found} allocations in 24 steps", kv.name());
            }
        }
    }
}
