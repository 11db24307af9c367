//! ld, st, ldmatrix, stmatrix: registers  <=>  memory of every state space

use super::access::{Data, Request, addresses, gather, lanes, scatter, split};
use super::env::Env;
use super::warp::Warp;
use crate::decode::ops::{Load, Matrix, Store};
use crate::decode::program::{Bank, Reg, Regs};
use crate::memory::SHARED_BASE;
use crate::report::Kind as Finding;
use crate::shadow::{Kind, Place};
use crate::text::types::{Space, Ty};
use crate::units::counting::matrix_wavefronts;
use crate::units::int::sign_extend;
use crate::units::matrix;

impl Warp {
    pub fn load(&mut self, env: &mut Env, op: &Load, pc: u32, active: u32) {
        let line = env.context.program.code[pc as usize].line;
        let at = addresses(&self.regs, &op.address);
        let bytes = op.ty.bytes() * op.n;
        let kind = if op.order.strong { Kind::AtomicRead } else { Kind::Read };
        let rq = Request { pc, line, warp: self.index, mask: active, bytes, kind, collective: false };
        if op.space != Space::Generic {
            let data = self.load_from(env, &rq, op.space, &at, op);
            return deliver(&mut self.regs, op, active, &data);
        }
        let mut data = [[0; 32]; 4];
        for (space, mask, base) in split(op.space, &at, active) {
            if mask != 0 {
                let at = at.map(|at| at.wrapping_sub(base));
                data = merge(data, self.load_from(env, &Request { mask, ..rq }, space, &at, op));
            }
        }
        deliver(&mut self.regs, op, active, &data);
    }

    pub(super) fn load_from(&self, env: &mut Env, rq: &Request, space: Space, at: &[u64; 32], op: &Load) -> Data {
        let bytes = rq.bytes;
        match space {
            Space::Shared => {
                let mask = env.shared_access(rq, at, |_, _| true);
                let data = env.load_shared(mask, bytes, at);
                env.observe(rq.warp, mask, op.order, |lane| Place::Shared(at[lane] as u32));
                data
            }
            Space::Local => {
                let each = u64::from(env.context.program.local_bytes);
                let mask = env.private_access(rq, Space::Local, at, each);
                self.check_local(env, rq, mask, at, each);
                let word =
                    |lane: usize, word: usize| self.local.get(lane * each as usize / 4 + word).copied().unwrap_or(0);
                gather(mask, bytes, word, |lane| at[lane] as usize)
            }
            Space::Param => {
                let params = &env.context.launch.params;
                let mask = env.private_access(rq, Space::Param, at, params.len() as u64);
                let word = |_: usize, word: usize| {
                    let byte = |i: usize| u32::from(params.get(word * 4 + i).copied().unwrap_or(0)) << (8 * i);
                    byte(0) | byte(1) | byte(2) | byte(3)
                };
                gather(mask, bytes, word, |lane| at[lane] as usize)
            }
            Space::Generic | Space::Global | Space::Const => {
                let (mask, one) = env.global_access(rq, at, |_, _| true);
                let data = env.load_global(mask, bytes, at, one);
                env.observe(rq.warp, mask, op.order, |lane| Place::Global(at[lane]));
                data
            }
        }
    }

    fn check_local(&self, env: &mut Env, rq: &Request, mask: u32, at: &[u64; 32], each: u64) {
        if !env.context.options.checks {
            return;
        }
        let unwritten = super::access::where_lanes(mask, |lane| {
            let first = lane * each as usize + at[lane] as usize;
            (first..first + rq.bytes as usize)
                .any(|byte| self.local_written.get(byte / 32).is_none_or(|bits| bits >> (byte % 32) & 1 == 0))
        });
        env.note_lanes(Finding::UninitialisedMemory, rq.line, rq.warp, unwritten, |env| {
            let first = at[unwritten.trailing_zeros() as usize & 31];
            format!("reads memory that nothing wrote, at {}", env.place(Space::Local, first))
        });
    }

    pub fn store(&mut self, env: &mut Env, op: &Store, pc: u32, active: u32) {
        let line = env.context.program.code[pc as usize].line;
        let at = addresses(&self.regs, &op.address);
        let bytes = op.ty.bytes() * op.n;
        let kind = if op.order.strong { Kind::AtomicWrite } else { Kind::Write };
        let data = collect(&self.regs, op);
        for (space, mask, base) in split(op.space, &at, active) {
            if mask == 0 {
                continue;
            }
            let rq = Request { pc, line, warp: self.index, mask, bytes, kind, collective: false };
            if base == 0 {
                self.store_to(env, &rq, space, &at, op, &data);
            } else {
                self.store_to(env, &rq, space, &at.map(|at| at.wrapping_sub(base)), op, &data);
            }
        }
    }

    pub(super) fn store_to(
        &mut self,
        env: &mut Env,
        rq: &Request,
        space: Space,
        at: &[u64; 32],
        op: &Store,
        data: &Data,
    ) {
        let bytes = rq.bytes;
        let same = |a: u32, b: u32| data.iter().all(|row| row[a as usize & 31] == row[b as usize & 31]);
        match space {
            Space::Shared => {
                let mask = env.shared_access(rq, at, same);
                env.publish(rq.warp, mask, op.order, false, |lane| Place::Shared(at[lane] as u32));
                env.store_shared(mask, bytes, at, data);
            }
            Space::Local => {
                let each = env.context.program.local_bytes as usize;
                let mask = env.private_access(rq, Space::Local, at, each as u64);
                let (local, written) = (&mut self.local, &mut self.local_written);
                scatter(
                    mask,
                    bytes,
                    data,
                    |lane| at[lane] as usize,
                    |lane, word, keep, bits| {
                        if let Some(word) = local.get_mut(lane * each / 4 + word) {
                            *word = *word & keep | bits;
                        }
                    },
                );
                for lane in lanes(mask) {
                    let first = lane * each + at[lane] as usize;
                    for byte in first..first + bytes as usize {
                        if let Some(bits) = written.get_mut(byte / 32) {
                            *bits |= 1 << (byte % 32);
                        }
                    }
                }
            }
            Space::Param => {
                env.note_lanes(Finding::OutOfBounds, rq.line, rq.warp, rq.mask, |_| "writes a kernel parameter".into());
            }
            Space::Generic | Space::Global | Space::Const => {
                let (mask, one) = env.global_access(rq, at, same);
                env.publish(rq.warp, mask, op.order, false, |lane| Place::Global(at[lane]));
                env.store_global(mask, bytes, at, one, data);
            }
        }
    }

    pub fn matrix(&mut self, env: &mut Env, op: &Matrix, pc: u32, active: u32) {
        let line = env.context.program.code[pc as usize].line;
        if !self.converge_all(env, line, active) {
            return;
        }
        let mut at = addresses(&self.regs, &op.address);
        if op.space == Space::Generic {
            at = at.map(|at| at.wrapping_sub(SHARED_BASE));
        }
        let given = if op.count == 4 { u32::MAX } else { (1 << (8 * op.count)) - 1 };
        let kind = if op.store { Kind::Write } else { Kind::Read };
        let rq = Request { pc, line, warp: self.index, mask: given, bytes: 16, kind, collective: true };
        let fronts = matrix_wavefronts(&at, op.count as usize);
        let count = &mut env.tally.shared[pc as usize];
        count.requests += 1;
        count.wavefronts += u64::from(fronts.actual);
        count.ideal += u64::from(fronts.ideal);
        if op.store {
            let registers: Vec<_> =
                op.regs.iter().take(op.count as usize).map(|reg| self.regs.w[*reg as usize]).collect();
            let rows = matrix::stmatrix(&registers, op.trans);
            let mut data = [[0; 32]; 4];
            for (lane, row) in rows.iter().enumerate() {
                data.iter_mut().zip(row).for_each(|(words, word)| words[lane] = *word);
            }
            let mask = env.shared_access(&rq, &at, |a, b| rows[a as usize & 31] == rows[b as usize & 31]);
            env.store_shared(mask, 16, &at, &data);
        } else {
            let mask = env.shared_access(&rq, &at, |_, _| true);
            let data = env.load_shared(mask, 16, &at);
            let rows = std::array::from_fn(|lane| [data[0][lane], data[1][lane], data[2][lane], data[3][lane]]);
            let registers = matrix::ldmatrix(&rows, op.count as usize, op.trans);
            for (reg, values) in op.regs.iter().zip(&registers).take(op.count as usize) {
                self.regs.set(*reg, active, values);
            }
        }
    }
}

fn merge(mut into: Data, from: Data) -> Data {
    for (row, other) in into.iter_mut().zip(&from) {
        row.iter_mut().zip(other).for_each(|(word, other)| *word |= other);
    }
    into
}

/// Writes element `i` of the loaded bytes to register `i`, extended according to the type.
fn deliver(regs: &mut Regs, op: &Load, active: u32, data: &Data) {
    for (i, target) in op.to.iter().take(op.n as usize).enumerate() {
        let Some(reg) = target else { continue };
        match op.ty.bits() {
            64 => {
                let (low, high) = (&data[(2 * i) & 3], &data[(2 * i + 1) & 3]);
                let values =
                    std::array::from_fn::<u64, 32, _>(|lane| u64::from(high[lane]) << 32 | u64::from(low[lane]));
                regs.set(reg.index, active, &values);
            }
            32 => narrow(regs, *reg, active, &data[i & 3], op.ty),
            bits => {
                let shift = i as u32 * bits;
                let (row, shift) = (&data[(shift / 32) as usize & 3], shift % 32);
                let part = row.map(|word| word >> shift & ((1 << bits) - 1));
                narrow(regs, *reg, active, &part, op.ty);
            }
        }
    }
}

fn narrow(regs: &mut Regs, reg: Reg, active: u32, values: &[u32; 32], ty: Ty) {
    let extend = |value: u32| {
        if ty.is_signed() { sign_extend(value.into(), ty.bits()) as u64 } else { u64::from(value) }
    };
    match reg.bank {
        Bank::Double => regs.set(reg.index, active, &values.map(extend)),
        Bank::Word | Bank::Pred if ty.bits() == 32 => regs.set(reg.index, active, values),
        Bank::Word | Bank::Pred => {
            let keep = u32::MAX >> (32 - reg.bits.clamp(8, 32));
            regs.set(reg.index, active, &values.map(|value| extend(value) as u32 & keep));
        }
    }
}

fn collect(regs: &Regs, op: &Store) -> Data {
    let mut data = [[0; 32]; 4];
    for (i, reg) in op.from.iter().take(op.n as usize).enumerate() {
        let low = |lane: usize| match reg.bank {
            Bank::Double => regs.d[reg.index as usize][lane],
            Bank::Word | Bank::Pred => u64::from(regs.w[reg.index as usize][lane]),
        };
        match op.ty.bits() {
            64 => {
                data[(2 * i) & 3] = std::array::from_fn(|lane| low(lane) as u32);
                data[(2 * i + 1) & 3] = std::array::from_fn(|lane| (low(lane) >> 32) as u32);
            }
            32 => data[i & 3] = std::array::from_fn(|lane| low(lane) as u32),
            bits => {
                let shift = i as u32 * bits;
                let row = &mut data[(shift / 32) as usize & 3];
                for (lane, word) in row.iter_mut().enumerate() {
                    *word |= (low(lane) as u32 & ((1 << bits) - 1)) << (shift % 32);
                }
            }
        }
    }
    data
}
