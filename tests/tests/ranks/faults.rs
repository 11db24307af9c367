//! a rank dies or is stopped  =>  an error that names it within seconds; no process is left, and the next run works

use super::{Start, artifact, started};
use sardonyx_tests::programs::Outcome;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// The process that was started, followed by its children: the ranks.
fn ranks_of(first: &Child) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", first.id())).unwrap_or_default();
    let all: Vec<i32> = children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    [vec![first.id() as i32], all].concat()
}

fn is_there(pid: i32) -> bool {
    // A zombie has ended, but its parent has not waited for it.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| state != "Z")
}

/// Runs the artifact on `ranks` processes, waits for `after` once all run, and sends `signal` to rank `victim`.
/// Returns the outcome, the time from the signal to the end, and the processes.
fn faulty(path: &Path, ranks: usize, victim: usize, signal: i32, after: Duration) -> (Outcome, Duration, Vec<i32>) {
    let sizes = ["--input", "input_ids=range:0..99", "--dim", "s70=8", "--dim", "s15=8", "--dim", "s53=16"];
    let arguments = [&["bench", path.to_str().unwrap(), "--no-selftest"][..], &sizes].concat();
    let mut command: Command = started(Start::Processes, ranks, &arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while ranks_of(&child).len() < ranks && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(after);
    let pids = ranks_of(&child);
    let sent = Instant::now();
    if let Some(pid) = pids.get(victim) {
        // SAFETY: it only sends a signal.
        unsafe { libc::kill(*pid, signal) };
    }
    // A command that hangs is terminated; its exit code 128 + 15 is then not the one that the check expects.
    let first = child.id() as i32;
    let (done, waits) = std::sync::mpsc::channel::<()>();
    let watcher = std::thread::spawn(move || {
        if waits.recv_timeout(Duration::from_secs(60)).is_err_and(|e| e == RecvTimeoutError::Timeout) {
            // SAFETY: it only sends a signal, to a child that has not been waited for.
            unsafe { libc::kill(first, libc::SIGTERM) };
        }
    });
    let outcome = Outcome::from(child.wait_with_output().unwrap());
    drop(done);
    watcher.join().unwrap();
    (outcome, sent.elapsed(), pids)
}

fn check(path: &Path, ranks: usize, victim: usize, signal: i32, after: Duration) {
    let (outcome, took, pids) = faulty(path, ranks, victim, signal, after);
    let what = format!("rank {victim} of {ranks}, signal {signal} after {after:?}: {outcome:?}");
    // A signal that arrives after the work is done changes nothing.
    if outcome.code != 0 || !outcome.stdout.contains("median") {
        assert_eq!(outcome.code, 2, "{what}");
        assert!(outcome.stderr.contains(&format!("rank {victim}")), "{what}");
        assert!(outcome.stderr.contains("E0408"), "{what}");
    }
    assert!(took < Duration::from_secs(20), "{took:?}: {what}");
    let begun = Instant::now();
    while pids.iter().any(|pid| is_there(*pid)) {
        assert!(begun.elapsed() < Duration::from_secs(5), "a process is left: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_rank_that_dies_is_named_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = artifact(folder.path(), "skel_gpt2_tiny_kv_dyn18", 3);
    check(&path, 3, 2, libc::SIGKILL, Duration::from_millis(300));
}

/// Part of `cargo xtask test --suite ranks`.
#[test]
#[ignore = "minutes"]
fn three_hundred_faults() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> = [2, 3, 4].map(|n| (n, artifact(folder.path(), "skel_gpt2_tiny_kv_dyn18", n))).into();
    let mut state = 1u64;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    for case in 0..300 {
        let (ranks, path) = &paths[case % 3];
        let victim = 1 + below(*ranks as u64 - 1) as usize;
        let signal = if below(10) == 0 { libc::SIGSTOP } else { libc::SIGKILL };
        check(path, *ranks, victim, signal, Duration::from_millis(below(700)));
    }
}
