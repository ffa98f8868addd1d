//! Anthropic's messages and OpenAI's responses, against the same answers by way of chat completions.

mod common;

use common::{CONTEXT, Client, NAME, options, shared, start};
use serde_json::{Value, json};
use std::time::Duration;

const HI: &str = "Tell me of rivers.";

/// Fields over a request for a message.
fn message(fields: Value) -> Value {
    let mut body = json!({"model": NAME, "max_tokens": 24, "seed": 7, "messages": [{"role": "user", "content": HI}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

/// The events of a stream without `[DONE]`: their names and data.
fn named(client: &Client, path: &str, body: &Value) -> Vec<(String, Value)> {
    let mut body = body.clone();
    body["stream"] = true.into();
    let mut stream = client.stream(path, &body);
    assert_eq!(stream.status, 200);
    let mut events = Vec::new();
    while let Some(block) = stream.block() {
        let (name, data) = block.trim_end().split_once('\n').unwrap_or_else(|| panic!("{block:?}"));
        let data = data.strip_prefix("data: ").unwrap_or_else(|| panic!("{block:?}"));
        let (name, data): (&str, Value) = (name.strip_prefix("event: ").unwrap(), serde_json::from_str(data).unwrap());
        assert_eq!(data["type"], name);
        events.push((name.to_owned(), data));
    }
    events
}

/// What a chat completion without thinking says.
fn completion(client: &Client, messages: Value, max: usize) -> String {
    let body = json!({"messages": messages, "max_tokens": max, "seed": 7, "chat_template_kwargs": {"enable_thinking": false}});
    let reply = client.post("/v1/chat/completions", &body).json();
    reply["choices"][0]["message"]["content"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
}

#[test]
fn a_message_says_what_a_completion_says_streamed_or_not() {
    let client = shared();
    let body = message(json!({"system": [{"type": "text", "text": "Be brief."}], "max_tokens": 6}));
    let reply = client.with("anthropic-version", "2023-06-01").post("/v1/messages?beta=true", &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert!(reply.header("request-id").is_some_and(|id| id.starts_with("req_")));
    let whole = reply.json();
    let text = whole["content"][0]["text"].as_str().unwrap();
    assert_eq!(text, completion(&client, json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": HI}]), 6));
    assert_eq!((&whole["type"], &whole["role"], &whole["model"]), (&"message".into(), &"assistant".into(), &NAME.into()));
    assert_eq!((&whole["stop_reason"], &whole["usage"]["output_tokens"]), (&"max_tokens".into(), &6.into()));
    let events = named(&client, "/v1/messages", &body);
    let streamed: String = events.iter().filter_map(|(_, e)| e["delta"]["text"].as_str()).collect();
    assert_eq!(streamed, text);
    let (first, last) = (&events[0], &events[events.len() - 1]);
    assert_eq!((first.0.as_str(), last.0.as_str()), ("message_start", "message_stop"));
    let usage = |v: &Value| v["input_tokens"].as_u64().unwrap() + v["cache_read_input_tokens"].as_u64().unwrap();
    let counted = client.post("/v1/messages/count_tokens", &body).json()["input_tokens"].as_u64().unwrap();
    assert_eq!([usage(&whole["usage"]), usage(&first.1["message"]["usage"]), usage(&events[events.len() - 2].1["usage"])], [counted; 3]);
}

#[test]
fn a_stop_sequence_ends_a_message_and_is_named() {
    let client = shared();
    let whole = client.post("/v1/messages", &message(json!({}))).json();
    let text = whole["content"][0]["text"].as_str().unwrap();
    let (at, stop) =
        text.char_indices().filter(|(at, _)| *at > 0).nth(5).map(|(at, c)| (text.find(c).unwrap_or(at), c.to_string())).unwrap();
    let cut = client.post("/v1/messages", &message(json!({"stop_sequences": [stop]}))).json();
    assert_eq!((&cut["stop_reason"], &cut["stop_sequence"]), (&"stop_sequence".into(), &stop.into()));
    assert_eq!(cut["content"][0]["text"].as_str().unwrap_or_default(), &text[..at]);
}

#[test]
fn refusals_have_anthropics_form() {
    let client = shared();
    let refused = |path: &str, body: Value, status: u16, kind: &str, says: &str| {
        let reply = client.post(path, &body);
        let error = reply.json();
        assert_eq!((reply.status, &error["type"], &error["error"]["type"]), (status, &"error".into(), &kind.into()), "{error}");
        assert!(error["error"]["message"].as_str().is_some_and(|m| m.starts_with(says)), "{error}");
        assert_eq!(reply.header("request-id"), error["request_id"].as_str());
    };
    refused("/v1/messages", message(json!({"max_tokens": null})), 400, "invalid_request_error", "max_tokens: expected");
    refused("/v1/messages", message(json!({"temperature": -1})), 400, "invalid_request_error", "temperature must be");
    refused("/v1/messages", message(json!({"model": "gpt"})), 404, "not_found_error", "model: expected");
    refused("/v1/messages", message(json!({"thread": {"type": "create"}})), 400, "invalid_request_error", "thread: expected nothing");
    let details = client.post("/v1/messages", &message(json!({"thread": {"type": "create"}}))).json()["error"]["details"].clone();
    assert_eq!(details["error_code"], "thread_unsupported_request", "by which the official client knows to go on without");
    refused("/v1/messages", json!([]), 400, "invalid_request_error", "");
    let long = message(json!({"messages": [{"role": "user", "content": "word ".repeat(CONTEXT)}]}));
    refused("/v1/messages", long.clone(), 400, "invalid_request_error", "messages: the prompt has");
    // to count is not to answer
    assert!(client.post("/v1/messages/count_tokens", &long).json()["input_tokens"].as_u64().unwrap() > CONTEXT as u64);
    assert_eq!(client.post("/v1/messages", &message(json!({"model": "claude-small"}))).status, 200);
}

#[test]
fn a_waiting_client_hears_pings() {
    let mut options = options();
    options.times.keep_alive = Duration::from_millis(1);
    let (_server, client) = start(options, 1, 4);
    let body = message(json!({"messages": [{"role": "user", "content": "word ".repeat(1500)}], "max_tokens": 1}));
    let names: Vec<String> = named(&client, "/v1/messages", &body).into_iter().map(|(name, _)| name).collect();
    assert!(names.iter().any(|n| n == "ping"), "{names:?}");
    assert_eq!(names.last().unwrap(), "message_stop");
}

/// Fields over a request for a response.
fn ask(client: &Client, fields: Value) -> Value {
    let mut body = json!({"model": NAME, "max_output_tokens": 6, "seed": 7, "reasoning": {"effort": "none"}});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let reply = client.post("/v1/responses", &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

fn output_text(response: &Value) -> &str {
    response["output"][0]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{response}"))
}

#[test]
fn a_response_is_kept_gone_on_from_and_removed() {
    let client = shared();
    let first = ask(&client, json!({"input": HI, "instructions": "Be brief.", "metadata": {"k": "v"}}));
    let said = output_text(&first).to_owned();
    let system = json!({"role": "system", "content": "Be brief."});
    assert_eq!(said, completion(&client, json!([system, {"role": "user", "content": HI}]), 6));
    assert_eq!((&first["status"], &first["incomplete_details"]["reason"]), (&"incomplete".into(), &"max_output_tokens".into()));
    let id = first["id"].as_str().unwrap();
    let path = format!("/v1/responses/{id}");
    assert_eq!(client.get(&path).json(), first);
    let next = ask(&client, json!({"input": [{"role": "user", "content": "More."}], "previous_response_id": id}));
    let turns = json!([{"role": "user", "content": HI}, {"role": "assistant", "content": said}, {"role": "user", "content": "More."}]);
    assert_eq!(output_text(&next), completion(&client, turns, 6), "instructions do not go on, turns do");
    let items = client.get(&format!("/v1/responses/{}/input_items?limit=1&order=asc", next["id"].as_str().unwrap())).json();
    assert_eq!((&items["data"][0]["content"][0]["text"], &items["has_more"]), (&"More.".into(), &false.into()));
    assert_eq!(client.raw("POST", &format!("{path}/cancel"), b"").status, 400);
    let deleted = client.raw("DELETE", &path, b"").json();
    assert_eq!((&deleted["id"], &deleted["deleted"]), (&id.into(), &true.into()));
    for (method, path) in
        [("GET", path.clone()), ("DELETE", path.clone()), ("GET", format!("{path}/input_items")), ("POST", format!("{path}/cancel"))]
    {
        let reply = client.raw(method, &path, b"");
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (404, &"response_not_found".into()));
    }
    let lost = client.post("/v1/responses", &json!({"input": "x", "previous_response_id": id}));
    assert_eq!((lost.status, &lost.json()["error"]["param"]), (400, &"previous_response_id".into()));
    let unkept = ask(&client, json!({"input": HI, "store": false}));
    assert_eq!(client.get(&format!("/v1/responses/{}", unkept["id"].as_str().unwrap())).status, 404);
}

#[test]
fn a_streamed_response_is_the_one_that_is_kept() {
    let client = shared();
    let whole = ask(&client, json!({"input": HI}));
    let body = json!({"max_output_tokens": 6, "seed": 7, "reasoning": {"effort": "none"}, "input": HI});
    let events = named(&client, "/v1/responses", &body);
    assert!(events.iter().enumerate().all(|(i, (_, e))| e["sequence_number"] == i));
    let deltas: String =
        events.iter().filter(|(n, _)| n == "response.output_text.delta").filter_map(|(_, e)| e["delta"].as_str()).collect();
    let (name, last) = events.last().unwrap();
    assert_eq!((name.as_str(), deltas.as_str()), ("response.incomplete", output_text(&whole)));
    assert_eq!(client.get(&format!("/v1/responses/{}", last["response"]["id"].as_str().unwrap())).json(), last["response"]);
}

#[test]
fn old_turns_are_left_out_only_where_that_is_asked_for() {
    let client = shared();
    let turn = |role: &str, text: &str| json!({"role": role, "content": text});
    let input = json!([turn("user", &"word ".repeat(CONTEXT)), turn("assistant", "So many."), turn("user", HI)]);
    let refused = client.post("/v1/responses", &json!({"input": input}));
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &"context_length_exceeded".into()));
    let cut = ask(&client, json!({"input": input, "truncation": "auto"}));
    assert_eq!(output_text(&cut), output_text(&ask(&client, json!({"input": HI}))));
}
