//! What all requests share.

use crate::config::ServeOptions;
use crate::failure::Failure;
use crate::generate::RequestError;
use crate::guard::keys::Keys;
use crate::served::Served;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Semaphore, watch};

/// The state of a server.
pub struct App {
    pub options: ServeOptions,
    pub keys: Keys,
    /// There once a model is warm.
    pub served: OnceLock<Arc<Served>>,
    pub started: Instant,
    /// True once the server is told to stop.
    pub stopping: watch::Sender<bool>,
    /// KiB of bodies that may still be taken in.
    pub bodies: Arc<Semaphore>,
}

impl App {
    /// The model.
    ///
    /// # Errors
    /// It is not warm yet.
    pub fn served(&self) -> Result<Arc<Served>, RequestError> {
        self.served.get().cloned().ok_or(RequestError::Loading)
    }

    /// The moment at which a request that comes now is ended.
    pub fn deadline(&self) -> Option<Instant> {
        Instant::now().checked_add(self.options.times.request?)
    }
}

/// Handlers' view of the state.
pub type Shared = State<Arc<App>>;

/// Seconds since 1970.
pub fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Runs what takes long (parsing, templates, tokens) where no other request waits for it.
///
/// # Errors
/// Those of `work`; a panic in it is a failure of the server.
pub async fn heavy<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err(internal()),
    }
}

/// The server's own fault, without details.
pub fn internal() -> Failure {
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the server failed at this request")
}

/// A handler that fails in the form of OpenAI's API.
pub async fn openai<F: Future<Output = Result<Response<Body>, Failure>>>(answer: F) -> Response<Body> {
    answer.await.unwrap_or_else(|f| f.response(crate::failure::Shape::OpenAi)).into_response()
}

/// Path and query of nothing that exists.
pub async fn not_found(request: Request) -> Response<Body> {
    let path = request.uri().path();
    Failure::new(StatusCode::NOT_FOUND, format!("there is no {path}")).code("unknown_route").response(crate::failure::Shape::of(path))
}

/// A path that exists with another method.
pub async fn wrong_method(request: Request) -> Response<Body> {
    let path = request.uri().path();
    let message = format!("{path} does not answer to {}", request.method());
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, message).code("wrong_method").response(crate::failure::Shape::of(path))
}

/// A number that nobody can guess: for names of answers, and for seeds.
pub fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(Instant::now())
}

/// A name such as `chatcmpl-0123...` that no other answer has.
pub fn unique(prefix: &str) -> String {
    format!("{prefix}{:016x}{:016x}", random(), random())
}
