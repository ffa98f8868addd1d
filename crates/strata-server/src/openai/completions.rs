//! `POST /v1/completions`: texts or token ids go on, without a template.

use super::body::{Body, field, kind, short};
use super::{Total, check_model, finish_name, number};
use crate::app::{App, Shared, heavy, openai, unique, unix_time};
use crate::failure::{Failure, Shape, json_response};
use crate::generate::{self, Answers, ChatEvent, CompletionRequest, Prompt, TokenInfo};
use crate::guard::body;
use crate::served::Served;
use crate::sse;
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// As OpenAI documents it.
const MAX_TOKENS: usize = 16;
const MAX_LOGPROBS: u64 = 20;

pub async fn create(State(app): Shared, request: Request) -> Response<HttpBody> {
    openai(answer(app, request)).await
}

async fn answer(app: Arc<App>, request: Request) -> Result<Response<HttpBody>, Failure> {
    let served = app.served()?;
    let taken = body::read(&app, request).await?;
    let (answers, envelope) = {
        let app = Arc::clone(&app);
        heavy(move || start(&app, &served, &taken.json()?)).await?
    };
    if envelope.stream {
        let offsets = envelope.echoes.iter().map(|e| e.chars().count()).collect();
        let encoder = Encoder { total: Total::of_prompt(answers.prompt_tokens()), failed: false, offsets, envelope };
        return Ok(sse::response(answers, encoder, app.options.times.keep_alive));
    }
    whole(answers, envelope).await
}

fn start(app: &App, served: &Arc<Served>, body: &Body) -> Result<(Answers, Envelope), Failure> {
    check_model(served, body.model.as_deref())?;
    if body.suffix.as_deref().is_some_and(|s| !s.is_empty()) {
        return Err(field("suffix", "nothing: text is only added at the end", "a string"));
    }
    let echo = body.echo.unwrap_or(false);
    let logprobs = match body.logprobs.as_ref().filter(|v| !v.is_null() && **v != Value::Bool(false)) {
        None => None,
        Some(v) => match v.as_u64() {
            Some(n) if n <= MAX_LOGPROBS => Some(n as u8),
            _ => return Err(field("logprobs", format!("0 to {MAX_LOGPROBS}"), short(v))),
        },
    };
    if echo && logprobs.is_some() {
        return Err(field("logprobs", "nothing beside echo: those of a prompt are not computed", "a number"));
    }
    let prompts = prompts(body.prompt.as_ref(), app.options.limits.prompts)?;
    let mut answer = body.options(app, logprobs)?;
    answer.max_tokens.get_or_insert(MAX_TOKENS);
    let envelope = Envelope {
        id: unique("cmpl-"),
        created: unix_time(),
        model: served.name.clone(),
        seed: answer.params.seed,
        logprobs: logprobs.is_some(),
        stream: body.streams(),
        usage: body.include_usage(),
        echoes: prompts.iter().flat_map(|p| vec![if echo { text_of(served, p) } else { String::new() }; answer.n as usize]).collect(),
    };
    Ok((generate::complete(served, &CompletionRequest { prompts, answer })?, envelope))
}

/// A string, a list of ids, or a list of either.
pub fn prompts(v: Option<&Value>, limit: usize) -> Result<Vec<Prompt>, Failure> {
    let list = match v {
        Some(Value::String(s)) => return Ok(vec![Prompt::Text(s.clone())]),
        Some(Value::Array(list)) if !list.is_empty() => list,
        other => return Err(field("prompt", "a string, token ids, or a list of them", kind(other))),
    };
    if list[0].is_number() {
        return Ok(vec![Prompt::Ids(ids("prompt", list)?)]);
    }
    if list.len() > limit {
        return Err(field("prompt", format!("at most {limit} prompts"), list.len()));
    }
    let one = |(i, v): (usize, &Value)| match v {
        Value::String(s) => Ok(Prompt::Text(s.clone())),
        Value::Array(list) => Ok(Prompt::Ids(ids(&format!("prompt[{i}]"), list)?)),
        other => Err(field(&format!("prompt[{i}]"), "a string or token ids", short(other))),
    };
    list.iter().enumerate().map(one).collect()
}

fn ids(name: &str, list: &[Value]) -> Result<Vec<u32>, Failure> {
    let one = |(i, v): (usize, &Value)| {
        let id = v.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| field(&format!("{name}[{i}]"), "a token id", short(v)))
    };
    list.iter().enumerate().map(one).collect()
}

fn text_of(served: &Served, prompt: &Prompt) -> String {
    match prompt {
        Prompt::Text(text) => text.clone(),
        Prompt::Ids(ids) => served.tokenizer.decode(ids, false),
    }
}

/// What all parts of one response have in common.
struct Envelope {
    id: String,
    created: u64,
    model: String,
    seed: u64,
    logprobs: bool,
    stream: bool,
    usage: bool,
    /// The text before each choice.
    echoes: Vec<String>,
}

impl Envelope {
    fn json(&self, choices: Value) -> Value {
        json!({
            "id": self.id, "object": "text_completion", "created": self.created, "model": self.model, "seed": self.seed, "choices": choices
        })
    }
}

fn choice_json(index: u32, text: &str, logprobs: Option<Value>, reason: Option<&str>) -> Value {
    json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason})
}

/// Log-probabilities in the form of this route; `offset` is the number of characters before them, and moves on.
fn logprobs_json(tokens: &[TokenInfo], offset: &mut usize) -> Value {
    let top = |t: &TokenInfo| -> Value { t.top.iter().map(|t| (t.text.clone(), number(t.logprob))).collect::<Map<_, _>>().into() };
    let offsets: Vec<usize> = tokens.iter().map(|t| std::mem::replace(offset, *offset + t.text.chars().count())).collect();
    json!({
        "tokens": tokens.iter().map(|t| t.text.as_str()).collect::<Vec<_>>(),
        "token_logprobs": tokens.iter().map(|t| number(t.logprob)).collect::<Vec<_>>(),
        "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}

async fn whole(answers: Answers, envelope: Envelope) -> Result<Response<HttpBody>, Failure> {
    let mut total = Total::of_prompt(answers.prompt_tokens());
    let mut choices = Vec::new();
    for (i, (answer, echo)) in answers.collect().await.into_iter().zip(&envelope.echoes).enumerate() {
        if let Some(failure) = answer.reason.as_ref().and_then(Failure::of_finish) {
            return Err(failure);
        }
        total.add(&answer.usage);
        let logprobs = envelope.logprobs.then(|| logprobs_json(&answer.logprobs, &mut 0));
        let text = format!("{echo}{}", answer.content);
        choices.push(choice_json(i as u32, &text, logprobs, answer.reason.as_ref().map(finish_name)));
    }
    let mut body = envelope.json(choices.into());
    body["usage"] = total.json();
    Ok(json_response(StatusCode::OK, &body))
}

/// Chunks of a stream.
struct Encoder {
    envelope: Envelope,
    total: Total,
    failed: bool,
    /// Characters of each choice so far.
    offsets: Vec<usize>,
}

impl sse::Encoder for Encoder {
    fn event(&mut self, event: ChatEvent, out: &mut String) {
        let e = &self.envelope;
        let choice = match event {
            ChatEvent::Begun { choice } => {
                let echo = &e.echoes[choice as usize];
                if echo.is_empty() {
                    return;
                }
                choice_json(choice, echo, None, None)
            }
            ChatEvent::Content { choice, text, logprobs } => {
                let logprobs = e.logprobs.then(|| logprobs_json(&logprobs, &mut self.offsets[choice as usize]));
                choice_json(choice, &text, logprobs, None)
            }
            ChatEvent::Finished { choice, reason, usage } => {
                self.total.add(&usage);
                match Failure::of_finish(&reason) {
                    None => choice_json(choice, "", None, Some(finish_name(&reason))),
                    Some(failure) => {
                        if !std::mem::replace(&mut self.failed, true) {
                            sse::data(out, &failure.body(Shape::OpenAi));
                        }
                        return;
                    }
                }
            }
            _ => return,
        };
        sse::data(out, &e.json(json!([choice])));
    }

    fn end(&mut self, out: &mut String) {
        if self.envelope.usage && !self.failed {
            let mut chunk = self.envelope.json(json!([]));
            chunk["usage"] = self.total.json();
            sse::data(out, &chunk);
        }
        out.push_str("data: [DONE]\n\n");
    }
}
