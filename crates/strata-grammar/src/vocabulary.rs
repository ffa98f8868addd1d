//! The vocabulary as the masks see it.

use crate::GrammarError;
use crate::limits;
use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use std::sync::Arc;
use strata_text::{TokenKind, Tokenizer};

pub(crate) const END_THINK: &str = "</think>";
pub(crate) const CALL: &str = "<tool_call>";
pub(crate) const END_CALL: &str = "</tool_call>";
/// Longer tokens do not fit the trie; they are never allowed.
const MAX_TOKEN_BYTES: usize = 1000;
/// Nodes of the trie at most, which are no more than the bytes of all tokens.
const MAX_BYTES: usize = (1 << 22) - 1;

/// Token ids with bit operations on masks.
pub(crate) struct Vocabulary {
    env: Arc<Trie>,
    /// What each token adds to the text: nothing if it is a control token.
    shown: Vec<Box<[u8]>>,
    stop: Vec<TokenId>,
    /// Every token that may stand in free text which something must follow: no control token, nothing unused.
    free: Arc<[u32]>,
    markers: Vec<Arc<Marker>>,
}

/// A token that ends a stretch of free text, and how to keep others from spelling it.
pub(crate) struct Marker {
    pub id: TokenId,
    text: &'static [u8],
    /// `spelled[k]`: tokens that complete the text where its first k bytes stand before them.
    spelled: Vec<Vec<TokenId>>,
}

impl Marker {
    /// How many bytes of the marker the text ends with once `bytes` follow. All of them: it is complete, somewhere in `bytes`.
    pub fn advance(&self, mut k: usize, bytes: &[u8]) -> usize {
        for &byte in bytes {
            if k == self.text.len() {
                break;
            }
            // Its first byte occurs nowhere else in it, so no other start can be a part of what was seen.
            k = if byte == self.text[k] { k + 1 } else { usize::from(byte == self.text[0]) };
        }
        k
    }

    pub fn is_complete(&self, k: usize) -> bool {
        k == self.text.len()
    }

    /// The tokens, itself excepted, that complete the text behind its first k bytes.
    fn completing(&self, k: usize, shown: &[Box<[u8]>]) -> Vec<TokenId> {
        let completes = |(id, bytes): &(TokenId, &[u8])| *id != self.id && self.is_complete(self.advance(k, bytes));
        (0..).zip(shown.iter().map(|b| &**b)).filter(completes).map(|(id, _)| id).collect()
    }

    pub fn spelled(&self, k: usize) -> &[TokenId] {
        &self.spelled[k]
    }
}

struct Trie(TokTrie);

impl TokenizerEnv for Trie {
    fn tok_trie(&self) -> &TokTrie {
        &self.0
    }

    fn tokenize_bytes(&self, s: &[u8]) -> Vec<TokenId> {
        self.0.greedy_tokenize(s)
    }

    /// No text is forced: a mask allows every way to divide what the grammar allows.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

impl Vocabulary {
    pub fn new(tokenizer: &Tokenizer) -> Result<Self, GrammarError> {
        let size = tokenizer.vocab_size();
        let stop = tokenizer.stop_ids().to_vec();
        let &eos = stop.first().ok_or(GrammarError::NoStop)?;
        let ids = 0..size as u32;
        let words: Vec<Vec<u8>> = ids.clone().map(|id| word(tokenizer, id)).collect();
        limits::check("tokenizer.ggml.tokens", "bytes of text", MAX_BYTES, words.iter().map(Vec::len).sum())?;
        let trie = TokTrie::from(&TokRxInfo::new(size as u32, eos), &words).with_eos_tokens(&stop);

        let shown = |id| if tokenizer.is_control(id) { Default::default() } else { tokenizer.token_bytes(id).unwrap_or_default().into() };
        let shown: Vec<Box<[u8]>> = ids.map(shown).collect();
        let mut free = vec![0u32; size.div_ceil(32)];
        for (id, _) in shown.iter().enumerate().filter(|(id, b)| !b.is_empty() && !stop.contains(&(*id as u32))) {
            free[id / 32] |= 1 << (id % 32);
        }
        let markers = [END_THINK, CALL].iter().filter_map(|text| {
            let id = added(tokenizer, text)?;
            let mut marker = Marker { id, text: text.as_bytes(), spelled: Vec::new() };
            marker.spelled = (0..text.len()).map(|k| marker.completing(k, &shown)).collect();
            Some(Arc::new(marker))
        });
        let markers = markers.collect();
        Ok(Self { env: Arc::new(Trie(trie)), shown, stop, free: free.into(), markers })
    }

    pub fn env(&self) -> TokEnv {
        Arc::clone(&self.env) as TokEnv
    }

    /// The id of a control or user-defined token.
    pub fn special(&self, text: &'static str) -> Result<TokenId, GrammarError> {
        self.env.0.get_special_token(text).ok_or(GrammarError::NoToken { text })
    }

    pub fn marker(&self, text: &'static str) -> Result<Arc<Marker>, GrammarError> {
        self.markers.iter().find(|m| m.text == text.as_bytes()).cloned().ok_or(GrammarError::NoToken { text })
    }

    /// What a token adds to the text.
    pub fn shown(&self, id: TokenId) -> &[u8] {
        self.shown.get(id as usize).map_or(&[], |b| b)
    }

    pub fn is_stop(&self, id: TokenId) -> bool {
        self.stop.contains(&id)
    }

    pub fn free(&self) -> &Arc<[u32]> {
        &self.free
    }

    /// A mask of all tokens.
    pub fn all(&self) -> Vec<u32> {
        let size = self.shown.len();
        let mut mask = vec![u32::MAX; size.div_ceil(32)];
        if let (Some(last), used @ 1..) = (mask.last_mut(), size % 32) {
            *last = (1 << used) - 1;
        }
        mask
    }
}

fn added(tokenizer: &Tokenizer, text: &str) -> Option<TokenId> {
    let is_added = |id: &u32| matches!(tokenizer.kind(*id), Some(TokenKind::Control | TokenKind::UserDefined));
    tokenizer.id_of(text).filter(is_added)
}

/// A token in the trie. Control and user-defined ones stand behind a byte that no text has, so that grammars can name them and text
/// cannot spell them. Tokens with this byte in them are part of no text either.
fn word(tokenizer: &Tokenizer, id: TokenId) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(id).unwrap_or_default();
    if bytes.is_empty() || bytes.len() > MAX_TOKEN_BYTES || bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER) {
        return Vec::new();
    }
    match tokenizer.kind(id) {
        Some(TokenKind::Normal) => bytes.to_vec(),
        Some(TokenKind::Control | TokenKind::UserDefined) => [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat(),
        _ => Vec::new(),
    }
}
