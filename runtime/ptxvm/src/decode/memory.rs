//! ld, st, atom, red, cp.async, prefetch: address, width and memory ordering

use super::mods::Mods;
use super::ops::{Address, AsyncCopy, Atomic, AtomicOp, Load, Order, Store, WEAK};
use super::program::{Op, Reg, Regs};
use super::scope::Place;
use super::statements::Decoder;
use crate::Error;
use crate::shadow::Scope;
use crate::text::ast::Operand;
use crate::text::lex::Number;
use crate::text::types::{Space, Ty};

type Done = Result<(), Error>;

const CACHE: [&str; 8] = ["ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc"];
const HINTS: [&str; 14] = [
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::evict_normal",
    "L2::evict_unchanged",
    "L2::evict_first",
    "L2::evict_last",
    "L2::64B",
    "L2::128B",
    "L2::256B",
    "L2",
    "L1",
];

/// Takes the modifiers that are cache hints, which change no result. Returns whether the last operand is a cache
/// policy.
fn hints(mods: &mut Mods) -> bool {
    while mods.one_of(&CACHE).is_some() || mods.one_of(&HINTS).is_some() {}
    mods.take("L2::cache_hint")
}

fn scope(mods: &mut Mods) -> Option<Scope> {
    Some(match mods.one_of(&["cta", "cluster", "gpu", "sys"])? {
        "cta" => Scope::Block,
        _ => Scope::Device,
    })
}

fn order(d: &Decoder, mods: &mut Mods) -> Result<Order, Error> {
    let kind = mods.one_of(&["weak", "volatile", "relaxed", "acquire", "release", "mmio"]);
    let scope = scope(mods);
    let strong = |acquire, release, scope| Order { strong: true, acquire, release, scope };
    Ok(match (kind, scope) {
        (None | Some("weak"), None) => WEAK,
        // A volatile access is relaxed at the widest scope: it does not order the accesses around it.
        (Some("volatile"), None) => strong(false, false, Scope::Device),
        (Some("relaxed" | "mmio"), Some(scope)) => strong(false, false, scope),
        (Some("acquire"), Some(scope)) => strong(true, false, scope),
        (Some("release"), Some(scope)) => strong(false, true, scope),
        (kind, _) => return d.error(format!("`.{}` and its scope do not go together", kind.unwrap_or("weak"))),
    })
}

fn vector_length(mods: &mut Mods) -> u32 {
    match mods.one_of(&["v2", "v4"]) {
        Some("v2") => 2,
        Some(_) => 4,
        None => 1,
    }
}

fn elements<'o>(d: &Decoder, operand: &'o Operand, n: u32) -> Result<Vec<&'o Operand>, Error> {
    let elements = match operand {
        Operand::Vector(elements) => elements.iter().collect(),
        one => vec![one],
    };
    if elements.len() == n as usize { Ok(elements) } else { d.error(format!("needs {n} registers")) }
}

/// Returns the state space of an access. If the access names a variable, the state space in the opcode must fit that of
/// the variable.
fn resolve(d: &Decoder, space: Space, place: Option<Place>) -> Result<Space, Error> {
    match (space, place.map(|place| place.space)) {
        (space, None) => Ok(space),
        (Space::Generic, Some(found)) => Ok(found),
        (Space::Param, Some(Space::Param | Space::Local)) => Ok(place.map_or(space, |place| place.space)),
        (Space::Global | Space::Const, Some(Space::Global | Space::Const)) => Ok(space),
        (space, Some(found)) if space == found => Ok(space),
        (_, Some(_)) => d.error("the variable lies in another space"),
    }
}

fn check_width(d: &Decoder, ty: Ty, n: u32) -> Done {
    if ty == Ty::Pred || ty.bytes() * n > 16 { d.error("an access has at most 16 bytes") } else { Ok(()) }
}

/// Splits off the policy operand that `.L2::cache_hint` announces.
pub(super) fn policy<'o>(d: &mut Decoder, hint: bool, ops: &'o [Operand]) -> Result<&'o [Operand], Error> {
    match (hint, ops.split_last()) {
        (true, Some((policy, rest))) => {
            d.source::<u64>(policy, Ty::B64)?;
            Ok(rest)
        }
        (true, None) => d.error("the cache policy is missing"),
        (false, _) => Ok(ops),
    }
}

/// The decoded modifiers and operands that loads and stores have in common.
struct Access<'o> {
    order: Order,
    space: Space,
    address: Address,
    ty: Ty,
    n: u32,
    /// Operands without the cache policy.
    ops: &'o [Operand],
}

/// Decodes the modifiers and the address of a load or store; operand `at` is the address.
fn access<'o>(d: &mut Decoder, mods: &mut Mods, ops: &'o [Operand], at: usize) -> Result<Access<'o>, Error> {
    let order = order(d, mods)?;
    let space = mods.space();
    let hint = hints(mods);
    let n = vector_length(mods);
    let ty = mods.ty()?;
    check_width(d, ty, n)?;
    let ops = policy(d, hint, ops)?;
    d.count::<2>(ops)?;
    let (address, place) = d.address(&ops[at])?;
    let space = resolve(d, space, place)?;
    Ok(Access { order, space, address, ty, n, ops })
}

pub fn ld(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let Access { order, space, address, ty, n, ops } = access(d, mods, ops, 1)?;
    let mut to = [None; 4];
    for (slot, element) in to.iter_mut().zip(elements(d, &ops[0], n)?) {
        if !matches!(element, Operand::Name(name) if name == "_") {
            *slot = Some(d.any_target(element, ty)?);
        }
    }
    d.class = super::classes::load(space);
    d.emit(Op::Load(Box::new(Load { space, address, ty, n, to, order })));
    Ok(())
}

pub fn st(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let Access { order, space, address, ty, n, ops } = access(d, mods, ops, 0)?;
    if matches!(space, Space::Const) {
        return d.error("constant memory cannot be written");
    }
    let zero = Reg { bank: super::program::Bank::Word, index: 0, bits: 32 };
    let mut from = [zero; 4];
    for (slot, element) in from.iter_mut().zip(elements(d, &ops[1], n)?) {
        *slot = d.any_source(element, ty)?;
    }
    d.class = super::classes::store(space);
    d.emit(Op::Store(Box::new(Store { space, address, ty, n, from, order })));
    Ok(())
}

const ATOMIC_NAMES: [&str; 10] = ["add", "and", "or", "xor", "exch", "cas", "inc", "dec", "min", "max"];

fn atomic_op(name: &str) -> AtomicOp {
    match name {
        "add" => AtomicOp::Add,
        "and" => AtomicOp::And,
        "or" => AtomicOp::Or,
        "xor" => AtomicOp::Xor,
        "exch" => AtomicOp::Exch,
        "cas" => AtomicOp::Cas,
        "inc" => AtomicOp::Inc,
        "dec" => AtomicOp::Dec,
        "min" => AtomicOp::Min,
        _ => AtomicOp::Max,
    }
}

fn exists(op: AtomicOp, ty: Ty) -> bool {
    match op {
        AtomicOp::Add => !matches!(ty, Ty::U16 | Ty::S16) && !ty.is_untyped() && ty.bits() >= 16,
        AtomicOp::And | AtomicOp::Or | AtomicOp::Xor | AtomicOp::Exch => matches!(ty, Ty::B32 | Ty::B64),
        AtomicOp::Cas => matches!(ty, Ty::B16 | Ty::B32 | Ty::B64),
        AtomicOp::Inc | AtomicOp::Dec => ty == Ty::U32,
        AtomicOp::Min | AtomicOp::Max => {
            ty.is_int() && ty.bits() >= 32 || matches!(ty, Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2)
        }
    }
}

pub fn atom(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    atomic(d, mods, ops, true)
}

pub fn red(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    atomic(d, mods, ops, false)
}

fn atomic(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], returns: bool) -> Done {
    if mods.take("async") {
        return Err(d.unsupported(mods));
    }
    let (acquire, release) = match mods.one_of(&["relaxed", "acquire", "release", "acq_rel"]) {
        Some("acquire") => (true, false),
        Some("release") => (false, true),
        Some("acq_rel") => (true, true),
        Some(_) | None => (false, false),
    };
    let scope = scope(mods).unwrap_or(Scope::Device);
    let space = mods.space();
    let op = atomic_op(mods.required(&ATOMIC_NAMES)?);
    mods.take("noftz");
    let hint = hints(mods);
    let ty = mods.ty()?;
    if !exists(op, ty) || !matches!(space, Space::Generic | Space::Global | Space::Shared) {
        return Err(d.unsupported(mods));
    }
    let ops = policy(d, hint, ops)?;
    let (target, ops) = match (returns, ops.split_first()) {
        (true, Some((target, rest))) => (Some(target), rest),
        (_, _) => (None, ops),
    };
    let (place, values) = match ops.split_first() {
        Some((address, values)) if values.len() == if op == AtomicOp::Cas { 2 } else { 1 } => (address, values),
        _ => return d.error("the number of operands is wrong"),
    };
    let (address, place) = d.address(place)?;
    let space = resolve(d, space, place)?;
    let a = d.any_source(&values[0], ty)?;
    let b = match values.get(1) {
        Some(second) => Some(d.any_source(second, ty)?),
        None => None,
    };
    let to = match target {
        Some(target) => Some(d.any_target(target, ty)?),
        None => None,
    };
    let order = Order { strong: true, acquire, release, scope };
    d.emit(Op::Atomic(Box::new(Atomic { space, address, op, ty, to, a, b, order })));
    Ok(())
}

pub fn cp(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    if !mods.take("async") {
        return Err(d.unsupported(mods));
    }
    if mods.take("bulk") {
        return super::bulk::bulk(d, mods, ops);
    }
    if mods.take("mbarrier") {
        return super::mbarrier::arrive_after_copies(d, mods, ops);
    }
    if mods.take("commit_group") {
        d.count::<0>(ops)?;
        d.emit(Op::AsyncCommit);
        return Ok(());
    }
    if mods.take("wait_all") {
        d.count::<0>(ops)?;
        d.emit(Op::AsyncWaitAll);
        return Ok(());
    }
    if mods.take("wait_group") {
        let [Operand::Number(Number::Int(groups))] = ops else {
            return d.error("takes a number of groups");
        };
        d.emit(Op::AsyncWait(u32::try_from(*groups).unwrap_or(u32::MAX)));
        return Ok(());
    }
    let all = mods.required(&["ca", "cg"])? == "ca";
    if !(mods.space() == Space::Shared && mods.space() == Space::Global) {
        return d.error("expected .shared.global");
    }
    let hint = hints(mods);
    let ops = policy(d, hint, ops)?;
    let (Some(to), Some(from), Some(Operand::Number(Number::Int(bytes)))) = (ops.first(), ops.get(1), ops.get(2))
    else {
        return d.error("takes a destination, a source and a size");
    };
    let bytes = match (*bytes, all) {
        (bytes @ (4 | 8), true) => bytes as u32,
        (16, _) => 16,
        (other, _) => return d.error(format!("cannot copy {other} bytes")),
    };
    let (to, from) = (shared(d, to)?, d.address(from)?.0);
    let mut copy = AsyncCopy { to, from, bytes, source_bytes: None, ignore_source: None };
    match ops.get(3) {
        None => {}
        Some(Operand::Name(name)) if d.scopes.register(name).is_some_and(|reg| reg.bits == 1) => {
            let p = d.pred_named(name)?;
            copy.ignore_source = Some(Reg { bank: super::program::Bank::Pred, index: p, bits: 1 });
        }
        Some(size) => copy.source_bytes = Some(d.any_source(size, Ty::U32)?),
    }
    if ops.len() > 4 {
        return d.error("too many operands");
    }
    d.emit(Op::AsyncCopy(Box::new(copy)));
    Ok(())
}

fn shared(d: &mut Decoder, operand: &Operand) -> Result<Address, Error> {
    let (address, place) = d.address(operand)?;
    resolve(d, Space::Shared, place)?;
    Ok(address)
}

/// Decodes an instruction that is only a cache hint, such as `prefetch.global.L2 [a];`
pub fn hint(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    mods.space();
    hints(mods);
    let Some(first) = ops.first() else {
        return d.error("takes an address");
    };
    d.address(first)?;
    d.emit(Op::Nop);
    Ok(())
}

/// Decodes `createpolicy`. A cache policy is only a hint, so any value may be returned.
pub fn createpolicy(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    mods.required(&["fractional"])?;
    hints(mods);
    let ty = mods.ty()?;
    let Some(target) = ops.first() else {
        return d.error("takes a destination");
    };
    let to = d.target::<u64>(target, ty)?;
    d.emit(Op::Lanes(Box::new(move |regs: &mut Regs, mask| regs.set(to, mask, &[0u64; 32]))));
    Ok(())
}
