//! Bodies of requests: read within limits of size and time, and taken apart with errors that name the field.

use crate::app::App;
use crate::failure::Failure;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use http_body::Body as _;
use serde::de::DeserializeOwned;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

/// A body; what it takes of the server's memory for bodies is given back with it.
pub struct Taken {
    bytes: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

/// The whole body of a request.
///
/// # Errors
/// It is too long, comes too slowly, or does not come whole.
pub async fn read(app: &App, request: Request) -> Result<Taken, Failure> {
    let (limit, times) = (app.options.limits.body, app.options.times);
    let length = request.headers().get(CONTENT_LENGTH).and_then(|l| l.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|l| l > limit as u64) {
        return Err(too_long(limit));
    }
    let mut body = request.into_body();
    let mut taken = Taken { bytes: Vec::new(), _room: None };
    let mut room = Room { all: &app.bodies, held: None, kib: 0 };
    let end = Instant::now() + times.body;
    loop {
        let frame = timeout(times.stall, poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)));
        let frame = match timeout_at(end, frame).await {
            Ok(Ok(frame)) => frame,
            _ => return Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time").code("timeout")),
        };
        match frame {
            None => break,
            Some(Err(_)) => return Err(Failure::new(StatusCode::BAD_REQUEST, "the body did not come whole")),
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { continue };
                if data.len() > limit - taken.bytes.len() {
                    return Err(too_long(limit));
                }
                room.take(taken.bytes.len() + data.len())?;
                taken.bytes.extend_from_slice(&data);
            }
        }
    }
    taken._room = room.held;
    Ok(taken)
}

/// What one body holds of the room for all.
struct Room<'a> {
    all: &'a Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
    kib: usize,
}

impl Room<'_> {
    fn take(&mut self, bytes: usize) -> Result<(), Failure> {
        let more = bytes.div_ceil(1024).saturating_sub(self.kib);
        if more == 0 {
            return Ok(());
        }
        let permit = u32::try_from(more).ok().and_then(|n| Arc::clone(self.all).try_acquire_many_owned(n).ok());
        let Some(permit) = permit else {
            let busy = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "too many large requests at a time; try again later");
            return Err(Failure { retry_after: Some(1), ..busy.code("busy") });
        };
        match &mut self.held {
            Some(held) => held.merge(permit),
            held => *held = Some(permit),
        }
        self.kib += more;
        Ok(())
    }
}

fn too_long(limit: usize) -> Failure {
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, format!("body: expected at most {limit} bytes, found more")).code("body_too_large")
}

impl Taken {
    /// The body as JSON of a known shape.
    ///
    /// # Errors
    /// It is no JSON, or a field has the wrong type; the field is named.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let mut from = serde_json::Deserializer::from_slice(&self.bytes);
        let value = serde_path_to_error::deserialize(&mut from).map_err(|e| {
            let path = e.path().to_string();
            let error = e.into_inner();
            let place = if path == "." || path == "?" { "body" } else { path.as_str() };
            // a syntax error says where in the text; a wrong type, in which field
            let param = if error.is_data() && place != "body" { Some(place.to_owned()) } else { None };
            let message = format!("{place}: {error}");
            Failure { param, ..Failure::new(StatusCode::BAD_REQUEST, message) }
        })?;
        from.end().map_err(|e| Failure::new(StatusCode::BAD_REQUEST, format!("body: {e}")))?;
        Ok(value)
    }
}
