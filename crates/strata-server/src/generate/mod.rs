//! From requests to answers, the same for every API: a conversation becomes tokens and places worth keeping, its `n` choices
//! become requests of the engine, and what the engine draws becomes a stream of [`ChatEvent`]s.

mod answers;
mod choice;
mod constraint;
mod embeddings;
mod error;
mod event;
mod prompt;
mod request;

pub use answers::{Answer, Answers, ToolCall};
pub use embeddings::Embeddings;
pub use error::RequestError;
pub use event::{ChatEvent, FinishReason, TokenInfo, Usage};
pub use prompt::{ReadPrompt, Reply, chat_prompt, text_prompt};
pub use request::{AnswerOptions, ChatRequest, CompletionRequest, Format, Prompt, ToolChoice};

use crate::served::Served;
use std::sync::Arc;

/// Starts the answers to a conversation. It renders and tokenizes: not to be called where others wait.
///
/// # Errors
/// The conversation or an option is not acceptable, or the queue is full.
pub fn chat(served: &Arc<Served>, request: &ChatRequest) -> Result<Answers, RequestError> {
    let prompt = chat_prompt(served, request)?;
    Answers::start(served, vec![prompt], &request.answer)
}

/// Starts the answers to texts.
///
/// # Errors
/// As [`chat`].
pub fn complete(served: &Arc<Served>, request: &CompletionRequest) -> Result<Answers, RequestError> {
    let prompts = request.prompts.iter().map(|p| text_prompt(served, p, "prompt")).collect::<Result<_, _>>()?;
    Answers::start(served, prompts, &request.answer)
}
