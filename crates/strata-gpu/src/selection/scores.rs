//! The block scorer: which kernel runs, and how.

use crate::device::{Arg, Buffer, Device};
use crate::driver::Grid;
use crate::error::{GpuError, Result};
use crate::registry;
use crate::selection::score_table::ScoreTable;
use strata_ops::qsa::INDEX_DIM;

/// Indexer heads that the kernels are made for.
pub const INDEX_HEADS: usize = 4;
/// Values of a query.
pub const QUERY_DIM: usize = INDEX_HEADS * INDEX_DIM;
/// i32 of a step record: pos, n_kv, n_bid, width.
pub const RECORD: usize = 4;
/// Most queries of a call.
pub const MAX_QUERIES: usize = 65_535;
/// Most queries of the kernels that read each key once for all.
pub const MULTI_QUERIES: usize = 8;

/// A way to score. All but the last two give the definition's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scorer {
    /// One wave a (query, block).
    Warp,
    /// Up to eight queries; each key read once for all of them.
    Multi,
    /// The same, compiled for the number of queries.
    Rows,
    /// Prompts: 32 queries x `per_group` blocks a workgroup, last blocks by the tail kernel.
    Thread { per_group: usize },
    /// Matrix instructions on bf16 thirds, last blocks by the tail kernel. Not exact.
    Bf16,
    /// Matrix instructions on tf32 halves, last blocks by the tail kernel. Not exact.
    Tf32,
}

impl Scorer {
    /// Whether its bits are the definition's.
    pub const fn exact(self) -> bool {
        !matches!(self, Scorer::Bf16 | Scorer::Tf32)
    }

    /// Whether it takes so many queries on this device.
    pub fn takes(self, device: &Device, queries: usize) -> bool {
        self.takes_on(&device.info().arch, queries)
    }

    /// Whether it takes so many queries on this architecture.
    pub fn takes_on(self, arch: &str, queries: usize) -> bool {
        let few = !matches!(self, Scorer::Multi | Scorer::Rows) || queries <= MULTI_QUERIES;
        few && self.kernel(queries).is_some_and(|k| registry::has(arch, k))
    }

    /// Its kernel for so many queries.
    pub fn kernel(self, queries: usize) -> Option<&'static str> {
        const ROWS: [&str; MULTI_QUERIES] = [
            "qsa_scores_rows1",
            "qsa_scores_rows2",
            "qsa_scores_rows3",
            "qsa_scores_rows4",
            "qsa_scores_rows5",
            "qsa_scores_rows6",
            "qsa_scores_rows7",
            "qsa_scores_rows8",
        ];
        match self {
            Scorer::Warp => Some("qsa_scores_warp"),
            Scorer::Multi => Some("qsa_scores_multi"),
            Scorer::Rows => ROWS.get(queries.checked_sub(1)?).copied(),
            Scorer::Thread { .. } => Some("qsa_scores_thread"),
            Scorer::Bf16 => Some("qsa_scores_bf16"),
            Scorer::Tf32 => Some("qsa_scores_tf32"),
        }
    }
}

/// What is scored: keys, queries, step records and where the scores go.
#[derive(Clone, Copy)]
pub struct Scoring<'a> {
    /// `[blocks][128]`
    pub pooled: &'a Buffer<f32>,
    /// `[128]`, the key of an incomplete block
    pub dead: &'a Buffer<f32>,
    /// `[queries][4][128]`
    pub q: &'a Buffer<f32>,
    /// `[queries][4]`: pos, n_kv, n_bid, width
    pub records: &'a Buffer<i32>,
    /// `[queries][max_blocks]`; entries 0..=n_bid of a row are written
    pub scores: &'a Buffer<f32>,
    pub max_blocks: usize,
    pub queries: usize,
    /// One more than the largest n_bid, where the caller knows it (prompts). Without it the grid covers what the capacity allows.
    pub active_blocks: Option<usize>,
}

impl Scoring<'_> {
    fn check(&self, kernel: &str) -> Result<()> {
        let wrong = |expected: String, found: String| Err(GpuError::Launch { kernel: kernel.into(), expected, found });
        if self.queries > MAX_QUERIES {
            return wrong(format!("at most {MAX_QUERIES} queries"), self.queries.to_string());
        }
        if self.max_blocks == 0 || self.max_blocks > i32::MAX as usize / 4 {
            return wrong("a row of 1 to 2^29 blocks".into(), self.max_blocks.to_string());
        }
        let sizes = [
            ("dead", self.dead.len(), INDEX_DIM),
            ("q", self.q.len(), self.queries * QUERY_DIM),
            ("records", self.records.len(), self.queries * RECORD),
            ("scores", self.scores.len(), self.queries * self.max_blocks),
        ];
        match sizes.into_iter().find(|(_, have, need)| have < need) {
            Some((what, have, need)) => wrong(format!("{need} values of {what}"), have.to_string()),
            None => Ok(()),
        }
    }

    /// Blocks that a grid must reach: those the records may name.
    fn reach(&self) -> usize {
        self.active_blocks.map_or(self.max_blocks, |a| a.min(self.max_blocks))
    }
}

/// Scores by the table's choice.
///
/// # Errors
/// Sizes that do not fit each other, or a driver's error.
pub fn score(device: &Device, table: &ScoreTable, s: &Scoring<'_>) -> Result<()> {
    score_with(device, table.choose(device, s.queries, s.max_blocks, s.active_blocks), s)
}

/// Scores by one kernel (and the tail's, where it leaves the last blocks).
///
/// # Errors
/// A kernel that does not take so many queries or is not for this device, sizes that do not fit each other, or a driver's error.
pub fn score_with(device: &Device, scorer: Scorer, s: &Scoring<'_>) -> Result<()> {
    if s.queries == 0 {
        return Ok(());
    }
    let kernel = match scorer.kernel(s.queries) {
        Some(k) if scorer.takes(device, s.queries) => k,
        _ => {
            let expected = "a scorer that this device has and that takes as many queries".into();
            return Err(GpuError::Launch { kernel: format!("{scorer:?}"), expected, found: s.queries.to_string() });
        }
    };
    s.check(kernel)?;
    let (max_blocks, queries): (Arg, Arg) = ((s.max_blocks as i32).into(), (s.queries as i32).into());
    let [pooled, dead, q, records, scores] = [s.pooled.arg(), s.dead.arg(), s.q.arg(), s.records.arg(), s.scores.arg()];
    let grid = |x: usize, y: usize, threads| Grid { groups: [x as u32, y as u32, 1], threads, shared: 0, cluster: 1 };
    match scorer {
        Scorer::Warp => {
            let g = grid(s.reach().div_ceil(8), s.queries, 256);
            device.launch(kernel, g, &[pooled, dead, q, records, scores, max_blocks])
        }
        Scorer::Multi => {
            let g = grid(stride_groups(device, 2, s.max_blocks, 64), 1, 256);
            device.launch(kernel, g, &[pooled, dead, q, records, scores, max_blocks, queries])
        }
        Scorer::Rows => {
            let g = grid(stride_groups(device, rows_per_unit(s.queries), s.max_blocks, rows_step(s.queries)), 1, 256);
            device.launch(kernel, g, &[pooled, dead, q, records, scores, max_blocks])
        }
        Scorer::Thread { per_group } => {
            if per_group == 0 {
                return Err(GpuError::Launch { kernel: kernel.into(), expected: "blocks a workgroup".into(), found: "0".into() });
            }
            // a grid has at most 65,535 workgroups along y
            let per_group = per_group.max(s.reach().div_ceil(65_535));
            let g = grid(s.queries.div_ceil(32), s.reach().div_ceil(per_group), 128);
            device.launch(kernel, g, &[pooled, q, records, scores, max_blocks, queries, (per_group as i32).into()])?;
            tail(device, s)
        }
        Scorer::Bf16 | Scorer::Tf32 => {
            let g = grid(s.queries.div_ceil(16), s.reach().div_ceil(MATRIX_BLOCKS), 128);
            let g = Grid { shared: if scorer == Scorer::Bf16 { BF16_SHARED } else { TF32_SHARED }, ..g };
            device.launch(kernel, g, &[pooled, q, records, scores, max_blocks, queries])?;
            tail(device, s)
        }
    }
}

/// Blocks of a workgroup of the matrix kernels, at most; their grid grows along y.
const MATRIX_BLOCKS: usize = 256;
/// Shared memory of their split queries, bytes.
const BF16_SHARED: u32 = 3 * 4 * 16 * 136 * 2;
const TF32_SHARED: u32 = 2 * 4 * 16 * 128 * 4;

/// Scores of the last blocks alone.
fn tail(device: &Device, s: &Scoring<'_>) -> Result<()> {
    let g = Grid { groups: [s.queries.div_ceil(8) as u32, 1, 1], threads: 256, shared: 0, cluster: 1 };
    let args = [s.dead.arg(), s.q.arg(), s.records.arg(), s.scores.arg(), (s.max_blocks as i32).into(), (s.queries as i32).into()];
    device.launch("qsa_scores_tail", g, &args)
}

/// Scores of queries of different sequences: query i reads the keys at address `pooled[i]` with `dead[i]`.
///
/// # Errors
/// Sizes that do not fit each other, or a driver's error.
pub fn score_slots(device: &Device, pooled: &Buffer<u64>, dead: &Buffer<u64>, s: &Scoring<'_>) -> Result<()> {
    s.check("qsa_scores_slots")?;
    if pooled.len() < s.queries || dead.len() < s.queries {
        let found = pooled.len().min(dead.len()).to_string();
        return Err(GpuError::Launch { kernel: "qsa_scores_slots".into(), expected: format!("{} addresses", s.queries), found });
    }
    let x = stride_groups(device, rows_per_unit(1), s.max_blocks, rows_step(1)).div_ceil(s.queries.max(1)).max(1) as u32;
    let g = Grid { groups: [x, s.queries as u32, 1], threads: 256, shared: 0, cluster: 1 };
    device.launch(
        "qsa_scores_slots",
        g,
        &[pooled.arg(), dead.arg(), s.q.arg(), s.records.arg(), s.scores.arg(), (s.max_blocks as i32).into()],
    )
}

/// Workgroups of a unit that the registers of a rows kernel leave room for.
const fn rows_per_unit(queries: usize) -> usize {
    match queries {
        0..=1 => 4,
        2 | 4 => 3,
        _ => 2,
    }
}

/// Blocks of a step of a rows kernel: four a wave, or four for two waves that share the queries.
const fn rows_step(queries: usize) -> usize {
    if queries > 3 { 16 } else { 32 }
}

/// Workgroups of a grid that strides over steps of `step` blocks: as many as run at once, or as there can be steps (one is the tails').
fn stride_groups(device: &Device, per_unit: usize, max_blocks: usize, step: usize) -> usize {
    (device.info().units as usize * per_unit).min(max_blocks.div_ceil(step) + 1)
}
