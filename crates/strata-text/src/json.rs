//! The `tojson` filter as `transformers` defines it: Python's `json.dumps(value, ensure_ascii=False)`.

use crate::python::{self, MAX_DEPTH};
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// Spaces per level.
const MAX_INDENT: usize = 16;

/// The template's view of JSON data; the order of keys is kept.
pub(crate) fn to_template(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(on) => Value::from(*on),
        serde_json::Value::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(n), _) => Value::from(n),
            (None, Some(n)) => Value::from(n),
            (None, None) => Value::from(n.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => items.iter().map(to_template).collect(),
        serde_json::Value::Object(map) => Value::from_pairs(map.iter().map(|(k, v)| (k.as_str(), to_template(v)))),
    }
}

/// Separators and indentation of one call.
struct Style {
    /// Spaces per level on lines of their own, or one line.
    indent: Option<String>,
    item: String,
    key: String,
    sort_keys: bool,
    ensure_ascii: bool,
}

/// `value | tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`; all but the first by name only.
pub(crate) fn tojson(state: &State, value: &Value, ensure_ascii: Option<bool>, kwargs: Kwargs) -> Result<Value, Error> {
    let named = |name: &str| -> Result<Option<Value>, Error> {
        let value: Option<Value> = kwargs.get(name)?;
        Ok(value.filter(|v| !v.is_none()))
    };
    let indent = match named("indent")? {
        None => None,
        Some(v) => match v.as_str() {
            Some(text) => Some(text.to_owned()),
            None => Some(" ".repeat(usize::try_from(v)?.min(MAX_INDENT))),
        },
    };
    let (item, key) = match named("separators")? {
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
        Some(pair) => (pair.get_item_by_index(0)?.to_string(), pair.get_item_by_index(1)?.to_string()),
    };
    let style = Style {
        indent,
        item,
        key,
        sort_keys: named("sort_keys")?.is_some_and(|v| v.is_true()),
        ensure_ascii: match named("ensure_ascii")? {
            Some(v) => v.is_true(),
            None => ensure_ascii.unwrap_or(false),
        },
    };
    kwargs.assert_all_used()?;
    let mut out = String::new();
    write_value(state, value, &style, 0, &mut out)?;
    Ok(Value::from(out))
}

fn write_value(state: &State, value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(invalid(format!("tojson: nested deeper than {MAX_DEPTH} levels")));
    }
    // Work inside a filter is invisible to the engine's budget.
    state.consume_fuel(1)?;
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => write_number(value, out)?,
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            state.consume_fuel(text.len() as u64 / 64)?;
            write_string(text, style.ensure_ascii, out);
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter()?.map(|item| (None, item));
            write_all(state, ['[', ']'], items, style, depth, out)?;
        }
        ValueKind::Map => {
            let mut entries = Vec::new();
            for key in value.try_iter()? {
                let item = value.get_item(&key)?;
                entries.push((Some(key_text(&key)?), item));
            }
            if style.sort_keys {
                entries.sort_by(|a, b| a.0.cmp(&b.0));
            }
            write_all(state, ['{', '}'], entries.into_iter(), style, depth, out)?;
        }
        kind => return Err(invalid(format!("tojson: a value of kind {kind} is not JSON"))),
    }
    Ok(())
}

fn write_all(
    state: &State,
    brackets: [char; 2],
    items: impl Iterator<Item = (Option<String>, Value)>,
    style: &Style,
    depth: usize,
    out: &mut String,
) -> Result<(), Error> {
    let new_line = |out: &mut String, depth: usize| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    };
    out.push(brackets[0]);
    let mut any = false;
    for (key, item) in items {
        if any {
            out.push_str(&style.item);
        }
        any = true;
        new_line(out, depth + 1);
        if let Some(key) = key {
            write_string(&key, style.ensure_ascii, out);
            out.push_str(&style.key);
        }
        write_value(state, &item, style, depth + 1, out)?;
    }
    if any {
        new_line(out, depth);
    }
    out.push(brackets[1]);
    Ok(())
}

/// Object keys are strings in JSON; Python turns other scalars into their JSON text.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(key.is_true().to_string()),
        ValueKind::Number => {
            let mut text = String::new();
            write_number(key, &mut text)?;
            Ok(text)
        }
        kind => Err(invalid(format!("tojson: a key of kind {kind} is not JSON"))),
    }
}

fn write_number(value: &Value, out: &mut String) -> Result<(), Error> {
    if value.is_integer() {
        out.push_str(&value.to_string());
    } else {
        let x = f64::try_from(value.clone())?;
        if x.is_finite() {
            python::write_float(x, out);
        } else {
            out.push_str(if x.is_nan() {
                "NaN"
            } else if x > 0.0 {
                "Infinity"
            } else {
                "-Infinity"
            });
        }
    }
    Ok(())
}

fn write_string(text: &str, ensure_ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", c as u32)),
            // Python escapes DEL along with everything outside ASCII.
            c if ensure_ascii && c > '~' => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn invalid(detail: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, detail)
}
