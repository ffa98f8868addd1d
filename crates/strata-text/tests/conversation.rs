//! Messages of the chat API through a template to tokens and back: conversion, ends of turns, parsing of what was rendered.

mod common;

use serde_json::{Map, Value, json};
use strata_text::{
    CallFormat, ChatTemplate, MessageError, RenderLimits, RenderOptions, ReplyEvent, ReplyParser, ReplyStart, Tokenizer, ToolTypes,
    template_messages, turn_ends,
};

fn effort_source() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/effort_in_system.jinja");
    std::fs::read_to_string(path).unwrap()
}

fn conversation() -> Value {
    json!([
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]},
        {"role": "user", "content": "Weather in Łódź <|im_start|>?"},
        {"role": "assistant", "content": null, "reasoning": "look it up", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Łódź\", \"days\": 2, \"note\": \"a\\nb\"}"}},
            {"id": "2", "type": "function", "function": {"name": "time", "arguments": ""}},
        ]},
        {"role": "tool", "tool_call_id": "1", "content": "sun"},
        {"role": "tool", "tool_call_id": "2", "content": "noon"},
        {"role": "assistant", "content": "Sun."},
        {"role": "user", "content": "Thanks"},
    ])
}

fn tools() -> Value {
    let schema =
        json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "note": {"type": "string"}}});
    json!([{"type": "function", "function": {"name": "weather", "parameters": schema}}, {"type": "function", "function": {"name": "time"}}])
}

fn render(source: &str, tokenizer: &Tokenizer, messages: &[Value], extra: &Map<String, Value>) -> String {
    let chat = ChatTemplate::new(source, tokenizer, RenderLimits::default()).unwrap();
    let tools = tools();
    let options = RenderOptions { tools: Some(&tools), add_generation_prompt: true, enable_thinking: None, extra: Some(extra) };
    chat.render(&Value::Array(messages.to_vec()), &options).unwrap()
}

#[test]
fn ends_of_turns_are_prefixes_that_stay() {
    let tokenizer = common::tokenizer();
    let messages = template_messages(&conversation()).unwrap();
    for (source, turns) in [(common::source().chat_template.unwrap(), 6), (effort_source(), 6)] {
        let text = render(&source, &tokenizer, &messages, &Map::new());
        let ids = tokenizer.encode(&text, true).unwrap();
        let ends = turn_ends(&tokenizer, &ids);
        assert_eq!(ends.len(), turns);
        assert_eq!(ends.iter().map(|e| e.system).collect::<Vec<_>>(), [true, false, false, false, false, false]);
        for end in &ends {
            let (before, after) = ids.split_at(end.at);
            let (before, after) = (tokenizer.decode(before, false), tokenizer.decode(after, false));
            assert!(before.ends_with("<|im_end|>\n") && after.starts_with("<|im_start|>"), "{before:?} {after:?}");
            // The tokens do not depend on what follows.
            assert_eq!(tokenizer.encode(&before, true).unwrap(), ids[..end.at]);
        }
    }
    let bare = tokenizer.encode("<|im_start|>user\nsystem\n<|im_end|>\n<|im_start|>system\n<|im_end|>x", true).unwrap();
    let ends = turn_ends(&tokenizer, &bare);
    assert_eq!(ends.len(), 2);
    assert!(!ends[0].system && !ends[1].system);
    assert_eq!(ends[1].at + 1, bare.len());
    assert_eq!(turn_ends(&tokenizer, &[]), []);
}

#[test]
fn effort_changes_the_system_turn_only() {
    let (source, tokenizer) = (effort_source(), common::tokenizer());
    let messages = template_messages(&conversation()).unwrap();
    let effort = |level: &str| render(&source, &tokenizer, &messages, json!({"reasoning_effort": level}).as_object().unwrap());
    let turns = |text: &str| -> Vec<String> { text.split_inclusive("<|im_end|>\n").map(str::to_owned).collect() };
    let (high, low, medium) = (turns(&effort("high")), turns(&effort("low")), turns(&effort("medium")));
    assert_ne!(high[0], low[0]);
    assert!(medium[0].starts_with("<|im_start|>system\nFunctions"));
    assert!(high[1..] == low[1..] && low[1..] == medium[1..]);
    let off = turns(&render(&source, &tokenizer, &messages, json!({"enable_thinking": false}).as_object().unwrap()));
    assert_eq!(off[0], medium[0]);
    assert!(off.last().unwrap().ends_with("<think>\n\n</think>\n\n"));
    assert!(high.last().unwrap().ends_with("<think>\n"));
}

/// What the templates render as an assistant's turn is parsed back to the same calls.
#[test]
fn rendered_calls_are_read_back() {
    let tokenizer = common::tokenizer();
    let messages = template_messages(&conversation()).unwrap();
    for source in [common::source().chat_template.unwrap(), effort_source()] {
        let format = CallFormat::of_template(&source);
        let text = render(&source, &tokenizer, &messages, &Map::new());
        let turn = text.split("<|im_start|>assistant\n").nth(1).unwrap().split("<|im_end|>").next().unwrap();
        let mut parser = ReplyParser::new(ReplyStart::Content, format, ToolTypes::new(&tools()));
        let mut events: Vec<ReplyEvent> = turn.split_inclusive('\n').flat_map(|p| parser.push(p)).collect();
        events.extend(parser.finish());
        let mut calls: Vec<(String, String)> = Vec::new();
        for event in events {
            match event {
                ReplyEvent::ToolCall { name, .. } => calls.push((name, String::new())),
                ReplyEvent::Arguments { delta, .. } => calls.last_mut().unwrap().1.push_str(&delta),
                ReplyEvent::Content(text) => panic!("{text:?}"),
                ReplyEvent::Reasoning(_) | ReplyEvent::ToolCallEnd { .. } => {}
            }
        }
        let calls: Vec<(String, Value)> = calls.into_iter().map(|(n, a)| (n, serde_json::from_str(&a).unwrap())).collect();
        let weather = json!({"city": "Łódź", "days": 2, "note": "a\nb"});
        assert_eq!(calls, [("weather".to_owned(), weather), ("time".to_owned(), json!({}))], "{format:?}");
    }
}

#[test]
fn messages_are_converted() {
    let messages = template_messages(&conversation()).unwrap();
    assert_eq!(messages[0]["content"], "Be brief.\nBe kind.");
    assert_eq!(messages[2]["content"], "");
    assert_eq!(messages[2]["reasoning_content"], "look it up");
    assert_eq!(messages[2]["tool_calls"][0]["function"]["arguments"]["days"], 2);
    assert_eq!(messages[2]["tool_calls"][1]["function"]["arguments"], json!({}));
    let kept = template_messages(&json!([{"role": "developer", "content": "x", "name": "n"},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{broken"}}]}]));
    let kept = kept.unwrap();
    assert_eq!(kept[0], json!({"role": "system", "content": "x", "name": "n"}));
    assert_eq!(kept[1]["tool_calls"][0]["function"]["arguments"], "{broken");
}

#[test]
fn bad_messages_are_typed_errors() {
    let error = |messages: Value| template_messages(&messages).unwrap_err().to_string();
    assert_eq!(error(json!({})), "messages: expected a list, found an object");
    assert_eq!(error(json!([1])), "messages[0]: expected an object, found 1");
    assert!(error(json!([{"role": "robot"}])).starts_with("messages[0].role: expected"));
    assert_eq!(error(json!([{"role": "user", "content": 5}])), "messages[0].content: expected a string or a list of parts, found 5");
    assert_eq!(
        error(json!([{"role": "user", "content": [{"type": "text", "text": null}]}])),
        "messages[0].content[0].text: expected a string, found nothing"
    );
    let image = json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:"}}]}]);
    let expected = MessageError::NotText { field: "messages[0].content[1].type".into(), found: "image_url".into() };
    assert_eq!(template_messages(&image), Err(expected));
    assert_eq!(
        error(json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 3}}]}])),
        "messages[0].tool_calls[0].function.arguments: expected a string, found 3"
    );
    assert!(
        error(json!([{"role": "assistant", "tool_calls": [{}]}])).starts_with("messages[0].tool_calls[0].function: expected an object")
    );
}
