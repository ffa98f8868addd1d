//! Whether defaults keep their rules: switches that exist, exact kernels only, and a dispatch that each of them changes.

use super::{Dispatch, Entry, Tables};
use crate::products::VariantEntry;
use crate::products::repack::FORMATS;
use crate::registry;
use crate::selection::scores::Scorer;
use strata_ops::qsa::kv::KvKind;

/// What one call gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The call: op and sizes.
    pub shape: String,
    pub kernel: String,
    /// What of the launch depends on a table besides.
    pub detail: usize,
}

/// An entry's state on one architecture.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Architecture, switch and value.
    pub entry: String,
    /// Rules that are broken.
    pub problems: Vec<String>,
    /// A call that the entry changes: shape, kernel without it, kernel with it.
    pub changes: Option<String>,
}

/// Rules of an entry.
pub const RULES: u64 = 4;

/// Checks every entry of a table on every architecture it is for.
pub fn check(table: &[Entry]) -> Vec<Checked> {
    let pairs = table.iter().enumerate().flat_map(|(i, e)| e.archs.iter().map(move |arch| (i, e, *arch)));
    pairs.map(|(i, e, arch)| check_entry(table, i, e, arch)).collect()
}

fn check_entry(table: &[Entry], index: usize, e: &Entry, arch: &str) -> Checked {
    let mut problems = Vec::new();
    if !Tables::default().set(e.switch, e.value) {
        problems.push(format!("there is no switch {} that takes {}", e.switch, e.value));
    }
    for name in e.kernels {
        match registry::find(name) {
            None => problems.push(format!("there is no kernel {name}")),
            Some(k) if !k.exact => problems.push(format!("{name} is not exact")),
            Some(k) if !k.runs_on(arch) => problems.push(format!("{name} does not run on {arch}")),
            Some(_) => {}
        }
    }
    let with_entries = |skip: Option<usize>| {
        let mut d = Dispatch::base();
        d.add_entries(table.iter().enumerate().filter(|(i, _)| Some(*i) != skip).map(|(_, e)| e), arch);
        let number: usize = e.value.parse().unwrap_or(0);
        decisions(d.tables(), arch, &[number.saturating_sub(1), number, number.saturating_add(1)])
    };
    let (with, without) = (with_entries(None), with_entries(Some(index)));
    let changed: Vec<(&Decision, &Decision)> = without.iter().zip(&with).filter(|(a, b)| a != b).collect();
    if changed.is_empty() {
        problems.push("changes no dispatch".into());
    }
    let mut got: Vec<&str> = changed.iter().map(|(_, b)| b.kernel.as_str()).collect();
    got.sort_unstable();
    got.dedup();
    for kernel in got {
        if !registry::find(kernel).is_some_and(|k| k.exact) {
            problems.push(format!("leads to {kernel}, which is not exact"));
        } else if !e.kernels.contains(&kernel) {
            problems.push(format!("leads to {kernel}, which it does not name"));
        }
    }
    let changes = changed.first().map(|(a, b)| format!("{}: {} becomes {}", a.shape, a.kernel, b.kernel));
    Checked { entry: format!("{arch} {} = {}", e.switch, e.value), problems, changes }
}

/// Kernels that some call may get by these tables though they are not exact.
pub fn inexact(tables: &Tables, arch: &str) -> Vec<String> {
    let all = decisions(tables, arch, &[]).into_iter().map(|d| d.kernel);
    let mut bad: Vec<String> = all.filter(|k| !registry::find(k).is_some_and(|k| k.exact)).collect();
    bad.sort_unstable();
    bad.dedup();
    bad
}

/// What a list of calls gets, always in the same order: the shapes at which dispatch changes in base values, and `near` those of an
/// entry.
fn decisions(tables: &Tables, arch: &str, near: &[usize]) -> Vec<Decision> {
    let mut all = Vec::new();
    let (mut queries, mut actives) = (vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 32, 33, 256], vec![0, 1, 511, 512, 2_047, 2_048, 2_049]);
    queries.extend(near.iter().copied().filter(|n| (1..=65_535).contains(n)));
    actives.extend([4_095, 8_192, 8_193, 9_217, 17_409, 32_768, 32_769, 33_793, 65_536]);
    actives.extend(near);
    for &q in &queries {
        for &active in &actives {
            let count = (active > 0).then_some(active);
            let shape = |op: &str| format!("{op}, {q} queries, {active} active of 65538 blocks");
            let scorer = tables.score.choose_on(arch, q, 65_538, count);
            let detail = if let Scorer::Thread { per_group } = scorer { per_group } else { 0 };
            all.push(Decision { shape: shape("scores"), kernel: scorer.kernel(q).unwrap_or_default().into(), detail });
            let k = tables.topk.choose_on(arch, q, 65_538, count);
            let detail = if k.is_cluster() { tables.topk.cluster_solo } else { 0 };
            all.push(Decision { shape: shape("top-k"), kernel: k.kernel().into(), detail });
        }
        for kind in KvKind::ALL.into_iter().filter(|k| *k != KvKind::F32) {
            let kernel = tables.attention.prompt_on(arch, kind, 12, q).or_else(|| tables.attention.chunk_on(arch, kind));
            let shape = format!("attention of {}, {q} queries", kind.name());
            all.push(Decision { shape, kernel: kernel.unwrap_or_default().into(), detail: 0 });
        }
    }
    // capacities decide where there is no count
    for blocks in [2_048, 2_049, 8_194, 9_217, 17_409, 33_793, 70_000, 100_000, 140_000] {
        let k = tables.topk.choose_on(arch, 1, blocks, None);
        all.push(Decision { shape: format!("top-k, 1 query, {blocks} blocks"), kernel: k.kernel().into(), detail: 0 });
    }
    let formats = FORMATS.into_iter().filter(|d| !d.is_float());
    let grid = formats.flat_map(|d| [1, 2, 3, 4, 5, 6, 8].map(|c| (d, c)));
    for (dtype, columns) in grid {
        for (n_out, units) in [640, 2_560, 12_288, 106_299, 248_320].into_iter().flat_map(|n| [(n, 32), (n, 132)]) {
            let variant = tables.mat_vec.variant_on(arch, dtype, columns, n_out, units);
            let shape = format!("mat-vec of {dtype}, {columns} columns, {n_out} rows, {units} units");
            all.push(Decision { shape, kernel: variant.kernel(dtype, columns), detail: 0 });
        }
    }
    for e in tables.mat_vec.measured() {
        let VariantEntry { dtype, columns, n_out, variant } = e;
        all.push(Decision {
            shape: format!("mat-vec of {dtype}, {columns}, {n_out}"),
            kernel: variant.kernel(*dtype, *columns),
            detail: 0,
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::TABLE;
    use super::*;

    #[test]
    fn every_entry_keeps_the_rules() {
        for c in check(TABLE) {
            assert!(c.problems.is_empty() && c.changes.is_some(), "{}: {:?}", c.entry, c.problems);
        }
    }

    #[test]
    fn base_values_are_exact_everywhere() {
        for arch in ["sm_75", "sm_90a", "sm_120", "gfx1030", "gfx1100", "gfx1201", "shim-cuda", "shim-gfx12", ""] {
            assert_eq!(inexact(&Tables::default(), arch), Vec::<String>::new(), "{arch}");
        }
        let mut t = Tables::default();
        assert!(t.set("attention.chunk.int8", "attn_chunk_int8_f32"));
        assert_eq!(inexact(&t, "gfx1030"), ["attn_chunk_int8_f32"]);
    }
}
