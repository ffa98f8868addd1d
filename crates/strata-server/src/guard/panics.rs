//! A panic ends the request it is in, never the server.

use crate::app::internal;
use crate::failure::Shape;
use axum::body::Body;
use axum::http::Response;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;

/// Waits for a response; a panic on the way is a 500.
pub async fn caught(shape: Shape, answer: impl Future<Output = Response<Body>>) -> Response<Body> {
    let mut answer = pin!(answer);
    // after a panic the future is not polled again, so nobody sees what it left half done
    let caught = std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| Pin::as_mut(&mut answer).poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(response)) => Poll::Ready(Some(response)),
        Err(_) => Poll::Ready(None),
    });
    caught.await.unwrap_or_else(|| internal().response(shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_500() {
        let response = caught(Shape::OpenAi, async { panic!("on purpose") }).await;
        assert_eq!(response.status(), 500);
        let response = caught(Shape::OpenAi, async { Response::new(Body::empty()) }).await;
        assert_eq!(response.status(), 200);
    }
}
