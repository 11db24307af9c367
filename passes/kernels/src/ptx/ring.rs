//! Tiles of operands, one after another  =>  a ring of stages in shared memory, between threads that copy and
//! warpgroups that multiply
//!
//! A stage has two mbarriers: `full` completes when every copying thread's part of a tile has arrived and is visible to
//! the asynchronous proxy, `empty` when every multiplying warp has finished its products with the stage.

use super::Form;
use super::gemm::copy::{log2, shift};
use crate::asm::{Asm, Bin, CmpI, Elem, Ptx, Ty, Val};

/// Bytes of a line of the 128-byte swizzle pattern, and of the eight lines after which it repeats.
pub const LINE_BYTES: i64 = 128;
pub const PATTERN_BYTES: i64 = 8 * LINE_BYTES;

/// Bytes of an mbarrier.
const BARRIER_BYTES: i64 = 8;

/// Maximum number of tiles by which announcing a tile's arrival lags behind issuing its copies.
const LAG: i64 = 2;

/// Addresses and sizes of the ring, and the number of tiles that pass through it (`pieces`).
pub struct Ring {
    stages: i64,
    stage_bytes: i64,
    /// Address of the first stage.
    base: Val,
    /// Address of the `full` barriers; the `empty` ones follow.
    barriers: Val,
    pub pieces: Val,
}

/// Position in the ring, and the parity of the current round.
pub struct Turn {
    slot: Val,
    parity: Val,
}

/// Returns the bytes of shared memory of a ring, of its barriers and of `before` bytes in front of it, for
/// a start at [`pattern_start`].
pub fn shared_bytes(before: i64, (stages, stage_bytes): (i64, i64)) -> i64 {
    before + stages * (stage_bytes + 2 * BARRIER_BYTES) + PATTERN_BYTES
}

/// Returns the first address in an entry's shared memory of `bytes` bytes at which the swizzle pattern can begin:
/// shared memory may begin anywhere, but the pattern only at multiples of its size.
pub fn pattern_start(asm: &mut Ptx, bytes: i64) -> Val {
    let (name, _, _) = Form::shared(bytes);
    let start = asm.instruction(Ty::I32, "mov.u32", &[name.to_string()]);
    let (up, whole) = (asm.int(PATTERN_BYTES - 1, Ty::I32), asm.int(-PATTERN_BYTES, Ty::I32));
    let up = asm.bin(Bin::AddI, start, up);
    asm.bin(Bin::AndI, up, whole)
}

impl Turn {
    fn new(asm: &mut Ptx, parity: i64) -> Turn {
        let (slot, parity) = (asm.int(0, Ty::I32), asm.int(parity, Ty::I32));
        let variables = asm.variables(&[slot, parity]);
        Turn { slot: variables[0], parity: variables[1] }
    }

    pub fn advance(&self, asm: &mut Ptx, ring: &Ring) {
        let (zero, one, end) = (asm.int(0, Ty::I32), asm.int(1, Ty::I32), asm.int(ring.stages, Ty::I32));
        let next = asm.bin(Bin::AddI, self.slot, one);
        let wraps = asm.cmpi(CmpI::Eq, next, end);
        let next = asm.select(wraps, zero, next);
        let other = asm.bin(Bin::XorI, self.parity, one);
        let parity = asm.select(wraps, other, self.parity);
        asm.set(self.slot, next);
        asm.set(self.parity, parity);
    }
}

impl Ring {
    /// The ring whose first stage is at `base`, through which `pieces` tiles pass.
    pub fn new(asm: &mut Ptx, (stages, stage_bytes): (i64, i64), base: Val, pieces: Val) -> Ring {
        let behind = asm.int(stages * stage_bytes, Ty::I32);
        let barriers = asm.bin(Bin::AddI, base, behind);
        Ring { stages, stage_bytes, base, barriers, pieces }
    }

    /// Thread 0 initialises the barriers, given the number of arrivals at `full` and at `empty`, and makes them visible
    /// to all threads.
    pub fn init(&self, asm: &mut Ptx, thread: Val, arrivals: (i64, i64)) {
        let zero = asm.int(0, Ty::I32);
        let is_first = asm.cmpi(CmpI::Eq, thread, zero);
        let at = asm.name(self.barriers, 0);
        asm.if_then(is_first, |asm| {
            for i in 0..2 * self.stages {
                let count = if i < self.stages { arrivals.0 } else { arrivals.1 };
                asm.line(&format!("mbarrier.init.shared::cta.b64 [{at}+{}], {count};", i * BARRIER_BYTES));
            }
        });
        asm.line("bar.sync 0;");
    }

    /// The first turn of a multiplying warp.
    pub fn turn(&self, asm: &mut Ptx) -> Turn {
        Turn::new(asm, 0)
    }

    /// Code of a copying thread: once the stage of a tile is empty, calls `copy` with the tile's number, the address of
    /// the stage, and the stage's `full` barrier, at which other copies may arrive too. Announces the thread's copies
    /// by `cp.async` when they have arrived.
    pub fn fill(&self, asm: &mut Ptx, copy: impl FnOnce(&mut Ptx, Val, Val, &str)) {
        // With a longer lag, the last stage would be waited for before the first one is announced.
        let n_behind = LAG.min(self.stages - 1);
        let (zero, one, lag) = (asm.int(0, Ty::I32), asm.int(1, Ty::I32), asm.int(n_behind, Ty::I32));
        // Stages are empty in the first round: the phase before the first one counts as completed.
        let (write, announce) = (Turn::new(asm, 1), Turn::new(asm, 0));
        let piece = asm.variables(&[zero])[0];
        let end = asm.bin(Bin::AddI, self.pieces, lag);
        let head = asm.label();
        asm.place_label(&head);
        let there = asm.cmpi(CmpI::Ult, piece, self.pieces);
        asm.if_then(there, |asm| {
            self.wait(asm, &write, self.stages);
            let stage = self.stage(asm, &write);
            let barrier = self.barrier(asm, &write, 0);
            copy(asm, piece, stage, &barrier);
            write.advance(asm, self);
        });
        asm.line("cp.async.commit_group;");
        asm.line(&format!("cp.async.wait_group {n_behind};"));
        let has_arrived = asm.cmpi(CmpI::Uge, piece, lag);
        asm.if_then(has_arrived, |asm| {
            asm.line("fence.proxy.async.shared::cta;");
            self.arrive(asm, &announce, 0, None);
            announce.advance(asm, self);
        });
        let next = asm.bin(Bin::AddI, piece, one);
        asm.set(piece, next);
        let more = asm.cmpi(CmpI::Ult, piece, end);
        let more = asm.name(more, 0);
        asm.line(&format!("@{more} bra {head};"));
    }

    /// Code of a multiplying warp: calls `multiply` with the number of every tile, in order. Tiles must be waited for
    /// (`wait_full`) and released (`release`) by `multiply`.
    pub fn drain(&self, asm: &mut Ptx, multiply: impl FnOnce(&mut Ptx, Val)) {
        let (zero, one) = (asm.int(0, Ty::I32), asm.int(1, Ty::I32));
        let piece = asm.variables(&[zero])[0];
        let (head, done) = (asm.label(), asm.label());
        let none = asm.cmpi(CmpI::Eq, self.pieces, zero);
        let none = asm.name(none, 0);
        asm.line(&format!("@{none} bra {done};"));
        asm.place_label(&head);
        multiply(asm, piece);
        let next = asm.bin(Bin::AddI, piece, one);
        asm.set(piece, next);
        let more = asm.cmpi(CmpI::Ult, piece, self.pieces);
        let more = asm.name(more, 0);
        asm.line(&format!("@{more} bra {head};"));
        asm.place_label(&done);
    }

    /// Waits until the stage of a turn is full, and returns its address.
    pub fn wait_full(&self, asm: &mut Ptx, turn: &Turn) -> Val {
        self.wait(asm, turn, 0);
        self.stage(asm, turn)
    }

    /// Releases the stage of a turn, on behalf of a warp of which `is_first` holds in one lane, and goes on to the
    /// next.
    pub fn release(&self, asm: &mut Ptx, turn: &Turn, is_first: Val) {
        self.arrive(asm, turn, self.stages, Some(is_first));
        turn.advance(asm, self);
    }

    fn stage(&self, asm: &mut Ptx, turn: &Turn) -> Val {
        let bytes = asm.int(self.stage_bytes, Ty::I32);
        let by = asm.bin(Bin::MulI, turn.slot, bytes);
        asm.bin(Bin::AddI, self.base, by)
    }

    /// Address of the barrier of a turn's stage: `full` if `first` is 0, `empty` if it is the number of stages.
    fn barrier(&self, asm: &mut Ptx, turn: &Turn, first: i64) -> String {
        let by = shift(asm, Bin::ShLI, turn.slot, log2(BARRIER_BYTES));
        let at = asm.bin(Bin::AddI, self.barriers, by);
        format!("{}+{}", asm.name(at, 0), first * BARRIER_BYTES)
    }

    fn wait(&self, asm: &mut Ptx, turn: &Turn, first: i64) {
        let at = self.barrier(asm, turn, first);
        let (done, parity) = (asm.register(Ty::new(Elem::I1, 1)), asm.name(turn.parity, 0));
        let (done, again) = (asm.name(done, 0), asm.label());
        asm.place_label(&again);
        asm.line(&format!("mbarrier.try_wait.parity.shared::cta.b64 {done}, [{at}], {parity};"));
        asm.line(&format!("@!{done} bra {again};"));
    }

    fn arrive(&self, asm: &mut Ptx, turn: &Turn, first: i64, who: Option<Val>) {
        let at = self.barrier(asm, turn, first);
        let guard = who.map(|who| format!("@{} ", asm.name(who, 0))).unwrap_or_default();
        asm.line(&format!("{guard}mbarrier.arrive.shared::cta.b64 _, [{at}];"));
    }
}
