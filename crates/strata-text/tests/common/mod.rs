//! The tokenizer of the small model in the repository.

// Each test binary uses a part of this.
#![allow(dead_code)]

use strata_gguf::{Gguf, StringArray};
use strata_text::{Tokenizer, TokenizerSource};

pub fn data(name: &str) -> String {
    let path = format!("{}/../../tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

pub fn cases(name: &str) -> Vec<serde_json::Value> {
    serde_json::from_str(&data(name)).unwrap()
}

pub fn source() -> TokenizerSource {
    let gguf = Gguf::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/refmodel-q8_0.gguf")).unwrap();
    let meta = gguf.metadata();
    let strings = |key: &str| -> Vec<String> {
        let list: &StringArray = meta.get(key).unwrap();
        list.iter().map(str::to_owned).collect()
    };
    TokenizerSource {
        model: meta.str("tokenizer.ggml.model").unwrap().to_owned(),
        pre: meta.str("tokenizer.ggml.pre").unwrap().to_owned(),
        tokens: strings("tokenizer.ggml.tokens"),
        token_types: meta.get("tokenizer.ggml.token_type").unwrap(),
        merges: strings("tokenizer.ggml.merges"),
        bos: meta.get_opt("tokenizer.ggml.bos_token_id").unwrap(),
        eos: meta.get_opt("tokenizer.ggml.eos_token_id").unwrap(),
        padding: meta.get_opt("tokenizer.ggml.padding_token_id").unwrap(),
        add_bos: meta.get_opt("tokenizer.ggml.add_bos_token").unwrap().unwrap_or(false),
        chat_template: meta.get_opt::<&str>("tokenizer.chat_template").unwrap().map(str::to_owned),
    }
}

pub fn tokenizer() -> Tokenizer {
    Tokenizer::new(source()).unwrap()
}
