//! Stop strings in streamed text.

use crate::StopStringsError;

const MAX_STOPS: usize = 64;
const MAX_STOP_BYTES: usize = 4096;

/// What one step of a [`StopStrings`] matcher releases.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StopOutput {
    /// Text that is certainly before any stop string.
    pub text: String,
    /// The index of the stop string that was found; nothing comes after it.
    pub matched: Option<usize>,
}

/// Finds the first stop string in a text that comes in chunks, and holds back text that may be the start of one.
///
/// The match is the one that ends first; of several that end there, the one that starts first (the longest; of equal ones the
/// first listed). So the result does not depend on how the text is cut into chunks.
#[derive(Debug, Clone)]
pub struct StopStrings {
    stops: Vec<Stop>,
    /// Text not yet released: the longest end of the text that is the start of a stop string.
    held: String,
    matched: Option<usize>,
}

/// One stop string with the state of its search (Knuth, Morris, Pratt).
#[derive(Debug, Clone)]
struct Stop {
    bytes: Vec<u8>,
    /// `border[i]`: length of the longest proper prefix of `bytes[..=i]` that is also its suffix.
    border: Vec<usize>,
    /// How many bytes of the stop string the text ends with.
    state: usize,
}

impl Stop {
    fn new(text: &str) -> Self {
        let bytes = text.as_bytes().to_vec();
        let mut border = vec![0; bytes.len()];
        let mut length = 0;
        for i in 1..bytes.len() {
            while length > 0 && bytes[i] != bytes[length] {
                length = border[length - 1];
            }
            length += usize::from(bytes[i] == bytes[length]);
            border[i] = length;
        }
        Self { bytes, border, state: 0 }
    }

    /// Takes the next byte; true if the stop string ends here. Not to be called after that.
    fn step(&mut self, byte: u8) -> bool {
        while self.state > 0 && self.bytes[self.state] != byte {
            self.state = self.border[self.state - 1];
        }
        self.state += usize::from(self.bytes[self.state] == byte);
        self.state == self.bytes.len()
    }
}

impl StopStrings {
    /// A matcher at the start of a text. No stop strings are fine: everything is released at once.
    pub fn new<S: AsRef<str>>(stops: &[S]) -> Result<Self, StopStringsError> {
        if stops.len() > MAX_STOPS {
            return Err(StopStringsError::Count { max: MAX_STOPS, found: stops.len() });
        }
        let check = |(index, stop): (usize, &S)| match stop.as_ref().len() {
            0 => Err(StopStringsError::Empty { index }),
            found if found > MAX_STOP_BYTES => Err(StopStringsError::Length { index, max: MAX_STOP_BYTES, found }),
            _ => Ok(Stop::new(stop.as_ref())),
        };
        Ok(Self { stops: stops.iter().enumerate().map(check).collect::<Result<_, _>>()?, held: String::new(), matched: None })
    }

    /// Takes the next chunk. After a match everything is swallowed.
    pub fn push(&mut self, chunk: &str) -> StopOutput {
        if self.matched.is_some() {
            return StopOutput { text: String::new(), matched: self.matched };
        }
        let before = self.held.len();
        self.held.push_str(chunk);
        for (i, &byte) in chunk.as_bytes().iter().enumerate() {
            let mut longest: Option<(usize, usize)> = None;
            for (index, stop) in self.stops.iter_mut().enumerate() {
                if stop.step(byte) && longest.is_none_or(|(length, _)| stop.bytes.len() > length) {
                    longest = Some((stop.bytes.len(), index));
                }
            }
            if let Some((length, index)) = longest {
                // A stop string is a part of the text, so its start is the start of a character.
                self.held.truncate(before + i + 1 - length);
                self.matched = Some(index);
                return StopOutput { text: std::mem::take(&mut self.held), matched: self.matched };
            }
        }
        let hold = self.stops.iter().map(|s| s.state).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - hold);
        StopOutput { text: std::mem::replace(&mut self.held, rest), matched: None }
    }

    /// Ends the text: what was held back turned out to be no stop string. Empty after a match.
    pub fn finish(self) -> String {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, on the whole text at once.
    fn naive(text: &str, stops: &[String]) -> (String, Option<usize>) {
        for end in 1..=text.len() {
            let here = stops
                .iter()
                .enumerate()
                .filter(|(_, s)| text.as_bytes()[..end].ends_with(s.as_bytes()))
                .min_by_key(|(index, s)| (std::cmp::Reverse(s.len()), *index));
            if let Some((index, stop)) = here {
                return (text[..end - stop.len()].to_owned(), Some(index));
            }
        }
        (text.to_owned(), None)
    }

    fn streamed(chunks: &[String], stops: &[String]) -> (String, Option<usize>) {
        let mut matcher = StopStrings::new(stops).unwrap();
        let (mut text, mut matched) = (String::new(), None);
        for chunk in chunks {
            let out = matcher.push(chunk);
            text.push_str(&out.text);
            matched = out.matched;
        }
        text.push_str(&matcher.finish());
        (text, matched)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn same_as_naive(
            chunks in prop::collection::vec("[abé€]{0,5}", 0..8),
            stops in prop::collection::vec("[abé€]{1,5}", 0..4),
        ) {
            prop_assert_eq!(streamed(&chunks, &stops), naive(&chunks.concat(), &stops));
        }
    }

    #[test]
    fn holds_back_only_a_possible_start() {
        let mut matcher = StopStrings::new(&["</end>", "\n\n"]).unwrap();
        assert_eq!(matcher.push("a</e").text, "a");
        assert_eq!(matcher.push("x<").text, "</ex");
        let out = matcher.push("/end>more");
        assert_eq!((out.text.as_str(), out.matched), ("", Some(0)));
        assert_eq!(matcher.push("more"), StopOutput { text: String::new(), matched: Some(0) });
        assert_eq!(matcher.finish(), "");
    }

    #[test]
    fn bad_sets_are_refused() {
        assert_eq!(StopStrings::new(&["a", ""]).unwrap_err(), StopStringsError::Empty { index: 1 });
        assert!(matches!(StopStrings::new(&vec!["a"; 65]), Err(StopStringsError::Count { found: 65, .. })));
        assert!(matches!(StopStrings::new(&["a".repeat(5000)]), Err(StopStringsError::Length { found: 5000, .. })));
    }
}
