//! wgmma: asynchronous matrix products  =>  accumulators, and operands that must not be accessed before the wait
//!
//! The result is computed at once. Registers and shared memory count as in use until the wait, so that conflicting
//! accesses before the wait are reported. Each warp of a warpgroup computes its own rows; whether all four warps take
//! part is checked when the block ends.

use super::access::Request;
use super::env::Env;
use super::warp::Warp;
use crate::decode::ops::{WgmmaFactor, WgmmaMultiply};
use crate::decode::program::Instr;
use crate::report::Kind as Finding;
use crate::shadow::Kind;
use crate::text::types::Space;
use crate::units::Lanes;
use crate::units::wgmma::{Descriptor, Major, PIECES, Piece, ROWS, Scale, elements, pieces_of_registers};

/// Matrix products of one warp that are in flight.
#[derive(Debug, Default)]
pub struct Products {
    /// Whether a `wgmma.fence` was executed.
    fenced: bool,
    /// Number of committed groups; `done` is the number of groups waited for.
    committed: u32,
    done: u32,
    /// Per register of a product: the last group that uses the register, numbered from 1, and whether this group uses
    /// it as an accumulator.
    busy: Vec<(u32, bool)>,
    /// Per register of a product: whether another instruction has written it since the last `wgmma.fence`.
    written: Vec<bool>,
    reads: Vec<Reads>,
    /// Number of products executed; `line` is the line of the last product.
    pub issued: u64,
    pub line: u32,
}

/// Shared memory that a product reads until the product is done.
#[derive(Debug)]
struct Reads {
    group: u32,
    pc: u32,
    line: u32,
    /// Offsets, and the contents when the product was issued.
    pieces: Vec<(u32, Piece)>,
}

impl Products {
    pub fn start(&mut self, n_registers: usize) {
        let (mut busy, mut written) = (std::mem::take(&mut self.busy), std::mem::take(&mut self.written));
        busy.clear();
        busy.resize(n_registers, (0, false));
        written.clear();
        written.resize(n_registers, false);
        *self = Products { busy, written, ..Products::default() };
    }

    pub fn commit(&mut self) {
        self.committed += 1;
    }

    pub fn fence(&mut self) {
        self.fenced = true;
        self.written.fill(false);
    }

    pub fn is_pending(&self) -> bool {
        !self.reads.is_empty() || self.busy.iter().any(|(group, _)| *group > self.done)
    }
}

impl Warp {
    /// Checks an instruction that accesses registers of products and is not a product itself.
    #[cold]
    pub fn check_products(&mut self, env: &mut Env, instr: &Instr, active: u32) {
        if active == 0 {
            return;
        }
        let program = env.context.program;
        for (slot, writes) in &program.product_uses[instr.products.0 as usize..instr.products.1 as usize] {
            if self.products.busy[*slot as usize].0 > self.products.done {
                self.note_busy(env, instr.line, active, *slot, *writes);
            }
            self.products.written[*slot as usize] |= writes;
        }
    }

    fn note_busy(&self, env: &mut Env, line: u32, active: u32, slot: u32, writes: bool) {
        let verb = if writes { "writes" } else { "reads" };
        env.note_lanes(Finding::InFlight, line, self.index, active, |env| {
            format!("{verb} `{}` of a wgmma that was not waited for", env.context.program.product_names[slot as usize])
        });
    }

    pub fn wgmma(&mut self, env: &mut Env, op: &WgmmaMultiply, instr: &Instr, pc: u32, active: u32) {
        if !self.converge_all(env, instr.line, active) {
            return;
        }
        (self.products.issued, self.products.line) = (self.products.issued + 1, instr.line);
        self.claim_registers(env, instr, active);
        let line = instr.line;
        let first_row = (self.index as usize % 4) * ROWS;
        let mut read = Vec::new();
        let (a, a_major) = match &op.a {
            WgmmaFactor::Registers(regs) => {
                let registers: Vec<Lanes> = regs.iter().map(|reg| self.regs.w[*reg as usize]).collect();
                (pieces_of_registers(&registers), Major::K)
            }
            WgmmaFactor::Shared { descriptor, major } => {
                let Some(found) = self.descriptor(env, line, active, *descriptor) else { return };
                (self.fetch_pieces(env, (pc, line), &found.pieces(*major, first_row, ROWS, PIECES), &mut read), *major)
            }
        };
        let Some(found) = self.descriptor(env, line, active, op.b.0) else { return };
        let b =
            self.fetch_pieces(env, (pc, line), &found.pieces(op.b.1, 0, op.wgmma.n, op.wgmma.pieces_of_b()), &mut read);
        let group = self.products.committed + 1;
        self.products.reads.push(Reads { group, pc, line, pieces: read });
        let mut a = elements(op.wgmma.a, a_major, &a, PIECES);
        if let Some((metadata, selector)) = op.sparse {
            a = op.wgmma.expand(&a, &self.regs.w[metadata as usize], selector);
        }
        let b = elements(op.wgmma.b, op.b.1, &b, op.wgmma.pieces_of_b());
        let scale = Scale { d: self.scale_d(env, op, line, active), product: op.product as f64 };
        let mut sums: Vec<Lanes> = op.d.iter().map(|reg| self.regs.w[*reg as usize]).collect();
        op.wgmma.run(&a, &b, scale, &mut sums);
        for (reg, values) in op.d.iter().zip(&sums) {
            self.regs.set(*reg, active, values);
        }
    }

    /// Returns whether the product is added to the previous values of the accumulators. Reports a predicate that
    /// differs between lanes.
    pub fn scale_d(&self, env: &mut Env, op: &WgmmaMultiply, line: u32, active: u32) -> bool {
        let holds = (self.regs.p[op.scale_d.0 as usize] ^ 0u32.wrapping_sub(u32::from(op.scale_d.1))) & active;
        if holds != 0 && holds != active {
            env.note_lanes(Finding::DivergentSync, line, self.index, holds, |_| {
                "has another scale of the sums than other lanes".into()
            });
        }
        holds != 0
    }

    /// Claims the registers of a product. A register must not have been written since the last fence. It may be in use
    /// by another product only in the same role: as an accumulator of both products, or as A of both.
    fn claim_registers(&mut self, env: &mut Env, instr: &Instr, active: u32) {
        let line = instr.line;
        if !self.products.fenced {
            env.note_lanes(Finding::MissingFence, line, self.index, active, |_| {
                "multiplies without a wgmma.fence before".into()
            });
            self.products.fenced = true;
        }
        let program = env.context.program;
        let group = self.products.committed + 1;
        let uses = &program.product_uses[instr.products.0 as usize..instr.products.1 as usize];
        for (slot, is_sum) in uses {
            let (slot, name) = (*slot as usize, &program.product_names[*slot as usize]);
            if std::mem::take(&mut self.products.written[slot]) {
                env.note_lanes(Finding::MissingFence, line, self.index, active, |_| {
                    format!("multiplies with `{name}`, which was written after the last wgmma.fence")
                });
            }
            let (user, for_sum) = self.products.busy[slot];
            if user > self.products.done && for_sum != *is_sum {
                self.note_busy(env, line, active, slot as u32, *is_sum);
            }
        }
        for (slot, is_sum) in uses {
            self.products.busy[*slot as usize] = (group, *is_sum);
        }
    }

    fn descriptor(&self, env: &mut Env, line: u32, active: u32, reg: u32) -> Option<Descriptor> {
        let values = &self.regs.d[reg as usize];
        let first = values[active.trailing_zeros() as usize & 31];
        let others = (0..32).filter(|lane| active >> lane & 1 == 1 && values[*lane as usize] != first);
        let others = others.fold(0, |mask, lane| mask | 1 << lane);
        env.note_lanes(Finding::DivergentSync, line, self.index, others, |_| {
            "has another descriptor than the first lane".into()
        });
        match Descriptor::new(first) {
            Ok(found) => Some(found),
            Err(what) => {
                env.note_lanes(Finding::Misaligned, line, self.index, active, |_| what);
                None
            }
        }
    }

    /// Reads pieces of shared memory through the asynchronous proxy.
    fn fetch_pieces(&self, env: &mut Env, at: (u32, u32), pieces: &[u32], read: &mut Vec<(u32, Piece)>) -> Vec<Piece> {
        let mut found = Vec::with_capacity(pieces.len());
        for pieces in pieces.chunks(32) {
            let (offsets, mask) = self.read_pieces(env, at, pieces, true);
            let data = env.load_shared(mask, 16, &offsets);
            found.extend((0..pieces.len()).map(|lane| std::array::from_fn(|word| data[word][lane])));
        }
        read.extend(pieces.iter().copied().zip(found.iter().copied()));
        found
    }

    fn read_pieces(&self, env: &mut Env, (pc, line): (u32, u32), pieces: &[u32], fenced: bool) -> ([u64; 32], u32) {
        let given = u32::MAX >> (32 - pieces.len().clamp(1, 32));
        let offsets = std::array::from_fn(|lane| u64::from(pieces.get(lane).copied().unwrap_or(0)));
        let (kind, warp) = (Kind::Read, self.index);
        let rq = Request { pc, line, warp, mask: given, bytes: 16, kind, collective: true };
        let mask = env.shared_access(&rq, &offsets, |_, _| true);
        if let (true, Some(shadow)) = (fenced, &mut env.shadow) {
            shadow.check_fenced(&Request { mask, ..rq }.access(), &offsets.map(|at| at as u32), &mut env.problems);
            env.note_problems(Space::Shared, warp, line, |_, _| false);
        }
        (offsets, mask)
    }

    /// Executes `wgmma.wait_group`: completes all groups except the newest `left`. The reads of the completed products
    /// in shared memory are checked again, because a device may read as late as at this wait.
    pub fn wgmma_wait(&mut self, env: &mut Env, line: u32, active: u32, left: u32) {
        if !self.converge_all(env, line, active) {
            return;
        }
        let done = self.products.committed.saturating_sub(left).max(self.products.done);
        let (due, rest) = std::mem::take(&mut self.products.reads).into_iter().partition(|r| r.group <= done);
        self.products.reads = rest;
        let due: Vec<Reads> = due;
        for reads in &due {
            for pieces in reads.pieces.chunks(32) {
                let places: Vec<u32> = pieces.iter().map(|(at, _)| *at).collect();
                self.read_pieces(env, (reads.pc, reads.line), &places, false);
            }
            let is_changed = |(at, piece): &&(u32, Piece)| env.shared_piece(*at) != *piece;
            if let Some((at, _)) = reads.pieces.iter().find(is_changed).copied() {
                env.note_lanes(Finding::InFlight, reads.line, self.index, active, |env| {
                    format!(
                        "multiplies what was overwritten before its wait, at {}",
                        env.place(Space::Shared, at.into())
                    )
                });
            }
        }
        self.products.done = done;
    }
}
