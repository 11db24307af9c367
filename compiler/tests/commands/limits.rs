//! compile with a limit on time or memory, and when a signal ends it

use super::*;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// y = exp(sin(… x)), a chain of `n` operators that takes long to compile.
fn chain(n: usize) -> Folder {
    let name = |i: usize| if i == n { "y".to_string() } else { format!("t{i}") };
    let step = |i: usize| {
        let (op, from) = (if i.is_multiple_of(2) { "Sin" } else { "Exp" }, if i == 0 { "x".into() } else { name(i) });
        node(op, &from, &name(i + 1))
    };
    Folder::with(graph("x", "y", (0..n).map(step).collect()))
}

fn files(folder: &Folder) -> Vec<String> {
    let all = std::fs::read_dir(&folder.dir).unwrap();
    all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_compilation_that_runs_out_of_time_or_memory_is_refused() {
    let f = chain(3000);
    let (code, message) = f.bad(&["compile", "m.onnx", "--time-limit", "200ms"]);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("error[E0502]: the compilation took more than 200ms; it was in stage `"), "{message}");
    assert!(message.contains("allow more with `--time-limit`"), "{message}");
    let (code, message) = f.bad(&["compile", "m.onnx", "--memory-limit", "2M"]);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("error[E0502]: the compilation needs more than 2097152 bytes"), "{message}");
    assert_eq!(files(&f), ["m.onnx"]);
    let (code, message) = f.bad(&["compile", "m.onnx", "--time-limit", "soon"]);
    assert_eq!(code, 2);
    assert!(message.starts_with("error[E0001]: invalid value 'soon' for '--time-limit <TIME>'"), "{message}");
}

#[test]
fn what_was_left_out_is_said() {
    let f = Folder::with(layer());
    let given_up = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sardonyx"));
        // Starts the program as a supervisor starts its child, which reports its stages on standard error (2).
        command.args(args).current_dir(&f.dir).env("SARDONYX_COMPILE_STAGES", "2");
        command.env("SARDONYX_COMPILE_GIVEN_UP", "fuse=time,self-test=memory,unknown=time").output().unwrap()
    };
    let done = given_up(&["compile", "m.onnx", "--json"]);
    assert!(text(&done.stderr).contains("\nfuse\n"), "{}", text(&done.stderr));
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(json["given_up"][0], serde_json::json!({"stage": "fuse", "out_of": "time"}));
    assert_eq!(json["given_up"][1], serde_json::json!({"stage": "self-test", "out_of": "memory"}));
    assert_eq!((json["selftest"].as_bool(), json["given_up"].as_array().unwrap().len()), (Some(false), 2));
    let said = text(&given_up(&["compile", "m.onnx"]).stdout);
    assert!(said.contains("\nwithout `fuse`, which ran out of time\n"), "{said}");
    assert!(f.json(&["compile", "m.onnx", "--json"])["given_up"].is_null());
}

#[test]
fn a_signal_ends_the_work_too_and_leaves_nothing() {
    let f = chain(3000);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sardonyx"));
    command.args(["compile", "m.onnx"]).current_dir(&f.dir).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = command.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    let sent = Command::new("kill").args(["-TERM", &running.id().to_string()]).status().unwrap();
    // Standard output closes only when the worker process has ended too.
    let done = running.wait_with_output().unwrap();
    assert!(sent.success());
    assert_eq!((done.status.signal(), text(&done.stderr)), (Some(15), String::new()));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(files(&f), ["m.onnx"]);
}
