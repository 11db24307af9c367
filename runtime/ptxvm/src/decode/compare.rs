//! setp, set, testp: comparisons  =>  predicates, all ones or zero, 1.0 or 0.0

use super::mods::Mods;
use super::program::{Lane, Op, Regs};
use super::statements::Decoder;
use crate::Error;
use crate::report::Class;
use crate::text::ast::Operand;
use crate::text::types::Ty;
use crate::units::float::ftz;
use crate::units::packed::Half;

type Done = Result<(), Error>;

/// Compares two registers in all 32 lanes; returns the mask of lanes in which the comparison holds.
type Compare = Box<dyn Fn(&Regs) -> u32 + Send + Sync>;

const NAMES: [&str; 20] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
    "and", "or",
];

fn lanes<T: Lane>(a: u32, b: u32, f: impl Fn(T, T) -> bool + Send + Sync + 'static) -> Compare {
    Box::new(move |regs| {
        let (x, y) = (T::get(regs, a), T::get(regs, b));
        // Computing flags first and packing the bits afterwards lets the comparison vectorise.
        let mut flags = [0u32; 32];
        for lane in 0..32 {
            flags[lane] = u32::from(f(x[lane], y[lane]));
        }
        flags.iter().enumerate().fold(0, |mask, (lane, flag)| mask | flag << lane)
    })
}

fn signed_or_not<T: Lane>(
    d: &Decoder,
    name: &str,
    a: u32,
    b: u32,
    signed: bool,
    order: impl Fn(T, T) -> std::cmp::Ordering + Send + Sync + 'static,
) -> Result<Compare, Error> {
    Ok(match name {
        "eq" => lanes(a, b, move |x, y| order(x, y).is_eq()),
        "ne" => lanes(a, b, move |x, y| order(x, y).is_ne()),
        "lt" => lanes(a, b, move |x, y| order(x, y).is_lt()),
        "le" => lanes(a, b, move |x, y| order(x, y).is_le()),
        "gt" => lanes(a, b, move |x, y| order(x, y).is_gt()),
        "ge" => lanes(a, b, move |x, y| order(x, y).is_ge()),
        "lo" if !signed => lanes(a, b, move |x, y| order(x, y).is_lt()),
        "ls" if !signed => lanes(a, b, move |x, y| order(x, y).is_le()),
        "hi" if !signed => lanes(a, b, move |x, y| order(x, y).is_gt()),
        "hs" if !signed => lanes(a, b, move |x, y| order(x, y).is_ge()),
        _ => return d.error(format!("no comparison `.{name}` of integers")),
    })
}

fn floats<T: Lane>(
    d: &Decoder,
    name: &str,
    a: u32,
    b: u32,
    value: impl Fn(T) -> f64 + Copy + Send + Sync + 'static,
) -> Result<Compare, Error> {
    let v = value;
    Ok(match name {
        "eq" => lanes(a, b, move |x, y| v(x) == v(y)),
        "ne" => lanes(a, b, move |x, y| v(x) < v(y) || v(x) > v(y)),
        "lt" => lanes(a, b, move |x, y| v(x) < v(y)),
        "le" => lanes(a, b, move |x, y| v(x) <= v(y)),
        "gt" => lanes(a, b, move |x, y| v(x) > v(y)),
        "ge" => lanes(a, b, move |x, y| v(x) >= v(y)),
        "equ" => lanes(a, b, move |x, y| !(v(x) < v(y) || v(x) > v(y))),
        "neu" => lanes(a, b, move |x, y| v(x) != v(y)),
        "ltu" => lanes(a, b, move |x, y| v(x) < v(y) || unordered(v(x), v(y))),
        "leu" => lanes(a, b, move |x, y| v(x) <= v(y) || unordered(v(x), v(y))),
        "gtu" => lanes(a, b, move |x, y| v(x) > v(y) || unordered(v(x), v(y))),
        "geu" => lanes(a, b, move |x, y| v(x) >= v(y) || unordered(v(x), v(y))),
        "num" => lanes(a, b, move |x, y| !v(x).is_nan() && !v(y).is_nan()),
        "nan" => lanes(a, b, move |x, y| v(x).is_nan() || v(y).is_nan()),
        _ => return d.error(format!("no comparison `.{name}` of floats")),
    })
}

fn compare(d: &mut Decoder, mods: &mut Mods, name: &str, ty: Ty, ops: &[Operand]) -> Result<Compare, Error> {
    let flush = mods.take("ftz");
    let (a, b) = match ty.bits() {
        64 => (d.source::<u64>(&ops[0], ty)?, d.source::<u64>(&ops[1], ty)?),
        16 | 32 => (d.source::<u32>(&ops[0], ty)?, d.source::<u32>(&ops[1], ty)?),
        _ => return Err(d.unsupported(mods)),
    };
    match ty {
        Ty::S16 => signed_or_not(d, name, a, b, true, |x: u32, y: u32| (x as i16).cmp(&(y as i16))),
        Ty::S32 => signed_or_not(d, name, a, b, true, |x: u32, y: u32| (x as i32).cmp(&(y as i32))),
        Ty::S64 => signed_or_not(d, name, a, b, true, |x: u64, y: u64| (x as i64).cmp(&(y as i64))),
        Ty::U16 | Ty::B16 => signed_or_not(d, name, a, b, false, |x: u32, y: u32| (x as u16).cmp(&(y as u16))),
        Ty::U32 | Ty::B32 => signed_or_not(d, name, a, b, false, |x: u32, y: u32| x.cmp(&y)),
        Ty::U64 | Ty::B64 => signed_or_not(d, name, a, b, false, |x: u64, y: u64| x.cmp(&y)),
        Ty::F32 if flush => floats(d, name, a, b, |x: u32| f64::from(ftz(f32::from_bits(x)))),
        Ty::F32 => floats(d, name, a, b, |x: u32| f64::from(f32::from_bits(x))),
        Ty::F64 => floats(d, name, a, b, f64::from_bits),
        Ty::F16 => floats(d, name, a, b, |x: u32| f64::from(Half::F16.widen(x as u16))),
        Ty::Bf16 => floats(d, name, a, b, |x: u32| f64::from(Half::Bf16.widen(x as u16))),
        _ => Err(d.unsupported(mods)),
    }
}

fn unordered(x: f64, y: f64) -> bool {
    x.is_nan() || y.is_nan()
}

#[derive(Clone, Copy)]
enum Combine {
    And,
    Or,
    Xor,
}

impl Combine {
    fn take(mods: &mut Mods) -> Option<Combine> {
        Some(match mods.one_of(&["and", "or", "xor"])? {
            "and" => Combine::And,
            "or" => Combine::Or,
            _ => Combine::Xor,
        })
    }

    fn apply(self, a: u32, b: u32) -> u32 {
        match self {
            Combine::And => a & b,
            Combine::Or => a | b,
            Combine::Xor => a ^ b,
        }
    }
}

fn third(d: &mut Decoder, combine: Option<Combine>, ops: &[Operand]) -> Result<Option<(u32, bool)>, Error> {
    match (combine, ops) {
        (None, [_, _]) => Ok(None),
        (Some(_), [_, _, third]) => d.pred_source(third).map(Some),
        _ => d.error("takes two values, and a predicate with `.and`, `.or` or `.xor`"),
    }
}

/// `setp.lt.and.s32 p|q, a, b, !c`
pub fn setp(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let (combine, name) = (Combine::take(mods), mods.required(&NAMES)?);
    let ty = mods.ty()?;
    let Some((targets, values)) = ops.split_first() else {
        return d.error("operands are missing");
    };
    if ty == Ty::F16x2 || ty == Ty::Bf16x2 {
        return setp_pair(d, mods, name, ty, targets, values);
    }
    let third = third(d, combine, values)?;
    let compare = compare(d, mods, name, ty, values)?;
    let (p, q) = match targets {
        Operand::Pair(p, q) => (d.pred_target(p)?, Some(d.pred_target(q)?)),
        one => (d.pred_target(one)?, None),
    };
    d.emit(Op::Lanes(Box::new(move |regs: &mut Regs, mask| {
        let holds = compare(regs);
        let (yes, no) = match (combine, third) {
            (Some(combine), Some((c, negated))) => {
                let c = regs.p[c as usize] ^ 0u32.wrapping_sub(u32::from(negated));
                (combine.apply(holds, c), combine.apply(!holds, c))
            }
            _ => (holds, !holds),
        };
        regs.set_pred(p, mask, yes);
        if let Some(q) = q {
            regs.set_pred(q, mask, no);
        }
    })));
    Ok(())
}

/// `setp.lt.f16x2 p|q`: one predicate for each half of the pair.
fn setp_pair(d: &mut Decoder, mods: &mut Mods, name: &str, ty: Ty, targets: &Operand, values: &[Operand]) -> Done {
    d.count::<2>(values)?;
    mods.take("ftz");
    let half = if ty == Ty::F16x2 { Half::F16 } else { Half::Bf16 };
    let (a, b) = (d.source::<u32>(&values[0], ty)?, d.source::<u32>(&values[1], ty)?);
    let low = floats(d, name, a, b, move |x: u32| f64::from(half.widen(x as u16)))?;
    let high = floats(d, name, a, b, move |x: u32| f64::from(half.widen((x >> 16) as u16)))?;
    let Operand::Pair(p, q) = targets else {
        return d.error("two predicates `p|q` are needed");
    };
    let (p, q) = (d.pred_target(p)?, d.pred_target(q)?);
    d.emit(Op::Lanes(Box::new(move |regs: &mut Regs, mask| {
        let (low, high) = (low(regs), high(regs));
        regs.set_pred(p, mask, low);
        regs.set_pred(q, mask, high);
    })));
    Ok(())
}

/// `set.lt.u32.f32 d, a, b`: writes all ones or zero; 1.0 or 0.0 for floats.
pub fn set(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let (combine, name) = (Combine::take(mods), mods.required(&NAMES)?);
    let (to, ty) = (mods.ty()?, mods.ty()?);
    let Some((target, values)) = ops.split_first() else {
        return d.error("operands are missing");
    };
    let one = match to {
        Ty::F32 => 0x3f80_0000,
        Ty::U32 | Ty::S32 => u32::MAX,
        Ty::U16 | Ty::S16 => 0xffff,
        Ty::F16 => 0x3c00,
        Ty::Bf16 => 0x3f80,
        _ => return Err(d.unsupported(mods)),
    };
    let third = third(d, combine, values)?;
    let compare = compare(d, mods, name, ty, values)?;
    let to = d.target::<u32>(target, to)?;
    d.emit(Op::Lanes(Box::new(move |regs: &mut Regs, mask| {
        let mut holds = compare(regs);
        if let (Some(combine), Some((c, negated))) = (combine, third) {
            holds = combine.apply(holds, regs.p[c as usize] ^ 0u32.wrapping_sub(u32::from(negated)));
        }
        let out = std::array::from_fn::<u32, 32, _>(|lane| if holds >> lane & 1 == 1 { one } else { 0 });
        regs.set(to, mask, &out);
    })));
    Ok(())
}

pub fn testp(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let name = mods.required(&["finite", "infinite", "number", "notanumber", "normal", "subnormal"])?;
    let ty = mods.ty()?;
    d.count::<2>(ops)?;
    d.class = Class::Compare;
    let test: fn(std::num::FpCategory) -> bool = {
        use std::num::FpCategory::{Infinite, Nan, Normal, Subnormal, Zero};
        match name {
            "finite" => |c| c != Infinite && c != Nan,
            "infinite" => |c| c == Infinite,
            "number" => |c| c != Nan,
            "notanumber" => |c| c == Nan,
            "normal" => |c| c == Normal || c == Zero,
            _ => |c| c == Subnormal,
        }
    };
    let compare = match ty {
        Ty::F32 => {
            let a = d.source::<u32>(&ops[1], ty)?;
            lanes(a, a, move |x: u32, _| test(f32::from_bits(x).classify()))
        }
        Ty::F64 => {
            let a = d.source::<u64>(&ops[1], ty)?;
            lanes(a, a, move |x: u64, _| test(f64::from_bits(x).classify()))
        }
        _ => return Err(d.unsupported(mods)),
    };
    let p = d.pred_target(&ops[0])?;
    d.emit(Op::Lanes(Box::new(move |regs: &mut Regs, mask| {
        let holds = compare(regs);
        regs.set_pred(p, mask, holds);
    })));
    Ok(())
}
