//! /inference.GRPCInferenceService/…  =>  KServe's protocol over gRPC, on the same address as HTTP

pub mod messages;
mod repository;
mod tensors;

use crate::app::App;
use crate::kserve::{EXTENSIONS, dtypes::name_of_dtype};
use crate::refusal::{Answer, Refusal, Refused};
use crate::served::Served;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::post;
use http_body_util::Full;
use messages::*;
use std::future::Future;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

/// Adds the route of a unary method: `method!(router, "ServerReady", server_ready)`
macro_rules! method {
    ($router:expr, $name:literal, $function:expr) => {
        $router.route(
            concat!("/inference.GRPCInferenceService/", $name),
            post(async |State(app): State<Arc<App>>, request: Request| unary(app, request, $function).await),
        )
    };
}

pub(crate) fn routes() -> Router<Arc<App>> {
    let router = Router::new();
    let router =
        method!(router, "ServerLive", async |_, _: ServerLiveRequest, _| Ok(ServerLiveResponse { live: true }));
    let router = method!(router, "ServerReady", server_ready);
    let router = method!(router, "ServerMetadata", server_metadata);
    let router = method!(router, "ModelReady", model_ready);
    let router = method!(router, "ModelMetadata", model_metadata);
    let router = method!(router, "ModelStatistics", repository::statistics);
    let router = method!(router, "RepositoryIndex", repository::index);
    let router = method!(router, "RepositoryModelLoad", repository::load);
    let router = method!(router, "RepositoryModelUnload", repository::unload);
    method!(router, "ModelInfer", model_infer)
}

/// When a call began, and its deadline.
#[derive(Clone, Copy)]
struct Times {
    began: Instant,
    deadline: Instant,
}

/// Receives a message within the limits on bodies, and responds with the result of `answer`.
async fn unary<Q, P, F>(app: Arc<App>, request: Request, answer: impl Fn(Arc<App>, Q, Times) -> F) -> Response
where
    Q: prost::Message + Default + 'static,
    P: prost::Message + Default + 'static,
    F: Future<Output = Answer<P>>,
{
    let began = Instant::now();
    let limits = &app.registry.args().limits;
    let most = limits.timeout.min(grpc_timeout(request.headers()).unwrap_or(limits.timeout));
    let times = Times { began, deadline: began + most };
    let (head, body) = request.into_parts();
    let reason: Arc<Mutex<Option<&'static str>>> = Arc::default();
    let received = match app.room.receive(&head.headers, body, times.deadline).await {
        Ok(received) => received,
        Err(refusal) => return refused(&status(&refusal), refusal.reason),
    };
    let body_max = limits.body_bytes_max();
    let service = tower::service_fn(|message: tonic::Request<Q>| {
        let (answered, reason) = (answer(app.clone(), message.into_inner(), times), reason.clone());
        async move {
            answered.await.map(tonic::Response::new).map_err(|refusal| {
                *reason.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(refusal.reason);
                status(&refusal)
            })
        }
    });
    let request = Request::from_parts(head, Full::new(received.bytes.clone()));
    let mut grpc = tonic::server::Grpc::new(ProstCodec::<P, Q>::default()).max_decoding_message_size(body_max);
    let mut response = grpc.unary(service, request).await.map(Body::new);
    if let Some(reason) = *reason.lock().unwrap_or_else(std::sync::PoisonError::into_inner) {
        response.extensions_mut().insert(Refused(reason));
    }
    response
}

fn refused(status: &Status, reason: &'static str) -> Response {
    let mut response = status.clone().into_http::<Body>();
    response.extensions_mut().insert(Refused(reason));
    response
}

fn status(refusal: &Refusal) -> Status {
    let code = match refusal.status.as_u16() {
        403 => Code::PermissionDenied,
        404 => Code::NotFound,
        408 | 504 => Code::DeadlineExceeded,
        429 => Code::ResourceExhausted,
        499 => Code::Cancelled,
        503 => Code::Unavailable,
        400..500 => Code::InvalidArgument,
        _ => Code::Internal,
    };
    let help = refusal.error.remedy().map(|help| format!("; {help}")).unwrap_or_default();
    let mut status = Status::new(code, format!("[{}] {}{help}", refusal.error.code, refusal.error.message));
    if let Some(seconds) = refusal.retry_after {
        status.metadata_mut().insert("retry-after", seconds.into());
    }
    status
}

/// Parses the header `grpc-timeout`, such as `500m`.
fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let n: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(n * 3600)),
        "M" => Some(Duration::from_secs(n * 60)),
        "S" => Some(Duration::from_secs(n)),
        "m" => Some(Duration::from_millis(n)),
        "u" => Some(Duration::from_micros(n)),
        "n" => Some(Duration::from_nanos(n)),
        _ => None,
    }
}

fn find(app: &App, name: &str, version: &str) -> Answer<Arc<Served>> {
    app.registry.find(name, Some(version).filter(|version| !version.is_empty()))
}

async fn server_ready(app: Arc<App>, _: ServerReadyRequest, _: Times) -> Answer<ServerReadyResponse> {
    Ok(ServerReadyResponse { ready: app.check_ready().is_ok() })
}

async fn server_metadata(_: Arc<App>, _: ServerMetadataRequest, _: Times) -> Answer<ServerMetadataResponse> {
    let extensions = EXTENSIONS.iter().map(|name| name.to_string()).collect();
    let version = env!("CARGO_PKG_VERSION").into();
    Ok(ServerMetadataResponse { name: "sardonyx-serve".into(), version, extensions })
}

async fn model_ready(app: Arc<App>, request: ModelReadyRequest, _: Times) -> Answer<ModelReadyResponse> {
    let ready = app.check_ready().is_ok() && find(&app, &request.name, &request.version).is_ok();
    Ok(ModelReadyResponse { ready })
}

async fn model_metadata(app: Arc<App>, request: ModelMetadataRequest, _: Times) -> Answer<ModelMetadataResponse> {
    let served = find(&app, &request.name, &request.version)?;
    let port = |port: &sardonyx_runtime::Port| TensorMetadata {
        name: port.name.clone(),
        datatype: name_of_dtype(port.dtype).unwrap_or("UNSUPPORTED").into(),
        shape: port.dims.iter().map(|dim| dim.as_const().unwrap_or(-1)).collect(),
    };
    Ok(ModelMetadataResponse {
        name: served.name.clone(),
        versions: vec![served.version.to_string()],
        platform: "sardonyx_sdx".into(),
        inputs: served.ports.inputs().iter().map(port).collect(),
        outputs: served.ports.outputs().map(port).collect(),
    })
}

async fn model_infer(app: Arc<App>, request: ModelInferRequest, times: Times) -> Answer<ModelInferResponse> {
    app.check_accepting()?;
    let served = find(&app, &request.model_name, &request.model_version)?;
    let answer = infer(&served, request, times).await;
    served.statistics.answered(times.began.elapsed(), answer.is_ok());
    answer
}

async fn infer(served: &Arc<Served>, request: ModelInferRequest, times: Times) -> Answer<ModelInferResponse> {
    let decoding = Instant::now();
    let asked = tensors::parse_request(&request, &served.ports)?;
    served.statistics.decoded(decoding.elapsed());
    let timeout = tensors::timeout(&request).map(|timeout| times.began + timeout.min(Duration::from_secs(86400)));
    let deadline = timeout.map_or(times.deadline, |until| until.min(times.deadline));
    let done = served.compute(vec![asked], deadline).await?.remove(0);
    let encoding = Instant::now();
    let response = tensors::response(served, request.id, &done);
    served.statistics.encoded(encoding.elapsed());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_a_unit() {
        let read = |text: &str| {
            let headers = HeaderMap::from_iter([("grpc-timeout".parse().unwrap(), text.parse().unwrap())]);
            grpc_timeout(&headers)
        };
        assert_eq!(read("500m"), Some(Duration::from_millis(500)));
        assert_eq!(read("2H"), Some(Duration::from_secs(7200)));
        for wrong in ["", "m", "5", "-5m", "123456789n", "5x", "+1S"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
