use super::check::fits;
use super::*;
use serde_json::{Value, json};

pub fn schemas() -> Vec<Value> {
    vec![
        json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a", "b"], "additionalProperties": false}),
        json!({"type": "object", "properties": {"o": {"type": "object", "properties": {"p": {"type": "object", "properties": {"q": {"type": "boolean"}},
            "required": ["q"], "additionalProperties": false}}, "required": ["p"], "additionalProperties": false}}, "required": ["o"]}),
        json!({"enum": ["red", "green", 3, null, [1], {"k": "v"}]}),
        json!({"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 4}),
        json!({"type": "array", "items": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 4}, {"type": "boolean"}]}, "maxItems": 5}),
        json!({"type": "integer", "minimum": -5, "maximum": 1000}),
        json!({"type": "number", "minimum": 0, "maximum": 1}),
        json!({"type": "string", "minLength": 2, "maxLength": 9}),
        json!({"type": "string", "pattern": "^[a-c]+$"}),
        json!({"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["v", "next"], "additionalProperties": false}}, "$ref": "#/$defs/node"}),
        json!({"type": ["object", "null"], "properties": {"é\"k": {"const": "ß"}}, "required": ["é\"k"], "additionalProperties": {"type": "integer"}}),
        json!({"allOf": [{"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}, {"properties": {"y": {"type": "null"}}, "required": ["y"]}]}),
        json!({}),
        json!(true),
    ]
}

#[test]
fn every_complete_answer_is_json_that_fits() {
    let (mut complete, mut cut) = (0, 0);
    for (s, schema) in schemas().iter().enumerate() {
        for seed in 1..=24 {
            let after_thinking = seed % 3 == 0;
            let mut constraint = compile(&Spec { body: Body::JsonSchema(schema.clone()), after_thinking });
            let mut random = Random(seed * 7919 + s as u64);
            let drawn = draw(&mut *constraint, &mut random, 400);
            if !drawn.complete {
                cut += 1;
                continue;
            }
            complete += 1;
            let text = drawn.text();
            let text = if after_thinking { text.split_once("</think>").unwrap().1 } else { &text };
            let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{schema}: {e}: {text:?}"));
            assert!(fits(&value, schema, schema), "{schema}: {text:?}");
        }
    }
    println!("{complete} complete, {cut} cut");
    assert!(complete > 10 * cut, "{complete} complete, {cut} cut");
}

#[test]
fn json_object() {
    for seed in 1..=50 {
        let drawn = draw(&mut *compile(&spec(Body::JsonObject)), &mut Random(seed), 400);
        if drawn.complete {
            assert!(serde_json::from_str::<Value>(&drawn.text()).unwrap().is_object());
        }
    }
}

/// The control: without the masks next to nothing is right, and the checks see it.
#[test]
fn without_masks_the_checks_fail() {
    let schemas = schemas();
    let mut right = 0;
    for seed in 1..=100 {
        let mut random = Random(seed);
        let ids: Vec<u32> = (0..6).map(|_| random.below(4087) as u32).collect();
        let schema = &schemas[seed as usize % (schemas.len() - 2)];
        let value = serde_json::from_str::<Value>(&TOKENIZER.decode(&ids, true));
        right += usize::from(value.is_ok_and(|v| fits(&v, schema, schema)));
    }
    assert!(right < 5, "{right}");
    assert!(!fits(&json!({"a": "x"}), &schemas[0], &schemas[0]));
    assert!(!fits(&json!([1, 2, 3, 4, 5]), &schemas[3], &schemas[3]));
}

#[test]
fn lark_grammars() {
    let body = Body::Lark("start: <think> WORD (\",\" WORD)* </think>\nWORD: /[a-z]{1,3}/\n".into());
    for seed in 1..=20 {
        let drawn = draw(&mut *compile(&spec(body.clone())), &mut Random(seed), 200);
        if drawn.complete {
            assert_eq!((drawn.ids[0], *drawn.ids.last().unwrap()), (id("<think>"), id("</think>")));
            let text = TOKENIZER.decode(&drawn.ids[1..drawn.ids.len() - 1], false);
            assert!(text.split(',').all(|w| (1..=3).contains(&w.len()) && w.bytes().all(|b| b.is_ascii_lowercase())), "{text:?}");
        }
    }
}

#[test]
fn a_stop_token_is_allowed_when_the_answer_may_end_and_not_before() {
    let mut constraint = compile(&spec(Body::JsonSchema(json!({"type": "integer", "minimum": 0, "maximum": 99}))));
    let stop = TOKENIZER.eos().unwrap();
    assert!(!is_set(constraint.allowed().unwrap(), stop));
    assert!(!constraint.accept(id("4")).unwrap());
    assert!(is_set(constraint.allowed().unwrap(), stop));
    assert!(constraint.accept(stop).unwrap());
    assert!(constraint.accept(stop).is_err());
}

#[test]
fn reasoning_is_free_but_for_its_end() {
    let mut constraint = compile(&Spec { body: Body::JsonObject, after_thinking: true });
    let (end, stop) = (id("</think>"), TOKENIZER.eos().unwrap());
    let mask = list(constraint.allowed().unwrap());
    assert!(mask.contains(&end) && mask.contains(&id("{")) && !mask.contains(&stop) && !mask.contains(&id("<|im_start|>")));
    // The marker cannot be spelled.
    for piece in TOKENIZER.encode("a </think", false).unwrap() {
        constraint.accept(piece).unwrap();
    }
    let mask = list(constraint.allowed().unwrap());
    assert!(mask.iter().all(|&t| !TOKENIZER.token_bytes(t).unwrap().starts_with(b">")));
    assert!(mask.contains(&end) && mask.len() > 4000);
    constraint.accept(end).unwrap();
    let mask = list(constraint.allowed().unwrap());
    assert!(mask.contains(&id("{")) && mask.iter().all(|&t| b"{\n".contains(&TOKENIZER.token_bytes(t).unwrap()[0])), "{mask:?}");
}

#[test]
fn added_tokens_are_no_text() {
    let mut constraint = compile(&spec(Body::JsonSchema(json!({"type": "string"}))));
    for piece in TOKENIZER.encode("\"a <", false).unwrap() {
        constraint.accept(piece).unwrap();
    }
    let mask = list(constraint.allowed().unwrap());
    assert!(mask.len() > 3000);
    let added = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_end|>", "<|endoftext|>"];
    assert!(added.iter().all(|t| !mask.contains(&id(t))));
}
