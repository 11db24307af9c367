//! shfl, vote, match, redux, activemask, elect, mma: instructions that a warp executes as a whole

use super::access::lanes;
use super::env::Env;
use super::warp::Warp;
use crate::decode::ops::{Multiply, Shuffle, Warp as Exchange};
use crate::decode::program::{Bank, Reg, Regs};
use crate::report::Kind;
use crate::units::shuffle::{Vote, match_all, match_any, redux, shfl, vote};

impl Warp {
    /// Checks that the active lanes agree on the member mask, and that all members execute the instruction. Returns the
    /// active members.
    pub fn converge(&mut self, env: &mut Env, members: u32, line: u32, active: u32) -> u32 {
        if active == 0 {
            return 0;
        }
        let masks = &self.regs.w[members as usize];
        let first = masks[active.trailing_zeros() as usize];
        let uniform = lanes(active).all(|lane| masks[lane] == first);
        let missing = first & self.live & !active;
        let outside = active & !first;
        if !uniform || missing != 0 || outside != 0 {
            let wrong = if missing != 0 { missing } else { active };
            env.note_lanes(Kind::DivergentSync, line, self.index, wrong, |_| {
                format!(
                    "is not where the member mask {first:#010x} says: lanes {active:#010x} execute it, \
                     {:#010x} have not exited",
                    self.live
                )
            });
        }
        if let Some(shadow) = &mut env.shadow {
            shadow.warp_sync(self.index, first & active);
        }
        first & active
    }

    /// Checks that all 32 lanes execute a `.sync.aligned` instruction, which has no member mask. Returns false if no
    /// lane executes it.
    pub fn converge_all(&mut self, env: &mut Env, line: u32, active: u32) -> bool {
        if active == 0 {
            return false;
        }
        if active != u32::MAX {
            env.note_lanes(Kind::DivergentSync, line, self.index, !active, |_| {
                "does not take part in an instruction of its whole warp".into()
            });
        }
        if let Some(shadow) = &mut env.shadow {
            shadow.warp_sync(self.index, active);
        }
        true
    }

    pub fn shuffle(&mut self, env: &mut Env, op: &Shuffle, line: u32, active: u32) {
        let members = self.converge(env, op.members, line, active);
        if members == 0 {
            return;
        }
        let regs = &self.regs.w;
        let (a, b, c) = (&regs[op.a as usize], &regs[op.b as usize], &regs[op.c as usize]);
        let result = shfl(op.mode, a, b, c, members, active);
        env.note_lanes(Kind::UndefinedShuffle, line, self.index, result.undefined, |_| {
            format!("reads a lane that does not take part; lanes {active:#010x} do")
        });
        if let Some(d) = op.d {
            self.regs.set(d, active, &result.lanes);
        }
        if let Some(p) = op.p {
            self.regs.set_pred(p, active, result.predicate);
        }
    }

    pub fn exchange(&mut self, env: &mut Env, op: &Exchange, line: u32, active: u32) {
        if active == 0 {
            return;
        }
        match op {
            Exchange::Vote { mode, d, a, negated, members } => {
                let members = self.converge(env, *members, line, active);
                let holds = self.regs.p[*a as usize] ^ 0u32.wrapping_sub(u32::from(*negated));
                let result = vote(*mode, holds, members);
                match mode {
                    Vote::Ballot => self.regs.set(d.index, active, &[result; 32]),
                    Vote::All | Vote::Any | Vote::Uni => {
                        self.regs.set_pred(d.index, active, 0u32.wrapping_sub(result));
                    }
                }
            }
            Exchange::MatchAny { d, a, members } => {
                let members = self.converge(env, *members, line, active);
                let result = match_any(&wide(&self.regs, *a), members);
                self.regs.set(*d, active, &result);
            }
            Exchange::MatchAll { d, p, a, members } => {
                let members = self.converge(env, *members, line, active);
                let (mask, same) = match_all(&wide(&self.regs, *a), members);
                if let Some(d) = d {
                    self.regs.set(*d, active, &[mask; 32]);
                }
                if let Some(p) = p {
                    self.regs.set_pred(*p, active, 0u32.wrapping_sub(u32::from(same)));
                }
            }
            Exchange::Redux { op, d, a, members } => {
                let members = self.converge(env, *members, line, active);
                let result = redux(*op, &self.regs.w[*a as usize], members);
                self.regs.set(*d, active, &[result; 32]);
            }
            Exchange::ActiveMask { d } => self.regs.set(*d, active, &[active; 32]),
            Exchange::Elect { d, p, members } => {
                let members = self.converge(env, *members, line, active);
                let leader = members & members.wrapping_neg();
                if let Some(d) = d {
                    self.regs.set(*d, active, &[leader.trailing_zeros() & 31; 32]);
                }
                self.regs.set_pred(*p, active, leader);
            }
        }
    }

    pub fn multiply(&mut self, env: &mut Env, op: &Multiply, line: u32, active: u32) {
        if !self.converge_all(env, line, active) {
            return;
        }
        let mut fragments = std::mem::take(&mut env.fragments);
        fragments.clear();
        let mut starts = [0; 4];
        for (start, regs) in starts.iter_mut().zip([&op.a, &op.b, &op.c]) {
            *start = fragments.len();
            regs.iter().for_each(|reg| fetch(&self.regs, *reg, &mut fragments));
        }
        let n = fragments.len();
        fragments.resize(n + op.mma.n_d, [0; 32]);
        let (inputs, d) = fragments.split_at_mut(n);
        let (a, b, c) = (&inputs[..starts[1]], &inputs[starts[1]..starts[2]], &inputs[starts[2]..]);
        match op.sparse {
            None => op.mma.run(a, b, c, d),
            Some((metadata, selector)) => op.mma.run_sparse(a, b, c, &self.regs.w[metadata as usize], selector, d),
        }
        let mut at = 0;
        for reg in &op.d {
            match reg.bank {
                Bank::Double => {
                    let values = std::array::from_fn::<u64, 32, _>(|lane| {
                        u64::from(d[at + 1][lane]) << 32 | u64::from(d[at][lane])
                    });
                    self.regs.set(reg.index, active, &values);
                    at += 2;
                }
                Bank::Word | Bank::Pred => {
                    self.regs.set(reg.index, active, &d[at]);
                    at += 1;
                }
            }
        }
        env.fragments = fragments;
    }
}

fn wide(regs: &Regs, reg: Reg) -> [u64; 32] {
    match reg.bank {
        Bank::Double => regs.d[reg.index as usize],
        Bank::Word | Bank::Pred => regs.w[reg.index as usize].map(u64::from),
    }
}

/// Appends one register of a fragment as one or two words.
fn fetch(regs: &Regs, reg: Reg, into: &mut Vec<[u32; 32]>) {
    match reg.bank {
        Bank::Double => {
            let values = &regs.d[reg.index as usize];
            into.push(values.map(|value| value as u32));
            into.push(values.map(|value| (value >> 32) as u32));
        }
        Bank::Word | Bank::Pred => into.push(regs.w[reg.index as usize]),
    }
}
