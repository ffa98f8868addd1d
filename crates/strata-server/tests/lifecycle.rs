//! Loading, clients that go, full queues, time limits, the end.

mod common;

use common::{Client, options, start, wait_for};
use serde_json::{Value, json};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use strata_server::config::Times;
use strata_server::{ServeOptions, Server};

const CHAT: &str = "/v1/chat/completions";

/// An answer that takes seconds.
fn long() -> Value {
    json!({"messages": [{"role": "user", "content": "Tell me something."}], "seed": 1, "max_tokens": 1500, "ignore_eos": true, "stream": true})
}

fn count(client: &Client, name: &str) -> u64 {
    client.get("/v1/status").json()["counters"][name].as_u64().unwrap()
}

fn running(client: &Client) -> u64 {
    client.get("/v1/status").json()["batch"]["running"].as_u64().unwrap()
}

#[test]
fn until_the_model_is_there() {
    let server = Server::start(options()).unwrap();
    let client = Client::new(server.addr());
    assert_eq!((client.get("/health").status, client.get("/health").json()), (503, json!({"status": "loading"})));
    assert_eq!(client.get("/v1/status").json()["state"], "loading");
    for reply in [client.post(CHAT, &long()), client.get("/v1/models"), client.get("/metrics")] {
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (503, &"loading".into()));
        assert!(reply.header("retry-after").is_some());
    }
    server.ready(common::info(1, 1));
    assert_eq!(client.get("/health").status, 200);
    server.stop(Duration::ZERO);
    assert!(TcpStream::connect(client.addr).is_err(), "nobody listens after the end");
}

#[test]
fn a_client_that_goes_is_noticed() {
    let (_server, client) = start(options(), 1, 4);
    // while it streams
    let mut stream = client.stream(CHAT, &long());
    (0..3).for_each(|_| drop(stream.data()));
    assert_eq!(running(&client), 1);
    drop(stream);
    wait_for("the stream's end", || running(&client) == 0);
    assert_eq!(count(&client, "cancelled"), 1);
    let drawn = count(&client, "generated_tokens");
    assert!(drawn < 1000, "{drawn}");
    // while nothing has been sent yet
    let mut whole = long();
    whole["stream"] = false.into();
    let waiting = std::thread::scope(|_| {
        let stream = client.connect();
        let body = whole.to_string();
        let head = format!("POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        std::io::Write::write_all(&mut &stream, head.as_bytes()).unwrap();
        stream
    });
    wait_for("the request", || running(&client) == 1);
    drop(waiting);
    wait_for("its end", || running(&client) == 0);
    assert_eq!(count(&client, "cancelled"), 2);
    // while it waits for a slot
    let mut first = client.stream(CHAT, &long());
    first.data();
    let second = client.stream(CHAT, &long());
    wait_for("the second", || client.get("/v1/status").json()["queue"]["waiting"] == 1);
    drop(second);
    wait_for("its end", || client.get("/v1/status").json()["queue"]["waiting"] == 0);
    assert_eq!((count(&client, "cancelled"), running(&client)), (3, 1));
}

#[test]
fn a_full_queue_says_so() {
    let (_server, client) = start(options(), 1, 1);
    let mut streams: Vec<_> = (0..2).map(|_| client.stream(CHAT, &long())).collect();
    streams[0].data();
    wait_for("both", || client.get("/v1/status").json()["queue"]["waiting"] == 1);
    let reply = client.post(CHAT, &long());
    assert_eq!((reply.status, &reply.json()["error"]["type"]), (429, &"rate_limit_error".into()));
    assert_eq!((reply.header("retry-after"), &reply.json()["error"]["code"]), (Some("1"), &"queue_full".into()));
    // of three choices none is answered where two have no room
    drop(streams);
    wait_for("the end of both", || running(&client) == 0);
    let before = count(&client, "submitted");
    let mut many = long();
    many["n"] = 3.into();
    assert_eq!(client.post(CHAT, &many).status, 429);
    wait_for("nobody", || running(&client) == 0 && client.get("/v1/status").json()["queue"]["waiting"] == 0);
    assert_eq!(count(&client, "submitted"), before + 2);
}

#[test]
fn time_limits_end_answers() {
    let times = Times { request: Some(Duration::from_millis(400)), ..Times::default() };
    let (_server, client) = start(ServeOptions { times, ..options() }, 1, 1);
    let mut stream = client.stream(CHAT, &long());
    let mut events = Vec::new();
    while let Some(data) = stream.data() {
        events.push(data);
    }
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    let last: Value = serde_json::from_str(&events.pop().unwrap()).unwrap();
    assert_eq!((&last["error"]["type"], &last["error"]["code"]), (&"timeout_error".into(), &"timeout".into()));
    assert!(events.len() > 2, "it had begun");
    let mut whole = long();
    whole["stream"] = false.into();
    assert_eq!(client.post(CHAT, &whole).status, 504);
    assert_eq!(count(&client, "timed_out"), 2);
}

#[test]
fn streams_show_that_they_live() {
    let times = Times { keep_alive: Duration::from_millis(50), ..Times::default() };
    let (_server, client) = start(ServeOptions { times, ..options() }, 1, 1);
    let mut first = client.stream(CHAT, &long());
    first.data();
    let mut second = client.stream(CHAT, &long());
    assert_eq!(second.block().as_deref(), Some(": keep-alive\n\n"));
}

#[test]
fn the_end_cuts_what_is_too_long() {
    let (server, client) = start(options(), 1, 2);
    let mut stream = client.stream(CHAT, &long());
    stream.data();
    let mut waiting = client.stream(CHAT, &long());
    let begun = Instant::now();
    server.stop(Duration::from_millis(200));
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    for stream in [&mut stream, &mut waiting] {
        let mut events = Vec::new();
        while let Some(data) = stream.data() {
            events.push(data);
        }
        assert_eq!(events.pop().as_deref(), Some("[DONE]"));
        let last: Value = serde_json::from_str(&events.pop().unwrap()).unwrap();
        assert_eq!(last["error"]["code"], "stopping", "{last}");
    }
    assert!(TcpStream::connect(client.addr).is_err());
}

#[test]
fn the_end_waits_for_what_is_short() {
    let (server, client) = start(options(), 1, 2);
    let mut body = long();
    body["max_tokens"] = 200.into();
    let mut stream = client.stream(CHAT, &body);
    stream.data();
    let begun = Instant::now();
    server.stop(Duration::from_secs(60));
    assert!(begun.elapsed() < Duration::from_secs(30));
    let mut events = Vec::new();
    while let Some(data) = stream.data() {
        events.push(data);
    }
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    let last: Value = serde_json::from_str(&events.pop().unwrap()).unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "length");
}
