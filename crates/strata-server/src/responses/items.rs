//! Items of an input: read into turns, and brought into the one form in which they are kept and listed.

use crate::fields::At;
use crate::generate::RequestError;
use crate::turns::{BadResult, Turns, join};
use serde_json::{Value, json};

const ITEMS: &str = "an item of type \"message\", \"function_call\", \"function_call_output\", \"reasoning\" or \"item_reference\"";
const ROLES: &str = "\"user\", \"assistant\", \"system\" or \"developer\"";

/// Reads an item: its turn goes to `turns`, its full form is returned. An item without an id gets one from `unique`, which takes a
/// prefix.
///
/// # Errors
/// It is not of a known form, is no text, or is the output of a call that was not made.
pub(super) fn read(item: &At<'_>, turns: &mut Turns, unique: &mut impl FnMut(&str) -> String) -> Result<Value, RequestError> {
    item.object()?;
    let kind = match item.get("type") {
        Some(kind) => kind.text()?,
        None if item.get("role").is_some() => "message",
        None => return Err(item.need("type", ITEMS).map_or_else(|e| e, |k| k.wrong(ITEMS))),
    };
    let mut id = |prefix: &str| item.get("id").map_or_else(|| Ok(unique(prefix)), |id| id.text().map(str::to_owned));
    match kind {
        "message" => {
            let role = item.need("role", ROLES)?;
            let content = item.need("content", "a string or a list of parts")?;
            let texts = texts(&content)?;
            let text = join(&texts);
            match role.text()? {
                "user" => turns.user(&text),
                "system" | "developer" => turns.system(&text),
                "assistant" => turns.said(&text),
                _ => return Err(role.wrong(ROLES)),
            }
            let part = |text: &String| match role.value.as_str() {
                Some("assistant") => json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []}),
                _ => json!({"type": "input_text", "text": text}),
            };
            let parts: Vec<Value> = texts.iter().map(part).collect();
            Ok(json!({"id": id("msg_")?, "type": "message", "role": role.value, "status": "completed", "content": parts}))
        }
        "function_call" => {
            let call = item.need("call_id", "a string")?.text()?;
            let name = item.need("name", "a string")?.text()?;
            let arguments = item.need("arguments", "a string")?.text()?;
            // templates want an object; what is none, a cut-off call perhaps, is shown as it is
            let object = serde_json::from_str(arguments).ok().filter(Value::is_object);
            turns.called(call, name, object.unwrap_or_else(|| arguments.into()));
            Ok(
                json!({"id": id("fc_")?, "type": "function_call", "call_id": call, "name": name, "arguments": arguments, "status": "completed"}),
            )
        }
        "function_call_output" => {
            let call = item.need("call_id", "a string")?;
            let text = join(&texts(&item.need("output", "a string or a list of parts")?)?);
            turns.result(call.text()?, text.clone()).map_err(|e| match e {
                BadResult::Unknown => call.wrong("the id of a function call before it, with nothing of the assistant's between"),
                BadResult::Twice => call.wrong("one output for each function call"),
            })?;
            Ok(json!({"id": id("fco_")?, "type": "function_call_output", "call_id": call.value, "output": text, "status": "completed"}))
        }
        "reasoning" => {
            let content = item.get("content").map_or(Ok(Vec::new()), |c| texts(&c))?;
            let summary = item.get("summary").map_or(Ok(Vec::new()), |s| texts(&s))?;
            // a summary stands in where the thinking itself is not told
            let text = join(if content.is_empty() { &summary } else { &content });
            if !text.is_empty() {
                turns.reasoning(&text);
            }
            let parts = |kind: &str, texts: &[String]| texts.iter().map(|t| json!({"type": kind, "text": t})).collect::<Vec<_>>();
            let (summary, content) = (parts("summary_text", &summary), parts("reasoning_text", &content));
            Ok(json!({"id": id("rs_")?, "type": "reasoning", "summary": summary, "content": content, "status": "completed"}))
        }
        _ => Err(item.need("type", ITEMS)?.wrong(ITEMS)),
    }
}

/// The text of a string, or of each part of a list.
fn texts(content: &At<'_>) -> Result<Vec<String>, RequestError> {
    const PARTS: &str = "a part that is text (images, files and audio cannot be read)";
    if let Value::String(text) = content.value {
        return Ok(vec![text.clone()]);
    }
    let part = |part: At<'_>| {
        let name = match part.kind()? {
            "input_text" | "output_text" | "text" | "reasoning_text" | "summary_text" => "text",
            "refusal" => "refusal",
            _ => return Err(part.need("type", PARTS)?.wrong(PARTS)),
        };
        Ok(part.need(name, "a string")?.text()?.to_owned())
    };
    content.list()?.map(part).collect()
}
