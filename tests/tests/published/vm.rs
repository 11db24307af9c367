//! buffers and arguments  =>  a launch on ptxvm under a seeded schedule, with its findings

use half::bf16;
use ptxvm::{Kind, Launch, Memory, Module, Options, Report};

/// An argument of a kernel.
#[derive(Clone, Copy)]
pub enum Arg {
    Address(u64),
    I32(i32),
    F32(f32),
}

/// Bytes of the arguments, each at its natural alignment, as PTX lays out scalar parameters.
fn parameters(args: &[Arg]) -> Vec<u8> {
    let mut bytes = vec![];
    for arg in args {
        let value: &[u8] = match arg {
            Arg::Address(v) => &v.to_le_bytes(),
            Arg::I32(v) => &v.to_le_bytes(),
            Arg::F32(v) => &v.to_le_bytes(),
        };
        bytes.resize(bytes.len().next_multiple_of(value.len()), 0);
        bytes.extend(value);
    }
    bytes
}

/// A kernel with its launch configuration.
pub struct Kernel {
    pub module: Module,
    pub entry: String,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
}

/// An expected finding, with its explanation.
pub struct Expected {
    pub kind: Kind,
    pub why: &'static str,
}

/// Global memory that a test fills and reads.
pub struct Vm {
    pub memory: Memory,
}

impl Vm {
    pub fn new() -> Vm {
        Vm { memory: Memory::new() }
    }

    /// An uninitialized buffer: reading it before the kernel writes it is a finding.
    pub fn room(&mut self, name: &str, bytes: usize) -> u64 {
        self.memory.alloc(bytes, name)
    }

    pub fn bytes(&mut self, name: &str, bytes: &[u8]) -> u64 {
        let address = self.room(name, bytes.len());
        self.memory.write(address, bytes).expect("it was just allocated");
        address
    }

    pub fn floats(&mut self, name: &str, values: &[f32]) -> u64 {
        self.bytes(name, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
    }

    pub fn bfloats(&mut self, name: &str, values: &[f32]) -> u64 {
        self.bytes(name, &values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect::<Vec<_>>())
    }

    pub fn ints(&mut self, name: &str, values: &[i32]) -> u64 {
        self.bytes(name, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
    }

    pub fn longs(&mut self, name: &str, values: &[u64]) -> u64 {
        self.bytes(name, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
    }

    pub fn read<const N: usize, T>(&self, address: u64, n: usize, decode: fn([u8; N]) -> T) -> Vec<T> {
        let mut bytes = vec![0; n * N];
        self.memory.read(address, &mut bytes).expect("the buffer is as long as that");
        bytes.as_chunks().0.iter().map(|b| decode(*b)).collect()
    }

    pub fn read_floats(&self, address: u64, n: usize) -> Vec<f32> {
        self.read(address, n, f32::from_le_bytes)
    }

    pub fn read_bfloats(&self, address: u64, n: usize) -> Vec<f32> {
        self.read(address, n, |b| bf16::from_le_bytes(b).to_f32())
    }

    pub fn launch(&mut self, kernel: &Kernel, args: &[Arg], seed: u64) -> Report {
        let launch = Launch {
            entry: kernel.entry.clone(),
            grid: kernel.grid,
            block: kernel.block,
            cluster: [1; 3],
            shared_bytes: kernel.shared_bytes,
            params: parameters(args),
        };
        let options = Options { seed, ..Options::default() };
        ptxvm::run(&kernel.module, &mut self.memory, &launch, &options)
            .unwrap_or_else(|e| panic!("{}: {e}", kernel.entry))
    }
}

/// Seeds of the schedules that every kernel runs under.
pub const SEEDS: [u64; 3] = [0, 1, 20];

/// Asserts that every finding is an expected one, and that every expected finding occurs.
pub fn explained(name: &str, report: &Report, expected: &[Expected]) {
    let known = |kind: Kind| expected.iter().any(|e| e.kind == kind);
    let surprises: Vec<String> = report
        .findings
        .iter()
        .filter(|f| !known(f.kind))
        .map(|f| format!("line {}: {:?}: {} ({} times)", f.line, f.kind, f.message, f.count))
        .collect();
    assert!(surprises.is_empty(), "{name}:\n{}", surprises.join("\n"));
    for e in expected {
        assert!(report.findings.iter().any(|f| f.kind == e.kind), "{name}: no {:?}, though {}", e.kind, e.why);
    }
}
