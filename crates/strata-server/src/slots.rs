//! `GET /slots`, and `POST /slots/ID?action=save|restore`: what a slot holds goes to a file and comes back, in llama.cpp's shapes.
//! A session that is put back goes into the prefix cache, where the next prompt that begins with it finds it, in any slot.

use crate::app::{App, Shared, heavy, openai};
use crate::failure::{Failure, json_response};
use crate::generate::RequestError;
use crate::guard::body;
use crate::segment::Segment;
use crate::status::slots_json;
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use strata_engine::SessionError;

const MAX_NAME: usize = 128;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Body {
    filename: Option<String>,
}

pub async fn list(State(app): Shared) -> Response<HttpBody> {
    openai(async { Ok(json_response(StatusCode::OK, &slots_json(&app.served()?.runner.status()))) }).await
}

pub async fn act(State(app): Shared, Segment(id): Segment<usize>, request: Request) -> Response<HttpBody> {
    openai(async {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let save = match query.split('&').find_map(|p| p.strip_prefix("action=")) {
            Some("save") => true,
            Some("restore") => false,
            other => {
                return Err(RequestError::field(
                    "action",
                    "save or restore",
                    other.unwrap_or("nothing").chars().take(40).collect::<String>(),
                )
                .into());
            }
        };
        let taken = body::read(&app, request).await?;
        let shared = Arc::clone(&app);
        let value = heavy(move || run(&shared, id, save, &taken.json::<Body>()?)).await?;
        Ok(json_response(StatusCode::OK, &value))
    })
    .await
}

fn run(app: &App, id: usize, save: bool, body: &Body) -> Result<Value, Failure> {
    let runner = &app.served()?.runner;
    let name = body.filename.as_deref().unwrap_or_default();
    let path = file(app, name)?;
    let start = std::time::Instant::now();
    let result = if save { runner.save_session(id, &path) } else { runner.restore_session(&path) };
    let tokens = result.map_err(|e| failure(&e))?;
    let (count, time) = if save { ("n_saved", "save_ms") } else { ("n_restored", "restore_ms") };
    Ok(json!({"id_slot": id, "filename": name, count: tokens, "timings": {time: start.elapsed().as_secs_f64() * 1e3}}))
}

/// The file of a name: never outside of the directory.
fn file(app: &App, name: &str) -> Result<PathBuf, Failure> {
    let Some(dir) = &app.options.slot_dir else {
        return Err(Failure::new(StatusCode::NOT_FOUND, "sessions are kept where the server has --slot-dir").code("no_slot_dir"));
    };
    let good = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
    if !(1..=MAX_NAME).contains(&name.len()) || name.starts_with('.') || !name.bytes().all(good) {
        let expected = format!("1 to {MAX_NAME} of the characters a-z, A-Z, 0-9, _, - and ., not beginning with .");
        return Err(RequestError::field("filename", expected, format!("{} bytes", name.len())).into());
    }
    Ok(dir.join(name))
}

/// Names of files stay here: a client learns what went wrong, not where.
fn failure(e: &SessionError) -> Failure {
    match e {
        SessionError::Slot { .. } => Failure::bad("id", e.to_string()),
        SessionError::Empty(_) => Failure::bad("id", e.to_string()),
        SessionError::NoRoom => Failure::new(StatusCode::INSUFFICIENT_STORAGE, e.to_string()),
        SessionError::Stopping => RequestError::Stopping.into(),
        SessionError::File(_) => Failure::bad("filename", "the file cannot be used: it is not there, not whole, or of another model"),
        SessionError::Engine(_) => crate::app::internal(),
    }
}
