//! a problem  =>  its kernel as PTX, executed in ptxvm: results, findings, counters

use crate::problem::{After, Problem};
use ptxvm::{Launch, Memory, Module, Options, Params, Report};
use sardonyx_base::{DType, Tensor};
use sardonyx_dialects::flow::kernel::Kernel;
use sardonyx_dialects::interp::run_kernel;
use sardonyx_kernels::Target;
use sardonyx_kernels::ptx::gemm::warpgroups::Warpgroups;
use sardonyx_kernels::ptx::gemm::{Gemm, Shape};
use sardonyx_kernels::ptx::{GpuKernel, GpuPlan};
use sardonyx_kernels::{Lowered, lower, ptx};

/// How operands are drawn: numbers in -1..1, or integers in -8..=8, whose sums are exact in every type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    Random,
    Whole,
}

/// Result of a launch.
pub struct Outcome {
    pub values: Vec<f64>,
    pub report: Report,
    /// Values of the launch parameters.
    pub params: Vec<i64>,
    pub lowered: Lowered,
}

/// A problem with random operands.
pub struct Case {
    pub problem: Problem,
    pub kernel: Kernel,
    pub reads: Vec<Tensor>,
}

impl Case {
    pub fn new(problem: Problem, fill: Fill) -> Case {
        let kernel = problem.kernel();
        let mut seed = 0x5EED;
        let mut number = || {
            seed = u64::wrapping_mul(seed, 6364136223846793005).wrapping_add(1442695040888963407);
            match fill {
                Fill::Random => (seed >> 40) as f64 / (1u64 << 23) as f64 - 1.0,
                Fill::Whole => (seed >> 40) as f64 % 17.0 - 8.0,
            }
        };
        // An offset for unsigned bytes, so that no value is negative.
        let zero = |dtype: DType| if dtype == DType::U8 { 247.0 } else { 0.0 };
        let read = |c: &sardonyx_dialects::flow::kernel::Container| {
            let dims: Vec<usize> =
                c.dims.iter().map(|d| d.eval_named(&|s| problem.symbol(s)).unwrap() as usize).collect();
            let values: Vec<f64> = (0..dims.iter().product()).map(|_| number() + zero(c.dtype)).collect();
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

    /// Returns Σ|a·b| for each element of the result, as a scale for its error.
    pub fn magnitude(&self) -> Vec<f64> {
        let plain = Problem { after: After::Nothing, dtype: DType::F32, widened: false, bytes: None, ..self.problem };
        let absolute = |t: &Tensor| {
            let values: Vec<f64> = numbers(t).into_iter().map(f64::abs).collect();
            tensor(DType::F32, t.dims(), &values)
        };
        let reads: Vec<Tensor> =
            self.reads[..2 + self.problem.second.is_some() as usize].iter().map(absolute).collect();
        numbers(&run_kernel(&plain.kernel(), &|s| self.problem.symbol(s), &reads).unwrap()[0])
    }

    /// Returns the tiles that the compiler chooses.
    pub fn usual_shape(&self) -> &'static Shape {
        Gemm::from_def(&lower(&self.kernel).unwrap().def).unwrap().shape
    }

    /// Runs the kernel with tiles of `shape`, or with the tiles that the compiler chooses if it is `None`.
    pub fn run(&self, shape: Option<&'static Shape>) -> Outcome {
        self.run_changed(shape, &|text| text)
    }

    /// As `run`, after `change` has modified the PTX text.
    pub fn run_changed(&self, shape: Option<&'static Shape>, change: &dyn Fn(String) -> String) -> Outcome {
        let lowered = lower(&self.kernel).unwrap();
        let def = &lowered.def;
        let gemm = match shape {
            None => Gemm::from_def(def),
            Some(shape) => Gemm::with_shape(def, shape),
        };
        let gemm = gemm.unwrap_or_else(|| panic!("tensor cores take it: {:?}", self.problem));
        self.run_plan("sm_80", lowered.clone(), Box::new(gemm), change)
    }

    /// Runs the kernel on Hopper with warpgroup tiles of `shape`, or with the plan that the compiler chooses, after
    /// `change` has modified the PTX text.
    pub fn run_on_hopper(&self, shape: Option<&'static Shape>, change: &dyn Fn(String) -> String) -> Outcome {
        let lowered = lower(&self.kernel).unwrap();
        let plan: Box<dyn GpuPlan> = match shape {
            None => lowered.for_gpu(Target::from_ptx("sm_90a").unwrap()).plan,
            Some(shape) => {
                let taken = Warpgroups::with_shape(&lowered.def, shape);
                Box::new(taken.unwrap_or_else(|| panic!("warpgroups take it: {:?}", self.problem)))
            }
        };
        self.run_plan("sm_90a", lowered.clone(), plan, change)
    }

    fn run_plan(
        &self,
        target: &str,
        lowered: Lowered,
        plan: Box<dyn GpuPlan>,
        change: &dyn Fn(String) -> String,
    ) -> Outcome {
        let (def, target) = (&lowered.def, Target::from_ptx(target).unwrap());
        let mut ptx = GpuKernel { def, target, plan }.emit("k").unwrap();
        ptx.text = change(ptx.text);
        let params: Vec<i64> =
            lowered.params.iter().map(|d| d.eval_named(&|s| self.problem.symbol(s)).unwrap()).collect();
        let grid = ptx.launch.grid.eval_params(&params).unwrap();
        let mut memory = Memory::new();
        let mut list = Params::new();
        for (i, (t, c)) in self.reads.iter().zip(&self.kernel.reads).enumerate() {
            let bytes = c.encoding.encoded(t).unwrap();
            let at = memory.alloc(bytes.len(), &format!("b{i}"));
            memory.write(at, &bytes).unwrap();
            list = list.u64(at);
        }
        let symbol = |s: &str| self.problem.symbol(s);
        let dims: Vec<usize> =
            self.kernel.writes[0].dims.iter().map(|d| d.eval_named(&symbol).unwrap() as usize).collect();
        let dtype = self.problem.dtype;
        let bytes = dims.iter().product::<usize>() * dtype.bytes();
        let result = memory.alloc(bytes, &format!("b{}", self.reads.len()));
        let status = memory.alloc(8, "status");
        memory.write(status, &[0; 8]).unwrap();
        list = params.iter().fold(list.u64(result), |list, p| list.i64(*p)).u64(status);
        let mut report = Report::default();
        if grid > 0 {
            let module = Module::parse(&ptx::module(target, std::slice::from_ref(&ptx))).unwrap();
            let mut launch = Launch::new("k", grid as u32, ptx.launch.block, list.build());
            launch.shared_bytes = ptx.launch.shared_bytes;
            report = ptxvm::run(&module, &mut memory, &launch, &Options::default()).unwrap();
        }
        let mut out = vec![0; bytes];
        memory.read(result, &mut out).unwrap();
        let values = numbers(&Tensor::new(dtype, dims, out.into()).unwrap());
        Outcome { values, report, params, lowered }
    }
}

fn tensor(dtype: DType, dims: &[usize], values: &[f64]) -> Tensor {
    let bytes: Vec<u8> = match dtype {
        DType::F16 => values.iter().flat_map(|v| half::f16::from_f64(*v).to_le_bytes()).collect(),
        DType::BF16 => values.iter().flat_map(|v| half::bf16::from_f64(*v).to_le_bytes()).collect(),
        DType::I8 | DType::U8 => values.iter().map(|v| *v as i64 as u8).collect(),
        _ => values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect(),
    };
    Tensor::new(dtype, dims.to_vec(), bytes.into()).unwrap()
}

fn numbers(t: &Tensor) -> Vec<f64> {
    let half = |c: &[u8]| [c[0], c[1]];
    match t.dtype() {
        DType::F16 => t.bytes().chunks(2).map(|c| half::f16::from_le_bytes(half(c)).to_f64()).collect(),
        DType::BF16 => t.bytes().chunks(2).map(|c| half::bf16::from_le_bytes(half(c)).to_f64()).collect(),
        DType::I8 | DType::U8 | DType::I32 => (0..t.len()).map(|i| t.get_f64(i).unwrap()).collect(),
        _ => t.bytes().chunks(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]]) as f64).collect(),
    }
}
