//! Answers that must have a form: JSON, schemas, grammars, forced calls; at a temperature that breaks what is not enforced.

mod common;

use common::shared;
use serde_json::{Value, json};

const PATH: &str = "/v1/chat/completions";
const SEEDS: u64 = 6;

fn request(seed: u64, thinking: bool, more: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "Tell me something."}], "seed": seed, "max_tokens": 200, "temperature": 1.5, "top_p": 1,
        "chat_template_kwargs": {"enable_thinking": thinking},
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// The content of each answer that was not cut; half of them stream, a third of them thinks first.
fn contents(more: &Value) -> Vec<String> {
    let client = shared();
    let mut whole = Vec::new();
    for seed in 0..SEEDS {
        let body = request(seed, seed % 3 == 0, more.clone());
        let (content, reason) = if seed % 2 == 0 {
            let reply = client.post(PATH, &body);
            assert_eq!(reply.status, 200, "{}", reply.body);
            let choice = &reply.json()["choices"][0];
            (choice["message"]["content"].as_str().unwrap().to_owned(), choice["finish_reason"].clone())
        } else {
            let events = client.events(PATH, &body);
            let deltas = events.iter().filter_map(|e| e["choices"][0]["delta"]["content"].as_str());
            (deltas.collect(), events.last().unwrap()["choices"][0]["finish_reason"].clone())
        };
        match reason.as_str() {
            Some("stop") => whole.push(content),
            other => assert_eq!(other, Some("length"), "seed {seed}: {content}"),
        }
    }
    assert!(!whole.is_empty(), "every answer was cut");
    whole
}

#[test]
fn json_objects() {
    let wild = contents(&json!({}));
    assert!(wild.iter().any(|c| serde_json::from_str::<Value>(c).is_err()), "it would be JSON anyway, this test sees nothing");
    for content in contents(&json!({"response_format": {"type": "json_object"}, "max_tokens": 400})) {
        assert!(serde_json::from_str::<Value>(&content).is_ok_and(|v| v.is_object()), "{content}");
    }
}

#[test]
fn schemas() {
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["name", "age", "kind"],
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "kind": {"enum": ["silk", "iron", "gold"]},
        },
    });
    for content in contents(&json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}})) {
        let v: Value = serde_json::from_str(&content).unwrap_or_else(|e| panic!("{e}: {content}"));
        let object = v.as_object().unwrap();
        assert!(object.len() == 3 && object["name"].as_str().unwrap().chars().count() <= 12, "{content}");
        assert!(
            object["age"].as_u64().unwrap() <= 150 && ["silk", "iron", "gold"].contains(&object["kind"].as_str().unwrap()),
            "{content}"
        );
    }
}

#[test]
fn grammars() {
    let grammar = "start: \"from \" CITY \" to \" CITY\nCITY: /Rome|Paris|Oslo/\n";
    for content in contents(&json!({"grammar": grammar})) {
        let words: Vec<&str> = content.split(' ').collect();
        assert!(matches!(words[..], ["from", a, "to", b] if [a, b].iter().all(|c| ["Rome", "Paris", "Oslo"].contains(c))), "{content:?}");
    }
}

fn tools() -> Value {
    let tool = |name: &str, parameters: Value| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
    json!([
        tool(
            "get_weather",
            json!({"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"], "additionalProperties": false})
        ),
        tool(
            "add",
            json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"], "additionalProperties": false})
        ),
    ])
}

#[test]
fn forced_calls() {
    let client = shared();
    let mut seen = std::collections::BTreeSet::new();
    for (choice, only) in [(json!("required"), None), (json!({"type": "function", "function": {"name": "add"}}), Some("add"))] {
        for seed in 0..SEEDS {
            let more = json!({"tools": tools(), "tool_choice": choice, "parallel_tool_calls": false});
            let reply = client.post(PATH, &request(seed, seed % 2 == 0, more)).json();
            let answer = &reply["choices"][0];
            if answer["finish_reason"] == "length" {
                continue;
            }
            assert_eq!(answer["finish_reason"], "tool_calls", "{reply}");
            let calls = answer["message"]["tool_calls"].as_array().unwrap();
            assert_eq!((calls.len(), &answer["message"]["content"]), (1, &Value::Null), "{reply}");
            let name = calls[0]["function"]["name"].as_str().unwrap();
            let arguments: Value = serde_json::from_str(calls[0]["function"]["arguments"].as_str().unwrap()).unwrap();
            match name {
                "get_weather" => assert!(["Rome", "Oslo"].contains(&arguments["city"].as_str().unwrap()), "{arguments}"),
                "add" => assert!(arguments["a"].as_u64().unwrap() <= 99, "{arguments}"),
                other => panic!("no tool is called {other}"),
            }
            assert!(arguments.as_object().unwrap().len() == 1 && only.is_none_or(|o| o == name));
            seen.insert(name.to_owned());
        }
    }
    assert!(seen.contains("add"), "{seen:?}");
}

#[test]
fn what_cannot_be_enforced_is_refused() {
    let client = shared();
    let refused = |more: Value, param: &str| {
        let reply = client.post(PATH, &request(1, false, more.clone()));
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, &error["param"]), (400, &param.into()), "{more}: {}", reply.body);
    };
    let schema = |s: Value| json!({"response_format": {"type": "json_schema", "json_schema": {"schema": s}}});
    refused(schema(json!({"type": "nonsense"})), "response_format");
    refused(schema(json!({"$ref": "#/nowhere"})), "response_format");
    refused(json!({"grammar": "start: nothing_like_it"}), "grammar");
    refused(json!({"grammar": ""}), "grammar");
    refused(json!({"grammar": "x".repeat(300_000)}), "grammar");
    refused(json!({"grammar": "start: \"a\"", "response_format": {"type": "json_object"}}), "grammar");
    refused(json!({"tools": tools(), "response_format": {"type": "json_object"}}), "response_format");
}

#[test]
fn a_grammar_draws_the_same_streamed_or_not_alone_or_not() {
    let client = shared();
    let body = |seed| request(seed, false, json!({"response_format": {"type": "json_object"}, "max_tokens": 60}));
    let alone: Vec<Value> = (0..4).map(|s| client.post(PATH, &body(s)).json()["choices"][0]["message"]["content"].clone()).collect();
    let together: Vec<Value> = std::thread::scope(|scope| {
        let ask = |s| {
            let client = &client;
            scope.spawn(move || client.post(PATH, &body(s)).json()["choices"][0]["message"]["content"].clone())
        };
        let all: Vec<_> = (0..4).map(ask).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(alone, together);
}
