//! KServe's protocol over gRPC: the same answers as from the REST interface, on the same address

#[path = "../../tests/common/mod.rs"]
mod artifacts;
mod common;

use artifacts::{slow, two_layers};
use common::grpc::{call, call_bytes, connect, framed};
use common::{Server, rows_data, rows_request};
use sardonyx_serve::grpc::messages::*;
use std::time::{Duration, Instant};

fn infer_request(rows: usize, seed: usize, raw: bool) -> ModelInferRequest {
    let data = rows_data(rows, seed);
    let bytes: Vec<u8> = data.iter().flat_map(|v| v.to_le_bytes()).collect();
    let contents = InferTensorContents { fp32_contents: data, ..Default::default() };
    let input = InferInputTensor {
        name: "x".into(),
        datatype: "FP32".into(),
        shape: vec![rows as i64, 8],
        contents: (!raw).then_some(contents),
        ..Default::default()
    };
    ModelInferRequest {
        model_name: "m".into(),
        id: "7".into(),
        inputs: vec![input],
        raw_input_contents: if raw { vec![bytes.into()] } else { vec![] },
        ..Default::default()
    }
}

fn floats(response: &ModelInferResponse) -> Vec<f32> {
    response.raw_output_contents[0].chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_those_of_the_rest_interface() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sdx");
    two_layers().write(&path);
    let server = Server::start(&path, &[]);
    let mut sender = connect(&server).await;
    let live: ServerLiveResponse = call(&mut sender, "ServerLive", &ServerLiveRequest {}).await.unwrap();
    let ready: ServerReadyResponse = call(&mut sender, "ServerReady", &ServerReadyRequest {}).await.unwrap();
    assert!(live.live && ready.ready);
    let metadata: ServerMetadataResponse =
        call(&mut sender, "ServerMetadata", &ServerMetadataRequest {}).await.unwrap();
    assert_eq!(metadata.name, "sardonyx-serve");
    for (name, version, wanted) in [("m", "", true), ("m", "1", true), ("m", "2", false), ("n", "", false)] {
        let request = ModelReadyRequest { name: name.into(), version: version.into() };
        let ready: ModelReadyResponse = call(&mut sender, "ModelReady", &request).await.unwrap();
        assert_eq!(ready.ready, wanted, "{name} {version}");
    }
    let request = ModelMetadataRequest { name: "m".into(), version: String::new() };
    let model: ModelMetadataResponse = call(&mut sender, "ModelMetadata", &request).await.unwrap();
    assert_eq!((model.inputs[0].name.as_str(), model.inputs[0].shape.as_slice()), ("x", &[-1, 8][..]));
    for rows in [1, 3, 1000] {
        let wanted = server.post_json("/v2/models/m/infer", &rows_request(rows, rows)).numbers();
        for raw in [false, true] {
            let request = infer_request(rows, rows, raw);
            let answer: ModelInferResponse = call(&mut sender, "ModelInfer", &request).await.unwrap();
            assert_eq!(floats(&answer), wanted, "{rows}, {raw}");
            assert_eq!((answer.id.as_str(), answer.outputs[0].shape.as_slice()), ("7", &[rows as i64][..]));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_a_status() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sdx");
    two_layers().write(&path);
    let server = Server::start(&path, &["--body-max", "1"]);
    let mut sender = connect(&server).await;
    let mut refused = async |request: ModelInferRequest| {
        call::<ModelInferResponse>(&mut sender, "ModelInfer", &request).await.unwrap_err()
    };
    let request = || infer_request(2, 0, true);
    let (code, text) = refused(ModelInferRequest { model_name: "n".into(), ..request() }).await;
    assert!(code == 5 && text.contains("no model"), "{text}");
    let (code, text) = refused(ModelInferRequest { raw_input_contents: vec![vec![0; 3].into()], ..request() }).await;
    assert!(code == 3 && text.contains("`x`"), "{text}");
    let (code, text) =
        refused(ModelInferRequest { raw_input_contents: vec![Default::default(); 3], ..request() }).await;
    assert!(code == 3 && text.contains("3 `raw_input_contents`"), "{text}");
    for shape in [vec![-1, 8], vec![i64::MAX, 8], vec![2], vec![]] {
        let mut wrong = request();
        wrong.inputs[0].shape = shape;
        assert_eq!(refused(wrong).await.0, 3);
    }
    let mut wrong = request();
    wrong.inputs[0].datatype = "INT8".into();
    assert_eq!(refused(wrong).await.0, 3);
    wrong = request();
    wrong.outputs = vec![InferRequestedOutputTensor { name: "z".into(), ..Default::default() }];
    assert_eq!(refused(wrong).await.0, 3);
    // A body over the limit, a wrong length, bytes that are not a message; the server then still answers.
    let large = framed(&ModelReadyRequest { name: "n".repeat(2 << 20), version: String::new() });
    assert_eq!(call_bytes(&mut sender, "ModelReady", &[], large).await.unwrap_err().0, 3);
    let lies = vec![0, 255, 255, 255, 255, 1, 2, 3];
    assert!(call_bytes(&mut sender, "ModelInfer", &[], lies).await.is_err());
    let nonsense = [&[0, 0, 0, 0, 4][..], &[255; 4]].concat();
    assert!(call_bytes(&mut sender, "ModelInfer", &[], nonsense).await.is_err());
    let answer: ServerLiveResponse = call(&mut sender, "ServerLive", &ServerLiveRequest {}).await.unwrap();
    assert!(answer.live);
}

#[tokio::test(flavor = "multi_thread")]
async fn deadlines_are_those_of_the_client() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sdx");
    slow(3000).write(&path);
    let server = Server::start(&path, &["--threads", "1"]);
    let mut sender = connect(&server).await;
    let began = Instant::now();
    let request = ModelInferRequest { model_name: "m".into(), ..Default::default() };
    let late = call_bytes(&mut sender, "ModelInfer", &[("grpc-timeout", "50m")], framed(&request)).await;
    assert_eq!(late.unwrap_err().0, 4);
    let micros = InferParameter { parameter_choice: Some(ParameterChoice::Int64(50_000)) };
    let request = ModelInferRequest { parameters: [("timeout".to_string(), micros)].into(), ..request };
    assert_eq!(call::<ModelInferResponse>(&mut sender, "ModelInfer", &request).await.unwrap_err().0, 4);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_listed_loaded_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    two_layers().write(&dir.path().join("m.sdx"));
    let server = Server::start(dir.path(), &["--allow-load"]);
    let mut sender = connect(&server).await;
    let all = RepositoryIndexRequest::default();
    let index: RepositoryIndexResponse = call(&mut sender, "RepositoryIndex", &all).await.unwrap();
    let line = |version: &str, state: &str| ModelIndex {
        name: "m".into(),
        version: version.into(),
        state: state.into(),
        reason: String::new(),
    };
    assert_eq!(index.models, [line("1", "READY")]);
    let _: ModelInferResponse = call(&mut sender, "ModelInfer", &infer_request(3, 0, true)).await.unwrap();
    let named = ModelStatisticsRequest { name: "m".into(), version: String::new() };
    for request in [named, ModelStatisticsRequest::default()] {
        let stats: ModelStatisticsResponse = call(&mut sender, "ModelStatistics", &request).await.unwrap();
        let stats = &stats.model_stats[0];
        assert_eq!((stats.inference_count, stats.execution_count, stats.batch_stats[0].batch_size), (3, 1, 3));
        let success = stats.inference_stats.unwrap().success.unwrap();
        assert!(success.count == 1 && success.ns > 0 && stats.last_inference > 0);
    }
    let model = |name: &str| RepositoryModelRequest { model_name: name.into(), ..Default::default() };
    let _: RepositoryModelResponse = call(&mut sender, "RepositoryModelUnload", &model("m")).await.unwrap();
    let index: RepositoryIndexResponse = call(&mut sender, "RepositoryIndex", &all).await.unwrap();
    assert_eq!(index.models, [line("", "UNAVAILABLE")]);
    let ready = RepositoryIndexRequest { ready: true, ..Default::default() };
    let index: RepositoryIndexResponse = call(&mut sender, "RepositoryIndex", &ready).await.unwrap();
    assert!(index.models.is_empty());
    let _: RepositoryModelResponse = call(&mut sender, "RepositoryModelLoad", &model("m")).await.unwrap();
    let missing = call::<RepositoryModelResponse>(&mut sender, "RepositoryModelLoad", &model("../m")).await;
    assert_eq!(missing.unwrap_err().0, 5);
    let config = RepositoryModelRequest { parameters: [("config".into(), Unread {})].into(), ..model("m") };
    let refused = call::<RepositoryModelResponse>(&mut sender, "RepositoryModelLoad", &config).await.unwrap_err();
    assert!(refused.0 == 3 && refused.1.contains("`config`"), "{refused:?}");
    let closed = Server::start(&dir.path().join("m.sdx"), &[]);
    let mut sender = connect(&closed).await;
    let refused = call::<RepositoryModelResponse>(&mut sender, "RepositoryModelUnload", &model("m")).await;
    assert_eq!(refused.unwrap_err().0, 7);
}
