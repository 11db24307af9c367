//! keys `first[row] + j` where `j < length[row]`  =>  runs of rows with the same keys, each as a separate attention
//!
//! Sequences of different lengths are stored one after another, and a row's keys are those of its sequence. A work item
//! is a chunk of rows of any sequences. The kernel finds rows that share their keys at run time, by comparing the first
//! key and the number of keys of consecutive rows; no property of the tables is assumed.

use super::plan::{BLOCK, Plan, Walked};
use super::{Item, Keys, is_alone, runs_of};
use crate::asm::{Asm, Bin, CmpI, Mlir, Val};
use crate::cx::Cx;
use crate::def::*;
use sardonyx_base::dim::Symbol;
use sardonyx_dialects::scalar::ScalarFn;

/// Kernel whose keys are given by tables of first keys and lengths.
#[derive(Clone, Debug)]
pub struct Segments {
    /// Kernel of one run: the caller sets the value of statement `first`, and every visited key exists.
    pub def: KernelDef,
    /// Statements of the position of a row's first key and of the row's number of keys, and the limit that their sum
    /// must not exceed.
    first: usize,
    length: usize,
    limit: Size,
}

impl Segments {
    /// Returns the kernel of one run if every load by a key is at `first + j` and guarded by `j < length`.
    pub fn find(def: &KernelDef) -> Option<Segments> {
        let j = def.outer.len();
        let deps = def.dependences();
        let per_row = |k: usize| deps[k] & def.inner_vars() == 0;
        let compares = |(k, step): (usize, &Step)| {
            let Op::Apply { f: ScalarFn::Lt, args } = &step.op else { return None };
            let Op::Index(at) = &def.body[args[0]].op else { return None };
            let is_key = at.as_variable() == Some(j);
            let loaded = matches!(def.body[args[1]].op, Op::Load { .. });
            (is_key && loaded && per_row(args[1])).then_some((k, args[1]))
        };
        let (inside, length) = def.body.iter().enumerate().find_map(compares)?;
        let mut first: Option<(usize, Size)> = None;
        let mut new = def.clone();
        // The values selected for absent keys are dropped: every key of a run exists.
        let mut is = (0..def.body.len()).collect::<Vec<usize>>();
        for (k, step) in def.body.iter().enumerate() {
            match &step.op {
                Op::Load { access, guard } if deps[k] >> j & 1 == 1 => {
                    let [part] = &access.computed[..] else { return None };
                    let (one, rest) = part.expr.linear_in(&Symbol::Variable(j))?;
                    let at = (rest.as_symbol()?.statement()?, part.limit?);
                    let fits = one.is_const(1)
                        && *guard == Some(inside)
                        && access.coords.iter().all(|c| c.strides[j].is(0))
                        && per_row(at.0)
                        && first.is_none_or(|f| f == at);
                    if !fits {
                        return None;
                    }
                    first = Some(at);
                    let Op::Load { access, guard } = &mut new.body[k].op else { return None };
                    access.coords[0].strides[j] = part.stride;
                    (access.computed[0].expr, access.computed[0].limit) = (rest, None);
                    *guard = None;
                }
                Op::Apply { f: ScalarFn::Select, args } if args[0] == inside => is[k] = is[args[1]],
                Op::Load { .. } | Op::Const(_) | Op::Index(_) | Op::Apply { .. } => {}
                Op::Convert(_, _) | Op::Reduce { .. } => {}
            }
        }
        let (first, limit) = first?;
        read_others(&mut new, &is);
        new.body[inside].op = Op::Const(1f64.to_bits());
        for given in [first, length] {
            new.body[given].op = Op::Const(0);
        }
        Some(Segments { def: new, first, length, limit })
    }

    /// Outer variables that the first key and the number of keys depend on.
    pub fn moved_by(&self, def: &KernelDef) -> VarSet {
        let deps = def.dependences();
        deps[self.first] | deps[self.length]
    }
}

/// Replaces operand k of every statement by `is[k]`, except in accesses and guards.
pub fn read_others(def: &mut KernelDef, is: &[usize]) {
    for step in &mut def.body {
        match &mut step.op {
            Op::Apply { args, .. } => args.iter_mut().for_each(|a| *a = is[*a]),
            Op::Convert(a, _) | Op::Reduce { arg: a, .. } => *a = is[*a],
            Op::Load { .. } | Op::Const(_) | Op::Index(_) => {}
        }
    }
}

pub fn emit(cx: &Cx<Mlir>, asm: &mut Mlir, plan: &Plan, segments: &Segments) {
    let run = runs_of(cx, &segments.def);
    let (one, zero, none) = (asm.i64(1), asm.i64(0), asm.i64(-1));
    asm.for_loop((cx.launch.begin, cx.launch.end, one), &[none], |asm, item, kept| {
        let chunk = Item::new(&run, asm, plan, item);
        // A mask may leave the chunk without rows.
        let some = asm.cmpi(CmpI::Sgt, chunk.rows, zero);
        asm.if_else(
            some,
            &[none.ty],
            |asm| {
                let end = asm.do_while(&[zero, kept[0]], |asm, at| {
                    let (item, next) = segment(cx, asm, &chunk, segments, at[0]);
                    let kept = item.run(asm, at[1]);
                    (asm.cmpi(CmpI::Slt, next, chunk.rows), vec![next, kept])
                });
                vec![end[1]]
            },
            |_| vec![kept[0]],
        )
    });
}

/// Returns the item of the consecutive rows of a chunk that begin at `row` and have the same keys as this row, and the
/// row after them.
fn segment<'a>(cx: &Cx<Mlir>, asm: &mut Mlir, chunk: &Item<'a>, segments: &Segments, row: Val) -> (Item<'a>, Val) {
    let (zero, one) = (asm.i64(0), asm.i64(1));
    let keys = |asm: &mut Mlir, row: Val| {
        let mut point = chunk.row_point(asm, row);
        [segments.first, segments.length].map(|k| point.eval(cx, asm, k))
    };
    let [first, length] = keys(asm, row);
    let next = asm.do_while(&[row], |asm, at| {
        let next = asm.bin(Bin::AddI, at[0], one);
        let there = asm.cmpi(CmpI::Slt, next, chunk.rows);
        let read = asm.select(there, next, at[0]);
        let other = keys(asm, read);
        let mut same = there;
        for (a, b) in [first, length].into_iter().zip(other) {
            let equal = asm.cmpi(CmpI::Eq, a, b);
            same = asm.bin(Bin::AndI, same, equal);
        }
        (same, vec![next])
    })[0];
    let extent = cx.extent(asm, chunk.plan.j);
    let n = asm.bin(Bin::MinSI, length, extent);
    let n = asm.bin(Bin::MaxSI, n, zero);
    // Either all keys exist, or none is read and the launch fails.
    let limit = cx.size(asm, segments.limit);
    let left = asm.bin(Bin::SubI, limit, n);
    let behind = asm.cmpi(CmpI::Sgt, first, left);
    let before = asm.cmpi(CmpI::Slt, first, zero);
    let wrong = asm.bin(Bin::OrI, behind, before);
    let some = asm.cmpi(CmpI::Sgt, n, zero);
    let wrong = asm.bin(Bin::AndI, wrong, some);
    asm.if_then(wrong, |asm| asm.raise(cx.status));
    let n = asm.select(wrong, zero, n);
    let mut item = chunk.clone();
    item.point.values[segments.first] = Some(first);
    item.i0 = asm.bin(Bin::AddI, chunk.i0, row);
    item.rows = asm.bin(Bin::SubI, next, row);
    item.n_keys = n;
    item.alone = is_alone(cx, asm, chunk.plan, item.rows);
    (item, next)
}

impl Item<'_> {
    /// Emits the attention of all rows of the item over all keys of the item, block by block. `kept` identifies the
    /// transposed keys in scratch, so that consecutive chunks of rows with the same keys share them. Returns the number
    /// that identifies the keys in scratch afterwards, or -1 if these cannot be reused.
    pub fn run(&self, asm: &mut Mlir, kept: Val) -> Val {
        let (zero, block, none) = (asm.i64(0), asm.i64(BLOCK), asm.i64(-1));
        // Only the address of the keys distinguishes runs, and no number holds it if keys are staged or values copied.
        let has_address = self.plan.keys.is_some() && !self.plan.copies_values();
        let keys = match &self.plan.walked {
            Walked::Segments(_) | Walked::Lists(_) if !has_address => none,
            Walked::All | Walked::Segments(_) | Walked::Lists(_) => self.keys_number(asm),
        };
        self.begin(asm);
        let other = asm.cmpi(CmpI::Ne, keys, kept);
        let unknown = asm.cmpi(CmpI::Eq, keys, none);
        let other = asm.bin(Bin::OrI, other, unknown);
        // If the rows are a single group, all panels share one location in scratch, so keys that an earlier run of the
        // same sequence has transposed cannot be reused.
        let other = asm.bin(Bin::OrI, other, self.alone);
        asm.for_loop((zero, self.n_keys, block), &[], |asm, j0, _| {
            let left = asm.bin(Bin::SubI, self.n_keys, j0);
            let n = asm.bin(Bin::MinSI, left, block);
            let fresh = asm.cmpi(CmpI::Eq, j0, zero);
            self.block(asm, Keys { j0, n, fresh }, other);
            vec![]
        });
        self.finish(asm);
        let all = asm.cmpi(CmpI::Sle, self.n_keys, block);
        let kept = asm.select(all, keys, none);
        asm.select(self.alone, none, kept)
    }
}
