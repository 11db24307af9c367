//! a launch, a device  =>  the words that its code requests from outside a core, and a lower bound for any code
//!
//! On a CPU, *scheduled* words are the words that a core would fetch from beyond its largest private cache if it
//! executed the whole launch, and the words that it would write. The model finds the outermost loop whose complete
//! working set fits the cache. An operand is fetched once per execution of this loop. However, if the next outer loop
//! does not index the operand, the operand is fetched once for all iterations of that outer loop. The size of cache
//! lines, other users of the cache and sharing between cores are ignored. On a GPU, scheduled words are those that
//! warps request from global memory, in whole sectors (`GpuKernel::movement`).
//!
//! The *lower bound* is the maximum of the algebraic words and, for a contraction with `p` multiplications, 2·p / √S −
//! 2·S·cores: with S words of fast memory per core, no matrix multiplication can move fewer words ("A Tight I/O Lower
//! Bound for Matrix Multiplication", 2019); the second term accounts for the words in each core's memory at the start
//! and at the end.

use sardonyx_base::DType;
use sardonyx_base::{Error, Result};
use sardonyx_kernels::def::{KernelDef, Op, Size, VarSet};
use sardonyx_kernels::device_spec::{DeviceSpec, Per};
use sardonyx_kernels::nest::Loop;
use sardonyx_kernels::ptx::movement::SECTOR_BYTES;
use sardonyx_kernels::{Lowered, Target};

/// The properties of a device that determine how many words must be moved.
#[derive(Clone, Debug)]
pub struct FastMemory {
    /// Bytes of memory private to one core.
    pub bytes: i64,
    /// Number of CPU cores or multiprocessors.
    pub cores: i64,
    /// The target of a GPU's code; `None` for a CPU.
    pub ptx: Option<Target>,
}

impl FastMemory {
    /// Returns the properties of a device. The fast memory of a core is the largest memory that is private to it, plus
    /// the registers on a GPU. Errors: E0406 if the device description lacks the size of that memory or the number of
    /// cores.
    pub fn from_spec(spec: &DeviceSpec) -> Result<FastMemory> {
        let own = spec.memory.iter().filter(|m| m.per == Per::Core).filter_map(|m| m.bytes.value).max();
        let registers = spec.gpu.as_ref().and_then(|g| g.registers.value).unwrap_or(0) * 4;
        let (Some(own), Some(cores)) = (own, spec.cores.value) else {
            return Err(Error::user("E0406", format!("`{}` has no size of a core's memory or no cores", spec.name))
                .help("`sardonyx devices NAME --toml` shows a whole description"));
        };
        let ptx = Target::from_name(&spec.target).filter(|target| target.ptx().is_some());
        Ok(FastMemory { bytes: (own + registers) as i64, cores: cores as i64, ptx })
    }
}

/// Returns the words that a launch requests for each buffer, operands before results. `once` gives the algebraic words
/// of each buffer.
pub fn scheduled(lowered: &Lowered, params: &[i64], once: &[i64], memory: &FastMemory) -> Vec<i64> {
    let Some(target) = memory.ptx else { return cpu(lowered, params, once, memory.bytes) };
    let traffic = lowered.for_gpu(target).movement(params);
    let bytes = |b: usize| element_bytes(&lowered.def, b);
    traffic.iter().enumerate().map(|(b, t)| t.scheduled * SECTOR_BYTES / bytes(b)).collect()
}

/// Returns a lower bound on the words that a kernel with `once` algebraic words moves; `products` has the number of
/// multiplications and the element type of a contraction, and is `None` for other kernels.
pub fn lower_bound(once: i64, products: Option<(i64, DType)>, memory: &FastMemory) -> i64 {
    let Some((products, dtype)) = products else { return once };
    let fast = memory.bytes as f64 / dtype.bytes() as f64;
    let bound = 2.0 * products as f64 / fast.sqrt() - 2.0 * fast * memory.cores as f64;
    once.max(bound as i64)
}

fn element_bytes(def: &KernelDef, buffer: usize) -> i64 {
    let all = def.reads.iter().chain(&def.writes);
    all.map(|s| s.dtype.bytes() as i64).nth(buffer).unwrap_or(1)
}

/// How the code accesses one buffer.
struct Touched {
    vars: VarSet,
    /// Number of passes over the inner space that access the buffer.
    passes: i64,
}

fn cpu(lowered: &Lowered, params: &[i64], once: &[i64], cache_bytes: i64) -> Vec<i64> {
    let (def, nest) = (&lowered.def, lowered.nest(params));
    let touched = touched(def, &nest.passes);
    let extents: Vec<i64> = (0..def.n_vars()).map(|v| size(def.extent(v), params)).collect();
    // Returns how much of a variable's extent the loops from `level` on cover.
    let inside = |level: usize, var: usize| {
        let around = nest.loops[..level].iter().filter_map(|l| match l {
            Loop::Var { var: v, step } if *v == var => Some(*step),
            Loop::Var { .. } | Loop::Passes => None,
        });
        around.fold(extents[var], i64::min)
    };
    let product = |vars: VarSet, of: &dyn Fn(usize) -> i64| {
        (0..def.n_vars()).filter(|v| vars >> v & 1 == 1).fold(1i64, |p, v| p.saturating_mul(of(v)))
    };
    let footprint = |level: usize| {
        let bytes = |(b, t): (usize, &Touched)| {
            product(t.vars, &|v| inside(level, v)).min(once[b]).saturating_mul(element_bytes(def, b))
        };
        touched.iter().enumerate().map(bytes).fold(0i64, i64::saturating_add)
    };
    let level = (0..nest.loops.len()).find(|l| footprint(*l) <= cache_bytes).unwrap_or(nest.loops.len());
    let words = |(b, t): (usize, &Touched)| {
        // Of the loops outside `level`, the innermost is excluded, because its iterations find the data of the previous
        // iteration in the cache.
        let around = &nest.loops[..level.saturating_sub(1)];
        let mut words = once[b];
        for var in (0..def.n_vars()).filter(|v| t.vars >> v & 1 == 0) {
            let steps = around.iter().filter_map(|l| match l {
                Loop::Var { var: v, step } => (*v == var).then_some(*step),
                Loop::Passes => None,
            });
            let times = steps.min().map_or(1, |step| (extents[var] + step - 1) / step);
            words = words.saturating_mul(times);
        }
        let repeated = around.iter().any(|l| matches!(l, Loop::Passes));
        if repeated { words.saturating_mul(t.passes) } else { words }
    };
    let reads = touched.iter().enumerate().take(def.reads.len()).map(words);
    reads.chain(once[def.reads.len()..].iter().copied()).collect()
}

fn touched(def: &KernelDef, passes: &[i64]) -> Vec<Touched> {
    let deps = def.dependences();
    let mut touched: Vec<Touched> =
        (0..def.reads.len() + def.writes.len()).map(|_| Touched { vars: 0, passes: 1 }).collect();
    for (k, step) in def.body.iter().enumerate() {
        if let Op::Load { access, .. } = &step.op {
            let t = &mut touched[access.buffer];
            t.vars |= def.access_vars(access, &deps);
            t.passes = t.passes.max(passes[k]);
        }
    }
    for write in &def.stores {
        touched[def.reads.len() + write.access.buffer].vars |= def.access_vars(&write.access, &deps);
    }
    touched
}

fn size(s: Size, params: &[i64]) -> i64 {
    s.dim().eval_params(params).unwrap_or(0)
}
