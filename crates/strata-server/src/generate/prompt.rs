//! From a conversation or a text to token ids.

use super::error::RequestError;
use super::request::{ChatRequest, Prompt, ToolChoice};
use crate::served::Served;
use serde_json::{Map, Value};
use strata_engine::Mark;
use strata_text::{CallFormat, RenderOptions, ReplyStart, TemplateError, ToolTypes, template_messages, turn_ends};

/// A prompt as the engine takes it.
#[derive(Clone, Debug, Default)]
pub struct ReadPrompt {
    pub ids: Vec<u32>,
    /// Places worth keeping.
    pub marks: Vec<Mark>,
    /// How its answer is taken apart; that to a plain text is not.
    pub reply: Option<Reply>,
}

/// What is known beforehand about the answer to a conversation.
#[derive(Clone, Debug)]
pub struct Reply {
    pub start: ReplyStart,
    /// How calls are written, where tools are offered.
    pub calls: Option<CallFormat>,
    pub types: ToolTypes,
    /// The tools that are offered, and how.
    pub offered: Option<(Value, ToolChoice)>,
    /// It may have several calls.
    pub parallel: bool,
}

/// The ids of a conversation, up to the opening of the assistant's turn.
///
/// # Errors
/// There is no template, it refuses the messages, or they are too long.
pub fn chat_prompt(served: &Served, request: &ChatRequest) -> Result<ReadPrompt, RequestError> {
    let Some(template) = &served.template else {
        return Err(RequestError::field("messages", "a model with a chat template", "one without; /v1/completions needs none"));
    };
    let messages = Value::Array(template_messages(&Value::Array(request.messages.clone()))?);
    let tools = (!request.tools.is_empty() && request.tool_choice != ToolChoice::None).then(|| Value::Array(request.tools.clone()));
    let render = |effort: Option<&str>| {
        let mut extra: Map<String, Value> = effort.map(|e| ("reasoning_effort".to_owned(), e.into())).into_iter().collect();
        extra.extend(request.template_args.clone());
        let options = RenderOptions {
            tools: tools.as_ref(),
            add_generation_prompt: true,
            enable_thinking: request.thinking,
            extra: (!extra.is_empty()).then_some(&extra),
        };
        template.render(&messages, &options)
    };
    let effort = request.effort.as_deref();
    let text = match (render(effort), effort.and_then(nearest)) {
        (Err(error @ TemplateError::Raised { .. }), Some(other)) => render(Some(other)).map_err(|_| error),
        (text, _) => text,
    };
    let text = text.map_err(|error| RequestError::Template { field: "messages", error })?;
    let ids = encode(served, &text, "messages")?;
    let marks = turn_ends(&served.tokenizer, &ids).into_iter().map(|t| Mark { at: t.at, pinned: t.system }).collect();
    let reply = Reply {
        start: ReplyStart::of_prompt(&text),
        calls: served.calls.filter(|_| tools.is_some()),
        types: tools.as_ref().map(ToolTypes::new).unwrap_or_default(),
        parallel: request.parallel_tool_calls,
        offered: tools.clone().map(|tools| (tools, request.tool_choice.clone())),
    };
    Ok(ReadPrompt { ids, marks, reply: Some(reply) })
}

/// The effort to ask for where a template refuses this one: OpenAI's names at the ends are not every model's.
fn nearest(effort: &str) -> Option<&'static str> {
    match effort {
        "minimal" => Some("low"),
        "high" => Some("xhigh"),
        _ => None,
    }
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
