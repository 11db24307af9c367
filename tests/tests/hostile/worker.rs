//! seeds  =>  one mutant after the other is tried in this process, with a line of output before and after each

use crate::{Kind, Outcome, Subject};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Counts the bytes that are requested through Rust's allocator.
struct Counting;

/// Bytes that are allocated now.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// Largest value of `LIVE` since the mutant began.
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// Largest single request since the mutant began.
static LARGEST: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is forwarded, unchanged, to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the contract of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the contract of this function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        count(size);
        // SAFETY: the caller upholds the contract of this function.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of this function.
        unsafe { System.dealloc(at, layout) }
    }
}

fn count(bytes: usize) {
    LARGEST.fetch_max(bytes, Ordering::Relaxed);
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

/// Message of the last panic, in one line.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// Tries the mutants of these seeds; writes `begin SEED` before each, and its outcome after it.
pub fn run(kind: &Kind, seeds: Range<u64>) {
    std::panic::set_hook(Box::new(|info| {
        *PANIC.lock().unwrap_or_else(|e| e.into_inner()) = info.to_string().replace('\n', " ");
    }));
    let mut subject = (kind.open)();
    // The first attempt does not count: it allocates what the process loads and starts only once.
    let _ = catch_unwind(AssertUnwindSafe(|| subject.attempt(0)));
    limit_address_space(kind.bytes_max);
    for seed in seeds {
        say(&format!("begin {seed}"));
        let line = match attempt(kind, subject.as_mut(), seed) {
            Outcome::Fine(what) => format!("fine {seed} {what}"),
            Outcome::Fault(what) => {
                let kept = std::env::temp_dir().join(format!("sardonyx-hostile-{}-{seed}", kind.name));
                subject.keep(&kept);
                format!("fault {seed} {} ({})", what.replace('\n', " "), kept.display())
            }
        };
        say(&line);
    }
}

/// Tries one mutant; prints its outcome, the path of its copy, its largest request, and the process's peak of allocated
/// bytes, which includes what the process loads only once.
pub fn show(kind: &Kind, seed: u64) {
    let mut subject = (kind.open)();
    match attempt(kind, subject.as_mut(), seed) {
        Outcome::Fine(what) => println!("fine: {what}"),
        Outcome::Fault(what) => println!("fault: {what}"),
    }
    let kept = std::env::temp_dir().join(format!("sardonyx-hostile-{}-{seed}", kind.name));
    subject.keep(&kept);
    println!("kept as {}; {} bytes at once, {} together", kept.display(), largest(), PEAK.load(Ordering::Relaxed));
}

fn largest() -> usize {
    LARGEST.load(Ordering::Relaxed)
}

/// Tries one mutant. A panic, or use of more processor time or memory than the kind allows, is a fault.
fn attempt(kind: &Kind, subject: &mut dyn Subject, seed: u64) -> Outcome {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    LARGEST.store(0, Ordering::Relaxed);
    let start = processor_time();
    let outcome = catch_unwind(AssertUnwindSafe(|| subject.attempt(seed)));
    let took = processor_time().saturating_sub(start);
    let peak = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    match outcome {
        Err(_) => Outcome::Fault(PANIC.lock().unwrap_or_else(|e| e.into_inner()).clone()),
        Ok(Outcome::Fault(what)) => Outcome::Fault(what),
        Ok(Outcome::Fine(what)) if took > kind.time_max => Outcome::Fault(format!("{what}, but took {took:?}")),
        Ok(Outcome::Fine(what)) if largest().max(peak) > kind.bytes_max => {
            Outcome::Fault(format!("{what}, but asked for {} bytes at once, {peak} together", largest()))
        }
        Ok(fine) => fine,
    }
}

/// Writes a line. Ends the worker if that fails, because the test no longer reads the pipe.
fn say(line: &str) {
    let mut out = std::io::stdout();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local struct.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Limits the further growth of the address space. This also limits memory that is not requested through Rust's
/// allocator, such as LLVM's and mapped files.
fn limit_address_space(bytes_max: usize) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = pages.split(' ').next().and_then(|n| n.parse().ok()).expect("Linux says how large we are");
    let bytes = pages * 4096 + bytes_max as u64;
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the pointer is to a local struct.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) };
    assert_eq!(done, 0, "the address space can be limited");
}
