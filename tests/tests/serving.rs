//! MiniLM behind `sardonyx-serve`  =>  every answer has the bits of its request alone, however many clients ask at the same time
//!
//! `cargo xtask test --suite serving`

#[path = "../../runtime/serve/tests/common/mod.rs"]
mod common;

use common::Server;
use sardonyx::compile::{Request, compile};
use sardonyx::embedder::{Embedder, Flags, Pooling};
use sardonyx_base::Tensor;
use sardonyx_runtime::{Model, Session, SessionOptions};
use sardonyx_tests::prepared::{model, workspace};
use sardonyx_tests::programs::profile_folder;
use sardonyx_tests::trust::trusted;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

const REQUESTS: usize = 2000;
const CLIENTS: usize = 24;

/// `sardonyx-serve` in the profile of this test.
fn server() -> PathBuf {
    let folder = profile_folder();
    let profile = if folder.ends_with("debug") { "dev" } else { "release" };
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    cargo.args(["build", "--quiet", "-p", "sardonyx-serve", "--bins", "--profile", profile]);
    let done = cargo.current_dir(workspace()).output().expect("cargo runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    folder.join("sardonyx-serve")
}

/// Mean pooling and length 1 in the graph, so that padding is left out.
fn embedder(folder: &Path) -> PathBuf {
    let path = folder.join("minilm.sdx");
    let flags = Flags { poolings: vec![Pooling::Mean], normalize: true, ..Flags::default() };
    let embedder = Embedder::new(None, &flags).unwrap_or_else(|e| panic!("{e}"));
    let source = model("skel_minilm_l6_safetensors");
    compile(&Request { embedder, ..Request::new(&source, &path) }).unwrap_or_else(|e| panic!("{e}"));
    path
}

/// Token ids of a text: from 1 to 64, no two alike.
fn ids(request: usize) -> Vec<i64> {
    let length = 1 + (request * 37) % 64;
    (0..length).map(|i| 1000 + ((request * 7919 + i * 104_729) % 20_000) as i64).collect()
}

fn alone(session: &Session, ids: &[i64]) -> Vec<f32> {
    let tensor = |values: Vec<i64>| Tensor::from_vec(vec![1, ids.len()], values);
    let inputs = [
        ("input_ids", tensor(ids.to_vec())),
        ("attention_mask", tensor(vec![1; ids.len()])),
        ("token_type_ids", tensor(vec![0; ids.len()])),
    ];
    let outputs = session.run(&inputs).unwrap_or_else(|e| panic!("{e}"));
    outputs["sentence_embedding"].to_vec().unwrap()
}

/// By the interface of OpenAI, by KServe's in JSON and in binary, in turns.
fn served(server: &Server, request: usize, ids: &[i64]) -> Vec<f32> {
    let floats = |list: &serde_json::Value| -> Vec<f32> {
        list.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
    };
    let dims = [1, ids.len()];
    if request.is_multiple_of(3) {
        let answer = server.post_json("/v1/embeddings", &json!({ "model": "minilm", "input": ids }));
        assert_eq!(answer.status, 200, "{}", answer.text());
        return floats(&answer.json()["data"][0]["embedding"]);
    }
    let columns =
        [("input_ids", ids.to_vec()), ("attention_mask", vec![1; ids.len()]), ("token_type_ids", vec![0; ids.len()])];
    if request % 3 == 1 {
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

#[test]
#[ignore = "the suite `serving`"]
fn every_answer_has_the_bits_of_the_text_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = embedder(folder.path());
    let session = Model::load(&path, &trusted()).unwrap().session(&SessionOptions::default()).unwrap();
    let expected: Vec<Vec<f32>> = (0..REQUESTS).map(|request| alone(&session, &ids(request))).collect();
    for args in [["--sessions", "1"], ["--sessions", "2"]] {
        let server = Server::start_program(&server(), &path, &args);
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    loop {
                        let request = next.fetch_add(1, Ordering::Relaxed);
                        let Some(expected) = expected.get(request) else { break };
                        assert!(served(&server, request, &ids(request)) == *expected, "request {request}");
                    }
                });
            }
        });
        let stats = server.get("/v2/models/minilm/stats").json()["model_stats"][0].clone();
        let (rows, calls) = (stats["inference_count"].as_u64().unwrap(), stats["execution_count"].as_u64().unwrap());
        println!("{rows} texts in {calls} calls; of 24 clients {:.1} share one", rows as f64 / calls as f64);
        assert!(rows == REQUESTS as u64 && calls < rows / 2, "{stats}");
    }
}
