//! `strata run`: what it prints, and that nothing but the settings that may change an answer does.

mod common;

use common::{Dir, MODEL, fails, output, run, strata, text};
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

const QUESTION: &str =
    "The ticket number of Sophia is 392. The ticket number of Ethan Fischer is 1445.\nWhat was the ticket number of Sophia?";

/// FNV-1a as its authors publish it, for the ids of a report.
fn hash(v: &Value) -> String {
    let mut h = 0xcbf2_9ce4_8422_2325u64;
    for id in v["token_ids"].as_array().unwrap() {
        for b in (id.as_u64().unwrap() as u32).to_le_bytes() {
            h = (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    format!("{h:016x}")
}

#[test]
fn json_has_every_field_and_the_text_run_prints_the_same_answer() {
    let v = run(&[QUESTION, "--spec", "3"]);
    assert_eq!(v["text"], "The ticket number of Sophia is 392.");
    let ids = v["token_ids"].as_array().unwrap();
    assert_eq!(ids.last(), Some(&json!(4089)), "the stop token is part of the ids");
    assert_eq!(v["token_hash"], hash(&v));
    assert_eq!(v["generated_tokens"], ids.len());
    assert_eq!(v["finish_reason"], "stop_token");
    assert_eq!(v["prompt_mode"], "chat");
    assert!(v["prompt_tokens"].as_u64().unwrap() > 20);
    assert!(v["prefill_tok_s"].as_f64().unwrap() > 0.0 && v["decode_tok_s"].as_f64().unwrap() > 0.0);
    assert!((0.5..=1.0).contains(&v["acceptance"].as_f64().unwrap()));
    let names = [
        "model",
        "mtp",
        "ctx",
        "kv",
        "act",
        "spec",
        "spec_min_p",
        "mtp_dense",
        "threads",
        "chunk",
        "simd",
        "ram",
        "resident_budget",
        "ngram",
        "ngram_cache",
        "mlock",
        "lookahead",
        "n",
        "temp",
        "top_k",
        "top_p",
        "min_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "penalty_last_n",
        "seed",
        "stop",
        "ignore_eos",
        "raw",
        "chat",
        "system",
        "think",
        "logprobs",
    ];
    for name in names {
        assert!(v["settings"].get(name).is_some(), "no setting {name}");
        assert!(v["origins"].get(name).is_some(), "no origin of {name}");
    }
    assert_eq!(v["settings"].as_object().unwrap().len(), names.len());
    assert_eq!((&v["settings"]["spec"], &v["origins"]["spec"]), (&json!(3), &json!("flag")));
    assert_eq!((&v["settings"]["kv"], &v["origins"]["kv"]), (&json!("int8"), &json!("default")));

    let out = output(&["run", QUESTION]);
    assert_eq!(String::from_utf8_lossy(&out.stdout), "The ticket number of Sophia is 392.\n");
    let stats = String::from_utf8_lossy(&out.stderr);
    assert!(stats.starts_with("prompt ") && stats.contains("tok/s") && stats.trim_end().ends_with("ended by stop_token"), "{stats}");
    assert!(run(&[QUESTION, "--spec", "0"])["acceptance"].is_null());
}

#[test]
fn prompts_come_from_arguments_files_standard_input_and_ids() {
    let dir = Dir::new("prompts");
    let file = dir.write("prompt.txt", "Call me".as_bytes());
    let want = run(&["Call me", "--raw", "-n", "6"]);
    assert_eq!(run(&["--prompt-file", &file, "--raw", "-n", "6"])["token_hash"], want["token_hash"]);
    let ids = text(&["tokenize", "Call me", "--ids-only"]);
    let by_ids = run(&["--ids", ids.trim(), "-n", "6"]);
    assert_eq!(by_ids["token_hash"], want["token_hash"]);
    assert_eq!((&by_ids["prompt_mode"], &by_ids["settings"]["raw"]), (&json!("ids"), &json!(true)));

    let mut child = strata(&["run", "-", "--raw", "-n", "6", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"Call me").unwrap();
    let v: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(v["token_hash"], want["token_hash"]);
    assert_ne!(run(&["Call me", "-n", "6"])["token_hash"], want["token_hash"], "the chat template is the default");
}

#[test]
fn the_environment_sets_what_flags_do_and_flags_win() {
    let run = |extra: &[&str]| -> Value {
        let mut c = strata(&[&["run", "--json", "--raw", "Call me", "-n", "2"], extra].concat());
        c.env("STRATA_KV", "q4_0").env("STRATA_THREADS", "1").env("STRATA_IGNORE_EOS", "yes").env("STRATA_TEMP", "0.25");
        serde_json::from_slice(&c.output().unwrap().stdout).unwrap()
    };
    let v = run(&[]);
    for (name, value) in [("kv", json!("q4_0")), ("threads", json!(1)), ("ignore_eos", json!(true)), ("temp", json!(0.25))] {
        assert_eq!((&v["settings"][name], &v["origins"][name]), (&value, &json!("env")), "{name}");
    }
    let v = run(&["--kv", "k8v4"]);
    assert_eq!((&v["settings"]["kv"], &v["origins"]["kv"]), (&json!("k8v4"), &json!("flag")));
    let bad = fails(strata(&["run", "x"]).env("STRATA_THREADS", "0"), 2);
    assert!(bad.contains("invalid value '0'") && bad.contains("--threads"), "{bad}");
}

#[test]
fn answers_end_where_they_are_told_to() {
    let whole = run(&["Call me", "--raw", "-n", "40", "--ignore-eos"]);
    assert_eq!((&whole["generated_tokens"], &whole["finish_reason"]), (&json!(40), &json!("length")));
    let all = whole["text"].as_str().unwrap();
    // a stop string in the middle: the text ends before it, and the ids with the token that completed it
    let at = (all.len() / 2..).find(|i| all.is_char_boundary(*i)).unwrap();
    let stop: String = all[at..].chars().take(5).collect();
    let v = run(&["Call me", "--raw", "-n", "40", "--ignore-eos", "--stop", &stop, "--stop", "\u{1}never"]);
    assert_eq!((v["text"].as_str().unwrap(), &v["finish_reason"]), (&all[..all.find(&stop).unwrap()], &json!("stop_string")));
    let (some, ids) = (v["token_ids"].as_array().unwrap(), whole["token_ids"].as_array().unwrap());
    assert!(some.len() < 40 && ids.starts_with(some));
    // speculation gives several tokens at a time and must end at the same ones
    let spec = run(&["Call me", "--raw", "-n", "40", "--ignore-eos", "--stop", &stop, "--spec", "4"]);
    assert_eq!((&spec["token_ids"], &spec["text"]), (&v["token_ids"], &v["text"]));
    let n = run(&["Call me", "--raw", "-n", "7", "--ignore-eos", "--spec", "4"]);
    assert_eq!(n["token_ids"].as_array().unwrap()[..], ids[..7]);
    // the context ends it
    let full = run(&["Call me", "--raw", "--ctx", "16", "--ignore-eos"]);
    assert_eq!(full["finish_reason"], "context");
    assert!(ids.starts_with(full["token_ids"].as_array().unwrap()));
}

#[test]
fn log_probabilities_are_those_of_the_tokens() {
    let v = run(&["Call me", "--raw", "-n", "4", "--logprobs", "3"]);
    let (ids, all) = (v["token_ids"].as_array().unwrap(), v["logprobs"].as_array().unwrap());
    assert_eq!(ids.len(), all.len());
    for (id, l) in ids.iter().zip(all) {
        assert_eq!(&l["id"], id);
        let top = l["top"].as_array().unwrap();
        assert_eq!((top.len(), &top[0]["id"], &top[0]["logprob"]), (3, id, &l["logprob"]), "greedy takes the most probable");
        assert!(l["logprob"].as_f64().unwrap() <= 0.0);
    }
}

#[test]
fn sampling_follows_its_flags() {
    let sampled = |seed: &str, more: &[&str]| {
        run(&[&["Call me", "--raw", "-n", "24", "--temp", "1.2", "--seed", seed], more].concat())["token_hash"].clone()
    };
    let one = sampled("1", &[]);
    assert_eq!(one, sampled("1", &["--chunk", "1", "--spec", "2"]));
    assert_ne!(one, sampled("2", &[]));
    let greedy = run(&["Call me", "--raw", "-n", "24"])["token_hash"].clone();
    assert_eq!(sampled("1", &["--top-k", "1"]), greedy);
    let penalised =
        |flags: &[&str]| run(&[&["one two one two one two one two", "--raw", "-n", "24"], flags].concat())["token_hash"].clone();
    let plain = penalised(&[]);
    for flags in [&["--repetition-penalty", "2"][..], &["--presence-penalty", "2"], &["--frequency-penalty", "2"]] {
        assert_ne!(penalised(flags), plain, "{flags:?}");
        assert_eq!(penalised(&[flags, &["--penalty-last-n", "0"]].concat()), plain, "{flags:?}");
    }
}

#[test]
fn system_and_thinking_reach_the_template() {
    let ids = |args: &[&str]| run(&[&["Hi", "-n", "1"], args].concat())["prompt_tokens"].as_u64().unwrap();
    assert!(ids(&["--system", "Be brief."]) > ids(&[]));
    assert!(ids(&["--think"]) < ids(&[]), "without thinking the prompt has an empty block of it");
}

#[test]
fn trunk_and_mtp_in_two_files_give_the_answer_of_one() {
    let dir = Dir::new("split");
    let (trunk, mtp) = (common::trunk(&dir), common::shared_mtp(&dir));
    let with = |args: &[&str]| run(&[&[QUESTION, "-n", "40", "--ignore-eos"], args].concat());
    let one = with(&["--model", MODEL, "--spec", "4"]);
    let two = with(&["--model", &trunk, "--mtp", &mtp, "--spec", "4"]);
    assert_eq!(one["token_hash"], two["token_hash"]);
    assert_eq!(
        (&one["drafted_tokens"], &one["accepted_tokens"]),
        (&two["drafted_tokens"], &two["accepted_tokens"]),
        "the drafts are the same too"
    );
    assert!(one["acceptance"].as_f64().unwrap() > 0.3);
    assert_eq!(with(&["--model", &trunk])["token_hash"], one["token_hash"]);
    assert_eq!(with(&[])["token_hash"], one["token_hash"], "the bundled model is the file");
    let e = fails(&mut strata(&["run", "x", "--model", &trunk, "--spec", "2"]), 2);
    assert_eq!(e, "spec: expected 0, for a model without an MTP block, found 2");
    let e = fails(&mut strata(&["run", "x", "--model", MODEL, "--mtp", &trunk]), 1);
    assert!(e.contains("trunk.gguf holds no MTP block"), "{e}");
}

#[test]
fn f32_activations_bring_f32_caches_and_other_numbers() {
    let v = run(&["Call me", "--raw", "-n", "3", "--act", "f32", "--logprobs", "0"]);
    assert_eq!((&v["settings"]["kv"], &v["origins"]["kv"]), (&json!("f32"), &json!("default")));
    let w = run(&["Call me", "--raw", "-n", "3", "--act", "f32", "--kv", "int8", "--logprobs", "0"]);
    assert_eq!(w["settings"]["kv"], "int8");
    let int8 = run(&["Call me", "--raw", "-n", "3", "--logprobs", "0"]);
    assert_ne!(v["logprobs"][0]["logprob"], int8["logprobs"][0]["logprob"]);
}
