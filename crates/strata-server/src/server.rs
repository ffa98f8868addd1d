//! The socket, the routes, and the end.

use crate::app::{App, not_found, wrong_method};
use crate::config::ServeOptions;
use crate::guard::hosts::Hosts;
use crate::guard::io::Patient;
use crate::guard::keys::{KeyError, Keys};
use crate::served::{ModelInfo, Served};
use crate::{anthropic, guard, openai, page, responses, slots, status, tokenize};
use axum::Router;
use axum::middleware::from_fn;
use axum::routing::{get, post};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};

/// Threads that handle connections: they only move text.
const THREADS: usize = 2;
/// Threads for templates, tokens and JSON.
const HEAVY_THREADS: usize = 4;
/// For the last bytes of cut streams.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why a server does not start.
#[derive(Debug, Error)]
pub enum ServeError {
    #[error("{0}: a key file (--api-key-file) is needed to listen for other machines; --insecure does without")]
    Insecure(SocketAddr),
    #[error("{addr}: cannot listen: {error}")]
    Listen { addr: SocketAddr, error: io::Error },
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error("cannot start the server's threads: {0}")]
    Threads(io::Error),
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
}

/// A server that listens. Until it has a model, it says that it is loading.
pub struct Server {
    app: Arc<App>,
    runtime: Runtime,
    addr: SocketAddr,
    connections: Arc<Semaphore>,
}

impl Server {
    /// Opens the socket and answers from then on.
    ///
    /// # Errors
    /// The address is taken or open to other machines without a key, or the key file is not usable.
    pub fn start(options: ServeOptions) -> Result<Server, ServeError> {
        let keys = Keys::new(options.key_file.clone())?;
        if !options.listen.ip().is_loopback() && !keys.required() && !options.insecure {
            return Err(ServeError::Insecure(options.listen));
        }
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let builder = builder.worker_threads(THREADS).max_blocking_threads(HEAVY_THREADS).thread_name("strata-http").enable_all();
        let runtime = builder.build().map_err(ServeError::Threads)?;
        let wanted = options.listen;
        let listen = |error| ServeError::Listen { addr: wanted, error };
        let listener = runtime.block_on(TcpListener::bind(wanted)).map_err(listen)?;
        let addr = listener.local_addr().map_err(listen)?;
        let connections = Arc::new(Semaphore::new(options.limits.connections));
        let app = Arc::new(App {
            bodies: Arc::new(Semaphore::new(options.limits.bodies / 1024)),
            stopping: watch::Sender::new(false),
            served: OnceLock::new(),
            started: Instant::now(),
            keys,
            options,
        });
        reload_on_hangup(&runtime, &app)?;
        runtime.spawn(accept(Arc::clone(&app), listener, router(&app, addr), Arc::clone(&connections)));
        Ok(Server { app, runtime, addr, connections })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves a model, which should be warm.
    pub fn ready(&self, info: ModelInfo) {
        // a second model is not taken: there is one for the life of a server
        let _ = self.app.served.set(Arc::new(Served::new(info)));
    }

    /// Waits until the process is told to end.
    ///
    /// # Errors
    /// Signals cannot be watched.
    pub fn wait(&self) -> Result<(), ServeError> {
        self.runtime.block_on(told_to_end()).map_err(ServeError::Signals)
    }

    /// Takes no more requests, lets answers end for `grace`, then cuts them. A second signal cuts them at once.
    pub fn stop(self, grace: Duration) {
        self.app.stopping.send_replace(true);
        let until = Instant::now() + grace;
        let app = Arc::clone(&self.app);
        let all = u32::try_from(self.app.options.limits.connections).unwrap_or(u32::MAX);
        self.runtime.block_on(async {
            let ends = async {
                if let Some(served) = app.served.get().cloned() {
                    let runner = served.runner.clone();
                    // fails only if the runner's stop panics; there is nothing left to wait for then
                    let _ = tokio::task::spawn_blocking(move || runner.stop(until)).await;
                }
                // every connection gives its permit back when it ends
                let _ = tokio::time::timeout(LAST_WORDS, self.connections.acquire_many(all)).await;
            };
            tokio::select! { () = ends => {}, _ = told_to_end() => {} }
        });
        self.runtime.shutdown_background();
    }
}

/// All routes behind the guard.
fn router(app: &Arc<App>, addr: SocketAddr) -> Router {
    let o = &app.options;
    let hosts = Arc::new(Hosts::new(addr, app.keys.required(), &o.allowed_hosts, &o.cors_origins));
    let guarded = Arc::clone(app);
    Router::new()
        .route("/v1/chat/completions", post(openai::chat::create))
        .route("/v1/completions", post(openai::completions::create))
        .route("/v1/embeddings", post(openai::embeddings::create))
        .merge(responses::routes(app))
        .route("/v1/messages", post(anthropic::create))
        .route("/v1/messages/count_tokens", post(anthropic::count))
        .route("/v1/models", get(openai::models::list))
        .route("/v1/models/{*id}", get(openai::models::one))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/slots", get(slots::list))
        .route("/slots/{id}", post(slots::act))
        .route("/health", get(status::health))
        .route("/v1/status", get(status::status))
        .route("/metrics", get(status::metrics))
        .route("/", get(page::index))
        .route("/page/{name}", get(page::one))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn(move |request, next| guard::guard(Arc::clone(&guarded), Arc::clone(&hosts), request, next)))
        .with_state(Arc::clone(app))
}

async fn accept(app: Arc<App>, listener: TcpListener, router: Router, connections: Arc<Semaphore>) {
    let mut stopping = app.stopping.subscribe();
    loop {
        let next = async {
            let permit = Arc::clone(&connections).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, stream) = tokio::select! { next = next => next, _ = stopping.wait_for(|s| *s) => return };
        match stream {
            Ok((stream, _)) => {
                let (app, router) = (Arc::clone(&app), router.clone());
                tokio::spawn(async move {
                    connection(&app, stream, router).await;
                    drop(permit);
                });
            }
            // no more file descriptors, perhaps: others will end
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// One connection until it ends. What goes wrong on it is its client's business.
async fn connection(app: &App, stream: TcpStream, router: Router) {
    let (limits, times) = (app.options.limits, app.options.times);
    let _ = stream.set_nodelay(true);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(times.header).max_headers(limits.header_fields).max_buf_size(limits.header);
    let io = TokioIo::new(Patient::new(stream, times.stall));
    let mut served = pin!(http.serve_connection(io, TowerToHyperService::new(router)));
    let mut stopping = app.stopping.subscribe();
    tokio::select! {
        _ = served.as_mut() => return,
        _ = stopping.wait_for(|s| *s) => {}
    }
    served.as_mut().graceful_shutdown();
    let _ = served.await;
}

#[cfg(unix)]
fn reload_on_hangup(runtime: &Runtime, app: &Arc<App>) -> Result<(), ServeError> {
    use tokio::signal::unix::{SignalKind, signal};
    if !app.keys.required() {
        return Ok(());
    }
    let mut hangups = runtime.block_on(async { signal(SignalKind::hangup()) }).map_err(ServeError::Signals)?;
    let app = Arc::clone(app);
    runtime.spawn(async move {
        while hangups.recv().await.is_some() {
            match app.keys.reload() {
                Ok(n) => eprintln!("keys read again: {n}"),
                Err(e) => eprintln!("keys stay as they were: {e}"),
            }
        }
    });
    Ok(())
}

#[cfg(not(unix))]
fn reload_on_hangup(_: &Runtime, _: &Arc<App>) -> Result<(), ServeError> {
    Ok(())
}

#[cfg(unix)]
async fn told_to_end() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
    Ok(())
}

#[cfg(not(unix))]
async fn told_to_end() -> io::Result<()> {
    tokio::signal::ctrl_c().await
}
