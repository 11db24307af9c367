//! Builds artifacts for tests: kernels from C, plans by hand

#![allow(dead_code)] // Each test file uses only a part of this module.

use sardonyx_base::plan::messages::{buffer::Place, step::Action, *};
use sardonyx_base::{DType, Error, Result};
use sardonyx_format::{ArtifactWriter, Verify};
use sardonyx_runtime::{LoadOptions, Model, Trust};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The shared object with all kernels of `kernels.c`, compiled for v3 and v4.
pub fn code() -> &'static [u8] {
    static CODE: OnceLock<Vec<u8>> = OnceLock::new();
    CODE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let source = source(dir.path(), "kernels.c", include_str!("kernels.c"));
        let (so, mut objects) = (dir.path().join("k.so"), Vec::new());
        for (variant, level) in [("v3", "3"), ("v4", "4")] {
            let object = dir.path().join(format!("{variant}.o"));
            run(Command::new("cc").args(["-O2", "-fPIC", "-c", "-o"]).arg(&object).arg(&source).args([
                format!("-DV={variant}"),
                format!("-DLEVEL={level}"),
                "-ffreestanding".into(),
            ]));
            objects.push(object);
        }
        run(Command::new("cc").args(["-shared", "-nostdlib", "-o"]).arg(&so).args(&objects));
        std::fs::read(so).unwrap()
    })
}

pub static PTX: &str = include_str!("kernels.ptx");

/// A folder with a stand-in `libcuda.so` that computes on the CPU.
pub fn driver() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    // The driver's source includes the source of the kernels.
    source(dir.path(), "kernels.c", include_str!("kernels.c"));
    let source = source(dir.path(), "driver.c", include_str!("driver.c"));
    let output = dir.path().join("libcuda.so");
    run(Command::new("cc").args(["-O1", "-fPIC", "-shared", "-Wl,-soname,libcuda.so", "-o"]).arg(output).arg(source));
    dir
}

/// Adds a stand-in `libnccl.so.2` to the folder of the driver.
pub fn nccl(dir: &Path) {
    let source = source(dir, "nccl.c", include_str!("nccl.c"));
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-fPIC", "-shared", "-o"]).arg(dir.join("libnccl.so.2")).arg(source).arg(dir.join("libcuda.so"));
    run(&mut cc);
}

/// Runs an ignored test again in a process that finds the stand-in driver.
pub fn again(test: &str, path: &Path, variables: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", test]).env("LD_LIBRARY_PATH", path).envs(variables.iter().copied());
    let done = command.output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&done.stderr));
}

/// Writes a source file for the C compiler, because not every crate that uses this module contains its folder.
fn source(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn run(command: &mut Command) {
    let done = command.output().expect("cc runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// A manifest, constants, and a plan with the entry point `main`, or with several entry points.
#[derive(Clone)]
pub struct Builder {
    pub manifest: Manifest,
    pub entry: Entry,
    pub before: Vec<Entry>,
    pub kernels: Vec<Kernel>,
    pub constants: Vec<Constant>,
    pub weights: Vec<u8>,
    pub selftest: Option<SelfTest>,
    /// (target, PTX) pairs.
    pub ptx: Vec<(String, String)>,
    pub without_cpu: bool,
    /// Attached files, as (name, content).
    pub attached: Vec<(String, Vec<u8>)>,
}

impl Builder {
    pub fn new() -> Builder {
        let mut manifest = Manifest::current("test");
        manifest.variants = vec!["v3".into(), "v4".into()];
        Builder {
            manifest,
            entry: entry("main"),
            before: vec![],
            kernels: vec![],
            constants: vec![],
            weights: vec![],
            selftest: None,
            ptx: vec![],
            without_cpu: false,
            attached: vec![],
        }
    }

    /// Ends the entry point under construction and begins another one.
    pub fn next_entry(&mut self, name: &str) {
        let ended = std::mem::replace(&mut self.entry, entry(name));
        self.before.push(ended);
    }

    /// Adds a derived symbol that equals an expression.
    pub fn derive(&mut self, name: &str, equals: &str, hi: Option<i64>) {
        let derived = Derived { name: name.into(), equals: equals.into(), lo: 0, hi, why: "/node".into() };
        self.manifest.derived.push(derived);
    }

    pub fn symbol(&mut self, name: &str, kind: SymbolKind, lo: i64, hi: Option<i64>) {
        self.manifest.symbols.push(Symbol { name: name.into(), kind: kind as i32, lo, hi });
    }

    fn buffer(&mut self, bytes: &str, place: Place) -> u32 {
        self.entry.buffers.push(Buffer { bytes: bytes.into(), place: Some(place) });
        self.entry.buffers.len() as u32 - 1
    }

    pub fn arena(&mut self, bytes: &str, offset: &str) -> u32 {
        self.buffer(bytes, Place::Arena(offset.into()))
    }

    /// `bytes` is an expression, since the dimensions need not determine it.
    pub fn input(&mut self, name: &str, dtype: DType, dims: &[&str], bytes: &str) -> u32 {
        let buffer = self.buffer(bytes, Place::Input(self.entry.inputs.len() as u32));
        self.entry.inputs.push(port(name, dtype, dims, buffer));
        buffer
    }

    pub fn output(&mut self, name: &str, dtype: DType, dims: &[&str], bytes: &str) -> u32 {
        let buffer = self.buffer(bytes, Place::Output(self.entry.outputs.len() as u32));
        self.entry.outputs.push(port(name, dtype, dims, buffer));
        buffer
    }

    pub fn constant(&mut self, values: &[f32]) -> u32 {
        self.weights.resize(self.weights.len().next_multiple_of(64), 0);
        self.constants.push(Constant {
            name: format!("c{}", self.constants.len()),
            dtype: DType::F32.onnx_code(),
            offset: self.weights.len() as u64,
            bytes: values.len() as u64 * 4,
            layout: "row_major".into(),
            ..Constant::default()
        });
        values.iter().for_each(|v| self.weights.extend(v.to_le_bytes()));
        self.buffer(&(values.len() * 4).to_string(), Place::Constant(self.constants.len() as u32 - 1))
    }

    pub fn kernel(&mut self, symbol: &str, writes: &[bool], params: u32, scratch: &str) -> u32 {
        self.kernels.push(Kernel {
            symbol: symbol.into(),
            writes: writes.to_vec(),
            params,
            scratch_bytes: scratch.into(),
            class: "map".into(),
            ..Kernel::default()
        });
        self.kernels.len() as u32 - 1
    }

    /// Adds PTX to the CPU's code, for kernels whose last parameter is the number of items.
    pub fn for_gpus(&mut self) {
        self.ptx.push(("sm_80".into(), PTX.into()));
        for kernel in &mut self.kernels {
            let items = format!("p{}", kernel.params - 1);
            let (target, grid) = ("sm_80".into(), format!("({items} + 63) floordiv 64"));
            kernel.targets = vec![KernelTarget { target, grid, block: 64, ..KernelTarget::default() }];
        }
    }

    pub fn launch(&mut self, kernel: u32, buffers: &[u32], params: &[&str], grid: &str) {
        let n = self.steps().len();
        self.step(Action::Launch(Launch {
            kernel,
            buffers: buffers.to_vec(),
            params: params.iter().map(|p| p.to_string()).collect(),
            grid: grid.into(),
            origins: vec![format!("/node_{n}")],
            carries: None,
        }));
    }

    pub fn step(&mut self, action: Action) {
        self.steps().push(Step { action: Some(action) });
    }

    pub fn steps(&mut self) -> &mut Vec<Step> {
        &mut self.entry.body.as_mut().unwrap().steps
    }

    pub fn plan(&self) -> Plan {
        let entries = self.before.iter().chain([&self.entry]).cloned().collect();
        Plan { entries, constants: self.constants.clone(), kernels: self.kernels.clone() }
    }

    pub fn write(&self, path: &Path) {
        let mut writer = ArtifactWriter::create(path).unwrap();
        writer.append(&self.weights).unwrap();
        self.selftest.iter().for_each(|test| writer.selftest(test));
        self.attached.iter().for_each(|(name, bytes)| writer.attach(name, bytes.clone()));
        self.ptx.iter().for_each(|(target, text)| writer.ptx(target, text.clone()));
        let code = (!self.without_cpu).then(code);
        writer.finish(self.manifest.clone(), &self.plan(), code).unwrap();
    }

    pub fn load(&self) -> Result<Model> {
        self.load_with(&trusted())
    }

    pub fn load_with(&self, options: &LoadOptions) -> Result<Model> {
        let dir = tempfile::tempdir().unwrap();
        let path: PathBuf = dir.path().join("m.sdx");
        self.write(&path);
        Model::load(&path, options)
    }

    pub fn refused(&self) -> Box<Error> {
        self.load().err().expect("the plan is refused")
    }
}

fn entry(name: &str) -> Entry {
    Entry { name: name.into(), arena_bytes: "0".into(), body: Some(Block { steps: vec![] }), ..Entry::default() }
}

fn port(name: &str, dtype: DType, dims: &[&str], buffer: u32) -> Port {
    let dims = dims.iter().map(|d| d.to_string()).collect();
    Port { name: name.into(), dtype: dtype.onnx_code(), dims, buffer, kind: String::new() }
}

/// Options to load an artifact that the test has made.
pub fn trusted() -> LoadOptions {
    // SAFETY: the artifact contains only the test's own code.
    LoadOptions::new(unsafe { Trust::file() })
}

pub fn lazy() -> LoadOptions {
    trusted().verify(Verify::Lazy)
}

/// y[b] = Σn g[b, n] · w[n] with h = 2x + 1 and g = 2h + 1; the two steps use the arena.
pub fn two_layers() -> Builder {
    let mut b = Builder::new();
    b.symbol("batch", SymbolKind::Input, 0, Some(1000));
    let x = b.input("x", DType::F32, &["batch", "8"], "batch*32");
    let y = b.output("y", DType::F32, &["batch"], "batch*4");
    let w = b.constant(&[0.5; 8]);
    let h = b.arena("batch*32", "0");
    let g = b.arena("batch*32", "(batch*32 + 63) floordiv 64 * 64");
    b.entry.arena_bytes = "(batch*32 + 63) floordiv 64 * 128".into();
    let affine = b.kernel("affine", &[false, true], 0, "0");
    let rowdot = b.kernel("rowdot", &[false, false, true], 1, "4*p0");
    b.launch(affine, &[x, h], &[], "batch*8");
    b.launch(affine, &[h, g], &[], "batch*8");
    b.launch(rowdot, &[g, w, y], &["8"], "batch");
    b
}

/// y = (2 (2x + 1) + 1) · w for rows of eight elements; z = x.
pub fn layers() -> Builder {
    let mut b = Builder::new();
    b.symbol("batch", SymbolKind::Input, 0, Some(1000));
    let x = b.input("x", DType::F32, &["batch", "8"], "batch*32");
    let y = b.output("y", DType::F32, &["batch"], "batch*4");
    let z = b.output("z", DType::F32, &["batch", "8"], "batch*32");
    let w = b.constant(&[0.5, 1.0, -2.0, 0.25, 3.0, 1.5, 0.0, 8.0]);
    let room = "(batch*32 + 63) floordiv 64 * 64";
    let h = b.arena("batch*32", "0");
    let g = b.arena("batch*32", room);
    b.entry.arena_bytes = format!("2*({room})");
    let affine = b.kernel("affine", &[false, true], 1, "0");
    let rowdot = b.kernel("rowdot", &[false, false, true], 2, "4*p0");
    b.launch(affine, &[x, h], &["batch*8"], "batch*8");
    b.launch(affine, &[h, g], &["batch*8"], "batch*8");
    b.launch(rowdot, &[g, w, y], &["8", "batch"], "batch");
    b.step(Action::Copy(Copy { from: x, to: z }));
    b.for_gpus();
    b
}

/// A model with one launch of about `ms` milliseconds.
pub fn slow(ms: usize) -> Builder {
    let (mut b, n) = (Builder::new(), ms.to_string());
    let y = b.output("y", DType::U8, &[&n], &n);
    let slow = b.kernel("slow", &[true], 0, "0");
    b.launch(slow, &[y], &[], &n);
    b
}

/// Entry points `decode` and `prefill` (which has no old positions). present = past followed by 2x + 1, and y = Σt (t +
/// 1) · present[t], for each row of the batch.
///
/// Buffers of `decode`: 0 x, 1 past, 2 present, 3 y. Steps: 0 carries, 1 appends, 2 sums. `prefill` does not carry.
pub fn decoder() -> Builder {
    let mut b = Builder::new();
    b.symbol("batch", SymbolKind::Input, 0, Some(1000));
    b.symbol("seq", SymbolKind::Input, 0, None);
    b.symbol("past", SymbolKind::Input, 0, None);
    b.symbol("room_in", SymbolKind::Capacity, 0, None);
    b.symbol("room_out", SymbolKind::Capacity, 0, None);
    let carry = b.kernel("carry", &[false, true], 4, "0");
    let append = b.kernel("append", &[false, true], 4, "0");
    let total = b.kernel("total", &[false, true], 3, "0");
    for (name, past) in [("prefill", "0"), ("decode", "past")] {
        let all = format!("{past} + seq");
        let x = b.input("x", DType::F32, &["batch", "seq", "4"], "16*batch*seq");
        let old = b.input("past", DType::F32, &["batch", past, "4"], "16*batch*room_in");
        let new = b.output("present", DType::F32, &["batch", &all, "4"], "16*batch*room_out");
        let y = b.output("y", DType::F32, &["batch", "4"], "16*batch");
        if name == "decode" {
            b.launch(carry, &[old, new], &[past, "4", "room_in", "room_out"], &format!("batch*{past}"));
            edit(&mut b, 0, |l| l.carries = Some(0));
        }
        b.launch(append, &[x, new], &["seq", "4", past, "room_out"], "batch*seq");
        b.launch(total, &[new, y], &[&all, "4", "room_out"], "batch");
        let (input_capacity, output_capacity) = ("room_in".into(), "room_out".into());
        let kept = String::new();
        b.entry.states =
            vec![State { input: 1, output: 0, axis: 1, input_capacity, output_capacity, kept, units: vec![] }];
        b.entry.name = name.into();
        if name == "prefill" {
            b.next_entry("decode");
        }
    }
    b
}

/// The entry point `decode`, in which a single launch carries and appends.
pub fn joining_decoder() -> Builder {
    let mut b = decoder();
    b.before.clear();
    b.symbol("kept", SymbolKind::Kept, 0, None);
    b.entry.states[0].kept = "kept".into();
    let join = b.kernel("join", &[false, false, true], 7, "0");
    b.steps().drain(..2);
    let written = "past + seq - kept";
    let params = [written, "4", "past", "kept", "seq", "room_in", "room_out"];
    b.launch(join, &[0, 1, 2], &params, &format!("batch*({written})"));
    b.steps().swap(0, 1);
    b
}

pub fn edit(b: &mut Builder, step: usize, change: impl Fn(&mut Launch)) {
    match &mut b.steps()[step].action {
        Some(Action::Launch(launch)) => change(launch),
        other => panic!("{other:?}"),
    }
}

pub fn operand(buffer: u32, dtype: DType, dims: &[&str]) -> Operand {
    Operand { buffer, dtype: dtype.onnx_code(), dims: dims.iter().map(|d| d.to_string()).collect() }
}

pub fn result(index: u32, value: Operand, binds: &[(u32, &str)]) -> HostResult {
    let binds = binds.iter().map(|(axis, symbol)| Binding { axis: *axis, symbol: symbol.to_string() });
    HostResult { index, value: Some(value), binds: binds.collect() }
}

pub fn value(b: &mut Builder, bytes: &str) -> u32 {
    b.entry.buffers.push(Buffer { bytes: bytes.into(), place: Some(Place::Value(Value {})) });
    b.entry.buffers.len() as u32 - 1
}

pub fn host(b: &mut Builder, op: &str, args: Vec<Operand>, results: Vec<HostResult>, bodies: &[u32]) {
    let origins = vec!["/host".into()];
    b.step(Action::Host(Host { op: op.into(), args, results, bodies: bodies.to_vec(), origins }));
}
