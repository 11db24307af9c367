//! an error of the runtime, or an invalid request  =>  an HTTP status, and a body with the error message and a remedy

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sardonyx_base::{Error, ErrorKind};
use serde_json::{Value, json};

/// A response that reports an error instead of a result. Metrics count it under `reason`.
#[derive(Debug)]
pub struct Refusal {
    pub status: StatusCode,
    pub reason: &'static str,
    pub error: Box<Error>,
    /// Number of seconds after which a retry may succeed.
    pub retry_after: Option<u64>,
    pub dialect: Dialect,
}

/// The API whose format of error bodies is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    KServe,
    OpenAi,
    Tei,
}

pub type Answer<T> = std::result::Result<T, Refusal>;

/// Status for a client that has disconnected. 499 is not a registered status, but no client reads it.
const CLIENT_CLOSED: u16 = 499;

/// Returns the status for a kind of error, and whether the same request may succeed later.
fn status(kind: ErrorKind) -> (u16, bool) {
    match kind {
        ErrorKind::Input => (400, false),
        ErrorKind::CacheFull => (400, false),
        ErrorKind::QueueFull => (429, true),
        // The request needs more memory than a call may take; a smaller request may fit.
        ErrorKind::Resources => (413, false),
        ErrorKind::Closed => (503, true),
        ErrorKind::Deadline => (504, false),
        ErrorKind::Cancelled => (CLIENT_CLOSED, false),
        // No other kind of error is caused by the request.
        _ => (500, false),
    }
}

impl Refusal {
    /// Refuses a request with this status. Metrics count it under `reason`; `help` tells the client what to do instead.
    pub fn new(status: StatusCode, reason: &'static str, message: impl Into<String>, help: &str) -> Refusal {
        let error = Error::user("E0001", message).help(help);
        Refusal { status, reason, error, retry_after: None, dialect: Dialect::KServe }
    }

    pub fn bad_request(message: impl Into<String>, help: &str) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "malformed", message, help)
    }

    pub fn not_found(message: impl Into<String>, help: &str) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, "not-found", message, help)
    }

    /// Refuses a request whose tensors do not fit the model.
    pub fn input(message: impl Into<String>, help: impl Into<String>) -> Refusal {
        Error::user("E0301", message).help(help).into()
    }

    pub fn retry_after(self, seconds: u64) -> Refusal {
        Refusal { retry_after: Some(seconds), ..self }
    }

    pub fn dialect(self, dialect: Dialect) -> Refusal {
        Refusal { dialect, ..self }
    }

    pub fn body(&self) -> Value {
        let Error { code, message, .. } = &*self.error;
        let help = self.error.remedy();
        let text = format!("[{code}] {message}{}", help.map(|help| format!("; {help}")).unwrap_or_default());
        match self.dialect {
            Dialect::KServe => json!({ "error": text, "code": code, "kind": self.reason, "help": help }),
            Dialect::OpenAi => {
                let kind = if self.status.is_client_error() { "invalid_request_error" } else { "server_error" };
                json!({ "error": { "message": text, "type": kind, "param": null, "code": code } })
            }
            Dialect::Tei => {
                let kind = match self.status.as_u16() {
                    413 | 422 | 400 => "validation",
                    429 | 503 => "overloaded",
                    _ => "backend",
                };
                json!({ "error": text, "error_type": kind })
            }
        }
    }
}

impl From<Box<Error>> for Refusal {
    fn from(error: Box<Error>) -> Refusal {
        let (code, again) = status(error.kind());
        let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let reason = error.kind().name();
        Refusal { status, reason, error, retry_after: again.then_some(1), dialect: Dialect::KServe }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::body::Body::from(self.body().to_string())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(Refused(self.reason));
        response
    }
}

/// Response extension with the label under which the metrics count a refusal.
#[derive(Clone, Copy, Debug)]
pub struct Refused(pub &'static str);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_status_of_its_kind() {
        for (code, status) in [("E0301", 400), ("E0308", 429), ("E0305", 504), ("E0309", 503), ("E0401", 500)] {
            assert_eq!(Refusal::from(Error::user(code, "x")).status.as_u16(), status, "{code}");
        }
        assert_eq!(Refusal::from(Error::defect("x")).status.as_u16(), 500);
        assert_eq!(Refusal::from(Error::user("E0308", "x")).retry_after, Some(1));
    }

    #[test]
    fn a_message_ends_with_the_remedy() {
        let body = Refusal::input("the input `x` is missing", "the model's inputs are `x`").body();
        assert_eq!(body["error"], "[E0301] the input `x` is missing; the model's inputs are `x`");
        let body = Refusal::input("no", "yes").dialect(Dialect::OpenAi).body();
        assert_eq!(body["error"]["type"], "invalid_request_error");
    }
}
