//! Decodes integer add, sub, mul, mad, mul24, mad24, div, rem, min, max, abs, neg, sad, dp4a and dp2a, and the forms of
//! add, sub and mad that set or use the carry flag; for float types, calls `float` or `half`

use super::mods::Mods;
use super::program::{Op, Regs};
use super::statements::Decoder;
use super::{float, half};
use crate::Error;
use crate::report::Class;
use crate::text::ast::Operand;
use crate::text::types::Ty;
use crate::units::float::Extremum;
use crate::units::int as unit;

type Done = Result<(), Error>;

/// Sign- or zero-extends 16 bits to 32.
#[inline]
fn widen(signed: bool, value: u32) -> u32 {
    if signed { value as i16 as u32 } else { value & 0xffff }
}

fn is_float(d: &mut Decoder, ty: Ty) -> bool {
    let float = matches!(ty, Ty::F32 | Ty::F64 | Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2);
    if float {
        d.class = Class::Float;
    }
    float
}

/// Emits `word` for types of 16 and 32 bits, or `double` for types of 64 bits. For types of 16 bits, operands are
/// extended to 32 bits, and the result is truncated to 16.
fn by_width(
    d: &mut Decoder,
    ops: &[Operand],
    ty: Ty,
    word: impl Fn(u32, u32) -> u32 + Send + Sync + 'static,
    double: impl Fn(u64, u64) -> u64 + Send + Sync + 'static,
) -> Done {
    let signed = ty.is_signed();
    match ty.bits() {
        16 => d.map2(ops, [ty; 3], move |a: u32, b: u32| word(widen(signed, a), widen(signed, b)) & 0xffff),
        32 => d.map2(ops, [ty; 3], word),
        64 => d.map2(ops, [ty; 3], double),
        _ => d.error(format!("no form for .{}", ty.name())),
    }
}

pub fn add(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    add_or_sub(d, mods, ops, false)
}

pub fn sub(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    add_or_sub(d, mods, ops, true)
}

fn add_or_sub(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], sub: bool) -> Done {
    if mods.take("cc") {
        return carry(d, mods, ops, sub, false, true);
    }
    let ty = mods.ty()?;
    if is_float(d, ty) {
        return float::add(d, mods, ops, ty, sub);
    }
    if matches!(ty, Ty::S32) && mods.take("sat") {
        let f = if sub { unit::sub_sat_s32 } else { unit::add_sat_s32 };
        return d.map2(ops, [ty; 3], f);
    }
    if !ty.is_int() {
        return d.error("the type is .u or .s for integers");
    }
    if sub {
        by_width(d, ops, ty, u32::wrapping_sub, u64::wrapping_sub)
    } else {
        by_width(d, ops, ty, u32::wrapping_add, u64::wrapping_add)
    }
}

pub fn addc(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let out = mods.take("cc");
    carry(d, mods, ops, false, true, out)
}

pub fn subc(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let out = mods.take("cc");
    carry(d, mods, ops, true, true, out)
}

/// Number of the predicate register that holds the carry flag; `module` reserves it.
pub const CARRY: u32 = 0;

fn carry(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], sub: bool, uses: bool, sets: bool) -> Done {
    let ty = mods.ty()?;
    d.count::<3>(ops)?;
    match ty.bits() {
        32 => {
            let f = if sub { unit::sub_borrow_u32 } else { unit::add_carry_u32 };
            let (a, b) = (d.source::<u32>(&ops[1], ty)?, d.source::<u32>(&ops[2], ty)?);
            let to = d.target::<u32>(&ops[0], ty)?;
            d.emit(Op::Lanes(carrying(to, uses, sets, move |regs, lane, c| {
                f(regs.w[a as usize][lane], regs.w[b as usize][lane], c)
            })));
            Ok(())
        }
        64 => {
            let f = if sub { unit::sub_borrow_u64 } else { unit::add_carry_u64 };
            let (a, b) = (d.source::<u64>(&ops[1], ty)?, d.source::<u64>(&ops[2], ty)?);
            let to = d.target::<u64>(&ops[0], ty)?;
            d.emit(Op::Lanes(carrying(to, uses, sets, move |regs, lane, c| {
                f(regs.d[a as usize][lane], regs.d[b as usize][lane], c)
            })));
            Ok(())
        }
        _ => Err(d.unsupported(mods)),
    }
}

fn carrying<T: super::program::Lane>(
    to: u32,
    uses: bool,
    sets: bool,
    f: impl Fn(&Regs, usize, bool) -> (T, bool) + Send + Sync + 'static,
) -> super::program::LaneOp {
    Box::new(move |regs: &mut Regs, mask| {
        let carry = if uses { regs.p[CARRY as usize] } else { 0 };
        let (mut out, mut flags) = ([T::default(); 32], 0);
        for (lane, value) in out.iter_mut().enumerate() {
            let (sum, flag) = f(regs, lane, carry >> lane & 1 == 1);
            *value = sum;
            flags |= u32::from(flag) << lane;
        }
        regs.set(to, mask, &out);
        if sets {
            regs.set_pred(CARRY, mask, flags);
        }
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Lo,
    Hi,
    Wide,
}

fn part(mods: &mut Mods) -> Result<Part, Error> {
    Ok(match mods.required(&["lo", "hi", "wide"])? {
        "lo" => Part::Lo,
        "hi" => Part::Hi,
        _ => Part::Wide,
    })
}

pub fn mul(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    if is_float(d, ty) {
        return float::mul(d, mods, ops, ty);
    }
    let signed = ty.is_signed();
    match (part(mods)?, ty.bits()) {
        (Part::Lo, _) => by_width(d, ops, ty, u32::wrapping_mul, u64::wrapping_mul),
        (Part::Hi, 16) => {
            d.map2(ops, [ty; 3], move |a: u32, b: u32| (widen(signed, a).wrapping_mul(widen(signed, b)) >> 16) & 0xffff)
        }
        (Part::Hi, 32) => d.map2(ops, [ty; 3], if signed { unit::mul_hi_s32 } else { unit::mul_hi_u32 }),
        (Part::Hi, 64) => d.map2(ops, [ty; 3], if signed { unit::mul_hi_s64 } else { unit::mul_hi_u64 }),
        (Part::Wide, 16) => {
            d.map2(ops, [Ty::B32, ty, ty], move |a: u32, b: u32| widen(signed, a).wrapping_mul(widen(signed, b)))
        }
        (Part::Wide, 32) if signed => d.map2(ops, [Ty::B64, ty, ty], |a: u32, b: u32| wide_s(a, b)),
        (Part::Wide, 32) => d.map2(ops, [Ty::B64, ty, ty], |a: u32, b: u32| wide_u(a, b)),
        _ => Err(d.unsupported(mods)),
    }
}

#[inline]
fn wide_s(a: u32, b: u32) -> u64 {
    (i64::from(a as i32) * i64::from(b as i32)) as u64
}

#[inline]
fn wide_u(a: u32, b: u32) -> u64 {
    u64::from(a) * u64::from(b)
}

pub fn mad(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let cc = mods.take("cc");
    let ty = mods.ty()?;
    if is_float(d, ty) {
        return float::fma_of(d, mods, ops, ty);
    }
    let (signed, part) = (ty.is_signed(), part(mods)?);
    if cc {
        return mad_carry(d, mods, ops, ty, part, false, true);
    }
    match (part, ty.bits()) {
        (Part::Lo, 16) => d.map3(ops, [ty; 4], |a: u32, b: u32, c: u32| a.wrapping_mul(b).wrapping_add(c) & 0xffff),
        (Part::Lo, 32) => d.map3(ops, [ty; 4], |a: u32, b: u32, c: u32| a.wrapping_mul(b).wrapping_add(c)),
        (Part::Lo, 64) => d.map3(ops, [ty; 4], |a: u64, b: u64, c: u64| a.wrapping_mul(b).wrapping_add(c)),
        (Part::Hi, 16) => d.map3(ops, [ty; 4], move |a: u32, b: u32, c: u32| {
            (widen(signed, a).wrapping_mul(widen(signed, b)) >> 16).wrapping_add(c) & 0xffff
        }),
        (Part::Hi, 32) if signed && mods.take("sat") => d.map3(ops, [ty; 4], unit::mad_hi_sat_s32),
        (Part::Hi, 32) => {
            let f = if signed { unit::mul_hi_s32 } else { unit::mul_hi_u32 };
            d.map3(ops, [ty; 4], move |a: u32, b: u32, c: u32| f(a, b).wrapping_add(c))
        }
        (Part::Hi, 64) => {
            let f = if signed { unit::mul_hi_s64 } else { unit::mul_hi_u64 };
            d.map3(ops, [ty; 4], move |a: u64, b: u64, c: u64| f(a, b).wrapping_add(c))
        }
        (Part::Wide, 16) => d.map3(ops, [Ty::B32, ty, ty, Ty::B32], move |a: u32, b: u32, c: u32| {
            widen(signed, a).wrapping_mul(widen(signed, b)).wrapping_add(c)
        }),
        (Part::Wide, 32) if signed => {
            d.map3(ops, [Ty::B64, ty, ty, Ty::B64], |a: u32, b: u32, c: u64| wide_s(a, b).wrapping_add(c))
        }
        (Part::Wide, 32) => {
            d.map3(ops, [Ty::B64, ty, ty, Ty::B64], |a: u32, b: u32, c: u64| wide_u(a, b).wrapping_add(c))
        }
        _ => Err(d.unsupported(mods)),
    }
}

pub fn madc(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let out = mods.take("cc");
    let (ty, part) = (mods.ty()?, part(mods)?);
    mad_carry(d, mods, ops, ty, part, true, out)
}

fn mad_carry(d: &mut Decoder, mods: &Mods, ops: &[Operand], ty: Ty, part: Part, uses: bool, sets: bool) -> Done {
    d.count::<4>(ops)?;
    let signed = ty.is_signed();
    match (part, ty.bits()) {
        (Part::Lo | Part::Hi, 32) => {
            let f: fn(u32, u32) -> u32 = match (part, signed) {
                (Part::Hi, true) => unit::mul_hi_s32,
                (Part::Hi, false) => unit::mul_hi_u32,
                (Part::Lo | Part::Wide, _) => u32::wrapping_mul,
            };
            let [a, b, c] =
                [d.source::<u32>(&ops[1], ty)?, d.source::<u32>(&ops[2], ty)?, d.source::<u32>(&ops[3], ty)?];
            let to = d.target::<u32>(&ops[0], ty)?;
            d.emit(Op::Lanes(carrying(to, uses, sets, move |regs, lane, carry| {
                let product = f(regs.w[a as usize][lane], regs.w[b as usize][lane]);
                unit::add_carry_u32(product, regs.w[c as usize][lane], carry)
            })));
            Ok(())
        }
        (Part::Lo | Part::Hi, 64) => {
            let f: fn(u64, u64) -> u64 = match (part, signed) {
                (Part::Hi, true) => unit::mul_hi_s64,
                (Part::Hi, false) => unit::mul_hi_u64,
                (Part::Lo | Part::Wide, _) => u64::wrapping_mul,
            };
            let [a, b, c] =
                [d.source::<u64>(&ops[1], ty)?, d.source::<u64>(&ops[2], ty)?, d.source::<u64>(&ops[3], ty)?];
            let to = d.target::<u64>(&ops[0], ty)?;
            d.emit(Op::Lanes(carrying(to, uses, sets, move |regs, lane, carry| {
                let product = f(regs.d[a as usize][lane], regs.d[b as usize][lane]);
                unit::add_carry_u64(product, regs.d[c as usize][lane], carry)
            })));
            Ok(())
        }
        _ => Err(d.unsupported(mods)),
    }
}

pub fn mul24(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let (ty, hi) = (mods.ty()?, mods.required(&["lo", "hi"])? == "hi");
    let f = if ty == Ty::S32 { unit::mul24_s32 } else { unit::mul24_u32 };
    d.map2(ops, [ty; 3], move |a: u32, b: u32| f(a, b, hi))
}

pub fn mad24(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let (ty, hi) = (mods.ty()?, mods.required(&["lo", "hi"])? == "hi");
    let f = if ty == Ty::S32 { unit::mul24_s32 } else { unit::mul24_u32 };
    d.map3(ops, [ty; 4], move |a: u32, b: u32, c: u32| f(a, b, hi).wrapping_add(c))
}

pub fn div(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    if is_float(d, ty) {
        return float::div(d, mods, ops, ty);
    }
    match ty.is_signed() {
        true => by_width(d, ops, ty, unit::div_s32, unit::div_s64),
        false => by_width(d, ops, ty, unit::div_u32, unit::div_u64),
    }
}

pub fn rem(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    match ty.is_signed() {
        true => by_width(d, ops, ty, unit::rem_s32, unit::rem_s64),
        false => by_width(d, ops, ty, unit::rem_u32, unit::rem_u64),
    }
}

pub fn min(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    extremum(d, mods, ops, Extremum::Min)
}

pub fn max(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    extremum(d, mods, ops, Extremum::Max)
}

fn extremum(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], which: Extremum) -> Done {
    let ty = mods.ty()?;
    if is_float(d, ty) {
        return float::extremum(d, mods, ops, ty, which);
    }
    match (which, ty.is_signed()) {
        (Extremum::Min, true) => {
            by_width(d, ops, ty, |a, b| (a as i32).min(b as i32) as u32, |a, b| (a as i64).min(b as i64) as u64)
        }
        (Extremum::Max, true) => {
            by_width(d, ops, ty, |a, b| (a as i32).max(b as i32) as u32, |a, b| (a as i64).max(b as i64) as u64)
        }
        (Extremum::Min, false) => by_width(d, ops, ty, Ord::min, Ord::min),
        (Extremum::Max, false) => by_width(d, ops, ty, Ord::max, Ord::max),
    }
}

pub fn abs(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    match ty {
        Ty::S16 => d.map1(ops, [ty; 2], |a: u32| u32::from((a as i16).wrapping_abs() as u16)),
        Ty::S32 => d.map1(ops, [ty; 2], |a: u32| (a as i32).wrapping_abs() as u32),
        Ty::S64 => d.map1(ops, [ty; 2], |a: u64| (a as i64).wrapping_abs() as u64),
        _ if !is_float(d, ty) => Err(d.unsupported(mods)),
        Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2 => half::sign(d, mods, ops, ty, true),
        _ => float::sign(d, mods, ops, ty, true),
    }
}

pub fn neg(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    match ty {
        Ty::S16 => d.map1(ops, [ty; 2], |a: u32| a.wrapping_neg() & 0xffff),
        Ty::S32 => d.map1(ops, [ty; 2], |a: u32| a.wrapping_neg()),
        Ty::S64 => d.map1(ops, [ty; 2], |a: u64| a.wrapping_neg()),
        _ if !is_float(d, ty) => Err(d.unsupported(mods)),
        Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2 => half::sign(d, mods, ops, ty, false),
        _ => float::sign(d, mods, ops, ty, false),
    }
}

pub fn sad(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    let signed = ty.is_signed();
    match ty.bits() {
        16 => d.map3(ops, [ty; 4], move |a: u32, b: u32, c: u32| {
            unit::sad_s32(widen(signed, a), widen(signed, b), c) & 0xffff
        }),
        32 => d.map3(ops, [ty; 4], if signed { unit::sad_s32 } else { unit::sad_u32 }),
        64 if signed => d.map3(ops, [ty; 4], |a: u64, b: u64, c: u64| c.wrapping_add((a as i64).abs_diff(b as i64))),
        64 => d.map3(ops, [ty; 4], |a: u64, b: u64, c: u64| c.wrapping_add(a.abs_diff(b))),
        _ => Err(d.unsupported(mods)),
    }
}

pub fn dp4a(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let (a, b) = (mods.ty()?, mods.ty()?);
    let (sa, sb) = (a.is_signed(), b.is_signed());
    d.map3(ops, [Ty::B32; 4], move |a: u32, b: u32, c: u32| unit::dp4a(a, sa, b, sb, c))
}

pub fn dp2a(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let hi = mods.required(&["lo", "hi"])? == "hi";
    let (a, b) = (mods.ty()?, mods.ty()?);
    let (sa, sb) = (a.is_signed(), b.is_signed());
    d.map3(ops, [Ty::B32; 4], move |a: u32, b: u32, c: u32| unit::dp2a(hi, a, sa, b, sb, c))
}
