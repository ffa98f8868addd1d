//! `<function=NAME>` and `<parameter=KEY>` elements, written out as JSON while they come.

use super::markers::{Begins, begins, open_end};
use super::{CallOut, END_CALL, Progress, ToolTypes, Types};

pub(crate) const FUNCTION: &str = "<function=";
pub(crate) const END_FUNCTION: &str = "</function>";
pub(crate) const PARAMETER: &str = "<parameter=";
/// The end of a value that began on a line of its own, and of one that did not.
pub(crate) const END_VALUE: &str = "\n</parameter>";
const END_INLINE: &str = "</parameter>";
/// Bytes of a name or key.
const MAX_NAME_BYTES: usize = 1024;

#[derive(Debug, Clone)]
pub(super) struct XmlCall {
    at: At,
    name: String,
    /// Parameters that have begun.
    parameters: usize,
    types: Types,
    /// The text of a value that may be another thing than a string.
    value: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    Open,
    Name,
    Body,
    Key,
    ValueStart,
    Value { end: &'static str },
}

impl XmlCall {
    pub(super) fn new() -> Self {
        Self { at: At::Open, name: String::new(), parameters: 0, types: Types::STRING, value: String::new() }
    }

    /// Takes text up to where more is needed or the call ends.
    pub(super) fn step(&mut self, text: &str, types: &ToolTypes, out: &mut CallOut) -> Progress {
        let mut i = 0;
        loop {
            let rest = &text[i..];
            let blank = rest.len() - rest.trim_start().len();
            match self.at {
                At::Open => {
                    i += blank;
                    match begins(&text[i..], FUNCTION) {
                        Begins::No => return out.stop(i, false),
                        Begins::Maybe => return Progress::More(i),
                        Begins::Yes => i += FUNCTION.len(),
                    }
                    self.at = At::Name;
                }
                At::Name => match name(rest) {
                    Name::Open => return Progress::More(i),
                    Name::Bad => return out.stop(i, false),
                    Name::Is(name) => {
                        i += name.len() + 1;
                        self.name = name.to_owned();
                        out.name(name.to_owned());
                        self.at = At::Body;
                    }
                },
                At::Body => {
                    i += blank;
                    let rest = &text[i..];
                    if rest.is_empty() {
                        return Progress::More(i);
                    }
                    let marks = [PARAMETER, END_FUNCTION, END_CALL];
                    match marks.iter().find(|m| rest.starts_with(**m)) {
                        Some(&PARAMETER) => {
                            i += PARAMETER.len();
                            self.at = At::Key;
                        }
                        Some(mark) => {
                            out.arguments(if self.parameters == 0 { "{}" } else { "}" });
                            return out.stop(i + mark.len(), *mark == END_CALL);
                        }
                        None if marks.iter().any(|m| m.starts_with(rest)) => return Progress::More(i),
                        None => return out.stop(i, false),
                    }
                }
                At::Key => match name(rest) {
                    Name::Open => return Progress::More(i),
                    Name::Bad => return out.stop(i, false),
                    Name::Is(key) => {
                        i += key.len() + 1;
                        self.types = types.of(&self.name, key);
                        out.arguments(if self.parameters == 0 { "{\"" } else { ", \"" });
                        out.arguments(&escaped(key));
                        out.arguments(if self.streams() { "\": \"" } else { "\": " });
                        self.parameters += 1;
                        self.at = At::ValueStart;
                    }
                },
                At::ValueStart => match begins(rest, END_VALUE) {
                    Begins::Maybe => return Progress::More(i),
                    Begins::Yes => {
                        i += END_VALUE.len();
                        self.end_value(out);
                    }
                    Begins::No => {
                        let line = rest.starts_with('\n');
                        i += usize::from(line);
                        self.at = At::Value { end: if line { END_VALUE } else { END_INLINE } };
                    }
                },
                At::Value { end } => {
                    let found = rest.find(end);
                    let sure = found.unwrap_or_else(|| rest.len() - open_end(rest, end));
                    self.pass(&rest[..sure], out);
                    i += sure;
                    if found.is_none() {
                        return Progress::More(i);
                    }
                    i += end.len();
                    self.end_value(out);
                }
            }
        }
    }

    /// The text ends inside of the call, whose name is known.
    pub(super) fn finish(mut self, held: &str, out: &mut CallOut) {
        match self.at {
            At::ValueStart => self.pass(held.strip_prefix('\n').unwrap_or(held), out),
            At::Value { .. } => self.pass(held, out),
            _ => {}
        }
        if !self.value.is_empty() {
            out.arguments(&self.value);
        }
    }

    /// A value that can only be a string is passed on while it comes.
    fn streams(&self) -> bool {
        self.types == Types::STRING
    }

    fn pass(&mut self, text: &str, out: &mut CallOut) {
        if self.streams() {
            out.arguments(&escaped(text));
        } else {
            self.value.push_str(text);
        }
    }

    fn end_value(&mut self, out: &mut CallOut) {
        if self.streams() {
            out.arguments("\"");
        } else {
            out.arguments(&self.types.json_of(&std::mem::take(&mut self.value)));
        }
        self.at = At::Body;
    }
}

enum Name<'a> {
    Is(&'a str),
    /// `>` has not come.
    Open,
    Bad,
}

/// What stands before `>`.
fn name(text: &str) -> Name<'_> {
    match text.bytes().take(MAX_NAME_BYTES + 1).position(|b| matches!(b, b'>' | b'<' | b'\n')) {
        Some(at) if at > 0 && text.as_bytes()[at] == b'>' => Name::Is(&text[..at]),
        None if text.len() <= MAX_NAME_BYTES => Name::Open,
        _ => Name::Bad,
    }
}

/// The text as it stands between the quotes of a JSON string.
pub(super) fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}
