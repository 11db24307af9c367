//! atom, red: the operations of the lanes are executed one after another, each atomically with respect to all threads

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use super::access::{Request, addresses, lanes, split};
use super::env::Env;
use super::warp::Warp;
use crate::decode::ops::{Atomic, AtomicOp};
use crate::decode::program::{Bank, Reg, Regs};
use crate::shadow::{Kind, Place};
use crate::text::types::{Space, Ty};
use crate::units::float::{self, Extremum, canonical};
use crate::units::packed::{Finish, Half, add, extremum, map2};

impl Warp {
    pub fn atomic(&mut self, env: &mut Env, op: &Atomic, pc: u32, active: u32) {
        let line = env.context.program.code[pc as usize].line;
        let at = addresses(&self.regs, &op.address);
        let mut old = [0u64; 32];
        for (space, mask, base) in split(op.space, &at, active) {
            if mask == 0 {
                continue;
            }
            let at = at.map(|at| at.wrapping_sub(base));
            let rq = Request {
                pc,
                line,
                warp: self.index,
                mask,
                bytes: op.ty.bytes(),
                kind: Kind::Atomic,
                collective: false,
            };
            match space {
                Space::Shared => self.atomic_shared(env, op, &rq, &at, &mut old),
                Space::Generic | Space::Global | Space::Const => self.atomic_global(env, op, &rq, &at, &mut old),
                Space::Local | Space::Param => {
                    env.note_lanes(crate::report::Kind::OutOfBounds, line, self.index, mask, |_| {
                        "is atomic in memory that only one thread sees".into()
                    });
                }
            }
        }
        if let Some(to) = op.to {
            match to.bank {
                Bank::Double => self.regs.set(to.index, active, &old),
                Bank::Word | Bank::Pred => self.regs.set(to.index, active, &old.map(|old| old as u32)),
            }
        }
    }

    fn atomic_shared(&mut self, env: &mut Env, op: &Atomic, rq: &Request, at: &[u64; 32], old: &mut [u64; 32]) {
        let mask = env.shared_access(rq, at, |_, _| true);
        let bytes = op.ty.bytes();
        for lane in lanes(mask) {
            let place = |_: usize| Place::Shared(at[lane] as u32);
            env.publish(rq.warp, 1 << lane, op.order, true, place);
            let data = env.load_shared(1 << lane, bytes, at);
            let before = u64::from(data[1][lane]) << 32 | u64::from(data[0][lane]);
            let (a, b) = self.operands(op, lane);
            let after = update(op.op, op.ty, before, a, b);
            let mut data = [[0; 32]; 4];
            (data[0][lane], data[1][lane]) = (after as u32, (after >> 32) as u32);
            env.store_shared(1 << lane, bytes, at, &data);
            old[lane] = before;
            env.observe(rq.warp, 1 << lane, op.order, place);
        }
    }

    fn atomic_global(&mut self, env: &mut Env, op: &Atomic, rq: &Request, at: &[u64; 32], old: &mut [u64; 32]) {
        let (mask, _) = env.global_access(rq, at, |_, _| true);
        for lane in lanes(mask) {
            let place = |_: usize| Place::Global(at[lane]);
            env.publish(rq.warp, 1 << lane, op.order, true, place);
            let (a, b) = self.operands(op, lane);
            old[lane] = step(env, op, at[lane], a, b);
            env.observe(rq.warp, 1 << lane, op.order, place);
        }
    }

    fn operands(&self, op: &Atomic, lane: usize) -> (u64, u64) {
        (value(&self.regs, op.a, lane), op.b.map_or(0, |b| value(&self.regs, b, lane)))
    }
}

fn value(regs: &Regs, reg: Reg, lane: usize) -> u64 {
    match reg.bank {
        Bank::Double => regs.d[reg.index as usize][lane],
        Bank::Word | Bank::Pred => u64::from(regs.w[reg.index as usize][lane]),
    }
}

/// Reads, updates and writes global memory atomically; returns the old value.
fn step(env: &Env, op: &Atomic, at: u64, a: u64, b: u64) -> u64 {
    let memory = env.context.memory;
    let Some(allocation) = memory.find(at).and_then(|index| memory.allocations.get(index)) else { return 0 };
    let offset = (at - allocation.base) as usize;
    let Some(word) = allocation.words.get(offset / 4) else { return 0 };
    if op.ty.bits() == 64 {
        let Some(high) = allocation.words.get(offset / 4 + 1) else { return 0 };
        let _one = memory.wide.lock().unwrap_or_else(PoisonError::into_inner);
        let before = u64::from(high.load(Relaxed)) << 32 | u64::from(word.load(Relaxed));
        let after = update(op.op, op.ty, before, a, b);
        word.store(after as u32, Relaxed);
        high.store((after >> 32) as u32, Relaxed);
        return before;
    }
    let (shift, keep) = match op.ty.bits() {
        16 => (offset as u32 % 4 * 8, 0xffff),
        _ => (0, u32::MAX),
    };
    let mut whole = word.load(Relaxed);
    loop {
        let before = u64::from(whole >> shift & keep);
        let after = update(op.op, op.ty, before, a, b) as u32 & keep;
        match word.compare_exchange_weak(whole, whole & !(keep << shift) | after << shift, Relaxed, Relaxed) {
            Ok(_) => return before,
            Err(now) => whole = now,
        }
    }
}

/// The new value of an atomic operation.
fn update(op: AtomicOp, ty: Ty, old: u64, a: u64, b: u64) -> u64 {
    let (x, y) = (old as u32, a as u32);
    match op {
        AtomicOp::Exch => a,
        AtomicOp::Cas => {
            let keep = u64::MAX >> (64 - ty.bits());
            if old & keep == a & keep { b } else { old }
        }
        AtomicOp::And => old & a,
        AtomicOp::Or => old | a,
        AtomicOp::Xor => old ^ a,
        AtomicOp::Inc => u64::from(if x >= y { 0 } else { x + 1 }),
        AtomicOp::Dec => u64::from(if x == 0 || x > y { y } else { x - 1 }),
        AtomicOp::Add => match ty {
            // On GPUs, atomic f32 addition in global memory flushes subnormal numbers to zero; the simulator keeps
            // them.
            Ty::F32 => canonical(f32::from_bits(x) + f32::from_bits(y)).to_bits().into(),
            Ty::F64 => (f64::from_bits(old) + f64::from_bits(a)).to_bits(),
            Ty::F16 => u64::from(add(Half::F16, x as u16, y as u16, Finish::default())),
            Ty::Bf16 => u64::from(add(Half::Bf16, x as u16, y as u16, Finish::default())),
            Ty::F16x2 => map2(x, y, |x, y| add(Half::F16, x, y, Finish::default())).into(),
            Ty::Bf16x2 => map2(x, y, |x, y| add(Half::Bf16, x, y, Finish::default())).into(),
            _ => old.wrapping_add(a),
        },
        AtomicOp::Min => smaller_or_larger(Extremum::Min, ty, old, a),
        AtomicOp::Max => smaller_or_larger(Extremum::Max, ty, old, a),
    }
}

fn smaller_or_larger(which: Extremum, ty: Ty, old: u64, a: u64) -> u64 {
    let pick = |older_is_less: bool| match which {
        float::Extremum::Min => {
            if older_is_less {
                old
            } else {
                a
            }
        }
        float::Extremum::Max => {
            if older_is_less {
                a
            } else {
                old
            }
        }
    };
    let half = |half| extremum_of(which, half, old as u32, a as u32, ty);
    match ty {
        Ty::S32 => pick((old as i32) < a as i32),
        Ty::S64 => pick((old as i64) < a as i64),
        Ty::F16 | Ty::F16x2 => half(Half::F16).into(),
        Ty::Bf16 | Ty::Bf16x2 => half(Half::Bf16).into(),
        _ => pick(old < a),
    }
}

fn extremum_of(which: Extremum, half: Half, x: u32, y: u32, ty: Ty) -> u32 {
    let one = |x: u16, y: u16| extremum(which, half, x, y, false, false, false);
    if ty.bits() == 32 { map2(x, y, one) } else { u32::from(one(x as u16, y as u16)) }
}
