//! /v2/repository …  =>  the index of models, and their loading and unloading if the server allows it

use crate::app::App;
use crate::json::json_response;
use crate::refusal::{Answer, Refusal};
use crate::registry::Indexed;
use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use axum::routing::post;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v2/repository/index", post(index))
        .route("/v2/repository/models/{model}/load", post(load))
        .route("/v2/repository/models/{model}/unload", post(unload))
}

#[derive(Deserialize, Default)]
struct Asked {
    /// Whether only models that are being served are listed.
    #[serde(default)]
    ready: bool,
    #[serde(default)]
    parameters: BTreeMap<String, IgnoredAny>,
}

impl Asked {
    /// Parses the body, which is optional. Errors: 403 for a request from a web page.
    async fn read(app: &App, request: Request) -> Answer<Asked> {
        app.check_accepting()?;
        let deadline = Instant::now() + app.registry.args().limits.timeout;
        let (head, body) = request.into_parts();
        // Without this check, a page of any site could make a browser on this machine send the request.
        if head.headers.contains_key(header::ORIGIN) {
            let message = "the request comes from a web page (`Origin`)";
            return Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden", message, "send it from a program"));
        }
        let received = app.room.receive(&head.headers, body, deadline).await?;
        if received.bytes.is_empty() {
            return Ok(Asked::default());
        }
        serde_json::from_slice(&received.bytes)
            .map_err(|e| Refusal::bad_request(format!("the request is malformed: {e}"), "send an object, or nothing"))
    }
}

/// Refuses parameters that would load anything but the artifact in the folder.
pub fn check_parameters<'a>(mut names: impl Iterator<Item = &'a String>) -> Answer<()> {
    match names.find(|name| *name != "unload_dependents") {
        None => Ok(()),
        Some(name) => {
            let message = format!("the parameter `{}` is not supported", name.chars().take(80).collect::<String>());
            Err(Refusal::bad_request(message, "put the artifact into the folder, and load it by its name"))
        }
    }
}

async fn index(State(app): State<Arc<App>>, request: Request) -> Answer<Response> {
    let asked = Asked::read(&app, request).await?;
    let lines = blocking(app, |app| app.registry.index()).await?;
    let line = |line: Indexed| {
        let state = line.state();
        let Indexed { name, version, failure } = line;
        let version = version.map(|version| version.to_string()).unwrap_or_default();
        json!({ "name": name, "version": version, "state": state, "reason": failure.unwrap_or_default() })
    };
    let lines: Vec<Value> = lines.into_iter().filter(|line| line.version.is_some() || !asked.ready).map(line).collect();
    Ok(json_response(&json!(lines)))
}

async fn load(State(app): State<Arc<App>>, Path(model): Path<String>, request: Request) -> Answer<StatusCode> {
    check_parameters(Asked::read(&app, request).await?.parameters.keys())?;
    blocking(app, move |app| app.registry.load_model(&model)).await.map(|()| StatusCode::OK)
}

async fn unload(State(app): State<Arc<App>>, Path(model): Path<String>, request: Request) -> Answer<StatusCode> {
    check_parameters(Asked::read(&app, request).await?.parameters.keys())?;
    blocking(app, move |app| app.registry.unload_model(&model)).await.map(|()| StatusCode::OK)
}

/// Runs `work`, such as loading a model, on a thread where it may block, while requests are served.
pub async fn blocking<T: Send + 'static>(
    app: Arc<App>,
    work: impl FnOnce(&App) -> Answer<T> + Send + 'static,
) -> Answer<T> {
    let done = tokio::task::spawn_blocking(move || work(&app)).await;
    done.unwrap_or_else(|_| Err(sardonyx_base::Error::defect("loading a model panicked").into()))
}
