//! A server in this process with the reference model, and a client made of a socket.
#![allow(dead_code)]

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use strata_cpu::backend::Cpu;
use strata_cpu::pool::Pool;
use strata_cpu::simd::Simd;
use strata_engine::prefix_cache::CacheOptions;
use strata_engine::sampler::SamplingParams;
use strata_engine::{Batch, Engine, EngineOptions, Runner, RunnerOptions};
use strata_gguf::{Gguf, StringArray};
use strata_model::{Model, ModelOptions, WeightMode};
use strata_server::{ModelInfo, ServeOptions, Server};
use strata_text::{ChatTemplate, RenderLimits, RenderOptions, Tokenizer, TokenizerSource};

pub const CONTEXT: usize = 2048;
pub const SLOTS: usize = 4;
pub const QUEUE: usize = 32;
pub const NAME: &str = "refmodel";

fn gguf() -> Gguf {
    Gguf::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/refmodel-q8_0.gguf")).expect("the reference model is in the repository")
}

/// The tokenizer and the source of the template.
pub fn text() -> &'static (Arc<Tokenizer>, String) {
    static TEXT: OnceLock<(Arc<Tokenizer>, String)> = OnceLock::new();
    TEXT.get_or_init(|| {
        let gguf = gguf();
        let m = gguf.metadata();
        let strings = |key: &str| m.get::<&StringArray>(key).unwrap().iter().map(str::to_owned).collect::<Vec<_>>();
        let source = TokenizerSource {
            model: m.str("tokenizer.ggml.model").unwrap().to_owned(),
            pre: m.str("tokenizer.ggml.pre").unwrap().to_owned(),
            tokens: strings("tokenizer.ggml.tokens"),
            token_types: m.get("tokenizer.ggml.token_type").unwrap(),
            merges: strings("tokenizer.ggml.merges"),
            bos: m.get_opt("tokenizer.ggml.bos_token_id").unwrap(),
            eos: m.get_opt("tokenizer.ggml.eos_token_id").unwrap(),
            padding: m.get_opt("tokenizer.ggml.padding_token_id").unwrap(),
            add_bos: false,
            chat_template: None,
        };
        (Arc::new(Tokenizer::new(source).unwrap()), m.str("tokenizer.chat_template").unwrap().to_owned())
    })
}

pub fn template() -> ChatTemplate {
    let (tokenizer, source) = text();
    ChatTemplate::new(source, tokenizer, RenderLimits::default()).unwrap()
}

fn model(threads: usize) -> (Cpu, Model<Cpu>) {
    let cpu = Cpu::new(Arc::new(Pool::new(threads)), Simd::best()).unwrap();
    let options = ModelOptions { weights: WeightMode::AsStored, mtp: true, mtp_dense: false };
    let model = Model::bind(&cpu, &gguf(), None, options).unwrap();
    (cpu, model)
}

/// What a server is made ready with.
pub fn info(slots: usize, queue: usize) -> ModelInfo {
    info_with(slots, queue, &text().1, 0)
}

/// With a chat template, and bytes for the prefix cache.
pub fn info_with(slots: usize, queue: usize, source: &str, cache: u64) -> ModelInfo {
    let (cpu, model) = model(2);
    let batch = Batch::new(cpu, model, EngineOptions { capacity: CONTEXT, chunk: 64, spec: 2, ..EngineOptions::default() }, slots).unwrap();
    let tokenizer = &text().0;
    let cache = CacheOptions { bytes: cache, ..CacheOptions::default() };
    ModelInfo {
        name: NAME.into(),
        aliases: vec!["another".into()],
        runner: Runner::start_with_cache(batch, RunnerOptions { queue }, &cache).unwrap(),
        queue,
        tokenizer: Arc::clone(tokenizer),
        template: Some((ChatTemplate::new(source, tokenizer, RenderLimits::default()).unwrap(), source.to_owned())),
        memory: Box::new(|| json!({})),
    }
}

pub fn options() -> ServeOptions {
    ServeOptions { listen: "127.0.0.1:0".parse().unwrap(), ..ServeOptions::default() }
}

/// A server of its own.
pub fn start(options: ServeOptions, slots: usize, queue: usize) -> (Server, Client) {
    let server = Server::start(options).unwrap();
    server.ready(info(slots, queue));
    let client = Client::new(server.addr());
    (server, client)
}

/// The server that tests share. It lives as long as the process.
pub fn shared() -> Client {
    static SERVER: OnceLock<(Server, Client)> = OnceLock::new();
    SERVER.get_or_init(|| start(options(), SLOTS, QUEUE)).1.clone()
}

/// The answer as an engine of its own draws it, without drafts, one token at a time: ids and text.
pub fn solo(prompt: &[u32], params: &SamplingParams, max: usize, ignore_eos: bool) -> (Vec<u32>, String) {
    let (cpu, model) = model(1);
    let mut engine = Engine::new(cpu, model, EngineOptions { capacity: CONTEXT, chunk: 512, ..EngineOptions::default() }).unwrap();
    let tokenizer = &text().0;
    let ends = |id: u32| !ignore_eos && tokenizer.stop_ids().contains(&id);
    let mut ids = vec![engine.start(prompt, params, &mut |_, _| true).unwrap().id];
    let mut new = Vec::new();
    while ids.len() < max && !ends(ids[ids.len() - 1]) {
        engine.step(params, &ends, &mut new).unwrap();
        ids.extend(new.drain(..).map(|t| t.id));
    }
    ids.truncate(max);
    let shown: Vec<u32> = ids.iter().copied().filter(|id| !ends(*id)).collect();
    let text = tokenizer.decode(&shown, true);
    (ids, text)
}

/// The prompt of a conversation, made here.
pub fn chat_ids(messages: &Value, thinking: bool) -> Vec<u32> {
    let options = RenderOptions { add_generation_prompt: true, enable_thinking: Some(thinking), ..RenderOptions::default() };
    text().0.encode(&template().render(messages, &options).unwrap(), true).unwrap()
}

/// A response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// A field of the head, by its name in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|l| l.split_once(": "));
        fields.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v)
    }
}

/// Sends requests, each on a connection of its own.
#[derive(Clone, Debug)]
pub struct Client {
    pub addr: SocketAddr,
    pub headers: Vec<(String, String)>,
}

impl Client {
    pub fn new(addr: SocketAddr) -> Client {
        Client { addr, headers: vec![("Host".into(), format!("localhost:{}", addr.port()))] }
    }

    /// The same with another header field, in the place of one of its name.
    pub fn with(&self, name: &str, value: &str) -> Client {
        let mut c = self.clone();
        c.headers.retain(|(n, _)| n != name);
        c.headers.push((name.into(), value.into()));
        c
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    fn send(&self, method: &str, path: &str, body: &[u8]) -> TcpStream {
        let mut stream = self.connect();
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        self.headers.iter().for_each(|(n, v)| head += &format!("{n}: {v}\r\n"));
        // a server that has answered already may not take the rest
        let _ = stream.write_all(format!("{head}\r\n").as_bytes()).and_then(|()| stream.write_all(body));
        stream
    }

    pub fn raw(&self, method: &str, path: &str, body: &[u8]) -> Reply {
        Stream::new(self.send(method, path, body)).rest()
    }

    pub fn get(&self, path: &str) -> Reply {
        self.raw("GET", path, b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.raw("POST", path, body.to_string().as_bytes())
    }

    /// Posts and gives the answer as it comes.
    pub fn stream(&self, path: &str, body: &Value) -> Stream {
        Stream::new(self.send("POST", path, body.to_string().as_bytes()))
    }

    /// The chunks of a stream, without the `[DONE]` that ends it.
    pub fn events(&self, path: &str, body: &Value) -> Vec<Value> {
        let mut body = body.clone();
        body["stream"] = true.into();
        let mut stream = self.stream(path, &body);
        if stream.status != 200 {
            panic!("{}", stream.rest().body);
        }
        assert!(stream.head.contains("text/event-stream"), "{}", stream.head);
        let mut events = Vec::new();
        while let Some(data) = stream.data() {
            events.push(data);
        }
        assert_eq!(events.pop().as_deref(), Some("[DONE]"));
        events.iter().map(|e| serde_json::from_str(e).unwrap()).collect()
    }
}

/// A response that is read piece by piece.
pub struct Stream {
    reader: BufReader<TcpStream>,
    pub status: u16,
    pub head: String,
    chunked: bool,
    text: Vec<u8>,
}

impl Stream {
    fn new(stream: TcpStream) -> Stream {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap_or(0) > 0 {}
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        Stream { reader, status, head, chunked, text: Vec::new() }
    }

    /// Reads one chunk more; false at the end.
    fn more(&mut self) -> bool {
        if !self.chunked {
            return self.reader.read_to_end(&mut self.text).unwrap_or(0) > 0;
        }
        let mut line = String::new();
        if self.reader.read_line(&mut line).unwrap_or(0) == 0 {
            return false;
        }
        let n = usize::from_str_radix(line.trim(), 16).expect("a chunk's length");
        let mut chunk = vec![0; n + 2];
        self.reader.read_exact(&mut chunk).expect("a whole chunk");
        self.text.extend_from_slice(&chunk[..n]);
        n > 0
    }

    /// The next block of lines; `None` at the end.
    pub fn block(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.text.windows(2).position(|w| w == b"\n\n") {
                let block = self.text.drain(..end + 2).collect::<Vec<_>>();
                return Some(String::from_utf8(block).unwrap());
            }
            if !self.more() {
                assert!(self.text.is_empty(), "half an event: {:?}", String::from_utf8_lossy(&self.text));
                return None;
            }
        }
    }

    /// The next event's data; comments are skipped.
    pub fn data(&mut self) -> Option<String> {
        loop {
            let block = self.block()?;
            let data: Vec<&str> = block.lines().filter_map(|l| l.strip_prefix("data: ")).collect();
            if !data.is_empty() {
                return Some(data.join("\n"));
            }
        }
    }

    pub fn rest(&mut self) -> Reply {
        while self.more() {}
        let body = String::from_utf8_lossy(&std::mem::take(&mut self.text)).into_owned();
        Reply { status: self.status, head: self.head.clone(), body }
    }
}

/// Looks until `is` or for ten seconds.
pub fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(10), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
