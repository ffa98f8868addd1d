//! `POST /tokenize` and `/detokenize`: llama.cpp's shapes, with vLLM's names of fields accepted too.

use crate::app::{App, Shared, heavy, openai};
use crate::failure::{Failure, json_response};
use crate::generate::{ChatRequest, RequestError, chat_prompt};
use crate::guard::body;
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TokenizeBody {
    /// vLLM's clients say `prompt`.
    #[serde(alias = "prompt")]
    content: Option<String>,
    messages: Option<Vec<Value>>,
    tools: Option<Vec<Value>>,
    chat_template_kwargs: Option<Map<String, Value>>,
    #[serde(alias = "add_special_tokens")]
    add_special: Option<bool>,
    parse_special: Option<bool>,
    #[serde(alias = "return_token_strs")]
    with_pieces: Option<bool>,
}

pub async fn tokenize(State(app): Shared, request: Request) -> Response<HttpBody> {
    openai(work(app, request, |app, taken| {
        let served = app.served()?;
        let body: TokenizeBody = taken.json()?;
        let ids = match (body.content, body.messages) {
            (Some(text), None) => {
                let ids = served.tokenizer.encode(&text, body.parse_special.unwrap_or(true));
                let ids = ids.map_err(|error| RequestError::Tokenizer { field: "content", error })?;
                let bos = served.tokenizer.bos_to_add().filter(|b| body.add_special.unwrap_or(false) && ids.first() != Some(b));
                bos.into_iter().chain(ids).collect()
            }
            (None, Some(messages)) => {
                let template_args = body.chat_template_kwargs.unwrap_or_default();
                let chat = ChatRequest { messages, tools: body.tools.unwrap_or_default(), template_args, ..ChatRequest::default() };
                chat_prompt(&served, &chat)?.ids
            }
            _ => return Err(RequestError::field("content", "either content or messages", "neither or both").into()),
        };
        let tokens: Value = if body.with_pieces.unwrap_or(false) {
            ids.iter().map(|id| json!({"id": id, "piece": piece(served.tokenizer.token_bytes(*id).unwrap_or_default())})).collect()
        } else {
            ids.clone().into()
        };
        Ok(json!({"tokens": tokens, "count": ids.len(), "max_model_len": served.runner.facts().context}))
    }))
    .await
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DetokenizeBody {
    tokens: Vec<u32>,
}

pub async fn detokenize(State(app): Shared, request: Request) -> Response<HttpBody> {
    openai(work(app, request, |app, taken| {
        let served = app.served()?;
        let body: DetokenizeBody = taken.json()?;
        let vocab = served.tokenizer.vocab_size();
        if let Some(i) = body.tokens.iter().position(|id| *id as usize >= vocab) {
            let found = body.tokens[i].to_string();
            return Err(RequestError::field(format!("tokens[{i}]"), format!("an id below {vocab}"), found).into());
        }
        let text = served.tokenizer.decode(&body.tokens, false);
        Ok(json!({"content": text, "prompt": text}))
    }))
    .await
}

async fn work(
    app: Arc<App>,
    request: Request,
    of: impl FnOnce(&App, &body::Taken) -> Result<Value, Failure> + Send + 'static,
) -> Result<Response<HttpBody>, Failure> {
    let taken = body::read(&app, request).await?;
    let shared = Arc::clone(&app);
    let value = heavy(move || of(&shared, &taken)).await?;
    Ok(json_response(StatusCode::OK, &value))
}

/// A token's text, or its bytes where they are none.
fn piece(bytes: &[u8]) -> Value {
    std::str::from_utf8(bytes).map_or_else(|_| json!(bytes), |text| json!(text))
}
