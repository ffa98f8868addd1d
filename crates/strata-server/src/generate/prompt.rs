//! From a conversation or a text to token ids.

use super::error::RequestError;
use super::request::{ChatRequest, Prompt, ToolChoice};
use crate::served::Served;
use serde_json::Value;
use strata_engine::Mark;
use strata_text::RenderOptions;

/// A prompt as the engine takes it.
#[derive(Clone, Debug, Default)]
pub struct ReadPrompt {
    pub ids: Vec<u32>,
    /// Places worth keeping.
    pub marks: Vec<Mark>,
    /// It ends inside the thinking.
    pub thinking: bool,
    /// The answer may think and call tools: it is taken apart.
    pub chat: bool,
}

/// The ids of a conversation, up to the opening of the assistant's turn.
///
/// # Errors
/// There is no template, it refuses the messages, or they are too long.
pub fn chat_prompt(served: &Served, request: &ChatRequest) -> Result<ReadPrompt, RequestError> {
    let Some(template) = &served.template else {
        return Err(RequestError::field("messages", "a model with a chat template", "one without; /v1/completions needs none"));
    };
    let mut extra = serde_json::Map::new();
    if let Some(effort) = &request.effort {
        extra.insert("reasoning_effort".into(), effort.as_str().into());
    }
    extra.extend(request.template_args.clone());
    let tools = (!request.tools.is_empty() && request.tool_choice != ToolChoice::None).then(|| Value::Array(request.tools.clone()));
    let options = RenderOptions {
        tools: tools.as_ref(),
        add_generation_prompt: true,
        enable_thinking: request.thinking,
        extra: (!extra.is_empty()).then_some(&extra),
    };
    let text = template.render(&Value::Array(request.messages.clone()), &options);
    let text = text.map_err(|error| RequestError::Template { field: "messages", error })?;
    let ids = encode(served, &text, "messages")?;
    Ok(ReadPrompt { ids, marks: Vec::new(), thinking: text.trim_end().ends_with("<think>"), chat: true })
}

/// The ids of a text, or ids as they are.
///
/// # Errors
/// It is empty or too long, or an id is outside the vocabulary.
pub fn text_prompt(served: &Served, prompt: &Prompt, field: &'static str) -> Result<ReadPrompt, RequestError> {
    let ids = match prompt {
        Prompt::Text(text) => encode(served, text, field)?,
        Prompt::Ids(ids) => ids.clone(),
    };
    check(served, &ids, field)?;
    Ok(ReadPrompt { ids, ..ReadPrompt::default() })
}

/// Ids of a text whose markers are their tokens, behind the begin-of-sequence token where the model asks for one.
fn encode(served: &Served, text: &str, field: &'static str) -> Result<Vec<u32>, RequestError> {
    if text.len() > served.most_text {
        let expected = format!("at most {} bytes, more than the context can stand for", served.most_text);
        return Err(RequestError::field(field, expected, format!("{} bytes", text.len())));
    }
    let mut ids = served.tokenizer.encode(text, true).map_err(|error| RequestError::Tokenizer { field, error })?;
    if let Some(bos) = served.tokenizer.bos_to_add()
        && ids.first() != Some(&bos)
    {
        ids.insert(0, bos);
    }
    check(served, &ids, field)?;
    Ok(ids)
}

fn check(served: &Served, ids: &[u32], field: &'static str) -> Result<(), RequestError> {
    let facts = served.runner.facts();
    if ids.is_empty() {
        return Err(RequestError::field(field, "at least one token", "none"));
    }
    if ids.len() >= facts.context {
        return Err(RequestError::PromptTooLong { field, found: ids.len(), capacity: facts.context });
    }
    match ids.iter().position(|id| *id as usize >= facts.vocab) {
        Some(i) => Err(RequestError::field(format!("{field}[{i}]"), format!("an id below {}", facts.vocab), ids[i].to_string())),
        None => Ok(()),
    }
}
