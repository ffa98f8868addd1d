//! From the events of an answer to a response: the stream's events, and the response whole.

use super::store::{Item, Store};
use crate::app::{unique, unix_time};
use crate::failure::Failure;
use crate::generate::{ChatEvent, FinishReason, Usage};
use crate::sse::{Encoder, named};
use serde_json::{Map, Value, json};
use std::ops::Range;
use std::sync::Arc;

/// A response while it grows. Its items come one after the other: the last is open until the next begins.
#[derive(Debug)]
pub(super) struct Growing {
    id: String,
    created: u64,
    model: String,
    echo: Map<String, Value>,
    output: Vec<Output>,
    open: bool,
    told: bool,
    sequence: u64,
    end: Option<(FinishReason, Usage, u64)>,
    keep: Option<Keep>,
}

/// Where a response goes when it has ended, and what was said before it.
#[derive(Debug)]
pub(super) struct Keep {
    pub store: Arc<Store>,
    pub items: Vec<Arc<Item>>,
    pub input: Range<usize>,
}

#[derive(Debug)]
struct Output {
    id: String,
    kind: Kind,
    text: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Message,
    /// Its text is the arguments.
    Call {
        id: String,
        name: String,
    },
}

/// Takes the stream's events.
pub(super) trait Say: FnMut(&'static str, Value) {}

impl<F: FnMut(&'static str, Value)> Say for F {}

impl Growing {
    /// `echo` are the fields that say what was asked for.
    pub fn new(model: String, echo: Map<String, Value>, keep: Option<Keep>) -> Growing {
        let (id, created) = (unique("resp_"), unix_time());
        Growing { id, created, model, echo, output: Vec::new(), open: false, told: false, sequence: 0, end: None, keep }
    }

    /// Takes an event; tells `say` of what the stream gets, with the names of its events. At its end the response is kept.
    pub fn push(&mut self, event: ChatEvent, mut say: impl Say) {
        match event {
            ChatEvent::Started { .. } => self.begin(&mut say),
            ChatEvent::Progress { .. } | ChatEvent::Begun { .. } => {}
            ChatEvent::Reasoning { text, .. } => self.text(Kind::Reasoning, &text, &mut say),
            ChatEvent::Content { text, .. } => self.text(Kind::Message, &text, &mut say),
            ChatEvent::ToolCall { id, name, .. } => self.add(Kind::Call { id, name }, &mut say),
            // calls do not overlap: it is the last one's
            ChatEvent::ToolArguments { delta, .. } => self.delta(&delta, &mut say),
            ChatEvent::Finished { reason, usage, .. } => self.finish(reason, usage, &mut say),
        }
    }

    /// The response as far as it is known.
    pub fn whole(&self) -> Value {
        let mut response = Map::new();
        let mut set = |name: &str, value: Value| drop(response.insert(name.into(), value));
        set("id", self.id.as_str().into());
        set("object", "response".into());
        set("created_at", self.created.into());
        set("status", self.status().into());
        set("completed_at", self.end.as_ref().filter(|_| self.status() == "completed").map(|(_, _, at)| *at).into());
        let failure = self.end.as_ref().and_then(|(reason, ..)| Failure::of_finish(reason));
        set("error", failure.map_or(Value::Null, |f| json!({"code": "server_error", "message": f.message})));
        let cut = (self.status() == "incomplete").then(|| json!({"reason": "max_output_tokens"}));
        set("incomplete_details", cut.unwrap_or_default());
        set("model", self.model.as_str().into());
        let ended = self.output.len() - usize::from(self.open);
        let items = self.output.iter().take(ended).enumerate().map(|(i, item)| item.json(self.item_status(i)));
        set("output", items.collect());
        set("usage", self.end.as_ref().map_or(Value::Null, |(_, usage, _)| usage_json(usage)));
        response.extend(self.echo.clone());
        response.into()
    }

    fn status(&self) -> &'static str {
        match &self.end {
            None => "in_progress",
            Some((FinishReason::Length, ..)) => "incomplete",
            Some((reason, ..)) if reason.is_regular() => "completed",
            Some(_) => "failed",
        }
    }

    /// Only the last item can be cut off.
    fn item_status(&self, index: usize) -> &'static str {
        if index + 1 == self.output.len() && matches!(self.status(), "incomplete" | "failed") { "incomplete" } else { "completed" }
    }

    fn begin(&mut self, say: &mut impl Say) {
        if !std::mem::replace(&mut self.told, true) {
            let response = self.whole();
            self.say(say, "response.created", json!({"response": response}));
            self.say(say, "response.in_progress", json!({"response": response}));
        }
    }

    fn text(&mut self, kind: Kind, text: &str, say: &mut impl Say) {
        if !(self.open && self.output.last().is_some_and(|o| o.kind == kind)) {
            self.add(kind, say);
        }
        self.delta(text, say);
    }

    fn add(&mut self, kind: Kind, say: &mut impl Say) {
        self.close(say);
        let prefix = match kind {
            Kind::Reasoning => "rs_",
            Kind::Message => "msg_",
            Kind::Call { .. } => "fc_",
        };
        let item = Output { id: unique(prefix), kind, text: String::new() };
        let mut json = item.json("in_progress");
        if json["content"].is_array() {
            json["content"] = json!([]);
        }
        let part = item.part();
        self.output.push(item);
        self.open = true;
        self.say_of_item(say, "response.output_item.added", false, json!({"item": json}));
        if let Some(part) = part {
            self.say_of_item(say, "response.content_part.added", true, json!({"content_index": 0, "part": part}));
        }
    }

    fn delta(&mut self, text: &str, say: &mut impl Say) {
        let Some(item) = self.output.last_mut() else { return };
        item.text.push_str(text);
        let (name, fields) = match item.kind {
            Kind::Reasoning => ("response.reasoning_text.delta", json!({"content_index": 0, "delta": text})),
            Kind::Message => ("response.output_text.delta", json!({"content_index": 0, "delta": text, "logprobs": []})),
            Kind::Call { .. } => ("response.function_call_arguments.delta", json!({"delta": text})),
        };
        self.say_of_item(say, name, true, fields);
    }

    fn close(&mut self, say: &mut impl Say) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let index = self.output.len() - 1;
        let item = &self.output[index];
        let (json, part) = (item.json(self.item_status(index)), item.part());
        let (name, fields) = match &item.kind {
            Kind::Reasoning => ("response.reasoning_text.done", json!({"content_index": 0, "text": item.text})),
            Kind::Message => ("response.output_text.done", json!({"content_index": 0, "text": item.text, "logprobs": []})),
            Kind::Call { name, .. } => ("response.function_call_arguments.done", json!({"name": name, "arguments": item.text})),
        };
        self.say_of_item(say, name, true, fields);
        if let Some(part) = part {
            self.say_of_item(say, "response.content_part.done", true, json!({"content_index": 0, "part": part}));
        }
        self.say_of_item(say, "response.output_item.done", false, json!({"item": json}));
    }

    fn finish(&mut self, reason: FinishReason, usage: Usage, say: &mut impl Say) {
        self.begin(say);
        self.end = Some((reason, usage, unix_time()));
        self.close(say);
        let response = self.whole();
        if let Some(Keep { store, items, input }) = self.keep.take().filter(|_| self.status() != "failed") {
            store.keep(&self.id, &response, items, input, response["output"].as_array().map_or(&[], Vec::as_slice));
        }
        let name = match self.status() {
            "completed" => "response.completed",
            "incomplete" => "response.incomplete",
            _ => "response.failed",
        };
        self.say(say, name, json!({"response": response}));
    }

    /// An event about the last item. The client's types have the item's id beside events of its insides.
    fn say_of_item(&mut self, say: &mut impl Say, name: &'static str, inside: bool, mut fields: Value) {
        let index = self.output.len() - 1;
        fields["output_index"] = index.into();
        if inside {
            fields["item_id"] = self.output[index].id.as_str().into();
        }
        self.say(say, name, fields);
    }

    fn say(&mut self, say: &mut impl Say, name: &'static str, fields: Value) {
        let mut event = json!({"type": name, "sequence_number": self.sequence});
        self.sequence += 1;
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        say(name, event);
    }
}

impl Output {
    fn json(&self, status: &str) -> Value {
        let (id, parts) = (&self.id, self.part().into_iter().collect::<Vec<_>>());
        match &self.kind {
            Kind::Reasoning => json!({"id": id, "type": "reasoning", "status": status, "summary": [], "content": parts}),
            Kind::Message => json!({"id": id, "type": "message", "role": "assistant", "status": status, "content": parts}),
            Kind::Call { id: call, name } => {
                json!({"id": id, "type": "function_call", "call_id": call, "name": name, "arguments": self.text, "status": status})
            }
        }
    }

    fn part(&self) -> Option<Value> {
        match self.kind {
            Kind::Reasoning => Some(json!({"type": "reasoning_text", "text": self.text})),
            Kind::Message => Some(json!({"type": "output_text", "text": self.text, "annotations": [], "logprobs": []})),
            Kind::Call { .. } => None,
        }
    }
}

fn usage_json(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.generated,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.generated,
    })
}

impl Encoder for Growing {
    fn event(&mut self, event: ChatEvent, out: &mut String) {
        self.push(event, |name, json| named(out, name, &json));
    }

    fn end(&mut self, _: &mut String) {}
}
