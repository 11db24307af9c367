//! add, sub, mul, fma, min, max, neg, abs of f16 and bf16, scalar and in pairs; each result is rounded once
//!
//! Products are exact in a wider format (f32 for f16, f64 for bf16). Sums are rounded to odd in the wider format and
//! then once more to the narrow format, which gives the correctly rounded result.

use super::float::{self, Extremum, add_odd};
use super::format::{Format, Rounding, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, f64_to_bf16, f64_to_f16};

/// The two 16-bit formats with arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// IEEE 754 half precision: 5 exponent bits and 10 mantissa bits.
    F16,
    /// The upper half of an f32: 8 exponent bits and 7 mantissa bits.
    Bf16,
}

/// Modifiers of the rounded result: `.ftz` (f16 only), then `.sat` or `.relu`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finish {
    /// Subnormal operands and results become zero with their sign.
    pub ftz: bool,
    /// Clamps to [0, 1]; NaN becomes +0.
    pub sat: bool,
    /// Negative results become +0; NaN becomes the canonical NaN.
    pub relu: bool,
}

impl Half {
    /// Returns the exact value of the bits of a number in this format.
    #[inline]
    pub fn widen(self, bits: u16) -> f32 {
        match self {
            Half::F16 => f16_to_f32(bits),
            Half::Bf16 => bf16_to_f32(bits),
        }
    }

    /// Rounds to nearest even.
    #[inline]
    pub(super) fn narrow(self, x: f64) -> u16 {
        match self {
            Half::F16 => f64_to_f16(x),
            Half::Bf16 => f64_to_bf16(x),
        }
    }

    #[inline]
    fn flush(self, bits: u16, on: bool) -> u16 {
        let exponent = match self {
            Half::F16 => 0x7c00,
            Half::Bf16 => 0x7f80,
        };
        if on && bits & exponent == 0 { bits & 0x8000 } else { bits }
    }

    #[inline]
    fn finish(self, bits: u16, finish: Finish) -> u16 {
        let one = match self {
            Half::F16 => 0x3c00,
            Half::Bf16 => 0x3f80,
        };
        let bits = self.flush(bits, finish.ftz);
        let nan = self.is_nan(bits);
        if finish.sat && (nan || bits & 0x8000 != 0) || finish.relu && !nan && bits & 0x8000 != 0 {
            0
        } else if finish.sat && bits > one {
            one
        } else {
            bits
        }
    }

    #[inline]
    fn is_nan(self, bits: u16) -> bool {
        let infinity = match self {
            Half::F16 => 0x7c00,
            Half::Bf16 => 0x7f80,
        };
        bits & 0x7fff > infinity
    }
}

/// `add{.ftz}{.sat}.f16`/`.bf16`; subtraction is [`sub`].
#[inline]
pub fn add(half: Half, a: u16, b: u16, finish: Finish) -> u16 {
    let one = match half {
        Half::F16 => 0x3c00,
        Half::Bf16 => 0x3f80,
    };
    fma(half, a, one, b, finish)
}

/// `sub{.ftz}{.sat}.f16`/`.bf16`: adds `b` with its sign flipped.
#[inline]
pub fn sub(half: Half, a: u16, b: u16, finish: Finish) -> u16 {
    add(half, a, b ^ 0x8000, finish)
}

/// `mul{.ftz}{.sat}.f16`/`.bf16`: the exact product, rounded once to nearest even.
#[inline]
pub fn mul(half: Half, a: u16, b: u16, finish: Finish) -> u16 {
    let (a, b) = (half.widen(half.flush(a, finish.ftz)), half.widen(half.flush(b, finish.ftz)));
    let product = match half {
        Half::F16 => f32_to_f16(a * b),
        Half::Bf16 => half.narrow(f64::from(a) * f64::from(b)),
    };
    half.finish(product, finish)
}

/// `fma{.ftz}{.sat}{.relu}.f16`/`.bf16`: `a * b + c`, rounded once to nearest even.
#[inline]
pub fn fma(half: Half, a: u16, b: u16, c: u16, finish: Finish) -> u16 {
    let [a, b, c] = [a, b, c].map(|x| half.widen(half.flush(x, finish.ftz)));
    let sum = match half {
        Half::F16 => f32_to_f16(float::add_odd_f32(a * b, c)),
        Half::Bf16 => half.narrow(add_odd(f64::from(a) * f64::from(b), f64::from(c))),
    };
    half.finish(sum, finish)
}

/// `{min,max}{.ftz}{.NaN}{.xorsign.abs}`.
#[inline]
pub fn extremum(which: Extremum, half: Half, a: u16, b: u16, ftz: bool, nan: bool, xorsign_abs: bool) -> u16 {
    let (a, b) = (half.flush(a, ftz), half.flush(b, ftz));
    half.narrow(float::extremum_f32(which, half.widen(a), half.widen(b), nan, xorsign_abs).into())
}

/// `neg`: flips the sign, also of NaN.
#[inline]
pub fn neg(half: Half, a: u16, ftz: bool) -> u16 {
    half.flush(a, ftz) ^ 0x8000
}

/// `abs`: clears the sign, also of NaN.
#[inline]
pub fn abs(half: Half, a: u16, ftz: bool) -> u16 {
    half.flush(a, ftz) & 0x7fff
}

/// Applies an operation to both halves: `add.f16x2` is `map2(a, b, |a, b| add(Half::F16, a, b, finish))`.
#[inline]
pub fn map1(a: u32, f: impl Fn(u16) -> u16) -> u32 {
    u32::from(f(a as u16)) | u32::from(f((a >> 16) as u16)) << 16
}

/// Applies an operation to the lower halves of `a` and `b`, and to the upper halves.
#[inline]
pub fn map2(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

/// Applies an operation to the lower halves of the three operands, and to the upper halves.
#[inline]
pub fn map3(a: u32, b: u32, c: u32, f: impl Fn(u16, u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16, c as u16))
        | u32::from(f((a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16)) << 16
}

/// `cvt.{rn,rz}{.relu}{.satfinite}.{f16x2,bf16x2}.f32 d, a, b`: `a` is converted to the upper half, `b` to the lower.
#[inline]
pub fn convert_pair(half: Half, a: f32, b: f32, rounding: Rounding, relu: bool, satfinite: bool) -> u32 {
    let one = |x: f32| {
        let bits = match (half, rounding, satfinite) {
            (Half::F16, Rounding::Rn, false) => f32_to_f16(x),
            (Half::Bf16, Rounding::Rn, false) => f32_to_bf16(x),
            (Half::F16, ..) => Format::F16.narrow(x.into(), rounding, satfinite) as u16,
            (Half::Bf16, ..) => Format::Bf16.narrow(x.into(), rounding, satfinite) as u16,
        };
        half.finish(bits, Finish { relu, ..Finish::default() })
    };
    u32::from(one(a)) << 16 | u32::from(one(b))
}

#[cfg(test)]
mod tests;
