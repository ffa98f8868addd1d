//! What is measured: two kernels at the sizes around a threshold.

use crate::attention::{
    AttentionTable, DecodeScratch, PageTable, Selection, attend_prompt, chunk_kernels, launch_chunks, launch_merge, prompt_kernel,
};
use crate::bench::attn_decode::{Data as Attention, HEADS};
use crate::bench::qsa_scores::Data as Scores;
use crate::bench::{Timer, rotations, tune_variants};
use crate::defaults::{Dispatch, Tables};
use crate::device::{Buffer, Device};
use crate::error::Result;
use crate::selection::score_table::REACHES;
use crate::selection::scores::{MULTI_QUERIES, Scorer};
use crate::selection::topk::{Selecting, TopK, select_with};
use crate::selection::topk_table::TopkTable;
use strata_cpu::parity::rng::Rng;
use strata_ops::qsa::kv::KvKind;
use strata_ops::qsa::{BLOCK, HEAD_DIM, INDEX_DIM};
use strata_quant::DType;

/// A change must win by this much.
const MARGIN: f64 = 0.98;
/// Widest selection.
const WIDTH: usize = 2_051;
const TIMER: Timer = Timer { calls: 4, samples: 9 };

/// Sizes to measure at.
struct Plan {
    /// Cells of the sequence of decode.
    context: usize,
    /// Queries of a prompt.
    queries: usize,
    /// Active blocks around the thresholds of prompts, ascending.
    actives: &'static [usize],
    /// Representatives of the reaches of the thread kernel, and blocks a workgroup to try.
    reaches: &'static [usize],
    per_group: &'static [usize],
    /// Blocks of a row of decode, and numbers of its queries.
    blocks: usize,
    decode_queries: &'static [usize],
    kinds: &'static [KvKind],
    width: usize,
    prompt_queries: &'static [usize],
    /// Format, n_in, n_out.
    matrices: &'static [(DType, usize, usize)],
}

const CARD: Plan = Plan {
    context: 131_072,
    queries: 256,
    actives: &[128, 256, 512, 1_024, 2_048, 3_072, 4_096, 7_168, 9_216],
    reaches: &[2_048, 8_192, 32_768, 65_536],
    per_group: &[64, 128, 256, 512],
    blocks: 65_538,
    decode_queries: &[1, 4, 16, 32, 64],
    kinds: &[KvKind::Int8, KvKind::F16, KvKind::Q4_0, KvKind::K8V4],
    width: WIDTH,
    prompt_queries: &[8, 16, 32, 64, 128],
    matrices: &[
        (DType::Q6_K, 2_560, 10_240),
        (DType::Q4_K, 2_560, 10_240),
        (DType::Q5_K, 2_560, 10_240),
        (DType::IQ4_XS, 2_560, 10_240),
        (DType::Q6_K, 2_560, 6_144),
        (DType::IQ4_XS, 2_560, 6_144),
        (DType::Q8_0, 2_560, 6_144),
        (DType::Q6_K, 6_144, 2_560),
        (DType::IQ4_XS, 6_144, 2_560),
        (DType::Q4_K, 6_144, 2_560),
        (DType::IQ4_XS, 2_560, 12_288),
        (DType::Q6_K, 2_560, 12_288),
        (DType::IQ3_S, 2_560, 640),
        (DType::Q4_K, 2_560, 640),
        (DType::IQ4_NL, 640, 2_560),
    ],
};

const SHIM: Plan = Plan {
    context: 515,
    queries: 3,
    actives: &[128, 192],
    reaches: &[128],
    per_group: &[64, 128],
    blocks: 300,
    decode_queries: &[1],
    kinds: &[KvKind::Int8],
    width: 70,
    prompt_queries: &[2],
    matrices: &[(DType::Q8_0, 256, 64)],
};

/// The smallest size from which on the second of two times is the better one; `None` if it is not at the largest.
fn threshold(times: &[(usize, f64, f64)]) -> Option<usize> {
    let better = times.iter().rev().take_while(|(_, old, new)| *new < MARGIN * *old);
    better.last().map(|(size, ..)| *size)
}

/// Values found, with the defaults they stand beside.
struct Found<'a> {
    device: &'a Device,
    plan: &'a Plan,
    defaults: Tables,
    values: Vec<(String, String)>,
    line: &'a mut dyn FnMut(String),
}

/// Measures a device; the values differ from its defaults.
pub fn measure(device: &Device, line: &mut dyn FnMut(String)) -> Result<Vec<(String, String)>> {
    let plan = if device.is_shim() { &SHIM } else { &CARD };
    let defaults = Dispatch::for_arch(&device.info().arch).tables().clone();
    let mut found = Found { device, plan, defaults, values: Vec::new(), line };
    found.rows()?;
    found.prompt_scores()?;
    found.prompt_topk()?;
    found.decode_topk()?;
    found.chunk_kernels()?;
    found.prompt_attention()?;
    found.mat_vec()?;
    Ok(found.values)
}

impl Found<'_> {
    /// Keeps a value if it is not the default.
    fn keep(&mut self, name: &str, value: impl ToString) {
        let pair = (name.to_owned(), value.to_string());
        if !self.defaults.values().contains(&pair) {
            (self.line)(format!("{} = {}", pair.0, pair.1));
            self.values.push(pair);
        }
    }

    fn tell(&mut self, what: &str, size: usize, times: &[(&str, f64)]) {
        let times: Vec<String> = times.iter().map(|(name, t)| format!("{name} {t:.2} us")).collect();
        (self.line)(format!("  {what} {size}: {}", times.join(", ")));
    }

    /// Decode scores: the kernels compiled for a number of queries against the general one.
    fn rows(&mut self) -> Result<()> {
        let (device, ctx) = (self.device, self.plan.context);
        let sets = rotations(device, ctx / BLOCK * INDEX_DIM * 4);
        let mut rows = 0;
        for queries in 1..=MULTI_QUERIES {
            let data = Scores::new(device, ctx, ctx, queries, sets, false)?;
            let time = |s| Timer::default().time(device, &mut |i| data.run(device, s, i)).map(|t| t.median);
            let (multi, own) = (time(Scorer::Multi)?, time(Scorer::Rows)?);
            self.tell("decode scores, queries", queries, &[("multi", multi), ("rows", own)]);
            rows |= usize::from(own < MARGIN * multi) << (queries - 1);
        }
        self.keep("score.rows", rows);
        Ok(())
    }

    /// Prompt scores: waves against threads, and blocks of a workgroup.
    fn prompt_scores(&mut self) -> Result<()> {
        let (device, plan) = (self.device, self.plan);
        let data = |blocks: usize| {
            let ctx = (blocks - 1) * BLOCK;
            Scores::new(device, ctx, ctx, plan.queries, 1, true)
        };
        let time = |data: &Scores, s| TIMER.time(device, &mut |i| data.run(device, s, i)).map(|t| t.median);
        let mut times = Vec::new();
        for &active in plan.actives {
            let data = data(active)?;
            let (warp, thread) = (time(&data, Scorer::Warp)?, time(&data, self.defaults.score.thread(active))?);
            self.tell("prompt scores, blocks", active, &[("warp", warp), ("thread", thread)]);
            times.push((active, warp, thread));
        }
        if let Some(at) = threshold(&times) {
            self.keep("score.thread_threshold", at);
        }
        for (&reach, name) in plan.reaches.iter().zip(REACHES) {
            let data = data(reach)?;
            let Scorer::Thread { per_group: default } = self.defaults.score.thread(reach) else { continue };
            let mut best = (default, MARGIN * time(&data, Scorer::Thread { per_group: default })?);
            for &per_group in plan.per_group {
                let t = time(&data, Scorer::Thread { per_group })?;
                self.tell(&format!("thread scores, {reach} blocks, by"), per_group, &[("thread", t)]);
                if t < best.1 {
                    best = (per_group, t);
                }
            }
            self.keep(&format!("score.{name}"), best.0);
        }
        Ok(())
    }

    /// Time of a top-k kernel: rows of `stride` blocks, of which `whole` are complete.
    fn topk_time(&self, k: TopK, queries: usize, stride: usize, whole: usize, table: &TopkTable) -> Result<f64> {
        let (device, cap) = (self.device, WIDTH);
        let scores = device.upload(&Rng::new(3).normals(queries * stride, 1.0))?;
        let cells = (whole * BLOCK) as i32;
        let record = [cells - 1, cells, whole as i32, cells.min(WIDTH as i32)];
        let (records, ids): (Buffer<i32>, Buffer<i32>) = (device.upload(&record.repeat(queries))?, device.alloc(queries * cap)?);
        let s = Selecting { scores: &scores, records: &records, ids: &ids, max_blocks: stride, cap, queries, active_blocks: None };
        TIMER.time(device, &mut |_| select_with(device, table, k, &s)).map(|t| t.median)
    }

    /// Counted top-k: few threads against registers, and registers against reading anew.
    fn prompt_topk(&mut self) -> Result<()> {
        let (plan, table) = (self.plan, self.defaults.topk);
        let device = self.device;
        let reg =
            |blocks: usize| TopK::REG.into_iter().find(|k| k.held() <= table.reg_max && k.reach() >= blocks && device.has(k.kernel()));
        let mut times = Vec::new();
        for &active in plan.actives {
            let Some(k) = reg(active) else { continue };
            let time = |k| self.topk_time(k, plan.queries, active, active - 1, &table);
            let (few, held) = (time(TopK::Ref)?, time(k)?);
            self.tell("prompt top-k, blocks", active, &[("ref", few), (k.kernel(), held)]);
            times.push((active, few, held));
        }
        if let Some(at) = threshold(&times) {
            self.keep("topk.reg_min", at);
        }
        if self.device.is_shim() {
            return Ok(());
        }
        // the largest that beats reading anew at its own reach
        let mut largest = None;
        for k in TopK::REG.into_iter().filter(|k| k.held() > 2 && device.has(k.kernel())) {
            let time = |k: TopK, blocks: usize| self.topk_time(k, plan.queries, blocks, blocks - 1, &table);
            let (held, wide) = (time(k, k.reach())?, time(TopK::Wide, k.reach())?);
            self.tell("prompt top-k, blocks", k.reach(), &[(k.kernel(), held), ("wide", wide)]);
            if held < wide {
                largest = Some(k.held());
            }
        }
        let largest = largest.unwrap_or(table.reg_max);
        self.keep("topk.reg_max", largest);
        let mut times = Vec::new();
        for blocks in [largest * 1_024 + 1, 49_152, 65_536] {
            let time = |k| self.topk_time(k, plan.queries, blocks, blocks - 1, &table);
            let (few, wide) = (time(TopK::Ref)?, time(TopK::Wide)?);
            self.tell("prompt top-k beyond registers, blocks", blocks, &[("ref", few), ("wide", wide)]);
            times.push((blocks, few, wide));
        }
        match threshold(&times) {
            Some(at) if at != times[0].0 => self.keep("topk.wide_min", at),
            _ => {}
        }
        Ok(())
    }

    /// Decode top-k: clusters against one workgroup a query, by queries and by blocks.
    fn decode_topk(&mut self) -> Result<()> {
        let (plan, device) = (self.plan, self.device);
        let Some(cluster) = [TopK::Cluster9, TopK::Cluster17].into_iter().find(|k| k.reach() >= plan.blocks && device.has(k.kernel()))
        else {
            return Ok(());
        };
        let alone = TopkTable { cluster_queries: 0, ..self.defaults.topk };
        let (mut most, mut wins) = (0, true);
        for &queries in plan.decode_queries {
            let single = alone.choose(device, queries, plan.blocks, None);
            let time = |k| self.topk_time(k, queries, plan.blocks, plan.blocks - 1, &TopkTable { cluster_solo: 0, ..alone });
            let (spread, one) = (time(cluster)?, time(single)?);
            self.tell("decode top-k, queries", queries, &[(cluster.kernel(), spread), (single.kernel(), one)]);
            wins &= spread < one;
            if wins {
                most = queries;
            }
        }
        self.keep("topk.cluster_queries", most);
        let mut times = Vec::new();
        for whole in [1_024, 2_048, 4_096, 8_192, 16_384, 32_768].into_iter().filter(|n| *n < plan.blocks) {
            let time = |solo| self.topk_time(cluster, 1, plan.blocks, whole, &TopkTable { cluster_solo: solo, ..alone });
            let (one, all) = (time(i32::MAX as usize)?, time(0)?);
            self.tell("decode top-k, whole blocks", whole, &[("one of the cluster", one), ("all", all)]);
            times.push((whole, one, all));
        }
        if let Some(most) = times.iter().rfind(|(_, one, all)| *one < MARGIN * *all) {
            self.keep("topk.cluster_solo", most.0);
        }
        Ok(())
    }

    /// Decode attention: the chunk kernels of each format.
    fn chunk_kernels(&mut self) -> Result<()> {
        let (plan, device) = (self.plan, self.device);
        for &kind in plan.kinds {
            let data = Attention::new(device, kind, 1, plan.width)?;
            let mut scratch = DecodeScratch::new(device, 1, HEADS, plan.width)?;
            let mut best: Option<(&str, f64)> = None;
            for kernel in chunk_kernels(device, kind) {
                let run =
                    &mut |i| launch_chunks(device, kernel, &data.pool, &data.q, HEADS, &select(&data, i, 1, plan.width), &mut scratch);
                let t = Timer::default().time(device, run)?.median;
                self.tell(kind.name(), plan.width, &[(kernel, t)]);
                if best.is_none_or(|b| t < MARGIN * b.1) {
                    best = Some((kernel, t));
                }
            }
            let default = AttentionTable::BASE.chunk_on(&device.info().arch, kind);
            if let Some((kernel, _)) = best.filter(|b| Some(b.0) != default) {
                self.keep(&format!("attention.chunk.{}", kind.name()), kernel);
            }
        }
        Ok(())
    }

    /// Attention of some queries: chunks against a workgroup a query.
    fn prompt_attention(&mut self) -> Result<()> {
        let (plan, device, kind) = (self.plan, self.device, KvKind::Int8);
        let kernel = self.defaults.attention.chunk_on(&device.info().arch, kind);
        let (Some(kernel), Some(_)) = (kernel, prompt_kernel(device, kind, 12)) else { return Ok(()) };
        let mut times = Vec::new();
        for &queries in plan.prompt_queries {
            let data = Attention::new(device, kind, queries, plan.width)?;
            let mut scratch = DecodeScratch::new(device, queries, HEADS, plan.width)?;
            let mut out = device.alloc(queries * HEADS * HEAD_DIM)?;
            let chunks = TIMER.time(device, &mut |i| {
                let chosen = select(&data, i, queries, plan.width);
                launch_chunks(device, kernel, &data.pool, &data.q, HEADS, &chosen, &mut scratch)?;
                launch_merge(device, &data.pool, HEADS, &chosen, &scratch, &mut out)
            })?;
            let whole = TIMER.time(device, &mut |i| {
                attend_prompt(device, &data.pool, &data.q, HEADS, &select(&data, i, queries, plan.width), &mut out)
            })?;
            self.tell("int8 attention, queries", queries, &[("chunks", chunks.median), ("prompt", whole.median)]);
            times.push((queries, chunks.median, whole.median));
        }
        if let Some(at) = threshold(&times) {
            self.keep("attention.prompt_min", at);
        }
        Ok(())
    }

    /// Mat-vec: variants by format, columns and rows.
    fn mat_vec(&mut self) -> Result<()> {
        for e in tune_variants(self.device, self.plan.matrices)?.measured() {
            let default = self.defaults.mat_vec.variant_on(&self.device.info().arch, e.dtype, e.columns, e.n_out, self.device.info().units);
            if e.variant != default {
                self.keep(&crate::defaults::entry_name(e), e.variant.name());
            }
        }
        Ok(())
    }
}

fn select(data: &Attention, i: usize, queries: usize, width: usize) -> Selection<'_> {
    let table = PageTable { pages: &data.tables[i % data.tables.len()], stride: 0 };
    Selection { ids: &data.ids, steps: &data.steps, table, queries, cap: width }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_the_last_change() {
        assert_eq!(threshold(&[(1, 5.0, 9.0), (2, 5.0, 4.0), (3, 5.0, 4.0)]), Some(2));
        assert_eq!(threshold(&[(1, 5.0, 4.0), (2, 5.0, 6.0), (3, 5.0, 4.0)]), Some(3));
        assert_eq!(threshold(&[(1, 5.0, 4.0), (2, 5.0, 6.0)]), None);
        assert_eq!(threshold(&[(1, 5.0, 4.0), (2, 5.0, 4.0)]), Some(1));
        assert_eq!(threshold(&[(1, 5.0, 4.99)]), None);
        assert_eq!(threshold(&[]), None);
    }
}
