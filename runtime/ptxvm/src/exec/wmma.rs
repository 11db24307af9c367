//! wmma.load, wmma.store, wmma.mma: the elements of each lane  <=>  memory, in pieces of up to 16 bytes
//!
//! The layout of fragments is the simulator's own: elements are spread evenly over the lanes. Sectors and wavefronts
//! are counted for this layout, not for that of a particular device.

use super::access::{Request, addresses, split};
use super::env::Env;
use super::warp::Warp;
use crate::decode::ops::{FragmentAccess, FragmentMultiply, Load, Store, WEAK};
use crate::decode::program::{Bank, Reg};
use crate::shadow::Kind;
use crate::text::types::Ty;
use crate::units::Lanes;

impl Warp {
    pub fn fragment_access(&mut self, env: &mut Env, op: &FragmentAccess, pc: u32, active: u32) {
        let line = env.context.program.code[pc as usize].line;
        if !self.converge_all(env, line, active) {
            return;
        }
        let at = addresses(&self.regs, &op.address);
        let stride: Lanes = match op.stride {
            Some(reg) => self.regs.w[reg as usize],
            None => [op.fragment.width(op.row_major) as u32; 32],
        };
        let bits = op.fragment.element_bits();
        let piece = op.fragment.run(op.row_major).min(128 / bits);
        let bytes = (piece * bits / 8) as u32;
        let mut registers: Vec<Lanes> = match op.store {
            true => op.regs.iter().map(|reg| self.regs.w[*reg as usize]).collect(),
            false => vec![[0; 32]; op.regs.len()],
        };
        for first in (0..op.fragment.elements()).step_by(piece) {
            let at = std::array::from_fn(|lane| {
                let offset = op.fragment.offset(lane, first, op.row_major, stride[lane].into());
                at[lane].wrapping_add(offset.wrapping_mul(bits as u64) / 8)
            });
            let (word, shift) = (first * bits / 32, first * bits % 32);
            let words = &mut registers[word..(word + 4).min(op.regs.len())];
            let kind = if op.store { Kind::Write } else { Kind::Read };
            for (space, mask, base) in split(op.space, &at, active) {
                if mask == 0 {
                    continue;
                }
                let rq = Request { pc, line, warp: self.index, mask, bytes, kind, collective: false };
                let at = at.map(|at| at.wrapping_sub(base));
                if op.store {
                    let mut data = [[0; 32]; 4];
                    data.iter_mut().zip(&*words).for_each(|(row, word)| *row = word.map(|word| word >> shift));
                    self.store_to(env, &rq, space, &at, &plain_store(op), &data);
                } else {
                    let data = self.load_from(env, &rq, space, &at, &plain_load(op));
                    for (word, row) in words.iter_mut().zip(&data) {
                        word.iter_mut().zip(row).for_each(|(word, value)| *word |= value << shift);
                    }
                }
            }
        }
        if !op.store {
            op.fragment.repeat(&mut registers);
            for (reg, values) in op.regs.iter().zip(&registers) {
                self.regs.set(*reg, active, values);
            }
        }
    }

    pub fn fragment_multiply(&mut self, env: &mut Env, op: &FragmentMultiply, line: u32, active: u32) {
        if !self.converge_all(env, line, active) {
            return;
        }
        let fetch = |regs: &[u32]| regs.iter().map(|reg| self.regs.w[*reg as usize]).collect::<Vec<Lanes>>();
        let mut d = vec![[0; 32]; op.d.len()];
        op.wmma.run(&fetch(&op.a), &fetch(&op.b), &fetch(&op.c), &mut d);
        for (reg, values) in op.d.iter().zip(&d) {
            self.regs.set(*reg, active, values);
        }
    }
}

fn plain_load(op: &FragmentAccess) -> Load {
    Load { space: op.space, address: op.address, ty: Ty::B32, n: 1, to: [None; 4], order: WEAK }
}

fn plain_store(op: &FragmentAccess) -> Store {
    let unused = Reg { bank: Bank::Word, index: 0, bits: 32 };
    Store { space: op.space, address: op.address, ty: Ty::B32, n: 1, from: [unused; 4], order: WEAK }
}
