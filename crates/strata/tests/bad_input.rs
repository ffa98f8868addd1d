//! Bad flags, prompts and files: one line that says what, nothing on standard output, a non-zero exit.

mod common;

use common::{Dir, MODEL, fails, rewrite, strata};
use std::fs;
use strata_gguf::{GgufWriter, Metadata, Value};
use strata_quant::DType;

fn run(args: &[&str], code: i32) -> String {
    fails(&mut strata(&[&["run", "--json"], args].concat()), code)
}

#[test]
fn prompts_that_cannot_be() {
    let dir = Dir::new("bad-prompts");
    assert_eq!(run(&[""], 1), "PROMPT: the prompt is empty: expected at least one token");
    let empty = dir.write("empty.txt", b"");
    assert_eq!(run(&["--raw", "--prompt-file", &empty], 1), format!("{empty}: the prompt is empty: expected at least one token"));
    assert_eq!(run(&["-"], 1), "standard input: the prompt is empty: expected at least one token");
    let bad = dir.write("bad.txt", b"good\xff\xfe");
    assert_eq!(run(&["--prompt-file", &bad], 1), format!("{bad}: expected UTF-8, found other bytes from byte 4 on"));
    let none = dir.file("none.txt").display().to_string();
    assert!(run(&["--prompt-file", &none], 1).starts_with(&format!("{none}: cannot read: ")));
    assert_eq!(run(&["--ids", "1,4096"], 1), "token id 4096 at position 1 is out of range: the vocabulary has 4096 ids");
    assert!(run(&["--ids", ""], 2).starts_with("invalid value ''"));
    assert!(run(&["--ids", "1,-2"], 2).starts_with("invalid value '-2'"));
    assert!(run(&["--ids", "99999999999"], 2).contains("not in 0..=4294967295"), "{}", run(&["--ids", "99999999999"], 2));
    assert!(run(&[], 2).contains("required arguments were not provided"));
    assert!(run(&["x", "--ids", "1"], 2).contains("cannot be used with"));
    let long = "word ".repeat(30);
    assert_eq!(
        run(&["--raw", &long, "--ctx", "16"], 1),
        "the prompt has 32 tokens, the context holds 16 and one must be left for an answer"
    );
    let longer = dir.write("long.txt", "a b c d e f g h ".repeat(20_000).as_bytes());
    let e = run(&["--raw", "--prompt-file", &longer], 1);
    assert!(e.starts_with("the prompt has ") && e.ends_with("the context holds 32768 and one must be left for an answer"), "{e}");
    #[cfg(target_os = "linux")]
    {
        let e = run(&["--prompt-file", "/dev/zero"], 1);
        assert!(
            e.starts_with("/dev/zero: expected at most ")
                && e.ends_with("bytes, found more: more than 32768 tokens, the context, can stand for"),
            "{e}"
        );
    }
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        let e = fails(strata(&["run", "--json"]).arg(std::ffi::OsStr::from_bytes(b"ab\xc3")), 1);
        assert_eq!(e, "PROMPT: expected UTF-8, found other bytes from byte 2 on");
    }
}

#[test]
fn flags_out_of_range_or_against_each_other() {
    assert_eq!(run(&["x", "--kv", "f32"], 2), "--kv f32: expected it with --act f32, found --act int8");
    assert!(run(&["x", "--kv", "int4"], 2).contains("possible values: f32, fp16, int8, q4_0, k8v4"));
    assert_eq!(run(&["x", "--temp=-1"], 2), "temperature must be 0 (greedy) or a finite number of at least 1e-5, found -1");
    assert_eq!(run(&["x", "--temp", "nan"], 2), "temperature must be 0 (greedy) or a finite number of at least 1e-5, found NaN");
    assert_eq!(run(&["x", "--top-p", "1.5"], 2), "top_p must be from 0 to 1 (1 is off), found 1.5");
    assert_eq!(run(&["x", "--presence-penalty", "-3"], 2), "presence_penalty must be from -2 to 2 (0 is off), found -3");
    assert_eq!(run(&["x", "--spec-min-p", "2", "--spec", "1"], 2), "spec_min_p: expected a probability, found 2");
    assert_eq!(run(&["x", "--ctx", "40000"], 2), "context: expected 2 to 32768 tokens (the model's limit), found 40000");
    assert_eq!(run(&["x", "--stop", ""], 2), "stop[0] is empty");
    for (flag, value) in [("--spec", "17"), ("--threads", "0"), ("--threads", "100000"), ("--chunk", "0"), ("--ctx", "1"), ("-n", "0")] {
        let e = run(&["x", flag, value], 2);
        assert!(e.contains(&format!("invalid value '{value}'")), "{e}");
    }
    let available = strata_cpu::simd::Simd::available();
    if !available.contains(&strata_cpu::simd::Simd::Avx512Vnni) {
        let names: Vec<&str> = available.iter().map(|s| s.name()).collect();
        assert_eq!(
            run(&["x", "--simd", "avx512vnni"], 2),
            format!("--simd: expected one of {} on this CPU, found avx512vnni", names.join(", "))
        );
    }
    assert!(fails(&mut strata(&["parity", "nonsense"]), 2).starts_with("parity: expected the beginning of one of ops_"));
    assert!(fails(&mut strata(&["run", "x", "--logprobs", "2"]), 2).contains("--json"));
}

/// The reference model with one key changed or dropped.
fn with_key(dir: &Dir, name: &str, key: &str, value: Option<Value>) -> String {
    let change = |k: &str, v: &Value| if k == key { value.clone() } else { Some(v.clone()) };
    rewrite(&dir.file(name), |_| true, change, |_, _| ())
}

#[test]
fn files_that_are_no_model() {
    let dir = Dir::new("bad-files");
    let load = |file: &str| run(&["x", "--model", file], 1);
    let none = dir.file("none.gguf").display().to_string();
    assert!(load(&none).starts_with(&format!("{none}: cannot read: ")));
    let f = dir.write("text.gguf", b"just some text that is no model");
    assert_eq!(load(&f), format!("{f}: not a GGUF file: expected the magic 'GGUF', found bytes [6a, 75, 73, 74]"));
    let whole = fs::read(MODEL).unwrap();
    let f = dir.write("cut.gguf", &whole[..whole.len() - 100_000]);
    let e = load(&f);
    assert!(e.starts_with(&format!("{f}: tensor '")) && e.contains("to end by"), "{e}");
    let f = dir.write("head.gguf", &whole[..5_000]);
    assert!(load(&f).contains("truncated: "));

    let mut m = Metadata::default();
    m.insert("general.architecture", "llama");
    let mut w = GgufWriter::new(m).unwrap();
    w.tensor("a", DType::F32, &[1]).unwrap();
    let mut s = w.begin(Vec::new()).unwrap();
    s.write(&[0; 4]).unwrap();
    let f = dir.write("llama.gguf", &s.finish().unwrap());
    assert_eq!(load(&f), format!("{f}: general.architecture: expected qwen4exp, found llama"));
}

#[test]
fn models_with_wrong_keys_or_tensors() {
    let dir = Dir::new("bad-models");
    let load = |file: &str| run(&["x", "--model", file], 1);
    let f = with_key(&dir, "key.gguf", "qwen4exp.ssm.state_size", None);
    assert!(load(&f).starts_with(&format!("{f}: key 'qwen4exp.ssm.state_size' is missing, expected ")), "{}", load(&f));
    let f = with_key(&dir, "heads.gguf", "qwen4exp.expert_used_count", Some(900u32.into()));
    assert_eq!(load(&f), format!("{f}: qwen4exp.expert_used_count: expected at most 24, found 900"));
    let f = with_key(&dir, "tokenizer.gguf", "tokenizer.ggml.pre", Some("other".into()));
    assert!(load(&f).starts_with(&format!("{f}: tokenizer.ggml.pre: expected one of ")), "{}", load(&f));
    let f = with_key(&dir, "template.gguf", "tokenizer.chat_template", None);
    let missing = format!("{f}: key 'tokenizer.chat_template' is missing, expected a template");
    assert_eq!(run(&["x", "--chat", "--model", &f], 1), format!("{missing} (--raw takes the prompt as it is)"));
    assert_eq!(fails(&mut strata(&["chat", "--model", &f]), 1), format!("{missing} (`strata run --raw` needs none)"));
    let f = with_key(&dir, "bad-template.gguf", "tokenizer.chat_template", Some("{% if %}".into()));
    assert!(load(&f).starts_with(&format!("{f}: tokenizer.chat_template line 1: ")), "{}", load(&f));

    let all = |_: &str, v: &Value| Some(v.clone());
    let f = rewrite(&dir.file("less.gguf"), |t| t.name != "blk.3.attn_q.weight", all, |_, _| ());
    let e = load(&f);
    assert!(e.starts_with(&format!("{f}: tensor blk.3.attn_q.weight is missing (expected shape [")), "{e}");
    let f = with_key(&dir, "shape.gguf", "qwen4exp.expert_feed_forward_length", Some(32u32.into()));
    let e = load(&f);
    assert!(e.contains(": tensor blk.") && e.contains(": expected shape [") && e.contains("], found ["), "{e}");
    // a scale that is not finite: Q8_0 blocks begin with a half
    let nan = |name: &str, bytes: &mut Vec<u8>| {
        if name == "output.weight" {
            bytes[34..36].copy_from_slice(&[0x00, 0x7e]);
        }
    };
    let f = rewrite(&dir.file("nan.gguf"), |_| true, all, nan);
    assert_eq!(load(&f), format!("{f}: tensor output.weight (Q8_0): block 1 holds a scale or value that is not finite"));
    // an MTP file alone is no model
    let f = common::shared_mtp(&dir);
    assert!(load(&f).contains("tensor token_embd.weight is missing"), "{}", load(&f));
}
