//! What a client is told when it does not get what it asked for, in the form of the API it speaks.

use crate::generate::{FinishReason, RequestError};
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

/// An error of any API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub status: StatusCode,
    pub message: String,
    /// The field at fault.
    pub param: Option<String>,
    /// A short name of the case, for programs.
    pub code: Option<&'static str>,
    /// Seconds.
    pub retry_after: Option<u32>,
}

/// Whose error bodies a path has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    OpenAi,
    Anthropic,
}

impl Shape {
    pub fn of(path: &str) -> Shape {
        if path == "/v1/messages" || path.starts_with("/v1/messages/") { Shape::Anthropic } else { Shape::OpenAi }
    }
}

impl Failure {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Failure {
        Failure { status, message: message.into(), param: None, code: None, retry_after: None }
    }

    /// A request that is wrong at `param`.
    pub fn bad(param: &str, message: impl Into<String>) -> Failure {
        Failure { param: Some(param.to_owned()), ..Failure::new(StatusCode::BAD_REQUEST, message) }
    }

    #[must_use]
    pub fn code(self, code: &'static str) -> Failure {
        Failure { code: Some(code), ..self }
    }

    /// The name of its class in OpenAI's API.
    pub fn openai_type(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 | 405 => "not_found_error",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            504 => "timeout_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// The name of its class in Anthropic's API.
    pub fn anthropic_type(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 | 405 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            504 => "timeout_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        }
    }

    /// The body, also the last event of a stream that fails.
    pub fn body(&self, shape: Shape) -> Value {
        match shape {
            Shape::OpenAi => {
                json!({"error": {"message": self.message, "type": self.openai_type(), "param": self.param, "code": self.code}})
            }
            Shape::Anthropic => json!({"type": "error", "error": {"type": self.anthropic_type(), "message": self.message}}),
        }
    }

    pub fn response(&self, shape: Shape) -> Response<Body> {
        let mut response = json_response(self.status, &self.body(shape));
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }

    /// What an answer that did not end by itself or by its limit comes to; `None` for one that did.
    pub fn of_finish(reason: &FinishReason) -> Option<Failure> {
        let error = match reason {
            FinishReason::Stop | FinishReason::StopString(_) | FinishReason::Length | FinishReason::ToolCalls => return None,
            FinishReason::Deadline => RequestError::Deadline,
            FinishReason::Stopping => RequestError::Stopping,
            FinishReason::Cancelled => RequestError::Internal("the request was cancelled".into()),
            FinishReason::Failed(why) => RequestError::Internal(why.clone()),
        };
        Some(error.into())
    }
}

impl From<RequestError> for Failure {
    fn from(e: RequestError) -> Failure {
        let code = match &e {
            RequestError::PromptTooLong { .. } => Some("context_length_exceeded"),
            RequestError::Busy { .. } => Some("queue_full"),
            RequestError::Stopping => Some("stopping"),
            RequestError::Loading => Some("loading"),
            RequestError::Deadline => Some("timeout"),
            _ => None,
        };
        Failure {
            status: StatusCode::from_u16(e.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            param: e.param().map(str::to_owned),
            code,
            retry_after: e.retry_after(),
            message: e.to_string(),
        }
    }
}

/// A response with a JSON body.
pub fn json_response(status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
