//! Operations of [`Asm`]  =>  PTX: virtual registers of one thread, branches and labels
//!
//! Booleans are predicates. Integers of 8 and 16 bits are held in 32-bit registers whose upper bits are undefined; they
//! are extended before any operation that depends on those bits. f16 is held in a 16-bit register and is only moved,
//! selected and converted; arithmetic is done in f32. Arithmetic rounds to nearest, without contraction and without
//! flushing to zero.

mod control;
mod division;
mod memory;

use super::{Asm, Bin, Cast, CmpF, CmpI, Elem, Mlir, Text, Ty, Un, Val};
use std::collections::BTreeMap;
use std::fmt::Write;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Pred,
    B16,
    B32,
    B64,
    F32,
    F64,
}

impl Class {
    const ALL: [Class; 6] = [Class::Pred, Class::B16, Class::B32, Class::B64, Class::F32, Class::F64];

    fn for_elem(elem: Elem) -> Class {
        match elem {
            Elem::I1 => Class::Pred,
            Elem::F16 => Class::B16,
            Elem::F32 => Class::F32,
            Elem::F64 => Class::F64,
            Elem::I8 | Elem::I16 | Elem::I32 => Class::B32,
            Elem::I64 | Elem::Ptr => Class::B64,
        }
    }

    /// Prefix of the register names, and the type in their declaration.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Class::Pred => ("%p", "pred"),
            Class::B16 => ("%h", "b16"),
            Class::B32 => ("%r", "b32"),
            Class::B64 => ("%l", "b64"),
            Class::F32 => ("%f", "f32"),
            Class::F64 => ("%d", "f64"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Register {
    class: Class,
    number: u32,
}

impl std::fmt::Display for Register {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.class.names().0, self.number)
    }
}

#[derive(Default)]
struct Registers {
    /// Registers of each value, one per lane.
    of: Vec<Vec<Register>>,
    /// Values that are integer constants, by id.
    integers: BTreeMap<u32, i64>,
    counts: [u32; Class::ALL.len()],
    labels: u32,
}

impl Registers {
    fn assign(&mut self, ty: Ty) {
        let lanes = (0..ty.lanes).map(|_| self.next(Class::for_elem(ty.elem))).collect();
        self.of.push(lanes);
    }

    fn next(&mut self, class: Class) -> Register {
        let count = &mut self.counts[class as usize];
        *count += 1;
        Register { class, number: *count - 1 }
    }
}

/// Returns the type suffix of an instruction: `s64`, `f32`, … Narrow integers are computed in 32 bits.
fn typed(kind: char, elem: Elem) -> String {
    match elem {
        Elem::F32 | Elem::F64 if kind != 'b' => format!("f{}", elem.bits()),
        _ => format!("{kind}{}", elem.bits().max(32)),
    }
}

impl Bin {
    /// Returns the instruction and the kind of its operand type.
    fn ptx(self) -> (&'static str, char) {
        match self {
            Bin::AddF => ("add.rn", 'f'),
            Bin::SubF => ("sub.rn", 'f'),
            Bin::MulF => ("mul.rn", 'f'),
            Bin::DivF => ("div.rn", 'f'),
            Bin::CopySign => ("copysign", 'f'),
            Bin::AddI => ("add", 's'),
            Bin::SubI => ("sub", 's'),
            Bin::MulI => ("mul.lo", 's'),
            Bin::AndI => ("and", 'b'),
            Bin::OrI => ("or", 'b'),
            Bin::XorI => ("xor", 'b'),
            Bin::DivSI => ("div", 's'),
            Bin::DivUI => ("div", 'u'),
            Bin::RemSI => ("rem", 's'),
            Bin::RemUI => ("rem", 'u'),
            Bin::MaxSI => ("max", 's'),
            Bin::MaxUI => ("max", 'u'),
            Bin::MinSI => ("min", 's'),
            Bin::MinUI => ("min", 'u'),
            Bin::ShLI => ("shl", 'b'),
            Bin::ShRSI => ("shr", 's'),
            Bin::ShRUI => ("shr", 'u'),
        }
    }
}

impl CmpI {
    /// Returns the comparison and the kind of its operand type: signed (`s`) or unsigned (`u`).
    fn ptx(self) -> (&'static str, char) {
        match self {
            CmpI::Eq => ("eq", 'u'),
            CmpI::Ne => ("ne", 'u'),
            CmpI::Slt => ("lt", 's'),
            CmpI::Sle => ("le", 's'),
            CmpI::Sgt => ("gt", 's'),
            CmpI::Sge => ("ge", 's'),
            CmpI::Ult => ("lt", 'u'),
            CmpI::Ule => ("le", 'u'),
            CmpI::Ugt => ("gt", 'u'),
            CmpI::Uge => ("ge", 'u'),
        }
    }
}

impl CmpF {
    fn ptx(self) -> &'static str {
        match self {
            CmpF::Oeq => "eq",
            CmpF::One => "ne",
            CmpF::Olt => "lt",
            CmpF::Ole => "le",
            CmpF::Ogt => "gt",
            CmpF::Oge => "ge",
            CmpF::Ult => "ltu",
            CmpF::Une => "neu",
            CmpF::Uno => "nan",
        }
    }
}

/// Body of one entry point for a GPU.
#[derive(Default)]
pub struct Ptx {
    text: Text,
    registers: Registers,
}

impl Ptx {
    fn fresh(&mut self, ty: Ty) -> Val {
        self.registers.assign(ty);
        self.text.value(ty)
    }

    /// Writes a line that defines no value.
    pub fn line(&mut self, text: &str) {
        self.text.line(text);
    }

    /// Returns the whole entry: `signature` holds its parameters and directives, `variables` its variable declarations.
    pub fn finish(self, signature: &str, variables: &str) -> String {
        let mut out = format!("{signature}\n{{\n{variables}");
        for class in Class::ALL {
            let (prefix, ty) = class.names();
            let n = self.registers.counts[class as usize];
            if n > 0 {
                let _ = writeln!(out, "  .reg .{ty} {prefix}<{n}>;");
            }
        }
        let _ = write!(out, "{}{}  ret;\n}}\n", self.text.constants, self.text.body);
        out
    }

    /// Declares a register that is not written yet.
    pub fn register(&mut self, ty: Ty) -> Val {
        self.fresh(ty)
    }

    /// Name of the register that holds a lane of a value.
    pub fn name(&self, v: Val, lane: u32) -> String {
        self.registers.of[v.id as usize][lane as usize].to_string()
    }

    /// Name of the lane's register, or the number itself if the value is a known integer.
    pub fn operand(&self, v: Val, lane: u32) -> String {
        match self.registers.integers.get(&v.id) {
            Some(n) if v.ty.elem != Elem::I1 => n.to_string(),
            Some(_) | None => self.name(v, lane),
        }
    }

    pub fn known_int(&self, v: Val) -> Option<i64> {
        self.registers.integers.get(&v.id).copied()
    }

    /// Reads a special register such as `%tid.x`.
    pub fn special(&mut self, name: &str) -> Val {
        self.instruction(Ty::I32, "mov.u32", &[name.to_string()])
    }

    /// Writes `op result, operands;` and returns the new one-lane value.
    pub fn instruction(&mut self, ty: Ty, op: &str, operands: &[String]) -> Val {
        let v = self.fresh(ty);
        let d = self.name(v, 0);
        self.line(&format!("{op} {d}, {};", operands.join(", ")));
        v
    }

    /// Writes the same instruction for every lane; `text` gets the result register and the operands' registers.
    fn each(&mut self, ty: Ty, args: &[Val], text: impl Fn(&str, &[String]) -> String) -> Val {
        let v = self.fresh(ty);
        for lane in 0..ty.lanes {
            let operands: Vec<String> = args.iter().map(|a| self.operand(*a, lane)).collect();
            let line = text(&self.name(v, lane), &operands);
            self.line(&line);
        }
        v
    }

    pub fn label(&mut self) -> String {
        self.registers.labels += 1;
        format!("L{}", self.registers.labels - 1)
    }

    /// Places a label, the target of a branch, at the current position.
    pub fn place_label(&mut self, label: &str) {
        let _ = writeln!(self.text.body, "{label}:");
    }

    fn constant_of(&mut self, literal: String, ty: Ty) -> Val {
        let one = Ty::new(ty.elem, 1);
        let v = match self.text.known.get(&(literal.clone(), one)) {
            Some(v) => *v,
            None => {
                let v = self.fresh(one);
                let kind = if ty.elem == Elem::I1 { "pred".to_string() } else { typed('b', ty.elem) };
                let kind = if ty.elem.is_float() { typed('f', ty.elem) } else { kind };
                let _ = writeln!(self.text.constants, "  mov.{kind} {}, {literal};", self.name(v, 0));
                self.text.known.insert((literal, one), v);
                v
            }
        };
        self.widen(v, ty.lanes)
    }

    /// Builds a value whose lanes are existing registers, without an instruction.
    fn lanes(&mut self, lanes: &[(Val, u32)]) -> Val {
        let registers = lanes.iter().map(|(v, lane)| self.registers.of[v.id as usize][*lane as usize]).collect();
        self.registers.of.push(registers);
        let v = self.text.value(Ty::new(lanes[0].0.ty.elem, lanes.len() as u32));
        let integers = &mut self.registers.integers;
        let first = integers.get(&lanes[0].0.id).copied();
        if first.is_some() && lanes.iter().all(|(l, _)| integers.get(&l.id).copied() == first) {
            integers.extend(first.map(|n| (v.id, n)));
        }
        v
    }

    /// Sign- or zero-extends a narrow integer to its 32-bit register.
    fn extended(&mut self, a: Val, signed: bool) -> Val {
        let bits = a.ty.elem.bits();
        if a.ty.elem == Elem::I1 || bits >= 32 {
            return a;
        }
        if let Some(n) = self.known_int(a) {
            let whole = if signed { n << (64 - bits) >> (64 - bits) } else { n & ((1 << bits) - 1) };
            return self.int(whole, a.ty.with_elem(Elem::I32));
        }
        if signed {
            return self.each(a.ty.with_elem(Elem::I32), &[a], |d, o| format!("bfe.s32 {d}, {}, 0, {bits};", o[0]));
        }
        let mask = (1 << bits) - 1;
        self.each(a.ty.with_elem(Elem::I32), &[a], |d, o| format!("and.b32 {d}, {}, {mask};", o[0]))
    }

    fn retyped(&mut self, a: Val, elem: Elem) -> Val {
        let lanes: Vec<(Val, u32)> = (0..a.ty.lanes).map(|lane| (a, lane)).collect();
        let mut v = self.lanes(&lanes);
        v.ty = v.ty.with_elem(elem);
        v
    }
}

impl Asm for Ptx {
    /// Empty: GPU threads read their indices from special registers.
    type Launch = ();

    fn cpu(&mut self) -> Option<&mut Mlir> {
        None
    }

    fn int(&mut self, value: i64, ty: Ty) -> Val {
        let value = if ty.elem == Elem::I1 { (value != 0) as i64 } else { value };
        let v = self.constant_of(value.to_string(), ty);
        self.registers.integers.insert(v.id, value);
        v
    }

    fn float(&mut self, value: f64, ty: Ty) -> Val {
        let literal = match ty.elem {
            Elem::F64 => format!("0d{:016X}", value.to_bits()),
            _ => format!("0f{:08X}", (value as f32).to_bits()),
        };
        self.constant_of(literal, ty)
    }

    fn iota(&mut self, lanes: u32) -> Val {
        let numbers: Vec<(Val, u32)> = (0..lanes).map(|i| (self.i64(i as i64), 0)).collect();
        self.lanes(&numbers)
    }

    fn bin(&mut self, op: Bin, a: Val, b: Val) -> Val {
        debug_assert_eq!(a.ty, b.ty, "{op:?}");
        let (elem, ty) = (a.ty.elem, a.ty);
        let (name, kind) = op.ptx();
        debug_assert_eq!(elem.is_float(), kind == 'f', "{op:?}");
        // PTX expects the operand that provides the sign first.
        let (mut a, mut b) = if op == Bin::CopySign { (b, a) } else { (a, b) };
        if elem == Elem::I1 {
            return self.each(ty, &[a, b], |d, o| format!("{name}.pred {d}, {}, {};", o[0], o[1]));
        }
        let divisor = self.known_int(b).filter(|n| elem == Elem::I32 && (1..1 << 32).contains(n));
        if let (Some(n), Bin::DivUI) = (divisor, op) {
            return self.divided(a, n as u32);
        }
        // Operations that depend on the upper bits get extended operands; the other operations need no extension.
        let looks = matches!(name, "div" | "rem" | "max" | "min" | "shr");
        if looks {
            (a, b) = (self.extended(a, kind == 's'), self.extended(b, kind == 's'));
        }
        if name == "shl" {
            b = self.extended(b, false);
        }
        if matches!(name, "shl" | "shr") && elem.bits() == 64 && self.known_int(b).is_none() {
            b = self.cast(Cast::TruncI, b, Elem::I32);
        }
        // Only the last operand may be an immediate; the first is always a register.
        let t = typed(kind, elem);
        let v = self.fresh(ty);
        for lane in 0..ty.lanes {
            let line = format!("{name}.{t} {}, {}, {};", self.name(v, lane), self.name(a, lane), self.operand(b, lane));
            self.line(&line);
        }
        v
    }

    fn floordiv(&mut self, a: Val, b: Val) -> Val {
        division::floordiv(self, a, b)
    }

    fn un(&mut self, op: Un, a: Val) -> Val {
        let t = typed('f', a.ty.elem);
        let name = match op {
            Un::AbsF => format!("abs.{t}"),
            Un::NegF => format!("neg.{t}"),
            Un::Sqrt => format!("sqrt.rn.{t}"),
            Un::Ceil => format!("cvt.rpi.{t}.{t}"),
            Un::Floor => format!("cvt.rmi.{t}.{t}"),
            Un::RoundEven => format!("cvt.rni.{t}.{t}"),
        };
        self.each(a.ty, &[a], |d, o| format!("{name} {d}, {};", o[0]))
    }

    fn fma(&mut self, a: Val, b: Val, c: Val) -> Val {
        debug_assert!(a.ty == b.ty && b.ty == c.ty);
        let t = typed('f', a.ty.elem);
        self.each(a.ty, &[a, b, c], |d, o| format!("fma.rn.{t} {d}, {}, {}, {};", o[0], o[1], o[2]))
    }

    fn cmpf(&mut self, op: CmpF, a: Val, b: Val) -> Val {
        debug_assert_eq!(a.ty, b.ty);
        let (op, t) = (op.ptx(), typed('f', a.ty.elem));
        self.each(a.ty.with_elem(Elem::I1), &[a, b], |d, o| format!("setp.{op}.{t} {d}, {}, {};", o[0], o[1]))
    }

    fn cmpi(&mut self, op: CmpI, a: Val, b: Val) -> Val {
        debug_assert_eq!(a.ty, b.ty);
        let (name, kind) = op.ptx();
        let ty = a.ty.with_elem(Elem::I1);
        if a.ty.elem == Elem::I1 {
            let apart = self.each(ty, &[a, b], |d, o| format!("xor.pred {d}, {}, {};", o[0], o[1]));
            if op == CmpI::Ne {
                return apart;
            }
            return self.each(ty, &[apart], |d, o| format!("not.pred {d}, {};", o[0]));
        }
        let (a, b) = (self.extended(a, kind == 's'), self.extended(b, kind == 's'));
        let t = typed(if matches!(op, CmpI::Eq | CmpI::Ne) { 's' } else { kind }, a.ty.elem);
        let v = self.fresh(ty);
        for lane in 0..ty.lanes {
            let line =
                format!("setp.{name}.{t} {}, {}, {};", self.name(v, lane), self.name(a, lane), self.operand(b, lane));
            self.line(&line);
        }
        v
    }

    fn select(&mut self, c: Val, a: Val, b: Val) -> Val {
        debug_assert!(a.ty == b.ty && c.ty == a.ty.with_elem(Elem::I1));
        if a.ty.elem == Elem::I1 {
            let first = self.bin(Bin::AndI, c, a);
            let not = self.each(c.ty, &[c], |d, o| format!("not.pred {d}, {};", o[0]));
            let second = self.bin(Bin::AndI, not, b);
            return self.bin(Bin::OrI, first, second);
        }
        let t = match a.ty.elem {
            Elem::F16 => "b16".to_string(),
            elem => typed(if elem.is_float() { 'f' } else { 'b' }, elem),
        };
        self.each(a.ty, &[a, b, c], |d, o| format!("selp.{t} {d}, {}, {}, {};", o[0], o[1], o[2]))
    }

    fn cast(&mut self, op: Cast, a: Val, elem: Elem) -> Val {
        if a.ty.elem == elem {
            return a;
        }
        let (from, ty) = (a.ty.elem, a.ty.with_elem(elem));
        if from == Elem::I1 {
            let (one, zero) = match elem {
                Elem::F32 => ("0f3F800000", "0f00000000"),
                Elem::F64 => ("0d3FF0000000000000", "0d0000000000000000"),
                _ => ("1", "0"),
            };
            let t = typed(if elem.is_float() { 'f' } else { 'b' }, elem);
            return self.each(ty, &[a], |d, o| format!("selp.{t} {d}, {one}, {zero}, {};", o[0]));
        }
        let signed = matches!(op, Cast::ExtSI | Cast::SIToFP);
        let (f, t) = (typed('f', from), typed('f', elem));
        let name = match op {
            Cast::ExtF if from == Elem::F16 => format!("cvt.{t}.f16"),
            Cast::ExtF => format!("cvt.{t}.{f}"),
            Cast::TruncF if elem == Elem::F16 => format!("cvt.rn.f16.{f}"),
            Cast::TruncF => format!("cvt.rn.{t}.{f}"),
            // f16 is held in a 16-bit register, an integer in a 32-bit one.
            Cast::Bitcast if from == Elem::F16 => "cvt.u32.u16".to_string(),
            Cast::Bitcast if elem == Elem::F16 => "cvt.u16.u32".to_string(),
            Cast::Bitcast => format!("mov.b{}", elem.bits().max(32)),
            Cast::TruncI if from == Elem::I64 => "cvt.u32.u64".to_string(),
            // The upper bits of a narrow integer are undefined.
            Cast::TruncI => "mov.b32".to_string(),
            Cast::ExtSI | Cast::ExtUI => {
                let wide = self.extended(a, signed);
                let s = if signed { 's' } else { 'u' };
                if elem != Elem::I64 {
                    // Reuses the registers of the extended value for a value of the narrower type.
                    return self.retyped(wide, elem);
                }
                return self.each(ty, &[wide], |d, o| format!("cvt.{s}64.{s}32 {d}, {};", o[0]));
            }
            Cast::SIToFP | Cast::UIToFP => {
                let wide = self.extended(a, signed);
                let from = typed(if signed { 's' } else { 'u' }, wide.ty.elem);
                return self.each(ty, &[wide], |d, o| format!("cvt.rn.{t}.{from} {d}, {};", o[0]));
            }
        };
        let v = self.fresh(ty);
        for lane in 0..ty.lanes {
            let line = format!("{name} {}, {};", self.name(v, lane), self.name(a, lane));
            self.line(&line);
        }
        v
    }

    fn float_to_int(&mut self, a: Val, elem: Elem, unsigned: bool) -> Val {
        let (f, kind) = (typed('f', a.ty.elem), if unsigned { 'u' } else { 's' });
        let wide = if elem == Elem::I64 { Elem::I64 } else { Elem::I32 };
        let t = typed(kind, wide);
        // The instruction saturates; it converts NaN to 0 only from f32 to 32 bits.
        let mut v = self.each(a.ty.with_elem(wide), &[a], |d, o| format!("cvt.rzi.{t}.{f} {d}, {};", o[0]));
        if wide == Elem::I64 || a.ty.elem == Elem::F64 {
            let (nan, zero) = (self.cmpf(CmpF::Uno, a, a), self.int(0, v.ty));
            v = self.select(nan, zero, v);
        }
        if elem.bits() < 32 {
            let bits = elem.bits();
            let (lo, hi) = if unsigned { (0, (1 << bits) - 1) } else { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) };
            let (lo, hi) = (self.int(lo, v.ty), self.int(hi, v.ty));
            let (max, min) = if unsigned { (Bin::MaxUI, Bin::MinUI) } else { (Bin::MaxSI, Bin::MinSI) };
            v = self.bin(min, v, hi);
            v = self.bin(max, v, lo);
        }
        self.retyped(v, elem)
    }

    fn any(&mut self, c: Val) -> Val {
        let mut all = self.extract(c, 0);
        for lane in 1..c.ty.lanes {
            let next = self.extract(c, lane);
            all = self.bin(Bin::OrI, all, next);
        }
        all
    }

    fn widen(&mut self, a: Val, lanes: u32) -> Val {
        if a.ty.lanes == lanes {
            return a;
        }
        debug_assert_eq!(a.ty.lanes, 1);
        self.lanes(&vec![(a, 0); lanes as usize])
    }

    fn extract(&mut self, a: Val, lane: u32) -> Val {
        if a.ty.lanes == 1 { a } else { self.lanes(&[(a, lane)]) }
    }

    fn shuffle(&mut self, a: Val, b: Val, which: &[u32]) -> Val {
        debug_assert_eq!(a.ty, b.ty);
        let n = a.ty.lanes;
        let lanes: Vec<_> = which.iter().map(|&w| if w < n { (a, w) } else { (b, w - n) }).collect();
        self.lanes(&lanes)
    }

    fn element(&mut self, base: Val, index: Val, elem: Elem) -> Val {
        memory::element(self, base, index, elem)
    }

    fn load(&mut self, address: Val, ty: Ty, align: u32) -> Val {
        memory::load(self, address, ty, align, None)
    }

    fn store(&mut self, value: Val, address: Val, align: u32) {
        memory::store(self, value, address, align, None);
    }

    fn masked_load(&mut self, address: Val, mask: Val, ty: Ty) -> Val {
        memory::load(self, address, ty, ty.elem.bits() / 8, Some(mask))
    }

    fn masked_store(&mut self, value: Val, address: Val, mask: Val) {
        memory::store(self, value, address, value.ty.elem.bits() / 8, Some(mask));
    }

    fn raise(&mut self, status: Val) {
        // Several threads may set the status at once, so the update is atomic.
        let at = self.name(status, 0);
        self.line(&format!("red.relaxed.gpu.global.or.b64 [{at}], 1;"));
    }

    fn guarded_load(&mut self, guard: Val, base: Val, index: Val, ty: Ty, align: u32) -> Val {
        let address = self.element(base, index, ty.elem);
        memory::load(self, address, ty, align, Some(guard))
    }

    fn for_loop(
        &mut self,
        range: (Val, Val, Val),
        inits: &[Val],
        body: impl FnOnce(&mut Ptx, Val, &[Val]) -> Vec<Val>,
    ) -> Vec<Val> {
        control::for_loop(self, range, inits, body)
    }

    fn if_else(
        &mut self,
        condition: Val,
        tys: &[Ty],
        then: impl FnOnce(&mut Ptx) -> Vec<Val>,
        other: impl FnOnce(&mut Ptx) -> Vec<Val>,
    ) -> Vec<Val> {
        control::if_else(self, condition, tys, then, other)
    }

    fn if_then(&mut self, condition: Val, then: impl FnOnce(&mut Ptx)) {
        control::if_then(self, condition, then);
    }

    fn do_while(&mut self, inits: &[Val], body: impl FnOnce(&mut Ptx, &[Val]) -> (Val, Vec<Val>)) -> Vec<Val> {
        control::do_while(self, inits, body)
    }
}
