//! Splitting text into the pieces that BPE merges within.
//!
//! The published patterns end in `|\s+(?!\S)|\s+`. The lookahead means: leave the last character of a run of spaces to the word
//! after it. Here the pattern ends in `|\s+` and [`PreTokenizer::next_piece`] takes that character off, which is the same and
//! needs no backtracking: time is linear in the text, for any text. (Backtracking engines give up on runs of a million spaces.)

use crate::TokenizerError;
use regex::Regex;

/// The values of `tokenizer.ggml.pre` that are supported.
pub const SUPPORTED_PRE: &str = "\"qwen35\", \"qwen2\"";

/// Qwen3.5 and later: combining marks stay with the letters.
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
/// Qwen2 to Qwen3.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";

/// The splitter of one `tokenizer.ggml.pre`.
#[derive(Debug)]
pub(crate) struct PreTokenizer {
    pattern: Regex,
}

impl PreTokenizer {
    /// The splitter named `pre`, or an error that lists the known names.
    pub(crate) fn new(pre: &str) -> Result<Self, TokenizerError> {
        let pattern = match pre {
            "qwen35" => QWEN35,
            "qwen2" => QWEN2,
            _ => {
                return Err(TokenizerError::UnsupportedPre { found: pre.to_owned(), supported: SUPPORTED_PRE });
            }
        };
        match Regex::new(pattern) {
            Ok(pattern) => Ok(Self { pattern }),
            Err(e) => Err(TokenizerError::Library { part: "pre-tokenizer pattern", detail: e.to_string() }),
        }
    }

    /// The pieces of `text` in order; together they are the whole text.
    pub(crate) fn pieces<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let end = self.next_piece(text, at)?;
            let piece = &text[at..end];
            at = end;
            Some(piece)
        })
    }

    /// Where the piece that starts at `at` ends.
    fn next_piece(&self, text: &str, at: usize) -> Option<usize> {
        // Every character is a letter, a mark, a number, a space or none of these, so each position starts a match.
        let found = self.pattern.find_at(text, at)?;
        let end = found.end();
        if end == text.len() {
            return Some(end);
        }
        // Only the last alternative ends in a space that is no line break, and then it took the whole run of spaces.
        match text[at..end].chars().next_back() {
            Some(last) if last.is_whitespace() && last != '\r' && last != '\n' => {
                let shorter = end - last.len_utf8();
                Some(if shorter > at { shorter } else { end })
            }
            _ => Some(end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::LazyLock;
    use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, SplitDelimiterBehavior};

    fn split(pre: &str, text: &str) -> Vec<String> {
        PreTokenizer::new(pre).unwrap().pieces(text).map(str::to_owned).collect()
    }

    #[test]
    fn spaces_stay_with_the_next_word() {
        assert_eq!(split("qwen35", "a   b"), ["a", "  ", " b"]);
        assert_eq!(split("qwen35", "a   "), ["a", "   "]);
        assert_eq!(split("qwen35", " 1"), [" ", "1"]);
        assert_eq!(split("qwen35", "\u{3000}\u{3000}x"), ["\u{3000}", "\u{3000}x"]);
        assert_eq!(split("qwen35", " \t\n  x"), [" \t\n", " ", " x"]);
        assert_eq!(split("qwen35", "x!\n\n y"), ["x", "!\n\n", " y"]);
    }

    #[test]
    fn contractions_ignore_case() {
        assert_eq!(split("qwen35", "I'LL 'sx"), ["I", "'LL", " '", "sx"]);
        // The long s folds to s.
        assert_eq!(split("qwen35", "a'\u{17f}b"), ["a", "'\u{17f}", "b"]);
    }

    #[test]
    fn marks_stay_with_letters_since_qwen35() {
        assert_eq!(split("qwen35", "म\u{94d}त"), ["म\u{94d}त"]);
        assert_eq!(split("qwen2", "म\u{94d}त"), ["म", "\u{94d}त"]);
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        let error = PreTokenizer::new("llama-bpe").unwrap_err().to_string();
        assert!(error.contains("llama-bpe") && error.contains("qwen35") && error.contains("qwen2"));
    }

    /// The published patterns, in the reference library's backtracking engine.
    struct Twin {
        ours: PreTokenizer,
        library: Split,
    }

    static TWINS: LazyLock<[Twin; 2]> = LazyLock::new(|| {
        [("qwen35", QWEN35), ("qwen2", QWEN2)].map(|(pre, pattern)| {
            let published = SplitPattern::Regex(format!(r"{}|\s+(?!\S)|\s+", pattern.strip_suffix(r"|\s+").unwrap()));
            let library = Split::new(published, SplitDelimiterBehavior::Isolated, false).unwrap();
            Twin { ours: PreTokenizer::new(pre).unwrap(), library }
        })
    });

    impl Twin {
        fn check(&self, text: &str) {
            use tokenizers::PreTokenizer as _;
            let mut pieces = PreTokenizedString::from(text);
            self.library.pre_tokenize(&mut pieces).unwrap();
            let want = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
            let want: Vec<&str> = want.iter().map(|(piece, ..)| *piece).filter(|piece| !piece.is_empty()).collect();
            assert_eq!(self.ours.pieces(text).collect::<Vec<_>>(), want);
        }
    }

    /// Parts that the alternatives tell apart.
    fn texts() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            2 => any::<char>().prop_map(String::from),
            3 => "[a-zA-Zé世ſ]{1,3}",
            4 => "[ \t\u{a0}\u{3000}\u{85}\u{2028}\u{b}\u{c}]{1,4}",
            3 => "[\r\n]{1,3}",
            2 => "[0-9\u{661}\u{b2}\u{2167}]{1,3}",
            3 => "[!-/:-@\\[-`{-~\u{200b}€]{1,3}",
            3 => "[\u{300}-\u{34f}\u{94d}\u{e38}\u{20dd}\u{fe0f}]{1,3}",
            3 => prop::sample::select(vec!["'s", "'LL", "'Ve", "'\u{17f}", "'d", "' t", "'r"]).prop_map(String::from),
        ];
        prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(6000))]
        #[test]
        fn random_texts_split_as_published(text in texts()) {
            TWINS.iter().for_each(|twin| twin.check(&text));
        }
    }

    #[test]
    fn characters_of_all_planes_split_as_published() {
        // All of the alphabets, one in 61 of the rest.
        let some: Vec<char> = ('\0'..='\u{30ff}').chain(('\u{3100}'..=char::MAX).step_by(61)).collect();
        for chars in some.chunks(16) {
            let text: String = chars.iter().flat_map(|&c| [c, ' ', 'a', c, 'b', ' ', ' ', c, '\n']).collect();
            TWINS.iter().for_each(|twin| twin.check(&text));
        }
    }

    #[test]
    #[should_panic(expected = "left == right")]
    fn twins_notice_the_wrong_pattern() {
        let [a, b] = [("qwen2", 0), ("qwen35", 1)].map(|(pre, library)| (PreTokenizer::new(pre).unwrap(), &TWINS[library].library));
        for (ours, library) in [a, b] {
            Twin { ours, library: library.clone() }.check("q\u{302}r");
        }
    }
}
