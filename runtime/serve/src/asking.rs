//! a request about texts  =>  its body, its deadline, and the texts or token ids in it

use crate::app::App;
use crate::body::Received;
use crate::embedder::Input;
use crate::refusal::{Answer, Refusal};
use axum::body::Body;
use axum::extract::Request;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Instant;

/// The body of a request, with the time of its arrival and its deadline.
pub struct Asking {
    pub body: Received,
    pub began: Instant,
    pub deadline: Instant,
}

impl Asking {
    pub async fn new(app: &App, request: Request<Body>) -> Answer<Asking> {
        let began = Instant::now();
        app.check_accepting()?;
        let deadline = began + app.registry.args().limits.timeout;
        let (head, body) = request.into_parts();
        let body = app.room.receive(&head.headers, body, deadline).await?;
        Ok(Asking { body, began, deadline })
    }

    pub fn json<'a, T: Deserialize<'a>>(&'a self, help: &str) -> Answer<T> {
        let malformed = |e| Refusal::bad_request(format!("the request is malformed: {e}"), help);
        serde_json::from_slice(&self.body.bytes).map_err(malformed)
    }
}

/// Parses a text, a list of texts, a list of token ids, or a list of such lists.
pub fn inputs(text: &RawValue, field: &str) -> Answer<Vec<Input>> {
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
