//! hundreds of damaged models and artifacts  =>  exit code 0, 1 or 2 within seconds, never a panic

use crate::folder::{Folder, small_artifact};
use sardonyx_tests::damage::{Random, damaged};
use sardonyx_tests::onnx::small;
use sardonyx_tests::programs::{Outcome, program};
use std::ops::Range;
use std::process::Command;
use std::time::{Duration, Instant};

const ROUNDS: usize = 300;
const TIME_MAX: Duration = Duration::from_secs(5);
/// Limit on the address space of a run. A damaged length field must not cause an allocation of that length.
const MEMORY_KIB: usize = 8 << 20;

/// Runs a command on damaged copies of a file, and returns how often each exit code occurred.
fn shoot(name: &str, good: &[u8], seed: u64, arguments: &str) -> [usize; 3] {
    let half = |part: usize| move || rounds(part * ROUNDS / 2..(part + 1) * ROUNDS / 2, name, good, seed, arguments);
    let codes = std::thread::scope(|scope| {
        let first = scope.spawn(half(0));
        let (second, first) = (half(1)(), first.join().expect("no round fails"));
        std::array::from_fn(|code| first[code] + second[code])
    });
    println!("{name}: {} done, {} failed a check, {} refused", codes[0], codes[1], codes[2]);
    codes
}

fn rounds(rounds: Range<usize>, name: &str, good: &[u8], seed: u64, arguments: &str) -> [usize; 3] {
    let mut codes = [0; 3];
    for round in rounds {
        let mut random = Random(seed << 32 | round as u64);
        let folder = Folder::new();
        folder.write(name, damaged(good, &mut random));
        let start = Instant::now();
        let script = format!("ulimit -v {MEMORY_KIB}; exec {arguments}");
        let outcome = Outcome::run(Command::new("bash").args(["-c", &script]).current_dir(folder.path()));
        let took = start.elapsed();
        let keep = || {
            let kept = std::env::temp_dir().join(format!("sardonyx-{round}-{name}"));
            std::fs::copy(folder.file(name), &kept).map(|_| kept.display().to_string()).unwrap_or_default()
        };
        assert!((0..3).contains(&outcome.code), "round {round} ({}): {outcome:?}", keep());
        assert!(!outcome.stderr.contains("panicked"), "round {round} ({}): {outcome:?}", keep());
        assert!(took < TIME_MAX, "round {round} ({}) took {took:?}", keep());
        if outcome.code == 2 {
            let n = outcome.stderr.matches("error[").count();
            assert!(n == 1 && outcome.stderr.contains("\n  help: "), "round {round} ({}): {outcome:?}", keep());
            assert!(folder.written().is_empty(), "round {round} ({}) left {:?}", keep(), folder.written());
        }
        codes[outcome.code as usize] += 1;
    }
    codes
}

#[test]
fn damaged_models_compile_or_are_refused() {
    let arguments = format!("{} compile m.onnx -o out/m.sdx", program("sardonyx").display());
    let [done, _, refused] = shoot("m.onnx", &small().bytes(), 11, &arguments);
    // Both outcomes must be common; otherwise the damage would test only one of them.
    assert!(done > ROUNDS / 20 && refused > ROUNDS / 4, "{done} compiled, {refused} refused");
}

#[test]
fn damaged_artifacts_are_refused() {
    let arguments = format!("{} bench m.sdx --min-time 0", program("sardonyx-run").display());
    assert_eq!(shoot("m.sdx", small_artifact(), 12, &arguments), [0, 0, ROUNDS]);
}

/// `inspect` does not hash the weights, but the seal covers all other bytes, so damage outside the weights is refused.
#[test]
fn damaged_plans_are_refused_when_nothing_is_hashed() {
    let good = small_artifact();
    let end = 8 + good.windows(8).rposition(|w| w == b"manifest").unwrap();
    let plan = good.windows(4).position(|w| w == b"\x7fELF").unwrap();
    let mut random = Random(13);
    let folder = Folder::new();
    let mut refused = 0;
    for round in 0..ROUNDS {
        let mut bad = good.to_vec();
        // Damages only the end of the file, from three quarters of the way between the first ELF file and the name of
        // the manifest in the archive's directory. The plan, the manifest and the directory lie there.
        let code_end = plan + (end - plan) * 3 / 4;
        for _ in 0..1 + random.below(3) {
            let at = code_end + random.below(bad.len() - code_end);
            bad[at] ^= 1 << random.below(8);
        }
        folder.write("m.sdx", &bad);
        let mut command = Command::new(program("sardonyx-run"));
        let outcome = Outcome::run(command.args(["inspect", "m.sdx"]).current_dir(folder.path()));
        assert!(outcome.code == 0 || outcome.code == 2, "round {round}: {outcome:?}");
        assert!(!outcome.stderr.contains("panicked"), "round {round}: {outcome:?}");
        refused += (outcome.code == 2) as usize;
    }
    assert_eq!(refused, ROUNDS, "the seal covers every byte but the weights");
}
