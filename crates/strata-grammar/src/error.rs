//! Typed errors; each names the field at fault.

use serde_json::Value;
use thiserror::Error;

/// Bytes of the library's message that are passed on.
const MAX_DETAIL: usize = 500;

/// Why a constraint could not be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GrammarError {
    /// A value is of another form than expected.
    #[error("{field}: expected {expected}, found {found}")]
    Field { field: String, expected: &'static str, found: String },
    /// Too large to be compiled in sensible time.
    #[error("{field}: at most {max} {unit}, found {found}")]
    Limit { field: String, unit: &'static str, max: usize, found: usize },
    /// The grammar's parser refuses it.
    #[error("{field}: {detail}")]
    Invalid { field: String, detail: String },
    /// `tool_choice` names none of the tools.
    #[error("tool_choice: no tool is named {name:?}")]
    UnknownTool { name: String },
    /// A token that the grammar needs.
    #[error("tokenizer.ggml.tokens: expected a control or user-defined token {text:?}, found none")]
    NoToken { text: &'static str },
    /// No token ends an answer.
    #[error("tokenizer.ggml.eos_token_id: expected an end-of-text token, found none")]
    NoStop,
    /// A thread could not be started.
    #[error("thread for grammars: {detail}")]
    Thread { detail: String },
}

impl GrammarError {
    pub(crate) fn field(field: &str, expected: &'static str, found: &Value) -> Self {
        let mut found = found.to_string();
        shorten(&mut found, 40);
        Self::Field { field: field.to_owned(), expected, found }
    }

    pub(crate) fn library(field: &str, error: &dyn std::fmt::Display) -> Self {
        Self::invalid(field, &error.to_string())
    }

    /// The library's message, without what it adds for its developers.
    pub(crate) fn invalid(field: &str, detail: &str) -> Self {
        let detail = detail.split("\n<").next().unwrap_or_default();
        let mut detail = detail.trim().to_owned();
        shorten(&mut detail, MAX_DETAIL);
        Self::Invalid { field: field.to_owned(), detail }
    }
}

fn shorten(text: &mut String, max: usize) {
    if text.len() > max {
        let cut = (0..=max).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
        text.truncate(cut);
        text.push_str("...");
    }
}
