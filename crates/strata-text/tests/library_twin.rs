//! Our steps against the whole pipeline of the `tokenizers` library, which splits with a backtracking regex engine.

mod common;

use proptest::prelude::*;
use std::sync::LazyLock;
use strata_text::{TokenKind, Tokenizer};
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior};

/// The published patterns, lookahead included.
const QWEN35: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

struct Twins {
    ours: Tokenizer,
    library: tokenizers::Tokenizer,
    /// The library told to read control tokens as text.
    library_plain: tokenizers::Tokenizer,
}

fn twins(pre: &str, pattern: &str) -> Twins {
    let mut source = common::source();
    source.pre = pre.to_owned();
    let ours = Tokenizer::new(source.clone()).unwrap();
    let kind = |id: usize| ours.kind(id as u32).unwrap();
    let vocab: tokenizers::models::bpe::Vocab =
        (0..source.tokens.len()).filter(|&id| kind(id) == TokenKind::Normal).map(|id| (source.tokens[id].clone(), id as u32)).collect();
    let merges = source.merges.iter().map(|m| m.split_once(' ').unwrap());
    let merges = merges.map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
    let mut library = tokenizers::Tokenizer::new(BPE::builder().vocab_and_merges(vocab, merges).build().unwrap());
    library.with_normalizer(Some(NFC)).unwrap();
    let split = Split::new(SplitPattern::Regex(pattern.to_owned()), SplitDelimiterBehavior::Isolated, false).unwrap();
    let bytes = ByteLevel::new(false, false, false);
    library.with_pre_tokenizer(Some(Sequence::new(vec![split.into(), bytes.into()])));
    library.with_decoder(Some(bytes));
    let added = (0..source.tokens.len()).filter(|&id| kind(id) != TokenKind::Normal);
    let added = added.map(|id| AddedToken::from(source.tokens[id].clone(), kind(id) == TokenKind::Control).normalized(false));
    library.add_tokens(added.collect::<Vec<_>>()).unwrap();
    let mut library_plain = library.clone();
    library_plain.set_encode_special_tokens(true);
    Twins { ours, library, library_plain }
}

static TWINS: LazyLock<[Twins; 2]> = LazyLock::new(|| [twins("qwen35", QWEN35), twins("qwen2", QWEN2)]);

impl Twins {
    fn check(&self, text: &str) -> Result<(), TestCaseError> {
        for (parse_special, library) in [(true, &self.library), (false, &self.library_plain)] {
            let want = library.encode(text, false).unwrap();
            let ids = self.ours.encode(text, parse_special).unwrap();
            prop_assert_eq!(&ids, want.get_ids(), "{:?}, special {}", text, parse_special);
            for skip in [false, true] {
                prop_assert_eq!(self.ours.decode(&ids, skip), library.decode(&ids, skip).unwrap());
            }
        }
        Ok(())
    }
}

/// Texts out of parts that the pattern, the normaliser and the added tokens tell apart.
fn texts() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => any::<char>().prop_map(String::from),
        4 => "[a-zA-Z]{1,8}",
        3 => "[ \t\u{a0}\u{3000}\u{85}\u{2028}\u{b}\u{c}]{1,4}",
        2 => "[\r\n]{1,3}",
        2 => "[0-9\u{661}\u{b2}\u{2167}]{1,4}",
        2 => "[!-/:-@\\[-`{-~\u{200b}\u{20ac}]{1,3}",
        2 => "[\u{300}-\u{34f}\u{94d}\u{e38}\u{1161}\u{11ab}\u{3099}\u{fe0f}]{1,3}",
        2 => "[\u{1112}\u{ac00}\u{304b}\u{212b}\u{df}\u{e9}\u{17f}\u{915}\u{1f600}]{1,3}",
        2 => prop::sample::select(vec!["'s", "'LL", "'Ve", "'\u{17f}", "'d", "' t"]).prop_map(String::from),
        1 => prop::sample::select(vec!["<|im_end|>", "<|im_start|>", "<think>", "</think>", "<|im_<think>", "<tool_call"]).prop_map(String::from),
    ];
    prop::collection::vec(part, 0..16).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]
    #[test]
    fn random_texts(text in texts()) {
        TWINS.iter().try_for_each(|t| t.check(&text))?;
    }
}

#[test]
fn held_out_prose() {
    let prose = common::data("heldout_prose.txt");
    TWINS.iter().try_for_each(|t| t.check(&prose)).unwrap();
}

#[test]
fn characters_of_all_planes() {
    let t = &TWINS[0];
    for c in ('\0'..=char::MAX).step_by(181) {
        let text = format!("{c} a{c}b  {c}");
        let want = t.library.encode(text.as_str(), false).unwrap();
        assert_eq!(t.ours.encode(&text, true).unwrap(), want.get_ids(), "{c:?}");
    }
}
