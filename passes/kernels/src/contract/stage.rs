//! a staged operand A  =>  the loops that compute it in scratch, and its address there

use super::staged::{Axis, Staged};
use super::{Item, plus};
use crate::asm::{Asm, Bin, CmpI, Elem, Mlir, Val};
use crate::cx::whole_steps;
use crate::eval::{Point, hoist};
use crate::scalar;

impl Item<'_> {
    /// Address of the staged operand in scratch.
    fn stage_at(&self, asm: &mut Mlir) -> Val {
        let before = self.cx.dim(asm, &self.plan.sums_bytes(self.cx.def));
        asm.element(self.cx.launch.scratch, before, Elem::I8)
    }

    /// Address in the staged operand of row `row` of the work item, at the current slab.
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
        asm.element(base, start, plan.a_element(cx.def))
    }

    /// Computes operand A for the rows of the work item and all its slabs (outer points besides rows and columns). A
    /// depthwise convolution computes the channels of its panel only, any other contraction all channels.
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

    /// Computes the channels of one pixel.
    fn stage_channels(&self, asm: &mut Mlir, staged: &Staged, mut point: Point, to: Val) {
        let (cx, unit) = (self.cx, staged.unit);
        let lanes = cx.lanes();
        let (zero, extent) = (asm.i64(0), cx.extent(asm, unit));
        let (first, end) = match self.plan.diagonal {
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
                self.stage_vector(asm, staged, point, (at, first), to);
                vec![]
            });
            whole
        };
        let whole = vectors(asm, (first, end), lanes);
        let extent = cx.def.extent(unit).as_const();
        if extent.is_some_and(|n| n % lanes as i64 == 0) {
            return;
        }
        if !cx.has_masks() {
            vectors(asm, (whole, end), 1);
            return;
        }
        let rest = asm.bin(Bin::SubI, end, whole);
        let some = asm.cmpi(CmpI::Sgt, rest, zero);
        asm.if_then(some, |asm| {
            let point = point.masked_lanes(asm, unit, whole, rest, lanes);
            self.stage_vector(asm, staged, point, (whole, first), to);
        });
    }

    /// Computes one vector of channels from `at` on; `first` is the first channel held in scratch.
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
