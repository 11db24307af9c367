//! texts or token ids  =>  embeddings, each its own job: those of one request and of others are computed together

mod base64;
pub mod openai;
pub mod tei;

use crate::app::App;
use crate::embedder::{Embedder, Input};
use crate::refusal::{Answer, Refusal};
use crate::served::Served;
use axum::body::Body;
use axum::extract::Request;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Instant;

/// The wishes of a client for its inputs.
struct Wanted {
    inputs: Vec<Input>,
    dimensions: Option<usize>,
    normalize: bool,
    prompt: Option<String>,
    /// Texts that are too long are refused instead of cut off.
    whole: bool,
}

struct Embeddings {
    vectors: Vec<Vec<f32>>,
    tokens: usize,
}

/// The body of a request, and when its answer is due.
struct Asking {
    body: crate::body::Received,
    began: Instant,
    deadline: Instant,
}

impl Asking {
    async fn new(app: &App, request: Request<Body>) -> Answer<Asking> {
        let began = Instant::now();
        app.check_accepting()?;
        let deadline = began + app.registry.args().limits.timeout;
        let (head, body) = request.into_parts();
        let body = app.room.receive(&head.headers, body, deadline).await?;
        Ok(Asking { body, began, deadline })
    }

    fn json<'a, T: Deserialize<'a>>(&'a self, help: &str) -> Answer<T> {
        json(&self.body.bytes, help)
    }
}

fn json<'a, T: Deserialize<'a>>(bytes: &'a Bytes, help: &str) -> Answer<T> {
    serde_json::from_slice(bytes).map_err(|e| Refusal::bad_request(format!("the request is malformed: {e}"), help))
}

/// A text, a list of texts, a list of token ids, or a list of such lists.
fn inputs(text: &RawValue, field: &str) -> Answer<Vec<Input>> {
    let wrong = |e: serde_json::Error| {
        let help = format!("send `{field}` as a text, a list of texts, a list of token ids, or a list of such lists");
        Refusal::bad_request(format!("`{field}` is malformed: {e}"), &help)
    };
    let text = text.get();
    let inner = text.strip_prefix('[').map(str::trim_start);
    let inputs: Vec<Input> = match inner.map(|inner| inner.as_bytes().first()) {
        None => vec![Input::Text(serde_json::from_str(text).map_err(wrong)?)],
        Some(Some(b'"')) => {
            serde_json::from_str::<Vec<String>>(text).map_err(wrong)?.into_iter().map(Input::Text).collect()
        }
        Some(Some(b'[')) => {
            serde_json::from_str::<Vec<Vec<u32>>>(text).map_err(wrong)?.into_iter().map(Input::Ids).collect()
        }
        Some(Some(b']')) => vec![],
        Some(_) => vec![Input::Ids(serde_json::from_str(text).map_err(wrong)?)],
    };
    match inputs.is_empty() {
        true => Err(Refusal::bad_request(format!("`{field}` is empty"), "send at least one text")),
        false => Ok(inputs),
    }
}

fn embedder(served: &Served) -> Answer<&Embedder> {
    served.embedder.as_ref().ok_or_else(|| {
        let message = format!("the model `{}` makes no embeddings of texts", served.name);
        Refusal::bad_request(message, "call `/v2/models/…/infer`, or compile the model with `--pooling`")
    })
}

async fn embed(app: &App, served: &Arc<Served>, asking: &Asking, wanted: Wanted) -> Answer<Embeddings> {
    let answer = embed_inputs(app, served, asking, &wanted).await;
    served.statistics.answered(asking.began.elapsed(), answer.is_ok());
    answer
}

async fn embed_inputs(app: &App, served: &Arc<Served>, asking: &Asking, wanted: &Wanted) -> Answer<Embeddings> {
    let embedder = embedder(served)?;
    let most = app.registry.args().limits.waiting_max.get();
    if wanted.inputs.len() > most {
        let message = format!("{} inputs are given, and at most {most} are allowed", wanted.inputs.len());
        let status = axum::http::StatusCode::PAYLOAD_TOO_LARGE;
        return Err(Refusal::new(status, "too-large", message, "send several requests"));
    }
    let decoding = Instant::now();
    let prompt = wanted.prompt.as_deref();
    let ids = |input| embedder.ids(input, prompt, wanted.whole);
    let ids: Vec<Vec<u32>> =
        app.heavy(asking.body.bytes.len(), || wanted.inputs.iter().map(ids).collect::<Answer<_>>())?;
    served.statistics.decoded(decoding.elapsed());
    let tokens = ids.iter().map(Vec::len).sum();
    let jobs = ids.iter().map(|ids| embedder.job(ids)).collect();
    let done = served.compute(jobs, asking.deadline).await?;
    let vector = |done: &crate::queue::Done| match done.first() {
        Some((_, tensor)) => embedder.embedding(tensor, wanted.dimensions, wanted.normalize),
        None => Err(sardonyx_base::Error::defect("a call without an output").into()),
    };
    Ok(Embeddings { vectors: done.iter().map(vector).collect::<Answer<_>>()?, tokens })
}
