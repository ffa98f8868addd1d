//! From the command line to prompt ids.

use crate::cli::PromptArgs;
use crate::error::CliError;
use crate::load::Loaded;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, stdin};
use std::path::Path;
use strata_text::{ChatTemplate, RenderOptions};

/// How a prompt was made.
pub struct Prompt {
    pub ids: Vec<u32>,
    /// `chat`, `raw` or `ids`.
    pub mode: &'static str,
}

/// The ids of what the flags name.
///
/// # Errors
/// A prompt that cannot be read, is empty, longer than any that the model can take, or not UTF-8.
pub fn read(args: &PromptArgs, model: &Loaded, limit_tokens: usize) -> Result<Prompt, CliError> {
    if let Some(ids) = &args.ids {
        return Ok(Prompt { ids: ids.clone(), mode: "ids" });
    }
    let why = format!("more than {limit_tokens} tokens, the context, can stand for");
    let (text, source) = text(args.prompt_file.as_deref(), args.prompt.as_deref(), byte_limit(model, limit_tokens), &why)?;
    if text.is_empty() {
        return Err(CliError::EmptyPrompt { source_name: source });
    }
    if args.raw || !(args.chat || args.think || args.system.is_some() || model.has_template()) {
        return Ok(Prompt { ids: with_bos(model, encode(model, &text, false)?), mode: "raw" });
    }
    let template = model.template("--raw takes the prompt as it is")?;
    let mut messages: Vec<Value> = Vec::new();
    messages.extend(args.system.iter().map(|s| json!({"role": "system", "content": s})));
    messages.push(json!({"role": "user", "content": text}));
    Ok(Prompt { ids: chat_ids(model, &template, messages, args.think)?, mode: "chat" })
}

/// The ids of a conversation, up to the opening of the assistant's turn.
///
/// # Errors
/// The template refuses the messages.
pub fn chat_ids(model: &Loaded, template: &ChatTemplate, messages: Vec<Value>, think: bool) -> Result<Vec<u32>, CliError> {
    let options = RenderOptions { add_generation_prompt: true, enable_thinking: Some(think), ..RenderOptions::default() };
    let text = template.render(&Value::Array(messages), &options);
    let text = text.map_err(|error| CliError::Template { file: model.name(), error })?;
    Ok(with_bos(model, encode(model, &text, true)?))
}

fn encode(model: &Loaded, text: &str, parse_special: bool) -> Result<Vec<u32>, CliError> {
    let ids = model.tokenizer.encode(text, parse_special);
    ids.map_err(|error| CliError::Tokenizer { file: model.name(), error })
}

/// Puts the begin-of-sequence token first, where the file asks for one and a template has not put it there.
fn with_bos(model: &Loaded, mut ids: Vec<u32>) -> Vec<u32> {
    if let Some(bos) = model.tokenizer.bos_to_add()
        && ids.first() != Some(&bos)
    {
        ids.insert(0, bos);
    }
    ids
}

/// Reads a text from a file, from standard input (`-`) or from the argument itself; also gives the name of where it was.
///
/// # Errors
/// It cannot be read, has more than `limit` bytes (`why` says why that is too many), or is not UTF-8.
pub fn text(file: Option<&Path>, argument: Option<&OsStr>, limit: u64, why: &str) -> Result<(String, String), CliError> {
    let read = |from: &mut dyn Read| {
        let mut bytes = Vec::new();
        from.take(limit.saturating_add(1)).read_to_end(&mut bytes).map(|_| bytes)
    };
    let (bytes, source_name) = match (file, argument) {
        (Some(path), _) => {
            let cannot = |error| CliError::Read { path: path.to_owned(), error };
            (File::open(path).and_then(|mut f| read(&mut f)).map_err(cannot)?, path.display().to_string())
        }
        (None, Some(p)) if p == "-" => (read(&mut stdin().lock()).map_err(CliError::Input)?, "standard input".into()),
        (None, p) => (p.unwrap_or_default().as_encoded_bytes().to_vec(), "PROMPT".into()),
    };
    if bytes.len() as u64 > limit {
        return Err(CliError::TooLong { source_name, limit, why: why.to_owned() });
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok((text, source_name)),
        Err(e) => Err(CliError::Utf8 { source_name, position: e.utf8_error().valid_up_to() }),
    }
}

/// Bytes above which a text has more than `tokens` tokens for certain: no token stands for more bytes than the longest, and
/// normalising shrinks no text to less than a quarter.
fn byte_limit(model: &Loaded, tokens: usize) -> u64 {
    let t = &model.tokenizer;
    let longest = (0..t.vocab_size() as u32).filter_map(|id| t.token_bytes(id)).map(<[u8]>::len).max().unwrap_or(1);
    (tokens as u64).saturating_mul(longest as u64).saturating_mul(4)
}
