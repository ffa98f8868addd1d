//! Token ids to text while they are generated.

use crate::Tokenizer;
use std::sync::Arc;

/// Bytes to text as [`String::from_utf8_lossy`] does it, in steps: a character whose bytes have not all come is held back.
#[derive(Debug, Clone, Default)]
pub struct Utf8Stream {
    /// The start of a character that may still be completed: at most three bytes.
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// A stream at the start of a text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes `bytes` and appends to `out` what is certain now. Bytes that cannot be part of any character become U+FFFD.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        // At most four bytes complete or refute what is held back, so the bulk need not be copied.
        let mut bytes = bytes;
        while !self.pending.is_empty() {
            let Some((&next, rest)) = bytes.split_first() else {
                return;
            };
            self.pending.push(next);
            bytes = rest;
            let tail = append_lossy(&self.pending, out).len();
            self.pending.drain(..self.pending.len() - tail);
        }
        let tail = append_lossy(bytes, out);
        self.pending.extend_from_slice(tail);
    }

    /// Ends the text: an incomplete character becomes U+FFFD. The stream is at the start of a text again.
    pub fn finish(&mut self, out: &mut String) {
        if !self.pending.is_empty() {
            self.pending.clear();
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// Appends `bytes` as text up to an incomplete character at the end, which is returned.
fn append_lossy<'b>(mut bytes: &'b [u8], out: &mut String) -> &'b [u8] {
    loop {
        let error = match std::str::from_utf8(bytes) {
            Ok(text) => {
                out.push_str(text);
                return &[];
            }
            Err(error) => error,
        };
        let (valid, rest) = bytes.split_at(error.valid_up_to());
        out.push_str(std::str::from_utf8(valid).unwrap_or_default());
        match error.error_len() {
            None => return rest,
            Some(invalid) => {
                out.push(char::REPLACEMENT_CHARACTER);
                bytes = &rest[invalid..];
            }
        }
    }
}

/// Decodes ids one by one. What [`push`](Self::push) and [`finish`](Self::finish) return is, put together, what
/// [`Tokenizer::decode`] makes of all ids.
#[derive(Debug, Clone)]
pub struct StreamDecoder {
    tokenizer: Arc<Tokenizer>,
    skip_special: bool,
    utf8: Utf8Stream,
}

impl StreamDecoder {
    /// A decoder at the start of a text; `skip_special` as in [`Tokenizer::decode`].
    pub fn new(tokenizer: Arc<Tokenizer>, skip_special: bool) -> Self {
        Self { tokenizer, skip_special, utf8: Utf8Stream::new() }
    }

    /// The text that is certain after token `id`, often empty inside a character of several tokens.
    pub fn push(&mut self, id: u32) -> String {
        let mut text = String::new();
        let bytes = self.tokenizer.shown_bytes(id, self.skip_special);
        self.utf8.push(bytes, &mut text);
        text
    }

    /// What is left at the end: U+FFFD if the last character is incomplete. The decoder is at the start of a text again.
    pub fn finish(&mut self) -> String {
        let mut text = String::new();
        self.utf8.finish(&mut text);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that make and break characters more often than chance does.
    fn tricky() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            any::<u8>(),
            prop::sample::select(vec![b'a', 0x80, 0xBF, 0xC3, 0xE2, 0x82, 0xAC, 0xED, 0xA0, 0xF0, 0x9F, 0xF4, 0x90, 0xFF]),
        ];
        prop::collection::vec(byte, 0..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn chunks_make_no_difference(bytes in tricky(), cuts in prop::collection::vec(0usize..41, 0..12)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let (mut stream, mut text) = (Utf8Stream::new(), String::new());
            for pair in cuts.windows(2) {
                stream.push(&bytes[pair[0]..pair[1]], &mut text);
            }
            stream.finish(&mut text);
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn holds_back_no_more_than_needed() {
        let (mut stream, mut text) = (Utf8Stream::new(), String::new());
        stream.push(b"x\xE2\x82", &mut text);
        assert_eq!(text, "x");
        stream.push(b"\xACy", &mut text);
        assert_eq!(text, "x€y");
        stream.push(b"\xE2", &mut text);
        stream.push(b"z", &mut text);
        assert_eq!(text, "x€y\u{FFFD}z");
    }
}
