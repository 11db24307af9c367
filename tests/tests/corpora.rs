//! the inputs that the fuzzer kept (`testdata/corpora`), and the seeds  =>  each target takes them without a panic

use sardonyx_tests::damage::Random;
use sardonyx_tests::fuzz::{TARGETS, Target, target};
use std::path::Path;

/// The kept inputs of a target, as `cargo xtask fuzz --keep` packs them.
fn kept(target: &Target) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/corpora");
    let Ok(bytes) = std::fs::read(folder.join(format!("{}.bin", target.name))) else { return vec![] };
    let mut rest = &bytes[..];
    let mut inputs = vec![];
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let (input, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
        inputs.push(input.to_vec());
        rest = behind;
    }
    inputs
}

/// Also mutants of the seeds, so that what mutates keeps to the structure and to the maximum length.
fn replayed(name: &str) {
    let target = target(name).unwrap();
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty() && seeds.iter().all(|seed| seed.len() <= target.bytes_max), "{name}");
    for (i, seed) in seeds.iter().enumerate() {
        (target.run)(seed);
        let mut random = Random(i as u64);
        (0..8).filter_map(|_| Some((target.mutate?)(seed, &mut random))).for_each(|input| (target.run)(&input));
    }
    (target.run)(&[]);
    let kept = kept(target);
    assert!(!kept.is_empty(), "nothing is kept for {name}");
    kept.iter().for_each(|input| (target.run)(input));
}

#[test]
fn targets_are_sorted_and_replayed_below() {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names, ["archives", "compile", "expressions", "host", "ir", "models", "plans", "ptx", "tensors"]);
}

#[test]
fn archives() {
    replayed("archives");
}

#[test]
fn compile() {
    replayed("compile");
}

#[test]
fn expressions() {
    replayed("expressions");
}

#[test]
fn host() {
    replayed("host");
}

#[test]
fn ir() {
    replayed("ir");
}

#[test]
fn models() {
    replayed("models");
}

#[test]
fn plans() {
    replayed("plans");
}

#[test]
fn ptx() {
    replayed("ptx");
}

#[test]
fn tensors() {
    replayed("tensors");
}
