//! Whole files: the same bytes from any number of threads, from memory and from disk, and limits that are kept.

use strata_gguf::Gguf;
use strata_quant::{DType, first_non_finite};
use strata_synth::{Plan, Recipe, in_memory, write};

const SMALL: &str = "refmodel:Q4_K,layers=5,experts=6,ngram_rows=2000,mtp=1";

struct Dir(std::path::PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("strata-synth-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn bytes_do_not_depend_on_threads_or_place() {
    let dir = Dir::new("threads");
    let recipe = Recipe::parse(SMALL).unwrap();
    let files = [1, 2, 5].map(|threads| {
        let path = dir.0.join(format!("{threads}.gguf"));
        let (mut last, mut calls) = (0, 0);
        let w = write(&recipe, &path, threads, &mut |done, all| {
            assert!(done >= last && done <= all);
            (last, calls) = (done, calls + 1);
        })
        .unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes.len() as u64, calls > 0), (w.bytes, true));
        assert_eq!(w.bytes, Plan::new(&recipe).unwrap().file_len().unwrap());
        bytes
    });
    assert!(files[0] == files[1] && files[0] == files[2]);
    let file = Gguf::open(dir.0.join("1.gguf")).unwrap();
    let memory = in_memory(&recipe, "synth:x", 1 << 30).unwrap();
    assert_eq!(memory.path().to_str(), Some("synth:x"));
    assert!(file.is_mapped() && !memory.is_mapped());
    assert_eq!(file.tensors().len(), memory.tensors().len());
    for t in file.tensors() {
        assert!(file.data(t) == memory.data(memory.tensor(&t.name).unwrap()), "{}", t.name);
        assert_eq!(first_non_finite(t.dtype, &file.data(t)), None, "{}", t.name);
    }
    let other = in_memory(&Recipe::parse(&format!("{SMALL},seed=2")).unwrap(), "other", 1 << 30).unwrap();
    let name = "blk.0.ffn_up_exps.weight";
    assert!(other.data(other.tensor(name).unwrap()) != memory.data(memory.tensor(name).unwrap()));
}

#[test]
fn memory_is_bounded_before_it_is_taken() {
    let recipe = Recipe::parse("qwen3.8-flash-next:IQ3_S").unwrap();
    let needed = Plan::new(&recipe).unwrap().file_len().unwrap();
    let e = in_memory(&recipe, "synth:large", 1 << 30).unwrap_err().to_string();
    assert!(e.contains(&needed.to_string()) && e.contains("1073741824"), "{e}");
}

#[test]
fn the_released_shapes_are_the_specifications() {
    let plan = Plan::new(&Recipe::parse("qwen3.8-flash-next:Q8_0,mtp=1").unwrap()).unwrap();
    // 125 B of the trunk, 51.2 B of the table, 2.6 B of the extra block
    assert!((178e9..180e9).contains(&(plan.parameters() as f64)), "{}", plan.parameters());
    let small =
        in_memory(&Recipe::parse("qwen3.8-flash-next:Q8_0,layers=4,experts=2,used=1,ngram_rows=2000,vocab=512").unwrap(), "m", 2 << 30)
            .unwrap();
    for (name, dims) in [
        ("output.weight", &[2560, 512][..]),
        ("output_hc_up.weight", &[320, 10240]),
        ("blk.0.attn_qkv.weight", &[2560, 10240]),
        ("blk.0.ssm_conv1d.weight", &[4, 10240]),
        ("blk.3.attn_q.weight", &[2560, 12288]),
        ("blk.3.indexer.q_proj.weight", &[2560, 512]),
        ("blk.1.ple_key.weight", &[2560, 10240]),
        ("blk.2.ffn_down_exps.weight", &[640, 2560, 2]),
        ("blk.2.hc_ffn_inject.weight", &[10240, 4]),
    ] {
        assert_eq!(small.tensor(name).unwrap_or_else(|| panic!("{name}")).dims, dims, "{name}");
    }
    assert_eq!(small.tensors().len(), 6 + 3 * 9 + 10 + 4 * 8 + 6 + 4 * 8);
}

#[test]
fn every_type_makes_a_model() {
    for dtype in DType::all() {
        let recipe =
            Recipe::parse(&format!("refmodel:{dtype},layers=2,experts=4,ngram_rows=500,dense={dtype},emb={dtype},table={dtype}")).unwrap();
        let gguf = in_memory(&recipe, "m", 1 << 30).unwrap();
        assert_eq!(gguf.tensor("blk.0.ffn_up_exps.weight").unwrap().dtype, dtype);
        let down = gguf.tensor("blk.0.ffn_down_exps.weight").unwrap().dtype;
        assert!(down.block_len() <= 64 && (down == dtype || dtype.block_len() > 64), "{dtype} {down}");
        for t in gguf.tensors() {
            assert_eq!(first_non_finite(t.dtype, &gguf.data(t)), None, "{}", t.name);
        }
    }
}
