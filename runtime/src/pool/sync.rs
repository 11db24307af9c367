//! what `rounds.rs` uses of the standard library; `tests/rounds.rs` has the same names for a model checker

pub use std::sync::atomic::{AtomicU64, Ordering};

/// A value that several threads access, in an order that the user of this type ensures.
pub struct Shared<T>(std::cell::UnsafeCell<T>);

impl<T> Shared<T> {
    pub fn new(value: T) -> Shared<T> {
        Shared(std::cell::UnsafeCell::new(value))
    }

    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Waits a moment, for the `turns`-th time.
pub fn pause(turns: u32) {
    // A thread that was preempted may need this processor.
    if turns.is_multiple_of(1024) { std::thread::yield_now() } else { std::hint::spin_loop() }
}
