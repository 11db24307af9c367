//! pad(f(x))  =>  scratch[line][pixel][channel]: a padded operand A, computed by the work item that reads it
//!
//! A work item reads a window of the image around its rows. Every element of the window is computed once, vectorised
//! along the channels, however many window offsets read it; then the contraction reads scratch as it would read memory.
//! `stage` emits the computation.

use super::plan::{Form, Plan, WIDTH};
use crate::def::*;
use crate::scalar;
use sardonyx_base::Dim;
use sardonyx_base::dim::Symbol;
use sardonyx_dialects::scalar::{Conversion, ScalarFn};
use std::collections::BTreeSet;

/// Windows of at most this many bytes stay in the second-level cache beside the panels.
const BYTES_MAX: i64 = 1 << 19;

/// Minimum number of lines of the result that a work item of a depthwise convolution covers: each line of the image
/// serves several lines of the result.
pub const LINES: i64 = 4;

/// The operand that is computed, and its layout in scratch.
#[derive(Clone, Debug)]
pub struct Staged {
    pub root: usize,
    /// `root` and the statements that it is computed from, in order.
    pub parts: Vec<usize>,
    /// Variable along which elements are contiguous in scratch: channels.
    pub unit: usize,
    /// Number of channels that are in scratch at once.
    pub columns: i64,
    pub axes: Vec<Axis>,
    bytes: i64,
}

/// Positions step · outer + dilation · tap along one axis of a window.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Outer variable of which a work item covers several points, and its step.
    pub outer: Option<(usize, i64)>,
    /// Reduction variable, and its dilation.
    pub tap: Option<(usize, i64)>,
    /// Distance in elements of scratch from one position to the next.
    pub stride: i64,
}

/// Returns the load of a padded operand: the operand is a constant where a guard is false, else a function of the load
/// and of constants.
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
    /// Returns how operand A of a plan is staged, and the access that reads A from scratch. `plan.a` is the load that A
    /// is computed from. `None` if the operand has no supported layout or is too large.
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
        if places.iter().any(|place| place.variables().contains(&unit)) {
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
        // The axis of the pixels of a line (the rows) is the innermost one.
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

/// A statement and everything that it is computed from, in order.
fn parts(def: &KernelDef, root: usize) -> Vec<usize> {
    let (mut open, mut parts) = (vec![root], BTreeSet::new());
    while let Some(k) = open.pop() {
        if parts.insert(k) {
            open.extend(def.operands(k));
        }
    }
    parts.into_iter().collect()
}

/// Returns the axis of the reduction variable `tap`. If the windows of adjacent values of a variable in `moving`
/// overlap along `tap`, both variables share the axis: every index contains the same linear combination of the two, and
/// equal values of this combination denote the same element.
fn axis(def: &KernelDef, (load, places): (&Access, &[&Dim]), tap: usize, moving: &[usize]) -> Option<Axis> {
    let taps = def.extent(tap).as_const()?;
    let overlap = |(s, d): &(i64, i64)| *s <= (taps - 1).saturating_mul(*d) && (*s == 1 || *d == 1);
    let shared = |v: &usize| Some((*v, together(load, places, [*v, tap]).filter(overlap)?));
    if let Some((v, (s, d))) = moving.iter().find_map(shared) {
        return Some(Axis { outer: Some((v, s)), tap: Some((tap, d)), stride: 0 });
    }
    Some(Axis { outer: None, tap: Some((tap, 1)), stride: 0 })
}

/// Returns steps s and d of two variables, if the load's index contains them only in a multiple of s · u + d · t, and
/// every index in `places` contains s · u + d · t or neither variable.
fn together(load: &Access, places: &[&Dim], [u, t]: [usize; 2]) -> Option<(i64, i64)> {
    let mut found = None;
    for place in places {
        let [s, d] = [u, t].map(|v| place.linear_in(&Symbol::Variable(v)).and_then(|(step, _)| step.as_const()));
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
    /// Maximum number of positions that a work item computes along the axis.
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
