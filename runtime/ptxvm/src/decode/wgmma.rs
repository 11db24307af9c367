//! wgmma.mma_async .fence .commit_group .wait_group

use super::matrix::sync_aligned;
use super::mods::Mods;
use super::ops::{WgmmaFactor, WgmmaMultiply};
use super::program::Op;
use super::statements::Decoder;
use super::target::SM_90A;
use crate::Error;
use crate::text::ast::Operand;
use crate::text::lex::Number;
use crate::text::types::Ty;
use crate::units::wgmma::{Major, Wgmma};

type Done = Result<(), Error>;

pub fn wgmma(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    d.requires(SM_90A, (8, 0))?;
    match mods.required(&["mma_async", "fence", "commit_group", "wait_group"])? {
        "mma_async" => multiply(d, mods, ops),
        "fence" => plain(d, mods, ops, Op::WgmmaFence),
        "commit_group" => plain(d, mods, ops, Op::WgmmaCommit),
        _ => {
            sync_aligned(d, mods)?;
            let [Operand::Number(Number::Int(groups))] = ops else {
                return d.error("takes a number of groups");
            };
            d.emit(Op::WgmmaWait(u32::try_from(*groups).unwrap_or(u32::MAX)));
            Ok(())
        }
    }
}

fn plain(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], op: Op) -> Done {
    sync_aligned(d, mods)?;
    d.count::<0>(ops)?;
    d.emit(op);
    Ok(())
}

/// Returns the value of an immediate operand, which must be one of the `known` values.
fn one_of(d: &Decoder, operand: &Operand, known: [i64; 2]) -> Result<i64, Error> {
    match operand {
        Operand::Number(Number::Int(value)) if known.contains(&(*value as i64)) => Ok(*value as i64),
        _ => d.error(format!("expected {} or {}", known[0], known[1])),
    }
}

fn major(d: &Decoder, operand: Option<&Operand>) -> Result<Major, Error> {
    let transposed = operand.map_or(Ok(0), |operand| one_of(d, operand, [0, 1]))?;
    Ok(if transposed == 1 { Major::Rows } else { Major::K })
}

/// Returns the metadata register and the selector of a sparse product.
fn sparsity(d: &mut Decoder, wgmma: &Wgmma, metadata: &Operand, selector: &Operand) -> Result<(u32, u32), Error> {
    let metadata = d.source::<u32>(metadata, Ty::B32)?;
    match selector {
        Operand::Number(Number::Int(selector)) if *selector < u64::from(wgmma.selectors()) => {
            Ok((metadata, *selector as u32))
        }
        _ => d.error("the selector does not exist for this shape"),
    }
}

/// Decodes the operands
/// `d, a, b{, sp-meta, sp-sel}, scale-d{, imm-scale-a, imm-scale-b{, imm-trans-a}{, imm-trans-b}}`.
/// A in registers has no `imm-trans-a`: it cannot be transposed.
fn multiply(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let is_sparse = mods.take("sp");
    sync_aligned(d, mods)?;
    let parts = mods.rest();
    let parsed = if is_sparse { Wgmma::parse_sparse(&parts) } else { Wgmma::parse(&parts) };
    let wgmma = match parsed {
        Ok(wgmma) => wgmma,
        Err(what) => return d.error(what),
    };
    if is_sparse {
        let is_mixed = wgmma.a.is_integer() && wgmma.a != wgmma.b;
        d.requires(SM_90A, if is_mixed { (8, 4) } else { (8, 2) })?;
    }
    let in_registers = matches!(ops.get(1), Some(Operand::Vector(_)));
    let (n_scales, n_transposes) = match (wgmma.a.is_integer(), wgmma.has_transposes()) {
        (true, _) => (0, 0),
        (false, false) => (2, 0),
        (false, true) => (2, if in_registers { 1 } else { 2 }),
    };
    let n_sparse = if is_sparse { 2 } else { 0 };
    let n = 4 + n_sparse + n_scales + n_transposes;
    if ops.len() != n {
        return d.error(format!("takes {n} operands, not {}", ops.len()));
    }
    let sparse = match (is_sparse, &ops[3..]) {
        (true, [metadata, selector, ..]) => Some(sparsity(d, &wgmma, metadata, selector)?),
        (_, _) => None,
    };
    let (factors, ops) = (&ops[..3], &ops[2 + n_sparse..]);
    let mut product = 1;
    for scale in &ops[2..2 + n_scales] {
        product *= one_of(d, scale, [1, -1])?;
    }
    let transposes = &ops[2 + n_scales..];
    let a = match &factors[1] {
        Operand::Vector(elements) if elements.len() == 4 => {
            let mut regs = [0; 4];
            for (reg, element) in regs.iter_mut().zip(elements) {
                *reg = d.source::<u32>(element, Ty::B32)?;
            }
            WgmmaFactor::Registers(regs)
        }
        Operand::Vector(_) => return d.error("a fragment of A has 4 registers"),
        descriptor => {
            let major = if n_transposes == 2 { major(d, transposes.first())? } else { Major::K };
            WgmmaFactor::Shared { descriptor: d.source::<u64>(descriptor, Ty::B64)?, major }
        }
    };
    let b = (d.source::<u64>(&factors[2], Ty::B64)?, major(d, transposes.last())?);
    let scale_d = d.pred_source(&ops[1])?;
    let Operand::Vector(elements) = &factors[0] else {
        return d.error("expected a list of registers as the destination");
    };
    if elements.len() != wgmma.n_d() {
        return d.error(format!("the sums have {} registers here, not {}", wgmma.n_d(), elements.len()));
    }
    // The accumulators are also read, unless scale-d is false.
    let mut sums = Vec::new();
    for element in elements {
        d.source::<u32>(element, Ty::B32)?;
        sums.push(d.target::<u32>(element, Ty::B32)?);
    }
    d.emit(Op::WgmmaMultiply(Box::new(WgmmaMultiply { wgmma, a, b, d: sums, sparse, scale_d, product })));
    Ok(())
}
