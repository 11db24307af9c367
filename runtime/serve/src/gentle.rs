//! work that can wait  =>  done on a thread that gives way to those who answer requests

/// The most that `nice` counts: others get sixty times as much of a processor that both want.
const NICE: libc::c_int = 19;

/// The threads that the work starts give way, too. Panics where the work does.
pub fn gently<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: takes three numbers and touches no memory; 0 is the calling thread. Where it fails, nothing changes.
            let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_work_gives_way() {
        // SAFETY: as above.
        let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let own = nice();
        assert_eq!(gently(nice), NICE.max(own));
        assert_eq!(nice(), own);
    }
}
