//! What the server reports: /metrics, and a line of JSON per request

#[path = "../../tests/common/mod.rs"]
mod artifacts;
mod common;

use artifacts::two_layers;
use common::{Server, rows_request};
use serde_json::json;

#[test]
fn requests_refusals_and_calls_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sdx");
    two_layers().write(&path);
    let server = Server::start(&path, &[]);
    for _ in 0..3 {
        assert_eq!(server.post_json("/v2/models/m/infer", &rows_request(4, 0)).status, 200);
    }
    server.post_json("/v2/models/m/infer", &json!({ "inputs": [] })).refused(400);
    server.get("/nowhere").refused(404);
    let answer = server.get("/metrics");
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    let text = answer.text();
    for line in [
        r#"sardonyx_requests_total{route="/v2/models/{model}/infer",status="200"} 3"#,
        r#"sardonyx_requests_total{route="other",status="404"} 1"#,
        r#"sardonyx_refusals_total{reason="input"} 1"#,
        r#"sardonyx_refusals_total{reason="not-found"} 1"#,
        r#"sardonyx_call_positions_bucket{le="4.0",model="m"} 3"#,
        r#"sardonyx_positions_total{model="m"} 12"#,
        r#"sardonyx_queue_requests{model="m"} 0.0"#,
        r#"sardonyx_model_version{model="m"} 1.0"#,
        r#"sardonyx_phase_count_total{model="m",phase="compute"} 3"#,
        r#"sardonyx_uncomputed_total{model="m",reason="expired"} 0"#,
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1);
    let memory = text.lines().find_map(|line| line.strip_prefix("sardonyx_resident_bytes ")).unwrap();
    assert!(memory.parse::<f64>().unwrap() > 1e6, "{memory}");
    // No metric is described twice.
    let mut described: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
    let n = described.len();
    described.sort();
    described.dedup();
    assert_eq!(described.len(), n, "{text}");
}

#[test]
fn each_request_is_a_line_of_json_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (path, log) = (dir.path().join("m.sdx"), dir.path().join("log"));
    two_layers().write(&path);
    let server = Server::start_logged(&path, &["--log-json"], std::fs::File::create(&log).unwrap());
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let header = format!("00-{trace}-00f067aa0ba902b7-01");
    let body = rows_request(1, 0).to_string();
    assert_eq!(server.post("/v2/models/m/infer", &[("traceparent", &header)], body.as_bytes()).status, 200);
    server.get("/v2/models/none").refused(404);
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["route"], &lines[0]["status"]), (&json!("/v2/models/{model}/infer"), &json!(200)));
    assert_eq!((&lines[0]["trace_id"], &lines[0]["reason"]), (&json!(trace), &json!(null)));
    assert_eq!((&lines[1]["status"], &lines[1]["reason"]), (&json!(404), &json!("not-found")));
    assert!(lines.iter().all(|line| line["ms"].as_f64().unwrap() > 0.0));
}
