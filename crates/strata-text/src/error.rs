//! Typed errors. Tokenizer errors name the GGUF key at fault.

use thiserror::Error;

/// Why a tokenizer could not be built, or a text not be encoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The vocabulary is of another family than byte-level BPE.
    #[error("tokenizer.ggml.model: expected \"gpt2\" (byte-level BPE), found {found:?}")]
    UnsupportedModel { found: String },
    /// The pre-tokenizer is not known.
    #[error("tokenizer.ggml.pre: expected one of {supported}, found {found:?}")]
    UnsupportedPre { found: String, supported: &'static str },
    /// A list or a string is longer than any sensible file has it, or empty where it must not be.
    #[error("{key}: expected {min} to {max} {unit}, found {found}")]
    Count { key: &'static str, unit: &'static str, min: usize, max: usize, found: usize },
    /// One type per token is needed.
    #[error("tokenizer.ggml.token_type: expected {tokens} entries as tokenizer.ggml.tokens has, found {found}")]
    TypeCount { tokens: usize, found: usize },
    /// A token type byte-level BPE has no use for.
    #[error("tokenizer.ggml.token_type[{id}]: expected 1 (normal), 3 (control), 4 (user defined) or 5 (unused), found {found}")]
    TokenType { id: u32, found: i32 },
    /// A used token without text.
    #[error("tokenizer.ggml.tokens[{id}]: expected 1 to {max} bytes, found {found}")]
    TokenLength { id: u32, max: usize, found: usize },
    /// Two used tokens have the same text.
    #[error("tokenizer.ggml.tokens[{id}]: {text:?} is also token {first}")]
    DuplicateToken { id: u32, first: u32, text: String },
    /// A byte could not be encoded at all.
    #[error("tokenizer.ggml.tokens: no normal token for the single byte 0x{byte:02x} (expected {text:?})")]
    MissingByte { byte: u8, text: char },
    /// A merge is not two texts separated by one space.
    #[error("tokenizer.ggml.merges[{index}]: expected two texts separated by one space, found {text:?}")]
    MalformedMerge { index: usize, text: String },
    /// A merge names, or makes, a text that is no normal or user-defined token.
    #[error("tokenizer.ggml.merges[{index}]: {token:?} is no normal or user-defined token")]
    UnresolvedMerge { index: usize, token: String },
    /// The same pair twice: its rank would be ambiguous.
    #[error("tokenizer.ggml.merges[{index}]: {text:?} is also merge {first}")]
    DuplicateMerge { index: usize, first: usize, text: String },
    /// A special id lies outside the vocabulary.
    #[error("{key}: expected an id below {tokens}, found {found}")]
    IdRange { key: &'static str, tokens: usize, found: u32 },
    /// A special id names a token that is never used.
    #[error("{key}: expected a used token, found {found} of type 5 (unused)")]
    IdUnused { key: &'static str, found: u32 },
    /// A begin-of-sequence token is demanded and none is named.
    #[error("tokenizer.ggml.add_bos_token: true, but tokenizer.ggml.bos_token_id is missing")]
    MissingBos,
    /// A library refused its input after all checks here.
    #[error("{part}: {detail}")]
    Library { part: &'static str, detail: String },
    /// Bytes to encode are not UTF-8.
    #[error("text is not UTF-8 from byte {position} on")]
    InvalidUtf8 { position: usize },
}

/// Why a chat template could not be compiled or rendered.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The template's source is too long to be one.
    #[error("tokenizer.chat_template: expected at most {max} bytes, found {found}")]
    SourceLength { max: usize, found: usize },
    /// The template does not compile.
    #[error("tokenizer.chat_template line {line}: {detail}")]
    Syntax { line: usize, detail: String },
    /// The template called `raise_exception`: it does not accept these messages.
    #[error("the chat template refuses the messages: {message}")]
    Raised { message: String },
    /// A filter, method or operation of the template failed.
    #[error("tokenizer.chat_template line {line}: {detail}")]
    Render { line: usize, detail: String },
    /// The template did more work than its input can justify.
    #[error("tokenizer.chat_template: more than {fuel} units of work for this input (endless loop?)")]
    OutOfFuel { fuel: u64 },
    /// The rendered text is too long.
    #[error("the rendered chat is longer than {max} bytes")]
    OutputLength { max: usize },
    /// The thread to render on could not be started, or the engine failed inside.
    #[error("chat template: {detail}")]
    Thread { detail: String },
    /// `messages` is not a list.
    #[error("messages: expected a list, found {found}")]
    MessagesType { found: &'static str },
    /// Input nested too deeply to be walked safely.
    #[error("{field}: nested deeper than {max} levels")]
    Depth { field: &'static str, max: usize },
}

/// Why a set of stop strings is not usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StopStringsError {
    /// The empty string would stop before the first character.
    #[error("stop[{index}] is empty")]
    Empty { index: usize },
    /// Every stop string costs work for every byte.
    #[error("at most {max} stop strings, found {found}")]
    Count { max: usize, found: usize },
    /// A stop string holds back as much text as it is long.
    #[error("stop[{index}]: at most {max} bytes, found {found}")]
    Length { index: usize, max: usize, found: usize },
}
