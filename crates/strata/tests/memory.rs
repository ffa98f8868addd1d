//! Tiers: no setting of memory changes a token, and reports say where weights are.

mod common;

use common::{Dir, MODEL, fails, json, rewrite, run, strata, text};
use serde_json::Value;

const ARGS: [&str; 9] = ["--model", MODEL, "--ids", "1,300,7,2045,16,77,900,12", "-n", "24", "--ignore-eos", "--ctx", "512"];

fn with(more: &[&str]) -> Value {
    run(&[&ARGS[..], more].concat())
}

/// Whether rows can be read past the page cache here: containers often forbid it.
fn direct_is_possible() -> bool {
    strata(&[&["run", "--json", "--ngram", "direct"], &ARGS[..]].concat()).output().unwrap().status.success()
}

#[test]
fn no_setting_of_memory_changes_a_token() {
    let bundled = run(&["--ids", ARGS[3], "-n", "24", "--ignore-eos"]);
    let mut ways: Vec<Vec<&str>> = vec![
        vec![],
        vec!["--ngram", "mmap"],
        vec!["--resident-budget", "0"],
        vec!["--resident-budget", "0", "--lookahead", "off"],
        vec!["--resident-budget", "5MiB", "--mlock", "off"],
        vec!["--resident-budget", "0", "--ngram", "mmap", "--chunk", "3"],
        vec!["--resident-budget", "0", "--spec", "3", "--threads", "1"],
        // too little for anything: dense weights stay in the file
        vec!["--ram", "10MiB"],
        vec!["--ram", "300MiB"],
    ];
    if direct_is_possible() {
        ways.push(vec!["--ngram", "direct"]);
        ways.push(vec!["--ngram", "direct", "--ngram-cache", "0", "--spec", "2"]);
        ways.push(vec!["--ngram", "direct", "--ngram-cache", "1KiB", "--resident-budget", "2MiB", "--chunk", "2"]);
    }
    for way in ways {
        let v = with(&way);
        assert_eq!(v["token_hash"], bundled["token_hash"], "{way:?}");
    }
}

#[test]
fn reports_count_experts_and_rows() {
    // the number of drafts follows measured times, and drafts need experts
    let with = |more: &[&str]| with(&[&["--spec", "0"], more].concat());
    let v = with(&["--resident-budget", "0"]);
    let e = &v["memory"]["experts"];
    let n = |name: &str| e[name].as_u64().unwrap();
    assert!(n("needed") > 0 && n("resident") == 0 && n("streamed") == n("needed"), "{e}");
    assert!(n("guesses") >= n("guessed") && n("guessed") > 0 && n("streamed_bytes") > 0, "{e}");
    assert_eq!(v["memory"]["plan"]["resident_bytes"], 0);
    let off = with(&["--resident-budget", "0", "--lookahead", "off"]);
    assert_eq!((&off["memory"]["experts"]["guesses"], &off["memory"]["experts"]["needed"]), (&0.into(), &e["needed"]));

    let all = with(&["--ngram", "mmap"]);
    let e = &all["memory"]["experts"];
    assert_eq!((&e["resident"], &e["streamed"]), (&e["needed"], &0.into()));
    // 16 rows for each of 8 + 23 tokens
    assert_eq!(all["memory"]["ngram"]["rows"], 16 * 31);
    assert_eq!(all["memory"]["plan"]["ngram"], "mmap");
    assert!(all["memory"]["measured"]["anonymous_bytes"].as_u64().unwrap() > 1 << 20);
    if direct_is_possible() {
        let v = with(&["--ngram", "direct"]);
        let n = &v["memory"]["ngram"];
        assert!(n["reads"].as_u64().unwrap() > 0 && n["late"] == 0 && n["rows"] == 16 * 31, "{n}");
        // a row is read once: what comes back is in the cache
        let again = with(&["--ngram", "direct", "--ngram-cache", "0"]);
        assert!(again["memory"]["ngram"]["cached"] == 0);
    }
}

#[test]
fn reads_past_the_page_cache_are_an_error_where_they_cannot_be() {
    let line = fails(&mut strata(&["run", "hi", "--ngram", "direct"]), 1);
    assert_eq!(line, "--ngram direct: expected reads past the page cache, found a model that is part of the program");
}

#[test]
fn doctor_plans_for_memory_that_is_not_there() {
    let plan = |args: &[&str]| json(&[&["doctor", "--json", "--model", MODEL, "--ctx", "4096"], args].concat())["plan"].clone();
    let (big, small) = (plan(&["--ram", "48GiB"]), plan(&["--ram", "300MiB", "--resident-budget", "4MiB"]));
    assert_eq!((&big["ram_bytes"], &big["ram_is"], &big["streamed_bytes"]), (&(48u64 << 30).into(), &"--ram".into(), &0.into()));
    let resident = small["resident_bytes"].as_u64().unwrap();
    assert!(resident <= 4 << 20 && resident > 3 << 20 && small["streamed_bytes_per_token"].as_u64().unwrap() > 0, "{small}");
    for p in [&big, &small] {
        let sum = |kind: &str| -> u64 {
            let lines = p["lines"].as_array().unwrap();
            lines.iter().filter(|l| l["kind"] == kind).map(|l| l["bytes"].as_u64().unwrap()).sum()
        };
        assert_eq!(p["anonymous_bytes"], sum("anonymous"));
        assert_eq!(p["locked_bytes"], sum("locked"));
        assert!(p["lines"].as_array().unwrap().iter().all(|l| !l["reason"].as_str().unwrap().is_empty()));
    }
    // a longer context takes more
    let long = json(&["doctor", "--json", "--model", MODEL, "--ctx", "32768"])["plan"]["anonymous_bytes"].as_u64();
    assert!(long > plan(&[])["anonymous_bytes"].as_u64());
    let t = text(&["doctor", "--model", MODEL, "--ram", "48GiB"]);
    assert!(t.contains("memory plan for 48.0 GiB (--ram)") && t.contains("anonymous + locked"), "{t}");
    assert!(fails(&mut strata(&["doctor", "--ram", "lots"]), 2).contains("--ram"));
}

/// Puts an infinite scale into the first block of expert `expert` of a stack of 24.
fn break_expert(dir: &Dir, tensor: &'static str, expert: usize) -> String {
    rewrite(
        &dir.file(&format!("{tensor}-{expert}.gguf")),
        |_| true,
        |_, v| Some(v.clone()),
        move |name, bytes| {
            if name == tensor {
                let at = bytes.len() / 24 * expert;
                bytes[at..at + 2].copy_from_slice(&0x7c00u16.to_le_bytes());
            }
        },
    )
}

#[test]
fn scales_that_are_not_finite_are_found_at_load_or_when_they_are_used() {
    let dir = Dir::new("scales");
    let ids = |file: &str, more: &[&str]| {
        strata(&[&["run", "--json", "--ids", ARGS[3], "-n", "24", "--ignore-eos", "--model", file], more].concat())
    };
    // the expert that the run with a free choice uses most is used for sure
    let tensor = "blk.2.ffn_down_exps.weight";
    let used = (0..24).find(|e| !ids(&break_expert(&dir, tensor, *e), &["--resident-budget", "0"]).output().unwrap().status.success());
    let used = used.expect("some expert of 24 is used");
    let file = break_expert(&dir, tensor, used);
    for more in [&["--resident-budget", "0"][..], &[]] {
        let line = fails(&mut ids(&file, more), 1);
        assert!(line.starts_with(&format!("{file}: tensor {tensor} (Q8_0): block ")) && line.ends_with("not finite"), "{line}");
    }
    // one that no token uses does not stop a run that streams it, and one that keeps it resident refuses it at load
    let unused =
        (0..24).rev().find(|e| ids(&break_expert(&dir, tensor, *e), &["--resident-budget", "0"]).output().unwrap().status.success());
    if let Some(unused) = unused {
        assert!(fails(&mut ids(&break_expert(&dir, tensor, unused), &[]), 1).contains(tensor));
    }
}
