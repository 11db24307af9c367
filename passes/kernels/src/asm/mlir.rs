//! Operations of [`Asm`]  =>  text in the upstream MLIR dialects arith, math, vector, scf and llvm

use super::isa::{Isa, isa_of};
use super::{Asm, Bin, Cast, CmpF, CmpI, Elem, Text, Ty, Un, Val};
use sardonyx_base::cpu::{Extension, Level};
use std::fmt::Write;

impl Elem {
    fn name(self) -> &'static str {
        match self {
            Elem::F16 => "f16",
            Elem::F32 => "f32",
            Elem::F64 => "f64",
            Elem::I1 => "i1",
            Elem::I8 => "i8",
            Elem::I16 => "i16",
            Elem::I32 => "i32",
            Elem::I64 => "i64",
            Elem::Ptr => "!llvm.ptr",
        }
    }
}

impl Ty {
    pub(super) fn name(self) -> String {
        match self.lanes {
            1 => self.elem.name().into(),
            n => format!("vector<{n}x{}>", self.elem.name()),
        }
    }

    /// The type as LLVM mangles it into the name of an intrinsic.
    fn mangled(self) -> String {
        let elem = if self.elem == Elem::Ptr { "p0" } else { self.elem.name() };
        if self.lanes == 1 { elem.into() } else { format!("v{}{elem}", self.lanes) }
    }
}

impl Bin {
    fn mlir(self) -> &'static str {
        match self {
            Bin::AddF => "arith.addf",
            Bin::SubF => "arith.subf",
            Bin::MulF => "arith.mulf",
            Bin::DivF => "arith.divf",
            Bin::CopySign => "math.copysign",
            Bin::AddI => "arith.addi",
            Bin::SubI => "arith.subi",
            Bin::MulI => "arith.muli",
            Bin::AndI => "arith.andi",
            Bin::OrI => "arith.ori",
            Bin::XorI => "arith.xori",
            Bin::DivSI => "arith.divsi",
            Bin::DivUI => "arith.divui",
            Bin::RemSI => "arith.remsi",
            Bin::RemUI => "arith.remui",
            Bin::MaxSI => "arith.maxsi",
            Bin::MaxUI => "arith.maxui",
            Bin::MinSI => "arith.minsi",
            Bin::MinUI => "arith.minui",
            Bin::ShLI => "arith.shli",
            Bin::ShRSI => "arith.shrsi",
            Bin::ShRUI => "arith.shrui",
        }
    }
}

impl Un {
    fn mlir(self) -> &'static str {
        match self {
            Un::AbsF => "math.absf",
            Un::NegF => "arith.negf",
            Un::Sqrt => "math.sqrt",
            Un::Ceil => "math.ceil",
            Un::Floor => "math.floor",
            Un::RoundEven => "math.roundeven",
        }
    }
}

impl Cast {
    fn mlir(self) -> &'static str {
        match self {
            Cast::ExtF => "arith.extf",
            Cast::TruncF => "arith.truncf",
            Cast::Bitcast => "arith.bitcast",
            Cast::TruncI => "arith.trunci",
            Cast::ExtSI => "arith.extsi",
            Cast::ExtUI => "arith.extui",
            Cast::SIToFP => "arith.sitofp",
            Cast::UIToFP => "arith.uitofp",
        }
    }
}

impl CmpF {
    fn mlir(self) -> &'static str {
        match self {
            CmpF::Oeq => "arith.cmpf oeq",
            CmpF::One => "arith.cmpf one",
            CmpF::Olt => "arith.cmpf olt",
            CmpF::Ole => "arith.cmpf ole",
            CmpF::Ogt => "arith.cmpf ogt",
            CmpF::Oge => "arith.cmpf oge",
            CmpF::Ult => "arith.cmpf ult",
            CmpF::Une => "arith.cmpf une",
            CmpF::Uno => "arith.cmpf uno",
        }
    }
}

impl CmpI {
    fn mlir(self) -> &'static str {
        match self {
            CmpI::Eq => "arith.cmpi eq",
            CmpI::Ne => "arith.cmpi ne",
            CmpI::Slt => "arith.cmpi slt",
            CmpI::Sle => "arith.cmpi sle",
            CmpI::Sgt => "arith.cmpi sgt",
            CmpI::Sge => "arith.cmpi sge",
            CmpI::Ult => "arith.cmpi ult",
            CmpI::Ule => "arith.cmpi ule",
            CmpI::Ugt => "arith.cmpi ugt",
            CmpI::Uge => "arith.cmpi uge",
        }
    }
}

impl std::fmt::Display for Val {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "%{}", self.id)
    }
}

/// The body of one function for a CPU.
pub struct Mlir {
    text: Text,
    level: Level,
    /// Instructions for which the upstream dialects have no operation.
    pub isa: &'static dyn Isa,
}

#[derive(Clone, Copy)]
/// Values that a launch on a CPU passes to a kernel besides buffers and parameters.
pub struct CpuLaunch {
    pub level: Level,
    pub scratch: Val,
    pub begin: Val,
    pub end: Val,
}

impl Mlir {
    pub fn new(level: Level) -> Mlir {
        Mlir { text: Text::default(), level, isa: isa_of(level.arch()) }
    }

    pub fn has(&self, extension: Extension) -> bool {
        self.level.has(extension)
    }

    fn fresh(&mut self, ty: Ty) -> Val {
        self.text.value(ty)
    }

    fn line(&mut self, text: &str) {
        self.text.line(text);
    }

    /// Returns the text of the whole function.
    pub fn finish(self, signature: &str) -> String {
        format!("{signature} {{\n{}{}  llvm.return\n}}\n", self.text.constants, self.text.body)
    }

    /// Returns the function's argument. This must be the first value that the writer creates.
    pub fn argument(&mut self) -> Val {
        self.fresh(Ty::PTR)
    }

    /// Writes `%n = text` and returns the new value.
    pub(super) fn def(&mut self, ty: Ty, text: &str) -> Val {
        let v = self.fresh(ty);
        self.line(&format!("{v} = {text}"));
        v
    }

    pub(super) fn constant(&mut self, literal: String, ty: Ty) -> Val {
        if let Some(v) = self.text.known.get(&(literal.clone(), ty)) {
            return *v;
        }
        let v = self.fresh(ty);
        let value = match ty {
            // `true` and `false` are complete attributes without a type suffix.
            Ty { elem: Elem::I1, lanes: 1 } => literal.clone(),
            Ty { lanes: 1, .. } => format!("{literal} : {}", ty.name()),
            Ty { .. } => format!("dense<{literal}> : {}", ty.name()),
        };
        let _ = writeln!(self.text.constants, "  {v} = arith.constant {value}");
        self.text.known.insert((literal, ty), v);
        v
    }

    /// Calls an LLVM intrinsic for which the upstream dialects have no operation.
    pub(super) fn intrinsic(&mut self, name: &str, args: &[Val], ty: Ty) -> Val {
        let text = format!("llvm.call_intrinsic \"{name}\"({}) : ({}) -> {}", names(args), types(args), ty.name());
        self.def(ty, &text)
    }

    /// Clamps x to `lo..=hi`; NaN becomes `lo`.
    pub fn clamp_number(&mut self, x: Val, lo: f64, hi: f64) -> Val {
        let (lo, hi) = (self.float(lo, x.ty), self.float(hi, x.ty));
        let above = self.cmpf(CmpF::Ogt, x, lo);
        let x = self.select(above, x, lo);
        let below = self.cmpf(CmpF::Olt, x, hi);
        self.select(below, x, hi)
    }

    /// Broadcasts a scalar to one vector for each number of lanes in `lanes`. A narrower vector is taken from the first
    /// lanes of the widest one. The arithmetic fence hides from LLVM that the widest vector is a broadcast; otherwise
    /// LLVM would broadcast the scalar again for each narrower vector, on a port that multiply-adds need.
    pub fn broadcast(&mut self, value: Val, lanes: &[u32]) -> Vec<Val> {
        let widest = lanes.iter().copied().max().unwrap_or(1);
        let whole = self.widen(value, widest);
        if lanes.iter().all(|n| *n == widest) {
            return vec![whole; lanes.len()];
        }
        let float = if whole.ty.elem.is_float() { whole } else { self.cast(Cast::Bitcast, whole, Elem::F32) };
        let fenced = self.intrinsic("llvm.arithmetic.fence", &[float], float.ty);
        let whole = if float == whole { fenced } else { self.cast(Cast::Bitcast, fenced, whole.ty.elem) };
        let first = |n: &u32| match *n == widest {
            true => whole,
            false => self.shuffle(whole, whole, &(0..*n).collect::<Vec<_>>()),
        };
        lanes.iter().map(first).collect()
    }

    /// Calls an intrinsic that has no result but affects memory or the CPU.
    pub(super) fn effect(&mut self, name: &str, args: &[Val]) {
        self.line(&format!("llvm.call_intrinsic \"{name}\"({}) : ({}) -> ()", names(args), types(args)));
    }

    /// `float_to_int` for vectors, by vector instructions; LLVM would scalarise the saturating intrinsic.
    fn floats_to_ints(&mut self, a: Val, elem: Elem, unsigned: bool) -> Val {
        let bits = elem.bits();
        let (lo, hi) = if unsigned { (0, (1i64 << bits) - 1) } else { (-1 << (bits - 1), (1i64 << (bits - 1)) - 1) };
        // The largest f32 that fits into an i32 is less than the largest i32.
        let most = if bits == 32 { 2_147_483_520.0 } else { hi as f64 };
        let within = self.clamp_number(a, lo as f64, most);
        let most = self.float(most, a.ty);
        let ty = a.ty.with_elem(Elem::I32);
        let mut whole = self.def(ty, &format!("arith.fptosi {within} : {} to {}", a.ty.name(), ty.name()));
        if bits == 32 {
            let (above, largest) = (self.cmpf(CmpF::Ogt, a, most), self.int(hi, ty));
            whole = self.select(above, largest, whole);
        }
        if lo < 0 {
            let (number, zero) = (self.cmpf(CmpF::Oeq, a, a), self.zero(ty));
            whole = self.select(number, whole, zero);
        }
        self.cast(Cast::TruncI, whole, elem)
    }

    /// Packs 16 lanes of i1 into one 16-bit integer with lane 0 as the lowest bit.
    pub fn bits(&mut self, mask: Val) -> Val {
        self.def(Ty::new(Elem::I16, 1), &format!("llvm.bitcast {mask} : {} to i16", mask.ty.name()))
    }

    /// Rounds f32 to bf16 and returns the bits as an integer. CPUs with an instruction for this flush subnormals to 0.
    pub fn bf16_bits(&mut self, v: Val) -> Val {
        let ty = Ty::new(Elem::I16, v.ty.lanes);
        let narrow = if v.ty.lanes == 1 { "bf16".into() } else { format!("vector<{}xbf16>", v.ty.lanes) };
        let id = self.fresh(v.ty);
        self.line(&format!("{id} = arith.truncf {v} : {} to {narrow}", v.ty.name()));
        self.def(ty, &format!("arith.bitcast {id} : {narrow} to {}", ty.name()))
    }

    /// Views each 32-bit word as two bf16; returns the value and its MLIR type.
    pub(super) fn bf16_words(&mut self, v: Val) -> (Val, String) {
        let id = self.fresh(v.ty);
        let pairs = format!("vector<{}xbf16>", 2 * v.ty.lanes);
        self.line(&format!("{id} = vector.bitcast {v} : {} to {pairs}", v.ty.name()));
        (id, pairs)
    }

    /// Reinterprets the bits as more lanes of the narrower type `elem`.
    pub fn split(&mut self, v: Val, elem: Elem) -> Val {
        let ty = Ty::new(elem, v.ty.lanes * v.ty.elem.bits() / elem.bits());
        self.def(ty, &format!("vector.bitcast {v} : {} to {}", v.ty.name(), ty.name()))
    }

    /// Prefetches the cache line at an address, which may lie outside the buffer.
    pub fn prefetch(&mut self, address: Val) {
        let hints = "<{cache = 1 : i32, hint = 3 : i32, rw = 0 : i32}>";
        self.line(&format!("\"llvm.intr.prefetch\"({address}) {hints} : (!llvm.ptr) -> ()"));
    }

    fn yield_values(&mut self, values: &[Val], like: &[Val]) {
        debug_assert!(values.len() == like.len() && values.iter().zip(like).all(|(a, b)| a.ty == b.ty));
        if !values.is_empty() {
            self.line(&format!("scf.yield {} : {}", names(values), types(values)));
        }
    }

    fn close(&mut self, values: &[Val], like: &[Val]) {
        self.yield_values(values, like);
        self.text.depth -= 1;
        self.line("}");
    }
}

impl Asm for Mlir {
    type Launch = CpuLaunch;

    fn cpu(&mut self) -> Option<&mut Mlir> {
        Some(self)
    }

    fn int(&mut self, value: i64, ty: Ty) -> Val {
        let literal = match ty.elem {
            Elem::I1 => (value != 0).to_string(),
            _ => value.to_string(),
        };
        self.constant(literal, ty)
    }

    fn float(&mut self, value: f64, ty: Ty) -> Val {
        let value = if ty.elem == Elem::F32 { value as f32 as f64 } else { value };
        // Finite values are printed in decimal, which round-trips exactly; other values as their bits.
        let mut text = format!("{value:?}");
        if let Some(at) = text.find('e').filter(|_| !text.contains('.')) {
            text.insert_str(at, ".0");
        }
        if !value.is_finite() {
            text = match ty.elem {
                Elem::F32 => format!("0x{:08X}", (value as f32).to_bits()),
                _ => format!("0x{:016X}", value.to_bits()),
            };
        }
        self.constant(text, ty)
    }

    fn iota(&mut self, lanes: u32) -> Val {
        let numbers: Vec<String> = (0..lanes).map(|i| i.to_string()).collect();
        self.constant(format!("[{}]", numbers.join(", ")), Ty::new(Elem::I64, lanes))
    }

    fn bin(&mut self, op: Bin, a: Val, b: Val) -> Val {
        debug_assert_eq!(a.ty, b.ty, "{op:?}");
        self.def(a.ty, &format!("{} {a}, {b} : {}", op.mlir(), a.ty.name()))
    }

    fn floordiv(&mut self, a: Val, b: Val) -> Val {
        // The truncated quotient is one too large where the remainder is negative.
        let (q, r) = (self.both(Bin::DivSI, a, b), self.both(Bin::RemSI, a, b));
        let (zero, one) = (self.zero(r.ty), self.int(1, r.ty));
        let negative = self.cmpi(CmpI::Slt, r, zero);
        let lower = self.bin(Bin::SubI, q, one);
        self.select(negative, lower, q)
    }

    fn un(&mut self, op: Un, a: Val) -> Val {
        self.def(a.ty, &format!("{} {a} : {}", op.mlir(), a.ty.name()))
    }

    fn fma(&mut self, a: Val, b: Val, c: Val) -> Val {
        debug_assert!(a.ty == b.ty && b.ty == c.ty);
        self.def(a.ty, &format!("math.fma {a}, {b}, {c} : {}", a.ty.name()))
    }

    fn cmpf(&mut self, op: CmpF, a: Val, b: Val) -> Val {
        debug_assert_eq!(a.ty, b.ty);
        self.def(a.ty.with_elem(Elem::I1), &format!("{}, {a}, {b} : {}", op.mlir(), a.ty.name()))
    }

    fn cmpi(&mut self, op: CmpI, a: Val, b: Val) -> Val {
        debug_assert_eq!(a.ty, b.ty);
        self.def(a.ty.with_elem(Elem::I1), &format!("{}, {a}, {b} : {}", op.mlir(), a.ty.name()))
    }

    fn select(&mut self, c: Val, a: Val, b: Val) -> Val {
        debug_assert!(a.ty == b.ty && c.ty == a.ty.with_elem(Elem::I1));
        self.def(a.ty, &format!("arith.select {c}, {a}, {b} : {}, {}", c.ty.name(), a.ty.name()))
    }

    fn cast(&mut self, op: Cast, a: Val, elem: Elem) -> Val {
        if a.ty.elem == elem {
            return a;
        }
        let ty = a.ty.with_elem(elem);
        self.def(ty, &format!("{} {a} : {} to {}", op.mlir(), a.ty.name(), ty.name()))
    }

    fn float_to_int(&mut self, a: Val, elem: Elem, unsigned: bool) -> Val {
        let narrow = elem.bits() <= 16 || elem == Elem::I32 && !unsigned;
        if a.ty.lanes > 1 && a.ty.elem == Elem::F32 && narrow {
            return self.floats_to_ints(a, elem, unsigned);
        }
        let (kind, ty) = (if unsigned { "fptoui" } else { "fptosi" }, a.ty.with_elem(elem));
        self.intrinsic(&format!("llvm.{kind}.sat.{}.{}", ty.mangled(), a.ty.mangled()), &[a], ty)
    }

    fn any(&mut self, c: Val) -> Val {
        if c.ty.lanes == 1 {
            return c;
        }
        self.def(Ty::I1, &format!("vector.reduction <or>, {c} : {} into i1", c.ty.name()))
    }

    fn widen(&mut self, a: Val, lanes: u32) -> Val {
        if a.ty.lanes == lanes {
            return a;
        }
        debug_assert_eq!(a.ty.lanes, 1);
        let ty = Ty::new(a.ty.elem, lanes);
        self.def(ty, &format!("vector.broadcast {a} : {} to {}", a.ty.name(), ty.name()))
    }

    fn extract(&mut self, a: Val, lane: u32) -> Val {
        if a.ty.lanes == 1 {
            return a;
        }
        let ty = Ty::new(a.ty.elem, 1);
        self.def(ty, &format!("vector.extract {a}[{lane}] : {} from {}", ty.name(), a.ty.name()))
    }

    fn shuffle(&mut self, a: Val, b: Val, which: &[u32]) -> Val {
        debug_assert_eq!(a.ty, b.ty);
        let ty = Ty::new(a.ty.elem, which.len() as u32);
        let which: Vec<String> = which.iter().map(u32::to_string).collect();
        self.def(ty, &format!("vector.shuffle {a}, {b} [{}] : {}, {}", which.join(", "), a.ty.name(), b.ty.name()))
    }

    fn element(&mut self, base: Val, index: Val, elem: Elem) -> Val {
        let elem = if elem == Elem::I1 { Elem::I8 } else { elem };
        let ty = Ty::new(Elem::Ptr, index.ty.lanes);
        let types = format!("({}, {}) -> {}", base.ty.name(), index.ty.name(), ty.name());
        self.def(ty, &format!("llvm.getelementptr {base}[{index}] : {types}, {}", elem.name()))
    }

    fn load(&mut self, address: Val, ty: Ty, align: u32) -> Val {
        self.def(ty, &format!("llvm.load {address} {{alignment = {align} : i64}} : !llvm.ptr -> {}", ty.name()))
    }

    fn store(&mut self, value: Val, address: Val, align: u32) {
        let ty = value.ty.name();
        self.line(&format!("llvm.store {value}, {address} {{alignment = {align} : i64}} : {ty}, !llvm.ptr"));
    }

    fn masked_load(&mut self, address: Val, mask: Val, ty: Ty) -> Val {
        let (zero, align, t) = (self.zero(ty), ty.elem.bits() / 8, ty.name());
        let (op, from) =
            if address.ty.lanes > 1 { ("gather", address.ty.name()) } else { ("load", "!llvm.ptr".into()) };
        let types = format!("({from}, {}, {t}) -> {t}", mask.ty.name());
        self.def(
            ty,
            &format!("llvm.intr.masked.{op} {address}, {mask}, {zero} {{alignment = {align} : i32}} : {types}"),
        )
    }

    fn masked_store(&mut self, v: Val, address: Val, mask: Val) {
        let (align, t, m, a) = (v.ty.elem.bits() / 8, v.ty.name(), mask.ty.name(), address.ty.name());
        let op = if address.ty.lanes > 1 { "scatter" } else { "store" };
        self.line(&format!(
            "llvm.intr.masked.{op} {v}, {address}, {mask} {{alignment = {align} : i32}} : {t}, {m} into {a}"
        ));
    }

    fn raise(&mut self, status: Val) {
        let one = self.i64(1);
        self.store(one, status, 8);
    }

    fn guarded_load(&mut self, guard: Val, base: Val, index: Val, ty: Ty, align: u32) -> Val {
        let there = |asm: &mut Mlir| {
            let address = asm.element(base, index, ty.elem);
            vec![asm.load(address, ty, align)]
        };
        self.if_else(guard, &[ty], there, |asm| vec![asm.zero(ty)])[0]
    }

    fn for_loop(
        &mut self,
        (lo, hi, step): (Val, Val, Val),
        inits: &[Val],
        body: impl FnOnce(&mut Self, Val, &[Val]) -> Vec<Val>,
    ) -> Vec<Val> {
        let iv = self.fresh(Ty::I64);
        let args: Vec<Val> = inits.iter().map(|v| self.fresh(v.ty)).collect();
        let results: Vec<Val> = inits.iter().map(|v| self.fresh(v.ty)).collect();
        let pairs: Vec<String> = args.iter().zip(inits).map(|(a, i)| format!("{a} = {i}")).collect();
        let carried = match inits {
            [] => String::new(),
            _ => format!(" iter_args({}) -> ({})", pairs.join(", "), types(inits)),
        };
        self.line(&format!("{}scf.for {iv} = {lo} to {hi} step {step}{carried} : i64 {{", assigned(&results)));
        self.text.depth += 1;
        let next = body(self, iv, &args);
        self.close(&next, inits);
        results
    }

    fn if_else(
        &mut self,
        condition: Val,
        tys: &[Ty],
        then: impl FnOnce(&mut Self) -> Vec<Val>,
        other: impl FnOnce(&mut Self) -> Vec<Val>,
    ) -> Vec<Val> {
        let results: Vec<Val> = tys.iter().map(|ty| self.fresh(*ty)).collect();
        let returned = if tys.is_empty() { String::new() } else { format!(" -> ({})", types(&results)) };
        self.line(&format!("{}scf.if {condition}{returned} {{", assigned(&results)));
        self.text.depth += 1;
        let values = then(self);
        self.yield_values(&values, &results);
        self.text.depth -= 1;
        self.line("} else {");
        self.text.depth += 1;
        let values = other(self);
        self.close(&values, &results);
        results
    }

    fn if_then(&mut self, condition: Val, then: impl FnOnce(&mut Self)) {
        self.line(&format!("scf.if {condition} {{"));
        self.text.depth += 1;
        then(self);
        self.close(&[], &[]);
    }

    fn do_while(&mut self, inits: &[Val], body: impl FnOnce(&mut Self, &[Val]) -> (Val, Vec<Val>)) -> Vec<Val> {
        let args: Vec<Val> = inits.iter().map(|v| self.fresh(v.ty)).collect();
        let passed: Vec<Val> = inits.iter().map(|v| self.fresh(v.ty)).collect();
        let results: Vec<Val> = inits.iter().map(|v| self.fresh(v.ty)).collect();
        let pairs: Vec<String> = args.iter().zip(inits).map(|(a, i)| format!("{a} = {i}")).collect();
        let (tys, assigned) = (types(inits), assigned(&results));
        self.line(&format!("{assigned}scf.while ({}) : ({tys}) -> ({tys}) {{", pairs.join(", ")));
        self.text.depth += 1;
        let (condition, next) = body(self, &args);
        self.line(&format!("scf.condition({condition}) {} : {tys}", names(&next)));
        self.text.depth -= 1;
        self.line("} do {");
        let typed: Vec<String> = passed.iter().map(|v| format!("{v}: {}", v.ty.name())).collect();
        self.line(&format!("^bb0({}):", typed.join(", ")));
        self.text.depth += 1;
        self.close(&passed, inits);
        results
    }
}

/// Returns `%a, %b = `, or an empty string if there are no results.
fn assigned(results: &[Val]) -> String {
    if results.is_empty() { String::new() } else { format!("{} = ", names(results)) }
}

fn names(values: &[Val]) -> String {
    let names: Vec<String> = values.iter().map(Val::to_string).collect();
    names.join(", ")
}

fn types(values: &[Val]) -> String {
    let types: Vec<String> = values.iter().map(|v| v.ty.name()).collect();
    types.join(", ")
}
