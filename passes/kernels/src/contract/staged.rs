//! pad(f(x))  =>  scratch[line][pixel][channel]: what a padded left factor is made of is computed where the work item reads it
//!
//! A work item reads a window of the image around its rows. Every element of the window is computed once, in vectors along the
//! channels, however many offsets of the window read it; then the contraction runs over scratch as it would over memory.

use super::plan::{Form, Plan, WIDTH};
use super::{Item, plus};
use crate::asm::{Asm, Bin, CmpI, Elem, Mlir, Val};
use crate::cx::whole_steps;
use crate::def::*;
use crate::eval::{Point, hoist};
use crate::scalar;
use sardonyx_base::Dim;
use sardonyx_dialects::scalar::{Conversion, ScalarFn};
use std::collections::BTreeSet;

/// A window of so many bytes stays in the second-level cache beside the panels.
const BYTES_MAX: i64 = 1 << 19;

/// Lines of an image that a work item of a depthwise convolution goes through: each line of it is read by several.
pub const LINES: i64 = 4;

/// What is computed, and how it lies in scratch.
#[derive(Clone, Debug)]
pub struct Staged {
    root: usize,
    /// What it is made of, in order.
    parts: Vec<usize>,
    /// The variable of neighbours in scratch: channels.
    unit: usize,
    /// Those of them that are in scratch at once.
    columns: i64,
    axes: Vec<Axis>,
    bytes: i64,
}

/// Places step · outer + dilation · tap of a window.
#[derive(Clone, Debug)]
struct Axis {
    /// A variable that a work item has several points of.
    outer: Option<(usize, i64)>,
    /// A variable that is summed over.
    tap: Option<(usize, i64)>,
    /// Elements of scratch from one place to the next.
    stride: i64,
}

/// The load of a padded factor: a constant where a guard does not hold, and a function of the load and of constants elsewhere.
pub fn padded_load(def: &KernelDef, k: usize) -> Option<&Access> {
    let Op::Apply { f: ScalarFn::Select, args } = &def.body[k].op else { return None };
    let is_const = |k: usize| matches!(def.body[k].op, Op::Const(_));
    let (guard, mut value) = (args[0], args[1]);
    if !is_const(args[2]) {
        return None;
    }
    loop {
        value = match &def.body[value].op {
            Op::Load { access, guard: Some(own) } if *own == guard && access.computed.is_empty() => {
                return Some(access);
            }
            Op::Convert(from, Conversion::Value) => *from,
            Op::Apply { args, .. } => {
                let mut open = args.iter().copied().filter(|a| !is_const(*a));
                open.next().filter(|_| open.next().is_none())?
            }
            Op::Load { .. } | Op::Const(_) | Op::Index(_) | Op::Convert(..) | Op::Reduce { .. } => return None,
        }
    }
}

impl Staged {
    /// How the left factor of a plan is staged, and where it then lies; `plan.a` is the load that it is made of.
    pub fn new(def: &KernelDef, plan: &Plan, root: usize) -> Option<(Staged, Access)> {
        let load = &plan.a;
        let channels = if plan.diagonal { plan.n } else { plan.k };
        let unit = [channels].into_iter().chain(plan.around.iter().copied()).find(|v| load.stride(*v).is(1))?;
        if plan.form == Form::Copied || def.reads[load.buffer].panels.is_some() {
            return None;
        }
        let parts = parts(def, root);
        let place = |k: &usize| match &def.body[*k].op {
            Op::Index(place) => Some(place),
            _ => None,
        };
        let places: Vec<&Dim> = parts.iter().filter_map(place).collect();
        if places.iter().any(|place| place.symbols().contains(format!("%{unit}").as_str())) {
            return None;
        }
        let columns = if plan.diagonal { WIDTH } else { def.extent(unit).as_const()? };
        let taps = plan.around.iter().chain([&plan.k]).copied().filter(|v| *v != unit && load.moves_with(*v));
        let mut moving: Vec<usize> = plan.slabs.last().copied().into_iter().chain(plan.m).collect();
        let mut axes: Vec<Axis> = vec![];
        for tap in taps {
            let found = axis(def, (load, &places), tap, &moving)?;
            moving.retain(|v| found.outer.is_none_or(|(outer, _)| outer != *v));
            axes.push(found);
        }
        axes.extend(moving.into_iter().map(|v| Axis { outer: Some((v, 1)), tap: None, stride: 0 }));
        // The pixels of a line are neighbours.
        axes.sort_by_key(|a| a.outer.map_or(0, |(v, _)| if Some(v) == plan.m { 2 } else { 1 }));
        let mut stride = columns;
        for axis in axes.iter_mut().rev() {
            axis.stride = stride;
            stride = stride.checked_mul(axis.places_max(def, plan)?)?;
        }
        let bytes = stride.checked_mul(scalar::stored(def.body[root].dtype).bits() as i64)?.div_euclid(8);
        if bytes > BYTES_MAX {
            return None;
        }
        let mut strides = vec![Size::Const(0); def.n_vars()];
        strides[unit] = Size::Const(1);
        for axis in &axes {
            for (var, step) in [axis.outer, axis.tap].into_iter().flatten() {
                strides[var] = Size::Const(step * axis.stride);
            }
        }
        let coords = vec![Linear { offset: Size::Const(0), strides }];
        let access = Access { buffer: load.buffer, coords, computed: vec![] };
        Some((Staged { root, parts, unit, columns, axes, bytes }, access))
    }

    pub fn bytes(&self) -> Dim {
        Dim::constant((self.bytes + 63) & !63)
    }
}

/// What a statement is made of, and itself, in order.
fn parts(def: &KernelDef, root: usize) -> Vec<usize> {
    let (mut open, mut parts) = (vec![root], BTreeSet::new());
    while let Some(k) = open.pop() {
        if parts.insert(k) {
            open.extend(def.operands(k));
        }
    }
    parts.into_iter().collect()
}

/// The places of a variable of the sum, together with one of `moving` where their windows overlap: then each index has both in
/// one combination, and the same value of it is the same element.
fn axis(def: &KernelDef, (load, places): (&Access, &[&Dim]), tap: usize, moving: &[usize]) -> Option<Axis> {
    let taps = def.extent(tap).as_const()?;
    let overlap = |(s, d): &(i64, i64)| *s <= (taps - 1).saturating_mul(*d) && (*s == 1 || *d == 1);
    let shared = |v: &usize| Some((*v, together(load, places, [*v, tap]).filter(overlap)?));
    if let Some((v, (s, d))) = moving.iter().find_map(shared) {
        return Some(Axis { outer: Some((v, s)), tap: Some((tap, d)), stride: 0 });
    }
    Some(Axis { outer: None, tap: Some((tap, 1)), stride: 0 })
}

/// The steps s and d of two variables, where every index and the load contain s · u + d · t or neither.
fn together(load: &Access, places: &[&Dim], [u, t]: [usize; 2]) -> Option<(i64, i64)> {
    let mut found = None;
    for place in places {
        let [s, d] = [u, t].map(|v| place.linear_in(&format!("%{v}")).and_then(|(step, _)| step.as_const()));
        match (s?, d?) {
            (0, 0) => {}
            (s, d) if s > 0 && d > 0 => {
                if *found.get_or_insert((s, d)) != (s, d) {
                    return None;
                }
            }
            _ => return None,
        }
    }
    let strides = (load.stride(u), load.stride(t));
    let (s, d) = match (found, strides) {
        (Some(found), _) => found,
        (None, (Size::Const(a), Size::Const(b))) if a > 0 && b > 0 && a % b == 0 => (a.div_euclid(b), 1),
        (None, (a, b)) if a == b && !a.is(0) => (1, 1),
        (None, _) => return None,
    };
    let agree = match strides {
        (Size::Const(a), Size::Const(b)) => a.checked_mul(d)? == b.checked_mul(s)? && a != 0,
        (a, b) => a == b && s == d,
    };
    agree.then_some((s, d))
}

impl Axis {
    /// Places of a work item, at most.
    fn places_max(&self, def: &KernelDef, plan: &Plan) -> Option<i64> {
        let points = match self.outer {
            Some((v, _)) if Some(v) == plan.m => {
                let rows = plan.chunk_rows(def);
                def.extent(v).as_const().map_or(rows, |n| n.min(rows))
            }
            Some(_) => plan.slabs_per_item(def),
            None => 1,
        };
        let taps = self.tap.map_or(Some((1, 0)), |(t, d)| Some((def.extent(t).as_const()?, d)))?;
        let outer = points.checked_sub(1)?.checked_mul(self.outer.map_or(0, |(_, s)| s))?;
        outer.checked_add((taps.0 - 1).checked_mul(taps.1)?)?.checked_add(1)
    }
}

impl Item<'_> {
    /// Where the staged factor begins.
    fn stage_at(&self, asm: &mut Mlir) -> Val {
        let before = self.cx.dim(asm, &self.plan.sums_bytes(self.cx.def));
        asm.element(self.cx.launch.scratch, before, Elem::I8)
    }

    /// Where the left factor begins for the row.
    pub fn staged_at(&self, asm: &mut Mlir, row: Val) -> Val {
        let (cx, plan) = (self.cx, self.plan);
        let (mut at, zero) = (self.point.clone(), asm.i64(0));
        at.vars.iter_mut().for_each(|v| *v = Some(zero));
        if let Some(m) = plan.m {
            at.vars[m] = Some(row);
        }
        if let (Some(&slab), Some((first, _))) = (plan.slabs.last(), self.slabs) {
            at.vars[slab] = self.point.vars[slab].map(|v| asm.bin(Bin::SubI, v, first));
        }
        let start = at.start(cx, asm, &plan.a, None);
        let base = self.stage_at(asm);
        asm.element(base, start, plan.words.element())
    }

    /// Computes the left factor for the rows of the item, all its slabs, and the columns of its panel.
    pub fn stage(&self, asm: &mut Mlir) {
        let Some(staged) = &self.plan.staged else { return };
        let zero = asm.i64(0);
        let mut point = self.point.clone();
        self.plan.around.iter().chain([&self.plan.k]).for_each(|v| point.vars[*v] = Some(zero));
        let to = self.stage_at(asm);
        self.stage_axes(asm, staged, &staged.axes, point, to);
    }

    fn stage_axes(&self, asm: &mut Mlir, staged: &Staged, axes: &[Axis], point: Point, to: Val) {
        let (cx, plan) = (self.cx, self.plan);
        let elem = scalar::stored(cx.def.body[staged.root].dtype);
        let Some((axis, inside)) = axes.split_first() else { return self.stage_channels(asm, staged, point, to) };
        let (zero, one) = (asm.i64(0), asm.i64(1));
        let (first, points) = match (axis.outer, self.slabs) {
            (Some((v, _)), _) if Some(v) == plan.m => (self.m0, self.rows),
            (Some(_), Some((first, end))) => (first, asm.bin(Bin::SubI, end, first)),
            (Some(_), None) | (None, _) => (zero, one),
        };
        let step = asm.i64(axis.outer.map_or(0, |(_, s)| s));
        let last = asm.bin(Bin::SubI, points, one);
        let places = asm.bin(Bin::MulI, last, step);
        let more = axis.tap.map_or(1, |(t, d)| (cx.def.extent(t).as_const().unwrap_or(1) - 1) * d + 1);
        let places = plus(asm, places, more);
        asm.for_loop((zero, places, one), &[], |asm, place, _| {
            let mut point = point.clone();
            match (axis.outer, axis.tap) {
                (Some((v, 1)), _) => point.vars[v] = Some(asm.bin(Bin::AddI, first, place)),
                (Some((v, _)), tap) => {
                    let points = asm.bin(Bin::DivUI, place, step);
                    point.vars[v] = Some(asm.bin(Bin::AddI, first, points));
                    if let Some((t, _)) = tap {
                        point.vars[t] = Some(asm.bin(Bin::RemUI, place, step));
                    }
                }
                (None, Some((t, _))) => point.vars[t] = Some(place),
                (None, None) => {}
            }
            let stride = asm.i64(axis.stride);
            let behind = asm.bin(Bin::MulI, place, stride);
            let to = asm.element(to, behind, elem);
            self.stage_axes(asm, staged, inside, point, to);
            vec![]
        });
    }

    /// The channels of one pixel.
    fn stage_channels(&self, asm: &mut Mlir, staged: &Staged, mut point: Point, to: Val) {
        let (cx, unit) = (self.cx, staged.unit);
        let lanes = cx.lanes();
        let (zero, extent) = (asm.i64(0), cx.extent(asm, unit));
        let (lo, hi) = match self.plan.diagonal {
            true => {
                let width = asm.i64(staged.columns);
                let end = asm.bin(Bin::AddI, self.n0, width);
                (self.n0, asm.bin(Bin::MinSI, end, extent))
            }
            false => (zero, extent),
        };
        point.vars[unit] = None;
        hoist(cx, asm, &mut point, unit, staged.parts.clone());
        let vectors = |asm: &mut Mlir, (lo, hi): (Val, Val), lanes: u32| {
            let (whole, step) = (whole_steps(asm, lo, hi, lanes as i64), asm.i64(lanes as i64));
            asm.for_loop((lo, whole, step), &[], |asm, at, _| {
                let mut point = point.clone();
                point.vars[unit] = Some(at);
                (point.along, point.lanes) = (unit, lanes);
                self.stage_vector(asm, staged, point, (at, self.channel_first(zero)), to);
                vec![]
            });
            whole
        };
        let whole = vectors(asm, (lo, hi), lanes);
        let extent = cx.def.extent(unit).as_const();
        if extent.is_some_and(|n| n % lanes as i64 == 0) {
            return;
        }
        if !cx.has_masks() {
            vectors(asm, (whole, hi), 1);
            return;
        }
        let rest = asm.bin(Bin::SubI, hi, whole);
        let some = asm.cmpi(CmpI::Sgt, rest, zero);
        asm.if_then(some, |asm| {
            let point = point.masked_lanes(asm, unit, whole, rest, lanes);
            self.stage_vector(asm, staged, point, (whole, self.channel_first(zero)), to);
        });
    }

    /// The channel that is first in scratch.
    fn channel_first(&self, zero: Val) -> Val {
        if self.plan.diagonal { self.n0 } else { zero }
    }

    fn stage_vector(&self, asm: &mut Mlir, staged: &Staged, mut point: Point, (at, first): (Val, Val), to: Val) {
        let (cx, dtype) = (self.cx, self.cx.def.body[staged.root].dtype);
        let value = point.eval(cx, asm, staged.root);
        let value = asm.widen(value, point.lanes);
        let value = scalar::before_store(asm, value, dtype);
        let behind = asm.bin(Bin::SubI, at, first);
        let address = asm.element(to, behind, value.ty.elem);
        match point.mask {
            Some(mask) => asm.masked_store(value, address, mask),
            None => asm.store(value, address, value.ty.elem.bits() / 8),
        }
    }
}
