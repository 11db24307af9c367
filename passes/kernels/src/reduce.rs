//! ReduceFn  =>  its neutral element, the combination of partial results, and the reduction of lanes

use super::asm::{Asm, Elem, Ty, Val};
use super::scalar;
use sardonyx_base::DType;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};

pub fn neutral(asm: &mut impl Asm, f: ReduceFn, t: DType, ty: Ty) -> Val {
    // Integers of 4 and 2 bits are held in bytes.
    let bits = t.bits();
    let largest = match t.is_signed_int() {
        true => i64::MAX >> (64 - bits),
        false if bits < 8 => (1 << bits) - 1,
        false => -1,
    };
    let smallest = if t.is_signed_int() { i64::MIN >> (64 - bits) } else { 0 };
    match (f, t.is_float()) {
        (ReduceFn::Add, _) => asm.zero(ty),
        (ReduceFn::Mul, true) => asm.float(1.0, ty),
        (ReduceFn::Mul, false) => asm.int(1, ty),
        (ReduceFn::Max, true) => asm.float(f64::NEG_INFINITY, ty),
        (ReduceFn::Min, true) => asm.float(f64::INFINITY, ty),
        (ReduceFn::Max, false) => asm.int(smallest, ty),
        (ReduceFn::Min, false) => asm.int(largest, ty),
    }
}

/// Combines two partial results; f16 and bf16 partial results stay in f32.
pub fn combine(asm: &mut impl Asm, f: ReduceFn, t: DType, a: Val, b: Val) -> Val {
    let t = if a.ty.elem == Elem::F32 { DType::F32 } else { t };
    let f = match (t, f) {
        (DType::Bool, ReduceFn::Add | ReduceFn::Max) => ScalarFn::Or,
        (DType::Bool, ReduceFn::Mul | ReduceFn::Min) => ScalarFn::And,
        (_, f) => f.scalar(),
    };
    scalar::apply(asm, f, &[a, b], t)
}

pub fn tree(asm: &mut impl Asm, f: ReduceFn, t: DType, parts: Vec<Val>) -> Val {
    paired(asm, parts, |asm, a, b| combine(asm, f, t, a, b))
}

/// Combines adjacent parts until one is left.
pub fn paired<A: Asm>(asm: &mut A, mut parts: Vec<Val>, combine: impl Fn(&mut A, Val, Val) -> Val) -> Val {
    while parts.len() > 1 {
        let next = parts.chunks(2).map(|p| if p.len() == 2 { combine(asm, p[0], p[1]) } else { p[0] });
        parts = next.collect();
    }
    parts[0]
}

/// Combines the upper half of the lanes with the lower half until one lane is left.
pub fn across_lanes(asm: &mut impl Asm, f: ReduceFn, t: DType, v: Val) -> Val {
    let mut v = v;
    while v.ty.lanes > 1 {
        let half = v.ty.lanes / 2;
        let low = asm.shuffle(v, v, &(0..half).collect::<Vec<u32>>());
        let high = asm.shuffle(v, v, &(half..2 * half).collect::<Vec<u32>>());
        v = if half == 1 {
            let (low, high) = (asm.extract(v, 0), asm.extract(v, 1));
            combine(asm, f, t, low, high)
        } else {
            combine(asm, f, t, low, high)
        };
    }
    v
}
