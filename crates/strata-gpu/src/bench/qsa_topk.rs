//! `qsa_topk_bench`, the top-k half of `qsa_select_bench`: decode and prompts, every kernel that takes a shape.

use super::{Timer, read_time, rotations};
use crate::device::{Buffer, Device};
use crate::error::{GpuError, Result};
use crate::parity::differing;
use crate::selection::topk::{Selecting, TopK, select_with};
use crate::selection::topk_table::TopkTable;
use strata_cpu::parity::rng::Rng;
use strata_ops::qsa::BLOCK;

/// Widest selection.
pub(super) const CAP: usize = 2_051;

/// Contexts and capacities of the published decode shapes.
const DECODE: [(usize, usize); 6] =
    [(4_096, 32_768), (32_768, 32_768), (4_096, 262_144), (32_768, 262_144), (131_072, 262_144), (262_144, 262_144)];

/// Contexts of 256 prompt queries under a capacity of 262,144.
const PROMPT: [usize; 6] = [2_048, 4_096, 16_384, 32_768, 131_072, 262_144];

struct Data {
    scores: Vec<Buffer<f32>>,
    records: Buffer<i32>,
    ids: Buffer<i32>,
    max_blocks: usize,
    queries: usize,
    active_blocks: Option<usize>,
    /// Bytes of scores read and of ids written.
    bytes: usize,
}

impl Data {
    fn new(device: &Device, ctx: usize, capacity: usize, queries: usize, prompt: bool) -> Result<Data> {
        let max_blocks = capacity / BLOCK + 2;
        let cells = |q: usize| ctx.saturating_sub(queries - 1 - q).max(1);
        let mut rng = Rng::new(17);
        let mut scores = vec![0.0f32; queries * max_blocks];
        for (q, row) in scores.chunks_exact_mut(max_blocks).enumerate() {
            // what an indexer gives: a sum of rectified products
            row[..cells(q) / BLOCK + 1].fill_with(|| (0..4).map(|_| rng.normal().max(0.0)).sum());
        }
        let record = |q: usize| {
            let n = cells(q);
            [n - 1, n, n / BLOCK, n.min(CAP)].map(|v| v as i32)
        };
        let bytes = (0..queries).map(|q| (cells(q) / BLOCK + 1 + cells(q).min(CAP)) * 4).sum();
        let sets = rotations(device, bytes).min(256);
        Ok(Data {
            scores: (0..sets).map(|_| device.upload(&scores)).collect::<Result<_>>()?,
            records: device.upload(&(0..queries).flat_map(record).collect::<Vec<_>>())?,
            ids: device.alloc(queries * CAP)?,
            max_blocks,
            queries,
            active_blocks: prompt.then_some(ctx / BLOCK + 1),
            bytes,
        })
    }

    fn selecting(&self, i: usize, active_blocks: Option<usize>) -> Selecting<'_> {
        Selecting {
            scores: &self.scores[i % self.scores.len()],
            records: &self.records,
            ids: &self.ids,
            max_blocks: self.max_blocks,
            cap: CAP,
            queries: self.queries,
            active_blocks,
        }
    }

    /// Ids of one run.
    fn ids(&mut self, device: &Device, table: &TopkTable, k: TopK, active_blocks: Option<usize>) -> Result<Vec<i32>> {
        self.ids.fill(0x5a)?;
        select_with(device, table, k, &self.selecting(0, active_blocks))?;
        self.ids.read()
    }
}

/// Decode top-k of 1 to 4 queries and prompts of 256: every kernel that takes the shape, ids equal, the dispatch's choice marked.
/// A row's share is of the time of a kernel that only reads as many bytes. Numbers: context, queries, repetitions, capacity;
/// without any, the published shapes.
pub(super) fn qsa_topk_bench(device: &Device, numbers: &[usize], line: &mut dyn FnMut(String)) -> Result<()> {
    let at = |i: usize, default: usize| numbers.get(i).copied().unwrap_or(default);
    let timer = Timer { calls: at(2, Timer::default().calls).max(1), ..Timer::default() };
    let mut shapes: Vec<(usize, usize, usize, bool)> = Vec::new();
    if numbers.is_empty() {
        shapes.extend(DECODE.iter().flat_map(|(ctx, capacity)| (1..=4).map(|n| (*ctx, *capacity, n, false))));
        shapes.extend(PROMPT.map(|ctx| (ctx, 262_144, 256, true)));
    } else {
        let (ctx, queries) = (at(0, 131_072).max(1), at(1, 256).max(1));
        shapes.push((ctx, at(3, ctx).max(ctx), queries, queries > 16));
    }
    let mut bad = 0;
    for shape in shapes.into_iter().filter(|s| !numbers.is_empty() || !device.is_shim() || s.0 * s.2 <= 4_096) {
        bad += one_shape(device, shape, timer, line)?;
    }
    match bad {
        0 => Ok(()),
        n => Err(GpuError::Kernel { kernel: "qsa_topk_bench".into(), reason: format!("{n} ids differ") }),
    }
}

/// One shape; returns the ids that differ.
fn one_shape(
    device: &Device,
    (ctx, capacity, queries, prompt): (usize, usize, usize, bool),
    timer: Timer,
    line: &mut dyn FnMut(String),
) -> Result<u64> {
    let mut data = Data::new(device, ctx, capacity, queries, prompt)?;
    let table = TopkTable::for_arch(&device.info().arch);
    let chosen = table.choose(device, queries, data.max_blocks, data.active_blocks);
    let read = read_time(device, data.bytes, timer)?;
    let kind = if prompt { "prompt" } else { "decode" };
    line(format!("{kind} ctx {ctx} capacity {capacity} nq {queries}: {} bytes, read alone {read}", data.bytes));
    // the true number of blocks lets every kernel that can take them run, whatever the capacity
    let blocks = ctx / BLOCK + 1;
    let want = data.ids(device, &table, TopK::Ref, Some(blocks))?;
    let solo = TopkTable { cluster_solo: usize::MAX, ..table };
    let spread = TopkTable { cluster_solo: 0, ..table };
    let mut runs: Vec<(TopK, &str, TopkTable)> = Vec::new();
    for k in TopK::ALL.into_iter().filter(|k| device.has(k.kernel()) && k.reach() >= blocks) {
        if !k.is_cluster() {
            runs.push((k, "", table));
        } else if queries <= table.cluster_queries {
            runs.push((k, " spread", spread));
            if blocks <= k.held() * 1024 {
                runs.push((k, " solo", solo));
            }
        }
    }
    let mut bad = 0;
    for (k, how, table) in runs {
        let n = differing(&data.ids(device, &table, k, Some(blocks))?, &want);
        bad += n;
        let t = timer.time(device, &mut |i| select_with(device, &table, k, &data.selecting(i, Some(blocks))))?;
        let mark = if k == chosen { "*" } else { " " };
        let name = format!("{k:?}{how}");
        line(format!(" {mark}{name:<17} {t}  {:.0}% of the read; {n} differing", 100.0 * read.median / t.median));
    }
    Ok(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bench_runs_and_kernels_agree() {
        let Some(device) = crate::testing::tools(Device::open("shim-gfx12")) else { return };
        let mut lines = 0;
        qsa_topk_bench(&device, &[2_100, 1, 1, 2_600], &mut |_| lines += 1).unwrap();
        assert_eq!(lines, 8);
    }
}
