//! What is asked for, whatever API it came through.

use serde_json::{Map, Value};
use std::time::Instant;
use strata_engine::sampler::SamplingParams;

/// A conversation to go on with.
#[derive(Clone, Debug, Default)]
pub struct ChatRequest {
    /// Objects with `role`, `content` and so on, in the form of OpenAI's chat completions.
    pub messages: Vec<Value>,
    /// Tool objects as OpenAI's chat completions has them; none: an empty list.
    pub tools: Vec<Value>,
    pub tool_choice: ToolChoice,
    /// Several calls in one answer.
    pub parallel_tool_calls: bool,
    /// `enable_thinking` of the template; `None` leaves it to the template.
    pub thinking: Option<bool>,
    /// `reasoning_effort` of the template.
    pub effort: Option<String>,
    /// More variables of the template. They win over the two above.
    pub template_args: Map<String, Value>,
    pub answer: AnswerOptions,
}

/// Texts to go on with. The choices of the second prompt are numbered behind those of the first, and so on.
#[derive(Clone, Debug)]
pub struct CompletionRequest {
    pub prompts: Vec<Prompt>,
    pub answer: AnswerOptions,
}

/// A prompt that no template is applied to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Markers such as `<|im_start|>` in it are their tokens.
    Text(String),
    Ids(Vec<u32>),
}

/// How answers are drawn, how many, and when they end.
#[derive(Clone, Debug)]
pub struct AnswerOptions {
    /// `logprobs` in it asks for [`TokenInfo`](super::TokenInfo)s.
    pub params: SamplingParams,
    /// Answers to each prompt.
    pub n: u32,
    /// Tokens of an answer; `None`: until the context is full.
    pub max_tokens: Option<usize>,
    pub stop: Vec<String>,
    /// Stop tokens are tokens like others.
    pub ignore_eos: bool,
    /// Added to logits.
    pub bias: Vec<(u32, f32)>,
    pub format: Format,
    /// From this moment on it is ended, if that is earlier than the server's own limit.
    pub deadline: Option<Instant>,
    /// Read from the prefix cache and leave states there.
    pub use_cache: bool,
}

/// What the text of an answer must be.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Format {
    #[default]
    Text,
    JsonObject,
    JsonSchema(Value),
    /// A grammar in the Lark notation.
    Lark(String),
}

/// Whether tools are to be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    #[default]
    Auto,
    /// Tools are not shown to the model.
    None,
    /// At least one call.
    Required,
    /// A call of this tool.
    Named(String),
}

impl Default for AnswerOptions {
    /// Drawn as `strata chat` does, with seed 0.
    fn default() -> Self {
        AnswerOptions {
            params: SamplingParams { temperature: 0.7, top_p: 0.95, ..SamplingParams::default() },
            n: 1,
            max_tokens: None,
            stop: Vec::new(),
            ignore_eos: false,
            bias: Vec::new(),
            format: Format::Text,
            deadline: None,
            use_cache: true,
        }
    }
}
