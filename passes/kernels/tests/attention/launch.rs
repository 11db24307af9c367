//! an attention problem  =>  its kernel as PTX, executed in ptxvm: results, findings, counters

use crate::problem::Problem;
use ptxvm::{Launch, Memory, Module, Options, Params, Report};
use sardonyx_base::{DType, Tensor};
use sardonyx_dialects::flow::kernel::{Container, Kernel, Layout};
use sardonyx_dialects::interp::run_kernel;
use sardonyx_kernels::ptx::attention::Flash;
use sardonyx_kernels::ptx::{GpuKernel, GpuPlan, Traffic};
use sardonyx_kernels::{Lowered, Target, lower, ptx};

/// Result of a launch.
pub struct Outcome {
    pub values: Vec<f64>,
    pub report: Report,
    /// The traffic of each buffer, in sectors, as the compiler predicts it.
    pub stated: Vec<Traffic>,
    pub lowered: Lowered,
}

/// A launch with at most this many queries always uses the variant for few rows; a launch with more queries uses it
/// only if the other variant would have too few blocks.
const ROWS: i64 = 16;

/// The GPU of most launches, and the one that has warpgroups.
const AMPERE: &str = "sm_80";
pub const HOPPER: &str = "sm_90a";

/// A problem with random operands.
pub struct Case {
    pub problem: Problem,
    pub kernel: Kernel,
    pub reads: Vec<Tensor>,
}

impl Case {
    /// Draws the operands: numbers in -1..1, and bools of which about a quarter are false.
    pub fn new(problem: Problem) -> Case {
        let kernel = problem.kernel();
        let mut seed = 0x5EED;
        let mut number = || {
            seed = u64::wrapping_mul(seed, 6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 40) as f64 / (1u64 << 23) as f64 - 1.0
        };
        let read = |c: &Container| {
            let dims = sizes(&problem, c);
            let values: Vec<f64> = (0..dims.iter().product()).map(|_| number()).collect();
            tensor(c.dtype, &dims, &values)
        };
        let reads = kernel.reads.iter().map(read).collect();
        Case { problem, kernel, reads }
    }

    /// Returns the results of the interpreter, which accumulates in f64.
    pub fn expected(&self) -> Vec<f64> {
        let results = run_kernel(&self.kernel, &|s| self.problem.symbol(s), &self.reads).unwrap();
        numbers(&results[0])
    }

    /// Returns the index in `reads` of the mask that is added to scores: the first operand whose last extent is the
    /// number of keys.
    pub fn mask(&self) -> usize {
        let mask = [self.problem.keys as usize];
        let is_mask = |t: &&Tensor| t.dims().ends_with(&mask);
        let found = self.reads.iter().find(is_mask).expect("there is a mask");
        self.reads.iter().position(|t| std::ptr::eq(t, found)).unwrap_or(0)
    }

    pub fn run(&self) -> Outcome {
        self.run_changed(&|text| text)
    }

    /// Runs the kernel after `change` has modified its PTX text.
    pub fn run_changed(&self, change: &dyn Fn(String) -> String) -> Outcome {
        self.run_on(AMPERE, change)
    }

    /// Runs the variant that the compiler chooses for a GPU, after `change` has modified the PTX text.
    pub fn run_on(&self, target: &str, change: &dyn Fn(String) -> String) -> Outcome {
        let lowered = lower(&self.kernel).unwrap();
        let plan = lowered.for_gpu(Target::from_ptx(target).unwrap()).plan;
        self.run_plan(target, lowered.clone(), plan, change)
    }

    /// Runs the variant with large blocks of rows, even if the launch would select the variant for few rows because the
    /// large blocks are too few. Returns `None` for at most `ROWS` queries or if tensor cores cannot be used.
    pub fn run_many(&self, change: &dyn Fn(String) -> String) -> Option<Outcome> {
        let lowered = lower(&self.kernel).unwrap();
        let many = Flash::of_many(&lowered.def).filter(|_| self.problem.queries > ROWS)?;
        Some(self.run_plan(AMPERE, lowered, Box::new(many), change))
    }

    /// Runs the variant with warpgroups, however few rows there are. Returns `None` if they cannot multiply the factors.
    pub fn run_warpgroups(&self, change: &dyn Fn(String) -> String) -> Option<Outcome> {
        let lowered = lower(&self.kernel).unwrap();
        let plan = Flash::of_warpgroups(&lowered.def)?;
        Some(self.run_plan(HOPPER, lowered, Box::new(plan), change))
    }

    fn run_plan(
        &self,
        target: &str,
        lowered: Lowered,
        plan: Box<dyn GpuPlan>,
        change: &dyn Fn(String) -> String,
    ) -> Outcome {
        let target = Target::from_ptx(target).unwrap();
        let kernel = GpuKernel { def: &lowered.def, target, plan };
        let mut ptx = kernel.emit("k").unwrap();
        ptx.text = change(ptx.text);
        let symbol = |s: &str| self.problem.symbol(s);
        let params: Vec<i64> = lowered.params.iter().map(|d| d.eval_named(&symbol).unwrap()).collect();
        let grid = ptx.launch.grid.eval_params(&params).unwrap();
        let mut memory = Memory::new();
        let mut list = Params::new();
        for (i, (t, c)) in self.reads.iter().zip(&self.kernel.reads).enumerate() {
            let at = memory.alloc(room_bytes(&self.problem, c).max(1), &format!("b{i}"));
            place(&mut memory, at, t, &self.problem, c);
            list = list.u64(at);
        }
        let result = &self.kernel.writes[0];
        let dims = sizes(&self.problem, result);
        let bytes = room_bytes(&self.problem, result);
        let out = memory.alloc(bytes.max(1), &format!("b{}", self.reads.len()));
        let status = memory.alloc(8, "status");
        memory.write(status, &[0; 8]).unwrap();
        list = params.iter().fold(list.u64(out), |list, p| list.i64(*p)).u64(status);
        let mut report = Report::default();
        if grid > 0 {
            let module = Module::parse(&ptx::module(target, std::slice::from_ref(&ptx))).unwrap();
            let mut launch = Launch::new("k", grid as u32, ptx.launch.block, list.build());
            launch.shared_bytes = ptx.launch.shared_bytes;
            report = ptxvm::run(&module, &mut memory, &launch, &Options::default()).unwrap();
        }
        let mut read = vec![0; bytes];
        memory.read(out, &mut read).unwrap();
        let values = numbers(&Tensor::new(result.dtype, dims, read.into()).unwrap());
        let stated = kernel.movement(&params);
        drop(kernel);
        Outcome { values, report, stated, lowered }
    }
}

fn sizes(problem: &Problem, c: &Container) -> Vec<usize> {
    c.dims.iter().map(|d| d.eval_named(&|s| problem.symbol(s)).unwrap() as usize).collect()
}

fn room_bytes(problem: &Problem, c: &Container) -> usize {
    let dims = c.memory_dims();
    let n: i64 = dims.iter().map(|d| d.eval_named(&|s| problem.symbol(s)).unwrap()).product();
    n as usize * (c.dtype.bits() as usize).max(8) / 8
}

/// Writes a tensor to the address `at`. The spare capacity of a cache stays uninitialised, so that the simulator
/// reports any read of it.
fn place(memory: &mut Memory, at: u64, t: &Tensor, problem: &Problem, c: &Container) {
    let Layout::Capacity { axis, size } = &c.layout else {
        return memory.write(at, t.bytes()).unwrap();
    };
    let dims = sizes(problem, c);
    let element = t.dtype().bytes();
    let run: usize = dims[*axis..].iter().product::<usize>() * element;
    let room = size.eval_named(&|s| problem.symbol(s)).unwrap() as usize;
    let pitch: usize = dims[*axis + 1..].iter().product::<usize>() * room * element;
    for (i, part) in t.bytes().chunks(run.max(1)).enumerate() {
        memory.write(at + (i * pitch) as u64, part).unwrap();
    }
}

pub fn tensor(dtype: DType, dims: &[usize], values: &[f64]) -> Tensor {
    let bytes: Vec<u8> = match dtype {
        DType::F16 => values.iter().flat_map(|v| half::f16::from_f64(*v).to_le_bytes()).collect(),
        DType::BF16 => values.iter().flat_map(|v| half::bf16::from_f64(*v).to_le_bytes()).collect(),
        DType::F64 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::Bool => values.iter().map(|v| (*v > -0.5) as u8).collect(),
        _ => values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect(),
    };
    Tensor::new(dtype, dims.to_vec(), bytes.into()).unwrap()
}

pub fn numbers(t: &Tensor) -> Vec<f64> {
    let half = |c: &[u8]| [c[0], c[1]];
    match t.dtype() {
        DType::F16 => t.bytes().chunks(2).map(|c| half::f16::from_le_bytes(half(c)).to_f64()).collect(),
        DType::BF16 => t.bytes().chunks(2).map(|c| half::bf16::from_le_bytes(half(c)).to_f64()).collect(),
        DType::F64 => t.to_vec::<f64>().unwrap(),
        _ => t.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect(),
    }
}
