//! The block top-k: which kernel runs, and how.

use super::topk_table::TopkTable;
use crate::device::{Arg, Buffer, Device};
use crate::driver::Grid;
use crate::error::{GpuError, Result};

/// Most queries of a call.
const MAX_QUERIES: usize = 65_535;
/// i32 of a step record: pos, n_kv, n_bid, width.
const RECORD: usize = 4;
/// Workgroups of a cluster.
const CLUSTER: u32 = 8;

/// A way to select. All give the definition's ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopK {
    /// 256 threads, scores read anew for each digit.
    Ref,
    /// 1,024 threads that hold two keys each; the others likewise.
    Reg2,
    Reg9,
    Reg17,
    Reg33,
    /// AMD.
    Reg66,
    /// 1,024 threads, scores read anew for each digit.
    Wide,
    /// Eight workgroups of 1,024 threads that hold nine keys each, from sm_90 on.
    Cluster9,
    Cluster17,
}

impl TopK {
    /// Every one.
    pub const ALL: [TopK; 9] =
        [TopK::Ref, TopK::Reg2, TopK::Reg9, TopK::Reg17, TopK::Reg33, TopK::Reg66, TopK::Wide, TopK::Cluster9, TopK::Cluster17];
    /// Those of one workgroup that hold keys in registers, smallest first.
    pub const REG: [TopK; 5] = [TopK::Reg2, TopK::Reg9, TopK::Reg17, TopK::Reg33, TopK::Reg66];

    /// Its kernel.
    pub const fn kernel(self) -> &'static str {
        match self {
            TopK::Ref => "qsa_topk_ref",
            TopK::Reg2 => "qsa_topk_reg2",
            TopK::Reg9 => "qsa_topk_reg9",
            TopK::Reg17 => "qsa_topk_reg17",
            TopK::Reg33 => "qsa_topk_reg33",
            TopK::Reg66 => "qsa_topk_reg66",
            TopK::Wide => "qsa_topk_wide",
            TopK::Cluster9 => "qsa_topk_cluster9",
            TopK::Cluster17 => "qsa_topk_cluster17",
        }
    }

    /// Keys that a thread holds; 0 where they are read anew.
    pub const fn held(self) -> usize {
        match self {
            TopK::Ref | TopK::Wide => 0,
            TopK::Reg2 => 2,
            TopK::Reg9 | TopK::Cluster9 => 9,
            TopK::Reg17 | TopK::Cluster17 => 17,
            TopK::Reg33 => 33,
            TopK::Reg66 => 66,
        }
    }

    /// Whether a cluster of workgroups takes a query.
    pub const fn is_cluster(self) -> bool {
        matches!(self, TopK::Cluster9 | TopK::Cluster17)
    }

    /// Most blocks of a query, the tail included.
    pub const fn reach(self) -> usize {
        match self {
            TopK::Ref | TopK::Wide => usize::MAX,
            _ => self.held() * 1024 * if self.is_cluster() { CLUSTER as usize } else { 1 },
        }
    }
}

/// What is selected from and where ids go.
#[derive(Clone, Copy)]
pub struct Selecting<'a> {
    /// `[queries][max_blocks]`; entries 0..=n_bid of a row are read
    pub scores: &'a Buffer<f32>,
    /// `[queries][4]`: pos, n_kv, n_bid, width
    pub records: &'a Buffer<i32>,
    /// `[queries][cap]`: the first min(width, n_kv) of a row are written, ascending
    pub ids: &'a Buffer<i32>,
    pub max_blocks: usize,
    /// At least the largest width of the records
    pub cap: usize,
    pub queries: usize,
    /// At least one more than the largest n_bid, where the caller knows it (prompts).
    pub active_blocks: Option<usize>,
}

impl Selecting<'_> {
    /// Blocks that the records may name.
    fn reach(&self) -> usize {
        self.active_blocks.filter(|a| *a > 0).map_or(self.max_blocks, |a| a.min(self.max_blocks))
    }

    fn check(&self, k: TopK) -> Result<()> {
        let wrong = |expected: String, found: String| Err(GpuError::Launch { kernel: k.kernel().into(), expected, found });
        if self.queries > MAX_QUERIES {
            return wrong(format!("at most {MAX_QUERIES} queries"), self.queries.to_string());
        }
        // cells are i32
        if self.max_blocks == 0 || self.max_blocks > i32::MAX as usize / 4 || self.cap > i32::MAX as usize {
            return wrong("a row of 1 to 2^29 blocks and up to 2^31 ids".into(), format!("{} and {}", self.max_blocks, self.cap));
        }
        if self.reach() > k.reach() {
            return wrong(format!("at most {} blocks", k.reach()), self.reach().to_string());
        }
        let sizes = [
            ("scores", self.scores.len(), self.queries * self.max_blocks),
            ("records", self.records.len(), self.queries * RECORD),
            ("ids", self.ids.len(), self.queries * self.cap),
        ];
        match sizes.into_iter().find(|(_, have, need)| have < need) {
            Some((what, have, need)) => wrong(format!("{need} values of {what}"), have.to_string()),
            None => Ok(()),
        }
    }
}

/// Selects by the table's choice.
///
/// # Errors
/// Sizes that do not fit each other, or a driver's error.
pub fn select(device: &Device, table: &TopkTable, s: &Selecting<'_>) -> Result<()> {
    select_with(device, table, table.choose(device, s.queries, s.max_blocks, s.active_blocks), s)
}

/// Selects by one kernel.
///
/// # Errors
/// A kernel that does not take so many blocks or is not for this device, sizes that do not fit each other, or a driver's error.
pub fn select_with(device: &Device, table: &TopkTable, k: TopK, s: &Selecting<'_>) -> Result<()> {
    s.check(k)?;
    let queries = s.queries as u32;
    let mut args = vec![s.scores.arg(), s.records.arg(), s.ids.arg(), Arg::I32(s.max_blocks as i32), Arg::I32(s.cap as i32)];
    let mut grid = Grid { groups: [queries, 1, 1], threads: if k == TopK::Ref { 256 } else { 1024 }, shared: 0, cluster: 1 };
    if k.is_cluster() {
        // one workgroup does what its registers hold at most
        args.push(Arg::I32(table.cluster_solo.min(k.held() * 1024) as i32));
        grid.groups = [CLUSTER, queries, 1];
        grid.cluster = CLUSTER;
    }
    device.launch(k.kernel(), grid, &args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused() {
        let Some(device) = crate::testing::tools(Device::open("shim-cuda")) else { return };
        let (scores, records, ids) = (device.alloc(3_000).unwrap(), device.alloc(4).unwrap(), device.alloc(2_051).unwrap());
        let good =
            Selecting { scores: &scores, records: &records, ids: &ids, max_blocks: 3_000, cap: 2_051, queries: 1, active_blocks: None };
        let run = |k, s: Selecting<'_>| select_with(&device, &TopkTable::BASE, k, &s).unwrap_err().to_string();
        assert!(run(TopK::Reg2, good).contains("2048 blocks"));
        assert!(run(TopK::Reg66, Selecting { active_blocks: Some(3), ..good }).contains("needs Hip"));
        assert!(run(TopK::Wide, Selecting { queries: 2, ..good }).contains("6000 values of scores"));
        assert!(run(TopK::Wide, Selecting { queries: 65_536, ..good }).contains("at most 65535 queries"));
        assert!(run(TopK::Wide, Selecting { max_blocks: 0, ..good }).contains("a row of"));
        assert!(select(&device, &TopkTable::BASE, &Selecting { queries: 0, ..good }).is_ok());
    }
}
