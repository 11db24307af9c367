//! Integer division a / b  =>  shifts, a multiplication by a reciprocal, or a 32-bit division if both operands fit
//!
//! The PTX assembler would leave a division by a constant as a division, and turn a 64-bit division into a call.

use super::super::{Asm, Bin, Cast, CmpI, Elem, Ty, Val};
use super::Ptx;

/// Returns ⌊a / b⌋ of 64-bit integers for b > 0.
pub(super) fn floordiv(asm: &mut Ptx, a: Val, b: Val) -> Val {
    let constant = asm.known_int(b);
    let lanes = a.ty.lanes.max(b.ty.lanes);
    let (a, b) = (asm.widen(a, lanes), asm.widen(b, lanes));
    if let Some(shift) = constant.and_then(power_of_two) {
        let shift = asm.int(shift, a.ty);
        return asm.bin(Bin::ShRSI, a, shift);
    }
    // Neither operand is negative and both fit into 32 bits if no higher bit is set in any lane.
    let both = if constant.is_some() { a } else { asm.bin(Bin::OrI, a, b) };
    let mut all = asm.extract(both, 0);
    for lane in 1..both.ty.lanes {
        let next = asm.extract(both, lane);
        all = asm.bin(Bin::OrI, all, next);
    }
    let limit = asm.i64(1 << 32);
    let narrow = asm.cmpi(CmpI::Ult, all, limit);
    let wide = |asm: &mut Ptx| {
        let (quotient, rest) = (asm.bin(Bin::DivSI, a, b), asm.bin(Bin::RemSI, a, b));
        let (zero, one) = (asm.zero(a.ty), asm.int(1, a.ty));
        let negative = asm.cmpi(CmpI::Slt, rest, zero);
        let lower = asm.bin(Bin::SubI, quotient, one);
        vec![asm.select(negative, lower, quotient)]
    };
    let short = |asm: &mut Ptx| {
        let low = asm.cast(Cast::TruncI, a, Elem::I32);
        let divisor = match constant {
            Some(n) => asm.int(n, low.ty),
            None => asm.cast(Cast::TruncI, b, Elem::I32),
        };
        let quotient = asm.bin(Bin::DivUI, low, divisor);
        vec![asm.cast(Cast::ExtUI, quotient, Elem::I64)]
    };
    match constant {
        Some(n) if n >= 1 << 32 => wide(asm)[0],
        Some(_) | None => asm.if_else(narrow, &[a.ty], short, wide)[0],
    }
}

impl Ptx {
    /// Returns a / n of unsigned 32-bit integers for n > 0 (Granlund and Montgomery, 1994).
    pub(super) fn divided(&mut self, a: Val, n: u32) -> Val {
        if let Some(shift) = power_of_two(n as i64) {
            let shift = self.int(shift, a.ty);
            return self.bin(Bin::ShRUI, a, shift);
        }
        let (factor, shift, add) = reciprocal(n);
        let high = self.each(a.ty, &[a], |d, o| format!("mul.hi.u32 {d}, {}, {factor};", o[0]));
        let sum = match add {
            false => high,
            true => {
                // The factor has 33 bits, and its highest bit contributes a itself. Because a + high may overflow, half
                // of this sum is computed as (a - high) / 2 + high.
                let one = self.int(1, a.ty);
                let rest = self.bin(Bin::SubI, a, high);
                let half = self.bin(Bin::ShRUI, rest, one);
                self.bin(Bin::AddI, half, high)
            }
        };
        let shift = self.int(shift, Ty::new(Elem::I32, a.ty.lanes));
        self.bin(Bin::ShRUI, sum, shift)
    }
}

fn power_of_two(n: i64) -> Option<i64> {
    (n > 0 && n & (n - 1) == 0).then(|| n.trailing_zeros() as i64)
}

/// Returns a factor, a shift and a flag `add` for the division of any a by n. With h = a · factor >> 32, the quotient
/// a / n is h >> shift if `add` is false, and ((a − h) / 2 + h) >> shift if `add` is true.
fn reciprocal(n: u32) -> (u32, i64, bool) {
    let (n, bits) = (n as u128, 32 - (n - 1).leading_zeros());
    for shift in 0..bits {
        let power = 1u128 << (32 + shift);
        let factor = power.div_ceil(n);
        if factor < 1 << 32 && factor * n - power <= 1 << shift {
            return (factor as u32, shift as i64, false);
        }
    }
    let factor = (1u128 << (32 + bits)).div_ceil(n) - (1 << 32);
    (factor as u32, bits as i64 - 1, true)
}

#[cfg(test)]
mod tests {
    use super::reciprocal;

    #[test]
    fn a_product_with_the_reciprocal_is_the_quotient() {
        let divided = |a: u32, (factor, shift, add): (u32, i64, bool)| {
            let high = ((a as u64 * factor as u64) >> 32) as u32;
            if add { ((a - high) / 2 + high) >> shift } else { high >> shift }
        };
        let near = |n: u32| (0..3).flat_map(move |k| [n.wrapping_mul(k), u32::MAX / n * n].map(|a| a.wrapping_sub(k)));
        let divisors = (3..3000).chain([65537, 1 << 20 | 1, 641, 6700417, u32::MAX / 2, u32::MAX - 1, u32::MAX]);
        for n in divisors.filter(|n| !n.is_power_of_two()) {
            let numbers =
                near(n).chain([0, 1, 2, n - 1, n, n + (n < u32::MAX) as u32, 1 << 31, u32::MAX - 1, u32::MAX]);
            for a in numbers.chain((0..200).map(|i| 0x9E37_79B9u32.wrapping_mul(i))) {
                assert_eq!(divided(a, reciprocal(n)), a / n, "{a} / {n}");
            }
        }
    }
}
