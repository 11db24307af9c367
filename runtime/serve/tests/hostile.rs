//! peers that lie, stall, disconnect or ask for too much  =>  4xx or a closed connection; the server goes on and its
//! memory does not grow

#[path = "../../tests/common/mod.rs"]
mod artifacts;
mod common;
#[path = "common/models.rs"]
mod models;

use artifacts::two_layers;
use common::{Server, read_response, request, rows_request};
use serde_json::json;
use std::io::{Read, Write};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn serve(args: &[&str]) -> (TempDir, Server) {
    models::serve(&two_layers(), args)
}

const INFER: &str = "/v2/models/m/infer";

fn works(server: &mut Server) {
    assert!(server.is_alive());
    assert_eq!(server.post_json(INFER, &rows_request(3, 1)).status, 200);
}

#[test]
fn bodies_over_the_limit_are_refused_before_they_are_read() {
    let (_dir, mut server) = serve(&["--body-max", "1"]);
    let head = format!("POST {INFER} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
    // The client announces a body and sends none of it.
    let told = server.send(format!("{head}Content-Length: 1099511627776\r\n\r\n").as_bytes());
    assert!(told.refused(413).contains("more than 1048576 bytes"));
    let endless =
        format!("{head}Transfer-Encoding: chunked\r\n\r\n") + &format!("10000\r\n{}\r\n", "x".repeat(65536)).repeat(40);
    assert_eq!(server.send(endless.as_bytes()).status, 413);
    for wrong in ["Content-Length: -1", "Content-Length: 5\r\nContent-Length: 6", "Transfer-Encoding: nonsense"] {
        assert_eq!(server.send(format!("{head}{wrong}\r\n\r\n").as_bytes()).status, 400, "{wrong}");
    }
    works(&mut server);
}

#[test]
fn sizes_in_a_request_allocate_nothing() {
    let (_dir, mut server) = serve(&[]);
    let before = server.resident_bytes();
    for shape in
        ["[1000000000000,8]", "[18446744073709551615,8]", "[1000,8]", "[0,8,0]", "[[1],8]", "[1.5,8]", "[-1,8]"]
    {
        let body = format!(r#"{{"inputs":[{{"name":"x","shape":{shape},"datatype":"FP32","data":[1]}}]}}"#);
        server.post(INFER, &[], body.as_bytes()).refused(400);
    }
    for size in ["18446744073709551615", "1000000000000", "-1", "\"1\""] {
        let input =
            format!(r#"{{"name":"x","shape":[1,8],"datatype":"FP32","parameters":{{"binary_data_size":{size}}}}}"#);
        let body = format!(r#"{{"inputs":[{input}]}}"#);
        server
            .post(INFER, &[("Inference-Header-Content-Length", &body.len().to_string())], body.as_bytes())
            .refused(400);
    }
    for length in ["18446744073709551615", "99999999999999999999999", "1e3", " "] {
        server.post(INFER, &[("Inference-Header-Content-Length", length)], b"{}").refused(400);
    }
    // Elements beyond those that the shape has are not collected.
    let many = format!(
        r#"{{"inputs":[{{"name":"x","shape":[1,8],"datatype":"FP32","data":[{}1]}}]}}"#,
        "1,".repeat(10_000_000)
    );
    assert!(server.post(INFER, &[], many.as_bytes()).refused(400).contains("more than 8 elements"));
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 100 << 20, "{grown} bytes more");
    works(&mut server);
}

#[test]
fn deep_and_broken_json_is_refused() {
    let (_dir, mut server) = serve(&[]);
    let data = |data: String| format!(r#"{{"inputs":[{{"name":"x","shape":[1,8],"datatype":"FP32","data":{data}}}]}}"#);
    let n = 1_000_000;
    let bodies = [
        "[".repeat(n),
        "{\"a\":".repeat(n),
        data("[".repeat(n)),
        data(format!("{}{}", "[".repeat(n), "]".repeat(n))),
        format!(r#"{{"inputs":[],"parameters":{{"x":{}{}}}}}"#, "[".repeat(n), "]".repeat(n)),
        String::new(),
        "null".into(),
        "\u{0}".into(),
        data("[1e999,1,1,1,1,1,1,1]".into()),
        data("[NaN,1,1,1,1,1,1,1]".into()),
        r#"{"inputs":[{"name":"x"}]}"#.into(),
        r#"{"inputs":"x"}"#.into(),
    ];
    for body in &bodies {
        let answer = server.post(INFER, &[], body.as_bytes());
        assert_eq!(answer.status, 400, "{}: {}", &body[..body.len().min(50)], answer.text());
        for path in ["/v1/embeddings", "/embed", "/tokenize"] {
            assert!((400..500).contains(&server.post(path, &[], body.as_bytes()).status), "{path}");
        }
    }
    server.post(INFER, &[], &[0xff, 0xfe, b'{']).refused(400);
    works(&mut server);
}

/// Knuth's linear congruential generator, so that a failure can be reproduced.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as usize
}

#[test]
fn peers_that_are_no_clients_are_let_go() {
    let (_dir, mut server) = serve(&[]);
    let mut noise = vec![];
    let mut state = 7;
    for _ in 0..200 {
        noise.clear();
        noise.extend((0..1 + next(&mut state) % 2000).map(|_| next(&mut state) as u8));
        let mut stream = server.connect();
        let _ = stream.write_all(&noise);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut vec![]);
    }
    // HTTP/2 connections that violate the protocol after the preface.
    for frame in [&[0; 9][..], &[0xff; 64], &[0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0, 0]] {
        let mut stream = server.connect();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        let _ = stream.write_all(frame);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut vec![]);
    }
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20));
    let mut stream = server.connect();
    let _ = stream.write_all(long.as_bytes());
    let mut answer = vec![];
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
    works(&mut server);
}

#[test]
fn clients_that_vanish_or_stall_hold_nothing_up() {
    let (_dir, mut server) = serve(&["--connections-max", "64", "--timeout", "1"]);
    let body = rows_request(1000, 0).to_string();
    let whole = request(INFER, &[], body.as_bytes());
    let descriptors = server.descriptors();
    for i in 0..200 {
        let mut stream = server.connect();
        let _ = stream.write_all(&whole[..whole.len() * i / 200]);
        // Every second client sends everything and never reads.
        if i % 2 == 0 {
            let _ = stream.write_all(&whole[whole.len() * i / 200..]);
        }
    }
    works(&mut server);
    // The time limit of a request also ends the wait for its body.
    let mut stream = server.connect();
    stream.write_all(&whole[..whole.len() / 2]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(read_response(&mut stream).refused(408).contains("did not arrive in time"));
    works(&mut server);
    // The server closes the last connections shortly after their clients do.
    let until = Instant::now() + Duration::from_secs(20);
    while server.descriptors() > descriptors {
        assert!(Instant::now() < until, "{} descriptors instead of {descriptors}", server.descriptors());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A large answer is written in several parts, while the client closes the connection.
#[test]
fn a_client_that_vanishes_during_its_answer_ends_nobody_else() {
    let mut b = artifacts::Builder::new();
    b.symbol("batch", sardonyx_base::plan::messages::SymbolKind::Input, 1, None);
    let x = b.input("x", sardonyx_base::DType::F32, &["batch", "8"], "batch*32");
    let y = b.output("y", sardonyx_base::DType::F32, &["batch", "8"], "batch*32");
    let affine = b.kernel("affine", &[false, true], 0, "0");
    b.launch(affine, &[x, y], &[], "batch*8");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sdx");
    b.write(&path);
    let mut server = Server::start(&path, &[]);
    let n = 100_000;
    let input =
        json!({ "name": "x", "shape": [n, 8], "datatype": "FP32", "parameters": { "binary_data_size": n * 32 } });
    let head = json!({ "inputs": [input], "parameters": { "binary_data_output": true } }).to_string();
    let body = [head.as_bytes(), &vec![1; n * 32]].concat();
    let whole = request(INFER, &[("Inference-Header-Content-Length", &head.len().to_string())], &body);
    for _ in 0..20 {
        let mut stream = server.connect();
        stream.write_all(&whole).unwrap();
        // The answer has begun, and the client reads no more of it.
        stream.read_exact(&mut [0; 100]).unwrap();
    }
    // Writing to a closed connection can raise this signal, depending on the system.
    server.signal(libc::SIGPIPE);
    works(&mut server);
}

#[test]
fn bodies_that_wait_together_are_bounded() {
    let (_dir, mut server) = serve(&["--body-max", "2", "--bodies-max", "2", "--timeout", "5"]);
    let large = request(INFER, &[], &vec![b' '; 2_000_000]);
    // One client sends all but the end of a body, which keeps the memory for bodies occupied.
    let mut held = server.connect();
    held.write_all(&large[..large.len() - 10]).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let refused = server.send(&large);
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").is_some());
    drop(held);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(server.send(&large).status, 400);
    works(&mut server);
}

#[test]
fn a_call_that_needs_too_much_memory_is_refused() {
    let mut b = artifacts::Builder::new();
    b.symbol("batch", sardonyx_base::plan::messages::SymbolKind::Input, 1, None);
    let x = b.input("x", sardonyx_base::DType::U8, &["batch"], "batch");
    let y = b.output("y", sardonyx_base::DType::U8, &["batch"], "batch");
    let big = b.arena("batch*1000000", "0");
    b.entry.arena_bytes = "batch*1000000".into();
    let variant = b.kernel("variant", &[true], 0, "0");
    b.launch(variant, &[big], &[], "1");
    let choose = b.kernel("choose", &[false, true], 0, "0");
    b.launch(choose, &[x, y], &[], "batch");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sdx");
    b.write(&path);
    let server = Server::start(&path, &["--call-memory-max", "100"]);
    let ask = |n: usize| {
        let input = json!({ "name": "x", "shape": [n], "datatype": "UINT8", "data": vec![1; n] });
        server.post_json(INFER, &json!({ "inputs": [input] }))
    };
    assert_eq!(ask(50).status, 200);
    let refused = ask(1_000_000).refused(413);
    assert!(refused.contains("E0304"), "{refused}");
    assert_eq!(ask(50).status, 200);
}
