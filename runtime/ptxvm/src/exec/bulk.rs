//! cp.async.bulk: copies of ranges and boxes that complete at a time of the device's choice, and waits for them

use super::access::{Request, addresses, lanes};
use super::agents::Event;
use super::env::Env;
use super::mbarrier::Who;
use super::warp::Warp;
use crate::decode::ops::{Address, Bulk, BulkPlace};
use crate::memory::{PARAM_BASE, SHARED_BASE, WINDOW_BYTES};
use crate::report::Kind as Finding;
use crate::shadow::{Kind, Starter};
use crate::tensor::{Piece, range};
use crate::text::types::Space;

/// Required alignment of boxes in shared memory.
const BOX_ALIGN: u32 = 128;

/// A copy in flight.
#[derive(Debug)]
pub struct Transfer {
    who: Who,
    pieces: Vec<Piece>,
    /// The mbarrier of a load, and the number of bytes that the load reports to it; `None` for a store, which belongs
    /// to a bulk group of its thread instead.
    barrier: Option<(u32, u32)>,
    group: u32,
    /// Contents of a store's source when the store was started; empty for a load.
    began_with: Vec<[u32; 4]>,
    /// Contents of a store's source when the store read it; `None` until then.
    data: Option<Vec<[u32; 4]>>,
}

impl Transfer {
    fn starter(&self) -> Starter {
        Starter { warp: self.who.warp, lane: self.who.lane, line: self.who.line }
    }
}

/// Converts a generic address of shared memory, or a shared address, to an offset in shared memory.
fn offset(at: u64) -> u64 {
    if at >= SHARED_BASE { at.wrapping_sub(SHARED_BASE) } else { at }
}

impl Warp {
    /// Starts a copy for each active lane.
    pub fn bulk(&mut self, env: &mut Env, op: &Bulk, pc: u32, active: u32) {
        let line = env.context.program.code[pc as usize].line;
        let shared = addresses(&self.regs, &op.shared);
        for lane in lanes(active) {
            let who = Who { warp: self.index, lane: lane as u32, line };
            let barrier = match op.barrier.map(|barrier| self.barrier_of(env, who, &barrier)) {
                None => None,
                Some(Some(at)) => Some(at),
                Some(None) => continue,
            };
            let shared = offset(shared[lane]);
            let Some((pieces, bytes)) = self.pieces_of(env, who, op, shared) else { continue };
            env.start_transfer(who, pc, pieces, barrier.map(|at| (at, bytes)));
        }
    }

    fn barrier_of(&self, env: &mut Env, who: Who, address: &Address) -> Option<u32> {
        let at = offset(addresses(&self.regs, address)[who.lane as usize]);
        let known = u32::try_from(at).ok().filter(|at| env.mbarriers.get(*at).is_some());
        if known.is_none() {
            env.note_lane(Finding::BarrierMisuse, who.line, who.warp, who.lane, |env| {
                format!("names an mbarrier that nothing initialised, at {}", env.place(Space::Shared, at))
            });
        }
        known
    }

    /// Returns the pieces that a lane's copy moves, and the number of bytes that the copy reports to its mbarrier.
    fn pieces_of(&self, env: &mut Env, who: Who, op: &Bulk, shared: u64) -> Option<(Vec<Piece>, u32)> {
        let lane = who.lane as usize;
        match &op.place {
            BulkPlace::Range { global, bytes } => {
                let (global, bytes) = (addresses(&self.regs, global)[lane], self.regs.w[*bytes as usize][lane]);
                if !(shared | global | u64::from(bytes)).is_multiple_of(16) {
                    env.note_lane(Finding::Misaligned, who.line, who.warp, who.lane, |env| {
                        let (to, from) = (env.place(Space::Shared, shared), env.place(Space::Global, global));
                        format!("moves {bytes} bytes between {to} and {from}: all are multiples of 16")
                    });
                    return None;
                }
                let end = shared + u64::from(bytes);
                self.inside(env, who, shared, end).then(|| (range(shared as u32, global, bytes), bytes))
            }
            BulkPlace::Tensor { map, coordinates } => {
                let object = self.object_at(env, addresses(&self.regs, map)[lane]);
                let Some(map) = env.context.memory.map_of(object) else {
                    env.note_lane(Finding::OutOfBounds, who.line, who.warp, who.lane, |_| "names no tensor map".into());
                    return None;
                };
                if map.dims.len() != coordinates.len() {
                    env.note_lane(Finding::OutOfBounds, who.line, who.warp, who.lane, |_| {
                        format!("gives {} coordinates of {} dimensions", coordinates.len(), map.dims.len())
                    });
                    return None;
                }
                if !shared.is_multiple_of(u64::from(BOX_ALIGN)) {
                    env.note_lane(Finding::Misaligned, who.line, who.warp, who.lane, |env| {
                        format!("moves a box at {}, not a multiple of {BOX_ALIGN}", env.place(Space::Shared, shared))
                    });
                    return None;
                }
                let bytes = map.box_bytes();
                let at: Vec<i32> = coordinates.iter().map(|reg| self.regs.w[*reg as usize][lane] as i32).collect();
                let inside = self.inside(env, who, shared, shared + u64::from(bytes));
                inside.then(|| (map.pieces(shared as u32, &at), bytes))
            }
        }
    }

    fn inside(&self, env: &mut Env, who: Who, from: u64, end: u64) -> bool {
        let inside = end <= u64::from(env.context.shared_bytes);
        if !inside {
            env.note_lane(Finding::OutOfBounds, who.line, who.warp, who.lane, |env| {
                format!("moves {} bytes at {}", end - from, env.place(Space::Shared, from))
            });
        }
        inside
    }

    /// Returns the first bytes of a tensor map in a parameter or in global memory.
    fn object_at(&self, env: &Env, at: u64) -> [u8; 16] {
        let mut object = [0; 16];
        let within = at.wrapping_sub(PARAM_BASE);
        let params = &env.context.launch.params;
        if within < WINDOW_BYTES || at < params.len() as u64 {
            let first = if within < WINDOW_BYTES { within } else { at } as usize;
            if let Some(bytes) = params.get(first..first + 16) {
                object.copy_from_slice(bytes);
            }
        } else {
            let _ = env.context.memory.read(at, &mut object);
        }
        object
    }
}

impl Env<'_> {
    fn start_transfer(&mut self, who: Who, pc: u32, mut pieces: Vec<Piece>, barrier: Option<(u32, u32)>) {
        let kind = if barrier.is_some() { Kind::Read } else { Kind::Write };
        // First, bounds are checked and accesses to global memory are counted, without the shadow memory. Then the
        // shadow memory checks each piece with its exact size.
        let shadow = self.shadow.take();
        for pieces in pieces.chunks_mut(32) {
            let whole = pieces.iter().enumerate().filter(|(_, piece)| piece.bytes > 0);
            let mask = whole.fold(0, |mask, (lane, _)| mask | 1 << lane);
            // If any piece is partial, only the first byte of each piece is checked and counted; this suffices, because
            // a piece never extends beyond the tensor.
            let at = std::array::from_fn(|lane| pieces.get(lane).map_or(0, |piece| piece.global));
            let full = pieces.iter().all(|piece| piece.bytes == 16 && piece.global.is_multiple_of(16));
            let bytes = if full { 16 } else { 1 };
            let rq = Request { pc, line: who.line, warp: who.warp, mask, bytes, kind, collective: false };
            let (inside, _) = self.global_access(&rq, &at, |_, _| true);
            for (lane, piece) in pieces.iter_mut().enumerate() {
                if inside >> lane & 1 == 0 {
                    piece.bytes = 0;
                }
            }
        }
        self.shadow = shadow;
        let group = self.agents.group_of(who);
        let began_with = match barrier {
            Some(_) => Vec::new(),
            None => pieces.iter().map(|piece| self.shared_piece(piece.shared)).collect(),
        };
        let transfer = Transfer { who, pieces, barrier, group, began_with, data: None };
        let starter = transfer.starter();
        for piece in &transfer.pieces {
            if let Some(shadow) = &mut self.shadow {
                match barrier {
                    Some(_) => shadow.bulk_write_start(starter, piece.shared, &mut self.problems),
                    None => shadow.bulk_read(starter, piece.shared, true, &mut self.problems),
                }
                self.note_problems(Space::Shared, who.warp, who.line, |_, _| false);
            }
            if let Some(shadow) = &mut self.shadow
                && piece.bytes > 0
            {
                shadow.bulk_global(starter, kind, piece.global, piece.bytes, &mut self.problems);
                self.note_problems(Space::Global, who.warp, who.line, |_, _| false);
            }
        }
        match barrier {
            Some(_) => self.agents.add(Event::Bulk(Box::new(transfer))),
            None => self.agents.stores.push(transfer),
        }
    }

    /// Executes a copy. A load reports its bytes to its mbarrier.
    pub fn finish_transfer(&mut self, mut transfer: Transfer) {
        let (who, starter) = (transfer.who, transfer.starter());
        let Some((at, bytes)) = transfer.barrier else {
            self.read_source(&mut transfer);
            for (piece, words) in transfer.pieces.iter().zip(transfer.data.iter().flatten()) {
                self.write_global(piece, words);
                if let Some(shadow) = &mut self.shadow {
                    shadow.bulk_global_land(piece.global, piece.bytes);
                }
            }
            return;
        };
        for piece in &transfer.pieces {
            let words = self.read_global(piece);
            for (word, value) in words.iter().enumerate() {
                if let Some(slot) = self.shared.get_mut(piece.shared as usize / 4 + word) {
                    *slot = *value;
                }
            }
            if let Some(shadow) = &mut self.shadow {
                shadow.bulk_write_land(starter, piece.shared);
            }
        }
        self.update_mbarrier(who, at, true, |barrier| barrier.add_bytes(-i64::from(bytes)));
    }

    /// Reads the source of a store, which may be overwritten afterwards.
    fn read_source(&mut self, transfer: &mut Transfer) {
        if transfer.data.is_some() {
            return;
        }
        let starter = transfer.starter();
        for piece in &transfer.pieces {
            if let Some(shadow) = &mut self.shadow {
                shadow.bulk_read(starter, piece.shared, false, &mut self.problems);
                self.note_problems(Space::Shared, starter.warp, starter.line, |_, _| false);
            }
        }
        let data: Vec<[u32; 4]> = transfer.pieces.iter().map(|piece| self.shared_piece(piece.shared)).collect();
        let changed = data.iter().zip(&transfer.began_with).position(|(now, then)| now != then);
        if let Some(piece) = changed.and_then(|i| transfer.pieces.get(i)) {
            let (who, at) = (transfer.who, u64::from(piece.shared));
            self.note_lane(Finding::InFlight, who.line, who.warp, who.lane, |env| {
                format!("copies what was overwritten before its wait, at {}", env.place(Space::Shared, at))
            });
        }
        transfer.data = Some(data);
    }

    /// Returns 16 bytes of shared memory.
    pub fn shared_piece(&self, at: u32) -> [u32; 4] {
        std::array::from_fn(|i| self.shared.get(at as usize / 4 + i).copied().unwrap_or(0))
    }

    fn read_global(&self, piece: &Piece) -> [u32; 4] {
        if piece.bytes == 16 && piece.global.is_multiple_of(16) {
            let data = self.load_global(1, 16, &[piece.global; 32], None);
            return std::array::from_fn(|word| data[word][0]);
        }
        let mut words = [0; 4];
        for i in 0..piece.bytes {
            let byte = self.load_global(1, 1, &[piece.global + u64::from(i); 32], None)[0][0];
            let at = piece.first + i;
            words[(at as usize / 4) & 3] |= byte << (8 * (at % 4));
        }
        words
    }

    fn write_global(&self, piece: &Piece, words: &[u32; 4]) {
        if piece.bytes == 16 && piece.global.is_multiple_of(16) {
            let data = std::array::from_fn(|word| [words[word]; 32]);
            return self.store_global(1, 16, &[piece.global; 32], None, &data);
        }
        for i in 0..piece.bytes {
            let at = piece.first + i;
            let mut data = [[0; 32]; 4];
            data[0][0] = words[(at as usize / 4) & 3] >> (8 * (at % 4)) & 0xff;
            self.store_global(1, 1, &[piece.global + u64::from(i); 32], None, &data);
        }
    }

    /// `cp.async.bulk.wait_group`: completes all groups of stores of these lanes except the newest `left`. With `read`,
    /// the stores only read their sources, and their writes stay pending.
    pub fn bulk_wait(&mut self, warp: u32, mask: u32, left: u32, read: bool) {
        for lane in lanes(mask) {
            let who = Who { warp, lane: lane as u32, line: 0 };
            let limit = self.agents.group_of(who).saturating_sub(left);
            let is_due = |transfer: &Transfer| {
                let own = (transfer.who.warp, transfer.who.lane) == (warp, who.lane);
                own && transfer.group < limit
            };
            let (due, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.agents.stores).into_iter().partition(is_due);
            self.agents.stores = rest;
            for mut transfer in due {
                self.read_source(&mut transfer);
                match read {
                    true => self.agents.stores.push(transfer),
                    false => self.finish_transfer(transfer),
                }
            }
        }
    }

    /// Ends a block. Copies that still use its shared memory are reported.
    pub fn end_transfers(&mut self) {
        let loads = self.agents.take_loads();
        for transfer in std::mem::take(&mut self.agents.stores).into_iter().chain(loads) {
            let who = transfer.who;
            if transfer.data.is_none() {
                self.note_lane(Finding::InFlight, who.line, who.warp, who.lane, |_| {
                    "starts a copy that the block does not wait for before it ends".into()
                });
            }
            self.finish_transfer(transfer);
        }
    }
}
