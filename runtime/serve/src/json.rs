//! a value  =>  a response of type application/json

use crate::refusal::Answer;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use sardonyx_base::Error;
use serde::Serialize;
use serde_json::Value;

pub fn json_response(value: &Value) -> Response {
    response(value.to_string().into_bytes())
}

/// Returns a response for a large value, such as a long list of numbers: `value` is serialized without building a
/// `serde_json::Value` first.
pub fn bytes_response(value: &impl Serialize) -> Answer<Response> {
    let bytes = serde_json::to_vec(value).map_err(|e| Error::defect(format!("an answer has no JSON: {e}")))?;
    Ok(response(bytes))
}

fn response(bytes: Vec<u8>) -> Response {
    let mut response = Body::from(bytes).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
