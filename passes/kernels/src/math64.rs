//! Transcendental functions in f64, on scalars and vectors, without a library; f32 uses some of them, rounded once
//!
//! Errors: exp, log, tanh, atan a few 2^-53 relative; erf a few 2^-53 absolute; sin and cos a few 2^-53 absolute for
//! |x| < 10^5, 2^-40 for larger f32 values; pow about 2^-48 relative.

use super::asm::{Asm, Bin, Cast, CmpF, CmpI, Elem, Un, Val};
use super::math::{clamp, copysign, polynomial, scale_by_power, scaled_round};

/// Returns 1 / k! for k in first..=last in steps of `step`, with alternating signs if `alternate`.
fn inverse_factorials(first: u32, last: u32, step: usize, alternate: bool) -> Vec<f64> {
    let factorial = |k: u32| (1..=k).map(f64::from).product::<f64>();
    let sign = |i: usize| if alternate && i % 2 == 1 { -1.0 } else { 1.0 };
    (first..=last).step_by(step).enumerate().map(|(i, k)| sign(i) / factorial(k)).collect()
}

/// x = n · ln 2 + r  =>  (r, n)
fn reduce_exp(asm: &mut impl Asm, x: Val) -> (Val, Val) {
    let (t, n) = scaled_round(asm, x, std::f64::consts::LOG2_E);
    let (high, low) = (asm.float(-6.931_471_803_691_238e-1, x.ty), asm.float(-1.908_214_929_270_587_7e-10, x.ty));
    let r = asm.fma(t, high, x);
    (asm.fma(t, low, r), n)
}

pub fn exp(asm: &mut impl Asm, x: Val) -> Val {
    let x = clamp(asm, x, -746.0, 710.0);
    let (r, n) = reduce_exp(asm, x);
    let y = polynomial(asm, r, &inverse_factorials(0, 13, 1, false));
    scale_by_power(asm, y, n)
}

/// (exp(2|x|) - 1) / (exp(2|x|) + 1) with the sign of x; near 0 the numerator is computed by its own series.
pub fn tanh(asm: &mut impl Asm, x: Val) -> Val {
    let size = asm.un(Un::AbsF, x);
    let size = clamp(asm, size, 0.0, 22.0);
    let twice = asm.bin(Bin::AddF, size, size);
    let (one, edge) = (asm.float(1.0, x.ty), asm.float(0.34, x.ty));
    let series = polynomial(asm, twice, &inverse_factorials(1, 14, 1, false));
    let series = asm.bin(Bin::MulF, series, twice);
    let e = exp(asm, twice);
    let far = asm.bin(Bin::SubF, e, one);
    let near = asm.cmpf(CmpF::Olt, twice, edge);
    let minus = asm.select(near, series, far);
    let two = asm.float(2.0, x.ty);
    let plus = asm.bin(Bin::AddF, minus, two);
    let y = asm.bin(Bin::DivF, minus, plus);
    copysign(asm, y, x)
}

/// exp(x²) · erfc(x) on 1..6 as a polynomial in 4 / (x + 3) - 13/18 (Chebyshev fit, error 6·10^-18).
static ERFCX: [f64; 16] = [
    0.20798329133342885,
    0.555700227459729,
    0.644091852427988,
    0.5931446188902021,
    0.4164296634261224,
    0.20050762976508038,
    0.04258566233379769,
    -0.01900767847821847,
    -0.015632540436734146,
    0.0004597346868129735,
    0.0041458408038141,
    0.0003471859420640568,
    -0.0012177833152856212,
    -0.00010271975467717628,
    0.00037114578335807293,
    -1.4806747579084906e-06,
];

/// erf by its Maclaurin series for |x| < 1, else by 1 - exp(-x²) · erfcx(x).
pub fn erf(asm: &mut impl Asm, x: Val) -> Val {
    let size = asm.un(Un::AbsF, x);
    let size = clamp(asm, size, 0.0, 6.0);
    let square = asm.bin(Bin::MulF, size, size);
    let terms = inverse_factorials(0, 20, 1, true);
    let scaled = |(n, c): (usize, &f64)| c * std::f64::consts::FRAC_2_SQRT_PI / (2 * n + 1) as f64;
    let series: Vec<f64> = terms.iter().enumerate().map(scaled).collect();
    let series = polynomial(asm, square, &series);
    let small = asm.bin(Bin::MulF, series, size);
    let (one, three, four) = (asm.float(1.0, x.ty), asm.float(3.0, x.ty), asm.float(4.0, x.ty));
    let shift = asm.float(13.0 / 18.0, x.ty);
    let plus = asm.bin(Bin::AddF, size, three);
    let v = asm.bin(Bin::DivF, four, plus);
    let v = asm.bin(Bin::SubF, v, shift);
    let g = polynomial(asm, v, &ERFCX);
    let minus = asm.un(Un::NegF, square);
    let e = exp(asm, minus);
    let large = asm.bin(Bin::MulF, e, g);
    let large = asm.bin(Bin::SubF, one, large);
    let is_small = asm.cmpf(CmpF::Olt, size, one);
    let y = asm.select(is_small, small, large);
    copysign(asm, y, x)
}

/// atan(r) = r - r · z · (c0 + c1 z + …) with z = r², |r| ≤ 7/16, as in fdlibm.
static ATAN: [f64; 11] = [
    3.333_333_333_333_293e-1,
    -1.999_999_999_987_648_3e-1,
    1.428_571_427_250_346_6e-1,
    -1.111_111_040_546_235_6e-1,
    9.090_887_133_436_507e-2,
    -7.691_876_205_044_83e-2,
    6.661_073_137_387_531e-2,
    -5.833_570_133_790_573_5e-2,
    4.976_877_994_615_932e-2,
    -3.653_157_274_421_691_6e-2,
    1.628_582_011_536_578_2e-2,
];

/// For |x| ≥ from: atan |x| = atan c + atan((p|x| + q) / (s|x| + t)); (from, [p, q, s, t], atan c in two parts).
static ATAN_RANGES: [(f64, [f64; 4], [f64; 2]); 5] = [
    (0.0, [1.0, 0.0, 0.0, 1.0], [0.0, 0.0]),
    (0.4375, [2.0, -1.0, 1.0, 2.0], [4.636_476_090_008_061e-1, 2.269_877_745_296_168_7e-17]),
    (0.6875, [1.0, -1.0, 1.0, 1.0], [std::f64::consts::FRAC_PI_4, 3.061_616_997_868_383e-17]),
    (1.1875, [1.0, -1.5, 1.5, 1.0], [9.827_937_232_473_29e-1, 1.390_331_103_123_099_8e-17]),
    (2.4375, [0.0, -1.0, 1.0, 0.0], [std::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17]),
];

/// atan; ±π/2 for ±∞, and -0 stays -0.
pub fn atan(asm: &mut impl Asm, x: Val) -> Val {
    let size = asm.un(Un::AbsF, x);
    // For large |x| the result is π/2 anyway, and 0 · ∞ would be NaN.
    let size = clamp(asm, size, 0.0, 1e300);
    let (_, first, base) = ATAN_RANGES[0];
    let mut chosen: Vec<Val> = first.iter().chain(&base).map(|c| asm.float(*c, x.ty)).collect();
    for (from, factors, base) in &ATAN_RANGES[1..] {
        let from = asm.float(*from, x.ty);
        let there = asm.cmpf(CmpF::Oge, size, from);
        for (value, c) in chosen.iter_mut().zip(factors.iter().chain(base)) {
            let c = asm.float(*c, x.ty);
            *value = asm.select(there, c, *value);
        }
    }
    let [p, q, s, t, high, low] = chosen[..] else { unreachable!("four factors and two parts") };
    let (above, below) = (asm.fma(p, size, q), asm.fma(s, size, t));
    let r = asm.bin(Bin::DivF, above, below);
    let z = asm.bin(Bin::MulF, r, r);
    let sum = polynomial(asm, z, &ATAN);
    let sum = asm.bin(Bin::MulF, sum, z);
    let lost = asm.bin(Bin::MulF, sum, r);
    let lost = asm.bin(Bin::SubF, lost, low);
    let rest = asm.bin(Bin::SubF, lost, r);
    let y = asm.bin(Bin::SubF, high, rest);
    copysign(asm, y, x)
}

/// x = m · 2^e with m in sqrt(1/2)..sqrt(2), for positive finite x  =>  (m, e as a float)
fn split(asm: &mut impl Asm, x: Val) -> (Val, Val) {
    // Subnormal numbers are first scaled to normal ones.
    let (tiny, up) = (asm.float(f64::MIN_POSITIVE, x.ty), asm.float(18014398509481984.0, x.ty));
    let is_tiny = asm.cmpf(CmpF::Olt, x, tiny);
    let raised = asm.bin(Bin::MulF, x, up);
    let x = asm.select(is_tiny, raised, x);
    let (zero, minus54) = (asm.float(0.0, x.ty), asm.float(-54.0, x.ty));
    let correction = asm.select(is_tiny, minus54, zero);
    let bits = asm.cast(Cast::Bitcast, x, Elem::I64);
    // Subtracting the bits of sqrt(1/2) makes the exponent field relative to it.
    let base = asm.int(0x3FE6_A09E_667F_3BCD, bits.ty);
    let fifty_two = asm.int(52, bits.ty);
    let over = asm.bin(Bin::SubI, bits, base);
    let e = asm.bin(Bin::ShRSI, over, fifty_two);
    let whole = asm.bin(Bin::ShLI, e, fifty_two);
    let m = asm.bin(Bin::SubI, bits, whole);
    let m = asm.cast(Cast::Bitcast, m, Elem::F64);
    let e = asm.cast(Cast::SIToFP, e, Elem::F64);
    (m, asm.bin(Bin::AddF, e, correction))
}

/// log m = f - (f²/2 - s · (f²/2 + R(s²))) with f = m - 1, s = f / (2 + f), as in fdlibm  =>  (f, the value in
/// parentheses)
fn log_parts(asm: &mut impl Asm, m: Val) -> (Val, Val) {
    let (one, two, half) = (asm.float(1.0, m.ty), asm.float(2.0, m.ty), asm.float(0.5, m.ty));
    let f = asm.bin(Bin::SubF, m, one);
    let d = asm.bin(Bin::AddF, two, f);
    let s = asm.bin(Bin::DivF, f, d);
    let z = asm.bin(Bin::MulF, s, s);
    let r = polynomial(
        asm,
        z,
        &[
            6.666_666_666_666_735e-1,
            3.999_999_999_940_942e-1,
            2.857_142_874_366_239e-1,
            2.222_219_843_214_978_4e-1,
            1.818_357_216_161_805e-1,
            1.531_383_769_920_937_3e-1,
            1.479_819_860_511_658_6e-1,
        ],
    );
    let r = asm.bin(Bin::MulF, r, z);
    let square = asm.bin(Bin::MulF, f, f);
    let square = asm.bin(Bin::MulF, square, half);
    let sum = asm.bin(Bin::AddF, square, r);
    let product = asm.bin(Bin::MulF, s, sum);
    (f, asm.bin(Bin::SubF, square, product))
}

/// Natural logarithm: log(0) = -inf, log of a negative number is NaN, log(inf) = inf.
pub fn log(asm: &mut impl Asm, x: Val) -> Val {
    let (m, e) = split(asm, x);
    let (f, rest) = log_parts(asm, m);
    let (high, low) = (asm.float(6.931_471_803_691_238e-1, x.ty), asm.float(1.908_214_929_270_587_7e-10, x.ty));
    let low = asm.bin(Bin::MulF, e, low);
    let rest = asm.bin(Bin::SubF, rest, low);
    let small = asm.bin(Bin::SubF, f, rest);
    let y = asm.fma(e, high, small);
    log_special(asm, x, y)
}

fn log_special(asm: &mut impl Asm, x: Val, y: Val) -> Val {
    let (zero, inf) = (asm.float(0.0, x.ty), asm.float(f64::INFINITY, x.ty));
    let (minus_inf, nan) = (asm.float(f64::NEG_INFINITY, x.ty), asm.float(f64::NAN, x.ty));
    let is_inf = asm.cmpf(CmpF::Oeq, x, inf);
    let y = asm.select(is_inf, inf, y);
    let is_zero = asm.cmpf(CmpF::Oeq, x, zero);
    let y = asm.select(is_zero, minus_inf, y);
    let wrong = asm.cmpf(CmpF::Ult, x, zero);
    asm.select(wrong, nan, y)
}

/// Largest |x| for which `reduce_angle` is used.
const LARGE: f64 = 1e9;

/// 2/π in chunks of 24 bits, as many as the largest f32 needs.
static TWO_OVER_PI: [u32; 9] =
    [0xA2F983, 0x6E4E44, 0x1529FC, 0x2757D1, 0xF534DD, 0xC0DB62, 0x95993C, 0x439041, 0xFE5163];

/// x = n · π/2 + r with |r| ≤ π/4  =>  (r, n)
fn reduce_angle(asm: &mut impl Asm, x: Val) -> (Val, Val) {
    let (t, n) = scaled_round(asm, x, std::f64::consts::FRAC_2_PI);
    // π/2 in three parts of 53 bits, applied by fma: accurate for |x| up to `LARGE`.
    let parts = [-std::f64::consts::FRAC_PI_2, -6.123_233_995_736_766e-17, 1.497_384_904_859_169_8e-33];
    let r = parts.into_iter().fold(x, |r, part| {
        let part = asm.float(part, x.ty);
        asm.fma(t, part, r)
    });
    (r, n)
}

/// As `reduce_angle`, for any x that is representable in f32. Each product with a chunk of 2/π is exact, and so is its
/// remainder modulo 4.
fn reduce_large_angle(asm: &mut impl Asm, x: Val) -> (Val, Val) {
    let (quarter, minus_four) = (asm.float(0.25, x.ty), asm.float(-4.0, x.ty));
    let mut sum = asm.float(0.0, x.ty);
    for (i, piece) in TWO_OVER_PI.iter().enumerate() {
        let piece = asm.float(*piece as f64 * 2f64.powi(-24 * (i as i32 + 1)), x.ty);
        let product = asm.bin(Bin::MulF, x, piece);
        let whole = asm.bin(Bin::MulF, product, quarter);
        let whole = asm.un(Un::Floor, whole);
        let rest = asm.fma(whole, minus_four, product);
        sum = asm.bin(Bin::AddF, sum, rest);
    }
    let (t, n) = scaled_round(asm, sum, 1.0);
    let fraction = asm.bin(Bin::SubF, sum, t);
    let half_pi = asm.float(std::f64::consts::FRAC_PI_2, x.ty);
    (asm.bin(Bin::MulF, fraction, half_pi), n)
}

/// sin(x) for start 0, cos(x) for start 1: `start` counts quarter turns. If `from_f32`, x has the range and the
/// precision of an f32; otherwise the result is NaN for |x| > 10^9.
pub fn sine(asm: &mut impl Asm, x: Val, start: i64, from_f32: bool) -> Val {
    let (r, n) = reduce_angle(asm, x);
    let size = asm.un(Un::AbsF, x);
    let limit = asm.float(LARGE, x.ty);
    let large = asm.cmpf(CmpF::Ogt, size, limit);
    let (r, n) = if from_f32 {
        let some = asm.any(large);
        let both = asm.if_else(
            some,
            &[r.ty, n.ty],
            |asm| {
                let (r2, n2) = reduce_large_angle(asm, x);
                vec![asm.select(large, r2, r), asm.select(large, n2, n)]
            },
            |_| vec![r, n],
        );
        (both[0], both[1])
    } else {
        let nan = asm.float(f64::NAN, x.ty);
        (asm.select(large, nan, r), n)
    };
    let square = asm.bin(Bin::MulF, r, r);
    let s = polynomial(asm, square, &inverse_factorials(1, 19, 2, true));
    let s = asm.bin(Bin::MulF, s, r);
    let c = polynomial(asm, square, &inverse_factorials(0, 18, 2, true));
    let (one, two, zero) = (asm.int(1, n.ty), asm.int(2, n.ty), asm.int(0, n.ty));
    let quarter = asm.int(start, n.ty);
    let n = asm.bin(Bin::AddI, n, quarter);
    let odd = asm.bin(Bin::AndI, n, one);
    let odd = asm.cmpi(CmpI::Ne, odd, zero);
    let y = asm.select(odd, c, s);
    let half = asm.bin(Bin::AndI, n, two);
    let negative = asm.cmpi(CmpI::Ne, half, zero);
    let minus = asm.un(Un::NegF, y);
    let y = asm.select(negative, minus, y);
    if start == 1 {
        return y;
    }
    // The sine of -0 is -0.
    let nothing = asm.float(0.0, x.ty);
    let is_zero = asm.cmpf(CmpF::Oeq, x, nothing);
    asm.select(is_zero, x, y)
}

/// pow as exp(y · log |x|), with the special cases of C `pow`.
pub fn pow(asm: &mut impl Asm, x: Val, y: Val) -> Val {
    let size = asm.un(Un::AbsF, x);
    let result = pow_positive(asm, size, y);
    let (one, zero, half) = (asm.float(1.0, x.ty), asm.float(0.0, x.ty), asm.float(0.5, x.ty));
    let (inf, nan) = (asm.float(f64::INFINITY, x.ty), asm.float(f64::NAN, x.ty));
    let y_floor = asm.un(Un::Floor, y);
    let is_int = asm.cmpf(CmpF::Oeq, y_floor, y);
    let y_half = asm.bin(Bin::MulF, y, half);
    let half_floor = asm.un(Un::Floor, y_half);
    let even = asm.cmpf(CmpF::Oeq, half_floor, y_half);
    // An odd exponent keeps the sign of x, also for zero and infinity.
    let signed = copysign(asm, result, x);
    let by_int = asm.select(even, result, signed);
    let kept = asm.select(is_int, by_int, result);
    let negative = asm.cmpf(CmpF::Olt, x, zero);
    let x_finite = asm.cmpf(CmpF::One, size, inf);
    let not_int = asm.cmpf(CmpF::Une, y_floor, y);
    let wrong = asm.bin(Bin::AndI, negative, not_int);
    let wrong = asm.bin(Bin::AndI, wrong, x_finite);
    let kept = asm.select(wrong, nan, kept);
    let y_inf = asm.un(Un::AbsF, y);
    let y_inf = asm.cmpf(CmpF::Oeq, y_inf, inf);
    let size_one = asm.cmpf(CmpF::Oeq, size, one);
    let unit = asm.bin(Bin::AndI, y_inf, size_one);
    let x_one = asm.cmpf(CmpF::Oeq, x, one);
    let y_zero = asm.cmpf(CmpF::Oeq, y, zero);
    let unit = asm.bin(Bin::OrI, unit, x_one);
    let unit = asm.bin(Bin::OrI, unit, y_zero);
    asm.select(unit, one, kept)
}

/// pow for x ≥ 0. The logarithm has about 20 bits more than an f64, so that large exponents do not lose accuracy.
fn pow_positive(asm: &mut impl Asm, x: Val, y: Val) -> Val {
    let (m, e) = split(asm, x);
    let (f, rest) = log_parts(asm, m);
    let high = asm.float(6.931_471_803_691_238e-1, x.ty);
    let low = asm.float(1.908_214_929_270_587_7e-10, x.ty);
    // high has 32 bits, so that e · high is exact; the rounding error of the sum with f is kept.
    let whole = asm.bin(Bin::MulF, e, high);
    let sum = asm.bin(Bin::AddF, whole, f);
    let back = asm.bin(Bin::SubF, sum, whole);
    let lost_f = asm.bin(Bin::SubF, f, back);
    let there = asm.bin(Bin::SubF, sum, back);
    let lost_whole = asm.bin(Bin::SubF, whole, there);
    let lost = asm.bin(Bin::AddF, lost_f, lost_whole);
    let tail = asm.fma(e, low, lost);
    let tail = asm.bin(Bin::SubF, tail, rest);
    let log = asm.bin(Bin::AddF, sum, tail);
    let taken = asm.bin(Bin::SubF, log, sum);
    let tail = asm.bin(Bin::SubF, tail, taken);
    let special = log_special(asm, x, log);
    let product = asm.bin(Bin::MulF, y, special);
    let minus = asm.un(Un::NegF, product);
    let error = asm.fma(y, log, minus);
    let error = asm.fma(y, tail, error);
    let power = exp(asm, product);
    // exp(p + d) = exp(p) · (1 + d); the correction is meaningless if the product is not finite.
    let corrected = asm.fma(power, error, power);
    let size = asm.un(Un::AbsF, product);
    let limit = asm.float(708.0, x.ty);
    let usual = asm.cmpf(CmpF::Olt, size, limit);
    asm.select(usual, corrected, power)
}
