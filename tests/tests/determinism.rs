//! one model, one command  =>  the same bytes, regardless of user, folder, time and number of processors
//!
//! The tests that change the processor or the clock need programs that may be missing. If its program is missing, a
//! test prints a message and checks nothing. To repeat these tests by hand on a small model `m.onnx`, after `apt-get
//! install qemu-user faketime`:
//!
//!     sardonyx compile m.onnx -o a.sdx
//!     qemu-x86_64 -cpu Haswell target/release/sardonyx compile m.onnx -o b.sdx     # CPUID without AVX-512
//!     faketime '1999-12-31 23:59:59' target/release/sardonyx compile m.onnx -o c.sdx
//!     sha256sum a.sdx b.sdx c.sdx

use sardonyx_tests::onnx::small;
use sardonyx_tests::prepared::model;
use sardonyx_tests::programs::{Outcome, program};
use std::path::Path;
use std::process::{Command, Stdio};

/// A description of the difference from the first compilation, and the command, which bash runs with the program in
/// `$S`, the model in `$M`, the output in `$O`, and the number of a processor in `$FIRST`.
type Variation = (&'static str, &'static str);

static VARIATIONS: &[Variation] = &[
    ("again", "$S compile $M -o $O"),
    ("another home", "HOME=/nowhere $S compile $M -o $O"),
    ("another user", "USER=somebody LOGNAME=somebody $S compile $M -o $O"),
    ("another language", "LANG=tr_TR.UTF-8 LC_ALL=tr_TR.UTF-8 $S compile $M -o $O"),
    ("no language", "LANG=C LC_ALL=C $S compile $M -o $O"),
    ("another time zone", "TZ=Pacific/Kiritimati $S compile $M -o $O"),
    ("no environment", "env -i $S compile $M -o $O"),
    ("a large environment", "X=$(head -c 100000 /dev/zero | tr '\\0' x) $S compile $M -o $O"),
    ("another mask of permissions", "umask 0; $S compile $M -o $O"),
    ("another folder", "cd / && $S compile $M -o $O"),
    ("a relative path", "cd $(dirname $M) && $S compile $(basename $M) -o $O"),
    ("one processor", "taskset -c $FIRST $S compile $M -o $O"),
    ("other thread counts", "RAYON_NUM_THREADS=7 OMP_NUM_THREADS=3 $S compile $M -o $O"),
    ("another place of memory", "setarch -R $S compile $M -o $O"),
    ("no backtraces and no log", "RUST_BACKTRACE=0 RUST_LOG=trace MALLOC_PERTURB_=165 $S compile $M -o $O"),
    ("another folder for temporary files", "mkdir -p $O.tmp && TMPDIR=$O.tmp $S compile $M -o $O"),
    ("a reader that is there already", "exec 3<$M; $S compile $M -o $O 0<&3"),
    ("IR printed on the way", "$S compile $M -o $O --dump-dir $O.ir --print-after all 2>/dev/null"),
];

/// Returns the number of the first processor that this process may use.
fn first_processor() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).expect("the kernel lists processors");
    list.trim().split([',', '-']).next().unwrap_or("0").to_string()
}

fn bash(script: &str, model: &Path, output: &Path) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", &format!("set -e; {script}")]);
    command.env("S", program("sardonyx")).env("M", model).env("O", output).env("FIRST", first_processor());
    command
}

fn compiled(script: &str, model: &Path, output: &Path) -> Vec<u8> {
    let outcome = Outcome::run(&mut bash(script, model, output));
    assert_eq!(outcome.code, 0, "{script}: {}", outcome.stderr);
    std::fs::read(output).unwrap_or_else(|e| panic!("{script}: {e}"))
}

/// Asserts that the bytes are equal; the message tells where they differ.
fn assert_same(what: &str, first: &[u8], other: &[u8]) {
    let at = first.iter().zip(other).position(|(a, b)| a != b);
    let n = first.iter().zip(other).filter(|(a, b)| a != b).count();
    assert!(first == other, "{what}: {} and {} bytes, {n} differ, the first at {at:?}", first.len(), other.len());
}

fn check(model: &Path, variations: &[Variation]) {
    let dir = tempfile::tempdir().unwrap();
    let first = compiled("$S compile $M -o $O", model, &dir.path().join("first.sdx"));
    let vary = |i: usize| {
        let (what, script) = variations[i];
        let other = compiled(script, model, &dir.path().join(format!("{i}.sdx")));
        assert_same(what, &first, &other);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| (0..variations.len()).step_by(2).for_each(vary));
        (1..variations.len()).step_by(2).for_each(vary);
    });
    in_parallel(model, &first, dir.path());
}

fn in_parallel(model: &Path, first: &[u8], dir: &Path) {
    let outputs: Vec<_> = (0..2).map(|i| dir.join(format!("parallel{i}.sdx"))).collect();
    let spawn = |output| {
        let mut command = bash("$S compile $M -o $O", model, output);
        command.stdout(Stdio::null()).spawn().expect("bash runs")
    };
    let mut running: Vec<_> = outputs.iter().map(|output: &std::path::PathBuf| spawn(output)).collect();
    assert!(running.iter_mut().all(|child| child.wait().expect("it was started").success()));
    outputs.iter().for_each(|o| assert_same("two at a time", first, &std::fs::read(o).expect("it was written")));
}

fn small_model(dir: &Path) -> std::path::PathBuf {
    let path = dir.join("small.onnx");
    std::fs::write(&path, small().bytes()).unwrap();
    path
}

#[test]
fn a_small_model_gives_the_same_bytes_in_every_circumstance() {
    let dir = tempfile::tempdir().unwrap();
    check(&small_model(dir.path()), VARIATIONS);
}

#[test]
fn minilm_gives_the_same_bytes() {
    let some = ["no environment", "one processor", "another folder", "another place of memory"];
    let chosen: Vec<Variation> = VARIATIONS.iter().filter(|(what, _)| some.contains(what)).copied().collect();
    assert_eq!(chosen.len(), some.len());
    check(&model("skel_minilm_l6_safetensors"), &chosen);
}

/// Compares a compilation under `tool`, which simulates another processor or clock, with a usual one. Only prints a
/// message if `tool` is not installed.
fn on_another_machine(tool: &str, script: &str, package: &str) {
    let dir = tempfile::tempdir().unwrap();
    let model = small_model(dir.path());
    let found = Command::new("bash").args(["-c", &format!("command -v {tool}")]).output().expect("bash runs");
    if !found.status.success() {
        println!("not shown: `{tool}` is not installed (package {package})");
        return;
    }
    let first = compiled("$S compile $M -o $O", &model, &dir.path().join("first.sdx"));
    assert_same(tool, &first, &compiled(script, &model, &dir.path().join("other.sdx")));
}

#[test]
fn a_processor_without_avx512_gives_the_same_bytes() {
    on_another_machine("qemu-x86_64", "qemu-x86_64 -cpu Haswell $S compile $M -o $O 2>/dev/null", "qemu-user");
}

#[test]
fn a_processor_without_avx_gives_the_same_bytes() {
    on_another_machine("qemu-x86_64", "qemu-x86_64 -cpu Nehalem $S compile $M -o $O 2>/dev/null", "qemu-user");
}

#[test]
fn another_year_gives_the_same_bytes() {
    on_another_machine("faketime", "faketime '1999-12-31 23:59:59' $S compile $M -o $O", "faketime");
}
