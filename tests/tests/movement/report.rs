//! sardonyx compile --report, explain --at  =>  totals equal to the sums of their rows, errors for invalid sizes

use sardonyx_tests::prepared::model;
use sardonyx_tests::programs::{Outcome, program};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const NAME: &str = "skel_gpt2_tiny_kv_ts17";

fn compile(folder: &Path, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(program("sardonyx"));
    command.arg("compile").arg(model(NAME)).arg("-o").arg(folder.join("m.sdx")).args(arguments);
    Outcome::run(&mut command)
}

fn report(arguments: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    let done = compile(folder.path(), &[&["--report", path.to_str().unwrap()], arguments].concat());
    assert_eq!(done.code, 0, "{}", done.stderr);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn total(rows: &Value, key: &str) -> u64 {
    let rows = rows.as_array().unwrap().iter();
    rows.map(|r| r[key].as_u64().unwrap() * r["launches"].as_u64().unwrap_or(1)).sum()
}

#[test]
fn the_sums_of_a_report_are_those_of_its_rows() {
    for arguments in [&["--at", "batch=2,seq=16,past=5"][..], &["--target", "cuda:sm_80"], &["--device", "x86-64-v3"]] {
        let r = report(arguments);
        let m = &r["movement"];
        assert_eq!(m["algebraic"]["after"], total(&r["kernels"], "words"));
        assert_eq!(m["algebraic"]["before"], total(&r["operators"], "words"));
        assert_eq!(m["scheduled"]["after"], total(&r["kernels"], "scheduled"));
        assert_eq!(m["lower_bound"], total(&r["kernels"], "lower_bound"));
        let classes = m["classes"].as_array().unwrap().iter();
        assert_eq!(
            classes.map(|c| c["after"]["words"].as_u64().unwrap()).sum::<u64>(),
            m["algebraic"]["after"].as_u64().unwrap()
        );
        let launches = r["kernels"].as_array().unwrap().iter().filter(|k| k["name"] != "copy");
        assert_eq!(launches.map(|k| k["launches"].as_u64().unwrap()).sum::<u64>(), r["launches"].as_u64().unwrap());
        assert!(m["algebraic"]["after"].as_u64() < m["algebraic"]["before"].as_u64());
        let kernel = &r["kernels"][0];
        assert!(kernel["origins"][0].is_string() && kernel["formula"].is_string(), "{kernel}");
    }
}

#[test]
fn a_device_and_sizes_make_a_difference_to_what_they_should() {
    let at = |arguments: &[&str]| report(arguments)["movement"].clone();
    let (cpu, gpu, long) = (at(&[]), at(&["--device", "sm_80"]), at(&["--at", "seq=256"]));
    assert_eq!(cpu["algebraic"], gpu["algebraic"]);
    assert_ne!(cpu["scheduled"], gpu["scheduled"]);
    assert_eq!(cpu["algebraic"]["formulas"], long["algebraic"]["formulas"]);
    assert!(long["algebraic"]["after"].as_u64() > cpu["algebraic"]["after"].as_u64());
}

#[test]
fn sizes_that_make_no_sense_are_told_and_leave_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    let path = path.to_str().unwrap();
    let own = folder.path().join("m.sdx");
    for (arguments, wanted) in [
        (&["--report", path, "--at", "height=3"][..], "no dimension symbol `height`"),
        (&["--report", path, "--at", "seq"], "`--at seq` is not understood"),
        (&["--report", path, "--at", "seq=1,seq=2"], "gives `seq` twice"),
        (&["--report", path, "--at", "total=3,past=9"], "they must be equal"),
        (&["--report", path, "--at", "seq=99999999999,past=99999999999"], "overflows"),
        (&["--report", path, "--device", "abacus"], "no device `abacus`"),
        (&["--at", "seq=3"], "say for what `--report` counts"),
        (&["--report", own.to_str().unwrap()], "is the model or the output"),
        (&["--report", path, "--stop-after", "simplify"], "cannot be used with"),
    ] {
        let done = compile(folder.path(), arguments);
        assert_eq!(done.code, 2, "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(wanted), "{arguments:?}: {}", done.stderr);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{arguments:?}");
    }
}

#[test]
fn explain_shows_classes_and_the_change() {
    let mut command = Command::new(program("sardonyx"));
    let done = Outcome::run(command.arg("explain").arg(model(NAME)).args(["--at", "seq=16"]));
    assert_eq!(done.code, 0, "{}", done.stderr);
    for wanted in
        ["batch=1", "seq=16 ", "on x86-64-v4", "contraction ", "normalisation ", "algebraic ", "% of scheduled)"]
    {
        assert!(done.stdout.contains(wanted), "{wanted}: {}", done.stdout);
    }
}
