//! OpenAI's API: chat completions, completions, embeddings, models.

pub mod body;
pub mod chat;
pub mod completions;
pub mod embeddings;
pub mod models;

use crate::failure::Failure;
use crate::generate::{FinishReason, TokenInfo, Usage};
use crate::served::Served;
use axum::http::StatusCode;
use serde_json::{Value, json};

/// Refuses a `model` that is not the one served.
///
/// # Errors
/// 404.
pub fn check_model(served: &Served, model: Option<&str>) -> Result<(), Failure> {
    match model {
        Some(name) if !served.is_called(name) => {
            let message = format!("model: expected {:?}, the one that is served, found {name:?}", served.name);
            let failure = Failure { param: Some("model".into()), ..Failure::new(StatusCode::NOT_FOUND, message) };
            Err(failure.code("model_not_found"))
        }
        _ => Ok(()),
    }
}

/// `finish_reason`, for a choice that ended regularly.
fn finish_name(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::Length => "length",
        FinishReason::ToolCalls => "tool_calls",
        _ => "stop",
    }
}

/// What all choices cost together: the prompt counts once.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    prompt: usize,
    cached: usize,
    generated: usize,
    reasoning: usize,
}

impl Total {
    fn of_prompt(prompt: usize) -> Total {
        Total { prompt, ..Total::default() }
    }

    fn add(&mut self, usage: &Usage) {
        self.cached = self.cached.max(usage.cached);
        self.generated += usage.generated;
        self.reasoning += usage.reasoning;
    }

    fn json(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.generated,
            "total_tokens": self.prompt + self.generated,
            "prompt_tokens_details": {"cached_tokens": self.cached},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning},
        })
    }
}

/// A float as the shortest decimal that means it; JSON has no infinities.
fn number(x: f32) -> Value {
    if x.is_finite() { json!(x.to_string().parse::<f64>().unwrap_or(f64::from(x))) } else { json!(-9999.0) }
}

/// An entry of `logprobs.content`.
fn token_json(t: &TokenInfo) -> Value {
    let one = |t: &TokenInfo| json!({"token": t.text, "logprob": number(t.logprob), "bytes": t.bytes});
    let mut v = one(t);
    v["top_logprobs"] = t.top.iter().map(one).collect();
    v
}
