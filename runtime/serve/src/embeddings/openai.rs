//! POST /v1/embeddings, GET /v1/models: OpenAI's API for embeddings

use super::base64::base64;
use super::{Wanted, embed};
use crate::app::App;
use crate::asking::{Asking, inputs};
use crate::json::{bytes_response, json_response};
use crate::refusal::{Answer, Dialect, Refusal};
use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use sardonyx_base::tensor::bytes_of_values;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::Arc;

pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/v1/models", get(models)).route("/v1/embeddings", post(embeddings))
}

async fn models(State(app): State<Arc<App>>) -> Response {
    let models = app.registry.models();
    let model = |name: &String| json!({ "id": name, "object": "model", "created": 0, "owned_by": "sardonyx" });
    json_response(&json!({ "object": "list", "data": models.keys().map(model).collect::<Vec<Value>>() }))
}

#[derive(Deserialize)]
struct Body<'a> {
    model: String,
    #[serde(borrow)]
    input: &'a RawValue,
    encoding_format: Option<String>,
    dimensions: Option<usize>,
}

#[derive(Serialize)]
struct Answered<'a> {
    object: &'static str,
    data: Vec<Embedding<'a>>,
    model: &'a str,
    usage: Usage,
}

#[derive(Serialize)]
struct Embedding<'a> {
    object: &'static str,
    index: usize,
    embedding: Vector<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Vector<'a> {
    Floats(&'a [f32]),
    Base64(String),
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

async fn embeddings(State(app): State<Arc<App>>, request: Request) -> Answer<Response> {
    answer(&app, request).await.map_err(|refusal| refusal.dialect(Dialect::OpenAi))
}

async fn answer(app: &App, request: Request) -> Answer<Response> {
    let asking = Asking::new(app, request).await?;
    let body: Body = asking.json("send an object with `model` and `input`")?;
    let is_base64 = match body.encoding_format.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(other) => {
            let message = format!("`encoding_format` is `{}`", other.chars().take(20).collect::<String>());
            return Err(Refusal::bad_request(message, "it may be `float` or `base64`"));
        }
    };
    let served = app.registry.find(&body.model, None)?;
    let wanted = Wanted {
        inputs: inputs(body.input, "input")?,
        dimensions: body.dimensions,
        normalize: false,
        prompt: None,
        whole: false,
    };
    let made = embed(app, &served, &asking, wanted).await?;
    let vector = |vector| match is_base64 {
        true => Vector::Base64(base64(bytes_of_values::<f32>(vector))),
        false => Vector::Floats(vector),
    };
    let embedding = |(index, vector)| Embedding { object: "embedding", index, embedding: vector };
    let data = made.vectors.iter().map(|v| vector(v.as_slice())).enumerate().map(embedding);
    let usage = Usage { prompt_tokens: made.tokens, total_tokens: made.tokens };
    let answered = Answered { object: "list", data: data.collect(), model: &served.name, usage };
    bytes_response(&answered)
}
