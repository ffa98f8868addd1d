//! The audit over the kernels of the repository, and over broken tables.

use super::*;

fn tables() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/resources")
}

/// The smaller kernels, for an architecture of each kind: everything is read, nothing is broken. All kernels for all architectures
/// are audited by `strata kernels audit`, which continuous integration runs.
#[test]
fn small_kernels_pass() {
    for (arch, word) in
        [("gfx1201", "v_wmma_i32_16x16x16_iu8"), ("gfx1100", "v_wmma_i32_16x16x16_iu8"), ("sm_80", "IMMA"), ("sm_120", "IMMA")]
    {
        let Some(file) = crate::testing::tools(compile_file("tests/lane.cu", arch)) else { continue };
        let find = |name: &str| file.resources.iter().find(|(n, _)| n == name).map(|(_, r)| r).expect("a kernel of the file");
        let shared = find("test_async");
        assert!(shared.registers > 4 && shared.code > 64 && shared.shared == 2048, "{arch}: {shared:?}");
        assert!(find("test_math").shared == 0 && find("test_math").spills == 0 && find("test_math").scratch == 0);
        let Some(functions) = &file.functions else { continue };
        for function in functions {
            assert!(function.code.len() > 8, "{arch} {}", function.name);
            assert_eq!(exec::check(function), [], "{arch} {}", function.name);
        }
        let matrix = functions.iter().find(|f| f.name == "test_matrix_s8").expect("disassembled");
        assert!(matrix.code.iter().any(|i| i.mnemonic().starts_with(word)), "{arch}");
    }
}

/// The committed tables can be read and speak of kernels that exist.
#[test]
fn committed_tables_are_of_this_registry() {
    for arch in COMMON {
        for row in Table::read(&tables(), arch).expect("well formed").into_iter().flat_map(|t| t.rows) {
            assert!(registry::find(&row.kernel).is_some_and(|k| k.runs_on(arch)), "{arch}: {}", row.kernel);
        }
        rules::published(&tables(), arch).expect("well formed");
    }
    let expected = rules::expected(&tables()).expect("well formed");
    for rule in &expected {
        let used = COMMON.iter().any(|arch| registry::all().any(|k| k.runs_on(arch) && rule.is_for(arch, k.name)));
        assert!(used, "a rule for no kernel: {}", rule.kernels);
    }
}

fn table(compiler: &str, kernel: &str, registers: u64) -> Table {
    let resources = Resources { registers, ..Resources::default() };
    Table { compiler: compiler.into(), rows: vec![Row { kernel: kernel.into(), resources, inner_loop: Some(5), occupancy: None }] }
}

fn compared(new: &Table, old: Option<&Table>) -> Vec<(bool, String)> {
    let mut findings = Vec::new();
    differences(new, old, &mut findings);
    findings.into_iter().map(|f| (f.fails, f.text)).collect()
}

#[test]
fn differences_fail_for_the_same_compiler_only() {
    let new = table("clang 22.1.4", "k", 24);
    assert!(compared(&new, Some(&new)).is_empty());
    assert!(compared(&new, None)[0].0);
    assert_eq!(compared(&new, Some(&table("clang 22.1.4", "k", 23))), [(true, "registers 24, committed 23".into())]);
    assert!(!compared(&new, Some(&table("clang 23.0.0", "k", 23)))[0].0);
    assert_eq!(compared(&new, Some(&table("clang 22.1.4", "other", 24))).len(), 2);
    let mut unmeasured = new.clone();
    unmeasured.rows[0].inner_loop = None;
    assert!(compared(&unmeasured, Some(&new)).is_empty());
}

/// NVRTC's own variation passes, more does not; what must not move may not.
#[test]
fn nvrtc_has_a_little_slack() {
    let old = table("NVRTC 13.5", "k", 100);
    assert!(compared(&table("NVRTC 13.5", "k", 102), Some(&old)).is_empty());
    assert_eq!(compared(&table("NVRTC 13.5", "k", 103), Some(&old)), [(true, "registers 103, committed 100".into())]);
    let mut spilled = old.clone();
    spilled.rows[0].resources.spills = 1;
    assert_eq!(compared(&spilled, Some(&old)), [(true, "spills 1, committed 0".into())]);
    assert_eq!(compared(&table("clang 22.1.8", "k", 101), Some(&table("clang 22.1.8", "k", 100))).len(), 1);
}

#[test]
fn spills_fail_and_scalar_spills_are_told() {
    let mut found = Vec::new();
    let r = Resources { spills: 1, scratch: 8, scalar_spills: 3, ..Resources::default() };
    spills(&r, &mut |fails, _| found.push(fails));
    assert_eq!(found, [true, true, false]);
}

#[test]
fn no_architecture_is_an_error() {
    for archs in ["", " ", ",", "sm_x"] {
        let options = Options { tables: &tables(), update: false, json: false };
        assert!(run(archs, options, &mut |_| {}).is_err(), "{archs:?}");
    }
}

#[test]
fn json_is_escaped() {
    let findings = [Finding { kernel: "k".into(), fails: true, text: "a \"b\"\n".into() }];
    let text = json("gfx1201", &table("c", "k", 1), &findings);
    assert!(text.contains(r#""text":"a \"b\"\u000a""#) && text.contains(r#""registers":1"#) && text.contains(r#""waves%":null"#), "{text}");
}
