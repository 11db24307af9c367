//! arrays of numbers of one type, combined element by element: the reductions of collectives
//!
//! The result of combining two elements is rounded to their type immediately, so the bits of a reduction depend only on
//! its operands and their order.

use crate::{DType, minifloat};
use half::{bf16, f16};

/// A function that combines two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reduction {
    /// The sum; integers wrap around.
    Add,
    /// The product; integers wrap around.
    Mul,
    /// The maximum; NaN if any operand is NaN.
    Max,
    /// The minimum; NaN if any operand is NaN.
    Min,
    /// The average: a sum that [`Reduction::finish`] divides by the number of operands.
    Avg,
}

static NAMES: &[(Reduction, &str)] = &[
    (Reduction::Add, "add"),
    (Reduction::Mul, "mul"),
    (Reduction::Max, "max"),
    (Reduction::Min, "min"),
    (Reduction::Avg, "avg"),
];

/// The operation on each element: combination with an element of the other array, or division by a number.
#[derive(Clone, Copy)]
enum Step {
    With(Reduction),
    Over(usize),
}

impl Reduction {
    /// The reductions that are complete once the last operand has been combined.
    pub const ALL: [Reduction; 4] = [Reduction::Add, Reduction::Mul, Reduction::Max, Reduction::Min];

    /// Returns the name in texts of operations: `add`, `mul`, `max`, `min` or `avg`.
    pub fn name(self) -> &'static str {
        NAMES[self as usize].1
    }

    /// Returns the reduction with this name; `None` for an unknown name.
    pub fn from_name(name: &str) -> Option<Reduction> {
        NAMES.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Whether elements of a type can be combined.
    pub fn admits(self, dtype: DType) -> bool {
        dtype.is_float() || dtype.is_int()
    }

    /// Computes into[i] = f(into[i], from[i]) for each element that both arrays have; does nothing if the reduction
    /// does not [admit](Reduction::admits) the type.
    pub fn combine(self, dtype: DType, into: &mut [u8], from: &[u8]) {
        Step::With(self).apply(dtype, Arrays { into, at: None, from });
    }

    /// As [`combine`](Reduction::combine), with element `at[i]` of `into` in place of element `i`. Elements beyond the end
    /// of `into` are left out.
    pub fn combine_at(self, dtype: DType, into: &mut [u8], at: &[usize], from: &[u8]) {
        Step::With(self).apply(dtype, Arrays { into, at: Some(at), from });
    }

    /// Completes the reduction of `n` operands: an average is divided by `n`, with integers rounded towards zero.
    pub fn finish(self, dtype: DType, combined: &mut [u8], n: usize) {
        if self == Reduction::Avg {
            Step::Over(n).apply(dtype, Arrays { into: combined, at: None, from: &[] });
        }
    }
}

/// The operands of a step.
struct Arrays<'a> {
    into: &'a mut [u8],
    /// The elements of `into` that the elements of `from` are combined with; `None` if their numbers are the same.
    at: Option<&'a [usize]>,
    from: &'a [u8],
}

impl Step {
    fn apply(self, dtype: DType, arrays: Arrays) {
        match dtype {
            DType::F32 => self.floats::<f32, 4>(arrays, f32::from_le_bytes, f32::to_le_bytes),
            DType::F64 => self.floats::<f64, 8>(arrays, f64::from_le_bytes, f64::to_le_bytes),
            DType::F16 => {
                let (read, write) = (|b| f16::from_le_bytes(b).to_f32(), |x| f16::from_f32(x).to_le_bytes());
                self.floats::<f32, 2>(arrays, read, write)
            }
            DType::BF16 => {
                let (read, write) = (|b| bf16::from_le_bytes(b).to_f32(), |x| bf16::from_f32(x).to_le_bytes());
                self.floats::<f32, 2>(arrays, read, write)
            }
            DType::I8 => self.integers::<i8, 1>(arrays, i8::from_le_bytes, i8::to_le_bytes),
            DType::U8 => self.integers::<u8, 1>(arrays, u8::from_le_bytes, u8::to_le_bytes),
            DType::I16 => self.integers::<i16, 2>(arrays, i16::from_le_bytes, i16::to_le_bytes),
            DType::U16 => self.integers::<u16, 2>(arrays, u16::from_le_bytes, u16::to_le_bytes),
            DType::I32 => self.integers::<i32, 4>(arrays, i32::from_le_bytes, i32::to_le_bytes),
            DType::U32 => self.integers::<u32, 4>(arrays, u32::from_le_bytes, u32::to_le_bytes),
            DType::I64 => self.integers::<i64, 8>(arrays, i64::from_le_bytes, i64::to_le_bytes),
            DType::U64 => self.integers::<u64, 8>(arrays, u64::from_le_bytes, u64::to_le_bytes),
            // Each element occupies a byte, whose upper bits are copies of the sign, or 0.
            DType::I4 => self.integers::<i8, 1>(arrays, i8::from_le_bytes, |x| [((x << 4) >> 4) as u8]),
            DType::I2 => self.integers::<i8, 1>(arrays, i8::from_le_bytes, |x| [((x << 6) >> 6) as u8]),
            DType::U4 => self.integers::<u8, 1>(arrays, u8::from_le_bytes, |x| [x & 15]),
            DType::U2 => self.integers::<u8, 1>(arrays, u8::from_le_bytes, |x| [x & 3]),
            DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ | DType::F4E2M1 | DType::F8E8M0 => {
                let read = |b: [u8; 1]| minifloat::decode(dtype, u32::from(b[0])).unwrap_or(f64::NAN);
                let write = |x| [minifloat::encode(dtype, minifloat::round(dtype, x)).unwrap_or(0) as u8];
                self.floats::<f64, 1>(arrays, read, write)
            }
            DType::Bool | DType::String | DType::C64 | DType::C128 | DType::Value => {}
        }
    }

    fn floats<T: Float, const N: usize>(
        self,
        arrays: Arrays,
        read: impl Fn([u8; N]) -> T,
        write: impl Fn(T) -> [u8; N],
    ) {
        // One loop per function, so that each can be vectorised.
        match self {
            Step::With(Reduction::Add | Reduction::Avg) => each(arrays, |a, b| write(read(a) + read(b))),
            Step::With(Reduction::Mul) => each(arrays, |a, b| write(read(a) * read(b))),
            Step::With(Reduction::Max) => each(arrays, |a, b| write(T::larger(read(a), read(b)))),
            Step::With(Reduction::Min) => each(arrays, |a, b| write(T::smaller(read(a), read(b)))),
            Step::Over(n) => arrays.into.as_chunks_mut::<N>().0.iter_mut().for_each(|a| *a = write(read(*a).over(n))),
        }
    }

    fn integers<T: Integer, const N: usize>(
        self,
        arrays: Arrays,
        read: impl Fn([u8; N]) -> T,
        write: impl Fn(T) -> [u8; N],
    ) {
        match self {
            Step::With(Reduction::Add | Reduction::Avg) => each(arrays, |a, b| write(read(a).sum(read(b)))),
            Step::With(Reduction::Mul) => each(arrays, |a, b| write(read(a).product(read(b)))),
            Step::With(Reduction::Max) => each(arrays, |a, b| write(read(a).max(read(b)))),
            Step::With(Reduction::Min) => each(arrays, |a, b| write(read(a).min(read(b)))),
            Step::Over(n) => arrays.into.as_chunks_mut::<N>().0.iter_mut().for_each(|a| *a = write(read(*a).over(n))),
        }
    }
}

fn each<const N: usize>(arrays: Arrays, f: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
    let (into, from) = (arrays.into.as_chunks_mut::<N>().0, arrays.from.as_chunks::<N>().0);
    match arrays.at {
        None => into.iter_mut().zip(from).for_each(|(a, b)| *a = f(*a, *b)),
        Some(at) => {
            for (at, b) in at.iter().zip(from) {
                if let Some(a) = into.get_mut(*at) {
                    *a = f(*a, *b);
                }
            }
        }
    }
}

trait Float: Copy + PartialOrd + std::ops::Add<Output = Self> + std::ops::Mul<Output = Self> {
    fn larger(a: Self, b: Self) -> Self;
    fn smaller(a: Self, b: Self) -> Self;
    fn over(self, n: usize) -> Self;
}

trait Integer: Ord {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    /// Quotient rounded towards zero.
    fn over(self, n: usize) -> Self;
}

macro_rules! float {
    ($($ty:ty)*) => {
        $(impl Float for $ty {
            fn larger(a: $ty, b: $ty) -> $ty {
                // The first choice is one instruction, and the second one is always the same without NaN: neither is
                // a jump that depends on the data.
                let larger = if a > b { a } else { b };
                if a.is_nan() { a } else { larger }
            }

            fn smaller(a: $ty, b: $ty) -> $ty {
                let smaller = if a < b { a } else { b };
                if a.is_nan() { a } else { smaller }
            }

            fn over(self, n: usize) -> $ty {
                self / n as $ty
            }
        })*
    };
}
float!(f32 f64);

macro_rules! integer {
    ($($ty:ty)*) => {
        $(impl Integer for $ty {
            fn sum(self, other: $ty) -> $ty {
                self.wrapping_add(other)
            }

            fn product(self, other: $ty) -> $ty {
                self.wrapping_mul(other)
            }

            fn over(self, n: usize) -> $ty {
                // The quotient is not larger in magnitude than the dividend, so it fits.
                (i128::from(self) / n.max(1) as i128) as $ty
            }
        })*
    };
}
integer!(i8 u8 i16 u16 i32 u32 i64 u64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tensor;

    fn reduced(f: Reduction, dtype: DType, a: &[u8], b: &[u8]) -> Vec<f64> {
        let mut into = a.to_vec();
        f.combine(dtype, &mut into, b);
        let n = into.len() / dtype.bytes();
        let t = Tensor::new(dtype, vec![n], into.into()).unwrap();
        (0..n).map(|i| t.get_f64(i).unwrap()).collect()
    }

    #[test]
    fn each_element_is_rounded_to_its_type() {
        let bytes = |x: [f32; 3]| x.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect::<Vec<u8>>();
        let sum = reduced(Reduction::Add, DType::BF16, &bytes([256.0, 1.0, -2.0]), &bytes([1.0, 2.0, 2.0]));
        assert_eq!(sum, [256.0, 3.0, 0.0]);
        let product = reduced(Reduction::Mul, DType::F8E4M3FN, &[0x7e], &[0x38]);
        assert_eq!(product, [448.0]);
    }

    #[test]
    fn integers_wrap_in_their_width() {
        assert_eq!(reduced(Reduction::Add, DType::I8, &[127], &[1]), [-128.0]);
        assert_eq!(reduced(Reduction::Add, DType::I4, &[7], &[1]), [-8.0]);
        assert_eq!(reduced(Reduction::Mul, DType::U4, &[7], &[3]), [5.0]);
        assert_eq!(reduced(Reduction::Max, DType::U8, &[200, 1], &[100, 2]), [200.0, 2.0]);
        assert_eq!(reduced(Reduction::Min, DType::I64, &(-3i64).to_le_bytes(), &2i64.to_le_bytes()), [-3.0]);
    }

    #[test]
    fn nan_of_any_operand_stays() {
        let (nan, one) = (f32::NAN.to_le_bytes(), 1f32.to_le_bytes());
        for f in Reduction::ALL {
            assert!(reduced(f, DType::F32, &nan, &one)[0].is_nan());
            assert!(reduced(f, DType::F32, &one, &nan)[0].is_nan());
        }
    }

    #[test]
    fn an_average_is_divided_once_at_the_end() {
        let average = |dtype: DType, a: &[u8], b: &[u8], n: usize| {
            let mut into = a.to_vec();
            Reduction::Avg.combine(dtype, &mut into, b);
            Reduction::Avg.finish(dtype, &mut into, n);
            Tensor::new(dtype, vec![1], into.into()).unwrap().get_f64(0).unwrap()
        };
        assert_eq!(average(DType::F32, &1f32.to_le_bytes(), &2f32.to_le_bytes(), 2), 1.5);
        assert_eq!(average(DType::I32, &(-3i32).to_le_bytes(), &(-4i32).to_le_bytes(), 2), -3.0);
        // There may be more ranks than the type can count.
        assert_eq!(average(DType::U8, &[200], &[50], 1000), 0.0);
        assert_eq!(average(DType::F8E4M3FN, &[0x38], &[0x38], 4), 0.5);
    }

    #[test]
    fn names_are_read_back() {
        for f in Reduction::ALL.into_iter().chain([Reduction::Avg]) {
            assert_eq!(Reduction::from_name(f.name()), Some(f));
        }
    }
}
