//! A block of rows by a block of lanes whose accumulators are in scratch  =>  results, vectorised along the contiguous
//! variable

use super::product::{Product, after};
use crate::asm::{Asm, Bin, CmpI, Elem, Mlir, Ty, Val};
use crate::contract::transpose;
use crate::cx::{Cx, decode, whole_steps};
use crate::eval::{Point, hoist};
use crate::pace;
use crate::scalar;

/// Number of lanes of a work item, chosen so that the accumulators of one row fit into registers.
pub const LANES: i64 = 128;

/// Bytes of the accumulators of `rows` rows, and of the transposed accumulators of one vector of rows.
pub const fn bytes(rows: i64) -> i64 {
    4 * LANES * (rows + pace::LANES)
}

/// Values that are the same for a whole work item.
pub struct Tile<'i, 'd> {
    pub cx: &'i Cx<'d, Mlir>,
    pub product: &'i Product,
    point: Point,
    /// First row and first lane, and the number of each.
    pub n0: Val,
    lane0: Val,
    pub n_rows: Val,
    pub n_lanes: Val,
    /// Address of the dense operand's element at column 0 and the first lane.
    x: Val,
    /// Distances in elements from one column of the dense operand to the next, and from one lane to the next.
    steps: [Val; 2],
    /// Type of the dense operand's elements.
    x_elem: Elem,
    /// Type of the accumulators, of 32 bits.
    elem: Elem,
    /// Addresses of the accumulators [row][lane], and of the transposed accumulators [lane][row] of some rows.
    sums: Val,
    turned: Val,
}

/// Adjacent vectors of lanes, some of which a mask may exclude.
#[derive(Clone, Copy)]
pub struct Strip {
    /// First lane, relative to the block.
    pub lane: Val,
    pub vectors: u32,
    pub lanes: u32,
    pub mask: Option<Val>,
    /// Type of the accumulators.
    elem: Elem,
}

impl Strip {
    pub fn ty(&self) -> Ty {
        Ty::new(self.elem, self.lanes)
    }

    /// Address of a vector, given that of the first one.
    pub fn vector(&self, asm: &mut Mlir, from: Val, i: usize) -> Val {
        let behind = asm.i64(i as i64 * self.lanes as i64);
        asm.element(from, behind, self.elem)
    }
}

impl<'i, 'd> Tile<'i, 'd> {
    /// Work item number `at`, for items of `rows` rows.
    pub fn new(cx: &'i Cx<'d, Mlir>, asm: &mut Mlir, product: &'i Product, at: Val, rows: i64) -> Tile<'i, 'd> {
        let def = cx.def;
        let blocks = |asm: &mut Mlir, v: usize, size: i64| {
            let n = def.extent(v).dim().ceildiv(&sardonyx_base::Dim::constant(size));
            cx.dim(asm, &n)
        };
        let mut extents: Vec<Val> = product.others.iter().map(|v| cx.extent(asm, *v)).collect();
        extents.push(blocks(asm, product.lane, LANES));
        extents.push(blocks(asm, product.n, rows));
        let at = decode(asm, at, &extents);
        let mut point = Point::new(cx);
        product.others.iter().zip(&at).for_each(|(v, at)| point.vars[*v] = Some(*at));
        let [lane_block, row_block] = [at[product.others.len()], at[product.others.len() + 1]];
        let part = |asm: &mut Mlir, v: usize, block: Val, size: i64| {
            let (size, extent) = (asm.i64(size), cx.extent(asm, v));
            let first = asm.bin(Bin::MulI, block, size);
            let left = asm.bin(Bin::SubI, extent, first);
            (first, asm.bin(Bin::MinSI, left, size))
        };
        let (lane0, n_lanes) = part(asm, product.lane, lane_block, LANES);
        let (n0, n_rows) = part(asm, product.n, row_block, rows);
        let mut corner = point.clone();
        corner.vars[product.lane] = Some(lane0);
        // Reduction variables move the dense operand only through its column.
        (def.outer.len()..def.n_vars()).for_each(|v| corner.vars[v] = Some(asm.i64(0)));
        let line = &product.x.coords[0];
        let start = corner.line(cx, asm, line);
        let x_elem = scalar::stored(def.reads[product.x.buffer].dtype);
        let x = asm.element(cx.reads[product.x.buffer], start, x_elem);
        let elem = scalar::register(def.body[product.sum].dtype);
        let steps = [product.x.computed[0].stride, line.strides[product.lane]].map(|s| cx.size(asm, s));
        let behind = asm.i64(4 * LANES * rows);
        let turned = asm.element(cx.launch.scratch, behind, Elem::I8);
        let sums = cx.launch.scratch;
        Tile { cx, product, point, n0, lane0, n_rows, n_lanes, x, steps, x_elem, elem, sums, turned }
    }

    /// Calls `each` for strips of one lane.
    pub fn lanes(&self, asm: &mut Mlir, mut each: impl FnMut(&mut Mlir, Strip)) {
        let (zero, one, elem) = (asm.i64(0), asm.i64(1), self.elem);
        asm.for_loop((zero, self.n_lanes, one), &[], |asm, lane, _| {
            each(asm, Strip { lane, vectors: 1, lanes: 1, mask: None, elem });
            vec![]
        });
    }

    /// Calls `each` for strips of at most `vectors_max` vectors that together cover all lanes of the block.
    pub fn strips(&self, asm: &mut Mlir, vectors_max: u32, mut each: impl FnMut(&mut Mlir, Strip)) {
        let (zero, elem) = (asm.i64(0), self.elem);
        let lanes = self.cx.lanes();
        let (mut from, mut vectors) = (zero, vectors_max);
        while vectors > 0 {
            let step = (vectors * lanes) as i64;
            let to = whole_steps(asm, from, self.n_lanes, step);
            let by = asm.i64(step);
            asm.for_loop((from, to, by), &[], |asm, lane, _| {
                each(asm, Strip { lane, vectors, lanes, mask: None, elem });
                vec![]
            });
            (from, vectors) = (to, vectors / 2);
        }
        let left = asm.bin(Bin::SubI, self.n_lanes, from);
        let some = asm.cmpi(CmpI::Ne, from, self.n_lanes);
        asm.if_then(some, |asm| {
            let (left, iota) = (asm.widen(left, lanes), asm.iota(lanes));
            let mask = asm.cmpi(CmpI::Slt, iota, left);
            each(asm, Strip { lane: from, vectors: 1, lanes, mask: Some(mask), elem });
        });
    }

    /// Address of the dense operand's element at column 0 and a lane of the block.
    pub fn factor(&self, asm: &mut Mlir, lane: Val) -> Val {
        let moved = asm.bin(Bin::MulI, lane, self.steps[1]);
        asm.element(self.x, moved, self.x_elem)
    }

    /// Address of the element in column `column`, given the address `factor` of the element in column 0.
    pub fn column(&self, asm: &mut Mlir, factor: Val, column: Val) -> Val {
        let at = asm.bin(Bin::MulI, column, self.steps[0]);
        asm.element(factor, at, self.x_elem)
    }

    /// Loads vector number `vector` of a strip of the dense operand, whose first vector is at `from`.
    pub fn load(&self, asm: &mut Mlir, strip: &Strip, from: Val, vector: usize) -> Val {
        let address = strip.vector(asm, from, vector);
        match strip.mask {
            Some(mask) => asm.masked_load(address, mask, strip.ty()),
            None => asm.load(address, strip.ty(), 4),
        }
    }

    /// Address of a row's accumulators of a strip.
    pub fn sums(&self, asm: &mut Mlir, strip: &Strip, row: Val) -> Val {
        let width = asm.i64(LANES);
        let at = asm.bin(Bin::MulI, row, width);
        let at = asm.bin(Bin::AddI, at, strip.lane);
        asm.element(self.sums, at, self.elem)
    }

    /// Computes the epilogue for all accumulators of the tile.
    pub fn results(&self, asm: &mut Mlir) {
        match self.product.stores_along_rows(self.cx.def) {
            true => self.results_by_rows(asm),
            false => self.results_by_lanes(asm),
        }
    }

    /// Computes the epilogue for vectors of lanes, row by row.
    fn results_by_lanes(&self, asm: &mut Mlir) {
        let (zero, one) = (asm.i64(0), asm.i64(1));
        asm.for_loop((zero, self.n_rows, one), &[], |asm, row, _| {
            let mut point = self.point.clone();
            point.vars[self.product.n] = Some(asm.bin(Bin::AddI, self.n0, row));
            let width = asm.i64(LANES);
            let at = asm.bin(Bin::MulI, row, width);
            let sums = asm.element(self.sums, at, self.elem);
            self.vectors(asm, (self.product.lane, self.lane0, self.n_lanes), &point, sums);
            vec![]
        });
    }

    /// Computes the epilogue for vectors of rows, lane by lane.
    fn results_by_rows(&self, asm: &mut Mlir) {
        let lanes = self.cx.lanes();
        let (zero, one, step) = (asm.i64(0), asm.i64(1), asm.i64(lanes as i64));
        asm.for_loop((zero, self.n_rows, step), &[], |asm, row, _| {
            let width = asm.i64(LANES);
            let from = asm.bin(Bin::MulI, row, width);
            let from = asm.element(self.sums, from, self.elem);
            // The tile has its full size, so that rows and lanes that do not exist can be transposed too.
            asm.for_loop((zero, self.n_lanes, step), &[], |asm, lane, _| {
                let from = asm.element(from, lane, self.elem);
                let mut square = vec![];
                for i in 0..lanes {
                    let at = asm.i64(i as i64 * LANES);
                    let address = asm.element(from, at, self.elem);
                    square.push(asm.load(address, Ty::new(self.elem, lanes), 4));
                }
                transpose(asm, &mut square);
                let to = asm.bin(Bin::MulI, lane, step);
                let to = asm.element(self.turned, to, self.elem);
                for (i, sums) in square.into_iter().enumerate() {
                    let at = asm.i64(i as i64 * lanes as i64);
                    let address = asm.element(to, at, self.elem);
                    asm.store(sums, address, 4);
                }
                vec![]
            });
            let left = asm.bin(Bin::SubI, self.n_rows, row);
            let first = asm.bin(Bin::AddI, self.n0, row);
            let n = asm.bin(Bin::MinSI, left, step);
            asm.for_loop((zero, self.n_lanes, one), &[], |asm, lane, _| {
                let mut point = self.point.clone();
                point.vars[self.product.lane] = Some(asm.bin(Bin::AddI, self.lane0, lane));
                let at = asm.bin(Bin::MulI, lane, step);
                let sums = asm.element(self.turned, at, self.elem);
                self.vectors(asm, (self.product.n, first, n), &point, sums);
                vec![]
            });
            vec![]
        });
    }

    /// Computes the epilogue for `n` elements along a variable from `first` on, whose accumulators are contiguous.
    fn vectors(&self, asm: &mut Mlir, (var, first, n): (usize, Val, Val), point: &Point, sums: Val) {
        let cx = self.cx;
        let lanes = cx.lanes();
        let zero = asm.i64(0);
        let whole = whole_steps(asm, zero, n, lanes as i64);
        let each = |asm: &mut Mlir, at: Val, lanes: u32, mut point: Point| {
            let address = asm.element(sums, at, self.elem);
            point.along = var;
            point.lanes = lanes;
            point.values[self.product.sum] = Some(asm.load(address, Ty::new(self.elem, lanes), 4));
            for write in &cx.def.stores {
                point.store(cx, asm, write);
            }
        };
        let mut point = point.clone();
        hoist(cx, asm, &mut point, var, after(cx.def, self.product.sum));
        let loops = [(zero, whole, lanes), (whole, n, 1)];
        for (lo, hi, lanes) in &loops[..if cx.has_masks() { 1 } else { 2 }] {
            let step = asm.i64(*lanes as i64);
            asm.for_loop((*lo, *hi, step), &[], |asm, at, _| {
                let mut point = point.clone();
                point.vars[var] = Some(asm.bin(Bin::AddI, first, at));
                each(asm, at, *lanes, point);
                vec![]
            });
        }
        if cx.has_masks() {
            let some = asm.cmpi(CmpI::Ne, whole, n);
            asm.if_then(some, |asm| {
                let (rest, at) = (asm.bin(Bin::SubI, n, whole), asm.bin(Bin::AddI, first, whole));
                let point = point.masked_lanes(asm, var, at, rest, lanes);
                each(asm, whole, lanes, point);
            });
        }
    }
}
