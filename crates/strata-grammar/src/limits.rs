//! What a grammar from outside may be, before the library sees it: it walks them by recursion.

use crate::GrammarError;
use serde_json::Value;

/// Levels of lists and objects in a schema.
const MAX_DEPTH: usize = 64;
/// Values in a schema.
const MAX_VALUES: usize = 20_000;
/// Bytes of all texts in a schema.
const MAX_SCHEMA_BYTES: usize = 1 << 20;
const MAX_LARK_BYTES: usize = 64 << 10;
/// Brackets open at a time.
const MAX_BRACKETS: usize = 128;

pub(crate) fn schema(field: &str, root: &Value) -> Result<(), GrammarError> {
    let (mut values, mut bytes) = (0, 0);
    let mut todo = vec![(root, 1)];
    while let Some((value, depth)) = todo.pop() {
        values += 1;
        match value {
            Value::String(text) => bytes += text.len(),
            Value::Array(items) => todo.extend(items.iter().map(|v| (v, depth + 1))),
            Value::Object(map) => {
                bytes += map.keys().map(String::len).sum::<usize>();
                todo.extend(map.values().map(|v| (v, depth + 1)));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        check(field, "levels of nesting", MAX_DEPTH, depth)?;
        check(field, "values", MAX_VALUES, values)?;
        check(field, "bytes of text", MAX_SCHEMA_BYTES, bytes)?;
    }
    Ok(())
}

pub(crate) fn lark(field: &str, text: &str) -> Result<(), GrammarError> {
    check(field, "bytes", MAX_LARK_BYTES, text.len())?;
    let mut open = 0usize;
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        check(field, "open brackets", MAX_BRACKETS, open)?;
    }
    Ok(())
}

pub(crate) fn check(field: &str, unit: &'static str, max: usize, found: usize) -> Result<(), GrammarError> {
    if found > max { Err(GrammarError::Limit { field: field.to_owned(), unit, max, found }) } else { Ok(()) }
}
