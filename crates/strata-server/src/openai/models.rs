//! `GET /v1/models` and `/v1/models/ID`.

use super::check_model;
use crate::app::{Shared, openai};
use crate::failure::json_response;
use crate::segment::Segment;
use crate::served::Served;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use serde_json::{Value, json};

fn model_json(served: &Served) -> Value {
    let context = served.runner.facts().context;
    json!({"id": served.name, "object": "model", "created": served.created, "owned_by": "strata", "max_model_len": context})
}

pub async fn list(State(app): Shared) -> Response<Body> {
    openai(async {
        let served = app.served()?;
        Ok(json_response(StatusCode::OK, &json!({"object": "list", "data": [model_json(&served)]})))
    })
    .await
}

pub async fn one(State(app): Shared, Segment(id): Segment<String>) -> Response<Body> {
    openai(async {
        let served = app.served()?;
        check_model(&served, Some(&id))?;
        Ok(json_response(StatusCode::OK, &model_json(&served)))
    })
    .await
}
