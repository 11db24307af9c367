//! prompts  =>  the tokens that a decoder appends, as a whole and streamed, independent of other requests

#[path = "../../tests/common/mod.rs"]
mod artifacts;
mod common;
#[path = "common/models.rs"]
mod models;

use common::Server;
use models::{decoder, decoder_with_texts, serve};
use serde_json::{Value, json};
use std::io::Write;

/// Returns the tokens that follow a prompt, up to the end token 11 or `most` tokens. Each token is the sum of all
/// tokens before it, modulo 12.
fn following(prompt: &[u32], most: usize) -> Vec<u32> {
    let mut all = prompt.to_vec();
    while all.len() < prompt.len() + most && all.last() != Some(&11) {
        all.push(all.iter().sum::<u32>() % 12);
    }
    all.split_off(prompt.len())
}

fn complete(server: &Server, mut request: Value) -> common::Response {
    request["model"] = "m".into();
    if request.get("temperature").is_none() {
        request["temperature"] = 0.into();
    }
    server.post_json("/v1/completions", &request)
}

fn ids(choice: &Value) -> Vec<u32> {
    choice["token_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn the_likeliest_tokens_follow_a_prompt() {
    let (_dir, server) = serve(&decoder_with_texts(), &[]);
    // 1 + 2 = 3, then 6, 12 mod 12 = 0, 0, …
    let answer = complete(&server, json!({ "prompt": "one two", "max_tokens": 3, "return_token_ids": true }));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    assert_eq!((&answer["object"], &answer["model"]), (&json!("text_completion"), &json!("m")));
    let choice = &answer["choices"][0];
    assert_eq!((ids(choice), &choice["text"]), (vec![3, 6, 0], &json!("three six zero")));
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(answer["usage"], json!({ "prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5 }));
    // Token 11 ends the text and is not part of it.
    let answer =
        complete(&server, json!({ "prompt": [[5, 6], [4]], "max_tokens": 9, "return_token_ids": true })).json();
    let [first, second] = [0, 1].map(|i| answer["choices"][i].clone());
    assert_eq!((ids(&first), &first["text"], &first["finish_reason"]), (vec![11], &json!(""), &json!("stop")));
    assert_eq!((ids(&second), &second["finish_reason"]), (following(&[4], 9), &json!("length")));
}

#[test]
fn a_text_ends_at_a_string_or_a_token() {
    let (_dir, server) = serve(&decoder_with_texts(), &[]);
    let answer = complete(&server, json!({ "prompt": "one", "max_tokens": 9, "stop": "four" })).json();
    assert_eq!(
        (&answer["choices"][0]["text"], &answer["choices"][0]["finish_reason"]),
        (&json!("one two "), &json!("stop"))
    );
    let request = json!({ "prompt": "one", "max_tokens": 9, "stop_token_ids": [4], "return_token_ids": true });
    assert_eq!(ids(&complete(&server, request).json()["choices"][0]), [1, 2, 4]);
}

/// Returns the events of a stream without the last one, `[DONE]`.
fn events(answer: &common::Response) -> Vec<Value> {
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")));
    // Other lines contain the lengths of chunks.
    let text = answer.text();
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (last, rest) = lines.split_last().unwrap();
    assert_eq!(*last, "[DONE]");
    rest.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_stream_has_the_pieces_of_the_whole() {
    let (_dir, server) = serve(&decoder_with_texts(), &[]);
    let request = json!({ "prompt": ["one", "five"], "n": 2, "max_tokens": 6, "temperature": 1.5, "seed": 3 });
    let whole = complete(&server, request.clone()).json();
    let mut streamed = request;
    streamed["stream"] = true.into();
    streamed["stream_options"] = json!({ "include_usage": true });
    let mut events = events(&complete(&server, streamed));
    assert_eq!(events.pop().unwrap()["usage"], whole["usage"]);
    let mut texts = [(); 4].map(|()| (String::new(), Value::Null));
    for event in &events {
        let choice = &event["choices"][0];
        let (text, reason) = &mut texts[choice["index"].as_u64().unwrap() as usize];
        assert!(reason.is_null());
        *text += choice["text"].as_str().unwrap();
        *reason = choice["finish_reason"].clone();
    }
    for (i, (text, reason)) in texts.iter().enumerate() {
        let choice = &whole["choices"][i];
        assert_eq!((&json!(text), reason), (&choice["text"], &choice["finish_reason"]), "choice {i}");
    }
    assert!(texts.iter().any(|(text, _)| *text != texts[0].0));
}

#[test]
fn texts_that_grow_together_are_those_that_grow_alone() {
    let (_dir, server) = serve(&decoder(), &["--sequences-max", "3"]);
    let server = &server;
    std::thread::scope(|scope| {
        for client in 0..8u32 {
            scope.spawn(move || {
                for i in 0..6 {
                    let prompt: Vec<u32> = (0..=i).map(|k| (client * 5 + k * 7) % 11).collect();
                    let most = 3 + (client as usize * 3 + i as usize) % 12;
                    let request = json!({ "prompt": prompt, "max_tokens": most, "return_token_ids": true,
                                          "stop_token_ids": [11] });
                    let answer = complete(server, request).json();
                    assert_eq!(ids(&answer["choices"][0]), following(&prompt, most), "{prompt:?}");
                }
            });
        }
    });
    let sequences = &server.get("/v2/models/m/stats").json()["model_stats"][0]["sequences"];
    assert_eq!((&sequences["waiting"], &sequences["running"]), (&json!(0), &json!(0)));
    let metrics = server.get("/metrics").text();
    let line = metrics.lines().find(|line| line.starts_with("sardonyx_generated_tokens_total{model=\"m\"}")).unwrap();
    assert_eq!(line.rsplit(' ').next(), Some(&*sequences["generated"].to_string()));
}

#[test]
fn what_is_wrong_or_unknown_is_refused() {
    let (_dir, server) = serve(&decoder(), &["--waiting-max", "2"]);
    let refused = |request: Value, status: u16| {
        let answer = complete(&server, request);
        assert_eq!(answer.status, status, "{}", answer.text());
        answer.json()["error"]["message"].as_str().unwrap().to_string()
    };
    for (field, value) in [
        ("logprobs", json!(2)),
        ("echo", json!(true)),
        ("best_of", json!(3)),
        ("suffix", json!("x")),
        ("presence_penalty", json!(0.5)),
        ("logit_bias", json!({ "1": 5 })),
    ] {
        let mut request = json!({ "prompt": [1] });
        request[field] = value;
        assert!(refused(request, 400).contains(&format!("`{field}` is not supported")), "{field}");
    }
    for (field, value) in [("temperature", json!(-1)), ("top_p", json!(1.5)), ("n", json!(0)), ("max_tokens", json!(0))]
    {
        let mut request = json!({ "prompt": [1] });
        request[field] = value;
        assert!(refused(request, 400).contains(&format!("`{field}` is out of range")), "{field}");
    }
    assert!(refused(json!({ "prompt": "one" }), 400).contains("no tokenizer"));
    assert!(refused(json!({ "prompt": [1], "stop": "x" }), 400).contains("stop_token_ids"));
    assert!(refused(json!({ "prompt": [1], "max_tokens": 200 }), 400).contains("E0301"));
    assert!(refused(json!({ "prompt": [] }), 400).contains("`prompt` is empty"));
    assert!(refused(json!({ "prompt": [1], "n": 3 }), 429).contains("at most 2 may"));
    assert!(refused(json!({ "prompt": [1], "n": 1000 }), 400).contains("at most 128"));
    // An error after the answer has begun is its last event.
    let stream = complete(&server, json!({ "prompt": [1], "max_tokens": 200, "stream": true }));
    assert!(stream.status == 200 && stream.text().contains(r#"data: {"error":{"#), "{}", stream.text());
    let dir = tempfile::tempdir().unwrap();
    artifacts::two_layers().write(&dir.path().join("m.sdx"));
    let server = Server::start(&dir.path().join("m.sdx"), &[]);
    assert!(complete(&server, json!({ "prompt": [1] })).text().contains("adds nothing to texts"));
}

#[test]
fn a_client_that_leaves_ends_its_text() {
    let (_dir, server) = serve(&decoder(), &["--cache-memory-max", "1"]);
    let body = json!({ "model": "m", "prompt": [1], "max_tokens": 100, "stream": true }).to_string();
    for _ in 0..20 {
        let mut stream = server.connect();
        stream.write_all(&common::request("/v1/completions", &[], body.as_bytes())).unwrap();
    }
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let running = || server.get("/v2/models/m/stats").json()["model_stats"][0]["sequences"].clone();
    while running()["running"] != 0 || running()["waiting"] != 0 {
        assert!(std::time::Instant::now() < until, "{}", running());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let answer = complete(&server, json!({ "prompt": [1, 1], "max_tokens": 2, "return_token_ids": true })).json();
    assert_eq!(ids(&answer["choices"][0]), following(&[1, 1], 2));
}
