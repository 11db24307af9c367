//! add, exp, select …  =>  Rust functions on f64 and i128, applied to whole vectors

use super::numbers::Numbers;
use crate::scalar::{ReduceFn, ScalarFn};
use sardonyx_base::{DType, Error, Result};

enum FloatFn {
    One(fn(f64) -> f64),
    Two(fn(f64, f64) -> f64),
    TestOne(fn(f64) -> bool),
    TestTwo(fn(f64, f64) -> bool),
}

enum IntFn {
    One(fn(i128) -> i128),
    Two(fn(i128, i128) -> i128),
}

/// Applies `f` to `n` elements; an operand of one element repeats. The result is exact or in f64: the caller rounds it
/// to the element type. The caller has checked the operand types with [`ScalarFn::result`].
pub fn apply(f: ScalarFn, args: &[&Numbers], n: usize) -> Result<Numbers> {
    let wrong = || Error::defect(format!("`{}` is applied to operands that it does not take", f.name()));
    if args.iter().any(|a| a.len() != n && a.len() != 1) {
        return Err(wrong());
    }
    Ok(match args {
        [Numbers::Float(a)] => match float_fn(f).ok_or_else(wrong)? {
            FloatFn::One(f) => Numbers::Float(each(n, |i| f(at(a, i)))),
            FloatFn::TestOne(f) => Numbers::Int(each(n, |i| f(at(a, i)) as i128)),
            FloatFn::Two(_) | FloatFn::TestTwo(_) => return Err(wrong()),
        },
        [Numbers::Float(a), Numbers::Float(b)] => match float_fn(f).ok_or_else(wrong)? {
            FloatFn::Two(f) => Numbers::Float(each(n, |i| f(at(a, i), at(b, i)))),
            FloatFn::TestTwo(f) => Numbers::Int(each(n, |i| f(at(a, i), at(b, i)) as i128)),
            FloatFn::One(_) | FloatFn::TestOne(_) => return Err(wrong()),
        },
        [Numbers::Int(a)] => match int_fn(f).ok_or_else(wrong)? {
            IntFn::One(f) => Numbers::Int(each(n, |i| f(at(a, i)))),
            IntFn::Two(_) => return Err(wrong()),
        },
        [Numbers::Int(a), Numbers::Int(b)] => match int_fn(f).ok_or_else(wrong)? {
            IntFn::Two(f) => Numbers::Int(each(n, |i| f(at(a, i), at(b, i)))),
            IntFn::One(_) => return Err(wrong()),
        },
        [Numbers::Int(c), Numbers::Float(a), Numbers::Float(b)] if f == ScalarFn::Select => {
            Numbers::Float(each(n, |i| if at(c, i) != 0 { at(a, i) } else { at(b, i) }))
        }
        [Numbers::Int(c), Numbers::Int(a), Numbers::Int(b)] if f == ScalarFn::Select => {
            Numbers::Int(each(n, |i| if at(c, i) != 0 { at(a, i) } else { at(b, i) }))
        }
        _ => return Err(wrong()),
    })
}

fn each<T>(n: usize, value: impl Fn(usize) -> T) -> Vec<T> {
    (0..n).map(value).collect()
}

fn at<T: Copy>(values: &[T], i: usize) -> T {
    if values.len() == 1 { values[0] } else { values[i] }
}

/// The neutral element of a reduction of floats.
pub fn neutral_float(f: ReduceFn) -> f64 {
    match f {
        ReduceFn::Add => 0.0,
        ReduceFn::Mul => 1.0,
        ReduceFn::Max => f64::NEG_INFINITY,
        ReduceFn::Min => f64::INFINITY,
    }
}

pub fn neutral_int(f: ReduceFn, dtype: DType) -> Result<i128> {
    let (lo, hi) = super::numbers::int_range(dtype)
        .ok_or_else(|| Error::defect(format!("{dtype} has no least and greatest integer")))?;
    Ok(match f {
        ReduceFn::Add => 0,
        ReduceFn::Mul => 1,
        ReduceFn::Max => lo,
        ReduceFn::Min => hi,
    })
}

pub fn combine_float(f: ReduceFn) -> fn(f64, f64) -> f64 {
    match f {
        ReduceFn::Add => |a, b| a + b,
        ReduceFn::Mul => |a, b| a * b,
        ReduceFn::Max => f64_max,
        ReduceFn::Min => f64_min,
    }
}

/// Returns the binary function of a reduction of integers. It wraps in 128 bits, which agrees with wrapping in the
/// element type once the result is wrapped to that type.
pub fn combine_int(f: ReduceFn) -> fn(i128, i128) -> i128 {
    match f {
        ReduceFn::Add => i128::wrapping_add,
        ReduceFn::Mul => i128::wrapping_mul,
        ReduceFn::Max => i128::max,
        ReduceFn::Min => i128::min,
    }
}

fn float_fn(f: ScalarFn) -> Option<FloatFn> {
    use FloatFn::*;
    Some(match f {
        ScalarFn::Abs => One(f64::abs),
        ScalarFn::Add => Two(|a, b| a + b),
        ScalarFn::Atan => One(libm::atan),
        ScalarFn::Ceil => One(f64::ceil),
        ScalarFn::Cos => One(libm::cos),
        ScalarFn::Div => Two(|a, b| a / b),
        ScalarFn::Eq => TestTwo(|a, b| a == b),
        ScalarFn::Erf => One(libm::erf),
        ScalarFn::Exp => One(libm::exp),
        ScalarFn::Floor => One(f64::floor),
        ScalarFn::IsNan => TestOne(f64::is_nan),
        ScalarFn::Le => TestTwo(|a, b| a <= b),
        ScalarFn::Log => One(libm::log),
        ScalarFn::Lt => TestTwo(|a, b| a < b),
        ScalarFn::Max => Two(f64_max),
        ScalarFn::Min => Two(f64_min),
        ScalarFn::Mul => Two(|a, b| a * b),
        ScalarFn::Neg => One(|a| -a),
        ScalarFn::Pow => Two(libm::pow),
        ScalarFn::Rem => Two(|a, b| a % b),
        ScalarFn::Round => One(f64::round_ties_even),
        ScalarFn::Sign => One(|a| {
            if a == 0.0 {
                0.0
            } else if a.is_nan() {
                a
            } else {
                1f64.copysign(a)
            }
        }),
        ScalarFn::Sin => One(libm::sin),
        ScalarFn::Sqrt => One(f64::sqrt),
        ScalarFn::Sub => Two(|a, b| a - b),
        ScalarFn::Tanh => One(libm::tanh),
        ScalarFn::And | ScalarFn::Not | ScalarFn::Or | ScalarFn::Select | ScalarFn::Xor => return None,
        ScalarFn::BitAnd | ScalarFn::BitOr | ScalarFn::BitXor | ScalarFn::Shl | ScalarFn::Shr => return None,
    })
}

/// Returns the implementation for integers and bools, exact or modulo 2^128; `None` for a function of floats only.
fn int_fn(f: ScalarFn) -> Option<IntFn> {
    use IntFn::*;
    Some(match f {
        ScalarFn::Abs => One(i128::wrapping_abs),
        ScalarFn::Add => Two(i128::wrapping_add),
        ScalarFn::And => Two(|a, b| a & b),
        ScalarFn::BitAnd => Two(|a, b| a & b),
        ScalarFn::BitOr => Two(|a, b| a | b),
        ScalarFn::BitXor => Two(|a, b| a ^ b),
        ScalarFn::Div => Two(int_div),
        ScalarFn::Eq => Two(|a, b| (a == b) as i128),
        ScalarFn::Le => Two(|a, b| (a <= b) as i128),
        ScalarFn::Lt => Two(|a, b| (a < b) as i128),
        ScalarFn::Max => Two(i128::max),
        ScalarFn::Min => Two(i128::min),
        ScalarFn::Mul => Two(i128::wrapping_mul),
        ScalarFn::Neg => One(i128::wrapping_neg),
        ScalarFn::Not => One(|a| (a == 0) as i128),
        ScalarFn::Or => Two(|a, b| a | b),
        ScalarFn::Pow => Two(int_pow),
        ScalarFn::Rem => Two(int_rem),
        ScalarFn::Shl => Two(int_shl),
        ScalarFn::Shr => Two(int_shr),
        ScalarFn::Sign => One(i128::signum),
        ScalarFn::Sub => Two(i128::wrapping_sub),
        ScalarFn::Xor => Two(|a, b| a ^ b),
        ScalarFn::Atan
        | ScalarFn::Ceil
        | ScalarFn::Cos
        | ScalarFn::Erf
        | ScalarFn::Exp
        | ScalarFn::Floor
        | ScalarFn::IsNan
        | ScalarFn::Log
        | ScalarFn::Round
        | ScalarFn::Select
        | ScalarFn::Sin
        | ScalarFn::Sqrt
        | ScalarFn::Tanh => return None,
    })
}

/// Maximum; NaN if either operand is NaN, and +0 above -0 (IEEE 754-2019 `maximum`).
fn f64_max(a: f64, b: f64) -> f64 {
    match () {
        _ if a.is_nan() || b.is_nan() => f64::NAN,
        _ if a == b => {
            if a.is_sign_negative() {
                b
            } else {
                a
            }
        }
        _ => a.max(b),
    }
}

fn f64_min(a: f64, b: f64) -> f64 {
    -f64_max(-a, -b)
}

/// Quotient rounded towards zero; 0 for a zero divisor.
pub fn int_div(a: i128, b: i128) -> i128 {
    a.checked_div(b).unwrap_or(0)
}

/// Remainder with the sign of the divisor; 0 for a zero divisor.
pub fn int_rem(a: i128, b: i128) -> i128 {
    match a.checked_rem(b) {
        None => 0,
        Some(r) if r != 0 && (r < 0) != (b < 0) => r + b,
        Some(r) => r,
    }
}

/// Left shift. Wrapping to the element type gives 0 for a shift by its width or more.
fn int_shl(a: i128, amount: i128) -> i128 {
    u32::try_from(amount).ok().and_then(|n| a.checked_shl(n)).unwrap_or(0)
}

/// Arithmetic right shift; a negative amount counts as a large one.
fn int_shr(a: i128, amount: i128) -> i128 {
    a >> u32::try_from(amount).map_or(127, |n| n.min(127))
}

/// Power; a negative exponent gives the truncated reciprocal, and 0 for base 0.
fn int_pow(base: i128, exponent: i128) -> i128 {
    match (base, exponent) {
        (_, 0..) => {
            let (mut result, mut square, mut left) = (1i128, base, exponent);
            while left > 0 {
                if left & 1 == 1 {
                    result = result.wrapping_mul(square);
                }
                square = square.wrapping_mul(square);
                left >>= 1;
            }
            result
        }
        (1, _) => 1,
        (-1, _) => {
            if exponent & 1 == 0 {
                1
            } else {
                -1
            }
        }
        (_, _) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(f: ScalarFn, args: &[f64]) -> f64 {
        let args: Vec<Numbers> = args.iter().map(|&x| Numbers::Float(vec![x])).collect();
        match apply(f, &args.iter().collect::<Vec<_>>(), 1).unwrap() {
            Numbers::Float(x) => x[0],
            Numbers::Int(x) => x[0] as f64,
        }
    }

    fn int(f: ScalarFn, args: &[i128]) -> i128 {
        let args: Vec<Numbers> = args.iter().map(|&x| Numbers::Int(vec![x])).collect();
        match apply(f, &args.iter().collect::<Vec<_>>(), 1).unwrap() {
            Numbers::Float(_) => unreachable!("integers stay integers"),
            Numbers::Int(x) => x[0],
        }
    }

    #[test]
    fn every_float_function_at_one_point() {
        use ScalarFn::*;
        let cases: &[(ScalarFn, &[f64], f64)] = &[
            (Abs, &[-2.5], 2.5),
            (Add, &[1.5, 2.0], 3.5),
            (Atan, &[-1.0], -std::f64::consts::FRAC_PI_4),
            (Ceil, &[-1.5], -1.0),
            (Cos, &[0.0], 1.0),
            (Div, &[1.0, 4.0], 0.25),
            (Eq, &[2.0, 2.0], 1.0),
            (Erf, &[0.5], 0.520_499_877_813_046_5),
            (Erf, &[1.0], 0.842_700_792_949_714_9),
            (Erf, &[-2.5], -0.999_593_047_982_555),
            (Exp, &[1.0], std::f64::consts::E),
            (Floor, &[-1.5], -2.0),
            (IsNan, &[1.0], 0.0),
            (Le, &[2.0, 2.0], 1.0),
            (Log, &[1.0], 0.0),
            (Lt, &[2.0, 2.0], 0.0),
            (Max, &[1.0, 2.0], 2.0),
            (Min, &[1.0, 2.0], 1.0),
            (Mul, &[1.5, -2.0], -3.0),
            (Neg, &[1.5], -1.5),
            (Pow, &[2.0, 10.0], 1024.0),
            (Rem, &[-7.0, 3.0], -1.0),
            (Round, &[2.5], 2.0),
            (Round, &[-3.5], -4.0),
            (Sign, &[-3.0], -1.0),
            (Sin, &[0.0], 0.0),
            (Sqrt, &[9.0], 3.0),
            (Sub, &[1.0, 4.0], -3.0),
            (Tanh, &[0.5], 0.462_117_157_260_009_76),
        ];
        for (f, args, expected) in cases {
            let got = float(*f, args);
            assert!((got - expected).abs() <= 1e-15, "{} {args:?} = {got}, not {expected}", f.name());
        }
    }

    #[test]
    fn special_floats_follow_the_contract() {
        use ScalarFn::*;
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        for (f, args) in [
            (Max, [nan, 1.0]),
            (Max, [1.0, nan]),
            (Min, [nan, 1.0]),
            (Min, [1.0, nan]),
            (Add, [inf, -inf]),
            (Mul, [0.0, inf]),
            (Div, [0.0, 0.0]),
            (Rem, [1.0, 0.0]),
            (Rem, [inf, 2.0]),
            (Pow, [-8.0, 0.5]),
        ] {
            assert!(float(f, &args).is_nan(), "{} {args:?}", f.name());
        }
        for f in [Sqrt, Log] {
            assert!(float(f, &[-1.0]).is_nan());
        }
        for f in [Eq, Le, Lt] {
            assert_eq!(float(f, &[nan, nan]), 0.0);
        }
        assert_eq!(float(IsNan, &[nan]), 1.0);
        assert_eq!(float(Div, &[1.0, -0.0]), -inf);
        assert_eq!((float(Exp, &[-inf]), float(Exp, &[inf]), float(Log, &[0.0])), (0.0, inf, -inf));
        assert_eq!((float(Tanh, &[inf]), float(Erf, &[-inf])), (1.0, -1.0));
        assert_eq!((float(Pow, &[nan, 0.0]), float(Pow, &[1.0, nan])), (1.0, 1.0));
        assert!(float(Sign, &[nan]).is_nan());
        assert!(float(Sign, &[-0.0]).is_sign_positive());
        assert!(float(Max, &[-0.0, 0.0]).is_sign_positive() && float(Max, &[0.0, -0.0]).is_sign_positive());
        assert!(float(Min, &[-0.0, 0.0]).is_sign_negative() && float(Min, &[0.0, -0.0]).is_sign_negative());
        for f in [Neg, Sqrt, Floor, Ceil, Round, Tanh, Erf, Sin] {
            let zero = if f == Neg { 0.0 } else { -0.0 };
            let got = float(f, &[zero]);
            assert!(got == 0.0 && got.is_sign_negative(), "{}", f.name());
        }
        assert_eq!(float(Eq, &[0.0, -0.0]), 1.0);
    }

    #[test]
    fn every_integer_and_bool_function_at_a_point() {
        use ScalarFn::*;
        let cases: &[(ScalarFn, &[i128], i128)] = &[
            (Abs, &[-3], 3),
            (BitAnd, &[-2, 7], 6),
            (BitOr, &[-8, 3], -5),
            (BitXor, &[-1, 5], -6),
            (Shl, &[3, 2], 12),
            (Shl, &[3, -1], 0),
            (Shl, &[3, 200], 0),
            (Shr, &[-9, 1], -5),
            (Shr, &[-9, -1], -1),
            (Shr, &[9, 200], 0),
            (Add, &[2, -5], -3),
            (And, &[1, 0], 0),
            (Div, &[-7, 2], -3),
            (Div, &[7, 0], 0),
            (Eq, &[4, 4], 1),
            (Le, &[5, 4], 0),
            (Lt, &[3, 4], 1),
            (Max, &[-1, -2], -1),
            (Min, &[-1, -2], -2),
            (Mul, &[-3, 4], -12),
            (Neg, &[3], -3),
            (Not, &[1], 0),
            (Not, &[0], 1),
            (Or, &[1, 0], 1),
            (Pow, &[-2, 3], -8),
            (Pow, &[2, -1], 0),
            (Pow, &[-1, -3], -1),
            (Pow, &[0, 0], 1),
            (Rem, &[-7, 3], 2),
            (Rem, &[7, -3], -2),
            (Rem, &[6, -3], 0),
            (Rem, &[7, 0], 0),
            (Select, &[1, 8, 9], 8),
            (Select, &[0, 8, 9], 9),
            (Sign, &[-9], -1),
            (Sub, &[2, 5], -3),
            (Xor, &[1, 1], 0),
        ];
        for (f, args, expected) in cases {
            assert_eq!(int(*f, args), *expected, "{} {args:?}", f.name());
        }
    }

    #[test]
    fn every_function_has_a_meaning_in_its_domain() {
        for row in crate::scalar::ROWS {
            let takes = |t| row.domain.contains(t) && row.function != ScalarFn::Select;
            assert_eq!(float_fn(row.function).is_some(), takes(DType::F32), "{}", row.name);
            assert_eq!(int_fn(row.function).is_some(), takes(DType::I32) || takes(DType::Bool), "{}", row.name);
        }
    }

    #[test]
    fn one_element_repeats() {
        let (one, three) = (Numbers::Int(vec![10]), Numbers::Int(vec![1, 2, 3]));
        assert_eq!(apply(ScalarFn::Add, &[&one, &three], 3).unwrap(), Numbers::Int(vec![11, 12, 13]));
        assert!(apply(ScalarFn::Add, &[&three, &three], 2).is_err());
    }
}
