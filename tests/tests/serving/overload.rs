//! more work than the server can do  =>  accepted requests are computed at nearly its full rate, others refused at once

use crate::{floats, load_of_texts, minilm, serve, statistics, texts};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const WAITING_POSITIONS: usize = 8192;

#[test]
#[ignore = "the suite `serving`"]
fn at_three_times_the_capacity_all_that_is_accepted_is_computed() {
    let folder = tempfile::tempdir().unwrap();
    let path = minilm(folder.path());
    let server = serve(&path, &["--waiting-positions-max", &WAITING_POSITIONS.to_string()]);
    let load = load_of_texts(&server);
    load.closed(48, 5.0);
    let capacity = load.closed(48, 20.0).rate();
    let before = statistics(&server);
    let over = load.open(3.0 * capacity, 60.0, 1);
    let of = |name: &str| statistics(&server)[name].as_u64().unwrap() - before[name].as_u64().unwrap();
    let mean = texts().iter().map(Vec::len).sum::<usize>() as f64 / texts().len() as f64;
    // Milliseconds that the waiting positions take at the measured capacity, plus 50 ms for the batch that runs before
    // them.
    let bound = WAITING_POSITIONS as f64 / (capacity * mean) * 1e3 + 50.0;
    let refused = over.refused();
    println!(
        "capacity {capacity:.1}/s; offered {:.1}/s: {:.3} of it is answered; {} refused, 99 of 100 within {:.1} ms; \
         99 of 100 accepted within {:.0} ms of {bound:.0}",
        3.0 * capacity,
        over.rate() / capacity,
        refused.count(),
        refused.percentile(0.99),
        over.accepted().percentile(0.99)
    );
    assert_eq!(over.failed(), 0);
    assert_eq!((of("inference_count"), of("refused")), (over.accepted().count() as u64, refused.count() as u64));
    assert!(over.rate() > 0.8 * capacity && refused.percentile(0.99) < 200.0);
    assert!(over.accepted().percentile(0.99) < 2.0 * bound);
}

/// Requests that have not expired are answered while the server drops the expired ones.
#[test]
#[ignore = "the suite `serving`"]
fn of_a_thousand_requests_that_have_expired_none_is_computed() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(&minilm(folder.path()), &[]);
    let request = |timeout: u64| {
        let input = |name: &str, value: i64| json!({ "name": name, "shape": [1, 16], "datatype": "INT64", "data": vec![value; 16] });
        let inputs = [input("input_ids", 1000), input("attention_mask", 1), input("token_type_ids", 0)];
        json!({ "inputs": inputs, "parameters": { "timeout": timeout } })
    };
    let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let answer = server.post_json("/v2/models/minilm/infer", &request(60_000_000));
                    assert!(!floats(&answer.json()["outputs"][0]["data"]).is_empty());
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let late: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..125 {
                        assert_eq!(server.post_json("/v2/models/minilm/infer", &request(1)).status, 504);
                    }
                })
            })
            .collect();
        late.into_iter().for_each(|client| client.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
    });
    let stats = statistics(&server);
    assert_eq!(stats["expired"], 1000, "{stats}");
    assert_eq!(stats["inference_count"], answered.into_inner(), "{stats}");
}
