//! the bytes of an artifact, or of its plan  =>  refused, or loaded and called

use super::refused;
use crate::damage::{Random, damaged};
use crate::onnx::{encoder, small};
use crate::schemas::{PLAN_WORDS, artifact};
use crate::sdx::{self, Parts};
use crate::trust::trusted;
use crate::wire::Tree;
use bytes::Bytes;
use sardonyx::compile::{Request, compile};
use sardonyx_base::{Dim, Tensor, TensorView};
use sardonyx_format::tensor_io::Synthetic;
use sardonyx_format::{Artifact, Reading, Verify};
use sardonyx_runtime::{Model, RunOptions, SessionOptions};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Valid artifacts, split into their parts.
static GOOD: LazyLock<Vec<Parts>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let made = |model: Vec<u8>| {
        let (path, output) = (folder.path().join("model.onnx"), folder.path().join("m.sdx"));
        std::fs::write(&path, model).expect("a temporary folder takes a model");
        compile(&Request::new(&path, &output)).expect("a good model compiles");
        Parts::read(&std::fs::read(&output).expect("it was written"))
    };
    vec![made(small().bytes()), made(encoder().bytes())]
});

pub fn archives(bytes: &[u8]) {
    for verify in [Verify::Full, Verify::Lazy, Verify::Off] {
        let reading = Reading { verify, copied: false, trust: None };
        if let Err(e) = Artifact::read(Bytes::copy_from_slice(bytes), &reading) {
            refused(&e);
        }
    }
}

/// Returns one artifact, whose code is cut to 64 bytes because it would take most of the file.
pub fn archive_seeds() -> Vec<Vec<u8>> {
    let mut parts = GOOD[0].clone();
    parts.code.truncate(64);
    parts.rehash();
    vec![parts.archive()]
}

/// Damages an archive. In seven of eight cases, writes the right seal into the damaged file, so that the check of the
/// seal does not refuse it.
pub fn sealed_archive(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    if bytes.is_empty() {
        return vec![0];
    }
    let mut file = damaged(bytes, random);
    if random.below(8) > 0 && file.len() > 64 {
        sdx::seal(&mut file);
    }
    file
}

/// Maximum size of one input, counted with 8 bytes per element. An entry point with a larger input is not called.
const INPUT_BYTES_MAX: usize = 1 << 20;
/// Memory limit of the session.
const MEMORY_BYTES_MAX: usize = 64 << 20;

/// Loads an artifact and calls its entry points. The first byte selects a valid artifact; the other bytes replace its
/// plan.
pub fn plans(bytes: &[u8]) {
    let Some((which, plan)) = bytes.split_first() else { return };
    let mut parts = GOOD[usize::from(*which) % GOOD.len()].clone();
    parts.plan = plan.to_vec();
    parts.rehash();
    let model = match Model::from_bytes(parts.archive(), "fuzzed.sdx", &trusted().selftest(false)) {
        Ok(model) => model,
        Err(e) => return refused(&e),
    };
    let session = model.session(&SessionOptions::default().memory_bytes_max(MEMORY_BYTES_MAX)).expect("one thread");
    for entry in model.entry_points() {
        for size in [1, 3] {
            let dims = |port: &sardonyx_runtime::Port| -> Option<Vec<usize>> {
                let size = |d: &Dim| usize::try_from(d.eval_named(&|_| Some(size)).ok()?).ok();
                port.dims.iter().map(size).collect()
            };
            let input = |(i, port): (usize, &sardonyx_runtime::Port)| {
                let dims = dims(port)?;
                let n = dims.iter().try_fold(8usize, |n, d| n.checked_mul(*d)).filter(|n| *n <= INPUT_BYTES_MAX)?;
                let _ = n;
                Some((port.name.clone(), Synthetic::Random.tensor(port.dtype, dims, i as u64).ok()?))
            };
            let Some(inputs) = entry.inputs.iter().enumerate().map(input).collect::<Option<Vec<(String, Tensor)>>>()
            else {
                continue;
            };
            let views: Vec<(&str, TensorView)> = inputs.iter().map(|(name, t)| (name.as_str(), t.into())).collect();
            let options = RunOptions::default().deadline(Instant::now() + Duration::from_secs(2));
            if let Err(e) = session.run_with(&entry.name, &views, &mut [], &options) {
                refused(&e);
            }
        }
    }
}

pub fn plan_seeds() -> Vec<Vec<u8>> {
    GOOD.iter().enumerate().map(|(i, parts)| [vec![i as u8], parts.plan.clone()].concat()).collect()
}

pub fn mutant_plan(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let Some((which, plan)) = bytes.split_first() else { return plan_seeds().remove(0) };
    let Some(mut tree) = Tree::parse(artifact("Plan"), plan) else {
        return if plan.is_empty() { vec![0] } else { [vec![*which], damaged(plan, random)].concat() };
    };
    for _ in 0..1 + random.below(2) {
        tree.mutate(random, PLAN_WORDS, random.0.is_multiple_of(7));
    }
    [vec![*which], tree.encode()].concat()
}
