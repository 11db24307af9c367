//! page-locked memory through which inputs and outputs of a call are copied

use super::driver::{Context, Pinned};
use sardonyx_base::Result;
use std::sync::Arc;

/// Memory for the copies of one stream. Calls of the same sizes take the same addresses, so that a graph can hold them.
#[derive(Default)]
pub struct Staging {
    /// All are in use until the stream has been waited for; the last is the largest, and the one that is taken from.
    blocks: Vec<Pinned>,
    /// Number of bytes of the last block that are taken, and of all blocks.
    taken: usize,
    taken_in_all: usize,
}

/// Copies of more bytes, or of more bytes in all, go straight from and to the caller's memory, which the driver copies in
/// pieces.
const COPY_BYTES_MAX: usize = 16 << 20;
const BYTES_MAX: usize = 64 << 20;

/// Start of each copy, and the smallest block.
const ALIGNMENT: usize = 256;
const BLOCK_BYTES_MIN: usize = 64 << 10;

impl Staging {
    /// Whether a copy should go through this memory.
    pub fn admits(&self, bytes: usize) -> bool {
        bytes <= COPY_BYTES_MAX && bytes <= BYTES_MAX.saturating_sub(self.taken_in_all)
    }

    /// Returns memory for a copy, until `release`.
    pub fn take(&mut self, context: &Arc<Context>, bytes: usize) -> Result<*mut u8> {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let has = self.blocks.last().map_or(0, Pinned::bytes);
        if has - self.taken < bytes {
            // The next call then finds space for everything in one block.
            let all = self.blocks.iter().map(Pinned::bytes).sum::<usize>() + bytes;
            self.blocks.push(Pinned::new(context, (2 * all).max(BLOCK_BYTES_MIN))?);
            self.taken = 0;
        }
        let start = self.blocks.last().map_or(std::ptr::null_mut(), Pinned::start);
        let at = start.wrapping_add(self.taken);
        self.taken += bytes;
        self.taken_in_all += bytes;
        Ok(at)
    }

    /// Takes all memory back, after all copies have been waited for.
    pub fn release(&mut self) {
        let last = self.blocks.pop();
        self.blocks.clear();
        self.blocks.extend(last);
        (self.taken, self.taken_in_all) = (0, 0);
    }

    /// Frees the memory, outside of calls. Returns the number of bytes.
    pub fn trim(&mut self) -> usize {
        (self.taken, self.taken_in_all) = (0, 0);
        std::mem::take(&mut self.blocks).iter().map(Pinned::bytes).sum()
    }
}
