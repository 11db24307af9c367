//! Statements at a point  =>  the reductions over the deep space that they need, each computed by a loop of one thread

use crate::asm::{Asm, Ptx, Ty, Val};
use crate::cx::Cx;
use crate::def::*;
use crate::eval::Point;
use crate::reduce::{combine, neutral};
use crate::scalar;

/// Computes the deep reductions that `roots` depend on and that have no value at the point yet.
pub fn deep_sums(cx: &Cx<Ptx>, asm: &mut Ptx, point: &mut Point, roots: &[usize]) {
    let deep = cx.def.deep_vars();
    let is_sum = |k: &usize| matches!(cx.def.body[*k].op, Op::Reduce { .. });
    for k in open_cone(cx.def, point, roots).into_iter().filter(is_sum) {
        let Op::Reduce { f, arg } = cx.def.body[k].op else { continue };
        let t = cx.def.body[k].dtype;
        let ready = |s: &usize| cx.deps[*s] & deep == 0 && !matches!(cx.def.body[*s].op, Op::Const(_));
        for s in open_cone(cx.def, point, &[arg]).into_iter().filter(ready) {
            point.eval(cx, asm, s);
        }
        let start = neutral(asm, f, t, Ty::new(scalar::register(t), 1));
        let first = cx.def.outer.len() + cx.def.inner.len();
        let total = nest(cx, asm, point, first, start, &mut |asm, point, total| {
            let v = point.eval(cx, asm, arg);
            combine(asm, f, t, total, v)
        });
        point.values[k] = Some(scalar::rounded(asm, total, t));
    }
}

/// The statements that `roots` depend on, including themselves, that have no value at the point, in order.
pub fn open_cone(def: &KernelDef, point: &Point, roots: &[usize]) -> Vec<usize> {
    let mut open = roots.to_vec();
    let mut seen = vec![];
    while let Some(k) = open.pop() {
        if point.values[k].is_none() && !seen.contains(&k) {
            seen.push(k);
            open.extend(def.operands(k));
        }
    }
    seen.sort();
    seen
}

type Leaf<'f> = &'f mut dyn FnMut(&mut Ptx, &mut Point, Val) -> Val;

/// Loops from deep variable `var` inwards.
fn nest(cx: &Cx<Ptx>, asm: &mut Ptx, point: &Point, var: usize, total: Val, leaf: Leaf) -> Val {
    let (zero, one, extent) = (asm.i64(0), asm.i64(1), cx.extent(asm, var));
    asm.for_loop((zero, extent, one), &[total], |asm, i, totals| {
        let mut point = point.clone();
        point.vars[var] = Some(i);
        vec![match var + 1 == cx.def.n_vars() {
            true => leaf(asm, &mut point, totals[0]),
            false => nest(cx, asm, &point, var + 1, totals[0], leaf),
        }]
    })[0]
}
