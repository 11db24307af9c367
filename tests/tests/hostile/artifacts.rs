//! a mutant of an artifact  =>  refused at load, refused at the call, or called

use crate::corpus;
use crate::watch::Tally;
use crate::{Outcome, Subject};
use sardonyx::compile::{Request, compile};
use sardonyx_base::{Error, Fault, Tensor, TensorView};
use sardonyx_format::tensor_io::Synthetic;
use sardonyx_format::{Artifact, Verify};
use sardonyx_kernels::Target;
use sardonyx_passes::Options;
use sardonyx_runtime::program::{self, Entry, Program};
use sardonyx_runtime::{DeviceName, LoadOptions, Model, RunOptions, SessionOptions, Trust};
use sardonyx_tests::damage::{Random, damaged};
use sardonyx_tests::schemas::{PLAN_WORDS, artifact};
use sardonyx_tests::sdx::{self, Parts};
use sardonyx_tests::trust::trusted;
use sardonyx_tests::wire::Tree;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

struct Artifacts {
    /// Valid artifacts: the whole file, its parts, and the trust that pins its seal.
    good: Vec<(Vec<u8>, Parts, Trust)>,
    folder: TempDir,
    last: Vec<u8>,
}

/// Memory limit of a session: a plan that needs more is refused before it runs.
const MEMORY_BYTES_MAX: usize = 256 << 20;
/// Maximum size of one input; an entry point with a larger input is not called.
const INPUT_BYTES_MAX: usize = 16 << 20;

pub fn open() -> Box<dyn Subject> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut good = vec![];
    let mut add = |model: &[u8], external: Option<&Path>, targets: Vec<Target>, options: Options| {
        let (model_path, output) = (external.unwrap_or(folder.path()).join("model.onnx"), folder.path().join("m.sdx"));
        std::fs::write(&model_path, model).expect("a temporary folder takes a model");
        // Models that do not compile are left out: some of them only test the reader of models. So are artifacts of 1
        // MiB and more.
        if compile(&Request { targets, options, ..Request::new(&model_path, &output) }).is_ok() {
            let bytes = std::fs::read(&output).expect("an artifact was written");
            if bytes.len() < 1 << 20 {
                let parts = Parts::read(&bytes);
                let seal = Artifact::open(&output, Verify::Lazy).expect("it is whole").seal.expect("and hashed");
                good.push((bytes, parts, Trust::pin(&seal.digest.to_string()).expect("a seal")));
            }
        }
    };
    for base in corpus::bases() {
        add(&base.model, Some(base.folder.path()), Target::all().collect(), Options::default());
    }
    // Artifacts for several ranks, with caches.
    for mesh in [vec![2], vec![2, 2]] {
        let options = Options { mesh, ..Options::default() };
        add(&corpus::heads().bytes(), None, vec![Target::cpu()], options);
    }
    let options = Options { assume_finite: true, ..Options::default() };
    add(&corpus::pruned().bytes(), None, vec![Target::cpu()], options);
    // As dense matrices, the weights of the pruned model would take 295 kB.
    let (_, sparse, _) = good.last().expect("the pruned model compiles");
    let is_pruned = sparse.plan.windows(6).any(|bytes| bytes == b"/quads");
    assert!(is_pruned && sparse.weights.len() < 64 << 10, "artifacts of sparse weights");
    let exchanges = |parts: &Parts| parts.plan.windows(9).any(|bytes| bytes == b"AllReduce");
    assert_eq!(good.iter().filter(|(_, parts, _)| exchanges(parts)).count(), 2, "artifacts for several ranks");
    assert!(good.len() >= 5, "only {} of the good models compile", good.len());
    Box::new(Artifacts { good, folder, last: vec![] })
}

/// Of the mutants with a correct seal, at least 60 % must reach the verifier of plans, and more than 5 % must be
/// called.
pub fn check(tally: &Tally) {
    let sealed = tally.count(|w| w.starts_with("sealed"));
    let reached = tally.count(|w| w.starts_with("sealed, verified"));
    println!("{reached} of {sealed} mutants with right hashes reach the verifier of plans");
    assert!(reached * 100 >= sealed * 60, "only {reached} of {sealed} mutants reach the verifier of plans");
    assert!(tally.count(|w| w.ends_with("called")) * 20 > sealed, "hardly any is called");
}

impl Subject for Artifacts {
    fn attempt(&mut self, seed: u64) -> Outcome {
        let mut random = Random(seed.wrapping_mul(0xDA94_2042_E4DD_58B5) ^ 0x05e1f);
        let (bytes, parts, pin) = &self.good[random.below(self.good.len())];
        let sealed = seed % 2 == 1;
        self.last = if sealed { resealed(parts, &mut random) } else { damaged(bytes, &mut random) };
        let path = self.folder.path().join("mutant.sdx");
        std::fs::write(&path, &self.last).expect("a temporary folder takes an artifact");
        let whole = self.last == *bytes;
        match Model::load(&path, &LoadOptions::new(pin.clone()).selftest(false)) {
            Err(e) if matches!(e.code, "E0401" | "E0402" | "E0409") => {}
            _ if whole => {}
            Err(e) => return Outcome::Fault(format!("pinned, but refused by more than the pin: {e}")),
            Ok(_) => return Outcome::Fault("pinned, but loaded".into()),
        }
        let mut said = String::from(if sealed { "sealed" } else { "damaged" });
        match attempt(&path, seed, &mut said) {
            Ok(()) => Outcome::Fine(format!("{said}, called")),
            Err(e) if e.fault == Fault::Defect => Outcome::Fault(e.to_string()),
            Err(e) if e.remedy().is_none() || e.file.is_none() => Outcome::Fault(format!("no file or remedy: {e}")),
            Err(e) => Outcome::Fine(format!("{said}, refused {}", e.code)),
        }
    }

    fn keep(&self, path: &Path) {
        std::fs::write(path, &self.last).expect("a temporary folder takes a mutant");
    }
}

/// Loads the mutant and calls it. `said` records how far it came.
fn attempt(path: &Path, seed: u64, said: &mut String) -> Result<(), Box<Error>> {
    let artifact = Artifact::open(path, Verify::Full)?;
    said.push_str(", verified");
    program::verify(&artifact.manifest, &artifact.plan, artifact.weights.len(), 0).map_err(|e| e.file("it"))?;
    drop(artifact);
    // Only one mutant in eight runs on the simulator, which is slower than a CPU.
    let device = if seed % 8 == 5 { DeviceName::Sim("sm_80".into()) } else { DeviceName::Cpu };
    let options = trusted().device(device).selftest(seed.is_multiple_of(3));
    let model = Model::load(path, &options)?;
    said.push_str(", loaded");
    let options = SessionOptions::default().threads(1 + seed as usize % 2).memory_bytes_max(MEMORY_BYTES_MAX);
    let session = model.session(&options)?;
    let program = model.program();
    let Some(entry) = program.entries.get(seed as usize / 2 % program.entries.len().max(1)) else { return Ok(()) };
    let mut random = Random(seed);
    let inputs = inputs(program, entry, &mut random).map_err(|e| e.file("it"))?;
    let mut views: Vec<(&str, TensorView)> = inputs.iter().map(|(name, t)| (name.as_str(), t.into())).collect();
    let options = RunOptions::default().deadline(Instant::now() + Duration::from_secs(2));
    if entry.states.is_empty() || random.below(2) == 0 {
        return session.run_with(&entry.name, &views, &mut [], &options).map(drop);
    }
    let mut cache = session.cache(&entry.name, 1 + random.below(6))?;
    views.retain(|(name, _)| entry.fresh_inputs().any(|port| port.name == *name));
    // The second call finds positions in the cache.
    session.run_cached(&entry.name, &views, &mut [], &mut cache, &options)?;
    session.run_cached(&entry.name, &views, &mut [], &mut cache, &options).map(drop)
}

/// Returns random inputs. The value of each symbol is at most three above its lower bound and within its range, so that
/// dimensions are small.
fn inputs(program: &Program, entry: &Entry, random: &mut Random) -> Result<Vec<(String, Tensor)>, Box<Error>> {
    let small = |s: &program::Symbol, random: &mut Random| {
        let top = s.hi.unwrap_or(i64::MAX).min(s.lo.saturating_add(3));
        s.lo.saturating_add(random.below((top - s.lo + 1) as usize) as i64).max(s.lo.min(1))
    };
    let values: Vec<i64> = program.symbols.iter().map(|s| small(s, random)).collect();
    let value = |name: &str| program.symbol_index.get(name).map(|&at| values[at]);
    let one = |(i, port): (usize, &program::Port)| {
        let size = |d: &sardonyx_base::Dim| Ok(usize::try_from(d.eval_named(&value)?).unwrap_or(0));
        let dims: Vec<usize> = port.dims.iter().map(size).collect::<Result<_, Box<Error>>>()?;
        let n = sardonyx_base::tensor::element_count(&dims).and_then(|n| port.dtype.bytes_for(n));
        match n.filter(|&n| n <= INPUT_BYTES_MAX) {
            Some(_) => Ok((port.name.clone(), Synthetic::Random.tensor(port.dtype, dims, i as u64)?)),
            None => Err(Error::user("E0202", "an input larger than is worth trying")),
        }
    };
    entry.inputs.iter().enumerate().map(one).collect()
}

/// Mutates one part of an artifact: a message, the weights or the archive's directory. The result has the right seal;
/// hashes and checksums match too, except where a case below says otherwise. The native code stays as it is.
fn resealed(good: &Parts, random: &mut Random) -> Vec<u8> {
    let mut parts = good.clone();
    let mutated = |schema, bytes: &[u8], random: &mut Random, rough: bool| {
        let mut tree = Tree::parse(schema, bytes).expect("a good message has its schema");
        for _ in 0..1 + random.below(2) {
            tree.mutate(random, PLAN_WORDS, rough);
        }
        tree.encode()
    };
    match random.below(20) {
        // Damages offsets and lengths in the archive's own directory.
        0 => {
            let mut file = parts.archive();
            let directory = file.len() - 600.min(file.len());
            for _ in 0..1 + random.below(2) {
                let at = directory + random.below(file.len() - directory - 82);
                file[at] ^= 1 << random.below(8);
            }
            sdx::seal(&mut file);
            return file;
        }
        1..=2 => {
            // Keeps wrong sizes and hashes in the manifest; the cases below correct them by `rehash`.
            parts.manifest = mutated(artifact("Manifest"), &parts.manifest, random, false);
            return parts.archive();
        }
        3..=4 => parts.manifest = mutated(artifact("Manifest"), &parts.manifest, random, false),
        5 => parts.selftest = parts.selftest.map(|s| mutated(artifact("SelfTest"), &s, random, false)),
        6 => parts.plan = mutated(artifact("Plan"), &parts.plan, random, true),
        7 => {
            let at = random.below(parts.weights.len().max(1));
            parts.weights.truncate(at);
        }
        _ => parts.plan = mutated(artifact("Plan"), &parts.plan, random, false),
    }
    parts.rehash();
    parts.archive()
}
