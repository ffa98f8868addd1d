//! The body of a request for a message.

use super::blocks::turns;
use crate::config::Limits;
use crate::effort;
use crate::fields::At;
use crate::generate::{AnswerOptions, ChatRequest, Format, RequestError, ToolChoice};
use crate::tools;
use serde_json::Value;

const MOST_STOPS: usize = 16;
const LONGEST_STOP: usize = 1024;

/// A request for a message.
#[derive(Clone, Debug)]
pub(super) struct MessageRequest {
    pub chat: ChatRequest,
    /// `None`: one is to be drawn.
    pub seed: Option<u64>,
    pub stream: bool,
    /// Thinking is done but not told.
    pub hide_thinking: bool,
}

/// Reads the body of `/v1/messages`.
///
/// # Errors
/// Names the first field that is wrong.
pub(super) fn message_request(value: &Value, limits: &Limits) -> Result<MessageRequest, RequestError> {
    let body = At::body(value)?;
    let mut request = conversation(&body, limits)?;
    request.chat.answer = answer(&body, request.chat.answer)?;
    request.seed = body.get("seed").map(|s| s.count(0)).transpose()?;
    request.stream = body.get("stream").map_or(Ok(false), |s| s.flag())?;
    Ok(request)
}

/// Reads the body of `/v1/messages/count_tokens`: no fields of the answer are looked at.
///
/// # Errors
/// As [`message_request`].
pub(super) fn count_request(value: &Value, limits: &Limits) -> Result<ChatRequest, RequestError> {
    Ok(conversation(&At::body(value)?, limits)?.chat)
}

fn conversation(body: &At<'_>, limits: &Limits) -> Result<MessageRequest, RequestError> {
    body.need("model", "the name of a model")?.text()?;
    let mut chat = ChatRequest { messages: turns(body)?.finish(), parallel_tool_calls: true, ..ChatRequest::default() };
    offer(body, &mut chat, limits)?;
    // effort first: thinking that is asked for or ruled out has the last word
    let output = body.get("output_config");
    if let Some(level) = output.as_ref().and_then(|o| o.get("effort")) {
        effort::set(&mut chat, &level)?;
    }
    if let Some(format) = output.and_then(|o| o.get("format")).or_else(|| body.get("output_format")) {
        match format.kind()? {
            "json_schema" => {
                let schema = format.need("schema", "a JSON schema")?;
                schema.object()?;
                tools::check_bytes(&schema.path, schema.value.to_string().len(), limits)?;
                chat.answer.format = Format::JsonSchema(schema.value.clone());
            }
            _ => return Err(format.wrong("an object of type \"json_schema\"")),
        }
    }
    let thinking = body.get("thinking");
    chat.thinking = Some(match &thinking {
        None => false,
        Some(t) => match t.kind()? {
            "disabled" => false,
            "enabled" => {
                t.need("budget_tokens", "a whole number")?.count(1)?;
                true
            }
            "adaptive" | "between_tools" => true,
            _ => return Err(t.wrong("an object of type \"enabled\", \"disabled\" or \"adaptive\"")),
        },
    });
    let hide_thinking = match thinking.and_then(|t| t.get("display")) {
        None => false,
        Some(display) => match display.text()? {
            "summarized" => false,
            "omitted" => true,
            _ => return Err(display.wrong("\"summarized\" or \"omitted\"")),
        },
    };
    Ok(MessageRequest { chat, seed: None, stream: false, hide_thinking })
}

fn offer(body: &At<'_>, chat: &mut ChatRequest, limits: &Limits) -> Result<(), RequestError> {
    if let Some(tools) = body.get("tools") {
        for tool in tools.list()? {
            tool.object()?;
            if let Some(kind) = tool.get("type").filter(|k| k.value != "custom") {
                return Err(kind.wrong("\"custom\" or nothing: tools of the server's own are not offered"));
            }
            tool.need("input_schema", "a JSON schema of an object")?;
            tools::add(chat, &tool, "input_schema")?;
        }
        tools::check_size(chat, limits)?;
    }
    let Some(choice) = body.get("tool_choice") else { return Ok(()) };
    chat.tool_choice = match choice.kind()? {
        "auto" => ToolChoice::Auto,
        "any" => tools::required(chat, &choice)?,
        "none" => ToolChoice::None,
        "tool" => tools::named(chat, &choice.need("name", "the name of a tool")?)?,
        _ => return Err(choice.wrong("an object of type \"auto\", \"any\", \"tool\" or \"none\"")),
    };
    chat.parallel_tool_calls = !choice.get("disable_parallel_tool_use").map_or(Ok(false), |d| d.flag())?;
    Ok(())
}

fn answer(body: &At<'_>, mut answer: AnswerOptions) -> Result<AnswerOptions, RequestError> {
    let most = body.need("max_tokens", "a whole number of at least 1")?.count(1)?;
    answer.max_tokens = Some(usize::try_from(most).unwrap_or(usize::MAX));
    if let Some(t) = body.get("temperature") {
        answer.params.temperature = t.number()?;
    }
    if let Some(p) = body.get("top_p") {
        answer.params.top_p = p.number()?;
    }
    if let Some(k) = body.get("top_k") {
        answer.params.top_k = u32::try_from(k.count(0)?).unwrap_or(u32::MAX);
    }
    if let Some(stops) = body.get("stop_sequences") {
        for stop in stops.list()? {
            match stop.text()?.len() {
                1..=LONGEST_STOP => answer.stop.push(stop.text()?.to_owned()),
                _ => return Err(stop.wrong(format!("a string of 1 to {LONGEST_STOP} bytes"))),
            }
        }
        if answer.stop.len() > MOST_STOPS {
            return Err(RequestError::field(stops.path, format!("at most {MOST_STOPS} strings"), answer.stop.len().to_string()));
        }
    }
    Ok(answer)
}
