//! A writer of MLIR text: values with types, structured loops and branches

use std::collections::BTreeMap;
use std::fmt::Write;

/// What the lanes of a value are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Elem {
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    Ptr,
}

impl Elem {
    pub fn name(self) -> &'static str {
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

    pub fn is_float(self) -> bool {
        matches!(self, Elem::F16 | Elem::F32 | Elem::F64)
    }

    pub fn bits(self) -> u32 {
        match self {
            Elem::I1 => 1,
            Elem::I8 => 8,
            Elem::F16 | Elem::I16 => 16,
            Elem::F32 | Elem::I32 => 32,
            Elem::F64 | Elem::I64 | Elem::Ptr => 64,
        }
    }

    /// The integer of the same width.
    pub fn int(self) -> Elem {
        match self {
            Elem::F16 | Elem::I16 => Elem::I16,
            Elem::F32 | Elem::I32 => Elem::I32,
            Elem::F64 | Elem::I64 | Elem::Ptr => Elem::I64,
            Elem::I1 => Elem::I1,
            Elem::I8 => Elem::I8,
        }
    }
}

/// A scalar (one lane) or a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ty {
    pub elem: Elem,
    pub lanes: u32,
}

impl Ty {
    pub const I64: Ty = Ty { elem: Elem::I64, lanes: 1 };
    pub const I32: Ty = Ty { elem: Elem::I32, lanes: 1 };
    pub const PTR: Ty = Ty { elem: Elem::Ptr, lanes: 1 };

    pub fn new(elem: Elem, lanes: u32) -> Ty {
        Ty { elem, lanes }
    }

    pub fn of(self, elem: Elem) -> Ty {
        Ty { elem, lanes: self.lanes }
    }

    pub fn name(self) -> String {
        match self.lanes {
            1 => self.elem.name().into(),
            n => format!("vector<{n}x{}>", self.elem.name()),
        }
    }

    /// As LLVM mangles it into the name of an intrinsic.
    pub fn mangled(self) -> String {
        let elem = match self.elem {
            Elem::F16 => "f16",
            Elem::F32 => "f32",
            Elem::F64 => "f64",
            Elem::I1 => "i1",
            Elem::I8 => "i8",
            Elem::I16 => "i16",
            Elem::I32 => "i32",
            Elem::I64 => "i64",
            Elem::Ptr => "p0",
        };
        if self.lanes == 1 { elem.into() } else { format!("v{}{elem}", self.lanes) }
    }
}

/// An SSA value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Val {
    id: u32,
    pub ty: Ty,
}

impl std::fmt::Display for Val {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "%{}", self.id)
    }
}

/// The body of one function while it is written. Constants stand at its beginning, each once.
#[derive(Default)]
pub struct Asm {
    constants: String,
    known: BTreeMap<(String, Ty), Val>,
    body: String,
    depth: usize,
    n_values: u32,
}

impl Asm {
    /// The whole function.
    pub fn finish(self, signature: &str) -> String {
        format!("{signature} {{\n{}{}  llvm.return\n}}\n", self.constants, self.body)
    }

    fn fresh(&mut self, ty: Ty) -> Val {
        self.n_values += 1;
        Val { id: self.n_values - 1, ty }
    }

    /// The first value: the function's argument.
    pub fn argument(&mut self) -> Val {
        self.fresh(Ty::PTR)
    }

    fn indent(&mut self) {
        for _ in 0..=self.depth {
            self.body.push_str("  ");
        }
    }

    /// A line without a result.
    pub fn line(&mut self, text: &str) {
        self.indent();
        self.body.push_str(text);
        self.body.push('\n');
    }

    /// `%n = text`
    pub fn def(&mut self, ty: Ty, text: &str) -> Val {
        let v = self.fresh(ty);
        self.indent();
        let _ = writeln!(self.body, "{v} = {text}");
        v
    }

    fn constant(&mut self, literal: String, ty: Ty) -> Val {
        if let Some(v) = self.known.get(&(literal.clone(), ty)) {
            return *v;
        }
        let v = self.fresh(ty);
        let value = match ty {
            // `true` is an attribute of its own, without a type behind it.
            Ty { elem: Elem::I1, lanes: 1 } => literal.clone(),
            Ty { lanes: 1, .. } => format!("{literal} : {}", ty.name()),
            Ty { .. } => format!("dense<{literal}> : {}", ty.name()),
        };
        let _ = writeln!(self.constants, "  {v} = arith.constant {value}");
        self.known.insert((literal, ty), v);
        v
    }

    pub fn int(&mut self, value: i64, ty: Ty) -> Val {
        let literal = match ty.elem {
            Elem::I1 => (value != 0).to_string(),
            _ => value.to_string(),
        };
        self.constant(literal, ty)
    }

    pub fn i64(&mut self, value: i64) -> Val {
        self.int(value, Ty::I64)
    }

    /// A floating-point constant, rounded to the type.
    pub fn float(&mut self, value: f64, ty: Ty) -> Val {
        let value = if ty.elem == Elem::F32 { value as f32 as f64 } else { value };
        // Decimal where that reads back exactly, else the bits.
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

    /// 0, 1, 2, … along the lanes.
    pub fn iota(&mut self, lanes: u32) -> Val {
        let numbers: Vec<String> = (0..lanes).map(|i| i.to_string()).collect();
        self.constant(format!("[{}]", numbers.join(", ")), Ty::new(Elem::I64, lanes))
    }

    pub fn zero(&mut self, ty: Ty) -> Val {
        if ty.elem.is_float() { self.float(0.0, ty) } else { self.int(0, ty) }
    }

    /// A binary operation on values of one type.
    pub fn bin(&mut self, op: &str, a: Val, b: Val) -> Val {
        debug_assert_eq!(a.ty, b.ty, "{op}");
        self.def(a.ty, &format!("{op} {a}, {b} : {}", a.ty.name()))
    }

    pub fn un(&mut self, op: &str, a: Val) -> Val {
        self.def(a.ty, &format!("{op} {a} : {}", a.ty.name()))
    }

    pub fn fma(&mut self, a: Val, b: Val, c: Val) -> Val {
        debug_assert!(a.ty == b.ty && b.ty == c.ty);
        self.def(a.ty, &format!("math.fma {a}, {b}, {c} : {}", a.ty.name()))
    }

    pub fn cmpf(&mut self, predicate: &str, a: Val, b: Val) -> Val {
        debug_assert_eq!(a.ty, b.ty);
        self.def(a.ty.of(Elem::I1), &format!("arith.cmpf {predicate}, {a}, {b} : {}", a.ty.name()))
    }

    pub fn cmpi(&mut self, predicate: &str, a: Val, b: Val) -> Val {
        debug_assert_eq!(a.ty, b.ty);
        self.def(a.ty.of(Elem::I1), &format!("arith.cmpi {predicate}, {a}, {b} : {}", a.ty.name()))
    }

    pub fn select(&mut self, c: Val, a: Val, b: Val) -> Val {
        debug_assert!(a.ty == b.ty && c.ty == a.ty.of(Elem::I1));
        self.def(a.ty, &format!("arith.select {c}, {a}, {b} : {}, {}", c.ty.name(), a.ty.name()))
    }

    /// A conversion such as `arith.extf`; nothing where the type is already right.
    pub fn cast(&mut self, op: &str, a: Val, elem: Elem) -> Val {
        let ty = a.ty.of(elem);
        if ty == a.ty {
            return a;
        }
        self.def(ty, &format!("{op} {a} : {} to {}", a.ty.name(), ty.name()))
    }

    pub fn intrinsic(&mut self, name: &str, args: &[Val], ty: Ty) -> Val {
        let names: Vec<String> = args.iter().map(Val::to_string).collect();
        let types: Vec<String> = args.iter().map(|a| a.ty.name()).collect();
        let text =
            format!("llvm.call_intrinsic \"{name}\"({}) : ({}) -> {}", names.join(", "), types.join(", "), ty.name());
        self.def(ty, &text)
    }

    /// A scalar on every lane; a value that already has the lanes is left as it is.
    pub fn widen(&mut self, a: Val, lanes: u32) -> Val {
        if a.ty.lanes == lanes {
            return a;
        }
        debug_assert_eq!(a.ty.lanes, 1);
        let ty = Ty::new(a.ty.elem, lanes);
        self.def(ty, &format!("vector.broadcast {a} : {} to {}", a.ty.name(), ty.name()))
    }

    pub fn extract(&mut self, a: Val, lane: u32) -> Val {
        if a.ty.lanes == 1 {
            return a;
        }
        let ty = Ty::new(a.ty.elem, 1);
        self.def(ty, &format!("vector.extract {a}[{lane}] : {} from {}", ty.name(), a.ty.name()))
    }

    /// Lanes `which` of the two values, one after the other.
    pub fn shuffle(&mut self, a: Val, b: Val, which: &[u32]) -> Val {
        debug_assert_eq!(a.ty, b.ty);
        let ty = Ty::new(a.ty.elem, which.len() as u32);
        let which: Vec<String> = which.iter().map(u32::to_string).collect();
        self.def(ty, &format!("vector.shuffle {a}, {b} [{}] : {}, {}", which.join(", "), a.ty.name(), b.ty.name()))
    }

    /// The address of element `index` (a scalar, or one per lane).
    pub fn element(&mut self, base: Val, index: Val, elem: Elem) -> Val {
        let ty = Ty::new(Elem::Ptr, index.ty.lanes);
        // Bool is one byte in memory.
        let elem = if elem == Elem::I1 { Elem::I8 } else { elem };
        let types = format!("({}, {}) -> {}", base.ty.name(), index.ty.name(), ty.name());
        self.def(ty, &format!("llvm.getelementptr {base}[{index}] : {types}, {}", elem.name()))
    }

    pub fn load(&mut self, address: Val, ty: Ty, align: u32) -> Val {
        self.def(ty, &format!("llvm.load {address} {{alignment = {align} : i64}} : !llvm.ptr -> {}", ty.name()))
    }

    pub fn store(&mut self, value: Val, address: Val, align: u32) {
        let ty = value.ty.name();
        self.line(&format!("llvm.store {value}, {address} {{alignment = {align} : i64}} : {ty}, !llvm.ptr"));
    }

    /// Brings the cache line at an address near; the address may lie outside of memory.
    pub fn prefetch(&mut self, address: Val) {
        let hints = "<{cache = 1 : i32, hint = 3 : i32, rw = 0 : i32}>";
        self.line(&format!("\"llvm.intr.prefetch\"({address}) {hints} : (!llvm.ptr) -> ()"));
    }

    /// `for iv in lo..hi step step`, carrying values.
    pub fn for_loop(
        &mut self,
        (lo, hi, step): (Val, Val, Val),
        inits: &[Val],
        body: impl FnOnce(&mut Asm, Val, &[Val]) -> Vec<Val>,
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
        self.depth += 1;
        let next = body(self, iv, &args);
        self.close(&next, inits);
        results
    }

    /// `if condition { then } else { other }` with values of the same types.
    pub fn if_else(
        &mut self,
        condition: Val,
        tys: &[Ty],
        then: impl FnOnce(&mut Asm) -> Vec<Val>,
        other: impl FnOnce(&mut Asm) -> Vec<Val>,
    ) -> Vec<Val> {
        let results: Vec<Val> = tys.iter().map(|ty| self.fresh(*ty)).collect();
        let returned = if tys.is_empty() { String::new() } else { format!(" -> ({})", types(&results)) };
        self.line(&format!("{}scf.if {condition}{returned} {{", assigned(&results)));
        self.depth += 1;
        let values = then(self);
        self.yield_values(&values, &results);
        self.depth -= 1;
        self.line("} else {");
        self.depth += 1;
        let values = other(self);
        self.close(&values, &results);
        results
    }

    pub fn if_then(&mut self, condition: Val, then: impl FnOnce(&mut Asm)) {
        self.line(&format!("scf.if {condition} {{"));
        self.depth += 1;
        then(self);
        self.close(&[], &[]);
    }

    /// `loop { (condition, next) = body(values); if !condition { break next } }`
    pub fn do_while(&mut self, inits: &[Val], body: impl FnOnce(&mut Asm, &[Val]) -> (Val, Vec<Val>)) -> Vec<Val> {
        let args: Vec<Val> = inits.iter().map(|v| self.fresh(v.ty)).collect();
        let passed: Vec<Val> = inits.iter().map(|v| self.fresh(v.ty)).collect();
        let results: Vec<Val> = inits.iter().map(|v| self.fresh(v.ty)).collect();
        let pairs: Vec<String> = args.iter().zip(inits).map(|(a, i)| format!("{a} = {i}")).collect();
        let (tys, assigned) = (types(inits), assigned(&results));
        self.line(&format!("{assigned}scf.while ({}) : ({tys}) -> ({tys}) {{", pairs.join(", ")));
        self.depth += 1;
        let (condition, next) = body(self, &args);
        self.line(&format!("scf.condition({condition}) {} : {tys}", names(&next)));
        self.depth -= 1;
        self.line("} do {");
        let typed: Vec<String> = passed.iter().map(|v| format!("{v}: {}", v.ty.name())).collect();
        self.line(&format!("^bb0({}):", typed.join(", ")));
        self.depth += 1;
        self.close(&passed, inits);
        results
    }

    fn yield_values(&mut self, values: &[Val], like: &[Val]) {
        debug_assert!(values.len() == like.len() && values.iter().zip(like).all(|(a, b)| a.ty == b.ty));
        if !values.is_empty() {
            self.line(&format!("scf.yield {} : {}", names(values), types(values)));
        }
    }

    fn close(&mut self, values: &[Val], like: &[Val]) {
        self.yield_values(values, like);
        self.depth -= 1;
        self.line("}");
    }
}

/// `%a, %b = `, or nothing for no results.
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
