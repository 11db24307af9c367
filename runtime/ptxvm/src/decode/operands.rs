//! `%r1`, `42`, `%tid.x`, `tile+4`, `[%rd1+8]`  =>  register indices; also scalar functions applied to all lanes

use super::mods::Mods;
use super::ops::Address;
use super::program::{Bank, Constant, Lane, Op, Reg, Regs, Special};
use super::scope::Place;
use super::statements::Decoder;
use crate::Error;
use crate::text::ast::Operand;
use crate::text::lex::Number;
use crate::text::types::{Space, Ty};

const SPECIALS: [(&str, Special, u32); 42] = [
    ("WARP_SZ", Special::WarpSize, 32),
    ("%cluster_ctaid.x", Special::Zero, 32),
    ("%cluster_ctaid.y", Special::Zero, 32),
    ("%cluster_ctaid.z", Special::Zero, 32),
    ("%cluster_ctarank", Special::Zero, 32),
    ("%cluster_nctaid.x", Special::One, 32),
    ("%cluster_nctaid.y", Special::One, 32),
    ("%cluster_nctaid.z", Special::One, 32),
    ("%cluster_nctarank", Special::One, 32),
    ("%clusterid.x", Special::Ctaid(0), 32),
    ("%clusterid.y", Special::Ctaid(1), 32),
    ("%clusterid.z", Special::Ctaid(2), 32),
    ("%ctaid.x", Special::Ctaid(0), 32),
    ("%ctaid.y", Special::Ctaid(1), 32),
    ("%ctaid.z", Special::Ctaid(2), 32),
    ("%dynamic_smem_size", Special::DynamicShared, 32),
    ("%gridid", Special::Zero, 64),
    ("%laneid", Special::Laneid, 32),
    ("%lanemask_eq", Special::LanemaskEq, 32),
    ("%lanemask_ge", Special::LanemaskGe, 32),
    ("%lanemask_gt", Special::LanemaskGt, 32),
    ("%lanemask_le", Special::LanemaskLe, 32),
    ("%lanemask_lt", Special::LanemaskLt, 32),
    ("%nclusterid.x", Special::Nctaid(0), 32),
    ("%nclusterid.y", Special::Nctaid(1), 32),
    ("%nclusterid.z", Special::Nctaid(2), 32),
    ("%nctaid.x", Special::Nctaid(0), 32),
    ("%nctaid.y", Special::Nctaid(1), 32),
    ("%nctaid.z", Special::Nctaid(2), 32),
    ("%nsmid", Special::One, 32),
    ("%ntid.x", Special::Ntid(0), 32),
    ("%ntid.y", Special::Ntid(1), 32),
    ("%ntid.z", Special::Ntid(2), 32),
    ("%nwarpid", Special::Nwarpid, 32),
    // All blocks appear to run on the same multiprocessor.
    ("%smid", Special::Zero, 32),
    ("%tid", Special::Tid(0), 32),
    ("%tid.x", Special::Tid(0), 32),
    ("%tid.y", Special::Tid(1), 32),
    ("%tid.z", Special::Tid(2), 32),
    ("%total_smem_size", Special::TotalShared, 32),
    ("%warpid", Special::Warpid, 32),
    ("%is_explicit_cluster", Special::Zero, 1),
];

/// Bits of an immediate operand; `None` if its kind or size does not fit the type, so that an assembler would refuse
/// it.
fn bits_of(number: Number, ty: Ty) -> Option<u64> {
    let width = ty.bits();
    match (number, ty) {
        (Number::F32(bits), Ty::F64) => Some(f64::from(f32::from_bits(bits)).to_bits()),
        (Number::F32(bits), Ty::F32 | Ty::B32 | Ty::U32 | Ty::S32 | Ty::Tf32) => Some(u64::from(bits)),
        (Number::F64(bits), Ty::F32) => Some(u64::from((f64::from_bits(bits) as f32).to_bits())),
        (Number::F64(bits), Ty::F64 | Ty::B64 | Ty::U64 | Ty::S64) => Some(bits),
        (Number::F32(_) | Number::F64(_), _) => None,
        (Number::Int(_), Ty::F32 | Ty::F64) => None,
        (Number::Int(value), _) if width == 64 => Some(value),
        (Number::Int(value), Ty::Pred) => Some(u64::from(value != 0)),
        (Number::Int(value), _) => {
            let low = value & ((1 << width) - 1);
            let signed = (value as i64) << (64 - width) >> (64 - width);
            (low == value || signed as u64 == value).then_some(low)
        }
    }
}

impl Decoder<'_> {
    pub fn constant(&mut self, constant: Constant, bits: u32) -> Reg {
        let bank_of = |bits| match bits {
            1 => Bank::Pred,
            64 => Bank::Double,
            _ => Bank::Word,
        };
        if let Some(known) = self.constants.get(&constant)
            && let Some(reg) = known.iter().find(|reg| reg.bank == bank_of(bits))
        {
            return Reg { bits, ..*reg };
        }
        let reg = self.scopes.banks.fresh(bits);
        self.constants.entry(constant).or_default().push(reg);
        reg
    }

    pub fn count<const N: usize>(&self, operands: &[Operand]) -> Result<(), Error> {
        if operands.len() == N { Ok(()) } else { self.error(format!("takes {N} operands, not {}", operands.len())) }
    }

    pub fn pred_named(&mut self, name: &str) -> Result<u32, Error> {
        match self.scopes.register(name) {
            Some(reg) if reg.bank == Bank::Pred => Ok(self.note_read(name, reg).index),
            Some(_) => self.error(format!("`{name}` is no predicate")),
            None => self.error(format!("unknown register `{name}`")),
        }
    }

    fn note_read(&mut self, name: &str, reg: Reg) -> Reg {
        self.names.entry(Reg { bits: 0, ..reg }).or_insert_with(|| name.to_owned());
        self.reads.push(reg);
        reg
    }

    /// Resolves a source: a register or constant at least as wide as the type. An instruction of a narrower type reads
    /// the low bits.
    pub fn any_source(&mut self, operand: &Operand, ty: Ty) -> Result<Reg, Error> {
        let (name, offset) = match operand {
            Operand::Number(number) => {
                let Some(bits) = bits_of(*number, ty) else {
                    return self.error(format!("{number:x?} is no value of .{}", ty.name()));
                };
                return Ok(self.constant(Constant::Number(bits), ty.bits()));
            }
            Operand::Name(name) => (name, 0),
            Operand::Sum(name, offset) => (name, *offset),
            Operand::Not(_)
            | Operand::Pair(..)
            | Operand::Vector(_)
            | Operand::Address(_)
            | Operand::List(_)
            | Operand::Tensor(..) => {
                return self.error(format!("expected a register or a number of .{}", ty.name()));
            }
        };
        if offset == 0 {
            if let Some(reg) = self.scopes.register(name) {
                if (reg.bank == Bank::Pred) != (ty == Ty::Pred) || reg.bits < ty.bits() {
                    return self.error(format!("`{name}` has {} bits where .{} is needed", reg.bits, ty.name()));
                }
                return Ok(self.note_read(name, reg));
            }
            if let Some((_, special, bits)) = SPECIALS.iter().find(|(known, ..)| known == name) {
                let reg = self.constant(Constant::Special(*special), *bits);
                if ty.bits() > *bits {
                    return self.error(format!("`{name}` has {bits} bits where .{} is needed", ty.name()));
                }
                return Ok(reg);
            }
        }
        let Some(place) = self.find_place(name)? else {
            return self.error(format!("unknown name `{name}`"));
        };
        self.place_constant(place, offset, ty, name)
    }

    /// A constant register with the address of a variable in its own state space.
    fn place_constant(&mut self, place: Place, offset: i64, ty: Ty, name: &str) -> Result<Reg, Error> {
        let constant = match (place.space, place.dynamic) {
            (Space::Shared, true) => Constant::DynamicShared(offset),
            (Space::Global | Space::Const | Space::Generic, _) => Constant::Symbol(place.offset, offset),
            (Space::Shared | Space::Local | Space::Param, _) => {
                Constant::Number((i64::from(place.offset).wrapping_add(offset)) as u64)
            }
        };
        let narrow = matches!(place.space, Space::Shared | Space::Local | Space::Param) && ty.bits() == 32;
        if ty.bits() != 64 && !narrow {
            return self.error(format!("the address of `{name}` does not fit .{}", ty.name()));
        }
        if narrow && let Constant::Number(value) = constant {
            return Ok(self.constant(Constant::Number(value & 0xffff_ffff), 32));
        }
        Ok(self.constant(constant, ty.bits()))
    }

    /// Resolves a source in the bank of `T`, and returns its index. The operand must be as wide as the type.
    pub fn source<T: Lane>(&mut self, operand: &Operand, ty: Ty) -> Result<u32, Error> {
        let reg = self.any_source(operand, ty)?;
        if reg.bits != ty.bits() && !(ty.bits() == 16 && reg.bits == 32) {
            return self.error(format!("an operand has {} bits where .{} is needed", reg.bits, ty.name()));
        }
        self.in_bank::<T>(reg)
    }

    fn in_bank<T: Lane>(&self, reg: Reg) -> Result<u32, Error> {
        if reg.bank == T::BANK { Ok(reg.index) } else { self.error("an operand has the wrong width") }
    }

    pub fn pred_source(&mut self, operand: &Operand) -> Result<(u32, bool), Error> {
        match operand {
            Operand::Not(name) => Ok((self.pred_named(name)?, true)),
            other => Ok((self.any_source(other, Ty::Pred)?.index, false)),
        }
    }

    /// Resolves a destination at least as wide as the type.
    pub fn any_target(&mut self, operand: &Operand, ty: Ty) -> Result<Reg, Error> {
        let Operand::Name(name) = operand else {
            return self.error("expected a register as the destination");
        };
        if name == "_" {
            return Ok(self.scopes.banks.fresh(ty.bits()));
        }
        let Some(reg) = self.scopes.register(name) else {
            return self.error(format!("unknown register `{name}`"));
        };
        if (reg.bank == Bank::Pred) != (ty == Ty::Pred) || reg.bits < ty.bits() {
            return self.error(format!("`{name}` has {} bits where .{} is given", reg.bits, ty.name()));
        }
        self.names.entry(Reg { bits: 0, ..reg }).or_insert_with(|| name.clone());
        self.writes.push(reg);
        Ok(reg)
    }

    pub fn target<T: Lane>(&mut self, operand: &Operand, ty: Ty) -> Result<u32, Error> {
        let reg = self.any_target(operand, ty)?;
        if reg.bits != ty.bits() && !(ty.bits() == 16 && reg.bits == 32) {
            return self.error(format!("the destination has {} bits where .{} is given", reg.bits, ty.name()));
        }
        self.in_bank::<T>(reg)
    }

    pub fn pred_target(&mut self, operand: &Operand) -> Result<u32, Error> {
        Ok(self.any_target(operand, Ty::Pred)?.index)
    }

    pub fn address(&mut self, operand: &Operand) -> Result<(Address, Option<Place>), Error> {
        let Operand::Address(address) = operand else {
            return self.error("expected an address in brackets");
        };
        let Some(name) = &address.base else {
            let base = self.constant(Constant::Number(address.offset as u64), 64);
            return Ok((Address { base, offset: 0 }, None));
        };
        if let Some(reg) = self.scopes.register(name) {
            if !matches!(reg.bits, 32 | 64) {
                return self.error(format!("`{name}` has {} bits, an address 32 or 64", reg.bits));
            }
            self.note_read(name, reg);
            return Ok((Address { base: reg, offset: address.offset }, None));
        }
        let Some(place) = self.find_place(name)? else {
            return self.error(format!("unknown name `{name}` in an address"));
        };
        Ok((self.place_address(place, address.offset), Some(place)))
    }

    pub fn map1<A: Lane, D: Lane>(
        &mut self,
        operands: &[Operand],
        [d, a]: [Ty; 2],
        f: impl Fn(A) -> D + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.count::<2>(operands)?;
        let a = self.source::<A>(&operands[1], a)?;
        let d = self.target::<D>(&operands[0], d)?;
        self.emit(Op::Lanes(lanes1(d, a, f)));
        Ok(())
    }

    pub fn map2<A: Lane, B: Lane, D: Lane>(
        &mut self,
        operands: &[Operand],
        [d, a, b]: [Ty; 3],
        f: impl Fn(A, B) -> D + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.count::<3>(operands)?;
        let a = self.source::<A>(&operands[1], a)?;
        let b = self.source::<B>(&operands[2], b)?;
        let d = self.target::<D>(&operands[0], d)?;
        self.emit(Op::Lanes(lanes2(d, a, b, f)));
        Ok(())
    }

    pub fn map3<A: Lane, B: Lane, C: Lane, D: Lane>(
        &mut self,
        operands: &[Operand],
        [d, a, b, c]: [Ty; 4],
        f: impl Fn(A, B, C) -> D + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.count::<4>(operands)?;
        let a = self.source::<A>(&operands[1], a)?;
        let b = self.source::<B>(&operands[2], b)?;
        let c = self.source::<C>(&operands[3], c)?;
        let d = self.target::<D>(&operands[0], d)?;
        self.emit(Op::Lanes(Box::new(move |regs: &mut Regs, mask| {
            let (x, y, z) = (A::get(regs, a), B::get(regs, b), C::get(regs, c));
            let mut out = [D::default(); 32];
            for lane in 0..32 {
                out[lane] = f(x[lane], y[lane], z[lane]);
            }
            regs.set(d, mask, &out);
        })));
        Ok(())
    }

    pub fn unsupported(&self, mods: &Mods) -> Error {
        mods.error("this form is not supported".into())
    }
}

pub fn lanes1<A: Lane, D: Lane>(d: u32, a: u32, f: impl Fn(A) -> D + Send + Sync + 'static) -> super::program::LaneOp {
    Box::new(move |regs: &mut Regs, mask| {
        let x = A::get(regs, a);
        let mut out = [D::default(); 32];
        for lane in 0..32 {
            out[lane] = f(x[lane]);
        }
        regs.set(d, mask, &out);
    })
}

pub fn lanes2<A: Lane, B: Lane, D: Lane>(
    d: u32,
    a: u32,
    b: u32,
    f: impl Fn(A, B) -> D + Send + Sync + 'static,
) -> super::program::LaneOp {
    Box::new(move |regs: &mut Regs, mask| {
        let (x, y) = (A::get(regs, a), B::get(regs, b));
        let mut out = [D::default(); 32];
        for lane in 0..32 {
            out[lane] = f(x[lane], y[lane]);
        }
        regs.set(d, mask, &out);
    })
}
