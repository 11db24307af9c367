//! POST /v1/completions: prompts  =>  the texts that a decoder adds to them, at once or as a stream

mod decoder;
mod sampling;
mod stops;

pub use decoder::Decoder;

use crate::app::App;
use crate::asking::{Asking, inputs};
use crate::embedder::Input;
use crate::json::json_response;
use crate::refusal::{Answer, Dialect, Refusal};
use crate::served::Served;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use decoder::{Event, Reason, Sequence};
use http_body_util::channel::{Channel, Sender};
use sampling::Sampling;
use sardonyx_base::Error;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use stops::Stops;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

pub fn routes() -> Router<Arc<App>> {
    Router::new().route(
        "/v1/completions",
        post(async |State(app), request| {
            complete(app, request).await.map_err(|refusal| refusal.dialect(Dialect::OpenAi))
        }),
    )
}

#[derive(Deserialize)]
struct Wishes<'a> {
    model: String,
    #[serde(borrow)]
    prompt: &'a RawValue,
    max_tokens: Option<usize>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    n: Option<usize>,
    seed: Option<i64>,
    stop: Option<OneOrSeveral>,
    #[serde(default)]
    stop_token_ids: Vec<u32>,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
    /// Whether to return token ids beside the text; this also works for models without a tokenizer.
    #[serde(default)]
    return_token_ids: bool,
    // Fields of the protocol that this server does not support: any value but the default is refused.
    best_of: Option<usize>,
    #[serde(default)]
    echo: bool,
    logprobs: Option<Value>,
    logit_bias: Option<serde_json::Map<String, Value>>,
    suffix: Option<String>,
    presence_penalty: Option<f64>,
    frequency_penalty: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrSeveral {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// Maximum number of texts and of stop strings per request, and of bytes per stop string.
const CHOICES_MAX: usize = 128;
const STOPS_MAX: usize = 16;
const STOP_BYTES_MAX: usize = 256;

impl Wishes<'_> {
    fn check(&self) -> Answer<()> {
        let wrong = |field: &str, allowed: &str| {
            Err(Refusal::bad_request(format!("`{field}` is out of range"), &format!("`{field}` may be {allowed}")))
        };
        let within = |value: Option<f64>, hi: f64| value.is_none_or(|value| (0.0..=hi).contains(&value));
        let unknown = [
            ("best_of", self.best_of.is_some_and(|n| n != self.n.unwrap_or(1))),
            ("echo", self.echo),
            ("logprobs", self.logprobs.as_ref().is_some_and(|value| !value.is_null())),
            ("logit_bias", self.logit_bias.as_ref().is_some_and(|map| !map.is_empty())),
            ("suffix", self.suffix.as_ref().is_some_and(|text| !text.is_empty())),
            ("presence_penalty", self.presence_penalty.is_some_and(|x| x != 0.0)),
            ("frequency_penalty", self.frequency_penalty.is_some_and(|x| x != 0.0)),
        ];
        if let Some((field, _)) = unknown.iter().find(|(_, is_asked)| *is_asked) {
            return Err(Refusal::bad_request(format!("`{field}` is not supported"), "leave it out"));
        }
        match self {
            _ if !within(self.temperature, 100.0) => wrong("temperature", "from 0 to 100"),
            _ if !within(self.top_p, 1.0) => wrong("top_p", "from 0 to 1"),
            _ if self.n == Some(0) => wrong("n", "1 or more"),
            _ if self.max_tokens == Some(0) => wrong("max_tokens", "1 or more"),
            _ => Ok(()),
        }
    }

    fn stops(&self) -> Answer<Vec<String>> {
        let stops = match &self.stop {
            None => vec![],
            Some(OneOrSeveral::One(stop)) => vec![stop.clone()],
            Some(OneOrSeveral::Several(stops)) => stops.clone(),
        };
        let are_usual = stops.iter().all(|stop| (1..=STOP_BYTES_MAX).contains(&stop.len())) && stops.len() <= STOPS_MAX;
        match are_usual {
            true => Ok(stops),
            false => {
                let help = format!("send at most {STOPS_MAX} strings of 1 to {STOP_BYTES_MAX} bytes");
                Err(Refusal::bad_request("`stop` has too many strings, or one that is empty or too long", &help))
            }
        }
    }
}

/// A request in progress: the fields that all its answers share, and the channel of its tokens.
struct Growing {
    served: Arc<Served>,
    events: UnboundedReceiver<(usize, Event)>,
    stops: Vec<String>,
    choices: usize,
    prompt_tokens: usize,
    return_token_ids: bool,
    id: String,
    created: u64,
}

async fn complete(app: Arc<App>, request: Request) -> Answer<Response> {
    let asking = Asking::new(&app, request).await?;
    let wishes: Wishes = asking.json("send an object with `model` and `prompt`")?;
    wishes.check()?;
    let served = app.registry.find(&wishes.model, None)?;
    let growing = begin(&app, &served, &asking, &wishes)?;
    match wishes.stream {
        false => {
            let response = growing.collect_response().await;
            served.statistics.answered(asking.began.elapsed(), response.is_ok());
            response
        }
        true => {
            let (sender, channel) = Channel::<bytes::Bytes, Infallible>::new(16);
            let with_usage = wishes.stream_options.as_ref().is_some_and(|options| options.include_usage);
            let began = asking.began;
            tokio::spawn(async move {
                let is_ok = growing.stream(sender, with_usage).await;
                served.statistics.answered(began.elapsed(), is_ok);
            });
            let mut response = Body::new(channel).into_response();
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            Ok(response)
        }
    }
}

fn begin(app: &App, served: &Arc<Served>, asking: &Asking, wishes: &Wishes) -> Answer<Growing> {
    let decoder = decoder(served)?;
    let prompts = inputs(wishes.prompt, "prompt")?;
    let n = wishes.n.unwrap_or(1);
    let choices = prompts.len().saturating_mul(n);
    if choices > CHOICES_MAX {
        let message = format!(
            "{} prompts with {n} texts each are asked for, and at most {CHOICES_MAX} are allowed",
            prompts.len()
        );
        return Err(Refusal::bad_request(message, "send several requests"));
    }
    let stops = wishes.stops()?;
    if !stops.is_empty() && decoder.texts.tokenizer.is_none() {
        return Err(Refusal::bad_request(
            "`stop` is for texts, and the model has no tokenizer",
            "send `stop_token_ids`",
        ));
    }
    let tokens = |prompt: &Input| match prompt {
        Input::Text(text) => Ok(decoder.texts.encode(text, None, true, true)?.get_ids().to_vec()),
        Input::Ids(ids) => Ok(ids.clone()),
    };
    let prompts: Vec<Vec<u32>> =
        app.heavy(asking.body.bytes.len(), || prompts.iter().map(tokens).collect::<Answer<_>>())?;
    if prompts.iter().any(Vec::is_empty) {
        return Err(Refusal::bad_request("a prompt has no tokens", "send at least one"));
    }
    let seed = wishes.seed.map_or_else(|| RandomState::new().hash_one(0), |seed| seed as u64);
    let ends: Vec<u32> = decoder.texts.settings.eos_token_ids.iter().chain(&wishes.stop_token_ids).copied().collect();
    let (sender, events) = unbounded_channel();
    let sequence = |index: usize| Sequence {
        index,
        tokens: prompts[index / n].iter().map(|id| i64::from(*id)).collect(),
        wanted: wishes.max_tokens.unwrap_or(16),
        ends: ends.clone(),
        sampling: Sampling {
            temperature: wishes.temperature.unwrap_or(1.0),
            top_p: wishes.top_p.unwrap_or(1.0),
            seed: seed.wrapping_add(index as u64),
        },
        deadline: asking.deadline,
        events: sender.clone(),
    };
    decoder.push((0..choices).map(sequence).collect(), app.registry.args().limits.waiting_max.get())?;
    static NEXT: AtomicU64 = AtomicU64::new(0);
    Ok(Growing {
        served: served.clone(),
        events,
        stops,
        choices,
        prompt_tokens: prompts.iter().map(Vec::len).sum(),
        return_token_ids: wishes.return_token_ids,
        id: format!("cmpl-{:016x}-{}", RandomState::new().hash_one(0), NEXT.fetch_add(1, Ordering::Relaxed)),
        created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
    })
}

fn decoder(served: &Served) -> Answer<&Decoder> {
    served.decoder.as_ref().ok_or_else(|| {
        let message = format!("the model `{}` adds nothing to texts", served.name);
        Refusal::bad_request(message, "serve a decoder whose keys and values go in and come out, with `logits`")
    })
}

/// A piece of a choice: new text, its tokens, and the reason why the choice ends, if it does.
struct Piece {
    index: usize,
    text: String,
    tokens: Vec<u32>,
    reason: Option<Reason>,
}

impl Growing {
    /// Passes the pieces of all choices to `show` until it returns false. Returns the number of generated tokens.
    async fn pieces<F>(&mut self, mut show: impl FnMut(&Growing, Piece) -> F) -> Answer<usize>
    where
        F: Future<Output = bool>,
    {
        let served = self.served.clone();
        let tokenizer = decoder(&served)?.texts.tokenizer.as_ref();
        let mut texts: Vec<_> = (0..self.choices)
            .map(|_| Some((tokenizer.map(|tokenizer| tokenizer.decode_stream(true)), Stops::new(self.stops.clone()))))
            .collect();
        let (mut open, mut generated) = (self.choices, 0);
        while open > 0 {
            let Some((index, event)) = self.events.recv().await else {
                return Err(Error::defect("a text ends without its end").into());
            };
            // Events after the end of a choice belong to tokens that were already being computed.
            let Some((stream, stops)) = &mut texts[index] else { continue };
            let mut piece = Piece { index, text: String::new(), tokens: vec![], reason: None };
            match event {
                Event::Failed(error) => return Err(error.into()),
                Event::Token(token) => {
                    generated += 1;
                    piece.tokens.push(token);
                    let step = stream.as_mut().map(|stream| stream.step(token)).transpose();
                    let step = step.map_err(|e| Error::defect(format!("the tokenizer has no text of a token: {e}")))?;
                    let shown = stops.push(&step.flatten().unwrap_or_default());
                    piece.text = shown.text;
                    piece.reason = shown.is_over.then_some(Reason::Stop);
                }
                Event::End(reason) => {
                    piece.text = stops.rest();
                    piece.reason = Some(reason);
                }
            }
            if piece.reason.is_some() {
                texts[index] = None;
                open -= 1;
            }
            if !show(self, piece).await {
                break;
            }
        }
        Ok(generated)
    }

    async fn collect_response(mut self) -> Answer<Response> {
        let whole: Vec<Piece> =
            (0..self.choices).map(|index| Piece { index, text: String::new(), tokens: vec![], reason: None }).collect();
        let whole = std::sync::Mutex::new(whole);
        let generated = self
            .pieces(|_, piece| {
                let mut whole = whole.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let choice = &mut whole[piece.index];
                choice.text += &piece.text;
                choice.tokens.extend(piece.tokens);
                choice.reason = piece.reason;
                std::future::ready(true)
            })
            .await?;
        let whole = whole.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let choices: Vec<Value> = whole.into_iter().map(|piece| self.choice(piece)).collect();
        let mut answer = self.answer(choices);
        answer["usage"] = self.usage(generated);
        Ok(json_response(&answer))
    }

    /// Sends each piece as an event of the stream as soon as it is known. Returns whether everything was computed and
    /// sent.
    async fn stream(mut self, sender: Sender<bytes::Bytes, Infallible>, with_usage: bool) -> bool {
        let sender = tokio::sync::Mutex::new(sender);
        let send = async |event: String| {
            let event = bytes::Bytes::from(format!("data: {event}\n\n"));
            sender.lock().await.send_data(event).await.is_ok()
        };
        let told = self
            .pieces(|growing, piece| {
                // No event is sent for a token whose text is not complete yet.
                let is_empty = piece.text.is_empty() && piece.reason.is_none() && !growing.return_token_ids;
                let event = (!is_empty).then(|| growing.answer(vec![growing.choice(piece)]).to_string());
                let send = &send;
                async move {
                    match event {
                        Some(event) => send(event).await,
                        None => true,
                    }
                }
            })
            .await;
        match told {
            Ok(generated) => {
                if with_usage {
                    let mut answer = self.answer(vec![]);
                    answer["usage"] = self.usage(generated);
                    send(answer.to_string()).await;
                }
                send("[DONE]".into()).await
            }
            Err(refusal) => {
                // The status has already been sent, so the error is sent as the last event.
                send(refusal.dialect(Dialect::OpenAi).body().to_string()).await;
                false
            }
        }
    }

    fn choice(&self, piece: Piece) -> Value {
        let reason = piece.reason.map(Reason::name);
        let mut choice = json!({ "index": piece.index, "text": piece.text, "logprobs": null, "finish_reason": reason });
        if self.return_token_ids {
            choice["token_ids"] = piece.tokens.into();
        }
        choice
    }

    fn answer(&self, choices: Vec<Value>) -> Value {
        json!({ "id": self.id, "object": "text_completion", "created": self.created, "model": self.served.name, "choices": choices })
    }

    fn usage(&self, generated: usize) -> Value {
        let prompt = self.prompt_tokens;
        json!({ "prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated })
    }
}
