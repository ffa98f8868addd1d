use super::events::{Growing, Keep};
use super::request::{self, ResponseRequest};
use super::store::Store;
use crate::config::Limits;
use crate::generate::{ChatEvent, FinishReason, Format, RequestError, ToolChoice, Usage};
use crate::turns::Turns;
use serde_json::{Map, Value, json};
use std::sync::Arc;

fn read(body: &Value) -> Result<ResponseRequest, RequestError> {
    request::response_request(body, &Limits::default())
}

/// Messages and full items of an input; ids that are made up are a prefix and a number.
fn input(input: Value) -> Result<(Vec<Value>, Vec<Value>), RequestError> {
    let mut turns = Turns::default();
    let mut made = 0;
    let unique = |prefix: &str| {
        made += 1;
        format!("{prefix}{made}")
    };
    let find = |id: &str| (id == "msg_known").then(|| json!({"id": id, "type": "message", "role": "assistant", "content": "known"}));
    let items = request::input(&json!({"input": input}), &mut turns, find, unique)?;
    Ok((turns.finish(), items))
}

#[test]
fn items_become_turns_and_their_full_form_comes_to_the_same() {
    let given = json!([
        {"role": "developer", "content": "D"},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"type": "reasoning", "id": "rs_x", "summary": [{"type": "summary_text", "text": "short"}], "content": [{"type": "reasoning_text", "text": "long"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"x\": 1}"},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{\"cut"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "item_reference", "id": "msg_known"},
        {"type": "reasoning", "summary": [], "encrypted_content": "zzz"},
        {"type": "message", "role": "user", "content": "bye"},
    ]);
    let (messages, items) = input(given).unwrap();
    let call =
        |id: &str, name: &str, arguments: Value| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let expected = json!([
        {"role": "system", "content": "D"},
        {"role": "user", "content": "a\n\nb"},
        {"role": "assistant", "reasoning_content": "long", "content": "", "tool_calls": [call("c1", "f", json!({"x": 1})), call("c2", "g", json!("{\"cut"))]},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "assistant", "content": "known"},
        {"role": "user", "content": "bye"},
    ]);
    assert_eq!(Value::Array(messages.clone()), expected);
    let text = |role: &str, id: &str, text: &str| json!({"id": id, "type": "message", "role": role, "status": "completed", "content": [{"type": "input_text", "text": text}]});
    assert_eq!(items[0], text("developer", "msg_1", "D"));
    assert_eq!(items[2]["id"], "rs_x");
    assert_eq!(items[7]["content"], json!([{"type": "output_text", "text": "known", "annotations": [], "logprobs": []}]));
    assert_eq!(items[9], text("user", "msg_8", "bye"));
    let (again, same) = input(Value::Array(items.clone())).unwrap();
    assert_eq!((again, same), (messages, items));
    assert_eq!(input(json!("hi")).unwrap().0, [json!({"role": "user", "content": "hi"})]);
}

#[test]
fn fields_are_read_and_echoed() {
    let tools = json!([{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true}, {"type": "function", "name": "g"}]);
    let body = json!({
        "model": "m", "input": "x", "instructions": "I", "tools": tools, "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": false, "max_output_tokens": 5, "temperature": 0.5, "top_p": 0.9, "reasoning": {"effort": "minimal"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "array"}}}, "store": false, "stream": true, "seed": 9,
        "previous_response_id": "resp_1", "metadata": {"k": "v"}, "truncation": "auto", "include": ["x"], "unknown": [],
    });
    let r = read(&body).unwrap();
    assert_eq!((r.instructions.as_deref(), r.previous.as_deref(), r.seed), (Some("I"), Some("resp_1"), Some(9)));
    assert!(r.stream && !r.store && r.truncate && !r.chat.parallel_tool_calls);
    assert_eq!((&r.chat.tool_choice, r.chat.effort.as_deref()), (&ToolChoice::Named("f".into()), Some("minimal")));
    let answer = &r.chat.answer;
    assert_eq!((answer.params.temperature, answer.params.top_p, answer.max_tokens), (0.5, 0.9, Some(5)));
    assert_eq!(answer.format, Format::JsonSchema(json!({"type": "array"})));
    let functions = json!([
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}},
        {"type": "function", "function": {"name": "g"}},
    ]);
    assert_eq!(Value::Array(r.chat.tools.clone()), functions);
    for field in [
        "instructions",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "max_output_tokens",
        "temperature",
        "top_p",
        "store",
        "previous_response_id",
        "metadata",
        "truncation",
    ] {
        assert_eq!(r.echo[field], body[field], "{field}");
    }
    assert_eq!((&r.echo["reasoning"]["effort"], &r.echo["text"]["format"]), (&json!("minimal"), &body["text"]["format"]));
    let bare = read(&json!({})).unwrap();
    assert!(bare.store && !bare.stream && bare.chat.parallel_tool_calls && bare.chat.thinking.is_none());
    let mut few = body.clone();
    few["tool_choice"] = json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]});
    let few = read(&few).unwrap().chat;
    assert_eq!((few.tools.len(), &few.tools[0]["function"]["name"], few.tool_choice), (1, &json!("g"), ToolChoice::Required));
    assert_eq!(read(&json!({"reasoning": {"effort": "none"}})).unwrap().chat.thinking, Some(false));
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let fields = |v: Value| read(&v).expect_err("a refusal").to_string();
    let items = |v: Value| input(v).expect_err("a refusal").to_string();
    let cases = [
        (fields(json!({"background": true})), "background: expected false: responses are not made in the background, found true"),
        (fields(json!({"conversation": "c"})), "conversation: expected nothing: stored conversations are not offered, found \"c\""),
        (
            fields(json!({"tools": [{"type": "web_search"}]})),
            "tools[0].type: expected \"function\": other tools are not offered, found \"web_search\"",
        ),
        (fields(json!({"tool_choice": "required"})), "tool_choice: expected tools to choose from, found \"required\""),
        (fields(json!({"max_output_tokens": -1})), "max_output_tokens: expected a whole number of at least 1, found -1"),
        (
            fields(json!({"reasoning": {"effort": "vast"}})),
            "reasoning.effort: expected \"none\", \"minimal\", \"low\", \"medium\", \"high\", \"xhigh\" or \"max\", found \"vast\"",
        ),
        (
            fields(json!({"metadata": {"k": 1}})),
            "metadata: expected at most 16 strings of 512 bytes, with names of 64, found more, or other values",
        ),
        (fields(json!({"truncation": "some"})), "truncation: expected \"auto\" or \"disabled\", found \"some\""),
        (items(Value::Null), "input: expected a string or a list of items, found nothing"),
        (items(json!([])), "input: expected at least one item, found none"),
        (
            items(json!([{"role": "user", "content": [{"type": "input_image"}]}])),
            "input[0].content[0].type: expected a part that is text (images, files and audio cannot be read), found \"input_image\"",
        ),
        (
            items(json!([{"role": "robot", "content": ""}])),
            "input[0].role: expected \"user\", \"assistant\", \"system\" or \"developer\", found \"robot\"",
        ),
        (
            items(json!([{"type": "function_call_output", "call_id": "c", "output": ""}])),
            "input[0].call_id: expected the id of a function call before it, with nothing of the assistant's between, found \"c\"",
        ),
        (
            items(json!([{"type": "item_reference", "id": "msg_0"}])),
            "input[0].id: expected the id of an item of a response that is stored, found \"msg_0\"",
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
    assert!(items(json!([{"type": "computer_call"}])).starts_with("input[0].type: expected an item of type"));
    assert!(items(json!([{}])).starts_with("input[0].type: expected an item of type"));
}

fn events(reason: FinishReason) -> Vec<ChatEvent> {
    let usage = Usage { prompt: 12, cached: 8, generated: 20, reasoning: 5, ..Usage::default() };
    let choice = 0;
    vec![
        ChatEvent::Started { prompt_tokens: 12, cached: 8 },
        ChatEvent::Reasoning { choice, text: "h".into() },
        ChatEvent::Reasoning { choice, text: "m".into() },
        ChatEvent::Content { choice, text: "yes".into(), logprobs: Vec::new() },
        ChatEvent::ToolCall { choice, index: 0, id: "c0".into(), name: "f".into() },
        ChatEvent::ToolArguments { choice, index: 0, delta: "{}".into() },
        ChatEvent::Finished { choice, reason, usage },
    ]
}

fn play(events: Vec<ChatEvent>, keep: Option<Keep>) -> (Vec<(&'static str, Value)>, Value) {
    let mut echo = Map::new();
    echo.insert("metadata".into(), json!({"k": "v"}));
    let mut response = Growing::new("m".into(), echo, keep);
    let mut said = Vec::new();
    for event in events {
        response.push(event, |name, value| said.push((name, value)));
    }
    (said, response.whole())
}

#[test]
fn a_stream_tells_of_each_item_and_ends_with_the_response() {
    let store = Arc::new(Store::new(10, 100_000));
    let asked = store.item(&json!({"id": "msg_in", "type": "message", "role": "user", "content": "q"}));
    let keep = Keep { store: Arc::clone(&store), items: vec![asked], input: 0..1 };
    let (said, whole) = play(events(FinishReason::ToolCalls), Some(keep));
    let item = |name: &str| ["added", "done"].map(|end| format!("response.{name}.{end}"));
    let ([item_added, item_done], [part_added, part_done]) = (item("output_item"), item("content_part"));
    let names: Vec<&str> = said.iter().map(|(name, _)| *name).collect();
    let expected = [
        "response.created",
        "response.in_progress",
        &item_added,
        &part_added,
        "response.reasoning_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        &part_done,
        &item_done,
        &item_added,
        &part_added,
        "response.output_text.delta",
        "response.output_text.done",
        &part_done,
        &item_done,
        &item_added,
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        &item_done,
        "response.completed",
    ];
    assert_eq!(names, expected);
    for (i, (name, value)) in said.iter().enumerate() {
        assert_eq!((&value["type"], &value["sequence_number"]), (&json!(name), &json!(i)));
    }
    let output = whole["output"].as_array().unwrap();
    let done: Vec<&Value> = said.iter().filter(|(name, _)| *name == item_done).map(|(_, value)| &value["item"]).collect();
    assert_eq!(output.iter().collect::<Vec<_>>(), done);
    let id = |i: usize| output[i]["id"].clone();
    let added = |i: usize, output_index: usize, item: Value| {
        assert_eq!(said[i].1, json!({"type": item_added, "sequence_number": i, "item": item, "output_index": output_index}));
    };
    added(2, 0, json!({"id": id(0), "type": "reasoning", "status": "in_progress", "summary": [], "content": []}));
    added(9, 1, json!({"id": id(1), "type": "message", "role": "assistant", "status": "in_progress", "content": []}));
    added(15, 2, json!({"id": id(2), "type": "function_call", "call_id": "c0", "name": "f", "arguments": "", "status": "in_progress"}));
    let delta = json!({"type": "response.output_text.delta", "sequence_number": 11, "content_index": 0, "delta": "yes", "logprobs": [], "output_index": 1, "item_id": id(1)});
    assert_eq!(said[11].1, delta);
    assert_eq!(output[0]["content"], json!([{"type": "reasoning_text", "text": "hm"}]));
    assert_eq!(output[1]["content"], json!([{"type": "output_text", "text": "yes", "annotations": [], "logprobs": []}]));
    assert_eq!((&output[2]["arguments"], &output[2]["status"]), (&json!("{}"), &json!("completed")));
    let usage = json!({"input_tokens": 12, "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 0}, "output_tokens": 20,
                       "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 32});
    assert_eq!((&whole["usage"], &whole["status"], &whole["metadata"]), (&usage, &json!("completed"), &json!({"k": "v"})));
    assert_eq!(said.last().unwrap().1["response"], whole);
    let kept = store.response(whole["id"].as_str().unwrap()).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&kept).unwrap(), whole);
    assert_eq!(store.conversation(whole["id"].as_str().unwrap()).unwrap().len(), 4);
}

#[test]
fn a_cut_response_says_so_and_a_failed_one_is_not_kept() {
    let store = Arc::new(Store::new(10, 100_000));
    let keep = || Some(Keep { store: Arc::clone(&store), items: Vec::new(), input: 0..0 });
    let (said, whole) = play(events(FinishReason::Length), keep());
    assert_eq!((said.last().unwrap().0, &whole["status"]), ("response.incomplete", &json!("incomplete")));
    assert_eq!((&whole["incomplete_details"], &whole["completed_at"]), (&json!({"reason": "max_output_tokens"}), &Value::Null));
    assert_eq!([0, 1, 2].map(|i| whole["output"][i]["status"].clone()), ["completed", "completed", "incomplete"]);
    assert!(store.response(whole["id"].as_str().unwrap()).is_some());
    let failed = vec![ChatEvent::Finished { choice: 0, reason: FinishReason::Stopping, usage: Usage::default() }];
    let (said, whole) = play(failed, keep());
    assert_eq!(said.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["response.created", "response.in_progress", "response.failed"]);
    assert_eq!(whole["error"], json!({"code": "server_error", "message": "the server is stopping"}));
    assert!(store.response(whole["id"].as_str().unwrap()).is_none());
}
