//! `{"name": N, "arguments": {..}}`, read byte by byte. The arguments are passed on as they are: only where they end is found out.

use super::markers::{Begins, begins};
use super::{CallOut, END_CALL, Progress};

/// Longest text of a key or name that is looked at.
const MAX_NAME_BYTES: usize = 1024;

#[derive(Debug, Clone)]
pub(super) struct JsonCall {
    at: At,
    /// The text of the key or name being read, without quotes.
    literal: String,
    /// In a string.
    string: Option<Text>,
    /// Brackets open in the value being read.
    depth: usize,
    /// What the value being read is: the call's name, its arguments, something else.
    member: Member,
    name_seen: bool,
    arguments_seen: bool,
    /// Arguments that came before the name.
    early: String,
}

#[derive(Debug, Clone, Copy, Default)]
struct Text {
    escape: bool,
    /// A control character was in it.
    broken: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    Open,
    Key,
    KeyText,
    Colon,
    Value,
    NameText,
    /// In a value: brackets and strings, or a bare word.
    Inside,
    Word,
    Next,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Member {
    Name,
    Arguments,
    Other,
}

impl JsonCall {
    pub(super) fn new() -> Self {
        Self {
            at: At::Open,
            literal: String::new(),
            string: None,
            depth: 0,
            member: Member::Other,
            name_seen: false,
            arguments_seen: false,
            early: String::new(),
        }
    }

    /// Takes text up to where more is needed or the call ends.
    pub(super) fn step(&mut self, text: &str, out: &mut CallOut) -> Progress {
        let mut i = 0;
        // Where the part of a value begins that was read and not passed on.
        let mut from = 0;
        while let Some(&byte) = text.as_bytes().get(i) {
            let in_value = matches!(self.at, At::Inside | At::Word);
            if byte == b'<' && self.string.is_none_or(|s| s.broken) {
                match begins(&text[i..], END_CALL) {
                    Begins::No => {}
                    Begins::Maybe => break,
                    Begins::Yes => {
                        self.pass(in_value, &text[from..i], out);
                        self.no_arguments(out);
                        return out.stop(i + END_CALL.len(), true);
                    }
                }
            }
            if let Some(string) = &mut self.string {
                let end = byte == b'"' && !string.escape;
                string.escape = byte == b'\\' && !string.escape;
                string.broken |= byte < b' ';
                let broken = string.broken;
                if in_value {
                    i += 1;
                    if end {
                        self.string = None;
                        if self.depth == 0 {
                            self.pass(true, &text[from..i], out);
                            self.at = At::Next;
                        }
                    }
                    continue;
                }
                let long = self.literal.len() + (i - from) > MAX_NAME_BYTES && text.is_char_boundary(i);
                if broken || long {
                    return out.stop(i, false);
                }
                if end {
                    self.literal.push_str(&text[from..i]);
                    self.string = None;
                    let literal = std::mem::take(&mut self.literal);
                    let Ok(literal) = serde_json::from_str::<String>(&format!("\"{literal}\"")) else {
                        return out.stop(i, false);
                    };
                    if !self.named(literal, out) {
                        return out.stop(i, false);
                    }
                }
                i += 1;
                continue;
            }
            let blank = matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
            match self.at {
                At::Inside => {
                    match byte {
                        b'"' => self.string = Some(Text::default()),
                        b'{' | b'[' => self.depth += 1,
                        b'}' | b']' => self.depth -= 1,
                        _ => {}
                    }
                    i += 1;
                    if self.depth == 0 && self.string.is_none() {
                        self.pass(true, &text[from..i], out);
                        self.at = At::Next;
                    }
                    continue;
                }
                At::Word => {
                    if blank || matches!(byte, b',' | b'}' | b']') {
                        self.pass(true, &text[from..i], out);
                        self.at = At::Next;
                    } else {
                        i += 1;
                    }
                    continue;
                }
                _ if blank => {}
                At::Open if byte == b'{' => self.at = At::Key,
                At::Key if byte == b'"' => {
                    self.at = At::KeyText;
                    self.string = Some(Text::default());
                    from = i + 1;
                }
                At::Colon if byte == b':' => self.at = At::Value,
                At::Value if self.member == Member::Name => {
                    if byte != b'"' {
                        return out.stop(i, false);
                    }
                    self.at = At::NameText;
                    self.string = Some(Text::default());
                    from = i + 1;
                }
                At::Value => {
                    if matches!(byte, b',' | b'}' | b']' | b':') {
                        return out.stop(i, false);
                    }
                    self.arguments_seen |= self.member == Member::Arguments;
                    self.at = if matches!(byte, b'"' | b'{' | b'[') { At::Inside } else { At::Word };
                    from = i;
                    continue;
                }
                At::Next if byte == b',' => self.at = At::Key,
                At::Key | At::Next if byte == b'}' => {
                    self.no_arguments(out);
                    return out.stop(i + 1, false);
                }
                _ => return out.stop(i, false),
            }
            i += 1;
        }
        let text = &text[from..i];
        match self.at {
            At::KeyText | At::NameText => self.literal.push_str(text),
            At::Inside | At::Word => self.pass(true, text, out),
            _ => {}
        }
        Progress::More(i)
    }

    /// The text ends inside of the call, whose name is known.
    pub(super) fn finish(mut self, held: &str, out: &mut CallOut) {
        self.pass(matches!(self.at, At::Inside | At::Word), held, out);
    }

    /// A part of a value.
    fn pass(&mut self, in_value: bool, text: &str, out: &mut CallOut) {
        match (in_value && self.member == Member::Arguments, out.named) {
            (true, true) => out.arguments(text),
            (true, false) => self.early.push_str(text),
            (false, _) => {}
        }
    }

    /// A key or the call's name is complete. False if it cannot be a call.
    fn named(&mut self, text: String, out: &mut CallOut) -> bool {
        if self.at == At::KeyText {
            self.at = At::Colon;
            self.member = match text.as_str() {
                "name" if !self.name_seen => Member::Name,
                "arguments" if !self.arguments_seen => Member::Arguments,
                _ => Member::Other,
            };
            return true;
        }
        if text.is_empty() {
            return false;
        }
        self.at = At::Next;
        self.name_seen = true;
        out.name(text);
        out.arguments(&std::mem::take(&mut self.early));
        true
    }

    /// The call is over: without arguments they are empty.
    fn no_arguments(&self, out: &mut CallOut) {
        if out.named && !self.arguments_seen {
            out.arguments("{}");
        }
    }
}
