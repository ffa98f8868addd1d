//! What an answer is made of, before any API gives it its form.

use std::time::Duration;

/// A piece of the answers to one request. For each choice `Finished` is the last, and always comes. `Started` comes once, first;
/// `Progress` while the prompt is read.
#[derive(Clone, Debug, PartialEq)]
pub enum ChatEvent {
    /// The first choice got a slot.
    Started {
        prompt_tokens: usize,
        cached: usize,
    },
    /// A choice got a slot; nothing of it comes before.
    Begun {
        choice: u32,
    },
    /// Tokens of the prompt that are read, of all of it, those of the cache included; for the first choice only.
    Progress {
        read: usize,
        prompt: usize,
    },
    Reasoning {
        choice: u32,
        text: String,
    },
    /// Text, and the tokens whose text it completes where log-probabilities were asked for.
    Content {
        choice: u32,
        text: String,
        logprobs: Vec<TokenInfo>,
    },
    /// A call begins. `index` counts the calls of a choice from 0.
    ToolCall {
        choice: u32,
        index: usize,
        id: String,
        name: String,
    },
    /// More of the JSON text of a call's arguments.
    ToolArguments {
        choice: u32,
        index: usize,
        delta: String,
    },
    Finished {
        choice: u32,
        reason: FinishReason,
        usage: Usage,
    },
}

/// A token with its log-probability.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenInfo {
    pub id: u32,
    /// Its text alone; bytes that are no whole character are U+FFFD.
    pub text: String,
    pub bytes: Vec<u8>,
    pub logprob: f32,
    /// The most probable tokens of its place, best first. Theirs are empty.
    pub top: Vec<TokenInfo>,
}

/// Why a choice ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// A stop token, or the grammar is complete.
    Stop,
    /// This stop string was found; it is not part of the answer.
    StopString(String),
    /// `max_tokens`, or the context is full.
    Length,
    /// It ended by itself and called tools.
    ToolCalls,
    /// Nobody wants more.
    Cancelled,
    /// The time limit of requests.
    Deadline,
    /// The server is stopping.
    Stopping,
    /// The engine failed, in words.
    Failed(String),
}

impl FinishReason {
    /// True if the answer is whole, or as long as was asked for.
    pub fn is_regular(&self) -> bool {
        matches!(self, FinishReason::Stop | FinishReason::StopString(_) | FinishReason::Length | FinishReason::ToolCalls)
    }
}

/// What a choice cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt: usize,
    /// Prompt tokens whose state was kept.
    pub cached: usize,
    pub generated: usize,
    /// Tokens drawn before the thinking ended.
    pub reasoning: usize,
    pub drafted: usize,
    pub accepted: usize,
    pub waited: Duration,
    pub prefill: Duration,
    pub decode: Duration,
}
