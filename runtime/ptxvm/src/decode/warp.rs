//! Decodes shfl, vote, match, redux, activemask, elect, bar, barrier, membar and fence: communication and ordering
//! between lanes and between warps; also setmaxnreg and griddepcontrol

use super::mods::Mods;
use super::ops::{Barrier, BarrierReduction, Shuffle, Warp};
use super::program::Op;
use super::statements::Decoder;
use super::target::{SM_90, SM_90A};
use crate::Error;
use crate::shadow::Scope;
use crate::text::ast::Operand;
use crate::text::lex::Number;
use crate::text::types::Ty;
use crate::units::shuffle::{Redux, ShflMode, Vote};

type Done = Result<(), Error>;

fn sync(d: &Decoder, mods: &mut Mods) -> Done {
    if mods.take("sync") { Ok(()) } else { d.error("expected .sync; older forms are not supported since sm_70") }
}

fn is_sink(operand: &Operand) -> bool {
    matches!(operand, Operand::Name(name) if name == "_")
}

/// Decodes a pair of destinations `d|p`; returns `None` for a destination that is missing or the sink `_`.
fn pair(d: &mut Decoder, operand: &Operand, ty: Ty) -> Result<(Option<u32>, Option<u32>), Error> {
    let (first, second) = match operand {
        Operand::Pair(first, second) => (first.as_ref(), Some(second.as_ref())),
        one => (one, None),
    };
    let first = if is_sink(first) { None } else { Some(d.target::<u32>(first, ty)?) };
    let second = match second {
        Some(second) if !is_sink(second) => Some(d.pred_target(second)?),
        Some(_) | None => None,
    };
    Ok((first, second))
}

pub fn shfl(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    sync(d, mods)?;
    let mode = mods.required(&["up", "down", "bfly", "idx"])?;
    let Some(mode) = ShflMode::parse(mode) else {
        return Err(d.unsupported(mods));
    };
    let ty = mods.ty()?;
    d.count::<5>(ops)?;
    let a = d.source::<u32>(&ops[1], ty)?;
    let (b, c) = (d.source::<u32>(&ops[2], Ty::B32)?, d.source::<u32>(&ops[3], Ty::B32)?);
    let members = d.source::<u32>(&ops[4], Ty::B32)?;
    let (to, p) = pair(d, &ops[0], ty)?;
    d.emit(Op::Shuffle(Box::new(Shuffle { mode, d: to, p, a, b, c, members })));
    Ok(())
}

pub fn vote(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    sync(d, mods)?;
    let mode = match mods.required(&["all", "any", "uni", "ballot"])? {
        "all" => Vote::All,
        "any" => Vote::Any,
        "uni" => Vote::Uni,
        _ => Vote::Ballot,
    };
    let ty = mods.ty()?;
    if ty != if mode == Vote::Ballot { Ty::B32 } else { Ty::Pred } {
        return Err(d.unsupported(mods));
    }
    d.count::<3>(ops)?;
    let (a, negated) = d.pred_source(&ops[1])?;
    let members = d.source::<u32>(&ops[2], Ty::B32)?;
    let to = d.any_target(&ops[0], ty)?;
    if to.bits != ty.bits() {
        return d.error("the destination has the wrong width");
    }
    d.emit(Op::Warp(Box::new(Warp::Vote { mode, d: to, a, negated, members })));
    Ok(())
}

pub fn matching(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let all = mods.required(&["any", "all"])? == "all";
    sync(d, mods)?;
    let ty = mods.ty()?;
    if !matches!(ty, Ty::B32 | Ty::B64) {
        return Err(d.unsupported(mods));
    }
    d.count::<3>(ops)?;
    let a = d.any_source(&ops[1], ty)?;
    if a.bits != ty.bits() {
        return d.error("the value has the wrong width");
    }
    let members = d.source::<u32>(&ops[2], Ty::B32)?;
    let op = if all {
        let (to, p) = pair(d, &ops[0], Ty::B32)?;
        Warp::MatchAll { d: to, p, a, members }
    } else {
        Warp::MatchAny { d: d.target::<u32>(&ops[0], Ty::B32)?, a, members }
    };
    d.emit(Op::Warp(Box::new(op)));
    Ok(())
}

pub fn redux(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    sync(d, mods)?;
    let name = mods.required(&["add", "min", "max", "and", "or", "xor"])?;
    let ty = mods.ty()?;
    let op = match (name, ty) {
        ("add", Ty::U32 | Ty::S32) => Redux::Add,
        ("min", Ty::U32) => Redux::MinU,
        ("max", Ty::U32) => Redux::MaxU,
        ("min", Ty::S32) => Redux::MinS,
        ("max", Ty::S32) => Redux::MaxS,
        ("and", Ty::B32) => Redux::And,
        ("or", Ty::B32) => Redux::Or,
        ("xor", Ty::B32) => Redux::Xor,
        _ => return Err(d.unsupported(mods)),
    };
    d.count::<3>(ops)?;
    let (a, members) = (d.source::<u32>(&ops[1], ty)?, d.source::<u32>(&ops[2], Ty::B32)?);
    let to = d.target::<u32>(&ops[0], ty)?;
    d.emit(Op::Warp(Box::new(Warp::Redux { op, d: to, a, members })));
    Ok(())
}

pub fn activemask(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    d.count::<1>(ops)?;
    let to = d.target::<u32>(&ops[0], ty)?;
    d.emit(Op::Warp(Box::new(Warp::ActiveMask { d: to })));
    Ok(())
}

/// Decodes `setmaxnreg.inc|dec.sync.aligned.u32 n;`. The instruction changes how many registers the warp owns, which
/// affects no result, so the simulator only checks that all lanes of the warp execute it.
pub fn setmaxnreg(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    d.requires(SM_90A, (8, 0))?;
    mods.required(&["inc", "dec"])?;
    super::matrix::sync_aligned(d, mods)?;
    if mods.ty()? != Ty::U32 {
        return Err(d.unsupported(mods));
    }
    match ops {
        [Operand::Number(Number::Int(n))] if (24..=256).contains(n) && n % 8 == 0 => {}
        _ => return d.error("takes a multiple of 8 from 24 to 256"),
    }
    d.emit(Op::WholeWarp);
    Ok(())
}

/// Decodes `griddepcontrol` as a no-op: grids run one after the other in the simulator, so there is nothing to wait for
/// and nothing to launch early.
pub fn griddepcontrol(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    d.requires(SM_90, (7, 8))?;
    mods.required(&["wait", "launch_dependents"])?;
    d.count::<0>(ops)?;
    d.emit(Op::Nop);
    Ok(())
}

pub fn elect(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    d.requires(SM_90, (8, 0))?;
    sync(d, mods)?;
    d.count::<2>(ops)?;
    let members = d.source::<u32>(&ops[1], Ty::B32)?;
    let (to, p) = pair(d, &ops[0], Ty::B32)?;
    let Some(p) = p else {
        return d.error("a predicate `d|p` is needed");
    };
    d.emit(Op::Warp(Box::new(Warp::Elect { d: to, p, members })));
    Ok(())
}

pub fn bar(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    if mods.take("warp") {
        sync(d, mods)?;
        d.count::<1>(ops)?;
        let members = d.source::<u32>(&ops[0], Ty::B32)?;
        d.emit(Op::WarpBarrier(members));
        return Ok(());
    }
    mods.take("cta");
    any_barrier(d, mods, ops, true)
}

pub fn barrier(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    if mods.take("cluster") {
        return Err(d.unsupported(mods));
    }
    mods.take("cta");
    let aligned = mods.take("aligned");
    any_barrier(d, mods, ops, aligned)
}

fn any_barrier(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], aligned: bool) -> Done {
    let kind = mods.required(&["sync", "arrive", "red"])?;
    if kind == "red" {
        return reduction(d, mods, ops, aligned);
    }
    let (id, count) = match ops {
        [id] if kind == "sync" => (id, None),
        [id, count] => (id, Some(d.source::<u32>(count, Ty::U32)?)),
        _ => return d.error("takes a barrier and a count of threads"),
    };
    let id = d.source::<u32>(id, Ty::U32)?;
    d.emit(Op::Barrier(Box::new(Barrier { aligned, waits: kind == "sync", id, count, reduction: None })));
    Ok(())
}

fn reduction(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], aligned: bool) -> Done {
    let op = match mods.required(&["popc", "and", "or"])? {
        "popc" => BarrierReduction::Popc,
        "and" => BarrierReduction::And,
        _ => BarrierReduction::Or,
    };
    let ty = mods.ty()?;
    if ty != if op == BarrierReduction::Popc { Ty::U32 } else { Ty::Pred } {
        return Err(d.unsupported(mods));
    }
    let (id, count, value) = match ops.get(1..).unwrap_or_default() {
        [id, value] => (id, None, value),
        [id, count, value] => (id, Some(d.source::<u32>(count, Ty::U32)?), value),
        _ => return d.error("takes a destination, a barrier, an optional count of threads, and a predicate"),
    };
    let id = d.source::<u32>(id, Ty::U32)?;
    let (p, negated) = d.pred_source(value)?;
    let to = d.any_target(&ops[0], ty)?;
    if to.bits != ty.bits() {
        return d.error("the destination has the wrong width");
    }
    d.emit(Op::Barrier(Box::new(Barrier { aligned, waits: true, id, count, reduction: Some((op, to, p, negated)) })));
    Ok(())
}

pub fn membar(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let scope = match mods.required(&["cta", "gl", "sys"])? {
        "cta" => Scope::Block,
        _ => Scope::Device,
    };
    d.count::<0>(ops)?;
    d.emit(Op::Fence(scope));
    Ok(())
}

/// Decodes `fence.proxy.async{.space}`, which makes accesses through the generic proxy visible to bulk copies and
/// `wgmma`.
fn proxy_fence(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    if !mods.take("async") {
        return Err(d.unsupported(mods));
    }
    d.requires(SM_90, (8, 0))?;
    mods.one_of(&["global", "shared::cta", "shared::cluster"]);
    d.count::<0>(ops)?;
    d.emit(Op::ProxyFence);
    Ok(())
}

pub fn fence(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    if mods.take("proxy") {
        return proxy_fence(d, mods, ops);
    }
    if mods.take("mbarrier_init") {
        d.requires(SM_90, (8, 0))?;
        if !mods.take("release") || !mods.take("cluster") {
            return Err(d.unsupported(mods));
        }
        d.count::<0>(ops)?;
        d.emit(Op::Fence(Scope::Block));
        return Ok(());
    }
    mods.one_of(&["sc", "acq_rel"]);
    let scope = match mods.required(&["cta", "cluster", "gpu", "sys"])? {
        "cta" => Scope::Block,
        _ => Scope::Device,
    };
    d.count::<0>(ops)?;
    d.emit(Op::Fence(scope));
    Ok(())
}
