//! background work  =>  run on a thread of low priority, so that requests are hardly delayed

/// The nice value of the lowest priority: a thread of normal priority (nice value 0) on the same processor gets about
/// 68 times as much time.
const NICE: libc::c_int = 19;

/// Runs `work` on a thread of the lowest priority and waits for its result; threads that `work` starts inherit the
/// priority. Propagates panics of `work`.
pub fn gently<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: `setpriority` takes three numbers and touches no memory; 0 is the calling thread. On failure the
            // priority stays as it was.
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
        // SAFETY: `getpriority` takes two numbers and touches no memory.
        let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let own = nice();
        assert_eq!(gently(nice), NICE.max(own));
        assert_eq!(nice(), own);
    }
}
