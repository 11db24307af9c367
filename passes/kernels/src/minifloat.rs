//! f8*, f4 in a byte  <=>  f32, and rounding of f32 to them: bit operations derived from each format's description
//!
//! A code without its sign is shifted until its mantissa fills the high bits of an f32's mantissa; that f32 times a
//! power of two is the absolute value, also for subnormal numbers. The product is exact.

use super::asm::{Asm, Bin, Cast, CmpF, CmpI, Elem, Un, Val};
use super::math::copysign;
use sardonyx_base::DType;
use sardonyx_base::minifloat::{E8M0_MIN, Format, Specials, format};

/// Returns whether a type is a float of at most 8 bits.
pub fn is_byte(t: DType) -> bool {
    t.is_float() && t.bits() <= 8
}

/// Returns the format of a signed 8-bit float; `None` for any other type.
pub fn small(t: DType) -> Option<&'static Format> {
    format(t).filter(|format| format.bits() == 8)
}

/// Returns the factor by which an f32 whose exponent and mantissa hold the shifted bits of a code must be multiplied to
/// give the absolute value of the code.
fn scale(format: &Format) -> f64 {
    2f64.powi(127 - format.bias)
}

pub fn decode(asm: &mut impl Asm, code: Val, t: DType) -> Val {
    let bits = asm.cast(Cast::ExtUI, code, Elem::I32);
    let Some(format) = format(t) else { return decode_power(asm, bits) };
    let (sign_at, up) = (format.bits() as i64 - 1, 23 - format.mantissa_bits as i64);
    let magnitude_mask = asm.int(format.magnitude_mask().into(), bits.ty);
    let magnitude = asm.bin(Bin::AndI, bits, magnitude_mask);
    let up = asm.int(up, bits.ty);
    let small = asm.bin(Bin::ShLI, magnitude, up);
    let small = asm.cast(Cast::Bitcast, small, Elem::F32);
    let factor = asm.float(scale(format), small.ty);
    let mut size = asm.bin(Bin::MulF, small, factor);
    let nan = asm.float(f64::NAN, size.ty);
    match (format.specials, format.infinity_code()) {
        (_, Some(infinity)) => {
            let (top, inf) = (asm.int(infinity.into(), bits.ty), asm.float(f64::INFINITY, size.ty));
            let is_inf = asm.cmpi(CmpI::Eq, magnitude, top);
            size = asm.select(is_inf, inf, size);
            let is_nan = asm.cmpi(CmpI::Ugt, magnitude, top);
            size = asm.select(is_nan, nan, size);
        }
        (Specials::NanAllOnes, None) => {
            let is_nan = asm.cmpi(CmpI::Eq, magnitude, magnitude_mask);
            size = asm.select(is_nan, nan, size);
        }
        (Specials::NanMinusZero, None) => {
            let code = asm.int(format.nan_code().into(), bits.ty);
            let is_nan = asm.cmpi(CmpI::Eq, bits, code);
            size = asm.select(is_nan, nan, size);
        }
        (Specials::Finite | Specials::InfAndNan, None) => {}
    }
    let (one, sign_at, top) = (asm.int(1, bits.ty), asm.int(sign_at, bits.ty), asm.int(31, bits.ty));
    let sign = asm.bin(Bin::ShRUI, bits, sign_at);
    let sign = asm.bin(Bin::AndI, sign, one);
    let sign = asm.bin(Bin::ShLI, sign, top);
    let size_bits = asm.cast(Cast::Bitcast, size, Elem::I32);
    let whole = asm.bin(Bin::OrI, size_bits, sign);
    asm.cast(Cast::Bitcast, whole, Elem::F32)
}

/// Decodes the code that begins at bit `first` of each lane. Codes of NaN and infinity give an arbitrary number.
///
/// The sign of the code becomes the sign of an f32; the mantissa of the code fills the high bits of the f32's mantissa,
/// and its exponent the low bits of the f32's exponent. Multiplying by a power of two gives the value, also for
/// subnormal codes.
pub fn decode_number(asm: &mut impl Asm, lanes: Val, first: i64, format: &Format) -> Val {
    let bits = format.bits() as i64;
    let up = asm.int(32 - bits - first, lanes.ty);
    let high = asm.bin(Bin::ShLI, lanes, up);
    let down = asm.int(32 - bits - (23 - format.mantissa_bits as i64), lanes.ty);
    let places = asm.bin(Bin::ShRSI, high, down);
    let mask = 1 << 31 | format.magnitude_mask() << (23 - format.mantissa_bits);
    let mask = asm.int(mask.cast_signed().into(), lanes.ty);
    let small = asm.bin(Bin::AndI, places, mask);
    let small = asm.cast(Cast::Bitcast, small, Elem::F32);
    let factor = asm.float(scale(format), small.ty);
    asm.bin(Bin::MulF, small, factor)
}

/// Decodes f8e8m0: a code is the exponent field of an f32, except for the codes 0 (2^-127) and 255 (NaN).
fn decode_power(asm: &mut impl Asm, bits: Val) -> Val {
    let (zero, last, at) = (asm.zero(bits.ty), asm.int(255, bits.ty), asm.int(23, bits.ty));
    let power = asm.bin(Bin::ShLI, bits, at);
    let power = asm.cast(Cast::Bitcast, power, Elem::F32);
    let (least, nan) = (asm.float(E8M0_MIN, power.ty), asm.float(f64::NAN, power.ty));
    let is_least = asm.cmpi(CmpI::Eq, bits, zero);
    let power = asm.select(is_least, least, power);
    let is_nan = asm.cmpi(CmpI::Eq, bits, last);
    asm.select(is_nan, nan, power)
}

/// Returns the code, in a byte, of an f32 that the type represents exactly.
pub fn encode(asm: &mut impl Asm, v: Val, t: DType) -> Val {
    let Some(format) = format(t) else { return encode_power(asm, v) };
    let size = asm.un(Un::AbsF, v);
    let factor = asm.float(1.0 / scale(format), v.ty);
    let small = asm.bin(Bin::MulF, size, factor);
    let small = asm.cast(Cast::Bitcast, small, Elem::I32);
    let down = asm.int(23 - format.mantissa_bits as i64, small.ty);
    let mut magnitude = asm.bin(Bin::ShRUI, small, down);
    if let Some(infinity) = format.infinity_code() {
        let (inf, code) = (asm.float(f64::INFINITY, v.ty), asm.int(infinity.into(), small.ty));
        let is_inf = asm.cmpf(CmpF::Oeq, size, inf);
        magnitude = asm.select(is_inf, code, magnitude);
    }
    let bits = asm.cast(Cast::Bitcast, v, Elem::I32);
    let (top, sign_at) = (asm.int(31, bits.ty), asm.int(format.bits() as i64 - 1, bits.ty));
    let sign = asm.bin(Bin::ShRUI, bits, top);
    let sign = asm.bin(Bin::ShLI, sign, sign_at);
    let code = asm.bin(Bin::OrI, magnitude, sign);
    let nan_code = asm.int(format.nan_code().into(), bits.ty);
    let is_nan = asm.cmpf(CmpF::Uno, v, v);
    let code = asm.select(is_nan, nan_code, code);
    asm.cast(Cast::TruncI, code, Elem::I8)
}

fn encode_power(asm: &mut impl Asm, v: Val) -> Val {
    let bits = asm.cast(Cast::Bitcast, v, Elem::I32);
    let (at, last) = (asm.int(23, bits.ty), asm.int(255, bits.ty));
    let exponent = asm.bin(Bin::ShRUI, bits, at);
    let is_nan = asm.cmpf(CmpF::Uno, v, v);
    let code = asm.select(is_nan, last, exponent);
    asm.cast(Cast::TruncI, code, Elem::I8)
}

/// Rounds to the nearest value of the type, like `minifloat::round` of the runtime.
pub fn rounded(asm: &mut impl Asm, v: Val, t: DType) -> Val {
    let Some(format) = format(t) else { return rounded_to_power(asm, v) };
    // This limit is beyond the range of every format, yet small enough that the sum below does not overflow.
    let far = asm.float(2f64.powi(20), v.ty);
    let size = asm.un(Un::AbsF, v);
    let is_far = asm.cmpf(CmpF::Ogt, size, far);
    let near = asm.select(is_far, far, size);
    // Adding and subtracting a power of two rounds to the type, if the power's last mantissa bit has the weight of the
    // type's last bit at this magnitude.
    let bits = asm.cast(Cast::Bitcast, near, Elem::I32);
    let (at, least) = (asm.int(23, bits.ty), asm.int(i64::from(128 - format.bias), bits.ty));
    let exponent = asm.bin(Bin::ShRUI, bits, at);
    let exponent = asm.bin(Bin::MaxUI, exponent, least);
    let more = asm.int(23 - format.mantissa_bits as i64, bits.ty);
    let exponent = asm.bin(Bin::AddI, exponent, more);
    let power = asm.bin(Bin::ShLI, exponent, at);
    let power = asm.cast(Cast::Bitcast, power, Elem::F32);
    let sum = asm.bin(Bin::AddF, near, power);
    let size = asm.bin(Bin::SubF, sum, power);
    let max = asm.float(format.max(), v.ty);
    let too_large = asm.cmpf(CmpF::Ogt, size, max);
    let beyond = match format.specials {
        Specials::InfAndNan => asm.float(f64::INFINITY, v.ty),
        Specials::NanAllOnes | Specials::NanMinusZero => asm.float(f64::NAN, v.ty),
        Specials::Finite => max,
    };
    let size = asm.select(too_large, beyond, size);
    let mut y = copysign(asm, size, v);
    let zero = asm.zero(v.ty);
    if format.specials == Specials::NanMinusZero {
        let is_zero = asm.cmpf(CmpF::Oeq, size, zero);
        y = asm.select(is_zero, zero, y);
    }
    let of_nan = match format.specials {
        Specials::Finite => asm.float(-0.0, v.ty),
        Specials::InfAndNan | Specials::NanAllOnes | Specials::NanMinusZero => v,
    };
    let is_nan = asm.cmpf(CmpF::Uno, v, v);
    asm.select(is_nan, of_nan, y)
}

fn rounded_to_power(asm: &mut impl Asm, v: Val) -> Val {
    let (least, normal) = (asm.float(E8M0_MIN, v.ty), asm.float(2.0 * E8M0_MIN, v.ty));
    let bits = asm.cast(Cast::Bitcast, v, Elem::I32);
    let (half, exponents) = (asm.int(1 << 22, bits.ty), asm.int(0xFF << 23, bits.ty));
    let up = asm.bin(Bin::AddI, bits, half);
    let power = asm.bin(Bin::AndI, up, exponents);
    let power = asm.cast(Cast::Bitcast, power, Elem::F32);
    // The smallest power, 2^-127, is a subnormal f32, whose exponent field is 0.
    let (middle, inf) = (asm.float(1.5 * E8M0_MIN, v.ty), asm.float(f64::INFINITY, v.ty));
    let below = asm.cmpf(CmpF::Olt, v, middle);
    let first = asm.select(below, least, normal);
    let is_first = asm.cmpf(CmpF::Olt, v, normal);
    let power = asm.select(is_first, first, power);
    let there = asm.cmpf(CmpF::Oge, v, least);
    let fits = asm.cmpf(CmpF::Olt, power, inf);
    let there = asm.bin(Bin::AndI, there, fits);
    let nan = asm.float(f64::NAN, v.ty);
    asm.select(there, power, nan)
}
