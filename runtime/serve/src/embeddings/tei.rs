//! /embed, /rerank, /tokenize, /info, /health: the API of text-embeddings-inference

use super::{Wanted, compute, embed, embedder, tokens_of};
use crate::app::App;
use crate::asking::{Asking, inputs};
use crate::embedder::{Embedder, Input, Tokens};
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
        .route("/embed", post(async |State(app), request| with_tei_dialect(embed_texts(app, request).await)))
        .route("/rerank", post(async |State(app), request| with_tei_dialect(rerank(app, request).await)))
        .route("/tokenize", post(async |State(app), request| with_tei_dialect(tokenize(app, request).await)))
        .route("/info", get(async |State(app)| with_tei_dialect(info(app))))
        .route("/health", get(health))
}

fn with_tei_dialect<T>(answer: Answer<T>) -> Answer<T> {
    answer.map_err(|refusal| refusal.dialect(Dialect::Tei))
}

/// Returns the only model that satisfies `is_wanted`. Requests of this API name no model, so there must be exactly one
/// such model.
fn only(app: &App, is_wanted: impl Fn(&Embedder) -> bool, makes: &str, help: &str) -> Answer<Arc<Served>> {
    let models = app.registry.models();
    let mut wanted = models.values().filter(|served| served.embedder.as_ref().is_some_and(&is_wanted));
    match (wanted.next(), wanted.next()) {
        (Some(only), None) => Ok(only.clone()),
        (None, _) => Err(Refusal::bad_request(format!("no model makes {makes}"), "call `/v2/models/…/infer`")),
        (Some(_), Some(_)) => Err(Refusal::bad_request(format!("several models make {makes}"), help)),
    }
}

fn only_embedder(app: &App) -> Answer<Arc<Served>> {
    let help = "name one: call `/v1/embeddings` with `model`";
    only(app, |embedder| !embedder.is_reranker(), "embeddings of texts", help)
}

fn only_reranker(app: &App) -> Answer<Arc<Served>> {
    only(app, Embedder::is_reranker, "scores of pairs of texts", "serve them on addresses of their own")
}

/// Returns the model whose tokenizer and limits are used: the one that computes embeddings if there is one, else the
/// reranker.
fn only_reader(app: &App) -> Answer<Arc<Served>> {
    only_embedder(app).or_else(|none| only_reranker(app).map_err(|_| none))
}

async fn health(State(app): State<Arc<App>>) -> Answer<StatusCode> {
    with_tei_dialect(app.check_ready().map(|()| StatusCode::OK))
}

fn info(app: Arc<App>) -> Answer<Response> {
    let served = only_reader(&app)?;
    let embedder = reader(&served)?;
    let kind = match embedder.is_reranker() {
        true => json!({ "reranker": { "id2label": { "0": "LABEL_0" }, "label2id": { "LABEL_0": 0 } } }),
        false => json!({ "embedding": { "pooling": embedder.pooling() } }),
    };
    let (args, limits) = (app.registry.args(), &app.registry.args().limits);
    Ok(json_response(&json!({
        "model_id": served.name,
        "model_sha": null,
        "model_dtype": "float32",
        "model_type": kind,
        "max_concurrent_requests": limits.waiting_max,
        "max_input_length": embedder.texts.max_tokens,
        "max_batch_tokens": args.compute.batch_positions_max,
        "max_batch_requests": null,
        "max_client_batch_size": limits.waiting_max,
        "auto_truncate": true,
        "embedding_dimension": embedder.width(),
        "tokenization_workers": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "sha": null,
        "docker_label": null,
    })))
}

#[derive(Deserialize)]
struct EmbedBody<'a> {
    #[serde(borrow)]
    inputs: &'a RawValue,
    normalize: Option<bool>,
    truncate: Option<bool>,
    truncation_direction: Option<String>,
    prompt_name: Option<String>,
    dimensions: Option<usize>,
}

/// Refuses any truncation but that at the end of a text.
fn check_direction(direction: Option<&str>) -> Answer<()> {
    match direction {
        None | Some("right" | "Right") => Ok(()),
        Some(_) => Err(Refusal::bad_request(
            "`truncation_direction` may be `Right`",
            "cut the beginning of texts off yourself",
        )),
    }
}

async fn embed_texts(app: Arc<App>, request: Request) -> Answer<Response> {
    let asking = Asking::new(&app, request).await?;
    let body: EmbedBody = asking.json("send an object with `inputs`")?;
    check_direction(body.truncation_direction.as_deref())?;
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
struct RerankBody {
    query: String,
    texts: Vec<String>,
    #[serde(default)]
    raw_scores: bool,
    #[serde(default)]
    return_text: bool,
    truncate: Option<bool>,
    truncation_direction: Option<String>,
}

#[derive(Serialize)]
struct Rank<'a> {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    score: f32,
}

/// Sorts the texts by descending score for the query; ties keep the order of the request.
async fn rerank(app: Arc<App>, request: Request) -> Answer<Response> {
    let asking = Asking::new(&app, request).await?;
    let body: RerankBody = asking.json("send an object with `query` and `texts`")?;
    check_direction(body.truncation_direction.as_deref())?;
    let served = only_reranker(&app)?;
    let embedder = reader(&served)?;
    if body.texts.is_empty() {
        return Err(Refusal::bad_request("`texts` is empty", "send at least one text"));
    }
    let pair =
        |text: &String| embedder.texts.encode_pair(&body.query, text, body.truncate == Some(false)).map(Tokens::from);
    let tokens = tokens_of(&app, &served, &asking, &body.texts, pair)?;
    let answer = compute(&served, embedder, &asking, &tokens).await;
    served.statistics.answered(asking.began.elapsed(), answer.is_ok());
    let scores =
        answer?.into_iter().map(|tensor| embedder.score(&tensor, body.raw_scores)).collect::<Answer<Vec<f32>>>()?;
    let text = |index: usize| body.return_text.then(|| body.texts[index].as_str());
    let mut ranks: Vec<Rank> =
        scores.into_iter().enumerate().map(|(index, score)| Rank { index, text: text(index), score }).collect();
    ranks.sort_by(|a, b| b.score.total_cmp(&a.score));
    bytes_response(&ranks)
}

fn reader(served: &Served) -> Answer<&Embedder> {
    served
        .embedder
        .as_ref()
        .ok_or_else(|| sardonyx_base::Error::defect("a model that reads texts has no tokens").into())
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
    let served = only_reader(&app)?;
    let embedder = reader(&served)?;
    let texts = inputs(body.inputs, "inputs")?;
    let encode = |input: &Input| match input {
        Input::Text(text) => {
            embedder.texts.encode(text, body.prompt_name.as_deref(), false, body.add_special_tokens.unwrap_or(true))
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
