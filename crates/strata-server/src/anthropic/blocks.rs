//! Messages of content blocks, into turns.

use crate::fields::At;
use crate::generate::RequestError;
use crate::turns::{BadResult, Turns, join};
use serde_json::Value;

/// How some agents begin their system prompt: a line that differs in each request and is meant for no model. Read, it would make
/// every prompt a new one for the prefix cache.
const BILLING: &str = "x-anthropic-billing-header:";

const BLOCKS: &str =
    "a block of type \"text\", \"thinking\", \"redacted_thinking\", \"tool_use\", \"tool_result\", \"document\" or \"search_result\"";
const TEXTS: &str = "a block of type \"text\", \"document\" or \"search_result\"";

/// The turns of `system` and `messages`.
///
/// # Errors
/// A block is not of a known form or cannot be read as text, or the last word is the assistant's.
pub(super) fn turns(body: &At<'_>) -> Result<Turns, RequestError> {
    let mut turns = Turns::default();
    if let Some(system) = body.get("system") {
        pieces(&system, |text| turns.system(without_billing(text)))?;
    }
    let messages = body.need("messages", "a list of messages")?;
    for message in messages.list()? {
        message.object()?;
        let role = message.need("role", "\"user\" or \"assistant\"")?;
        let content = message.need("content", "a string or a list of blocks")?;
        match role.text()? {
            "user" => user(&mut turns, &content)?,
            "assistant" => assistant(&mut turns, &content)?,
            "system" => pieces(&content, |text| turns.system(without_billing(text)))?,
            _ => return Err(role.wrong("\"user\" or \"assistant\"")),
        }
    }
    if turns.ends_with_assistant() {
        let expected = "the last message to be the user's (an answer cannot be begun for the model)";
        return Err(RequestError::field("messages", expected, "one of the assistant"));
    }
    Ok(turns)
}

fn without_billing(text: &str) -> &str {
    match text.strip_prefix(BILLING) {
        Some(rest) => rest.split_once('\n').map_or("", |(_, after)| after),
        None => text,
    }
}

/// A string, or the text of each block of type `text`.
fn pieces<'a>(content: &At<'a>, mut take: impl FnMut(&'a str)) -> Result<(), RequestError> {
    if let Value::String(text) = content.value {
        take(text);
        return Ok(());
    }
    for block in content.list()? {
        match block.kind()? {
            "text" => take(block.need("text", "a string")?.text()?),
            _ => return Err(block.wrong_type("a block of type \"text\"")),
        }
    }
    Ok(())
}

fn user(turns: &mut Turns, content: &At<'_>) -> Result<(), RequestError> {
    if let Value::String(text) = content.value {
        turns.user(text);
        return Ok(());
    }
    for block in content.list()? {
        match block.kind()? {
            "tool_result" => result(turns, &block)?,
            "tool_use" | "thinking" | "redacted_thinking" => return Err(block.wrong_type("a block of a user")),
            _ => turns.user(&text(&block, BLOCKS)?),
        }
    }
    Ok(())
}

fn assistant(turns: &mut Turns, content: &At<'_>) -> Result<(), RequestError> {
    if let Value::String(text) = content.value {
        turns.said(text);
        return Ok(());
    }
    for block in content.list()? {
        match block.kind()? {
            "text" => turns.said(block.need("text", "a string")?.text()?),
            "thinking" => turns.reasoning(block.need("thinking", "a string")?.text()?),
            "redacted_thinking" => {}
            "tool_use" => {
                let id = block.need("id", "a string")?.text()?;
                let name = block.need("name", "a string")?.text()?;
                let input = block.need("input", "an object")?;
                turns.called(id, name, input.object()?.clone().into());
            }
            _ => return Err(block.wrong_type("a block of type \"text\", \"thinking\", \"redacted_thinking\" or \"tool_use\"")),
        }
    }
    Ok(())
}

fn result(turns: &mut Turns, block: &At<'_>) -> Result<(), RequestError> {
    let id = block.need("tool_use_id", "a string")?;
    let mut said = match block.get("content") {
        None => String::new(),
        Some(content) => match content.value {
            Value::String(text) => text.clone(),
            _ => join(&content.list()?.map(|b| text(&b, TEXTS)).collect::<Result<Vec<_>, _>>()?),
        },
    };
    if block.get("is_error").map(|e| e.flag()).transpose()?.unwrap_or(false) {
        said = if said.is_empty() { "Error".into() } else { format!("Error: {said}") };
    }
    turns.result(id.text()?, said).map_err(|e| match e {
        BadResult::Unknown => id.wrong("the id of a tool_use block of the assistant's turn before"),
        BadResult::Twice => id.wrong("one result for each tool_use block"),
    })
}

/// What a block says, as text.
fn text(block: &At<'_>, expected: &str) -> Result<String, RequestError> {
    let field = |name| block.get(name).map_or(Ok(""), |f| f.text());
    match block.kind()? {
        "text" => Ok(block.need("text", "a string")?.text()?.to_owned()),
        "document" => {
            let source = block.need("source", "an object")?;
            let body = match source.kind()? {
                "text" => source.need("data", "a string")?.text()?.to_owned(),
                "content" => {
                    let mut texts = Vec::new();
                    pieces(&source.need("content", "a string or a list of blocks")?, |t| texts.push(t))?;
                    join(&texts)
                }
                _ => return Err(source.wrong_type("a source of type \"text\" or \"content\": other documents cannot be read")),
            };
            Ok(join(&[field("title")?, field("context")?, &body]))
        }
        "search_result" => {
            let mut texts = vec![field("title")?, field("source")?];
            pieces(&block.need("content", "a list of blocks")?, |t| texts.push(t))?;
            Ok(join(&texts))
        }
        "image" => Err(block.wrong_type("a block that is text: images cannot be read")),
        _ => Err(block.wrong_type(expected)),
    }
}

impl At<'_> {
    /// The error that an object's `type` is not what it should be.
    fn wrong_type(&self, expected: &str) -> RequestError {
        self.get("type").map_or_else(|| self.wrong(expected), |kind| kind.wrong(expected))
    }
}
