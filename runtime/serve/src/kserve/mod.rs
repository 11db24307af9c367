//! /v2 …  =>  health, metadata and inference over HTTP, as in KServe's protocol (version 2)

pub mod data;
pub mod dtypes;
pub mod infer;
pub mod repository;

use crate::app::App;
use crate::json::json_response;
use crate::refusal::{Answer, Refusal};
use crate::served::Served;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

const HEADER_LENGTH: &str = "inference-header-content-length";

/// The protocol extensions that `/v2` lists.
pub static EXTENSIONS: &[&str] = &["binary_tensor_data", "model_repository", "schedule_policy", "statistics"];

pub fn routes() -> Router<Arc<App>> {
    let mut router = repository::routes()
        .route("/v2", get(server))
        .route("/v2/health/live", get(async || json_response(&json!({ "live": true }))))
        .route("/v2/health/ready", get(server_ready))
        .route("/v2/models/stats", get(all_statistics));
    for model in ["/v2/models/{model}", "/v2/models/{model}/versions/{version}"] {
        router = router
            .route(model, get(metadata))
            .route(&format!("{model}/ready"), get(model_ready))
            .route(&format!("{model}/stats"), get(statistics))
            .route(&format!("{model}/infer"), post(infer_model));
    }
    router
}

/// The model, and perhaps its version, that a path names.
#[derive(serde::Deserialize)]
struct Named {
    model: String,
    version: Option<String>,
}

impl Named {
    fn find(&self, app: &App) -> Answer<Arc<Served>> {
        app.registry.find(&self.model, self.version.as_deref())
    }
}

async fn server() -> Response {
    let version = env!("CARGO_PKG_VERSION");
    json_response(&json!({ "name": "sardonyx-serve", "version": version, "extensions": EXTENSIONS }))
}

async fn server_ready(State(app): State<Arc<App>>) -> Answer<Response> {
    app.check_ready()?;
    Ok(json_response(&json!({ "ready": true })))
}

async fn model_ready(State(app): State<Arc<App>>, Path(named): Path<Named>) -> Answer<Response> {
    app.check_ready()?;
    let served = named.find(&app)?;
    Ok(json_response(&json!({ "name": served.name, "ready": true })))
}

async fn metadata(State(app): State<Arc<App>>, Path(named): Path<Named>) -> Answer<Response> {
    let served = named.find(&app)?;
    let inputs: Vec<Value> = served.ports.inputs().iter().map(port).collect();
    let outputs: Vec<Value> = served.ports.outputs().map(port).collect();
    Ok(json_response(&json!({
        "name": served.name,
        "versions": [served.version.to_string()],
        "platform": "sardonyx_sdx",
        "inputs": inputs,
        "outputs": outputs,
    })))
}

/// Returns the metadata of a port; dimensions without a fixed size are -1.
fn port(port: &sardonyx_runtime::Port) -> Value {
    json!({
        "name": port.name,
        "datatype": dtypes::name_of_dtype(port.dtype).unwrap_or("UNSUPPORTED"),
        "shape": port.dims.iter().map(|dim| dim.as_const().unwrap_or(-1)).collect::<Vec<i64>>(),
    })
}

async fn statistics(State(app): State<Arc<App>>, Path(named): Path<Named>) -> Answer<Response> {
    let served = named.find(&app)?;
    Ok(json_response(&json!({ "model_stats": [served.statistics_json()] })))
}

async fn all_statistics(State(app): State<Arc<App>>) -> Response {
    let models = app.registry.models();
    let stats: Vec<Value> = models.values().map(|served| served.statistics_json()).collect();
    json_response(&json!({ "model_stats": stats }))
}

async fn infer_model(State(app): State<Arc<App>>, Path(named): Path<Named>, request: Request) -> Answer<Response> {
    let began = Instant::now();
    app.check_accepting()?;
    let served = named.find(&app)?;
    let (head, body) = request.into_parts();
    let answer = infer_served(&app, &served, &head.headers, body, began).await;
    served.statistics.answered(began.elapsed(), answer.is_ok());
    answer
}

async fn infer_served(
    app: &App,
    served: &Arc<Served>,
    headers: &HeaderMap,
    body: Body,
    began: Instant,
) -> Answer<Response> {
    let latest = began + app.registry.args().limits.timeout;
    let header = header_length(headers)?;
    let received = app.room.receive(headers, body, latest).await?;
    let decoding = Instant::now();
    let request = app.heavy(received.bytes.len(), || infer::read(&received.bytes, header, &served.ports))?;
    served.statistics.decoded(decoding.elapsed());
    let deadline =
        request.timeout.map_or(latest, |timeout| latest.min(began + timeout.min(Duration::from_secs(86400))));
    let done = served.compute(vec![request.asked], deadline).await?.remove(0);
    let encoding = Instant::now();
    let size = done.iter().map(|(_, tensor)| tensor.bytes().len()).sum();
    let version = (served.name.as_str(), served.version);
    let (bytes, length) = app.heavy(size, || infer::write(version, request.id.as_deref(), &done, &request.form))?;
    served.statistics.encoded(encoding.elapsed());
    let mut response = Body::from(bytes).into_response();
    let kind = if length.is_some() { "application/octet-stream" } else { "application/json" };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(length) = length {
        response.headers_mut().insert(HEADER_LENGTH, HeaderValue::from(length));
    }
    Ok(response)
}

fn header_length(headers: &HeaderMap) -> Answer<Option<usize>> {
    let Some(value) = headers.get(HEADER_LENGTH) else { return Ok(None) };
    match value.to_str().ok().and_then(|text| text.parse().ok()) {
        Some(length) => Ok(Some(length)),
        None => {
            let message = "`Inference-Header-Content-Length` is no number";
            Err(Refusal::bad_request(message, "send the length of the JSON before the binary tensors"))
        }
    }
}
