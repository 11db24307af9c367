//! allocations, accesses of blocks  =>  initialised bytes, races between blocks, distinct sectors

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::block::Pages;
use super::cross::{Cross, Segment, Touched};
use super::init::Region;

/// Epochs of other blocks that a block has seen.
pub(super) type Seen = BTreeMap<u64, u32>;

/// The initialised bytes of all allocations of a memory. This shadow lives as long as the memory.
#[derive(Default, Debug)]
pub struct Global {
    /// Sorted by address.
    regions: Vec<Region>,
}

impl Global {
    /// Returns a shadow without allocations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an allocation; `address` must be a multiple of 256.
    pub fn alloc(&mut self, address: u64, bytes: u64) {
        let at = self.regions.partition_point(|region| region.address < address);
        self.regions.insert(at, Region::new(address, bytes));
    }

    /// Removes the allocation that starts at `address`; does nothing if there is none.
    pub fn free(&mut self, address: u64) {
        self.regions.retain(|region| region.address != address);
    }

    /// Marks bytes written by the host as initialised.
    pub fn host_write(&mut self, address: u64, bytes: u64) {
        if let Some(region) = self.find(address).and_then(|idx| self.regions.get(idx)) {
            region.mark(address - region.address, bytes);
        }
    }

    /// Starts a launch of `n_blocks` blocks, numbered from 0 and started in that order.
    pub fn launch(&self, n_blocks: u64) -> Launch<'_> {
        Launch {
            global: self,
            n_blocks,
            state: Mutex::default(),
            n_places: AtomicUsize::new(0),
            spare: Mutex::default(),
        }
    }

    /// Returns the index of the allocation that contains the address.
    pub(super) fn find(&self, address: u64) -> Option<usize> {
        let idx = self.regions.partition_point(|region| region.address <= address).checked_sub(1)?;
        let region = self.regions.get(idx)?;
        (address - region.address < region.bytes).then_some(idx)
    }

    pub(super) fn region(&self, idx: usize) -> Option<&Region> {
        self.regions.get(idx)
    }
}

/// State shared by the blocks of one launch; every OS thread has a reference to it.
///
/// Blocks are ordered only through atomic operations and fences of device scope, and only as a whole: a release by any
/// thread publishes all accesses of its block so far, an acquire by any thread counts for its whole block, and a later
/// store to a location does not revoke what was published through it before. The approximation may miss races but
/// reports no false ones.
#[derive(Debug)]
pub struct Launch<'a> {
    pub(super) global: &'a Global,
    n_blocks: u64,
    state: Mutex<State>,
    /// Number of locations through which blocks have released accesses. While it is 0, as in most launches, `observe`
    /// does not take the lock.
    n_places: AtomicUsize,
    /// Pages of finished blocks, to be reused.
    spare: Mutex<Vec<Pages>>,
}

#[derive(Debug, Default)]
struct State {
    cross: Cross,
    /// Accesses of blocks that ended before a lower-numbered block; they are merged by block number, so that the report
    /// does not depend on timing.
    waiting: BTreeMap<u64, Vec<Touched>>,
    next: u64,
    /// Whether a block has synchronised with other blocks; from then on, accesses are compared as they arrive.
    synchronised: bool,
    places: HashMap<u64, Seen>,
}

impl Launch<'_> {
    /// Ends the launch. Must be called after every block's `finish`.
    pub fn finish(self) -> Outcome {
        let mut state = self.state.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.drain_all();
        self.global.regions.iter().for_each(Region::settle);
        let mut sectors: BTreeMap<u64, Sectors> = BTreeMap::new();
        for (page, loads, stores) in state.cross.sectors() {
            let Some(region) = self.global.find(page).and_then(|idx| self.global.region(idx)) else { continue };
            let address = region.address;
            let sum = sectors.entry(address).or_insert(Sectors { address, loads: 0, stores: 0 });
            sum.loads += loads;
            sum.stores += stores;
        }
        Outcome { crossings: state.cross.take_crossings(), sectors: sectors.into_values().collect() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Adds the last accesses of a block.
    pub(super) fn merge_last(&self, segment: Segment, touched: Vec<Touched>) {
        let mut state = self.lock();
        if state.synchronised {
            return state.cross.merge_synchronised(segment, touched);
        }
        if segment.block >= self.n_blocks {
            return state.cross.merge(segment.block, touched);
        }
        state.waiting.insert(segment.block, touched);
        state.drain_ready();
    }

    /// Adds the accesses of a block up to a release or an acquire.
    pub(super) fn merge_part(&self, segment: Segment, touched: Vec<Touched>) {
        let mut state = self.lock();
        if !state.synchronised {
            state.synchronised = true;
            // The blocks in `waiting` ended without releasing anything, so no other block is ordered after them: they
            // are merged first, as unordered.
            state.drain_all();
        }
        state.cross.merge_synchronised(segment, touched);
    }

    pub(super) fn publish(&self, address: u64, seen: &Seen) {
        let mut state = self.lock();
        let place = state.places.entry(address).or_default();
        join(place, seen);
        self.n_places.store(state.places.len(), Ordering::Release);
    }

    pub(super) fn observe(&self, address: u64) -> Option<Seen> {
        if self.n_places.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.lock().places.get(&address).cloned()
    }

    pub(super) fn take_pages(&self) -> Option<Pages> {
        self.spare.lock().ok().and_then(|mut spare| spare.pop())
    }

    pub(super) fn give_pages(&self, pages: Pages) {
        if let Ok(mut spare) = self.spare.lock() {
            spare.push(pages);
        }
    }
}

impl State {
    fn drain_ready(&mut self) {
        while let Some(touched) = self.waiting.remove(&self.next) {
            self.cross.merge(self.next, touched);
            self.next += 1;
        }
    }

    fn drain_all(&mut self) {
        for (block, touched) in std::mem::take(&mut self.waiting) {
            self.cross.merge(block, touched);
        }
    }
}

/// Merges `theirs` into `mine`, and returns whether `mine` changed.
pub(super) fn join(mine: &mut Seen, theirs: &Seen) -> bool {
    let mut learnt = false;
    for (block, epoch) in theirs {
        let known = mine.entry(*block).or_insert(0);
        learnt |= *known < *epoch;
        *known = (*known).max(*epoch);
    }
    learnt
}

/// The results of the shadow for a whole launch.
#[derive(Default, Debug)]
pub struct Outcome {
    /// Races between blocks, in the order in which they were found; at most 256. Unless blocks synchronise, this is the
    /// order of the later block.
    pub crossings: Vec<Crossing>,
    /// One entry for each allocation that the launch accessed, sorted by address.
    pub sectors: Vec<Sectors>,
}

/// A race between two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// Address of the first byte.
    pub address: u64,
    /// Number of bytes affected, all in the same 256-byte page.
    pub bytes: u32,
    /// Number of the later block of the race, from 0.
    pub block: u64,
    /// The last line in which the block wrote the page (if `write`) or read the page.
    pub line: u32,
    /// Whether the block wrote some of the bytes; otherwise it only read them.
    pub write: bool,
    /// The earlier block of the race; `None` if more blocks accessed the page than the shadow remembers individually.
    pub other_block: Option<u64>,
    /// Last line in which the other block wrote or read the page; 0 if `other_block` is `None`.
    pub other_line: u32,
}

/// Distinct 32-byte sectors that a launch accessed in one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sectors {
    /// Address of the first byte of the allocation.
    pub address: u64,
    /// Number of sectors that were read, including those read by atomic operations.
    pub loads: u64,
    /// Number of sectors that were written, including those written by atomic operations.
    pub stores: u64,
}
