//! Ids and texts of the reference tokenizer, and streaming.

mod common;

use proptest::prelude::*;
use std::sync::{Arc, LazyLock};
use strata_text::{StreamDecoder, TokenKind, Tokenizer};

static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| Arc::new(common::tokenizer()));

/// How many reference cases a tokenizer gets wrong.
fn wrong(tokenizer: &Tokenizer) -> Vec<String> {
    let cases = common::cases("tokenizer_cases.json");
    assert_eq!(cases.len(), 300);
    let mut wrong = Vec::new();
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let want: Vec<u32> = case["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
        let ids = tokenizer.encode(text, true).unwrap();
        let back = tokenizer.decode(&ids, false);
        let changed = back != text;
        if ids != want || back != case["decoded"] || changed != case["nfc_changes_text"].as_bool().unwrap() {
            wrong.push(format!("{text:?}: {ids:?}, expected {want:?}"));
        }
    }
    wrong
}

#[test]
fn reference_cases() {
    let wrong = wrong(&TOKENIZER);
    assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), wrong);
}

#[test]
fn reference_cases_notice_another_rank_order() {
    let mut other = common::source();
    other.merges[..600].reverse();
    assert!(wrong(&Tokenizer::new(other).unwrap()).len() > 50);
}

#[test]
fn control_text_is_plain_unless_asked_for() {
    let t = &*TOKENIZER;
    for id in (0..t.vocab_size() as u32).filter(|&id| t.is_control(id)) {
        let text = format!("a{}b", t.token_str(id).unwrap());
        assert!(t.encode(&text, true).unwrap().contains(&id), "{text}");
        let plain = t.encode(&text, false).unwrap();
        assert!(plain.iter().all(|&id| !t.is_control(id)), "{text}: {plain:?}");
        assert_eq!(t.decode(&plain, true), text);
        assert_eq!(t.decode(&t.encode(&text, true).unwrap(), true), "ab");
    }
    // User-defined tokens are matched and shown either way.
    let think = t.id_of("<think>").unwrap();
    assert_eq!(t.kind(think), Some(TokenKind::UserDefined));
    for parse_special in [false, true] {
        assert!(t.encode("x <think>", parse_special).unwrap().contains(&think));
    }
    assert_eq!(t.decode(&[think], true), "<think>");
}

#[test]
fn added_tokens_are_cut_out_before_normalisation() {
    // The mark cannot reach over the token to the letter.
    let ids = TOKENIZER.encode("e<think>\u{301}", true).unwrap();
    assert_eq!(TOKENIZER.decode(&ids, false), "e<think>\u{301}");
    let ids = TOKENIZER.encode("e\u{301}<think>", true).unwrap();
    assert_eq!(TOKENIZER.decode(&ids, false), "\u{e9}<think>");
}

#[test]
fn lookups() {
    let t = &*TOKENIZER;
    assert_eq!(t.vocab_size(), 4096);
    assert_eq!(t.stop_ids(), [4089, 4087]);
    assert_eq!((t.bos(), t.eos(), t.padding(), t.bos_to_add()), (Some(4087), Some(4089), Some(4087), None));
    assert_eq!((t.token_bytes(4096), t.token_str(4096), t.kind(4096)), (None, None, None));
    assert_eq!(t.token_bytes(198), Some(&b"\n"[..]));
    assert_eq!(t.token_str(198), Some("Ċ"));
    for id in 0..t.vocab_size() as u32 {
        assert_eq!(t.id_of(t.token_str(id).unwrap()), Some(id));
        assert_eq!(t.id_of_bytes(t.token_bytes(id).unwrap()), Some(id));
    }
    assert_eq!(t.id_of("no such token"), None);
    assert_eq!(t.id_of_bytes(&[0xFF, 0xFE, 0xFD]), None);
    // Unknown ids decode to nothing.
    assert_eq!(t.decode(&[64, 4096, u32::MAX, 65], false), "ab");
}

#[test]
fn bytes_must_be_utf8() {
    let t = &*TOKENIZER;
    assert_eq!(t.encode_bytes("aé".as_bytes(), false), t.encode("aé", false));
    let error = t.encode_bytes(b"ab\xC3\xA9\xFFc", false).unwrap_err();
    assert_eq!(error, strata_text::TokenizerError::InvalidUtf8 { position: 4 });
}

/// Ids of one byte, so that characters come in parts, or any ids.
fn some_ids() -> impl Strategy<Value = Vec<u32>> {
    let byte = any::<u8>().prop_map(|b| TOKENIZER.id_of_bytes(&[b]).unwrap());
    let high = (0x80u8..).prop_map(|b| TOKENIZER.id_of_bytes(&[b]).unwrap());
    prop::collection::vec(prop_oneof![byte, high, 0u32..4100], 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn streaming_equals_decoding(ids in some_ids(), skip_special: bool) {
        let mut stream = StreamDecoder::new(Arc::clone(&TOKENIZER), skip_special);
        let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
        text.push_str(&stream.finish());
        let bytes: Vec<u8> = ids
            .iter()
            .filter(|&&id| !(skip_special && TOKENIZER.is_control(id)))
            .flat_map(|&id| TOKENIZER.token_bytes(id).unwrap_or_default().to_vec())
            .collect();
        prop_assert_eq!(&text, &String::from_utf8_lossy(&bytes));
        prop_assert_eq!(text, TOKENIZER.decode(&ids, skip_special));
    }

    #[test]
    fn ascii_comes_back(text in "[ -~\\s]{0,80}", parse_special: bool) {
        let ids = TOKENIZER.encode(&text, parse_special).unwrap();
        let ascii = text.is_ascii();
        prop_assert!(!ascii || TOKENIZER.decode(&ids, false) == text);
    }
}
