//! wmma.load, wmma.mma, wmma.store

use super::matrix::sync_aligned;
use super::mods::Mods;
use super::ops::{FragmentAccess, FragmentMultiply};
use super::program::Op;
use super::statements::Decoder;
use crate::Error;
use crate::report::Class;
use crate::text::ast::Operand;
use crate::text::types::{Space, Ty};
use crate::units::wmma::{Fragment, Role, Wmma};

type Done = Result<(), Error>;

pub fn wmma(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    match mods.required(&["load", "store", "mma"])? {
        "mma" => multiply(d, mods, ops),
        "store" => access(d, mods, ops, true),
        _ => access(d, mods, ops, false),
    }
}

fn access(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], store: bool) -> Done {
    d.class = Class::Matrix;
    let role = match mods.required(if store { &["d"] } else { &["a", "b", "c"] })? {
        "a" => Role::A,
        "b" => Role::B,
        _ => Role::Accumulator,
    };
    sync_aligned(d, mods)?;
    let row_major = mods.required(&["row", "col"])? == "row";
    let space = mods.space();
    if !matches!(space, Space::Generic | Space::Global | Space::Shared) {
        return Err(d.unsupported(mods));
    }
    let parts = mods.rest();
    let &[shape, ty] = parts.as_slice() else {
        return d.error("expected a shape and a type");
    };
    let fragment = match Fragment::parse(role, shape, ty) {
        Ok(fragment) => fragment,
        Err(what) => return d.error(what),
    };
    let (registers, place) = if store { (ops.get(1), ops.first()) } else { (ops.first(), ops.get(1)) };
    let (Some(registers), Some(place), 2..=3) = (registers, place, ops.len()) else {
        return d.error("takes a fragment, an address and perhaps a stride");
    };
    let address = d.address(place)?.0;
    let stride = match ops.get(2) {
        Some(stride) => Some(d.source::<u32>(stride, Ty::U32)?),
        None => None,
    };
    let regs = fragment_registers(d, registers, fragment.registers(), !store)?;
    d.emit(Op::FragmentAccess(Box::new(FragmentAccess { store, space, address, stride, row_major, fragment, regs })));
    Ok(())
}

fn multiply(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    sync_aligned(d, mods)?;
    let wmma = match Wmma::parse(&mods.rest()) {
        Ok(wmma) => wmma,
        Err(what) => return d.error(what),
    };
    let [to, a, b, c] = ops else {
        return d.error(format!("takes 4 operands, not {}", ops.len()));
    };
    let a = fragment_registers(d, a, wmma.a.registers(), false)?;
    let b = fragment_registers(d, b, wmma.b.registers(), false)?;
    let c = fragment_registers(d, c, wmma.c.registers(), false)?;
    let to = fragment_registers(d, to, wmma.d.registers(), true)?;
    d.emit(Op::FragmentMultiply(Box::new(FragmentMultiply { wmma, a, b, c, d: to })));
    Ok(())
}

fn fragment_registers(d: &mut Decoder, operand: &Operand, n: usize, target: bool) -> Result<Vec<u32>, Error> {
    let elements = match operand {
        Operand::Vector(elements) => elements.as_slice(),
        one => std::slice::from_ref(one),
    };
    if elements.len() != n {
        return d.error(format!("a fragment has {n} registers here"));
    }
    elements
        .iter()
        .map(|one| if target { d.target::<u32>(one, Ty::B32) } else { d.source::<u32>(one, Ty::B32) })
        .collect()
}
