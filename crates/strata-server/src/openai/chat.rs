//! `POST /v1/chat/completions`.

use super::body::{Body, field, short};
use super::{Total, check_model, finish_name, token_json};
use crate::app::{App, Shared, heavy, openai, unique, unix_time};
use crate::failure::{Failure, Shape, json_response};
use crate::generate::{self, Answer, Answers, ChatEvent, ChatRequest, ToolCall};
use crate::guard::body;
use crate::sse;
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

const MAX_TOP: u32 = 20;

pub async fn create(State(app): Shared, request: Request) -> Response<HttpBody> {
    openai(answer(app, request)).await
}

async fn answer(app: Arc<App>, request: Request) -> Result<Response<HttpBody>, Failure> {
    let served = app.served()?;
    let taken = body::read(&app, request).await?;
    let (answers, envelope) = {
        let (app, served) = (Arc::clone(&app), Arc::clone(&served));
        heavy(move || {
            let body: Body = taken.json()?;
            check_model(&served, body.model.as_deref())?;
            let chat = chat_request(&app, &body)?;
            let answers = generate::chat(&served, &chat)?;
            let envelope = Envelope {
                id: unique("chatcmpl-"),
                created: unix_time(),
                model: served.name.clone(),
                seed: chat.answer.params.seed,
                logprobs: chat.answer.params.logprobs.is_some(),
                stream: body.streams(),
                usage: body.include_usage(),
                progress: body.return_progress.unwrap_or(false),
            };
            Ok((answers, envelope))
        })
        .await?
    };
    if envelope.stream {
        let encoder =
            Encoder { start: Instant::now(), cached: 0, total: Total::of_prompt(answers.prompt_tokens()), failed: false, envelope };
        return Ok(sse::response(answers, encoder, app.options.times.keep_alive));
    }
    whole(answers, &envelope).await
}

/// The request that a body asks for.
fn chat_request(app: &App, body: &Body) -> Result<ChatRequest, Failure> {
    let Some(messages) = body.messages.clone() else {
        return Err(field("messages", "a list of messages", "nothing"));
    };
    let top = body.top_logprobs.unwrap_or(0);
    let logprobs = match &body.logprobs {
        None | Some(Value::Null | Value::Bool(false)) if top > 0 => return Err(field("top_logprobs", "logprobs: true beside it", top)),
        None | Some(Value::Null | Value::Bool(false)) => None,
        Some(Value::Bool(true)) if top <= MAX_TOP => Some(top as u8),
        Some(Value::Bool(true)) => return Err(field("top_logprobs", format!("0 to {MAX_TOP}"), top)),
        Some(other) => return Err(field("logprobs", "true or false", short(other))),
    };
    let (tools, tool_choice) = body.tools(app)?;
    // "none" is OpenAI's word for no thinking; the template's own variable says it
    let off = body.reasoning_effort.as_deref() == Some("none");
    Ok(ChatRequest {
        messages,
        tools,
        tool_choice,
        parallel_tool_calls: body.parallel_tool_calls.unwrap_or(true),
        thinking: off.then_some(false),
        effort: body.reasoning_effort.clone().filter(|_| !off),
        template_args: body.chat_template_kwargs.clone().unwrap_or_default(),
        answer: body.options(app, logprobs)?,
    })
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
    progress: bool,
}

impl Envelope {
    fn json(&self, object: &str, choices: Value) -> Value {
        json!({"id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices})
    }

    fn chunk(&self, choice: u32, delta: Value, reason: Option<&str>) -> Value {
        let mut choice = json!({"index": choice, "delta": delta, "finish_reason": reason});
        if self.logprobs {
            choice["logprobs"] = Value::Null;
        }
        self.chunk_of(json!([choice]))
    }

    fn chunk_of(&self, choices: Value) -> Value {
        let mut chunk = self.json("chat.completion.chunk", choices);
        if self.usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }
}

/// One response with everything in it.
async fn whole(answers: Answers, envelope: &Envelope) -> Result<Response<HttpBody>, Failure> {
    let mut total = Total::of_prompt(answers.prompt_tokens());
    let mut choices = Vec::new();
    for (i, answer) in answers.collect().await.into_iter().enumerate() {
        if let Some(failure) = answer.reason.as_ref().and_then(Failure::of_finish) {
            return Err(failure);
        }
        total.add(&answer.usage);
        choices.push(choice_json(i, &answer, envelope.logprobs));
    }
    let mut body = envelope.json("chat.completion", choices.into());
    body["usage"] = total.json();
    body["seed"] = envelope.seed.into();
    Ok(json_response(StatusCode::OK, &body))
}

fn choice_json(index: usize, answer: &Answer, logprobs: bool) -> Value {
    let calls: Vec<Value> = answer.tool_calls.iter().map(call_json).collect();
    // no text beside calls is null, as OpenAI has it
    let content = if answer.content.is_empty() && !calls.is_empty() { Value::Null } else { answer.content.as_str().into() };
    let mut message = json!({"role": "assistant", "content": content});
    if !answer.reasoning.is_empty() {
        message["reasoning_content"] = answer.reasoning.as_str().into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    let reason = answer.reason.as_ref().map(finish_name);
    let mut choice = json!({"index": index, "message": message, "logprobs": Value::Null, "finish_reason": reason});
    if logprobs {
        choice["logprobs"] = json!({"content": answer.logprobs.iter().map(token_json).collect::<Vec<_>>()});
    }
    choice
}

fn call_json(call: &ToolCall) -> Value {
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
}

/// Chunks of a stream.
struct Encoder {
    envelope: Envelope,
    start: Instant,
    cached: usize,
    total: Total,
    failed: bool,
}

impl sse::Encoder for Encoder {
    fn event(&mut self, event: ChatEvent, out: &mut String) {
        let e = &self.envelope;
        let chunk = match event {
            ChatEvent::Started { cached, .. } => {
                self.cached = cached;
                return;
            }
            ChatEvent::Progress { read, prompt } => {
                if !e.progress {
                    return;
                }
                let mut chunk = e.chunk(0, json!({}), None);
                let time = self.start.elapsed().as_millis() as u64;
                chunk["prompt_progress"] = json!({"total": prompt, "cache": self.cached, "processed": read, "time_ms": time});
                chunk
            }
            ChatEvent::Begun { choice } => {
                let mut chunk = e.chunk(choice, json!({"role": "assistant", "content": ""}), None);
                chunk["seed"] = e.seed.into();
                chunk
            }
            ChatEvent::Reasoning { choice, text } => e.chunk(choice, json!({"reasoning_content": text}), None),
            ChatEvent::Content { choice, text, logprobs } => {
                let mut chunk = e.chunk(choice, json!({"content": text}), None);
                if e.logprobs {
                    chunk["choices"][0]["logprobs"] = json!({"content": logprobs.iter().map(token_json).collect::<Vec<_>>()});
                }
                chunk
            }
            ChatEvent::ToolCall { choice, index, id, name } => {
                let call = json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}});
                e.chunk(choice, json!({"tool_calls": [call]}), None)
            }
            ChatEvent::ToolArguments { choice, index, delta } => {
                let call = json!({"index": index, "function": {"arguments": delta}});
                e.chunk(choice, json!({"tool_calls": [call]}), None)
            }
            ChatEvent::Finished { choice, reason, usage } => {
                self.total.add(&usage);
                match Failure::of_finish(&reason) {
                    None => e.chunk(choice, json!({}), Some(finish_name(&reason))),
                    // one error speaks for all choices
                    Some(_) if self.failed => return,
                    Some(failure) => {
                        self.failed = true;
                        failure.body(Shape::OpenAi)
                    }
                }
            }
        };
        sse::data(out, &chunk);
    }

    fn end(&mut self, out: &mut String) {
        if self.envelope.usage && !self.failed {
            let mut chunk = self.envelope.chunk_of(json!([]));
            chunk["usage"] = self.total.json();
            sse::data(out, &chunk);
        }
        out.push_str("data: [DONE]\n\n");
    }
}
