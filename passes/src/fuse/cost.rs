//! program  =>  estimated picoseconds on a device: words moved, operations, launches

use crate::steps::kernel;
use crate::usual::USUAL;
use sardonyx_base::dim::Symbol;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::{Body, Kernel, Memlet, Merging, Program};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_kernels::{Pace, Rates, Target};
use std::collections::BTreeMap;

const PS: f64 = 1e12;
/// Factor by which memory accesses cost more if the elements of a vector are not contiguous.
const SCATTERED: f64 = 4.0;
/// Fraction of the peak rate of operations that code other than a contraction's register blocks reaches.
const ELEMENTWISE_SHARE: f64 = 0.25;

/// Cost model of a device: bytes, operations and launches.
pub struct Costs {
    pub target: Target,
    rates: Rates,
}

impl Costs {
    pub fn new(target: Target) -> Costs {
        Costs { target, rates: target.rates() }
    }

    /// Returns the overhead of each kernel launch, in picoseconds.
    pub fn launch(&self) -> u64 {
        (self.rates.launch_s * PS) as u64
    }

    /// Returns the time of a contraction at the rate of bf16 that makes `share` of the operations of kernel `k`, in
    /// picoseconds.
    pub fn on_tensor_cores(&self, k: &Kernel, program: &Program, share: f64) -> u64 {
        let [moved, computed] = self.work(k, program, Pace::FULL);
        let slower = self.rates.contract_ops_per_s / self.rates.contract_bf16_ops_per_s;
        (self.rates.launch_s * PS + moved + computed * slower * share) as u64
    }

    /// Returns the picoseconds saved if this many bytes are written to the cache and read from it, rather than from
    /// memory; 0 if they do not fit.
    pub fn kept(&self, bytes: u64) -> u64 {
        let bytes = bytes as f64;
        match self.rates.cache {
            Some((size, rate)) if bytes <= size => {
                (2.0 * bytes * (PS / self.rates.bytes_per_s - PS / rate)).max(0.0) as u64
            }
            Some(_) | None => 0,
        }
    }

    pub fn program(&self, program: &Program) -> u64 {
        program.steps.iter().filter_map(kernel).map(|k| self.kernel(k, program)).fold(0, u64::saturating_add)
    }

    /// Returns the number of operations, in units of a multiplication in a contraction.
    pub fn operations(&self, program: &Program) -> f64 {
        program.steps.iter().filter_map(kernel).map(|k| Sizes { program }.ops(k, &variables(k))).sum()
    }

    pub fn kernel(&self, k: &Kernel, program: &Program) -> u64 {
        self.paced(k, program, Pace::FULL)
    }

    /// Returns the time of a kernel whose code, as `pace` describes it, reaches only a fraction of the peak rate and
    /// makes scattered accesses.
    pub fn paced(&self, k: &Kernel, program: &Program, pace: Pace) -> u64 {
        let [moved, computed] = self.work(k, program, pace);
        (self.rates.launch_s * PS + moved + computed) as u64
    }

    /// Returns the time for moving words and the time for operations, in picoseconds.
    pub fn work(&self, k: &Kernel, program: &Program, pace: Pace) -> [f64; 2] {
        let (sizes, vars) = (Sizes { program }, variables(k));
        let dearer = 1.0 + pace.scattered * (SCATTERED - 1.0);
        let moved = sizes.bytes(k, &vars) * PS / self.rates.bytes_per_s * dearer;
        let computed = sizes.ops(k, &vars) * PS / self.rates.contract_ops_per_s / pace.share;
        [moved, computed]
    }
}

/// Evaluates sizes at typical values of the symbols.
struct Sizes<'p> {
    program: &'p Program,
}

impl Sizes<'_> {
    fn value(&self, d: &Dim) -> f64 {
        let symbol = |name: &str| {
            let known = self.program.symbols.get(name);
            let (lo, hi) = known.map_or((0, i64::MAX), |s| (s.lo, s.hi.unwrap_or(i64::MAX)));
            Some(USUAL.other.min(hi).max(lo))
        };
        d.eval_named(&symbol).map_or(0.0, |n| n.max(0) as f64)
    }

    fn product(&self, dims: &mut dyn Iterator<Item = &Dim>) -> f64 {
        dims.map(|d| self.value(d)).product()
    }

    /// Returns the bytes of all elements that are read or written, each counted once. An operand counts as many
    /// elements as its indices take values, which is the product of the extents of the variables in them, but at most
    /// its size.
    fn bytes(&self, k: &Kernel, vars: &[Vars]) -> f64 {
        let mut read: BTreeMap<usize, Vec<&Memlet>> = BTreeMap::new();
        let mut total = 0.0;
        for statement in &k.body {
            if let Body::Load { memlet, .. } = &statement.body {
                let known = read.entry(memlet.container).or_default();
                if !known.contains(&memlet) {
                    known.push(memlet);
                }
            }
        }
        for (container, memlets) in read {
            let c = &k.reads[container];
            let points: f64 = memlets.iter().map(|m| self.points(k, used(&m.index, vars))).sum();
            total += points.min(self.product(&mut c.dims.iter())) * c.dtype.bits() as f64 / 8.0;
        }
        for store in &k.stores {
            let c = &k.writes[store.memlet.container];
            total += self.points(k, used(&store.memlet.index, vars)) * c.dtype.bits() as f64 / 8.0;
        }
        total
    }

    fn points(&self, k: &Kernel, vars: Vars) -> f64 {
        self.product(&mut k.extents().enumerate().filter(|(v, _)| vars & var(*v) != 0).map(|(_, d)| d))
    }

    /// Returns the number of operations, in units of a multiplication in a contraction.
    fn ops(&self, k: &Kernel, vars: &[Vars]) -> f64 {
        let share = if k.class().multiplies() { 1.0 } else { ELEMENTWISE_SHARE };
        let one = |(s, own): (&sardonyx_dialects::flow::Statement, &Vars)| {
            let weight = match &s.body {
                Body::Load { .. } | Body::Const(_) => 0.0,
                // Conversions between f16 and f32 are not counted; other conversions and index values take extra
                // instructions.
                Body::Convert(from, _) if is_half(k.body[*from].dtype, s.dtype) => 0.0,
                Body::Index(_) | Body::Convert(_, _) => 1.0 / ELEMENTWISE_SHARE,
                Body::Apply { f, .. } => weight(*f) / share.min(if weight(*f) > 1.0 { ELEMENTWISE_SHARE } else { 1.0 }),
                Body::Reduce { arg, .. } => return self.points(k, reduced(k, vars[*arg])) / share,
            };
            let around = match k.class().merging() {
                // The generated code hoists values that are the same for all keys, or for all rows.
                Merging::Whole => *own,
                // Loops are nested: a value is recomputed in each iteration of the innermost loop that it depends on,
                // and of all loops around that loop.
                Merging::Points | Merging::Rows | Merging::Products => {
                    before(Vars::BITS as usize - own.leading_zeros() as usize)
                }
            };
            weight * self.points(k, around)
        };
        k.body.iter().zip(vars).map(one).sum()
    }
}

/// Whether a conversion widens f16 to f32 or rounds f32 to f16.
fn is_half(from: DType, to: DType) -> bool {
    matches!((from, to), (DType::F16, DType::F32) | (DType::F32, DType::F16))
}

/// Returns the variables over which a reduction iterates: its whole reduction space, and the outer variables on which
/// its argument depends. `vars` are the variables of the argument.
fn reduced(k: &Kernel, vars: Vars) -> Vars {
    let (outer, inner) = (k.outer.len(), k.outer.len() + k.inner.len());
    let is_deep = vars & !before(inner) != 0;
    vars | if is_deep { before(k.n_vars()) & !before(inner) } else { before(inner) & !before(outer) }
}

fn weight(f: ScalarFn) -> f64 {
    match f {
        ScalarFn::Exp | ScalarFn::Log | ScalarFn::Tanh | ScalarFn::Erf | ScalarFn::Sin | ScalarFn::Cos => 16.0,
        ScalarFn::Atan => 16.0,
        ScalarFn::Pow => 32.0,
        ScalarFn::Div | ScalarFn::Sqrt | ScalarFn::Rem => 4.0,
        ScalarFn::Abs | ScalarFn::Add | ScalarFn::And | ScalarFn::Ceil | ScalarFn::Eq | ScalarFn::Floor => 1.0,
        ScalarFn::IsNan | ScalarFn::Le | ScalarFn::Lt | ScalarFn::Max | ScalarFn::Min | ScalarFn::Mul => 1.0,
        ScalarFn::Neg | ScalarFn::Not | ScalarFn::Or | ScalarFn::Round | ScalarFn::Select => 1.0,
        ScalarFn::Sign | ScalarFn::Sub | ScalarFn::Xor => 1.0,
        ScalarFn::BitAnd | ScalarFn::BitOr | ScalarFn::BitXor | ScalarFn::Shl | ScalarFn::Shr => 1.0,
    }
}

/// A bit set of iteration variables; no kernel has more than 128 variables.
type Vars = u128;

fn var(v: usize) -> Vars {
    u32::try_from(v).ok().and_then(|v| Vars::checked_shl(1, v)).unwrap_or(0)
}

/// Returns the set of the first n variables.
fn before(n: usize) -> Vars {
    var(n).wrapping_sub(1)
}

fn used(index: &[Dim], vars: &[Vars]) -> Vars {
    let one = |symbol| match symbol {
        Symbol::Variable(v) => var(v),
        Symbol::Statement(k) => vars.get(k).copied().unwrap_or(0),
        _ => 0,
    };
    index.iter().flat_map(|d| d.symbols()).fold(0, |all, symbol| all | one(symbol))
}

/// Returns the iteration variables on which each statement depends.
fn variables(k: &Kernel) -> Vec<Vars> {
    let (outer, inner) = (before(k.outer.len()), before(k.outer.len() + k.inner.len()));
    let mut vars: Vec<Vars> = Vec::with_capacity(k.body.len());
    for statement in &k.body {
        vars.push(match &statement.body {
            Body::Load { memlet, guard } => {
                guard.iter().fold(used(&memlet.index, &vars), |all, guard| all | vars[*guard])
            }
            Body::Const(_) => 0,
            Body::Index(d) => used(std::slice::from_ref(d), &vars),
            Body::Apply { args, .. } => args.iter().fold(0, |all, arg| all | vars[*arg]),
            Body::Convert(arg, _) => vars[*arg],
            Body::Reduce { arg, .. } if vars[*arg] & !inner != 0 => vars[*arg] & inner,
            Body::Reduce { arg, .. } => vars[*arg] & outer,
        });
    }
    vars
}
