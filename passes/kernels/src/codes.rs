//! convert(clamp(round(x / c) + z))  =>  x clamped, divided, and rounded to integers in vectors: how codes are computed

use super::asm::{Asm, Bin, CmpF, Mlir, Val};
use super::def::*;
use super::math;
use sardonyx_base::DType;
use sardonyx_dialects::interp::int_range;
use sardonyx_dialects::scalar::ScalarFn;

/// Largest absolute value of a zero point. Integers up to this value, and the sum of two of them, are exact in f32.
const ZERO_MAX: f64 = 65536.0;

/// Skips clamps of a float before its conversion to the integer type `to`: a clamp to the type's range or to a wider
/// one has no effect, because the conversion saturates. Returns the statement that the skipped clamps clamp, or `step`
/// if none is skipped. A clamp whose value is `known` is not skipped, because it need not be computed again.
pub fn unclamped(def: &KernelDef, mut step: usize, to: DType, known: impl Fn(usize) -> bool) -> usize {
    let Some((least, most)) = int_range(to).filter(|_| def.body[step].dtype.is_float() && to.is_int()) else {
        return step;
    };
    loop {
        let clamped = match &def.body[step].op {
            _ if known(step) => None,
            Op::Apply { f: ScalarFn::Max, args } => beside(def, args, |x| x <= least as f64),
            Op::Apply { f: ScalarFn::Min, args } => beside(def, args, |x| x >= most as f64),
            _ => None,
        };
        let Some((inside, _)) = clamped else { return step };
        step = inside;
    }
}

/// Returns the operand that is combined with a constant that passes `test`, and the constant.
fn beside(def: &KernelDef, args: &[usize], test: impl Fn(f64) -> bool) -> Option<(usize, f64)> {
    let &[a, b] = args else { return None };
    let found = |k: usize| constant(def, k).filter(|x| test(*x));
    found(b).map(|x| (a, x)).or_else(|| found(a).map(|x| (b, x)))
}

fn constant(def: &KernelDef, k: usize) -> Option<f64> {
    if let Op::Const(bits) = def.body[k].op { Some(f64::from_bits(bits)) } else { None }
}

/// A code: the float `x` divided by `scale`, rounded to an integer, plus `zero`.
pub struct Code {
    pub x: usize,
    /// Statements that compute the code from `x`; `emit` does not use their values.
    pub after: Vec<usize>,
    scale: f64,
    zero: f64,
    least: f64,
    most: f64,
}

impl Code {
    /// Matches statement `step`, a float that is converted to the integer type `to` of at most 16 bits.
    pub fn find(def: &KernelDef, step: usize, to: DType) -> Option<Code> {
        let (least, most) = int_range(to).filter(|_| to.is_int() && to.bits() <= 16)?;
        let (rounded, zero) = match &def.body[step].op {
            Op::Apply { f: ScalarFn::Add, args } => beside(def, args, |z| z.fract() == 0.0 && z.abs() <= ZERO_MAX)?,
            _ => (step, 0.0),
        };
        let one = |k: usize, wanted: ScalarFn| match &def.body[k].op {
            Op::Apply { f, args } if *f == wanted && def.body[k].dtype == DType::F32 => Some(args.clone()),
            _ => None,
        };
        let quotient = one(rounded, ScalarFn::Round)?[0];
        let &[x, divisor] = one(quotient, ScalarFn::Div)?.as_slice() else { return None };
        let scale = constant(def, divisor).filter(|c| math::is_quick_divisor(*c))?;
        let after = vec![step, rounded, quotient];
        Some(Code { x, after, scale, zero, least: least as f64, most: most as f64 })
    }

    /// Returns the code of each lane, as i32; `None` if no instruction rounds vectors of this length to integers. The
    /// value `x` is clamped instead of the code, so that neither the quotient nor the remainder of the division is
    /// infinite.
    pub fn emit(&self, asm: &mut Mlir, x: Val) -> Option<Val> {
        let isa = asm.isa;
        let limit = |code: f64| f64::from(((code - self.zero) * self.scale) as f32);
        let within = asm.clamp_number(x, limit(self.least), limit(self.most));
        let quotient = math::quotient(asm, within, self.scale)[1];
        let rounded = isa.nearest(asm, quotient)?;
        let zero = asm.int(self.zero as i64, rounded.ty);
        let code = if self.zero == 0.0 { rounded } else { asm.bin(Bin::AddI, rounded, zero) };
        if self.least == 0.0 {
            // NaN was clamped to the least code.
            return Some(code);
        }
        let (number, none) = (asm.cmpf(CmpF::Oeq, x, x), asm.zero(code.ty));
        Some(asm.select(number, code, none))
    }
}
