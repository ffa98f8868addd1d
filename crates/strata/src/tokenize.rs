//! `strata tokenize`: text to ids and back.

use crate::cli::TokenizeArgs;
use crate::error::CliError;
use crate::{load, output, prompt};
use serde_json::json;
use std::process::ExitCode;

/// Bytes of a text: more than any model's context can hold.
const MAX_BYTES: u64 = 64 << 20;

/// Prints the ids of a text, or the text of ids.
///
/// # Errors
/// A file or text that cannot be used, or ids outside the vocabulary.
pub fn run(args: &TokenizeArgs) -> Result<ExitCode, CliError> {
    let gguf = load::open(args.model.as_deref())?;
    let (tokenizer, _) = load::tokenizer(&gguf)?;
    let ids = match &args.ids {
        Some(ids) => {
            let vocab = tokenizer.vocab_size();
            if let Some(position) = ids.iter().position(|id| *id as usize >= vocab) {
                return Err(strata_model::ForwardError::TokenOutOfRange { id: ids[position], position, vocab }.into());
            }
            ids.clone()
        }
        None => {
            let (text, _) = prompt::text(args.file.as_deref(), args.text.as_deref(), MAX_BYTES, "the limit of this command")?;
            let ids = tokenizer.encode(&text, args.special);
            ids.map_err(|error| CliError::Tokenizer { file: load::name_of(&gguf), error })?
        }
    };
    if args.json {
        let token = |id: &u32| {
            let bytes = tokenizer.token_bytes(*id).unwrap_or_default();
            json!({"id": id, "text": String::from_utf8_lossy(bytes), "bytes": bytes, "kind": tokenizer.kind(*id).map(|k| format!("{k:?}"))})
        };
        let tokens: Vec<_> = ids.iter().map(token).collect();
        output::print_json(&json!({"count": ids.len(), "ids": ids, "tokens": tokens, "text": tokenizer.decode(&ids, false)}))?;
    } else if args.ids_only {
        let all: Vec<String> = ids.iter().map(u32::to_string).collect();
        output::print(&format!("{}\n", all.join(",")))?;
    } else if args.ids.is_some() {
        output::print(&format!("{}\n", tokenizer.decode(&ids, false)))?;
    } else {
        // a token may be a part of a character: its bytes then
        let shown = |bytes: &[u8]| match std::str::from_utf8(bytes) {
            Ok(text) => format!("{text:?}"),
            Err(_) => format!("b\"{}\"", bytes.escape_ascii()),
        };
        let line = |id: &u32| format!("{id:>8} {}\n", shown(tokenizer.token_bytes(*id).unwrap_or_default()));
        output::print(&(ids.iter().map(line).collect::<String>() + &format!("{} tokens\n", ids.len())))?;
    }
    Ok(ExitCode::SUCCESS)
}
