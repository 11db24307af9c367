//! emulation of links slower than a host's memory: how long a plan would take with its ranks far from each other
//!
//! The data of an exchange becomes available some time after all ranks have posted their operands: one latency per
//! round, plus the bytes at the link's rate. A rank that does other work between beginning and ending an exchange hides
//! this time.

use sardonyx_base::schedule::{Rounds, bytes_of_others};
use std::num::NonZeroU64;
use std::time::Duration;

/// The emulated link of each rank of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Latency of each round of messages.
    pub latency: Duration,
    /// Rate of the link, in bytes per second.
    pub bytes_per_s: NonZeroU64,
}

/// A rank sleeps until the target time is this near, then yields.
const NEAR: Duration = Duration::from_micros(120);

impl Wire {
    /// Returns how long the messages to a rank take.
    pub fn takes(&self, rounds: &Rounds, own: usize) -> Duration {
        let others = |moves: &Vec<_>| moves.iter().any(|m: &sardonyx_base::schedule::Move| m.from.rank() != own);
        let n = rounds.iter().filter(|moves| others(moves)).count();
        self.takes_for(n as u32, bytes_of_others(rounds, own) as u64)
    }

    /// Returns the time for `rounds` rounds with `bytes` bytes in total: their latencies, plus the bytes at the rate.
    pub fn takes_for(&self, rounds: u32, bytes: u64) -> Duration {
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s.get());
        self.latency.saturating_mul(rounds).saturating_add(Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
    }
}

/// Returns the nanoseconds of the monotonic clock, which all processes of a host share.
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock writes its result to the given location.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Waits until the monotonic clock reaches `at_ns`. `check` may end the waiting with an error.
pub fn sleep_until<E>(at_ns: u64, mut check: impl FnMut() -> Result<(), E>) -> Result<(), E> {
    loop {
        let left = Duration::from_nanos(at_ns.saturating_sub(now_ns()));
        match left {
            Duration::ZERO => return Ok(()),
            left if left > NEAR => std::thread::sleep((left - NEAR).min(NAP)),
            _ => std::thread::yield_now(),
        }
        check()?;
    }
}

/// Interval at which a sleeping rank calls `check`.
const NAP: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_base::DType;
    use sardonyx_base::host::Collective;
    use sardonyx_base::schedule::{Operand, direct};

    #[test]
    fn a_round_has_a_latency_and_bytes_have_a_rate() {
        let wire = Wire { latency: Duration::from_micros(10), bytes_per_s: NonZeroU64::new(1_000_000).unwrap() };
        let operands = vec![Operand { dtype: DType::F32, dims: vec![4096] }; 2];
        let takes = |op: &str| wire.takes(&direct(&Collective::parse(op).unwrap(), &operands, 0), 0).as_micros();
        // Half of 16 KiB for the reduction, and half for the gather.
        assert_eq!(takes("AllReduce mesh=0 by=add"), 2 * 10 + 16_384);
        assert_eq!(takes("AllGather mesh=0 dim=0"), 10 + 16_384);
        assert_eq!(takes("Barrier mesh=0"), 0);
    }
}
