//! The bounded queue: refusals, deadlines, clients that disconnect, batches, and shutdown

#[path = "../../tests/common/mod.rs"]
mod artifacts;
mod common;
#[path = "common/models.rs"]
mod models;

use artifacts::{Builder, slow, two_layers};
use common::{Server, read_response, request, rows_data, rows_request};
use sardonyx_base::plan::messages::SymbolKind;
use sardonyx_base::{DType, Tensor};
use sardonyx_runtime::SessionOptions;
use serde_json::json;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Starts a server whose calls run on one thread.
fn serve(model: &Builder, args: &[&str]) -> (TempDir, Server) {
    models::serve(model, &[args, &["--threads", "1"]].concat())
}

const INFER: &str = "/v2/models/m/infer";

/// Sends a request without waiting for its answer.
fn begin(server: &Server, body: &serde_json::Value) -> TcpStream {
    let mut stream = server.connect();
    stream.write_all(&request(INFER, &[], body.to_string().as_bytes())).unwrap();
    stream
}

/// Waits until the count `what` in the model's statistics is `wanted`.
fn wait_for(server: &Server, what: &str, wanted: u64) {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let stats = server.get("/v2/models/m/stats").json()["model_stats"][0].clone();
        let found = stats[what].as_u64().unwrap();
        if found == wanted {
            return;
        }
        assert!(Instant::now() < until, "{stats}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A request for a model of `slow`, which has no inputs.
fn slow_request() -> serde_json::Value {
    json!({ "inputs": [] })
}

#[test]
fn a_full_queue_refuses_at_once_and_says_when_to_come_again() {
    let (_dir, server) = serve(&slow(2000), &["--waiting-max", "2"]);
    let running = begin(&server, &slow_request());
    wait_for(&server, "running", 1);
    let waiting = [0, 1].map(|_| begin(&server, &slow_request()));
    wait_for(&server, "waiting", 2);
    let began = Instant::now();
    let refused = server.post_json(INFER, &slow_request());
    assert!(began.elapsed() < Duration::from_millis(600), "{:?}", began.elapsed());
    let message = refused.refused(429);
    assert!(message.contains("2 requests") && message.contains("--waiting-max"), "{message}");
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    for mut stream in [running].into_iter().chain(waiting) {
        assert_eq!(read_response(&mut stream).status, 200);
    }
    assert_eq!(server.post_json(INFER, &slow_request()).status, 200);
}

#[test]
fn what_has_expired_is_answered_in_time_and_not_computed() {
    let (_dir, server) = serve(&slow(6000), &[]);
    let mut running = begin(&server, &slow_request());
    wait_for(&server, "running", 1);
    let began = Instant::now();
    let mut late = slow_request();
    late["parameters"] = json!({ "timeout": 50_000 });
    let streams: Vec<TcpStream> = (0..20).map(|_| begin(&server, &late)).collect();
    for mut stream in streams {
        assert!(read_response(&mut stream).refused(504).contains("deadline"));
    }
    assert!(began.elapsed() < Duration::from_millis(1000), "{:?}", began.elapsed());
    assert_eq!(read_response(&mut running).status, 200);
    wait_for(&server, "waiting", 0);
    wait_for(&server, "execution_count", 1);
    wait_for(&server, "expired", 20);
    // A running call that misses its deadline is stopped.
    let began = Instant::now();
    server.post_json(INFER, &late).refused(504);
    assert!(began.elapsed() < Duration::from_millis(1000), "{:?}", began.elapsed());
}

#[test]
fn the_time_of_the_server_bounds_that_of_a_request() {
    let (_dir, server) = serve(&slow(2000), &["--timeout", "0.1"]);
    let mut request = slow_request();
    request["parameters"] = json!({ "timeout": 60_000_000u64 });
    let began = Instant::now();
    server.post_json(INFER, &request).refused(504);
    assert!(began.elapsed() < Duration::from_millis(1500), "{:?}", began.elapsed());
}

#[test]
fn clients_that_vanish_are_not_computed() {
    let (_dir, server) = serve(&slow(1500), &[]);
    let mut running = begin(&server, &slow_request());
    wait_for(&server, "running", 1);
    let streams: Vec<TcpStream> = (0..10).map(|_| begin(&server, &slow_request())).collect();
    wait_for(&server, "waiting", 10);
    drop(streams);
    wait_for(&server, "waiting", 0);
    assert_eq!(read_response(&mut running).status, 200);
    wait_for(&server, "left", 10);
    wait_for(&server, "execution_count", 1);
    // If the client disconnects during its call, the call ends long before it is done.
    let (_dir, server) = serve(&slow(80_000), &[]);
    let running = begin(&server, &slow_request());
    wait_for(&server, "running", 1);
    drop(running);
    let began = Instant::now();
    wait_for(&server, "execution_count", 1);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    wait_for(&server, "running", 0);
}

#[test]
fn a_signal_ends_the_server_when_what_was_accepted_is_answered() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let (_dir, mut server) = serve(&slow(900), &[]);
        // A connection without a request is closed.
        let _idle = server.connect();
        let streams: Vec<TcpStream> = (0..3).map(|_| begin(&server, &slow_request())).collect();
        wait_for(&server, "waiting", 2);
        server.signal(signal);
        for mut stream in streams {
            assert_eq!(read_response(&mut stream).status, 200);
        }
        assert_eq!(server.wait(), 0);
        assert!(TcpStream::connect(&server.address).is_err());
    }
}

#[test]
fn an_end_that_takes_too_long_is_told_by_the_exit_code() {
    let (_dir, mut server) = serve(&slow(20_000), &["--drain", "0.2"]);
    let _running = begin(&server, &slow_request());
    wait_for(&server, "running", 1);
    server.signal(libc::SIGTERM);
    assert_eq!(server.wait(), 1);
}

/// y = 2x + 1 after a launch of about `ms` milliseconds, so that requests meet in the queue.
fn slow_rows(ms: usize) -> Builder {
    let mut b = Builder::new();
    b.symbol("batch", SymbolKind::Input, 1, Some(16));
    let x = b.input("x", DType::F32, &["batch", "8"], "batch*32");
    let y = b.output("y", DType::F32, &["batch", "8"], "batch*32");
    let (n, scratch) = (ms.to_string(), b.arena(&ms.to_string(), "0"));
    b.entry.arena_bytes = n.clone();
    let wait = b.kernel("slow", &[true], 0, "0");
    b.launch(wait, &[scratch], &[], &n);
    let affine = b.kernel("affine", &[false, true], 0, "0");
    b.launch(affine, &[x, y], &[], "batch*8");
    b
}

#[test]
fn requests_that_wait_are_computed_together_with_the_bits_of_each_alone() {
    let (_dir, server) = serve(&slow_rows(400), &[]);
    let mut first = begin(&server, &rows_request(1, 0));
    wait_for(&server, "running", 1);
    let sizes: Vec<usize> = (0..12).map(|i| 1 + i % 3).collect();
    let mut streams: Vec<TcpStream> =
        sizes.iter().enumerate().map(|(i, rows)| begin(&server, &rows_request(*rows, 100 * i))).collect();
    let model = slow_rows(1).load().unwrap();
    let session = model.session(&SessionOptions::default()).unwrap();
    for (i, (stream, rows)) in streams.iter_mut().zip(&sizes).enumerate() {
        let x = Tensor::from_vec(vec![*rows, 8], rows_data(*rows, 100 * i));
        let expected = session.run(&[("x", x)]).unwrap()["y"].to_vec::<f32>().unwrap();
        assert_eq!(read_response(stream).numbers(), expected, "request {i}");
    }
    assert_eq!(read_response(&mut first).status, 200);
    let stats = server.get("/v2/models/m/stats").json()["model_stats"][0].clone();
    assert_eq!(stats["inference_count"], 25);
    // There are 12 requests besides the first call. A call may have twice as many rows as earlier ones, unless those
    // took long.
    assert!(stats["execution_count"].as_u64().unwrap() <= 8, "{stats}");
}

/// y[b] = table[index[b]], with a table of four rows.
fn table() -> Builder {
    let mut b = Builder::new();
    b.symbol("batch", SymbolKind::Input, 1, Some(64));
    let index = b.input("index", DType::I64, &["batch"], "batch*8");
    let y = b.output("y", DType::F32, &["batch"], "batch*4");
    let values = b.constant(&[10.0, 11.0, 12.0, 13.0]);
    let scratch = b.arena("400", "0");
    b.entry.arena_bytes = "400".into();
    let wait = b.kernel("slow", &[true], 0, "0");
    b.launch(wait, &[scratch], &[], "400");
    let gather = b.kernel("gather", &[false, false, true], 1, "0");
    b.launch(gather, &[values, index, y], &["4"], "batch");
    b
}

#[test]
fn a_wrong_request_of_a_batch_fails_alone() {
    let (_dir, server) = serve(&table(), &[]);
    let ask = |index: i64| {
        let input = json!({ "name": "index", "shape": [1], "datatype": "INT64", "data": [index] });
        begin(&server, &json!({ "inputs": [input] }))
    };
    let first = ask(0);
    wait_for(&server, "running", 1);
    let mut streams: Vec<TcpStream> = [1, 99, 2, 3].map(ask).into();
    let answers: Vec<_> = [first].iter_mut().chain(&mut streams).map(read_response).collect();
    for (at, value) in [(0, 10.0), (1, 11.0), (3, 12.0), (4, 13.0)] {
        assert_eq!(answers[at].numbers(), [value]);
    }
    assert!(answers[2].refused(400).contains("E0303"));
}

/// y[b] = (2x[b] + 1) · (2x[0] + 1): every row depends on the first one, which no shape shows.
#[test]
fn a_model_whose_rows_depend_on_each_other_is_not_stacked() {
    let mut b = Builder::new();
    b.symbol("batch", SymbolKind::Input, 1, Some(64));
    let x = b.input("x", DType::F32, &["batch", "8"], "batch*32");
    let y = b.output("y", DType::F32, &["batch"], "batch*4");
    // `append` stores 2x + 1 for all rows, and `rowdot` multiplies each of them by the first row.
    let weights = b.arena("batch*32 + 64", "0");
    b.entry.arena_bytes = "batch*32 + 64".into();
    let append = b.kernel("append", &[false, true], 4, "0");
    b.launch(append, &[x, weights], &["batch", "8", "0", "batch"], "batch");
    let rowdot = b.kernel("rowdot", &[false, false, true], 1, "4*p0");
    b.launch(rowdot, &[weights, weights, y], &["8"], "batch");
    let (_dir, server) = serve(&b, &[]);
    let stats = server.get("/v2/models/m/stats").json()["model_stats"][0].clone();
    assert_eq!(stats["stacked"], json!(false), "{stats}");
    let (_dir, server) = serve(&two_layers(), &[]);
    assert_eq!(server.get("/v2/models/m/stats").json()["model_stats"][0]["stacked"], json!(true));
}

#[test]
fn under_overload_every_request_is_answered_once_and_refusals_are_quick() {
    let (_dir, server) = serve(&slow(5), &["--waiting-max", "4"]);
    let until = Instant::now() + Duration::from_millis(1500);
    let mut answers: Vec<(u16, Duration)> = vec![];
    std::thread::scope(|scope| {
        let clients = [(); 24].map(|()| {
            scope.spawn(|| {
                let mut own = vec![];
                while Instant::now() < until {
                    let began = Instant::now();
                    own.push((server.post_json(INFER, &slow_request()).status, began.elapsed()));
                }
                own
            })
        });
        clients.into_iter().for_each(|client| answers.extend(client.join().unwrap()));
    });
    let of = |status| answers.iter().filter(move |(s, _)| *s == status).map(|(_, took)| *took);
    let (computed, refused) = (of(200).count(), of(429).count());
    assert_eq!(computed + refused, answers.len());
    assert!(computed > 20 && refused > computed, "{computed} computed, {refused} refused");
    wait_for(&server, "execution_count", computed as u64);
    wait_for(&server, "refused", refused as u64);
    let mut times: Vec<Duration> = of(429).collect();
    times.sort();
    // Within 20 ms on an otherwise idle machine.
    assert!(times[times.len() / 2] < Duration::from_millis(100), "{:?}", times[times.len() / 2]);
}
