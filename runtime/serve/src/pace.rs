//! sizes and times of calls  =>  how large the next one may be, to be over in time

use std::time::Duration;

/// A line through the calls so far, of which recent ones count more: time = fixed + each · positions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    calls: f64,
    positions: f64,
    seconds: f64,
    positions_squared: f64,
    positions_seconds: f64,
}

/// The positions of the first call, before anything is known.
const FIRST_POSITIONS: usize = 256;

/// The share that older calls keep with each new one.
const KEPT: f64 = 0.95;

impl Pace {
    pub fn add(&mut self, positions: usize, took: Duration) {
        let (n, t) = (positions as f64, took.as_secs_f64());
        let kept = |sum: f64, new: f64| KEPT * sum + new;
        self.calls = kept(self.calls, 1.0);
        self.positions = kept(self.positions, n);
        self.seconds = kept(self.seconds, t);
        self.positions_squared = kept(self.positions_squared, n * n);
        self.positions_seconds = kept(self.positions_seconds, n * t);
    }

    /// Positions of a call that takes no longer than `most`, or twice its fixed time where that is longer: a call of one
    /// request would take most of it, too. As long as all calls had the same size, the next may have the double.
    pub fn positions_within(&self, most: Duration) -> usize {
        if self.calls == 0.0 {
            return FIRST_POSITIONS;
        }
        let mean = self.positions / self.calls;
        let variance = self.positions_squared / self.calls - mean * mean;
        if variance <= 1e-3 * mean * mean {
            return (2.0 * mean) as usize;
        }
        let each = (self.positions_seconds / self.calls - mean * self.seconds / self.calls) / variance;
        let fixed = (self.seconds / self.calls - each * mean).max(0.0);
        // Where a call takes as long whatever its size, this is as many as there are.
        ((most.as_secs_f64() - fixed).max(fixed) / each.max(0.0)) as usize
    }

    pub fn positions_per_second(&self) -> f64 {
        self.positions / self.seconds.max(1e-6)
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
        assert_eq!(within(&[]), FIRST_POSITIONS);
        assert_eq!(within(&[(16, 0.001)]), 32);
        // 10 ms and 0.1 ms for each.
        assert!((399..=400).contains(&within(&[(100, 0.02), (300, 0.04), (200, 0.03)])));
        // 80 ms whatever the size, but 1 ms for each: twice the fixed time is worth it.
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
}
