//! for %0.. in outer { for %k.. in inner { r = reduce f(load …) }; for … { store g(r, load …) } }: softmax, layer norm
//!
//! A work item is one outer point (one row), or a block of consecutive points. The inner space is traversed once per
//! stage (see `stages`). Attention without a faster plan is also computed here: a row then covers all outputs that
//! share scores.

use super::asm::{Asm, Bin, CmpI, Elem, Mlir, Ty, Val};
use super::cpu::CpuPlan;
use super::cx::{Cx, decode, whole_steps};
use super::def::*;
use super::eval::Point;
use super::nest::{Loop, Nest};
use super::pace::{LANES, PLAIN, Pace};
use super::pass::{Pass, marked, store_rows};
use super::reduce::{across_lanes, combine, neutral, paired, tree};
use super::scalar::{self, numbers_extremum};
use super::stages::{Lanes, Stages, heavy, late_vars};
use sardonyx_base::Dim;
use sardonyx_dialects::flow::kernel::Class;
use sardonyx_dialects::scalar::ReduceFn;
use std::sync::Arc;

/// Number of consecutive outer points of a work item, if lanes run along them.
const BLOCK: i64 = 64;

/// Number of elements, or of products, that a lane combines sequentially before the partial results are combined.
const PART: i64 = 128;
const PART_OF_PRODUCTS: i64 = 256;

/// Windows of at most this many points are unrolled.
const WINDOW_MAX: i64 = 9;

/// Lengths of rows that are worth prefetching, yet short enough to stay in the cache until they are used.
const FETCHED_ROWS: std::ops::RangeInclusive<i64> = 256..=16384;

/// Outer variables that enumerate work items, that is, all but the late ones (see `stages`).
fn early_vars(def: &KernelDef) -> Vec<usize> {
    let late = late_vars(def);
    (0..def.outer.len()).filter(|v| late >> v & 1 == 0).collect()
}

/// Passes over the inner space of each row, or of a block of rows.
#[derive(Debug)]
struct Plan {
    stages: Stages,
    /// Outer variables that enumerate work items, and the late outer variables.
    early: Vec<usize>,
    late: Vec<usize>,
}

pub fn planned(def: &KernelDef) -> Option<Arc<dyn CpuPlan>> {
    let early = early_vars(def);
    let late = (0..def.outer.len()).filter(|v| !early.contains(v)).collect();
    Some(Arc::new(Plan { stages: Stages::of_rows(def), early, late }))
}

impl Plan {
    /// Returns, if each lane has its own row, the variable that lanes run along and the outer variables before it.
    fn lanes_along(&self) -> Option<(&usize, &[usize])> {
        self.early.split_last().filter(|_| self.stages.is_along_outer())
    }
}

impl CpuPlan for Plan {
    fn grid(&self, def: &KernelDef) -> Dim {
        let rows = |vars: &[usize]| vars.iter().fold(Dim::constant(1), |p, v| p * def.outer[*v].dim());
        match self.lanes_along() {
            Some((last, others)) => rows(others) * def.outer[*last].dim().ceildiv(&Dim::constant(BLOCK)),
            None => rows(&self.early),
        }
    }

    fn scratch_bytes(&self, _: &KernelDef) -> Dim {
        self.stages.scratch_bytes.clone()
    }

    fn nest(&self, def: &KernelDef, _: &[i64]) -> Nest {
        let (n, stages) = (def.outer.len(), &self.stages);
        let mut loops = Loop::each(0..n);
        if stages.is_along_outer()
            && let Some(Loop::Var { step, .. }) = loops.last_mut()
        {
            *step = LANES;
        }
        loops.push(Loop::Passes);
        loops.extend(Loop::each(n..def.n_vars()));
        let kept = |k: usize| stages.kept.iter().any(|(s, _)| *s == k);
        let evaluated = stages.evaluated(def, kept);
        let count = |k| evaluated.iter().filter(|stage| stage.contains(&k)).count() as i64;
        Nest { loops, passes: (0..def.body.len()).map(count).collect() }
    }

    fn pace(&self, def: &KernelDef) -> Pace {
        let n = if self.stages.is_along_outer() { def.outer.len() } else { def.n_point_vars() };
        def.pace_along(n.checked_sub(1), if def.class == Class::Contract { PLAIN } else { 1.0 })
    }

    fn emit(&self, cx: &Cx<Mlir>, asm: &mut Mlir) {
        emit(cx, asm, self);
    }
}

fn emit(cx: &Cx<Mlir>, asm: &mut Mlir, plan: &Plan) {
    let one = asm.i64(1);
    let early = &plan.early;
    asm.for_loop((cx.launch.begin, cx.launch.end, one), &[], |asm, item, _| {
        let mut point = Point::new(cx);
        let mut extents: Vec<Val> = early.iter().map(|&v| cx.extent(asm, v)).collect();
        let Some((&last, others)) = plan.lanes_along() else {
            let at = decode(asm, item, &extents);
            early.iter().zip(at).for_each(|(&v, at)| point.vars[v] = Some(at));
            row(cx, asm, plan, point);
            return vec![];
        };
        let (extent, block) = (extents[others.len()], asm.i64(BLOCK));
        let n_blocks = cx.def.outer[last].dim().ceildiv(&Dim::constant(BLOCK));
        extents[others.len()] = cx.dim(asm, &n_blocks);
        let at = decode(asm, item, &extents);
        others.iter().for_each(|&v| point.vars[v] = Some(at[v]));
        let lo = asm.bin(Bin::MulI, at[last], block);
        let hi = asm.bin(Bin::AddI, lo, block);
        let hi = asm.bin(Bin::MinSI, hi, extent);
        along(cx, asm, last, (lo, hi), &point, &|asm, point| row(cx, asm, plan, point));
        vec![]
    });
}

/// Calls `each` for vectors of consecutive points along an outer variable; an incomplete last vector is masked, or
/// processed point by point.
fn along(
    cx: &Cx<Mlir>,
    asm: &mut Mlir,
    var: usize,
    (lo, hi): (Val, Val),
    point: &Point,
    each: &dyn Fn(&mut Mlir, Point),
) {
    let lanes = cx.lanes();
    let wide = whole_steps(asm, lo, hi, lanes as i64);
    let loops = [(lo, wide, lanes), (wide, hi, 1)];
    for (lo, hi, lanes) in &loops[..if cx.has_masks() { 1 } else { 2 }] {
        let step = asm.i64(*lanes as i64);
        asm.for_loop((*lo, *hi, step), &[], |asm, i, _| {
            let mut point = point.clone();
            point.vars[var] = Some(i);
            (point.along, point.lanes) = (var, *lanes);
            each(asm, point);
            vec![]
        });
    }
    if cx.has_masks() {
        let rest = asm.bin(Bin::SubI, hi, wide);
        let some = asm.cmpi(CmpI::Ne, wide, hi);
        asm.if_then(some, |asm| {
            let point = point.masked_lanes(asm, var, wide, rest, lanes);
            each(asm, point);
        });
    }
}

/// Runs the early stages of one outer point, then the late points.
fn row(cx: &Cx<Mlir>, asm: &mut Mlir, plan: &Plan, mut point: Point) {
    for stage in 0..plan.stages.n_early {
        pass(cx, asm, &plan.stages, stage, &mut point);
    }
    late_points(cx, asm, &plan.stages, &plan.late, point);
}

/// Runs, at each late point, the stages that depend on late variables and the row stores; lanes run along the last late
/// variable.
fn late_points(cx: &Cx<Mlir>, asm: &mut Mlir, stages: &Stages, late: &[usize], mut point: Point) {
    let Some((&var, rest)) = late.split_first() else {
        for stage in stages.n_early..stages.n {
            pass(cx, asm, stages, stage, &mut point);
        }
        return store_rows(cx, asm, stages, &mut point);
    };
    let (zero, one, extent) = (asm.i64(0), asm.i64(1), cx.extent(asm, var));
    if rest.is_empty() {
        return along(cx, asm, var, (zero, extent), &point, &|asm, point| late_points(cx, asm, stages, rest, point));
    }
    asm.for_loop((zero, extent, one), &[], |asm, i, _| {
        let mut point = point.clone();
        point.vars[var] = Some(i);
        late_points(cx, asm, stages, rest, point);
        vec![]
    });
}

fn pass(cx: &Cx<Mlir>, asm: &mut Mlir, stages: &Stages, stage: usize, point: &mut Point) {
    let def = cx.def;
    let mut pass = Pass::new(def, stages, stage);
    let along = stages.lanes(stage);
    let is_heavy = (0..def.body.len()).any(|k| stages.first[k] == Some(stage) && heavy(def, &stages.point)[k]);
    pass.unroll = match along {
        Lanes::Outer | Lanes::Threads => 1,
        Lanes::Inner if is_heavy => 2,
        Lanes::Inner => 4,
    };
    pass.singles = along == Lanes::Inner && !cx.has_masks();
    pass.marked = (0..pass.reductions.len()).filter(|r| is_marked(def, pass.reductions[*r])).collect();
    pass.hoist(cx, asm, point, def.inner_vars());
    let lanes = match along {
        Lanes::Inner => cx.lanes(),
        Lanes::Outer | Lanes::Threads => point.lanes,
    };
    let mut accumulators = vec![];
    for &(k, f, _) in &pass.reductions {
        let elem = scalar::register(def.body[k].dtype);
        let start = neutral(asm, f, def.body[k].dtype, Ty::new(elem, lanes));
        accumulators.extend(vec![start; pass.unroll]);
        if pass.singles {
            accumulators.push(neutral(asm, f, def.body[k].dtype, Ty::new(elem, 1)));
        }
    }
    for &r in &pass.marked {
        let elem = scalar::register(def.body[pass.reductions[r].0].dtype);
        accumulators.push(asm.zero(Ty::new(elem, lanes)));
        if pass.singles {
            accumulators.push(asm.zero(Ty::new(elem, 1)));
        }
    }
    let totals = pass.nest(cx, asm, point, def.outer.len(), accumulators);
    let width = pass.width();
    for (i, &(k, f, _)) in pass.reductions.iter().enumerate() {
        let t = def.body[k].dtype;
        let parts = &totals[i * width..(i + 1) * width];
        let mut v = match pass.mark(i, false) {
            None => tree(asm, f, t, parts[..pass.unroll].to_vec()),
            Some(mark) => {
                let numbers = paired(asm, parts[..pass.unroll].to_vec(), |asm, a, b| numbers_extremum(asm, f, a, b));
                marked(asm, totals[mark], numbers)
            }
        };
        if along == Lanes::Inner {
            v = across_lanes(asm, f, t, v);
        }
        if pass.singles {
            let single = parts[pass.unroll];
            let single = pass.mark(i, true).map_or(single, |mark| marked(asm, totals[mark], single));
            v = combine(asm, f, t, v, single);
        }
        let v = scalar::rounded(asm, v, t);
        // A reduction of values that are the same in all lanes is the same in all lanes.
        let varies = point.lanes > 1 && cx.deps[k] >> point.along & 1 == 1;
        point.values[k] = Some(if varies { v } else { asm.extract(v, 0) });
    }
}

impl Pass<'_> {
    /// Processes one step: loads the values that earlier stages kept, combines, stores, and keeps the values that
    /// later stages need.
    fn leaf(
        &self,
        cx: &Cx<Mlir>,
        asm: &mut Mlir,
        point: &mut Point,
        accumulators: &[Val],
        slot: impl Fn(usize) -> usize,
    ) -> Vec<Val> {
        for (k, offset) in self.stages.kept.iter().filter(|(k, _)| self.is_loaded(*k)) {
            let (address, ty) = self.kept_row(cx, asm, point, *k, offset);
            point.values[*k] = Some(asm.load(address, ty, 4));
        }
        let accumulators = self.combine(cx, asm, point, accumulators, slot);
        if self.fetches(cx) && point.lanes == cx.lanes() && point.mask.is_none() {
            self.fetch_next(cx, asm, point);
        }
        self.store(cx, asm, point);
        for (k, offset) in &self.stages.kept {
            if self.stages.first[*k] == Some(self.stage) {
                let v = point.eval(cx, asm, *k);
                let (address, ty) = self.kept_row(cx, asm, point, *k, offset);
                let v = asm.widen(v, ty.lanes);
                asm.store(v, address, 4);
            }
        }
        accumulators
    }

    /// Loops from variable `var` inwards.
    fn nest(&self, cx: &Cx<Mlir>, asm: &mut Mlir, point: &Point, var: usize, accumulators: Vec<Val>) -> Vec<Val> {
        let (zero, one, extent) = (asm.i64(0), asm.i64(1), cx.extent(asm, var));
        let innermost = var + 1 == cx.def.n_point_vars();
        if innermost && self.stages.lanes(self.stage) == Lanes::Inner {
            return self.innermost(cx, asm, point, var, accumulators);
        }
        let inwards = |asm: &mut Mlir, i: Val, accumulators: &[Val]| {
            let mut point = point.clone();
            point.vars[var] = Some(i);
            self.hoist(cx, asm, &mut point, cx.def.inner_vars() >> (var + 1) << (var + 1));
            match innermost {
                true => self.leaf(cx, asm, &mut point, accumulators, |r| r),
                false => self.nest(cx, asm, &point, var + 1, accumulators.to_vec()),
            }
        };
        if let Some(n) = small_window(cx.def, var) {
            return (0..n).fold(accumulators, |accumulators, i| {
                let i = asm.i64(i);
                inwards(asm, i, &accumulators)
            });
        }
        if innermost {
            let part = if cx.def.class == Class::Contract { PART_OF_PRODUCTS } else { PART };
            if self.reductions.is_empty() || cx.def.extent(var).as_const().is_some_and(|n| n <= part) {
                return asm.for_loop((zero, extent, one), &accumulators, inwards);
            }
            // Long reductions are split into parts, whose results are then combined, to reduce the rounding error of
            // sums.
            let part = asm.i64(part);
            return asm.for_loop((zero, extent, part), &accumulators, |asm, first, accumulators| {
                let end = asm.bin(Bin::AddI, first, part);
                let end = asm.bin(Bin::MinSI, end, extent);
                let mut fresh = vec![];
                for (&(k, f, _), total) in self.reductions.iter().zip(accumulators) {
                    fresh.push(neutral(asm, f, cx.def.body[k].dtype, total.ty));
                }
                let (totals, marks) = accumulators.split_at(fresh.len());
                fresh.extend(marks);
                let parts = asm.for_loop((first, end, one), &fresh, inwards);
                let (parts, marks) = parts.split_at(totals.len());
                let mut next = vec![];
                for (&(k, f, _), (total, part)) in self.reductions.iter().zip(totals.iter().zip(parts)) {
                    next.push(combine(asm, f, cx.def.body[k].dtype, *total, *part));
                }
                next.extend(marks);
                next
            });
        }
        asm.for_loop((zero, extent, one), &accumulators, inwards)
    }

    /// Processes several vectors at a time, then single vectors, then the remainder, as a masked vector or element by
    /// element.
    fn innermost(
        &self,
        cx: &Cx<Mlir>,
        asm: &mut Mlir,
        point: &Point,
        var: usize,
        mut accumulators: Vec<Val>,
    ) -> Vec<Val> {
        let (mut lo, extent) = (asm.i64(0), cx.extent(asm, var));
        let lanes = cx.lanes();
        let loops = [(self.unroll, lanes), (1, lanes), (1, 1)];
        for (vectors, lanes) in &loops[..if self.singles { 3 } else { 2 }] {
            let step = *vectors as i64 * *lanes as i64;
            let hi = whole_steps(asm, lo, extent, step);
            let step = asm.i64(step);
            accumulators = asm.for_loop((lo, hi, step), &accumulators, |asm, i, accumulators| {
                let mut accumulators = accumulators.to_vec();
                for vector in 0..*vectors {
                    let mut point = point.clone();
                    let at = asm.i64(vector as i64 * *lanes as i64);
                    point.vars[var] = Some(if vector == 0 { i } else { asm.bin(Bin::AddI, i, at) });
                    (point.along, point.lanes) = (var, *lanes);
                    let slot = if *lanes == 1 { self.unroll } else { vector };
                    accumulators = self.leaf(cx, asm, &mut point, &accumulators, |r| r * self.width() + slot);
                }
                accumulators
            });
            lo = hi;
        }
        if self.singles || cx.def.extent(var).as_const().is_some_and(|n| n % lanes as i64 == 0) {
            return accumulators;
        }
        let rest = asm.bin(Bin::SubI, extent, lo);
        let some = asm.cmpi(CmpI::Ne, lo, extent);
        let tys: Vec<Ty> = accumulators.iter().map(|a| a.ty).collect();
        asm.if_else(
            some,
            &tys,
            |asm| {
                let mut point = point.masked_lanes(asm, var, lo, rest, lanes);
                self.leaf(cx, asm, &mut point, &accumulators, |r| r * self.width())
            },
            |_| accumulators.clone(),
        )
    }

    /// Whether this pass, which reads its row from the cache, prefetches the next row while memory is idle.
    fn fetches(&self, cx: &Cx<Mlir>) -> bool {
        let row = cx.def.extent(cx.def.n_point_vars() - 1).as_const();
        let long = row.is_some_and(|n| FETCHED_ROWS.contains(&n));
        long && self.stage == 1 && self.stages.lanes(0) == Lanes::Inner && cx.def.inner.len() == 1
    }

    /// Prefetches the next row's elements at the position of the point.
    fn fetch_next(&self, cx: &Cx<Mlir>, asm: &mut Mlir, point: &mut Point) {
        let Some(row) = early_vars(cx.def).last().copied() else { return };
        for step in &cx.def.body {
            let Op::Load { access, guard: None } = &step.op else { continue };
            let storage = &cx.def.reads[access.buffer];
            let along = storage.panels.is_none() && access.computed.is_empty() && access.stride(point.along).is(1);
            if along && !access.stride(row).is(0) {
                let (here, stride) = (point.start(cx, asm, access, None), cx.size(asm, access.stride(row)));
                let next = asm.bin(Bin::AddI, here, stride);
                let address = asm.element(cx.reads[access.buffer], next, scalar::stored(storage.dtype));
                asm.prefetch(address);
            }
        }
    }

    /// Address in scratch of a kept statement's value at this point, and its type.
    fn kept_row(&self, cx: &Cx<Mlir>, asm: &mut Mlir, point: &Point, k: usize, offset: &Dim) -> (Val, Ty) {
        let varies = cx.deps[k] >> point.along & 1 == 1;
        let ty = Ty::new(scalar::register(cx.def.body[k].dtype), if varies { point.lanes } else { 1 });
        let offset = cx.dim(asm, offset);
        let base = asm.element(cx.launch.scratch, offset, Elem::I8);
        let mut index: Option<Val> = None;
        for var in cx.def.outer.len()..cx.def.n_point_vars() {
            let at = point.vars[var].expect("inside all loops");
            index = Some(match index {
                None => at,
                Some(sum) => {
                    let extent = cx.extent(asm, var);
                    let rows = asm.bin(Bin::MulI, sum, extent);
                    asm.bin(Bin::AddI, rows, at)
                }
            });
        }
        let address = asm.element(base, index.expect("an inner variable"), ty.elem);
        (address, ty)
    }
}

/// Returns the extent of an inner variable, if this variable and those inside it have so few points together that their
/// loops are unrolled.
fn small_window(def: &KernelDef, var: usize) -> Option<i64> {
    let points = (var..def.n_point_vars())
        .try_fold(1i64, |n, v| n.checked_mul(def.extent(v).as_const()?).filter(|n| *n <= WINDOW_MAX));
    points.and_then(|_| def.extent(var).as_const())
}

/// Whether a reduction computes a maximum or minimum of floats.
fn is_marked(def: &KernelDef, (k, f, _): (usize, ReduceFn, usize)) -> bool {
    def.body[k].dtype.is_float() && matches!(f, ReduceFn::Max | ReduceFn::Min)
}
