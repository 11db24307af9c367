//! Access at a point  =>  loads and stores: of one element, consecutive or scattered ones, guarded or masked

use super::asm::{Asm, Bin, Cast, CmpI, Elem, Ty, Val};
use super::cx::Cx;
use super::def::*;
use super::dims::{add, emit_dim};
use super::eval::Point;
use super::scalar;
use sardonyx_base::dim::{Atom, Symbol};
use sardonyx_base::{DType, Dim};

impl Point {
    pub fn load<A: Asm>(&mut self, cx: &Cx<A>, asm: &mut A, access: &Access, guard: Option<usize>, t: DType) -> Val {
        let storage = &cx.def.reads[access.buffer];
        let base = cx.reads[access.buffer];
        let guard = guard.map(|g| self.eval(cx, asm, g));
        let index = self.index(cx, asm, access, storage, guard);
        let high = storage.panels.filter(|p| p.halves).map(|p| self.high_half(cx, asm, access, p, guard));
        let elem = scalar::stored(t);
        let (align, whole) = (elem.bits() / 8, self.whole_align(access, elem));
        let v = match (&index, guard) {
            // All lanes read the same element, or there is one lane.
            (Index::At(i), None) => {
                let address = asm.element(base, *i, elem);
                asm.load(address, Ty::new(elem, 1), align)
            }
            (Index::At(i), Some(g)) if g.ty.lanes == 1 => asm.guarded_load(g, base, *i, Ty::new(elem, 1), align),
            (Index::At(i), Some(g)) => {
                // The element is read if the guard of any lane holds; lanes whose guard does not hold are set to 0.
                let some = asm.any(g);
                let v = asm.guarded_load(some, base, *i, Ty::new(elem, 1), align);
                let v = asm.widen(v, self.lanes);
                let zero = asm.zero(v.ty);
                asm.select(g, v, zero)
            }
            (Index::From(i), None) if self.mask.is_none() => {
                let address = asm.element(base, *i, elem);
                asm.load(address, Ty::new(elem, self.lanes), whole)
            }
            (Index::From(i), Some(g)) if g.ty.lanes == 1 && self.mask.is_none() => {
                asm.guarded_load(g, base, *i, Ty::new(elem, self.lanes), whole)
            }
            (Index::From(i), g) => {
                let address = asm.element(base, *i, elem);
                let mask = self.masked(asm, g);
                asm.masked_load(address, mask, Ty::new(elem, self.lanes))
            }
            (Index::Even(i), None) if self.mask.is_none() => even(asm, base, *i, Ty::new(elem, self.lanes)),
            (Index::Each(_) | Index::Even(_), g) => {
                let i = index.each(asm, self.lanes);
                let addresses = asm.element(base, i, elem);
                let mask = self.masked(asm, g);
                asm.masked_load(addresses, mask, Ty::new(elem, self.lanes))
            }
        };
        let v = match high {
            Some(high) => half(asm, v, high, t),
            None => v,
        };
        scalar::after_load(asm, v, t)
    }

    /// Bit offset of each lane's 4-bit element within its byte.
    fn high_half<A: Asm>(
        &mut self,
        cx: &Cx<A>,
        asm: &mut A,
        access: &Access,
        panels: Panels,
        guard: Option<Val>,
    ) -> Val {
        let k = self.coordinate(cx, asm, access, 0, guard);
        let (depth, places, four) = (asm.int(panels.depth, k.ty), asm.int(panels.places(), k.ty), asm.int(4, k.ty));
        let within = asm.bin(Bin::RemUI, k, depth);
        let high = asm.bin(Bin::DivUI, within, places);
        let bits = asm.bin(Bin::MulI, high, four);
        asm.cast(Cast::TruncI, bits, Elem::I8)
    }

    /// Value of a coordinate; one per lane if it depends on the lane.
    fn coordinate<A: Asm>(
        &mut self,
        cx: &Cx<A>,
        asm: &mut A,
        access: &Access,
        coord: usize,
        guard: Option<Val>,
    ) -> Val {
        let line = &access.coords[coord];
        let mut sum = self.line(cx, asm, line);
        let step = if self.lanes > 1 { line.strides[self.along] } else { Size::Const(0) };
        if !step.is(0) {
            let (step, iota) = (cx.size(asm, step), asm.iota(self.lanes));
            let step = asm.widen(step, self.lanes);
            let moved = asm.bin(Bin::MulI, step, iota);
            sum = add(asm, sum, moved);
        }
        for part in access.computed.iter().filter(|part| part.coord == coord) {
            let term = self.computed(cx, asm, part, guard);
            sum = add(asm, sum, term);
        }
        sum
    }

    /// Known alignment in bytes of consecutive elements.
    fn whole_align(&self, access: &Access, elem: Elem) -> u32 {
        let lanes = self.lanes as i64;
        let known = self.multiple % lanes == 0 && access.is_aligned(self.along, lanes);
        elem.bits() / 8 * if self.aligned || known { self.lanes } else { 1 }
    }

    /// Mask of the lanes that exist and pass the guard.
    fn masked(&self, asm: &mut impl Asm, guard: Option<Val>) -> Val {
        let guard = guard.map(|g| asm.widen(g, self.lanes));
        match (self.mask, guard) {
            (None, None) => asm.int(1, Ty::new(Elem::I1, self.lanes)),
            (Some(m), None) => m,
            (None, Some(g)) => g,
            (Some(m), Some(g)) => asm.bin(Bin::AndI, m, g),
        }
    }

    /// Evaluates and stores the value of a write.
    pub fn store<A: Asm>(&mut self, cx: &Cx<A>, asm: &mut A, write: &Write) {
        let v = self.eval(cx, asm, write.value);
        self.store_value(cx, asm, &write.access, v, cx.def.body[write.value].dtype);
    }

    pub fn store_value<A: Asm>(&mut self, cx: &Cx<A>, asm: &mut A, access: &Access, v: Val, t: DType) {
        let storage = &cx.def.writes[access.buffer];
        let base = cx.writes[access.buffer];
        let index = self.index(cx, asm, access, storage, None);
        let v = scalar::before_store(asm, v, t);
        let elem = v.ty.elem;
        let (align, whole) = (elem.bits() / 8, self.whole_align(access, elem));
        match index {
            Index::At(i) => {
                let address = asm.element(base, i, elem);
                let v = asm.extract(v, 0);
                asm.store(v, address, align);
            }
            Index::From(i) => {
                let address = asm.element(base, i, elem);
                let v = asm.widen(v, self.lanes);
                match self.mask {
                    None => asm.store(v, address, whole),
                    Some(m) => asm.masked_store(v, address, m),
                }
            }
            Index::Each(_) | Index::Even(_) => {
                let i = index.each(asm, self.lanes);
                let addresses = asm.element(base, i, elem);
                let (v, mask) = (asm.widen(v, self.lanes), self.masked(asm, None));
                asm.masked_store(v, addresses, mask);
            }
        }
    }

    fn index<A: Asm>(
        &mut self,
        cx: &Cx<A>,
        asm: &mut A,
        access: &Access,
        storage: &Storage,
        guard: Option<Val>,
    ) -> Index {
        if let Some(panels) = storage.panels {
            return self.panel_index(cx, asm, access, panels, guard);
        }
        let sum = self.start(cx, asm, access, guard);
        let step =
            if self.along < cx.def.n_vars() && self.lanes > 1 { access.stride(self.along) } else { Size::Const(0) };
        let lanes_in_parts = sum.ty.lanes > 1;
        // Not every CPU level has masked loads of elements of fewer than 32 bits.
        let pairs = asm.cpu().is_some() && scalar::stored(storage.dtype).bits() >= 32;
        match step {
            Size::Const(0) if lanes_in_parts => Index::Each(sum),
            Size::Const(0) => Index::At(sum),
            Size::Const(1) if !lanes_in_parts => Index::From(sum),
            Size::Const(2) if !lanes_in_parts && pairs => Index::Even(sum),
            step => {
                let (step, iota) = (cx.size(asm, step), asm.iota(self.lanes));
                let step = asm.widen(step, self.lanes);
                let moved = asm.bin(Bin::MulI, step, iota);
                Index::Each(add(asm, sum, moved))
            }
        }
    }

    /// Index of the element in a row-major buffer that lane 0 accesses, or one per lane if a computed part varies.
    pub fn start<A: Asm>(&mut self, cx: &Cx<A>, asm: &mut A, access: &Access, guard: Option<Val>) -> Val {
        let mut sum = self.line(cx, asm, &access.coords[0]);
        for part in &access.computed {
            let term = self.computed(cx, asm, part, guard);
            sum = add(asm, sum, term);
        }
        sum
    }

    /// offset + Σ strides · variables, at lane 0. Outer variables are added first, so that their sum is loop-invariant.
    pub fn line<A: Asm>(&self, cx: &Cx<A>, asm: &mut A, line: &Linear) -> Val {
        let mut sum: Option<Val> = if line.offset.is(0) { None } else { Some(cx.size(asm, line.offset)) };
        for (v, stride) in line.strides.iter().enumerate() {
            if stride.is(0) {
                continue;
            }
            let var = self.vars[v].expect("the variable has a value here");
            let term = if stride.is(1) {
                var
            } else {
                let stride = cx.size(asm, *stride);
                asm.bin(Bin::MulI, var, stride)
            };
            sum = Some(match sum {
                None => term,
                Some(s) => asm.bin(Bin::AddI, s, term),
            });
        }
        sum.unwrap_or_else(|| asm.i64(0))
    }

    /// stride · expr, checked if there is a limit: an index out of range sets the status (unless the guard prevents the
    /// access) and is replaced by 0.
    fn computed<A: Asm>(&mut self, cx: &Cx<A>, asm: &mut A, part: &Computed, guard: Option<Val>) -> Val {
        let mut v = {
            let expr = part.expr.clone();
            match self.varies(self.expr_vars(cx, &expr)) {
                false => emit_dim(asm, &expr, 1, &mut |asm, s| self.symbol(cx, asm, s)),
                true if self.is_one_for_all(&expr) => {
                    let mut first = Point { lanes: 1, mask: None, ..self.clone() };
                    emit_dim(asm, &expr, 1, &mut |asm, s| first.symbol(cx, asm, s))
                }
                true => {
                    let v = emit_dim(asm, &expr, self.lanes, &mut |asm, s| self.symbol(cx, asm, s));
                    asm.widen(v, self.lanes)
                }
            }
        };
        if let Some(limit) = part.limit {
            let limit = cx.size(asm, limit);
            let limit = asm.widen(limit, v.ty.lanes);
            // As unsigned numbers, negative indices are large.
            let mut wrong = asm.cmpi(CmpI::Uge, v, limit);
            if let (Some(mask), true) = (self.mask, wrong.ty.lanes > 1) {
                wrong = asm.bin(Bin::AndI, wrong, mask);
            }
            let mut seen = wrong;
            if let Some(guard) = guard {
                seen = asm.both(Bin::AndI, wrong, guard);
            }
            let some = asm.any(seen);
            asm.if_then(some, |asm| asm.raise(cx.status));
            let zero = asm.zero(v.ty);
            v = asm.select(wrong, zero, v);
        }
        if part.stride.is(1) {
            return v;
        }
        let stride = cx.size(asm, part.stride);
        let stride = asm.widen(stride, v.ty.lanes);
        asm.bin(Bin::MulI, v, stride)
    }

    /// Returns whether an expression has the same value in all lanes, because the lane variable occurs only in
    /// quotients that do not change within a vector.
    fn is_one_for_all(&self, d: &Dim) -> bool {
        let lanes = i64::from(self.lanes);
        let moves = |s: &Symbol| s.statement().is_some() || s.variable() == Some(self.along);
        let fixed = |d: &Dim| !d.symbols().iter().any(moves);
        let by_blocks = |atom: &Atom| match atom {
            Atom::Symbol(s) => !moves(s),
            Atom::FloorDiv(a, b) => {
                let is_lane = a.as_variable() == Some(self.along);
                (is_lane && b.as_const().is_some_and(|n| n % lanes == 0)) || (fixed(a) && fixed(b))
            }
            Atom::Max(a, b) | Atom::Min(a, b) => fixed(a) && fixed(b),
        };
        (self.in_steps || self.multiple % lanes == 0) && d.terms().all(|(atoms, _)| atoms.iter().all(by_blocks))
    }

    fn expr_vars<A: Asm>(&self, cx: &Cx<A>, d: &Dim) -> VarSet {
        dim_vars(d, &cx.deps)
    }

    /// Whether the lanes are a full vector of consecutive columns in one row of a panel.
    fn is_along_row(&self, access: &Access, panels: Panels) -> bool {
        let ([rows, columns], lanes) = (&access.coords[..], i64::from(self.lanes)) else { return false };
        let whole = |s: &Size| s.as_const().is_some_and(|c| c % lanes == 0);
        let mut others = columns.strides.iter().enumerate().filter(|(v, _)| *v != self.along);
        lanes > 1
            && access.computed.is_empty()
            && self.along < columns.strides.len()
            && self.multiple % lanes == 0
            && panels.width % lanes == 0
            && rows.strides[self.along].is(0)
            && columns.strides[self.along].is(1)
            && whole(&columns.offset)
            && others.all(|(_, s)| whole(s))
    }

    /// [k, n]  =>  ((n / width · groups + k / depth) · width + n mod width) · depth + k mod depth
    fn panel_index<A: Asm>(
        &mut self,
        cx: &Cx<A>,
        asm: &mut A,
        access: &Access,
        panels: Panels,
        guard: Option<Val>,
    ) -> Index {
        let neighbours = panels.depth == 1 && self.is_along_row(access, panels);
        let [k, n] = [0, 1].map(|c| match neighbours {
            true => self.line(cx, asm, &access.coords[c]),
            false => self.coordinate(cx, asm, access, c, guard),
        });
        let (width, groups) = (asm.int(panels.width, n.ty), asm.int(panels.groups(), n.ty));
        let panel = asm.bin(Bin::DivUI, n, width);
        let column = asm.bin(Bin::RemUI, n, width);
        let first = asm.bin(Bin::MulI, panel, groups);
        let depth = asm.int(panels.depth, k.ty);
        let (group, within) = match panels.depth {
            1 => (k, None),
            _ => (asm.bin(Bin::DivUI, k, depth), Some(asm.bin(Bin::RemUI, k, depth))),
        };
        let row = add(asm, first, group);
        let width = asm.int(panels.width, row.ty);
        let start = asm.bin(Bin::MulI, row, width);
        let mut sum = add(asm, start, column);
        if let Some(within) = within {
            let places = asm.int(panels.places(), sum.ty);
            let start = asm.bin(Bin::MulI, sum, places);
            let places = asm.int(panels.places(), within.ty);
            let within = if panels.halves { asm.bin(Bin::RemUI, within, places) } else { within };
            sum = add(asm, start, within);
        }
        match sum.ty.lanes {
            1 if neighbours => Index::From(sum),
            1 => Index::At(sum),
            _ => Index::Each(sum),
        }
    }
}

/// Extracts the 4-bit element that begins at bit `from` of each byte.
fn half(asm: &mut impl Asm, bytes: Val, from: Val, t: DType) -> Val {
    let from = asm.widen(from, bytes.ty.lanes);
    let four = asm.int(4, bytes.ty);
    let low = asm.bin(Bin::ShRUI, bytes, from);
    let high = asm.bin(Bin::ShLI, low, four);
    asm.bin(if t.is_signed_int() { Bin::ShRSI } else { Bin::ShRUI }, high, four)
}

/// Indices of the elements that the lanes access.
enum Index {
    /// All lanes access one element.
    At(Val),
    /// Consecutive elements from this one on.
    From(Val),
    /// Every second element from this one on.
    Even(Val),
    Each(Val),
}

impl Index {
    /// Index of each lane's element.
    fn each(&self, asm: &mut impl Asm, lanes: u32) -> Val {
        match *self {
            Index::Even(first) => {
                let (first, two, iota) = (asm.widen(first, lanes), asm.i64(2), asm.iota(lanes));
                let two = asm.widen(two, lanes);
                let moved = asm.bin(Bin::MulI, two, iota);
                asm.bin(Bin::AddI, first, moved)
            }
            Index::Each(each) => each,
            Index::At(one) | Index::From(one) => asm.widen(one, lanes),
        }
    }
}

/// Loads every second element from `first` on: two vectors of consecutive elements, without the last one, which may be
/// outside the buffer.
fn even(asm: &mut impl Asm, base: Val, first: Val, ty: Ty) -> Val {
    let lanes = ty.lanes;
    let low = asm.element(base, first, ty.elem);
    let low = asm.load(low, ty, ty.elem.bits() / 8);
    let (width, last) = (asm.i64(lanes as i64), asm.i64(lanes as i64 - 1));
    let second = asm.bin(Bin::AddI, first, width);
    let (last, iota) = (asm.widen(last, lanes), asm.iota(lanes));
    let there = asm.cmpi(CmpI::Slt, iota, last);
    let high = asm.element(base, second, ty.elem);
    let high = asm.masked_load(high, there, ty);
    asm.shuffle(low, high, &(0..lanes).map(|lane| 2 * lane).collect::<Vec<u32>>())
}
