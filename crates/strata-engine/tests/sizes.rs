//! What the counting device says a model and an engine take is what they take.

mod common;

use common::{cpu, refmodel};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};
use strata_cpu::sizes::Sizer;
use strata_engine::{Engine, EngineOptions};
use strata_model::{Model, ModelOptions};
use strata_ops::qsa::kv::KvKind;

/// Counts live bytes.
struct Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);

// SAFETY: the system's allocator does the work; counting changes nothing about it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_add(size as i64 - layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn sizes_are_those_of_the_allocator() {
    let gguf = refmodel();
    for (kv, capacity, chunk, spec) in
        [(KvKind::Int8, 512, 512, 0), (KvKind::F16, 9000, 64, 0), (KvKind::Q4_0, 4096, 300, 3), (KvKind::K8V4, 20_000, 1, 2)]
    {
        let options = EngineOptions { kv, capacity, chunk, spec, ..EngineOptions::default() };
        let bound = ModelOptions { mtp: spec > 0, ..ModelOptions::default() };
        let cpu = cpu();
        let sizer = Sizer::new(cpu.pool().threads());
        let model = Model::bind(&sizer, &gguf, None, bound).expect("the reference model binds");
        let vectors = sizer.sizes();
        let engine = Engine::new(sizer, model, options).expect("an engine of sizes");
        let said = engine.backend().sizes().since(vectors).total() + engine.host_bytes();
        drop(engine);

        let model = Model::bind(&cpu, &gguf, None, bound).expect("the reference model binds");
        let before = LIVE.load(Ordering::Relaxed);
        let engine = Engine::new(cpu, model, options).expect("the engine fits");
        let took = (LIVE.load(Ordering::Relaxed) - before) as f64;
        drop(engine);
        let error = (said as f64 - took).abs() / took;
        assert!(error < 0.005, "{} of {capacity}, chunk {chunk}, spec {spec}: said {said}, took {took}", kv.name());
    }
}
