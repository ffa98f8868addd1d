//! Messages of the chat API, as templates want them.

use serde_json::{Map, Value};
use thiserror::Error;

const ROLES: &str = "\"system\", \"developer\", \"user\", \"assistant\" or \"tool\"";

/// Why messages cannot be given to a template. `field` is the path in the request, such as `messages[2].content[0].type`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MessageError {
    #[error("{field}: expected {expected}, found {found}")]
    Field { field: String, expected: &'static str, found: String },
    /// The model reads text only.
    #[error("{field}: this model reads text only, found {found:?}")]
    NotText { field: String, found: String },
}

/// Makes a chat API's `messages` ready for a template.
///
/// * `content`: the texts of a list of parts (`text`, `input_text`, `output_text`, `refusal`) are joined by newlines; missing or null
///   is empty.
/// * Role `developer` is `system`. `reasoning` is `reasoning_content`, if that is missing.
/// * `tool_calls[].function.arguments`: a string that is a JSON object becomes that object, an empty one the empty object; any other
///   stays a string.
///
/// Other fields stay as they are.
///
/// # Errors
/// A message or field is of another type, or a content part is an image, sound or file.
pub fn template_messages(messages: &Value) -> Result<Vec<Value>, MessageError> {
    let list = messages.as_array().ok_or_else(|| wrong("messages".into(), "a list", messages))?;
    list.iter().enumerate().map(|(i, message)| convert(&format!("messages[{i}]"), message)).collect()
}

fn convert(path: &str, message: &Value) -> Result<Value, MessageError> {
    let mut map = message.as_object().ok_or_else(|| wrong(path.into(), "an object", message))?.clone();
    let role = map.get("role").unwrap_or(&Value::Null);
    match role.as_str() {
        Some("developer") => {
            map.insert("role".into(), "system".into());
        }
        Some("system" | "user" | "assistant" | "tool") => {}
        _ => return Err(wrong(format!("{path}.role"), ROLES, role)),
    }
    let content = text(&format!("{path}.content"), map.get("content").unwrap_or(&Value::Null))?;
    map.insert("content".into(), content.into());
    if let Some(reasoning) = map.remove("reasoning")
        && !map.contains_key("reasoning_content")
    {
        map.insert("reasoning_content".into(), reasoning);
    }
    if let Some(reasoning) = map.get("reasoning_content")
        && !(reasoning.is_string() || reasoning.is_null())
    {
        return Err(wrong(format!("{path}.reasoning_content"), "a string", reasoning));
    }
    match map.get_mut("tool_calls") {
        None => {}
        Some(Value::Null) => {
            map.remove("tool_calls");
        }
        Some(Value::Array(calls)) => {
            for (i, call) in calls.iter_mut().enumerate() {
                decode_arguments(&format!("{path}.tool_calls[{i}]"), call)?;
            }
        }
        Some(other) => return Err(wrong(format!("{path}.tool_calls"), "a list", other)),
    }
    Ok(Value::Object(map))
}

/// The text of a message's content.
fn text(path: &str, content: &Value) -> Result<String, MessageError> {
    let parts = match content {
        Value::String(text) => return Ok(text.clone()),
        Value::Null => return Ok(String::new()),
        Value::Array(parts) => parts,
        other => return Err(wrong(path.into(), "a string or a list of parts", other)),
    };
    Ok(parts.iter().enumerate().map(|(i, p)| part(&format!("{path}[{i}]"), p)).collect::<Result<Vec<_>, _>>()?.join("\n"))
}

/// The text of one part of a content.
fn part<'a>(path: &str, part: &'a Value) -> Result<&'a str, MessageError> {
    let kind = part.get("type").unwrap_or(&Value::Null);
    let key = match kind.as_str() {
        Some("text" | "input_text" | "output_text") => "text",
        Some("refusal") => "refusal",
        Some(other) => return Err(MessageError::NotText { field: format!("{path}.type"), found: shown(other) }),
        None => return Err(wrong(format!("{path}.type"), "\"text\"", kind)),
    };
    let text = part.get(key).unwrap_or(&Value::Null);
    text.as_str().ok_or_else(|| wrong(format!("{path}.{key}"), "a string", text))
}

fn decode_arguments(path: &str, call: &mut Value) -> Result<(), MessageError> {
    let function = call.get_mut("function").and_then(Value::as_object_mut);
    let Some(function) = function else {
        return Err(wrong(format!("{path}.function"), "an object", call.get("function").unwrap_or(&Value::Null)));
    };
    let name = function.get("name").unwrap_or(&Value::Null);
    if !name.is_string() {
        return Err(wrong(format!("{path}.function.name"), "a string", name));
    }
    let arguments = function.entry("arguments").or_insert(Value::Null);
    let decoded = match &*arguments {
        Value::Null => Some(Map::new()),
        Value::String(text) if text.trim().is_empty() => Some(Map::new()),
        Value::String(text) => serde_json::from_str(text).ok(),
        Value::Object(_) => None,
        other => return Err(wrong(format!("{path}.function.arguments"), "a string", other)),
    };
    if let Some(map) = decoded {
        *arguments = Value::Object(map);
    }
    Ok(())
}

fn wrong(field: String, expected: &'static str, found: &Value) -> MessageError {
    let found = match found {
        Value::Null => "nothing".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => n.to_string(),
        Value::String(text) => format!("{:?}", shown(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    MessageError::Field { field, expected, found }
}

/// As much of a text from outside as an error shows.
fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}
