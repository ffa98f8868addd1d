//! From the events of an answer to a message: the stream's events, and the message whole.

use crate::failure::{Failure, Shape};
use crate::generate::{ChatEvent, FinishReason, Usage};
use crate::sse::{Encoder, named};
use serde_json::{Map, Value, json};

/// Clients want one and send it back; nobody checks it.
const SIGNATURE: &str = "unsigned";
const PING: &str = "event: ping\ndata: {\"type\":\"ping\"}\n\n";

/// A message while it grows. Its blocks come one after the other: the last is open until the next begins.
#[derive(Debug)]
pub(super) struct Message {
    id: String,
    model: String,
    /// Tokens asked for.
    most: usize,
    /// Thinking is done but not told.
    hide_thinking: bool,
    prompt: usize,
    cached: usize,
    blocks: Vec<Block>,
    open: bool,
    end: Option<(FinishReason, Usage)>,
}

#[derive(Debug)]
enum Block {
    Thinking(String),
    Text(String),
    ToolUse { id: String, name: String, input: String },
}

impl Message {
    pub fn new(id: String, model: String, most: usize, hide_thinking: bool) -> Message {
        Message { id, model, most, hide_thinking, prompt: 0, cached: 0, blocks: Vec::new(), open: false, end: None }
    }

    /// Takes an event; tells `say` of what the stream gets, with the names of its events.
    pub fn push(&mut self, event: ChatEvent, mut say: impl FnMut(&'static str, Value)) {
        match event {
            ChatEvent::Started { prompt_tokens, cached } => {
                (self.prompt, self.cached) = (prompt_tokens, cached);
                say("message_start", json!({"type": "message_start", "message": self.whole()}));
            }
            ChatEvent::Progress { .. } | ChatEvent::Begun { .. } => {}
            ChatEvent::Reasoning { text, .. } => {
                if !matches!(self.blocks.last(), Some(Block::Thinking(_)) if self.open) {
                    self.begin(Block::Thinking(String::new()), &mut say);
                }
                if !self.hide_thinking {
                    self.delta(&json!({"type": "thinking_delta", "thinking": text}), &mut say);
                    if let Some(Block::Thinking(all)) = self.blocks.last_mut() {
                        all.push_str(&text);
                    }
                }
            }
            ChatEvent::Content { text, .. } => {
                if !matches!(self.blocks.last(), Some(Block::Text(_)) if self.open) {
                    self.begin(Block::Text(String::new()), &mut say);
                }
                self.delta(&json!({"type": "text_delta", "text": text}), &mut say);
                if let Some(Block::Text(all)) = self.blocks.last_mut() {
                    all.push_str(&text);
                }
            }
            ChatEvent::ToolCall { id, name, .. } => self.begin(Block::ToolUse { id, name, input: String::new() }, &mut say),
            // calls do not overlap: it is the last one's
            ChatEvent::ToolArguments { delta, .. } => {
                self.delta(&json!({"type": "input_json_delta", "partial_json": delta}), &mut say);
                if let Some(Block::ToolUse { input, .. }) = self.blocks.last_mut() {
                    input.push_str(&delta);
                }
            }
            ChatEvent::Finished { reason, usage, .. } => {
                self.close(&mut say);
                let failure = Failure::of_finish(&reason);
                (self.prompt, self.cached) = (usage.prompt, usage.cached);
                self.end = Some((reason, usage));
                if let Some(failure) = failure {
                    return say("error", failure.body(Shape::Anthropic));
                }
                let (stop_reason, stop_sequence) = self.stop();
                let delta = json!({"stop_reason": stop_reason, "stop_sequence": stop_sequence});
                say("message_delta", json!({"type": "message_delta", "delta": delta, "usage": self.usage()}));
                say("message_stop", json!({"type": "message_stop"}));
            }
        }
    }

    /// The message as far as it is known.
    pub fn whole(&self) -> Value {
        let (stop_reason, stop_sequence) = self.stop();
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": self.blocks.iter().map(Block::whole).collect::<Vec<_>>(),
            "stop_reason": stop_reason,
            "stop_sequence": stop_sequence,
            "usage": self.usage(),
        })
    }

    fn begin(&mut self, block: Block, say: &mut impl FnMut(&'static str, Value)) {
        self.close(say);
        let mut content = block.whole();
        if let Block::Thinking(_) = block {
            // it comes as a delta at the end
            content["signature"] = "".into();
        }
        let start = json!({"type": "content_block_start", "index": self.blocks.len(), "content_block": content});
        self.blocks.push(block);
        self.open = true;
        say("content_block_start", start);
    }

    fn close(&mut self, say: &mut impl FnMut(&'static str, Value)) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        if let Some(Block::Thinking(_)) = self.blocks.last() {
            self.delta(&json!({"type": "signature_delta", "signature": SIGNATURE}), say);
        }
        say("content_block_stop", json!({"type": "content_block_stop", "index": self.blocks.len() - 1}));
    }

    /// More of the last block.
    fn delta(&self, delta: &Value, say: &mut impl FnMut(&'static str, Value)) {
        say("content_block_delta", json!({"type": "content_block_delta", "index": self.blocks.len().saturating_sub(1), "delta": delta}));
    }

    fn stop(&self) -> (Option<&'static str>, Option<&str>) {
        let Some((reason, usage)) = &self.end else { return (None, None) };
        match reason {
            FinishReason::StopString(text) => (Some("stop_sequence"), Some(text)),
            FinishReason::Length if usage.generated < self.most => (Some("model_context_window_exceeded"), None),
            FinishReason::Length => (Some("max_tokens"), None),
            FinishReason::ToolCalls => (Some("tool_use"), None),
            _ => (Some("end_turn"), None),
        }
    }

    fn usage(&self) -> Value {
        let mut usage = Map::new();
        usage.insert("input_tokens".into(), self.prompt.saturating_sub(self.cached).into());
        usage.insert("cache_creation_input_tokens".into(), 0.into());
        usage.insert("cache_read_input_tokens".into(), self.cached.into());
        let spent = self.end.as_ref().map(|(_, u)| (u.generated, u.reasoning)).unwrap_or_default();
        usage.insert("output_tokens".into(), spent.0.into());
        usage.insert("output_tokens_details".into(), json!({"thinking_tokens": spent.1}));
        usage.into()
    }
}

impl Block {
    fn whole(&self) -> Value {
        match self {
            Block::Thinking(text) => json!({"type": "thinking", "thinking": text, "signature": SIGNATURE}),
            Block::Text(text) => json!({"type": "text", "text": text}),
            Block::ToolUse { id, name, input } => json!({"type": "tool_use", "id": id, "name": name, "input": arguments(input)}),
        }
    }
}

/// Arguments as the object that they must be. What was cut off is under the name that Anthropic's documentation gives it.
fn arguments(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => map.into(),
        _ if text.is_empty() => json!({}),
        _ => json!({"INVALID_JSON": text}),
    }
}

impl Encoder for Message {
    fn event(&mut self, event: ChatEvent, out: &mut String) {
        self.push(event, |name, json| named(out, name, &json));
    }

    fn end(&mut self, _: &mut String) {}

    fn sign_of_life(&self) -> &'static str {
        PING
    }
}
