//! requests of every interface with a few bytes changed  =>  an answer or a refusal; the server goes on and its memory
//! does not grow

#[path = "../../tests/common/mod.rs"]
mod artifacts;
mod common;
#[path = "common/models.rs"]
mod models;

use artifacts::two_layers;
use common::grpc::{Sender, call_bytes, connect, framed};
use common::{Server, request, rows_data, rows_request};
use models::{decoder_with_texts, embedder, reranker};
use sardonyx_serve::grpc::messages::*;
use serde_json::{Value, json};

/// Knuth's linear congruential generator, so that a failure can be reproduced.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as usize
}

/// Text to insert into requests: numbers at the ends of their ranges, and tokens of JSON.
static PIECES: &[&str] = &[
    "18446744073709551616",
    "-1",
    "1e308",
    "0.1",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "[[",
    "]]",
    "\\u0000",
    "\\ud800",
    "inputs",
    "shape",
    "data",
    "BYTES",
    "parameters",
    "1,1,1,1,1,1,1,1,1,1",
];

/// Makes one to three changes to a body: bits or bytes changed, text inserted, bytes removed or doubled.
fn mutate(bytes: &mut Vec<u8>, state: &mut u64) {
    for _ in 0..1 + next(state) % 3 {
        let at = next(state) % bytes.len().max(1);
        let end = (at + 1 + next(state) % 16).min(bytes.len());
        match next(state) % 6 {
            _ if bytes.is_empty() => bytes.push(next(state) as u8),
            0 => bytes[at] = next(state) as u8,
            1 => bytes[at] ^= 1 << (next(state) % 8),
            2 => bytes[at] = b"[]{}\",:0-9e"[next(state) % 11],
            3 => drop(bytes.splice(at..at, PIECES[next(state) % PIECES.len()].bytes())),
            4 => drop(bytes.drain(at..end)),
            _ => {
                let twice = bytes[at..end].to_vec();
                bytes.splice(at..at, twice);
            }
        }
    }
}

/// (path, headers, body) of a valid request.
type Original = (&'static str, Vec<(&'static str, String)>, Vec<u8>);

fn originals() -> Vec<Original> {
    let head = json!({ "inputs": [{ "name": "x", "shape": [1, 8], "datatype": "FP32", "parameters": { "binary_data_size": 32 } }] });
    let head = head.to_string();
    let length = vec![("Inference-Header-Content-Length", head.len().to_string())];
    let json = |path, body: Value| (path, vec![], body.to_string().into_bytes());
    let complete = json!({ "model": "decoder", "prompt": "one two", "max_tokens": 5, "temperature": 0.5, "stop": ["ten"],
                           "stream": true });
    vec![
        json("/v2/models/m/infer", rows_request(2, 0)),
        ("/v2/models/m/infer", length, [head.as_bytes(), &[7; 32]].concat()),
        json(
            "/v1/embeddings",
            json!({ "model": "embedder", "input": ["cat", "a warm sill"], "encoding_format": "base64" }),
        ),
        json("/v1/embeddings", json!({ "model": "embedder", "input": [[1, 4], [2]], "dimensions": 2 })),
        json("/embed", json!({ "inputs": "the cat", "prompt_name": "query", "normalize": false })),
        json("/rerank", json!({ "query": "the", "texts": ["cat", "sill"], "return_text": true })),
        json("/tokenize", json!({ "inputs": ["cat"], "add_special_tokens": true })),
        json("/v1/completions", complete),
        json(
            "/v1/completions",
            json!({ "model": "decoder", "prompt": [[1, 2], [3]], "max_tokens": 3, "n": 2, "seed": 5 }),
        ),
        json("/v2/repository/index", json!({ "ready": true })),
    ]
}

/// (method, message) of valid gRPC calls.
fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let bytes: Vec<u8> = rows_data(2, 0).iter().flat_map(|v| v.to_le_bytes()).collect();
    let input = |contents| InferInputTensor {
        name: "x".into(),
        datatype: "FP32".into(),
        shape: vec![2, 8],
        contents,
        ..Default::default()
    };
    let contents = InferTensorContents { fp32_contents: rows_data(2, 0), ..Default::default() };
    let infer = |input, raw: Vec<bytes::Bytes>| ModelInferRequest {
        model_name: "m".into(),
        inputs: vec![input],
        raw_input_contents: raw,
        ..Default::default()
    };
    vec![
        ("ModelInfer", framed(&infer(input(None), vec![bytes.into()]))),
        ("ModelInfer", framed(&infer(input(Some(contents)), vec![]))),
        ("ModelStatistics", framed(&ModelStatisticsRequest { name: "m".into(), version: String::new() })),
        ("ModelMetadata", framed(&ModelMetadataRequest { name: "m".into(), version: String::new() })),
        ("RepositoryIndex", framed(&RepositoryIndexRequest { ready: true, ..Default::default() })),
    ]
}

/// Whether a gRPC status says that the request, and not the server, is at fault.
fn is_refusal(code: u32) -> bool {
    // Invalid argument, deadline, not found, permission, exhausted, failed precondition, aborted, out of range,
    // unimplemented; the gRPC library reports a wrong length as internal (13).
    matches!(code, 3 | 4 | 5 | 7 | 8 | 9 | 10 | 11 | 12 | 13)
}

async fn call(sender: &mut Sender, server: &Server, method: &str, body: Vec<u8>) -> Result<Vec<u8>, (u32, String)> {
    if sender.is_closed() {
        *sender = connect(server).await;
    }
    call_bytes(sender, method, &[], body).await
}

fn mutants_are_answered(mutants: usize) {
    let dir = tempfile::tempdir().unwrap();
    two_layers().write(&dir.path().join("m.sdx"));
    decoder_with_texts().write(&dir.path().join("decoder.sdx"));
    embedder(true).write(&dir.path().join("embedder.sdx"));
    reranker().write(&dir.path().join("reranker.sdx"));
    let mut server = Server::start(dir.path(), &["--timeout", "10", "--allow-load"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut sender = runtime.block_on(connect(&server));
    let (originals, messages) = (originals(), messages());
    let send = |server: &Server, (path, headers, body): &Original| {
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        server.send(&request(path, &headers, body)).status
    };
    for original in &originals {
        assert_eq!(send(&server, original), 200, "{} {}", original.0, String::from_utf8_lossy(&original.2));
    }
    for (method, message) in &messages {
        assert!(runtime.block_on(call(&mut sender, &server, method, message.clone())).is_ok(), "{method}");
    }
    let (memory, mut state) = (server.resident_bytes(), 1);
    let (mut answered, mut refused) = (0, 0);
    for i in 0..mutants {
        let is_ok = match i % 4 {
            // The length and flag of the frame remain valid in three of four cases.
            0 => {
                let (method, message) = &messages[next(&mut state) % messages.len()];
                let (mut head, mut body) = (message[..5].to_vec(), message[5..].to_vec());
                mutate(&mut body, &mut state);
                match i % 16 {
                    0 => head[next(&mut state) % 5] = next(&mut state) as u8,
                    _ => head[1..].copy_from_slice(&(body.len() as u32).to_be_bytes()),
                }
                match runtime.block_on(call(&mut sender, &server, method, [head, body].concat())) {
                    Ok(_) => true,
                    Err((code, text)) => {
                        assert!(is_refusal(code), "mutant {i}: {code}, {text}");
                        false
                    }
                }
            }
            _ => {
                let mut mutant = originals[next(&mut state) % originals.len()].clone();
                mutate(&mut mutant.2, &mut state);
                let status = send(&server, &mutant);
                let shown = String::from_utf8_lossy(&mutant.2);
                assert!(status == 200 || (400..500).contains(&status), "mutant {i}: {status}, {} {shown}", mutant.0);
                status == 200
            }
        };
        if is_ok { answered += 1 } else { refused += 1 }
    }
    println!("{mutants} mutants: {answered} answered, {refused} refused");
    assert!(server.is_alive() && answered > mutants / 20 && refused > mutants / 4, "{answered}, {refused}");
    let grown = server.resident_bytes().saturating_sub(memory);
    assert!(grown < 64 << 20, "{grown} bytes more");
    assert!(originals.iter().all(|original| send(&server, original) == 200));
}

#[test]
fn mutants_of_requests_are_answered_and_harm_nobody() {
    mutants_are_answered(2000);
}

#[test]
#[ignore = "the suite `serving`"]
fn twenty_thousand_mutants_harm_nobody() {
    mutants_are_answered(20_000);
}
