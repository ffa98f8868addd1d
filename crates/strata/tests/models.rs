//! Synthetic models, and figures of texts: `synth`, `--model synth:...`, `perplexity`, `kld`.

mod common;

use common::{Dir, fails, json, output, run, strata, text};
use serde_json::{Value, json};

const SMALL: [&str; 14] =
    ["synth", "--config", "refmodel", "--type", "Q4_K", "--layers", "4", "--experts", "6", "--ngram-rows", "2000", "--mtp", "--seed", "5"];
const SMALL_NAME: &str = "synth:refmodel:Q4_K,layers=4,experts=6,ngram_rows=2000,mtp=1,seed=5";

#[test]
fn a_file_and_its_name_are_one_model() {
    let dir = Dir::new("synth");
    let file = dir.file("s.gguf").display().to_string();
    let said = text(&[&SMALL[..], &[&file]].concat());
    assert!(said.starts_with(&format!("{file}: ")) && said.contains("parameters") && said.contains("seed 5"), "{said}");
    let again = dir.file("t.gguf").display().to_string();
    text(&[&SMALL[..], &[&again, "--threads", "5"]].concat());
    assert!(std::fs::read(&file).unwrap() == std::fs::read(&again).unwrap(), "bytes depend on threads");
    let all = |v: &Value| v["tensors"].as_array().unwrap().iter().map(|t| t["type"].clone()).collect::<Vec<_>>();
    let (a, b) = (json(&["inspect", &file, "--json"]), json(&["inspect", SMALL_NAME, "--json"]));
    assert_eq!(b["file"], SMALL_NAME);
    assert_eq!((all(&a), &a["metadata"]), (all(&b), &b["metadata"]));
    assert!(all(&a).contains(&json!("Q4_K")));

    let of = |model: &str, more: &[&str]| run(&[&["--model", model, "hello", "-n", "12", "--temp", "1", "--ignore-eos"], more].concat());
    let want = of(&file, &[]);
    assert_eq!(want["generated_tokens"], 12);
    for v in [of(SMALL_NAME, &[]), of(&file, &["--spec", "3", "--threads", "2", "--chunk", "1"]), of(SMALL_NAME, &["--simd", "scalar"])] {
        assert_eq!(v["token_hash"], want["token_hash"]);
    }
    assert_ne!(of(&SMALL_NAME.replace("seed=5", "seed=6"), &[])["token_hash"], want["token_hash"]);
    let out = output(&["run", "--model", SMALL_NAME, "hello", "-n", "1"]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("of random weights in memory, seed 5"));
    assert!(json(&["tokenize", "--model", SMALL_NAME, "hello", "--json"])["count"].as_u64().unwrap() > 2);
    assert_eq!(json(&["doctor", "--model", SMALL_NAME, "--json"])["model"]["attention_layers"], 1);
}

#[test]
fn impossible_models_name_the_field() {
    for (recipe, word) in [
        ("refmodel", "NAME:TYPE"),
        ("other:Q4_K", "'other'"),
        ("refmodel:Q9_K", "type: expected a tensor type"),
        ("refmodel:Q4_K,depth=2", "'depth'"),
        ("refmodel:Q4_K,hidden=100", "hidden: expected a multiple of 32, found 100"),
        ("refmodel:Q4_K,heads=5", "kv_heads: expected a divisor of the 5 query heads, found 2"),
        ("qwen3.8-flash-next:BF16,layers=480,experts=65536", "bytes of memory, expected at most"),
    ] {
        let e = fails(&mut strata(&["run", "--model", &format!("synth:{recipe}"), "x"]), 1);
        assert!(e.contains(word), "{recipe}: {e}");
    }
    let dir = Dir::new("synth-bad");
    let file = dir.file("x.gguf").display().to_string();
    for (flags, word) in [(["--type", "none"], "'none'"), (["--type", "Q4_K"], "used: expected at most the 4 experts, found 10")] {
        let e = fails(&mut strata(&[&["synth", &file, "--experts", "4"], &flags[..]].concat()), 1);
        assert!(e.contains(word), "{e}");
        assert!(!dir.file("x.gguf").exists(), "a file was left behind");
    }
    let e = fails(&mut strata(&["synth", "--type", "Q4_K", "--config", "refmodel", &format!("{file}/no/such/dir")]), 1);
    assert!(e.contains("no/such/dir"), "{e}");
}

const PROSE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/heldout_prose.txt");

fn figures(command: &[&str]) -> Value {
    json(&[command, &["--text", PROSE, "--ctx", "48", "--windows", "2", "--json"]].concat())
}

#[test]
fn perplexity_counts_what_it_says() {
    let v = figures(&["perplexity"]);
    assert_eq!((&v["text"]["scored"], &v["text"]["windows"], &v["text"]["stride"]), (&json!(96), &json!(2), &json!(48)));
    let (ppl, loss) = (v["perplexity"].as_f64().unwrap(), v["loss"].as_f64().unwrap());
    assert!((loss.exp() / ppl - 1.0).abs() < 1e-12 && (20.0..20_000.0).contains(&ppl), "{v}");
    assert!(v["error"].as_f64().unwrap() > 0.0 && v["tok_s"].as_f64().unwrap() > 0.0);
    // the same bits in other ways of computing
    let w = figures(&["perplexity", "--threads", "1", "--chunk", "7"]);
    assert_eq!(w["loss"], v["loss"]);
    // more context for the same tokens helps
    let s = figures(&["perplexity", "--stride", "24"]);
    assert_eq!(s["text"]["scored"], 48 + 24);
    let out = text(&["perplexity", "--text", PROSE, "--ctx", "48", "--windows", "2"]);
    assert_eq!(out, format!("perplexity {ppl:.4} +/- {:.4}\n", v["error"].as_f64().unwrap()));
    let e = fails(&mut strata(&["perplexity", "--text", PROSE, "--ctx", "48", "--stride", "49"]), 2);
    assert!(e.contains("--stride: expected at most the 48 tokens"), "{e}");
    let dir = Dir::new("perplexity");
    let e = fails(&mut strata(&["perplexity", "--text", &dir.write("short.txt", b"a")]), 2);
    assert!(e.contains("short.txt: expected a text of at least 2 tokens, found 1"), "{e}");
}

#[test]
fn divergence_is_zero_from_itself_and_only_then() {
    let same = figures(&["kld", "--base", "bundled"]);
    assert_eq!((&same["kl"]["mean"], &same["kl"]["max"], &same["same_top"]["share"]), (&json!(0.0), &json!(0.0), &json!(1.0)));
    assert_eq!(same["perplexity"], same["base_perplexity"]);
    assert_eq!(same["perplexity"], figures(&["perplexity"])["perplexity"]);
    let other = figures(&["kld", "--base", "bundled", "--kv", "q4_0", "--base-kv", "fp16"]);
    let kl = |name: &str| other["kl"][name].as_f64().unwrap();
    assert!(kl("mean") > 1e-4 && kl("median") <= kl("p99") && kl("p99") <= kl("max") && kl("error") > 0.0, "{other}");
    assert!(other["same_top"]["share"].as_f64().unwrap() < 1.0);

    let dir = Dir::new("kld");
    let saved = dir.file("logits").display().to_string();
    let save = ["kld", "--kv", "fp16", "--save-logits", &saved, "--text", PROSE, "--ctx", "48", "--windows", "2"];
    assert!(text(&save).contains("96 rows of 4096 logits"));
    let from_file = figures(&["kld", "--base-logits", &saved, "--kv", "q4_0"]);
    for name in ["kl", "same_top", "perplexity", "base_perplexity", "loss_difference"] {
        assert_eq!(from_file[name], other[name], "{name}");
    }
    let against =
        |file: &str, ctx: &str| fails(&mut strata(&["kld", "--base-logits", file, "--text", PROSE, "--ctx", ctx, "--windows", "2"]), 2);
    assert!(against(&saved, "32").contains("--ctx: expected 32, found 48"));
    let bytes = std::fs::read(&saved).unwrap();
    assert!(against(&dir.write("cut", &bytes[..bytes.len() - 1]), "48").contains("size: expected"));
    assert!(against(&dir.write("no", b"GGUF"), "48").contains("expected saved logits"));
    let out = output(&["kld", "--base", "synth:refmodel:Q4_K,layers=2", "--text", PROSE, "--ctx", "48"]);
    let e = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(2) && e.contains("ids that --model makes of the text"), "{e}");
    assert!(fails(&mut strata(&["kld", "--text", PROSE]), 2).contains("--base"));
}
