//! with the feature `otlp`, the server sends a collector one span per request, in the trace of the client
#![cfg(feature = "otlp")]

#[path = "../../tests/common/mod.rs"]
mod artifacts;
mod common;

use artifacts::two_layers;
use common::Server;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use std::sync::{Arc, Mutex};
use tonic::{Request, Response, Status};

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans;
        let spans = resources.into_iter().flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans);
        self.0.lock().unwrap().extend(spans);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Serves this collector on a free port and returns the URL.
    fn start(&self, runtime: &tokio::runtime::Runtime) -> String {
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let service = TraceServiceServer::new(self.clone());
        let path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
        let router = axum::Router::new().route_service(path, service);
        runtime.spawn(async move { axum::serve(listener, router).await });
        url
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn status_code(span: &Span) -> Option<i64> {
    let found = span.attributes.iter().find(|attribute| attribute.key == "http.response.status_code");
    match found?.value.as_ref()?.value {
        Some(Value::IntValue(code)) => Some(code),
        _ => None,
    }
}

#[test]
fn a_collector_gets_the_traces_of_clients() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let collector = Collector::default();
    let url = collector.start(&runtime);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.sdx");
    two_layers().write(&path);
    let mut server = Server::start(&path, &["--otlp", &url]);
    let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let header = format!("00-{trace}-{parent}-01");
    let infer = |body: &str| server.post("/v2/models/m/infer", &[("traceparent", &header)], body.as_bytes()).status;
    let x = ["1"; 8].join(", ");
    let input = format!(r#"{{"inputs": [{{"name": "x", "shape": [1, 8], "datatype": "FP32", "data": [{x}]}}]}}"#);
    assert_eq!((infer(&input), infer("nothing"), server.get("/v2").status), (200, 400, 200));
    server.signal(15);
    assert_eq!(server.wait(), 0);
    let spans = collector.0.lock().unwrap();
    let of_client: Vec<&Span> = spans.iter().filter(|span| hex(&span.trace_id) == trace).collect();
    assert_eq!(of_client.iter().map(|span| status_code(span)).collect::<Vec<_>>(), [Some(200), Some(400)]);
    for span in &of_client {
        assert_eq!((hex(&span.parent_span_id).as_str(), span.name.as_str()), (parent, "POST /v2/models/{model}/infer"));
        assert!(span.end_time_unix_nano > span.start_time_unix_nano);
    }
    // A request without a trace context begins a new trace.
    let other = spans.iter().find(|span| span.name == "GET /v2").unwrap();
    assert!(other.parent_span_id.is_empty() && hex(&other.trace_id) != trace && spans.len() == 3);
}

#[test]
fn a_collector_that_is_not_there_is_not_missed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.sdx");
    two_layers().write(&path);
    let mut server = Server::start(&path, &["--otlp", "http://127.0.0.1:9"]);
    assert_eq!(server.get("/v2").status, 200);
    server.signal(15);
    assert_eq!(server.wait(), 0);
}
