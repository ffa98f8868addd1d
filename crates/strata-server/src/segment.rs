//! Parts of a path, whose errors have the API's shape.

use crate::failure::{Failure, Shape};
use axum::body::Body;
use axum::extract::{FromRequestParts, Path};
use axum::http::Response;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

/// As axum's `Path`, which refuses in plain text what is no number or no UTF-8.
pub struct Segment<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segment<T> {
    type Rejection = Response<Body>;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Segment(value)),
            Err(e) => Err(Failure::bad("path", e.body_text()).response(Shape::OpenAi)),
        }
    }
}
