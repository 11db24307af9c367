//! the accesses of blocks to pages of global memory  =>  races between blocks

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::Crossing;
use super::global::Seen;
use super::page::{Bits, Foot, PAGE_BYTES};

/// Maximum number of races that are kept; further ones would add no information.
const CROSSINGS_MAX: usize = 256;
/// Maximum number of writing blocks that a page remembers individually.
const WRITERS_MAX: usize = 3;

/// The accesses of a block to one page.
#[derive(Clone, Debug)]
pub(super) struct Touched {
    pub page: u64,
    pub foot: Foot,
    pub read_line: u32,
    pub write_line: u32,
}

/// A part of a block's execution between two synchronisations with other blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    pub block: u64,
    pub epoch: u32,
    /// Epochs of other blocks that the block had seen during the segment.
    pub seen: Seen,
}

pub(super) type PageHash = BuildHasherDefault<PageHasher>;

#[derive(Debug, Default)]
pub(super) struct Cross {
    by_number: HashMap<u64, u32, PageHash>,
    pages: Vec<(u64, CrossPage)>,
    segments: Vec<Segment>,
    crossings: Vec<Crossing>,
}

#[derive(Debug, Default)]
struct CrossPage {
    /// Accesses of all blocks that synchronise with no other block.
    all: Foot,
    n_blocks: u32,
    first: Named,
    writers: Vec<(Named, Bits)>,
    /// Accesses of blocks that synchronise, with the index of their segment.
    parts: Vec<(u32, Touched)>,
    loads: u8,
    stores: u8,
}

#[derive(Clone, Copy, Debug, Default)]
struct Named {
    block: u64,
    read_line: u32,
    write_line: u32,
}

impl Cross {
    /// Adds the accesses of a block that is not ordered with any other block.
    pub fn merge(&mut self, block: u64, touched: Vec<Touched>) {
        for touch in touched {
            let Some(page) = page_of(&mut self.by_number, &mut self.pages, touch.page) else { continue };
            page.count(&touch);
            let shared = conflict(&touch.foot, &page.all);
            if !shared.is_empty() && self.crossings.len() < CROSSINGS_MAX {
                self.crossings.push(page.crossing(block, &touch, shared));
            }
            page.add(block, &touch);
        }
    }

    /// Adds the accesses of one segment. No segment may be ordered before one that was added earlier.
    pub fn merge_synchronised(&mut self, segment: Segment, touched: Vec<Touched>) {
        let segment_idx = self.segments.len() as u32;
        for touch in touched {
            let Some(page) = page_of(&mut self.by_number, &mut self.pages, touch.page) else { continue };
            page.count(&touch);
            let shared = conflict(&touch.foot, &page.all);
            if !shared.is_empty() && self.crossings.len() < CROSSINGS_MAX {
                self.crossings.push(page.crossing(segment.block, &touch, shared));
            }
            for (other_idx, other) in &page.parts {
                let Some(other_segment) = self.segments.get(*other_idx as usize) else { continue };
                let ordered = other_segment.block == segment.block
                    || segment.seen.get(&other_segment.block).is_some_and(|epoch| *epoch >= other_segment.epoch);
                let shared = if ordered { Bits::default() } else { conflict(&touch.foot, &other.foot) };
                if !shared.is_empty() && self.crossings.len() < CROSSINGS_MAX {
                    let named =
                        Named { block: other_segment.block, read_line: other.read_line, write_line: other.write_line };
                    let wrote = !other.foot.wrote.and(shared).is_empty();
                    self.crossings.push(crossing(segment.block, &touch, shared, Some(named), wrote));
                }
            }
            page.parts.push((segment_idx, touch));
        }
        self.segments.push(segment);
    }

    pub fn take_crossings(&mut self) -> Vec<Crossing> {
        std::mem::take(&mut self.crossings)
    }

    /// Address of each page, and the numbers of distinct sectors loaded and stored.
    pub fn sectors(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let count = |bits: u8| u64::from(bits.count_ones());
        self.pages
            .iter()
            .map(move |(page, state)| (page * u64::from(PAGE_BYTES), count(state.loads), count(state.stores)))
    }
}

fn page_of<'a>(
    by_number: &mut HashMap<u64, u32, PageHash>,
    pages: &'a mut Vec<(u64, CrossPage)>,
    number: u64,
) -> Option<&'a mut CrossPage> {
    let idx = *by_number.entry(number).or_insert(pages.len() as u32) as usize;
    if idx == pages.len() {
        pages.push((number, CrossPage::default()));
    }
    pages.get_mut(idx).map(|(_, page)| page)
}

impl CrossPage {
    fn count(&mut self, touch: &Touched) {
        self.loads |= touch.foot.read.sectors();
        self.stores |= touch.foot.wrote.sectors();
    }

    fn add(&mut self, block: u64, touch: &Touched) {
        let named = Named { block, read_line: touch.read_line, write_line: touch.write_line };
        if self.n_blocks == 0 {
            self.first = named;
        }
        self.n_blocks = self.n_blocks.saturating_add(1);
        if !touch.foot.wrote.is_empty() && self.writers.len() < WRITERS_MAX {
            self.writers.push((named, touch.foot.wrote));
        }
        let (all, foot) = (&mut self.all, &touch.foot);
        all.read.add(foot.read);
        all.wrote.add(foot.wrote);
        all.plain_read.add(foot.plain_read);
        all.plain_wrote.add(foot.plain_wrote);
    }

    fn crossing(&self, block: u64, touch: &Touched, shared: Bits) -> Crossing {
        let writer = self.writers.iter().find(|(_, wrote)| !wrote.and(shared).is_empty()).map(|(named, _)| *named);
        let named = writer.or((self.n_blocks == 1).then_some(self.first));
        let wrote = writer.is_some() || !self.all.wrote.and(shared).is_empty();
        crossing(block, touch, shared, named, wrote)
    }
}

fn crossing(block: u64, touch: &Touched, shared: Bits, other: Option<Named>, other_wrote: bool) -> Crossing {
    let write = !touch.foot.wrote.and(shared).is_empty();
    Crossing {
        address: touch.page * u64::from(PAGE_BYTES) + u64::from(shared.first().unwrap_or(0)),
        bytes: shared.count(),
        block,
        line: if write { touch.write_line } else { touch.read_line },
        write,
        other_block: other.map(|named| named.block),
        other_line: other.map_or(0, |named| if other_wrote { named.write_line } else { named.read_line }),
    }
}

/// Bytes on which two blocks conflict: both access them, at least one by a write and at least one not atomically.
fn conflict(mine: &Foot, other: &Foot) -> Bits {
    let plain = other.plain_read.or(other.plain_wrote);
    let any = other.read.or(other.wrote);
    (mine.plain_wrote.and(any))
        .or(mine.wrote.and(plain))
        .or(mine.plain_read.and(other.wrote))
        .or(mine.read.and(other.plain_wrote))
}

/// A hash for page numbers and stamps: one multiplication per number.
#[derive(Default)]
pub(super) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}
