//! f32 and f64 add, mul, fma in every rounding mode; min, max, saturation, flushing, and the canonical NaN
//!
//! Sums and products of f32, except `add` and `mul` to nearest, are formed in f64, exactly or rounded to odd, and then
//! rounded to f32: the 53 bits of f64 are more than 2 · 24 + 2, where 24 is the number of bits of f32, so the first
//! rounding does not change the result (Boldo and Melquiond, "Emulation of a FMA and correctly-rounded sums: proved
//! algorithms using rounding to odd").

use super::exact;
use super::format::Rounding;

/// The NaN that f32 arithmetic returns on NVIDIA devices, whatever NaN was an operand.
pub const NAN_F32: u32 = 0x7fff_ffff;

/// Returns `x`, or [`NAN_F32`] if `x` is any NaN.
#[inline]
pub fn canonical(x: f32) -> f32 {
    if x.is_nan() { f32::from_bits(NAN_F32) } else { x }
}

/// `.ftz`: subnormal numbers become zero with their sign. The modifier applies to the operands and to the result.
#[inline]
pub fn ftz(x: f32) -> f32 {
    let bits = x.to_bits();
    if bits & 0x7f80_0000 == 0 { f32::from_bits(bits & 0x8000_0000) } else { x }
}

/// `.sat`: clamps to [0, 1]; NaN and -0 become +0.
#[inline]
pub fn sat(x: f32) -> f32 {
    let low = if x > 0.0 { x } else { 0.0 };
    if low < 1.0 { low } else { 1.0 }
}

/// `.sat` of conversions, on a value in f64.
#[inline]
pub fn sat_f64(x: f64) -> f64 {
    let low = if x > 0.0 { x } else { 0.0 };
    if low < 1.0 { low } else { 1.0 }
}

/// `add.{rn,rz,rm,rp}.f32`; subtraction negates `b`.
#[inline]
pub fn add_f32(a: f32, b: f32, rounding: Rounding) -> f32 {
    match rounding {
        Rounding::Rn | Rounding::Rna => canonical(a + b),
        Rounding::Rz | Rounding::Rm | Rounding::Rp => {
            let sum = add_odd(f64::from(a), f64::from(b));
            canonical(f64_to_f32(signed_zero(sum, a.is_sign_negative() != b.is_sign_negative(), rounding), rounding))
        }
    }
}

/// `mul.{rn,rz,rm,rp}.f32`.
#[inline]
pub fn mul_f32(a: f32, b: f32, rounding: Rounding) -> f32 {
    match rounding {
        Rounding::Rn | Rounding::Rna => canonical(a * b),
        // The product of two 24-bit mantissas fits the 53 bits of f64, and f64 has an exponent for every product.
        Rounding::Rz | Rounding::Rm | Rounding::Rp => canonical(f64_to_f32(f64::from(a) * f64::from(b), rounding)),
    }
}

/// `fma.{rn,rz,rm,rp}.f32`: one rounding. The computation needs no FMA hardware and vectorises.
#[inline]
pub fn fma_f32(a: f32, b: f32, c: f32, rounding: Rounding) -> f32 {
    let product = f64::from(a) * f64::from(b);
    let sum = add_odd(product, f64::from(c));
    let sum = signed_zero(sum, product.is_sign_negative() != c.is_sign_negative(), rounding);
    canonical(f64_to_f32(sum, rounding))
}

/// `div.{rn,rz,rm,rp}.f32`. A quotient of 24-bit numbers is never so close to a rounding boundary of f32 that rounding
/// it to f64 first would reach the boundary.
#[inline]
pub fn div_f32(a: f32, b: f32, rounding: Rounding) -> f32 {
    canonical(f64_to_f32(f64::from(a) / f64::from(b), rounding))
}

/// `rcp.{rn,rz,rm,rp}.f32`.
#[inline]
pub fn rcp_f32(a: f32, rounding: Rounding) -> f32 {
    div_f32(1.0, a, rounding)
}

/// `sqrt.{rn,rz,rm,rp}.f32`; NaN for negative numbers, and -0 for -0.
#[inline]
pub fn sqrt_f32(a: f32, rounding: Rounding) -> f32 {
    canonical(f64_to_f32(f64::from(a).sqrt(), rounding))
}

/// `add.{rn,rz,rm,rp}.f64`; subtraction negates `b`.
#[inline]
pub fn add_f64(a: f64, b: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Rn | Rounding::Rna => a + b,
        Rounding::Rz | Rounding::Rm | Rounding::Rp => exact::fma(a, 1.0, b, rounding),
    }
}

/// `mul.{rn,rz,rm,rp}.f64`.
#[inline]
pub fn mul_f64(a: f64, b: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Rn | Rounding::Rna => a * b,
        Rounding::Rz | Rounding::Rm | Rounding::Rp => exact::mul(a, b, rounding),
    }
}

/// `fma.{rn,rz,rm,rp}.f64`.
#[inline]
pub fn fma_f64(a: f64, b: f64, c: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Rn | Rounding::Rna => a.mul_add(b, c),
        Rounding::Rz | Rounding::Rm | Rounding::Rp => exact::fma(a, b, c, rounding),
    }
}

/// `div.{rn,rz,rm,rp}.f64`, and `rcp` as `1 / a`.
#[inline]
pub fn div_f64(a: f64, b: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Rn | Rounding::Rna => a / b,
        Rounding::Rz | Rounding::Rm | Rounding::Rp => exact::div(a, b, rounding),
    }
}

/// `sqrt.{rn,rz,rm,rp}.f64`.
#[inline]
pub fn sqrt_f64(a: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Rn | Rounding::Rna => a.sqrt(),
        Rounding::Rz | Rounding::Rm | Rounding::Rp => exact::sqrt(a, rounding),
    }
}

/// `cvt.{rn,rz,rm,rp}.f32.f64`. NaN keeps its upper payload bits here; arithmetic functions make it canonical.
#[inline]
pub fn f64_to_f32(x: f64, rounding: Rounding) -> f32 {
    let nearest = x as f32;
    let back = f64::from(nearest);
    match rounding {
        Rounding::Rn | Rounding::Rna => nearest,
        // Subtracting 1 from the bit pattern gives the next smaller magnitude, also from infinity to the largest
        // number.
        Rounding::Rz => f32::from_bits(nearest.to_bits().wrapping_sub(u32::from(back.abs() > x.abs()))),
        Rounding::Rm => {
            if back > x {
                nearest.next_down()
            } else {
                nearest
            }
        }
        Rounding::Rp => {
            if back < x {
                nearest.next_up()
            } else {
                nearest
            }
        }
    }
}

/// Selects `min` or `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extremum {
    /// `min`: the smaller operand.
    Min,
    /// `max`: the larger operand.
    Max,
}

/// `{min,max}{.NaN}{.xorsign.abs}.f32`. If one operand is NaN, the result is the other operand, or NaN with `nan`. -0
/// is less than +0. With `xorsign_abs`, magnitudes are compared, and the result has the product of the operands' signs.
#[inline]
pub fn extremum_f32(which: Extremum, a: f32, b: f32, nan: bool, xorsign_abs: bool) -> f32 {
    let sign = (a.to_bits() ^ b.to_bits()) & 0x8000_0000;
    let (a, b) = if xorsign_abs { (a.abs(), b.abs()) } else { (a, b) };
    // Equal operands differ at most in the sign of zero: the bitwise `or` gives -0, the bitwise `and` +0.
    let winner = match which {
        Extremum::Min if a == b => f32::from_bits(a.to_bits() | b.to_bits()),
        Extremum::Max if a == b => f32::from_bits(a.to_bits() & b.to_bits()),
        Extremum::Min => {
            if a < b || b.is_nan() {
                a
            } else {
                b
            }
        }
        Extremum::Max => {
            if a > b || b.is_nan() {
                a
            } else {
                b
            }
        }
    };
    if winner.is_nan() || nan && (a.is_nan() || b.is_nan()) {
        return f32::from_bits(NAN_F32);
    }
    if xorsign_abs { f32::from_bits(winner.to_bits() | sign) } else { winner }
}

/// `{min,max}.f64`: if one operand is NaN, the result is the other operand; -0 is less than +0.
#[inline]
pub fn extremum_f64(which: Extremum, a: f64, b: f64) -> f64 {
    match which {
        Extremum::Min if a == b => f64::from_bits(a.to_bits() | b.to_bits()),
        Extremum::Max if a == b => f64::from_bits(a.to_bits() & b.to_bits()),
        Extremum::Min => {
            if a < b || b.is_nan() {
                a
            } else {
                b
            }
        }
        Extremum::Max => {
            if a > b || b.is_nan() {
                a
            } else {
                b
            }
        }
    }
}

/// Returns `a + b` in f64, rounded to odd: an inexact sum becomes the neighbouring f64 whose last bit is set. The sum
/// must not overflow f64.
#[inline]
pub(super) fn add_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    // Knuth's TwoSum: `error` is exactly what the addition lost.
    let b_part = sum - a;
    let error = (a - (sum - b_part)) + (b - b_part);
    let bits = sum.to_bits();
    // The bit pattern is changed by 1: away from zero if the error has the sign of the sum, else towards zero. For
    // infinite operands the error is NaN, and the pattern does not change.
    let toward = 1u64.wrapping_sub((error.to_bits() ^ bits) >> 63 << 1);
    let inexact_even = u64::from(error.abs() > 0.0) & !bits & 1;
    f64::from_bits(bits.wrapping_add(toward & inexact_even.wrapping_neg()))
}

/// [`add_odd`] in f32, for operands whose sum and its rounding error stay within the normal range of f32.
#[inline]
pub(super) fn add_odd_f32(a: f32, b: f32) -> f32 {
    let sum = a + b;
    let b_part = sum - a;
    let error = (a - (sum - b_part)) + (b - b_part);
    let bits = sum.to_bits();
    let toward = 1u32.wrapping_sub((error.to_bits() ^ bits) >> 31 << 1);
    let inexact_even = u32::from(error.abs() > 0.0) & !bits & 1;
    f32::from_bits(bits.wrapping_add(toward & inexact_even.wrapping_neg()))
}

/// Corrects the sign of an exact zero: a sum of numbers of opposite sign is -0 when rounding down, +0 otherwise.
#[inline]
fn signed_zero(sum: f64, opposite_signs: bool, rounding: Rounding) -> f64 {
    if rounding == Rounding::Rm && sum == 0.0 && opposite_signs { -0.0 } else { sum }
}

#[cfg(test)]
mod tests;
