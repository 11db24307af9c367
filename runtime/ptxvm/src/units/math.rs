//! ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh, div: approximate instructions, computed almost correctly rounded
//!
//! For most of these instructions, the PTX ISA specifies only an error bound (section "Floating Point Instructions").
//! Each f32 function is computed here in f64 with a relative error below 2^-38 and rounded to f32, or is one correctly
//! rounded f32 operation: the result is within 0.501 units in the last place (ulp), and the same on every machine
//! unless the system's `sin` and `cos` differ. The result of a device may differ by the whole bound, so comparisons
//! with a device need a tolerance. For `.ftz`, the decoder flushes the operands and the result of an f32 function with
//! [`super::float::ftz`]. In f32, NaN operands give the canonical NaN.

use super::float::{canonical, ftz};
use super::packed::Half;
use std::f64::consts::{LN_2, LOG2_E};

/// `ex2.approx.f32`: ISA 2 ulp (relative error 2^-9.9 for f16, 2^-7 for bf16). `-inf` gives +0, `+inf` gives `+inf`.
#[inline]
pub fn ex2(x: f32) -> f32 {
    let value = exp2(f64::from(x).clamp(-200.0, 200.0)) as f32;
    if x.is_nan() { canonical(x) } else { value }
}

/// `lg2.approx.f32`: ISA absolute error 2^-22 between 0.5 and 2, relative error 2^-22 elsewhere. Zeros give `-inf`,
/// negative numbers NaN.
#[inline]
pub fn lg2(x: f32) -> f32 {
    let wide = f64::from(x);
    // x = 2^exponent * mantissa, with a mantissa between sqrt(1/2) and sqrt(2); subnormal f32 are normal numbers in
    // f64.
    let bits = wide.to_bits().wrapping_sub(std::f64::consts::FRAC_1_SQRT_2.to_bits());
    let exponent = (bits as i64 >> 52) as i32;
    let mantissa = f64::from_bits(wide.to_bits().wrapping_sub((bits as i64 >> 52 << 52) as u64));
    // ln(mantissa) = 2 artanh(s)
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let s2 = s * s;
    let series = (0..11).rev().fold(0.0, |sum, i| sum * s2 + 1.0 / f64::from(2 * i + 1));
    let value = (f64::from(exponent) + 2.0 * LOG2_E * s * series) as f32;
    let value = if x == 0.0 { f32::NEG_INFINITY } else { value };
    let value = if x == f32::INFINITY { x } else { value };
    canonical(if x < 0.0 || x.is_nan() { f32::NAN } else { value })
}

/// `rcp.approx.f32`: ISA 1 ulp. Zeros give infinities with their sign.
#[inline]
pub fn rcp(x: f32) -> f32 {
    canonical(1.0 / x)
}

/// `rsqrt.approx.f32`: ISA relative error 2^-22.9. -0 gives `-inf`, other negative numbers NaN.
#[inline]
pub fn rsqrt(x: f32) -> f32 {
    canonical((1.0 / f64::from(x).sqrt()) as f32)
}

/// `sqrt.approx.f32`: ISA relative error 2^-23. -0 gives -0, other negative numbers NaN.
#[inline]
pub fn sqrt(x: f32) -> f32 {
    canonical(x.sqrt())
}

/// `sin.approx.f32`: ISA absolute error 2^-20.5 between -2 pi and 2 pi, 2^-14.7 between -100 pi and 100 pi, and no
/// bound beyond. Infinities give NaN. Subnormal operands give zero with their sign, as in NVIDIA's assembler.
pub fn sin(x: f32) -> f32 {
    canonical(f64::from(ftz(x)).sin() as f32)
}

/// `cos.approx.f32`: ISA error as for [`sin`]. Infinities give NaN, zeros and subnormal operands 1.
pub fn cos(x: f32) -> f32 {
    canonical(f64::from(x).cos() as f32)
}

/// `tanh.approx.f32`: ISA relative error 2^-11 (absolute error 2^-10.987 for f16, 2^-8 for bf16).
#[inline]
pub fn tanh(x: f32) -> f32 {
    let wide = f64::from(x);
    let e = exp2((2.0 * LOG2_E * wide).clamp(-200.0, 200.0));
    // Near zero, the numerator of the quotient cancels. The Taylor series is used instead; its next term is below
    // 2^-50, relative to the result.
    let small = wide * (1.0 - wide * wide / 3.0);
    let value = if wide.abs() < 1.0 / 4096.0 { small } else { (e - 1.0) / (e + 1.0) };
    if x.is_nan() { canonical(x) } else { value as f32 }
}

/// `div.approx.f32`: ISA 2 ulp for divisors from 2^-126 to 2^126 in magnitude. The instruction multiplies by the
/// reciprocal, which is zero for larger finite divisors. For these, the result is zero, or NaN if the dividend is
/// infinite or NaN.
#[inline]
pub fn div_approx(a: f32, b: f32) -> f32 {
    let huge = b.abs() > f32::from_bits((126 + 127) << 23) && b.is_finite();
    let reciprocal_is_zero = a * (0.0 * b);
    canonical(if huge { reciprocal_is_zero } else { a / b })
}

/// `div.full.f32`: ISA 2 ulp over the full range.
#[inline]
pub fn div_full(a: f32, b: f32) -> f32 {
    canonical(a / b)
}

/// `rcp.approx.ftz.f64`: subnormal operands and results become zero; the lower 32 bits of the operand are ignored, and
/// those of the result are zero.
pub fn rcp_approx_f64(x: f64) -> f64 {
    upper_half(1.0 / upper_half(x))
}

/// `rsqrt.approx{.ftz}.f64`: with `.ftz`, operands and results are treated as in [`rcp_approx_f64`]. Without `.ftz`,
/// all bits count, and the ISA states no bound.
pub fn rsqrt_approx_f64(x: f64, ftz: bool) -> f64 {
    if ftz { upper_half(1.0 / upper_half(x).sqrt()) } else { 1.0 / x.sqrt() }
}

/// Applies `f` to the value of a 16-bit operand and rounds the result to nearest even: `tanh.approx.f16` is
/// `half(Half::F16, a, tanh)`.
#[inline]
pub fn half(half: Half, a: u16, f: impl Fn(f32) -> f32) -> u16 {
    half.narrow(f64::from(f(half.widen(a))))
}

/// Returns 2^x for `x` from -200 to 200, with a relative error below 2^-50. The code is branch-free, so that loops over
/// lanes vectorise.
#[inline]
fn exp2(x: f64) -> f64 {
    // Adding this constant rounds `x` to an integer, which the low bits of the sum then hold.
    const TO_INTEGER: f64 = 3.0 * (1u64 << 51) as f64;
    /// Taylor coefficients of 2^x: ln(2)^i / i!
    const TAYLOR: [f64; 14] = {
        let mut terms = [1.0; 14];
        let mut i = 1;
        while i < 14 {
            terms[i] = terms[i - 1] * LN_2 / i as f64;
            i += 1;
        }
        terms
    };
    let shifted = x + TO_INTEGER;
    let rest = x - (shifted - TO_INTEGER);
    let power = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    TAYLOR.iter().rev().fold(0.0, |sum, term| sum * rest + term) * power
}

/// Clears the lower 32 bits, and replaces subnormal numbers by zero.
fn upper_half(x: f64) -> f64 {
    let bits = x.to_bits();
    f64::from_bits(if bits >> 52 & 0x7ff == 0 { bits & 1 << 63 } else { bits & !0xffff_ffff })
}

#[cfg(test)]
mod tests;
