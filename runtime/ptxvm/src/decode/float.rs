//! f32, f64: add, mul, fma, div, rcp, sqrt, min, max, neg, abs, copysign, `.approx` functions; `half` decodes f16, bf16

use super::half;
use super::mods::Mods;
use super::statements::Decoder;
use crate::Error;
use crate::text::ast::Operand;
use crate::text::types::Ty;
use crate::units::float::{self as unit, Extremum};
use crate::units::format::Rounding;
use crate::units::math;

type Done = Result<(), Error>;

pub fn rounding(mods: &mut Mods) -> Option<Rounding> {
    mods.one_of(&["rn", "rz", "rm", "rp"]).and_then(Rounding::parse)
}

/// The modifiers of an f32 function: `.ftz` applies to its operands and its result, `.sat` to its result.
#[derive(Clone, Copy)]
pub struct Around {
    ftz: bool,
    sat: bool,
}

impl Around {
    pub fn take(mods: &mut Mods) -> Self {
        Around { ftz: mods.take("ftz"), sat: mods.take("sat") }
    }

    #[inline]
    fn load(self, bits: u32) -> f32 {
        let value = f32::from_bits(bits);
        if self.ftz { unit::ftz(value) } else { value }
    }

    #[inline]
    fn store(self, value: f32) -> u32 {
        let value = if self.ftz { unit::ftz(value) } else { value };
        (if self.sat { unit::sat(value) } else { value }).to_bits()
    }

    fn plain(self) -> bool {
        !self.ftz && !self.sat
    }
}

fn f32x1(d: &mut Decoder, ops: &[Operand], around: Around, f: impl Fn(f32) -> f32 + Send + Sync + 'static) -> Done {
    if around.plain() {
        return d.map1(ops, [Ty::F32; 2], move |a: u32| f(f32::from_bits(a)).to_bits());
    }
    d.map1(ops, [Ty::F32; 2], move |a: u32| around.store(f(around.load(a))))
}

fn f32x2(
    d: &mut Decoder,
    ops: &[Operand],
    around: Around,
    f: impl Fn(f32, f32) -> f32 + Send + Sync + 'static,
) -> Done {
    if around.plain() {
        return d.map2(ops, [Ty::F32; 3], move |a: u32, b: u32| f(f32::from_bits(a), f32::from_bits(b)).to_bits());
    }
    d.map2(ops, [Ty::F32; 3], move |a: u32, b: u32| around.store(f(around.load(a), around.load(b))))
}

fn f64x2(d: &mut Decoder, ops: &[Operand], f: impl Fn(f64, f64) -> f64 + Send + Sync + 'static) -> Done {
    d.map2(ops, [Ty::F64; 3], move |a: u64, b: u64| f(f64::from_bits(a), f64::from_bits(b)).to_bits())
}

pub fn add(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], ty: Ty, sub: bool) -> Done {
    let sign = if sub { 0x8000_0000u32 } else { 0 };
    match ty {
        Ty::F32 => {
            let (rounding, around) = (rounding(mods).unwrap_or(Rounding::Rn), Around::take(mods));
            match rounding {
                Rounding::Rn if sub => f32x2(d, ops, around, |a, b| unit::canonical(a - b)),
                Rounding::Rn => f32x2(d, ops, around, |a, b| unit::canonical(a + b)),
                _ => f32x2(d, ops, around, move |a, b| unit::add_f32(a, f32::from_bits(b.to_bits() ^ sign), rounding)),
            }
        }
        Ty::F64 => {
            let rounding = rounding(mods).unwrap_or(Rounding::Rn);
            f64x2(d, ops, move |a, b| unit::add_f64(a, if sub { -b } else { b }, rounding))
        }
        _ => half::add(d, mods, ops, ty, sub),
    }
}

pub fn mul(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], ty: Ty) -> Done {
    match ty {
        Ty::F32 => {
            let (rounding, around) = (rounding(mods).unwrap_or(Rounding::Rn), Around::take(mods));
            match rounding {
                Rounding::Rn => f32x2(d, ops, around, |a, b| unit::canonical(a * b)),
                _ => f32x2(d, ops, around, move |a, b| unit::mul_f32(a, b, rounding)),
            }
        }
        Ty::F64 => {
            let rounding = rounding(mods).unwrap_or(Rounding::Rn);
            f64x2(d, ops, move |a, b| unit::mul_f64(a, b, rounding))
        }
        _ => half::mul(d, mods, ops, ty),
    }
}

pub fn fma(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    fma_of(d, mods, ops, ty)
}

/// Decodes `fma` of type `ty`, and `mad` of floats, which equals `fma` on every GPU that has `fma`.
pub fn fma_of(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], ty: Ty) -> Done {
    match ty {
        Ty::F32 => {
            let (rounding, around) = (rounding(mods).unwrap_or(Rounding::Rn), Around::take(mods));
            if around.plain() && rounding == Rounding::Rn {
                return d.map3(ops, [ty; 4], |a: u32, b: u32, c: u32| {
                    unit::fma_f32(f32::from_bits(a), f32::from_bits(b), f32::from_bits(c), Rounding::Rn).to_bits()
                });
            }
            d.map3(ops, [ty; 4], move |a: u32, b: u32, c: u32| {
                around.store(unit::fma_f32(around.load(a), around.load(b), around.load(c), rounding))
            })
        }
        Ty::F64 => {
            let rounding = rounding(mods).unwrap_or(Rounding::Rn);
            d.map3(ops, [ty; 4], move |a: u64, b: u64, c: u64| {
                unit::fma_f64(f64::from_bits(a), f64::from_bits(b), f64::from_bits(c), rounding).to_bits()
            })
        }
        _ => half::fma(d, mods, ops, ty),
    }
}

pub fn div(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], ty: Ty) -> Done {
    let (approx, full, rounding) = (mods.take("approx"), mods.take("full"), rounding(mods));
    match (ty, rounding) {
        (Ty::F32, Some(rounding)) => {
            let around = Around::take(mods);
            f32x2(d, ops, around, move |a, b| unit::div_f32(a, b, rounding))
        }
        (Ty::F32, None) if approx || full => {
            let around = Around::take(mods);
            f32x2(d, ops, around, if full { math::div_full } else { math::div_approx })
        }
        (Ty::F64, Some(rounding)) => f64x2(d, ops, move |a, b| unit::div_f64(a, b, rounding)),
        _ => Err(d.unsupported(mods)),
    }
}

pub fn extremum(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], ty: Ty, which: Extremum) -> Done {
    let (nan, xorsign) = (mods.take("NaN"), mods.take("xorsign"));
    if xorsign && !mods.take("abs") {
        return d.error("`.xorsign` goes with `.abs`");
    }
    match ty {
        Ty::F32 => {
            let around = Around { ftz: mods.take("ftz"), sat: false };
            if ops.len() == 4 {
                return d.map3(ops, [ty; 4], move |a: u32, b: u32, c: u32| {
                    let ab = unit::extremum_f32(which, around.load(a), around.load(b), nan, xorsign);
                    around.store(unit::extremum_f32(which, ab, around.load(c), nan, xorsign))
                });
            }
            f32x2(d, ops, around, move |a, b| unit::extremum_f32(which, a, b, nan, xorsign))
        }
        Ty::F64 => f64x2(d, ops, move |a, b| unit::extremum_f64(which, a, b)),
        _ => half::extremum(d, mods, ops, ty, which, nan, xorsign),
    }
}

/// Decodes `abs` or `neg`, which change only the sign bit, also of NaN; `.ftz` flushes subnormals in addition.
pub fn sign(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], ty: Ty, abs: bool) -> Done {
    match ty {
        Ty::F32 => {
            let around = Around { ftz: mods.take("ftz"), sat: false };
            f32x1(d, ops, around, move |a| {
                f32::from_bits(if abs { a.to_bits() & 0x7fff_ffff } else { a.to_bits() ^ 0x8000_0000 })
            })
        }
        Ty::F64 => d.map1(ops, [ty; 2], move |a: u64| if abs { a & !(1 << 63) } else { a ^ 1 << 63 }),
        _ => Err(d.unsupported(mods)),
    }
}

/// `copysign d, a, b`: combines the sign of `a` with the magnitude of `b`.
pub fn copysign(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    match ty {
        Ty::F32 => d.map2(ops, [ty; 3], |a: u32, b: u32| a & 0x8000_0000 | b & 0x7fff_ffff),
        Ty::F64 => d.map2(ops, [ty; 3], |a: u64, b: u64| a & 1 << 63 | b & !(1 << 63)),
        _ => Err(d.unsupported(mods)),
    }
}

/// Decodes the `.approx` form of an f32 function; `halves` tells whether the ISA has this form for f16 and bf16 too.
fn approximate(
    d: &mut Decoder,
    mods: &mut Mods,
    ops: &[Operand],
    halves: bool,
    f: impl Fn(f32) -> f32 + Send + Sync + Copy + 'static,
) -> Done {
    if !mods.take("approx") {
        return d.error("expected .approx");
    }
    let ty = mods.ty()?;
    match ty {
        Ty::F32 => {
            let around = Around { ftz: mods.take("ftz"), sat: false };
            f32x1(d, ops, around, f)
        }
        Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2 if halves => half::function(d, mods, ops, ty, f),
        _ => Err(d.unsupported(mods)),
    }
}

pub fn ex2(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    approximate(d, mods, ops, true, math::ex2)
}

pub fn lg2(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    approximate(d, mods, ops, false, math::lg2)
}

pub fn sin(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    approximate(d, mods, ops, false, math::sin)
}

pub fn cos(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    approximate(d, mods, ops, false, math::cos)
}

pub fn tanh(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    approximate(d, mods, ops, true, math::tanh)
}

pub fn rsqrt(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    if mods.take("f64") {
        if !mods.take("approx") {
            return d.error("expected .approx");
        }
        let ftz = mods.take("ftz");
        return d.map1(ops, [Ty::F64; 2], move |a: u64| math::rsqrt_approx_f64(f64::from_bits(a), ftz).to_bits());
    }
    approximate(d, mods, ops, false, math::rsqrt)
}

pub fn rcp(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    match (rounding(mods), mods.take("f64")) {
        (Some(rounding), true) => {
            d.map1(ops, [Ty::F64; 2], move |a: u64| unit::div_f64(1.0, f64::from_bits(a), rounding).to_bits())
        }
        (Some(rounding), false) => {
            if mods.ty()? != Ty::F32 {
                return Err(d.unsupported(mods));
            }
            let around = Around { ftz: mods.take("ftz"), sat: false };
            f32x1(d, ops, around, move |a| unit::rcp_f32(a, rounding))
        }
        (None, true) => {
            if !(mods.take("approx") && mods.take("ftz")) {
                return d.error("expected a rounding or .approx.ftz");
            }
            d.map1(ops, [Ty::F64; 2], |a: u64| math::rcp_approx_f64(f64::from_bits(a)).to_bits())
        }
        (None, false) => approximate(d, mods, ops, false, math::rcp),
    }
}

pub fn sqrt(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    match (rounding(mods), mods.take("f64")) {
        (Some(rounding), true) => {
            d.map1(ops, [Ty::F64; 2], move |a: u64| unit::sqrt_f64(f64::from_bits(a), rounding).to_bits())
        }
        (Some(rounding), false) => {
            if mods.ty()? != Ty::F32 {
                return Err(d.unsupported(mods));
            }
            let around = Around { ftz: mods.take("ftz"), sat: false };
            f32x1(d, ops, around, move |a| unit::sqrt_f32(a, rounding))
        }
        (None, true) => d.error("expected a rounding"),
        (None, false) => approximate(d, mods, ops, false, math::sqrt),
    }
}
