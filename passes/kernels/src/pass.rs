//! A stage of a kernel at one inner point  =>  the updated partial results of its reductions, and its stores

use super::asm::{Asm, CmpF, Val};
use super::cx::Cx;
use super::def::*;
use super::eval::Point;
use super::reduce::combine;
use super::scalar::numbers_extremum;
use super::stages::{Lanes, Stages, is_deep_sum, is_point_store};
use sardonyx_base::DType;
use sardonyx_dialects::flow::kernel::Class;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};

/// One pass over the inner space: a stage's reductions and stores.
pub struct Pass<'a> {
    pub stages: &'a Stages,
    pub stage: usize,
    /// (statement, function, argument) of each reduction.
    pub reductions: Vec<(usize, ReduceFn, usize)>,
    stores: Vec<&'a Write>,
    /// Number of vectors that are combined independently, to hide the latency of the combining instruction.
    pub unroll: usize,
    /// Whether each reduction has one more accumulator, for elements that are processed one by one.
    pub singles: bool,
    /// Indices in `reductions` of the maxima and minima of floats. These reductions track NaN in separate accumulators,
    /// which follow all others: one instruction combines two values if NaN is ignored, while keeping NaN in the result
    /// would take four dependent instructions.
    pub marked: Vec<usize>,
}

impl<'a> Pass<'a> {
    pub fn new(def: &'a KernelDef, stages: &'a Stages, stage: usize) -> Pass<'a> {
        let deps = def.dependences();
        let reductions = def.body.iter().enumerate().filter_map(|(k, s)| match s.op {
            Op::Reduce { f, arg } if stages.of[arg] == stage && !is_deep_sum(def, &deps, k) => Some((k, f, arg)),
            _ => None,
        });
        let in_stage = |w: &&Write| {
            let values = [vec![w.value], access_values(&w.access)].concat();
            is_point_store(def, w, &stages.point) && values.iter().map(|k| stages.of[*k]).max() == Some(stage)
        };
        let (reductions, stores) = (reductions.collect(), def.stores.iter().filter(in_stage).collect());
        Pass { stages, stage, reductions, stores, unroll: 1, singles: false, marked: vec![] }
    }

    /// Number of accumulators per reduction.
    pub fn width(&self) -> usize {
        self.unroll + self.singles as usize
    }

    /// Index of the NaN accumulator of a reduction, for vectors or for single elements.
    pub fn mark(&self, r: usize, single: bool) -> Option<usize> {
        let at = self.marked.iter().position(|m| *m == r)?;
        Some(self.reductions.len() * self.width() + at * (1 + self.singles as usize) + single as usize)
    }

    /// Evaluates the statements that do not depend on the variables in `coming`, which get their values later.
    pub fn hoist<A: Asm>(&self, cx: &Cx<A>, asm: &mut A, point: &mut Point, coming: VarSet) {
        let mut open: Vec<usize> = self.reductions.iter().map(|r| r.2).collect();
        for w in &self.stores {
            open.push(w.value);
            open.extend(access_values(&w.access));
        }
        let mut seen = vec![false; cx.def.body.len()];
        let mut ready = vec![];
        while let Some(k) = open.pop() {
            if std::mem::replace(&mut seen[k], true) || self.is_loaded(k) {
                continue;
            }
            if cx.deps[k] & coming == 0 && !matches!(cx.def.body[k].op, Op::Const(_)) {
                ready.push(k);
            } else {
                open.extend(cx.def.operands(k));
            }
        }
        ready.sort();
        for k in ready {
            point.eval(cx, asm, k);
        }
    }

    /// Whether this pass loads a statement's value from scratch.
    pub fn is_loaded(&self, k: usize) -> bool {
        self.stages.first[k].is_some_and(|f| f < self.stage) && self.stages.kept.iter().any(|(kept, _)| *kept == k)
    }

    /// Evaluates the argument of each reduction `r` at the point and combines it into accumulator `slot(r)`.
    pub fn combine<A: Asm>(
        &self,
        cx: &Cx<A>,
        asm: &mut A,
        point: &mut Point,
        accumulators: &[Val],
        slot: impl Fn(usize) -> usize,
    ) -> Vec<Val> {
        let mut accumulators = accumulators.to_vec();
        for (r, &(k, f, arg)) in self.reductions.iter().enumerate() {
            let at = slot(r);
            let total = accumulators[at];
            let mark = self.mark(r, self.singles && at % self.width() == self.unroll);
            let mut operand = |asm: &mut A, k: usize| {
                let v = point.eval(cx, asm, k);
                asm.widen(v, total.ty.lanes)
            };
            let mut next = vec![];
            if let Some([a, b]) = factors(cx.def, f, arg) {
                let (a, b) = (operand(asm, a), operand(asm, b));
                next.push((at, asm.fma(a, b, total)));
            } else {
                let v = operand(asm, arg);
                next.push((
                    at,
                    match mark {
                        None => combine(asm, f, cx.def.body[k].dtype, total, v),
                        Some(_) => numbers_extremum(asm, f, v, total),
                    },
                ));
                next.extend(mark.map(|mark| (mark, marked(asm, v, accumulators[mark]))));
            }
            let own = point.mask.filter(|_| self.stages.lanes(self.stage) == Lanes::Inner);
            for (at, v) in next {
                accumulators[at] = own.map_or(v, |mask| asm.select(mask, v, accumulators[at]));
            }
        }
        accumulators
    }

    /// Executes this pass's stores at a point.
    pub fn store<A: Asm>(&self, cx: &Cx<A>, asm: &mut A, point: &mut Point) {
        for write in &self.stores {
            point.store(cx, asm, write);
        }
    }
}

/// Executes the stores that happen once per outer point.
pub fn store_rows<A: Asm>(cx: &Cx<A>, asm: &mut A, stages: &Stages, point: &mut Point) {
    for write in cx.def.stores.iter().filter(|w| !is_point_store(cx.def, w, &stages.point)) {
        point.store(cx, asm, write);
    }
}

/// Returns the operands of a product that a contraction sums and that a fused multiply-add therefore computes, without
/// rounding the product.
fn factors(def: &KernelDef, f: ReduceFn, arg: usize) -> Option<[usize; 2]> {
    let Op::Apply { f: ScalarFn::Mul, args } = &def.body[arg].op else { return None };
    let sums = def.class == Class::Contract && f == ReduceFn::Add && def.body[arg].dtype == DType::F32;
    sums.then_some([args[0], args[1]])
}

/// Returns v where it is NaN, else `other`.
pub fn marked(asm: &mut impl Asm, v: Val, other: Val) -> Val {
    let nan = asm.cmpf(CmpF::Uno, v, v);
    asm.select(nan, v, other)
}
