//! seed  =>  random draws, and tensors of floats, integers and bools with ordinary values and edge cases

use half::{bf16, f16};
use sardonyx_base::{DType, Tensor, minifloat, packed};
use sardonyx_tests::damage;

pub struct Random(damage::Random);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(damage::Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D))
    }

    pub fn bits(&mut self) -> u64 {
        self.0.u64()
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0.below(n)
    }

    /// A number from `lo` to `hi`, inclusive.
    pub fn between(&mut self, lo: i64, hi: i64) -> i64 {
        lo + self.below((hi - lo + 1) as usize) as i64
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    pub fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut out: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            out.swap(i, self.below(i + 1));
        }
        out
    }

    /// A number in [0, 1) with 53 random bits.
    fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * 2f64.powi(-53)
    }
}

/// Kind of the values that a tensor holds. For integers and bools, all kinds except `Below` allow any value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// Any value, including infinities, NaN, both zeros, subnormals and the largest finite numbers.
    Any,
    /// Any value except NaN: `convert {bits}` need not keep the bits of a NaN that is narrower than f32.
    Numbers,
    /// Floats with magnitudes from 1/2 to 3/2, to keep sums and products in range.
    Near1,
    /// Floats with magnitudes up to 2¹⁶, for which the error of sine and cosine is bounded, infinities and NaN.
    Angles,
    /// Integers from 0 up to, but not including, this number.
    Below(i64),
}

pub fn tensor(r: &mut Random, dtype: DType, dims: Vec<usize>, values: Values) -> Tensor {
    let n: usize = dims.iter().product();
    let mut bytes = Vec::with_capacity(n * dtype.bytes());
    for _ in 0..n {
        let mut code = if dtype.is_float() { float_code(r, dtype, values) } else { int_code(r, dtype, values) };
        while dtype.is_float() && values == Values::Numbers && is_nan(dtype, code) {
            code = float_code(r, dtype, values);
        }
        bytes.extend_from_slice(&code.to_le_bytes()[..dtype.bytes()]);
    }
    Tensor::new(dtype, dims, packed::normalise(dtype, bytes.into())).expect("as many bytes as elements need")
}

fn int_code(r: &mut Random, dtype: DType, values: Values) -> u64 {
    if let Values::Below(n) = values {
        return r.below(n.max(1) as usize) as u64;
    }
    let least = 1u64 << (dtype.bits() - 1);
    match r.below(8) {
        0 => r.pick(&[0, 1, u64::MAX, least, least.wrapping_sub(1), u64::from(dtype.bits())]),
        1..3 => r.bits(),
        _ => r.between(-9, 9) as u64,
    }
}

fn float_code(r: &mut Random, dtype: DType, values: Values) -> u64 {
    let sign = if r.chance(50) { 1.0 } else { -1.0 };
    let edges = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    let value = match (values, r.below(8)) {
        (Values::Near1, _) => sign * (0.5 + r.unit()),
        (Values::Below(n), _) => r.below(n.max(1) as usize) as f64,
        (Values::Any | Values::Numbers | Values::Angles, 0) => r.pick(&edges),
        (Values::Any | Values::Numbers, 1) => {
            return r.pick(&[1, largest(dtype), largest(dtype) | 1 << (dtype.bits() - 1)]);
        }
        (Values::Any | Values::Numbers, 2..4) => return r.bits(),
        (Values::Any | Values::Numbers, _) => sign * 4.0 * r.unit(),
        (Values::Angles, _) => sign * r.unit() * 2f64.powi(r.between(-12, 16) as i32),
    };
    code(dtype, value)
}

fn code(dtype: DType, value: f64) -> u64 {
    match dtype {
        DType::F64 => value.to_bits(),
        DType::F32 => (value as f32).to_bits().into(),
        DType::F16 => f16::from_f64(value).to_bits().into(),
        DType::BF16 => bf16::from_f64(value).to_bits().into(),
        t => minifloat::encode(t, minifloat::round(t, value)).unwrap_or(0).into(),
    }
}

fn is_nan(dtype: DType, code: u64) -> bool {
    match dtype {
        DType::F64 => f64::from_bits(code).is_nan(),
        DType::F32 => f32::from_bits(code as u32).is_nan(),
        t => minifloat::decode(t, code as u32 & ((1 << t.bits()) - 1)).is_some_and(f64::is_nan),
    }
}

fn largest(dtype: DType) -> u64 {
    match dtype {
        DType::F64 => f64::MAX.to_bits(),
        DType::F32 => f32::MAX.to_bits().into(),
        t => minifloat::format(t).and_then(|f| minifloat::encode(t, f.max())).unwrap_or(0).into(),
    }
}
