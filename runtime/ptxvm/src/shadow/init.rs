//! host writes, stores  =>  the initialised bytes of an allocation

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// One allocation, and which of its bytes are initialised. Blocks mark bytes concurrently; marks are never removed.
#[derive(Debug)]
pub(super) struct Region {
    pub address: u64,
    pub bytes: u64,
    /// Whether every byte is initialised; if so, `words` is not used.
    full: AtomicBool,
    /// One bit per byte, allocated at the first partial write.
    words: OnceLock<Box<[AtomicU64]>>,
}

impl Region {
    pub fn new(address: u64, bytes: u64) -> Self {
        Region { address, bytes, full: AtomicBool::new(false), words: OnceLock::new() }
    }

    fn words(&self) -> &[AtomicU64] {
        self.words.get_or_init(|| (0..self.bytes.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Marks bytes as initialised; bytes outside the allocation are ignored.
    pub fn mark(&self, offset: u64, bytes: u64) {
        if self.full.load(Relaxed) {
            return;
        }
        if offset == 0 && bytes >= self.bytes {
            self.full.store(true, Relaxed);
            return;
        }
        let words = self.words();
        for (idx, bits) in pieces(offset, bytes) {
            if let Some(word) = words.get(idx)
                && word.load(Relaxed) & bits != bits
            {
                word.fetch_or(bits, Relaxed);
            }
        }
    }

    /// Returns the offset in the allocation of the first uninitialised byte in the range; `None` if there is none.
    pub fn missing(&self, offset: u64, bytes: u64) -> Option<u64> {
        if self.full.load(Relaxed) || bytes == 0 {
            return None;
        }
        let Some(words) = self.words.get() else { return Some(offset) };
        pieces(offset, bytes).find_map(|(idx, bits)| {
            let missing = bits & !words.get(idx).map_or(0, |word| word.load(Relaxed));
            (missing != 0).then(|| idx as u64 * 64 + u64::from(missing.trailing_zeros()))
        })
    }

    /// Sets `full` if stores have initialised the whole allocation.
    pub fn settle(&self) {
        let Some(words) = self.words.get() else { return };
        if !self.full.load(Relaxed)
            && pieces(0, self.bytes).all(|(idx, bits)| words.get(idx).is_some_and(|w| w.load(Relaxed) & bits == bits))
        {
            self.full.store(true, Relaxed);
        }
    }
}

/// Returns the words of the bit set that a byte range covers: the index of each word, and the covered bits in it.
fn pieces(offset: u64, bytes: u64) -> impl Iterator<Item = (usize, u64)> {
    let end = offset.saturating_add(bytes);
    let words = if bytes == 0 { 0..0 } else { offset / 64..end.div_ceil(64) };
    words.map(move |idx| {
        let from = offset.max(idx * 64) - idx * 64;
        let to = end.min(idx * 64 + 64) - idx * 64;
        (idx as usize, (u64::MAX >> (64 - (to - from))) << from)
    })
}
