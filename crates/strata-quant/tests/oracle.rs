//! Decoders and encoders against the public `gguf` package, by hash. `tests/data/dequant_oracle.py` made the hashes.

use half::f16;
use serde_json::Value;
use sha2::{Digest, Sha256};
use strata_quant::testing::{SplitMix64, put_scales, random_blocks};
use strata_quant::{DType, dequantize, quantize};

fn oracle(part: &str) -> serde_json::Map<String, Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/dequant_sha256.json");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    json[part].as_object().unwrap().clone()
}

fn hex_sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

fn number(case: &Value, key: &str) -> u64 {
    case[key].as_u64().unwrap()
}

/// Decoded values as little-endian bytes.
fn decoded(dtype: DType, blocks: &[u8]) -> Vec<u8> {
    let mut values = vec![f32::NAN; blocks.len() / dtype.block_bytes() * dtype.block_len()];
    dequantize(dtype, blocks, &mut values).unwrap();
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

#[test]
fn every_format_decodes_to_the_oracles_bits() {
    let cases = oracle("decode");
    for dtype in DType::all() {
        let case = &cases[dtype.name()];
        let n = number(case, "blocks") as usize;
        assert!(n >= 10_000);
        let mut bytes = decoded(dtype, &random_blocks(dtype, n, &mut SplitMix64::new(number(case, "seed"))));
        assert_eq!(hex_sha256(&bytes), case["sha256"], "{dtype}");
        // the hash sees the last bit of one value
        let last = bytes.len() - 4;
        bytes[last] ^= 1;
        assert_ne!(hex_sha256(&bytes), case["sha256"], "{dtype}");
    }
}

#[test]
fn extreme_blocks_decode_to_the_oracles_bits() {
    let cases = oracle("extremes");
    for dtype in DType::all().filter(|d| !d.is_float()) {
        let case = &cases[dtype.name()];
        let mut all = Vec::new();
        for (i, fill) in (0..).zip([0x00, 0xff, 0x55, 0xaa]) {
            let mut blocks = vec![fill; number(case, "blocks") as usize * dtype.block_bytes()];
            let mut rng = SplitMix64::new(number(case, "seed") + 100 * i);
            put_scales(dtype, &mut blocks, || f16::from_bits(rng.next_u64() as u16 & 0x83ff | 0x2000));
            all.extend(decoded(dtype, &blocks));
        }
        assert_eq!(hex_sha256(&all), case["sha256"], "{dtype}");
    }
}

#[test]
fn every_encoder_gives_the_oracles_bytes() {
    for (name, case) in oracle("encode") {
        let dtype = DType::from_name(&name).unwrap();
        let n = number(&case, "values") as usize;
        let floats = random_blocks(DType::F32, n, &mut SplitMix64::new(number(&case, "seed")));
        let values: Vec<f32> = floats.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let mut blocks = vec![0; dtype.row_bytes(n).unwrap()];
        quantize(dtype, &values, &mut blocks).unwrap();
        assert_eq!(hex_sha256(&blocks), case["sha256"], "{dtype}");
    }
}
