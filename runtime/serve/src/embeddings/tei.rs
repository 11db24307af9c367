//! /embed, /tokenize, /info, /health: the interface that clients of text-embeddings-inference speak

use super::{Asking, Wanted, embed, embedder, inputs};
use crate::app::App;
use crate::embedder::Input;
use crate::json::{bytes_response, json_response};
use crate::refusal::{Answer, Dialect, Refusal};
use crate::served::Served;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use std::sync::Arc;

pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/embed", post(async |State(app), request| told(embed_texts(app, request).await)))
        .route("/tokenize", post(async |State(app), request| told(tokenize(app, request).await)))
        .route("/info", get(async |State(app)| told(info(app))))
        .route("/health", get(health))
}

fn told<T>(answer: Answer<T>) -> Answer<T> {
    answer.map_err(|refusal| refusal.dialect(Dialect::Tei))
}

/// The interface names no model, so there must be one.
fn only_embedder(app: &App) -> Answer<Arc<Served>> {
    let models = app.registry.models();
    let mut embedders = models.values().filter(|served| served.embedder.is_some());
    match (embedders.next(), embedders.next()) {
        (Some(only), None) => Ok(only.clone()),
        (None, _) => Err(Refusal::bad_request("no model makes embeddings of texts", "call `/v2/models/…/infer`")),
        (Some(_), Some(_)) => {
            Err(Refusal::bad_request("several models make embeddings", "name one: call `/v1/embeddings` with `model`"))
        }
    }
}

async fn health(State(app): State<Arc<App>>) -> Answer<StatusCode> {
    told(app.check_ready().map(|()| StatusCode::OK))
}

fn info(app: Arc<App>) -> Answer<Response> {
    let served = only_embedder(&app)?;
    let embedder = embedder(&served)?;
    let (args, limits) = (app.registry.args(), &app.registry.args().limits);
    Ok(json_response(&json!({
        "model_id": served.name,
        "model_sha": null,
        "model_dtype": "float32",
        "model_type": { "embedding": { "pooling": embedder.pooling() } },
        "max_concurrent_requests": limits.waiting_max,
        "max_input_length": embedder.max_tokens,
        "max_batch_tokens": args.compute.batch_positions_max,
        "max_client_batch_size": limits.waiting_max,
        "auto_truncate": true,
        "embedding_dimension": embedder.width(),
        "tokenization_workers": 1,
        "version": env!("CARGO_PKG_VERSION"),
    })))
}

#[derive(Deserialize)]
struct EmbedBody<'a> {
    #[serde(borrow)]
    inputs: &'a RawValue,
    normalize: Option<bool>,
    truncate: Option<bool>,
    prompt_name: Option<String>,
    dimensions: Option<usize>,
}

async fn embed_texts(app: Arc<App>, request: Request) -> Answer<Response> {
    let asking = Asking::new(&app, request).await?;
    let body: EmbedBody = asking.json("send an object with `inputs`")?;
    let served = only_embedder(&app)?;
    let normalize = body.normalize.unwrap_or(true);
    if !normalize && embedder(&served)?.is_normalized() {
        let message = "`normalize` is false, and the model normalises its embeddings itself";
        return Err(Refusal::bad_request(message, "leave `normalize` out, or compile the model without `--normalize`"));
    }
    let wanted = Wanted {
        inputs: inputs(body.inputs, "inputs")?,
        dimensions: body.dimensions,
        normalize,
        prompt: body.prompt_name,
        whole: body.truncate == Some(false),
    };
    let made = embed(&app, &served, &asking, wanted).await?;
    bytes_response(&made.vectors)
}

#[derive(Deserialize)]
struct TokenizeBody<'a> {
    #[serde(borrow)]
    inputs: &'a RawValue,
    add_special_tokens: Option<bool>,
    prompt_name: Option<String>,
}

#[derive(Serialize)]
struct Token<'a> {
    id: u32,
    text: &'a str,
    special: bool,
    start: usize,
    stop: usize,
}

async fn tokenize(app: Arc<App>, request: Request) -> Answer<Response> {
    let asking = Asking::new(&app, request).await?;
    let body: TokenizeBody = asking.json("send an object with `inputs`")?;
    let served = only_embedder(&app)?;
    let embedder = embedder(&served)?;
    let texts = inputs(body.inputs, "inputs")?;
    let encode = |input: &Input| match input {
        Input::Text(text) => {
            embedder.encode(text, body.prompt_name.as_deref(), false, body.add_special_tokens.unwrap_or(true))
        }
        Input::Ids(_) => Err(Refusal::bad_request("`inputs` are token ids already", "send texts")),
    };
    let encodings =
        app.heavy(asking.body.bytes.len(), || texts.iter().map(encode).collect::<Answer<Vec<tokenizers::Encoding>>>())?;
    let shown: Vec<Vec<Token>> = encodings.iter().map(tokens).collect();
    bytes_response(&shown)
}

fn tokens(encoding: &tokenizers::Encoding) -> Vec<Token<'_>> {
    let token = |i: usize| {
        let (start, stop) = encoding.get_offsets()[i];
        let special = encoding.get_special_tokens_mask()[i] == 1;
        Token { id: encoding.get_ids()[i], text: &encoding.get_tokens()[i], special, start, stop }
    };
    (0..encoding.len()).map(token).collect()
}
