//! `strata quantize`.

mod common;

use common::{Dir, MODEL, fails, json, run, strata, text};
use strata_gguf::{Gguf, GgufWriter, Metadata};
use strata_quant::testing::{SplitMix64, random_blocks};
use strata_quant::{DType, dequantize};

/// A small model-like file: matrices of several widths, a stack of experts, a vector, a router.
const TENSORS: [(&str, &[u64]); 6] = [
    ("token_embd.weight", &[256, 40]),
    ("blk.0.attn_q.weight", &[512, 33]),
    ("blk.0.ffn_down_exps.weight", &[64, 20, 3]),
    ("blk.0.ffn_up_exps.weight", &[256, 16, 3]),
    ("blk.0.ffn_gate_inp.weight", &[256, 3]),
    ("blk.0.attn_q_norm.weight", &[256]),
];

fn source(dir: &Dir, name: &str) -> String {
    let mut metadata = Metadata::default();
    metadata.insert("general.architecture", "test");
    metadata.insert("split.no", 0u16);
    metadata.insert("split.count", 1u16);
    let mut w = GgufWriter::new(metadata).unwrap();
    TENSORS.iter().for_each(|(name, dims)| w.tensor(name, DType::F32, dims).unwrap());
    let mut out = w.begin(Vec::new()).unwrap();
    let mut rng = SplitMix64::new(1);
    for (_, dims) in TENSORS {
        out.write(&random_blocks(DType::F32, dims.iter().product::<u64>() as usize, &mut rng)).unwrap();
    }
    let path = dir.0.join(name);
    std::fs::write(&path, out.finish().unwrap()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn values(gguf: &Gguf, name: &str) -> Vec<f32> {
    let info = gguf.tensor(name).unwrap();
    let mut out = vec![0.0; (info.cols() * info.rows()) as usize];
    dequantize(info.dtype, &gguf.data(info), &mut out).unwrap();
    out
}

/// Root of the mean square of the differences, over that of the values; each counts `weight` times.
fn difference(a: &[f32], b: &[f32], weight: impl Fn(usize) -> f64) -> f64 {
    let sum = |f: &dyn Fn(usize) -> f64| (0..a.len()).map(|i| weight(i) * f(i).powi(2)).sum::<f64>();
    (sum(&|i| f64::from(a[i] - b[i])) / sum(&|i| f64::from(a[i]))).sqrt()
}

fn out(dir: &Dir, name: &str) -> String {
    dir.0.join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_file_is_converted_as_planned() {
    let dir = Dir::new("quantize");
    let from = source(&dir, "in.gguf");
    let to = out(&dir, "out.gguf");
    let table = text(&["quantize", &from, &to, "--type", "IQ3_S", "--keep", "attn_q\\.=Q8_0", "--threads", "3"]);
    assert!(table.contains("IQ4_NL") && table.contains("1 tensors have rows") && table.lines().any(|l| l.starts_with("all ")), "{table}");
    let (old, new) = (Gguf::open(&from).unwrap(), Gguf::open(&to).unwrap());
    let types = [DType::Q6_K, DType::Q8_0, DType::IQ4_NL, DType::IQ3_S, DType::F32, DType::F32];
    let bounds = [0.03, 0.01, 0.12, 0.25, 0.0, 0.0];
    for ((info, (name, dims)), (dtype, bound)) in new.tensors().zip(TENSORS).zip(types.into_iter().zip(bounds)) {
        assert_eq!((info.name.as_str(), &info.dims[..], info.dtype), (name, dims, dtype));
        let error = difference(&values(&old, name), &values(&new, name), |_| 1.0);
        assert!(error <= bound && (bound == 0.0 || error > bound / 20.0), "{name}: {error}");
    }
    let m = new.metadata();
    assert_eq!((m.str("general.architecture").unwrap(), m.u32("general.file_type").unwrap()), ("test", 26));
    assert!(!m.contains("split.count"));
    // one thread, the same bytes; nothing else is left in the folder
    let again = out(&dir, "again.gguf");
    text(&["quantize", &from, &again, "--type", "iq3_s", "--keep", "attn_q\\.=q8_0", "--threads", "1"]);
    assert_eq!(std::fs::read(&to).unwrap(), std::fs::read(&again).unwrap());
    assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 3);
    // a dry run prints the same and writes nothing
    let dry = out(&dir, "dry.gguf");
    assert_eq!(text(&["quantize", &from, &dry, "--type", "IQ3_S", "--keep", "attn_q\\.=Q8_0", "--dry-run"]), table);
    assert!(!std::path::Path::new(&dry).exists());
}

#[test]
fn importance_moves_the_error() {
    let dir = Dir::new("imatrix");
    let from = source(&dir, "in.gguf");
    let name = "blk.0.ffn_up_exps.weight";
    // three experts: inputs that matter by their number and expert
    let importance = |expert: usize, i: usize| if i % 3 == expert { 100.0f32 } else { 0.5 };
    let mut w = GgufWriter::new(Metadata::default()).unwrap();
    w.tensor(&format!("{name}.in_sum2"), DType::F32, &[256, 3]).unwrap();
    w.tensor(&format!("{name}.counts"), DType::F32, &[1, 3]).unwrap();
    let mut file = w.begin(Vec::new()).unwrap();
    (0..3).for_each(|e| (0..256).for_each(|i| file.write(&(4.0 * importance(e, i)).to_le_bytes()).unwrap()));
    (0..3).for_each(|_| file.write(&4f32.to_le_bytes()).unwrap());
    let imatrix = out(&dir, "imatrix.gguf");
    std::fs::write(&imatrix, file.finish().unwrap()).unwrap();

    let old = Gguf::open(&from).unwrap();
    let error = |extra: &[&str]| {
        let to = out(&dir, "out.gguf");
        text(&[&["quantize", &from, &to, "--type", "IQ2_XS"], extra].concat());
        let weight = |k: usize| f64::from(importance(k / (256 * 16), k % 256));
        let new = Gguf::open(&to).unwrap();
        assert_eq!(new.metadata().contains("quantize.imatrix.file"), !extra.is_empty());
        difference(&values(&old, name), &values(&new, name), weight)
    };
    let (without, with) = (error(&[]), error(&["--imatrix", &imatrix]));
    assert!(with < 0.9 * without, "{with} with importance, {without} without");

    // entries of another size
    let mut w = GgufWriter::new(Metadata::default()).unwrap();
    w.tensor(&format!("{name}.in_sum2"), DType::F32, &[255, 3]).unwrap();
    w.tensor(&format!("{name}.counts"), DType::F32, &[1, 3]).unwrap();
    let mut file = w.begin(Vec::new()).unwrap();
    [4 * 255 * 3, 4 * 3].into_iter().for_each(|n| file.write(&vec![0; n]).unwrap());
    std::fs::write(&imatrix, file.finish().unwrap()).unwrap();
    let line = fails(&mut strata(&["quantize", &from, &out(&dir, "no"), "--type", "Q4_K", "--imatrix", &imatrix]), 1);
    assert!(line.contains(name) && line.contains("found 765"), "{line}");
}

#[test]
fn what_cannot_be_done_is_said_and_leaves_nothing() {
    let dir = Dir::new("quantize-bad");
    let from = source(&dir, "in.gguf");
    let to = out(&dir, "out.gguf");
    for (args, code, expected) in [
        (&["--type", "Q9"][..], 2, "expected one of"),
        (&["--type", "IQ1_S"], 2, "does not write it"),
        (&["--type", "Q4_K", "--keep", "attn"], 2, "no '='"),
        (&["--type", "Q4_K", "--keep", "(=Q8_0"], 2, "regular expression"),
        (&["--type", "Q4_K", "--imatrix", "missing.dat"], 1, "missing.dat: cannot read"),
    ] {
        let line = fails(&mut strata(&[&["quantize", &from, &to], args].concat()), code);
        assert!(line.contains(expected), "{line}");
    }
    let line = fails(&mut strata(&["quantize", &from, &from, "--type", "Q4_K"]), 1);
    assert!(line.contains("another file than the source"), "{line}");
    // a value that is not finite
    let mut bytes = std::fs::read(&from).unwrap();
    let info = Gguf::open(&from).unwrap().tensor("blk.0.attn_q.weight").unwrap().clone();
    let at = info.offset as usize + 4 * (512 * 7 + 5);
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let bad = out(&dir, "bad.gguf");
    std::fs::write(&bad, bytes).unwrap();
    let line = fails(&mut strata(&["quantize", &bad, &to, "--type", "Q4_K"]), 1);
    assert!(line.contains("blk.0.attn_q.weight', row 7: value 5: expected a finite number"), "{line}");
    assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 2, "in.gguf and bad.gguf");
}

#[test]
fn the_reference_model_still_answers() {
    let dir = Dir::new("quantize-model");
    let to = out(&dir, "q.gguf");
    text(&["quantize", MODEL, &to, "--type", "Q5_0"]);
    let types = json(&["inspect", &to, "--json"]);
    let of = |name: &str| types["types"].as_array().unwrap().iter().find(|t| t["type"] == name).map(|t| t["tensors"].as_u64().unwrap());
    // routers and norms stay, the table of 16 values a row too, the head is at least Q6_K
    assert!(
        of("Q5_0") > Some(80) && of("F32") > Some(90) && of("BF16") == Some(7) && of("Q6_K") == Some(2) && of("Q8_0").is_none(),
        "{types}"
    );
    let args = ["--ids", "11,52,7,300", "-n", "12", "--model"];
    let (old, new) = (run(&[&args[..], &[MODEL]].concat()), run(&[&args[..], &[&to]].concat()));
    assert_eq!(new["generated_tokens"], old["generated_tokens"]);
}
