//! element type, dimensions  =>  tensors of ordinary, special or extreme numbers, and how to compare results

use crate::class::Class;
use crate::random::Random;
use sardonyx_base::{DType, Tensor};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ordinary,
    /// NaN, infinities and zeros of both signs among small numbers.
    Special,
    /// Numbers that overflow, underflow or are subnormal.
    Extreme,
}

impl Kind {
    /// Kinds of numbers for which a rule of the class must hold.
    pub fn for_class(class: Class) -> &'static [Kind] {
        match class {
            Class::Exact => &[Kind::Ordinary, Kind::Special, Kind::Extreme],
            Class::Reassociating | Class::Narrowing => &[Kind::Ordinary, Kind::Special],
            Class::FiniteOnly => &[Kind::Ordinary],
        }
    }
}

fn float(r: &mut Random, kind: Kind) -> f64 {
    match kind {
        Kind::Ordinary => r.unit() * 3.0,
        Kind::Special if r.chance(60) => r.pick(&[1.0, 2.0, -1.5, 0.5, -3.0]),
        Kind::Special => r.pick(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0]),
        Kind::Extreme if r.chance(30) => r.unit(),
        Kind::Extreme => {
            let large = [3.4e38, -3e38, 6e4, -6.5e4, 1e20, 1.7e308, 1e-40, -1e-45, 6e-8, 1e-310, 2e-38];
            if r.chance(20) { float(r, Kind::Special) } else { r.pick(&large) }
        }
    }
}

pub fn tensor(r: &mut Random, dtype: DType, dims: &[usize], kind: Kind) -> Tensor {
    let n: usize = dims.iter().product();
    let floats = |r: &mut Random| (0..n).map(|_| float(r, kind)).collect::<Vec<f64>>();
    let ints = |r: &mut Random, lo: i64, hi: i64| -> Vec<i64> {
        let one = |r: &mut Random| match kind {
            Kind::Extreme if r.chance(30) => r.pick(&[lo, hi]),
            _ => (r.below(9) as i64 - 4).max(lo),
        };
        (0..n).map(|_| one(r)).collect()
    };
    let dims = dims.to_vec();
    match dtype {
        DType::F64 => Tensor::from_vec(dims, floats(r)),
        DType::F32 => Tensor::from_vec(dims, floats(r).into_iter().map(|x| x as f32).collect()),
        DType::F16 => Tensor::from_vec(dims, floats(r).into_iter().map(half::f16::from_f64).collect()),
        DType::BF16 => Tensor::from_vec(dims, floats(r).into_iter().map(half::bf16::from_f64).collect()),
        DType::Bool => Tensor::from_vec(dims, (0..n).map(|_| r.chance(50)).collect()),
        DType::U8 => Tensor::from_vec(dims, ints(r, 0, 255).into_iter().map(|x| x as u8).collect()),
        DType::I8 => Tensor::from_vec(dims, ints(r, -128, 127).into_iter().map(|x| x as i8).collect()),
        DType::U32 => Tensor::from_vec(dims, ints(r, 0, u32::MAX.into()).into_iter().map(|x| x as u32).collect()),
        DType::I32 => {
            Tensor::from_vec(dims, ints(r, i32::MIN.into(), i32::MAX.into()).into_iter().map(|x| x as i32).collect())
        }
        DType::I64 => Tensor::from_vec(dims, ints(r, i64::MIN, i64::MAX)),
        other => panic!("no values of {other} are drawn"),
    }
}

/// Half a unit in the last place of 1: the relative error of one rounding.
fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        DType::F32 => 2f64.powi(-24),
        _ => 2f64.powi(-53),
    }
}

/// `largest` is the largest absolute value that occurs; `roundings` is the number of roundings behind one element.
pub struct Bound {
    pub largest: f64,
    pub roundings: usize,
}

/// Describes the first difference that the class does not allow.
pub fn differs(want: &Tensor, got: &Tensor, class: Class, bound: &Bound) -> Option<String> {
    if (want.dtype(), want.dims()) != (got.dtype(), got.dims()) {
        return Some(format!("{got:?} for {want:?}"));
    }
    let tolerance = unit(want.dtype()) * bound.largest * bound.roundings as f64;
    let equal = |i: usize| {
        if !want.dtype().is_float() {
            return want.get_i64(i) == got.get_i64(i);
        }
        let (Some(w), Some(g)) = (want.get_f64(i), got.get_f64(i)) else { return false };
        match class {
            Class::Exact => w.to_bits() == g.to_bits() || (w.is_nan() && g.is_nan()),
            Class::Reassociating if w.is_nan() || g.is_nan() => w.is_nan() && g.is_nan(),
            Class::Reassociating if w.is_infinite() || g.is_infinite() => w == g,
            Class::FiniteOnly if !w.is_finite() => true,
            Class::Reassociating | Class::Narrowing | Class::FiniteOnly => (w - g).abs() <= tolerance,
        }
    };
    let i = (0..want.len()).find(|&i| !equal(i))?;
    let (w, g) = (want.get_f64(i), got.get_f64(i));
    Some(format!("element {i} of {want:?} is {g:?}, not {w:?} (within {tolerance:e})"))
}
