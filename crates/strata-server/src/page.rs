//! The page at `/`: files of `page/`, part of the program.

use crate::failure::{Failure, Shape};
use crate::segment::Segment;
use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY};
use axum::http::{HeaderValue, Response, StatusCode};

/// Nothing but this server's own files and API, nothing inline, nothing framed.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../page/", $name)))),*]
    };
}

static INDEX: &str = include_str!("../page/index.html");
static FILES: [(&str, &str); 18] = files![
    "answer.js",
    "api.js",
    "app.js",
    "chart.js",
    "chat.js",
    "dom.js",
    "files.js",
    "inline.js",
    "markdown.js",
    "message.js",
    "monitor.js",
    "readings.js",
    "settings.js",
    "sidebar.js",
    "store.js",
    "style.css",
    "theme.js",
    "themes.js",
];

/// `GET /`.
pub async fn index() -> Response<Body> {
    file("text/html; charset=utf-8", INDEX)
}

/// `GET /page/NAME`.
pub async fn one(Segment(name): Segment<String>) -> Response<Body> {
    match FILES.iter().find(|(n, _)| *n == name) {
        Some((name, text)) if name.ends_with(".css") => file("text/css; charset=utf-8", text),
        Some((_, text)) => file("text/javascript; charset=utf-8", text),
        None => Failure::new(StatusCode::NOT_FOUND, "there is no such file").code("unknown_route").response(Shape::OpenAi),
    }
}

fn file(kind: &'static str, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::from_static(text.as_bytes())));
    let headers: [(HeaderName, &'static str); 4] =
        [(CONTENT_TYPE, kind), (CONTENT_SECURITY_POLICY, POLICY), (REFERRER_POLICY, "no-referrer"), (CACHE_CONTROL, "no-cache")];
    response.headers_mut().extend(headers.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_served() {
        let dir = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/page")).unwrap();
        let mut there: Vec<String> = dir.map(|e| e.unwrap().file_name().into_string().unwrap()).filter(|n| n != "index.html").collect();
        there.sort();
        assert_eq!(there, FILES.map(|(name, _)| name));
        assert!(there.iter().all(|n| n.ends_with(".css") || n.ends_with(".js")), "a kind without a content type");
    }
}
