//! mov, selp, slct, cvta, isspacep: moving values and addresses between registers

use super::mods::Mods;
use super::operands::lanes1;
use super::program::{Bank, Clock, Lane, Op, Reg, Regs};
use super::statements::Decoder;
use crate::Error;
use crate::memory::{LOCAL_BASE, PARAM_BASE, SHARED_BASE};
use crate::report::Class;
use crate::text::ast::Operand;
use crate::text::types::{Space, Ty};

type Done = Result<(), Error>;

const CLOCKS: [(&str, Clock, u32); 6] = [
    ("%clock", Clock::Cycles, 32),
    ("%clock64", Clock::Cycles, 64),
    ("%clock_hi", Clock::CyclesHi, 32),
    ("%globaltimer", Clock::Globaltimer, 64),
    ("%globaltimer_hi", Clock::GlobaltimerHi, 32),
    ("%globaltimer_lo", Clock::Globaltimer, 32),
];

pub fn mov(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    d.count::<2>(ops)?;
    match (&ops[0], &ops[1]) {
        (Operand::Vector(elements), source) => return unpack(d, elements, source, ty),
        (target, Operand::Vector(elements)) => return pack(d, target, elements, ty),
        _ => {}
    }
    if let Operand::Name(name) = &ops[1]
        && let Some((_, clock, bits)) = CLOCKS.iter().find(|(known, ..)| known == name)
    {
        if *bits != ty.bits() {
            return d.error(format!("`{name}` has {bits} bits"));
        }
        let target = d.any_target(&ops[0], ty)?;
        d.emit(Op::Clock(*clock, target));
        return Ok(());
    }
    if ty == Ty::Pred {
        let (source, negated) = d.pred_source(&ops[1])?;
        let target = d.pred_target(&ops[0])?;
        let flip = 0u32.wrapping_sub(u32::from(negated));
        d.emit(Op::Lanes(Box::new(move |regs: &mut Regs, mask| {
            let value = regs.p[source as usize] ^ flip;
            regs.set_pred(target, mask, value);
        })));
        return Ok(());
    }
    let source = d.any_source(&ops[1], ty)?;
    let target = d.any_target(&ops[0], ty)?;
    let same = source.bits == ty.bits() && target.bits == ty.bits();
    let halves = source.bank == Bank::Word && target.bank == Bank::Word && ty.bits() == 16;
    if !(same || halves) {
        return d.error(format!("an operand is wider than .{}", ty.name()));
    }
    d.copy_register(target, source)
}

impl Decoder<'_> {
    /// Emits a copy between registers of the same bank.
    pub fn copy_register(&mut self, to: Reg, from: Reg) -> Done {
        if to.bank != from.bank {
            return self.error("the registers differ in width");
        }
        if !self.reads.contains(&from) && self.names.contains_key(&Reg { bits: 0, ..from }) {
            self.reads.push(from);
        }
        if !self.writes.contains(&to) {
            self.writes.push(to);
        }
        let (to_index, from_index) = (to.index, from.index);
        self.emit(match to.bank {
            Bank::Word => Op::Lanes(copy::<u32>(to_index, from_index)),
            Bank::Double => Op::Lanes(copy::<u64>(to_index, from_index)),
            Bank::Pred => Op::Lanes(Box::new(move |regs: &mut Regs, mask| {
                let value = regs.p[from_index as usize];
                regs.set_pred(to_index, mask, value);
            })),
        });
        Ok(())
    }
}

fn copy<T: Lane>(to: u32, from: u32) -> super::program::LaneOp {
    Box::new(move |regs: &mut Regs, mask| {
        let values = *T::get(regs, from);
        regs.set(to, mask, &values);
    })
}

/// Returns the width of each of `count` parts of a value, in bits.
fn parts(d: &Decoder, count: usize, ty: Ty) -> Result<u32, Error> {
    let bits = ty.bits() / count.max(1) as u32;
    let fits = matches!(count, 2 | 4) && bits * count as u32 == ty.bits() && matches!(bits, 8 | 16 | 32);
    if fits { Ok(bits) } else { d.error(format!("{count} parts do not make up .{}", ty.name())) }
}

fn part_type(bits: u32) -> Ty {
    match bits {
        8 => Ty::B8,
        16 => Ty::B16,
        _ => Ty::B32,
    }
}

/// Decodes `mov.b64 {%r1, %r2}, %rd1;`. The first destination gets the lowest bits.
fn unpack(d: &mut Decoder, elements: &[Operand], source: &Operand, ty: Ty) -> Done {
    let bits = parts(d, elements.len(), ty)?;
    let part = part_type(bits);
    let source = d.any_source(source, ty)?;
    if source.bits != ty.bits() {
        return d.error("the source has the wrong width");
    }
    let mut targets = Vec::new();
    for element in elements {
        targets.push(if matches!(element, Operand::Name(name) if name == "_") {
            None
        } else {
            Some(d.target::<u32>(element, part)?)
        });
    }
    let mask_bits = u64::MAX >> (64 - bits);
    d.emit(Op::Lanes(Box::new(move |regs: &mut Regs, mask| {
        let values = match source.bank {
            Bank::Double => regs.d[source.index as usize],
            Bank::Word | Bank::Pred => regs.w[source.index as usize].map(u64::from),
        };
        for (i, target) in targets.iter().enumerate() {
            let Some(target) = target else { continue };
            let part = values.map(|value| (value >> (i as u32 * bits) & mask_bits) as u32);
            regs.set(*target, mask, &part);
        }
    })));
    Ok(())
}

/// Decodes `mov.b64 %rd1, {%r1, %r2};`. The first source becomes the lowest bits.
fn pack(d: &mut Decoder, target: &Operand, elements: &[Operand], ty: Ty) -> Done {
    let bits = parts(d, elements.len(), ty)?;
    let part = part_type(bits);
    let mut sources = Vec::new();
    for element in elements {
        sources.push(d.source::<u32>(element, part)?);
    }
    let target = d.any_target(target, ty)?;
    if target.bits != ty.bits() {
        return d.error("the destination has the wrong width");
    }
    d.emit(Op::Lanes(Box::new(move |regs: &mut Regs, mask| {
        let mut values = [0u64; 32];
        for (i, source) in sources.iter().enumerate() {
            for (value, part) in values.iter_mut().zip(&regs.w[*source as usize]) {
                *value |= u64::from(*part) << (i as u32 * bits);
            }
        }
        match target.bank {
            Bank::Double => regs.set(target.index, mask, &values),
            Bank::Word | Bank::Pred => regs.set(target.index, mask, &values.map(|value| value as u32)),
        }
    })));
    Ok(())
}

pub fn selp(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    d.count::<4>(ops)?;
    let (p, negated) = d.pred_source(&ops[3])?;
    match ty.bits() {
        64 => select::<u64>(d, ops, ty, p, negated),
        16 | 32 => select::<u32>(d, ops, ty, p, negated),
        _ => Err(d.unsupported(mods)),
    }
}

fn select<T: Lane>(d: &mut Decoder, ops: &[Operand], ty: Ty, p: u32, negated: bool) -> Done {
    let (a, b) = (d.source::<T>(&ops[1], ty)?, d.source::<T>(&ops[2], ty)?);
    let to = d.target::<T>(&ops[0], ty)?;
    let flip = 0u32.wrapping_sub(u32::from(negated));
    d.emit(Op::Lanes(Box::new(move |regs: &mut Regs, mask| {
        let (a, b, p) = (T::get(regs, a), T::get(regs, b), regs.p[p as usize] ^ flip);
        let mut out = *b;
        for lane in 0..32 {
            if p >> lane & 1 == 1 {
                out[lane] = a[lane];
            }
        }
        regs.set(to, mask, &out);
    })));
    Ok(())
}

/// `slct.dtype.{s32,f32} d, a, b, c`: selects `a` if `c >= 0`, otherwise `b`.
pub fn slct(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    mods.take("ftz");
    let (ty, by) = (mods.ty()?, mods.ty()?);
    let first = move |c: u32| match by {
        Ty::F32 => f32::from_bits(c) >= 0.0,
        _ => c as i32 >= 0,
    };
    if !matches!(by, Ty::F32 | Ty::S32) {
        return Err(d.unsupported(mods));
    }
    match ty.bits() {
        64 => d.map3(ops, [ty, ty, ty, by], move |a: u64, b: u64, c: u32| if first(c) { a } else { b }),
        _ => d.map3(ops, [ty, ty, ty, by], move |a: u32, b: u32, c: u32| if first(c) { a } else { b }),
    }
}

/// Returns the first generic address of a state space.
fn base(space: Space) -> u64 {
    match space {
        Space::Shared => SHARED_BASE,
        Space::Local => LOCAL_BASE,
        Space::Param => PARAM_BASE,
        Space::Generic | Space::Global | Space::Const => 0,
    }
}

/// `cvta.space` adds the base of the space, `cvta.to.space` subtracts it.
pub fn cvta(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let to = mods.take("to");
    let space = mods.space();
    let ty = mods.ty()?;
    if ty.bits() != 64 || space == Space::Generic {
        return Err(d.unsupported(mods));
    }
    d.count::<2>(ops)?;
    let source = d.source::<u64>(&ops[1], ty)?;
    let target = d.target::<u64>(&ops[0], ty)?;
    let offset = if to { base(space).wrapping_neg() } else { base(space) };
    d.emit(Op::Lanes(lanes1(target, source, move |a: u64| a.wrapping_add(offset))));
    Ok(())
}

pub fn isspacep(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let space = mods.space();
    d.class = Class::Compare;
    d.count::<2>(ops)?;
    let a = d.any_source(&ops[1], Ty::B32)?;
    if !matches!(a.bits, 32 | 64) || space == Space::Generic {
        return Err(d.unsupported(mods));
    }
    let p = d.pred_target(&ops[0])?;
    d.emit(Op::IsSpace(space, p, a));
    Ok(())
}
