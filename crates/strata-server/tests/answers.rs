//! Answers: the same text streamed and whole, alone and beside others, and as an engine of its own draws it.

mod common;

use common::{chat_ids, shared, solo, text};
use serde_json::{Value, json};
use strata_engine::sampler::SamplingParams;

const PATH: &str = "/v1/chat/completions";

fn messages(text: &str) -> Value {
    json!([{"role": "user", "content": text}])
}

fn request(text: &str, seed: u64, max: usize) -> Value {
    json!({
        "messages": messages(text), "seed": seed, "max_tokens": max, "temperature": 0.9, "top_p": 0.9, "ignore_eos": true,
        "chat_template_kwargs": {"enable_thinking": false},
    })
}

/// The text of each choice of a stream, and its ends.
fn joined(events: &[Value], choices: usize) -> Vec<(String, String)> {
    let mut all = vec![(String::new(), String::new()); choices];
    for choice in events.iter().flat_map(|e| e["choices"].as_array().unwrap()) {
        let a = &mut all[choice["index"].as_u64().unwrap() as usize];
        a.0 += choice["delta"]["content"].as_str().or(choice["text"].as_str()).unwrap_or("");
        a.1 += choice["finish_reason"].as_str().unwrap_or("");
    }
    all
}

#[test]
fn streamed_whole_and_solo_are_one_text() {
    let client = shared();
    for (seed, max, question) in [(1, 40, "Say these words again: silk, iron, gold."), (u64::MAX, 33, "How many apples?"), (7, 1, "Hi")] {
        let body = request(question, seed, max);
        let params = SamplingParams { temperature: 0.9, top_p: 0.9, seed, ..SamplingParams::default() };
        let want = solo(&chat_ids(&messages(question), false), &params, max, true).1;
        let whole = client.post(PATH, &body).json();
        assert_eq!(whole["choices"][0]["message"]["content"], want, "{whole}");
        assert_eq!(whole["choices"][0]["finish_reason"], "length");
        assert_eq!(whole["usage"]["completion_tokens"], max);
        assert_eq!(whole["seed"], seed);
        assert_eq!(joined(&client.events(PATH, &body), 1), [(want, "length".to_owned())]);
    }
}

#[test]
fn an_answer_that_ends_by_itself() {
    let client = shared();
    let body = json!({"messages": messages("Say these words again: silk, iron, gold."), "temperature": 0,
        "chat_template_kwargs": {"enable_thinking": false}, "stream_options": {"include_usage": true}});
    let params = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
    let prompt = chat_ids(&body["messages"], false);
    let (ids, want) = solo(&prompt, &params, 200, false);
    assert!(ids.len() < 200, "the reference model ends this answer");
    let whole = client.post(PATH, &body).json();
    let choice = &whole["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&want.into(), &"stop".into()));
    assert_eq!(whole["usage"]["prompt_tokens"], prompt.len());
    assert_eq!(whole["usage"]["completion_tokens"], ids.len());
    assert_eq!(whole["usage"]["total_tokens"], prompt.len() + ids.len());
    let events = client.events(PATH, &body);
    assert_eq!(events[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert!(events.iter().all(|e| e["object"] == "chat.completion.chunk" && e["id"] == events[0]["id"]));
    let last = events.last().unwrap();
    assert_eq!((&last["choices"], &last["usage"]["completion_tokens"]), (&json!([]), &ids.len().into()));
    assert!(events[..events.len() - 1].iter().all(|e| e["usage"].is_null()));
}

#[test]
fn choices_differ_and_are_reproducible_under_load() {
    let client = shared();
    let body = |seed: u64, n: u32| {
        let mut b = request("Tell me something.", seed, 24);
        b["n"] = n.into();
        b
    };
    let texts = |v: &Value| -> Vec<String> {
        v["choices"].as_array().unwrap().iter().map(|c| c["message"]["content"].as_str().unwrap().to_owned()).collect()
    };
    let alone = texts(&client.post(PATH, &body(5, 3)).json());
    assert!(alone[0] != alone[1] && alone[1] != alone[2], "{alone:?}");
    let first = texts(&client.post(PATH, &body(5, 1)).json());
    assert_eq!(first[0], alone[0], "a choice does not depend on how many there are");
    let together: Vec<Vec<String>> = std::thread::scope(|scope| {
        let ask = |i: u64| {
            let client = &client;
            scope.spawn(move || match i % 2 {
                0 => texts(&client.post(PATH, &body(5, 3)).json()),
                _ => joined(&client.events(PATH, &body(5, 3)), 3).into_iter().map(|(t, _)| t).collect(),
            })
        };
        let all: Vec<_> = (0..6).map(ask).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(together.iter().all(|t| *t == alone), "{together:?}");
    let other = texts(&client.post(PATH, &body(6, 3)).json());
    assert_ne!(other, alone, "another seed, another answer");
}

#[test]
fn a_seed_that_is_not_given_is_told() {
    let client = shared();
    let mut body = request("Tell me something.", 0, 16);
    body.as_object_mut().unwrap().remove("seed");
    let first = client.post(PATH, &body).json();
    let events = client.events(PATH, &body);
    assert_ne!(first["seed"], events[0]["seed"]);
    body["seed"] = first["seed"].clone();
    assert_eq!(client.post(PATH, &body).json()["choices"], first["choices"]);
    body["seed"] = events[0]["seed"].clone();
    assert_eq!(joined(&client.events(PATH, &body), 1), joined(&events, 1));
}

#[test]
fn stop_strings_cut_the_text_wherever_they_fall() {
    let client = shared();
    let body = request("Tell me something.", 3, 60);
    let full = client.post(PATH, &body).json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    let chars: Vec<(usize, char)> = full.char_indices().collect();
    for (from, len) in [(10, 1), (17, 3), (31, 5)] {
        let stop: String = chars[from..from + len].iter().map(|(_, c)| c).collect();
        let want = &full[..full.find(&stop).unwrap()];
        let mut body = body.clone();
        body["stop"] = if len == 1 { json!(stop) } else { json!(["no such text", stop]) };
        let whole = client.post(PATH, &body).json();
        assert_eq!(whole["choices"][0]["message"]["content"], want, "{stop:?}");
        assert_eq!(whole["choices"][0]["finish_reason"], "stop");
        assert_eq!(joined(&client.events(PATH, &body), 1), [(want.to_owned(), "stop".to_owned())]);
    }
}

#[test]
fn log_probabilities_say_what_was_drawn() {
    let client = shared();
    let mut body = request("Tell me something.", 3, 20);
    body["logprobs"] = true.into();
    body["top_logprobs"] = 3.into();
    let whole = client.post(PATH, &body).json();
    let tokens = whole["choices"][0]["logprobs"]["content"].as_array().unwrap().clone();
    let bytes: Vec<u8> = tokens.iter().flat_map(|t| t["bytes"].as_array().unwrap()).map(|b| b.as_u64().unwrap() as u8).collect();
    assert_eq!(String::from_utf8_lossy(&bytes), whole["choices"][0]["message"]["content"].as_str().unwrap());
    for t in &tokens {
        let top = t["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        let p: Vec<f64> = top.iter().map(|t| t["logprob"].as_f64().unwrap()).collect();
        assert!(p[0] >= p[1] && p[1] >= p[2] && p[0] <= 0.0 && t["logprob"].as_f64().unwrap() <= p[0], "{t}");
    }
    let streamed: Vec<Value> = client
        .events(PATH, &body)
        .iter()
        .flat_map(|e| e["choices"][0]["logprobs"]["content"].as_array().cloned().unwrap_or_default())
        .collect();
    assert_eq!(streamed, tokens);
}

#[test]
fn a_bias_decides() {
    let client = shared();
    let (tokenizer, _) = text();
    let id = tokenizer.encode(" gold", false).unwrap()[0];
    let mut body = request("Tell me something.", 3, 5);
    body["logit_bias"] = json!({id.to_string(): 100});
    let want = tokenizer.decode(&[id; 5], true);
    assert_eq!(client.post(PATH, &body).json()["choices"][0]["message"]["content"], want);
}

#[test]
fn completions_take_texts_and_ids() {
    let client = shared();
    let path = "/v1/completions";
    let prompts = ["Silk, iron,", "One two three"];
    let (tokenizer, _) = text();
    let ids: Vec<Vec<u32>> = prompts.iter().map(|p| tokenizer.encode(p, true).unwrap()).collect();
    let params = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
    let want: Vec<String> = ids.iter().map(|ids| solo(ids, &params, 16, true).1).collect();
    let texts =
        |v: &Value| -> Vec<String> { v["choices"].as_array().unwrap().iter().map(|c| c["text"].as_str().unwrap().to_owned()).collect() };
    for prompt in [json!(prompts), json!(ids)] {
        let body = json!({"prompt": prompt, "temperature": 0, "ignore_eos": true});
        let whole = client.post(path, &body).json();
        assert_eq!(texts(&whole), want, "16 tokens if nothing is said");
        assert_eq!(whole["usage"]["prompt_tokens"], ids[0].len() + ids[1].len());
        let streamed: Vec<String> = joined(&client.events(path, &body), 2).into_iter().map(|(t, _)| t).collect();
        assert_eq!(streamed, want);
    }
    let body = json!({"prompt": ids[0], "temperature": 0, "ignore_eos": true, "echo": true, "n": 2, "max_tokens": 4});
    let want = format!("{}{}", prompts[0], solo(&ids[0], &params, 4, true).1);
    assert_eq!(texts(&client.post(path, &body).json()), [want.clone(), want.clone()]);
    assert_eq!(joined(&client.events(path, &body), 2), vec![(want, "length".to_owned()); 2]);
    let body = json!({"prompt": prompts[0], "temperature": 0, "logprobs": 2, "max_tokens": 6, "ignore_eos": true});
    let logprobs = &client.post(path, &body).json()["choices"][0]["logprobs"];
    let tokens: Vec<&str> = logprobs["tokens"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
    assert_eq!(tokens.concat(), solo(&ids[0], &params, 6, true).1);
    assert_eq!(logprobs["text_offset"][1], tokens[0].chars().count());
    assert_eq!(logprobs["top_logprobs"][0].as_object().unwrap().len(), 2);
}

#[test]
fn progress_and_usage() {
    let client = shared();
    let long = "silk and iron and gold and ".repeat(40);
    let mut body = request(&long, 1, 2);
    body["return_progress"] = true.into();
    body["cache_prompt"] = false.into();
    let events = client.events(PATH, &body);
    let progress: Vec<&Value> = events.iter().map(|e| &e["prompt_progress"]).filter(|p| p.is_object()).collect();
    let n = chat_ids(&messages(&long), false).len();
    assert!(progress.len() >= 2 && progress.iter().all(|p| p["total"] == n && p["cache"] == 0), "{progress:?}");
    let read: Vec<u64> = progress.iter().map(|p| p["processed"].as_u64().unwrap()).collect();
    assert!(read.windows(2).all(|w| w[0] < w[1]) && read[read.len() - 1] == n as u64, "{read:?}");
}

#[test]
fn thinking_is_apart() {
    let client = shared();
    let question = messages("Fred has 12 apples. He buys 7 more. How many apples does Fred have?");
    let params = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
    let (_, raw) = solo(&chat_ids(&question, true), &params, 200, false);
    let (thought, answer) = raw.split_once("</think>").expect("the reference model thinks");
    let body = json!({"messages": question, "temperature": 0, "logprobs": true});
    let whole = client.post(PATH, &body).json();
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], thought.trim());
    assert_eq!(message["content"], answer.trim());
    let used = text().0.encode(&format!("{}\n</think>", thought.trim()), true).unwrap().len();
    assert_eq!(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], used);
    let events = client.events(PATH, &body);
    let deltas = |name: &str| events.iter().filter_map(|e| e["choices"][0]["delta"][name].as_str()).collect::<String>();
    assert_eq!((deltas("reasoning_content"), deltas("content")), (thought.trim().to_owned(), answer.trim().to_owned()));
    let shown =
        whole["choices"][0]["logprobs"]["content"].as_array().unwrap().iter().map(|t| t["token"].as_str().unwrap()).collect::<String>();
    assert_eq!(shown, answer.trim(), "log-probabilities are those of the content's tokens");
    let quiet = json!({"messages": question, "temperature": 0, "reasoning_effort": "none"});
    assert!(client.post(PATH, &quiet).json()["choices"][0]["message"].get("reasoning_content").is_none());
}

/// A tool and a question that the reference model answers with a call of it.
fn with_tool() -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    json!({
        "messages": messages("What is the weather in Paris?"), "temperature": 0,
        "tools": [{"type": "function", "function": {"name": "get_weather", "description": "weather", "parameters": parameters}}],
    })
}

#[test]
fn calls_of_tools() {
    let client = shared();
    let body = with_tool();
    let whole = client.post(PATH, &body).json();
    let choice = &whole["choices"][0];
    assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&"tool_calls".into(), &Value::Null));
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!((&call["type"], &call["function"]["name"]), (&"function".into(), &"get_weather".into()));
    assert!(call["id"].as_str().is_some_and(|id| id.len() > 20));
    let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"city": "Paris"}));

    let events = client.events(PATH, &body);
    let deltas: Vec<&Value> = events.iter().map(|e| &e["choices"][0]["delta"]["tool_calls"][0]).filter(|d| d.is_object()).collect();
    assert_eq!((&deltas[0]["index"], &deltas[0]["function"]["name"]), (&0.into(), &"get_weather".into()));
    assert!(deltas.len() > 3 && deltas[1..].iter().all(|d| d.get("id").is_none()), "arguments come as they grow");
    let joined: String = deltas.iter().map(|d| d["function"]["arguments"].as_str().unwrap()).collect();
    assert_eq!(joined, call["function"]["arguments"].as_str().unwrap());
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");

    // the call and its result go back
    let mut next = body.clone();
    let turns = next["messages"].as_array_mut().unwrap();
    turns.push(choice["message"].clone());
    turns.push(json!({"role": "tool", "tool_call_id": call["id"], "content": [{"type": "text", "text": "Sunny, 20 degrees."}]}));
    let reply = client.post(PATH, &next);
    assert_eq!(reply.status, 200, "{}", reply.body);

    // tools that are not to be called are not shown, and nothing is taken for a call of them
    let mut none = body.clone();
    none["tool_choice"] = "none".into();
    let mut without = body.clone();
    without.as_object_mut().unwrap().remove("tools");
    let (none, without) = (client.post(PATH, &none).json(), client.post(PATH, &without).json());
    assert_eq!(none["choices"], without["choices"]);
    assert_eq!(none["usage"], without["usage"]);
}

#[test]
fn images_are_refused_by_name() {
    let part = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let body = json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "Look:"}, part]}]});
    let reply = shared().post(PATH, &body);
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &"messages[0].content[1].type".into()));
}
