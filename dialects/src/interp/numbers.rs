//! Tensor  <=>  Vec<f64> or Vec<i128>: reads elements, and rounds or wraps them to an element type once

use crate::scalar::Conversion;
use half::{bf16, f16};
use sardonyx_base::packed::{self, held};
use sardonyx_base::tensor::Element;
use sardonyx_base::{DType, Error, Result, Tensor, minifloat};

/// Elements as exact numbers. Bools are the integers 0 and 1.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    Float(Vec<f64>),
    Int(Vec<i128>),
}

/// Refuses an element type that the interpreter cannot compute with. Errors: E0107.
pub fn check_dtype(dtype: DType) -> Result<()> {
    if is_float(dtype) || int_range(dtype).is_some() {
        return Ok(());
    }
    Err(Error::user("E0107", format!("elements of type {dtype} cannot be computed with"))
        .help("supported are floats, integers and bool"))
}

pub fn is_float(dtype: DType) -> bool {
    dtype.is_float()
}

/// The least and greatest value of an integer type (or bool), or `None` for the others.
pub fn int_range(dtype: DType) -> Option<(i128, i128)> {
    let supported = dtype == DType::Bool || dtype.is_int();
    supported.then(|| match dtype {
        DType::Bool => (0, 1),
        _ if dtype.is_signed_int() => (-(1 << (dtype.bits() - 1)), (1 << (dtype.bits() - 1)) - 1),
        _ => (0, (1 << dtype.bits()) - 1),
    })
}

impl Numbers {
    pub fn read(tensor: &Tensor) -> Result<Numbers> {
        fn all<T: Element, N>(tensor: &Tensor, number: impl Fn(T) -> N) -> Vec<N> {
            tensor.bytes().chunks_exact(T::BYTES).map(|at| number(T::read(at))).collect()
        }
        Ok(match tensor.dtype() {
            DType::F64 => Numbers::Float(all(tensor, |x: f64| x)),
            DType::F32 => Numbers::Float(all(tensor, |x: f32| x.into())),
            DType::F16 => Numbers::Float(all(tensor, f16::to_f64)),
            DType::BF16 => Numbers::Float(all(tensor, bf16::to_f64)),
            DType::I8 => Numbers::Int(all(tensor, |x: i8| x.into())),
            DType::I16 => Numbers::Int(all(tensor, |x: i16| x.into())),
            DType::I32 => Numbers::Int(all(tensor, |x: i32| x.into())),
            DType::I64 => Numbers::Int(all(tensor, |x: i64| x.into())),
            DType::U8 => Numbers::Int(all(tensor, |x: u8| x.into())),
            DType::U16 => Numbers::Int(all(tensor, |x: u16| x.into())),
            DType::U32 => Numbers::Int(all(tensor, |x: u32| x.into())),
            DType::U64 => Numbers::Int(all(tensor, |x: u64| x.into())),
            DType::Bool => Numbers::Int(all(tensor, |x: bool| x.into())),
            t if t.is_int() => Numbers::Int((0..tensor.len()).map(|i| tensor.get_i64(i).unwrap_or(0).into()).collect()),
            t if t.is_float() => {
                Numbers::Float((0..tensor.len()).map(|i| tensor.get_f64(i).unwrap_or(f64::NAN)).collect())
            }
            other => {
                return Err(check_dtype(other).err().unwrap_or_else(|| Error::defect(format!("{other} is not read"))));
            }
        })
    }

    /// Writes values that are already representable in the type (see [`Numbers::rounded`]) as a tensor.
    pub fn write(self, dtype: DType, dims: Vec<usize>) -> Result<Tensor> {
        fn all<N, T: Element>(dims: Vec<usize>, from: Vec<N>, element: impl Fn(N) -> T) -> Tensor {
            Tensor::from_vec(dims, from.into_iter().map(element).collect())
        }
        if sardonyx_base::tensor::element_count(&dims) != Some(self.len()) {
            return Err(Error::defect(format!("{} elements do not fill {dims:?}", self.len())));
        }
        Ok(match (self, dtype) {
            (Numbers::Float(x), DType::F64) => Tensor::from_vec(dims, x),
            (Numbers::Float(x), DType::F32) => all(dims, x, |x| x as f32),
            (Numbers::Float(x), DType::F16) => all(dims, x, f16::from_f64),
            (Numbers::Float(x), DType::BF16) => all(dims, x, bf16::from_f64),
            (Numbers::Int(x), DType::I8) => all(dims, x, |x| x as i8),
            (Numbers::Int(x), DType::I16) => all(dims, x, |x| x as i16),
            (Numbers::Int(x), DType::I32) => all(dims, x, |x| x as i32),
            (Numbers::Int(x), DType::I64) => all(dims, x, |x| x as i64),
            (Numbers::Int(x), DType::U8) => all(dims, x, |x| x as u8),
            (Numbers::Int(x), DType::U16) => all(dims, x, |x| x as u16),
            (Numbers::Int(x), DType::U32) => all(dims, x, |x| x as u32),
            (Numbers::Int(x), DType::U64) => all(dims, x, |x| x as u64),
            (Numbers::Int(x), DType::Bool) => all(dims, x, |x| x != 0),
            (Numbers::Int(x), t) if t.is_int() => of_bytes(t, dims, x.into_iter().map(|x| held(t, x as u8)).collect())?,
            (Numbers::Float(x), t) if t.is_float() => {
                of_bytes(t, dims, x.into_iter().map(|x| minifloat::encode(t, x).unwrap_or(0) as u8).collect())?
            }
            (_, other) => return Err(Error::defect(format!("these values are not of type {other}"))),
        })
    }

    pub fn len(&self) -> usize {
        match self {
            Numbers::Float(x) => x.len(),
            Numbers::Int(x) => x.len(),
        }
    }

    /// Zeros in the representation of the type: f64 or i128.
    pub fn zeros(dtype: DType, n: usize) -> Numbers {
        if is_float(dtype) { Numbers::Float(vec![0.0; n]) } else { Numbers::Int(vec![0; n]) }
    }

    /// The nearest values of the type (floats, ties to even) or the values modulo its range (integers).
    pub fn rounded(mut self, dtype: DType) -> Numbers {
        match &mut self {
            Numbers::Float(x) => match dtype {
                DType::F64 => {}
                DType::F32 => x.iter_mut().for_each(|x| *x = (*x as f32).into()),
                t => x.iter_mut().for_each(|x| *x = minifloat::round(t, *x)),
            },
            Numbers::Int(x) => {
                if let Some((lo, hi)) = int_range(dtype) {
                    x.iter_mut().for_each(|x| *x = wrap(*x, lo, hi));
                }
            }
        }
        self
    }

    /// Implements `Op::Convert`.
    pub fn converted_as(self, how: Conversion, from: DType, to: DType) -> Result<Numbers> {
        how.check(from, to).map_err(Error::defect)?;
        match how {
            Conversion::Value => Ok(self.converted(to)),
            Conversion::Bits => self.reinterpreted(from, to),
        }
    }

    /// Reinterprets the bits of the values as another type of the same width.
    fn reinterpreted(self, from: DType, to: DType) -> Result<Numbers> {
        let n = self.len();
        let bits = self.write(from, vec![n])?;
        Numbers::read(&Tensor::new(to, vec![n], packed::normalise(to, bits.bytes().clone()))?)
    }

    /// Converts the values to another type, rounded once.
    pub fn converted(self, to: DType) -> Numbers {
        let out = match (self, int_range(to)) {
            (Numbers::Float(x), None) => Numbers::Float(x),
            (Numbers::Float(x), Some(_)) if to == DType::Bool => {
                Numbers::Int(x.into_iter().map(|x| (x != 0.0) as i128).collect())
            }
            // `as` truncates, and gives 0 for NaN.
            (Numbers::Float(x), Some((lo, hi))) => {
                Numbers::Int(x.into_iter().map(|x| (x as i128).clamp(lo, hi)).collect())
            }
            (Numbers::Int(x), Some(_)) if to == DType::Bool => {
                Numbers::Int(x.into_iter().map(|x| (x != 0) as i128).collect())
            }
            (Numbers::Int(x), Some(_)) => Numbers::Int(x),
            (Numbers::Int(x), None) if to == DType::F64 => Numbers::Float(x.into_iter().map(|x| x as f64).collect()),
            (Numbers::Int(x), None) => Numbers::Float(x.into_iter().map(to_odd).collect()),
        };
        out.rounded(to)
    }
}

/// `x` modulo the number of values in `lo..=hi`, a power of two.
fn wrap(x: i128, lo: i128, hi: i128) -> i128 {
    if (lo..=hi).contains(&x) { x } else { lo + x.wrapping_sub(lo).rem_euclid(hi - lo + 1) }
}

fn of_bytes(dtype: DType, dims: Vec<usize>, bytes: Vec<u8>) -> Result<Tensor> {
    Tensor::new(dtype, dims, bytes.into())
}

/// Converts to f64, rounding inexact values to the neighbour with an odd last bit: rounding the result again to fewer
/// bits gives the same as rounding the integer once.
fn to_odd(x: i128) -> f64 {
    let magnitude = x.unsigned_abs();
    let dropped = (128 - magnitude.leading_zeros()).saturating_sub(53);
    let sticky = magnitude & ((1 << dropped) - 1) != 0;
    let kept = (magnitude >> dropped) | sticky as u128;
    let y = kept as f64 * 2f64.powi(dropped as i32);
    if x < 0 { -y } else { y }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_round_once_to_nearest_even() {
        let to = |x: f64, t: DType| match Numbers::Float(vec![x]).rounded(t) {
            Numbers::Float(v) => v[0],
            Numbers::Int(_) => unreachable!("floats stay floats"),
        };
        assert_eq!(to(1.0 + 2f64.powi(-11), DType::F16), 1.0);
        // Rounding to f32 first would drop the 2^-40 and then see a tie.
        assert_eq!(to(1.0 + 2f64.powi(-11) + 2f64.powi(-40), DType::F16), 1.0 + 2f64.powi(-10));
        assert_eq!(to(65519.9, DType::F16), 65504.0);
        assert_eq!(to(-65520.0, DType::F16), f64::NEG_INFINITY);
        assert_eq!(to(2f64.powi(-25), DType::F16), 0.0);
        assert_eq!(to(1.5 * 2f64.powi(-24), DType::F16), 2f64.powi(-23));
        assert_eq!(to(1.0 + 2f64.powi(-8) + 2f64.powi(-50), DType::BF16), 1.0 + 2f64.powi(-7));
        assert_eq!(to(3.4e38, DType::BF16), f64::INFINITY);
        assert_eq!(to(2f64.powi(-133), DType::BF16), 2f64.powi(-133));
        assert_eq!(to(0.1, DType::F32), 0.1f32 as f64);
        assert!(to(f64::NAN, DType::F16).is_nan());
        assert!(to(-0.0, DType::F16).is_sign_negative());
    }

    #[test]
    fn rounded_halves_agree_with_the_half_crate_on_every_value() {
        for bits in 0..=u16::MAX {
            let (h, b) = (f16::from_bits(bits).to_f64(), bf16::from_bits(bits).to_f64());
            for (x, t) in [(h, DType::F16), (b, DType::BF16)] {
                let back = Numbers::Float(vec![x]).rounded(t);
                assert!(matches!(&back, Numbers::Float(v) if v[0] == x || x.is_nan()), "{x} {back:?}");
            }
        }
    }

    #[test]
    fn integers_wrap_in_their_width() {
        let to = |x: i128, t: DType| Numbers::Int(vec![x]).rounded(t);
        assert_eq!(to(128, DType::I8), Numbers::Int(vec![-128]));
        assert_eq!(to(-1, DType::U64), Numbers::Int(vec![u64::MAX as i128]));
        assert_eq!(to(1 << 63, DType::I64), Numbers::Int(vec![i64::MIN as i128]));
        assert_eq!(to(i128::MAX, DType::U8), Numbers::Int(vec![255]));
        assert_eq!(to(i128::MIN, DType::I16), Numbers::Int(vec![0]));
    }

    #[test]
    fn conversions_saturate_truncate_and_round_once() {
        let floats = Numbers::Float(vec![-1.9, 1e30, f64::NEG_INFINITY, f64::NAN, 0.5]);
        assert_eq!(
            floats.clone().converted(DType::I32),
            Numbers::Int(vec![-1, i32::MAX as i128, i32::MIN as i128, 0, 0])
        );
        assert_eq!(floats.clone().converted(DType::U8), Numbers::Int(vec![0, 255, 0, 0, 0]));
        assert_eq!(floats.converted(DType::Bool), Numbers::Int(vec![1, 1, 1, 1, 1]));
        assert_eq!(Numbers::Int(vec![256, -1]).converted(DType::U8), Numbers::Int(vec![0, 255]));
        assert_eq!(Numbers::Int(vec![256, 0]).converted(DType::Bool), Numbers::Int(vec![1, 0]));
        // 2^62 + 2^54 is half way between two bf16; the last 1 decides, and a plain conversion to f64 would lose it.
        let above_tie = (1i128 << 62) + (1 << 54) + 1;
        assert_eq!(
            Numbers::Int(vec![above_tie]).converted(DType::BF16),
            Numbers::Float(vec![2f64.powi(62) + 2f64.powi(55)])
        );
        assert_eq!(Numbers::Int(vec![16777217]).converted(DType::F32), Numbers::Float(vec![16777216.0]));
        assert_eq!(Numbers::Int(vec![-3]).converted(DType::F64), Numbers::Float(vec![-3.0]));
    }

    #[test]
    fn what_has_no_arithmetic_is_refused() {
        for t in [DType::String, DType::C64] {
            assert_eq!(check_dtype(t).unwrap_err().code, "E0107");
        }
    }
}
