//! The definition of the parser on a whole text, by regular expressions and recursion: the oracle of its tests.

use super::{CallFormat, ReplyEvent, ReplyStart, ToolTypes, Types};
use regex::Regex;
use serde_json::Value;
use std::sync::LazyLock;

static OPENED: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\s*<think>\n?").unwrap());
static END: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\n?</think>\n{0,2}").unwrap());
static HEAD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\s*<function=([^<>\n]{1,1024})>").unwrap());
static PARAMETER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\s*<parameter=([^<>\n]{1,1024})>").unwrap());
static INSIDE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"^(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*"#).unwrap());

/// All events; texts are not divided.
pub(super) fn parse(text: &str, start: ReplyStart, format: Option<CallFormat>, types: &ToolTypes) -> Vec<ReplyEvent> {
    let mut events = Vec::new();
    let opened = OPENED.find(text).map(|m| &text[m.end()..]);
    let (inside, mut rest) = match (start, opened) {
        (ReplyStart::Content, None) => ("", text),
        (ReplyStart::Reasoning, _) => split(text),
        (ReplyStart::Content, Some(inside)) => split(inside),
    };
    if !inside.is_empty() {
        events.push(ReplyEvent::Reasoning(inside.to_owned()));
    }
    let mut calls = 0;
    let mut behind_call = false;
    let mut text = String::new();
    while let (Some(format), Some(at)) = (format, rest.find("<tool_call>")) {
        let body = &rest[at + 11..];
        let call = match format {
            CallFormat::Json => json(body),
            CallFormat::Xml => xml(body, types),
        };
        match call {
            Err(taken) => {
                text.push_str(&rest[..at + 11 + taken]);
                rest = &body[taken..];
            }
            Ok(call) => {
                text.push_str(&rest[..at]);
                content(&mut events, text.trim_end());
                events.push(ReplyEvent::ToolCall { index: calls, name: call.name });
                if !call.arguments.is_empty() {
                    events.push(ReplyEvent::Arguments { index: calls, delta: call.arguments });
                }
                events.push(ReplyEvent::ToolCallEnd { index: calls });
                calls += 1;
                rest = &body[call.taken..];
                if !call.closed {
                    rest = rest.trim_start().strip_prefix("</tool_call>").unwrap_or(rest);
                }
                text.clear();
                behind_call = true;
            }
        }
    }
    text.push_str(rest);
    if !(behind_call && text.trim().is_empty()) {
        content(&mut events, &text);
    }
    events
}

fn content(events: &mut Vec<ReplyEvent>, text: &str) {
    if !text.is_empty() {
        events.push(ReplyEvent::Content(text.to_owned()));
    }
}

/// Reasoning and the rest.
fn split(text: &str) -> (&str, &str) {
    END.find(text).map_or((text, ""), |m| (&text[..m.start()], &text[m.end()..]))
}

struct Call {
    name: String,
    arguments: String,
    taken: usize,
    closed: bool,
}

fn xml(text: &str, types: &ToolTypes) -> Result<Call, usize> {
    let blank = text.len() - text.trim_start().len();
    if !text[blank..].starts_with("<function=") {
        // At the end of the text all of it may have been a start.
        return Err(if "<function=".starts_with(&text[blank..]) { text.len() } else { blank });
    }
    let Some(found) = HEAD.captures(text) else { return Err(blank + 10) };
    let name = found[1].to_owned();
    let mut at = found[0].len();
    let mut arguments = String::new();
    loop {
        let rest = &text[at..];
        if let Some(found) = PARAMETER.captures(rest) {
            arguments.push_str(if arguments.is_empty() { "{" } else { ", " });
            arguments.push_str(&format!("{}: ", Value::from(&found[1])));
            let of = types.of(&name, &found[1]);
            let rest = &rest[found[0].len()..];
            at += found[0].len();
            let (end, skip) = if rest.starts_with('\n') { ("\n</parameter>", 1) } else { ("</parameter>", 0) };
            let Some(length) = rest.find(end) else {
                let part = &rest[skip..];
                let quoted = Value::from(part).to_string();
                arguments.push_str(if of == Types::STRING { &quoted[..quoted.len() - 1] } else { part });
                return Ok(Call { name, arguments, taken: text.len(), closed: false });
            };
            let value = rest.get(skip..length).unwrap_or("");
            arguments.push_str(&if of == Types::STRING { Value::from(value).to_string() } else { of.json_of(value) });
            at += length + end.len();
            continue;
        }
        let blank = rest.len() - rest.trim_start().len();
        for (mark, closed) in [("</function>", false), ("</tool_call>", true)] {
            if rest[blank..].starts_with(mark) {
                arguments.push_str(if arguments.is_empty() { "{}" } else { "}" });
                return Ok(Call { name, arguments, taken: at + blank + mark.len(), closed });
            }
        }
        let mark = if rest[blank..].starts_with("<parameter=") { 11 } else { 0 };
        let open = ["<parameter=", "</function>", "</tool_call>"].iter().any(|m| m.starts_with(&rest[blank..]));
        let key_open = mark > 0 && !rest[blank + mark..].contains(['<', '>', '\n']) && rest.len() - blank - mark <= 1024;
        let taken = if open || key_open { text.len() } else { at + blank + mark };
        return Ok(Call { name, arguments, taken, closed: false });
    }
}

/// Where reading stopped and why.
enum Stop {
    /// Here it is no JSON call.
    Here(usize),
    /// The text ends.
    Short,
    /// `</tool_call>` ends before this.
    Closed(usize),
}

fn json(text: &str) -> Result<Call, usize> {
    let (mut name, mut arguments, mut seen) = (None, String::new(), false);
    let stop = members(text, &mut name, &mut arguments, &mut seen);
    let end = |at| (at, false);
    let (taken, closed) = match &stop {
        Ok(at) | Err(Stop::Here(at)) => end(*at),
        Err(Stop::Short) => end(text.len()),
        Err(Stop::Closed(at)) => (*at, true),
    };
    let Some(name) = name else { return Err(taken) };
    if !seen && (stop.is_ok() || closed) {
        arguments.push_str("{}");
    }
    Ok(Call { name, arguments, taken, closed })
}

/// Reads the object; the end of it.
fn members(text: &str, name: &mut Option<String>, arguments: &mut String, seen: &mut bool) -> Result<usize, Stop> {
    let mut at = token(text, 0, "{")?;
    loop {
        at = blank(text, at)?;
        if text[at..].starts_with('}') {
            return Ok(at + 1);
        }
        let key = string(text, token(text, at, "\"")?)?;
        at = blank(text, token(text, key.1, ":")?)?;
        match key.0.as_str() {
            "name" if name.is_none() => {
                let value = string(text, token(text, at, "\"")?)?;
                if value.0.is_empty() {
                    return Err(Stop::Here(value.1 - 1));
                }
                (*name, at) = (Some(value.0), value.1);
            }
            key => {
                if text[at..].starts_with([',', '}', ']', ':']) {
                    return Err(Stop::Here(at));
                }
                let end = value(text, at);
                if key == "arguments" && !*seen {
                    *seen = true;
                    let until = match end {
                        Ok(end) => end,
                        Err(Stop::Closed(end)) => end - 12,
                        Err(_) => text.len(),
                    };
                    arguments.push_str(&text[at..until]);
                }
                at = end?;
            }
        }
        at = blank(text, at)?;
        if !text[at..].starts_with('}') {
            at = token(text, at, ",")?;
        }
    }
}

/// Skips white space; the text goes on there.
fn blank(text: &str, at: usize) -> Result<usize, Stop> {
    let at = text.len() - text[at..].trim_start_matches([' ', '\n', '\r', '\t']).len();
    match &text[at..] {
        "" => Err(Stop::Short),
        rest if rest.starts_with("</tool_call>") => Err(Stop::Closed(at + 12)),
        rest if "</tool_call>".starts_with(rest) => Err(Stop::Short),
        _ => Ok(at),
    }
}

fn token(text: &str, at: usize, token: &str) -> Result<usize, Stop> {
    let at = blank(text, at)?;
    if text[at..].starts_with(token) { Ok(at + token.len()) } else { Err(Stop::Here(at)) }
}

/// A key or name behind its quote.
fn string(text: &str, at: usize) -> Result<(String, usize), Stop> {
    let inside = INSIDE.find(&text[at..]).unwrap().as_str();
    let end = at + inside.len();
    // A backslash before a control character.
    let end = end + usize::from(text[end..].starts_with('\\'));
    if end - at > 1024 {
        let cut = (1025..).find(|&n| text.is_char_boundary(at + n)).unwrap();
        return Err(Stop::Here(at + cut));
    }
    match text[end..].chars().next() {
        None => Err(Stop::Short),
        Some('"') => match serde_json::from_str(&format!("\"{inside}\"")) {
            Ok(value) => Ok((value, end + 1)),
            Err(_) => Err(Stop::Here(end)),
        },
        Some(_) => Err(Stop::Here(end)),
    }
}

/// The end of a value of any kind.
fn value(text: &str, at: usize) -> Result<usize, Stop> {
    let (mut depth, mut chars) = (0, text[at..].char_indices());
    let word = !text[at..].starts_with(['"', '{', '[']);
    let close = |i: usize| {
        let rest = &text[at + i..];
        match rest.starts_with("</tool_call>") {
            true => Some(Stop::Closed(at + i + 12)),
            false => "</tool_call>".starts_with(rest).then_some(Stop::Short),
        }
    };
    while let Some((i, c)) = chars.next() {
        if c == '<'
            && let Some(stop) = close(i)
        {
            return Err(stop);
        }
        match c {
            ',' | '}' | ']' | ' ' | '\n' | '\r' | '\t' if word => return Ok(at + i),
            '"' if !word => {
                let mut broken = false;
                loop {
                    let (i, c) = chars.next().ok_or(Stop::Short)?;
                    broken |= c < ' ';
                    match c {
                        '<' if broken && close(i).is_some() => return Err(close(i).unwrap()),
                        '"' => break,
                        '\\' => {
                            let (i, c) = chars.clone().next().ok_or(Stop::Short)?;
                            broken |= c < ' ';
                            if !(c == '<' && broken && close(i).is_some()) {
                                chars.next();
                            }
                        }
                        _ => {}
                    }
                }
            }
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 && !word {
            return Ok(at + chars.offset());
        }
    }
    Err(Stop::Short)
}
