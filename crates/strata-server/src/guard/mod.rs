//! What stands before every route: the name a request is addressed to, the page it comes from, its key, the limits of its size and
//! time, and panics.

pub mod body;
pub mod hosts;
pub mod io;
pub mod keys;
pub mod panics;

use crate::app::App;
use crate::failure::{Failure, Shape};
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{self, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, Response, StatusCode};
use axum::middleware::Next;
use hosts::{Hosts, Stranger};
use std::sync::Arc;
use std::time::Instant;

/// Longest path that has a meaning here.
const MAX_PATH: usize = 1024;

/// Lets a request through to its route, or turns it away.
pub async fn guard(app: Arc<App>, hosts: Arc<Hosts>, request: Request, next: Next) -> Response<Body> {
    let start = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut cross = None;
    let mut response = match hosts.check(request.headers()) {
        Err(stranger) => strange(stranger).response(Shape::of(&path)),
        Ok(Some(origin)) if method == Method::OPTIONS => {
            cross = Some(origin);
            preflight()
        }
        Ok(origin) => {
            cross = origin;
            match admit(&app, &path, request.headers()) {
                Ok(()) => panics::caught(Shape::of(&path), next.run(request)).await,
                Err(failure) => failure.response(Shape::of(&path)),
            }
        }
    };
    if let Some(origin) = cross {
        allow(response.headers_mut(), &origin);
    }
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if app.options.log {
        let (at, took) = (app.started.elapsed().as_secs_f64(), start.elapsed().as_secs_f64() * 1e3);
        eprintln!("[{at:9.3}] {method} {path} {} {took:.1} ms", response.status().as_u16());
    }
    response
}

/// Pages and the sign of life are for everybody, all else for those with a key.
fn admit(app: &App, path: &str, headers: &HeaderMap) -> Result<(), Failure> {
    if path.len() > MAX_PATH {
        let message = format!("path: expected at most {MAX_PATH} bytes, found {}", path.len());
        return Err(Failure::new(StatusCode::URI_TOO_LONG, message));
    }
    let public = path == "/" || path == "/health" || path.starts_with("/page/");
    if public || app.keys.accept(key(headers)) {
        return Ok(());
    }
    let message = if key(headers).is_some() { "the API key is not known here" } else { "an API key is needed: Authorization: Bearer KEY" };
    Err(Failure::new(StatusCode::UNAUTHORIZED, message).code("invalid_api_key"))
}

/// The key as OpenAI's clients send it, or as Anthropic's do.
fn key(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(AUTHORIZATION).and_then(|v| {
        let (scheme, key) = v.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then(|| key.trim_ascii())
    });
    bearer.or_else(|| headers.get("x-api-key").map(|v| v.as_bytes().trim_ascii()))
}

fn strange(stranger: Stranger) -> Failure {
    let (message, code) = match stranger {
        Stranger::Host => ("Host: expected a name of this server; others are allowed with --allowed-host", "unknown_host"),
        Stranger::Origin => ("Origin: pages of other sites are allowed with --cors-origin", "unknown_origin"),
    };
    Failure::new(StatusCode::FORBIDDEN, message).code(code)
}

/// The answer to a browser that asks whether a page may send a request.
fn preflight() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &'static str| headers.insert(name, HeaderValue::from_static(value));
    set(header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, DELETE");
    set(header::ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type, x-api-key, anthropic-version, anthropic-beta");
    set(header::ACCESS_CONTROL_MAX_AGE, "600");
    response
}

fn allow(headers: &mut HeaderMap, origin: &str) {
    if let Ok(origin) = HeaderValue::from_str(origin) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    }
}
