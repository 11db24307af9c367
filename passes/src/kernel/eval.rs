//! Statement k at a point  =>  an SSA value, scalar or one per lane

use super::asm::{Asm, Elem, Ty, Val};
use super::def::*;
use super::{math, scalar};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_runtime::dim::Atom;
use sardonyx_runtime::plan::KernelArgs;
use sardonyx_runtime::{DType, Dim};
use std::mem::offset_of;

/// Which CPUs a kernel is emitted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variant {
    /// AVX2, FMA, F16C.
    V3,
    /// AVX-512 F, BW, CD, DQ, VL.
    V4,
}

impl Variant {
    pub const ALL: [Variant; 2] = [Variant::V3, Variant::V4];

    /// The suffix of a kernel's symbol.
    pub fn name(self) -> &'static str {
        match self {
            Variant::V3 => "v3",
            Variant::V4 => "v4",
        }
    }

    pub fn cpu(self) -> &'static str {
        match self {
            Variant::V3 => "x86-64-v3",
            Variant::V4 => "x86-64-v4",
        }
    }

    pub fn vector_bits(self) -> u32 {
        match self {
            Variant::V3 => 256,
            Variant::V4 => 512,
        }
    }

    /// Lanes of f32; other types use as many.
    pub fn lanes(self) -> u32 {
        self.vector_bits() / 32
    }
}

/// What is the same in the whole function: the definition, the arguments, the dependences.
pub struct Cx<'a> {
    pub def: &'a KernelDef,
    pub variant: Variant,
    pub deps: Vec<VarSet>,
    pub params: Vec<Val>,
    pub reads: Vec<Val>,
    pub writes: Vec<Val>,
    pub scratch: Val,
    pub begin: Val,
    pub end: Val,
    status: Val,
}

impl<'a> Cx<'a> {
    /// Unpacks the `KernelArgs`.
    pub fn new(asm: &mut Asm, def: &'a KernelDef, variant: Variant) -> Cx<'a> {
        let args = asm.argument();
        let mut field = |at: usize, ty: Ty| {
            let at = asm.i64(at as i64);
            let address = asm.element(args, at, Elem::I8);
            asm.load(address, ty, 8)
        };
        let buffers = field(offset_of!(KernelArgs, buffers), Ty::PTR);
        let params = field(offset_of!(KernelArgs, params), Ty::PTR);
        let scratch = field(offset_of!(KernelArgs, scratch), Ty::PTR);
        let begin = field(offset_of!(KernelArgs, begin), Ty::I64);
        let end = field(offset_of!(KernelArgs, end), Ty::I64);
        let status = field(offset_of!(KernelArgs, status), Ty::PTR);
        let mut entries = |base: Val, from: usize, n: usize, ty: Ty| -> Vec<Val> {
            let mut out = vec![];
            for i in from..from + n {
                let i = asm.i64(i as i64);
                let address = asm.element(base, i, ty.elem);
                out.push(asm.load(address, ty, 8));
            }
            out
        };
        let reads = entries(buffers, 0, def.reads.len(), Ty::PTR);
        let writes = entries(buffers, def.reads.len(), def.writes.len(), Ty::PTR);
        let params = entries(params, 0, def.n_params, Ty::I64);
        Cx { def, variant, deps: def.dependences(), params, reads, writes, scratch, begin, end, status }
    }

    /// Whether masked loads and stores are instructions: else the elements behind the last whole vector are taken
    /// one by one.
    pub fn has_masks(&self) -> bool {
        let wide = |s: &Storage| scalar::stored(s.dtype).bits() >= 32;
        self.variant == Variant::V4 || self.def.reads.iter().chain(&self.def.writes).all(wide)
    }

    pub fn size(&self, asm: &mut Asm, s: Size) -> Val {
        match s {
            Size::Const(c) => asm.i64(c),
            Size::Param(p) => self.params[p],
        }
    }

    pub fn extent(&self, asm: &mut Asm, var: usize) -> Val {
        self.size(asm, self.def.extent(var))
    }

    /// The value of an expression over `p{n}`.
    pub fn dim(&self, asm: &mut Asm, d: &Dim) -> Val {
        emit_dim(asm, d, 1, &mut |_, s| self.param(s))
    }

    fn param(&self, symbol: &str) -> Val {
        self.params[own(symbol, 'p').expect("only parameters are left")]
    }
}

/// The point (or the lanes of points) at which statements are evaluated.
#[derive(Clone)]
pub struct Point {
    /// Per iteration variable its value; for the lane variable that of lane 0.
    pub vars: Vec<Option<Val>>,
    /// The variable that lanes run along, and how many there are.
    pub along: usize,
    pub lanes: u32,
    /// Which lanes exist; all where absent.
    pub mask: Option<Val>,
    /// Statements that have been evaluated here or outside.
    pub values: Vec<Option<Val>>,
}

impl Point {
    pub fn new(cx: &Cx) -> Point {
        let n = cx.def.n_vars();
        Point { vars: vec![None; n], along: n, lanes: 1, mask: None, values: vec![None; cx.def.body.len()] }
    }

    /// The first `n` lanes from `at` on.
    pub fn masked_lanes(&self, asm: &mut Asm, var: usize, at: Val, n: Val, lanes: u32) -> Point {
        let mut point = self.clone();
        point.vars[var] = Some(at);
        let (n, iota) = (asm.widen(n, lanes), asm.iota(lanes));
        (point.along, point.lanes, point.mask) = (var, lanes, Some(asm.cmpi("slt", iota, n)));
        point
    }

    fn is_lane_var(&self, var: usize) -> bool {
        self.lanes > 1 && var == self.along
    }

    fn varies(&self, set: VarSet) -> bool {
        self.lanes > 1 && self.along < 64 && set >> self.along & 1 == 1
    }

    fn var(&self, asm: &mut Asm, v: usize) -> Val {
        let base = self.vars[v].expect("the variable has a value here");
        if !self.is_lane_var(v) {
            return base;
        }
        let (base, lane) = (asm.widen(base, self.lanes), asm.iota(self.lanes));
        asm.bin("arith.addi", base, lane)
    }

    /// The value of a statement: one lane where it is the same for all lanes.
    pub fn eval(&mut self, cx: &Cx, asm: &mut Asm, k: usize) -> Val {
        if let Some(v) = self.values[k] {
            return v;
        }
        let step = &cx.def.body[k];
        let lanes = if self.varies(cx.deps[k]) { self.lanes } else { 1 };
        let ty = Ty::new(scalar::register(step.dtype), lanes);
        let v = match &step.op {
            Op::Load { access, guard } => self.load(cx, asm, access, *guard, step.dtype),
            Op::Const(bits) => constant(asm, f64::from_bits(*bits), ty),
            Op::Index(d) => {
                let d = d.clone();
                let v = emit_dim(asm, &d, lanes, &mut |asm, s| self.symbol(cx, asm, s));
                asm.widen(v, lanes)
            }
            Op::Apply { f, args } => self.apply(cx, asm, *f, args, lanes),
            Op::Convert(a) => {
                let v = self.eval(cx, asm, *a);
                scalar::convert(asm, v, cx.def.body[*a].dtype, step.dtype)
            }
            Op::Reduce { .. } => unreachable!("a reduction's value is set by the loop that computes it"),
        };
        debug_assert_eq!(v.ty, ty, "{step:?}");
        self.values[k] = Some(v);
        v
    }

    fn apply(&mut self, cx: &Cx, asm: &mut Asm, f: ScalarFn, args: &[usize], lanes: u32) -> Val {
        let t = cx.def.body[args[args.len() - 1]].dtype;
        let square = |e: &usize| matches!(cx.def.body[*e].op, Op::Const(bits) if f64::from_bits(bits) == 2.0);
        if f == ScalarFn::Pow && t.is_float() && square(&args[1]) {
            let x = self.eval(cx, asm, args[0]);
            return scalar::apply(asm, ScalarFn::Mul, &[x, x], t);
        }
        let mut values = vec![];
        for a in args {
            let v = self.eval(cx, asm, *a);
            values.push(asm.widen(v, lanes));
        }
        scalar::apply(asm, f, &values, t)
    }

    fn symbol(&mut self, cx: &Cx, asm: &mut Asm, s: &str) -> Val {
        match (own(s, '%'), own(s, '$')) {
            (Some(v), _) => self.var(asm, v),
            (None, Some(k)) => self.eval(cx, asm, k),
            (None, None) => cx.param(s),
        }
    }

    fn load(&mut self, cx: &Cx, asm: &mut Asm, access: &Access, guard: Option<usize>, t: DType) -> Val {
        let storage = &cx.def.reads[access.buffer];
        let base = cx.reads[access.buffer];
        let guard = guard.map(|g| self.eval(cx, asm, g));
        let index = self.index(cx, asm, access, storage, guard);
        let elem = scalar::stored(t);
        let align = elem.bits() / 8;
        let v = match (&index, guard) {
            // All lanes read one element, or there is one lane.
            (Index::At(i), None) => {
                let address = asm.element(base, *i, elem);
                asm.load(address, Ty::new(elem, 1), align)
            }
            (Index::At(i), Some(g)) if g.ty.lanes == 1 => guarded(asm, g, base, *i, Ty::new(elem, 1)),
            (Index::At(i), Some(g)) => {
                // Any lane's guard lets the one element be read; the others are 0.
                let some = math::any(asm, g);
                let v = guarded(asm, some, base, *i, Ty::new(elem, 1));
                let v = asm.widen(v, self.lanes);
                let zero = asm.zero(v.ty);
                asm.select(g, v, zero)
            }
            (Index::From(i), None) if self.mask.is_none() => {
                let address = asm.element(base, *i, elem);
                asm.load(address, Ty::new(elem, self.lanes), align)
            }
            (Index::From(i), Some(g)) if g.ty.lanes == 1 && self.mask.is_none() => {
                guarded(asm, g, base, *i, Ty::new(elem, self.lanes))
            }
            (Index::From(i), g) => {
                let address = asm.element(base, *i, elem);
                let mask = self.masked(asm, g);
                masked_load(asm, address, mask, Ty::new(elem, self.lanes))
            }
            (Index::Each(i), g) => {
                let addresses = asm.element(base, *i, elem);
                let mask = self.masked(asm, g);
                gather(asm, addresses, mask, Ty::new(elem, self.lanes))
            }
        };
        scalar::after_load(asm, v, t)
    }

    /// The lanes that exist and pass the guard.
    fn masked(&self, asm: &mut Asm, guard: Option<Val>) -> Val {
        let guard = guard.map(|g| asm.widen(g, self.lanes));
        match (self.mask, guard) {
            (None, None) => asm.int(1, Ty::new(Elem::I1, self.lanes)),
            (Some(m), None) => m,
            (None, Some(g)) => g,
            (Some(m), Some(g)) => asm.bin("arith.andi", m, g),
        }
    }

    /// Writes a value.
    pub fn store(&mut self, cx: &Cx, asm: &mut Asm, write: &Write) {
        let v = self.eval(cx, asm, write.value);
        self.store_value(cx, asm, &write.access, v, cx.def.body[write.value].dtype);
    }

    pub fn store_value(&mut self, cx: &Cx, asm: &mut Asm, access: &Access, v: Val, t: DType) {
        let storage = &cx.def.writes[access.buffer];
        let base = cx.writes[access.buffer];
        let index = self.index(cx, asm, access, storage, None);
        let v = scalar::before_store(asm, v, t);
        let elem = v.ty.elem;
        let align = elem.bits() / 8;
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
                    None => asm.store(v, address, align),
                    Some(m) => masked_store(asm, v, address, m),
                }
            }
            Index::Each(i) => {
                let addresses = asm.element(base, i, elem);
                let (v, mask) = (asm.widen(v, self.lanes), self.masked(asm, None));
                scatter(asm, v, addresses, mask);
            }
        }
    }

    fn index(&mut self, cx: &Cx, asm: &mut Asm, access: &Access, storage: &Storage, guard: Option<Val>) -> Index {
        if let Some(panels) = storage.panels {
            return self.panel_index(cx, asm, access, panels);
        }
        let base = self.line(cx, asm, &access.coords[0]);
        let mut sum = base;
        for part in &access.computed {
            let term = self.computed(cx, asm, part, guard);
            sum = add(asm, sum, term);
        }
        let step =
            if self.along < cx.def.n_vars() && self.lanes > 1 { access.stride(self.along) } else { Size::Const(0) };
        let lanes_in_parts = sum.ty.lanes > 1;
        match step {
            Size::Const(0) if lanes_in_parts => Index::Each(sum),
            Size::Const(0) => Index::At(sum),
            Size::Const(1) if !lanes_in_parts => Index::From(sum),
            step => {
                let (step, iota) = (cx.size(asm, step), asm.iota(self.lanes));
                let step = asm.widen(step, self.lanes);
                let moved = asm.bin("arith.muli", step, iota);
                Index::Each(add(asm, sum, moved))
            }
        }
    }

    /// offset + Σ strides · variables, at lane 0. Outer variables come first: sums over them leave inner loops.
    pub fn line(&self, cx: &Cx, asm: &mut Asm, line: &Linear) -> Val {
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
                asm.bin("arith.muli", var, stride)
            };
            sum = Some(match sum {
                None => term,
                Some(s) => asm.bin("arith.addi", s, term),
            });
        }
        sum.unwrap_or_else(|| asm.i64(0))
    }

    /// stride · expr, checked where a limit is given: out of range sets the status (unless nothing is read there)
    /// and reads at 0.
    fn computed(&mut self, cx: &Cx, asm: &mut Asm, part: &Computed, guard: Option<Val>) -> Val {
        let mut v = {
            let expr = part.expr.clone();
            let lanes = if self.varies(self.expr_vars(cx, &expr)) { self.lanes } else { 1 };
            let v = emit_dim(asm, &expr, lanes, &mut |asm, s| self.symbol(cx, asm, s));
            asm.widen(v, lanes)
        };
        if let Some(limit) = part.limit {
            let limit = cx.size(asm, limit);
            let limit = asm.widen(limit, v.ty.lanes);
            // As unsigned numbers negative indices are large.
            let mut wrong = asm.cmpi("uge", v, limit);
            if let (Some(mask), true) = (self.mask, wrong.ty.lanes > 1) {
                wrong = asm.bin("arith.andi", wrong, mask);
            }
            let mut seen = wrong;
            if let Some(guard) = guard {
                seen = both(asm, "arith.andi", wrong, guard);
            }
            let some = math::any(asm, seen);
            asm.if_then(some, |asm| {
                let one = asm.i64(1);
                asm.store(one, cx.status, 8);
            });
            let zero = asm.zero(v.ty);
            v = asm.select(wrong, zero, v);
        }
        if part.stride.is(1) {
            return v;
        }
        let stride = cx.size(asm, part.stride);
        let stride = asm.widen(stride, v.ty.lanes);
        asm.bin("arith.muli", v, stride)
    }

    fn expr_vars(&self, cx: &Cx, d: &Dim) -> VarSet {
        d.symbols().iter().fold(0, |set, s| match (own(s, '%'), own(s, '$')) {
            (Some(v), _) => set | 1 << v,
            (None, Some(k)) => set | cx.deps[k],
            (None, None) => set,
        })
    }

    /// [k, n]  =>  (n / width · rows + k) · width + n mod width
    fn panel_index(&mut self, cx: &Cx, asm: &mut Asm, access: &Access, panels: Panels) -> Index {
        let [k, n] = [0, 1].map(|c| {
            let base = self.line(cx, asm, &access.coords[c]);
            let step = if self.lanes > 1 { access.coords[c].strides[self.along] } else { Size::Const(0) };
            if step.is(0) {
                return base;
            }
            let (step, iota) = (cx.size(asm, step), asm.iota(self.lanes));
            let step = asm.widen(step, self.lanes);
            let moved = asm.bin("arith.muli", step, iota);
            add(asm, base, moved)
        });
        let (width, rows) = (asm.int(panels.width, n.ty), asm.int(panels.rows, n.ty));
        let panel = asm.bin("arith.divui", n, width);
        let column = asm.bin("arith.remui", n, width);
        let first = asm.bin("arith.muli", panel, rows);
        let row = add(asm, first, k);
        let width = asm.int(panels.width, row.ty);
        let start = asm.bin("arith.muli", row, width);
        let sum = add(asm, start, column);
        if sum.ty.lanes > 1 { Index::Each(sum) } else { Index::At(sum) }
    }
}

/// Where lanes access memory.
enum Index {
    /// All at one element.
    At(Val),
    /// At consecutive elements from here.
    From(Val),
    Each(Val),
}

fn add(asm: &mut Asm, a: Val, b: Val) -> Val {
    let lanes = a.ty.lanes.max(b.ty.lanes);
    let (a, b) = (asm.widen(a, lanes), asm.widen(b, lanes));
    asm.bin("arith.addi", a, b)
}

fn constant(asm: &mut Asm, value: f64, ty: Ty) -> Val {
    if ty.elem.is_float() {
        return asm.float(value, ty);
    }
    // u64 constants beyond i64 keep their bits.
    let whole = if value >= 9.3e18 { value as u64 as i64 } else { value as i64 };
    let bits = ty.elem.bits();
    let wrapped = if ty.elem == Elem::I1 || bits == 64 { whole } else { whole << (64 - bits) >> (64 - bits) };
    asm.int(wrapped, ty)
}

fn guarded(asm: &mut Asm, guard: Val, base: Val, index: Val, ty: Ty) -> Val {
    let align = ty.elem.bits() / 8;
    asm.if_else(
        guard,
        &[ty],
        |asm| {
            let address = asm.element(base, index, ty.elem);
            vec![asm.load(address, ty, align)]
        },
        |asm| vec![asm.zero(ty)],
    )[0]
}

pub fn masked_load(asm: &mut Asm, address: Val, mask: Val, ty: Ty) -> Val {
    let (zero, align, t) = (asm.zero(ty), ty.elem.bits() / 8, ty.name());
    let types = format!("(!llvm.ptr, {}, {t}) -> {t}", mask.ty.name());
    asm.def(ty, &format!("llvm.intr.masked.load {address}, {mask}, {zero} {{alignment = {align} : i32}} : {types}"))
}

fn masked_store(asm: &mut Asm, v: Val, address: Val, mask: Val) {
    let (align, t, m) = (v.ty.elem.bits() / 8, v.ty.name(), mask.ty.name());
    asm.line(&format!(
        "llvm.intr.masked.store {v}, {address}, {mask} {{alignment = {align} : i32}} : {t}, {m} into !llvm.ptr"
    ));
}

fn gather(asm: &mut Asm, addresses: Val, mask: Val, ty: Ty) -> Val {
    let (zero, align, t) = (asm.zero(ty), ty.elem.bits() / 8, ty.name());
    let types = format!("({}, {}, {t}) -> {t}", addresses.ty.name(), mask.ty.name());
    asm.def(ty, &format!("llvm.intr.masked.gather {addresses}, {mask}, {zero} {{alignment = {align} : i32}} : {types}"))
}

fn scatter(asm: &mut Asm, v: Val, addresses: Val, mask: Val) {
    let (align, t, m, a) = (v.ty.elem.bits() / 8, v.ty.name(), mask.ty.name(), addresses.ty.name());
    asm.line(&format!(
        "llvm.intr.masked.scatter {v}, {addresses}, {mask} {{alignment = {align} : i32}} : {t}, {m} into {a}"
    ));
}

/// An integer expression; `symbol` gives the symbols' values, scalar or with `lanes` lanes.
pub fn emit_dim(asm: &mut Asm, d: &Dim, lanes: u32, symbol: &mut dyn FnMut(&mut Asm, &str) -> Val) -> Val {
    let mut sum: Option<Val> = None;
    for (monomial, c) in d.terms() {
        let mut product = (c != 1 || monomial.is_empty()).then(|| asm.i64(c));
        for atom in monomial {
            let v = emit_atom(asm, atom, lanes, symbol);
            product = Some(match product {
                None => v,
                Some(p) => both(asm, "arith.muli", p, v),
            });
        }
        let term = product.expect("a factor");
        sum = Some(match sum {
            None => term,
            Some(s) => add(asm, s, term),
        });
    }
    sum.unwrap_or_else(|| asm.i64(0))
}

fn both(asm: &mut Asm, op: &str, a: Val, b: Val) -> Val {
    let lanes = a.ty.lanes.max(b.ty.lanes);
    let (a, b) = (asm.widen(a, lanes), asm.widen(b, lanes));
    asm.bin(op, a, b)
}

fn emit_atom(asm: &mut Asm, atom: &Atom, lanes: u32, symbol: &mut dyn FnMut(&mut Asm, &str) -> Val) -> Val {
    let (op, a, b) = match atom {
        Atom::Symbol(s) => return symbol(asm, s),
        Atom::FloorDiv(a, b) => ("floordiv", a, b),
        Atom::Max(a, b) => ("arith.maxsi", a, b),
        Atom::Min(a, b) => ("arith.minsi", a, b),
    };
    let a = emit_dim(asm, a, lanes, symbol);
    let b = emit_dim(asm, b, lanes, symbol);
    if op != "floordiv" {
        return both(asm, op, a, b);
    }
    // Divisors are positive: the truncated quotient is one too large where the remainder is negative.
    let q = both(asm, "arith.divsi", a, b);
    let r = both(asm, "arith.remsi", a, b);
    let (zero, one) = (asm.zero(r.ty), asm.int(1, r.ty));
    let negative = asm.cmpi("slt", r, zero);
    let lower = asm.bin("arith.subi", q, one);
    asm.select(negative, lower, q)
}

/// The work item's number  =>  the values of variables (or of block numbers), the last one running fastest.
pub fn decode(asm: &mut Asm, item: Val, extents: &[Val]) -> Vec<Val> {
    let mut rest = item;
    let mut out = vec![];
    for (i, extent) in extents.iter().enumerate().rev() {
        if i == 0 {
            out.push(rest);
        } else {
            out.push(asm.bin("arith.remui", rest, *extent));
            rest = asm.bin("arith.divui", rest, *extent);
        }
    }
    out.reverse();
    out
}
