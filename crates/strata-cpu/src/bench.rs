//! Speeds of the products, and the limits of the machine they are measured against.
//!
//! Weights are random and lie in more memory than caches hold; every call takes other ones.

use crate::matmul::{ExpertGroup, ExpertStack, Matrix, matmul_experts, prepare};
use crate::pool::Pool;
use crate::simd::Simd;
use bytes::Bytes;
use std::hint::black_box;
use std::time::Instant;
use strata_ops::matmul::{Acts, Forms};
use strata_quant::DType;
use strata_quant::testing::{SplitMix64, random_blocks};

/// Bytes that no cache holds.
const LARGE: usize = 192 << 20;

/// How long a call took, of some rounds, and what it did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Seconds a call: the median of the rounds, and the fastest and slowest of them.
    pub seconds: f64,
    pub fastest: f64,
    pub slowest: f64,
    /// Bytes of weights (or of memory, or table look-ups) a call reads.
    pub bytes: f64,
    /// Multiply-adds (or table look-ups) of a call.
    pub operations: f64,
}

impl Timing {
    /// Bytes a second.
    pub fn bandwidth(&self) -> f64 {
        self.bytes / self.seconds
    }

    /// Multiply-adds or look-ups a second.
    pub fn rate(&self) -> f64 {
        self.operations / self.seconds
    }

    /// Runs `rounds` rounds of `calls` calls each.
    fn of(rounds: usize, calls: usize, bytes: f64, operations: f64, call: impl FnMut()) -> Timing {
        Timing::beside(&[], rounds, calls, bytes, operations, call).0
    }

    /// [`Timing::of`], and for each limit what it lets the machine do in the time of a call. It is measured before and after each
    /// round: a machine that is shared may be twice as fast a second later, but hardly between.
    fn beside(
        limits: &[&dyn Fn() -> f64],
        rounds: usize,
        calls: usize,
        bytes: f64,
        operations: f64,
        mut call: impl FnMut(),
    ) -> (Timing, Vec<f64>) {
        call();
        let rates = || limits.iter().map(|rate| rate()).collect::<Vec<f64>>();
        let mut seconds = Vec::new();
        let mut could = vec![Vec::new(); limits.len()];
        let mut before = rates();
        for _ in 0..rounds.max(1) {
            let start = Instant::now();
            (0..calls).for_each(|_| call());
            let t = start.elapsed().as_secs_f64() / calls as f64;
            seconds.push(t);
            let after = rates();
            for (could, (before, after)) in could.iter_mut().zip(before.iter().zip(&after)) {
                could.push(t * (before + after) / 2.0);
            }
            before = after;
        }
        let sorted = |x: &mut Vec<f64>| x.sort_by(f64::total_cmp);
        sorted(&mut seconds);
        could.iter_mut().for_each(sorted);
        let timing =
            Timing { seconds: seconds[seconds.len() / 2], fastest: seconds[0], slowest: seconds[seconds.len() - 1], bytes, operations };
        (timing, could.into_iter().map(|x| x[x.len() / 2]).collect())
    }
}

/// What a product is measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    pub dtype: DType,
    /// Rows and columns of an expert.
    pub rows: usize,
    pub cols: usize,
    /// Experts of a call.
    pub experts: usize,
    /// Activation rows of each.
    pub columns: usize,
    pub simd: Simd,
}

/// A grouped product of experts, as a decode (one column) or a prompt (many) has it; and for each limit, given as a measurement of
/// its rate, what it lets the machine do in the time of a call.
///
/// # Panics
/// If rows are not whole blocks or the CPU does not have the level.
pub fn mat_vec(pool: &Pool, p: Product, rounds: usize, limits: &[&dyn Fn() -> f64]) -> (Timing, Vec<f64>) {
    let row_bytes = p.dtype.row_bytes(p.cols).expect("rows of whole blocks");
    let expert_bytes = row_bytes * p.rows;
    let all = (LARGE / expert_bytes).max(p.experts).next_multiple_of(p.experts);
    // one random expert over and over: what is in it does not matter, where it is does
    let one = random_blocks(p.dtype, p.rows * p.cols / p.dtype.block_len(), &mut SplitMix64::new(1));
    let w = Matrix::new(p.dtype, p.rows * all, p.cols, Bytes::from(one.repeat(all)), p.simd).expect("sizes agree");
    let n = p.experts * p.columns;
    let mut rng = SplitMix64::new(2);
    let x: Vec<f32> = (0..n * p.cols).map(|_| rng.next_f32()).collect();
    let mut acts = Acts::new(n, p.cols, Forms::of([p.dtype]));
    prepare(pool, p.simd, &x, n, &mut acts);
    let places: Vec<u32> = (0..n as u32).collect();
    let mut out = vec![0.0; n * p.rows];
    let mut groups: Vec<ExpertGroup> = Vec::with_capacity(p.experts);
    let mut first = 0;
    let calls = all / p.experts;
    let work = (n * p.rows * p.cols) as f64;
    // enough calls a round to be timed, at most once through the memory
    let calls = calls.min((2e9 / work).ceil() as usize).max(1);
    Timing::beside(limits, rounds, calls, (p.experts * expert_bytes) as f64, work, || {
        groups.clear();
        groups.extend((0..p.experts).map(|e| ExpertGroup {
            expert: ((first + e) % all) as u32,
            start: (e * p.columns) as u32,
            end: ((e + 1) * p.columns) as u32,
        }));
        first += p.experts;
        let mut stack = [ExpertStack { w: &w, rows: p.rows, out: black_box(&mut out) }];
        matmul_experts(pool, &mut stack, &groups, &places, &places, &acts);
    })
}

/// Memory that no cache holds, to be read: the limit of a product that reads each weight once.
pub struct Memory(Vec<u64>);

impl Memory {
    #[allow(clippy::new_without_default, reason = "it takes memory")]
    pub fn new() -> Memory {
        Memory(vec![1u64; LARGE / 8])
    }

    /// Reads all of it on all threads.
    pub fn read(&self, pool: &Pool, rounds: usize) -> Timing {
        let parts = pool.threads() * 8;
        let words = &self.0;
        Timing::of(rounds, 1, LARGE as f64, words.len() as f64, || {
            pool.run(parts, &|t, _| {
                let part = &words[words.len() * t / parts..words.len() * (t + 1) / parts];
                let mut sums = [0u64; 32];
                for line in part.as_chunks::<32>().0 {
                    for (sum, v) in sums.iter_mut().zip(line) {
                        *sum ^= v;
                    }
                }
                black_box(sums);
            });
        })
    }
}

/// Groups of codes looked up in a table on all threads of `pool` together, as every kernel of a codebook format has to: random
/// indices from memory in the first cache, entries to vectors, and nothing else. `wide` looks up entries of 8 codes, else of 4.
/// None for a level without a vector form.
#[cfg(target_arch = "x86_64")]
pub fn look_ups(pool: &Pool, simd: Simd, wide: bool, rounds: usize) -> Option<Timing> {
    const N: usize = 4096;
    const CALLS: usize = 500;
    let mut rng = SplitMix64::new(3);
    let at: Vec<u16> = (0..N).map(|_| (rng.next_u64() % 512) as u16).collect();
    let look_up = crate::matmul::look_up(wide, simd)?;
    let threads = pool.threads();
    let n = (threads * CALLS * N) as f64;
    Some(Timing::of(rounds, 1, n * if wide { 8.0 } else { 4.0 }, n, || {
        pool.run(threads, &|_, _| {
            for _ in 0..CALLS {
                // SAFETY: the CPU has the level, and the indices are below 512.
                black_box(unsafe { look_up(black_box(&at[..])) });
            }
        });
    }))
}

/// See above: no vector form here.
#[cfg(not(target_arch = "x86_64"))]
pub fn look_ups(_pool: &Pool, _simd: Simd, _wide: bool, _rounds: usize) -> Option<Timing> {
    None
}
