//! and, or, xor, not (also on predicates), cnot, lop3, shl, shr, shf, prmt, bfe, bfi, bfind, clz, popc, brev, fns,
//! szext: bit operations

use super::mods::Mods;
use super::program::{Op, Regs};
use super::statements::Decoder;
use crate::Error;
use crate::text::ast::Operand;
use crate::text::types::Ty;
use crate::units::int::{self as unit, PrmtMode};

type Done = Result<(), Error>;

fn bitwise(
    d: &mut Decoder,
    mods: &mut Mods,
    ops: &[Operand],
    word: impl Fn(u32, u32) -> u32 + Send + Sync + 'static,
    double: impl Fn(u64, u64) -> u64 + Send + Sync + 'static,
) -> Done {
    let ty = mods.ty()?;
    match ty.bits() {
        1 => {
            d.count::<3>(ops)?;
            let ((a, not_a), (b, not_b)) = (d.pred_source(&ops[1])?, d.pred_source(&ops[2])?);
            let to = d.pred_target(&ops[0])?;
            let flip = |not: bool| 0u32.wrapping_sub(u32::from(not));
            let (flip_a, flip_b) = (flip(not_a), flip(not_b));
            d.emit(Op::Lanes(Box::new(move |regs: &mut Regs, mask| {
                let value = word(regs.p[a as usize] ^ flip_a, regs.p[b as usize] ^ flip_b);
                regs.set_pred(to, mask, value);
            })));
            Ok(())
        }
        16 | 32 => d.map2(ops, [ty; 3], word),
        64 => d.map2(ops, [ty; 3], double),
        _ => Err(d.unsupported(mods)),
    }
}

pub fn and(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    bitwise(d, mods, ops, |a, b| a & b, |a, b| a & b)
}

pub fn or(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    bitwise(d, mods, ops, |a, b| a | b, |a, b| a | b)
}

pub fn xor(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    bitwise(d, mods, ops, |a, b| a ^ b, |a, b| a ^ b)
}

pub fn not(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    match ty.bits() {
        1 => {
            d.count::<2>(ops)?;
            let (a, negated) = d.pred_source(&ops[1])?;
            let to = d.pred_target(&ops[0])?;
            let flip = if negated { 0 } else { u32::MAX };
            d.emit(Op::Lanes(Box::new(move |regs: &mut Regs, mask| {
                let value = regs.p[a as usize] ^ flip;
                regs.set_pred(to, mask, value);
            })));
            Ok(())
        }
        16 => d.map1(ops, [ty; 2], |a: u32| !a & 0xffff),
        32 => d.map1(ops, [ty; 2], |a: u32| !a),
        64 => d.map1(ops, [ty; 2], |a: u64| !a),
        _ => Err(d.unsupported(mods)),
    }
}

pub fn cnot(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    match ty.bits() {
        16 | 32 => d.map1(ops, [ty; 2], |a: u32| u32::from(a == 0)),
        64 => d.map1(ops, [ty; 2], |a: u64| u64::from(a == 0)),
        _ => Err(d.unsupported(mods)),
    }
}

pub fn lop3(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    let Some(Operand::Number(crate::text::lex::Number::Int(table @ 0..=255))) = ops.get(4) else {
        return d.error("the fifth operand is a table from 0 to 255");
    };
    let table = *table as u32;
    d.count::<5>(ops)?;
    // For the common tables, direct expressions take a tenth of the time of the general function.
    match table {
        0x96 => d.map3(&ops[..4], [ty; 4], |a: u32, b: u32, c: u32| a ^ b ^ c),
        0xc0 => d.map3(&ops[..4], [ty; 4], |a: u32, b: u32, _: u32| a & b),
        0xe2 => d.map3(&ops[..4], [ty; 4], |a: u32, b: u32, c: u32| c & !b | a & b),
        0xea => d.map3(&ops[..4], [ty; 4], |a: u32, b: u32, c: u32| a & b | c),
        0xf8 => d.map3(&ops[..4], [ty; 4], |a: u32, b: u32, c: u32| a | b & c),
        0xfe => d.map3(&ops[..4], [ty; 4], |a: u32, b: u32, c: u32| a | b | c),
        _ => d.map3(&ops[..4], [ty; 4], move |a: u32, b: u32, c: u32| unit::lop3(a, b, c, table)),
    }
}

pub fn shl(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    match ty.bits() {
        16 => d.map2(ops, [ty, ty, Ty::B32], |a: u32, n: u32| unit::shl(a.into(), n, 16) as u32),
        32 => d.map2(ops, [ty, ty, Ty::B32], |a: u32, n: u32| if n > 31 { 0 } else { a << n }),
        64 => d.map2(ops, [ty, ty, Ty::B32], |a: u64, n: u32| if n > 63 { 0 } else { a << n }),
        _ => Err(d.unsupported(mods)),
    }
}

pub fn shr(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    match (ty.bits(), ty.is_signed()) {
        (16, true) => d.map2(ops, [ty, ty, Ty::B32], |a: u32, n: u32| unit::shr_signed(a.into(), n, 16) as u32),
        (16, false) => d.map2(ops, [ty, ty, Ty::B32], |a: u32, n: u32| unit::shr(a.into(), n, 16) as u32),
        (32, true) => d.map2(ops, [ty, ty, Ty::B32], |a: u32, n: u32| (a as i32 >> n.min(31)) as u32),
        (32, false) => d.map2(ops, [ty, ty, Ty::B32], |a: u32, n: u32| if n > 31 { 0 } else { a >> n }),
        (64, true) => d.map2(ops, [ty, ty, Ty::B32], |a: u64, n: u32| (a as i64 >> n.min(63)) as u64),
        (64, false) => d.map2(ops, [ty, ty, Ty::B32], |a: u64, n: u32| if n > 63 { 0 } else { a >> n }),
        _ => Err(d.unsupported(mods)),
    }
}

pub fn shf(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let left = mods.required(&["l", "r"])? == "l";
    let wrap = mods.required(&["wrap", "clamp"])? == "wrap";
    let ty = mods.ty()?;
    let f = if left { unit::shf_l } else { unit::shf_r };
    d.map3(ops, [ty; 4], move |a: u32, b: u32, c: u32| f(a, b, c, wrap))
}

pub fn prmt(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let mode = match mods.one_of(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]) {
        Some("f4e") => PrmtMode::F4e,
        Some("b4e") => PrmtMode::B4e,
        Some("rc8") => PrmtMode::Rc8,
        Some("ecl") => PrmtMode::Ecl,
        Some("ecr") => PrmtMode::Ecr,
        Some(_) => PrmtMode::Rc16,
        None => PrmtMode::Default,
    };
    let ty = mods.ty()?;
    d.map3(ops, [ty; 4], move |a: u32, b: u32, c: u32| unit::prmt(mode, a, b, c))
}

pub fn bfe(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    let tys = [ty, ty, Ty::B32, Ty::B32];
    match (ty.bits(), ty.is_signed()) {
        (32, true) => d.map3(ops, tys, unit::bfe_s32),
        (32, false) => d.map3(ops, tys, unit::bfe_u32),
        (64, true) => d.map3(ops, tys, unit::bfe_s64),
        (64, false) => d.map3(ops, tys, unit::bfe_u64),
        _ => Err(d.unsupported(mods)),
    }
}

pub fn bfi(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    d.count::<5>(ops)?;
    let (pos, len) = (d.source::<u32>(&ops[3], Ty::B32)?, d.source::<u32>(&ops[4], Ty::B32)?);
    if ty.bits() == 32 {
        let (a, b) = (d.source::<u32>(&ops[1], ty)?, d.source::<u32>(&ops[2], ty)?);
        let to = d.target::<u32>(&ops[0], ty)?;
        d.emit(Op::Lanes(Box::new(move |regs: &mut Regs, mask| {
            let [a, b, pos, len] = [a, b, pos, len].map(|reg| &regs.w[reg as usize]);
            let out = std::array::from_fn::<u32, 32, _>(|i| unit::bfi_b32(a[i], b[i], pos[i], len[i]));
            regs.set(to, mask, &out);
        })));
    } else {
        let (a, b) = (d.source::<u64>(&ops[1], ty)?, d.source::<u64>(&ops[2], ty)?);
        let to = d.target::<u64>(&ops[0], ty)?;
        d.emit(Op::Lanes(Box::new(move |regs: &mut Regs, mask| {
            let ([a, b], [pos, len]) =
                ([a, b].map(|reg| &regs.d[reg as usize]), [pos, len].map(|reg| &regs.w[reg as usize]));
            let out = std::array::from_fn::<u64, 32, _>(|i| unit::bfi_b64(a[i], b[i], pos[i], len[i]));
            regs.set(to, mask, &out);
        })));
    }
    Ok(())
}

pub fn bfind(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let shift = mods.take("shiftamt");
    let ty = mods.ty()?;
    let tys = [Ty::B32, ty];
    match (ty.bits(), ty.is_signed()) {
        (32, true) => d.map1(ops, tys, move |a: u32| unit::bfind_s32(a, shift)),
        (32, false) => d.map1(ops, tys, move |a: u32| unit::bfind_u32(a, shift)),
        (64, true) => d.map1(ops, tys, move |a: u64| unit::bfind_s64(a, shift)),
        (64, false) => d.map1(ops, tys, move |a: u64| unit::bfind_u64(a, shift)),
        _ => Err(d.unsupported(mods)),
    }
}

pub fn clz(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    match ty.bits() {
        32 => d.map1(ops, [ty; 2], u32::leading_zeros),
        64 => d.map1(ops, [Ty::B32, ty], u64::leading_zeros),
        _ => Err(d.unsupported(mods)),
    }
}

pub fn popc(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    match ty.bits() {
        32 => d.map1(ops, [ty; 2], u32::count_ones),
        64 => d.map1(ops, [Ty::B32, ty], u64::count_ones),
        _ => Err(d.unsupported(mods)),
    }
}

pub fn brev(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    match ty.bits() {
        32 => d.map1(ops, [ty; 2], u32::reverse_bits),
        64 => d.map1(ops, [ty; 2], u64::reverse_bits),
        _ => Err(d.unsupported(mods)),
    }
}

pub fn fns(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    d.map3(ops, [ty, Ty::B32, Ty::B32, Ty::B32], |a: u32, b: u32, c: u32| unit::fns(a, b, c as i32))
}

pub fn szext(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let wrap = mods.required(&["wrap", "clamp"])? == "wrap";
    let ty = mods.ty()?;
    let signed = ty.is_signed();
    d.map2(ops, [ty, ty, Ty::B32], move |a: u32, n: u32| {
        let n = if wrap { n & 31 } else { n.min(32) };
        match (n, signed) {
            (0, _) => 0,
            (_, true) => unit::sign_extend(a.into(), n) as u32,
            (_, false) => (u64::from(a) & ((1 << n) - 1)) as u32,
        }
    })
}
