//! Tools that requests offer to the model.

use crate::config::Limits;
use crate::fields::At;
use crate::generate::{ChatRequest, RequestError, ToolChoice};
use serde_json::{Map, Value, json};

const MOST: usize = 256;
const LONGEST_NAME: usize = 128;

/// Adds a function to the tools of `chat`, in the form of OpenAI's chat completions. `tool` has `name` and `description`, and its
/// arguments' JSON schema in the field `schema`.
///
/// # Errors
/// A field is wrong.
pub(crate) fn add(chat: &mut ChatRequest, tool: &At<'_>, schema: &str) -> Result<(), RequestError> {
    let name = tool.need("name", "a string")?;
    let good = |b: u8| b.is_ascii_alphanumeric() || b"_-.:/".contains(&b);
    if !(1..=LONGEST_NAME).contains(&name.text()?.len()) || !name.text()?.bytes().all(good) {
        return Err(name.wrong(format!("1 to {LONGEST_NAME} of the characters a-z, A-Z, 0-9, _, -, ., : and /")));
    }
    let mut function = Map::new();
    function.insert("name".into(), name.value.clone());
    if let Some(description) = tool.get("description") {
        function.insert("description".into(), description.text()?.into());
    }
    if let Some(schema) = tool.get(schema) {
        function.insert("parameters".into(), schema.object()?.clone().into());
    }
    chat.tools.push(json!({"type": "function", "function": function}));
    Ok(())
}

/// Checks what all tools come to together.
///
/// # Errors
/// They are too many or too long.
pub(crate) fn check_size(chat: &ChatRequest, limits: &Limits) -> Result<(), RequestError> {
    if chat.tools.len() > MOST {
        return Err(RequestError::field("tools", format!("at most {MOST} tools"), chat.tools.len().to_string()));
    }
    check_bytes("tools", chat.tools.iter().map(|t| t.to_string().len()).sum(), limits)
}

/// Checks the length of a schema.
///
/// # Errors
/// It is too long.
pub(crate) fn check_bytes(field: &str, bytes: usize, limits: &Limits) -> Result<(), RequestError> {
    if bytes > limits.schema {
        return Err(RequestError::field(field, format!("at most {} bytes", limits.schema), format!("{bytes} bytes")));
    }
    Ok(())
}

/// The choice of one tool.
///
/// # Errors
/// There is no tool of that name.
pub(crate) fn named(chat: &ChatRequest, name: &At<'_>) -> Result<ToolChoice, RequestError> {
    if !has(chat, name.value) {
        return Err(name.wrong("the name of one of the tools"));
    }
    Ok(ToolChoice::Named(name.text()?.to_owned()))
}

/// The choice of some tool.
///
/// # Errors
/// There is none.
pub(crate) fn required(chat: &ChatRequest, choice: &At<'_>) -> Result<ToolChoice, RequestError> {
    if chat.tools.is_empty() { Err(choice.wrong("tools to choose from")) } else { Ok(ToolChoice::Required) }
}

fn has(chat: &ChatRequest, name: &Value) -> bool {
    chat.tools.iter().any(|t| t["function"]["name"] == *name)
}
