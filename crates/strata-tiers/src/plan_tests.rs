//! The planner: what holds for every model and machine, and the plans of some.

use crate::facts::{Choices, Facts, LayerExperts, Machine, ModelFacts, NgramMode, TableFacts};
use crate::plan::{Dense, Kind, Plan, TablePlace, plan, spread};
use proptest::prelude::*;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// The released model in low-bit formats, on a machine with this much memory.
fn released(ram: u64) -> Facts {
    Facts {
        machine: Machine {
            page: 4096,
            huge_page: Some(2 * MIB),
            available: ram,
            available_by: "memory available now",
            lock_limit: u64::MAX,
            swap: false,
        },
        model: ModelFacts {
            mapped: true,
            program: 120 * MIB,
            vectors: 30 * MIB,
            dense: 4 * GIB,
            embedding: 600 * MIB,
            layers: (0..48).map(|layer| LayerExperts { layer, experts: 512, expert_bytes: 2_329_600, tensors: 3 }).collect(),
            context: 32_768,
            used: 10,
            table: Some(TableFacts { bytes: 28_800_138_240, row_bytes: 90, per_token: 16 }),
            kv: 450 * MIB,
            work: 900 * MIB,
            sampling: 20 * MIB,
            ..ModelFacts::default()
        },
        choices: Choices { ram: None, resident_budget: None, ngram: NgramMode::Auto, row_cache: 64 * MIB, lock: true },
        direct: Ok(512),
    }
}

fn text(p: &Plan) -> Vec<(&'static str, &'static str, u64)> {
    p.lines.iter().map(|l| (l.item, l.kind.name(), l.bytes / MIB)).collect()
}

#[test]
fn sixty_four_gigabytes_hold_every_expert_of_the_released_model() {
    let p = plan(&released(64 * GIB));
    assert_eq!(
        text(&p),
        [
            ("program", "anonymous", 120),
            ("vectors", "anonymous", 30),
            ("KV cache", "anonymous", 450),
            ("states and scratch", "anonymous", 900),
            ("sampling", "anonymous", 20),
            ("row cache", "anonymous", 57),
            ("read queue", "anonymous", 2),
            ("dense weights", "anonymous", 4096),
            ("resident experts", "locked", 54_600),
            ("token embedding", "disk", 600),
            ("n-gram table", "disk", 27_465),
        ]
    );
    assert_eq!((p.resident.clone(), p.streamed_bytes, p.streamed_per_token), (vec![512; 48], 0, 0));
    assert_eq!(p.table, TablePlace::Direct { block: 512 });
    // 16 rows of 90 bytes in blocks of 512, some of them in two
    assert_eq!(p.disk_per_token, 16 * (512 + 89));
    assert!(p.warnings.is_empty());
}

#[test]
fn thirty_two_gigabytes_hold_the_same_share_of_every_layer() {
    let p = plan(&released(32 * GIB));
    assert_eq!(p.dense, Dense::Copied);
    assert!(p.resident.iter().all(|n| p.resident[0] - n <= 1), "{:?}", p.resident);
    assert_eq!((p.resident[0], p.resident[47]), (191, 190));
    let resident = p.lines.iter().find(|l| l.item == "resident experts").unwrap();
    assert_eq!(resident.reason, "the first 190 or 191 of a layer: what fits into 32.0 GiB beside the rest; locked");
    // of ten experts a layer, those that are not resident
    assert!((695_000_000..709_000_000).contains(&p.streamed_per_token), "{}", p.streamed_per_token);
    assert!(p.disk_per_token < p.streamed_per_token && p.disk_per_token > p.streamed_per_token * 3 / 4);
}

#[test]
fn a_machine_that_cannot_lock_reads_experts_in_and_says_so() {
    let mut f = released(64 * GIB);
    f.machine.lock_limit = 8 * MIB;
    let p = plan(&f);
    assert!(!p.lock_experts && p.locked == 0 && p.resident == vec![512; 48]);
    let line = p.lines.iter().find(|l| l.item == "resident experts").unwrap();
    assert_eq!((line.kind, line.reason.as_str()), (Kind::File, "all of them fit; read at load, not locked: the limit is 8.0 MiB"));
    f.machine.lock_limit = u64::MAX;
    f.choices.lock = false;
    assert!(plan(&f).lines.iter().any(|l| l.reason.ends_with("--mlock off")));
    // with swap the anonymous weights are locked too
    f.choices.lock = true;
    f.machine.swap = true;
    assert!(plan(&f).lock_dense && !plan(&released(64 * GIB)).lock_dense);
}

#[test]
fn dense_weights_that_do_not_fit_stay_in_the_file() {
    let p = plan(&released(5 * GIB));
    assert_eq!((p.dense, p.resident_bytes), (Dense::Mapped, 0));
    assert_eq!(p.warnings.len(), 1);
    assert!(p.disk_per_token > GIB / 2);
}

#[test]
fn tables_go_where_they_are_asked_to() {
    let mut f = released(64 * GIB);
    let at = |f: &Facts| plan(f).table;
    f.choices.ngram = NgramMode::Mmap;
    assert_eq!(at(&f), TablePlace::Mapped);
    f.choices.ngram = NgramMode::Auto;
    f.direct = Err("io_uring: not permitted".into());
    assert_eq!(at(&f), TablePlace::Mapped);
    assert!(plan(&f).lines.iter().any(|l| l.reason.contains("not permitted")));
    assert_eq!(plan(&f).row_cache, 0);
    f.model.table = Some(TableFacts { bytes: MIB, row_bytes: 90, per_token: 16 });
    f.direct = Ok(512);
    assert_eq!(at(&f), TablePlace::Plain, "a small table");
    f.choices.ngram = NgramMode::Direct;
    assert_eq!(at(&f), TablePlace::Direct { block: 512 });
    f.model.mapped = false;
    assert_eq!(at(&f), TablePlace::Plain, "a model that is part of the program");
}

#[test]
fn weights_as_f32_have_no_tiers() {
    let mut f = released(64 * GIB);
    f.model.as_f32 = Some(500 * GIB);
    let p = plan(&f);
    assert_eq!((p.resident_bytes, p.streamed_bytes, p.dense), (0, 0, Dense::Mapped));
    assert!(p.anonymous > 500 * GIB && p.warnings.len() == 1);
}

prop_compose! {
    fn facts()(
        ram in 0u64..80 * GIB, budget in prop::option::of(0u64..70 * GIB), lock_limit in prop_oneof![Just(u64::MAX), 0..GIB],
        swap in any::<bool>(), lock in any::<bool>(), mapped in prop::bool::weighted(0.9), dense in 0u64..8 * GIB, copied in 0u64..GIB,
        layers in prop::collection::vec((1u64..600, 1u64..10_000_000), 0..50), used in 1u64..12, table in prop::option::of(1u64..30 * GIB),
        sizes in [0u64..GIB, 0..GIB, 0..GIB, 0..GIB, 0..GIB, 0..GIB], direct in any::<bool>(), mode in 0usize..3, as_f32 in prop::option::weighted(0.1, 0u64..600 * GIB),
    ) -> Facts {
        let mut f = released(ram);
        f.machine.lock_limit = lock_limit;
        f.machine.swap = swap;
        f.choices = Choices { resident_budget: budget, lock, ngram: [NgramMode::Auto, NgramMode::Direct, NgramMode::Mmap][mode], ..f.choices };
        let [program, vectors, kv, work, sampling, prefix_cache] = sizes;
        f.model = ModelFacts {
            mapped, dense, copied, used, program, vectors, kv, work, sampling, prefix_cache, as_f32,
            layers: layers.into_iter().enumerate().map(|(layer, (experts, expert_bytes))| LayerExperts { layer, experts, expert_bytes, tensors: 3 }).collect(),
            table: table.map(|bytes| TableFacts { bytes, row_bytes: 90, per_token: 16 }),
            ..f.model
        };
        f.direct = if direct { Ok(4096) } else { Err("no".into()) };
        f
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn budgets_hold_and_totals_are_sums(f in facts()) {
        let p = plan(&f);
        let of = |kind| p.lines.iter().filter(|l| l.kind == kind).map(|l| l.bytes).sum::<u64>();
        prop_assert_eq!(p.anonymous, of(Kind::Anonymous));
        prop_assert_eq!(p.locked, of(Kind::Locked));
        prop_assert!(p.anonymous + p.resident_bytes <= p.ram || p.resident_bytes == 0);
        prop_assert!(p.anonymous <= p.ram || !p.warnings.is_empty());
        prop_assert!(f.choices.resident_budget.is_none_or(|b| p.resident_bytes <= b));
        let locked = p.locked + if p.lock_dense { f.model.dense } else { 0 };
        prop_assert!(locked <= f.machine.lock_limit);
        let experts: u64 = f.model.layers.iter().map(|l| l.experts * l.expert_bytes).sum();
        let streams = f.model.mapped && f.model.as_f32.is_none();
        prop_assert_eq!(p.resident_bytes + p.streamed_bytes, if streams { experts } else { 0 });
        prop_assert!(p.window <= p.streamed_bytes && p.disk_per_token <= p.streamed_per_token + f.model.dense + 16 * 8192);
        for (n, l) in p.resident.iter().zip(&f.model.layers) {
            prop_assert!(*n <= l.experts);
        }
    }

    #[test]
    fn more_memory_never_holds_less(f in facts(), more in 0u64..20 * GIB) {
        let less = plan(&f);
        let mut g = f.clone();
        g.machine.available += more;
        let p = plan(&g);
        prop_assert!(p.resident_bytes >= less.resident_bytes);
        prop_assert!(p.streamed_per_token <= less.streamed_per_token);
        g = f.clone();
        g.choices.resident_budget = f.choices.resident_budget.map(|b| b + more);
        prop_assert!(plan(&g).resident_bytes >= less.resident_bytes);
    }

    #[test]
    fn experts_are_spread_evenly(n in 1usize..20, experts in 1u64..100, bytes in 1u64..1000, budget in 0u64..3_000_000) {
        let layers = vec![LayerExperts { layer: 0, experts, expert_bytes: bytes, tensors: 3 }; n];
        let s = spread(&layers, budget);
        let taken: u64 = s.iter().sum::<u64>() * bytes;
        prop_assert!(taken <= budget && s.iter().max().unwrap() - s.iter().min().unwrap() <= 1);
        // nothing that would have fitted was left out
        prop_assert!(taken + bytes > budget || s.iter().all(|x| *x == experts));
    }
}
