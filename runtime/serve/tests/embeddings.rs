//! texts  =>  embeddings and scores, over the interfaces of OpenAI and text-embeddings-inference: bit-identical to a
//! direct call, in every batch

#[path = "../../tests/common/mod.rs"]
mod artifacts;
mod common;
#[path = "common/models.rs"]
mod models;

use artifacts::Builder;
use common::Server;
use models::{WORDS, embedder, of_tokens, reranker, serve, tokenizer};
use sardonyx_base::{DType, Tensor};
use sardonyx_runtime::SessionOptions;
use serde_json::{Value, json};

/// The embedding that a direct call of the runtime returns for these ids alone.
fn expected(ids: &[i64]) -> Vec<f32> {
    let session = embedder(false).load().unwrap().session(&SessionOptions::default()).unwrap();
    let tensor = |values: Vec<i64>| Tensor::from_vec(vec![1, ids.len()], values);
    let inputs = [("input_ids", tensor(ids.to_vec())), ("attention_mask", tensor(vec![1; ids.len()]))];
    session.run(&inputs).unwrap()["sentence_embedding"].to_vec::<f32>().unwrap()
}

fn floats(list: &Value) -> Vec<f32> {
    list.as_array().unwrap_or_else(|| panic!("{list}")).iter().map(|v| v.as_f64().unwrap() as f32).collect()
}

fn openai(server: &Server, mut request: Value) -> Value {
    request["model"] = json!("m");
    let answer = server.post_json("/v1/embeddings", &request);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[test]
fn texts_ids_floats_and_base64_agree() {
    let (_dir, server) = serve(&embedder(false), &[]);
    let answer = openai(&server, json!({ "input": "The cat sleeps" }));
    assert_eq!(answer["usage"], json!({ "prompt_tokens": 5, "total_tokens": 5 }));
    assert_eq!((&answer["object"], &answer["model"]), (&json!("list"), &json!("m")));
    let wanted = expected(&[1, 3, 4, 5, 2]);
    assert_eq!(floats(&answer["data"][0]["embedding"]), wanted);
    let ids = openai(&server, json!({ "input": [1, 3, 4, 5, 2] }));
    assert_eq!(ids["data"], answer["data"]);
    let lists = openai(&server, json!({ "input": [[1, 3, 4, 5, 2], [1, 9]], "encoding_format": "float" }));
    assert_eq!((&lists["data"][0], &lists["data"][1]["index"]), (&answer["data"][0], &json!(1)));
    assert_eq!(floats(&lists["data"][1]["embedding"]), expected(&[1, 9]));
    let coded = openai(&server, json!({ "input": ["The cat sleeps"], "encoding_format": "base64" }));
    let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let text = coded["data"][0]["embedding"].as_str().unwrap().trim_end_matches('=');
    let bits = text.chars().map(|c| letters.find(c).unwrap() as u8).flat_map(|v| (0..6).rev().map(move |i| v >> i & 1));
    let bits: Vec<u8> = bits.collect();
    let bytes: Vec<u8> = bits.chunks_exact(8).map(|b| b.iter().fold(0, |n, bit| n << 1 | bit)).collect();
    let numbers: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(numbers, wanted);
    assert_eq!(server.get("/v1/models").json()["data"][0]["id"], "m");
}

#[test]
fn fewer_dimensions_are_the_first_ones() {
    let (_dir, server) = serve(&embedder(false), &[]);
    let wanted = expected(&[1, 4, 2]);
    let answer = openai(&server, json!({ "input": "cat", "dimensions": 2 }));
    assert_eq!(floats(&answer["data"][0]["embedding"]), wanted[..2]);
    let refused = server.post_json("/v1/embeddings", &json!({ "model": "m", "input": "cat", "dimensions": 5 }));
    assert_eq!(refused.status, 400);
    let message = refused.json()["error"]["message"].as_str().unwrap().to_string();
    assert!(message.contains("`dimensions` is 5, and an embedding has 4"), "{message}");
}

#[test]
fn an_embedding_has_the_same_bits_in_every_batch() {
    for packed in [false, true] {
        let (_dir, server) = serve(&embedder(packed), &[]);
        let texts: Vec<String> = (0..100).map(|i| WORDS[3..][..1 + i % 5].join(" ")).collect();
        let together = openai(&server, json!({ "input": texts }));
        for (i, embedding) in together["data"].as_array().unwrap().iter().enumerate() {
            let ids: Vec<i64> = [1].into_iter().chain(3..4 + i as i64 % 5).chain([2]).collect();
            assert_eq!(floats(&embedding["embedding"]), expected(&ids), "text {i}, packed: {packed}");
        }
        let stats = server.get("/v2/models/m/stats").json()["model_stats"][0].clone();
        assert_eq!((&stats["stacked"], &stats["inference_count"]), (&json!(true), &json!(100)));
        // Texts of different lengths share a call if padding is not computed.
        let calls = stats["execution_count"].as_u64().unwrap();
        assert!(if packed { calls <= 3 } else { (5..=7).contains(&calls) }, "{stats}");
    }
}

/// A model that returns one number per token; if `packed`, it does not compute padding.
fn tokens_embedder(packed: bool) -> Builder {
    let (mut b, ids, _) = of_tokens(packed);
    let y = b.output("last_hidden_state", DType::F32, &["batch", "seq", "1"], "4*batch*seq");
    let table = b.constant(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    let gather = b.kernel("gather", &[false, false, true], 1, "0");
    b.launch(gather, &[table, ids, y], &["10"], "batch*seq");
    b
}

#[test]
fn vectors_of_tokens_are_averaged_where_the_model_does_not() {
    for packed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (path, file) = (dir.path().join("m.sdx"), dir.path().join("tokenizer.json"));
        tokens_embedder(packed).write(&path);
        std::fs::write(&file, tokenizer()).unwrap();
        let server = Server::start(&path, &["--tokenizer", &file.display().to_string()]);
        // The means are (1 + 3 + 4 + 2) / 4 and (1 + 5 + 2) / 3.
        let answer = openai(&server, json!({ "input": ["the cat", "sleeps", "the cat"] }));
        let vectors = [2.5, 8.0 / 3.0, 2.5];
        for (i, x) in vectors.into_iter().enumerate() {
            assert_eq!(floats(&answer["data"][i]["embedding"]), [x]);
        }
        // If padding is not computed, one call computes all texts, and each gets its own positions back.
        let stats = server.get("/v2/models/m/stats").json()["model_stats"][0].clone();
        assert_eq!(stats["execution_count"], if packed { 1 } else { 2 });
        let padding = if packed { 1 } else { 0 };
        let metrics = server.get("/metrics").text();
        assert!(metrics.contains(&format!(r#"sardonyx_padding_positions_total{{model="m"}} {padding}"#)), "{metrics}");
    }
}

#[test]
fn the_interface_of_text_embeddings_inference() {
    let (_dir, server) = serve(&embedder(false), &[]);
    assert_eq!(server.get("/health").status, 200);
    let info = server.get("/info").json();
    assert_eq!((&info["model_id"], &info["max_input_length"]), (&json!("m"), &json!(8)));
    assert_eq!(
        (&info["embedding_dimension"], &info["model_type"]),
        (&json!(4), &json!({ "embedding": { "pooling": "mean" } }))
    );
    let embed = |request: Value| server.post_json("/embed", &request);
    let plain = embed(json!({ "inputs": ["cat"], "normalize": false })).json();
    assert_eq!(floats(&plain[0]), expected(&[1, 4, 2]));
    let unit = floats(&embed(json!({ "inputs": "cat" })).json()[0]);
    let norm: f32 = unit.iter().map(|x| x * x).sum();
    assert!((norm - 1.0).abs() < 1e-6, "{norm}");
    let prompted = embed(json!({ "inputs": "sleeps", "normalize": false, "prompt_name": "query" })).json();
    assert_eq!(floats(&prompted[0]), expected(&[1, 3, 4, 5, 2]));
    let long = "cat ".repeat(20);
    let cut = embed(json!({ "inputs": long, "normalize": false })).json();
    assert_eq!(floats(&cut[0]), expected(&[1, 4, 4, 4, 4, 4, 4, 2]));
    let refused = embed(json!({ "inputs": long, "truncate": false }));
    assert_eq!((refused.status, refused.json()["error_type"].clone()), (413, json!("validation")));
    let tokens = server.post_json("/tokenize", &json!({ "inputs": ["Cat sill"] })).json();
    let token = |id, text, special, start, stop| json!({ "id": id, "text": text, "special": special, "start": start, "stop": stop });
    let cat = [
        token(1, "[CLS]", true, 0, 0),
        token(4, "cat", false, 0, 3),
        token(9, "sill", false, 4, 8),
        token(2, "[SEP]", true, 0, 0),
    ];
    assert_eq!(tokens, json!([cat]));
    let bare = server.post_json("/tokenize", &json!({ "inputs": "cat", "add_special_tokens": false })).json();
    assert_eq!(bare, json!([[token(4, "cat", false, 0, 3)]]));
}

/// The score of a token is 1 / (its id + 1.5); the score of a pair is the sum over the tokens of both texts.
#[test]
fn texts_are_ranked_by_their_scores_beside_a_query() {
    let (_dir, server) = serve(&reranker(), &[]);
    let raw = |ids: &[usize]| ids.iter().fold(0f32, |sum, id| sum + 1.0 / (*id as f32 + 1.5));
    let request =
        json!({ "query": "The", "texts": ["sill", "cat", "cat cat"], "raw_scores": true, "return_text": true });
    let ranks = server.post_json("/rerank", &request).json();
    let wanted = [
        (2, "cat cat", raw(&[1, 3, 2, 4, 4, 2])),
        (1, "cat", raw(&[1, 3, 2, 4, 2])),
        (0, "sill", raw(&[1, 3, 2, 9, 2])),
    ];
    for (rank, (index, text, score)) in ranks.as_array().unwrap().iter().zip(wanted) {
        assert_eq!((&rank["index"], &rank["text"]), (&json!(index), &json!(text)));
        assert_eq!(rank["score"].as_f64().unwrap() as f32, score);
    }
    let ranks = server.post_json("/rerank", &json!({ "query": "the", "texts": ["cat"] })).json();
    assert_eq!(ranks[0]["score"].as_f64().unwrap() as f32, 1.0 / (1.0 + (-wanted[1].2).exp()));
    assert!(ranks[0]["index"] == 0 && ranks[0].get("text").is_none());
    assert_eq!(server.get("/info").json()["model_type"]["reranker"]["id2label"]["0"], "LABEL_0");
    let long = json!({ "query": "the", "texts": ["cat ".repeat(20)], "truncate": false });
    assert!(server.post_json("/rerank", &long).refused(413).contains("more than 8 tokens"));
    assert!(
        server.post_json("/rerank", &json!({ "query": "the", "texts": [] })).refused(400).contains("`texts` is empty")
    );
    assert!(server.post_json("/rerank", &json!({ "texts": ["cat"] })).refused(400).contains("query"));
    let refused = server.post_json("/v1/embeddings", &json!({ "model": "m", "input": "cat" }));
    assert!(refused.status == 400 && refused.text().contains("makes no embeddings"), "{}", refused.text());
    let (_dir, server) = serve(&embedder(false), &[]);
    let refused = server.post_json("/rerank", &json!({ "query": "the", "texts": ["cat"] }));
    assert!(refused.refused(400).contains("no model makes scores"));
}

#[test]
fn refusals_have_the_form_of_the_interface() {
    let (_dir, server) = serve(&embedder(false), &[]);
    let openai = |request: Value, status: u16| {
        let answer = server.post_json("/v1/embeddings", &request);
        assert_eq!(answer.status, status, "{}", answer.text());
        answer.json()["error"]["message"].as_str().unwrap().to_string()
    };
    assert!(openai(json!({ "model": "x", "input": "a" }), 404).contains("served are `m`"));
    assert!(openai(json!({ "input": "a" }), 400).contains("model"));
    assert!(openai(json!({ "model": "m", "input": [] }), 400).contains("`input` is empty"));
    assert!(openai(json!({ "model": "m", "input": [[]] }), 400).contains("empty"));
    assert!(openai(json!({ "model": "m", "input": { "a": 1 } }), 400).contains("`input` is malformed"));
    assert!(openai(json!({ "model": "m", "input": [1, -2] }), 400).contains("list of token ids"));
    assert!(openai(json!({ "model": "m", "input": vec![1; 9] }), 413).contains("at most 8"));
    assert!(openai(json!({ "model": "m", "input": [1, 99] }), 400).contains("E0303"));
    assert!(
        openai(json!({ "model": "m", "input": "a", "encoding_format": "int8" }), 400).contains("`float` or `base64`")
    );
    assert!(openai(json!({ "model": "m", "input": vec!["a"; 2049] }), 413).contains("at most 2048"));
    assert!(openai(json!({ "model": "m", "input": "a".repeat(1 << 21) }), 413).contains("bytes"));
    let tei = server.post_json("/embed", &json!({ "inputs": "cat", "prompt_name": "passage" }));
    assert!(tei.refused(400).contains("its prompts are: query"));
    let tei = server.post_json("/embed", &json!({ "inputs": "cat", "truncation_direction": "Left" }));
    assert!(tei.refused(400).contains("`truncation_direction` may be `Right`"));
    let tei = server.post_json("/tokenize", &json!({ "inputs": [1, 2] }));
    assert!(tei.refused(400).contains("token ids already"));
    let dir = tempfile::tempdir().unwrap();
    artifacts::two_layers().write(&dir.path().join("m.sdx"));
    let server = Server::start(&dir.path().join("m.sdx"), &[]);
    assert!(server.post_json("/embed", &json!({ "inputs": "cat" })).refused(400).contains("no model makes embeddings"));
}
