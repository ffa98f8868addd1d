//! What a model file says about its tokenizer, as plain data.

/// The tokenizer fields of a GGUF file, unchecked. [`crate::Tokenizer::new`] checks all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenizerSource {
    /// `tokenizer.ggml.model`; only `gpt2` (byte-level BPE) is supported.
    pub model: String,
    /// `tokenizer.ggml.pre`: which pre-tokenizer the merges were trained with.
    pub pre: String,
    /// `tokenizer.ggml.tokens`: token text by id; normal tokens are written in the GPT-2 byte alphabet.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.token_type`, one per token.
    pub token_types: Vec<i32>,
    /// `tokenizer.ggml.merges`: `left right`, best rank first.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.bos_token_id`.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.padding_token_id`.
    pub padding: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`.
    pub add_bos: bool,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
}

/// `tokenizer.ggml.token_type` of one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// 1: text in the byte alphabet, reached by merges.
    Normal,
    /// 3: a marker such as `<|im_end|>`; matched whole when asked for, left out of displayed text.
    Control,
    /// 4: matched whole always, and part of displayed text.
    UserDefined,
    /// 5: fills up the embedding table; never produced by encoding, decodes to nothing.
    Unused,
}

impl TokenKind {
    /// The kind of a GGUF type number; `None` for numbers byte-level BPE has no use for (0, 2 unknown, 6 byte).
    pub fn from_gguf(number: i32) -> Option<Self> {
        match number {
            1 => Some(Self::Normal),
            3 => Some(Self::Control),
            4 => Some(Self::UserDefined),
            5 => Some(Self::Unused),
            _ => None,
        }
    }
}
