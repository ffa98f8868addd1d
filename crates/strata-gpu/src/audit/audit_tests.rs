//! The audit over the kernels of the repository, and over broken tables.

use super::*;

fn tables() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/resources")
}

/// The committed state passes for every architecture whose compiler is here.
#[test]
fn the_kernels_pass() {
    for arch in COMMON.iter().filter(|a| compile::supports(a)) {
        let Some(findings) = crate::testing::tools(check(arch, &tables())) else { continue };
        let failed: Vec<String> = findings.iter().filter(|f| f.fails).map(|f| format!("{}: {}", f.kernel, f.text)).collect();
        assert!(failed.is_empty(), "{arch}:\n{}", failed.join("\n"));
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

#[test]
fn spills_fail_and_scalar_spills_are_told() {
    let mut found = Vec::new();
    let r = Resources { spills: 1, scratch: 8, scalar_spills: 3, ..Resources::default() };
    spills(&r, &mut |fails, _| found.push(fails));
    assert_eq!(found, [true, true, false]);
}

#[test]
fn json_is_escaped() {
    let findings = [Finding { kernel: "k".into(), fails: true, text: "a \"b\"\n".into() }];
    let text = json("gfx1201", &table("c", "k", 1), &findings);
    assert!(text.contains(r#""text":"a \"b\"\u000a""#) && text.contains(r#""registers":1"#) && text.contains(r#""waves%":null"#), "{text}");
}
