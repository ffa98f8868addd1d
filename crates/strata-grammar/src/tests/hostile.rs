use super::*;
use crate::{Choice, GrammarError, Tools};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};
use strata_text::CallFormat;

/// Compiles and draws a little; whatever happens, it must come back.
fn survives(spec: &Spec, random: &mut Random) -> bool {
    let at = Instant::now();
    let result = GRAMMARS.compile(spec);
    let took = at.elapsed();
    assert!(took < Duration::from_secs(30), "{took:?} for {spec:?}");
    let Ok(mut constraint) = result else { return false };
    for _ in 0..12 {
        let Ok(mask) = constraint.allowed() else { break };
        let allowed = list(mask);
        match allowed.is_empty() {
            true => break,
            false if constraint.accept(allowed[random.below(allowed.len())]).unwrap_or(true) => break,
            false => {}
        }
    }
    true
}

fn mutate(value: &mut Value, random: &mut Random) {
    let atoms = [
        json!(null),
        json!(true),
        json!(false),
        json!(-1),
        json!(1e308),
        json!(18446744073709551615u64),
        json!("string"),
        json!("#/$defs/a"),
        json!("#"),
        json!("(a+)+$"),
        json!("["),
        json!([]),
        json!({}),
        json!({"$ref": "#"}),
        json!({"type": "string", "pattern": "(?=x)"}),
        json!({"not": {}}),
        json!("\u{0}\u{7f}é"),
        json!(100000),
    ];
    let keys = [
        "type",
        "enum",
        "const",
        "$ref",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "prefixItems",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "multipleOf",
        "pattern",
        "format",
        "$defs",
        "patternProperties",
        "x-guidance",
        "$schema",
        "$id",
        "exclusiveMinimum",
        "minProperties",
        "dependentRequired",
        "if",
        "nonsense",
    ];
    match value {
        Value::Object(map) if !map.is_empty() && random.below(4) > 0 => {
            let n = random.below(map.len());
            let key = map.keys().nth(n).unwrap().clone();
            match random.below(6) {
                0 => drop(map.remove(&key)),
                1 => {
                    let inner = map.remove(&key).unwrap();
                    map.insert(keys[random.below(keys.len())].into(), inner);
                }
                2 => drop(map.insert(keys[random.below(keys.len())].into(), atoms[random.below(atoms.len())].clone())),
                _ => mutate(map.get_mut(&key).unwrap(), random),
            }
        }
        Value::Array(items) if !items.is_empty() && random.below(4) > 0 => {
            let n = random.below(items.len());
            mutate(&mut items[n], random);
        }
        other => *other = atoms[random.below(atoms.len())].clone(),
    }
}

#[test]
fn mutated_schemas_never_panic() {
    let mut random = Random(42);
    let (mut taken, mut refused) = (0, 0);
    for round in 0..600 {
        let mut schema = super::answers::schemas()[round % 12].clone();
        for _ in 0..1 + random.below(5) {
            mutate(&mut schema, &mut random);
        }
        let body = match round % 3 {
            0 => Body::JsonSchema(schema),
            n => {
                let tools = json!([{"type": "function", "function": {"name": "f", "parameters": schema}}]);
                let format = if n == 1 { CallFormat::Json } else { CallFormat::Xml };
                Body::Tools(Tools { format, tools, choice: Choice::Required, parallel: false })
            }
        };
        *(if survives(&spec(body), &mut random) { &mut taken } else { &mut refused }) += 1;
    }
    println!("{taken} compiled, {refused} refused");
    assert!(taken > 50 && refused > 50, "{taken} {refused}");
}

#[test]
fn mutated_lark_never_panics() {
    let source = "start: a | <think> b* \"x\"i\n%ignore /[ ]+/\na[suffix=\"\\n\"]: /(.|\\n){0,9}/\nb: (C D?)~1..3 | %json {\"type\": \"integer\"} | <[7-9]>\nC: /[a-z]+/ & ~/ab/\nD: \"é\"+\n";
    let mut random = Random(7);
    for _ in 0..600 {
        let mut text: Vec<char> = source.chars().collect();
        for _ in 0..1 + random.below(4) {
            let (at, from) = (random.below(text.len()), random.below(text.len()));
            match random.below(3) {
                0 if text.len() > 1 => drop(text.remove(at)),
                1 => text.insert(at, text[from]),
                _ => text.truncate(at.max(1)),
            }
        }
        survives(&spec(Body::Lark(text.into_iter().collect())), &mut random);
    }
}

#[test]
fn hostile_sizes_are_errors_or_end() {
    let mut random = Random(3);
    let chain = |n: usize, via: &dyn Fn(String) -> Value| {
        let defs: Map<String, Value> = (0..n).map(|i| (format!("d{i}"), via(format!("#/$defs/d{}", (i + 1) % n)))).collect();
        json!({"$defs": defs, "$ref": "#/$defs/d0"})
    };
    for n in [10, 1000, 4000] {
        for via in [
            &(|r| json!({"$ref": r})) as &dyn Fn(String) -> Value,
            &|r| json!({"allOf": [{"$ref": r}, {"type": "object"}]}),
            &|r| json!({"anyOf": [{"$ref": r}, {"type": "null"}]}),
            &|r| json!({"properties": {"p": {"$ref": r}}}),
        ] {
            survives(&spec(Body::JsonSchema(chain(n, via))), &mut random);
        }
    }
    for schema in [
        json!({"type": "string", "pattern": "(x{1000}){1000}"}),
        json!({"type": "string", "pattern": format!("{}a{}", "(".repeat(2000), ")".repeat(2000))}),
        json!({"type": "string", "minLength": 1_000_000_000}),
        json!({"type": "array", "items": {"type": "array", "items": {"type": "integer"}, "minItems": 1000}, "minItems": 1_000_000}),
        json!({"enum": (0..15_000).map(|i| format!("value {i}")).collect::<Vec<_>>()}),
        json!({"type": "number", "multipleOf": 1e-300}),
        json!({"type": "object", "patternProperties": {"^(a|b)*$": {}, "^b+$": {}}}),
    ] {
        survives(&spec(Body::JsonSchema(schema)), &mut random);
    }
    let rules: String = (0..5000).map(|i| format!("r{i}: r{}\n", i + 1)).collect();
    survives(&spec(Body::Lark(format!("start: r0\n{rules}r5000: \"x\"\n"))), &mut random);
}

#[test]
fn limits_name_the_field() {
    let error = |body: Body| GRAMMARS.compile(&spec(body)).map(drop).unwrap_err();
    let deep = (0..100).fold(json!({}), |inner, _| json!({"items": inner}));
    let limit = |field: &str, unit, max, found| GrammarError::Limit { field: field.into(), unit, max, found };
    assert_eq!(error(Body::JsonSchema(deep)), limit("schema", "levels of nesting", 64, 65));
    let wide = json!({"enum": vec![1; 30_000]});
    assert_eq!(error(Body::JsonSchema(wide)), limit("schema", "values", 20_000, 20_001));
    assert_eq!(error(Body::Lark("x".repeat(1 << 17))), limit("grammar", "bytes", 65_536, 1 << 17));
    assert_eq!(error(Body::Lark(format!("start: {}", "(".repeat(500)))), limit("grammar", "open brackets", 128, 129));
    assert_eq!(error(Body::JsonSchema(json!([]))).to_string(), "schema: expected a schema (an object), found []");
    assert!(error(Body::JsonSchema(json!({"type": 5}))).to_string().starts_with("schema: "));
    assert!(error(Body::Lark("start: nothing".into())).to_string().starts_with("grammar: "));
    // What a schema must not set.
    let sly = json!({"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 2, "x-guidance": {"item_separator": "; "}});
    let drawn = draw(&mut *compile(&spec(Body::JsonSchema(sly))), &mut Random(1), 300);
    assert!(drawn.complete && serde_json::from_str::<Value>(&drawn.text()).is_ok(), "{:?}", drawn.text());
}
