//! Bodies of chat completions and completions. Fields that neither route knows are ignored; each known one is checked, and an error
//! names it.

use crate::app::{App, random};
use crate::failure::Failure;
use crate::generate::{AnswerOptions, Format, RequestError, ToolChoice};
use serde::Deserialize;
use serde_json::{Map, Value};

const MAX_STOPS: usize = 16;
const MAX_BIAS: usize = 1024;
const MAX_TOOLS: usize = 256;
const MAX_TOOL_NAME: usize = 128;
/// Seeds made here: JavaScript can hold them.
const SEED_BITS: u32 = 53;

/// Fields of both routes. Those whose shape varies are taken apart by hand.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Body {
    pub model: Option<String>,
    pub messages: Option<Vec<Value>>,
    pub prompt: Option<Value>,
    pub suffix: Option<String>,
    pub echo: Option<bool>,
    pub best_of: Option<u32>,
    pub stream: Option<bool>,
    pub stream_options: Option<StreamOptions>,
    pub return_progress: Option<bool>,
    pub n: Option<u32>,
    pub max_tokens: Option<u64>,
    pub max_completion_tokens: Option<u64>,
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
    pub top_k: Option<i64>,
    pub min_p: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub repetition_penalty: Option<f32>,
    pub repeat_penalty: Option<f32>,
    pub repeat_last_n: Option<i64>,
    pub seed: Option<Value>,
    pub stop: Option<Value>,
    pub ignore_eos: Option<bool>,
    pub logit_bias: Option<Map<String, Value>>,
    pub logprobs: Option<Value>,
    pub top_logprobs: Option<u32>,
    pub response_format: Option<Value>,
    pub grammar: Option<String>,
    pub tools: Option<Vec<Value>>,
    pub tool_choice: Option<Value>,
    pub parallel_tool_calls: Option<bool>,
    pub reasoning_effort: Option<String>,
    pub chat_template_kwargs: Option<Map<String, Value>>,
    pub cache_prompt: Option<bool>,
}

/// `stream_options`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StreamOptions {
    pub include_usage: Option<bool>,
}

impl Body {
    /// The options that both routes have; `logprobs` is left to them.
    ///
    /// # Errors
    /// A field out of range.
    pub fn options(&self, app: &App, logprobs: Option<u8>) -> Result<AnswerOptions, Failure> {
        let mut o = AnswerOptions::default();
        let p = &mut o.params;
        let set = |to: &mut f32, from: Option<f32>| *to = from.unwrap_or(*to);
        set(&mut p.temperature, self.temperature);
        set(&mut p.top_p, self.top_p);
        set(&mut p.min_p, self.min_p);
        set(&mut p.presence_penalty, self.presence_penalty);
        set(&mut p.frequency_penalty, self.frequency_penalty);
        set(&mut p.repetition_penalty, self.repetition_penalty.or(self.repeat_penalty));
        p.top_k = match self.top_k {
            // -1 is off in vLLM's API
            None | Some(-1) => 0,
            Some(k) => u32::try_from(k).map_err(|_| field("top_k", "0 or -1 (off), or up to 4294967295", k))?,
        };
        p.penalty_last_n = match self.repeat_last_n {
            None | Some(-1) => None,
            Some(n) => Some(usize::try_from(n).map_err(|_| field("repeat_last_n", "-1 (all) or a number of tokens", n))?),
        };
        p.seed = seed(self.seed.as_ref())?;
        p.logprobs = logprobs;
        p.validate().map_err(|e| Failure::bad(self.as_sent(e.field), e.to_string()))?;
        o.n = self.n.unwrap_or(1);
        if !(1..=app.options.limits.choices).contains(&o.n) {
            return Err(field("n", format!("1 to {}", app.options.limits.choices), o.n));
        }
        if self.best_of.is_some_and(|b| b != o.n) {
            return Err(field("best_of", "what n is", self.best_of.unwrap_or(0)));
        }
        o.max_tokens = match self.max_completion_tokens.or(self.max_tokens) {
            Some(0) => {
                let name = if self.max_completion_tokens.is_some() { "max_completion_tokens" } else { "max_tokens" };
                return Err(field(name, "at least 1", 0));
            }
            n => n.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
        };
        o.stop = stops(self.stop.as_ref())?;
        o.ignore_eos = self.ignore_eos.unwrap_or(false);
        o.bias = bias(self.logit_bias.as_ref(), app)?;
        o.format = self.format(app.options.limits.schema)?;
        o.deadline = app.deadline();
        o.use_cache = self.cache_prompt.unwrap_or(true);
        Ok(o)
    }

    /// The name by which a parameter of the sampler came.
    fn as_sent<'a>(&self, name: &'a str) -> &'a str {
        if name == "repetition_penalty" && self.repetition_penalty.is_none() { "repeat_penalty" } else { name }
    }

    fn format(&self, limit: usize) -> Result<Format, Failure> {
        let format = match &self.response_format {
            None | Some(Value::Null) => Format::Text,
            Some(f) => match f["type"].as_str() {
                Some("text") => Format::Text,
                Some("json_object") => match f.get("schema") {
                    None | Some(Value::Null) => Format::JsonObject,
                    Some(schema) => Format::JsonSchema(schema.clone()),
                },
                Some("json_schema") => match f.pointer("/json_schema/schema") {
                    Some(schema @ (Value::Object(_) | Value::Bool(_))) => Format::JsonSchema(schema.clone()),
                    other => return Err(field("response_format.json_schema.schema", "a JSON schema", kind(other))),
                },
                _ => return Err(field("response_format.type", "text, json_object or json_schema", short(&f["type"]))),
            },
        };
        let format = match (&self.grammar, format) {
            (None, format) => format,
            (Some(grammar), Format::Text) => Format::Lark(grammar.clone()),
            (Some(_), _) => return Err(field("grammar", "no response_format beside it", "both")),
        };
        let (name, bytes) = match &format {
            Format::Text | Format::JsonObject => return Ok(format),
            Format::JsonSchema(schema) => ("response_format", schema.to_string().len()),
            Format::Lark(grammar) => ("grammar", grammar.len()),
        };
        if bytes > limit {
            return Err(field(name, format!("at most {limit} bytes"), format!("{bytes} bytes")));
        }
        Ok(format)
    }

    /// `tools` and `tool_choice`.
    ///
    /// # Errors
    /// A tool without a name, or a choice among tools that are not there.
    pub fn tools(&self, app: &App) -> Result<(Vec<Value>, ToolChoice), Failure> {
        let tools = self.tools.clone().unwrap_or_default();
        if tools.len() > MAX_TOOLS {
            return Err(field("tools", format!("at most {MAX_TOOLS} tools"), tools.len()));
        }
        let mut bytes = 0;
        for (i, tool) in tools.iter().enumerate() {
            let at = |name: &str| format!("tools[{i}].{name}");
            if tool["type"] != "function" {
                return Err(field(&at("type"), "function", short(&tool["type"])));
            }
            let name = tool["function"]["name"].as_str().unwrap_or_default();
            let good = |b: u8| b.is_ascii_alphanumeric() || b"_-.:/".contains(&b);
            if !(1..=MAX_TOOL_NAME).contains(&name.len()) || !name.bytes().all(good) {
                let expected = format!("1 to {MAX_TOOL_NAME} of the characters a-z, A-Z, 0-9, _, -, ., : and /");
                return Err(field(&at("function.name"), expected, short(&tool["function"]["name"])));
            }
            if !matches!(tool["function"].get("parameters"), None | Some(Value::Null | Value::Object(_))) {
                return Err(field(&at("function.parameters"), "a JSON schema", kind(tool["function"].get("parameters"))));
            }
            bytes += tool.to_string().len();
        }
        let limit = app.options.limits.schema;
        if bytes > limit {
            return Err(field("tools", format!("at most {limit} bytes"), format!("{bytes} bytes")));
        }
        let choice = match &self.tool_choice {
            None | Some(Value::Null) => ToolChoice::Auto,
            Some(Value::String(s)) if s == "auto" => ToolChoice::Auto,
            Some(Value::String(s)) if s == "none" => ToolChoice::None,
            Some(Value::String(s)) if s == "required" => ToolChoice::Required,
            Some(v) => match (v["type"].as_str(), v["function"]["name"].as_str()) {
                (Some("function"), Some(name)) => ToolChoice::Named(name.to_owned()),
                _ => return Err(field("tool_choice", "auto, none, required or {\"type\": \"function\", ...}", short(v))),
            },
        };
        let known = |name: &str| tools.iter().any(|t| t["function"]["name"] == name);
        match &choice {
            ToolChoice::Named(name) if !known(name) => Err(field("tool_choice.function.name", "the name of one of the tools", name)),
            ToolChoice::Required if tools.is_empty() => Err(field("tool_choice", "tools to choose from", "none")),
            _ => Ok((tools, choice)),
        }
    }

    pub fn streams(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    pub fn include_usage(&self) -> bool {
        self.stream_options.and_then(|o| o.include_usage).unwrap_or(false)
    }
}

/// A field out of its range.
pub fn field(name: &str, expected: impl Into<String>, found: impl ToString) -> Failure {
    RequestError::field(name, expected, found.to_string()).into()
}

/// The value of a field in an error: short, whatever was sent.
pub fn short(v: &Value) -> String {
    match v {
        Value::Array(_) | Value::Object(_) | Value::Null => kind(Some(v)).to_owned(),
        other => {
            let text = other.to_string();
            text.char_indices().nth(60).map_or(text.clone(), |(i, _)| format!("{}...", &text[..i]))
        }
    }
}

/// The kind of a value in an error.
pub fn kind(v: Option<&Value>) -> &'static str {
    match v {
        None => "nothing",
        Some(Value::Null) => "null",
        Some(Value::Bool(_)) => "a boolean",
        Some(Value::Number(_)) => "a number",
        Some(Value::String(_)) => "a string",
        Some(Value::Array(_)) => "a list",
        Some(Value::Object(_)) => "an object",
    }
}

/// Any integer of 64 bits, negative ones by their bits; without one a random one, which the answer tells.
fn seed(v: Option<&Value>) -> Result<u64, Failure> {
    match v {
        None | Some(Value::Null) => Ok(random() >> (64 - SEED_BITS)),
        Some(v) => v.as_u64().or_else(|| v.as_i64().map(|s| s as u64)).ok_or_else(|| field("seed", "an integer of 64 bits", short(v))),
    }
}

fn stops(v: Option<&Value>) -> Result<Vec<String>, Failure> {
    let many = match v {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::String(s)) => return Ok(vec![s.clone()]),
        Some(Value::Array(many)) => many,
        Some(other) => return Err(field("stop", "a string or a list of strings", short(other))),
    };
    if many.len() > MAX_STOPS {
        return Err(field("stop", format!("at most {MAX_STOPS} strings"), many.len()));
    }
    let one = |(i, s): (usize, &Value)| s.as_str().map(str::to_owned).ok_or_else(|| field(&format!("stop[{i}]"), "a string", short(s)));
    many.iter().enumerate().map(one).collect()
}

fn bias(map: Option<&Map<String, Value>>, app: &App) -> Result<Vec<(u32, f32)>, Failure> {
    let map = map.into_iter().flatten();
    let vocab = app.served()?.runner.facts().vocab;
    let mut out = Vec::new();
    for (id, value) in map {
        let number = value.as_f64().filter(|v| (-100.0..=100.0).contains(v));
        let number = number.ok_or_else(|| field(&format!("logit_bias.{id}"), "a number from -100 to 100", short(value)))?;
        let known = id.parse::<u32>().ok().filter(|id| (*id as usize) < vocab);
        let id = known.ok_or_else(|| field("logit_bias", format!("token ids below {vocab}"), short(&Value::from(id.as_str()))))?;
        out.push((id, number as f32));
    }
    if out.len() > MAX_BIAS {
        return Err(field("logit_bias", format!("at most {MAX_BIAS} tokens"), out.len()));
    }
    // the order of a sum of one term does not matter, that of tokens named twice ("7", "07") would
    out.sort_unstable_by_key(|(id, _)| *id);
    match out.windows(2).find(|w| w[0].0 == w[1].0) {
        Some(w) => Err(field("logit_bias", "each token once", format!("token {} twice", w[0].0))),
        None => Ok(out),
    }
}
