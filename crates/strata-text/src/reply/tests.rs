use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn tools() -> ToolTypes {
    let schema = json!({"type": "object", "properties": {
        "text": {"type": "string"}, "n": {"type": "integer"}, "any": {}, "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "list": {"$ref": "#/$defs/l"}, "flag": {"type": ["boolean", "null"]},
    }, "$defs": {"l": {"type": "array"}}});
    ToolTypes::new(&json!([{"type": "function", "function": {"name": "f", "parameters": schema}}]))
}

/// Joins texts of one kind.
fn joined(events: Vec<ReplyEvent>) -> Vec<ReplyEvent> {
    let mut out: Vec<ReplyEvent> = Vec::new();
    for event in events {
        match (out.last_mut(), &event) {
            (Some(ReplyEvent::Content(a)), ReplyEvent::Content(b)) | (Some(ReplyEvent::Reasoning(a)), ReplyEvent::Reasoning(b)) => {
                a.push_str(b);
            }
            (Some(ReplyEvent::Arguments { delta: a, .. }), ReplyEvent::Arguments { delta: b, .. }) => a.push_str(b),
            _ => out.push(event),
        }
    }
    out
}

fn streamed<'a>(pieces: impl IntoIterator<Item = &'a str>, start: ReplyStart, format: Option<CallFormat>) -> Vec<ReplyEvent> {
    let mut parser = ReplyParser::new(start, format, tools());
    let mut events: Vec<ReplyEvent> = pieces.into_iter().flat_map(|p| parser.push(p)).collect();
    events.extend(parser.finish());
    for event in &events {
        match event {
            ReplyEvent::Content(t) | ReplyEvent::Reasoning(t) | ReplyEvent::Arguments { delta: t, .. } => assert!(!t.is_empty()),
            _ => {}
        }
    }
    joined(events)
}

fn whole(text: &str, format: CallFormat) -> Vec<ReplyEvent> {
    streamed([text], ReplyStart::Content, Some(format))
}

/// Name and arguments of each call; what is content.
fn calls(events: &[ReplyEvent]) -> (Vec<(String, String)>, String) {
    let (mut calls, mut text): (Vec<(String, String)>, String) = Default::default();
    for event in events {
        match event {
            ReplyEvent::ToolCall { name, .. } => calls.push((name.clone(), String::new())),
            ReplyEvent::Arguments { delta, .. } => calls.last_mut().unwrap().1.push_str(delta),
            ReplyEvent::Content(t) => text.push_str(t),
            _ => {}
        }
    }
    (calls, text)
}

/// Texts that are nearly answers.
fn answer() -> impl Strategy<Value = String> {
    let pieces = [
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<tool_call>\n{\"name\": \"f\", \"arguments\": ",
        "}\n</tool_call>",
        "{",
        "}",
        "[",
        "]",
        "\"name\"",
        "\"arguments\"",
        ": ",
        ", ",
        ":",
        ",",
        "\"",
        "\\",
        "\\\"",
        "\"é€\"",
        "1",
        "true",
        "{\"a\": [1, \"x\"]}",
        "{}",
        "\n",
        " ",
        "\t",
        "\u{a0}",
        "a",
        "é",
        "<",
        "</",
        "tool_call>",
        "<tool_call>\n<function=f>\n",
        "<function=",
        "f>",
        "</function>",
        "<parameter=",
        "<parameter=text>\n",
        "<parameter=n>\n",
        "<parameter=any>\n",
        "<parameter=maybe>\n",
        "<parameter=list>",
        "\n</parameter>\n",
        "</parameter>",
        "\n</function>\n</tool_call>",
        "null",
        "-1.5e3",
        ">",
        "\"other\": ",
        "\"name\": \"g\"",
        "\u{1}",
        "</tool",
        "\n</para",
        "</thi",
    ];
    prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..24).prop_map(|p| p.concat())
}

fn cut(text: &str, cuts: &[usize]) -> Vec<String> {
    let mut at: Vec<usize> = cuts.iter().map(|c| c % (text.len() + 1)).filter(|&c| text.is_char_boundary(c)).collect();
    at.extend([0, text.len()]);
    at.sort_unstable();
    at.windows(2).map(|w| text[w[0]..w[1]].to_owned()).collect()
}

const FORMATS: [Option<CallFormat>; 3] = [None, Some(CallFormat::Json), Some(CallFormat::Xml)];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn same_as_naive(text in answer(), cuts in prop::collection::vec(any::<usize>(), 0..12)) {
        let chars: Vec<String> = text.chars().map(String::from).collect();
        for start in [ReplyStart::Reasoning, ReplyStart::Content] {
            for format in FORMATS {
                let expected = naive::parse(&text, start, format, &tools());
                prop_assert_eq!(&streamed(chars.iter().map(String::as_str), start, format), &expected, "by character: {:?}", text);
                prop_assert_eq!(&streamed(cut(&text, &cuts).iter().map(String::as_str), start, format), &expected, "{:?}", text);
            }
        }
    }

    /// Calls rendered as the templates do are read back.
    #[test]
    fn round_trip(text in "[a-z<>/{}\"\\\\\n é_]{0,30}", n in any::<i64>(), cuts in prop::collection::vec(any::<usize>(), 0..12)) {
        prop_assume!(!text.contains("\n</parameter>"));
        let arguments = json!({"text": text, "n": n, "list": [text, n], "flag": null});
        let json_call = format!("<tool_call>\n{}\n</tool_call>", json!({"name": "f", "arguments": arguments}));
        let xml_call = format!(
            "<tool_call>\n<function=f>\n<parameter=text>\n{text}\n</parameter>\n<parameter=n>\n{n}\n</parameter>\n<parameter=list>\n{}\n</parameter>\n\
             <parameter=flag>\nnull\n</parameter>\n</function>\n</tool_call>",
            json!([text, n]),
        );
        for (format, call) in [(CallFormat::Json, json_call), (CallFormat::Xml, xml_call)] {
            let reply = format!("why\n</think>\n\nNow:\n\n{call}\n{call}");
            let events = streamed(cut(&reply, &cuts).iter().map(String::as_str), ReplyStart::Reasoning, Some(format));
            prop_assert_eq!(&events[0], &ReplyEvent::Reasoning("why".into()));
            let (calls, content) = calls(&events);
            prop_assert_eq!(content, "Now:");
            prop_assert_eq!(calls.len(), 2);
            for (name, found) in calls {
                prop_assert_eq!(name, "f");
                prop_assert_eq!(&serde_json::from_str::<Value>(&found).unwrap(), &arguments);
            }
        }
    }
}

#[test]
fn arguments_come_as_they_grow() {
    let mut parser = ReplyParser::new(ReplyStart::Content, Some(CallFormat::Json), tools());
    assert_eq!(parser.push("Hm \n<tool_"), [ReplyEvent::Content("Hm".into())]);
    assert_eq!(parser.push("call>\n{\"name\": \"f"), []);
    assert_eq!(parser.push("\", "), [ReplyEvent::ToolCall { index: 0, name: "f".into() }]);
    let delta = |delta: &str| ReplyEvent::Arguments { index: 0, delta: delta.into() };
    assert_eq!(parser.push("\"arguments\": {\"a"), [delta("{\"a")]);
    assert_eq!(parser.push("\": \"</tool_call>"), [delta("\": \"</tool_call>")]);
    assert_eq!(parser.push("\"}}"), [delta("\"}"), ReplyEvent::ToolCallEnd { index: 0 }]);
    assert_eq!(parser.push("\n</tool_call>\n"), []);
    assert_eq!(parser.finish(), []);

    let mut parser = ReplyParser::new(ReplyStart::Content, Some(CallFormat::Xml), tools());
    assert_eq!(parser.push("<tool_call>\n<function=f>"), [ReplyEvent::ToolCall { index: 0, name: "f".into() }]);
    assert_eq!(parser.push("\n<parameter=text>\n"), [delta("{\"text\": \"")]);
    assert_eq!(parser.push("a \"b\"\n</p"), [delta("a \\\"b\\\"")]);
    assert_eq!(parser.push("re>\n"), [delta("\\n</pre>")]);
    assert_eq!(parser.push("</parameter>\n<parameter=n>\n1"), [delta("\", \"n\": ")]);
    assert_eq!(parser.push("2\n</parameter>\n"), [delta("12")]);
    assert_eq!(parser.push("</function>"), [delta("}"), ReplyEvent::ToolCallEnd { index: 0 }]);
}

#[test]
fn malformed_calls() {
    let json = |text| calls(&whole(text, CallFormat::Json));
    let one = |name: &str, arguments: &str| vec![(name.to_owned(), arguments.to_owned())];
    // No name: content, with the white space before it.
    for text in
        ["a \n<tool_call>\n{\"nam", "<tool_call>x</tool_call>", "<tool_call>{\"name\": 1}</tool_call>", "<tool_call>{}\n</tool_call>"]
    {
        assert_eq!(json(text), (vec![], text.to_owned()), "{text}");
    }
    // Cut off, or not closed.
    assert_eq!(json("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"rm /t"), (one("f", "{\"a\": \"rm /t"), String::new()));
    assert_eq!(json("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}\n</tool_call>"), (one("f", "{\"a\": 1}"), String::new()));
    assert_eq!(json("<tool_call>{\"name\": \"f\"}</tool_call>"), (one("f", "{}"), String::new()));
    // A string that is not closed swallows the marker only while it is sound.
    assert_eq!(
        json("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x}}\n</tool_call> B"),
        (one("f", "{\"a\": \"x}}\n"), " B".into())
    );
    // The arguments before the name, and an envelope that goes wrong behind them.
    assert_eq!(json("<tool_call>{\"arguments\": [1], \"id\": 7, \"name\": \"f\"} C"), (one("f", "[1]"), " C".into()));
    let xml = |text| calls(&whole(text, CallFormat::Xml));
    assert_eq!(xml("<tool_call>\n<function=f\n>"), (vec![], "<tool_call>\n<function=f\n>".into()));
    assert_eq!(xml("<tool_call><function=f></function> D"), (one("f", "{}"), " D".into()));
    assert_eq!(xml("<tool_call><function=f><parameter=text>\nrm /t"), (one("f", "{\"text\": \"rm /t"), String::new()));
    assert_eq!(xml("<tool_call><function=f><parameter=text>a</parameter></tool_call>"), (one("f", "{\"text\": \"a\"}"), String::new()));
}

#[test]
fn values_by_type() {
    let value = |key: &str, text: &str| {
        let reply = format!("<tool_call>\n<function=f>\n<parameter={key}>\n{text}\n</parameter>\n</function>\n</tool_call>");
        let (calls, _) = calls(&whole(&reply, CallFormat::Xml));
        serde_json::from_str::<Value>(&calls[0].1).unwrap()[key].clone()
    };
    assert_eq!(value("text", "12"), json!("12"));
    assert_eq!(value("text", ""), json!(""));
    assert_eq!(value("n", " 12 "), json!(12));
    assert_eq!(value("n", "twelve"), json!("twelve"));
    assert_eq!(value("any", "{\"a\": [1]}"), json!({"a": [1]}));
    assert_eq!(value("any", "\"quoted\""), json!("\"quoted\""));
    assert_eq!(value("maybe", "null"), Value::Null);
    assert_eq!(value("maybe", "7"), json!("7"));
    assert_eq!(value("list", "[\"a\",\n2]"), json!(["a", 2]));
    assert_eq!(value("unknown", "7"), json!("7"));
}

#[test]
fn types_of_hostile_schemas_end() {
    let knot =
        json!({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}, "properties": {"x": {"$ref": "#/$defs/a"}}});
    assert_eq!(Types::of_schema(&knot["properties"]["x"], &knot), Types::ANY);
    assert_eq!(Types::of_schema(&json!({"allOf": [{"type": "string"}, {"type": "null"}]}), &Value::Null), Types::ANY);
    assert_eq!(Types::of_schema(&json!({"enum": ["a", 1]}), &Value::Null), Types::STRING | Types::NUMBER);
}

#[test]
fn formats_of_templates() {
    assert_eq!(CallFormat::of_template("{{ messages }}"), None);
    assert_eq!(CallFormat::of_template("'<tool_call>\\n{\"name\": '"), Some(CallFormat::Json));
    assert_eq!(CallFormat::of_template("'<tool_call>\\n<function=' + name"), Some(CallFormat::Xml));
    assert_eq!(ReplyStart::of_prompt("<|im_start|>assistant\n<think>\n"), ReplyStart::Reasoning);
    assert_eq!(ReplyStart::of_prompt("<think>\n\n</think>\n\n"), ReplyStart::Content);
}

#[test]
fn held_text_is_bounded() {
    for (format, open) in [
        (CallFormat::Json, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \""),
        (CallFormat::Xml, "<tool_call><function=f><parameter=text>\n"),
    ] {
        let mut parser = ReplyParser::new(ReplyStart::Reasoning, Some(format), tools());
        let (mut given, mut got) = (0, 0);
        let body = "x < </ </tool \n</para </thin".repeat(4);
        for part in [body.as_str(), "</think>", &body, open, &body] {
            for c in part.chars() {
                given += c.len_utf8();
                for event in parser.push(c.encode_utf8(&mut [0; 4])) {
                    match event {
                        ReplyEvent::Reasoning(t) | ReplyEvent::Content(t) | ReplyEvent::Arguments { delta: t, .. } => got += t.len(),
                        _ => {}
                    }
                }
                assert!(parser.held.len() <= "<parameter=text>".len(), "{:?}", parser.held);
            }
        }
        assert!(got + 120 >= given, "{got} of {given}");
    }
}
