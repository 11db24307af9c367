//! One warp: its registers, the stack of diverged paths, and the interpreter loop

use std::sync::atomic::Ordering::Relaxed;

use super::barrier::Arrival;
use super::env::Env;
use super::wgmma::Products;
use crate::decode::program::{Bank, Clock, Constant, GUARD, Instr, NONE, Op, Program, Reg, Regs, Special};
use crate::launch::volume;
use crate::memory::{LOCAL_BASE, PARAM_BASE, SHARED_BASE, WINDOW_BYTES};
use crate::report::Kind;
use crate::text::types::Space;

/// Lanes that execute together until they reconverge with other lanes of the warp.
#[derive(Clone, Copy, Debug)]
struct Path {
    pc: u32,
    mask: u32,
    /// Instruction at which the path ends; the path below it on the stack continues there.
    meet: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Ready,
    /// Waits at the barrier of this number, in this line.
    Waiting(u32, u32),
    /// Waits for a phase of the mbarrier at this offset, in this line.
    Polling(u32, u32),
    Done,
}

/// The reason why a warp stopped running.
pub enum Stop {
    Slice,
    Barrier(Arrival),
    /// Offset of an mbarrier whose phase has not completed, and the line.
    Mbarrier(u32, u32),
    Done,
    Halt,
}

pub struct Warp {
    pub index: u32,
    pub regs: Regs,
    /// Lanes that have not exited.
    pub live: u32,
    pub state: State,
    /// Local memory: `local_bytes` for each lane, one lane after another.
    pub local: Vec<u32>,
    /// One bit per byte of local memory, set if it was written.
    pub local_written: Vec<u32>,
    /// Whether the next mbarrier wait returns at once, possibly with false, as if its time limit had passed.
    pub told_to_go_on: bool,
    pub products: Products,
    paths: Vec<Path>,
    /// Per tracked register, the lanes that have written it.
    written: Vec<u32>,
}

impl Warp {
    pub fn new(index: u32, env_program: &Program) -> Warp {
        let regs = Regs {
            w: vec![[0; 32]; env_program.n_words as usize],
            d: vec![[0; 32]; env_program.n_doubles as usize],
            p: vec![0; env_program.n_preds as usize],
        };
        Warp {
            index,
            regs,
            live: 0,
            state: State::Ready,
            local: Vec::new(),
            local_written: Vec::new(),
            told_to_go_on: false,
            products: Products::default(),
            paths: Vec::new(),
            written: Vec::new(),
        }
    }

    /// Resets the warp for another block.
    pub fn start(&mut self, env: &Env) {
        let program = env.context.program;
        let left = env.context.n_threads - self.index * 32;
        self.live = if left >= 32 { u32::MAX } else { (1 << left) - 1 };
        self.state = State::Ready;
        self.told_to_go_on = false;
        self.products.start(program.product_names.len());
        self.paths.clear();
        self.paths.push(Path { pc: 0, mask: self.live, meet: NONE });
        self.written.clear();
        self.written.resize(program.tracked.len(), 0);
        if !program.tracked.is_empty() {
            // Values left behind by the previous block must not be visible.
            self.regs.w.fill([0; 32]);
            self.regs.d.fill([0; 32]);
            self.regs.p.fill(0);
        }
        let bytes = program.local_bytes as usize * 32;
        self.local.clear();
        self.local.resize(bytes / 4, 0);
        self.local_written.clear();
        self.local_written.resize(bytes.div_ceil(32), 0);
        for (reg, constant) in &program.constants {
            self.fill(env, *reg, *constant);
        }
    }

    fn fill(&mut self, env: &Env, reg: Reg, constant: Constant) {
        let values = std::array::from_fn::<u64, 32, _>(|lane| match constant {
            Constant::Number(value) => value,
            Constant::Special(special) => u64::from(special_value(env, special, self.index, lane as u32)),
            Constant::Symbol(index, offset) => {
                env.context.symbols.get(index as usize).copied().unwrap_or(0).wrapping_add(offset as u64)
            }
            Constant::DynamicShared(offset) => u64::from(env.context.program.shared_bytes).wrapping_add(offset as u64),
        });
        match reg.bank {
            Bank::Word => self.regs.w[reg.index as usize] = values.map(|value| value as u32),
            Bank::Double => self.regs.d[reg.index as usize] = values,
            Bank::Pred => {
                self.regs.p[reg.index as usize] =
                    values.iter().enumerate().fold(0, |mask, (lane, value)| mask | u32::from(*value != 0) << lane);
            }
        }
    }

    pub fn line(&self, program: &Program) -> u32 {
        let pc = self.paths.last().map_or(0, |path| path.pc);
        program.code.get(pc as usize).map_or(0, |instr| instr.line)
    }

    /// Runs at most `slice` instructions, until something stops the warp.
    pub fn run(&mut self, env: &mut Env, slice: u64) -> Stop {
        let program = env.context.program;
        let end = env.clock + slice;
        'path: loop {
            let Some(path) = self.paths.last().copied() else {
                return Stop::Done;
            };
            if env.clock >= end {
                return Stop::Slice;
            }
            if path.mask == 0 || path.pc == path.meet {
                self.paths.pop();
                continue;
            }
            let Path { mut pc, mask, meet } = path;
            loop {
                let Some(instr) = program.code.get(pc as usize) else {
                    self.leave(env, mask);
                    continue 'path;
                };
                let active = match instr.guard {
                    NONE => mask,
                    guard => {
                        let p = self.regs.p[(guard >> 1) as usize];
                        mask & (p ^ 0u32.wrapping_sub(guard & 1))
                    }
                };
                let count = &mut env.tally.counts[pc as usize];
                count.warp += 1;
                count.thread += u64::from(active.count_ones());
                env.clock += 1;
                if instr.products.0 != instr.products.1 && !matches!(instr.op, Op::WgmmaMultiply(_)) {
                    self.check_products(env, instr, active);
                }
                if instr.checks.0 != instr.checks.1 {
                    self.check_registers(env, instr, active, mask);
                }
                if instr.marks.0 != instr.marks.1 {
                    for slot in &program.marks[instr.marks.0 as usize..instr.marks.1 as usize] {
                        self.written[*slot as usize] |= active;
                    }
                }
                if let Op::Lanes(f) = &instr.op {
                    f(&mut self.regs, active);
                } else if let Some(stop) = self.step(env, instr, pc, active, mask) {
                    match stop {
                        Step::Path => continue 'path,
                        Step::Stop(stop) => return stop,
                    }
                }
                pc += 1;
                if pc == meet || env.clock >= end {
                    if let Some(path) = self.paths.last_mut() {
                        path.pc = pc;
                    }
                    continue 'path;
                }
            }
        }
    }

    /// Executes any instruction except lane operations. `None` means to continue with the next instruction.
    fn step(&mut self, env: &mut Env, instr: &Instr, pc: u32, active: u32, mask: u32) -> Option<Step> {
        match &instr.op {
            Op::Lanes(_) | Op::Nop => None,
            Op::Branch(target) => {
                let next = std::array::from_fn(|lane| if active >> lane & 1 == 1 { *target } else { pc + 1 });
                if active == mask {
                    self.jump(*target);
                } else if active == 0 {
                    self.jump(pc + 1);
                } else {
                    self.diverge(env, pc, mask, &next);
                }
                Some(Step::Path)
            }
            Op::BranchTable(index, targets) => {
                let index = self.regs.w[*index as usize];
                let next = std::array::from_fn(|lane| match active >> lane & 1 {
                    1 => targets.get(index[lane] as usize).copied().unwrap_or(NONE),
                    _ => pc + 1,
                });
                let outside = (0..32).filter(|lane| active >> lane & 1 == 1 && next[*lane as usize] == NONE);
                let outside = outside.fold(0, |mask, lane| mask | 1 << lane);
                env.note_lanes(Kind::OutOfBounds, instr.line, self.index, outside, |_| {
                    format!("has an index past the {} targets", targets.len())
                });
                if outside != 0 {
                    self.leave(env, outside);
                }
                self.diverge(env, pc, mask & !outside, &next);
                Some(Step::Path)
            }
            Op::Exit => {
                self.jump(pc + 1);
                self.leave(env, active);
                Some(Step::Path)
            }
            Op::Trap => {
                if active == 0 {
                    return None;
                }
                env.note_lanes(Kind::Trap, instr.line, self.index, active, |_| "ends the launch".to_owned());
                env.context.halt.store(true, Relaxed);
                Some(Step::Stop(Stop::Halt))
            }
            Op::Clock(clock, reg) => {
                let value = match clock {
                    Clock::Cycles | Clock::Globaltimer => env.clock,
                    Clock::CyclesHi | Clock::GlobaltimerHi => env.clock >> 32,
                };
                match reg.bank {
                    Bank::Double => self.regs.set(reg.index, active, &[value; 32]),
                    Bank::Word | Bank::Pred => self.regs.set(reg.index, active, &[value as u32; 32]),
                }
                None
            }
            Op::IsSpace(space, p, reg) => {
                let base = match space {
                    Space::Shared => Some(SHARED_BASE),
                    Space::Local => Some(LOCAL_BASE),
                    Space::Param => Some(PARAM_BASE),
                    Space::Generic | Space::Global | Space::Const => None,
                };
                let inside = |address: u64| match base {
                    Some(base) => address.wrapping_sub(base) < WINDOW_BYTES,
                    None => address.wrapping_sub(SHARED_BASE) >= 3 * WINDOW_BYTES,
                };
                let address = |lane: usize| match reg.bank {
                    Bank::Double => self.regs.d[reg.index as usize][lane],
                    Bank::Word | Bank::Pred => u64::from(self.regs.w[reg.index as usize][lane]),
                };
                let holds = (0..32).fold(0, |mask, lane| mask | u32::from(inside(address(lane))) << lane);
                self.regs.set_pred(*p, active, holds);
                None
            }
            Op::Load(op) => self.then(|warp| warp.load(env, op, pc, active)),
            Op::Store(op) => self.then(|warp| warp.store(env, op, pc, active)),
            Op::Atomic(op) => self.then(|warp| warp.atomic(env, op, pc, active)),
            Op::AsyncCopy(op) => self.then(|warp| warp.async_copy(env, op, pc, active)),
            Op::AsyncCommit => self.then(|warp| env.agents.commit(warp.index, active)),
            Op::AsyncWait(left) => self.then(|warp| env.async_wait(warp.index, active, *left)),
            Op::AsyncWaitAll => self.then(|warp| env.async_wait_all(warp.index, active)),
            Op::Bulk(op) => self.then(|warp| warp.bulk(env, op, pc, active)),
            Op::BulkCommit => self.then(|warp| env.agents.commit_bulk(warp.index, active)),
            Op::BulkWait { left, read } => self.then(|warp| env.bulk_wait(warp.index, active, *left, *read)),
            Op::Matrix(op) => self.then(|warp| warp.matrix(env, op, pc, active)),
            Op::Multiply(op) => self.then(|warp| warp.multiply(env, op, instr.line, active)),
            Op::FragmentAccess(op) => self.then(|warp| warp.fragment_access(env, op, pc, active)),
            Op::FragmentMultiply(op) => self.then(|warp| warp.fragment_multiply(env, op, instr.line, active)),
            Op::WgmmaMultiply(op) => self.then(|warp| warp.wgmma(env, op, instr, pc, active)),
            Op::WgmmaFence => self.then(|warp| {
                if warp.converge_all(env, instr.line, active) {
                    warp.products.fence();
                }
            }),
            Op::WgmmaCommit => self.then(|warp| {
                if warp.converge_all(env, instr.line, active) {
                    warp.products.commit();
                }
            }),
            Op::WgmmaWait(left) => self.then(|warp| warp.wgmma_wait(env, instr.line, active, *left)),
            Op::Shuffle(op) => self.then(|warp| warp.shuffle(env, op, instr.line, active)),
            Op::Warp(op) => self.then(|warp| warp.exchange(env, op, instr.line, active)),
            Op::WarpBarrier(members) => self.then(|warp| {
                warp.converge(env, *members, instr.line, active);
            }),
            Op::Fence(scope) => self.then(|warp| {
                if let Some(shadow) = &mut env.shadow {
                    shadow.fence(warp.index, active, *scope);
                }
            }),
            Op::WholeWarp => self.then(|warp| {
                warp.converge_all(env, instr.line, active);
            }),
            Op::ProxyFence => self.then(|warp| {
                if let Some(shadow) = &mut env.shadow {
                    shadow.proxy_fence(warp.index, active);
                }
            }),
            Op::Mbarrier(op) => {
                let (at, line) = self.mbarrier(env, op, pc, active)?;
                // The instruction is retried later, but counts only once.
                let count = &mut env.tally.counts[pc as usize];
                count.warp -= 1;
                count.thread -= u64::from(active.count_ones());
                self.jump(pc);
                Some(Step::Stop(Stop::Mbarrier(at, line)))
            }
            Op::Barrier(op) => {
                self.jump(pc + 1);
                if active == 0 {
                    return Some(Step::Path);
                }
                match self.arrival(env, op, instr.line, active) {
                    Some(arrival) => Some(Step::Stop(Stop::Barrier(arrival))),
                    None => Some(Step::Path),
                }
            }
        }
    }

    fn then(&mut self, act: impl FnOnce(&mut Self)) -> Option<Step> {
        act(self);
        None
    }

    fn jump(&mut self, pc: u32) {
        if let Some(path) = self.paths.last_mut() {
            path.pc = pc;
        }
    }

    /// Splits the running path into one path per branch target; the lanes reconverge at the branch's post-dominator.
    fn diverge(&mut self, env: &Env, pc: u32, mask: u32, next: &[u32; 32]) {
        let meet = env.context.program.meets.get(pc as usize).copied().unwrap_or(NONE);
        let Some(path) = self.paths.last_mut() else { return };
        if path.meet == meet {
            // The path below on the stack continues at the same instruction, so the parts replace this path.
            self.paths.pop();
        } else {
            path.pc = meet;
            path.mask = mask;
        }
        let mut rest = mask;
        while rest != 0 {
            let target = next[rest.trailing_zeros() as usize];
            let same = (0..32).fold(0, |same, lane| same | u32::from(next[lane] == target) << lane) & rest;
            rest &= !same;
            if target != meet {
                self.paths.push(Path { pc: target, mask: same, meet });
            }
        }
    }

    /// Ends the given lanes.
    fn leave(&mut self, env: &mut Env, lanes: u32) {
        self.live &= !lanes;
        for path in &mut self.paths {
            path.mask &= !lanes;
        }
        if let Some(shadow) = &mut env.shadow {
            shadow.exit(self.index, lanes);
        }
    }

    #[cold]
    fn check_registers(&mut self, env: &mut Env, instr: &Instr, active: u32, mask: u32) {
        let program = env.context.program;
        if let Op::WgmmaMultiply(op) = &instr.op
            && !self.scale_d(env, op, instr.line, active)
        {
            return;
        }
        for check in &program.checks[instr.checks.0 as usize..instr.checks.1 as usize] {
            let (slot, readers) = if check & GUARD != 0 { (check & !GUARD, mask) } else { (*check, active) };
            let missing = readers & !self.written[slot as usize];
            env.note_lanes(Kind::UninitialisedRegister, instr.line, self.index, missing, |_| {
                format!("reads `{}`, which nothing wrote", program.tracked[slot as usize])
            });
        }
    }
}

enum Step {
    /// The stack of paths has changed.
    Path,
    Stop(Stop),
}

fn special_value(env: &Env, special: Special, warp: u32, lane: u32) -> u32 {
    let (grid, block) = (env.context.launch.grid, env.context.launch.block);
    let axis = |index: u64, extents: [u32; 3], axis: u8| {
        let [x, y, _] = extents.map(|extent| u64::from(extent).max(1));
        (match axis {
            0 => index % x,
            1 => index / x % y,
            _ => index / x / y,
        }) as u32
    };
    let mask = |from: u64, to: u64| (((1u64 << to) - 1) & !((1u64 << from) - 1)) as u32;
    let at = u64::from(lane);
    match special {
        Special::Tid(i) => axis(u64::from(warp * 32 + lane), block, i),
        Special::Ntid(i) => block[usize::from(i).min(2)],
        Special::Ctaid(i) => axis(env.block, grid, i),
        Special::Nctaid(i) => grid[usize::from(i).min(2)],
        Special::Laneid => lane,
        Special::Warpid => warp,
        Special::Nwarpid => volume(block).div_ceil(32) as u32,
        Special::LanemaskEq => mask(at, at + 1),
        Special::LanemaskLe => mask(0, at + 1),
        Special::LanemaskLt => mask(0, at),
        Special::LanemaskGe => mask(at, 32),
        Special::LanemaskGt => mask(at + 1, 32),
        Special::DynamicShared => env.context.launch.shared_bytes,
        Special::TotalShared => env.context.shared_bytes,
        Special::WarpSize => 32,
        Special::One => 1,
        Special::Zero => 0,
    }
}
