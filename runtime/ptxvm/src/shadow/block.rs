//! accesses, barriers, fences of one block  =>  problems

use super::{Access, Launch, Place, Problem, Scope};

/// The shadow of one block while it runs. Offsets and addresses are in bounds and aligned.
pub struct Block<'a> {
    launch: &'a Launch<'a>,
}

impl<'a> Block<'a> {
    pub fn new(launch: &'a Launch<'a>, block: u64, n_threads: u32, shared_bytes: u32) -> Self {
        Block { launch }
    }

    /// A load, store or atomic of shared memory; the first few problems are appended.
    pub fn shared(&mut self, access: &Access, offsets: &[u32; 32], problems: &mut Vec<Problem>) {}

    /// The same for global memory.
    pub fn global(&mut self, access: &Access, addresses: &[u64; 32], problems: &mut Vec<Problem>) {}

    /// `cp.async` issued: `access.bytes` per lane to shared offsets `to`, of which `from_bytes[lane]` come from `from`.
    pub fn copy_start(
        &mut self,
        access: &Access,
        to: &[u32; 32],
        from: &[u64; 32],
        from_bytes: &[u32; 32],
        problems: &mut Vec<Problem>,
    ) {
    }

    /// One lane's copy delivered (`wait_group`): it counts as a write by that thread now. `line` is the copy's.
    pub fn copy_land(&mut self, warp: u32, lane: u32, to: u32, bytes: u32, from: u64, from_bytes: u32, line: u32) {}

    /// A converged `.sync` instruction that orders the lanes of `mask`.
    pub fn warp_sync(&mut self, warp: u32, mask: u32) {}

    /// `bar.sync` (waits) or `bar.arrive` (does not) on a barrier 0..15.
    pub fn arrive(&mut self, barrier: u32, warp: u32, mask: u32, waits: bool) {}

    /// The barrier has all its arrivals; those who wait go on.
    pub fn complete(&mut self, barrier: u32) {}

    /// Lanes that end. What they did counts as done before every later barrier.
    pub fn exit(&mut self, warp: u32, mask: u32) {}

    /// `fence`/`membar`.
    pub fn fence(&mut self, warp: u32, mask: u32, scope: Scope) {}

    /// Call BEFORE the value is written by an `atom`, `red`, `st.relaxed/release/volatile`. `rmw`: not a plain store.
    pub fn publish(&mut self, warp: u32, lane: u32, place: Place, release: bool, rmw: bool, scope: Scope) {}

    /// Call AFTER the value is read by an `atom`, `ld.relaxed/acquire/volatile`.
    pub fn observe(&mut self, warp: u32, lane: u32, place: Place, acquire: bool, scope: Scope) {}

    /// The block has ended: hands what it touched to the launch.
    pub fn finish(self) {}
}
