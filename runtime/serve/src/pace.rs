//! sizes and times of calls  =>  how large the next call may be to finish in time

use std::time::Duration;

/// A linear regression over past calls, weighted towards recent ones: time = fixed + each · positions, where `fixed` is
/// the time that a call takes however small it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    calls: f64,
    positions: f64,
    seconds: f64,
    positions_squared: f64,
    positions_seconds: f64,
    /// The number of positions of the smallest call.
    smallest: f64,
}

/// The factor that scales the weight of older calls with each new one.
const KEPT: f64 = 0.95;

impl Pace {
    pub fn add(&mut self, positions: usize, took: Duration) {
        let (n, t) = (positions as f64, took.as_secs_f64());
        self.smallest = if self.calls == 0.0 { n } else { self.smallest.min(n) };
        let kept = |sum: f64, new: f64| KEPT * sum + new;
        self.calls = kept(self.calls, 1.0);
        self.positions = kept(self.positions, n);
        self.seconds = kept(self.seconds, t);
        self.positions_squared = kept(self.positions_squared, n * n);
        self.positions_seconds = kept(self.positions_seconds, n * t);
    }

    /// Returns how many positions a call may have to take no longer than `most`, or than twice the fixed time if that
    /// is longer, because a call of a single request would take most of that time, too. While all calls have about the
    /// same size, no time counts as fixed, and the result is at least twice the positions of the smallest call.
    fn positions_within(&self, most: Duration) -> usize {
        let (mean, time) = (self.positions / self.calls, self.seconds / self.calls);
        let variance = self.positions_squared / self.calls - mean * mean;
        if variance <= 1e-3 * mean * mean {
            return (most.as_secs_f64() / time * mean).max(2.0 * self.smallest) as usize;
        }
        let each = (self.positions_seconds / self.calls - mean * time) / variance;
        let fixed = (time - each * mean).max(0.0);
        // If the time does not grow with the size, the quotient is infinite, and becomes `usize::MAX`.
        ((most.as_secs_f64() - fixed).max(fixed) / each.max(0.0)) as usize
    }

    pub fn positions_per_second(&self) -> f64 {
        self.positions / self.seconds.max(1e-6)
    }
}

/// Maximum number of positions of a call with several requests: a power of two that does not follow small variations of
/// the pace. The largest call so far determines how much memory a session takes, so the size should not creep up over
/// time.
#[derive(Clone, Copy, Debug)]
pub struct CallSize {
    pub positions: usize,
}

impl Default for CallSize {
    /// The size before anything has been measured.
    fn default() -> CallSize {
        CallSize { positions: 256 }
    }
}

impl CallSize {
    /// Updates the size after a call with this number of positions. Shrinks at once to the largest power of two that
    /// finishes in time; doubles if the call used more than half of the size, and there is time for at least 2.5 times
    /// the size.
    pub fn follow(&mut self, positions: usize, pace: &Pace, most: Duration) {
        if positions == 0 {
            return;
        }
        let within = pace.positions_within(most);
        if within < self.positions {
            self.positions = 1 << within.max(1).ilog2();
        } else if positions > self.positions / 2 && within / 5 >= self.positions / 2 {
            self.positions *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(calls: &[(usize, f64)]) -> Pace {
        let mut pace = Pace::default();
        calls.iter().for_each(|(positions, seconds)| pace.add(*positions, Duration::from_secs_f64(*seconds)));
        pace
    }

    #[test]
    fn a_line_through_the_calls_tells_how_large_the_next_may_be() {
        let within = |calls: &[(usize, f64)]| after(calls).positions_within(Duration::from_millis(50));
        assert_eq!([within(&[(16, 0.001)]), within(&[(16, 1.0)])], [800, 32]);
        // 10 ms fixed, and 0.1 ms per position.
        assert!((399..=400).contains(&within(&[(100, 0.02), (300, 0.04), (200, 0.03)])));
        // 80 ms fixed, and 1 ms per position: a call may take twice the fixed time.
        assert!((79..=80).contains(&within(&[(10, 0.09), (20, 0.1)])));
        assert!(within(&[(10, 0.08), (20, 0.08)]) > 1 << 40 && within(&[(10, 0.08), (20, 0.07)]) > 1 << 40);
    }

    #[test]
    fn recent_calls_count_more() {
        let mut calls = vec![(100, 1.0), (200, 2.0)];
        calls.extend([(100, 0.01), (200, 0.02)].repeat(100));
        let pace = after(&calls);
        assert!((9000.0..10_001.0).contains(&pace.positions_per_second()), "{}", pace.positions_per_second());
        assert!((450..=510).contains(&pace.positions_within(Duration::from_millis(50))));
    }

    #[test]
    fn a_call_size_stays_where_the_pace_varies_by_a_quarter() {
        let mut size = CallSize::default();
        let mut settle = |positions_per_second: f64| {
            let mut pace = Pace::default();
            (0..20).for_each(|i| {
                let positions = size.positions >> (i % 2);
                pace.add(positions, Duration::from_secs_f64(positions as f64 / positions_per_second));
                size.follow(positions, &pace, Duration::from_millis(50));
            });
            size.positions
        };
        // 650 positions in 50 ms, then about a quarter less, then about a quarter more.
        assert_eq!([13_000.0, 10_500.0, 16_000.0, 13_000.0].map(&mut settle), [512; 4]);
        assert_eq!([26_000.0, 20_800.0, 31_900.0].map(&mut settle), [1024; 3]);
        assert_eq!([5_000.0, 6_200.0, 13_000.0].map(&mut settle), [128, 128, 512]);
        // Small calls are no evidence about larger ones.
        let mut pace = Pace::default();
        pace.add(10, Duration::from_micros(1));
        let mut size = CallSize::default();
        size.follow(10, &pace, Duration::from_millis(50));
        assert_eq!(size.positions, 256);
    }
}
