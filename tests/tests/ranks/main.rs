//! one artifact on several ranks  =>  the results of one rank, with the same bits for every transport

mod damage;
mod faults;
mod hosts;
mod kinds;
mod measured;
mod overlap;
mod pipeline;
mod places;
mod sampled;

use sardonyx_runtime::{Model, SessionOptions};
use sardonyx_tests::checked::check_artifact;
use sardonyx_tests::prepared::{data_sets, model};
use sardonyx_tests::programs::{Outcome, compile, program};
use sardonyx_tests::trust::trusted;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How ranks are started.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Start {
    Threads,
    Processes,
    /// By the launcher of this name.
    Mpi(&'static str),
}

static LAUNCHERS: [&str; 2] = ["mpirun.openmpi", "mpirun.mpich"];

/// Returns the ways to start ranks that work on this machine: an MPI launcher must be on PATH.
fn starts() -> Vec<Start> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_here = |name: &&&str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    let found = LAUNCHERS.iter().filter(is_here).map(|name| Start::Mpi(name));
    [Start::Threads, Start::Processes].into_iter().chain(found).collect()
}

/// Returns a command that runs `sardonyx-run` with the arguments. A launcher starts `ranks` processes; otherwise the
/// artifact or the arguments give the number of ranks.
fn started(start: Start, ranks: usize, arguments: &[&str]) -> Command {
    let run = program("sardonyx-run");
    let mut command = match start {
        Start::Threads | Start::Processes => Command::new(run),
        Start::Mpi(launcher) => {
            let mut command = Command::new(launcher);
            command.args(["-n", &ranks.to_string()]);
            if launcher.ends_with("openmpi") {
                command.args(["--oversubscribe", "--bind-to", "none"]);
                command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            }
            command.arg(run);
            command
        }
    };
    command.args(arguments);
    if arguments[0] != "collectives" {
        command.args(["--threads", "1"]);
    }
    if start == Start::Processes {
        command.args(["--transport", "processes"]);
    }
    command
}

fn artifact(folder: &Path, name: &str, ranks: usize) -> PathBuf {
    let path = folder.join(format!("{name}-{ranks}.sdx"));
    if !path.is_file() {
        compile(&model(name), &path, &["--ranks", &ranks.to_string()]);
    }
    path
}

/// Returns the names and the bytes of all outputs for the first data set.
fn outputs(artifact: &Path, name: &str, start: Start, ranks: usize) -> Vec<(String, Vec<u8>)> {
    let folder = tempfile::tempdir().unwrap();
    let loaded = Model::load(artifact, &trusted().selftest(false)).unwrap();
    let set = &data_sets(name)[0];
    let inputs = loaded.entry("main").unwrap().inputs.iter().enumerate();
    let inputs: Vec<String> =
        inputs.map(|(i, port)| format!("{}={}", port.name, set.join(format!("input_{i}.pb")).display())).collect();
    let mut arguments = vec!["run", artifact.to_str().unwrap(), "--output-dir", folder.path().to_str().unwrap()];
    inputs.iter().for_each(|input| arguments.extend(["--input", input]));
    let outcome = Outcome::run(&mut started(start, ranks, &arguments));
    assert_eq!(outcome.code, 0, "{name} on {ranks} {start:?}: {}", outcome.stderr);
    let read = |port: &sardonyx_runtime::program::Port| {
        let bytes = std::fs::read(folder.path().join(format!("{}.npy", port.name)));
        (port.name.clone(), bytes.expect("an output"))
    };
    loaded.entry("main").unwrap().outputs.iter().map(read).collect()
}

/// Compiles the model for `ranks` ranks. Checks that its data sets pass, and that its outputs have the same bits each
/// time.
fn check(folder: &Path, name: &str, ranks: usize, starts: &[Start], times: usize) {
    let path = artifact(folder, name, ranks);
    let text = check_artifact(name, &path).unwrap_or_else(|e| panic!("{name} on {ranks}: {e}"));
    check_starts(&path, name, ranks, starts, times);
    println!("{name} on {ranks} ranks, {starts:?}: {} data sets, {times} times", text.lines().count());
}

/// Checks that the outputs of an artifact have the same bits, however often and in whichever way ranks are started.
fn check_starts(artifact: &Path, name: &str, ranks: usize, starts: &[Start], times: usize) {
    let mut wanted = None;
    for &start in starts {
        for _ in 0..times {
            let got = outputs(artifact, name, start, ranks);
            let wanted = wanted.get_or_insert_with(|| got.clone());
            assert!(*wanted == got, "{name} on {ranks} {start:?}: other bits");
        }
    }
}

#[test]
fn a_decoder_gives_the_same_on_threads_and_processes() {
    let folder = tempfile::tempdir().unwrap();
    check(folder.path(), "skel_llama_tiny_kv_dyn18", 3, &[Start::Threads, Start::Processes], 1);
}

/// A cache of the first rank has counterparts on the other ranks: appending, truncating and dropping apply to all of
/// these caches.
#[test]
fn caches_are_kept_by_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let name = "skel_gpt2_tiny_kv_dyn18";
    let load = |ranks| {
        let model = Model::load(artifact(folder.path(), name, ranks), &trusted()).unwrap();
        (model.session(&SessionOptions::default()).unwrap(), model)
    };
    let ((one, _), (two, _)) = (load(1), load(2));
    let steps: [(&str, &[i64], usize); 5] =
        [("main", &[5, 17, 3, 99], 0), ("main", &[7], 4), ("main", &[8], 5), ("main", &[11, 12], 3), ("main", &[1], 5)];
    let (mut results, mut bytes) = (vec![], vec![]);
    for session in [&one, &two] {
        let other = session.cache("main", 8).unwrap();
        let mut cache = session.cache("main", 16).unwrap();
        drop(other);
        let mut logits = vec![];
        for (entry, ids, keep) in steps {
            cache.truncate(keep);
            let dims = [1, ids.len()];
            let positions: Vec<i64> = (keep as i64..).take(ids.len()).collect();
            let mask = vec![1i64; keep + ids.len()];
            let all_dims = [1, mask.len()];
            let named = |name: &str| match name {
                "input_ids" => sardonyx_runtime::TensorView::from_slice(&dims, ids),
                "position_ids" => sardonyx_runtime::TensorView::from_slice(&dims, &positions),
                _ => sardonyx_runtime::TensorView::from_slice(&all_dims, &mask),
            };
            let ports: Vec<String> =
                session.model().entry(entry).unwrap().fresh_inputs().map(|p| p.name.clone()).collect();
            let inputs: Vec<_> = ports.iter().map(|name| (name.as_str(), named(name).unwrap())).collect();
            let run = session.run_cached(entry, &inputs, &mut [], &mut cache, &Default::default());
            logits.push(run.unwrap()[0].1.to_vec::<f32>().unwrap());
            assert_eq!(cache.len(), keep + ids.len());
        }
        results.push(logits);
        bytes.push(cache.bytes());
    }
    // Each rank holds half of the heads.
    assert_eq!(bytes[0], 2 * bytes[1]);
    for (step, (one, two)) in results[0].iter().zip(&results[1]).enumerate() {
        let worst = one.iter().zip(two).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-4, "step {step}: {worst}");
    }
}

#[test]
fn another_number_of_ranks_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = artifact(folder.path(), "skel_gpt2_tiny_kv_dyn18", 2);
    let outcome = Outcome::run(&mut started(Start::Threads, 3, &["run", path.to_str().unwrap(), "--ranks", "3"]));
    assert_eq!(outcome.code, 2);
    let text = ["error[E0407]: the model is made for 2 ranks, not for 3", "run it with `--ranks 2`"];
    assert!(text.iter().all(|t| outcome.stderr.contains(t)), "{}", outcome.stderr);
}

/// Runs a collective, of which each rank checks its result.
fn exchange(start: Start, ranks: usize, algorithm: &str, op: &str) {
    let n = ranks.to_string();
    // Bruck's algorithm requires equal parts.
    let bytes = if algorithm == "bruck" && op.starts_with("AllToAll") { "48,192,196608" } else { "4,12,65540" };
    let mut command = started(start, ranks, &["collectives", "--ranks", &n, "--algorithm", algorithm, "--op", op]);
    let outcome = Outcome::run(command.args(["--times", "2", "--bytes", bytes]));
    assert_eq!(outcome.code, 0, "{op} by {algorithm} on {ranks} {start:?}: {}", outcome.stderr);
    assert_eq!(outcome.stdout.lines().count(), 3, "{}", outcome.stdout);
}

#[test]
fn collectives_give_what_they_mean() {
    for op in [
        "AllReduce mesh=0 by=avg",
        "AllReduce mesh=0 by=max",
        "Broadcast mesh=0 root=2",
        "Gather mesh=0 dim=0 root=1",
        "Send mesh=0 from=2 to=0",
        "Halo mesh=0 dim=0 before=1 after=1",
    ] {
        exchange(Start::Threads, 3, "direct", op);
    }
    exchange(Start::Processes, 4, "direct", "ReduceScatter mesh=0 by=add dim=0");
}

/// Part of `cargo xtask test --suite ranks`.
#[test]
#[ignore = "minutes"]
fn every_algorithm_of_every_collective() {
    let sums = "direct ring two-way-ring recursive-doubling rabenseifner binomial-tree double-tree";
    let rows = [
        ("AllReduce mesh=0 by=add", sums),
        ("AllReduce mesh=0 by=avg", sums),
        ("AllToAll mesh=0 split=0 join=1", "direct pairwise bruck"),
        ("AllGather mesh=0 dim=0", "direct ring two-way-ring pairwise bruck"),
        ("Broadcast mesh=0 root=1", "direct binomial-tree"),
        ("Reduce mesh=0 by=min root=1", "direct binomial-tree"),
        ("ReduceScatter mesh=0 by=add dim=0", "direct"),
        ("Gather mesh=0 dim=0 root=0", "direct"),
        ("Scatter mesh=0 dim=0 root=1", "direct"),
        ("Send mesh=0 from=0 to=1", "direct"),
        ("Halo mesh=0 dim=0 before=1 after=1", "direct"),
        ("Barrier mesh=0", "direct"),
    ];
    for start in starts() {
        for ranks in [2, 3, 4, 6] {
            for (op, algorithms) in rows {
                let shared = start == Start::Threads || start == Start::Processes;
                for algorithm in algorithms.split(' ').take(if shared { 1 } else { 10 }) {
                    exchange(start, ranks, algorithm, op);
                }
            }
            if ranks == 4 && start != Start::Threads && start != Start::Processes {
                exchange(start, ranks, "hierarchical", "AllReduce mesh=0 by=add");
            }
        }
    }
}

/// Part of `cargo xtask test --suite ranks`.
#[test]
#[ignore = "minutes"]
fn every_model_on_every_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let starts = starts();
    let models =
        ["skel_minilm_l6_ts11", "skel_llama_tiny_kv_dyn18", "skel_gpt2_tiny_kv_dyn18", "skel_vit_small_rand_ts17"];
    for name in models {
        for ranks in [1, 2, 3, 4, 6, 8] {
            let starts = if ranks == 1 { &[Start::Threads][..] } else { &starts };
            check(folder.path(), name, ranks, starts, 1);
        }
    }
    check(folder.path(), "skel_minilm_l6_ts11", 4, &starts, 20);
    check(folder.path(), "skel_bert_base_rand_ts17", 2, &starts, 1);
    check(folder.path(), "skel_bert_base_rand_ts17", 8, &starts, 1);
}
