//! cp.async.bulk, cp.async.bulk.tensor: copies of byte ranges and tensor boxes between global and shared memory

use super::memory::policy;
use super::mods::Mods;
use super::ops::{Bulk, BulkPlace};
use super::program::Op;
use super::statements::Decoder;
use super::target::SM_90;
use crate::Error;
use crate::text::ast::Operand;
use crate::text::lex::Number;
use crate::text::types::Ty;

type Done = Result<(), Error>;

/// Decodes an instruction whose name begins with `cp.async.bulk`.
pub fn bulk(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    d.requires(SM_90, (8, 0))?;
    if mods.take("commit_group") {
        d.count::<0>(ops)?;
        d.emit(Op::BulkCommit);
        return Ok(());
    }
    if mods.take("wait_group") {
        let read = mods.take("read");
        let [Operand::Number(Number::Int(groups))] = ops else {
            return d.error("takes a number of groups");
        };
        d.emit(Op::BulkWait { left: u32::try_from(*groups).unwrap_or(u32::MAX), read });
        return Ok(());
    }
    let rank = match mods.take("tensor") {
        true => Some(mods.required(&["1d", "2d", "3d", "4d", "5d"])?),
        false => None,
    };
    mods.take("tile");
    if mods.take("prefetch") {
        return Err(d.unsupported(mods));
    }
    if mods.take("multicast::cluster") {
        return d.error("only clusters of one block are supported");
    }
    let to_shared = mods.one_of(&["shared::cluster", "shared::cta", "global"]) != Some("global");
    let from = mods.one_of(&["global", "shared::cta"]);
    let completion = mods.one_of(&["mbarrier::complete_tx::bytes", "bulk_group"]);
    match (to_shared, from, completion) {
        (true, Some("global"), Some("mbarrier::complete_tx::bytes")) => {}
        (false, Some("shared::cta"), Some("bulk_group")) => {}
        _ => return Err(d.unsupported(mods)),
    }
    let hint = mods.take("L2::cache_hint");
    let ops = policy(d, hint, ops)?;
    match rank {
        Some(rank) => tensor(d, ops, to_shared, rank.as_bytes()[0] - b'0'),
        None => range(d, ops, to_shared),
    }
}

/// Decodes the operands of a copy of a byte range: `[to], [from], bytes{, [barrier]}`.
fn range(d: &mut Decoder, ops: &[Operand], to_shared: bool) -> Done {
    let (to, from, bytes, barrier) = match (ops, to_shared) {
        ([to, from, bytes, barrier], true) => (to, from, bytes, Some(barrier)),
        ([to, from, bytes], false) => (to, from, bytes, None),
        _ => return d.error("the number of operands is wrong"),
    };
    let (shared, global) = if to_shared { (to, from) } else { (from, to) };
    let (shared, global) = (d.address(shared)?.0, d.address(global)?.0);
    let bytes = d.source::<u32>(bytes, Ty::U32)?;
    let barrier = barrier.map(|barrier| Ok(d.address(barrier)?.0)).transpose()?;
    d.emit(Op::Bulk(Box::new(Bulk { shared, place: BulkPlace::Range { global, bytes }, barrier })));
    Ok(())
}

/// Decodes the operands of a copy of a box: `[to], [map, {x, y}], [barrier]` or `[map, {x, y}], [from]`.
fn tensor(d: &mut Decoder, ops: &[Operand], to_shared: bool, rank: u8) -> Done {
    let (shared, tensor, barrier) = match (ops, to_shared) {
        ([to, tensor, barrier], true) => (to, tensor, Some(barrier)),
        ([tensor, from], false) => (from, tensor, None),
        _ => return d.error("the number of operands is wrong"),
    };
    let Operand::Tensor(map, at) = tensor else {
        return d.error("expected `[map, {coordinates}]`");
    };
    if at.len() != usize::from(rank) {
        return d.error(format!("takes {rank} coordinates, not {}", at.len()));
    }
    let shared = d.address(shared)?.0;
    let map = d.address(&Operand::Address(map.clone()))?.0;
    let mut coordinates = Vec::new();
    for coordinate in at {
        coordinates.push(d.source::<u32>(coordinate, Ty::S32)?);
    }
    let barrier = barrier.map(|barrier| Ok(d.address(barrier)?.0)).transpose()?;
    d.emit(Op::Bulk(Box::new(Bulk { shared, place: BulkPlace::Tensor { map, coordinates }, barrier })));
    Ok(())
}
