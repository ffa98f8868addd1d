//! Sampling allocates nothing once the sampler and the history exist.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use strata_engine::sampler::{Draw, History, Origin, Sampler, SamplingParams, TokenLogprob};

thread_local! {
    /// Allocations of this thread; a constant initialiser, so that reading it allocates nothing.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system allocator unchanged; counting touches no memory it manages.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise about `layout` is the one System needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: `p` came from System with this layout.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(f: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    f();
    COUNT.get() - before
}

#[test]
fn sampling_allocates_nothing() {
    const VOCAB: usize = 20_000;
    let flat = vec![0.0f32; VOCAB];
    let spread: Vec<f32> = (0..VOCAB).map(|i| (i * 7919 % VOCAB) as f32 * 0.002).collect();
    let mask = vec![0x5555_5555u32; VOCAB.div_ceil(32)];
    let mut top = [TokenLogprob::default(); 20];
    let base = SamplingParams { repetition_penalty: 1.1, frequency_penalty: 0.2, logprobs: Some(20), ..Default::default() };
    let all = [
        SamplingParams { temperature: 0.0, ..base },
        base,
        SamplingParams { top_k: 40, top_p: 0.95, min_p: 0.05, temperature: 0.7, ..base },
        SamplingParams { top_p: 0.9, ..base },
        SamplingParams { top_k: 15_000, ..base },
        SamplingParams { penalty_last_n: Some(64), ..base },
    ];
    for p in all {
        let mut sampler = Sampler::new(VOCAB as u32);
        let mut history = History::new(VOCAB, 600, p.penalty_last_n);
        let n = allocations(|| {
            for i in 0..150u64 {
                for (row, allowed) in [(&flat, None), (&spread, Some(&mask[..]))] {
                    let s = sampler
                        .sample(row, &p, Draw { position: i, history: Some(&history), allowed, ..Default::default() }, &mut top)
                        .unwrap();
                    history.push(s.token, Origin::Generated).unwrap();
                    history.push((i * 131) as u32 % VOCAB as u32, Origin::Generated).unwrap();
                }
                history.pop();
            }
            history.reset(p.penalty_last_n);
        });
        assert_eq!(n, 0, "{p:?}");
    }
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![1u8; 100]))), 1);
    let construction = allocations(|| {
        let mut sampler = Sampler::new(4);
        sampler.sample(&[0.0; 4], &SamplingParams::default(), Draw::default(), &mut []).unwrap();
    });
    assert!(construction > 0);
}
