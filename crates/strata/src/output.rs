//! What goes to standard output, and the line of statistics.

use crate::error::CliError;
use crate::generate::Answer;
use crate::hash::token_hash_hex;
use crate::settings::Setting;
use serde_json::{Map, Value, json};
use std::io::{IsTerminal, Write, stdout};
use strata_text::Tokenizer;

/// Writes a whole text to standard output.
///
/// # Errors
/// It cannot be written.
pub fn print(text: &str) -> Result<(), CliError> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)
}

/// A line on standard error; where nobody reads it, nothing is lost.
pub fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A line on standard error that the next one overwrites, where that is a terminal.
pub fn note_if_terminal(line: &str) {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[K{line}\r");
    }
}

/// A JSON value on indented lines of its own.
///
/// # Errors
/// It cannot be written.
pub fn print_json(value: &Value) -> Result<(), CliError> {
    print(&format!("{value:#}\n"))
}

/// The object of `run --json`.
pub fn answer_json(
    model: &str,
    mode: &str,
    prompt_tokens: usize,
    a: &Answer,
    tokenizer: &Tokenizer,
    settings: &[Setting],
    logprobs: bool,
) -> Value {
    let ids = a.ids();
    let mut v = json!({
        "text": a.text,
        "token_ids": ids,
        "token_hash": token_hash_hex(&ids),
        "finish_reason": a.finish.name(),
        "prompt_tokens": prompt_tokens,
        "generated_tokens": ids.len(),
        "prefill_tok_s": a.prefill_rate(),
        "decode_tok_s": a.decode_rate(),
        "acceptance": a.acceptance(),
        "drafted_tokens": a.drafted,
        "accepted_tokens": a.accepted,
        "steps": a.steps,
        "model": model,
        "prompt_mode": mode,
        "settings": settings.iter().map(|s| (s.name.clone(), s.value.clone())).collect::<Map<_, _>>(),
        "origins": settings.iter().map(|s| (s.name.clone(), json!(s.origin))).collect::<Map<_, _>>(),
    });
    if logprobs {
        let one = |id: u32, logprob: Option<f32>| json!({"id": id, "token": tokenizer.decode(&[id], false), "logprob": logprob});
        let all = a.tokens.iter().map(|t| {
            let mut v = one(t.id, t.logprob);
            v["top"] = t.top.iter().map(|x| one(x.token, Some(x.logprob))).collect();
            v
        });
        v["logprobs"] = all.collect();
    }
    v
}

/// Speeds and counts of an answer on one line.
pub fn statistics(prompt_tokens: usize, a: &Answer) -> String {
    let speed = |r: Option<f64>| r.map_or("-".to_owned(), |r| format!("{r:.1} tok/s"));
    let mut line =
        format!("prompt {prompt_tokens} tokens, {}; answer {} tokens, {}", speed(a.prefill_rate()), a.tokens.len(), speed(a.decode_rate()));
    if let Some(share) = a.acceptance() {
        line += &format!("; {:.1} % of {} drafted tokens accepted", 100.0 * share, a.drafted);
    }
    line + &format!("; ended by {}", a.finish.name())
}

/// A number of bytes for people.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let (mut x, mut unit) = (n as f64, "B");
    for u in UNITS {
        if x < 1024.0 {
            break;
        }
        (x, unit) = (x / 1024.0, u);
    }
    if unit == "B" { format!("{n} B") } else { format!("{x:.1} {unit}") }
}
