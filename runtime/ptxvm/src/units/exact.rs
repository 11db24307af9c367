//! f64 mul, fma, div, sqrt in every rounding mode: computed in 128-bit integers with a sticky bit, then rounded once

use super::format::{Rounding, round_shift};

/// A nonzero number of magnitude `mantissa * 2^exponent`. The lowest bit is sticky: it is set if lower bits were lost.
#[derive(Clone, Copy)]
struct Wide {
    negative: bool,
    mantissa: u128,
    exponent: i32,
}

impl Wide {
    /// Converts a finite, nonzero `x`; the leading bit of the mantissa becomes bit `top`.
    fn new(x: f64, top: u32) -> Wide {
        let field = (x.to_bits() >> 52 & 0x7ff) as i32;
        let fraction = x.to_bits() & ((1 << 52) - 1);
        let (mantissa, exponent) = if field == 0 { (fraction, -1074) } else { (fraction | 1 << 52, field - 1075) };
        Wide { negative: x.is_sign_negative(), mantissa: u128::from(mantissa), exponent }.normalise(top)
    }

    /// Shifts the mantissa left until its leading bit, which must not be above bit `top`, is bit `top`.
    fn normalise(self, top: u32) -> Wide {
        let shift = self.mantissa.leading_zeros() - (127 - top);
        Wide { mantissa: self.mantissa << shift, exponent: self.exponent - shift as i32, ..self }
    }

    /// Divides the mantissa by `2^n`; the lowest bit records whether a nonzero bit was lost.
    fn shift_right(self, n: u32) -> Wide {
        let kept = self.mantissa.checked_shr(n).unwrap_or(0);
        let lost = kept.checked_shl(n).unwrap_or(0) != self.mantissa;
        Wide { mantissa: kept | u128::from(lost), exponent: self.exponent.saturating_add(n as i32), ..self }
    }

    fn round(self, rounding: Rounding) -> f64 {
        // With the leading bit at position 61, the mantissa has 9 bits more than that of an f64; the lowest bit is
        // sticky.
        let wide = self.normalise(127).shift_right(66);
        let (mantissa, scale) = (wide.mantissa as u64, wide.exponent + 61);
        let grid = scale.max(-1022);
        let dropped = (9 + grid - scale).min(63) as u32;
        let kept = round_shift(mantissa, dropped, self.negative, rounding);
        let magnitude = kept.saturating_add(((grid + 1022) as u64) << 52);
        let infinity = 0x7ffu64 << 52;
        let to_largest = match rounding {
            Rounding::Rn | Rounding::Rna => false,
            Rounding::Rz => true,
            Rounding::Rm => !self.negative,
            Rounding::Rp => self.negative,
        };
        let magnitude = if magnitude >= infinity && to_largest { infinity - 1 } else { magnitude.min(infinity) };
        f64::from_bits(magnitude | u64::from(self.negative) << 63)
    }
}

/// Returns `a * b`, rounded once.
pub fn mul(a: f64, b: f64, rounding: Rounding) -> f64 {
    let nearest = a * b;
    if !a.is_finite() || !b.is_finite() || a == 0.0 || b == 0.0 { nearest } else { product(a, b).round(rounding) }
}

/// Returns `a * b + c`, rounded once.
pub fn fma(a: f64, b: f64, c: f64, rounding: Rounding) -> f64 {
    let finite = a.is_finite() && b.is_finite() && c.is_finite();
    let zero_product = a == 0.0 || b == 0.0;
    if !finite || zero_product && c == 0.0 {
        let sum = a.mul_add(b, c);
        let opposite = (a.is_sign_negative() != b.is_sign_negative()) != c.is_sign_negative();
        return if sum == 0.0 && opposite && rounding == Rounding::Rm { -0.0 } else { sum };
    }
    if zero_product {
        return c;
    }
    let p = product(a, b);
    if c == 0.0 {
        return p.round(rounding);
    }
    // Bit 127 stays free for the carry. Products have 106 bits, so no bits are lost if `small` is shifted by one, the
    // only case besides equal exponents in which many leading bits can cancel.
    let (p, c) = (p.normalise(126), Wide::new(c, 126));
    let (large, small) = if (p.exponent, p.mantissa) >= (c.exponent, c.mantissa) { (p, c) } else { (c, p) };
    let small = small.shift_right((large.exponent - small.exponent) as u32);
    if large.negative == small.negative {
        return Wide { mantissa: large.mantissa + small.mantissa, ..large }.round(rounding);
    }
    let mantissa = large.mantissa - small.mantissa;
    if mantissa == 0 {
        return if rounding == Rounding::Rm { -0.0 } else { 0.0 };
    }
    Wide { mantissa, ..large }.round(rounding)
}

/// Returns `a / b`, rounded once.
pub fn div(a: f64, b: f64, rounding: Rounding) -> f64 {
    if !a.is_finite() || !b.is_finite() || a == 0.0 || b == 0.0 {
        return a / b;
    }
    let (n, d) = (Wide::new(a, 127), Wide::new(b, 60));
    let (quotient, rest) = (n.mantissa / d.mantissa, n.mantissa % d.mantissa);
    let mantissa = quotient | u128::from(rest != 0);
    Wide { negative: n.negative != d.negative, mantissa, exponent: n.exponent - d.exponent }.round(rounding)
}

/// Returns the square root, rounded once; NaN for negative numbers.
pub fn sqrt(a: f64, rounding: Rounding) -> f64 {
    if !a.is_finite() || a <= 0.0 {
        return a.sqrt();
    }
    let wide = Wide::new(a, 126);
    // The square root halves the exponent, so the exponent must be even.
    let (square, exponent) =
        if wide.exponent % 2 == 0 { (wide.mantissa, wide.exponent) } else { (wide.mantissa << 1, wide.exponent - 1) };
    let root = square.isqrt();
    let mantissa = root | u128::from(root * root != square);
    Wide { negative: false, mantissa, exponent: exponent / 2 }.round(rounding)
}

/// Returns the exact product of two finite, nonzero numbers.
fn product(a: f64, b: f64) -> Wide {
    let (a, b) = (Wide::new(a, 52), Wide::new(b, 52));
    Wide { negative: a.negative != b.negative, mantissa: a.mantissa * b.mantissa, exponent: a.exponent + b.exponent }
}
