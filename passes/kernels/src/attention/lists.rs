//! keys `key[first + j]` where `j < length`, one list per block of rows  =>  runs of consecutive keys, each as a block
//!
//! A work item is a block of rows that share one list. The kernel reads the list at run time to find keys that are
//! adjacent in memory; such a run of keys takes the place of a block of keys. No property of the list is assumed.

use super::plan::{BLOCK, CHUNK, Plan};
use super::segments::read_others;
use super::{Item, Keys, runs_of};
use crate::asm::{Asm, Bin, CmpI, Mlir, Val};
use crate::cx::Cx;
use crate::def::*;
use crate::eval::Point;
use sardonyx_base::dim::Atom;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::scalar::ScalarFn;

/// Kernel whose keys are listed per block of rows.
#[derive(Clone, Debug)]
pub struct Lists {
    /// Kernel of one run: its inner variable is the number of a key, and every key that it visits exists.
    pub def: KernelDef,
    /// Variable that counts rows, and the number of rows of a block.
    pub row: usize,
    pub rows: i64,
    /// Statements of the key at a position of the list, of whether that position has a key, and of the list's length.
    key: usize,
    inside: usize,
    length: usize,
    /// Distinct limits that keys are checked against.
    limits: Vec<Size>,
}

impl Lists {
    /// Returns the kernel of one run if every load by a key is at `key[first + j]` and guarded by `j < length`.
    pub fn found(def: &KernelDef) -> Option<Lists> {
        let (j, deps) = (def.outer.len(), def.dependences());
        let by_key = |k: usize| deps[k] >> j & 1 == 1;
        let (inside, place, length) = bounds(def)?;
        let key = (0..def.body.len()).find(|k| is_listed(def, *k, inside))?;
        let (row, rows) = rows_with_one_list(def, length)?;
        let others = (0..def.body.len()).filter(|k| ![inside, key].contains(k));
        let is_place = |k: usize| matches!(&def.body[k].op, Op::Index(d) if d.variables().contains(&j));
        if others.clone().any(|k| is_place(k) && k != place || def.operands(k).contains(&place)) {
            return None;
        }
        let mut new = def.clone();
        // Alternatives for absent keys are dropped: every key of a run exists.
        let mut is = (0..def.body.len()).collect::<Vec<usize>>();
        let mut limits: Vec<Size> = vec![];
        for k in others {
            match &mut new.body[k].op {
                Op::Load { access, guard } if by_key(k) => {
                    let limit = take_key(access, (j, key), &by_key)?;
                    if guard.take() != Some(inside) {
                        return None;
                    }
                    limits.extend(Some(limit).filter(|limit| !limits.contains(limit)));
                }
                Op::Apply { f: ScalarFn::Select, args } if args[0] == inside => is[k] = is[args[1]],
                Op::Load { .. } | Op::Const(_) | Op::Index(_) | Op::Apply { .. } => {}
                Op::Convert(_, _) | Op::Reduce { .. } => {}
            }
        }
        read_others(&mut new, &is);
        new.body[inside].op = Op::Const(1f64.to_bits());
        new.body[key].op = Op::Index(Dim::variable(j));
        let fits = (1..=CHUNK).contains(&rows);
        fits.then_some(Lists { def: new, row, rows, key, inside, length, limits })
    }
}

/// Finds `j < length` with a length that does not depend on j: returns that statement, j and the length.
fn bounds(def: &KernelDef) -> Option<(usize, usize, usize)> {
    let (j, deps) = (def.outer.len(), def.dependences());
    def.body.iter().enumerate().find_map(|(k, step)| {
        let Op::Apply { f: ScalarFn::Lt, args } = &step.op else { return None };
        let Op::Index(at) = &def.body[args[0]].op else { return None };
        let is_place = at.as_variable() == Some(j);
        (is_place && deps[args[1]] & def.inner_vars() == 0).then_some((k, args[0], args[1]))
    })
}

/// Whether a statement is an integer that is loaded at a position of the list and used as an index of other loads.
fn is_listed(def: &KernelDef, k: usize, inside: usize) -> bool {
    let is_index = |step: &Step| match &step.op {
        Op::Load { access, .. } => access.computed.iter().any(|c| c.expr == Dim::statement(k)),
        Op::Const(_) | Op::Index(_) | Op::Apply { .. } | Op::Convert(..) | Op::Reduce { .. } => false,
    };
    matches!(def.body[k], Step { op: Op::Load { guard: Some(g), .. }, dtype: DType::I64 } if g == inside)
        && def.body.iter().any(is_index)
}

/// Returns the variable `%r` and the constant `n` if the list's length depends on `%r floordiv n` only.
fn rows_with_one_list(def: &KernelDef, length: usize) -> Option<(usize, i64)> {
    let (mut open, mut found) = (vec![length], None);
    while let Some(k) = open.pop() {
        if let Op::Load { access, .. } = &def.body[k].op {
            let [part] = &access.computed[..] else { return None };
            let blocks = part.expr.terms().filter(|(monomial, _)| !monomial.is_empty());
            for block in blocks {
                let ([Atom::FloorDiv(row, rows)], 1) = block else { return None };
                let block = (row.as_variable()?, rows.as_const()?);
                if found.is_some_and(|f| f != block) || (0..def.n_vars()).any(|v| access.moves_with(v)) {
                    return None;
                }
                found = Some(block);
            }
        }
        open.extend(def.operands(k));
    }
    found
}

/// Makes an access move with the key's number instead of looking it up. Returns the limit that the key is checked
/// against.
fn take_key(access: &mut Access, (j, key): (usize, usize), by_key: &dyn Fn(usize) -> bool) -> Option<Size> {
    let at = access.computed.iter().position(|c| c.expr == Dim::statement(key))?;
    let part = access.computed.remove(at);
    let moves = |c: &Computed| c.expr.variables().contains(&j) || c.expr.statements().into_iter().any(by_key);
    let fits = access.coords.len() == 1 && !access.moves_with(j) && !access.computed.iter().any(moves);
    access.coords[part.coord].strides[j] = part.stride;
    part.limit.filter(|_| fits)
}

pub fn emit(cx: &Cx<Mlir>, asm: &mut Mlir, plan: &Plan, lists: &Lists) {
    let run = runs_of(cx, &lists.def);
    let one = asm.i64(1);
    asm.for_loop((cx.launch.begin, cx.launch.end, one), &[], |asm, item, _| {
        let mut item = Item::new(&run, asm, plan, item);
        item.run_list(cx, asm, lists);
        vec![]
    });
}

impl Item<'_> {
    /// Attention of all rows of the item over all keys of their list, run by run.
    fn run_list(&mut self, cx: &Cx<Mlir>, asm: &mut Mlir, lists: &Lists) {
        let zero = asm.i64(0);
        let mut point = self.row_point(asm, zero);
        let length = point.eval(cx, asm, lists.length);
        let extent = cx.extent(asm, self.plan.j);
        let length = asm.bin(Bin::MinSI, length, extent);
        self.n_keys = asm.bin(Bin::MaxSI, length, zero);
        point.known = vec![None; cx.def.body.len()];
        point.known[lists.inside] = Some(true);
        self.begin(asm);
        let some = asm.cmpi(CmpI::Sgt, self.n_keys, zero);
        asm.if_then(some, |asm| {
            asm.do_while(&[zero], |asm, at| {
                let next = self.run_of_list(cx, asm, lists, &point, at[0]);
                (asm.cmpi(CmpI::Slt, next, self.n_keys), vec![next])
            });
        });
        self.finish(asm);
    }

    /// Attention over the run of consecutive keys at position `at` of the list, as one block. Returns the position
    /// after the run.
    fn run_of_list(&self, cx: &Cx<Mlir>, asm: &mut Mlir, lists: &Lists, point: &Point, at: Val) -> Val {
        let (zero, one, block) = (asm.i64(0), asm.i64(1), asm.i64(BLOCK));
        let key = |asm: &mut Mlir, at: Val| {
            let mut point = point.clone();
            point.vars[self.plan.j] = Some(at);
            point.eval(cx, asm, lists.key)
        };
        let first = key(asm, at);
        let most = asm.bin(Bin::AddI, at, block);
        let end = asm.bin(Bin::MinSI, most, self.n_keys);
        let next = asm.do_while(&[at], |asm, last| {
            let next = asm.bin(Bin::AddI, last[0], one);
            let there = asm.cmpi(CmpI::Slt, next, end);
            let read = asm.select(there, next, last[0]);
            let (found, distance) = (key(asm, read), asm.bin(Bin::SubI, next, at));
            let neighbour = asm.bin(Bin::AddI, first, distance);
            let same = asm.cmpi(CmpI::Eq, found, neighbour);
            (asm.bin(Bin::AndI, there, same), vec![next])
        })[0];
        let n = asm.bin(Bin::SubI, next, at);
        let mut wrong = asm.cmpi(CmpI::Slt, first, zero);
        for limit in &lists.limits {
            let limit = cx.size(asm, *limit);
            let left = asm.bin(Bin::SubI, limit, n);
            let behind = asm.cmpi(CmpI::Sgt, first, left);
            wrong = asm.bin(Bin::OrI, wrong, behind);
        }
        let (fresh, always) = (asm.cmpi(CmpI::Eq, at, zero), asm.cmpi(CmpI::Eq, zero, zero));
        asm.if_else(
            wrong,
            &[],
            |asm| {
                asm.raise(cx.status);
                vec![]
            },
            |asm| {
                self.block(asm, Keys { j0: first, n, fresh }, always);
                vec![]
            },
        );
        next
    }
}
