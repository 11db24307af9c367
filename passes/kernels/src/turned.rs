//! for %u, %v { store y[u, v] = f(load x[v, u]) }: maps of transposed operands, in squares transposed in registers
//!
//! Lanes run along the last variable, along which results are contiguous. A load that is contiguous along another
//! variable would take each lane from another line of memory; instead, as many vectors along that variable are loaded
//! as a vector has lanes, and transposed. The remainder at the edges is computed like any map.

use super::asm::{Asm, Bin, CmpI, Elem, Mlir, Ty, Val};
use super::contract::transpose;
use super::cpu::CpuPlan;
use super::cx::{Cx, decode, whole_steps};
use super::def::*;
use super::eval::Point;
use super::map;
use super::nest::{Loop, Nest};
use super::pace::{LANES, Pace};
use super::scalar;
use sardonyx_base::Dim;
use std::sync::Arc;

/// Number of points of a work item along the last variable.
const CHUNK: i64 = 256;

/// Loads that are transposed, the variable along which they are contiguous, and the other variables.
#[derive(Debug)]
struct Plan {
    loads: Vec<usize>,
    along: usize,
    others: Vec<usize>,
}

pub fn planned(def: &KernelDef) -> Option<Arc<dyn CpuPlan>> {
    let last = def.outer.len().checked_sub(1)?;
    let long = |v: usize| def.outer[v].as_const().is_none_or(|n| n >= LANES);
    let accesses = def.body.iter().enumerate().filter_map(|(k, s)| match &s.op {
        Op::Load { access, guard: None } => Some((k, access)),
        _ => None,
    });
    let is_apart = |access: &Access| access.moves_with(last) && !access.stride(last).is(1);
    let turned = |access: &Access, u: usize| {
        let storage = &def.reads[access.buffer];
        access.computed.is_empty()
            && storage.panels.is_none()
            && scalar::stored(storage.dtype).bits() == 32
            && access.stride(u).is(1)
    };
    let apart: Vec<(usize, &Access)> = accesses.filter(|(_, access)| is_apart(access)).collect();
    let (_, first) = apart.first()?;
    let along = (0..last).find(|u| turned(first, *u))?;
    let loads: Vec<usize> = apart.iter().filter(|(_, access)| turned(access, along)).map(|(k, _)| *k).collect();
    let fits = loads.len() == apart.len()
        && long(along)
        && long(last)
        && def.stores.iter().all(|w| w.access.stride(last).is(1) && w.access.computed.is_empty());
    let others = (0..last).filter(|v| *v != along).collect();
    fits.then(|| Arc::new(Plan { loads, along, others }) as Arc<dyn CpuPlan>)
}

impl CpuPlan for Plan {
    fn grid(&self, def: &KernelDef) -> Dim {
        let others = self.others.iter().fold(Dim::constant(1), |p, v| p * def.outer[*v].dim());
        others * self.blocks(def, self.along, LANES) * self.blocks(def, def.outer.len() - 1, CHUNK)
    }

    /// Bytes of one square per load.
    fn scratch_bytes(&self, _: &KernelDef) -> Dim {
        Dim::constant(self.loads.len() as i64 * 4 * LANES * LANES)
    }

    fn nest(&self, def: &KernelDef, _: &[i64]) -> Nest {
        let last = def.outer.len() - 1;
        let mut loops = Loop::each(self.others.iter().copied());
        loops.push(Loop::Var { var: self.along, step: LANES });
        loops.push(Loop::Var { var: last, step: LANES });
        loops.extend(Loop::each([self.along, last]));
        Nest { loops, passes: vec![1; def.body.len()] }
    }

    fn pace(&self, def: &KernelDef) -> Pace {
        let last = def.outer.len() - 1;
        let is_turned = |access: &Access| {
            self.loads.iter().any(|k| matches!(&def.body[*k].op, Op::Load { access: own, .. } if own == access))
        };
        let scattered = def.scattered_part(last, |access| !is_turned(access));
        Pace { share: def.used_lanes(last, LANES) * def.used_lanes(self.along, LANES), scattered }
    }

    fn emit(&self, cx: &Cx<Mlir>, asm: &mut Mlir) {
        let (last, one) = (cx.def.outer.len() - 1, asm.i64(1));
        asm.for_loop((cx.launch.begin, cx.launch.end, one), &[], |asm, item, _| {
            let mut extents: Vec<Val> = self.others.iter().map(|v| cx.extent(asm, *v)).collect();
            for (v, size) in [(self.along, LANES), (last, CHUNK)] {
                let blocks = self.blocks(cx.def, v, size);
                extents.push(cx.dim(asm, &blocks));
            }
            let at = decode(asm, item, &extents);
            let mut point = Point::new(cx);
            self.others.iter().zip(&at).for_each(|(v, at)| point.vars[*v] = Some(*at));
            let range = |asm: &mut Mlir, v: usize, block: Val, size: i64| {
                let (size, extent) = (asm.i64(size), cx.extent(asm, v));
                let lo = asm.bin(Bin::MulI, block, size);
                let hi = asm.bin(Bin::AddI, lo, size);
                (lo, asm.bin(Bin::MinSI, hi, extent))
            };
            let rows = range(asm, self.along, at[self.others.len()], LANES);
            let columns = range(asm, last, at[self.others.len() + 1], CHUNK);
            self.block(cx, asm, &point, rows, columns);
            vec![]
        });
    }
}

impl Plan {
    fn blocks(&self, def: &KernelDef, v: usize, size: i64) -> Dim {
        def.outer[v].dim().ceildiv(&Dim::constant(size))
    }

    /// Computes full squares, then the remainder of each row; leftover rows are computed without squares.
    fn block(&self, cx: &Cx<Mlir>, asm: &mut Mlir, point: &Point, rows: (Val, Val), columns: (Val, Val)) {
        let (last, lanes) = (cx.def.outer.len() - 1, cx.lanes() as i64);
        let (size, one) = (asm.i64(lanes), asm.i64(1));
        let whole_rows = whole_steps(asm, rows.0, rows.1, lanes);
        let whole = whole_steps(asm, columns.0, columns.1, lanes);
        asm.for_loop((rows.0, whole_rows, size), &[], |asm, row, _| {
            asm.for_loop((columns.0, whole, size), &[], |asm, column, _| {
                self.square(cx, asm, point, (row, column));
                vec![]
            });
            vec![]
        });
        let rest = |asm: &mut Mlir, rows: (Val, Val), columns: (Val, Val)| {
            let some = asm.cmpi(CmpI::Slt, columns.0, columns.1);
            asm.if_then(some, |asm| {
                asm.for_loop((rows.0, rows.1, one), &[], |asm, row, _| {
                    let mut point = point.clone();
                    point.vars[self.along] = Some(row);
                    map::along(cx, asm, &point, last, columns, None);
                    vec![]
                });
            });
        };
        rest(asm, (rows.0, whole_rows), (whole, columns.1));
        rest(asm, (whole_rows, rows.1), columns);
    }

    /// Computes a square of as many rows as columns, from (row, column) on.
    fn square(&self, cx: &Cx<Mlir>, asm: &mut Mlir, point: &Point, (row, column): (Val, Val)) {
        let (last, lanes) = (cx.def.outer.len() - 1, cx.lanes());
        let square_bytes = asm.i64(4 * LANES * LANES);
        let mut corner = point.clone();
        (corner.vars[self.along], corner.vars[last]) = (Some(row), Some(column));
        let mut to = cx.launch.scratch;
        let mut squares = vec![];
        for &k in &self.loads {
            let Op::Load { access, .. } = &cx.def.body[k].op else { continue };
            let elem = scalar::stored(cx.def.body[k].dtype);
            let ty = Ty::new(elem, lanes);
            let start = corner.line(cx, asm, &access.coords[0]);
            let from = asm.element(cx.reads[access.buffer], start, elem);
            let step = cx.size(asm, access.stride(last));
            let mut vectors = vec![];
            for i in 0..lanes {
                let i = asm.i64(i as i64);
                let behind = asm.bin(Bin::MulI, step, i);
                let address = asm.element(from, behind, elem);
                vectors.push(asm.load(address, ty, 4));
            }
            transpose(asm, &mut vectors);
            for (i, vector) in vectors.into_iter().enumerate() {
                let at = asm.i64(i as i64 * lanes as i64);
                let address = asm.element(to, at, elem);
                asm.store(vector, address, 4);
            }
            squares.push((k, to, ty));
            to = asm.element(to, square_bytes, Elem::I8);
        }
        let (zero, one, n) = (asm.i64(0), asm.i64(1), asm.i64(lanes as i64));
        asm.for_loop((zero, n, one), &[], |asm, i, _| {
            let mut point = corner.clone();
            point.vars[self.along] = Some(asm.bin(Bin::AddI, row, i));
            (point.along, point.lanes) = (last, lanes);
            for (k, square, ty) in &squares {
                let at = asm.bin(Bin::MulI, i, n);
                let address = asm.element(*square, at, ty.elem);
                let v = asm.load(address, *ty, 4);
                point.values[*k] = Some(scalar::after_load(asm, v, cx.def.body[*k].dtype));
            }
            for write in &cx.def.stores {
                point.store(cx, asm, write);
            }
            vec![]
        });
    }
}
