//! an input from libFuzzer  =>  a call of the fuzz target that the environment variable `SARDONYX_FUZZ` names
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use sardonyx_tests::damage::Random;
use sardonyx_tests::fuzz::{Target, target};
use std::sync::LazyLock;

static CHOSEN: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("SARDONYX_FUZZ").unwrap_or_default();
    target(&name).unwrap_or_else(|| panic!("SARDONYX_FUZZ={name} is no target"))
});

fuzz_target!(init: seed(), |data: &[u8]| {
    if data.len() <= CHOSEN.bytes_max {
        (CHOSEN.run)(data);
    }
});

/// Writes the target's seeds to the folder that `SARDONYX_FUZZ_SEEDS` names, if this variable is set. The caller also
/// passes the folder to libFuzzer as a corpus.
fn seed() {
    let Some(folder) = std::env::var_os("SARDONYX_FUZZ_SEEDS") else { return };
    for (i, seed) in (CHOSEN.seeds)().iter().enumerate() {
        let path = std::path::Path::new(&folder).join(format!("{i:03}"));
        std::fs::write(&path, seed).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    // If the target has a mutator that knows the structure of its inputs, half of the inputs are changed by it.
    match CHOSEN.mutate.filter(|_| seed % 2 == 0) {
        None => fuzzer_mutate(data, size, max_size),
        Some(mutate) => {
            let changed = mutate(&data[..size], &mut Random(u64::from(seed)));
            let n = changed.len().min(max_size);
            data[..n].copy_from_slice(&changed[..n]);
            n
        }
    }
});
