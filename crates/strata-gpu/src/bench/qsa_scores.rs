//! `qsa_rows_bench`, and `qsa_scores_bench`, the score half of `qsa_select_bench`.

use super::{Limits, Timer, read_time, rotations};
use crate::device::{Buffer, Device};
use crate::error::{GpuError, Result};
use crate::parity::differing;
use crate::parity::qsa_matrix::{gate, select_inputs};
use crate::parity::qsa_scores::records;
use crate::selection::score_table::ScoreTable;
use crate::selection::scores::{Scorer, Scoring, score_with};
use crate::selection::topk::{Selecting, select};
use crate::selection::topk_table::TopkTable;
use strata_ops::qsa::{BLOCK, INDEX_DIM};

/// FMA slots of a score: four heads of 128 values.
const FMAS: f64 = 512.0;

/// Contexts and capacities of the published decode shapes.
const DECODE: [(usize, usize); 6] =
    [(4_096, 32_768), (32_768, 32_768), (4_096, 262_144), (32_768, 262_144), (131_072, 262_144), (262_144, 262_144)];

/// The published prompt shapes: context, queries, capacity.
const PROMPT: [(usize, usize, usize); 8] = [
    (2_048, 256, 262_144),
    (4_096, 256, 262_144),
    (16_384, 256, 262_144),
    (32_768, 256, 262_144),
    (131_072, 256, 262_144),
    (40_000, 2_048, 40_000),
    (140_000, 1_024, 140_000),
    (200_000, 1_024, 200_000),
];

/// Keys, queries and room for scores of one shape.
pub(crate) struct Data {
    pooled: Vec<Buffer<f32>>,
    dead: Buffer<f32>,
    q: Buffer<f32>,
    records: Buffer<i32>,
    scores: Buffer<f32>,
    max_blocks: usize,
    queries: usize,
    active_blocks: Option<usize>,
}

impl Data {
    /// `sets` copies of the keys of a context, to rotate among.
    pub(crate) fn new(device: &Device, ctx: usize, capacity: usize, queries: usize, sets: usize, prompt: bool) -> Result<Data> {
        if queries == 0 || queries > ctx {
            let expected = format!("1 to {ctx} queries of {ctx} cells");
            return Err(GpuError::Launch { kernel: "a score benchmark".into(), expected, found: queries.to_string() });
        }
        let inputs = select_inputs(ctx, queries, 5);
        let max_blocks = capacity / BLOCK + 2;
        Ok(Data {
            pooled: (0..sets).map(|_| device.upload(&inputs.pooled)).collect::<Result<_>>()?,
            dead: device.upload(&inputs.dead)?,
            q: device.upload(&inputs.q)?,
            records: device.upload(&records((0..queries).map(|i| ctx - queries + i + 1)))?,
            scores: device.alloc(queries * max_blocks)?,
            max_blocks,
            queries,
            active_blocks: prompt.then_some(ctx / BLOCK + 1),
        })
    }

    pub(crate) fn run(&self, device: &Device, scorer: Scorer, i: usize) -> Result<()> {
        let s = Scoring {
            pooled: &self.pooled[i % self.pooled.len()],
            dead: &self.dead,
            q: &self.q,
            records: &self.records,
            scores: &self.scores,
            max_blocks: self.max_blocks,
            queries: self.queries,
            active_blocks: self.active_blocks,
        };
        score_with(device, scorer, &s)
    }

    /// The ids that the scores of one run select, `cap` for each query.
    pub(crate) fn selected(&mut self, device: &Device, scorer: Scorer, cap: usize) -> Result<Vec<i32>> {
        self.scores.fill(0x5a)?;
        self.run(device, scorer, 0)?;
        let mut ids = device.alloc(self.queries * cap)?;
        ids.fill(0x5a)?;
        let s = Selecting {
            scores: &self.scores,
            records: &self.records,
            ids: &ids,
            max_blocks: self.max_blocks,
            cap,
            queries: self.queries,
            active_blocks: self.active_blocks,
        };
        select(device, &TopkTable::for_arch(&device.info().arch), &s)?;
        ids.read()
    }

    /// The scores of one run.
    fn scores(&mut self, device: &Device, scorer: Scorer) -> Result<Vec<f32>> {
        self.scores.fill(0x5a)?;
        self.run(device, scorer, 0)?;
        self.scores.read()
    }
}

/// An error if kernels that are timed as the same do not do the same.
fn agreed(bench: &str, bad: u64) -> Result<()> {
    match bad {
        0 => Ok(()),
        n => Err(GpuError::Kernel { kernel: bench.into(), reason: format!("{n} values differ or miss the gate") }),
    }
}

/// Decode scores of 1, 2, 3, 4 and 8 queries: the multi and rows kernels, bit-equal, against a kernel that only reads the keys. A row's
/// share is the read's time by the scorer's. Numbers: context and capacity, else every published pair.
pub(super) fn qsa_rows_bench(device: &Device, numbers: &[usize], line: &mut dyn FnMut(String)) -> Result<()> {
    let shapes: Vec<(usize, usize)> = match *numbers {
        [] => DECODE.into_iter().filter(|(ctx, _)| !device.is_shim() || *ctx <= 4_096).collect(),
        [ctx] => vec![(ctx, ctx)],
        [ctx, capacity, ..] => vec![(ctx, capacity.max(ctx))],
    };
    let timer = Timer::default();
    let mut bad = 0;
    for (ctx, capacity) in shapes {
        let bytes = ctx / BLOCK * INDEX_DIM * 4;
        let read = read_time(device, bytes, timer)?;
        line(format!("ctx {ctx} capacity {capacity}: {bytes} bytes of keys, read alone {read}"));
        for queries in [1, 2, 3, 4, 8] {
            let mut data = Data::new(device, ctx, capacity, queries, rotations(device, bytes), false)?;
            let equal = differing(&data.scores(device, Scorer::Multi)?, &data.scores(device, Scorer::Rows)?);
            bad += equal;
            for scorer in [Scorer::Multi, Scorer::Rows] {
                let t = timer.time(device, &mut |i| data.run(device, scorer, i))?;
                let (share, rate) = (100.0 * read.median / t.median, bytes as f64 / t.median * 1e-6);
                line(format!("  T {queries} {scorer:?}: {t}  {rate:.2} TB/s, {share:.0}% of the read; {equal} differing"));
            }
        }
    }
    agreed("qsa_rows_bench", bad)
}

/// Prompt scores by every kernel that the device has: exact ones compared with each other, matrix ones judged by FP64. A row's share is
/// of the card's FMA rate, 512 a score. Numbers: context, queries, repetitions, capacity; without any, the published shapes.
pub(super) fn qsa_scores_bench(device: &Device, numbers: &[usize], line: &mut dyn FnMut(String)) -> Result<()> {
    let limits = Limits::measure(device)?;
    let at = |i: usize, default: usize| numbers.get(i).copied().unwrap_or(default);
    let ctx = at(0, 131_072);
    let shapes = if numbers.is_empty() { PROMPT.to_vec() } else { vec![(ctx, at(1, 256), at(3, ctx))] };
    let mut bad = 0;
    for shape in shapes {
        bad += prompt_scores(device, &limits, shape, at(2, 5), line)?;
    }
    agreed("qsa_scores_bench", bad)
}

/// One shape; returns the values that differ or miss the gate.
fn prompt_scores(
    device: &Device,
    limits: &Limits,
    (ctx, queries, capacity): (usize, usize, usize),
    reps: usize,
    line: &mut dyn FnMut(String),
) -> Result<u64> {
    let timer = Timer { calls: reps.max(1), samples: 9 };
    let mut data = Data::new(device, ctx, capacity.max(ctx), queries, 1, true)?;
    let n_kv: Vec<usize> = (0..queries).map(|i| ctx - queries + i + 1).collect();
    let scores: usize = n_kv.iter().map(|n| n / BLOCK + 1).sum();
    line(format!("ctx {ctx} nq {queries} capacity {}: {scores} scores, {:.2} G FMA", capacity.max(ctx), scores as f64 * FMAS * 1e-9));
    let exact = data.scores(device, Scorer::Warp)?;
    let thread = ScoreTable::for_arch(&device.info().arch).thread(ctx / BLOCK + 1);
    let mut bad = 0;
    for scorer in [Scorer::Warp, thread, Scorer::Bf16, Scorer::Tf32].into_iter().filter(|s| s.takes(device, queries)) {
        let got = data.scores(device, scorer)?;
        let verdict = if scorer.exact() {
            let n = differing(&got, &exact);
            bad += n;
            format!("{n} differing")
        } else {
            let g = gate(&select_inputs(ctx, queries, 5), &n_kv, data.max_blocks, &exact, &got);
            bad += g.missed;
            format!("error {:.2e} (exact {:.2e}), {} of {} miss the gate", g.matrix, g.exact, g.missed, g.compared)
        };
        let t = timer.time(device, &mut |i| data.run(device, scorer, i))?;
        let share = 100.0 * scores as f64 * FMAS / (t.median * 1e-6) / limits.fma;
        line(format!("  {scorer:?}: {t}  {share:.0}% of the FMA rate; {verdict}"));
    }
    Ok(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benches_run_and_kernels_agree() {
        let Some(device) = crate::testing::tools(Device::open("shim-cuda")) else { return };
        let mut lines = 0;
        qsa_scores_bench(&device, &[2_051, 3, 1, 2_052], &mut |_| lines += 1).unwrap();
        qsa_rows_bench(&device, &[515, 600], &mut |_| lines += 1).unwrap();
        for shape in [[3, 8, 1, 8], [0, 1, 1, 1], [3, 0, 1, 8]] {
            assert!(matches!(qsa_scores_bench(&device, &shape, &mut |_| ()), Err(GpuError::Launch { .. })), "{shape:?}");
        }
        assert_eq!(lines, 5 + 11);
    }
}
