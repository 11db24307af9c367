//! Serves a model that two ranks run: the server is the first rank; the second rank is a thread, a process, or another
//! server that a launcher starts

use crate::bits::{alone, ids};
use crate::common::Server;
use crate::{floats, minilm_on, serve, server};
use sardonyx_runtime::{Model, Session, SessionOptions};
use sardonyx_tests::trust::trusted;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const REQUESTS: usize = 48;

fn session(path: &Path) -> Session {
    Model::load(path, &trusted()).unwrap().session(&SessionOptions::default()).unwrap()
}

/// Six clients send requests at once; each answer must have the bits of the result that the artifact gives without a
/// server.
fn answers_are_right(server: &Server, path: &Path) {
    let session = session(path);
    let wanted: Vec<Vec<f32>> = (0..REQUESTS).map(|request| alone(&session, &ids(request))).collect();
    std::thread::scope(|scope| {
        for client in 0..6 {
            let wanted = &wanted;
            scope.spawn(move || {
                for request in (client..REQUESTS).step_by(6) {
                    let answer =
                        server.post_json("/v1/embeddings", &json!({ "model": "minilm", "input": ids(request) }));
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    assert_eq!(floats(&answer.json()["data"][0]["embedding"]), wanted[request], "request {request}");
                }
            });
        }
    });
}

#[test]
#[ignore = "cargo xtask test --suite serving"]
fn ranks_are_served_as_threads_processes_and_under_a_launcher() {
    let folder = tempfile::tempdir().unwrap();
    let path = minilm_on(folder.path(), 2);
    for transport in ["threads", "processes"] {
        let mut server = serve(&path, &["--transport", transport]);
        answers_are_right(&server, &path);
        server.signal(15);
        assert_eq!(server.wait(), 0, "{transport}");
    }
    let launched = launcher(folder.path());
    let mut server = Server::start_program(&launched, &path, &[]);
    answers_are_right(&server, &path);
    server.signal(15);
    server.wait();
}

/// Writes a program that starts two servers as ranks, and returns its path.
fn launcher(folder: &Path) -> PathBuf {
    let path = folder.join("launch");
    let program = server().display();
    let text = format!(
        "#!/bin/sh\nexport OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n\
         exec mpirun.openmpi --oversubscribe -n 2 '{program}' \"$@\"\n"
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Clients do not wait forever for a rank that has died, and the model is loaded again.
#[test]
#[ignore = "cargo xtask test --suite serving"]
fn a_rank_that_ends_is_an_error_to_clients_and_another_one_begins() {
    let folder = tempfile::tempdir().unwrap();
    let path = minilm_on(folder.path(), 2);
    let mut server = serve(&path, &["--transport", "processes", "--timeout", "20"]);
    let ask = || server.post_json("/v1/embeddings", &json!({ "model": "minilm", "input": ids(5) }));
    assert_eq!(ask().status, 200);
    let ranks = Command::new("pgrep").args(["-P", &server.id().to_string()]).output().unwrap();
    let ranks = String::from_utf8(ranks.stdout).unwrap();
    assert!(Command::new("kill").arg("-9").arg(ranks.trim()).status().unwrap().success(), "{ranks}");
    let before = Instant::now();
    let answer = ask();
    assert!(answer.status >= 500, "{}: {}", answer.status, answer.text());
    assert!(before.elapsed() < Duration::from_secs(15), "{:?}", before.elapsed());
    println!("after {:?}: {} {}", before.elapsed(), answer.status, answer.text());
    let until = Instant::now() + Duration::from_secs(20);
    while ask().status != 200 {
        assert!(Instant::now() < until, "the model was not loaded again");
        std::thread::sleep(Duration::from_millis(100));
    }
    answers_are_right(&server, &path);
    server.signal(15);
    assert_eq!(server.wait(), 0);
}
