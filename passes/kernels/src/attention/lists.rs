//! keys `key[first + j]` where `j < length`, a list per block of rows  =>  runs of neighbouring keys, each as a block
//!
//! A work item is a block of rows, which have one list. Keys of the list that are neighbours in memory are found where the
//! kernel runs, by reading the list: a run of them is what a block of keys is elsewhere. Nothing is taken for granted of
//! the list.

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

/// A kernel whose keys are listed per block of rows.
#[derive(Clone, Debug)]
pub struct Lists {
    /// The kernel of one run: its inner variable is the number of a key, and every key that is walked exists.
    pub def: KernelDef,
    /// The variable that counts rows, and the rows of a block.
    pub row: usize,
    pub rows: i64,
    /// The statements of the key at a place of the list, of whether there is one, and of how many there are.
    key: usize,
    inside: usize,
    length: usize,
    /// What keys are checked against, each once.
    limits: Vec<Size>,
}

impl Lists {
    /// The kernel of one run, where every load by a key is at `key[first + j]` and guarded by `j < length`.
    pub fn found(def: &KernelDef) -> Option<Lists> {
        let (j, deps) = (def.outer.len(), def.dependences());
        let by_key = |k: usize| deps[k] >> j & 1 == 1;
        let (inside, place, length) = bounds(def)?;
        let key = (0..def.body.len()).find(|k| is_listed(def, *k, inside))?;
        let (row, rows) = rows_with_one_list(def, length)?;
        let others = (0..def.body.len()).filter(|k| ![inside, key].contains(k));
        let is_place = |k: usize| matches!(&def.body[k].op, Op::Index(d) if symbols_of(d, '%').any(|v| v == j));
        if others.clone().any(|k| is_place(k) && k != place || def.operands(k).contains(&place)) {
            return None;
        }
        let mut new = def.clone();
        // What is chosen where there is no such key goes: in a run all are there.
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
        new.body[key].op = Op::Index(Dim::symbol(&format!("%{j}")));
        let fits = (1..=CHUNK).contains(&rows);
        fits.then_some(Lists { def: new, row, rows, key, inside, length, limits })
    }
}

/// `j < length`, where the length is the same at all places of the list: that statement, j, and the length.
fn bounds(def: &KernelDef) -> Option<(usize, usize, usize)> {
    let (j, deps) = (def.outer.len(), def.dependences());
    def.body.iter().enumerate().find_map(|(k, step)| {
        let Op::Apply { f: ScalarFn::Lt, args } = &step.op else { return None };
        let Op::Index(at) = &def.body[args[0]].op else { return None };
        let is_place = at.as_symbol().and_then(|s| own(s, '%')) == Some(j);
        (is_place && deps[args[1]] & def.inner_vars() == 0).then_some((k, args[0], args[1]))
    })
}

/// Whether a statement is a number that is loaded at a place of the list, and the index of other loads.
fn is_listed(def: &KernelDef, k: usize, inside: usize) -> bool {
    let name = format!("${k}");
    let is_index = |step: &Step| match &step.op {
        Op::Load { access, .. } => access.computed.iter().any(|c| c.expr.as_symbol() == Some(&name)),
        Op::Const(_) | Op::Index(_) | Op::Apply { .. } | Op::Convert(..) | Op::Reduce { .. } => false,
    };
    matches!(def.body[k], Step { op: Op::Load { guard: Some(g), .. }, dtype: DType::I64 } if g == inside)
        && def.body.iter().any(is_index)
}

/// The variable `%r` and the number `n` where a list's length is found by nothing but `%r floordiv n`.
fn rows_with_one_list(def: &KernelDef, length: usize) -> Option<(usize, i64)> {
    let (mut open, mut found) = (vec![length], None);
    while let Some(k) = open.pop() {
        if let Op::Load { access, .. } = &def.body[k].op {
            let [part] = &access.computed[..] else { return None };
            let blocks = part.expr.terms().filter(|(monomial, _)| !monomial.is_empty());
            for block in blocks {
                let ([Atom::FloorDiv(row, rows)], 1) = block else { return None };
                let block = (own(row.as_symbol()?, '%')?, rows.as_const()?);
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

/// Has an access step with the number of a key in place of looking it up; what that is checked against.
fn take_key(access: &mut Access, (j, key): (usize, usize), by_key: &dyn Fn(usize) -> bool) -> Option<Size> {
    let name = format!("${key}");
    let at = access.computed.iter().position(|c| c.expr.as_symbol() == Some(&name))?;
    let part = access.computed.remove(at);
    let moves = |c: &Computed| symbols_of(&c.expr, '%').any(|v| v == j) || symbols_of(&c.expr, '$').any(by_key);
    let fits = access.coords.len() == 1 && !access.moves_with(j) && !access.computed.iter().any(moves);
    access.coords[part.coord].strides[j] = part.stride;
    part.limit.filter(|_| fits)
}

/// The numbers of the own symbols of a kind.
fn symbols_of(d: &Dim, mark: char) -> impl Iterator<Item = usize> {
    d.symbols().into_iter().filter_map(move |s| own(&s, mark))
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
    /// All of the item's rows by all keys of their list, run by run.
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

    /// The neighbours from place `at` of the list on, as one block; the place behind them.
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
