//! Reading ONNX files: what is read from a model, and the errors for models that are refused

mod build;
mod external;
mod functions;
mod fuzz;
mod graphs;
mod oracle;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// An allocator that records the largest request, so that the tests of corrupted models can bound it.
struct Watched;

static LARGEST_BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every request goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST_BYTES.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller guarantees that the layout is not empty, which is all that `System.alloc` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller passes a block with its layout, and every block of this allocator is from `System`.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LARGEST_BYTES.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: as for `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST_BYTES.fetch_max(size, Ordering::Relaxed);
        // SAFETY: `at` is as in `dealloc`; the caller guarantees that `size` is a valid, non-zero size.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// Returns the size in bytes of the largest request so far.
fn largest_request_bytes() -> usize {
    LARGEST_BYTES.load(Ordering::Relaxed)
}
