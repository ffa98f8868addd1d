//! What can go wrong in a command, and how it ends.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use strata_engine::EngineError;
use strata_engine::sampler::ParamError;
use strata_gguf::GgufError;
use strata_model::{BindError, ForwardError};
use strata_ops::backend::OpError;
use strata_server::ServeError;
use strata_text::{StopStringsError, TemplateError, TokenizerError};
use thiserror::Error;

/// Why a command failed. Every message is one line that says where, what was expected and what was found.
#[derive(Debug, Error)]
pub enum CliError {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Op(#[from] OpError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("{file}: {error}")]
    Tokenizer { file: String, error: TokenizerError },
    #[error("{file}: {error}")]
    Template { file: String, error: TemplateError },
    #[error("{file}: key 'tokenizer.chat_template' is missing, expected a template ({hint})")]
    NoTemplate { file: String, hint: &'static str },
    #[error(transparent)]
    Synth(#[from] strata_synth::SynthError),
    #[error(transparent)]
    Pool(#[from] strata_cpu::pool::PoolError),
    #[error(transparent)]
    Gpu(#[from] strata_gpu::GpuError),
    #[error(transparent)]
    Convert(#[from] crate::quantize::ConvertError),
    #[error(transparent)]
    Imatrix(#[from] crate::quantize::ImatrixError),
    #[error(transparent)]
    Stop(#[from] StopStringsError),
    #[error("{source_name}: expected UTF-8, found other bytes from byte {position} on")]
    Utf8 { source_name: String, position: usize },
    #[error("{source_name}: expected at most {limit} bytes, found more: {why}")]
    TooLong { source_name: String, limit: u64, why: String },
    #[error("{source_name}: the prompt is empty: expected at least one token")]
    EmptyPrompt { source_name: String },
    #[error("{}: cannot read: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("standard output: cannot write: {0}")]
    Output(io::Error),
    #[error("standard input: cannot read: {0}")]
    Input(io::Error),
    #[error("line editor: {0}")]
    Editor(#[from] rustyline::error::ReadlineError),
    #[error("cannot watch for Ctrl-C: {0}")]
    Signal(io::Error),
    #[error(transparent)]
    Serve(#[from] ServeError),
}

impl From<ForwardError> for CliError {
    fn from(e: ForwardError) -> CliError {
        CliError::Engine(e.into())
    }
}

impl From<ParamError> for CliError {
    fn from(e: ParamError) -> CliError {
        CliError::Engine(e.into())
    }
}

impl CliError {
    /// The message on one line; `None` where the reader of the output has gone and nobody waits for one.
    pub fn line(&self) -> Option<String> {
        match self {
            CliError::Output(e) if e.kind() == io::ErrorKind::BrokenPipe => None,
            _ => Some(self.to_string().replace(['\n', '\r'], " ")),
        }
    }

    /// 2 where the command line asks for something that cannot be, 1 for everything that failed on the way.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            CliError::Usage(_)
            | CliError::Serve(ServeError::Insecure(_))
            | CliError::Stop(_)
            | CliError::Engine(EngineError::Option { .. } | EngineError::Params(_)) => ExitCode::from(2),
            _ => ExitCode::from(1),
        }
    }
}
