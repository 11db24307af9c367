//! requests, queues and calls  =>  /metrics, in the text format of OpenMetrics; and a line of JSON per request

use crate::app::App;
use crate::completions::Decoder;
use crate::refusal::Refused;
use crate::server::log;
use crate::statistics::Times;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;
type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// Counters updated as requests are handled; the other metrics are read from the models when `/metrics` is requested.
pub struct Metrics {
    registry: Registry,
    requests: Counters,
    loads: Counters,
    refusals: Counters,
    seconds: Histograms,
    positions: Histograms,
}

/// Returns a histogram with buckets from 0.2 milliseconds to 30 seconds.
fn seconds() -> Histogram {
    Histogram::new([0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0])
}

fn positions() -> Histogram {
    Histogram::new((0..15).map(|i| f64::from(1 << i)))
}

impl Default for Metrics {
    fn default() -> Metrics {
        let mut registry = Registry::with_prefix("sardonyx");
        let [requests, refusals, loads] = [(); 3].map(|()| Counters::default());
        let seconds = Histograms::new_with_constructor(seconds as fn() -> Histogram);
        let positions = Histograms::new_with_constructor(positions as fn() -> Histogram);
        registry.register("requests", "Requests that were answered", requests.clone());
        registry.register("loads", "Models that were loaded, or could not be", loads.clone());
        registry.register("refusals", "Answers that are no results, by reason", refusals.clone());
        registry.register("request_seconds", "Time of a request", seconds.clone());
        registry.register("call_positions", "Positions (tokens, rows) that one call computes", positions.clone());
        Metrics { registry, requests, loads, refusals, seconds, positions }
    }
}

impl Metrics {
    /// Returns the histogram of the positions that each call of a model computes.
    pub fn positions_of(&self, model: &str) -> Histogram {
        self.positions.get_or_create(&vec![("model", model.into())]).clone()
    }

    pub fn loaded(&self, model: &str, is_ok: bool) {
        let outcome = if is_ok { "ok" } else { "failed" };
        self.loads.get_or_create(&vec![("model", model.into()), ("outcome", outcome.into())]).inc();
    }

    fn answered(&self, route: &str, status: u16, reason: Option<&'static str>, seconds: f64) {
        let route = || ("route", route.to_string());
        self.requests.get_or_create(&vec![route(), ("status", status.to_string())]).inc();
        self.seconds.get_or_create(&vec![route()]).observe(seconds);
        if let Some(reason) = reason {
            self.refusals.get_or_create(&vec![("reason", reason.into())]).inc();
        }
    }
}

/// Measures a request, and logs it if `--log-json` is given.
pub async fn watch(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let route = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_string();
    let trace = request.headers().get("traceparent").and_then(|v| v.to_str().ok()).and_then(trace_id);
    let method = request.method().clone();
    #[cfg(feature = "otlp")]
    let (headers, at) = (app.traces.is_some().then(|| request.headers().clone()), SystemTime::now());
    let response = next.run(request).await;
    let (took, status) = (began.elapsed(), response.status().as_u16());
    let reason = response.extensions().get::<Refused>().map(|refused| refused.0);
    #[cfg(feature = "otlp")]
    if let (Some(traces), Some(headers)) = (&app.traces, headers) {
        use crate::traces::Answered;
        let answered = Answered { method: method.as_str(), route: &route, status, reason, began: at, took };
        traces.answered(&headers, &answered);
    }
    let took = took.as_secs_f64();
    app.metrics.answered(&route, status, reason, took);
    if app.registry.args().log_json {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let line = json!({ "time": time, "method": method.as_str(), "route": route, "status": status,
                           "reason": reason, "ms": took * 1e3, "trace_id": trace });
        log(&line);
    }
    response
}

/// Returns the trace id of a W3C `traceparent` header: `00-<32 hex digits>-<16>-<2>`.
fn trace_id(header: &str) -> Option<String> {
    let mut parts = header.split('-');
    let id = parts.nth(1)?;
    let is_id = id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()) && parts.next()?.len() == 16;
    is_id.then(|| id.to_string())
}

pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    let mut text = String::new();
    // Both texts end with `# EOF`; the first one is removed.
    let written = encode(&mut text, &of_models(&app)).and_then(|()| {
        text.truncate(text.trim_end().len() - "# EOF".len());
        encode(&mut text, &app.metrics.registry)
    });
    if written.is_err() {
        return axum::http::StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let mut response = Body::from(text).into_response();
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Collects the current metrics of all models.
fn of_models(app: &App) -> Registry {
    let mut registry = Registry::with_prefix("sardonyx");
    let gauges = |registry: &mut Registry, name: &str, help: &str| {
        let family = Gauges::default();
        registry.register(name, help, family.clone());
        family
    };
    let counters = |registry: &mut Registry, name: &str, help: &str| {
        let family = Counters::default();
        registry.register(name, help, family.clone());
        family
    };
    let registry_ = &mut registry;
    let version = gauges(registry_, "model_version", "How often a model of this name was loaded");
    let waiting = gauges(registry_, "queue_requests", "Requests that wait");
    let waiting_positions = gauges(registry_, "queue_positions", "Positions of the requests that wait");
    let oldest = gauges(registry_, "queue_oldest_seconds", "Time for which the oldest request waits");
    let running = gauges(registry_, "calls_running", "Calls that are being computed");
    let positions = counters(registry_, "positions", "Positions that were computed");
    let padding = counters(registry_, "padding_positions", "Positions of padding, which the model left out");
    let ended = counters(registry_, "uncomputed", "Requests that left the queue, by reason");
    let sequences = gauges(registry_, "sequences", "Texts of a decoder, by whether they wait or grow");
    let cached = gauges(registry_, "cache_bytes", "Memory of the keys and values of a decoder's texts");
    let generated = counters(registry_, "generated_tokens", "Tokens that a decoder has added");
    let phases = Family::<Labels, Counter<f64, AtomicU64>>::default();
    registry_.register("phase_seconds", "Time of all requests in each phase", phases.clone());
    let phase_counts = counters(registry_, "phase_count", "How often each phase was gone through");
    let memory = Gauge::<f64, AtomicU64>::default();
    registry_.register("resident_bytes", "Memory of the process", memory.clone());
    memory.set(resident_bytes());
    for served in app.registry.models().values() {
        let label = || vec![("model", served.name.clone())];
        let with = |name: &'static str, value: &str| vec![("model", served.name.clone()), (name, value.into())];
        let (queue, counts) = (served.queue.counts(), served.statistics.counts());
        version.get_or_create(&label()).set(served.version as f64);
        waiting.get_or_create(&label()).set(queue.waiting as f64);
        waiting_positions.get_or_create(&label()).set(queue.positions as f64);
        oldest.get_or_create(&label()).set(queue.oldest.as_secs_f64());
        running.get_or_create(&label()).set(queue.calls as f64);
        positions.get_or_create(&label()).inc_by(counts.positions);
        padding.get_or_create(&label()).inc_by(counts.padding);
        for (reason, n) in [("expired", queue.expired), ("left", queue.left), ("refused", queue.refused)] {
            ended.get_or_create(&with("reason", reason)).inc_by(n);
        }
        if let Some(decoder) = served.decoder.as_ref().map(Decoder::counts) {
            sequences.get_or_create(&with("state", "waiting")).set(decoder.waiting as f64);
            sequences.get_or_create(&with("state", "running")).set(decoder.running as f64);
            cached.get_or_create(&label()).set(decoder.cached_bytes as f64);
            generated.get_or_create(&label()).inc_by(decoder.generated as u64);
        }
        let times: [(&str, Times); 4] = [
            ("decode", counts.decoded),
            ("queue", counts.waited),
            ("compute", counts.computed),
            ("encode", counts.encoded),
        ];
        for (phase, times) in times {
            phases.get_or_create(&with("phase", phase)).inc_by(times.total.as_secs_f64());
            phase_counts.get_or_create(&with("phase", phase)).inc_by(times.count);
        }
    }
    registry
}

/// Returns the resident memory of this process as Linux reports it, assuming pages of 4 KiB; 0 if it is not reported.
fn resident_bytes() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    pages.and_then(|text| text.split(' ').nth(1)?.parse::<f64>().ok()).map_or(0.0, |pages| pages * 4096.0)
}

#[cfg(test)]
mod tests {
    use super::trace_id;

    #[test]
    fn the_trace_of_a_client_is_recognised() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(trace_id(&format!("00-{trace}-00f067aa0ba902b7-01")).as_deref(), Some(trace));
        for wrong in ["", "00", "00-xyz-00f067aa0ba902b7-01", &format!("00-{trace}")] {
            assert_eq!(trace_id(wrong), None, "{wrong}");
        }
    }
}
