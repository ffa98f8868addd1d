//! Which top-k kernel runs for which sizes: defaults by architecture, each replaceable by an explicit value.

use super::topk::TopK;
use crate::defaults::Dispatch;
use crate::device::Device;
use crate::registry;

/// Thresholds of the dispatch, in blocks where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopkTable {
    /// Most queries that are spread over clusters; 0 for none.
    pub cluster_queries: usize,
    /// A query of fewer whole blocks is done by one workgroup of its cluster.
    pub cluster_solo: usize,
    /// Counted batches of fewer blocks go to the kernel of few threads.
    pub reg_min: usize,
    /// Counted batches beyond the register kernels and of fewer blocks go to the kernel of few threads too.
    pub wide_min: usize,
    /// Keys a thread of the largest register kernel may hold.
    pub reg_max: usize,
    /// Whether a count of active blocks decides; else the capacity does.
    pub by_active: bool,
}

impl TopkTable {
    /// The table of a device nothing is known about.
    pub const BASE: TopkTable =
        TopkTable { cluster_queries: 16, cluster_solo: 4_096, reg_min: 2_048, wide_min: 0, reg_max: 33, by_active: true };

    /// The built-in table of an architecture.
    pub fn for_arch(arch: &str) -> TopkTable {
        Dispatch::for_arch(arch).tables().topk
    }

    /// Sets a threshold by its name (that of its field; `by_active` 0 or 1). Whether there is one of this name that takes the value.
    pub fn set(&mut self, name: &str, value: usize) -> bool {
        match (name, value) {
            ("cluster_queries", v) => self.cluster_queries = v,
            ("cluster_solo", v) => self.cluster_solo = v,
            ("reg_min", v) => self.reg_min = v,
            ("wide_min", v) => self.wide_min = v,
            ("reg_max", v) => self.reg_max = v,
            ("by_active", 0 | 1) => self.by_active = value == 1,
            _ => return false,
        }
        true
    }

    /// The kernel of a call. `active_blocks` is what the caller knows (prompts), else `None` or 0. Nothing else that may change
    /// between replays of a captured graph plays a part.
    pub fn choose(&self, device: &Device, queries: usize, max_blocks: usize, active_blocks: Option<usize>) -> TopK {
        self.choose_on(&device.info().arch, queries, max_blocks, active_blocks)
    }

    /// The kernel of a call on an architecture.
    pub fn choose_on(&self, arch: &str, queries: usize, max_blocks: usize, active_blocks: Option<usize>) -> TopK {
        let counted = active_blocks.filter(|a| *a > 0);
        let reach = counted.filter(|_| self.by_active).map_or(max_blocks, |a| a.min(max_blocks));
        let fits = |k: &TopK| k.reach() >= reach && registry::has(arch, k.kernel());
        if queries <= self.cluster_queries
            && let Some(k) = [TopK::Cluster9, TopK::Cluster17].into_iter().find(fits)
        {
            return k;
        }
        if counted.is_some() && reach < self.reg_min {
            return TopK::Ref;
        }
        if let Some(k) = TopK::REG.into_iter().find(|k| k.held() <= self.reg_max && fits(k)) {
            return k;
        }
        if counted.is_some_and(|a| a < self.wide_min) { TopK::Ref } else { TopK::Wide }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dispatch_follows_the_table() {
        let Some(cuda) = crate::testing::tools(Device::open("shim-cuda")) else { return };
        let Some(hip) = crate::testing::tools(Device::open("shim-gfx12")) else { return };
        let mut t = TopkTable::for_arch("gfx1201");
        let at = |t: &TopkTable, d: &Device, queries, active| t.choose(d, queries, 65_538, active);
        // decode: by the capacity alone
        assert_eq!(
            (at(&t, &cuda, 1, None), at(&t, &cuda, 16, Some(0)), at(&t, &cuda, 17, None)),
            (TopK::Cluster9, TopK::Cluster9, TopK::Wide)
        );
        assert_eq!(
            (at(&t, &hip, 1, None), t.choose(&hip, 1, 8_194, None), t.choose(&hip, 1, 70_000, None)),
            (TopK::Reg66, TopK::Reg9, TopK::Wide)
        );
        assert_eq!((t.choose(&cuda, 1, 100_000, None), t.choose(&cuda, 1, 140_000, None)), (TopK::Cluster17, TopK::Wide));
        // prompts: by the count, on both sides of each edge
        for (active, kernel) in [
            (4_095, TopK::Ref),
            (4_096, TopK::Reg9),
            (9_216, TopK::Reg9),
            (9_217, TopK::Reg17),
            (17_408, TopK::Reg17),
            (17_409, TopK::Reg33),
            (33_792, TopK::Reg33),
            (33_793, TopK::Reg66),
            (90_000, TopK::Reg66),
        ] {
            assert_eq!(at(&t, &hip, 256, Some(active)), kernel, "{active}");
        }
        assert_eq!(at(&t, &cuda, 256, Some(33_793)), TopK::Wide);
        // explicit values are kept, names that do not exist give nothing
        assert!(t.set("reg_min", 0) && t.set("wide_min", 50_000) && t.set("cluster_queries", 0) && t.set("reg_max", 9));
        assert_eq!((at(&t, &cuda, 1, Some(2_048)), at(&t, &cuda, 1, Some(2_049))), (TopK::Reg2, TopK::Reg9));
        assert_eq!(
            (at(&t, &cuda, 1, Some(49_999)), at(&t, &cuda, 1, Some(50_000)), at(&t, &cuda, 1, None)),
            (TopK::Ref, TopK::Wide, TopK::Wide)
        );
        assert!(t.set("by_active", 0) && t.set("reg_max", 66) && t.set("cluster_solo", 5));
        assert_eq!((at(&t, &hip, 256, Some(600)), t.cluster_solo), (TopK::Reg66, 5));
        let before = t;
        assert!(!t.set("reg", 1) && !t.set("by_active", 2) && !t.set("", 0));
        assert_eq!(t, before);
    }
}
