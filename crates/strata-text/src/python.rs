//! Values as text, as Python's `str` has it: what `{{ value }}` and `value | string` give.
//!
//! The engine's own conversion follows lists of lists however deep, and a list shared many times over as often as it is shared.
//! This one is bounded in both.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind, Output, State};

/// Nesting beyond this is an error; far beyond any message, and safe for the stack.
pub(crate) const MAX_DEPTH: usize = 200;

/// What `{{ value }}` writes.
pub(crate) fn formatter(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if let Some(text) = value.as_str() {
        return out.write_str(text).map_err(Error::from);
    }
    let mut text = String::new();
    write_text(state, value, 0, &mut text)?;
    out.write_str(&text).map_err(Error::from)
}

/// `value | string`.
pub(crate) fn string(state: &State, value: &Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::String {
        return Ok(value.clone());
    }
    let mut text = String::new();
    write_text(state, value, 0, &mut text)?;
    Ok(Value::from(text))
}

/// The test `is sequence`: whatever has a length and can be indexed, which in Python strings and dicts have and can.
pub(crate) fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map)
}

/// One value; inside a container (`depth` > 0) strings are quoted.
fn write_text(state: &State, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        let detail = format!("value nested deeper than {MAX_DEPTH} levels");
        return Err(Error::new(ErrorKind::InvalidOperation, detail));
    }
    // Work in here is invisible to the engine's budget.
    state.consume_fuel(1)?;
    match value.kind() {
        ValueKind::String if depth > 0 => {
            let text = value.as_str().unwrap_or_default();
            state.consume_fuel(text.len() as u64 / 64)?;
            write_repr(text, out);
        }
        ValueKind::Number if !value.is_integer() => write_float(f64::try_from(value.clone())?, out),
        // The sum of two lists is a lazy iterable to the engine.
        ValueKind::Seq | ValueKind::Iterable => {
            let tuple = value.is_tuple();
            out.push(if tuple { '(' } else { '[' });
            let mut count = 0;
            for item in value.try_iter()? {
                out.push_str(if count > 0 { ", " } else { "" });
                write_text(state, &item, depth + 1, out)?;
                count += 1;
            }
            out.push_str(match (tuple, count) {
                (true, 1) => ",)",
                (true, _) => ")",
                (false, _) => "]",
            });
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                write_text(state, &key, depth + 1, out)?;
                out.push_str(": ");
                write_text(state, &value.get_item(&key)?, depth + 1, out)?;
            }
            out.push('}');
        }
        // The engine writes scalars, and its own objects by name.
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

/// A quoted string: single quotes unless that would need escapes and double ones would not.
fn write_repr(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if c != ' ' && (c.is_control() || c.is_whitespace()) => {
                let code = c as u32;
                out.push_str(&if code < 0x100 { format!("\\x{code:02x}") } else { format!("\\u{code:04x}") });
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// A float as Python's `repr` has it: the shortest digits that give the number back, with an exponent below 1e-4 and from 1e16 on.
pub(crate) fn write_float(x: f64, out: &mut String) {
    if !x.is_finite() {
        out.push_str(if x.is_nan() {
            "nan"
        } else if x > 0.0 {
            "inf"
        } else {
            "-inf"
        });
        return;
    }
    // Rust writes the shortest digits as "-d.ddde-7".
    let text = format!("{x:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if x != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        out.push_str(digits);
        out.push_str(&format!("e{sign}{:02}", exponent.unsigned_abs()));
    } else {
        let plain = x.to_string();
        out.push_str(&plain);
        if !plain.contains('.') {
            out.push_str(".0");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_python_writes_them() {
        for (x, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.25e-7, "1.25e-07"),
            (123456789.125, "123456789.125"),
            (5e-324, "5e-324"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            let mut out = String::new();
            write_float(x, &mut out);
            assert_eq!(out, text);
        }
    }

    #[test]
    fn strings_as_python_writes_them() {
        for (text, repr) in [
            ("a", "'a'"),
            ("it's", "\"it's\""),
            ("'\"", "'\\'\"'"),
            ("\n\t\\", "'\\n\\t\\\\'"),
            ("\u{1}\u{a0}\u{2028}é😀", "'\\x01\\xa0\\u2028é😀'"),
        ] {
            let mut out = String::new();
            write_repr(text, &mut out);
            assert_eq!(out, repr);
        }
    }
}
