//! Text to token ids and back.

use crate::pretokenize::PreTokenizer;
use crate::stream::Utf8Stream;
use crate::vocab::{self, Vocab};
use crate::{TokenKind, TokenizerError, TokenizerSource, alphabet};
use aho_corasick::{AhoCorasick, MatchKind};
use std::borrow::Cow;
use std::collections::HashMap;
use tokenizers::Model;
use tokenizers::models::bpe::BPE;
use unicode_normalization_alignments::UnicodeNormalization;

/// Tokens matched whole: control and user-defined ones.
const MAX_ADDED: usize = 65_536;
/// Tokens that end a turn or a text wherever they are in the vocabulary, besides the file's `eos`.
const STOP_TEXTS: [&str; 2] = ["<|im_end|>", "<|endoftext|>"];

/// A byte-level BPE tokenizer. Ids equal those of the Hugging Face tokenizer of the same vocabulary.
///
/// The steps of [`encode`](Self::encode), in the reference's order: cut out control and user-defined tokens (leftmost, then
/// longest); normalise each remaining stretch to NFC; split it by the pre-tokenizer pattern; merge within each piece.
///
/// The model library keeps up to 10,000 merged words per thread and tokenizer and does not give them back before the thread
/// ends; build one tokenizer per model and share it.
#[derive(Debug)]
pub struct Tokenizer {
    vocab: Vocab,
    bpe: BPE,
    pre: PreTokenizer,
    /// All added tokens, and the user-defined ones alone.
    any_added: Added,
    user_defined: Added,
    added_ids: HashMap<String, u32>,
    bos: Option<u32>,
    eos: Option<u32>,
    padding: Option<u32>,
    add_bos: bool,
    stop_ids: Vec<u32>,
}

/// A matcher of whole tokens and the ids its patterns stand for.
#[derive(Debug)]
struct Added {
    matcher: AhoCorasick,
    ids: Vec<u32>,
}

impl Added {
    fn new(tokens: &[(u32, &str)]) -> Result<Self, TokenizerError> {
        let matcher = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|(_, text)| text))
            .map_err(|e| library("added token matcher", e))?;
        let ids = tokens.iter().map(|&(id, _)| id).collect();
        Ok(Self { matcher, ids })
    }
}

fn library(part: &'static str, error: impl ToString) -> TokenizerError {
    TokenizerError::Library { part, detail: error.to_string() }
}

impl Tokenizer {
    /// Checks everything in `source` and builds the tokenizer. `chat_template` is not looked at.
    pub fn new(mut source: TokenizerSource) -> Result<Self, TokenizerError> {
        if source.model != "gpt2" {
            return Err(TokenizerError::UnsupportedModel { found: source.model });
        }
        let pre = PreTokenizer::new(&source.pre)?;
        let vocab = Vocab::new(std::mem::take(&mut source.tokens), &source.token_types)?;
        vocab::check_ids(&source, &vocab)?;

        // Control tokens are left out, so merges can never make one from plain text.
        let mergeable: tokenizers::models::bpe::Vocab =
            vocab.of_kinds(&[TokenKind::Normal, TokenKind::UserDefined]).map(|(id, text)| (text.to_owned(), id)).collect();
        let pairs = vocab::parse_merges(&source.merges, |text| mergeable.contains_key(text))?;
        let bpe = BPE::builder().vocab_and_merges(mergeable, pairs).build().map_err(|e| library("tokenizer.ggml.merges", e))?;

        let added: Vec<(u32, &str)> = vocab.of_kinds(&[TokenKind::Control, TokenKind::UserDefined]).collect();
        vocab::check_count("tokenizer.ggml.token_type", "control and user-defined tokens", 0, MAX_ADDED, added.len())?;
        let any_added = Added::new(&added)?;
        let user: Vec<(u32, &str)> = vocab.of_kinds(&[TokenKind::UserDefined]).collect();
        let user_defined = Added::new(&user)?;
        let added_ids: HashMap<String, u32> = added.iter().map(|&(id, text)| (text.to_owned(), id)).collect();

        let mut stop_ids: Vec<u32> = Vec::with_capacity(1 + STOP_TEXTS.len());
        let by_text = STOP_TEXTS.iter().filter_map(|&t| added_ids.get(t).copied());
        for id in source.eos.into_iter().chain(by_text) {
            if !stop_ids.contains(&id) {
                stop_ids.push(id);
            }
        }
        Ok(Self {
            vocab,
            bpe,
            pre,
            any_added,
            user_defined,
            added_ids,
            bos: source.bos,
            eos: source.eos,
            padding: source.padding,
            add_bos: source.add_bos,
            stop_ids,
        })
    }

    /// The ids of `text`, without a begin-of-sequence token (see [`bos_to_add`](Self::bos_to_add)).
    ///
    /// With `parse_special` strings such as `<|im_end|>` become their control tokens: for rendered templates. Without it they
    /// are plain text like any other: for text from outside. User-defined tokens are matched whole either way.
    pub fn encode(&self, text: &str, parse_special: bool) -> Result<Vec<u32>, TokenizerError> {
        let added = if parse_special { &self.any_added } else { &self.user_defined };
        // English prose has some four bytes per token; a wrong guess costs a reallocation.
        let mut ids = Vec::with_capacity(text.len() / 4 + 1);
        let mut word = String::new();
        let mut at = 0;
        for found in added.matcher.find_iter(text) {
            self.encode_plain(&text[at..found.start()], &mut word, &mut ids)?;
            ids.push(added.ids[found.pattern().as_usize()]);
            at = found.end();
        }
        self.encode_plain(&text[at..], &mut word, &mut ids)?;
        Ok(ids)
    }

    /// [`encode`](Self::encode) of bytes that should be UTF-8; the error says from which byte on they are not.
    pub fn encode_bytes(&self, bytes: &[u8], parse_special: bool) -> Result<Vec<u32>, TokenizerError> {
        let text = std::str::from_utf8(bytes).map_err(|e| TokenizerError::InvalidUtf8 { position: e.valid_up_to() })?;
        self.encode(text, parse_special)
    }

    /// Encodes text without added tokens in it. `word` is scratch space.
    fn encode_plain(&self, text: &str, word: &mut String, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let text = normalise(text);
        for piece in self.pre.pieces(&text) {
            word.clear();
            alphabet::write(piece.as_bytes(), word);
            let tokens = self.bpe.tokenize(word).map_err(|e| library("BPE", e))?;
            ids.extend(tokens.iter().map(|token| token.id));
        }
        Ok(())
    }

    /// The text of `ids`. Bytes that are not UTF-8 become U+FFFD; unused ids and ids outside the vocabulary are nothing.
    ///
    /// With `skip_special` control tokens are left out; user-defined tokens stay.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut utf8 = Utf8Stream::new();
        let mut text = String::new();
        for &id in ids {
            utf8.push(self.shown_bytes(id, skip_special), &mut text);
        }
        utf8.finish(&mut text);
        text
    }

    /// The bytes that `id` adds to a decoded text.
    pub(crate) fn shown_bytes(&self, id: u32, skip_special: bool) -> &[u8] {
        if skip_special && self.is_control(id) {
            return &[];
        }
        self.vocab.bytes(id).unwrap_or_default()
    }

    /// The bytes token `id` stands for: empty for unused tokens, `None` outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.vocab.bytes(id)
    }

    /// The text of token `id` as the file has it (normal tokens in the byte alphabet), `None` outside the vocabulary.
    pub fn token_str(&self, id: u32) -> Option<&str> {
        self.vocab.text(id)
    }

    /// The kind of token `id`, `None` outside the vocabulary.
    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.vocab.kind(id)
    }

    /// Whether `id` is a control token.
    pub fn is_control(&self, id: u32) -> bool {
        self.vocab.kind(id) == Some(TokenKind::Control)
    }

    /// How many tokens the file lists, unused ones included.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// The id of the token whose text in the file is `text`; unused tokens are not found.
    pub fn id_of(&self, text: &str) -> Option<u32> {
        self.added_ids.get(text).copied().or_else(|| self.bpe.token_to_id(text))
    }

    /// The id of the token that stands for exactly these bytes; a normal token where an added one stands for the same.
    pub fn id_of_bytes(&self, bytes: &[u8]) -> Option<u32> {
        let mut text = String::with_capacity(bytes.len() * 2);
        alphabet::write(bytes, &mut text);
        let normal = self.bpe.token_to_id(&text);
        let as_added = || self.added_ids.get(std::str::from_utf8(bytes).ok()?).copied();
        normal.filter(|&id| self.vocab.bytes(id) == Some(bytes)).or_else(as_added)
    }

    /// The ids generation ends at: the file's `eos`, then `<|im_end|>` and `<|endoftext|>` where the vocabulary has them as
    /// control or user-defined tokens. Files of chat models often name only one of these, and models emit either.
    pub fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    /// `tokenizer.ggml.bos_token_id`.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// `tokenizer.ggml.eos_token_id`.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// `tokenizer.ggml.padding_token_id`.
    pub fn padding(&self) -> Option<u32> {
        self.padding
    }

    /// The token to put before every prompt, if the file asks for one.
    pub fn bos_to_add(&self) -> Option<u32> {
        self.bos.filter(|_| self.add_bos)
    }
}

/// NFC, with the tables of the reference implementation. No character below U+0300 composes with anything before it, or has a
/// canonical decomposition that NFC does not put together again.
fn normalise(text: &str) -> Cow<'_, str> {
    if text.chars().all(|c| c < '\u{300}') { Cow::Borrowed(text) } else { Cow::Owned(text.nfc().map(|(c, _)| c).collect()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_between_threads() {
        fn check<T: Send + Sync>() {}
        check::<Tokenizer>();
    }

    #[test]
    fn characters_below_u0300_are_in_nfc() {
        for c in '\0'..'\u{300}' {
            let text = format!("a{c}b{c}{c}");
            let full: String = text.nfc().map(|(c, _)| c).collect();
            assert_eq!(full, text, "{c:?}");
        }
    }
}
