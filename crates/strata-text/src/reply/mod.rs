//! A model's answer, taken apart while it is written: reasoning, content, tool calls.
//!
//! Rules, where the text leaves a choice:
//!
//! * Reasoning ends at the first `</think>`, and nothing else ends it. Not part of it: one newline after a `<think>` that the model
//!   wrote, one newline before `</think>`. Not part of the content: up to two newlines after `</think>`.
//! * An answer that begins (after white space) with `<think>` begins with reasoning, although the prompt opened none.
//! * White space before a call is markup, and so is all that follows the last call if it is white space only.
//! * What begins like a call is content, character for character, until its name is known. From then on it is a call.
//! * A call whose text breaks off (length limit) or stops being a call ends with the arguments as far as they were written. They
//!   are not closed: half a command must not look like a whole one. Text after such a place is content.
//! * In a sound JSON string `</tool_call>` is data. After a control character in a string, which JSON forbids, it ends the call.
//! * Members of a JSON call other than `name` and `arguments`, and a second one of these, are not reported. Without `arguments` they
//!   are `{}`. Names are not compared with the tools offered.

mod json_call;
mod markers;
#[cfg(test)]
mod naive;
#[cfg(test)]
mod tests;
mod types;
mod xml_call;

pub use types::{ToolTypes, Types};

use json_call::JsonCall;
use markers::{Begins, begins, content, open_end, reasoning};
use xml_call::XmlCall;

pub(crate) const THINK: &str = "<think>";
pub(crate) const END_THINK: &str = "</think>";
pub(crate) const CALL: &str = "<tool_call>";
pub(crate) const END_CALL: &str = "</tool_call>";
/// Newlines between `</think>` and the content.
const THINK_NEWLINES: u8 = 2;

/// How a model writes tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFormat {
    /// `<tool_call>\n{"name": N, "arguments": {..}}\n</tool_call>`
    Json,
    /// `<tool_call>\n<function=N>\n<parameter=K>\nV\n</parameter>\n</function>\n</tool_call>`: strings bare, other values as JSON.
    Xml,
}

impl CallFormat {
    /// The format that a chat template teaches: none if its source has no `<tool_call>`, [`Xml`](Self::Xml) if it has `<function=`
    /// too, else [`Json`](Self::Json).
    pub fn of_template(source: &str) -> Option<Self> {
        let json = source.contains(CALL).then_some(Self::Json)?;
        Some(if source.contains(xml_call::FUNCTION) { Self::Xml } else { json })
    }
}

/// Where in an answer the prompt ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyStart {
    /// Behind `<think>`.
    Reasoning,
    /// Not in reasoning.
    Content,
}

impl ReplyStart {
    /// Looks for an open `<think>` at the end of a rendered prompt.
    pub fn of_prompt(prompt: &str) -> Self {
        if prompt.trim_end().ends_with(THINK) { Self::Reasoning } else { Self::Content }
    }
}

/// A piece of an answer. Texts of one kind that follow each other belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyEvent {
    Reasoning(String),
    Content(String),
    /// A call begins; `index` counts them from 0.
    ToolCall {
        index: usize,
        name: String,
    },
    /// More of the JSON text of the call's arguments.
    Arguments {
        index: usize,
        delta: String,
    },
    ToolCallEnd {
        index: usize,
    },
}

/// Parses an answer that comes in pieces cut anywhere. What comes out does not depend on the cuts, but for how texts are divided.
///
/// Time is linear in the text. Held back are the possible starts of a marker, white space that may stand before a call, and what
/// begins like a call up to its name.
#[derive(Debug, Clone)]
pub struct ReplyParser {
    format: Option<CallFormat>,
    types: ToolTypes,
    held: String,
    state: State,
    calls: usize,
}

#[derive(Debug, Clone)]
enum State {
    /// Nothing but white space so far.
    Start {
        space: String,
    },
    Reasoning,
    /// Behind `</think>`, or behind `<think>`: newlines that may still be dropped.
    Newlines {
        left: u8,
        reasoning: bool,
    },
    /// Content; `space` is white space that a call may follow.
    Text {
        space: String,
        after_call: bool,
    },
    /// A call. `raw`: its text and the white space before it, until its name is known.
    Call {
        raw: String,
        named: bool,
        body: Body,
    },
    /// Behind a call, before `</tool_call>`.
    Closing {
        space: String,
    },
}

#[derive(Debug, Clone)]
enum Body {
    Json(JsonCall),
    Xml(XmlCall),
}

/// What a call made of a piece of text.
enum Progress {
    /// Took this many bytes and waits for more.
    More(usize),
    /// The call is over after this many bytes; whether they include `</tool_call>`.
    Ended { taken: usize, closed: bool },
    /// Its name is not known, and after this many bytes it is no call.
    NoCall(usize),
}

/// Where a call's events go.
struct CallOut<'a> {
    events: &'a mut Vec<ReplyEvent>,
    index: usize,
    named: bool,
}

impl CallOut<'_> {
    fn name(&mut self, name: String) {
        self.events.push(ReplyEvent::ToolCall { index: self.index, name });
        self.named = true;
    }

    fn arguments(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.events.last_mut() {
            Some(ReplyEvent::Arguments { delta, .. }) => delta.push_str(text),
            _ => self.events.push(ReplyEvent::Arguments { index: self.index, delta: text.to_owned() }),
        }
    }

    /// The call cannot go on behind `taken` bytes.
    fn stop(&self, taken: usize, closed: bool) -> Progress {
        if self.named { Progress::Ended { taken, closed } } else { Progress::NoCall(taken) }
    }
}

impl ReplyParser {
    /// A parser at the start of an answer. Without `format` no calls are looked for. `types`: of the tools offered; used by
    /// [`CallFormat::Xml`] only.
    pub fn new(start: ReplyStart, format: Option<CallFormat>, types: ToolTypes) -> Self {
        let state = match start {
            ReplyStart::Reasoning => State::Reasoning,
            ReplyStart::Content => State::Start { space: String::new() },
        };
        Self { format, types, held: String::new(), state, calls: 0 }
    }

    /// How many calls have begun.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// Takes the next piece; returns what is certain now.
    pub fn push(&mut self, delta: &str) -> Vec<ReplyEvent> {
        let mut events = Vec::new();
        let mut text = std::mem::take(&mut self.held);
        text.push_str(delta);
        let mut at = 0;
        loop {
            let (taken, again) = self.step(&text[at..], &mut events);
            at += taken;
            if !again {
                break;
            }
        }
        text.drain(..at);
        self.held = text;
        events
    }

    /// Ends the answer: what was held back turned out to be no marker.
    pub fn finish(mut self) -> Vec<ReplyEvent> {
        let mut events = Vec::new();
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::Reasoning | State::Newlines { reasoning: true, .. } => reasoning(&mut events, &held),
            State::Newlines { reasoning: false, .. } => content(&mut events, &held),
            State::Start { space } => content(&mut events, &(space + &held)),
            State::Text { space, after_call } if !(after_call && held.is_empty()) => content(&mut events, &(space + &held)),
            State::Closing { space } if !held.is_empty() => content(&mut events, &(space + &held)),
            State::Text { .. } | State::Closing { .. } => {}
            State::Call { raw, named: false, .. } => content(&mut events, &(raw + &held)),
            State::Call { body, named: true, .. } => {
                let mut out = CallOut { events: &mut events, index: self.calls - 1, named: true };
                match body {
                    Body::Json(call) => call.finish(&held, &mut out),
                    Body::Xml(call) => call.finish(&held, &mut out),
                }
                events.push(ReplyEvent::ToolCallEnd { index: self.calls - 1 });
            }
        }
        events
    }

    /// Takes a part of `text`; returns its length and whether the rest can be looked at at once.
    fn step(&mut self, text: &str, events: &mut Vec<ReplyEvent>) -> (usize, bool) {
        match &mut self.state {
            State::Start { space } => {
                let body = text.trim_start();
                let blank = text.len() - body.len();
                match begins(body, THINK) {
                    Begins::Maybe => {
                        space.push_str(&text[..blank]);
                        (blank, false)
                    }
                    Begins::Yes => {
                        self.state = State::Newlines { left: 1, reasoning: true };
                        (blank + THINK.len(), true)
                    }
                    Begins::No => {
                        let space = std::mem::take(space);
                        self.state = State::Text { space, after_call: false };
                        (0, true)
                    }
                }
            }
            State::Newlines { left, reasoning } => match text.as_bytes().first() {
                None => (0, false),
                Some(b'\n') if *left > 0 => {
                    *left -= 1;
                    (1, true)
                }
                Some(_) => {
                    self.state = if *reasoning { State::Reasoning } else { State::Text { space: String::new(), after_call: false } };
                    (0, true)
                }
            },
            State::Reasoning => match text.find(END_THINK) {
                Some(at) => {
                    let inside = &text[..at];
                    reasoning(events, inside.strip_suffix('\n').unwrap_or(inside));
                    self.state = State::Newlines { left: THINK_NEWLINES, reasoning: false };
                    (at + END_THINK.len(), true)
                }
                None => {
                    let open = open_end(text, END_THINK);
                    let newline = text[..text.len() - open].ends_with('\n');
                    let sure = text.len() - open - usize::from(newline);
                    reasoning(events, &text[..sure]);
                    (sure, false)
                }
            },
            State::Text { space, after_call } => {
                let Some(format) = self.format else {
                    content(events, space);
                    space.clear();
                    content(events, text);
                    return (text.len(), false);
                };
                let found = text.find(CALL);
                let sure = found.unwrap_or_else(|| text.len() - open_end(text, CALL));
                let body = text[..sure].trim_end();
                if !body.is_empty() {
                    content(events, space);
                    content(events, body);
                    space.clear();
                    *after_call = false;
                }
                space.push_str(&text[body.len()..sure]);
                if found.is_none() {
                    return (sure, false);
                }
                let body = match format {
                    CallFormat::Json => Body::Json(JsonCall::new()),
                    CallFormat::Xml => Body::Xml(XmlCall::new()),
                };
                let raw = std::mem::take(space) + CALL;
                self.state = State::Call { raw, named: false, body };
                (sure + CALL.len(), true)
            }
            State::Call { raw, named, body } => {
                let index = if *named { self.calls - 1 } else { self.calls };
                let mut out = CallOut { events, index, named: *named };
                let progress = match body {
                    Body::Json(call) => call.step(text, &mut out),
                    Body::Xml(call) => call.step(text, &self.types, &mut out),
                };
                if out.named && !*named {
                    *named = true;
                    raw.clear();
                    self.calls += 1;
                }
                match progress {
                    Progress::More(taken) => {
                        if !*named {
                            raw.push_str(&text[..taken]);
                        }
                        (taken, false)
                    }
                    Progress::Ended { taken, closed } => {
                        events.push(ReplyEvent::ToolCallEnd { index });
                        let space = String::new();
                        self.state = if closed { State::Text { space, after_call: true } } else { State::Closing { space } };
                        (taken, true)
                    }
                    Progress::NoCall(taken) => {
                        raw.push_str(&text[..taken]);
                        let body = raw.trim_end();
                        content(events, body);
                        self.state = State::Text { space: raw[body.len()..].to_owned(), after_call: false };
                        (taken, true)
                    }
                }
            }
            State::Closing { space } => {
                let body = text.trim_start();
                let blank = text.len() - body.len();
                space.push_str(&text[..blank]);
                match begins(body, END_CALL) {
                    Begins::Maybe => (blank, false),
                    Begins::Yes => {
                        self.state = State::Text { space: String::new(), after_call: true };
                        (blank + END_CALL.len(), true)
                    }
                    Begins::No => {
                        let space = std::mem::take(space);
                        self.state = State::Text { space, after_call: true };
                        (blank, true)
                    }
                }
            }
        }
    }
}
