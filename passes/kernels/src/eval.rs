//! Statement k at a point  =>  an SSA value, scalar or with one element per lane

use super::asm::{Asm, Bin, Cast, CmpI, Elem, Ty, Val};
use super::codes::{Code, unclamped};
use super::cx::Cx;
use super::def::*;
use super::dims::emit_dim;
use super::reduce::{combine, neutral};
use super::{math, scalar};
use sardonyx_base::DType;
use sardonyx_base::dim::Symbol;
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};

/// Point, or one point per lane, at which statements are evaluated.
#[derive(Clone)]
pub struct Point {
    /// Value of each iteration variable; for the lane variable, that of lane 0.
    pub vars: Vec<Option<Val>>,
    /// Variable that the lanes run along, and the number of lanes.
    pub along: usize,
    pub lanes: u32,
    /// Number that the lane variable's value in lane 0 is known to be a multiple of.
    pub multiple: i64,
    /// Whether the lane variable's value in lane 0 is also a multiple of the number of lanes; unlike `multiple`, this
    /// implies nothing about the alignment of buffers.
    pub in_steps: bool,
    /// Whether consecutive elements that the lanes access are aligned to their total size.
    pub aligned: bool,
    /// Mask of the lanes that exist; `None` if all do.
    pub mask: Option<Val>,
    /// Values of the statements that have been evaluated at this point or in a surrounding loop.
    pub values: Vec<Option<Val>>,
    /// Truth values of statements that are constant over the whole range of this point (see `ranges`); may be empty.
    pub known: Vec<Option<bool>>,
}

impl Point {
    pub fn new<A: Asm>(cx: &Cx<A>) -> Point {
        let n = cx.def.n_vars();
        let (vars, values) = (vec![None; n], vec![None; cx.def.body.len()]);
        let (along, lanes, multiple) = (n, 1, 1);
        Point { vars, along, lanes, multiple, in_steps: false, aligned: false, mask: None, values, known: vec![] }
    }

    /// Point of the first `n` lanes from `at` on; the mask excludes the others.
    pub fn masked_lanes(&self, asm: &mut impl Asm, var: usize, at: Val, n: Val, lanes: u32) -> Point {
        let mut point = self.clone();
        point.vars[var] = Some(at);
        let (n, iota) = (asm.widen(n, lanes), asm.iota(lanes));
        (point.along, point.lanes, point.mask) = (var, lanes, Some(asm.cmpi(CmpI::Slt, iota, n)));
        point
    }

    fn is_lane_var(&self, var: usize) -> bool {
        self.lanes > 1 && var == self.along
    }

    /// Whether values that depend on these variables differ between lanes.
    pub fn varies(&self, set: VarSet) -> bool {
        self.lanes > 1 && self.along < 64 && set >> self.along & 1 == 1
    }

    fn var(&self, asm: &mut impl Asm, v: usize) -> Val {
        let base = self.vars[v].expect("the variable has a value here");
        if !self.is_lane_var(v) {
            return base;
        }
        let (base, lane) = (asm.widen(base, self.lanes), asm.iota(self.lanes));
        asm.bin(Bin::AddI, base, lane)
    }

    /// Evaluates a statement; the result has one lane if it is the same for all lanes.
    pub fn eval<A: Asm>(&mut self, cx: &Cx<A>, asm: &mut A, k: usize) -> Val {
        if let Some(v) = self.values[k] {
            return v;
        }
        let step = &cx.def.body[k];
        let lanes = if self.varies(cx.deps[k]) { self.lanes } else { 1 };
        let ty = Ty::new(scalar::register(step.dtype), lanes);
        let v = match &step.op {
            _ if self.truth(k).is_some() => asm.int((self.truth(k) == Some(true)) as i64, ty),
            Op::Load { guard: Some(guard), .. } if self.truth(*guard) == Some(false) => asm.zero(ty),
            Op::Load { access, guard } => {
                let guard = guard.filter(|g| self.truth(*g).is_none());
                let v = self.load(cx, asm, access, guard, step.dtype);
                // If only the guard depends on the lanes and its truth is known, the loaded value has one lane.
                asm.widen(v, lanes)
            }
            Op::Const(bits) => constant(asm, f64::from_bits(*bits), ty),
            Op::Index(d) => {
                let d = d.clone();
                let v = emit_dim(asm, &d, lanes, &mut |asm, s| self.symbol(cx, asm, s));
                asm.widen(v, lanes)
            }
            Op::Apply { f, args } => self.apply(cx, asm, (k, *f), args, lanes),
            Op::Convert(a, Conversion::Bits) => {
                let v = self.eval(cx, asm, *a);
                scalar::reinterpret(asm, v, cx.def.body[*a].dtype, step.dtype)
            }
            Op::Convert(a, Conversion::Value) => {
                let a = unclamped(cx.def, *a, step.dtype, |k| self.values[k].is_some());
                match self.code(cx, asm, (a, step.dtype), lanes) {
                    Some(code) => code,
                    None => {
                        let v = self.eval(cx, asm, a);
                        scalar::convert(asm, v, cx.def.body[a].dtype, step.dtype)
                    }
                }
            }
            // A reduction over the inner space already has a value, set by the loop that computes it.
            Op::Reduce { f, arg } => self.deep_sum(cx, asm, (k, *f, *arg), ty),
        };
        debug_assert_eq!(v.ty, ty, "{step:?}");
        self.values[k] = Some(v);
        v
    }

    fn truth(&self, k: usize) -> Option<bool> {
        self.known.get(k).copied().flatten()
    }

    /// Computes a reduction over the deep space at this point, separately for each lane.
    fn deep_sum<A: Asm>(&self, cx: &Cx<A>, asm: &mut A, (k, f, arg): (usize, ReduceFn, usize), ty: Ty) -> Val {
        let t = cx.def.body[k].dtype;
        let start = neutral(asm, f, t, ty);
        let total = self.deep_loops(cx, asm, cx.def.n_point_vars(), start, &|asm, point, total| {
            let v = point.eval(cx, asm, arg);
            let v = asm.widen(v, ty.lanes);
            combine(asm, f, t, total, v)
        });
        scalar::rounded(asm, total, t)
    }

    /// Nested loops over the deep variables from `var` inwards, which accumulate in `total`; the innermost one runs
    /// `each`.
    fn deep_loops<A: Asm>(
        &self,
        cx: &Cx<A>,
        asm: &mut A,
        var: usize,
        total: Val,
        each: &dyn Fn(&mut A, &mut Point, Val) -> Val,
    ) -> Val {
        let (zero, one, extent) = (asm.i64(0), asm.i64(1), cx.extent(asm, var));
        asm.for_loop((zero, extent, one), &[total], |asm, i, total| {
            let mut point = self.clone();
            point.vars[var] = Some(i);
            match var + 1 == cx.def.n_vars() {
                true => vec![each(asm, &mut point, total[0])],
                false => vec![point.deep_loops(cx, asm, var + 1, total[0], each)],
            }
        })[0]
    }

    fn apply<A: Asm>(&mut self, cx: &Cx<A>, asm: &mut A, (k, f): (usize, ScalarFn), args: &[usize], lanes: u32) -> Val {
        let t = cx.def.body[args[args.len() - 1]].dtype;
        let square = |e: &usize| matches!(cx.def.body[*e].op, Op::Const(bits) if f64::from_bits(bits) == 2.0);
        if f == ScalarFn::Pow && t.is_float() && square(&args[1]) {
            let x = self.eval(cx, asm, args[0]);
            return scalar::apply(asm, ScalarFn::Mul, &[x, x], t);
        }
        let chosen = match (f, args) {
            (ScalarFn::Select, &[condition, yes, no]) => self.truth(condition).map(|c| if c { yes } else { no }),
            (ScalarFn::And, &[a, b]) if self.truth(a) == Some(true) => Some(b),
            (ScalarFn::And, &[a, b]) if self.truth(b) == Some(true) => Some(a),
            _ => None,
        };
        if let Some(chosen) = chosen {
            let v = self.eval(cx, asm, chosen);
            return asm.widen(v, lanes);
        }
        let logistic = (f == ScalarFn::Div && t == DType::F32).then(|| one_plus_exp(cx.def, args[1])).flatten();
        let operands = logistic.map_or(args.to_vec(), |power| vec![args[0], power]);
        let mut values = vec![];
        for a in operands {
            let v = self.eval(cx, asm, a);
            values.push(asm.widen(v, lanes));
        }
        if logistic.is_some() {
            return math::over_one_plus_exp(asm, values[0], values[1]);
        }
        if let (ScalarFn::Div, DType::F32, Op::Const(bits)) = (f, t, &cx.def.body[args[args.len() - 1]].op)
            && math::is_quick_divisor(f64::from_bits(*bits))
        {
            return math::divided(asm, values[0], f64::from_bits(*bits));
        }
        // Products of a contraction are accumulated as f32: narrow floats are rounded once, in the result.
        let product = f == ScalarFn::Mul && scalar::is_narrow(t) && cx.def.is_only_summed(k);
        scalar::apply(asm, f, &values, if product { DType::F32 } else { t })
    }

    /// The integer that a quantised float (see [`Code`]) is converted to, computed from the unquantised float in fewer
    /// instructions; `None` for scalars and for targets without such a sequence.
    fn code<A: Asm>(&mut self, cx: &Cx<A>, asm: &mut A, (k, to): (usize, DType), lanes: u32) -> Option<Val> {
        let code = Code::find(cx.def, k, to).filter(|_| lanes > 1)?;
        if code.after.iter().any(|k| self.values[*k].is_some()) {
            return None;
        }
        asm.cpu()?;
        let x = self.eval(cx, asm, code.x);
        let x = asm.widen(x, lanes);
        let code = code.emit(asm.cpu()?, x)?;
        Some(asm.cast(Cast::TruncI, code, scalar::register(to)))
    }

    /// The value of `%i`, `$k` or `p{n}`.
    pub fn symbol<A: Asm>(&mut self, cx: &Cx<A>, asm: &mut A, symbol: &Symbol) -> Val {
        match symbol {
            Symbol::Variable(v) => self.var(asm, *v),
            Symbol::Statement(k) => self.eval(cx, asm, *k),
            _ => cx.param(symbol),
        }
    }
}

/// Evaluates those of the statements that do not depend on `var`, before the loop over it.
pub fn hoist<A: Asm>(cx: &Cx<A>, asm: &mut A, point: &mut Point, var: usize, statements: Vec<usize>) {
    for k in statements {
        if cx.deps[k] >> var & 1 == 0 && !matches!(cx.def.body[k].op, Op::Const(_)) {
            point.eval(cx, asm, k);
        }
    }
}

/// Returns y if the step computes 1 + exp(y).
fn one_plus_exp(def: &KernelDef, step: usize) -> Option<usize> {
    let Op::Apply { f: ScalarFn::Add, args } = &def.body[step].op else { return None };
    let is_one = |k: usize| matches!(def.body[k].op, Op::Const(bits) if f64::from_bits(bits) == 1.0);
    let power = |k: usize| match &def.body[k].op {
        Op::Apply { f: ScalarFn::Exp, args } => Some(args[0]),
        _ => None,
    };
    match args[..] {
        [a, b] if is_one(a) => power(b),
        [a, b] if is_one(b) => power(a),
        _ => None,
    }
}

fn constant(asm: &mut impl Asm, value: f64, ty: Ty) -> Val {
    if ty.elem.is_float() {
        return asm.float(value, ty);
    }
    // Constants from 9.3e18 on are u64 and keep their bits. 2^63 saturates, since i64::MAX as f64 equals it.
    let whole = if value >= 9.3e18 { value as u64 as i64 } else { value as i64 };
    let bits = ty.elem.bits();
    let wrapped = if ty.elem == Elem::I1 || bits == 64 { whole } else { whole << (64 - bits) >> (64 - bits) };
    asm.int(wrapped, ty)
}
