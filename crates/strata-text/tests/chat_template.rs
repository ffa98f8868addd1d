//! Rendering against the reference (transformers) and against Jinja2, and the limits.

mod common;

use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};
use strata_text::{ChatTemplate, RenderLimits, RenderOptions, TemplateError};

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::without_tokenizer(source, RenderLimits::default()).unwrap()
}

fn render(source: &str) -> Result<String, TemplateError> {
    template(source).render(&json!([{"role": "user", "content": "Hi"}]), &RenderOptions::default())
}

#[test]
fn reference_cases() {
    let source = common::source();
    let chat = source.chat_template.clone().unwrap();
    let chat = ChatTemplate::new(&chat, &common::tokenizer(), RenderLimits::default()).unwrap();
    let cases = common::cases("chat_template_cases.json");
    assert_eq!(cases.len(), 25);
    for case in cases {
        let given = &case["options"];
        let options = RenderOptions {
            tools: given.get("tools"),
            add_generation_prompt: given["add_generation_prompt"].as_bool().unwrap(),
            enable_thinking: given.get("enable_thinking").map(|v| v.as_bool().unwrap()),
            extra: None,
        };
        let text = chat.render(&case["messages"], &options).unwrap();
        assert_eq!(text, case["expected"].as_str().unwrap(), "case {}", case["id"]);
    }
}

#[test]
fn renders_as_jinja2() {
    let all: Value = serde_json::from_str(include_str!("jinja_cases.json")).unwrap();
    let mut wrong = Vec::new();
    for case in all["cases"].as_array().unwrap() {
        let source = case["template"].as_str().unwrap();
        let variables: &Map<String, Value> = case["variables"].as_object().unwrap();
        let options = RenderOptions { tools: Some(&all["tools"]), extra: Some(variables), ..Default::default() };
        let found = ChatTemplate::without_tokenizer(source, RenderLimits::default()).and_then(|t| t.render(&all["messages"], &options));
        let expected = &case["expected"];
        let right = match &found {
            Ok(text) => expected["text"] == *text,
            Err(TemplateError::Raised { message }) => expected["message"] == *message,
            Err(_) => expected.get("error").is_some(),
        };
        if !right {
            wrong.push(format!("{source}\n  found    {found:?}\n  expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn special_tokens_are_variables() {
    let source = "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}";
    let chat = ChatTemplate::new(source, &common::tokenizer(), RenderLimits::default()).unwrap();
    assert_eq!(chat.render(&json!([]), &RenderOptions::default()).unwrap(), "<|endoftext|>|<|im_end|>|<|endoftext|>");
}

#[test]
fn enable_thinking_is_undefined_unless_given() {
    let chat = template("{{ enable_thinking is defined }} {{ enable_thinking }}");
    let options = RenderOptions { enable_thinking: Some(false), ..Default::default() };
    assert_eq!(chat.render(&json!([]), &RenderOptions::default()).unwrap(), "False ");
    assert_eq!(chat.render(&json!([]), &options).unwrap(), "True False");
}

#[test]
fn bad_templates_are_typed_errors() {
    let compile = |source: &str| ChatTemplate::without_tokenizer(source, RenderLimits::default()).unwrap_err();
    assert!(matches!(compile("a\n{% if %}"), TemplateError::Syntax { line: 2, .. }));
    assert!(matches!(compile("{{ 'open"), TemplateError::Syntax { .. }));
    assert!(matches!(compile(&"x".repeat(2 << 20)), TemplateError::SourceLength { .. }));
    assert!(matches!(render("\n{{ messages[0].content.no_such_method() }}"), Err(TemplateError::Render { line: 2, .. })));
    assert!(matches!(render("{{ 1 | no_such_filter }}"), Err(TemplateError::Render { .. } | TemplateError::Syntax { .. })));
    assert!(matches!(render("{{ nothing.x }}"), Err(TemplateError::Render { .. })));
    assert!(matches!(render("{{ 1 / 0 }}"), Err(TemplateError::Render { .. })));
    assert!(matches!(render("{% include 'other' %}"), Err(TemplateError::Render { .. })));
    let raised = TemplateError::Raised { message: "no".to_owned() };
    assert_eq!(render("{{ raise_exception('no') }}"), Err(raised.clone()));
    assert_eq!(render("{% macro m() %}{{ raise_exception('no') }}{% endmacro %}{{ m() | upper }}"), Err(raised));
    let chat = template("x");
    let error = chat.render(&json!({"role": "user"}), &RenderOptions::default()).unwrap_err();
    assert_eq!(error, TemplateError::MessagesType { found: "an object" });
}

#[test]
fn runaway_templates_end() {
    let start = Instant::now();
    for source in [
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x.replace('a', 'aa') %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
        "{{ 'a' * 99999999999 }}",
        "{{ range(99999999999) | list }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ '%999999999d' % 1 }}",
        "{{ 'a' | indent(999999999, true) }}",
        "{{ [1] | tojson(indent=999999999999) }}{% for i in range(999999) %}{% endfor %}",
    ] {
        let at = Instant::now();
        let error = render(source);
        println!("{:.2?} {source}", at.elapsed());
        assert!(matches!(error, Err(TemplateError::OutOfFuel { .. } | TemplateError::Render { .. })), "{source}: {error:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn values_nested_by_a_template_do_not_overflow_the_stack() {
    for list in ["[ns.x]", "[[[[[[[[[[[[[[[[ns.x]]]]]]]]]]]]]]]]", "{'a': ns.x}", "(ns.x,)"] {
        for rounds in [100, 3000, 10_000, 99_999] {
            for end in ["", "{{ ns.x | tojson }}", "{{ ns.x }}", "{{ ns.x | string }}", "{{ ns.x | length }}"] {
                let source = format!(
                    "{{% set ns = namespace(x=[1]) %}}{{% for i in range({rounds}) %}}{{% set ns.x = {list} %}}{{% endfor %}}{end}"
                );
                // Either way is fine, but for a crash.
                let _ = render(&source);
            }
        }
    }
}

#[test]
fn output_is_limited() {
    let limits = RenderLimits { max_output_bytes: 10, ..Default::default() };
    let chat = ChatTemplate::without_tokenizer("{{ messages[0] }}{{ messages[1] }}", limits).unwrap();
    let render = |messages| chat.render(&messages, &RenderOptions::default());
    assert_eq!(render(json!(["12345", "67890"])).unwrap(), "1234567890");
    assert_eq!(render(json!(["12345", "678901"])), Err(TemplateError::OutputLength { max: 10 }));
}

#[test]
fn long_chats_fit_the_budget() {
    let source = common::source().chat_template.unwrap();
    let chat = template(&source);
    let turns = |n: usize, text: &str| -> Value {
        (0..n).map(|i| json!({"role": if i % 2 == 0 { "user" } else { "assistant" }, "content": text})).collect()
    };
    for messages in [turns(20_000, "Hi"), turns(1, &"word ".repeat(2_000_000)), turns(100, &"word ".repeat(20_000))] {
        let text = chat.render(&messages, &RenderOptions::default()).unwrap();
        assert!(text.contains("<|im_end|>"));
    }
}

#[test]
fn deep_input_is_refused() {
    let deep = (0..100_000).fold(json!(1), |inner, _| Value::Array(vec![inner]));
    let messages = json!([{"role": "user", "content": "x"}]);
    let options = RenderOptions { tools: Some(&deep), ..Default::default() };
    let error = template("x").render(&messages, &options).unwrap_err();
    assert_eq!(error, TemplateError::Depth { field: "tools", max: 128 });
    // Dropping it would overflow the stack: that is the data type's, not ours.
    std::mem::forget(deep);
}

#[test]
fn shared_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<ChatTemplate>();
}
