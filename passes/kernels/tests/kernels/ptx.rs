//! a kernel of the CPU tests  =>  its PTX, run on the simulator; the results are compared with the interpreter's

use crate::harness::{Case, compare, places, room_bytes, some};
use ptxvm::{AllocationCounters, Launch, Memory, Module, Options, Params, Report, run};
use sardonyx_dialects::flow::kernel::Layout;
use sardonyx_dialects::interp::run_kernel;
use sardonyx_kernels::Target;
use sardonyx_kernels::ptx::module;
use sardonyx_kernels::{Lowered, lower};

/// Result of a launch.
pub struct Outcome {
    pub results: Vec<Vec<u8>>,
    pub status: i64,
    pub report: Report,
    pub params: Vec<i64>,
}

impl Outcome {
    /// Returns the counters of a buffer; `None` if the launch did not touch the buffer.
    pub fn counters(&self, buffer: usize) -> Option<&AllocationCounters> {
        self.report.counters.allocations.iter().find(|a| a.name == format!("b{buffer}"))
    }
}

/// Launches a kernel once over the whole grid, on sm_80.
pub fn launch(lowered: &Lowered, case: &Case, seed: u64) -> Outcome {
    launch_on("sm_80", lowered, case, seed)
}

pub fn launch_on(target: &str, lowered: &Lowered, case: &Case, seed: u64) -> Outcome {
    let value = |s: &str| case.value(s);
    let target = Target::from_ptx(target).unwrap();
    let kernel = lowered.for_gpu(target).emit("k").unwrap();
    let text = module(target, std::slice::from_ref(&kernel));
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{}: {e}\n{text}", case.name));
    let mut memory = Memory::new();
    let mut buffers = vec![];
    for (container, tensor) in case.kernel.reads.iter().zip(&case.reads) {
        let name = format!("b{}", buffers.len());
        let address = match container.layout {
            Layout::RowMajor => filled(&mut memory, &name, &container.encoding.encoded(tensor).unwrap()),
            Layout::Capacity { .. } | Layout::Order(_) => {
                // The spare capacity stays uninitialised, so that the simulator reports any read of it.
                let address = memory.alloc(room_bytes(container, &value).max(1), &name);
                let elements = tensor.bytes().chunks_exact(tensor.dtype().bytes());
                for (element, at) in elements.zip(places(container, &value)) {
                    memory.write(address + at.start as u64, element).unwrap();
                }
                address
            }
        };
        buffers.push(address);
    }
    for container in &case.kernel.writes {
        let name = format!("b{}", buffers.len());
        buffers.push(memory.alloc(room_bytes(container, &value).max(1), &name));
    }
    let status = filled(&mut memory, "status", &[0; 8]);
    let params: Vec<i64> = lowered.params.iter().map(|d| d.eval_named(&value).unwrap()).collect();
    let grid = kernel.launch.grid.eval_params(&params).unwrap();
    let mut report = Report::default();
    if grid > 0 {
        let words = buffers.iter().fold(Params::new(), |all, b| all.u64(*b));
        let words = params.iter().fold(words, |all, p| all.i64(*p)).u64(status);
        let launch = Launch::new("k", grid as u32, kernel.launch.block, words.build());
        let launch = Launch { shared_bytes: kernel.launch.shared_bytes, ..launch };
        let options = Options { seed, ..Options::default() };
        report = run(&module, &mut memory, &launch, &options).unwrap_or_else(|e| panic!("{}: {e}\n{text}", case.name));
    }
    let mut word = [0; 8];
    memory.read(status, &mut word).unwrap();
    let mut results = vec![];
    for (container, address) in case.kernel.writes.iter().zip(&buffers[case.reads.len()..]) {
        let mut room = vec![0; room_bytes(container, &value)];
        memory.read(*address, &mut room).unwrap();
        results.push(places(container, &value).into_iter().flat_map(|at| room[at].to_vec()).collect());
    }
    Outcome { results, status: i64::from_le_bytes(word), report, params }
}

fn filled(memory: &mut Memory, name: &str, bytes: &[u8]) -> u64 {
    let address = memory.alloc(bytes.len().max(1), name);
    memory.write(address, bytes).unwrap();
    address
}

/// Checks the cases that are drawn for this test run: the results must agree with the interpreter's, and the simulator
/// must report no findings.
pub fn check(cases: &[Case]) {
    check_on("sm_80", cases);
}

pub fn check_on(target: &str, cases: &[Case]) {
    let mut failures = vec![];
    for (i, case) in some(cases).into_iter().enumerate() {
        let lowered = lower(&case.kernel).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let outcome = launch_on(target, &lowered, case, i as u64);
        let expected = run_kernel(&case.kernel, &|s| case.value(s), &case.reads);
        let expected = expected.unwrap_or_else(|e| panic!("{}: {e}", case.name));
        if outcome.status != 0 {
            failures.push(format!("{} ptx: an index out of range", case.name));
        }
        for (bytes, expected) in outcome.results.iter().zip(&expected) {
            if let Err(e) = compare(case, bytes, expected) {
                failures.push(format!("{} ptx: {e}", case.name));
            }
        }
        for finding in &outcome.report.findings {
            failures.push(format!("{} ptx line {}: {}", case.name, finding.line, finding.message));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
