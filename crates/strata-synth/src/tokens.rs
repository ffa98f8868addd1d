//! A dummy vocabulary: every byte, two merges, numbered tokens, and two control tokens at the end.

use strata_gguf::{Array, Metadata, StringArray, Value};

/// Puts the keys of a byte-level tokenizer of `vocab` ids. The last two are `<|endoftext|>` and `<|im_end|>`.
pub(crate) fn put(m: &mut Metadata, vocab: u64) {
    let mut tokens = StringArray::default();
    let shown = |b: u32| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let mut letter = String::new();
    for code in (0..256).filter(|b| shown(*b)).chain((256..).take((0..256).filter(|b| !shown(*b)).count())) {
        letter.clear();
        letter.extend(char::from_u32(code));
        tokens.push(&letter);
    }
    ["he", "ll"].iter().for_each(|t| tokens.push(t));
    (0..vocab - 2 - tokens.len() as u64).for_each(|i| tokens.push(&format!("<tok{i}>")));
    ["<|endoftext|>", "<|im_end|>"].iter().for_each(|t| tokens.push(t));
    let mut types = vec![1i32; vocab as usize];
    types[vocab as usize - 2..].fill(3);
    let mut merges = StringArray::default();
    ["h e", "l l"].iter().for_each(|t| merges.push(t));
    let end = vocab as u32 - 1;
    m.insert("tokenizer.ggml.model", "gpt2");
    m.insert("tokenizer.ggml.pre", "qwen35");
    m.insert("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
    m.insert("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
    m.insert("tokenizer.ggml.merges", Value::Array(Array::String(merges)));
    m.insert("tokenizer.ggml.eos_token_id", end);
    m.insert("tokenizer.ggml.bos_token_id", end - 1);
    m.insert("tokenizer.ggml.add_bos_token", false);
}
