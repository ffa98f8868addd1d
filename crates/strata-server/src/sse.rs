//! Answers as server-sent events.

use crate::generate::{Answers, ChatEvent};
use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Response};
use http_body::Frame;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// Events that are ready are sent together up to this many bytes.
const MOST_AT_ONCE: usize = 16 << 10;
/// A comment: clients skip it, proxies see that the stream lives.
const SIGN_OF_LIFE: &str = ": keep-alive\n\n";

/// The wire form of a stream.
pub trait Encoder: Send + Unpin + 'static {
    /// Writes what an event comes to, nothing perhaps.
    fn event(&mut self, event: ChatEvent, out: &mut String);
    /// Writes what stands behind the last event.
    fn end(&mut self, out: &mut String);
    /// What stands in the stream when nothing has come for a while.
    fn sign_of_life(&self) -> &'static str {
        SIGN_OF_LIFE
    }
}

/// A response that sends answers as they come. When the client goes, it is dropped, and the answers are cancelled.
pub fn response(answers: Answers, encoder: impl Encoder, keep_alive: Duration) -> Response<Body> {
    let stream = Stream { answers, encoder, keep_alive, timer: Box::pin(sleep(keep_alive)), ended: false };
    let mut response = Response::new(Body::new(stream));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // proxies that collect responses shall not
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Appends an event that has only data.
pub fn data(out: &mut String, json: &serde_json::Value) {
    out.push_str("data: ");
    out.push_str(&json.to_string());
    out.push_str("\n\n");
}

/// Appends an event with a name.
pub fn named(out: &mut String, name: &str, json: &serde_json::Value) {
    out.push_str("event: ");
    out.push_str(name);
    out.push('\n');
    data(out, json);
}

struct Stream<E> {
    answers: Answers,
    encoder: E,
    keep_alive: Duration,
    timer: Pin<Box<Sleep>>,
    ended: bool,
}

impl<E: Encoder> Stream<E> {
    fn poll_text(&mut self, cx: &mut Context<'_>) -> Poll<Option<String>> {
        let mut text = String::new();
        while !self.ended && text.len() < MOST_AT_ONCE {
            match self.answers.poll_next(cx) {
                Poll::Ready(Some(event)) => self.encoder.event(event, &mut text),
                Poll::Ready(None) => {
                    self.encoder.end(&mut text);
                    self.ended = true;
                }
                Poll::Pending => break,
            }
        }
        if text.is_empty() {
            if self.ended {
                return Poll::Ready(None);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            text.push_str(self.encoder.sign_of_life());
        }
        self.timer.as_mut().reset(Instant::now() + self.keep_alive);
        Poll::Ready(Some(text))
    }
}

impl<E: Encoder> http_body::Body for Stream<E> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        // a panic ends this stream, not the connection's task
        let text = catch_unwind(AssertUnwindSafe(|| this.poll_text(cx))).unwrap_or_else(|_| {
            this.ended = true;
            Poll::Ready(None)
        });
        text.map(|t| t.map(|t| Ok(Frame::data(Bytes::from(t)))))
    }
}
