//! cvt between floats and integers, and from floats to integral floats

use super::float::{canonical, f64_to_f32};
use super::format::{Format, Rounding};

/// `.rni`, `.rzi`, `.rmi`, `.rpi`: how a float becomes integral.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntRounding {
    /// Rounds to nearest, ties to even.
    Rni,
    /// Rounds toward zero.
    Rzi,
    /// Rounds toward minus infinity.
    Rmi,
    /// Rounds toward plus infinity.
    Rpi,
}

impl IntRounding {
    /// Parses a modifier without its dot, such as `rni`; `None` for any other text.
    pub fn parse(text: &str) -> Option<IntRounding> {
        Some(match text {
            "rni" => IntRounding::Rni,
            "rzi" => IntRounding::Rzi,
            "rmi" => IntRounding::Rmi,
            "rpi" => IntRounding::Rpi,
            _ => return None,
        })
    }
}

/// `cvt.rXi.{u,s}{8..64}.{f16,bf16,f32,f64}`: clamps to the `width` bits of the destination; signed results are
/// sign-extended to 64 bits. NaN gives 0, or `1 << (width - 1)` if the source is f64 or the destination has 64 bits
/// (PTX ISA, "cvt").
#[inline]
pub fn float_to_int(x: f64, rounding: IntRounding, width: u32, signed: bool, from_f64: bool) -> u64 {
    if x.is_nan() {
        return match (from_f64 || width == 64, signed) {
            (false, _) => 0,
            (true, false) => 1 << (width - 1),
            (true, true) => u64::MAX << (width - 1),
        };
    }
    let integral = round_f64(x, rounding);
    // Rust's casts saturate.
    if signed {
        let largest = i64::MAX >> (64 - width);
        (integral as i64).clamp(-largest - 1, largest) as u64
    } else {
        (integral as u64).min(u64::MAX >> (64 - width))
    }
}

/// `cvt.{rn,rz,rm,rp}.f32.{u,s}{8..64}`; `x` is any integer of up to 64 bits, signed or not.
#[inline]
pub fn int_to_f32(x: i128, rounding: Rounding) -> f32 {
    match (rounding, i64::try_from(x)) {
        (Rounding::Rn, Ok(x)) => x as f32,
        (Rounding::Rn | Rounding::Rz | Rounding::Rm | Rounding::Rp | Rounding::Rna, _) => {
            f64_to_f32(int_to_f64_odd(x), rounding)
        }
    }
}

/// `cvt.{rn,rz,rm,rp}.f64.{u,s}{8..64}`.
#[inline]
pub fn int_to_f64(x: i128, rounding: Rounding) -> f64 {
    let nearest = x as f64;
    let back = nearest as i128;
    match rounding {
        Rounding::Rn | Rounding::Rna => nearest,
        Rounding::Rz => f64::from_bits(nearest.to_bits() - u64::from(back.abs() > x.abs())),
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

/// `cvt.{rn,rz,rm,rp}.{f16,bf16}.{u,s}{8..64}`: the bits of the result.
#[inline]
pub fn int_to_format(x: i128, format: Format, rounding: Rounding) -> u32 {
    format.narrow(int_to_f64_odd(x), rounding, false)
}

/// `cvt.rXi.f64.f64`: rounds to an integral value; keeps infinities, NaN and the sign of zero.
#[inline]
pub fn round_f64(x: f64, rounding: IntRounding) -> f64 {
    match rounding {
        IntRounding::Rni => x.round_ties_even(),
        IntRounding::Rzi => x.trunc(),
        IntRounding::Rmi => x.floor(),
        IntRounding::Rpi => x.ceil(),
    }
}

/// `cvt.rXi.f32.f32`. The function also serves f16 and bf16: widening the operand is exact, and so is narrowing the
/// integral result.
#[inline]
pub fn round_f32(x: f32, rounding: IntRounding) -> f32 {
    canonical(match rounding {
        IntRounding::Rni => x.round_ties_even(),
        IntRounding::Rzi => x.trunc(),
        IntRounding::Rmi => x.floor(),
        IntRounding::Rpi => x.ceil(),
    })
}

/// Returns `x` rounded to odd, so that a second rounding to fewer bits gives the correctly rounded result.
#[inline]
fn int_to_f64_odd(x: i128) -> f64 {
    let truncated = int_to_f64(x, Rounding::Rz);
    f64::from_bits(truncated.to_bits() | u64::from(truncated as i128 != x))
}

#[cfg(test)]
mod tests;
