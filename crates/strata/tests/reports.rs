//! `inspect`, `tokenize`, `doctor`, `parity --list` and `--help`.

mod common;

use common::{Dir, MODEL, fails, json, strata, text};
use serde_json::json;

#[test]
fn inspect_shows_keys_types_and_tensors() {
    let v = json(&["inspect", MODEL, "--json"]);
    assert_eq!((&v["version"], &v["bytes"]), (&json!(3), &json!(25_285_248)));
    assert_eq!(v["tensors"].as_array().unwrap().len(), 246);
    assert_eq!(v["metadata"]["general.architecture"], json!({"type": "string", "value": "qwen4exp"}));
    assert_eq!(v["metadata"]["tokenizer.ggml.tokens"]["value"]["length"], 4096);
    let sum = |field: &str| v["types"].as_array().unwrap().iter().map(|t| t[field].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum("tensors"), 246);
    assert!(sum("bytes") < 25_285_248 && sum("bytes") > 24_000_000);
    let full = json(&["inspect", MODEL, "--json", "--full"]);
    assert_eq!(full["metadata"]["tokenizer.ggml.tokens"]["value"].as_array().unwrap().len(), 4096);

    let t = text(&["inspect"]);
    assert!(t.starts_with("refmodel-q8_0 (bundled)\n"));
    assert!(t.contains("general.architecture = string \"qwen4exp\"") && t.contains("Q8_0") && t.contains("the 10 largest tensors"), "{t}");
    assert_eq!(
        text(&["inspect", MODEL, "--tensors"]).matches("blk.7.").count(),
        v["tensors"].as_array().unwrap().iter().filter(|t| t["name"].as_str().unwrap().starts_with("blk.7.")).count()
    );
}

#[test]
fn inspect_shows_files_that_are_no_model_of_ours_and_refuses_what_is_no_gguf() {
    let dir = Dir::new("inspect");
    let f = common::shared_mtp(&dir);
    assert_eq!(json(&["inspect", &f, "--json"])["tensors"].as_array().unwrap().len(), 32);
    let f = dir.write("no.gguf", b"GG");
    assert!(fails(&mut strata(&["inspect", &f, "--json"]), 1).starts_with(&format!("{f}: ")));
}

#[test]
fn tokenize_goes_both_ways() {
    let v = json(&["tokenize", "Hello <|im_end|> wörld", "--json"]);
    assert_eq!(v["text"], "Hello <|im_end|> wörld");
    assert!(!v["ids"].as_array().unwrap().contains(&json!(4089)));
    let special = json(&["tokenize", "Hello <|im_end|> wörld", "--special", "--json"]);
    assert!(special["ids"].as_array().unwrap().contains(&json!(4089)) && special["count"].as_u64() < v["count"].as_u64());
    let ids = text(&["tokenize", "Hello wörld", "--ids-only"]);
    assert_eq!(text(&["tokenize", "--ids", ids.trim()]), "Hello wörld\n");
    let lines = text(&["tokenize", "Hello wörld"]);
    assert_eq!(lines.lines().count(), ids.split(',').count() + 1);
    assert_eq!(text(&["tokenize", ""]), "0 tokens\n");
    assert!(fails(&mut strata(&["tokenize", "--ids", "5000"]), 1).starts_with("token id 5000 at position 0 is out of range"));
}

#[test]
fn doctor_lists_every_switch_with_its_origin() {
    let mut c = strata(&["doctor", "--json", "--spec", "2"]);
    let out = c.env("STRATA_CHUNK", "64").output().unwrap();
    let v: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let all = v["settings"].as_array().unwrap();
    let find = |name: &str| all.iter().find(|s| s["name"] == name).unwrap_or_else(|| panic!("no switch {name}"));
    assert_eq!(
        find("chunk"),
        &json!({"name": "chunk", "flag": "--chunk", "env": "STRATA_CHUNK", "value": 64, "origin": "env", "default": "512", "exact": true})
    );
    assert_eq!((&find("spec")["origin"], &find("kv")["exact"], &find("temp")["exact"]), (&json!("flag"), &json!(false), &json!(false)));
    assert!(v["memory"]["total_bytes"].is_null() || v["memory"]["total_bytes"].as_u64() > v["memory"]["available_bytes"].as_u64());
    assert_eq!((&v["cpu"]["keeps_subnormals"], &v["model"]["vocabulary"]), (&json!(true), &json!(4096)));
    assert_eq!(v["model"]["kv_bytes_per_token"]["int8"], 2 * (2 * 2 * (256 + 8) + 128));
    assert!(v["ops"].as_array().unwrap().iter().all(|o| o["exact"] == true && o["level"] == v["cpu"]["simd"]));
    // every flag of `run` that has an environment variable is a switch
    let help = text(&["run", "--help"]);
    let variables: Vec<&str> = help.split("[env: ").skip(1).map(|s| s.split('=').next().unwrap()).collect();
    assert!(variables.len() >= 20);
    for v in variables {
        assert!(all.iter().any(|s| s["env"] == v), "{v} is in no report");
    }
    let looked_for: Vec<&str> = v["gpu"]["looked_for"].as_array().unwrap().iter().map(|p| p["what"].as_str().unwrap()).collect();
    assert_eq!(looked_for, ["CUDA driver", "HIP driver", "NVRTC", "clang"]);
    let t = text(&["doctor", "--kv", "q4_0"]);
    assert!(t.lines().any(|l| l.split_whitespace().take(3).eq(["--kv", "q4_0", "flag"])), "{t}");
}

#[test]
fn parity_lists_its_suites() {
    let t = text(&["parity", "--list"]);
    for name in
        ["ops_parity", "matmul_parity", "qsa_scores_parity", "qsa_topk_active_parity", "qsa_attn_parity", "engine_hash", "format_hash"]
    {
        assert!(t.lines().any(|l| l.starts_with(name)), "{t}");
    }
    assert_eq!(text(&["parity", "--list", "engine"]).lines().count(), 1);
}

#[test]
fn gpu_defaults_keep_their_rules() {
    let mut c = strata(&["parity", "--json", "arch_defaults_test"]);
    let out = c.env("STRATA_ARCH_DEFAULTS", "off").output().unwrap();
    let v: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let suite = &v["suites"][0];
    assert_eq!((&suite["suite"], &suite["differing"], &suite["passed"]), (&json!("arch_defaults_test"), &json!(0), &json!(true)));
}

#[test]
fn audits_of_nothing_fail_with_a_reason() {
    assert!(fails(&mut strata(&["kernels", "audit"]), 2).contains("--arch"));
    assert!(fails(&mut strata(&["kernels", "audit", "--arch", "riscv"]), 1).contains("riscv"));
}

#[test]
fn every_flag_is_documented() {
    for command in ["run", "chat", "inspect", "tokenize", "doctor", "parity", "bench", "perplexity", "kld", "synth"] {
        let help = text(&[command, "--help"]);
        let lines: Vec<&str> = help.lines().collect();
        for (i, l) in lines.iter().enumerate().filter(|(_, l)| l.trim_start().starts_with('-') && !l.trim_start().starts_with("- ")) {
            let on_line = l.trim_start().split_once("  ").is_some_and(|(_, about)| !about.trim().is_empty());
            let below = lines.get(i + 1).is_some_and(|n| !n.trim().is_empty() && !n.trim_start().starts_with('-'));
            assert!(on_line || below, "{command}: {l}");
        }
    }
    assert!(text(&["chat", "--help"]).contains("[default: 0.7]"));
    assert!(text(&["--version"]).starts_with("strata "));
}
