//! mbarrier.init .inval .expect_tx .complete_tx .arrive .arrive_drop .test_wait .try_wait .pending_count, cp.async.mbarrier

use super::mods::Mods;
use super::operands::lanes1;
use super::ops::{MbarrierOp, MbarrierUse, PhaseOperand};
use super::program::Op;
use super::statements::Decoder;
use super::target::{SM_80, SM_90};
use crate::Error;
use crate::text::ast::Operand;
use crate::text::types::{Space, Ty};

type Done = Result<(), Error>;

/// Bit of an mbarrier state at which the pending arrivals start; the bits below hold the number of completed phases.
pub const PENDING_SHIFT: u32 = 32;

/// Modifiers that most mbarrier instructions share. Clusters have only one block here, so `shared::cluster` is the
/// block's own memory.
struct Common {
    space: Space,
    /// `.relaxed` was not given.
    ordered: bool,
    /// `.shared::cluster` was given; such an operation returns no state.
    remote: bool,
}

fn common(d: &Decoder, mods: &mut Mods) -> Result<Common, Error> {
    let ordered = mods.one_of(&["release", "acquire", "relaxed"]) != Some("relaxed");
    mods.one_of(&["cta", "cluster"]);
    let remote = mods.take("shared::cluster");
    let space = if remote { Space::Shared } else { mods.space() };
    if !matches!(space, Space::Shared | Space::Generic) || mods.ty()? != Ty::B64 {
        return Err(d.unsupported(mods));
    }
    Ok(Common { space, ordered, remote })
}

pub fn mbarrier(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    d.requires(SM_80, (7, 0))?;
    let names = [
        "init",
        "inval",
        "expect_tx",
        "complete_tx",
        "arrive",
        "arrive_drop",
        "test_wait",
        "try_wait",
        "pending_count",
    ];
    match mods.required(&names)? {
        "init" => on_barrier(d, mods, ops, |d, rest| Ok(MbarrierOp::Init { count: word(d, rest)? })),
        "inval" => on_barrier(d, mods, ops, |d, rest| {
            d.count::<0>(rest)?;
            Ok(MbarrierOp::Inval)
        }),
        "expect_tx" => {
            d.requires(SM_90, (8, 0))?;
            on_barrier(d, mods, ops, |d, rest| Ok(MbarrierOp::ExpectTx { bytes: word(d, rest)? }))
        }
        "complete_tx" => {
            d.requires(SM_90, (8, 0))?;
            on_barrier(d, mods, ops, |d, rest| Ok(MbarrierOp::CompleteTx { bytes: word(d, rest)? }))
        }
        "arrive" => arrive(d, mods, ops, false),
        "arrive_drop" => arrive(d, mods, ops, true),
        "test_wait" => wait(d, mods, ops, 0),
        "try_wait" => {
            d.requires(SM_90, (7, 8))?;
            wait(d, mods, ops, 1)
        }
        _ => pending_count(d, mods, ops),
    }
}

/// Decodes the operands `[barrier], rest...` and emits the mbarrier operation that `op` returns for `rest`.
fn on_barrier(
    d: &mut Decoder,
    mods: &mut Mods,
    ops: &[Operand],
    op: impl FnOnce(&mut Decoder, &[Operand]) -> Result<MbarrierOp, Error>,
) -> Done {
    let common = common(d, mods)?;
    let Some((place, rest)) = ops.split_first() else {
        return d.error("takes the address of an mbarrier");
    };
    let address = d.address(place)?.0;
    let op = op(d, rest)?;
    d.emit(Op::Mbarrier(Box::new(MbarrierUse { space: common.space, address, op, ordered: common.ordered })));
    Ok(())
}

fn word(d: &mut Decoder, rest: &[Operand]) -> Result<u32, Error> {
    d.count::<1>(rest)?;
    d.source::<u32>(&rest[0], Ty::U32)
}

fn is_sink(operand: &Operand) -> bool {
    matches!(operand, Operand::Name(name) if name == "_")
}

/// Decodes the operands `state, [barrier]{, count or bytes};`. The state may be omitted or be the sink `_`; with
/// `shared::cluster`, it must be omitted or `_`.
fn arrive(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], drop: bool) -> Done {
    let expects = mods.take("expect_tx");
    let completes = !mods.take("noComplete");
    let common = common(d, mods)?;
    if expects || common.remote {
        d.requires(SM_90, (8, 0))?;
    }
    let (state, place, rest) = match ops {
        [place @ Operand::Address(_), rest @ ..] => (None, place, rest),
        [state, place, rest @ ..] => (Some(state).filter(|state| !is_sink(state)), place, rest),
        _ => return d.error("takes a state and the address of an mbarrier"),
    };
    if state.is_some() && common.remote {
        return d.error("an mbarrier of the cluster gives no state: write `_`");
    }
    let address = d.address(place)?.0;
    let value = match rest {
        [] if expects || !completes => return d.error("the number of bytes or arrivals is missing"),
        [] => None,
        rest => Some(word(d, rest)?),
    };
    if value.is_some() && !expects && completes {
        d.requires(SM_90, (7, 8))?;
    }
    let state = match state {
        Some(state) => Some(d.target::<u64>(state, Ty::B64)?),
        None => None,
    };
    let (count, bytes) = if expects { (None, value) } else { (value, None) };
    let op = MbarrierOp::Arrive { count, bytes, drop, completes, state };
    d.emit(Op::Mbarrier(Box::new(MbarrierUse { space: common.space, address, op, ordered: common.ordered })));
    Ok(())
}

/// Decodes the operands `p, [barrier], state or parity{, time limit};`.
fn wait(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], n_extra: usize) -> Done {
    let parity = mods.take("parity");
    let common = common(d, mods)?;
    if common.remote {
        return d.error("nobody can wait for an mbarrier of another block");
    }
    if parity {
        d.requires(SM_80, (7, 1))?;
    }
    if ops.len() < 3 || ops.len() > 3 + n_extra {
        return d.error(format!("takes 3 operands, not {}", ops.len()));
    }
    let address = d.address(&ops[1])?.0;
    let phase = match parity {
        true => PhaseOperand::Parity(d.source::<u32>(&ops[2], Ty::U32)?),
        false => PhaseOperand::State(d.source::<u64>(&ops[2], Ty::B64)?),
    };
    if let Some(limit) = ops.get(3) {
        d.source::<u32>(limit, Ty::U32)?;
    }
    let p = d.pred_target(&ops[0])?;
    let op = MbarrierOp::Wait { p, phase };
    d.emit(Op::Mbarrier(Box::new(MbarrierUse { space: common.space, address, op, ordered: common.ordered })));
    Ok(())
}

fn pending_count(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    if mods.ty()? != Ty::B64 {
        return Err(d.unsupported(mods));
    }
    d.count::<2>(ops)?;
    let state = d.source::<u64>(&ops[1], Ty::B64)?;
    let to = d.target::<u32>(&ops[0], Ty::U32)?;
    d.emit(Op::Lanes(lanes1(to, state, |state: u64| (state >> PENDING_SHIFT) as u32)));
    Ok(())
}

/// `cp.async.mbarrier.arrive{.noinc}{.shared}.b64 [barrier];`
pub fn arrive_after_copies(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    d.requires(SM_80, (7, 0))?;
    mods.required(&["arrive"])?;
    let counted = mods.take("noinc");
    d.class = crate::report::Class::Barrier;
    on_barrier(d, mods, ops, |d, rest| {
        d.count::<0>(rest)?;
        Ok(MbarrierOp::ArriveAfterCopies { counted })
    })
}
