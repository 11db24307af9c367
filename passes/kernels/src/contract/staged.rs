//! pad(f(x))  =>  scratch[line][pixel][channel]: what a padded left factor is made of is computed where the work item reads it
//!
//! A work item reads a window of the image around its rows. Every element of the window is computed once, in vectors along the
//! channels, however many offsets of the window read it; then the contraction runs over scratch as it would over memory. What is
//! computed is written by `stage`.

use super::plan::{Form, Plan, WIDTH};
use crate::def::*;
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
    pub root: usize,
    /// What it is made of, in order.
    pub parts: Vec<usize>,
    /// The variable of neighbours in scratch: channels.
    pub unit: usize,
    /// Those of them that are in scratch at once.
    pub columns: i64,
    pub axes: Vec<Axis>,
    bytes: i64,
}

/// Places step · outer + dilation · tap of a window.
#[derive(Clone, Debug)]
pub struct Axis {
    /// A variable that a work item has several points of.
    pub outer: Option<(usize, i64)>,
    /// A variable that is summed over.
    pub tap: Option<(usize, i64)>,
    /// Elements of scratch from one place to the next.
    pub stride: i64,
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
