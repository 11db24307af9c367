//! memory aligned to 64 bytes, or an error if the system has none left

use bytes::Bytes;
use sardonyx_base::{Error, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Size in bytes of a cache line, and of the widest vector register.
pub const ALIGNMENT: usize = 64;

/// Owned zero-initialized memory, aligned to 64 bytes. Large blocks are mapped directly, in huge pages if the system
/// has them, and take memory only once they are touched.
pub struct AlignedBuf {
    start: NonNull<u8>,
    bytes: usize,
    source: Source,
}

enum Source {
    Heap(Layout),
    /// The whole mapping, of which the block is an aligned part.
    Mapped(*mut libc::c_void, usize),
}

// SAFETY: the memory is owned and nothing else refers to it.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access is by `&self` methods only, which do not write.
unsafe impl Sync for AlignedBuf {}

const HUGE_PAGE: usize = 2 << 20;

impl AlignedBuf {
    pub fn new(bytes: usize) -> Result<AlignedBuf> {
        let refuse = || Error::user("E0304", format!("cannot allocate {bytes} bytes"));
        if bytes >= 2 * HUGE_PAGE {
            return AlignedBuf::mapped(bytes).ok_or_else(refuse);
        }
        let bytes = bytes.max(ALIGNMENT);
        let layout = Layout::from_size_align(bytes, ALIGNMENT).map_err(|_| refuse())?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refuse)?;
        Ok(AlignedBuf { start, bytes, source: Source::Heap(layout) })
    }

    fn mapped(bytes: usize) -> Option<AlignedBuf> {
        let total = bytes.checked_add(HUGE_PAGE).filter(|&n| n <= isize::MAX as usize)?;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping touches nothing that exists.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), total, access, kind, -1, 0) };
        if map == libc::MAP_FAILED {
            return None;
        }
        let start = map.wrapping_byte_add(map.align_offset(HUGE_PAGE));
        // SAFETY: the range is within the mapping. The advice may be refused; the memory works either way.
        unsafe { libc::madvise(start, bytes, libc::MADV_HUGEPAGE) };
        let start = NonNull::new(start.cast())?;
        Some(AlignedBuf { start, bytes, source: Source::Mapped(map, total) })
    }

    pub fn from_slice(bytes: &[u8]) -> Result<AlignedBuf> {
        let mut buf = AlignedBuf::new(bytes.len())?;
        buf.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
        Ok(buf)
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the block is owned, initialized and of this length.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Returns the size in bytes: at least what was requested, and not 0.
    pub fn size(&self) -> usize {
        self.bytes
    }

    /// Returns a pointer for kernels, which share a block among threads; the kernels must stay within the ranges of the
    /// plan.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Grows to at least `bytes`, preserving the content; the pointer changes. A block that already has at least half
    /// of `bytes` will probably grow again, and gets `spare` extra bytes if they can be allocated.
    pub fn grow(&mut self, bytes: usize, spare: usize) -> Result<()> {
        if bytes > self.size() {
            let spare = if self.size() >= bytes / 2 { spare } else { 0 };
            let larger = AlignedBuf::new(bytes.saturating_add(spare)).or_else(|_| AlignedBuf::new(bytes));
            let old = std::mem::replace(self, larger?);
            self.as_mut_slice()[..old.size()].copy_from_slice(old.as_ref());
        }
        Ok(())
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the block is owned, initialized and of this length.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        match self.source {
            // SAFETY: allocated with this layout.
            Source::Heap(layout) => unsafe { dealloc(self.start.as_ptr(), layout) },
            // SAFETY: mapped with this size.
            Source::Mapped(map, total) => drop(unsafe { libc::munmap(map, total) }),
        }
    }
}

/// Provides memory for outputs, and takes it back when the caller drops them: the first use of fresh pages takes longer
/// than many kernels.
#[derive(Clone, Default)]
pub struct Recycler {
    free: Arc<Mutex<Vec<AlignedBuf>>>,
}

/// Maximum number of free blocks that are kept; further ones are freed.
const FREE_MAX: usize = 16;

impl Recycler {
    pub fn take(&self, bytes: usize) -> Result<Recycled> {
        // A much larger block is left for outputs that need it.
        let fit = |b: &AlignedBuf| b.size() >= bytes && b.size() / 2 <= bytes.max(4096);
        let known = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.iter().position(fit).map(|at| free.swap_remove(at))
        };
        // The lock is released before the system allocates.
        let buf = known.map_or_else(|| AlignedBuf::new(bytes), Ok)?;
        Ok(Recycled { buf: Some(buf), bytes, home: self.free.clone() })
    }

    /// Frees the memory that is not in use. Returns the number of bytes.
    pub fn clear(&self) -> usize {
        let free = std::mem::take(&mut *self.free.lock().unwrap_or_else(PoisonError::into_inner));
        free.iter().map(AlignedBuf::size).sum()
    }
}

/// Memory of `bytes` bytes, which returns to its recycler when dropped. Its content is arbitrary, but initialized.
pub struct Recycled {
    /// The memory; `None` only while the value is being dropped.
    buf: Option<AlignedBuf>,
    bytes: usize,
    home: Arc<Mutex<Vec<AlignedBuf>>>,
}

impl Recycled {
    pub fn as_ptr(&self) -> *mut u8 {
        self.buf.as_ref().map_or(std::ptr::null_mut(), AlignedBuf::as_ptr)
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let bytes = self.bytes;
        self.buf.as_mut().map_or(&mut [], |b| &mut b.as_mut_slice()[..bytes])
    }

    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Recycled {
    fn as_ref(&self) -> &[u8] {
        self.buf.as_ref().map_or(&[], |b| &b.as_ref()[..self.bytes])
    }
}

impl Drop for Recycled {
    fn drop(&mut self) {
        let mut free = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < FREE_MAX {
            free.extend(self.buf.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_zeroed_and_keeps_its_content_when_it_grows() {
        for bytes in [0, 1, 64, 100, 5 << 20] {
            let mut buf = AlignedBuf::new(bytes).unwrap();
            assert_eq!(buf.as_ptr() as usize % ALIGNMENT, 0);
            assert!(buf.as_ref().iter().all(|&b| b == 0));
            buf.as_mut_slice()[0] = 7;
            buf.grow(bytes * 3 + 1000, 50).unwrap();
            assert_eq!(buf.size(), bytes * 3 + 1000);
            buf.grow(bytes * 3 + 1001, 50).unwrap();
            assert_eq!(buf.size(), bytes * 3 + 1051);
            assert_eq!((buf.as_ref()[0], buf.as_ref()[1]), (7, 0));
        }
    }

    #[test]
    fn impossible_sizes_are_errors() {
        for bytes in [usize::MAX, isize::MAX as usize - 64, 1 << 60] {
            assert_eq!(AlignedBuf::new(bytes).err().unwrap().code, "E0304");
        }
    }

    #[test]
    fn a_dropped_output_is_used_again() {
        let recycler = Recycler::default();
        let first = recycler.take(10_000).unwrap();
        let at = first.as_ptr();
        let bytes = first.into_bytes();
        assert_eq!(bytes.len(), 10_000);
        assert_ne!(recycler.take(10_000).unwrap().as_ptr(), at);
        let view = bytes.slice(10..20);
        drop(bytes);
        assert_ne!(recycler.take(9_999).unwrap().as_ptr(), at, "a view still lives");
        drop(view);
        let again = [recycler.take(9_999).unwrap(), recycler.take(9_999).unwrap()];
        assert!(again.iter().any(|r| r.as_ptr() == at));
        assert_eq!(recycler.clear(), 0, "both are in use");
        drop(again);
        assert_eq!((recycler.clear(), recycler.clear()), (20_000, 0));
    }
}
