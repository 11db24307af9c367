//! KServe's protocol: metadata, inference with JSON and binary tensors, error messages

#[path = "../../tests/common/mod.rs"]
mod artifacts;
mod common;
#[path = "common/models.rs"]
mod models;

use artifacts::{Builder, two_layers};
use common::{Server, rows_data, rows_request};
use models::serve;
use sardonyx_base::{DType, Tensor};
use sardonyx_runtime::SessionOptions;
use serde_json::{Value, json};

/// Returns the output `y` of a direct call of the runtime.
fn expected(rows: usize, seed: usize) -> Vec<f32> {
    let session = two_layers().load().unwrap().session(&SessionOptions::default()).unwrap();
    let x = Tensor::from_vec(vec![rows, 8], rows_data(rows, seed));
    session.run(&[("x", x)]).unwrap()["y"].to_vec::<f32>().unwrap()
}

const INFER: &str = "/v2/models/m/infer";

#[test]
fn the_server_and_its_models_describe_themselves() {
    let (_dir, server) = serve(&two_layers(), &[]);
    let root = server.get("/v2").json();
    assert_eq!(root["name"], "sardonyx-serve");
    assert!(root["extensions"].as_array().unwrap().contains(&json!("binary_tensor_data")));
    for (path, body) in [
        ("/v2/health/live", json!({ "live": true })),
        ("/v2/health/ready", json!({ "ready": true })),
        ("/v2/models/m/ready", json!({ "name": "m", "ready": true })),
        ("/v2/models/m/versions/1/ready", json!({ "name": "m", "ready": true })),
    ] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.json()), (200, body), "{path}");
    }
    let model = server.get("/v2/models/m/versions/1").json();
    assert_eq!((&model["name"], &model["versions"]), (&json!("m"), &json!(["1"])));
    assert_eq!(model["inputs"], json!([{ "name": "x", "datatype": "FP32", "shape": [-1, 8] }]));
    assert_eq!(model["outputs"], json!([{ "name": "y", "datatype": "FP32", "shape": [-1] }]));
    assert!(server.get("/v2/models/n").refused(404).contains("served are `m`"));
    assert!(server.get("/v2/models/m/versions/2/ready").refused(404).contains("its version is 1"));
    server.get("/v3").refused(404);
    assert_eq!(server.get(INFER).status, 405);
}

#[test]
fn an_answer_has_the_bits_of_a_direct_call() {
    let (_dir, server) = serve(&two_layers(), &[]);
    for rows in [0, 1, 5, 1000] {
        let mut request = rows_request(rows, rows);
        request["id"] = json!("a \"b\"");
        let answer = server.post_json(INFER, &request);
        assert_eq!(answer.numbers(), expected(rows, rows), "{rows}");
        let answer = answer.json();
        assert_eq!((&answer["id"], &answer["model_version"]), (&request["id"], &json!("1")));
        assert_eq!(answer["outputs"][0]["shape"], json!([rows]));
    }
}

#[test]
fn tensors_are_sent_and_received_in_binary() {
    let (_dir, server) = serve(&two_layers(), &[]);
    let data: Vec<u8> = rows_data(3, 5).iter().flat_map(|v| v.to_le_bytes()).collect();
    let mut request = json!({
        "inputs": [{ "name": "x", "shape": [3, 8], "datatype": "FP32", "parameters": { "binary_data_size": 96 } }],
        "outputs": [{ "name": "y", "parameters": { "binary_data": true } }],
    });
    let send = |request: &Value, data: &[u8]| {
        let head = request.to_string();
        let length = head.len().to_string();
        server.post(INFER, &[("Inference-Header-Content-Length", &length)], &[head.as_bytes(), data].concat())
    };
    let numbers = |bytes: &[u8]| bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect::<Vec<_>>();
    let answer = send(&request, &data);
    let length: usize = answer.header("inference-header-content-length").unwrap().parse().unwrap();
    let head: Value = serde_json::from_slice(&answer.body[..length]).unwrap();
    assert_eq!(head["outputs"][0]["parameters"]["binary_data_size"], 12);
    assert_eq!(numbers(&answer.body[length..]), expected(3, 5));
    // A parameter of the request has the same effect; without either, the answer is JSON.
    request["outputs"] = json!([]);
    request["parameters"] = json!({ "binary_data_output": true });
    let all = send(&request, &data);
    assert_eq!(all.body[all.body.len() - 12..], answer.body[length..]);
    request["parameters"] = json!({});
    assert_eq!(send(&request, &data).numbers(), expected(3, 5));

    assert!(send(&request, &data[1..]).refused(400).contains("only 95 bytes follow"));
    assert!(send(&request, &[&data[..], &[0]].concat()).refused(400).contains("1 bytes follow the binary tensors"));
    request["inputs"][0]["parameters"]["binary_data_size"] = json!(92);
    assert!(send(&request, &data[4..]).refused(400).contains("the input `x`"));
    let lies = server.post(INFER, &[("Inference-Header-Content-Length", "100000")], b"{}");
    assert!(lies.refused(400).contains("the body has 2 bytes"));
    server.post(INFER, &[("Inference-Header-Content-Length", "-1")], b"{}").refused(400);
}

#[test]
fn a_refusal_names_the_field_and_the_remedy() {
    let (_dir, server) = serve(&two_layers(), &[]);
    let with = |key: &str, value: Value| {
        let mut request = rows_request(1, 0);
        request["inputs"][0][key] = value;
        server.post_json(INFER, &request).refused(400)
    };
    let refused = with("datatype", json!("FP64"));
    assert!(refused.contains("`x` has the type FP64 instead of FP32; convert it"), "{refused}");
    assert!(with("datatype", json!("float")).contains("write `\"datatype\": \"FP32\"`"));
    let refused = with("shape", json!([1, 9]));
    assert!(refused.contains("size 9 in dimension 1 instead of 8; send `x` with the shape [batch, 8]"), "{refused}");
    assert!(with("shape", json!([8])).contains("has 1 dimensions instead of 2"));
    assert!(with("shape", json!([1001, 8])).contains("`batch` may be 0 to 1000"));
    assert!(with("shape", json!([2, 8])).contains("8 elements instead of 16"));
    assert!(with("shape", json!([-1, 8])).contains("no inference request"));
    assert!(with("data", json!([0, 1, 2, 3, 4, 5, 6, "7"])).contains("element 7 is a string"));
    assert!(with("data", json!(null)).contains("neither `data` nor"));
    assert!(with("name", json!("z")).contains("no input `z`; the model's inputs are `x`"));
    assert!(with("parameters", json!({ "shared_memory_region": "r" })).contains("`shared_memory_region`"));
    let of = |request: Value| server.post_json(INFER, &request).refused(400);
    assert!(of(json!({ "inputs": [] })).contains("the input `x` is missing; add it"));
    let twice = rows_request(1, 0)["inputs"][0].clone();
    assert!(of(json!({ "inputs": [twice, twice] })).contains("given twice"));
    let mut request = rows_request(1, 0);
    request["outputs"] = json!([{ "name": "q" }]);
    assert!(of(request.clone()).contains("no output `q`; the model's outputs are `y`"));
    request["outputs"] = json!([{ "name": "y" }, { "name": "y" }]);
    assert!(of(request).contains("asked for twice"));
    assert!(of(json!([1])).contains("send an object with `inputs`"));
    let compressed = server.post(INFER, &[("Content-Encoding", "gzip")], b"{}");
    assert!(compressed.refused(415).contains("without compression"));
}

#[test]
fn strings_and_small_types_go_through() {
    let mut b = Builder::new();
    b.symbol("n", sardonyx_base::plan::messages::SymbolKind::Input, 0, None);
    let x = b.input("x", DType::Bool, &["n"], "n");
    let y = b.output("y", DType::U8, &["n"], "n");
    let choose = b.kernel("choose", &[false, true], 0, "0");
    b.launch(choose, &[x, y], &[], "n");
    let (_dir, server) = serve(&b, &["--name", "choice"]);
    let request = |data: Value| json!({ "inputs": [{ "name": "x", "shape": [3], "datatype": "BOOL", "data": data }] });
    let infer = |data: Value| server.post_json("/v2/models/choice/infer", &request(data));
    assert_eq!(infer(json!([true, false, true])).numbers(), [7.0, 3.0, 7.0]);
    assert!(infer(json!([1, 0, 1])).refused(400).contains("element 0 is 1, which is no bool"));
}

#[test]
fn a_folder_serves_its_artifacts() {
    let dir = tempfile::tempdir().unwrap();
    two_layers().write(&dir.path().join("one.sdx"));
    two_layers().write(&dir.path().join("two.sdx"));
    std::fs::write(dir.path().join("notes.txt"), "no artifact").unwrap();
    let server = Server::start(dir.path(), &[]);
    for name in ["one", "two"] {
        let answer = server.post_json(&format!("/v2/models/{name}/infer"), &rows_request(2, 1));
        assert_eq!(answer.numbers(), expected(2, 1));
    }
    server.get("/v2/models/notes").refused(404);
}

#[test]
fn the_command_line_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sardonyx-serve"));
        let done = command.args(args).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let folder = dir.path().display().to_string();
    let (code, text) = run(&[&folder]);
    assert!(code == Some(2) && text.contains("has no artifacts"), "{text}");
    let (code, text) = run(&["missing.sdx"]);
    assert!(code == Some(2) && text.contains("E0002"), "{text}");
    let (code, text) = run(&["m.sdx", "--timeout", "-1"]);
    assert!(code == Some(2) && text.contains("E0001"), "{text}");
    two_layers().write(&dir.path().join("m.sdx"));
    let (code, text) = run(&[&folder, "--body-max", "10", "--bodies-max", "5"]);
    assert!(code == Some(2) && text.contains("raise `--bodies-max`"), "{text}");
    let (code, text) = run(&[&folder, "--listen", "192.0.2.1:1"]);
    assert!(code == Some(2) && text.contains("cannot listen on 192.0.2.1:1"), "{text}");
}
