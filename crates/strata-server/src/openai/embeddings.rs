//! `POST /v1/embeddings`: the mean of the final hidden states of a text's tokens, of length 1 unless `normalize` is false.

use super::body::field;
use super::completions::prompts;
use super::{check_model, number};
use crate::app::{Shared, heavy, openai};
use crate::failure::{Failure, json_response};
use crate::generate::{Embeddings, text_prompt};
use crate::guard::body;
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Body {
    model: Option<String>,
    input: Option<Value>,
    encoding_format: Option<String>,
    dimensions: Option<usize>,
    normalize: Option<bool>,
}

pub async fn create(State(app): Shared, request: Request) -> Response<HttpBody> {
    openai(async {
        let served = app.served()?;
        let taken = body::read(&app, request).await?;
        let (limit, deadline) = (app.options.limits.prompts, app.deadline());
        let shared = Arc::clone(&served);
        let (embeddings, base64, normalize) = heavy(move || {
            let served = shared;
            let body: Body = taken.json()?;
            check_model(&served, body.model.as_deref())?;
            let base64 = match body.encoding_format.as_deref() {
                None | Some("float") => false,
                Some("base64") => true,
                Some(other) => return Err(field("encoding_format", "float or base64", format!("{other:?}"))),
            };
            let hidden = served.runner.facts().hidden;
            if let Some(found) = body.dimensions.filter(|d| *d != hidden) {
                return Err(field("dimensions", hidden.to_string(), found));
            }
            // the same forms as those of completions, under another name
            let inputs = prompts(body.input.as_ref(), limit).map_err(|f| Failure {
                param: f.param.map(|p| p.replacen("prompt", "input", 1)),
                message: f.message.replacen("prompt", "input", 1),
                ..f
            })?;
            let ids = inputs.iter().map(|p| Ok(text_prompt(&served, p, "input")?.ids)).collect::<Result<Vec<_>, Failure>>()?;
            Ok((Embeddings::start(&served, ids, deadline)?, base64, body.normalize.unwrap_or(true)))
        })
        .await?;
        let tokens = embeddings.prompt_tokens();
        let vectors = embeddings.collect().await?;
        let data: Vec<Value> = vectors
            .into_iter()
            .enumerate()
            .map(|(index, mut vector)| {
                if normalize {
                    to_unit_length(&mut vector);
                }
                json!({"object": "embedding", "index": index, "embedding": if base64 { base64_of(&vector) } else { floats(&vector) }})
            })
            .collect();
        let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
        Ok(json_response(StatusCode::OK, &json!({"object": "list", "data": data, "model": served.name, "usage": usage})))
    })
    .await
}

/// Divides by the length, summed in f64 in order: one result everywhere.
fn to_unit_length(v: &mut [f32]) {
    let length = v.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    if length > 0.0 {
        v.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
}

fn floats(v: &[f32]) -> Value {
    v.iter().map(|x| number(*x)).collect()
}

/// The values as little-endian f32, which is what OpenAI's clients read.
fn base64_of(v: &[f32]) -> Value {
    base64::encode(v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_length_and_base64() {
        let mut v = [3.0, 4.0];
        to_unit_length(&mut v);
        assert_eq!(v, [0.6, 0.8]);
        to_unit_length(&mut [0.0; 3]);
        assert_eq!(base64_of(&[1.0, -2.0]), "AACAPwAAAMA=");
        assert_eq!(floats(&[0.1]).to_string(), "[0.1]");
    }
}
