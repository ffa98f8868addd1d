//! Every field of a file that is wrong is named.

mod common;

use strata_text::{Tokenizer, TokenizerError, TokenizerSource};

fn error(change: impl FnOnce(&mut TokenizerSource)) -> TokenizerError {
    let mut source = common::source();
    change(&mut source);
    let error = Tokenizer::new(source).unwrap_err();
    assert!(error.to_string().starts_with("tokenizer.ggml."), "{error}");
    error
}

#[test]
fn model_and_pre() {
    assert_eq!(error(|s| s.model = "llama".into()), TokenizerError::UnsupportedModel { found: "llama".into() });
    let message = error(|s| s.pre = "gpt-4o".into()).to_string();
    assert!(message.contains("gpt-4o") && message.contains(strata_text::SUPPORTED_PRE), "{message}");
}

#[test]
fn tokens_and_types() {
    assert!(matches!(error(|s| (s.tokens, s.token_types) = (vec![], vec![])), TokenizerError::Count { found: 0, .. }));
    assert_eq!(error(|s| s.token_types.truncate(9)), TokenizerError::TypeCount { tokens: 4096, found: 9 });
    for found in [0, 2, 6, -1, 7] {
        assert_eq!(error(|s| s.token_types[5] = found), TokenizerError::TokenType { id: 5, found });
    }
    assert!(matches!(error(|s| s.tokens[4095].clear()), TokenizerError::TokenLength { id: 4095, found: 0, .. }));
    assert!(matches!(error(|s| s.tokens[4095] = "x".repeat(5000)), TokenizerError::TokenLength { id: 4095, found: 5000, .. }));
    let twice = error(|s| s.tokens[4095] = s.tokens[7].clone());
    assert!(matches!(twice, TokenizerError::DuplicateToken { id: 4095, first: 7, .. }));
    // Token 198 is the line break.
    let missing = TokenizerError::MissingByte { byte: b'\n', text: 'Ċ' };
    assert_eq!(error(|s| s.tokens[198] = "no line break".into()), missing);
    assert_eq!(error(|s| s.token_types[198] = 3), missing);
}

#[test]
fn merges() {
    for text in ["", " ", "a", "a ", " a", "a b c", "a  b"] {
        assert_eq!(error(|s| s.merges[3] = text.into()), TokenizerError::MalformedMerge { index: 3, text: text.into() });
    }
    for (text, token) in [("zzzz q", "zzzz"), ("q zzzz", "zzzz"), ("z Z", "zZ")] {
        assert_eq!(error(|s| s.merges[3] = text.into()), TokenizerError::UnresolvedMerge { index: 3, token: token.into() });
    }
    assert!(matches!(error(|s| s.merges[3] = s.merges[1].clone()), TokenizerError::DuplicateMerge { index: 3, first: 1, .. }));
    // A merge that makes a control token would let plain text turn into one.
    let made = error(|s| {
        let merged = s.merges[0].replace(' ', "");
        let id = s.tokens.iter().position(|t| *t == merged).unwrap();
        s.token_types[id] = 3;
    });
    assert!(matches!(made, TokenizerError::UnresolvedMerge { index: 0, .. }));
}

#[test]
fn special_ids() {
    let key = "tokenizer.ggml.eos_token_id";
    assert_eq!(error(|s| s.eos = Some(4096)), TokenizerError::IdRange { key, tokens: 4096, found: 4096 });
    assert!(matches!(error(|s| s.bos = Some(u32::MAX)), TokenizerError::IdRange { .. }));
    assert!(matches!(error(|s| s.padding = Some(5000)), TokenizerError::IdRange { .. }));
    assert_eq!(error(|s| s.token_types[4089] = 5), TokenizerError::IdUnused { key, found: 4089 });
    assert_eq!(error(|s| (s.bos, s.add_bos) = (None, true)), TokenizerError::MissingBos);
}

#[test]
fn optional_fields_may_be_missing() {
    let mut source = common::source();
    (source.bos, source.eos, source.padding, source.chat_template) = (None, None, None, None);
    let tokenizer = Tokenizer::new(source).unwrap();
    assert_eq!(tokenizer.stop_ids(), [4089, 4087]);
    let mut source = common::source();
    source.add_bos = true;
    assert_eq!(Tokenizer::new(source).unwrap().bos_to_add(), Some(4087));
}

#[test]
fn unused_tokens_are_never_made() {
    let mut source = common::source();
    // Several unused tokens may share a text, also one that is used.
    for text in ["[PAD]", "[PAD]", "<think>", ""] {
        source.tokens.push(text.into());
        source.token_types.push(5);
    }
    let tokenizer = Tokenizer::new(source).unwrap();
    assert_eq!(tokenizer.encode("[PAD]<think>", true).unwrap().iter().max(), Some(&4090));
    assert_eq!((tokenizer.id_of("[PAD]"), tokenizer.id_of("<think>")), (None, Some(4090)));
    assert_eq!(tokenizer.decode(&[4096, 64, 4098], false), "a");
    assert_eq!(tokenizer.token_bytes(4096), Some(&b""[..]));
}
