//! A kernel with a deep space  =>  its statements and variables as the parts of attention
//!
//! ```text
//! s = Σd left · right;  x = f(s);  m = max x;  p = exp(x - m);  l = Σj p;  o = Σj w(p)·v;  store g(o, l, m)
//! ```

use crate::def::*;
use sardonyx_base::DType;
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};

#[derive(Clone, Debug)]
pub struct Roles {
    /// Outer variables other than `e` and `i`: each of their points has its own keys, or loads shared keys again.
    pub batch: Vec<usize>,
    /// Variable of the queries, which share keys.
    pub i: Option<usize>,
    /// Variable of the columns of the values.
    pub e: usize,
    /// Variable of the keys.
    pub j: usize,
    pub d: usize,
    /// Statement numbers of the parts of the formula above, in this field and all below except `weight`. If bf16 factors
    /// are widened before they are multiplied, these are the narrow ones.
    pub left: usize,
    pub right: usize,
    pub sum: usize,
    pub score: usize,
    pub max: usize,
    /// The number subtracted from scores: the maximum, or the larger of the maximum and a constant.
    pub shift: usize,
    /// Statement of the exponential.
    pub power: usize,
    pub total: Option<usize>,
    pub value: usize,
    pub out: usize,
    /// Steps that compute a weight from the exponential, in order.
    pub weight: Vec<Weight>,
}

/// One step of computing a weight; its operand is the same for all keys of a row, so that the step can be applied to
/// the weighted sum instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    Over(usize),
    Times(usize),
    /// NaN becomes 0: either all weights of a row are NaN, or none is.
    WithoutNan,
}

/// Reductions of a kernel, with their arguments: the deep reduction, the largest score, and the sums over the keys.
struct Reductions {
    sum: (usize, usize),
    max: (usize, usize),
    sums: Vec<(usize, usize)>,
}

impl Roles {
    /// Finds the roles; `None` if the kernel has another form.
    pub fn find(def: &KernelDef) -> Option<Roles> {
        let ([_], [_]) = (&def.inner[..], &def.deep[..]) else { return None };
        let deps = def.dependences();
        let (j, d) = (def.outer.len(), def.outer.len() + 1);
        let moves = |k: usize, v: usize| deps[k] >> v & 1 == 1;
        let Reductions { sum, max, sums } = reductions(def, &deps)?;
        let (score, power) = (max.1, power(def, max)?);
        let total = sums.iter().find(|s| s.1 == power.0).map(|s| s.0);
        let out = *sums.iter().find(|s| s.1 != power.0)?;
        if sums.len() != 1 + total.is_some() as usize || def.stores.is_empty() {
            return None;
        }
        let (weight, value) = weighted(def, &deps, power.0, out.1)?;
        if weight.contains(&Weight::WithoutNan) && total.is_none() {
            return None;
        }
        let e = column(def, &deps, score, value)?;
        let [a, b] = factors(def, sum.1)?;
        let is_left = |k: usize| moves(k, d) && !moves(k, j);
        let (left, right) = if is_left(a) { (a, b) } else { (b, a) };
        let is_rounded = |s: &Step| s.dtype == DType::BF16 && matches!(s.op, Op::Convert(from, _) if from == power.0);
        let (left, right) = narrow(def, left).zip(narrow(def, right)).unwrap_or((left, right));
        let value = narrow(def, value).filter(|_| def.body.iter().any(is_rounded)).unwrap_or(value);
        let stored = |w: &Write| deps[w.value] & def.inner_vars() == 0 && w.access.moves_with(e);
        let holds = is_left(left)
            && moves(right, d)
            && moves(right, j)
            && moves(value, j)
            && [left, right, score].iter().all(|k| !moves(*k, e))
            && !moves(value, d)
            && !moves(score, d)
            && cone_has(def, score, &[sum.0])
            && [left, right, value].iter().all(|k| cone_has(def, *k, &[]))
            && def.stores.iter().all(stored);
        let row = |v: &usize| moves(left, *v) && !moves(right, *v) && !moves(value, *v);
        let size = |v: &usize| def.extent(*v).as_const().unwrap_or(i64::MAX);
        let i = (0..def.outer.len()).filter(row).max_by_key(size);
        let batch = (0..def.outer.len()).filter(|v| *v != e && Some(*v) != i).collect();
        let all = [left, right, sum.0, sum.1, score, max.0, power.0, power.1, value, out.0, out.1];
        let types =
            all.iter().chain(&total).all(|k| matches!(def.body[*k].dtype, DType::F32 | DType::F16 | DType::BF16));
        let one_type = |ks: &[usize]| ks.iter().all(|k| def.body[*k].dtype == def.body[ks[0]].dtype);
        let goes_with = |factor: usize, sum: usize| {
            let (factor, sum) = (def.body[factor].dtype, def.body[sum].dtype);
            factor == sum || (factor, sum) == (DType::BF16, DType::F32)
        };
        let types = types && one_type(&[left, right]) && one_type(&[sum.1, sum.0]) && one_type(&[out.1, out.0]);
        if !holds || !types || !goes_with(left, sum.0) || !goes_with(value, out.0) {
            return None;
        }
        let (sum, max, out, shift, power) = (sum.0, max.0, out.0, power.1, power.0);
        Some(Roles { batch, i, e, j, d, left, right, sum, score, max, shift, power, total, value, out, weight })
    }

    /// Returns the type of the scores.
    pub fn score_type(&self, def: &KernelDef) -> DType {
        def.body[self.sum].dtype
    }

    /// Returns the type of the weighted sums of values.
    pub fn value_type(&self, def: &KernelDef) -> DType {
        def.body[self.out].dtype
    }

    /// Returns the types in which the factors of the scores and of the weighted sums are multiplied.
    pub fn factor_types(&self, def: &KernelDef) -> [DType; 2] {
        [self.left, self.value].map(|k| def.body[k].dtype)
    }

    /// Whether a row that sees no key is shifted by -∞, which gives NaN.
    pub fn is_unbounded(&self, def: &KernelDef) -> bool {
        let bound = |k: &usize| matches!(def.body[*k].op, Op::Const(bits) if f64::from_bits(bits).is_finite());
        !def.operands(self.shift).iter().any(bound)
    }
}

fn reductions(def: &KernelDef, deps: &[VarSet]) -> Option<Reductions> {
    let (mut sum, mut max, mut sums) = (None, None, vec![]);
    for (k, step) in def.body.iter().enumerate() {
        let Op::Reduce { f, arg } = step.op else { continue };
        let is_deep = deps[arg] & def.deep_vars() != 0;
        match (f, is_deep) {
            (ReduceFn::Add, true) if sum.is_none() => sum = Some((k, arg)),
            (ReduceFn::Max, false) if max.is_none() => max = Some((k, arg)),
            (ReduceFn::Add, false) => sums.push((k, arg)),
            (ReduceFn::Add | ReduceFn::Max | ReduceFn::Min | ReduceFn::Mul, _) => return None,
        }
    }
    Some(Reductions { sum: sum?, max: max?, sums })
}

/// Finds exp(score - shift) and the shift: the maximum, or the larger of the maximum and a constant.
fn power(def: &KernelDef, (max, score): (usize, usize)) -> Option<(usize, usize)> {
    let is_shift = |k: usize| {
        let bound = |args: &[usize]| {
            let constant = |k: &usize| matches!(def.body[*k].op, Op::Const(_));
            args.contains(&max) && args.iter().any(constant)
        };
        k == max || matches!(&def.body[k].op, Op::Apply { f: ScalarFn::Max, args } if bound(args))
    };
    let of = |k: usize| {
        let Op::Apply { f: ScalarFn::Exp, args } = &def.body[k].op else { return None };
        let Op::Apply { f: ScalarFn::Sub, args } = &def.body[args[0]].op else { return None };
        (args[0] == score && is_shift(args[1])).then_some((k, args[1]))
    };
    (0..def.body.len()).find_map(of)
}

/// Matches w(p)·v; returns the steps of the weight, and v.
fn weighted(def: &KernelDef, deps: &[VarSet], power: usize, product: usize) -> Option<(Vec<Weight>, usize)> {
    let [a, b] = factors(def, product)?;
    let one = |w: usize, v: usize| Some((weight(def, deps, power, w)?, v));
    one(a, b).or_else(|| one(b, a))
}

fn weight(def: &KernelDef, deps: &[VarSet], power: usize, k: usize) -> Option<Vec<Weight>> {
    if k == power {
        return Some(vec![]);
    }
    let row = |k: usize| deps[k] & def.inner_vars() == 0;
    let then = |k: usize, step: Weight| {
        let mut steps = weight(def, deps, power, k)?;
        steps.push(step);
        Some(steps)
    };
    match &def.body[k].op {
        Op::Apply { f: ScalarFn::Div, args } if row(args[1]) => then(args[0], Weight::Over(args[1])),
        Op::Apply { f: ScalarFn::Mul, args } if row(args[1]) => then(args[0], Weight::Times(args[1])),
        Op::Apply { f: ScalarFn::Mul, args } if row(args[0]) => then(args[1], Weight::Times(args[0])),
        Op::Apply { f: ScalarFn::Select, args } => {
            let Op::Apply { f: ScalarFn::IsNan, args: of } = &def.body[args[0]].op else { return None };
            let zero = matches!(def.body[args[1]].op, Op::Const(bits) if f64::from_bits(bits) == 0.0);
            if zero && of[0] == args[2] { then(args[2], Weight::WithoutNan) } else { None }
        }
        Op::Convert(a, _) if def.body[*a].dtype.is_float() => weight(def, deps, power, *a),
        Op::Apply { .. } | Op::Load { .. } | Op::Const(_) | Op::Index(_) | Op::Convert(_, _) | Op::Reduce { .. } => {
            None
        }
    }
}

/// The bf16 statement that a statement widens to f32.
fn narrow(def: &KernelDef, k: usize) -> Option<usize> {
    match def.body[k].op {
        Op::Convert(from, Conversion::Value)
            if (def.body[from].dtype, def.body[k].dtype) == (DType::BF16, DType::F32) =>
        {
            Some(from)
        }
        _ => None,
    }
}

fn factors(def: &KernelDef, product: usize) -> Option<[usize; 2]> {
    match &def.body[product].op {
        Op::Apply { f: ScalarFn::Mul, args } => Some([args[0], args[1]]),
        Op::Apply { .. } | Op::Load { .. } | Op::Const(_) | Op::Index(_) | Op::Convert(_, _) | Op::Reduce { .. } => {
            None
        }
    }
}

/// The variable that values depend on and scores do not; the one that is contiguous in the first result is preferred.
fn column(def: &KernelDef, deps: &[VarSet], score: usize, value: usize) -> Option<usize> {
    let free = (0..def.outer.len()).filter(|v| deps[score] >> v & 1 == 0 && deps[value] >> v & 1 == 1);
    let unit = |v: usize| def.stores.first().is_some_and(|w| w.access.stride(v).is(1));
    free.filter(|v| def.extent(*v).as_const().is_some()).max_by_key(|v| (unit(*v), def.extent(*v).as_const()))
}

/// Whether a statement depends on exactly these reductions.
fn cone_has(def: &KernelDef, root: usize, reductions: &[usize]) -> bool {
    let (mut open, mut found) = (vec![root], vec![]);
    let mut seen = vec![false; def.body.len()];
    while let Some(k) = open.pop() {
        if std::mem::replace(&mut seen[k], true) {
            continue;
        }
        match def.body[k].op {
            Op::Reduce { .. } => found.push(k),
            Op::Load { .. } | Op::Const(_) | Op::Index(_) | Op::Apply { .. } | Op::Convert(_, _) => {
                open.extend(def.operands(k))
            }
        }
    }
    found.sort();
    found == reductions
}
