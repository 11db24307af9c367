//! `ScalarFn` and conversions  =>  arith and math operations
//!
//! In registers, bool is i1, floats of 16 bits or fewer are f32 values already rounded to their type, and integers of
//! less than a byte are extended to a byte; integer types are signless.

use super::asm::{Asm, Bin, Cast, CmpF, CmpI, Elem, Un, Val};
use super::{math, math64, minifloat};
use sardonyx_base::DType;
use sardonyx_base::cpu::Extension;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};

/// Element type of a value in a register.
pub fn register(t: DType) -> Elem {
    use DType::*;
    match t {
        F32 | F16 | BF16 | F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ | F8E8M0 | F4E2M1 => Elem::F32,
        F64 => Elem::F64,
        Bool => Elem::I1,
        U8 | I8 | U4 | I4 | U2 | I2 => Elem::I8,
        U16 | I16 => Elem::I16,
        I32 | U32 => Elem::I32,
        I64 | U64 => Elem::I64,
        String | Value | C64 | C128 => unreachable!("`lower` refuses {t}"),
    }
}

/// Element type of a value in memory.
pub fn stored(t: DType) -> Elem {
    match t {
        DType::F16 => Elem::F16,
        DType::BF16 => Elem::I16,
        DType::Bool => Elem::I8,
        other if minifloat::is_byte(other) => Elem::I8,
        other => register(other),
    }
}

/// A loaded value  =>  its register representation.
pub fn after_load(asm: &mut impl Asm, v: Val, t: DType) -> Val {
    match t {
        DType::F16 => asm.cast(Cast::ExtF, v, Elem::F32),
        DType::BF16 => {
            let wide = asm.cast(Cast::ExtUI, v, Elem::I32);
            let sixteen = asm.int(16, wide.ty);
            let bits = asm.bin(Bin::ShLI, wide, sixteen);
            asm.cast(Cast::Bitcast, bits, Elem::F32)
        }
        DType::Bool => {
            let zero = asm.int(0, v.ty);
            asm.cmpi(CmpI::Ne, v, zero)
        }
        t if minifloat::is_byte(t) => minifloat::decode(asm, v, t),
        _ => v,
    }
}

/// The register representation  =>  the value to store. Exact: values of narrow floats are already rounded.
pub fn before_store(asm: &mut impl Asm, v: Val, t: DType) -> Val {
    match t {
        DType::F16 => asm.cast(Cast::TruncF, v, Elem::F16),
        DType::BF16 => {
            let bits = asm.cast(Cast::Bitcast, v, Elem::I32);
            let sixteen = asm.int(16, bits.ty);
            let high = asm.bin(Bin::ShRUI, bits, sixteen);
            asm.cast(Cast::TruncI, high, Elem::I16)
        }
        DType::Bool => asm.cast(Cast::ExtUI, v, Elem::I8),
        t if minifloat::is_byte(t) => minifloat::encode(asm, v, t),
        _ => v,
    }
}

/// Rounds an f32 to a narrower float (to nearest, ties to even); other types are returned unchanged.
pub fn rounded(asm: &mut impl Asm, v: Val, t: DType) -> Val {
    match t {
        DType::F16 => {
            let half = asm.cast(Cast::TruncF, v, Elem::F16);
            asm.cast(Cast::ExtF, half, Elem::F32)
        }
        DType::BF16 => {
            if let Some(cpu) = asm.cpu().filter(|cpu| cpu.has(Extension::Pairs)) {
                let bits = cpu.bf16_bits(v);
                return after_load(cpu, bits, t);
            }
            // On CPUs without the instruction, LLVM would call a library function.
            let bits = asm.cast(Cast::Bitcast, v, Elem::I32);
            let (one, sixteen) = (asm.int(1, bits.ty), asm.int(16, bits.ty));
            let (bias, keep) = (asm.int(0x7FFF, bits.ty), asm.int(-65536, bits.ty));
            let odd = asm.bin(Bin::ShRUI, bits, sixteen);
            let odd = asm.bin(Bin::AndI, odd, one);
            let up = asm.bin(Bin::AddI, bits, bias);
            let up = asm.bin(Bin::AddI, up, odd);
            let cut = asm.bin(Bin::AndI, up, keep);
            let rounded = asm.cast(Cast::Bitcast, cut, Elem::F32);
            let nan = asm.cmpf(CmpF::Uno, v, v);
            let quiet = asm.float(f64::NAN, v.ty);
            asm.select(nan, quiet, rounded)
        }
        t if minifloat::is_byte(t) => minifloat::rounded(asm, v, t),
        _ => v,
    }
}

/// Returns whether a type is a float of fewer than 32 bits, whose values are held as f32 in registers.
pub fn is_narrow(t: DType) -> bool {
    t.is_float() && t.bits() < 32
}

/// Wraps integers of less than a byte to their width; other types are returned unchanged.
fn wrapped(asm: &mut impl Asm, v: Val, t: DType) -> Val {
    if !t.is_int() || t.bits() >= 8 {
        return v;
    }
    if t.is_unsigned_int() {
        let mask = asm.int((1 << t.bits()) - 1, v.ty);
        return asm.bin(Bin::AndI, v, mask);
    }
    let unused = asm.int(8 - i64::from(t.bits()), v.ty);
    let high = asm.bin(Bin::ShLI, v, unused);
    asm.bin(Bin::ShRSI, high, unused)
}

/// Saturates a byte to the range of an integer type of less than a byte.
fn clamped(asm: &mut impl Asm, v: Val, t: DType) -> Val {
    let unsigned = t.is_unsigned_int();
    let values = 1i64 << t.bits();
    let (lo, hi) = if unsigned { (0, values - 1) } else { (-values / 2, values / 2 - 1) };
    let (lo, hi) = (asm.int(lo, v.ty), asm.int(hi, v.ty));
    let (min, max) = if unsigned { (Bin::MinUI, Bin::MaxUI) } else { (Bin::MinSI, Bin::MaxSI) };
    let v = asm.bin(min, v, hi);
    asm.bin(max, v, lo)
}

/// `sdx.convert {bits}`: reinterprets the memory representation.
pub fn reinterpret(asm: &mut impl Asm, v: Val, from: DType, to: DType) -> Val {
    let bits = before_store(asm, v, from);
    let same = asm.cast(Cast::Bitcast, bits, stored(to));
    let same = wrapped(asm, same, to);
    after_load(asm, same, to)
}

/// `sdx.convert`: float to integer truncates and saturates, with NaN giving 0; conversion to bool is `!= 0`; integers
/// wrap.
pub fn convert(asm: &mut impl Asm, v: Val, from: DType, to: DType) -> Val {
    let elem = register(to);
    if to == DType::Bool {
        let zero = asm.zero(v.ty);
        return match from {
            DType::Bool => v,
            _ if v.ty.elem.is_float() => asm.cmpf(CmpF::Une, v, zero),
            _ => asm.cmpi(CmpI::Ne, v, zero),
        };
    }
    match (v.ty.elem.is_float(), elem.is_float()) {
        (true, false) => {
            let whole = asm.float_to_int(v, elem, to.is_unsigned_int());
            if to.bits() < 8 { clamped(asm, whole, to) } else { whole }
        }
        (false, false) => {
            let op = match v.ty.elem.bits().cmp(&elem.bits()) {
                std::cmp::Ordering::Greater => Cast::TruncI,
                std::cmp::Ordering::Less if from.is_signed_int() => Cast::ExtSI,
                std::cmp::Ordering::Less | std::cmp::Ordering::Equal => Cast::ExtUI,
            };
            let whole = asm.cast(op, v, elem);
            wrapped(asm, whole, to)
        }
        (false, true) => {
            let op = if from.is_signed_int() { Cast::SIToFP } else { Cast::UIToFP };
            if is_narrow(to) && elem.bits() <= v.ty.elem.bits() {
                let wide = asm.cast(op, v, Elem::F64);
                return float_to_float(asm, wide, to);
            }
            let float = asm.cast(op, v, elem);
            rounded(asm, float, to)
        }
        (true, true) => float_to_float(asm, v, to),
    }
}

fn float_to_float(asm: &mut impl Asm, v: Val, to: DType) -> Val {
    match (v.ty.elem, to) {
        (Elem::F64, to) if is_narrow(to) => {
            let odd = round_to_odd(asm, v);
            rounded(asm, odd, to)
        }
        (Elem::F64, DType::F32) => asm.cast(Cast::TruncF, v, Elem::F32),
        (Elem::F32, DType::F64) => asm.cast(Cast::ExtF, v, Elem::F64),
        _ => rounded(asm, v, to),
    }
}

/// f64 to f32 towards zero, with the lowest bit set if the result is inexact, so that a second rounding is correct.
fn round_to_odd(asm: &mut impl Asm, v: Val) -> Val {
    let near = asm.cast(Cast::TruncF, v, Elem::F32);
    let back = asm.cast(Cast::ExtF, near, Elem::F64);
    let (size, back_size) = (asm.un(Un::AbsF, v), asm.un(Un::AbsF, back));
    let above = asm.cmpf(CmpF::Ogt, back_size, size);
    let inexact = asm.cmpf(CmpF::One, back, v);
    let bits = asm.cast(Cast::Bitcast, near, Elem::I32);
    let one = asm.int(1, bits.ty);
    let lower = asm.bin(Bin::SubI, bits, one);
    let cut = asm.select(above, lower, bits);
    let odd = asm.bin(Bin::OrI, cut, one);
    let bits = asm.select(inexact, odd, bits);
    asm.cast(Cast::Bitcast, bits, Elem::F32)
}

/// Applies a function to operands of type `t` (except the condition of `select`), all with the same number of lanes.
pub fn apply(asm: &mut impl Asm, f: ScalarFn, args: &[Val], t: DType) -> Val {
    let v = if t == DType::Bool || !t.is_float() { integer(asm, f, args, t) } else { float(asm, f, args, t) };
    match v.ty.elem {
        Elem::F32 if t.is_float() => rounded(asm, v, t),
        Elem::I8 => wrapped(asm, v, t),
        _ => v,
    }
}

fn float(asm: &mut impl Asm, f: ScalarFn, args: &[Val], t: DType) -> Val {
    let x = args[0];
    let double = x.ty.elem == Elem::F64;
    match f {
        ScalarFn::Abs => asm.un(Un::AbsF, x),
        ScalarFn::Add => asm.bin(Bin::AddF, x, args[1]),
        ScalarFn::Sub => asm.bin(Bin::SubF, x, args[1]),
        ScalarFn::Mul => asm.bin(Bin::MulF, x, args[1]),
        ScalarFn::Div => asm.bin(Bin::DivF, x, args[1]),
        ScalarFn::Max => extremum(asm, ReduceFn::Max, x, args[1]),
        ScalarFn::Min => extremum(asm, ReduceFn::Min, x, args[1]),
        ScalarFn::Neg => asm.un(Un::NegF, x),
        ScalarFn::Ceil => asm.un(Un::Ceil, x),
        ScalarFn::Floor => asm.un(Un::Floor, x),
        ScalarFn::Round => asm.un(Un::RoundEven, x),
        ScalarFn::Sqrt => asm.un(Un::Sqrt, x),
        ScalarFn::Eq => asm.cmpf(CmpF::Oeq, x, args[1]),
        ScalarFn::Le => asm.cmpf(CmpF::Ole, x, args[1]),
        ScalarFn::Lt => asm.cmpf(CmpF::Olt, x, args[1]),
        ScalarFn::IsNan => asm.cmpf(CmpF::Uno, x, x),
        ScalarFn::Select => asm.select(x, args[1], args[2]),
        ScalarFn::Sign => sign(asm, x),
        ScalarFn::Exp if double => math64::exp(asm, x),
        ScalarFn::Exp => math::exp(asm, x),
        ScalarFn::Tanh if double => math64::tanh(asm, x),
        ScalarFn::Tanh => math::tanh(asm, x),
        ScalarFn::Erf if double => math64::erf(asm, x),
        ScalarFn::Erf => math::erf(asm, x),
        ScalarFn::Atan => in_double(asm, args, t, |asm, x| math64::atan(asm, x[0])),
        ScalarFn::Log => in_double(asm, args, t, |asm, x| math64::log(asm, x[0])),
        ScalarFn::Sin => in_double(asm, args, t, |asm, x| math64::sine(asm, x[0], 0, !double)),
        ScalarFn::Cos => in_double(asm, args, t, |asm, x| math64::sine(asm, x[0], 1, !double)),
        ScalarFn::Pow => in_double(asm, args, t, |asm, x| math64::pow(asm, x[0], x[1])),
        ScalarFn::Rem => in_double(asm, args, t, |asm, x| remainder(asm, x[0], x[1])),
        ScalarFn::And | ScalarFn::Or | ScalarFn::Xor | ScalarFn::Not => unreachable!("bool only"),
        ScalarFn::BitAnd | ScalarFn::BitOr | ScalarFn::BitXor | ScalarFn::Shl | ScalarFn::Shr => {
            unreachable!("integers only")
        }
    }
}

/// Computes in f64 and rounds once to the operands' type; for narrow floats, returns an f32 that the caller rounds
/// further.
fn in_double<A: Asm>(asm: &mut A, args: &[Val], t: DType, f: impl FnOnce(&mut A, &[Val]) -> Val) -> Val {
    let elem = args[0].ty.elem;
    let wide: Vec<Val> = args.iter().map(|a| asm.cast(Cast::ExtF, *a, Elem::F64)).collect();
    let y = f(asm, &wide);
    if is_narrow(t) { round_to_odd(asm, y) } else { asm.cast(Cast::TruncF, y, elem) }
}

/// Maximum or minimum of a and b; NaN if either is NaN. The sign of a zero result is unspecified, which saves most of
/// the work of `arith.maximumf`.
fn extremum(asm: &mut impl Asm, f: ReduceFn, a: Val, b: Val) -> Val {
    let y = numbers_extremum(asm, f, a, b);
    let nan = asm.cmpf(CmpF::Uno, a, a);
    asm.select(nan, a, y)
}

/// Returns the larger of two floats for `Max`, the smaller one for any other function, or b if they are unordered. On
/// CPUs this is one instruction.
pub fn numbers_extremum(asm: &mut impl Asm, f: ReduceFn, a: Val, b: Val) -> Val {
    let better = if f == ReduceFn::Max { CmpF::Ogt } else { CmpF::Olt };
    let first = asm.cmpf(better, a, b);
    asm.select(first, a, b)
}

/// Returns -1, 0 or 1; NaN stays NaN.
fn sign(asm: &mut impl Asm, x: Val) -> Val {
    let (zero, one) = (asm.zero(x.ty), asm.float(1.0, x.ty));
    let unit = math::copysign(asm, one, x);
    let apart = asm.cmpf(CmpF::One, x, zero);
    let y = asm.select(apart, unit, zero);
    let nan = asm.cmpf(CmpF::Uno, x, x);
    asm.select(nan, x, y)
}

/// C `fmod`, exact: x - trunc(x / y) · y by fma, repeated with the result as x until this is smaller than y in absolute
/// value. One step suffices if the quotient has at most 53 bits.
fn remainder(asm: &mut impl Asm, x: Val, y: Val) -> Val {
    let size = asm.un(Un::AbsF, y);
    let (zero, inf) = (asm.float(0.0, x.ty), asm.float(f64::INFINITY, x.ty));
    let x_size = asm.un(Un::AbsF, x);
    let x_inf = asm.cmpf(CmpF::Oeq, x_size, inf);
    let y_zero = asm.cmpf(CmpF::Oeq, y, zero);
    let invalid = asm.bin(Bin::OrI, x_inf, y_zero);
    // Lanes without a result leave the loop immediately.
    let start = asm.select(invalid, zero, x);
    let r = asm.do_while(&[start], |asm, v| {
        let r = v[0];
        let r_size = asm.un(Un::AbsF, r);
        let more = asm.cmpf(CmpF::Oge, r_size, size);
        // If the quotient would overflow, multiples of 2^540 · y are subtracted first, or of 2^1080 · y if y is so
        // small that the quotient by 2^540 · y overflows too. The largest quotient is below 2^2098.
        let (big, scale, one) = (asm.float(1e300, x.ty), asm.float(2f64.powi(540), x.ty), asm.float(1.0, x.ty));
        let mut step = size;
        for _ in 0..2 {
            let quotient = asm.bin(Bin::DivF, r, step);
            let q_size = asm.un(Un::AbsF, quotient);
            let long = asm.cmpf(CmpF::Oge, q_size, big);
            let factor = asm.select(long, scale, one);
            step = asm.bin(Bin::MulF, step, factor);
        }
        let quotient = asm.bin(Bin::DivF, r, step);
        let down = asm.un(Un::Floor, quotient);
        let up = asm.un(Un::Ceil, quotient);
        let negative = asm.cmpf(CmpF::Olt, quotient, zero);
        let whole = asm.select(negative, up, down);
        let minus = asm.un(Un::NegF, whole);
        let next = asm.fma(minus, step, r);
        let next = asm.select(more, next, r);
        (asm.any(more), vec![next])
    })[0];
    // A quotient that was rounded up leaves a remainder of the wrong sign.
    let sign_of_x = math::copysign(asm, size, x);
    let turned = asm.bin(Bin::AddF, r, sign_of_x);
    let r_negative = asm.cmpf(CmpF::Olt, r, zero);
    let x_negative = asm.cmpf(CmpF::Olt, x, zero);
    let apart = asm.bin(Bin::XorI, r_negative, x_negative);
    let r_zero = asm.cmpf(CmpF::One, r, zero);
    let apart = asm.bin(Bin::AndI, apart, r_zero);
    let r = asm.select(apart, turned, r);
    let r = math::copysign(asm, r, x);
    let nan = asm.float(f64::NAN, x.ty);
    let y_nan = asm.cmpf(CmpF::Uno, y, y);
    let invalid = asm.bin(Bin::OrI, invalid, y_nan);
    asm.select(invalid, nan, r)
}

fn integer(asm: &mut impl Asm, f: ScalarFn, args: &[Val], t: DType) -> Val {
    let x = args[0];
    let unsigned = !t.is_signed_int();
    let (max, min, le, lt) = match unsigned {
        true => (Bin::MaxUI, Bin::MinUI, CmpI::Ule, CmpI::Ult),
        false => (Bin::MaxSI, Bin::MinSI, CmpI::Sle, CmpI::Slt),
    };
    match f {
        ScalarFn::Abs if unsigned => x,
        ScalarFn::Abs => {
            let zero = asm.zero(x.ty);
            let minus = asm.bin(Bin::SubI, zero, x);
            asm.bin(Bin::MaxSI, x, minus)
        }
        ScalarFn::Add => asm.bin(Bin::AddI, x, args[1]),
        ScalarFn::Sub => asm.bin(Bin::SubI, x, args[1]),
        ScalarFn::Mul => asm.bin(Bin::MulI, x, args[1]),
        ScalarFn::Max => asm.bin(max, x, args[1]),
        ScalarFn::Min => asm.bin(min, x, args[1]),
        ScalarFn::Eq => asm.cmpi(CmpI::Eq, x, args[1]),
        ScalarFn::Le => asm.cmpi(le, x, args[1]),
        ScalarFn::Lt => asm.cmpi(lt, x, args[1]),
        ScalarFn::And | ScalarFn::BitAnd => asm.bin(Bin::AndI, x, args[1]),
        ScalarFn::Or | ScalarFn::BitOr => asm.bin(Bin::OrI, x, args[1]),
        ScalarFn::Xor | ScalarFn::BitXor => asm.bin(Bin::XorI, x, args[1]),
        ScalarFn::Shl | ScalarFn::Shr => shift(asm, f == ScalarFn::Shl, x, args[1], t),
        ScalarFn::Not => {
            let one = asm.int(1, x.ty);
            asm.bin(Bin::XorI, x, one)
        }
        ScalarFn::Neg => {
            let zero = asm.zero(x.ty);
            asm.bin(Bin::SubI, zero, x)
        }
        ScalarFn::Select => asm.select(x, args[1], args[2]),
        ScalarFn::Sign => {
            let one = asm.int(1, x.ty);
            if unsigned {
                return asm.bin(Bin::MinUI, x, one);
            }
            let minus = asm.int(-1, x.ty);
            let x = asm.bin(Bin::MinSI, x, one);
            asm.bin(Bin::MaxSI, x, minus)
        }
        ScalarFn::Div => divide(asm, x, args[1], unsigned).0,
        ScalarFn::Rem => divide(asm, x, args[1], unsigned).1,
        ScalarFn::Pow => integer_power(asm, x, args[1], unsigned),
        ScalarFn::Atan
        | ScalarFn::Ceil
        | ScalarFn::Floor
        | ScalarFn::Round
        | ScalarFn::Sqrt
        | ScalarFn::Exp
        | ScalarFn::Log
        | ScalarFn::Sin
        | ScalarFn::Cos
        | ScalarFn::Tanh
        | ScalarFn::Erf
        | ScalarFn::IsNan => unreachable!("floats only"),
    }
}

/// Shifts x by `amount` bits. Processors disagree on amounts outside `0..width`, so no instruction gets such an amount;
/// the result is then 0, or only copies of the sign bit for a signed shift to the right.
fn shift(asm: &mut impl Asm, left: bool, x: Val, amount: Val, t: DType) -> Val {
    let width = i64::from(t.bits());
    let (zero, most, limit) = (asm.zero(x.ty), asm.int(width - 1, x.ty), asm.int(width, x.ty));
    // As unsigned numbers, negative amounts are large.
    let inside = asm.cmpi(CmpI::Ult, amount, limit);
    let amount = asm.select(inside, amount, most);
    match (left, t.is_signed_int()) {
        (false, true) => asm.bin(Bin::ShRSI, x, amount),
        (left, _) => {
            let y = asm.bin(if left { Bin::ShLI } else { Bin::ShRUI }, x, amount);
            asm.select(inside, y, zero)
        }
    }
}

/// Quotient towards zero, and remainder with the sign of the divisor; both are 0 for a zero divisor. Never traps.
fn divide(asm: &mut impl Asm, a: Val, b: Val, unsigned: bool) -> (Val, Val) {
    let (zero, one) = (asm.zero(a.ty), asm.int(1, a.ty));
    let none = asm.cmpi(CmpI::Eq, b, zero);
    if unsigned {
        let d = asm.select(none, one, b);
        let (q, r) = (asm.bin(Bin::DivUI, a, d), asm.bin(Bin::RemUI, a, d));
        return (asm.select(none, zero, q), asm.select(none, zero, r));
    }
    // The smallest integer divided by -1 would trap, so that quotient is computed as a negation.
    let minus_one = asm.int(-1, a.ty);
    let turn = asm.cmpi(CmpI::Eq, b, minus_one);
    let plain = asm.bin(Bin::OrI, none, turn);
    let d = asm.select(plain, one, b);
    let (q, r) = (asm.bin(Bin::DivSI, a, d), asm.bin(Bin::RemSI, a, d));
    let minus = asm.bin(Bin::SubI, zero, a);
    let q = asm.select(turn, minus, q);
    let apart = asm.bin(Bin::XorI, r, b);
    let apart = asm.cmpi(CmpI::Slt, apart, zero);
    let left = asm.cmpi(CmpI::Ne, r, zero);
    let apart = asm.bin(Bin::AndI, apart, left);
    let moved = asm.bin(Bin::AddI, r, b);
    let r = asm.select(apart, moved, r);
    (asm.select(none, zero, q), asm.select(plain, zero, r))
}

/// Wrapping power by squaring; a negative exponent gives 0, except for bases 1 and -1.
fn integer_power(asm: &mut impl Asm, x: Val, y: Val, unsigned: bool) -> Val {
    let (zero, one) = (asm.zero(x.ty), asm.int(1, x.ty));
    let power = asm.do_while(&[one, x, y], |asm, v| {
        let (sum, base, e) = (v[0], v[1], v[2]);
        let bit = asm.bin(Bin::AndI, e, one);
        let odd = asm.cmpi(CmpI::Ne, bit, zero);
        let product = asm.bin(Bin::MulI, sum, base);
        let sum = asm.select(odd, product, sum);
        let base = asm.bin(Bin::MulI, base, base);
        let e = asm.bin(Bin::ShRUI, e, one);
        let more = asm.cmpi(CmpI::Ne, e, zero);
        (asm.any(more), vec![sum, base, e])
    })[0];
    if unsigned {
        return power;
    }
    // For bases 1 and -1, only the parity of the exponent matters, so the result for a negative exponent, which the
    // loop takes as unsigned, is right.
    let negative = asm.cmpi(CmpI::Slt, y, zero);
    let minus_one = asm.int(-1, x.ty);
    let (plus, minus) = (asm.cmpi(CmpI::Eq, x, one), asm.cmpi(CmpI::Eq, x, minus_one));
    let unit_base = asm.bin(Bin::OrI, plus, minus);
    let gone = asm.select(unit_base, power, zero);
    asm.select(negative, gone, power)
}
