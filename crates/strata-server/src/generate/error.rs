//! Why a request is not taken, whatever API it came through.

use strata_engine::{EngineError, Refused};
use strata_grammar::GrammarError;
use strata_text::{MessageError, StopStringsError, TemplateError, TokenizerError};
use thiserror::Error;

/// A request that is refused before any answer begins.
#[derive(Debug, Error)]
pub enum RequestError {
    /// A field has a value that it cannot have.
    #[error("{field}: expected {expected}, found {found}")]
    Field { field: String, expected: String, found: String },
    /// The prompt leaves no room for an answer.
    #[error("{field}: the prompt has {found} tokens, the context holds {capacity} and one must be left for an answer")]
    PromptTooLong { field: &'static str, found: usize, capacity: usize },
    #[error("{field}: {error}")]
    Template { field: &'static str, error: TemplateError },
    #[error("{field}: {error}")]
    Tokenizer { field: &'static str, error: TokenizerError },
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error(transparent)]
    Grammar(GrammarError),
    #[error(transparent)]
    Stop(#[from] StopStringsError),
    /// As many requests wait as may.
    #[error("{waiting} requests are waiting, which is the limit; try again later")]
    Busy { waiting: usize },
    #[error("the server is stopping")]
    Stopping,
    /// The model is being loaded.
    #[error("the model is being loaded")]
    Loading,
    #[error(transparent)]
    Engine(EngineError),
    /// It did not end in time.
    #[error("the request did not end within the server's time limit")]
    Deadline,
    /// The server failed.
    #[error("{0}")]
    Internal(String),
}

impl RequestError {
    /// A value that a field cannot have.
    pub fn field(field: impl Into<String>, expected: impl Into<String>, found: impl Into<String>) -> RequestError {
        RequestError::Field { field: field.into(), expected: expected.into(), found: found.into() }
    }

    /// The field at fault, where there is one.
    pub fn param(&self) -> Option<&str> {
        match self {
            RequestError::Field { field, .. } => Some(field),
            RequestError::PromptTooLong { field, .. } | RequestError::Template { field, .. } | RequestError::Tokenizer { field, .. } => {
                Some(field)
            }
            RequestError::Stop(_) => Some("stop"),
            RequestError::Grammar(
                GrammarError::Field { field, .. } | GrammarError::Limit { field, .. } | GrammarError::Invalid { field, .. },
            ) => Some(if field == "schema" { "response_format" } else { field }),
            RequestError::Grammar(GrammarError::UnknownTool { .. }) => Some("tool_choice"),
            RequestError::Message(MessageError::Field { field, .. } | MessageError::NotText { field, .. }) => Some(field),
            RequestError::Engine(EngineError::Params(e)) => Some(e.field),
            RequestError::Engine(EngineError::EmptyPrompt) => Some("prompt"),
            _ => None,
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            RequestError::Busy { .. } => 429,
            RequestError::Stopping | RequestError::Loading => 503,
            RequestError::Deadline => 504,
            RequestError::Internal(_) => 500,
            RequestError::Engine(EngineError::Params(_) | EngineError::EmptyPrompt | EngineError::PromptTooLong { .. }) => 400,
            RequestError::Engine(EngineError::Forward(_) | EngineError::Option { .. }) => 400,
            RequestError::Engine(_) => 500,
            // the vocabulary or the system lacks something: no fault of the request
            RequestError::Grammar(GrammarError::NoToken { .. } | GrammarError::NoStop | GrammarError::Thread { .. }) => 500,
            RequestError::Grammar(_) => 400,
            RequestError::Field { .. }
            | RequestError::PromptTooLong { .. }
            | RequestError::Template { .. }
            | RequestError::Tokenizer { .. }
            | RequestError::Message(_)
            | RequestError::Stop(_) => 400,
        }
    }

    /// Seconds after which it is worth trying again.
    pub fn retry_after(&self) -> Option<u32> {
        match self {
            RequestError::Busy { .. } => Some(1),
            RequestError::Loading | RequestError::Stopping => Some(5),
            _ => None,
        }
    }
}

impl From<Refused> for RequestError {
    fn from(e: Refused) -> RequestError {
        match e {
            Refused::QueueFull { waiting } => RequestError::Busy { waiting },
            Refused::Stopping => RequestError::Stopping,
            Refused::Bad(e) => RequestError::Engine(e),
        }
    }
}
