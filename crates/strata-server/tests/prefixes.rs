//! What is read again of a conversation: with a template that changes the end of the prompt, and with one that changes its beginning.
//! One slot serves all, so that a conversation finds its state in the cache, not where it left it.

mod common;

use common::{Client, info_with, options, text};
use serde_json::{Value, json};
use strata_server::Server;

const CHAT: &str = "/v1/chat/completions";
/// Room for every state of a test.
const ROOM: u64 = 1 << 30;
/// Tokens that open the assistant's turn, with or without an empty thought, and one before the end.
const TAIL: u64 = 10;

struct Asked {
    content: String,
    prompt: u64,
    cached: u64,
}

fn serve(template: &str, cache: u64) -> (Server, Client) {
    let server = Server::start(options()).unwrap();
    server.ready(info_with(1, 4, template, cache));
    let client = Client::new(server.addr());
    (server, client)
}

/// Asks twice, with the cache and without, and compares.
fn ask(client: &Client, messages: &[Value], args: Value) -> Asked {
    let request = |cache: bool| {
        let body = json!({"messages": messages, "chat_template_kwargs": args, "seed": 3, "max_tokens": 24, "ignore_eos": true,
            "cache_prompt": cache, "logprobs": true});
        let reply = client.post(CHAT, &body);
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.json()
    };
    let (hit, cold) = (request(true), request(false));
    assert_eq!(hit["choices"], cold["choices"], "a hit changes no text and no bit of a logarithm");
    assert_eq!(cold["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let message = &hit["choices"][0]["message"];
    Asked {
        content: message["content"].as_str().unwrap_or_default().to_owned(),
        prompt: hit["usage"]["prompt_tokens"].as_u64().unwrap(),
        cached: hit["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap(),
    }
}

fn turn(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

fn long(about: &str) -> String {
    (0..14).map(|i| format!("In room {i} stood a {about} beside the old window, and nobody had moved it. ")).collect()
}

fn conversation() -> Vec<Value> {
    vec![turn("system", &long("clock")), turn("user", &long("lamp"))]
}

#[test]
fn thinking_at_the_end_of_the_prompt_costs_the_end() {
    let (_server, client) = serve(&text().1, ROOM);
    let mut messages = conversation();
    let first = ask(&client, &messages, json!({"enable_thinking": false}));
    assert_eq!(first.cached, 0);
    let again = ask(&client, &messages, json!({"enable_thinking": true}));
    assert!(again.prompt - again.cached <= TAIL, "{} of {}", again.cached, again.prompt);
    // another question behind the same system turn
    let other = ask(&client, &[messages[0].clone(), turn("user", "Which room had two of them?")], json!({"enable_thinking": false}));
    assert!(other.cached > 100 && other.cached < first.prompt / 2 + TAIL, "{} of {}", other.cached, other.prompt);
    // the next turn reads the answer before it, whose opening the template writes otherwise now, and what is new
    messages.extend([turn("assistant", &first.content), turn("user", &long("chair"))]);
    let next = ask(&client, &messages, json!({"enable_thinking": false}));
    assert!(next.cached + TAIL >= first.prompt, "{} of {}", next.cached, first.prompt);
}

#[test]
fn an_effort_in_the_system_turn_has_a_branch_of_its_own() {
    let template = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/effort_in_system.jinja")).unwrap();
    let (_server, client) = serve(&template, ROOM);
    let mut messages = conversation();
    let efforts = ["low", "high", "medium"];
    let effort = |e: &str| json!({"reasoning_effort": e});
    for e in efforts {
        let first = ask(&client, &messages, effort(e));
        assert!(first.cached <= TAIL, "{e}: {} of {}", first.cached, first.prompt);
    }
    messages.extend([turn("assistant", "It was the lamp."), turn("user", &long("chair"))]);
    for e in efforts {
        let next = ask(&client, &messages, effort(e));
        // the first two turns
        assert!(next.cached > next.prompt - next.cached, "{e}: {} of {}", next.cached, next.prompt);
        let again = ask(&client, &messages, effort(e));
        assert!(again.prompt - again.cached <= TAIL, "{e}: {} of {}", again.cached, again.prompt);
    }
}

#[test]
fn without_room_only_the_slot_remembers() {
    let (_server, client) = serve(&text().1, 0);
    let messages = conversation();
    for _ in 0..2 {
        // the request without the cache has taken the slot in between
        assert_eq!(ask(&client, &messages, json!({"enable_thinking": false})).cached, 0);
    }
}
