//! The checked vocabulary: every field of a [`TokenizerSource`] that has to do with token text.

use crate::{TokenKind, TokenizerError, TokenizerSource, alphabet};
use std::collections::HashMap;

/// More tokens than any published vocabulary by a factor of ten.
const MAX_TOKENS: usize = 4_000_000;
const MAX_MERGES: usize = 8_000_000;
/// Bytes of one token's text.
const MAX_TOKEN_BYTES: usize = 4096;
/// Bytes of all tokens; keeps offsets in `u32`.
const MAX_VOCAB_BYTES: usize = 1 << 30;

/// Token texts, kinds and bytes by id.
#[derive(Debug)]
pub(crate) struct Vocab {
    texts: Vec<String>,
    kinds: Vec<TokenKind>,
    /// The bytes all tokens decode to, one after the other.
    bytes: Vec<u8>,
    /// Token `i` decodes to `bytes[starts[i]..starts[i + 1]]`.
    starts: Vec<u32>,
}

impl Vocab {
    /// Checks tokens and types; takes the texts over.
    pub(crate) fn new(texts: Vec<String>, types: &[i32]) -> Result<Self, TokenizerError> {
        const KEY: &str = "tokenizer.ggml.tokens";
        check_count(KEY, "tokens", 1, MAX_TOKENS, texts.len())?;
        if types.len() != texts.len() {
            return Err(TokenizerError::TypeCount { tokens: texts.len(), found: types.len() });
        }
        let total = texts.iter().map(String::len).sum();
        check_count(KEY, "bytes of text", 0, MAX_VOCAB_BYTES, total)?;

        let mut kinds = Vec::with_capacity(texts.len());
        let mut bytes = Vec::with_capacity(total);
        let mut starts = Vec::with_capacity(texts.len() + 1);
        starts.push(0);
        let mut seen: HashMap<&str, u32> = HashMap::with_capacity(texts.len());
        for (id, (text, &number)) in (0u32..).zip(texts.iter().zip(types)) {
            let kind = TokenKind::from_gguf(number).ok_or(TokenizerError::TokenType { id, found: number })?;
            if kind != TokenKind::Unused {
                if text.is_empty() || text.len() > MAX_TOKEN_BYTES {
                    return Err(TokenizerError::TokenLength { id, max: MAX_TOKEN_BYTES, found: text.len() });
                }
                if let Some(first) = seen.insert(text, id) {
                    let text = text.clone();
                    return Err(TokenizerError::DuplicateToken { id, first, text });
                }
            }
            match kind {
                TokenKind::Normal => alphabet::read(text, &mut bytes),
                TokenKind::Control | TokenKind::UserDefined => bytes.extend_from_slice(text.as_bytes()),
                TokenKind::Unused => {}
            }
            kinds.push(kind);
            starts.push(bytes.len() as u32);
        }
        for byte in 0..=255u8 {
            let text = alphabet::char_of(byte);
            let id = seen.get(text.encode_utf8(&mut [0; 4]) as &str);
            if id.is_none_or(|&id| kinds[id as usize] != TokenKind::Normal) {
                return Err(TokenizerError::MissingByte { byte, text });
            }
        }
        Ok(Self { texts, kinds, bytes, starts })
    }

    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    pub(crate) fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(id as usize).map(String::as_str)
    }

    pub(crate) fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    pub(crate) fn bytes(&self, id: u32) -> Option<&[u8]> {
        let i = id as usize;
        let end = *self.starts.get(i + 1)?;
        Some(&self.bytes[self.starts[i] as usize..end as usize])
    }

    /// Ids and texts of the tokens of the wanted kinds.
    pub(crate) fn of_kinds(&self, wanted: &[TokenKind]) -> impl Iterator<Item = (u32, &str)> {
        (0u32..)
            .zip(self.texts.iter().zip(&self.kinds))
            .filter(|(_, (_, kind))| wanted.contains(kind))
            .map(|(id, (text, _))| (id, text.as_str()))
    }
}

/// Splits the merges into pairs and checks that `known` holds both parts and the result of each.
pub(crate) fn parse_merges(merges: &[String], known: impl Fn(&str) -> bool) -> Result<Vec<(String, String)>, TokenizerError> {
    check_count("tokenizer.ggml.merges", "merges", 0, MAX_MERGES, merges.len())?;
    let mut first: HashMap<&str, usize> = HashMap::with_capacity(merges.len());
    let mut pairs = Vec::with_capacity(merges.len());
    let mut joined = String::new();
    for (index, text) in merges.iter().enumerate() {
        let (left, right) = match text.split_once(' ') {
            Some((l, r)) if !l.is_empty() && !r.is_empty() && !r.contains(' ') => (l, r),
            _ => {
                let text = text.clone();
                return Err(TokenizerError::MalformedMerge { index, text });
            }
        };
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        for part in [left, right, &joined] {
            if !known(part) {
                let token = part.to_owned();
                return Err(TokenizerError::UnresolvedMerge { index, token });
            }
        }
        if let Some(first) = first.insert(text, index) {
            let text = text.clone();
            return Err(TokenizerError::DuplicateMerge { index, first, text });
        }
        pairs.push((left.to_owned(), right.to_owned()));
    }
    Ok(pairs)
}

/// Checks the ids that the file names.
pub(crate) fn check_ids(source: &TokenizerSource, vocab: &Vocab) -> Result<(), TokenizerError> {
    for (key, id) in [
        ("tokenizer.ggml.bos_token_id", source.bos),
        ("tokenizer.ggml.eos_token_id", source.eos),
        ("tokenizer.ggml.padding_token_id", source.padding),
    ] {
        let Some(found) = id else { continue };
        match vocab.kind(found) {
            None => {
                let tokens = vocab.len();
                return Err(TokenizerError::IdRange { key, tokens, found });
            }
            Some(TokenKind::Unused) => return Err(TokenizerError::IdUnused { key, found }),
            Some(_) => {}
        }
    }
    if source.add_bos && source.bos.is_none() {
        return Err(TokenizerError::MissingBos);
    }
    Ok(())
}

pub(crate) fn check_count(key: &'static str, unit: &'static str, min: usize, max: usize, found: usize) -> Result<(), TokenizerError> {
    if (min..=max).contains(&found) { Ok(()) } else { Err(TokenizerError::Count { key, unit, min, max, found }) }
}
