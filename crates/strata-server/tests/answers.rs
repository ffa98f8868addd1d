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
