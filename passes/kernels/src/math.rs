//! exp(x)  =>  2^n · polynomial: the transcendental functions in f32, on scalars and vectors, without a library
//!
//! Every function gives the same bits for a scalar and for a lane of a vector, on every level. Maximum errors, measured
//! over all f32: exp 0.9 ulp, x / (1 + exp(y)) 1.5 ulp, tanh 1.4 ulp, erf 1.8e-7 absolute (2^-22.4; at most 4 ulp
//! relative). log, sin, cos and pow are computed in f64 and rounded once (see `math64`; 0.5 ulp over dense samples of
//! log, and of sin and cos for |x| < 10^5).

use super::asm::{Asm, Bin, Cast, CmpF, Elem, Mlir, Ty, Un, Val};

/// Evaluates c[0] + c[1]·x + … by Horner's rule.
pub fn polynomial(asm: &mut impl Asm, x: Val, coefficients: &[f64]) -> Val {
    let mut sum = asm.float(coefficients[coefficients.len() - 1], x.ty);
    for c in coefficients.iter().rev().skip(1) {
        let c = asm.float(*c, x.ty);
        sum = asm.fma(sum, x, c);
    }
    sum
}

/// x clamped to lo..hi; NaN stays NaN.
pub fn clamp(asm: &mut impl Asm, x: Val, lo: f64, hi: f64) -> Val {
    let (lo, hi) = (asm.float(lo, x.ty), asm.float(hi, x.ty));
    let below = asm.cmpf(CmpF::Olt, x, lo);
    let x = asm.select(below, lo, x);
    let above = asm.cmpf(CmpF::Ogt, x, hi);
    asm.select(above, hi, x)
}

/// |x| with the sign of s.
pub fn copysign(asm: &mut impl Asm, x: Val, s: Val) -> Val {
    asm.bin(Bin::CopySign, x, s)
}

/// round(x · scale) as a float and as an integer of the same width, for |x · scale| < 2^21 (f32) or 2^50 (f64).
///
/// Adding 1.5 · 2^23 (f32) or 1.5 · 2^52 (f64) leaves the integer in the low bits of the sum. Unlike that of a
/// conversion instruction, the result is defined for NaN too.
pub fn scaled_round(asm: &mut impl Asm, x: Val, scale: f64) -> (Val, Val) {
    let magic = if x.ty.elem == Elem::F32 { 12582912.0 } else { 6755399441055744.0 };
    let (magic, scale) = (asm.float(magic, x.ty), asm.float(scale, x.ty));
    let shifted = asm.fma(x, scale, magic);
    let float = asm.bin(Bin::SubF, shifted, magic);
    let int = x.ty.elem.int();
    let (bits, base) = (asm.cast(Cast::Bitcast, shifted, int), asm.cast(Cast::Bitcast, magic, int));
    (float, asm.bin(Bin::SubI, bits, base))
}

/// y · 2^n for |n| ≤ 252 (f32) or |n| ≤ 2044 (f64), rounded once.
pub fn scale_by_power(asm: &mut impl Asm, y: Val, n: Val) -> Val {
    let (bias, mantissa) = if y.ty.elem == Elem::F32 { (127, 23) } else { (1023, 52) };
    let (one, bias, mantissa) = (asm.int(1, n.ty), asm.int(bias, n.ty), asm.int(mantissa, n.ty));
    // Multiplies by two powers of two, because 2^n itself may be out of range where the product is not.
    let half = asm.bin(Bin::ShRSI, n, one);
    let rest = asm.bin(Bin::SubI, n, half);
    [half, rest].into_iter().fold(y, |y, part| {
        let biased = asm.bin(Bin::AddI, part, bias);
        let bits = asm.bin(Bin::ShLI, biased, mantissa);
        let factor = asm.cast(Cast::Bitcast, bits, y.ty.elem);
        asm.bin(Bin::MulF, y, factor)
    })
}

/// Coefficients of exp(r) on |r| ≤ ln 2 / 2.
static EXP: [f64; 7] = [1.0, 1.0, 0.49999993432, 0.16666520399, 0.04166839079, 0.00836874514, 0.00138145398];
/// Coefficients of exp(r) on the same interval, with one term fewer.
static EXP_SHORT: [f64; 6] = [1.0, 1.0, 0.49999230305, 0.16667115387, 0.04189033200, 0.00831250157];

/// x  =>  t as a float, t as an integer, and r, where x = t ln 2 + r, |r| ≤ ln 2 / 2 and t is integral.
fn reduced(asm: &mut impl Asm, x: Val) -> (Val, Val, Val) {
    let (t, n) = scaled_round(asm, x, std::f64::consts::LOG2_E);
    // ln 2 is split into two parts; the first has few bits, so that t times it is exact.
    let (high, low) = (asm.float(-0.693359375, x.ty), asm.float(2.121_944_4e-4, x.ty));
    let r = asm.fma(t, high, x);
    (t, n, asm.fma(t, low, r))
}

/// Returns y · 2^t, rounded once; `n` is t as an integer.
fn scaled(asm: &mut impl Asm, y: Val, t: Val, n: Val) -> Val {
    if let Some(cpu) = scaler(asm, y.ty) {
        return cpu.isa.scale(cpu, y, t, None);
    }
    scale_by_power(asm, y, n)
}

/// exp with at most 0.9 ulp (degree 6 on |r| ≤ ln 2 / 2); exp(-inf) = 0, exp(inf) = inf, NaN stays NaN.
pub fn exp(asm: &mut impl Asm, x: Val) -> Val {
    // Below -104 the result is 0. Such arguments are common (masked elements), and underflow is slow.
    let (lowest, highest) = (asm.float(-104.0, x.ty), asm.float(90.0, x.ty));
    let none = asm.cmpf(CmpF::Olt, x, lowest);
    let above = asm.cmpf(CmpF::Ogt, x, highest);
    let x = asm.select(above, highest, x);
    let zero = asm.zero(x.ty);
    if let Some(cpu) = scaler(asm, x.ty) {
        // The lanes in `none` are computed as well, but replaced by 0.
        let (t, _, r) = reduced(cpu, x);
        let y = polynomial(cpu, r, &EXP);
        return cpu.isa.scale(cpu, y, t, Some(none));
    }
    let x = asm.select(none, zero, x);
    let (t, n, r) = reduced(asm, x);
    let y = polynomial(asm, r, &EXP);
    let y = scaled(asm, y, t, n);
    asm.select(none, zero, y)
}

/// exp(x) for x ≤ 0 or NaN: at most 2.2 ulp, and a fifth faster than `exp`.
pub fn exp_below_zero(asm: &mut impl Asm, x: Val) -> Val {
    let Some(cpu) = scaler(asm, x.ty) else { return exp(asm, x) };
    let lowest = cpu.float(-104.0, x.ty);
    let none = cpu.cmpf(CmpF::Olt, x, lowest);
    let (t, _, r) = reduced(cpu, x);
    let y = polynomial(cpu, r, &EXP_SHORT);
    cpu.isa.scale(cpu, y, t, Some(none))
}

/// Whether `divided` supports a constant divisor.
pub fn is_quick_divisor(c: f64) -> bool {
    (1.0 / (1u64 << 60) as f64..=(1u64 << 60) as f64).contains(&c)
}

/// Returns x · (1 / c), and x / c with the accuracy of `divided` if x / c is finite. The second result may be 0 instead
/// of -0.
pub fn quotient(asm: &mut impl Asm, x: Val, c: f64) -> [Val; 2] {
    let c = c as f32;
    let [inverse, minus] = [1.0 / c, -c].map(|c| asm.float(f64::from(c), x.ty));
    let near = asm.bin(Bin::MulF, x, inverse);
    let left = asm.fma(near, minus, x);
    [near, asm.fma(left, inverse, near)]
}

/// x / c in f32, by multiplying with the reciprocal and correcting by the remainder: correctly rounded if |x| is at
/// least 2^-100 or 0, and within 1 ulp below that. A division instruction takes as long as ten of the instructions
/// used here.
pub fn divided(asm: &mut impl Asm, x: Val, c: f64) -> Val {
    let [near, quotient] = quotient(asm, x, c);
    // An infinity has no remainder, and -0 must keep its sign.
    let zero = asm.zero(x.ty);
    let known = asm.cmpf(CmpF::One, quotient, zero);
    asm.select(known, quotient, near)
}

/// x / (1 + exp(y)): for y = -x this is x times the logistic function of x, for x = 1 the logistic function of -y.
///
/// The error is at most 0.9 ulp, or 1.5 ulp if exp(y) is at or below the last bit of the sum; with three separately
/// rounded operations it would be 2.4 ulp. Four more multiply-adds compute the rounding errors of the sum and of the
/// quotient and correct them.
pub fn over_one_plus_exp(asm: &mut impl Asm, x: Val, y: Val) -> Val {
    // If y is above 88.375, the sum is treated as infinite; the corrections are computed from the clamped y.
    let highest = asm.float(88.375, y.ty);
    let above = asm.cmpf(CmpF::Ogt, y, highest);
    let y = clamp(asm, y, -104.0, 88.375);
    let (t, n, r) = reduced(asm, y);
    // exp(y) = 2^t (1 + rest)
    let square = asm.bin(Bin::MulF, r, r);
    let p = polynomial(asm, r, &EXP[2..]);
    let rest = asm.fma(p, square, r);
    let one = asm.float(1.0, y.ty);
    let power = scaled(asm, one, t, n);
    let whole = asm.bin(Bin::AddF, power, one);
    let sum = asm.fma(power, rest, whole);
    let lost = asm.bin(Bin::SubF, whole, sum);
    let lost = asm.fma(power, rest, lost);
    let inverse = asm.bin(Bin::DivF, one, sum);
    let zero = asm.zero(y.ty);
    let inverse = asm.select(above, zero, inverse);
    let quotient = asm.bin(Bin::MulF, x, inverse);
    let minus = asm.un(Un::NegF, quotient);
    let left = asm.fma(minus, sum, x);
    let left = asm.fma(minus, lost, left);
    let corrected = asm.fma(left, inverse, quotient);
    // The remainder of an infinite x is NaN and cannot correct the quotient.
    let infinite = asm.cmpf(CmpF::Uno, left, left);
    asm.select(infinite, quotient, corrected)
}

/// Returns the writer if it targets a CPU with an instruction that scales floats of type `ty` by powers of two.
fn scaler(asm: &mut impl Asm, ty: Ty) -> Option<&mut Mlir> {
    asm.cpu().filter(|cpu| cpu.isa.scales(ty))
}

/// tanh with at most 1.4 ulp. Small arguments use an odd polynomial (Cephes), others 1 - 2 / (exp(2x) + 1).
pub fn tanh(asm: &mut impl Asm, x: Val) -> Val {
    let size = asm.un(Un::AbsF, x);
    let square = asm.bin(Bin::MulF, x, x);
    let p = polynomial(
        asm,
        square,
        &[-3.333_328_194_22E-1, 1.333_144_220_36E-1, -5.373_971_555_31E-2, 2.063_908_879_54E-2, -5.704_988_727_45E-3],
    );
    let cube = asm.bin(Bin::MulF, square, size);
    let small = asm.fma(p, cube, size);
    let (one, two, edge) = (asm.float(1.0, x.ty), asm.float(2.0, x.ty), asm.float(0.625, x.ty));
    let twice = asm.bin(Bin::AddF, size, size);
    let e = exp(asm, twice);
    let e = asm.bin(Bin::AddF, e, one);
    let q = asm.bin(Bin::DivF, two, e);
    let large = asm.bin(Bin::SubF, one, q);
    let is_small = asm.cmpf(CmpF::Olt, size, edge);
    let y = asm.select(is_small, small, large);
    copysign(asm, y, x)
}

/// Coefficients of erf(x) / x on |x| ≤ 3.92 as a polynomial in x² / 7.6832 - 1 (Chebyshev fit); beyond, erf rounds to
/// ±1.
static ERF: [f64; 16] = [
    0.36073682,
    -0.18010859,
    0.13408479,
    -0.10918054,
    0.09059291,
    -0.07400415,
    0.05842159,
    -0.043517526,
    0.029621368,
    -0.019784858,
    0.014325616,
    -0.007950688,
    0.0018333733,
    -0.0011922028,
    0.0021241233,
    -0.00090000144,
];

/// erf with at most 2^-22 absolute error and 4 ulp; never beyond ±1, and ±1 from 3.92 on, so that gelu(x) is 0 or x
/// there.
pub fn erf(asm: &mut impl Asm, x: Val) -> Val {
    let x = clamp(asm, x, -3.92, 3.92);
    let square = asm.bin(Bin::MulF, x, x);
    let (scale, minus_one) = (asm.float(1.0 / 7.6832, x.ty), asm.float(-1.0, x.ty));
    let v = asm.fma(square, scale, minus_one);
    let p = polynomial(asm, v, &ERF);
    let y = asm.bin(Bin::MulF, p, x);
    clamp(asm, y, -1.0, 1.0)
}
