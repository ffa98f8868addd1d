//! `arch_defaults_test`: the table of defaults keeps its rules. It needs no device and asks none.

use crate::defaults::check::{RULES, check};
use crate::defaults::{Dispatch, Entry, TABLE, Value};
use crate::device::Device;
use crate::error::Result;
use strata_cpu::parity::CaseReport;

/// Entries that break a rule each: a word of what must be said of it.
const INVENTED: [(Entry, &str); 6] = [
    (entry("score.matrix", "1", &["qsa_scores_bf16"]), "not exact"),
    (entry("attention.chunk.int8", "attn_chunk_int8_f32", &["attn_chunk_int8_f32"]), "not exact"),
    (entry("topk.reg_least", "4096", &["qsa_topk_ref"]), "no switch"),
    (entry("topk.reg_min", "2048", &["qsa_topk_ref"]), "no dispatch"),
    (entry("score.rows", "256", &["qsa_scores_rows1"]), "no switch"),
    (entry("topk.cluster_queries", "0", &["qsa_topk_reg9"]), "does not name"),
];

const fn entry(switch: &'static str, value: &'static str, kernels: &'static [&'static str]) -> Entry {
    Entry { archs: &["sm_90a"], switch, value, kernels }
}

/// Names that are no architecture of the table.
const UNKNOWN: [&str; 12] =
    ["", " ", "gfx", "gfx1", "gfx11510", "gfx120", "gfx1201x", "gfx1201:xnack", "sm_", "sm_90aa", "sm_80:xnack-", "GFX1201"];

/// The cases, for any device.
///
/// # Errors
/// None: the form is that of every suite.
pub fn arch_defaults_test(_device: &Device, _full: bool, report: &mut dyn FnMut(CaseReport)) -> Result<()> {
    arch_defaults_cases(report);
    Ok(())
}

/// Every entry exists, is exact and changes a dispatch; explicit values stay; opting out leaves base values; unknown names give
/// nothing; features are accepted; and entries that break a rule are reported.
pub fn arch_defaults_cases(report: &mut dyn FnMut(CaseReport)) {
    let mut case = |case: String, compared: u64, differing: u64| {
        report(CaseReport { suite: "arch_defaults_test", case, compared, differing, max_err64: None });
    };
    for c in check(TABLE) {
        let said = if c.problems.is_empty() { c.changes.unwrap_or_default() } else { c.problems.join("; ") };
        case(format!("{}: {said}", c.entry), RULES, c.problems.len() as u64);
    }
    let mut archs: Vec<&str> = TABLE.iter().flat_map(|e| e.archs.iter().copied()).collect();
    archs.sort_unstable();
    archs.dedup();
    let (mut kept, mut lost) = (0, 0);
    for arch in &archs {
        for switch in own(arch) {
            // another value than the default's, first and last
            let other = Dispatch::base().values().into_iter().find(|v| v.name == switch.name).map(|v| v.value).unwrap_or_default();
            let mut before = Dispatch::base();
            before.set(&switch.name, &other);
            before.add_arch(arch);
            let mut after = Dispatch::base();
            after.add_arch(arch);
            after.set(&switch.name, &other);
            for d in [before, after] {
                kept += 1;
                lost += u64::from(!d.values().iter().any(|v| v.name == switch.name && v.value == other));
            }
        }
    }
    case("explicit values stay".into(), kept, lost);
    let opted = archs.iter().filter(|a| with_environment(a, Some("off")) != Dispatch::base()).count();
    let not =
        archs.iter().filter(|a| [None, Some(""), Some("on")].iter().any(|v| with_environment(a, *v).values() == Dispatch::base().values()));
    case("opting out empties the table, nothing else does".into(), 2 * archs.len() as u64, (opted + not.count()) as u64);
    let given = UNKNOWN.iter().filter(|a| !own(a).is_empty()).count();
    case("unknown names give nothing".into(), UNKNOWN.len() as u64, given as u64);
    let amd: Vec<&&str> = archs.iter().filter(|a| a.starts_with("gfx")).collect();
    let featured = amd.iter().filter(|a| own(&format!("{a}:sramecc-:xnack-")) != own(a)).count();
    case("features are accepted".into(), amd.len() as u64, featured as u64);
    let missed = INVENTED.iter().filter(|(e, word)| !check(&[*e]).iter().all(|c| c.problems.iter().any(|p| p.contains(word)))).count();
    case("entries that break a rule are reported".into(), INVENTED.len() as u64, missed as u64);
}

/// The values that an architecture changes.
fn own(arch: &str) -> Vec<Value> {
    let mut d = Dispatch::base();
    d.add_arch(arch);
    let base = Dispatch::base().values();
    d.values().into_iter().filter(|v| !base.contains(v)).collect()
}

fn with_environment(arch: &str, value: Option<&str>) -> Dispatch {
    Dispatch::with_environment(arch, value.map(AsRef::as_ref))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_keep_their_rules() {
        let mut cases = 0;
        arch_defaults_cases(&mut |c| {
            assert!(c.differing == 0 && c.compared > 0, "{}: {} of {}", c.case, c.differing, c.compared);
            cases += 1;
        });
        assert!(cases > 20, "{cases}");
    }

    #[test]
    fn broken_entries_are_reported_one_by_one() {
        for (e, word) in INVENTED {
            let found = check(&[e]);
            assert!(found[0].problems.iter().any(|p| p.contains(word)), "{}: {:?}", found[0].entry, found[0].problems);
        }
    }
}
