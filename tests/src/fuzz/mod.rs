//! the bytes of a coverage-guided fuzzer  =>  a call of code that reads untrusted bytes; a panic is a finding
//!
//! `cargo xtask fuzz` runs these targets with libFuzzer (`tests/fuzz`). The inputs that libFuzzer kept are in
//! `testdata/corpora`, and `tests/tests/corpora.rs` replays them.

mod artifacts;
mod models;
mod texts;
mod values;

use crate::damage::Random;
use sardonyx_base::{Error, Fault};

/// Returns a changed copy of an input.
pub type Mutate = fn(&[u8], &mut Random) -> Vec<u8>;

/// A function for the fuzzer to call, and how inputs for it are made.
pub struct Target {
    /// Name on the command line; the kept corpus is the file `testdata/corpora/NAME.bin`.
    pub name: &'static str,
    /// Describes the bytes that the target reads.
    pub about: &'static str,
    /// Calls the code under test; panics if it violates a property that must hold for every input.
    pub run: fn(&[u8]),
    /// Changes an input without destroying its structure; absent if the fuzzer's own changes suffice.
    pub mutate: Option<Mutate>,
    /// Maximum number of bytes of an input; the fuzzer does not run longer inputs.
    pub bytes_max: usize,
    /// Returns the inputs with which fuzzing begins, besides the kept corpus.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets, sorted by name.
pub static TARGETS: &[Target] = &[
    Target {
        name: "archives",
        about: "artifacts: the archive, its hashes and its messages",
        run: artifacts::archives,
        mutate: Some(artifacts::sealed_archive),
        bytes_max: 1 << 16,
        seeds: artifacts::archive_seeds,
    },
    Target {
        name: "compile",
        about: "small ONNX models, compiled whole",
        run: models::compiled,
        mutate: Some(models::mutant),
        bytes_max: 1 << 14,
        seeds: models::seeds,
    },
    Target {
        name: "expressions",
        about: "expressions of dimensions: parsed, printed, evaluated",
        run: texts::expressions,
        mutate: None,
        bytes_max: 256,
        seeds: texts::expression_seeds,
    },
    Target {
        name: "host",
        about: "operations of the runtime's own code, with any operands",
        run: values::host,
        mutate: None,
        bytes_max: 1 << 12,
        seeds: values::host_seeds,
    },
    Target {
        name: "ir",
        about: "textual IR: parsed, verified, printed",
        run: texts::ir,
        mutate: None,
        bytes_max: 1 << 13,
        seeds: texts::ir_seeds,
    },
    Target {
        name: "models",
        about: "ONNX models, read",
        run: models::read,
        mutate: Some(models::mutant),
        bytes_max: 1 << 14,
        seeds: models::seeds,
    },
    Target {
        name: "plans",
        about: "plans beside good code: verified, loaded, called",
        run: artifacts::plans,
        mutate: Some(artifacts::mutant_plan),
        bytes_max: 1 << 14,
        seeds: artifacts::plan_seeds,
    },
    Target {
        name: "ptx",
        about: "PTX: parsed, and its first kernel executed by the simulator",
        run: texts::ptx,
        mutate: None,
        bytes_max: 1 << 13,
        seeds: texts::ptx_seeds,
    },
    Target {
        name: "tensors",
        about: "tensor files: .pb, .npy, values of every kind",
        run: values::tensors,
        mutate: None,
        bytes_max: 1 << 12,
        seeds: values::tensor_seeds,
    },
];

/// Returns the target with this name; `None` if there is none.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Asserts that an error blames the input, and not the compiler or the runtime.
fn refused(e: &Error) {
    assert!(e.fault == Fault::User, "{e}");
}
