//! Tokenizer and chat template built from GGUF metadata.
//!
//! * [`Tokenizer`]: byte-level BPE (`tokenizer.ggml.model` = `gpt2`) whose ids equal those of the Hugging Face tokenizer.
//! * [`StreamDecoder`]: token ids to text while they are generated, never cutting a character in two.
//! * [`StopStrings`]: finds stop strings in streamed text, also across chunk borders.
//! * [`ChatTemplate`]: renders the Jinja template of a model file as `transformers` does, within limits.
//! * [`ReplyParser`]: takes an answer apart while it is written: reasoning, content, tool calls.
//!
//! Everything is `Send + Sync`; a tokenizer or template is built once and shared.

mod alphabet;
mod error;
mod json;
mod marks;
mod messages;
mod pretokenize;
mod python;
mod reply;
mod source;
mod stop;
mod stream;
mod template;
mod tokenizer;
mod vocab;

pub use error::{StopStringsError, TemplateError, TokenizerError};
pub use marks::{TurnEnd, turn_ends};
pub use messages::{MessageError, template_messages};
pub use pretokenize::SUPPORTED_PRE;
pub use reply::{CallFormat, ReplyEvent, ReplyParser, ReplyStart, ToolTypes, Types};
pub use source::{TokenKind, TokenizerSource};
pub use stop::{StopOutput, StopStrings};
pub use stream::{StreamDecoder, Utf8Stream};
pub use template::{ChatTemplate, RenderLimits, RenderOptions};
pub use tokenizer::Tokenizer;
