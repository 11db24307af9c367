//! for %0.. in outer { store f(load …) }: elementwise chains, gathers, concatenations, whatever has no reduction

use super::asm::{Asm, Bin, CmpI, Mlir, Val};
use super::cpu::CpuPlan;
use super::cx::{Cx, decode, whole_steps};
use super::def::*;
use super::eval::{Point, hoist};
use super::nest::{Loop, Nest};
use super::pace::Pace;
use super::ranges;
use sardonyx_base::Dim;
use std::sync::Arc;

/// Maximum number of elements of the innermost dimension in a work item.
const CHUNK: i64 = 4096;

/// Number of blocks of the innermost dimension, if there can be more than one.
fn blocks(def: &KernelDef) -> Option<Dim> {
    let extent = def.outer.last()?;
    match extent.as_const() {
        Some(n) if n <= CHUNK => None,
        Some(_) | None => Some(extent.dim().ceildiv(&Dim::constant(CHUNK))),
    }
}

/// Loops over the points of a kernel without reductions.
#[derive(Debug)]
struct Plan;

pub fn planned(_: &KernelDef) -> Option<Arc<dyn CpuPlan>> {
    Some(Arc::new(Plan))
}

impl CpuPlan for Plan {
    fn grid(&self, def: &KernelDef) -> Dim {
        grid(def)
    }

    fn nest(&self, def: &KernelDef, _: &[i64]) -> Nest {
        Nest { loops: Loop::each(0..def.outer.len()), passes: vec![1; def.body.len()] }
    }

    fn pace(&self, def: &KernelDef) -> Pace {
        def.pace_along(def.outer.len().checked_sub(1), 1.0)
    }

    fn emit(&self, cx: &Cx<Mlir>, asm: &mut Mlir) {
        emit(cx, asm);
    }
}

fn grid(def: &KernelDef) -> Dim {
    let rows = def.outer.iter().rev().skip(1).fold(Dim::constant(1), |p, e| p * e.dim());
    match (blocks(def), def.outer.last()) {
        (Some(b), _) => rows * b,
        // An innermost dimension without elements leaves no work.
        (None, Some(last)) if last.is(0) => Dim::constant(0),
        (None, _) => rows,
    }
}

fn emit(cx: &Cx<Mlir>, asm: &mut Mlir) {
    let n = cx.def.outer.len();
    let one = asm.i64(1);
    asm.for_loop((cx.launch.begin, cx.launch.end, one), &[], |asm, item, _| {
        let mut point = Point::new(cx);
        if n == 0 {
            store_all(cx, asm, &mut point);
            return vec![];
        }
        let last = n - 1;
        let mut extents: Vec<Val> = (0..last).map(|v| cx.extent(asm, v)).collect();
        let extent = cx.extent(asm, last);
        let (mut lo, mut hi) = (asm.i64(0), extent);
        if let Some(blocks) = blocks(cx.def) {
            extents.push(cx.dim(asm, &blocks));
            let mut at = decode(asm, item, &extents);
            let (chunk, block) = (asm.i64(CHUNK), at.pop().expect("a block number"));
            lo = asm.bin(Bin::MulI, block, chunk);
            let end = asm.bin(Bin::AddI, lo, chunk);
            hi = asm.bin(Bin::MinSI, end, extent);
            (0..last).for_each(|v| point.vars[v] = Some(at[v]));
        } else {
            let at = decode(asm, item, &extents);
            (0..last).for_each(|v| point.vars[v] = Some(at[v]));
        }
        hoist(cx, asm, &mut point, last, (0..cx.def.body.len()).collect());
        let pieces = if blocks(cx.def).is_none() { ranges::pieces(cx.def, last) } else { vec![] };
        for &(from, to) in &pieces {
            point.known = ranges::known(cx.def, last, from);
            let range = (asm.i64(from), asm.i64(to));
            along(cx, asm, &point, last, range, Some(to - from));
        }
        if pieces.is_empty() {
            along(cx, asm, &point, last, (lo, hi), cx.def.outer[last].as_const());
        }
        vec![]
    });
}

/// Stores the points lo..hi of the innermost variable, in vectors and then the remainder. `n` is the number of points,
/// if it is known at compile time.
pub fn along(cx: &Cx<Mlir>, asm: &mut Mlir, point: &Point, last: usize, (lo, hi): (Val, Val), n: Option<i64>) {
    let lanes = cx.lanes();
    let wide = loop_over(cx, asm, point, last, (lo, hi), lanes);
    if !cx.has_masks() {
        loop_over(cx, asm, point, last, (wide, hi), 1);
    } else if n.is_none_or(|n| n % lanes as i64 != 0) {
        let rest = asm.bin(Bin::SubI, hi, wide);
        let zero = asm.i64(0);
        let some = asm.cmpi(CmpI::Sgt, rest, zero);
        asm.if_then(some, |asm| {
            let mut point = point.masked_lanes(asm, last, wide, rest, lanes);
            store_all(cx, asm, &mut point);
        });
    }
}

/// Processes as many full steps of `lanes` elements as fit; returns the index after the last of them.
fn loop_over(cx: &Cx<Mlir>, asm: &mut Mlir, point: &Point, var: usize, (lo, hi): (Val, Val), lanes: u32) -> Val {
    let end = whole_steps(asm, lo, hi, lanes as i64);
    let step = asm.i64(lanes as i64);
    asm.for_loop((lo, end, step), &[], |asm, i, _| {
        let mut point = point.clone();
        point.vars[var] = Some(i);
        (point.along, point.lanes) = (var, lanes);
        store_all(cx, asm, &mut point);
        vec![]
    });
    end
}

fn store_all(cx: &Cx<Mlir>, asm: &mut Mlir, point: &mut Point) {
    for write in &cx.def.stores {
        point.store(cx, asm, write);
    }
}
