//! `strata bench`: what it prints. Its figures are no matter of tests.

mod common;

use common::{fails, json, strata, text};
use serde_json::json;

const SMALL: &str = "synth:refmodel:Q4_K,layers=4,experts=4,ngram_rows=500,mtp=1";

#[test]
fn a_model_is_timed_in_every_way_asked_for() {
    let args = ["bench", "-m", SMALL, "-p", "8", "-n", "4", "-d", "0,20", "-r", "3", "-t", "1,2", "--kv", "int8,fp16", "--spec", "0,2"];
    let v = json(&[&args[..], &["--json", "--", "--chunk", "5"]].concat());
    let tests = v["tests"].as_array().unwrap();
    // threads x kv x depths x (pp once, tg for each draft length)
    assert_eq!(tests.len(), 2 * 2 * 2 * 3);
    for t in tests {
        let samples: Vec<f64> = t["tok_s_samples"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        let of = |name: &str| t[name].as_f64().unwrap();
        assert!(samples.len() == 3 && samples.iter().all(|s| *s > 0.0 && (of("tok_s_min")..=of("tok_s_max")).contains(s)), "{t}");
        assert!(of("tok_s_min") <= of("tok_s_median") && of("tok_s_mad") >= 0.0 && of("parameters") > 1e5);
        assert_eq!((&t["model"], &t["chunk"]), (&json!(SMALL), &json!(5)));
        assert_eq!(t["acceptance"].is_null(), t["spec"] == 0 || t["n_gen"] == 0, "{t}");
    }
    let names: Vec<&str> = tests.iter().take(4).map(|t| t["test"].as_str().unwrap()).collect();
    assert_eq!(names, ["pp8", "tg4", "pp8 @ d20", "tg4 @ d20"]);
    assert!(v["cpu"].is_string() || v["cpu"].is_null());

    let table = text(&["bench", "-m", SMALL, "-p", "8", "-n", "0", "-r", "1", "-t", "1"]);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("| model") && lines[1].starts_with("| ---") && lines[2].contains("pp8"), "{table}");
    assert!(lines.last().unwrap().starts_with("strata "), "{table}");
    let csv = text(&["bench", "-m", SMALL, "-p", "8", "-n", "2", "-r", "1", "-t", "1", "--csv"]);
    assert!(csv.lines().count() == 3 && csv.starts_with("model,model_bytes,"), "{csv}");
    assert!(csv.lines().all(|l| !l.contains('\u{1b}')));
}

#[test]
fn ops_stand_beside_the_limits_of_the_same_run() {
    let v = json(&["bench", "--op", "mat-vec,gdn", "--types", "Q8_0,IQ3_S", "-r", "1", "-t", "1", "--json"]);
    let ops = v["ops"].as_array().unwrap();
    let of = |op: &str| ops.iter().filter(|o| o["op"] == op).collect::<Vec<_>>();
    // Q8_0 has rows of both widths, IQ3_S of one
    assert_eq!((of("mat-vec").len(), of("gdn").len(), of("limits").len()), (3, 2, 5));
    for o in of("mat-vec") {
        assert!(o["gb_s"].as_f64().unwrap() > 0.0 && o["of_read"].as_f64().unwrap() > 0.0 && o["of_peak"].as_f64().unwrap() > 0.0, "{o}");
        assert_eq!(o["of_look_ups"].is_null(), o["case"].as_str().unwrap().starts_with("Q8_0"));
    }
    assert!(text(&["bench", "--list"]).contains("mat-vec") && text(&["bench", "--list"]).contains("qsa_rows_bench"));
}

#[test]
fn what_cannot_be_measured_is_said() {
    assert!(fails(&mut strata(&["bench", "--op", "none"]), 2).contains("found none"));
    assert!(fails(&mut strata(&["bench", "--op", "gdn", "--types", "Q9"]), 2).contains("found Q9"));
    assert!(fails(&mut strata(&["bench", "-r", "0"]), 2).contains("repetitions") || cfg!(not(unix)));
    assert!(fails(&mut strata(&["bench", "--", "--chunk", "none"]), 2).contains("--chunk"));
    assert!(fails(&mut strata(&["bench", "-m", "no-such-file.gguf"]), 1).contains("no-such-file.gguf"));
    let e = fails(&mut strata(&["bench", "-d", "40000"]), 2);
    assert!(e.contains("32768"), "{e}");
}
