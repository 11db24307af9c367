//! f16, bf16, tf32, e4m3, e5m2  <=>  f32, f64: every conversion rounds once, in any mode

use super::float::{canonical, f64_to_f32};

/// PTX rounding modifiers of a floating-point result: `.rn`, `.rz`, `.rm`, `.rp`, `.rna`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Rounds to nearest, ties to even.
    Rn,
    /// Rounds toward zero.
    Rz,
    /// Rounds toward minus infinity.
    Rm,
    /// Rounds toward plus infinity.
    Rp,
    /// Rounds to nearest, ties away from zero.
    Rna,
}

impl Rounding {
    /// Parses a modifier without its dot, such as `rn`; `None` for any other text.
    pub fn parse(text: &str) -> Option<Rounding> {
        Some(match text {
            "rn" => Rounding::Rn,
            "rz" => Rounding::Rz,
            "rm" => Rounding::Rm,
            "rp" => Rounding::Rp,
            "rna" => Rounding::Rna,
            _ => return None,
        })
    }
}

/// A binary floating-point format narrower than f32. Tf32 is stored in the upper 19 of 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// IEEE 754 half precision: 5 exponent bits and 10 mantissa bits.
    F16,
    /// The upper half of an f32: 8 exponent bits and 7 mantissa bits.
    Bf16,
    /// 8 exponent bits and 10 mantissa bits.
    Tf32,
    /// 4 exponent bits and 3 mantissa bits, without infinities.
    E4m3,
    /// 5 exponent bits and 2 mantissa bits, the upper byte of an f16.
    E5m2,
}

/// Bit fields of a format: `sign | exponent | mantissa`, of which the mantissa starts at bit `shift`.
struct Layout {
    exponent_bits: u32,
    mantissa_bits: u32,
    shift: u32,
    /// Whether the format has infinities. Only e4m3 has none: patterns with its largest exponent are numbers, except
    /// that all ones is NaN.
    infinity: bool,
}

impl Format {
    #[inline]
    const fn layout(self) -> Layout {
        let (exponent_bits, mantissa_bits, shift, infinity) = match self {
            Format::F16 => (5, 10, 0, true),
            Format::Bf16 => (8, 7, 0, true),
            Format::Tf32 => (8, 10, 13, true),
            Format::E4m3 => (4, 3, 0, false),
            Format::E5m2 => (5, 2, 0, true),
        };
        Layout { exponent_bits, mantissa_bits, shift, infinity }
    }

    /// The NaN that conversions return: positive, with all value bits set.
    pub const fn nan(self) -> u32 {
        match self {
            Format::F16 | Format::Bf16 => 0x7fff,
            Format::Tf32 => 0x7fff_ffff,
            Format::E4m3 | Format::E5m2 => 0x7f,
        }
    }

    /// The exact value of `bits`.
    #[inline]
    pub fn widen(self, bits: u32) -> f32 {
        match self {
            Format::F16 => f16_to_f32(bits as u16),
            Format::Bf16 => bf16_to_f32(bits as u16),
            Format::Tf32 => f32::from_bits(bits & 0xffff_e000),
            // e5m2 is the upper byte of an f16.
            Format::E5m2 => f16_to_f32((bits as u16 & 0xff) << 8),
            Format::E4m3 => e4m3_to_f32(bits as u8),
        }
    }

    /// Rounds `x` once. If `x` is beyond the largest finite number, the result is infinity (NaN for e4m3) or the
    /// largest finite number, depending on the mode; with `satfinite` it is always the largest finite number, also for
    /// infinite `x`. NaN gives [`Format::nan`].
    #[inline]
    pub fn narrow(self, x: f64, rounding: Rounding, satfinite: bool) -> u32 {
        match (self, rounding, satfinite) {
            (Format::F16, Rounding::Rn, false) => f64_to_f16(x).into(),
            (Format::Bf16, Rounding::Rn, false) => f64_to_bf16(x).into(),
            (Format::F16 | Format::Bf16 | Format::Tf32 | Format::E4m3 | Format::E5m2, _, _) => {
                self.narrow_any(x, rounding, satfinite)
            }
        }
    }

    fn narrow_any(self, x: f64, rounding: Rounding, satfinite: bool) -> u32 {
        let l = self.layout();
        if x.is_nan() {
            return self.nan();
        }
        let negative = x.is_sign_negative();
        let sign = u32::from(negative) << (l.exponent_bits + l.mantissa_bits);
        let bias = (1i64 << (l.exponent_bits - 1)) - 1;
        let all_ones = (1u64 << (l.exponent_bits + l.mantissa_bits)) - 1;
        let infinity = all_ones & !((1u64 << l.mantissa_bits) - 1);
        // The largest finite number; the next pattern is infinity, or the NaN of e4m3.
        let largest = if l.infinity { infinity - 1 } else { all_ones - 1 };
        let magnitude = if x.is_infinite() {
            largest + 1
        } else {
            let exponent = (x.to_bits() >> 52 & 0x7ff) as i64;
            let fraction = x.to_bits() & ((1 << 52) - 1);
            // x = mantissa * 2^(scale - 52)
            let (mantissa, scale) =
                if exponent == 0 { (fraction, -1022) } else { (fraction | 1 << 52, exponent - 1023) };
            // Below the least normal exponent, the spacing of neighbouring numbers no longer decreases.
            let grid = scale.max(1 - bias);
            let dropped = (52 - i64::from(l.mantissa_bits) + (grid - scale)).min(62) as u32;
            let kept = round_shift(mantissa, dropped, negative, rounding);
            // A normal number keeps its leading bit, which adds one to the exponent field.
            let magnitude = kept + (((grid + bias - 1) as u64) << l.mantissa_bits);
            let overflow_to_largest = match rounding {
                Rounding::Rn | Rounding::Rna => false,
                Rounding::Rz => true,
                Rounding::Rm => !negative,
                Rounding::Rp => negative,
            };
            if magnitude > largest && overflow_to_largest { largest } else { magnitude.min(largest + 1) }
        };
        let magnitude = if satfinite { magnitude.min(largest) } else { magnitude };
        (sign | magnitude as u32) << l.shift
    }
}

/// `mantissa / 2^n` rounded to an integer; `n` is 1 to 63.
#[inline]
pub(super) fn round_shift(mantissa: u64, n: u32, negative: bool, rounding: Rounding) -> u64 {
    let (kept, rest, half) = (mantissa >> n, mantissa & ((1 << n) - 1), 1u64 << (n - 1));
    let up = match rounding {
        Rounding::Rn => rest > half || rest == half && kept & 1 == 1,
        Rounding::Rna => rest >= half,
        Rounding::Rz => false,
        Rounding::Rm => negative && rest != 0,
        Rounding::Rp => !negative && rest != 0,
    };
    kept + u64::from(up)
}

/// Converts the bits of an f16 exactly and without branches, so that a loop over lanes vectorises.
#[inline]
pub fn f16_to_f32(bits: u16) -> f32 {
    let bits = u32::from(bits);
    let magnitude = bits & 0x7fff;
    // The exponent biases of f16 and f32 differ by 112; the multiplication by 2^112 also normalises subnormal numbers.
    let scaled = (f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23)).to_bits();
    let special = if magnitude >= 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(scaled | special | (bits & 0x8000) << 16)
}

/// Converts the bits of a bf16 exactly; they are the upper half of the f32.
#[inline]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Converts the bits of an e4m3 exactly; 0x7f and 0xff are NaN.
#[inline]
pub fn e4m3_to_f32(bits: u8) -> f32 {
    let magnitude = u32::from(bits & 0x7f);
    let scaled = f32::from_bits(magnitude << 20) * f32::from_bits((127 + 120) << 23);
    let value = if magnitude == 0x7f { 0x7fff_ffff } else { scaled.to_bits() };
    f32::from_bits(value | u32::from(bits & 0x80) << 24)
}

/// `cvt.rn.f16.f32`: to nearest even, NaN to 0x7fff; branch-free.
#[inline]
pub fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // At 0.5, neighbouring f32 are as far apart as subnormal f16, so adding 0.5 rounds subnormal results in hardware.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let odd = magnitude >> 13 & 1;
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
    let finite = if magnitude < 113 << 23 { subnormal } else { normal };
    let limited = if magnitude >= 0x4780_0000 { 0x7c00 } else { finite };
    if magnitude > 0x7f80_0000 { 0x7fff } else { limited as u16 | sign }
}

/// `cvt.rn.bf16.f32`: to nearest even, NaN to 0x7fff; branch-free.
#[inline]
pub fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if x.is_nan() { 0x7fff } else { rounded as u16 }
}

/// The bits of the nearest f16, ties to even; 0x7fff for NaN. Branch-free.
#[inline]
pub fn f64_to_f16(x: f64) -> u16 {
    // Rounding to odd at the 24 bits of f32 leaves more than two extra bits (see `float`). Numbers below the normal
    // range of f32 round to zero in f16, so their lost bits do not matter.
    let bits = x.to_bits();
    let rest = bits & 0x1fff_ffff;
    let odd = (bits - rest) | u64::from(rest != 0) << 29;
    f32_to_f16(if x.is_nan() { f32::NAN } else { f64::from_bits(odd) as f32 })
}

/// The bits of the nearest bf16, ties to even; 0x7fff for NaN.
#[inline]
pub fn f64_to_bf16(x: f64) -> u16 {
    // bf16 has the exponent range of f32, so rounding to odd must also be correct for subnormal f32.
    let truncated = f64_to_f32(x, Rounding::Rz);
    let inexact = f64::from(truncated) != x && x.is_finite();
    f32_to_bf16(f32::from_bits(truncated.to_bits() | u32::from(inexact)))
}

/// `cvt.rna.tf32.f32`: to nearest, ties away from zero; the low 13 bits are 0. NaN gives 0x7fffffff.
#[inline]
pub fn f32_to_tf32(x: f32) -> u32 {
    let bits = x.to_bits();
    if x.is_nan() {
        0x7fff_ffff
    } else if x.is_infinite() {
        bits
    } else {
        (bits + 0x1000) & 0xffff_e000
    }
}

/// `.relu` of a conversion: negative values and -0 become +0, NaN stays the canonical NaN.
#[inline]
pub fn relu(x: f32) -> f32 {
    let x = canonical(x);
    if x.is_nan() || x > 0.0 { x } else { 0.0 }
}

#[cfg(test)]
mod tests;
