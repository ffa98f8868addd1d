//! Anthropic's API: messages and the counting of their tokens.

mod blocks;
mod events;
mod request;
#[cfg(test)]
mod tests;

use crate::app::{App, Shared, heavy, random, unique};
use crate::failure::{Failure, Shape, json_response};
use crate::generate::{self, RequestError};
use crate::guard::body;
use crate::served::Served;
use crate::sse;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, StatusCode};
use events::Message;
use serde_json::{Value, json};
use std::sync::Arc;

/// The code by which clients learn to send the whole conversation each time.
const NO_THREADS: &str = "thread_unsupported_request";

/// `POST /v1/messages`.
pub async fn create(State(app): Shared, request: Request) -> Response<Body> {
    answered(message(app, request).await)
}

/// `POST /v1/messages/count_tokens`.
pub async fn count(State(app): Shared, request: Request) -> Response<Body> {
    answered(counted(app, request).await)
}

async fn message(app: Arc<App>, request: Request) -> Result<Response<Body>, Failure> {
    let served = app.served()?;
    let taken = body::read(&app, request).await?;
    let (mut answers, mut message, stream) = {
        let app = Arc::clone(&app);
        heavy(move || {
            let value: Value = taken.json()?;
            check_model(&served, &value)?;
            check_thread(&value)?;
            let mut request = request::message_request(&value, &app.options.limits)?;
            drop((value, taken));
            let answer = &mut request.chat.answer;
            answer.params.seed = request.seed.unwrap_or_else(random);
            answer.deadline = app.deadline();
            let most = answer.max_tokens.unwrap_or(usize::MAX);
            let answers = generate::chat(&served, &request.chat)?;
            Ok((answers, Message::new(unique("msg_"), served.name.clone(), most, request.hide_thinking), request.stream))
        })
        .await?
    };
    if stream {
        return Ok(sse::response(answers, message, app.options.times.keep_alive));
    }
    let mut failure = None;
    while let Some(event) = answers.next().await {
        if let generate::ChatEvent::Finished { reason, .. } = &event {
            failure = Failure::of_finish(reason);
        }
        message.push(event, |_, _| {});
    }
    failure.map_or_else(|| Ok(json_response(StatusCode::OK, &message.whole())), Err)
}

async fn counted(app: Arc<App>, request: Request) -> Result<Response<Body>, Failure> {
    let served = app.served()?;
    let taken = body::read(&app, request).await?;
    let tokens = heavy(move || {
        let value: Value = taken.json()?;
        check_model(&served, &value)?;
        let chat = request::count_request(&value, &app.options.limits)?;
        match generate::chat_prompt(&served, &chat) {
            Ok(prompt) => Ok(prompt.ids.len()),
            // agents count to learn just this
            Err(RequestError::PromptTooLong { found, .. }) => Ok(found),
            Err(e) => Err(e.into()),
        }
    })
    .await?;
    Ok(json_response(StatusCode::OK, &json!({"input_tokens": tokens})))
}

/// Agents ask for models of Anthropic's by name, for small tasks at least: those names mean the one that is served.
fn check_model(served: &Served, body: &Value) -> Result<(), Failure> {
    match body["model"].as_str() {
        Some(name) if name.starts_with("claude") => Ok(()),
        name => crate::openai::check_model(served, name),
    }
}

/// Conversations are not held here between requests. Ignored, the field would leave a request without what was said before.
fn check_thread(body: &Value) -> Result<(), Failure> {
    match &body["thread"] {
        Value::Null => Ok(()),
        _ => Err(Failure::bad("thread", "thread: expected nothing: each request has to bring its whole conversation").code(NO_THREADS)),
    }
}

/// Adds the id of the request, to an error's body too.
fn answered(result: Result<Response<Body>, Failure>) -> Response<Body> {
    let id = unique("req_");
    let mut response = result.unwrap_or_else(|failure| {
        let mut response = failure.response(Shape::Anthropic);
        let mut body = failure.body(Shape::Anthropic);
        body["request_id"] = id.as_str().into();
        if failure.code == Some(NO_THREADS) {
            body["error"]["details"] = json!({"error_code": NO_THREADS, "unsupported": ["thread"]});
        }
        *response.body_mut() = Body::from(body.to_string());
        response
    });
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("request-id", id);
    }
    response
}
