//! BERT base and large  =>  their data sets within the tolerance, compiled within a time and in modest memory
//!
//! Gigabytes of weights: `cargo xtask test --suite large-models` makes them, and runs this in a release build.

use sardonyx::compile::{Request, compile};
use sardonyx_tests::checked::check_artifact;
use sardonyx_tests::prepared::{LARGE, model};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Name and seconds within which a release build compiles it. The limits are seven times what a quiet machine takes.
static MODELS: &[(&str, f64)] = &[
    ("skel_bert_base_rand_dyn18", 25.0),
    ("skel_bert_base_rand_ortopt", 25.0),
    ("skel_bert_base_rand_ts17", 25.0),
    ("skel_bert_large_rand_ts17", 60.0),
];

/// Weights pass from file to file: what is held of them at once does not grow with the model.
const ANONYMOUS_KB_MAX: u64 = 256 << 10;

#[test]
fn every_large_model_is_in_the_table() {
    assert_eq!(MODELS.iter().map(|(name, _)| *name).collect::<Vec<_>>(), LARGE);
}

#[test]
#[ignore = "gigabytes of weights: cargo xtask test --suite large-models"]
fn large_models_pass_in_time_and_memory() {
    let wrong: Vec<String> = MODELS.iter().filter_map(|(name, seconds)| verdict(name, *seconds).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn verdict(name: &str, seconds_max: f64) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let artifact = dir.path().join("m.sdx");
    let start = Instant::now();
    let before = anonymous_kb();
    let peak = compile_watched(name, &artifact)?.saturating_sub(before);
    let seconds = start.elapsed().as_secs_f64();
    println!("{name}: compiled in {seconds:.1} s, {peak} kB anonymous at the peak");
    print!("{}", check_artifact(name, &artifact).map_err(|e| format!("{name}: {e}"))?);
    // Passes without optimisation take as long as they like.
    if !cfg!(debug_assertions) && seconds > seconds_max {
        return Err(format!("{name}: compiled in {seconds:.1} s, more than {seconds_max} s"));
    }
    match peak <= ANONYMOUS_KB_MAX {
        true => Ok(()),
        false => Err(format!("{name}: {peak} kB anonymous, more than {ANONYMOUS_KB_MAX} kB")),
    }
}

/// Returns the largest anonymous memory of the process meanwhile.
fn compile_watched(name: &str, artifact: &Path) -> Result<u64, String> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut peak = 0;
            while !done.load(Ordering::Relaxed) {
                peak = peak.max(anonymous_kb());
                std::thread::sleep(Duration::from_millis(2));
            }
            peak
        });
        let compiled = compile(&Request::new(&model(name), artifact));
        done.store(true, Ordering::Relaxed);
        let peak = watch.join().unwrap();
        compiled.map(|_| peak).map_err(|e| format!("{name}: {e}"))
    })
}

fn anonymous_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("RssAnon:")).expect("RssAnon in /proc/self/status");
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
