//! program  =>  the picoseconds that a device needs: words moved, operations, launches

use crate::steps::kernel;
use crate::usual::USUAL;
use sardonyx_base::Dim;
use sardonyx_dialects::flow::{Body, Kernel, Memlet, Merging, Program};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_kernels::{Rates, Target};
use std::collections::{BTreeMap, BTreeSet};

const PS: f64 = 1e12;
/// Beside a contraction's register blocks other code reaches this part of the peak.
const ELEMENTWISE_SHARE: f64 = 0.25;

/// What a device takes for bytes, operations and launches.
pub struct Costs {
    pub target: Target,
    rates: Rates,
}

impl Costs {
    pub fn new(target: Target) -> Costs {
        Costs { target, rates: target.rates() }
    }

    /// What each kernel needs beside its work.
    pub fn launch(&self) -> u64 {
        (self.rates.launch_s * PS) as u64
    }

    /// What is saved where so many bytes are written and read again while they are in the cache.
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

    /// What is computed, counted as the rate of a multiplication in a contraction has it.
    pub fn operations(&self, program: &Program) -> f64 {
        program.steps.iter().filter_map(kernel).map(|k| Sizes { program }.ops(k)).sum()
    }

    pub fn kernel(&self, k: &Kernel, program: &Program) -> u64 {
        self.paced(k, program, 1.0, 1.0)
    }

    /// Where the code reaches a share of its rate only, and words cost so many times as much.
    pub fn paced(&self, k: &Kernel, program: &Program, share: f64, dearer: f64) -> u64 {
        let sizes = Sizes { program };
        let moved = sizes.bytes(k) * PS / self.rates.bytes_per_s * dearer;
        let computed = sizes.ops(k) * PS / self.rates.contract_ops_per_s / share;
        (self.rates.launch_s * PS + moved + computed) as u64
    }
}

/// Sizes at the usual values of the symbols.
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
        d.eval(&symbol).map_or(0.0, |n| n.max(0) as f64)
    }

    fn product(&self, dims: &mut dyn Iterator<Item = &Dim>) -> f64 {
        dims.map(|d| self.value(d)).product()
    }

    /// Every element that is read or written, once: of an operand as many as the variables in its indices have points,
    /// and no more than it has.
    fn bytes(&self, k: &Kernel) -> f64 {
        let mut read: BTreeMap<usize, Vec<&Memlet>> = BTreeMap::new();
        let vars = variables(k);
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
            let points: f64 = memlets.iter().map(|m| self.points(k, &used(&m.index, &vars))).sum();
            total += points.min(self.product(&mut c.dims.iter())) * c.dtype.bits() as f64 / 8.0;
        }
        for store in &k.stores {
            let c = &k.writes[store.memlet.container];
            total += self.points(k, &used(&store.memlet.index, &vars)) * c.dtype.bits() as f64 / 8.0;
        }
        total
    }

    fn points(&self, k: &Kernel, vars: &BTreeSet<usize>) -> f64 {
        self.product(&mut k.extents().enumerate().filter(|(v, _)| vars.contains(v)).map(|(_, d)| d))
    }

    /// Operations at the rate of a multiplication in a contraction.
    fn ops(&self, k: &Kernel) -> f64 {
        let vars = variables(k);
        let share = if k.class().multiplies() { 1.0 } else { ELEMENTWISE_SHARE };
        let one = |(s, vars): (&sardonyx_dialects::flow::Statement, &BTreeSet<usize>)| {
            let weight = match &s.body {
                Body::Load { .. } | Body::Const(_) => 0.0,
                Body::Index(_) | Body::Convert(_, _) => 1.0 / ELEMENTWISE_SHARE,
                Body::Apply { f, .. } => weight(*f) / share.min(if weight(*f) > 1.0 { ELEMENTWISE_SHARE } else { 1.0 }),
                Body::Reduce { arg, .. } => return self.points(k, &reduced(k, *arg)) / share,
            };
            let around: BTreeSet<usize> = match (k.class().merging(), vars.last()) {
                // Its code keeps what is the same for all keys, or for all rows.
                (Merging::Whole, _) => vars.clone(),
                // Loops lie one in another: within the last that matters, a value is computed again and again.
                (Merging::Points | Merging::Rows | Merging::Products, last) => (0..last.map_or(0, |v| v + 1)).collect(),
            };
            weight * self.points(k, &around)
        };
        k.body.iter().zip(&vars).map(one).sum()
    }
}

/// The points that a reduction combines: all of its space, for each outer point that its argument depends on.
fn reduced(k: &Kernel, arg: usize) -> BTreeSet<usize> {
    let vars = &variables(k)[arg];
    let (outer, inner) = (k.outer.len(), k.outer.len() + k.inner.len());
    let deep = vars.iter().any(|v| *v >= inner);
    vars.iter().copied().chain(if deep { inner..k.n_vars() } else { outer..inner }).collect()
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

fn used(index: &[Dim], vars: &[BTreeSet<usize>]) -> BTreeSet<usize> {
    let mut out = BTreeSet::new();
    for symbol in index.iter().flat_map(|d| d.symbols()) {
        match (symbol.strip_prefix('%'), symbol.strip_prefix('$')) {
            (Some(v), _) => out.extend(v.parse::<usize>()),
            (_, Some(k)) => out.extend(k.parse::<usize>().ok().and_then(|k| vars.get(k)).into_iter().flatten()),
            (None, None) => {}
        }
    }
    out
}

/// The iteration variables that each statement depends on.
fn variables(k: &Kernel) -> Vec<BTreeSet<usize>> {
    let (outer, inner) = (k.outer.len(), k.outer.len() + k.inner.len());
    let mut vars: Vec<BTreeSet<usize>> = vec![];
    for statement in &k.body {
        let set = match &statement.body {
            Body::Load { memlet, guard } => {
                let guard = guard.iter().flat_map(|g| vars[*g].clone());
                used(&memlet.index, &vars).into_iter().chain(guard).collect()
            }
            Body::Const(_) => BTreeSet::new(),
            Body::Index(d) => used(std::slice::from_ref(d), &vars),
            Body::Apply { args, .. } => args.iter().flat_map(|a| vars[*a].clone()).collect(),
            Body::Convert(a, _) => vars[*a].clone(),
            Body::Reduce { arg, .. } if vars[*arg].iter().any(|v| *v >= inner) => {
                vars[*arg].iter().copied().filter(|v| *v < inner).collect()
            }
            Body::Reduce { arg, .. } => vars[*arg].iter().copied().filter(|v| *v < outer).collect(),
        };
        vars.push(set);
    }
    vars
}
