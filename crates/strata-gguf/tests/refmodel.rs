//! The bundled reference model reads as its description says.

use strata_gguf::{Gguf, StringArray};
use strata_quant::DType;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/refmodel-q8_0.gguf");

#[test]
fn the_reference_model_has_its_tensors_and_keys() {
    let gguf = Gguf::open(MODEL).unwrap();
    assert_eq!(gguf.version(), 3);
    assert_eq!(gguf.tensors().len(), 246);
    assert_eq!(gguf.files().len(), 1);
    assert_eq!(gguf.total_bytes(), std::fs::metadata(MODEL).unwrap().len());

    let meta = gguf.metadata();
    assert_eq!(meta.str("general.architecture").unwrap(), "qwen4exp");
    assert_eq!(meta.u32("qwen4exp.block_count").unwrap(), 9);
    assert_eq!(meta.u64("qwen4exp.embedding_length").unwrap(), 256);
    let multipliers: Vec<u64> = meta.get("qwen4exp.ple.layer_multipliers").unwrap();
    assert_eq!(multipliers.len(), 3);
    let tokens: &StringArray = meta.get("tokenizer.ggml.tokens").unwrap();
    assert_eq!(tokens.len(), 4096);
    assert_eq!(tokens.get(4088), Some("<|im_start|>"));

    let embd = gguf.tensor("token_embd.weight").unwrap();
    assert_eq!((embd.dtype, embd.dims.as_slice()), (DType::Q8_0, &[256, 4096][..]));
    assert_eq!(embd.byte_len, 4096 * 256 / 32 * 34);
    for info in gguf.tensors() {
        assert_eq!(gguf.data(info).len() as u64, info.byte_len, "{}", info.name);
        assert_eq!(info.cols() * info.rows(), info.dims.iter().product::<u64>());
    }
    // the same bytes through memory
    let memory = Gguf::from_bytes(std::fs::read(MODEL).unwrap()).unwrap();
    assert!(memory.tensors().zip(gguf.tensors()).all(|(a, b)| a == b && memory.data(a) == gguf.data(b)));
}
