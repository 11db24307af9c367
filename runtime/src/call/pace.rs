//! the times of a loop's iterations  =>  whether all threads compute them, or the caller alone
//!
//! To hand over a part of a launch takes 0.3 us where processors share a cache, and several times as long where they do
//! not; a virtual machine may change from one to the other at any moment. The numbers do not depend on the choice.

use std::ops::Range;
use std::time::{Duration, Instant};

/// Number of iterations, over all calls, after which times are taken again.
const PERIOD: usize = 1021;
/// Iterations of a period that are timed on all threads, and after them on one thread. Those before fill the caches.
const TOGETHER: Range<usize> = 8..12;
const ALONE: Range<usize> = 12..16;
/// Longer iterations gain from threads wherever the processors are.
const LONG: Duration = Duration::from_micros(20);

/// The choice for one loop at one size.
#[derive(Default)]
pub struct Pace {
    /// Number of iterations so far in this period.
    turn: usize,
    is_alone: bool,
    /// Least time of an iteration on all threads, and on the caller's alone, in this period.
    together: Duration,
    alone: Duration,
}

impl Pace {
    /// Returns whether the caller's thread computes the next iteration alone.
    pub fn is_alone(&self) -> bool {
        match self.turn {
            at if TOGETHER.contains(&at) => false,
            at if ALONE.contains(&at) => self.together < LONG,
            _ => self.is_alone,
        }
    }

    /// Returns the time at which the next iteration begins, if it is to be timed.
    pub fn begins(&self) -> Option<Instant> {
        (TOGETHER.start..ALONE.end).contains(&self.turn).then(Instant::now)
    }

    /// Ends an iteration for which `begins` returned this value.
    pub fn ended(&mut self, begun: Option<Instant>) {
        if let Some(begun) = begun {
            let took = begun.elapsed();
            let (least, first) = match TOGETHER.contains(&self.turn) {
                true => (&mut self.together, TOGETHER.start),
                false => (&mut self.alone, ALONE.start),
            };
            *least = if self.turn == first { took } else { took.min(*least) };
        }
        self.turn = (self.turn + 1) % PERIOD;
        if self.turn == ALONE.end {
            self.is_alone = self.together < LONG && self.alone < self.together;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a period with iterations that take these times on all threads and on one. Returns the choice, and how many
    /// iterations were computed by one thread before it was made.
    fn chosen(together: Duration, alone: Duration) -> (bool, usize) {
        let (mut pace, mut n_alone) = (Pace::default(), 0);
        for turn in 0..PERIOD {
            let is_alone = pace.is_alone();
            n_alone += usize::from(is_alone && turn < ALONE.end);
            let took = if is_alone { alone } else { together };
            pace.ended(pace.begins().map(|now| now.checked_sub(took).unwrap_or(now)));
        }
        (pace.is_alone(), n_alone)
    }

    #[test]
    fn short_iterations_are_computed_where_they_take_less_time() {
        let us = Duration::from_micros;
        assert_eq!(chosen(us(9), us(1)), (true, 4));
        assert_eq!(chosen(us(1), us(15)), (false, 4));
        // Iterations that are long are not tried on one thread.
        assert_eq!(chosen(us(500), us(1)), (false, 0));
    }
}
