//! cvt: conversions between integers and floats of every width, with rounding, saturation and packing

use super::mods::Mods;
use super::operands::{lanes1, lanes2};
use super::program::{Bank, Op, Reg};
use super::statements::Decoder;
use crate::Error;
use crate::text::ast::Operand;
use crate::text::types::Ty;
use crate::units::convert::{IntRounding, float_to_int, int_to_f32, int_to_f64, int_to_format, round_f64};
use crate::units::float::{canonical, f64_to_f32, ftz, sat, sat_f64};
use crate::units::format::{Format, Rounding, f32_to_tf32};
use crate::units::int::sign_extend;
use crate::units::packed::{Half, convert_pair};

type Done = Result<(), Error>;

struct Modifiers {
    int: Option<IntRounding>,
    float: Option<Rounding>,
    ftz: bool,
    sat: bool,
    satfinite: bool,
    relu: bool,
}

pub fn cvt(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let m = Modifiers {
        int: mods.one_of(&["rni", "rzi", "rmi", "rpi"]).and_then(IntRounding::parse),
        float: mods.one_of(&["rn", "rz", "rm", "rp", "rna"]).and_then(Rounding::parse),
        ftz: mods.take("ftz"),
        sat: mods.take("sat"),
        satfinite: mods.take("satfinite"),
        relu: mods.take("relu"),
    };
    if mods.take("pack") {
        return pack(d, mods, ops);
    }
    let (to, from) = (mods.ty()?, mods.ty()?);
    match (to, from) {
        (Ty::F16x2 | Ty::Bf16x2, Ty::F32) => pair(d, &m, ops, to),
        (Ty::E4m3x2 | Ty::E5m2x2, _) | (_, Ty::E4m3x2 | Ty::E5m2x2) => bytes(d, &m, mods, ops, to, from),
        (Ty::Tf32, Ty::F32) => {
            let rounding = m.float.unwrap_or(Rounding::Rna);
            let relu = m.relu;
            let f = move |a: u32| {
                let value = f32::from_bits(a);
                match rounding {
                    Rounding::Rna if !relu => f32_to_tf32(value),
                    _ if relu && value < 0.0 => 0,
                    _ => Format::Tf32.narrow(value.into(), rounding, false),
                }
            };
            d.map1(ops, [Ty::B32, Ty::F32], f)
        }
        _ => scalar(d, &m, mods, ops, to, from),
    }
}

fn is_float(ty: Ty) -> bool {
    matches!(ty, Ty::F16 | Ty::Bf16 | Ty::F32 | Ty::F64)
}

fn scalar(d: &mut Decoder, m: &Modifiers, mods: &Mods, ops: &[Operand], to: Ty, from: Ty) -> Done {
    let known = |ty: Ty| is_float(ty) || ty.is_int();
    if !known(to) || !known(from) {
        return Err(d.unsupported(mods));
    }
    d.count::<2>(ops)?;
    let source = d.any_source(&ops[1], from)?;
    let target = d.any_target(&ops[0], to)?;
    match (is_float(from), is_float(to)) {
        (false, false) => int_to_int(d, target, source, to, from, m.sat),
        (false, true) => int_to_float(d, target, source, to, from, m),
        (true, false) => float_to_integer(d, target, source, to, from, m),
        (true, true) => float_to_float(d, target, source, to, from, m),
    }
    Ok(())
}

/// Emits an instruction that applies `f` to the raw bits of a source register; source and destination may differ in
/// width.
fn emit(d: &mut Decoder, to: Reg, from: Reg, f: impl Fn(u64) -> u64 + Send + Sync + 'static) {
    let op = match (from.bank, to.bank) {
        (Bank::Double, Bank::Double) => lanes1::<u64, u64>(to.index, from.index, f),
        (Bank::Double, _) => lanes1::<u64, u32>(to.index, from.index, move |a| f(a) as u32),
        (_, Bank::Double) => lanes1::<u32, u64>(to.index, from.index, move |a| f(a.into())),
        (..) => lanes1::<u32, u32>(to.index, from.index, move |a| f(a.into()) as u32),
    };
    d.emit(Op::Lanes(op));
}

/// Returns the value of the integer of type `ty` in the low bits of a register.
#[inline]
fn integer(bits: u64, ty: Ty) -> i128 {
    let width = ty.bits();
    if ty.is_signed() { i128::from(sign_extend(bits, width)) } else { i128::from(bits & (u64::MAX >> (64 - width))) }
}

/// Sign- or zero-extends an integer of type `to` to `register` bits, the width of the destination register.
#[inline]
fn fill(value: u64, to: Ty, register: u32) -> u64 {
    let wide =
        if to.is_signed() { sign_extend(value, to.bits()) as u64 } else { value & (u64::MAX >> (64 - to.bits())) };
    wide & (u64::MAX >> (64 - register.max(8)))
}

fn int_to_int(d: &mut Decoder, target: Reg, source: Reg, to: Ty, from: Ty, sat: bool) {
    let bits = target.bits;
    if sat {
        let (low, high) = match to.is_signed() {
            true => (-(1i128 << (to.bits() - 1)), (1i128 << (to.bits() - 1)) - 1),
            false => (0, (1i128 << to.bits()) - 1),
        };
        return emit(d, target, source, move |a| fill(integer(a, from).clamp(low, high) as u64, to, bits));
    }
    match (from, to) {
        (Ty::U32, Ty::U64 | Ty::S64) if source.bits == 32 => emit(d, target, source, |a| a),
        (Ty::S32, Ty::U64 | Ty::S64) if source.bits == 32 => emit(d, target, source, |a| a as i32 as u64),
        (Ty::U64 | Ty::S64, Ty::U32 | Ty::S32) if bits == 32 => emit(d, target, source, |a| a & 0xffff_ffff),
        _ => emit(d, target, source, move |a| fill(integer(a, from) as u64, to, bits)),
    }
}

fn int_to_float(d: &mut Decoder, target: Reg, source: Reg, to: Ty, from: Ty, m: &Modifiers) {
    let rounding = m.float.unwrap_or(Rounding::Rn);
    match (to, from) {
        (Ty::F32, Ty::S32) if rounding == Rounding::Rn && source.bits == 32 => {
            emit(d, target, source, |a| u64::from((a as i32 as f32).to_bits()));
        }
        (Ty::F32, Ty::U32) if rounding == Rounding::Rn && source.bits == 32 => {
            emit(d, target, source, |a| u64::from((a as u32 as f32).to_bits()));
        }
        (Ty::F32, _) => emit(d, target, source, move |a| int_to_f32(integer(a, from), rounding).to_bits().into()),
        (Ty::F64, _) => emit(d, target, source, move |a| int_to_f64(integer(a, from), rounding).to_bits()),
        (Ty::F16, _) => emit(d, target, source, move |a| int_to_format(integer(a, from), Format::F16, rounding).into()),
        _ => emit(d, target, source, move |a| int_to_format(integer(a, from), Format::Bf16, rounding).into()),
    }
}

/// Returns a float of type `from` as f64, exactly, except that `flush` turns f32 subnormals into zeros.
#[inline]
fn value(bits: u64, from: Ty, flush: bool) -> f64 {
    match from {
        Ty::F64 => f64::from_bits(bits),
        Ty::F16 => f64::from(Half::F16.widen(bits as u16)),
        Ty::Bf16 => f64::from(Half::Bf16.widen(bits as u16)),
        _ if flush => f64::from(ftz(f32::from_bits(bits as u32))),
        _ => f64::from(f32::from_bits(bits as u32)),
    }
}

fn float_to_integer(d: &mut Decoder, target: Reg, source: Reg, to: Ty, from: Ty, m: &Modifiers) {
    let (rounding, flush, bits) = (m.int.unwrap_or(IntRounding::Rzi), m.ftz, target.bits);
    emit(d, target, source, move |a| {
        let wide = float_to_int(value(a, from, flush), rounding, to.bits(), to.is_signed(), from == Ty::F64);
        fill(wide, to, bits)
    });
}

fn float_to_float(d: &mut Decoder, target: Reg, source: Reg, to: Ty, from: Ty, m: &Modifiers) {
    let (float, int, flush, saturate, relu) = (m.float.unwrap_or(Rounding::Rn), m.int, m.ftz, m.sat, m.relu);
    if (to, from, int, saturate) == (Ty::F32, Ty::Bf16, None, false) {
        return emit(d, target, source, |a| u64::from(canonical(f32::from_bits((a as u32) << 16)).to_bits()));
    }
    let satfinite = m.satfinite;
    emit(d, target, source, move |a| {
        let mut x = value(a, from, flush);
        if let Some(rounding) = int {
            x = round_f64(x, rounding);
        }
        if relu && x < 0.0 {
            x = 0.0;
        }
        match to {
            Ty::F64 => (if saturate { sat_f64(x) } else { x }).to_bits(),
            Ty::F16 | Ty::Bf16 => {
                let x = if saturate { sat_f64(x) } else { x };
                let format = if to == Ty::F16 { Format::F16 } else { Format::Bf16 };
                format.narrow(x, float, satfinite).into()
            }
            _ => {
                let rounded = canonical(f64_to_f32(x, float));
                let rounded = if flush { ftz(rounded) } else { rounded };
                (if saturate { sat(rounded) } else { rounded }).to_bits().into()
            }
        }
    });
}

/// `cvt.rn.bf16x2.f32 d, a, b`: `a` is converted to the upper half, `b` to the lower one.
fn pair(d: &mut Decoder, m: &Modifiers, ops: &[Operand], to: Ty) -> Done {
    let half = if to == Ty::F16x2 { Half::F16 } else { Half::Bf16 };
    let (rounding, relu, satfinite) = (m.float.unwrap_or(Rounding::Rn), m.relu, m.satfinite);
    d.map2(ops, [to, Ty::F32, Ty::F32], move |a: u32, b: u32| {
        convert_pair(half, f32::from_bits(a), f32::from_bits(b), rounding, relu, satfinite)
    })
}

/// Decodes conversions to and from pairs of 8-bit floats.
fn bytes(d: &mut Decoder, m: &Modifiers, mods: &Mods, ops: &[Operand], to: Ty, from: Ty) -> Done {
    let format = |ty| if ty == Ty::E4m3x2 { Format::E4m3 } else { Format::E5m2 };
    let relu = m.relu;
    let positive = move |x: f32| if relu && x < 0.0 { 0.0 } else { x };
    match (to, from) {
        (Ty::E4m3x2 | Ty::E5m2x2, Ty::F32) => {
            let format = format(to);
            d.count::<3>(ops)?;
            let (a, b) = (d.source::<u32>(&ops[1], from)?, d.source::<u32>(&ops[2], from)?);
            let target = d.target::<u32>(&ops[0], to)?;
            let one = move |x: u32| format.narrow(positive(f32::from_bits(x)).into(), Rounding::Rn, true);
            d.emit(Op::Lanes(lanes2(target, a, b, move |a: u32, b: u32| one(a) << 8 | one(b))));
            Ok(())
        }
        (Ty::E4m3x2 | Ty::E5m2x2, Ty::F16x2) => {
            let format = format(to);
            let one = move |x: u32| format.narrow(positive(Half::F16.widen(x as u16)).into(), Rounding::Rn, true);
            d.map1(ops, [to, from], move |a: u32| one(a >> 16) << 8 | one(a & 0xffff))
        }
        (Ty::F16x2, Ty::E4m3x2 | Ty::E5m2x2) => {
            let format = format(from);
            let one = move |x: u32| Format::F16.narrow(positive(format.widen(x & 0xff)).into(), Rounding::Rn, false);
            d.map1(ops, [to, from], move |a: u32| one(a >> 8) << 16 | one(a))
        }
        _ => Err(d.unsupported(mods)),
    }
}

/// `cvt.pack.sat.s8.s32.b32 d, a, b, c`: shifts `c` left by 16 bits and puts `a` and `b`, saturated to 8 bits each,
/// into the low half, `a` above `b`.
fn pack(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let (to, from) = (mods.ty()?, mods.ty()?);
    let merged = mods.take("b32");
    if from != Ty::S32 || !matches!(to, Ty::U8 | Ty::S8 | Ty::U16 | Ty::S16) || merged != (to.bits() == 8) {
        return Err(d.unsupported(mods));
    }
    let width = to.bits();
    let (low, high) = match to.is_signed() {
        true => (-(1i64 << (width - 1)), (1i64 << (width - 1)) - 1),
        false => (0, (1i64 << width) - 1),
    };
    let one = move |x: u32| i64::from(x as i32).clamp(low, high) as u32 & ((1 << width) - 1);
    if merged {
        d.map3(ops, [Ty::B32; 4], move |a: u32, b: u32, c: u32| c << 16 | one(a) << 8 | one(b))
    } else {
        d.map2(ops, [Ty::B32; 3], move |a: u32, b: u32| one(a) << 16 | one(b))
    }
}
