//! answered requests  =>  spans for an OpenTelemetry collector, each a child of its client's span

use axum::http::HeaderMap;
use opentelemetry::KeyValue;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{Span, SpanKind, Status, Tracer, TracerProvider};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use sardonyx_base::{Error, Result};
use std::time::{Duration, SystemTime};

pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// An answered request, with the attributes of its span.
pub struct Answered<'a> {
    pub method: &'a str,
    pub route: &'a str,
    pub status: u16,
    pub reason: Option<&'static str>,
    pub began: SystemTime,
    pub took: Duration,
}

/// Longest time to send the last spans at shutdown.
const FLUSH: Duration = Duration::from_secs(5);

impl Traces {
    /// Creates the exporter to a collector. A thread of the exporter sends the spans in batches. Must be called within
    /// the tokio runtime of the server, which drives the connection. The collector need not be reachable yet. Errors:
    /// E0001 for an invalid endpoint.
    pub fn new(endpoint: &str) -> Result<Traces> {
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build();
        let wrong = |e| Error::user("E0001", format!("`--otlp {endpoint}`: {e}")).help("write http://HOST:4317");
        let resource = Resource::builder().with_service_name("sardonyx-serve").build();
        let provider = SdkTracerProvider::builder().with_resource(resource);
        let provider = provider.with_batch_exporter(exporter.map_err(wrong)?).build();
        let tracer = provider.tracer("sardonyx-serve");
        Ok(Traces { provider, tracer })
    }

    pub fn answered(&self, headers: &HeaderMap, answered: &Answered) {
        let parent = TraceContextPropagator::new().extract(&Headers(headers));
        let Answered { method, route, status, reason, began, took } = answered;
        let attributes = [
            KeyValue::new("http.request.method", method.to_string()),
            KeyValue::new("http.route", route.to_string()),
            KeyValue::new("http.response.status_code", i64::from(*status)),
        ];
        let refused = reason.map(|reason| KeyValue::new("error.type", reason));
        let span = self.tracer.span_builder(format!("{method} {route}")).with_kind(SpanKind::Server);
        let span = span.with_start_time(*began).with_attributes(attributes.into_iter().chain(refused));
        let mut span = span.start_with_context(&self.tracer, &parent);
        if *status >= 500 {
            span.set_status(Status::error(reason.unwrap_or_default()));
        }
        span.end_with_timestamp(*began + *took);
    }

    /// Sends the remaining spans.
    pub fn end(&self) {
        // An unreachable collector is not an error of the server.
        let _ = self.provider.shutdown_with_timeout(FLUSH);
    }
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}
