//! page-locked memory through which inputs and outputs of a call are copied

use super::driver::{Context, Pinned};
use sardonyx_base::Result;
use std::sync::Arc;

/// Memory for the copies of one stream. Once a block is large enough, calls of the same sizes get the same addresses,
/// so that a CUDA graph recorded for one call can be launched for the next.
#[derive(Default)]
pub struct Staging {
    /// Copies may use every block until the stream has been waited for. The last block is the largest, and memory is
    /// taken from it only.
    blocks: Vec<Pinned>,
    /// Number of bytes taken from the last block, and from all blocks, since the last release.
    taken: usize,
    taken_in_all: usize,
}

/// A copy of more than `COPY_BYTES_MAX` bytes, or one that would bring the copies since the last release above
/// `BYTES_MAX`, goes straight from or to the caller's memory, which the driver copies in pieces.
const COPY_BYTES_MAX: usize = 16 << 20;
const BYTES_MAX: usize = 64 << 20;

/// Alignment of the memory of each copy, and size of the smallest block, in bytes.
const ALIGNMENT: usize = 256;
const BLOCK_BYTES_MIN: usize = 64 << 10;

impl Staging {
    /// Whether a copy should go through this memory.
    pub fn admits(&self, bytes: usize) -> bool {
        bytes <= COPY_BYTES_MAX && bytes <= BYTES_MAX.saturating_sub(self.taken_in_all)
    }

    /// Returns memory for a copy of `bytes` bytes, valid until `release`.
    pub fn take(&mut self, context: &Arc<Context>, bytes: usize) -> Result<*mut u8> {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let has = self.blocks.last().map_or(0, Pinned::bytes);
        if has - self.taken < bytes {
            // Blocks grow so that a later call of the same sizes finds space for all its copies in one block.
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

    /// Makes the last block free for new copies and frees the others. All copies must have been waited for.
    pub fn release(&mut self) {
        let last = self.blocks.pop();
        self.blocks.clear();
        self.blocks.extend(last);
        (self.taken, self.taken_in_all) = (0, 0);
    }

    /// Frees all blocks; may be called between calls only. Returns the number of bytes freed.
    pub fn trim(&mut self) -> usize {
        (self.taken, self.taken_in_all) = (0, 0);
        std::mem::take(&mut self.blocks).iter().map(Pinned::bytes).sum()
    }
}
