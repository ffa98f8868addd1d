//! Timings on a device: medians over graph replays, with the card's own limits measured the same way.

pub(crate) mod attn_decode;
mod gemm;
mod limits;
mod mmvq;
mod prompt_attn;
pub(crate) mod qsa_scores;
mod qsa_select;
mod qsa_topk;

pub use limits::{Limits, read_time};
pub use mmvq::tune_variants;

use crate::device::Device;
use crate::driver::Handle;
use crate::error::Result;
use std::fmt;

/// A benchmark of one device. `numbers` are the positional arguments of its published form (context, queries, repetitions ...), those
/// left out take their defaults. Each line printed is a row of its table.
pub type BenchFn = fn(device: &Device, numbers: &[usize], line: &mut dyn FnMut(String)) -> Result<()>;

/// A benchmark and the name the field knows it by.
pub struct Bench {
    pub name: &'static str,
    pub about: &'static str,
    /// What its numbers mean.
    pub numbers: &'static str,
    pub run: BenchFn,
}

/// Every benchmark.
pub static BENCHES: &[Bench] = &[
    Bench { name: "limits", about: "bandwidth and arithmetic peaks of this card", numbers: "", run: limits::limits_bench },
    Bench {
        name: "qsa_rows_bench",
        about: "block scores of decode, 1 to 8 queries: multi against rows",
        numbers: "context capacity",
        run: qsa_scores::qsa_rows_bench,
    },
    Bench {
        name: "qsa_scores_bench",
        about: "block scores of prompts: every scorer, errors of those on matrix units",
        numbers: "context queries repetitions capacity",
        run: qsa_scores::qsa_scores_bench,
    },
    Bench {
        name: "qsa_select_bench",
        about: "scorers and top-k of one shape, and how many selections the scorers on matrix units change",
        numbers: "context queries repetitions capacity",
        run: qsa_select::qsa_select_bench,
    },
    Bench {
        name: "qsa_topk_bench",
        about: "block top-k of decode and prompts: every kernel that takes the shape",
        numbers: "context queries repetitions capacity",
        run: qsa_topk::qsa_topk_bench,
    },
    Bench {
        name: "attn_decode",
        about: "decode attention: chunk kernels and merge of four KV formats",
        numbers: "n_q width",
        run: attn_decode::attn_decode_bench,
    },
    Bench {
        name: "prompt_attn",
        about: "prompt attention of four KV formats, and the form of half pairs",
        numbers: "context queries samples",
        run: prompt_attn::prompt_attn_bench,
    },
    Bench {
        name: "b6_mmvq_bench",
        about: "mat-vec at the model's shapes, 1 to 8 columns, and experts",
        numbers: "[reps] [rows]",
        run: mmvq::mmvq_bench,
    },
    Bench {
        name: "gemm",
        about: "products with the tokens of a prompt, as shares of the int8 peak",
        numbers: "[tokens ...]",
        run: gemm::gemm_bench,
    },
];

/// Time of one launch: median and spread over samples, microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub median: f64,
    /// 10th and 90th percentiles.
    pub low: f64,
    pub high: f64,
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9.2} us [{:.2}, {:.2}]", self.median, self.low, self.high)
    }
}

/// How to time.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    /// Calls in one graph; a sample is a replay divided by it.
    pub calls: usize,
    pub samples: usize,
}

impl Default for Timer {
    fn default() -> Self {
        Timer { calls: 20, samples: 21 }
    }
}

impl Timer {
    /// Times `body(i)`, which launches what is to be timed on buffer set `i` (call number; take it modulo the sets). It must only
    /// launch: no allocation, no copy to the host, no wait. It runs once for each call before it is captured, to load modules.
    ///
    /// # Errors
    /// What `body` or the driver reports.
    pub fn time(self, device: &Device, body: &mut dyn FnMut(usize) -> Result<()>) -> Result<Timing> {
        let (driver, stream) = device.raw();
        let calls = if device.is_shim() { 1 } else { self.calls.max(1) };
        for i in 0..calls {
            body(i)?;
        }
        driver.sync(stream)?;
        driver.begin_capture(stream)?;
        let captured = (0..calls).try_for_each(&mut *body);
        let graph = driver.end_capture(stream);
        captured?;
        let graph = graph?;
        let events = [driver.event()?, driver.event()?];
        let samples = self.sample(device, graph, events, calls, body);
        events.into_iter().for_each(|e| driver.destroy_event(e));
        if let Some(g) = graph {
            driver.destroy_graph(g);
        }
        let mut times = samples?;
        times.sort_by(f64::total_cmp);
        let at = |q: f64| times[((times.len() - 1) as f64 * q).round() as usize];
        Ok(Timing { median: at(0.5), low: at(0.1), high: at(0.9) })
    }

    fn sample(
        self,
        device: &Device,
        graph: Option<Handle>,
        events: [Handle; 2],
        calls: usize,
        body: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Vec<f64>> {
        let (driver, stream) = device.raw();
        let mut run = || match graph {
            Some(g) => driver.replay(g, stream),
            None => (0..calls).try_for_each(&mut *body),
        };
        if graph.is_some() {
            (0..3).try_for_each(|_| run())?;
        }
        let samples = if device.is_shim() { 1 } else { self.samples.max(1) };
        (0..samples)
            .map(|_| {
                driver.record(events[0], stream)?;
                run()?;
                driver.record(events[1], stream)?;
                Ok(f64::from(driver.elapsed(events[0], events[1])?) * 1e3 / calls as f64)
            })
            .collect()
    }
}

/// Sets of buffers of `bytes` each to rotate among, so that no call finds its data in the L2: more than four times its size.
pub fn rotations(device: &Device, bytes: usize) -> usize {
    if device.is_shim() { 1 } else { (4 * device.info().l2_bytes).div_ceil(bytes.max(1)) + 1 }
}
