//! Who is let in, and how much of what they send.

mod common;

use common::{Client, Reply, options, shared};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};
use strata_server::config::{Limits, Times};
use strata_server::{ServeError, ServeOptions, Server};

/// A server that has no model: what is let in hears that it is loading.
fn guarded(options: ServeOptions) -> (Server, Client) {
    let server = Server::start(options).unwrap();
    let client = Client::new(server.addr());
    (server, client)
}

fn loading(reply: &Reply) -> bool {
    reply.status == 503
}

#[test]
fn keys() {
    let path = std::env::temp_dir().join(format!("strata-server-keys-{}", std::process::id()));
    std::fs::write(&path, "first-key\nsecond-key\n").unwrap();
    let (_server, client) = guarded(ServeOptions { key_file: Some(path.clone()), ..options() });
    for public in ["/", "/page/app.js"] {
        assert_eq!(client.get(public).status, 200, "{public}");
    }
    assert!(loading(&client.get("/health")));
    let closed = ["/v1/models", "/v1/status", "/metrics", "/nowhere", "/pages", "//", "/health/"];
    for path in closed {
        let reply = client.get(path);
        assert_eq!(reply.status, 401, "{path}");
        assert_eq!(reply.json()["error"]["code"], "invalid_api_key");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    }
    assert_eq!(client.post("/v1/chat/completions", &json!({})).status, 401, "before its body is looked at");
    for (name, value, good) in [
        ("Authorization", "Bearer first-key", true),
        ("Authorization", "bearer second-key", true),
        ("x-api-key", "second-key", true),
        ("Authorization", "Bearer second-keys", false),
        ("Authorization", "Basic first-key", false),
        ("Authorization", "Bearer ", false),
        ("Authorization", "Bearer", false),
        ("x-api-key", "", false),
    ] {
        assert_eq!(loading(&client.with(name, value).get("/v1/models")), good, "{name}: {value}");
    }
    if cfg!(unix) {
        std::fs::write(&path, "third-key").unwrap();
        let kill = std::process::Command::new("kill").args(["-HUP", &std::process::id().to_string()]).status().unwrap();
        assert!(kill.success());
        common::wait_for("the new key", || loading(&client.with("x-api-key", "third-key").get("/v1/models")));
        assert_eq!(client.with("x-api-key", "first-key").get("/v1/models").status, 401);
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn an_open_address_needs_a_key() {
    let open = || ServeOptions { listen: "0.0.0.0:0".parse().unwrap(), ..options() };
    assert!(matches!(Server::start(open()), Err(ServeError::Insecure(_))));
    assert!(Server::start(ServeOptions { insecure: true, ..open() }).is_ok());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap();
    assert!(matches!(Server::start(ServeOptions { listen, ..options() }), Err(ServeError::Listen { .. })));
    let key_file = Some("/no/such/file".into());
    assert!(matches!(Server::start(ServeOptions { key_file, ..options() }), Err(ServeError::Keys(_))));
}

#[test]
fn names_and_pages() {
    let pages = ServeOptions { cors_origins: vec!["https://app.example".into()], allowed_hosts: vec!["box.lan".into()], ..options() };
    let (_server, client) = guarded(pages);
    let host = client.headers[0].1.clone();
    assert!(loading(&client.with("Host", "box.lan:99").get("/v1/models")));
    for stranger in ["evil.example", "localhost.evil.example"] {
        for path in ["/", "/health", "/v1/models"] {
            let reply = client.with("Host", stranger).get(path);
            assert_eq!((reply.status, &reply.json()["error"]["code"]), (403, &"unknown_host".into()));
        }
    }
    let own = client.with("Origin", &format!("http://{host}")).get("/v1/models");
    assert!(loading(&own) && own.header("access-control-allow-origin").is_none());
    let known = client.with("Origin", "https://app.example").get("/v1/models");
    assert_eq!((known.status, known.header("access-control-allow-origin")), (503, Some("https://app.example")));
    let asks = client.with("Origin", "https://app.example").raw("OPTIONS", "/v1/chat/completions", b"");
    assert_eq!((asks.status, asks.header("access-control-allow-methods")), (204, Some("GET, POST, DELETE")));
    for origin in ["https://evil.example", "null", "http://localhost:1"] {
        for method in ["POST", "OPTIONS"] {
            let reply = client.with("Origin", origin).raw(method, "/v1/chat/completions", b"{}");
            assert_eq!((reply.status, &reply.json()["error"]["code"]), (403, &"unknown_origin".into()), "{origin}");
            assert!(reply.header("access-control-allow-origin").is_none());
        }
    }
}

#[test]
fn sizes() {
    let limits = Limits { body: 4096, header: 8192, header_fields: 20, ..Limits::default() };
    let server = Server::start(ServeOptions { limits, ..options() }).unwrap();
    server.ready(common::info(1, 1));
    let client = Client::new(server.addr());
    let body = |n: usize| json!({"content": "x".repeat(n - 14)});
    assert_eq!(body(4096).to_string().len(), 4096);
    assert_eq!(client.post("/tokenize", &body(4096)).status, 200);
    let reply = client.post("/tokenize", &body(4097));
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (413, &"body_too_large".into()));
    // a length that lies, and none at all
    let mut stream = client.connect();
    stream.write_all(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999\r\nConnection: close\r\n\r\n").unwrap();
    assert!(all(&mut stream).starts_with("HTTP/1.1 413"));
    let mut stream = client.connect();
    stream.write_all(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n").unwrap();
    let chunk = format!("400\r\n{}\r\n", "x".repeat(0x400));
    for _ in 0..5 {
        let _ = stream.write_all(chunk.as_bytes());
    }
    assert!(all(&mut stream).starts_with("HTTP/1.1 413"));
    assert_eq!(client.with("X-Long", &"x".repeat(9000)).get("/health").status, 431);
    let many = (0..30).fold(client.clone(), |c, i| c.with(&format!("X-{i}"), "1"));
    assert_eq!(many.get("/health").status, 431);
    assert_eq!(client.get(&format!("/{}", "x".repeat(2000))).status, 414);
}

fn all(stream: &mut std::net::TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn times() {
    let times = Times {
        header: Duration::from_millis(300),
        stall: Duration::from_millis(300),
        body: Duration::from_millis(900),
        ..Times::default()
    };
    let server = Server::start(ServeOptions { times, ..options() }).unwrap();
    server.ready(common::info(1, 1));
    let client = Client::new(server.addr());
    let start = Instant::now();
    let mut stream = client.connect();
    stream.write_all(b"POST /tokenize HTTP/1.1\r\nHost: ").unwrap();
    all(&mut stream);
    assert!(start.elapsed() < Duration::from_secs(5), "half a head does not hold a connection");
    let head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\nConnection: close\r\n\r\n";
    let mut stream = client.connect();
    stream.write_all(head).unwrap();
    assert!(all(&mut stream).starts_with("HTTP/1.1 408"), "a body that does not come");
    let mut stream = client.connect();
    stream.write_all(head).unwrap();
    let mut drip = stream.try_clone().unwrap();
    let dripping = std::thread::spawn(move || {
        while drip.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let start = Instant::now();
    assert!(all(&mut stream).starts_with("HTTP/1.1 408"), "a body that comes in drops");
    assert!(start.elapsed() < Duration::from_secs(5));
    drop(stream);
    dripping.join().unwrap();
}

#[test]
fn many_requests_on_one_connection() {
    let client = shared();
    let mut stream = client.connect();
    for _ in 0..3 {
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut got = Vec::new();
        let mut byte = [0];
        while !got.ends_with(b"}") {
            stream.read_exact(&mut byte).unwrap();
            got.push(byte[0]);
        }
        assert!(got.starts_with(b"HTTP/1.1 200"));
    }
}
