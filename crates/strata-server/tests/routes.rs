//! Everything but answers: errors, models, tokens, embeddings, status, metrics, pages.

mod common;

use common::{CONTEXT, NAME, SLOTS, shared, text};
use serde_json::{Value, json};

#[test]
fn errors_name_the_field() {
    let client = shared();
    let hi = json!([{"role": "user", "content": "Hi"}]);
    let chat = |name: &str, value: Value| {
        let mut body = json!({"messages": hi, "max_tokens": 1});
        body[name] = value;
        ("/v1/chat/completions", body, name.to_owned())
    };
    let at = |mut case: (&'static str, Value, String), param: &str| {
        case.2 = param.into();
        case
    };
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    let cases = [
        chat("temperature", json!(-1)),
        chat("temperature", json!("hot")),
        chat("temperature", json!(1e-9)),
        chat("top_p", json!(1.5)),
        chat("min_p", json!([0.1])),
        chat("top_k", json!(-2)),
        chat("presence_penalty", json!(3)),
        chat("frequency_penalty", json!(-3)),
        chat("repetition_penalty", json!(0)),
        chat("repeat_penalty", json!(0)),
        chat("repeat_last_n", json!(-7)),
        chat("seed", json!(1.5)),
        chat("n", json!(0)),
        chat("n", json!(1000)),
        chat("max_tokens", json!(0)),
        chat("max_tokens", json!(-1)),
        chat("max_completion_tokens", json!(0)),
        chat("stop", json!(5)),
        at(chat("stop", json!(["a", 5])), "stop[1]"),
        chat("stop", json!(vec!["x"; 17])),
        chat("stop", json!("")),
        at(chat("logit_bias", json!({"5": 101})), "logit_bias.5"),
        chat("logit_bias", json!({"five": 1})),
        chat("logit_bias", json!({"99999999": 1})),
        chat("logit_bias", json!({"5": 1, "05": 1})),
        chat("logprobs", json!(3)),
        chat("top_logprobs", json!(2)),
        chat("messages", json!("Hi")),
        chat("messages", json!([])),
        at(chat("messages", json!([{"content": "Hi"}])), "messages[0].role"),
        at(chat("response_format", json!({"type": "xml"})), "response_format.type"),
        at(chat("response_format", json!({"type": "json_schema"})), "response_format.json_schema.schema"),
        at(chat("tools", json!([{"type": "web"}])), "tools[0].type"),
        at(chat("tools", json!([tool("good"), tool("not so good")])), "tools[1].function.name"),
        chat("tool_choice", json!("sometimes")),
        chat("tool_choice", json!("required")),
        at(chat("tool_choice", json!({"type": "function", "function": {"name": "none"}})), "tool_choice.function.name"),
        at(chat("stream_options", json!({"include_usage": 1})), "stream_options.include_usage"),
        ("/v1/chat/completions", json!({}), "messages".into()),
        ("/v1/completions", json!({}), "prompt".into()),
        ("/v1/completions", json!({"prompt": ""}), "prompt".into()),
        ("/v1/completions", json!({"prompt": []}), "prompt".into()),
        ("/v1/completions", json!({"prompt": [1, -2]}), "prompt[1]".into()),
        ("/v1/completions", json!({"prompt": [1, 99_999_999]}), "prompt[1]".into()),
        ("/v1/completions", json!({"prompt": ["a", 5]}), "prompt[1]".into()),
        ("/v1/completions", json!({"prompt": vec!["a"; 65]}), "prompt".into()),
        ("/v1/completions", json!({"prompt": "a", "suffix": "b"}), "suffix".into()),
        ("/v1/completions", json!({"prompt": "a", "best_of": 2}), "best_of".into()),
        ("/v1/completions", json!({"prompt": "a", "logprobs": 21}), "logprobs".into()),
        ("/v1/completions", json!({"prompt": vec![5; CONTEXT]}), "prompt".into()),
        ("/v1/completions", json!({"prompt": "word ".repeat(CONTEXT + 1)}), "prompt".into()),
        ("/v1/embeddings", json!({}), "input".into()),
        ("/v1/embeddings", json!({"input": "a", "encoding_format": "hex"}), "encoding_format".into()),
        ("/v1/embeddings", json!({"input": "a", "dimensions": 7}), "dimensions".into()),
        ("/tokenize", json!({}), "content".into()),
        ("/tokenize", json!({"content": 5}), "content".into()),
        ("/detokenize", json!({"tokens": [1, 99_999_999]}), "tokens[1]".into()),
        ("/detokenize", json!({"tokens": "five"}), "tokens".into()),
    ];
    for (path, body, param) in cases {
        let reply = client.post(path, &body);
        let shown = body.to_string().chars().take(200).collect::<String>();
        assert_eq!(reply.status, 400, "{path} {shown}: {}", reply.body);
        let error = &reply.json()["error"];
        assert_eq!((&error["type"], &error["param"]), (&"invalid_request_error".into(), &param.into()), "{path} {shown}: {error}");
        assert!(error["message"].as_str().is_some_and(|m| !m.is_empty() && m.len() < 400), "{error}");
        assert!(error.get("code").is_some());
    }
}

#[test]
fn what_is_no_request() {
    let client = shared();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for body in [
        "",
        "{",
        "[]",
        "null",
        "{\"messages\": ",
        "{} {}",
        "\u{0}",
        deep.as_str(),
        "{\"messages\": [{\"role\": \"user\", \"content\": \"\\ud800\"}]}",
    ] {
        let reply = client.raw("POST", "/v1/chat/completions", body.as_bytes());
        assert_eq!(reply.status, 400, "{}: {}", &body[..body.len().min(40)], reply.body);
        assert_eq!(reply.json()["error"]["type"], "invalid_request_error");
    }
    assert_eq!(client.raw("POST", "/v1/chat/completions", b"\xff\xfe{}").status, 400);
    let model = client.post("/v1/completions", &json!({"prompt": "a", "model": "other"}));
    assert_eq!((model.status, &model.json()["error"]["code"]), (404, &"model_not_found".into()));
    for (method, path, status) in [("GET", "/nowhere", 404), ("GET", "/v1/chat/completions", 405), ("POST", "/v1/models", 405)] {
        let reply = client.raw(method, path, b"");
        assert_eq!(reply.status, status);
        assert_eq!(reply.json()["error"]["type"], "not_found_error");
    }
    assert_eq!(client.get("/v1/messages/nothing").json()["type"], "error", "the shape of Anthropic's API under its paths");
    let long = client.post("/v1/completions", &json!({"prompt": vec![5; CONTEXT]})).json();
    assert_eq!(long["error"]["code"], "context_length_exceeded");
}

#[test]
fn models() {
    let client = shared();
    let list = client.get("/v1/models").json();
    assert_eq!((&list["object"], &list["data"][0]["id"]), (&"list".into(), &NAME.into()));
    assert_eq!(client.get("/v1/models/refmodel").json(), list["data"][0]);
    assert_eq!(client.get("/v1/models/another").json(), list["data"][0], "an alias");
    assert_eq!(client.get("/v1/models/some/other").status, 404);
}

#[test]
fn tokens_there_and_back() {
    let client = shared();
    let (tokenizer, _) = text();
    let words = "Grüße, 世界 <|im_end|> 🙂";
    for special in [true, false] {
        let got = client.post("/tokenize", &json!({"content": words, "parse_special": special})).json();
        let want = tokenizer.encode(words, special).unwrap();
        assert_eq!((&got["tokens"], &got["count"]), (&json!(want), &want.len().into()));
        let back = client.post("/detokenize", &json!({"tokens": want})).json();
        assert_eq!((&back["content"], &back["prompt"]), (&words.into(), &words.into()));
    }
    let pieces = client.post("/tokenize", &json!({"prompt": words, "with_pieces": true})).json();
    let bytes: Vec<u8> = pieces["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|t| match &t["piece"] {
            Value::String(s) => s.clone().into_bytes(),
            bytes => bytes.as_array().unwrap().iter().map(|b| b.as_u64().unwrap() as u8).collect(),
        })
        .collect();
    assert_eq!(String::from_utf8(bytes).unwrap(), words);
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let chat = client.post("/tokenize", &json!({"messages": messages})).json();
    assert_eq!(chat["tokens"], json!(common::chat_ids(&messages, true)));
}

#[test]
fn embeddings() {
    let client = shared();
    let ask = |body: Value| client.post("/v1/embeddings", &body).json();
    let vectors = |v: &Value| -> Vec<Vec<f64>> {
        let data = v["data"].as_array().unwrap();
        data.iter().map(|d| d["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()).collect()
    };
    let both = ask(json!({"input": ["silk and gold", "one two three four"], "model": NAME}));
    let v = vectors(&both);
    let length = v[0].iter().map(|x| x * x).sum::<f64>();
    assert!((length - 1.0).abs() < 1e-5, "{length}");
    assert_ne!(v[0], v[1]);
    assert_eq!(v[1], vectors(&ask(json!({"input": "one two three four"})))[0], "alone or beside another");
    let ids = text().0.encode("one two three four", true).unwrap();
    assert_eq!(v[1], vectors(&ask(json!({"input": ids})))[0]);
    let mean = &vectors(&ask(json!({"input": ids, "normalize": false})))[0];
    let scale = mean[0] / v[1][0];
    assert!(mean.iter().zip(&v[1]).all(|(m, u)| (m - u * scale).abs() < 1e-4 * scale.abs()), "the same direction");
    let packed = ask(json!({"input": ids, "encoding_format": "base64"}));
    let bytes = base64::decode(packed["data"][0]["embedding"].as_str().unwrap()).unwrap();
    let unpacked: Vec<f64> = bytes.as_chunks::<4>().0.iter().map(|c| f64::from(f32::from_le_bytes(*c))).collect();
    assert!(unpacked.iter().zip(&v[1]).all(|(a, b)| (*a as f32).to_bits() == (*b as f32).to_bits()));
    assert_eq!(both["usage"]["prompt_tokens"], ids.len() + text().0.encode("silk and gold", true).unwrap().len());
}

#[test]
fn status_metrics_and_health() {
    let client = shared();
    assert_eq!(client.get("/health").json(), json!({"status": "ok"}));
    client.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 3, "ignore_eos": true}));
    let status = client.get("/v1/status").json();
    assert_eq!((&status["model"], &status["context"], &status["state"]), (&NAME.into(), &CONTEXT.into(), &"ready".into()));
    assert_eq!(status["slots"].as_array().unwrap().len(), SLOTS);
    assert!(status["counters"]["generated_tokens"].as_u64() >= Some(3), "{status}");
    assert!(status["times_ms"]["first_token"]["p99"].as_f64() > Some(0.0), "{status}");
    assert!(status["delays_ms"]["first_step"]["p99"].as_f64() > Some(0.0), "{status}");
    let reply = client.get("/metrics");
    assert!(reply.header("content-type").is_some_and(|t| t.starts_with("application/openmetrics-text")));
    for name in [
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "vllm:kv_cache_usage_perc",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
        "vllm:time_to_first_token_seconds_count",
        "vllm:inter_token_latency_seconds_sum",
        "vllm:e2e_request_latency_seconds_bucket",
        "strata:steps_total",
    ] {
        assert!(reply.body.lines().any(|l| l.starts_with(&format!("{name}{{")) && l.contains("model_name=\"refmodel\"")), "{name}");
    }
    assert!(reply.body.contains("vllm:request_success_total{model_name=\"refmodel\",finished_reason=\"length\"}"), "{}", reply.body);
    assert!(reply.body.ends_with("# EOF\n"));
}

#[test]
fn pages() {
    let client = shared();
    let page = client.get("/");
    assert_eq!(page.status, 200);
    assert!(page.header("content-security-policy").is_some_and(|p| p.starts_with("default-src 'none'; script-src 'self';")));
    assert!(page.header("content-type").is_some_and(|t| t.starts_with("text/html")));
    let style = client.get("/page/style.css");
    assert_eq!((style.status, style.header("content-type")), (200, Some("text/css; charset=utf-8")));
    assert_eq!(client.get("/page/app.js").header("content-type"), Some("text/javascript; charset=utf-8"));
    for none in ["/page/none.js", "/page/..%2fCargo.toml", "/page/"] {
        assert_eq!(client.get(none).status, 404, "{none}");
    }
}
