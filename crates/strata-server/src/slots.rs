//! `GET /slots`, and `POST /slots/ID?action=save|restore`: sessions in files, in llama.cpp's shapes.

use crate::app::{App, Shared, heavy, openai};
use crate::failure::{Failure, json_response};
use crate::generate::RequestError;
use crate::guard::body;
use crate::segment::Segment;
use crate::status::slot_json;
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use strata_engine::SessionError;
use strata_engine::prefix_cache::FileError;

/// Longest name of a session's file.
const MAX_NAME: usize = 128;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Body {
    filename: String,
}

pub async fn list(State(app): Shared) -> Response<HttpBody> {
    openai(async {
        let served = app.served()?;
        let context = served.runner.facts().context;
        let status = served.runner.status();
        let slots = status.slots.iter().enumerate().map(|(id, s)| {
            let mut slot = slot_json(id, s);
            slot["n_ctx"] = context.into();
            slot["is_processing"] = s.request.is_some().into();
            slot
        });
        Ok(json_response(StatusCode::OK, &slots.collect::<Value>()))
    })
    .await
}

pub async fn act(State(app): Shared, Segment(slot): Segment<usize>, request: Request) -> Response<HttpBody> {
    openai(async {
        let query = request.uri().query().unwrap_or_default();
        let action = query.split('&').find_map(|pair| pair.strip_prefix("action=")).unwrap_or_default();
        let save = match action {
            "save" => true,
            "restore" => false,
            other => return Err(RequestError::field("action", "save or restore", format!("{other:.64}")).into()),
        };
        let taken = body::read(&app, request).await?;
        let value = heavy(move || work(&app, slot, save, &taken)).await?;
        Ok(json_response(StatusCode::OK, &value))
    })
    .await
}

fn work(app: &Arc<App>, slot: usize, save: bool, taken: &body::Taken) -> Result<Value, Failure> {
    let dir = app.options.slot_save_path.as_deref().ok_or_else(|| {
        Failure::new(StatusCode::NOT_IMPLEMENTED, "sessions are saved where the server was started with --slot-save-path")
            .code("not_supported")
    })?;
    let name = taken.json::<Body>()?.filename;
    let path = path_of(dir, &name)?;
    let (served, start) = (app.served()?, Instant::now());
    let tokens = if save { served.runner.save_session(slot, &path) } else { served.runner.restore_session(&path) };
    let tokens = tokens.map_err(failure)?;
    let bytes = std::fs::metadata(&path).map_or(0, |m| m.len());
    let ms = start.elapsed().as_secs_f64() * 1e3;
    Ok(if save {
        json!({"id_slot": slot, "filename": name, "n_saved": tokens, "n_written": bytes, "timings": {"save_ms": ms}})
    } else {
        json!({"id_slot": slot, "filename": name, "n_restored": tokens, "n_read": bytes, "timings": {"restore_ms": ms}})
    })
}

/// A file of the directory itself: names lead nowhere else.
fn path_of(dir: &Path, name: &str) -> Result<PathBuf, RequestError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if name.is_empty() || name.len() > MAX_NAME || name.starts_with('.') || !name.bytes().all(plain) {
        let expected = format!("1 to {MAX_NAME} letters, digits, dots, hyphens and underscores, no dot first");
        return Err(RequestError::field("filename", expected, format!("{name:.64}")));
    }
    Ok(dir.join(name))
}

fn failure(e: SessionError) -> Failure {
    let status = match &e {
        SessionError::File(FileError::Io(io)) if io.kind() == ErrorKind::NotFound => StatusCode::NOT_FOUND,
        SessionError::File(FileError::Io(_)) | SessionError::Engine(_) => StatusCode::INTERNAL_SERVER_ERROR,
        SessionError::File(_) | SessionError::Slot { .. } | SessionError::Empty(_) => StatusCode::BAD_REQUEST,
        SessionError::NoRoom => StatusCode::INSUFFICIENT_STORAGE,
        SessionError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
    };
    Failure::new(status, e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_directory() {
        let dir = Path::new("sessions");
        assert_eq!(path_of(dir, "talk-1.state").unwrap(), dir.join("talk-1.state"));
        for bad in ["", ".", "..", "../x", "a/b", "/x", "a\\b", ".hidden", "a\0b", "ä", &"x".repeat(129)] {
            assert!(path_of(dir, bad).is_err(), "{bad:?}");
        }
    }
}
