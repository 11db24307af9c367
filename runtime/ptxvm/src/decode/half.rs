//! Arithmetic of f16 and bf16, scalar and in pairs

use super::mods::Mods;
use super::statements::Decoder;
use crate::Error;
use crate::text::ast::Operand;
use crate::text::types::Ty;
use crate::units::float::Extremum;
use crate::units::math;
use crate::units::packed::{self, Finish, Half, map1, map2, map3};

type Done = Result<(), Error>;

/// Returns the format of a type, and whether a register of the type holds a pair of values.
fn format(ty: Ty) -> (Half, bool) {
    match ty {
        Ty::F16 => (Half::F16, false),
        Ty::F16x2 => (Half::F16, true),
        Ty::Bf16x2 => (Half::Bf16, true),
        _ => (Half::Bf16, false),
    }
}

fn finish(mods: &mut Mods) -> Finish {
    mods.take("rn");
    Finish { ftz: mods.take("ftz"), sat: mods.take("sat"), relu: mods.take("relu") }
}

fn one(d: &mut Decoder, ops: &[Operand], ty: Ty, f: impl Fn(u16) -> u16 + Send + Sync + 'static) -> Done {
    match format(ty).1 {
        true => d.map1(ops, [ty; 2], move |a: u32| map1(a, &f)),
        false => d.map1(ops, [ty; 2], move |a: u32| u32::from(f(a as u16))),
    }
}

fn two(d: &mut Decoder, ops: &[Operand], ty: Ty, f: impl Fn(u16, u16) -> u16 + Send + Sync + 'static) -> Done {
    match format(ty).1 {
        true => d.map2(ops, [ty; 3], move |a: u32, b: u32| map2(a, b, &f)),
        false => d.map2(ops, [ty; 3], move |a: u32, b: u32| u32::from(f(a as u16, b as u16))),
    }
}

pub fn add(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], ty: Ty, sub: bool) -> Done {
    let (half, finish) = (format(ty).0, finish(mods));
    let f = if sub { packed::sub } else { packed::add };
    two(d, ops, ty, move |a, b| f(half, a, b, finish))
}

pub fn mul(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], ty: Ty) -> Done {
    let (half, finish) = (format(ty).0, finish(mods));
    two(d, ops, ty, move |a, b| packed::mul(half, a, b, finish))
}

pub fn fma(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], ty: Ty) -> Done {
    let ((half, pair), finish) = (format(ty), finish(mods));
    if !matches!(ty, Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2) {
        return Err(d.unsupported(mods));
    }
    match pair {
        true => d.map3(ops, [ty; 4], move |a: u32, b: u32, c: u32| {
            map3(a, b, c, |a, b, c| packed::fma(half, a, b, c, finish))
        }),
        false => d.map3(ops, [ty; 4], move |a: u32, b: u32, c: u32| {
            u32::from(packed::fma(half, a as u16, b as u16, c as u16, finish))
        }),
    }
}

pub fn extremum(
    d: &mut Decoder,
    mods: &mut Mods,
    ops: &[Operand],
    ty: Ty,
    which: Extremum,
    nan: bool,
    xorsign: bool,
) -> Done {
    let (half, ftz) = (format(ty).0, mods.take("ftz"));
    two(d, ops, ty, move |a, b| packed::extremum(which, half, a, b, ftz, nan, xorsign))
}

pub fn sign(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], ty: Ty, abs: bool) -> Done {
    let (half, ftz) = (format(ty).0, mods.take("ftz"));
    one(d, ops, ty, move |a| if abs { packed::abs(half, a, ftz) } else { packed::neg(half, a, ftz) })
}

/// Decodes an instruction that applies the f32 function `f` to each f16 or bf16 value of a register.
pub fn function(
    d: &mut Decoder,
    mods: &mut Mods,
    ops: &[Operand],
    ty: Ty,
    f: impl Fn(f32) -> f32 + Send + Sync + Copy + 'static,
) -> Done {
    // Of these instructions, only `ex2.approx.ftz.bf16` has `.ftz`. The modifier is ignored: subnormal bf16 results,
    // which are rare, are kept.
    mods.take("ftz");
    let half = format(ty).0;
    one(d, ops, ty, move |a| math::half(half, a, f))
}
