use super::events::Message;
use super::request::{self, MessageRequest};
use crate::config::Limits;
use crate::generate::{ChatEvent, ChatRequest, FinishReason, Format, RequestError, ToolChoice, Usage};
use crate::sse::Encoder;
use serde_json::{Value, json};

fn message_request(body: &Value) -> Result<MessageRequest, RequestError> {
    request::message_request(body, &Limits::default())
}

fn count_request(body: &Value) -> Result<ChatRequest, RequestError> {
    request::count_request(body, &Limits::default())
}

fn with(fields: Value) -> Value {
    let mut body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

fn refusal(fields: Value) -> String {
    message_request(&with(fields)).expect_err("a refusal").to_string()
}

#[test]
fn a_conversation_of_an_agent_becomes_messages_of_the_template() {
    let cache = json!({"type": "ephemeral"});
    let body = json!({
        "model": "m", "max_tokens": 100, "stream": true, "metadata": {"user_id": "u"}, "unknown": 1, "service_tier": "auto",
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=ab12c;"},
            {"type": "text", "text": "You help.", "cache_control": cache},
            {"type": "text", "text": "Be short."},
        ],
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "output_config": {"effort": "max"},
        "stop_sequences": ["END"], "temperature": 0.5, "top_p": 0.25, "top_k": 7, "seed": 3,
        "tools": [{"name": "ls", "description": "Lists.", "input_schema": {"type": "object", "properties": {}}, "cache_control": cache},
                  {"type": "custom", "name": "cat", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "<reminder>"}, {"type": "text", "text": "Look."}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Where?", "signature": "unsigned"},
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "/"}},
                {"type": "tool_use", "id": "t2", "name": "cat", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t2", "is_error": true, "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "file"}]},
                {"type": "tool_result", "tool_use_id": "t1", "content": "a b"},
                {"type": "text", "text": "Go on.", "cache_control": cache},
                {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "D"}},
            ]},
        ],
    });
    let request = message_request(&body).unwrap();
    let call =
        |id: &str, name: &str, arguments: Value| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let messages = json!([
        {"role": "system", "content": "You help.\n\nBe short."},
        {"role": "user", "content": "<reminder>\n\nLook."},
        {"role": "assistant", "reasoning_content": "Where?", "content": "I look.",
         "tool_calls": [call("t1", "ls", json!({"path": "/"})), call("t2", "cat", json!({}))]},
        {"role": "tool", "tool_call_id": "t1", "content": "a b"},
        {"role": "tool", "tool_call_id": "t2", "content": "Error: no\n\nfile"},
        {"role": "user", "content": "Go on.\n\nT\n\nD"},
    ]);
    assert_eq!(Value::Array(request.chat.messages.clone()), messages);
    let tools = json!([
        {"type": "function", "function": {"name": "ls", "description": "Lists.", "parameters": {"type": "object", "properties": {}}}},
        {"type": "function", "function": {"name": "cat", "parameters": {"type": "object"}}},
    ]);
    assert_eq!(Value::Array(request.chat.tools.clone()), tools);
    let answer = &request.chat.answer;
    assert_eq!((answer.params.temperature, answer.params.top_p, answer.params.top_k), (0.5, 0.25, 7));
    assert_eq!((answer.max_tokens, answer.stop.clone(), request.seed), (Some(100), vec!["END".to_owned()], Some(3)));
    assert_eq!((request.chat.thinking, request.chat.effort.as_deref()), (Some(true), Some("xhigh")));
    assert!(request.stream && !request.chat.parallel_tool_calls && !request.hide_thinking);
    let mut counted = body.clone();
    counted.as_object_mut().unwrap().remove("max_tokens");
    assert_eq!(count_request(&counted).unwrap().messages, request.chat.messages);
    assert!(message_request(&counted).unwrap_err().to_string().starts_with("max_tokens: expected"));
}

#[test]
fn choices_of_tools_thinking_and_form() {
    let tools = json!([{"name": "f", "input_schema": {}}]);
    let choice = |c: Value| message_request(&with(json!({"tools": tools, "tool_choice": c}))).unwrap().chat;
    assert_eq!(choice(json!({"type": "any"})).tool_choice, ToolChoice::Required);
    assert_eq!(choice(json!({"type": "none"})).tool_choice, ToolChoice::None);
    let named = choice(json!({"type": "tool", "name": "f", "disable_parallel_tool_use": false}));
    assert_eq!((named.tool_choice, named.parallel_tool_calls), (ToolChoice::Named("f".into()), true));
    let thinking = |t: Value| message_request(&with(json!({"thinking": t}))).unwrap();
    assert_eq!(thinking(Value::Null).chat.thinking, Some(false));
    assert_eq!(thinking(json!({"type": "disabled"})).chat.thinking, Some(false));
    let hidden = thinking(json!({"type": "adaptive", "display": "omitted"}));
    assert_eq!((hidden.chat.thinking, hidden.hide_thinking), (Some(true), true));
    let form = message_request(&with(json!({"output_config": {"format": {"type": "json_schema", "schema": {"type": "array"}}}}))).unwrap();
    assert_eq!(form.chat.answer.format, Format::JsonSchema(json!({"type": "array"})));
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let content = |c: Value| refusal(json!({"messages": [{"role": "user", "content": c}]}));
    let cases = [
        (refusal(json!({"messages": null})), "messages: expected a list of messages, found nothing"),
        (
            refusal(json!({"messages": [{"role": "tool", "content": ""}]})),
            "messages[0].role: expected \"user\" or \"assistant\", found \"tool\"",
        ),
        (
            content(json!([{"type": "image", "source": {}}])),
            "messages[0].content[0].type: expected a block that is text: images cannot be read, found \"image\"",
        ),
        (content(json!([{"text": "x"}])), "messages[0].content[0].type: expected a string, found nothing"),
        (
            content(json!([{"type": "document", "source": {"type": "base64", "data": ""}}])),
            "messages[0].content[0].source.type: expected a source of type \"text\" or \"content\": other documents cannot be read, found \"base64\"",
        ),
        (
            content(json!([{"type": "tool_result", "tool_use_id": "t", "content": ""}])),
            "messages[0].content[0].tool_use_id: expected the id of a tool_use block of the assistant's turn before, found \"t\"",
        ),
        (content(json!(7)), "messages[0].content: expected a list, found 7"),
        (
            refusal(json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})),
            "messages: expected the last message to be the user's (an answer cannot be begun for the model), found one of the assistant",
        ),
        (
            refusal(json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]})),
            "tools[0].type: expected \"custom\" or nothing: tools of the server's own are not offered, found \"web_search_20250305\"",
        ),
        (
            refusal(json!({"tools": [{"name": "a b", "input_schema": {}}]})),
            "tools[0].name: expected 1 to 128 of the characters a-z, A-Z, 0-9, _, -, ., : and /, found \"a b\"",
        ),
        (refusal(json!({"tool_choice": {"type": "any"}})), "tool_choice: expected tools to choose from, found an object"),
        (
            refusal(json!({"tool_choice": {"type": "tool", "name": "g"}})),
            "tool_choice.name: expected the name of one of the tools, found \"g\"",
        ),
        (refusal(json!({"max_tokens": 0})), "max_tokens: expected a whole number of at least 1, found 0"),
        (refusal(json!({"thinking": {"type": "enabled"}})), "thinking.budget_tokens: expected a whole number, found nothing"),
        (refusal(json!({"stop_sequences": [""]})), "stop_sequences[0]: expected a string of 1 to 1024 bytes, found \"\""),
        (refusal(json!({"system": [{"type": "image"}]})), "system[0].type: expected a block of type \"text\", found \"image\""),
        (refusal(json!({"temperature": "hot"})), "temperature: expected a number, found \"hot\""),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

#[test]
fn the_billing_line_is_all_that_is_taken_from_a_system_text() {
    let system = |s: Value| message_request(&with(json!({"system": s}))).unwrap().chat.messages[0].clone();
    assert_eq!(system(json!("x-anthropic-billing-header: cch=1;\nYou."))["content"], "You.");
    assert_eq!(system(json!("Say x-anthropic-billing-header: a"))["content"], "Say x-anthropic-billing-header: a");
    assert_eq!(system(json!("x-anthropic-billing-header: cch=1;"))["role"], "user");
}

fn events() -> Vec<ChatEvent> {
    let usage = Usage { prompt: 12, cached: 8, generated: 20, reasoning: 5, ..Usage::default() };
    let choice = 0;
    vec![
        ChatEvent::Started { prompt_tokens: 12, cached: 8 },
        ChatEvent::Progress { read: 12, prompt: 12 },
        ChatEvent::Reasoning { choice, text: "h".into() },
        ChatEvent::Reasoning { choice, text: "m".into() },
        ChatEvent::Content { choice, text: "yes".into(), logprobs: Vec::new() },
        ChatEvent::ToolCall { choice, index: 0, id: "c0".into(), name: "f".into() },
        ChatEvent::ToolArguments { choice, index: 0, delta: "{\"a\":".into() },
        ChatEvent::ToolArguments { choice, index: 0, delta: "1}".into() },
        ChatEvent::ToolCall { choice, index: 1, id: "c1".into(), name: "g".into() },
        ChatEvent::Finished { choice, reason: FinishReason::ToolCalls, usage },
    ]
}

fn play(events: Vec<ChatEvent>, mut message: Message) -> (Vec<(&'static str, Value)>, Value) {
    let mut said = Vec::new();
    for event in events {
        message.push(event, |name, value| said.push((name, value)));
    }
    (said, message.whole())
}

#[test]
fn a_stream_and_a_message_say_the_same() {
    let (said, whole) = play(events(), Message::new("msg_1".into(), "m".into(), 100, false));
    let usage = |out: usize, thinking: usize| {
        json!({"input_tokens": 4, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 8, "output_tokens": out,
               "output_tokens_details": {"thinking_tokens": thinking}})
    };
    let start = |index: usize, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta = |index: usize, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: usize| json!({"type": "content_block_stop", "index": index});
    let expected = vec![
        json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": usage(0, 0)}}),
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "h"})),
        delta(0, json!({"type": "thinking_delta", "thinking": "m"})),
        delta(0, json!({"type": "signature_delta", "signature": "unsigned"})),
        stop(0),
        start(1, json!({"type": "text", "text": ""})),
        delta(1, json!({"type": "text_delta", "text": "yes"})),
        stop(1),
        start(2, json!({"type": "tool_use", "id": "c0", "name": "f", "input": {}})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "{\"a\":"})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "1}"})),
        stop(2),
        start(3, json!({"type": "tool_use", "id": "c1", "name": "g", "input": {}})),
        stop(3),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": usage(20, 5)}),
        json!({"type": "message_stop"}),
    ];
    assert!(said.iter().all(|(name, value)| value["type"] == *name));
    assert_eq!(said.into_iter().map(|(_, value)| value).collect::<Vec<_>>(), expected);
    let content = json!([
        {"type": "thinking", "thinking": "hm", "signature": "unsigned"},
        {"type": "text", "text": "yes"},
        {"type": "tool_use", "id": "c0", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "c1", "name": "g", "input": {}},
    ]);
    assert_eq!(whole["content"], content);
    assert_eq!((&whole["stop_reason"], &whole["usage"]), (&json!("tool_use"), &usage(20, 5)));
}

#[test]
fn hidden_thinking_leaves_its_signature_only() {
    let (said, whole) = play(events(), Message::new("msg_1".into(), "m".into(), 100, true));
    assert!(said.iter().all(|(_, value)| value["delta"]["type"] != "thinking_delta"));
    assert_eq!(whole["content"][0], json!({"type": "thinking", "thinking": "", "signature": "unsigned"}));
}

#[test]
fn each_end_has_its_reason() {
    let end = |reason: FinishReason, generated: usize| {
        let usage = Usage { generated, ..Usage::default() };
        play(vec![ChatEvent::Finished { choice: 0, reason, usage }], Message::new("i".into(), "m".into(), 4, false))
    };
    let stop = |reason: FinishReason, generated: usize| {
        let whole = end(reason, generated).1;
        (whole["stop_reason"].clone(), whole["stop_sequence"].clone())
    };
    assert_eq!(stop(FinishReason::Stop, 1), (json!("end_turn"), Value::Null));
    assert_eq!(stop(FinishReason::StopString("E".into()), 1), (json!("stop_sequence"), json!("E")));
    assert_eq!(stop(FinishReason::Length, 4), (json!("max_tokens"), Value::Null));
    assert_eq!(stop(FinishReason::Length, 3), (json!("model_context_window_exceeded"), Value::Null));
    let (said, _) = end(FinishReason::Stopping, 1);
    assert_eq!(said.len(), 1);
    assert_eq!((said[0].0, &said[0].1["type"], &said[0].1["error"]["type"]), ("error", &json!("error"), &json!("overloaded_error")));
}

#[test]
fn arguments_that_were_cut_off_are_kept() {
    let mut events = events();
    events.remove(7);
    let (_, whole) = play(events, Message::new("i".into(), "m".into(), 100, false));
    assert_eq!(whole["content"][2]["input"], json!({"INVALID_JSON": "{\"a\":"}));
}

#[test]
fn on_the_wire_each_event_has_its_name() {
    let mut out = String::new();
    let mut message = Message::new("i".into(), "m".into(), 100, false);
    message.event(ChatEvent::Content { choice: 0, text: "x\ny".into(), logprobs: Vec::new() }, &mut out);
    let expected = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
                    event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\\ny\"}}\n\n";
    assert_eq!(out, expected);
    assert_eq!(message.sign_of_life(), "event: ping\ndata: {\"type\":\"ping\"}\n\n");
}
