//! OpenAI's API of responses, with what was answered kept for a while.

mod events;
mod items;
mod request;
mod store;
#[cfg(test)]
mod tests;
mod truncate;

use crate::app::{App, heavy, openai, random, unique};
use crate::failure::{Failure, json_response};
use crate::fields::At;
use crate::generate::{self, Answers, ChatEvent, ChatRequest, RequestError};
use crate::guard::body;
use crate::openai::check_model;
use crate::segment::Segment;
use crate::served::Served;
use crate::sse;
use crate::turns::Turns;
use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response, StatusCode};
use axum::routing::{get, post};
use events::{Growing, Keep};
use request::ResponseRequest;
use serde_json::{Value, json};
use std::sync::Arc;
use store::Store;

/// Items of a list.
const MOST_LISTED: usize = 100;
const LISTED: usize = 20;

#[derive(Clone)]
struct Kept {
    app: Arc<App>,
    store: Arc<Store>,
}

/// The routes, with a store of their own.
pub fn routes(app: &Arc<App>) -> Router<Arc<App>> {
    let kept = Kept { app: Arc::clone(app), store: Arc::new(Store::new(store::MOST_RESPONSES, store::MOST_BYTES)) };
    Router::new()
        .route("/v1/responses", post(create))
        .route("/v1/responses/{id}", get(retrieve).delete(remove))
        .route("/v1/responses/{id}/cancel", post(cancel))
        .route("/v1/responses/{id}/input_items", get(input_items))
        .with_state(kept)
}

async fn create(State(kept): State<Kept>, request: Request) -> Response<Body> {
    openai(respond(kept, request)).await
}

async fn respond(kept: Kept, request: Request) -> Result<Response<Body>, Failure> {
    let served = kept.app.served()?;
    let taken = body::read(&kept.app, request).await?;
    let keep_alive = kept.app.options.times.keep_alive;
    let (mut answers, mut response, stream) = heavy(move || {
        let value: Value = taken.json()?;
        drop(taken);
        check_model(&served, value["model"].as_str())?;
        let request = request::response_request(&value, &kept.app.options.limits)?;
        start(&kept, &served, &value, request)
    })
    .await?;
    if stream {
        return Ok(sse::response(answers, response, keep_alive));
    }
    let mut failure = None;
    while let Some(event) = answers.next().await {
        if let ChatEvent::Finished { reason, .. } = &event {
            failure = Failure::of_finish(reason);
        }
        response.push(event, |_, _| {});
    }
    failure.map_or_else(|| Ok(json_response(StatusCode::OK, &response.whole())), Err)
}

fn start(kept: &Kept, served: &Arc<Served>, body: &Value, request: ResponseRequest) -> Result<(Answers, Growing, bool), Failure> {
    let ResponseRequest { mut chat, instructions, previous, seed, stream, store, truncate, echo } = request;
    let mut turns = Turns::default();
    if let Some(text) = &instructions {
        turns.system(text);
    }
    let mut items = match &previous {
        None => Vec::new(),
        Some(id) => kept.store.conversation(id).ok_or_else(|| unknown(id, "previous_response_id", StatusCode::BAD_REQUEST))?,
    };
    let full = |json: &str| serde_json::from_str::<Value>(json).map_err(|e| RequestError::Internal(e.to_string()));
    for item in &items {
        items::read(&At { value: &full(&item.json)?, path: "previous_response_id".into() }, &mut turns, &mut |prefix| unique(prefix))?;
    }
    let find = |id: &str| kept.store.find(id).and_then(|item| full(&item.json).ok());
    let input = request::input(body, &mut turns, find, unique)?;
    chat.messages = turns.finish();
    chat.answer.params.seed = seed.unwrap_or_else(random);
    chat.answer.deadline = kept.app.deadline();
    let answers = begin(served, &mut chat, truncate)?;
    let keep = store.then(|| {
        let before = items.len();
        items.extend(input.iter().map(|item| kept.store.item(item)));
        Keep { store: Arc::clone(&kept.store), input: before..items.len(), items }
    });
    Ok((answers, Growing::new(served.name.clone(), echo, keep), stream))
}

/// Starts the answer, without the oldest turns if need be.
fn begin(served: &Arc<Served>, chat: &mut ChatRequest, truncate: bool) -> Result<Answers, RequestError> {
    loop {
        match generate::chat(served, chat) {
            Err(RequestError::PromptTooLong { found, capacity, .. })
                if truncate && truncate::drop_oldest(&mut chat.messages, found, capacity) => {}
            result => return result,
        }
    }
}

async fn retrieve(State(kept): State<Kept>, Segment(id): Segment<String>, RawQuery(query): RawQuery) -> Response<Body> {
    openai(async {
        if query_value(query.as_deref(), "stream") == Some("true") {
            return Err(Failure::bad("stream", "stream: expected false: a stream is sent once, when the response is made"));
        }
        let text = kept.store.response(&id).ok_or_else(|| unknown(&id, "response_id", StatusCode::NOT_FOUND))?;
        let mut response = Response::new(Body::from(text));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    })
    .await
}

async fn remove(State(kept): State<Kept>, Segment(id): Segment<String>) -> Response<Body> {
    openai(async {
        if !kept.store.remove(&id) {
            return Err(unknown(&id, "response_id", StatusCode::NOT_FOUND));
        }
        Ok(json_response(StatusCode::OK, &json!({"id": id, "object": "response", "deleted": true})))
    })
    .await
}

/// There is nothing to cancel: a response that has an id for the client has ended, or ends with the client's connection.
async fn cancel(State(kept): State<Kept>, Segment(id): Segment<String>) -> Response<Body> {
    openai(async {
        kept.store.response(&id).ok_or_else(|| unknown(&id, "response_id", StatusCode::NOT_FOUND))?;
        let message = "response_id: expected a response made in the background, found one that has ended";
        Err(Failure::bad("response_id", message))
    })
    .await
}

async fn input_items(State(kept): State<Kept>, Segment(id): Segment<String>, RawQuery(query): RawQuery) -> Response<Body> {
    openai(async {
        let query = query.as_deref();
        let limit = match query_value(query, "limit").map(str::parse::<usize>) {
            None => LISTED,
            Some(Ok(n)) if (1..=MOST_LISTED).contains(&n) => n,
            Some(_) => return Err(Failure::bad("limit", format!("limit: expected a whole number from 1 to {MOST_LISTED}"))),
        };
        let mut items = kept.store.input(&id).ok_or_else(|| unknown(&id, "response_id", StatusCode::NOT_FOUND))?;
        match query_value(query, "order") {
            None | Some("desc") => items.reverse(),
            Some("asc") => {}
            Some(_) => return Err(Failure::bad("order", "order: expected asc or desc")),
        }
        if let Some(after) = query_value(query, "after") {
            let at = items.iter().position(|item| item.id == after);
            let at = at.ok_or_else(|| Failure::bad("after", "after: expected the id of an item of the list"))?;
            items.drain(..=at);
        }
        let more = items.len() > limit;
        items.truncate(limit);
        let data = items.iter().map(|item| serde_json::from_str(&item.json)).collect::<Result<Vec<Value>, _>>();
        let data = data.map_err(|e| RequestError::Internal(e.to_string()))?;
        let edge = |item: Option<&Value>| item.map_or(Value::Null, |i| i["id"].clone());
        let (first, last) = (edge(data.first()), edge(data.last()));
        let list = json!({"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": more});
        Ok(json_response(StatusCode::OK, &list))
    })
    .await
}

fn unknown(id: &str, param: &str, status: StatusCode) -> Failure {
    let message = format!("{param}: expected the id of a response that is stored (the oldest go first), found {id:?}");
    Failure { param: Some(param.to_owned()), ..Failure::new(status, message).code("response_not_found") }
}

/// A value of a query whose values need no decoding.
fn query_value<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    query?.split('&').filter_map(|pair| pair.split_once('=')).find(|(n, _)| *n == name).map(|(_, v)| v)
}
