//! cvt between floats and integers, and float to float with integer rounding

use super::format::Rounding;

/// `.rni`, `.rzi`, `.rmi`, `.rpi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntRounding {
    Rni,
    Rzi,
    Rmi,
    Rpi,
}

/// `cvt.rXi.{u,s}{8..64}.{f16,f32,f64}`: clamps to the range of the destination. NaN gives 0, except from f64 or to 64
/// bits, where it gives `1 << (width - 1)`.
pub fn float_to_int(x: f64, rounding: IntRounding, width: u32, signed: bool, from_f64: bool) -> u64 {
    todo!("{x} {rounding:?} {width} {signed} {from_f64}")
}
/// `cvt.{rn,rz,rm,rp}.f32.{u,s}*`: `x` holds any integer source.
pub fn int_to_f32(x: i128, rounding: Rounding) -> f32 {
    todo!("{x} {rounding:?}")
}
pub fn int_to_f64(x: i128, rounding: Rounding) -> f64 {
    todo!("{x} {rounding:?}")
}
/// To f16, bf16: bits.
pub fn int_to_format(x: i128, format: super::format::Format, rounding: Rounding) -> u32 {
    todo!("{x} {format:?} {rounding:?}")
}
/// `cvt.rXi.f32.f32` and the other float to same-float conversions with integer rounding; keeps the sign of zero.
pub fn round_f64(x: f64, rounding: IntRounding) -> f64 {
    todo!("{x} {rounding:?}")
}
pub fn round_f32(x: f32, rounding: IntRounding) -> f32 {
    todo!("{x} {rounding:?}")
}
