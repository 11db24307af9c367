//! fences and atomics of device scope  =>  the epochs of other blocks that a block has seen

use super::block::Pages;
use super::cross::Segment;
use super::global::{Launch, Seen, join};

/// The synchronisation state of one block with respect to the others.
#[derive(Debug, Default)]
pub(super) struct Device {
    block: u64,
    /// Incremented whenever the block releases its accesses to other blocks.
    epoch: u32,
    seen: Seen,
    /// Epochs that the block had seen at its last fence, including its own; later relaxed stores release them.
    fenced: Option<Seen>,
    /// Epochs of other blocks that relaxed loads have read; the next fence acquires them.
    pending: Seen,
}

impl Device {
    pub fn new(block: u64) -> Self {
        Device { block, epoch: 1, ..Device::default() }
    }

    pub fn segment(&self) -> Segment {
        Segment { block: self.block, epoch: self.epoch, seen: self.seen.clone() }
    }

    pub fn fence(&mut self, launch: &Launch<'_>, pages: &mut Pages) {
        let pending = std::mem::take(&mut self.pending);
        self.learn(launch, pages, &pending);
        self.fenced = Some(self.release(launch, pages));
    }

    pub fn publish(&mut self, launch: &Launch<'_>, pages: &mut Pages, address: u64, release: bool) {
        if release {
            let visible = self.release(launch, pages);
            launch.publish(address, &visible);
        } else if let Some(visible) = &self.fenced {
            launch.publish(address, visible);
        }
    }

    pub fn observe(&mut self, launch: &Launch<'_>, pages: &mut Pages, address: u64, acquire: bool) {
        let Some(place) = launch.observe(address) else { return };
        if acquire {
            self.learn(launch, pages, &place);
        } else {
            join(&mut self.pending, &place);
        }
    }

    fn learn(&mut self, launch: &Launch<'_>, pages: &mut Pages, others: &Seen) {
        let mut seen = self.seen.clone();
        if !join(&mut seen, others) {
            return;
        }
        // The newly seen epochs do not order earlier accesses of this block, so these form a segment of their own.
        pages.flush(launch, self.segment());
        self.seen = seen;
    }

    fn release(&mut self, launch: &Launch<'_>, pages: &mut Pages) -> Seen {
        pages.flush(launch, self.segment());
        let mut visible = self.seen.clone();
        visible.insert(self.block, self.epoch);
        self.epoch = self.epoch.saturating_add(1);
        visible
    }
}
