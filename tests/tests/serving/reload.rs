//! a hundred new files under load, one of them damaged  =>  no request fails, and every answer comes from one version

use crate::common::Server;
use crate::load::Latencies;
use crate::{embedder, floats, serve};
use sardonyx::embedder::Pooling;
use sardonyx_passes::options::Precision;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const INFER: &str = "/v2/models/minilm/infer";
const HANGUP: i32 = 1;

fn request() -> Value {
    let input =
        |name: &str, data: Vec<i64>| json!({ "name": name, "shape": [1, 16], "datatype": "INT64", "data": data });
    let inputs = [
        input("input_ids", (1000..1016).collect()),
        input("attention_mask", vec![1; 16]),
        input("token_type_ids", vec![0; 16]),
    ];
    json!({ "inputs": inputs })
}

/// Replaces the served file atomically, by a rename.
fn replace(file: &Path, served: &Path) {
    let beside = served.with_extension("new");
    std::fs::hard_link(file, &beside).unwrap();
    std::fs::rename(beside, served).unwrap();
}

fn version(server: &Server) -> u64 {
    server.get("/v2/models/minilm").json()["versions"][0].as_str().unwrap().parse().unwrap()
}

fn failed_loads(server: &Server) -> bool {
    server
        .get("/metrics")
        .text()
        .lines()
        .any(|line| line.starts_with("sardonyx_loads_total") && line.contains("failed"))
}

fn wait(what: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !what() {
        assert!(Instant::now() < until, "it does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the number of artifacts that the server has mapped.
fn mapped(server: &Server) -> usize {
    let maps = server.maps();
    let files = maps.lines().filter(|line| line.contains(".sdx")).filter_map(|line| line.split_whitespace().nth(4));
    files.collect::<std::collections::BTreeSet<_>>().len()
}

#[test]
#[ignore = "the suite `serving`"]
fn a_hundred_files_are_taken_without_a_request_that_fails() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, pooling| embedder(folder.path(), name, pooling, Precision::F32);
    let files = [file("mean.sdx", Pooling::Mean), file("cls.sdx", Pooling::Cls)];
    let damaged = folder.path().join("damaged.sdx");
    let mut bytes = std::fs::read(&files[0]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&damaged, &bytes).unwrap();
    let place = folder.path().join("served");
    std::fs::create_dir(&place).unwrap();
    let served = place.join("minilm.sdx");
    replace(&files[0], &served);
    let server = serve(&served, &[]);
    // Odd versions are the first file, even versions the second.
    let expected = Mutex::new([None, None]);
    let is_over = AtomicBool::new(false);
    let ask = |until: &dyn Fn() -> bool| {
        let mut latencies = vec![];
        while !until() {
            let began = Instant::now();
            let answer = server.post_json(INFER, &request());
            assert_eq!(answer.status, 200, "{}", answer.text());
            latencies.push(began.elapsed().as_secs_f64() * 1e3);
            let answer = answer.json();
            let version: usize = answer["model_version"].as_str().unwrap().parse().unwrap();
            let numbers = floats(&answer["outputs"][0]["data"]);
            let mut expected = expected.lock().unwrap();
            assert_eq!(*expected[version % 2].get_or_insert_with(|| numbers.clone()), numbers, "version {version}");
        }
        latencies
    };
    let under = |until: &(dyn Fn() -> bool + Sync)| {
        let all = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..8).map(|_| scope.spawn(|| ask(until))).collect();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        Latencies::new(all)
    };
    let until = Instant::now() + Duration::from_secs(10);
    let quiet = under(&|| Instant::now() > until);
    let busy = std::thread::scope(|scope| {
        let under = scope.spawn(|| under(&|| is_over.load(Ordering::Relaxed)));
        for i in 0..100 {
            let before = version(&server);
            if i == 50 {
                replace(&damaged, &served);
                server.signal(HANGUP);
                wait(|| failed_loads(&server));
                assert_eq!(version(&server), before);
                continue;
            }
            replace(&files[(before % 2) as usize], &served);
            server.signal(HANGUP);
            wait(|| version(&server) == before + 1);
        }
        is_over.store(true, Ordering::Relaxed);
        under.join().unwrap()
    });
    wait(|| mapped(&server) == 1);
    let [first, second] = &*expected.lock().unwrap();
    assert!(first.is_some() && second.is_some() && first != second);
    let ratio = busy.percentile(0.99) / quiet.percentile(0.99);
    println!(
        "100 files, {} requests meanwhile; 99 of 100 within {:.1} ms, {ratio:.2} of the {:.1} ms without",
        busy.count(),
        busy.percentile(0.99),
        quiet.percentile(0.99)
    );
}
