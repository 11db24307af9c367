//! ldmatrix, stmatrix, mma.sync, mma.sp

use super::mods::Mods;
use super::ops::{Matrix, Multiply};
use super::program::{Bank, Op, Reg};
use super::statements::Decoder;
use super::target::{SM_80, SM_90};
use crate::Error;
use crate::text::ast::Operand;
use crate::text::lex::Number;
use crate::text::types::{Space, Ty};
use crate::units::mma::Mma;

type Done = Result<(), Error>;

/// Takes the mandatory `.sync.aligned`: the whole warp executes these instructions together.
pub fn sync_aligned(d: &Decoder, mods: &mut Mods) -> Done {
    if mods.take("sync") && mods.take("aligned") { Ok(()) } else { d.error("expected .sync.aligned") }
}

pub fn ldmatrix(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    matrix(d, mods, ops, false)
}

pub fn stmatrix(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    d.requires(SM_90, (7, 8))?;
    matrix(d, mods, ops, true)
}

fn matrix(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], store: bool) -> Done {
    sync_aligned(d, mods)?;
    mods.required(&["m8n8"])?;
    let count = match mods.required(&["x1", "x2", "x4"])? {
        "x1" => 1,
        "x2" => 2,
        _ => 4,
    };
    let trans = mods.take("trans");
    let space = mods.space();
    if mods.ty()? != Ty::B16 || !matches!(space, Space::Shared | Space::Generic) {
        return Err(d.unsupported(mods));
    }
    d.count::<2>(ops)?;
    let (registers, place) = if store { (&ops[1], &ops[0]) } else { (&ops[0], &ops[1]) };
    let address = d.address(place)?.0;
    let elements = match registers {
        Operand::Vector(elements) => elements.as_slice(),
        one => std::slice::from_ref(one),
    };
    if elements.len() != count as usize {
        return d.error(format!("needs {count} registers"));
    }
    let mut regs = [0; 4];
    for (slot, element) in regs.iter_mut().zip(elements) {
        *slot = match store {
            true => d.source::<u32>(element, Ty::B32)?,
            false => d.target::<u32>(element, Ty::B32)?,
        };
    }
    d.emit(Op::Matrix(Box::new(Matrix { store, space, address, count, trans, regs })));
    Ok(())
}

pub fn mma(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let sparse = match mods.one_of(&["sp", "sp::ordered_metadata"]) {
        Some("sp") => Some((7, 1)),
        Some(_) => Some((8, 5)),
        None => None,
    };
    sparse.map_or(Ok(()), |since| d.requires(SM_80, since))?;
    let sparse = sparse.is_some();
    sync_aligned(d, mods)?;
    let parts = mods.rest();
    let parsed = if sparse { Mma::parse_sparse(&parts) } else { Mma::parse(&parts) };
    let mma = match parsed {
        Ok(mma) => mma,
        Err(what) => return d.error(what),
    };
    let wide = parts.last() == Some(&"f64");
    let n = if sparse { 6 } else { 4 };
    if ops.len() != n {
        return d.error(format!("takes {n} operands, not {}", ops.len()));
    }
    let sparse = match sparse {
        true => {
            let metadata = d.source::<u32>(&ops[4], Ty::B32)?;
            let Operand::Number(Number::Int(selector)) = ops[5] else {
                return d.error("the selector is a number");
            };
            if selector >= u64::from(mma.selectors()) {
                return d.error(format!("selector {selector} does not exist for this shape"));
            }
            Some((metadata, selector as u32))
        }
        false => None,
    };
    let a = sources(d, &ops[1], mma.n_a, wide)?;
    let b = sources(d, &ops[2], mma.n_b, wide)?;
    let c = sources(d, &ops[3], mma.n_c, wide)?;
    let to = targets(d, &ops[0], mma.n_d, wide)?;
    d.emit(Op::Multiply(Box::new(Multiply { mma, a, b, c, d: to, sparse })));
    Ok(())
}

/// The operands of a fragment of `n` words, one for each register; an f64 register (`wide`) counts as two words.
fn elements<'o>(d: &Decoder, operand: &'o Operand, n: usize, wide: bool) -> Result<&'o [Operand], Error> {
    let elements = match operand {
        Operand::Vector(elements) => elements.as_slice(),
        one => std::slice::from_ref(one),
    };
    let needed = if wide { n / 2 } else { n };
    if elements.len() == needed { Ok(elements) } else { d.error(format!("a fragment has {needed} registers here")) }
}

fn sources(d: &mut Decoder, operand: &Operand, n: usize, wide: bool) -> Result<Vec<Reg>, Error> {
    let ty = if wide { Ty::F64 } else { Ty::B32 };
    let mut regs = Vec::new();
    for element in elements(d, operand, n, wide)? {
        let index = match wide {
            true => d.source::<u64>(element, ty)?,
            false => d.source::<u32>(element, ty)?,
        };
        regs.push(Reg { bank: if wide { Bank::Double } else { Bank::Word }, index, bits: ty.bits() });
    }
    Ok(regs)
}

fn targets(d: &mut Decoder, operand: &Operand, n: usize, wide: bool) -> Result<Vec<Reg>, Error> {
    let ty = if wide { Ty::F64 } else { Ty::B32 };
    let mut regs = Vec::new();
    for element in elements(d, operand, n, wide)? {
        let reg = d.any_target(element, ty)?;
        if reg.bits != ty.bits() {
            return d.error("a register of the fragment has the wrong width");
        }
        regs.push(reg);
    }
    Ok(regs)
}
