//! many clients at once, five interfaces  =>  each embedding is bitwise equal to that of a session without a server

use crate::common::Server;
use crate::common::grpc::{Sender, call, connect};
use crate::{embedder, floats, serve};
use sardonyx::embedder::Pooling;
use sardonyx_base::Tensor;
use sardonyx_passes::options::Precision;
use sardonyx_runtime::{Model, Session, SessionOptions};
use sardonyx_serve::grpc::messages::{InferInputTensor, ModelInferRequest, ModelInferResponse};
use sardonyx_tests::trust::trusted;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of clients that send requests at the same time.
const CLIENTS: usize = 24;

/// Returns the token ids of a text of 1 to 64 tokens; different requests have different texts.
pub fn ids(request: usize) -> Vec<i64> {
    let length = 1 + (request * 37) % 64;
    (0..length).map(|i| 1000 + ((request * 7919 + i * 104_729) % 20_000) as i64).collect()
}

/// Returns the embedding that a session computes for a single text, without a server.
pub fn alone(session: &Session, ids: &[i64]) -> Vec<f32> {
    let tensor = |values: Vec<i64>| Tensor::from_vec(vec![1, ids.len()], values);
    let inputs = [
        ("input_ids", tensor(ids.to_vec())),
        ("attention_mask", tensor(vec![1; ids.len()])),
        ("token_type_ids", tensor(vec![0; ids.len()])),
    ];
    let outputs = session.run(&inputs).unwrap_or_else(|e| panic!("{e}"));
    outputs["sentence_embedding"].to_vec().unwrap()
}

/// Returns the embedding that the server computes. The number of the request selects one of five interfaces: OpenAI's
/// API with numbers or with base64, or KServe's protocol over gRPC, over HTTP with JSON, or over HTTP with binary data.
fn served(server: &Server, grpc: &mut Grpc, request: usize, ids: &[i64]) -> Vec<f32> {
    let dims = [1, ids.len()];
    if request % 5 < 2 {
        let format = if request.is_multiple_of(5) { "float" } else { "base64" };
        let asked = json!({ "model": "minilm", "input": ids, "encoding_format": format });
        let answer = server.post_json("/v1/embeddings", &asked);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let embedding = &answer.json()["data"][0]["embedding"];
        return embedding.as_str().map_or_else(|| floats(embedding), decoded);
    }
    let columns =
        [("input_ids", ids.to_vec()), ("attention_mask", vec![1; ids.len()]), ("token_type_ids", vec![0; ids.len()])];
    if request % 5 == 2 {
        return grpc.infer(columns);
    }
    if request % 5 == 3 {
        let inputs =
            columns.map(|(name, data)| json!({ "name": name, "shape": dims, "datatype": "INT64", "data": data }));
        return server.post_json("/v2/models/minilm/infer", &json!({ "inputs": inputs })).numbers();
    }
    let bytes: Vec<u8> = columns.iter().flat_map(|(_, data)| data.iter().flat_map(|v| v.to_le_bytes())).collect();
    let size = json!({ "binary_data_size": ids.len() * 8 });
    let inputs =
        columns.map(|(name, _)| json!({ "name": name, "shape": dims, "datatype": "INT64", "parameters": size }));
    let head = json!({ "inputs": inputs, "parameters": { "binary_data_output": true } }).to_string();
    let length = head.len().to_string();
    let body = [head.as_bytes(), &bytes].concat();
    let answer = server.post("/v2/models/minilm/infer", &[("Inference-Header-Content-Length", &length)], &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let at: usize = answer.header("inference-header-content-length").unwrap().parse().unwrap();
    answer.body[at..].chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// Decodes little-endian f32 values from base64 with padding.
fn decoded(text: &str) -> Vec<f32> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits = text.trim_end_matches('=').bytes().map(digit).collect::<Vec<u8>>();
    let bytes: Vec<u8> = digits
        .chunks(4)
        .flat_map(|four| {
            let bits = four.iter().enumerate().fold(0u32, |bits, (i, d)| bits | u32::from(*d) << (18 - 6 * i));
            bits.to_be_bytes()[1..four.len()].to_vec()
        })
        .collect();
    bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// A gRPC client with a connection of its own.
struct Grpc {
    runtime: tokio::runtime::Runtime,
    sender: Sender,
}

impl Grpc {
    fn new(server: &Server) -> Grpc {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let sender = runtime.block_on(connect(server));
        Grpc { runtime, sender }
    }

    fn infer(&mut self, columns: [(&str, Vec<i64>); 3]) -> Vec<f32> {
        let input = |(name, data): &(&str, Vec<i64>)| InferInputTensor {
            name: name.to_string(),
            datatype: "INT64".into(),
            shape: vec![1, data.len() as i64],
            ..Default::default()
        };
        let raw = |(_, data): &(&str, Vec<i64>)| data.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>().into();
        let request = ModelInferRequest {
            model_name: "minilm".into(),
            inputs: columns.iter().map(input).collect(),
            raw_input_contents: columns.iter().map(raw).collect(),
            ..Default::default()
        };
        let answer = self.runtime.block_on(call::<ModelInferResponse>(&mut self.sender, "ModelInfer", &request));
        let bytes = answer.unwrap_or_else(|e| panic!("{e:?}")).raw_output_contents[0].clone();
        bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }
}

/// Sends requests from all clients to servers with one session and with two, and compares each answer with [`alone`].
/// Each server must compute more than two texts per call on average.
fn check_bits(precision: Precision, requests: usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = embedder(folder.path(), "minilm.sdx", Pooling::Mean, precision);
    let session = Model::load(&path, &trusted()).unwrap().session(&SessionOptions::default()).unwrap();
    let expected: Vec<Vec<f32>> = (0..requests).map(|request| alone(&session, &ids(request))).collect();
    for args in [["--sessions", "1"], ["--sessions", "2"]] {
        let server = serve(&path, &args);
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    let mut grpc = Grpc::new(&server);
                    loop {
                        let request = next.fetch_add(1, Ordering::Relaxed);
                        let Some(expected) = expected.get(request) else { break };
                        assert!(served(&server, &mut grpc, request, &ids(request)) == *expected, "request {request}");
                    }
                });
            }
        });
        let stats = server.get("/v2/models/minilm/stats").json()["model_stats"][0].clone();
        let (rows, calls) = (stats["inference_count"].as_u64().unwrap(), stats["execution_count"].as_u64().unwrap());
        println!("{rows} texts in {calls} calls; of 24 clients {:.1} share one", rows as f64 / calls as f64);
        assert!(rows == requests as u64 && calls < rows / 2, "{stats}");
    }
}

#[test]
#[ignore = "the suite `serving`"]
fn every_answer_has_the_bits_of_the_text_alone() {
    check_bits(Precision::F32, 5000);
}

#[test]
#[ignore = "the suite `serving`"]
fn every_answer_in_bf16_has_the_bits_of_the_text_alone() {
    check_bits(Precision::Bf16, 1000);
}
