//! one change to a valid artifact, with recomputed hashes  =>  the error that refuses it before native code runs
//!
//! Rules about the plan alone are tested in `runtime/tests/hostile.rs`, with kernels written for that test. Here the
//! plan comes from the compiler, and its kernels declare their launch requirements.

use prost::Message;
use sardonyx_base::plan::messages::{Copy, File, Host, Launch, Manifest, Plan, Step, buffer::Place, step::Action};
use sardonyx_base::{DType, Error, Result, Tensor};
use sardonyx_runtime::{DeviceName, Model, Outputs, SessionOptions};
use sardonyx_tests::onnx::{Net, small};
use sardonyx_tests::programs::compile;
use sardonyx_tests::sdx::Parts;
use sardonyx_tests::trust::trusted;
use std::sync::OnceLock;

/// The protobuf messages of an artifact, which a test changes.
struct Change {
    manifest: Manifest,
    plan: Plan,
    /// The plan for GPUs.
    gpu: Plan,
}

impl Change {
    fn steps(&mut self) -> &mut Vec<Step> {
        &mut self.plan.entries[0].body.as_mut().unwrap().steps
    }

    /// Returns the first host step.
    fn host(&mut self) -> &mut Host {
        let mut hosts = self.steps().iter_mut().filter_map(|s| match &mut s.action {
            Some(Action::Host(host)) => Some(host),
            _ => None,
        });
        hosts.next().unwrap()
    }

    /// Moves the host steps before all others.
    fn host_first(&mut self) {
        self.steps().sort_by_key(|s| !matches!(s.action, Some(Action::Host(_))));
    }

    fn resize(&mut self, buffer: u32, bytes: &str) {
        self.plan.entries[0].buffers[buffer as usize].bytes = bytes.into();
    }

    fn is_value(&self, buffer: usize) -> bool {
        matches!(self.plan.entries[0].buffers[buffer].place, Some(Place::Value(_)))
    }

    fn launches(&mut self) -> impl Iterator<Item = &mut Launch> {
        self.steps().iter_mut().filter_map(|s| match &mut s.action {
            Some(Action::Launch(launch)) => Some(launch),
            _ => None,
        })
    }

    fn first(&mut self) -> &mut Launch {
        self.launches().next().unwrap()
    }
}

/// The expected error code, a part of the expected message, and the change.
type Row = (&'static str, &'static str, fn(&mut Change));

static AT_LOAD: &[Row] = &[
    ("E0402", "the artifact has format 7", |c| c.manifest.format_major = 7),
    ("E0403", "aarch64", |c| c.manifest.arch = "aarch64".into()),
    ("E0403", "v9", |c| c.manifest.variants = vec!["v9".into()]),
    ("E0401", "the manifest does not list `plan`", |c| c.manifest.files.retain(|f| f.name != "plan")),
    ("E0401", "the manifest does not list `weights`", |c| c.manifest.files.retain(|f| f.name != "weights")),
    ("E0401", "the symbol `batch` is not declared", |c| c.manifest.symbols.clear()),
    ("E0401", "the range of the symbol `batch`", |c| c.manifest.symbols[0].hi = Some(-1)),
    ("E0401", "the symbol `batch` has the unknown kind", |c| c.manifest.symbols[0].kind = 9),
    ("E0401", "the entry point `main` is there twice", |c| c.plan.entries.push(c.plan.entries[0].clone())),
    ("E0401", "reach beyond the", |c| c.plan.constants[0].bytes = 1 << 40),
    ("E0401", "is not a multiple of 64", |c| c.plan.constants[0].offset += 8),
    ("E0401", "is not the place of", |c| c.plan.entries[0].inputs[0].buffer += 1),
    ("E0401", "has 1 kernels, the code", |c| {
        c.plan.kernels.truncate(1);
        c.plan.entries[0].body.as_mut().unwrap().steps.clear();
        c.plan.entries[0].outputs.clear();
        c.plan.entries[0].buffers.retain(|b| !matches!(b.place, Some(Place::Output(_))));
    }),
    ("E0401", "kernel 0 `k0` of the plan is not as the code declares it", |c| c.plan.kernels[0].requires.clear()),
    ("E0401", "kernel 0 `k0` of the plan is not as the code declares it", |c| {
        c.plan.kernels[0].indexes = vec!["0".into()]
    }),
    ("E0401", "kernel 0 `k0` of the plan is not as the code declares it", |c| {
        c.plan.kernels[0].scratch_bytes = "64".into()
    }),
    ("E0401", "the manifest does not list `ptx/sm_80.ptx`", |c| {
        c.manifest.files.retain(|f| !f.name.ends_with(".ptx"));
    }),
    ("E0401", "the entry `ptx/sm_90.ptx` is missing", |c| {
        let listed = c.manifest.files.iter().find(|f| f.name.ends_with(".ptx")).unwrap().clone();
        c.manifest.files.push(File { name: "ptx/sm_90.ptx".into(), ..listed });
    }),
    ("E0401", "kernel 0 `kx` of the plan is not as the code declares it", |c| c.plan.kernels[0].symbol = "kx".into()),
    ("E0401", "(buffers, parameters)", |c| c.plan.kernels.swap(0, 1)),
    ("E0401", "(buffers, parameters)", |c| c.first().params.push("1".into())),
    ("E0401", "(buffers, parameters)", |c| c.first().buffers.truncate(1)),
];

static AT_LOAD_ON_A_GPU: &[Row] = &[
    ("E0401", "blocks of 2000 threads for sm_80", |c| c.gpu.kernels[0].targets[0].block = 2000),
    ("E0401", "of shared memory for sm_80", |c| c.gpu.kernels[0].targets[0].shared_bytes = 1 << 20),
    ("E0401", "the grid uses `batch`", |c| c.gpu.kernels[0].targets[0].grid = "batch".into()),
    ("E0401", "kernel 0 `k0` of the plan is not as the code declares it", |c| {
        c.gpu.kernels[0].targets[0].grid = "1".into()
    }),
];

/// Changes after which the artifact still loads, but the call with `batch` = 5 is refused.
static AT_CALL: &[Row] = &[
    ("E0401", "would leave its buffers", |c| c.first().grid = "batch*1000".into()),
    ("E0401", "would leave its buffers", |c| {
        c.launches().flat_map(|l| &mut l.params).for_each(|p| *p = format!("({p}) * 1000"));
    }),
    ("E0401", "would leave its buffers", |c| {
        c.launches().flat_map(|l| &mut l.params).for_each(|p| *p = format!("-({p})"));
    }),
    ("E0401", "would leave its buffers", |c| {
        let arena = c.plan.entries[0].buffers.iter_mut().filter(|b| matches!(b.place, Some(Place::Arena(_))));
        arena.for_each(|b| b.bytes = "64".into());
    }),
    ("E0401", "would leave its buffers", |c| {
        let constants = c.plan.entries[0].buffers.iter_mut().filter(|b| matches!(b.place, Some(Place::Constant(_))));
        constants.for_each(|b| b.bytes = "4".into());
    }),
    ("E0401", "the arena has 0 bytes", |c| c.plan.entries[0].arena_bytes = "0".into()),
    ("E0401", "is not a multiple of 64", |c| {
        let places = c.plan.entries[0].buffers.iter_mut().filter_map(|b| b.place.as_mut());
        places.for_each(|p| {
            if let Place::Arena(offset) = p {
                *offset = format!("{offset} + 4")
            }
        });
    }),
    ("E0202", "a grid of", |c| c.first().grid = "1152921504606846976".into()),
];

fn good() -> &'static Parts {
    static PARTS: OnceLock<Parts> = OnceLock::new();
    PARTS.get_or_init(|| artifact(&small()))
}

fn artifact(net: &Net) -> Parts {
    let folder = tempfile::tempdir().unwrap();
    let (model, artifact) = (folder.path().join("m.onnx"), folder.path().join("m.sdx"));
    std::fs::write(&model, net.bytes()).unwrap();
    compile(&model, &artifact, &["--target", "cpu", "--target", "cuda:sm_80"]);
    Parts::read(&std::fs::read(artifact).unwrap())
}

fn changed(change: fn(&mut Change), device: DeviceName) -> Result<Model> {
    changed_of(good(), change, device)
}

fn changed_of(good: &Parts, change: fn(&mut Change), device: DeviceName) -> Result<Model> {
    let mut parts = good.clone();
    let gpu = parts.others.iter_mut().find(|(name, _)| name == "plan/gpu").map(|(_, bytes)| bytes).unwrap();
    let [plan, of_gpu] = [&parts.plan, &*gpu].map(|bytes| Plan::decode(&bytes[..]).unwrap());
    let mut all = Change { manifest: Manifest::decode(&parts.manifest[..]).unwrap(), plan, gpu: of_gpu };
    change(&mut all);
    *gpu = all.gpu.encode_to_vec();
    (parts.manifest, parts.plan) = (all.manifest.encode_to_vec(), all.plan.encode_to_vec());
    parts.rehash();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.sdx");
    std::fs::write(&path, parts.archive()).unwrap();
    Model::load(&path, &trusted().selftest(false).device(device))
}

fn call(model: &Model) -> Result<Outputs> {
    let inputs = [("x", Tensor::zeros(DType::F32, vec![5, 8])), ("ids", Tensor::zeros(DType::I64, vec![5]))];
    model.session(&SessionOptions::default())?.run(&inputs)
}

fn wrong((code, words, _): &Row, e: Option<Box<Error>>) -> Option<String> {
    match e {
        None => Some(format!("{words}: not refused")),
        Some(e) if e.code == *code && e.message.contains(words) => None,
        Some(e) => Some(format!("{code} {words}: {e}")),
    }
}

#[test]
fn a_sealed_artifact_that_was_not_changed_runs() {
    for device in [DeviceName::Cpu, DeviceName::Sim("sm_80".into())] {
        assert_eq!(call(&changed(|_| {}, device).unwrap()).unwrap()[0].1.dims(), [5, 24]);
    }
}

#[test]
fn what_is_wrong_for_every_shape_is_refused_at_load() {
    let on_cpu = AT_LOAD.iter().map(|row| (row, DeviceName::Cpu));
    let all = on_cpu.chain(AT_LOAD_ON_A_GPU.iter().map(|row| (row, DeviceName::Sim("sm_80".into()))));
    let found: Vec<String> = all.filter_map(|(row, device)| wrong(row, changed(row.2, device).err())).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn what_is_wrong_for_a_shape_is_refused_at_the_call() {
    let one = |row: &Row| wrong(row, changed(row.2, DeviceName::Cpu).and_then(|model| call(&model)).err());
    let found: Vec<String> = AT_CALL.iter().filter_map(one).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Without the check, the kernel would read row 0, which does not exist: it replaces every index that is out of range
/// by 0.
#[test]
fn a_lookup_in_a_table_without_rows_is_refused() {
    let net = Net::new().input("table", DType::F32, "n 1000").input("ids", DType::I64, "k");
    let net = net.node("/lookup", "Gather", "table ids", "y").output("y");
    let folder = tempfile::tempdir().unwrap();
    let (path, artifact) = (folder.path().join("m.onnx"), folder.path().join("m.sdx"));
    std::fs::write(&path, net.bytes()).unwrap();
    compile(&path, &artifact, &[]);
    let session = Model::load(&artifact, &trusted()).unwrap().session(&Default::default()).unwrap();
    let call = |n: usize, k: usize| {
        let (table, ids) = (Tensor::zeros(DType::F32, vec![n, 1000]), Tensor::zeros(DType::I64, vec![k]));
        session.run(&[("table", table), ("ids", ids)]).map(|out| out[0].1.dims().to_vec())
    };
    let e = call(0, 3).unwrap_err();
    assert_eq!((e.code, e.node.as_deref()), ("E0303", Some("/lookup")), "{e}");
    assert_eq!(call(0, 0).unwrap(), [0, 1000]);
    assert_eq!(call(2, 3).unwrap(), [3, 1000]);
}

/// Changes that make a plan use strings as plain bytes, or plain bytes as strings. Strings and other opaque values of
/// host steps have no size that a plan could state, and their buffers hold no bytes.
static OF_STRINGS: &[Row] = &[
    ("E0401", "holds no bytes, but a value for host steps", |c| {
        let text = c.host().results[0].value.as_ref().unwrap().buffer;
        c.resize(text, "4*n");
        c.first().buffers[0] = text;
        c.host_first();
    }),
    ("E0401", "holds no bytes, but a value for host steps", |c| {
        let (text, to) = (c.host().results[0].value.as_ref().unwrap().buffer, c.first().buffers[1]);
        c.resize(text, "4*n");
        c.steps().retain(|s| !matches!(s.action, Some(Action::Launch(_))));
        c.steps().push(Step { action: Some(Action::Copy(Copy { from: text, to })) });
    }),
    ("E0401", "holds no bytes, but a value for host steps", |c| {
        let text = c.plan.entries[0].inputs[0].buffer;
        c.resize(text, "4*n");
        c.first().buffers[0] = text;
    }),
    ("E0401", "which holds no bytes", |c| {
        let (text, x) = (c.host().results[0].value.as_ref().unwrap().buffer, c.plan.entries[0].inputs[1].buffer);
        let copies = c.steps().iter_mut().filter_map(|s| match &mut s.action {
            Some(Action::Copy(copy)) if copy.from == text => Some(copy),
            _ => None,
        });
        copies.for_each(|copy| copy.from = x);
    }),
    ("E0401", "is read as string, which it does not hold", |c| {
        let x = c.plan.entries[0].inputs[1].buffer;
        c.host().args[0].buffer = x;
    }),
    ("E0401", "which it does not hold", |c| c.host().args[0].dtype = DType::F32.onnx_code()),
];

/// A change by which the size of the first host step's result depends on a symbol that only the second host step binds.
static OF_SIZES: &[Row] = &[("E0401", "known only after the host operation that makes it", |c| {
    let values: Vec<usize> = (0..c.plan.entries[0].buffers.len()).filter(|&b| c.is_value(b)).collect();
    let [first, second] = values[..] else { panic!("two results, not {values:?}") };
    c.plan.entries[0].buffers[first].bytes = c.plan.entries[0].buffers[second].bytes.clone();
})];

#[test]
fn values_of_host_steps_are_read_by_nothing_else() {
    let strings = Net::new().input("s", DType::String, "n").input("x", DType::F32, "n");
    let mut strings = strings.node("/twice", "StringConcat", "s s", "t").node("/relu", "Relu", "x", "y");
    strings.model.opset_import[0].version = 20;
    let good = artifact(&strings.output("t").output("y"));
    let inputs = [("s", Tensor::from_strings(vec![2], &["a", "b"])), ("x", Tensor::zeros(DType::F32, vec![2]))];
    refused(&good, &inputs, OF_STRINGS);
}

#[test]
fn the_size_of_a_host_steps_result_is_known_when_it_is_made() {
    let net = Net::new().input("x", DType::F32, "n").input("z", DType::F32, "n");
    let net = net.node("/x", "NonZero", "x", "i").node("/z", "NonZero", "z", "j").output("i").output("j");
    let inputs = [("x", Tensor::zeros(DType::F32, vec![3])), ("z", Tensor::from_vec(vec![3], vec![1f32; 3]))];
    refused(&artifact(&net), &inputs, OF_SIZES);
}

/// Asserts that the unchanged artifact runs, and that each change is refused at load.
fn refused(good: &Parts, inputs: &[(&str, Tensor)], rows: &[Row]) {
    for device in [DeviceName::Cpu, DeviceName::Sim("sm_80".into())] {
        let model = changed_of(good, |_| {}, device).unwrap();
        model.session(&SessionOptions::default()).unwrap().run(inputs).unwrap();
    }
    let found: Vec<String> =
        rows.iter().filter_map(|row| wrong(row, changed_of(good, row.2, DeviceName::Cpu).err())).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_access_of_the_compilers_kernels_is_declared() {
    let plan = Plan::decode(&good().plan[..]).unwrap();
    for kernel in &plan.kernels {
        let sizes = |b: usize| kernel.requires.iter().any(|r| r.contains(&format!("b{b}")));
        let missing: Vec<usize> = (0..kernel.writes.len()).filter(|&b| !sizes(b)).collect();
        assert!(missing.is_empty(), "{}: nothing bounds the buffers {missing:?}: {:?}", kernel.symbol, kernel.requires);
    }
}
