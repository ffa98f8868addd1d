//! Which JSON types a tool's parameters may have, as far as their schemas say.

use serde_json::Value;
use std::collections::HashMap;
use std::ops::{BitAnd, BitOr};

/// Schemas looked at for one tool.
const MAX_VISITS: usize = 10_000;
const MAX_DEPTH: usize = 32;

/// A set of JSON types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Types(u8);

impl Types {
    pub const STRING: Types = Types(1);
    pub const NULL: Types = Types(2);
    pub const BOOLEAN: Types = Types(4);
    /// Whole or not.
    pub const NUMBER: Types = Types(8);
    pub const ARRAY: Types = Types(16);
    pub const OBJECT: Types = Types(32);
    pub const ANY: Types = Types(63);
    const NONE: Types = Types(0);

    pub fn contains(self, other: Types) -> bool {
        self.0 & other.0 == other.0
    }

    /// The type of a value.
    pub fn of(value: &Value) -> Types {
        match value {
            Value::Null => Types::NULL,
            Value::Bool(_) => Types::BOOLEAN,
            Value::Number(_) => Types::NUMBER,
            Value::String(_) => Types::STRING,
            Value::Array(_) => Types::ARRAY,
            Value::Object(_) => Types::OBJECT,
        }
    }

    /// The types that `schema` leaves open; references are looked up in `root`. It errs to the larger set.
    pub fn of_schema(schema: &Value, root: &Value) -> Types {
        Self::visit(schema, root, 0, &mut MAX_VISITS.clone())
    }

    fn visit(schema: &Value, root: &Value, depth: usize, left: &mut usize) -> Types {
        let Value::Object(map) = schema else { return Types::ANY };
        if depth > MAX_DEPTH || *left == 0 {
            return Types::ANY;
        }
        *left -= 1;
        let mut types = match map.get("type") {
            Some(Value::String(name)) => Self::named(name),
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).fold(Types::NONE, |t, name| t | Self::named(name)),
            _ => Types::ANY,
        };
        if let Some(Value::Array(values)) = map.get("enum") {
            types = types & values.iter().fold(Types::NONE, |t, v| t | Types::of(v));
        }
        if let Some(value) = map.get("const") {
            types = types & Types::of(value);
        }
        if let Some(target) = map.get("$ref").and_then(Value::as_str).and_then(|r| root.pointer(r.strip_prefix('#')?)) {
            types = types & Self::visit(target, root, depth + 1, left);
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(parts)) = map.get(key) {
                types = types & parts.iter().fold(Types::NONE, |t, s| t | Self::visit(s, root, depth + 1, left));
            }
        }
        if let Some(Value::Array(parts)) = map.get("allOf") {
            types = parts.iter().fold(types, |t, s| t & Self::visit(s, root, depth + 1, left));
        }
        if types == Types::NONE { Types::ANY } else { types }
    }

    fn named(name: &str) -> Types {
        match name {
            "string" => Types::STRING,
            "null" => Types::NULL,
            "boolean" => Types::BOOLEAN,
            "number" | "integer" => Types::NUMBER,
            "array" => Types::ARRAY,
            "object" => Types::OBJECT,
            _ => Types::ANY,
        }
    }

    /// The JSON text of a value written bare if it is a string and as JSON otherwise. Where strings are allowed, it is JSON only if
    /// it is so of another allowed type; where not, whenever it is JSON. Else it is a string.
    pub(super) fn json_of(self, text: &str) -> String {
        let found = serde_json::from_str::<Value>(text).ok().map(|v| Types::of(&v));
        let json = found.is_some_and(|t| !self.contains(Types::STRING) || (t != Types::STRING && self.contains(t)));
        if json { text.trim().to_owned() } else { Value::from(text).to_string() }
    }
}

impl BitOr for Types {
    type Output = Types;
    fn bitor(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }
}

impl BitAnd for Types {
    type Output = Types;
    fn bitand(self, other: Types) -> Types {
        Types(self.0 & other.0)
    }
}

/// The types of the parameters of each tool.
#[derive(Debug, Clone, Default)]
pub struct ToolTypes {
    tools: HashMap<String, HashMap<String, Types>>,
}

impl ToolTypes {
    /// From a list of tools as the chat API has it: `{"type": "function", "function": {"name", "parameters": schema}}`. Entries of
    /// another form are skipped.
    pub fn new(tools: &Value) -> Self {
        let entry = |tool: &Value| {
            let function = tool.get("function")?;
            let name = function.get("name")?.as_str()?.to_owned();
            let schema = function.get("parameters").unwrap_or(&Value::Null);
            let mut left = MAX_VISITS;
            let of = |(key, s): (&String, &Value)| (key.clone(), Types::visit(s, schema, 0, &mut left));
            let parameters = schema.get("properties").and_then(Value::as_object);
            Some((name, parameters.into_iter().flatten().map(of).collect()))
        };
        Self { tools: tools.as_array().into_iter().flatten().filter_map(entry).collect() }
    }

    /// Of a parameter; one that the tool does not list is a string.
    pub fn of(&self, tool: &str, parameter: &str) -> Types {
        self.tools.get(tool).and_then(|p| p.get(parameter)).copied().unwrap_or(Types::STRING)
    }
}
