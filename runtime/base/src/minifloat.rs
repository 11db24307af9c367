//! f16, bf16, f8*, f4: bits  <=>  values, by one table of formats

use crate::DType;

/// Which codes do not stand for finite numbers, and therefore what a number beyond the largest finite one becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// The largest exponent encodes infinities and NaN, as in IEEE 754; a number that is too large becomes infinite.
    InfAndNan,
    /// A code whose bits below the sign are all 1 is NaN; a number that is too large becomes NaN.
    NanAllOnes,
    /// The code of -0 is NaN, and zero has no sign; a number that is too large becomes NaN.
    NanMinusZero,
    /// All codes are finite numbers: a number that is too large becomes the largest finite number of its sign, and NaN
    /// becomes -0.
    Finite,
}

/// A format with a sign, an exponent and a mantissa; a number is subnormal if all bits of its exponent are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Number of bits of the exponent.
    pub exponent_bits: u32,
    /// Number of bits of the mantissa, without the hidden bit.
    pub mantissa_bits: u32,
    /// Number that is subtracted from the exponent field of a normal number.
    pub bias: i32,
    /// Codes that do not stand for finite numbers.
    pub specials: Specials,
}

const fn row(exponent_bits: u32, mantissa_bits: u32, bias: i32, specials: Specials) -> Format {
    Format { exponent_bits, mantissa_bits, bias, specials }
}

/// The formats as defined by ONNX ("Float stored in 8 bits", IR.md) and, for f4e2m1, by OCP Microscaling Formats 1.0.
/// f8e8m0, a power of two without sign, zero and mantissa, has no row: see [`E8M0_MIN`].
static FORMATS: &[(DType, Format)] = &[
    (DType::F16, row(5, 10, 15, Specials::InfAndNan)),
    (DType::BF16, row(8, 7, 127, Specials::InfAndNan)),
    (DType::F8E4M3FN, row(4, 3, 7, Specials::NanAllOnes)),
    (DType::F8E4M3FNUZ, row(4, 3, 8, Specials::NanMinusZero)),
    (DType::F8E5M2, row(5, 2, 15, Specials::InfAndNan)),
    (DType::F8E5M2FNUZ, row(5, 2, 16, Specials::NanMinusZero)),
    (DType::F4E2M1, row(2, 1, 1, Specials::Finite)),
];

/// The smallest f8e8m0, code 0: 2^-127. Code 255 is NaN; any other code stands for 2^(code - 127).
pub const E8M0_MIN: f64 = 1.0 / (1u128 << 127) as f64;

/// The format of a type; `None` for types that are no narrow floats, and for f8e8m0.
pub fn format(dtype: DType) -> Option<&'static Format> {
    FORMATS.iter().find(|(t, _)| *t == dtype).map(|(_, format)| format)
}

/// The value of a code; `None` for types that are no narrow floats.
pub fn decode(dtype: DType, code: u32) -> Option<f64> {
    match (format(dtype), dtype) {
        (Some(format), _) => Some(format.decode(code)),
        (None, DType::F8E8M0) if code == 0xff => Some(f64::NAN),
        (None, DType::F8E8M0) => Some(E8M0_MIN * 2f64.powi(code as i32)),
        (None, _) => None,
    }
}

/// Returns the code of a value that the type represents exactly, such as a result of [`round`]; `None` for types that
/// are no narrow floats.
pub fn encode(dtype: DType, value: f64) -> Option<u32> {
    match (format(dtype), dtype) {
        (Some(format), _) => Some(format.encode(value)),
        (None, DType::F8E8M0) if value.is_nan() => Some(0xff),
        (None, DType::F8E8M0) => Some(exponent(value).saturating_add(127).clamp(0, 254) as u32),
        (None, _) => None,
    }
}

/// The value of the type that is nearest to `x`, ties to even; [`Specials`] says what values that are too large become.
/// For f8e8m0, ties are rounded up, and values out of range become NaN. For types that are no narrow floats, the result
/// is `x`.
pub fn round(dtype: DType, x: f64) -> f64 {
    match (format(dtype), dtype) {
        (Some(format), _) => format.round(x),
        (None, DType::F8E8M0) => round_to_power(x),
        (None, _) => x,
    }
}

fn round_to_power(x: f64) -> f64 {
    if !x.is_finite() || x < E8M0_MIN {
        return f64::NAN;
    }
    let power = 2f64.powi(exponent(x));
    let y = if x >= 1.5 * power { 2.0 * power } else { power };
    if y > 2f64.powi(127) { f64::NAN } else { y }
}

/// ⌊log2 |x|⌋ of a normal number.
fn exponent(x: f64) -> i32 {
    ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

impl Format {
    /// Returns the number of bits of a code, the sign included.
    pub fn bits(&self) -> u32 {
        1 + self.exponent_bits + self.mantissa_bits
    }

    /// A mask of all bits of a code except the sign.
    pub fn magnitude_mask(&self) -> u32 {
        (1 << (self.exponent_bits + self.mantissa_bits)) - 1
    }

    /// The code of +infinity, if there is one.
    pub fn infinity_code(&self) -> Option<u32> {
        let top = ((1 << self.exponent_bits) - 1) << self.mantissa_bits;
        (self.specials == Specials::InfAndNan).then_some(top)
    }

    /// Returns the code of NaN; the code of -0 for a format without NaN.
    pub fn nan_code(&self) -> u32 {
        match (self.infinity_code(), self.specials) {
            // A quiet NaN has the upper bit of the mantissa set.
            (Some(infinity), _) => infinity | 1 << (self.mantissa_bits - 1),
            (None, Specials::NanAllOnes) => self.magnitude_mask(),
            (None, _) => self.magnitude_mask() + 1,
        }
    }

    /// The largest finite number.
    pub fn max(&self) -> f64 {
        let code = match self.specials {
            Specials::InfAndNan => (((1 << self.exponent_bits) - 1) << self.mantissa_bits) - 1,
            Specials::NanAllOnes => self.magnitude_mask() - 1,
            Specials::NanMinusZero | Specials::Finite => self.magnitude_mask(),
        };
        self.plain(code)
    }

    /// The value of a code whose sign bit is 0 and that stands for a finite number.
    fn plain(&self, code: u32) -> f64 {
        let (e, m) = ((code >> self.mantissa_bits) as i32, code & ((1 << self.mantissa_bits) - 1));
        let fraction = m as f64 / (1u32 << self.mantissa_bits) as f64;
        match e {
            0 => fraction * 2f64.powi(1 - self.bias),
            _ => (1.0 + fraction) * 2f64.powi(e - self.bias),
        }
    }

    /// Returns the value of a code; bits beyond [`bits`](Format::bits) are ignored.
    pub fn decode(&self, code: u32) -> f64 {
        let magnitude = code & self.magnitude_mask();
        let negative = code >> (self.bits() - 1) & 1 == 1;
        let size = match self.specials {
            Specials::InfAndNan => match self.infinity_code() {
                Some(infinity) if magnitude == infinity => f64::INFINITY,
                Some(infinity) if magnitude > infinity => f64::NAN,
                Some(_) | None => self.plain(magnitude),
            },
            Specials::NanAllOnes if magnitude == self.magnitude_mask() => f64::NAN,
            Specials::NanMinusZero if magnitude == 0 && negative => f64::NAN,
            Specials::NanAllOnes | Specials::NanMinusZero | Specials::Finite => self.plain(magnitude),
        };
        if negative { -size } else { size }
    }

    fn encode(&self, value: f64) -> u32 {
        let sign = u32::from(value.is_sign_negative()) << (self.bits() - 1);
        if value.is_nan() {
            return self.nan_code();
        }
        match self.infinity_code() {
            Some(infinity) if value.is_infinite() => return sign | infinity,
            Some(_) | None => {}
        }
        let e = if value == 0.0 { 1 - self.bias } else { exponent(value).max(1 - self.bias) };
        // `units` is the mantissa as an integer. In a normal number it includes the hidden bit, which increments the
        // exponent field by one.
        let units = (value.abs() / 2f64.powi(e - self.mantissa_bits as i32)) as u32;
        sign | ((((e + self.bias - 1) as u32) << self.mantissa_bits) + units)
    }

    fn round(&self, x: f64) -> f64 {
        let finite = self.specials == Specials::Finite;
        if x.is_nan() {
            return if finite { -0.0 } else { x };
        }
        let unit = 2f64.powi(exponent(x).max(1 - self.bias) - self.mantissa_bits as i32);
        let y = if x.is_infinite() { x } else { (x / unit).round_ties_even() * unit };
        let max = self.max();
        match self.specials {
            _ if y == 0.0 => {
                if self.specials == Specials::NanMinusZero {
                    0.0
                } else {
                    y
                }
            }
            _ if y.abs() <= max => y,
            Specials::InfAndNan => f64::INFINITY.copysign(x),
            Specials::NanAllOnes | Specials::NanMinusZero => f64::NAN,
            Specials::Finite => max.copysign(x),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: [DType; 6] =
        [DType::F8E4M3FN, DType::F8E4M3FNUZ, DType::F8E5M2, DType::F8E5M2FNUZ, DType::F4E2M1, DType::F8E8M0];

    #[test]
    fn every_code_is_its_own_nearest_value() {
        for dtype in SMALL.into_iter().chain([DType::F16, DType::BF16]) {
            for code in 0..1u32 << dtype.bits() {
                let value = decode(dtype, code).unwrap();
                let back = round(dtype, value);
                assert!(back.to_bits() == value.to_bits() || back.is_nan() && value.is_nan(), "{dtype} {code:#x}");
                if !value.is_nan() {
                    assert_eq!(encode(dtype, value), Some(code), "{dtype} {code:#x}");
                }
            }
        }
    }

    #[test]
    fn halves_agree_with_the_half_crate() {
        for code in 0..=u16::MAX {
            let (h, b) = (half::f16::from_bits(code).to_f64(), half::bf16::from_bits(code).to_f64());
            for (x, t) in [(h, DType::F16), (b, DType::BF16)] {
                let y = decode(t, code.into()).unwrap();
                assert!(y.to_bits() == x.to_bits() || y.is_nan() && x.is_nan(), "{t} {code:#x}");
            }
        }
    }

    #[test]
    fn the_largest_numbers_are_the_documented_ones() {
        let max = |t: DType| format(t).unwrap().max();
        assert_eq!((max(DType::F16), max(DType::BF16)), (65504.0, half::bf16::MAX.to_f64()));
        assert_eq!((max(DType::F8E4M3FN), max(DType::F8E4M3FNUZ)), (448.0, 240.0));
        assert_eq!((max(DType::F8E5M2), max(DType::F8E5M2FNUZ), max(DType::F4E2M1)), (57344.0, 57344.0, 6.0));
    }

    #[test]
    fn what_is_too_large_or_nan_becomes_what_the_format_has() {
        let of = |t: DType, x: f64| encode(t, round(t, x)).unwrap();
        let all = |x: f64| SMALL.map(|t| of(t, x));
        assert_eq!(all(f64::NAN), [0x7f, 0x80, 0x7e, 0x80, 0x08, 0xff]);
        assert_eq!(all(f64::INFINITY), [0x7f, 0x80, 0x7c, 0x80, 0x07, 0xff]);
        assert_eq!(all(1e30)[..5], [0x7f, 0x80, 0x7c, 0x80, 0x07]);
        assert_eq!(all(-0.0)[..5], [0x80, 0x00, 0x80, 0x00, 0x08]);
        // 464 and 61440 are half way between the largest number and the next multiple of its unit; a tie goes to the
        // even one of the two.
        assert_eq!((of(DType::F8E4M3FN, 464.0), of(DType::F8E4M3FN, 465.0)), (0x7e, 0x7f));
        assert_eq!((of(DType::F8E5M2, 61439.0), of(DType::F8E5M2, 61440.0)), (0x7b, 0x7c));
        assert_eq!((of(DType::F4E2M1, 2.5), of(DType::F4E2M1, 3.5)), (0x4, 0x6));
    }

    #[test]
    fn powers_of_two_take_ties_up() {
        let of = |x: f64| encode(DType::F8E8M0, round(DType::F8E8M0, x)).unwrap();
        assert_eq!([of(1.0), of(1.49), of(1.5), of(3.0), of(6.0)], [127, 127, 128, 129, 130]);
        assert_eq!([of(E8M0_MIN), of(1.5 * E8M0_MIN), of(2f64.powi(127))], [0, 1, 254]);
        for x in [0.0, -1.0, 0.9 * E8M0_MIN, 1.5 * 2f64.powi(127)] {
            assert_eq!(of(x), 0xff, "{x:e}");
        }
    }
}
