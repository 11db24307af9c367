//! texts or token ids  =>  embeddings and scores; each input is a separate job, stacked with those of other requests

mod base64;
pub mod openai;
pub mod tei;

use crate::app::App;
use crate::asking::Asking;
use crate::embedder::{Embedder, Input, Tokens};
use crate::refusal::{Answer, Refusal};
use crate::served::Served;
use sardonyx_base::Tensor;
use std::sync::Arc;
use std::time::Instant;

/// The inputs of a request, and how the client wants their embeddings computed.
struct Wanted {
    inputs: Vec<Input>,
    dimensions: Option<usize>,
    normalize: bool,
    prompt: Option<String>,
    /// Whether texts that are too long are refused instead of truncated.
    whole: bool,
}

struct Embeddings {
    vectors: Vec<Vec<f32>>,
    tokens: usize,
}

fn embedder(served: &Served) -> Answer<&Embedder> {
    served.embedder.as_ref().filter(|embedder| !embedder.is_reranker()).ok_or_else(|| {
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
    let tokens = |input: &Input| embedder.tokens(input, wanted.prompt.as_deref(), wanted.whole);
    let jobs = tokens_of(app, served, asking, &wanted.inputs, tokens)?;
    let tokens = jobs.iter().map(Tokens::len).sum();
    let done = compute(served, embedder, asking, &jobs).await?;
    let vector = |tensor: &Tensor| embedder.embedding(tensor, wanted.dimensions, wanted.normalize);
    Ok(Embeddings { vectors: done.iter().map(vector).collect::<Answer<_>>()?, tokens })
}

fn tokens_of<I>(
    app: &App,
    served: &Served,
    asking: &Asking,
    inputs: &[I],
    tokens: impl Fn(&I) -> Answer<Tokens>,
) -> Answer<Vec<Tokens>> {
    let most = app.registry.args().limits.waiting_max.get();
    if inputs.len() > most {
        let message = format!("{} inputs are given, and at most {most} are allowed", inputs.len());
        let status = axum::http::StatusCode::PAYLOAD_TOO_LARGE;
        return Err(Refusal::new(status, "too-large", message, "send several requests"));
    }
    let decoding = Instant::now();
    let tokens = app.heavy(asking.body.bytes.len(), || inputs.iter().map(tokens).collect());
    served.statistics.decoded(decoding.elapsed());
    tokens
}

/// Returns the first output of the model for each input.
async fn compute(served: &Arc<Served>, embedder: &Embedder, asking: &Asking, inputs: &[Tokens]) -> Answer<Vec<Tensor>> {
    let done = served.compute(inputs.iter().map(|tokens| embedder.job(tokens)).collect(), asking.deadline).await?;
    let first = |done: crate::queue::Done| match done.into_iter().next() {
        Some((_, tensor)) => Ok(tensor),
        None => Err(sardonyx_base::Error::defect("a call without an output").into()),
    };
    done.into_iter().map(first).collect()
}
