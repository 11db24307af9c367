//! a file is replaced, or a request loads or unloads a model  =>  the served models change; no accepted request fails

#[path = "../../tests/common/mod.rs"]
mod artifacts;
mod common;

use artifacts::{Builder, two_layers};
use common::{Server, read_response, request, rows_data, rows_request};
use sardonyx_base::DType;
use sardonyx_base::plan::messages::SymbolKind;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Returns a model that applies y = 2x + 1 once or, if `twice`, two times.
fn version(twice: bool) -> Builder {
    let mut b = Builder::new();
    b.symbol("batch", SymbolKind::Input, 1, Some(100));
    let x = b.input("x", DType::F32, &["batch", "8"], "batch*32");
    let y = b.output("y", DType::F32, &["batch", "8"], "batch*32");
    let affine = b.kernel("affine", &[false, true], 0, "0");
    if twice {
        let h = b.arena("batch*32", "0");
        b.entry.arena_bytes = "batch*32".into();
        b.launch(affine, &[x, h], &[], "batch*8");
        b.launch(affine, &[h, y], &[], "batch*8");
    } else {
        b.launch(affine, &[x, y], &[], "batch*8");
    }
    b
}

fn expected(twice: bool) -> Vec<f32> {
    let once = |x: f32| x * 2.0 + 1.0;
    rows_data(1, 0).into_iter().map(|x| if twice { once(once(x)) } else { once(x) }).collect()
}

/// Replaces a file as the compiler does: writes a new file next to it and renames the new file to the old name.
fn replace(model: &Builder, path: &Path) {
    let beside = path.with_extension("new");
    model.write(&beside);
    std::fs::rename(beside, path).unwrap();
}

fn model_version(server: &Server) -> String {
    server.get("/v2/models/m").json()["versions"][0].as_str().unwrap_or_default().to_string()
}

fn wait_for_version(server: &Server, wanted: &str) {
    let until = Instant::now() + Duration::from_secs(30);
    while model_version(server) != wanted {
        assert!(Instant::now() < until, "version {} is still served", model_version(server));
        std::thread::sleep(Duration::from_millis(5));
    }
}

const INFER: &str = "/v2/models/m/infer";

#[test]
fn a_renamed_file_is_served_without_a_request_that_fails() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sdx");
    version(false).write(&path);
    let server = Server::start(&path, &[]);
    let both = [expected(false), expected(true)];
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients = [0, 1].map(|_| {
            scope.spawn(|| {
                let mut n = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let answer = server.post_json(INFER, &rows_request(1, 0));
                    let version: u64 = answer.json()["model_version"].as_str().unwrap().parse().unwrap();
                    // Odd versions apply the function once, even ones twice; an answer must match the version in it.
                    assert_eq!(answer.numbers(), both[1 - (version % 2) as usize], "{}", answer.text());
                    n += 1;
                }
                n
            })
        });
        for reload in 2..12 {
            replace(&version(reload % 2 == 0), &path);
            server.signal(libc::SIGHUP);
            wait_for_version(&server, &reload.to_string());
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for client in clients {
            assert!(client.join().unwrap() > 10);
        }
    });
    // The server checks its files for changes once a second, so it notices this change without a signal.
    replace(&version(true), &path);
    wait_for_version(&server, "12");
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains(r#"sardonyx_loads_total{model="m",outcome="ok"} 12"#), "{metrics}");
    // The files of the old models have been deleted; none of them stays mapped.
    let until = Instant::now() + Duration::from_secs(10);
    while !server.mapped_and_deleted().is_empty() {
        assert!(Instant::now() < until, "{:?}", server.mapped_and_deleted());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_damaged_file_leaves_the_old_model() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sdx");
    version(false).write(&path);
    let server = Server::start(&path, &[]);
    let beside = path.with_extension("new");
    version(true).write(&beside);
    let mut bytes = std::fs::read(&beside).unwrap();
    let middle = bytes.len() / 2;
    bytes.truncate(middle);
    std::fs::write(&beside, bytes).unwrap();
    std::fs::rename(&beside, &path).unwrap();
    server.signal(libc::SIGHUP);
    let until = Instant::now() + Duration::from_secs(30);
    while !server.get("/metrics").text().contains(r#"sardonyx_loads_total{model="m",outcome="failed"} 1"#) {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(server.post_json(INFER, &rows_request(1, 0)).numbers(), expected(false));
    // A file that could not be loaded is not tried again until it changes.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(server.get("/metrics").text().contains(r#"outcome="failed"} 1"#));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(server.post_json(INFER, &rows_request(1, 0)).numbers(), expected(false));
    replace(&version(true), &path);
    wait_for_version(&server, "2");
    assert_eq!(server.post_json(INFER, &rows_request(1, 0)).numbers(), expected(true));
}

#[test]
fn models_are_loaded_and_unloaded_where_that_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    version(false).write(&dir.path().join("m.sdx"));
    version(false).write(&outside.path().join("secret.sdx"));
    std::os::unix::fs::symlink(outside.path().join("secret.sdx"), dir.path().join("link.sdx")).unwrap();
    let server = Server::start(dir.path(), &["--allow-load"]);
    let post = |path: &str, body: &Value| server.post_json(path, body);
    let index = |body: Value| post("/v2/repository/index", &body).json();
    let line = |name: &str, version: &str, state: &str| json!({ "name": name, "version": version, "state": state, "reason": "" });
    assert_eq!(index(json!({})), json!([line("m", "1", "READY")]));
    two_layers().write(&dir.path().join("n.sdx"));
    assert_eq!(index(json!({})), json!([line("m", "1", "READY"), line("n", "", "UNAVAILABLE")]));
    assert_eq!(index(json!({ "ready": true })), json!([line("m", "1", "READY")]));
    assert_eq!(post("/v2/repository/models/n/load", &json!({})).status, 200);
    assert_eq!(server.get("/v2/models/n/ready").status, 200);
    assert_eq!(server.post("/v2/repository/models/m/unload", &[], b"").status, 200);
    server.get("/v2/models/m").refused(404);
    assert_eq!(index(json!({})), json!([line("m", "", "UNAVAILABLE"), line("n", "1", "READY")]));
    // SIGHUP does not load an unloaded model again; a request to load it does, as a new version.
    server.signal(libc::SIGHUP);
    std::thread::sleep(Duration::from_millis(200));
    server.get("/v2/models/m").refused(404);
    assert_eq!(post("/v2/repository/models/m/load", &json!({})).status, 200);
    assert_eq!(model_version(&server), "2");
    for name in ["link", "..%2Fsecret", "%2Fetc%2Fpasswd", "..", "m%00", "missing"] {
        let status = post(&format!("/v2/repository/models/{name}/load"), &json!({})).status;
        assert!(matches!(status, 400 | 404), "{name}: {status}");
    }
    let config = json!({ "parameters": { "config": "{}" } });
    assert!(post("/v2/repository/models/m/load", &config).refused(400).contains("`config` is not supported"));
    let page = [("Origin", "http://example.com")];
    assert!(server.post("/v2/repository/models/m/unload", &page, b"").refused(403).contains("web page"));
    std::fs::write(dir.path().join("bad.sdx"), "nothing").unwrap();
    assert!(post("/v2/repository/models/bad/load", &json!({})).refused(400).contains("E0401"));

    let closed = Server::start(dir.path().join("m.sdx").as_path(), &[]);
    for path in ["/v2/repository/index", "/v2/repository/models/m/load", "/v2/repository/models/m/unload"] {
        assert!(closed.post_json(path, &json!({})).refused(403).contains("--allow-load"));
    }
    assert_eq!(closed.post_json(INFER, &rows_request(1, 0)).status, 200);
}

#[test]
fn what_was_accepted_is_answered_by_the_model_that_was_unloaded() {
    let dir = tempfile::tempdir().unwrap();
    artifacts::slow(1000).write(&dir.path().join("m.sdx"));
    let server = Server::start(dir.path(), &["--allow-load", "--threads", "1"]);
    let mut streams = [0, 1, 2].map(|_| {
        let mut stream = server.connect();
        stream.write_all(&request(INFER, &[], br#"{"inputs": []}"#)).unwrap();
        stream
    });
    let until = Instant::now() + Duration::from_secs(30);
    while server.get("/v2/models/m/stats").json()["model_stats"][0]["waiting"] != 2 {
        assert!(Instant::now() < until);
    }
    assert_eq!(server.post_json("/v2/repository/models/m/unload", &json!({})).status, 200);
    for stream in &mut streams {
        assert_eq!(read_response(stream).status, 200);
    }
}
