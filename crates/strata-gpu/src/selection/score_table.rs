//! Which scorer runs for which sizes: defaults by architecture, each replaceable by an explicit value.

use super::scores::{MULTI_QUERIES, Scorer};
use crate::defaults::Dispatch;
use crate::device::Device;

/// The matrix scorer of a table, which is not exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatrixScorer {
    /// None: the default everywhere.
    #[default]
    Off,
    Bf16,
    Tf32,
}

/// Names of the entries of `per_group`.
pub const REACHES: [&str; 4] = ["per_group_2048", "per_group_8192", "per_group_32768", "per_group_max"];

/// Thresholds of the dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScoreTable {
    /// Active blocks from which prompts use the thread kernel.
    pub thread_threshold: usize,
    /// Blocks of a workgroup of the thread kernel: (up to this reach, blocks), ascending; the last entry has no bound.
    pub per_group: [(usize, usize); 4],
    /// Numbers of queries, bit n - 1 for n, for which the kernel compiled for the number replaces the general one.
    pub rows: u8,
    /// Opt-in.
    pub matrix: MatrixScorer,
}

impl ScoreTable {
    /// The table of a device nothing is known about.
    pub const BASE: ScoreTable = ScoreTable {
        thread_threshold: 512,
        per_group: [(2_048, 64), (8_192, 128), (32_768, 256), (usize::MAX, 512)],
        rows: 0,
        matrix: MatrixScorer::Off,
    };

    /// The built-in table of an architecture.
    pub fn for_arch(arch: &str) -> ScoreTable {
        Dispatch::for_arch(arch).tables().score
    }

    /// Sets a threshold by its name: `thread_threshold`, `per_group` (one size for every reach), `per_group_<reach>`, `rows` or
    /// `matrix` (0 off, 1 bf16, 2 tf32). Whether there is one of this name that takes the value.
    pub fn set(&mut self, name: &str, value: usize) -> bool {
        match (name, value) {
            ("thread_threshold", v) => self.thread_threshold = v,
            ("per_group", 1..) => self.per_group.iter_mut().for_each(|e| e.1 = value),
            ("rows", 0..=255) => self.rows = value as u8,
            ("matrix", 0) => self.matrix = MatrixScorer::Off,
            ("matrix", 1) => self.matrix = MatrixScorer::Bf16,
            ("matrix", 2) => self.matrix = MatrixScorer::Tf32,
            (name, 1..) => match REACHES.iter().position(|n| *n == name) {
                Some(i) => self.per_group[i].1 = value,
                None => return false,
            },
            _ => return false,
        }
        true
    }

    /// The thread kernel for blocks up to `reach`.
    pub fn thread(&self, reach: usize) -> Scorer {
        let entry = self.per_group.iter().find(|(most, _)| reach <= *most).unwrap_or(&self.per_group[3]);
        Scorer::Thread { per_group: entry.1 }
    }

    /// The scorer of a call. `active_blocks` is what the caller knows (prompts), else `None` or 0.
    pub fn choose(&self, device: &Device, queries: usize, max_blocks: usize, active_blocks: Option<usize>) -> Scorer {
        self.choose_on(&device.info().arch, queries, max_blocks, active_blocks)
    }

    /// The scorer of a call on an architecture.
    pub fn choose_on(&self, arch: &str, queries: usize, max_blocks: usize, active_blocks: Option<usize>) -> Scorer {
        let matrix = match self.matrix {
            MatrixScorer::Off => None,
            MatrixScorer::Bf16 => Some(Scorer::Bf16),
            MatrixScorer::Tf32 => Some(Scorer::Tf32),
        };
        if let Some(m) = matrix.filter(|m| m.takes_on(arch, queries)) {
            return m;
        }
        match active_blocks.filter(|a| *a > 0) {
            None if (1..=MULTI_QUERIES).contains(&queries) => match self.rows >> (queries - 1) & 1 {
                1 => Scorer::Rows,
                _ => Scorer::Multi,
            },
            Some(a) if a >= self.thread_threshold => self.thread(a.min(max_blocks)),
            _ => Scorer::Warp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dispatch_follows_the_table() {
        let Some(device) = crate::testing::tools(Device::open("shim-cuda")) else { return };
        let mut t = ScoreTable::BASE;
        let at = |t: &ScoreTable, queries, active| t.choose(&device, queries, 65_538, active);
        assert_eq!((at(&t, 1, None), at(&t, 8, None), at(&t, 9, None)), (Scorer::Multi, Scorer::Multi, Scorer::Warp));
        assert_eq!((at(&t, 4, Some(511)), at(&t, 4, Some(0))), (Scorer::Warp, Scorer::Multi));
        for (active, per_group) in [(512, 64), (2_048, 64), (2_049, 128), (8_193, 256), (32_768, 256), (32_769, 512), (90_000, 512)] {
            assert_eq!(at(&t, 256, Some(active)), Scorer::Thread { per_group });
        }
        assert_eq!(at(&ScoreTable::for_arch("sm_90a"), 4, None), Scorer::Rows);
        assert_eq!(at(&ScoreTable::for_arch("sm_90a"), 5, None), Scorer::Multi);
        // explicit values are kept, names that do not exist give nothing
        assert!(t.set("thread_threshold", 4_000) && t.set("per_group", 96) && t.set("rows", 0b10));
        assert_eq!((at(&t, 256, Some(3_999)), at(&t, 256, Some(4_000))), (Scorer::Warp, Scorer::Thread { per_group: 96 }));
        assert_eq!((at(&t, 1, None), at(&t, 2, None)), (Scorer::Multi, Scorer::Rows));
        assert!(t.set("per_group_2048", 32) && t.thread(2_048) == Scorer::Thread { per_group: 32 });
        assert_eq!(t.thread(2_049), Scorer::Thread { per_group: 96 });
        let before = t;
        assert!(!t.set("threshold", 1) && !t.set("per_group", 0) && !t.set("rows", 256) && !t.set("matrix", 3));
        assert_eq!(t, before);
    }

    #[test]
    fn defaults_are_exact() {
        for arch in ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120", "gfx1201", "gfx1100", "gfx1030", "shim-cuda", ""] {
            assert_eq!(ScoreTable::for_arch(arch).matrix, MatrixScorer::Off, "{arch}");
        }
    }
}
