//! Inverse frequencies against the numpy twin of the Hugging Face formulas (tests/data/rope_twin.py), by bits.

use strata_ops::rope::{RopeScaling, RopeTable, inverse_frequencies};

#[test]
fn frequencies_equal_the_twin() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/rope_twin.json");
    let text = std::fs::read_to_string(path).expect("the twin's output is in the repository");
    let all: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let mut compared = 0;
    for case in all["cases"].as_array().expect("a list of cases") {
        let (name, p) = (case["name"].as_str().expect("a name"), &case["params"]);
        if p["truncate"].as_bool() == Some(false) {
            // GGUF has no key for it
            continue;
        }
        let float = |key: &str| p[key].as_f64().expect(key) as f32;
        let scaling = match p["type"].as_str().expect("a type") {
            "default" => RopeScaling::None,
            "linear" => RopeScaling::Linear { factor: float("factor") },
            "yarn" => RopeScaling::Yarn {
                factor: float("factor"),
                original_context: p["original_max_position_embeddings"].as_u64().expect("a length") as u32,
                beta_fast: float("beta_fast"),
                beta_slow: float("beta_slow"),
                attention_factor: p["attention_factor"].as_f64().map(|f| f as f32),
            },
            other => panic!("{name}: {other}"),
        };
        let dims = p["dim"].as_u64().expect("dimensions") as usize;
        let (got, factor) = inverse_frequencies(dims, float("theta"), scaling);
        let got: Vec<u64> = got.iter().map(|f| u64::from(f.to_bits())).collect();
        let want: Vec<u64> = case["inv_freq"].as_array().expect("bits").iter().map(|b| b.as_u64().expect("bits")).collect();
        assert_eq!(got, want, "{name}");
        assert_eq!(factor.to_bits(), (case["attention_factor"].as_f64().expect("a factor") as f32).to_bits(), "{name}");
        compared += got.len();
    }
    assert_eq!(compared, 11 * 32);
}

#[test]
fn the_attention_factor_multiplies_cos_and_sin() {
    let yarn = |f| RopeScaling::Yarn { factor: 4.0, original_context: 64, beta_fast: 32.0, beta_slow: 1.0, attention_factor: Some(f) };
    let (one, half) = (RopeTable::new(9, 64, 1e7, yarn(1.0)), RopeTable::new(9, 64, 1e7, yarn(0.5)));
    for p in 0..9 {
        let ((c, s), (hc, hs)) = (one.at(p), half.at(p));
        assert!(c.iter().zip(hc).chain(s.iter().zip(hs)).all(|(a, b)| a * 0.5 == *b));
        // a rotation keeps lengths
        assert!(c.iter().zip(s).all(|(c, s)| (c * c + s * s - 1.0).abs() < 1e-6));
    }
}
