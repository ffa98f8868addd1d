//! Grammars of tool calls, in the forms that `strata_text::ReplyParser` reads.

use crate::phases::Then;
use crate::vocabulary::{CALL, END_CALL};
use crate::{GrammarError, Grammars, json_grammar, limits, start};
use llguidance::api::GrammarWithLexer;
use serde_json::{Map, Value, json};
use strata_text::{CallFormat, Types};

const MAX_TOOLS: usize = 256;
const MAX_PARAMETERS: usize = 512;
/// Bytes of a tool's or parameter's name: what the parser of replies reads as one.
const MAX_NAME_BYTES: usize = 1024;

/// The tools offered and how they may be called.
///
/// Arguments fit the tool's schema. In [`CallFormat::Xml`] parameters come in the schema's order; string values are free text up to
/// the end of the value, except that they are one of an `enum` or a `const`; where a parameter may be a string or something else, it
/// is free text; parameters that the schema does not list are not allowed, unless it lists none.
#[derive(Debug, Clone)]
pub struct Tools {
    pub format: CallFormat,
    /// A list as in the chat API: `{"type": "function", "function": {"name", "parameters": schema}}`.
    pub tools: Value,
    pub choice: Choice,
    /// More than one call.
    pub parallel: bool,
}

/// When to call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Free text; the grammar rules from each `<tool_call>` on to its end.
    Auto,
    /// One call at least, and nothing but calls.
    Required,
    /// The same, of this tool only.
    Named(String),
}

/// One tool, checked.
struct Tool<'a> {
    index: usize,
    name: &'a str,
    schema: Value,
}

pub(crate) fn compile(grammars: &Grammars, tools: &Tools, newlines: bool) -> Result<Then, GrammarError> {
    let list = offered(tools)?;
    let vocabulary = &grammars.vocabulary;
    let (call, end) = (vocabulary.special(CALL)?, vocabulary.special(END_CALL)?);
    let auto = tools.choice == Choice::Auto;
    let build = |list: &[Tool]| -> Result<_, GrammarError> {
        let mut text = Text::default();
        let bodies: Result<Vec<String>, _> = list.iter().map(|tool| text.tool(tools.format, tool)).collect();
        text.rule(&format!("call: \"\\n\" ({}) \"\\n\" <[{end}]>", bodies?.join(" | ")));
        let top = match (auto, tools.parallel) {
            (true, _) => "call".to_owned(),
            (false, false) => format!("<[{call}]> call"),
            (false, true) => format!("<[{call}]> call (\"\\n\" <[{call}]> call)*"),
        };
        let mut first = start(&top, newlines && !auto);
        first.lark_grammar.get_or_insert_default().push_str(&text.rules);
        text.grammars.insert(0, first);
        grammars.matcher("tools", text.grammars)
    };
    let matcher = build(&list).map_err(|error| match error {
        // The library does not say which: look for one that it refuses alone.
        GrammarError::Invalid { detail, .. } => {
            let bad = list.iter().find_map(|tool| match build(std::slice::from_ref(tool)) {
                Err(GrammarError::Invalid { detail, .. }) => Some(GrammarError::Invalid { field: field(tool.index), detail }),
                _ => None,
            });
            bad.unwrap_or(GrammarError::Invalid { field: "tools".to_owned(), detail })
        }
        other => other,
    })?;
    Ok(match auto {
        true => Then::Calls { marker: vocabulary.marker(CALL)?, call: matcher, parallel: tools.parallel },
        false => Then::Grammar(matcher),
    })
}

fn field(index: usize) -> String {
    format!("tools[{index}].function.parameters")
}

/// The tools that may be called.
fn offered(tools: &Tools) -> Result<Vec<Tool<'_>>, GrammarError> {
    let list = tools.tools.as_array().ok_or_else(|| GrammarError::field("tools", "a list", &tools.tools))?;
    if list.is_empty() {
        return Err(GrammarError::field("tools", "at least one tool", &tools.tools));
    }
    limits::check("tools", "tools", MAX_TOOLS, list.len())?;
    limits::schema("tools", &tools.tools)?;
    let mut found = Vec::new();
    for (index, tool) in list.iter().enumerate() {
        let function = tool.get("function").unwrap_or(&Value::Null);
        let name = function.get("name").unwrap_or(&Value::Null);
        let name = name.as_str().ok_or_else(|| GrammarError::field(&format!("tools[{index}].function.name"), "a string", name))?;
        check_name(tools.format, &format!("tools[{index}].function.name"), name)?;
        if matches!(&tools.choice, Choice::Named(wanted) if wanted != name) {
            continue;
        }
        let schema = match function.get("parameters") {
            None | Some(Value::Null) => json!({"type": "object", "properties": {}}),
            Some(Value::Object(map)) => {
                let mut map = map.clone();
                map.entry("type").or_insert("object".into());
                Value::Object(map)
            }
            Some(other) => return Err(GrammarError::field(&field(index), "a schema (an object)", other)),
        };
        found.push(Tool { index, name, schema });
    }
    match (&tools.choice, found.is_empty()) {
        (Choice::Named(name), true) => Err(GrammarError::UnknownTool { name: name.clone() }),
        _ => Ok(found),
    }
}

fn check_name(format: CallFormat, field: &str, name: &str) -> Result<(), GrammarError> {
    limits::check(field, "bytes", MAX_NAME_BYTES, name.len())?;
    let bad = name.is_empty() || (format == CallFormat::Xml && name.contains(['<', '>', '\n']));
    if bad { Err(GrammarError::field(field, "a name without '<', '>' and newlines", &name.into())) } else { Ok(()) }
}

/// Lark rules and the JSON grammars that they name.
#[derive(Default)]
struct Text {
    rules: String,
    grammars: Vec<GrammarWithLexer>,
    texts: bool,
}

impl Text {
    fn rule(&mut self, rule: &str) {
        self.rules.push_str(rule);
        self.rules.push('\n');
    }

    /// A reference to JSON that fits a schema.
    fn json(&mut self, field: &str, schema: Value) -> Result<String, GrammarError> {
        let name = format!("json{}", self.grammars.len());
        self.grammars.push(json_grammar(field, &name, schema)?);
        Ok(format!("@{name}"))
    }

    /// What stands between the newlines of a call.
    fn tool(&mut self, format: CallFormat, tool: &Tool) -> Result<String, GrammarError> {
        let field = field(tool.index);
        match format {
            CallFormat::Json => {
                let head = format!("{{\"name\": {}, \"arguments\": ", Value::from(tool.name));
                let arguments = self.json(&field, tool.schema.clone())?;
                Ok(format!("{} {arguments} \"}}\"", literal(&head)))
            }
            CallFormat::Xml => {
                let head = literal(&format!("<function={}>\n", tool.name));
                let body = self.parameters(&field, &tool.schema)?;
                Ok(format!("{head} {body} \"</function>\""))
            }
        }
    }

    fn parameters(&mut self, field: &str, schema: &Value) -> Result<String, GrammarError> {
        let none = Map::new();
        let listed = match schema.get("properties") {
            None => &none,
            Some(Value::Object(map)) => map,
            Some(other) => return Err(GrammarError::field(&format!("{field}.properties"), "an object", other)),
        };
        limits::check(&format!("{field}.properties"), "parameters", MAX_PARAMETERS, listed.len())?;
        let required: Vec<&str> =
            schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        if let Some(missing) = required.iter().find(|r| !listed.contains_key(**r)) {
            return Err(GrammarError::field(&format!("{field}.required"), "names of properties", &Value::from(*missing)));
        }
        if listed.is_empty() {
            if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
                return Ok(String::new());
            }
            let value = self.free_text();
            return Ok(format!("(\"<parameter=\" /[^<>\\n]{{1,64}}/ \">\" {value} \"\\n\")*"));
        }
        let mut rules = Vec::new();
        for (key, property) in listed {
            check_name(CallFormat::Xml, &format!("{field}.properties"), key)?;
            let value = self.value(&format!("{field}.properties.{key}"), property, schema)?;
            let optional = if required.contains(&key.as_str()) { "" } else { "?" };
            rules.push(format!("({} {value} \"\\n\"){optional}", literal(&format!("<parameter={key}>"))));
        }
        Ok(rules.join(" "))
    }

    /// A value with the newline before it and the end tag behind it.
    fn value(&mut self, field: &str, property: &Value, root: &Value) -> Result<String, GrammarError> {
        let strings = |values: &[Value]| -> Option<Vec<String>> {
            let text = |v: &Value| v.as_str().filter(|t| !t.contains("\n</parameter>")).map(|t| literal(&format!("\n{t}\n</parameter>")));
            values.iter().map(text).collect()
        };
        let types = Types::of_schema(property, root);
        let values = property.get("enum").and_then(Value::as_array).map(Vec::as_slice);
        let values = property.get("const").map(std::slice::from_ref).or(values);
        if let Some(listed) = values.and_then(strings).filter(|l| !l.is_empty()) {
            return Ok(format!("({})", listed.join(" | ")));
        }
        if types.contains(Types::STRING) {
            return Ok(self.free_text());
        }
        let Value::Object(map) = property else { return Ok(self.free_text()) };
        let mut map = map.clone();
        // References are looked up from the root of the schema.
        for key in ["$defs", "definitions"] {
            if let (Some(all), None) = (root.get(key), map.get(key)) {
                map.insert(key.to_owned(), all.clone());
            }
        }
        let json = self.json(field, Value::Object(map))?;
        Ok(format!("\"\\n\" {json} \"\\n</parameter>\""))
    }

    /// Text up to the first end tag on a line of its own, as the parser of replies looks for it.
    fn free_text(&mut self) -> String {
        if !self.texts {
            self.texts = true;
            self.rule("text[suffix=\"\\n</parameter>\"]: /(\\n(?s:.*))?/");
        }
        "text".to_owned()
    }
}

/// A string of Lark. It reads them as JSON does, but has no bare DEL.
fn literal(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}
