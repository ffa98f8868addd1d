//! What a server is made with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Addresses, keys, limits and times of a server.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where to listen; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// File of keys, one a line; without it everybody is served.
    pub key_file: Option<PathBuf>,
    /// Listen for other machines without a key.
    pub insecure: bool,
    /// Names, besides this machine's own, that requests may be addressed to.
    pub allowed_hosts: Vec<String>,
    /// Web pages, such as `https://example.org`, that may use the API; `*` is all.
    pub cors_origins: Vec<String>,
    /// Where sessions are saved; without it they are not.
    pub slot_save_path: Option<PathBuf>,
    /// Write a line about each request on standard error: never what it says.
    pub log: bool,
    pub limits: Limits,
    pub times: Times,
}

/// Sizes above which a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections open at a time; others wait to be accepted.
    pub connections: usize,
    /// Bytes of a request's body.
    pub body: usize,
    /// Bytes of all bodies being read or worked on.
    pub bodies: usize,
    /// Bytes of a request's head, and fields of it.
    pub header: usize,
    pub header_fields: usize,
    /// Answers to one prompt.
    pub choices: u32,
    /// Prompts of one request.
    pub prompts: usize,
    /// Bytes of a JSON schema or a grammar.
    pub schema: usize,
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Until a request's head has come.
    pub header: Duration,
    /// Without a byte moving while a client sends or is to take something.
    pub stall: Duration,
    /// Until a request's body has come whole.
    pub body: Duration,
    /// An answer, waiting included; `None`: no limit.
    pub request: Option<Duration>,
    /// Between two signs of life in a stream.
    pub keep_alive: Duration,
    /// For answers to end once the server is told to stop.
    pub grace: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        ServeOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            key_file: None,
            insecure: false,
            allowed_hosts: Vec::new(),
            cors_origins: Vec::new(),
            slot_save_path: None,
            log: false,
            limits: Limits::default(),
            times: Times::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 512,
            body: 16 << 20,
            bodies: 256 << 20,
            header: 64 << 10,
            header_fields: 100,
            choices: 16,
            prompts: 64,
            schema: 256 << 10,
        }
    }
}

impl Default for Times {
    fn default() -> Self {
        Times {
            header: Duration::from_secs(30),
            stall: Duration::from_secs(30),
            body: Duration::from_secs(120),
            request: None,
            keep_alive: Duration::from_secs(10),
            grace: Duration::from_secs(30),
        }
    }
}
