//! The body of a request for a response.

use super::items;
use crate::config::Limits;
use crate::effort;
use crate::fields::At;
use crate::generate::{AnswerOptions, ChatRequest, Format, RequestError, ToolChoice};
use crate::tools;
use crate::turns::Turns;
use serde_json::{Map, Value, json};

const PAIRS: usize = 16;
const LONGEST_KEY: usize = 64;
const LONGEST_VALUE: usize = 512;

/// A request for a response, without the conversation.
#[derive(Clone, Debug)]
pub(super) struct ResponseRequest {
    /// Its messages are still to come.
    pub chat: ChatRequest,
    pub instructions: Option<String>,
    /// The response to go on from.
    pub previous: Option<String>,
    /// `None`: one is to be drawn.
    pub seed: Option<u64>,
    pub stream: bool,
    pub store: bool,
    /// Old turns may be left out where the prompt is too long.
    pub truncate: bool,
    /// Fields of the response that say what was asked for.
    pub echo: Map<String, Value>,
}

/// Reads the body of `/v1/responses` but for `input`.
///
/// # Errors
/// Names the first field that is wrong.
pub(super) fn response_request(value: &Value, limits: &Limits) -> Result<ResponseRequest, RequestError> {
    let body = At::body(value)?;
    let flag = |name: &str, default: bool| body.get(name).map_or(Ok(default), |f| f.flag());
    let text = |name: &str| body.get(name).map(|f| f.text().map(str::to_owned)).transpose();
    for (name, what) in [("conversation", "stored conversations"), ("prompt", "stored prompts")] {
        if let Some(field) = body.get(name) {
            return Err(field.wrong(format!("nothing: {what} are not offered")));
        }
    }
    if flag("background", false)? {
        return Err(body.need("background", "")?.wrong("false: responses are not made in the background"));
    }
    text("model")?;
    let mut chat = ChatRequest { parallel_tool_calls: flag("parallel_tool_calls", true)?, ..ChatRequest::default() };
    let choice = offer(&body, &mut chat, limits)?;
    let reasoning = body.get("reasoning");
    if let Some(level) = reasoning.as_ref().and_then(|r| r.get("effort")) {
        effort::set(&mut chat, &level)?;
    }
    let format = format(&body, limits)?;
    chat.answer = answer(&body)?;
    chat.answer.format = format.0;
    let truncate = match body.get("truncation") {
        None => false,
        Some(t) => match t.text()? {
            "auto" => true,
            "disabled" => false,
            _ => return Err(t.wrong("\"auto\" or \"disabled\"")),
        },
    };
    let instructions = text("instructions")?;
    let previous = text("previous_response_id")?;
    let store = flag("store", true)?;
    let params = &chat.answer.params;
    let echo = json!({
        "background": false,
        "instructions": instructions,
        "max_output_tokens": chat.answer.max_tokens,
        "max_tool_calls": null,
        "metadata": metadata(&body)?,
        "parallel_tool_calls": chat.parallel_tool_calls,
        "previous_response_id": previous,
        "reasoning": {"effort": reasoning.and_then(|r| r.value.get("effort").cloned()), "summary": null},
        "store": store,
        "temperature": number(params.temperature),
        "text": {"format": format.1, "verbosity": "medium"},
        "tool_choice": choice,
        "tools": body.get("tools").map_or_else(|| json!([]), |t| t.value.clone()),
        "top_logprobs": 0,
        "top_p": number(params.top_p),
        "truncation": if truncate { "auto" } else { "disabled" },
        "user": text("user")?,
    });
    let seed = body.get("seed").map(|s| s.count(0)).transpose()?;
    Ok(ResponseRequest {
        chat,
        instructions,
        previous,
        seed,
        stream: flag("stream", false)?,
        store,
        truncate,
        echo: echo.as_object().cloned().unwrap_or_default(),
    })
}

/// The items of `input` in their full form; their turns go to `turns`. `find` gives the items that are only referred to.
///
/// # Errors
/// Names the first item that is wrong.
pub(super) fn input(
    value: &Value,
    turns: &mut Turns,
    find: impl Fn(&str) -> Option<Value>,
    mut unique: impl FnMut(&str) -> String,
) -> Result<Vec<Value>, RequestError> {
    let input = At::body(value)?.need("input", "a string or a list of items")?;
    if input.value.is_string() {
        let message = json!({"role": "user", "content": input.value});
        return Ok(vec![items::read(&At { value: &message, path: input.path }, turns, &mut unique)?]);
    }
    let mut read = Vec::new();
    for item in input.list()? {
        let found;
        let item = if item.value["type"] == "item_reference" {
            let id = item.need("id", "the id of an item")?;
            found = find(id.text()?).ok_or_else(|| id.wrong("the id of an item of a response that is stored"))?;
            At { value: &found, path: item.path }
        } else {
            item
        };
        read.push(items::read(&item, turns, &mut unique)?);
    }
    if read.is_empty() {
        return Err(RequestError::field(input.path, "at least one item", "none"));
    }
    Ok(read)
}

/// Takes tools over and returns the choice as it is echoed.
fn offer(body: &At<'_>, chat: &mut ChatRequest, limits: &Limits) -> Result<Value, RequestError> {
    if let Some(tools) = body.get("tools") {
        for tool in tools.list()? {
            match tool.kind()? {
                "function" => tools::add(chat, &tool, "parameters")?,
                _ => return Err(tool.need("type", "a string")?.wrong("\"function\": other tools are not offered")),
            }
        }
        tools::check_size(chat, limits)?;
    }
    let Some(choice) = body.get("tool_choice") else { return Ok("auto".into()) };
    const CHOICES: &str = "\"auto\", \"none\", \"required\" or an object of type \"function\" or \"allowed_tools\"";
    chat.tool_choice = match choice.value {
        Value::String(word) => match word.as_str() {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" => tools::required(chat, &choice)?,
            _ => return Err(choice.wrong(CHOICES)),
        },
        _ => match choice.kind()? {
            "function" => tools::named(chat, &choice.need("name", "the name of a tool")?)?,
            "allowed_tools" => allowed(chat, &choice)?,
            _ => return Err(choice.wrong(CHOICES)),
        },
    };
    Ok(choice.value.clone())
}

/// Of all tools, only those of a list are shown to the model.
fn allowed(chat: &mut ChatRequest, choice: &At<'_>) -> Result<ToolChoice, RequestError> {
    let mut names = Vec::new();
    for tool in choice.need("tools", "a list of tools")?.list()? {
        let name = tool.need("name", "the name of a tool")?;
        tools::named(chat, &name)?;
        names.push(name.value);
    }
    chat.tools.retain(|t| names.iter().any(|n| t["function"]["name"] == **n));
    let mode = choice.need("mode", "\"auto\" or \"required\"")?;
    match mode.text()? {
        "auto" => Ok(ToolChoice::Auto),
        "required" => tools::required(chat, choice),
        _ => Err(mode.wrong("\"auto\" or \"required\"")),
    }
}

/// The form of the text, and as it is echoed.
fn format(body: &At<'_>, limits: &Limits) -> Result<(Format, Value), RequestError> {
    let Some(format) = body.get("text").and_then(|t| t.get("format")) else { return Ok((Format::Text, json!({"type": "text"}))) };
    let form = match format.kind()? {
        "text" => Format::Text,
        "json_object" => Format::JsonObject,
        "json_schema" => {
            let schema = format.need("schema", "a JSON schema")?;
            schema.object()?;
            tools::check_bytes(&schema.path, schema.value.to_string().len(), limits)?;
            Format::JsonSchema(schema.value.clone())
        }
        _ => return Err(format.wrong("an object of type \"text\", \"json_object\" or \"json_schema\"")),
    };
    Ok((form, format.value.clone()))
}

fn answer(body: &At<'_>) -> Result<AnswerOptions, RequestError> {
    let mut answer = AnswerOptions::default();
    if let Some(most) = body.get("max_output_tokens") {
        answer.max_tokens = Some(usize::try_from(most.count(1)?).unwrap_or(usize::MAX));
    }
    if let Some(t) = body.get("temperature") {
        answer.params.temperature = t.number()?;
    }
    if let Some(p) = body.get("top_p") {
        answer.params.top_p = p.number()?;
    }
    Ok(answer)
}

fn metadata(body: &At<'_>) -> Result<Value, RequestError> {
    let Some(metadata) = body.get("metadata") else { return Ok(json!({})) };
    let pairs = metadata.object()?;
    let fits = |(k, v): (&String, &Value)| k.len() <= LONGEST_KEY && v.as_str().is_some_and(|v| v.len() <= LONGEST_VALUE);
    if pairs.len() > PAIRS || !pairs.iter().all(fits) {
        let expected = format!("at most {PAIRS} strings of {LONGEST_VALUE} bytes, with names of {LONGEST_KEY}");
        return Err(RequestError::field(metadata.path, expected, "more, or other values"));
    }
    Ok(metadata.value.clone())
}

/// A float as the shortest decimal that means it.
fn number(x: f32) -> Value {
    json!(x.to_string().parse::<f64>().unwrap_or(f64::from(x)))
}
