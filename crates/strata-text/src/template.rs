//! Chat templates: Jinja as `transformers` sets it up, run within limits.
//!
//! A template comes with a model file. What goes wrong in it is an error: endless loops, text that doubles, output without end,
//! lists nested out of proportion. Not bounded is what the engine does with lists that a template adds to themselves or nests in
//! shared copies, and then adds, compares or joins (`+`, `==`, `~`, `join`): a template written to do harm can still take a core for
//! itself, so model files should come from people one knows.
//!
//! Not supported, and errors: `%` on strings, `encode`, the `generation` block.

use crate::{TemplateError, Tokenizer, json, python};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior};
use serde_json::Value as Json;
use std::io;

/// The longest published templates have some 20 KB.
const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Nesting of messages, tools and extra variables.
const MAX_INPUT_DEPTH: usize = 128;
/// Stack of the rendering thread; only what is used takes memory.
const BASE_STACK_BYTES: usize = 8 << 20;
/// A level of nesting costs 1.5 fuel at least and takes some 70 bytes of stack to free.
const STACK_BYTES_PER_FUEL: u64 = 128;
/// The name of the template and of the thread that renders it.
const NAME: &str = "chat_template";

/// How much work a template may do. One unit is one instruction or 64 bytes made or read, so units also bound memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenderLimits {
    /// Units for any input.
    pub base_fuel: u64,
    /// Further units for each value (message, field, list item) of the input.
    pub fuel_per_value: u64,
    /// Further units for each 64 bytes of text in the input.
    pub fuel_per_64_bytes: u64,
    /// Units for the largest input.
    pub max_fuel: u64,
    /// Bytes of the rendered text.
    pub max_output_bytes: usize,
}

impl Default for RenderLimits {
    /// Some fifty times what published templates use.
    fn default() -> Self {
        Self { base_fuel: 100_000, fuel_per_value: 200, fuel_per_64_bytes: 32, max_fuel: 8_000_000, max_output_bytes: 64 << 20 }
    }
}

/// What a template is rendered with besides the messages.
#[derive(Debug, Clone, Default)]
pub struct RenderOptions<'a> {
    /// The tool list; `None` and null are Python's `None` for the template.
    pub tools: Option<&'a Json>,
    /// End with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// `enable_thinking`; left undefined if `None`, for templates differ in their default.
    pub enable_thinking: Option<bool>,
    /// More variables (`reasoning_effort`, ...). They come last and win.
    pub extra: Option<&'a serde_json::Map<String, Json>>,
}

/// A compiled chat template.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    env: Environment<'static>,
    limits: RenderLimits,
}

/// Source of the error that `raise_exception` makes, to tell it from others.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

impl ChatTemplate {
    /// Compiles `source`. The texts of `tokenizer`'s special tokens become `bos_token`, `eos_token` and `pad_token`.
    pub fn new(source: &str, tokenizer: &Tokenizer, limits: RenderLimits) -> Result<Self, TemplateError> {
        let special = [("bos_token", tokenizer.bos()), ("eos_token", tokenizer.eos()), ("pad_token", tokenizer.padding())];
        let mut template = Self::without_tokenizer(source, limits)?;
        for (name, id) in special {
            if let Some(text) = id.and_then(|id| tokenizer.token_str(id)) {
                template.env.add_global(name, text.to_owned());
            }
        }
        Ok(template)
    }

    /// Compiles `source` without special tokens for it to name.
    pub fn without_tokenizer(source: &str, limits: RenderLimits) -> Result<Self, TemplateError> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(TemplateError::SourceLength { max: MAX_SOURCE_BYTES, found: source.len() });
        }
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        env.set_syntax(syntax.map_err(|e| syntax_error(&e))?);
        env.set_undefined_behavior(UndefinedBehavior::Lenient);
        env.set_auto_escape_callback(|_| AutoEscape::None);
        env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        env.set_formatter(python::formatter);
        env.add_filter("tojson", json::tojson);
        env.add_filter("string", python::string);
        env.add_test("sequence", python::is_sequence);
        env.add_function("raise_exception", |message: String| -> Result<Value, minijinja::Error> {
            let error = minijinja::Error::new(ErrorKind::InvalidOperation, message.clone());
            Err(error.with_source(Raised(message)))
        });
        env.add_template_owned(NAME, source.to_owned()).map_err(|e| syntax_error(&e))?;
        Ok(Self { env, limits })
    }

    /// The text of `messages`, a list of objects with `role`, `content` and so on.
    pub fn render(&self, messages: &Json, options: &RenderOptions) -> Result<String, TemplateError> {
        if !messages.is_array() {
            return Err(TemplateError::MessagesType { found: json_type(messages) });
        }
        let tools = options.tools.unwrap_or(&Json::Null);
        let mut size = InputSize::default();
        size.add("messages", messages)?;
        size.add("tools", tools)?;
        let mut variables = vec![
            ("messages", json::to_template(messages)),
            ("tools", json::to_template(tools)),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(options.add_generation_prompt)),
        ];
        if let Some(on) = options.enable_thinking {
            variables.push(("enable_thinking", Value::from(on)));
        }
        for (name, value) in options.extra.into_iter().flatten() {
            size.add("extra variables", value)?;
            variables.push((name, json::to_template(value)));
        }

        let fuel = size.fuel(&self.limits);
        let mut env = self.env.clone();
        env.set_fuel(Some(fuel));
        let work = || render_now(&env, Value::from_pairs(variables), self.limits.max_output_bytes, fuel);
        // Values are freed recursively: a template that nests lists in a loop needs stack by the level, and a level costs fuel.
        let stack = BASE_STACK_BYTES + fuel.saturating_mul(STACK_BYTES_PER_FUEL) as usize;
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name(NAME.to_owned()).stack_size(stack);
            let thread = thread.spawn_scoped(scope, work).map_err(|e| TemplateError::Thread { detail: e.to_string() })?;
            thread.join().unwrap_or_else(|_| Err(TemplateError::Thread { detail: "the template engine panicked".to_owned() }))
        })
    }
}

fn render_now(env: &Environment<'_>, variables: Value, max: usize, fuel: u64) -> Result<String, TemplateError> {
    let mut out = LimitedOutput { bytes: Vec::new(), max, full: false };
    let rendered = env.get_template(NAME).and_then(|t| t.render_captured_to(variables, &mut out).map(drop));
    match rendered {
        Err(_) if out.full => Err(TemplateError::OutputLength { max }),
        Err(error) => Err(render_error(&error, fuel)),
        // Only whole strings were written, so this cannot lose anything.
        Ok(()) => Ok(String::from_utf8_lossy(&out.bytes).into_owned()),
    }
}

/// How much there is to render.
#[derive(Default)]
struct InputSize {
    values: u64,
    bytes: u64,
}

impl InputSize {
    /// Counts `root`; without recursion, for this is what checks the depth.
    fn add(&mut self, field: &'static str, root: &Json) -> Result<(), TemplateError> {
        let mut todo = vec![(root, 0)];
        while let Some((value, depth)) = todo.pop() {
            if depth > MAX_INPUT_DEPTH {
                let max = MAX_INPUT_DEPTH;
                return Err(TemplateError::Depth { field, max });
            }
            self.values += 1;
            match value {
                Json::String(text) => self.bytes += text.len() as u64,
                Json::Array(items) => todo.extend(items.iter().map(|v| (v, depth + 1))),
                Json::Object(map) => {
                    self.bytes += map.keys().map(|k| k.len() as u64).sum::<u64>();
                    todo.extend(map.values().map(|v| (v, depth + 1)));
                }
                Json::Null | Json::Bool(_) | Json::Number(_) => {}
            }
        }
        Ok(())
    }

    fn fuel(&self, limits: &RenderLimits) -> u64 {
        let values = self.values.saturating_mul(limits.fuel_per_value);
        let bytes = (self.bytes / 64).saturating_mul(limits.fuel_per_64_bytes);
        limits.base_fuel.saturating_add(values).saturating_add(bytes).min(limits.max_fuel)
    }
}

/// Collects the output up to a limit.
struct LimitedOutput {
    bytes: Vec<u8>,
    max: usize,
    full: bool,
}

impl io::Write for LimitedOutput {
    fn write(&mut self, chunk: &[u8]) -> io::Result<usize> {
        if chunk.len() > self.max - self.bytes.len() {
            self.full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(chunk);
        Ok(chunk.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn json_type(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

/// The error and its sources in one line.
fn detail(error: &minijinja::Error) -> String {
    let mut text = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn syntax_error(error: &minijinja::Error) -> TemplateError {
    TemplateError::Syntax { line: error.line().unwrap_or(0), detail: detail(error) }
}

fn render_error(error: &minijinja::Error, fuel: u64) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(Raised(message)) = current.downcast_ref() {
            let message = message.clone();
            return TemplateError::Raised { message };
        }
        let kind = current.downcast_ref().map(minijinja::Error::kind);
        if kind == Some(ErrorKind::OutOfFuel) {
            return TemplateError::OutOfFuel { fuel };
        }
        cause = current.source();
    }
    TemplateError::Render { line: error.line().unwrap_or(0), detail: detail(error) }
}
