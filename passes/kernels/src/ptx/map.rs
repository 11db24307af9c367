//! store f(load …) at %0..: a thread computes consecutive points, or points that are a block's width apart
//!
//! If every access along the innermost variable is to aligned consecutive elements, or to a single element, a thread
//! takes as many consecutive elements as fit into 16 bytes, but at most four. The code tests whether parameters and
//! addresses allow this; the result is the same for all threads. Otherwise the threads of a block take consecutive
//! points, one each at a time.

use super::index::{first_item, index, outer_point};
use super::movement::{Launch, Steps, Traffic};
use super::tile::{self, Tile};
use super::vector::Vectors;
use super::{Form, GpuPlan, outer_points};
use crate::asm::{Asm, Bin, CmpI, Ptx, Val};
use crate::cx::Cx;
use crate::def::*;
use crate::eval::Point;
use crate::target::Target;

const THREADS: i64 = 128;

/// Number of points per thread if it takes them one by one.
const TIMES: i64 = 4;

/// Assignment of points to threads.
enum Plan {
    /// Operands that are contiguous along different variables go through shared memory.
    Tiles(Tile),
    Points(Option<Vectors>),
}

/// Plans a kernel without reductions; never returns `None`.
pub fn planned(def: &KernelDef, _: Target) -> Option<Box<dyn GpuPlan>> {
    let points = || Plan::Points(vectors(def));
    Some(Box::new(tile::plan(def).map_or_else(points, Plan::Tiles)))
}

impl GpuPlan for Plan {
    fn requests(&self, launch: &Launch) -> Vec<Traffic> {
        match self {
            Plan::Tiles(tile) => tile::requests(launch, tile),
            Plan::Points(vectors) => requests(launch, vectors.as_ref()),
        }
    }

    fn emit(&self, cx: &Cx<Ptx>, asm: &mut Ptx) -> Form {
        match self {
            Plan::Tiles(tile) => tile::emit(cx, asm, tile),
            Plan::Points(vectors) => emit(cx, asm, vectors.as_ref()),
        }
    }
}

fn emit(cx: &Cx<Ptx>, asm: &mut Ptx, vectors: Option<&Vectors>) -> Form {
    let points = outer_points(cx.def);
    let per_thread = vectors.map_or(TIMES, |v| v.width);
    let (first, n) = (first_item(asm, THREADS * per_thread), cx.dim(asm, &points));
    let thread = asm.special("%tid.x");
    let thread = index(asm, thread);
    let (behind, step) = (asm.i64(THREADS * per_thread), asm.i64(THREADS));
    let start = asm.bin(Bin::AddI, first, thread);
    let end = asm.bin(Bin::AddI, first, behind);
    let end = asm.bin(Bin::MinSI, end, n);
    let Some(vectors) = vectors else {
        one_by_one(cx, asm, (start, end, step));
        return Form::of_items(&points, THREADS * per_thread, THREADS);
    };
    let width = asm.i64(vectors.width);
    let within = asm.bin(Bin::MulI, thread, width);
    let own = asm.bin(Bin::AddI, first, within);
    let own_end = asm.bin(Bin::AddI, own, width);
    let aligned = vectors.test(cx, asm);
    let there = asm.cmpi(CmpI::Sle, own_end, n);
    let whole = asm.bin(Bin::AndI, aligned, there);
    let last = cx.def.outer.len() - 1;
    let all = |asm: &mut Ptx| {
        let mut point = Point::new(cx);
        point.vars = outer_point(cx, asm, own);
        (point.along, point.lanes, point.aligned) = (last, vectors.width as u32, true);
        store_all(cx, asm, point);
        vec![]
    };
    asm.if_else(whole, &[], all, |asm| {
        // Covers the last points of the launch, which do not fill a vector, or all points if they are not aligned.
        let one = asm.i64(1);
        let (start, end) = (asm.select(aligned, own, start), asm.select(aligned, n, end));
        let step = asm.select(aligned, one, step);
        one_by_one(cx, asm, (start, end, step));
        vec![]
    });
    Form::of_items(&points, THREADS * per_thread, THREADS)
}

fn one_by_one(cx: &Cx<Ptx>, asm: &mut Ptx, range: (Val, Val, Val)) {
    asm.for_loop(range, &[], |asm, i, _| {
        let mut point = Point::new(cx);
        point.vars = outer_point(cx, asm, i);
        store_all(cx, asm, point);
        vec![]
    });
}

fn store_all(cx: &Cx<Ptx>, asm: &mut Ptx, mut point: Point) {
    for write in &cx.def.stores {
        point.store(cx, asm, write);
    }
}

fn vectors(def: &KernelDef) -> Option<Vectors> {
    let last = def.outer.len().checked_sub(1)?;
    let vectors = Vectors::along(def, last)?;
    // Vectors must not cross from one row into the next.
    if last > 0 { vectors.divides(def.outer[last]) } else { Some(vectors) }
}

/// Requests of a launch's warps.
fn requests(launch: &Launch, vectors: Option<&Vectors>) -> Vec<Traffic> {
    let mut traffic = vec![Traffic::default(); launch.buffers()];
    let extents: Vec<i64> = (0..launch.def.n_vars()).map(|v| launch.extent(v)).collect();
    let n = extents.iter().product::<i64>();
    let vectors = vectors.filter(|v| v.holds(launch));
    let width = vectors.map_or(1, |v| v.width);
    let point = |step: i64, lane: usize| {
        let mut rest = (32 * step + lane as i64) * width;
        let inside = rest < n;
        let mut at = vec![0; extents.len()];
        for (v, extent) in extents.iter().enumerate().rev() {
            (at[v], rest) = (rest % extent.max(&1), rest / extent.max(&1));
        }
        inside.then_some(at)
    };
    let along = extents.len().saturating_sub(1);
    let steps = Steps { n: (n + 32 * width - 1) / (32 * width), point: &point, along, width, whole: vectors.is_some() };
    for touch in launch.touches() {
        launch.count(&mut traffic, touch, &steps);
    }
    traffic
}
