use super::check::fits;
use super::*;
use crate::{Choice, Tools};
use serde_json::{Value, json};
use strata_text::{CallFormat, ReplyEvent, ReplyParser, ReplyStart, ToolTypes};

pub fn tools() -> Value {
    json!([
        {"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": {
            "path": {"type": "string"}, "mode": {"enum": ["a", "w"]}, "lines": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
            "at": {"$ref": "#/$defs/point"}, "force": {"type": "boolean"}},
            "required": ["path", "mode", "at"], "additionalProperties": false,
            "$defs": {"point": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": false}}}}},
        {"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}},
        {"type": "function", "function": {"name": "sleep", "parameters": {"type": "object", "properties": {"s": {"type": "number", "minimum": 0}}, "required": ["s"],
            "additionalProperties": false}}},
    ])
}

fn body(format: CallFormat, choice: Choice, parallel: bool) -> Body {
    Body::Tools(Tools { format, tools: tools(), choice, parallel })
}

/// Calls and content of an answer, by the parser of replies.
fn parsed(text: &str, format: CallFormat) -> (Vec<(String, String)>, String) {
    let mut parser = ReplyParser::new(ReplyStart::Content, Some(format), ToolTypes::new(&tools()));
    let mut events = parser.push(text);
    events.extend(parser.finish());
    let (mut calls, mut content): (Vec<(String, String)>, String) = Default::default();
    for event in events {
        match event {
            ReplyEvent::ToolCall { name, .. } => calls.push((name, String::new())),
            ReplyEvent::Arguments { delta, .. } => calls.last_mut().unwrap().1.push_str(&delta),
            ReplyEvent::Content(text) => content.push_str(&text),
            ReplyEvent::Reasoning(_) | ReplyEvent::ToolCallEnd { .. } => {}
        }
    }
    (calls, content)
}

fn check(calls: &[(String, String)], context: &str) {
    for (name, arguments) in calls {
        let all = tools();
        let tool =
            all.as_array().unwrap().iter().find(|t| t["function"]["name"] == **name).unwrap_or_else(|| panic!("{name:?} in {context:?}"));
        let schema = &tool["function"]["parameters"];
        let value: Value = serde_json::from_str(arguments).unwrap_or_else(|e| panic!("{e}: {arguments:?} in {context:?}"));
        assert!(fits(&value, schema, schema), "{value} for {schema}");
    }
}

#[test]
fn required_calls_are_read_back_and_fit() {
    let (mut complete, mut cut, mut several) = (0, 0, 0);
    for format in [CallFormat::Json, CallFormat::Xml] {
        for seed in 1..=40 {
            let choice = if seed % 4 == 0 { Choice::Named("write".into()) } else { Choice::Required };
            let parallel = seed % 2 == 0;
            let mut constraint = compile(&spec(body(format, choice.clone(), parallel)));
            let drawn = draw(&mut *constraint, &mut Random(seed * 31), 600);
            if !drawn.complete {
                cut += 1;
                continue;
            }
            complete += 1;
            let text = drawn.text();
            let (calls, content) = parsed(&text, format);
            assert!(content.is_empty() && !calls.is_empty(), "{content:?} in {text:?}");
            assert!(parallel || calls.len() == 1);
            assert!(choice == Choice::Required || calls.iter().all(|c| c.0 == "write"));
            several += usize::from(calls.len() > 1);
            check(&calls, &text);
        }
    }
    println!("{complete} complete, {cut} cut, {several} with several calls");
    assert!(complete > 4 * cut && several > 3, "{complete} complete, {cut} cut, {several} several");
}

#[test]
fn automatic_calls() {
    for format in [CallFormat::Json, CallFormat::Xml] {
        for (parallel, after_thinking) in [(true, false), (false, true)] {
            let mut constraint = compile(&Spec { body: body(format, Choice::Auto, parallel), after_thinking });
            let mut ids = Vec::new();
            let mut say = |constraint: &mut dyn Constraint, text: &str| {
                for token in TOKENIZER.encode(text, true).unwrap() {
                    assert!(is_set(constraint.allowed().unwrap(), token), "{text:?}");
                    assert!(!constraint.accept(token).unwrap());
                    ids.push(token);
                }
            };
            if after_thinking {
                // In reasoning the marker of a call is text like any other.
                say(&mut *constraint, "hm <tool_call> {</think>\n\n");
            }
            say(&mut *constraint, "I call: ");
            assert!(constraint.allowed().unwrap().is_none());
            // The marker cannot be spelled, and the token begins a call.
            for token in TOKENIZER.encode("<tool_call", false).unwrap() {
                constraint.accept(token).unwrap();
                ids.push(token);
            }
            let mask = list(constraint.allowed().unwrap());
            assert!(mask.contains(&id("a")) && !mask.contains(&id(">")) && mask.contains(&TOKENIZER.eos().unwrap()));
            constraint.accept(id("<tool_call>")).unwrap();
            ids.push(id("<tool_call>"));
            let (mut random, mut sampler) = (Random(5), Sampler::default());
            let mut steps = 0;
            loop {
                assert!(constraint.allowed().unwrap().is_some_and(|m| !is_set(Some(m), TOKENIZER.eos().unwrap())));
                let token = sampler.one(&mut *constraint, &mut random);
                assert!(!constraint.accept(token).unwrap());
                ids.push(token);
                steps += 1;
                assert!(steps < 5000);
                if token == id("</tool_call>") {
                    break;
                }
            }
            let mask = constraint.allowed().unwrap().map(<[u32]>::to_vec);
            assert!(is_set(mask.as_deref(), id("a")) && is_set(mask.as_deref(), TOKENIZER.eos().unwrap()));
            assert_eq!(is_set(mask.as_deref(), id("<tool_call>")), parallel);
            assert!(constraint.accept(TOKENIZER.eos().unwrap()).unwrap());
            let text = TOKENIZER.decode(&ids, true);
            let text = text.split_once("</think>").map_or(text.as_str(), |t| t.1);
            let (calls, _) = parsed(text, format);
            assert_eq!(calls.len(), 1, "{text:?}");
            check(&calls, text);
        }
    }
}

#[test]
fn bad_tools_name_their_field() {
    let error = |tools: Value, format: CallFormat, choice: Choice| {
        let spec = spec(Body::Tools(Tools { format, tools, choice, parallel: true }));
        GRAMMARS.compile(&spec).map(drop).unwrap_err().to_string()
    };
    let tool = |name: &str, schema: Value| json!({"type": "function", "function": {"name": name, "parameters": schema}});
    assert_eq!(error(json!({}), CallFormat::Json, Choice::Auto), "tools: expected a list, found {}");
    assert_eq!(error(json!([]), CallFormat::Json, Choice::Auto), "tools: expected at least one tool, found []");
    assert!(error(json!([{}]), CallFormat::Json, Choice::Auto).starts_with("tools[0].function.name: expected a string"));
    assert_eq!(error(tools(), CallFormat::Json, Choice::Named("x".into())), "tool_choice: no tool is named \"x\"");
    assert!(error(json!([tool("a>b", json!({}))]), CallFormat::Xml, Choice::Auto).starts_with("tools[0].function.name: expected a name"));
    let list = json!([tool("a", json!({})), tool("b", json!({"properties": {"k": {"type": "integer", "minimum": "x"}}}))]);
    for format in [CallFormat::Json, CallFormat::Xml] {
        let text = error(list.clone(), format, Choice::Required);
        assert!(text.starts_with("tools[1].function.parameters: "), "{text}");
    }
}
