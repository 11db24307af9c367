//! elements of a value  =>  the range of 8-bit codes with the least squared error

use sardonyx_passes::calibrated::Range;

/// Bins on each side of 0.
const BINS: usize = 2048;
/// Number of steps in a range of 8-bit codes.
const STEPS: f64 = 255.0;
/// The ends of a range are tried in steps of 1/`ENDS` of the extreme element, down to a quarter of it.
const ENDS: usize = 16;

/// Counts elements by sign and magnitude. Bins double in width when needed, so one pass over the elements suffices.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// Width of each bin, a power of two.
    width: f64,
    below: Vec<u64>,
    above: Vec<u64>,
    /// The least and the greatest of all elements and 0.
    ends: [f64; 2],
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { width: f64::MIN_POSITIVE, below: vec![0; BINS], above: vec![0; BINS], ends: [0.0; 2] }
    }
}

impl Histogram {
    /// Counts elements. Zeros are skipped, as every range has a code for them, and so are NaNs and infinities, which
    /// have no code.
    pub fn add(&mut self, elements: &[f32]) {
        let numbers = || elements.iter().map(|x| f64::from(*x)).filter(|x| x.is_finite() && *x != 0.0);
        let largest = numbers().fold(0.0, |most: f64, x| most.max(x.abs()));
        if largest >= self.width * BINS as f64 {
            self.widen(largest);
        }
        for x in numbers() {
            let side = if x < 0.0 { &mut self.below } else { &mut self.above };
            side[((x.abs() / self.width) as usize).min(BINS - 1)] += 1;
            self.ends = [self.ends[0].min(x), self.ends[1].max(x)];
        }
    }

    fn widen(&mut self, largest: f64) {
        let mut shift = 0;
        while largest >= self.width * BINS as f64 {
            (self.width, shift) = (self.width * 2.0, shift + 1);
        }
        for side in [&mut self.below, &mut self.above] {
            let old = std::mem::replace(side, vec![0; BINS]);
            old.iter().enumerate().for_each(|(i, n)| side[i.checked_shr(shift).unwrap_or(0)] += n);
        }
    }

    /// Returns the range with the least squared error: with steps of s, rounding costs s²/12 per element on average,
    /// and elements beyond the ends of the range are clipped.
    pub fn range(&self) -> Range {
        let shares = || (0..=ENDS * 3 / 4).map(|i| 1.0 - i as f64 / ENDS as f64);
        let lost = |side: &[u64], end: f64| -> f64 {
            let beyond = |(i, n): (usize, &u64)| {
                let over = ((i as f64 + 0.5) * self.width - end).max(0.0);
                *n as f64 * over * over
            };
            side.iter().enumerate().filter(|(_, n)| **n > 0).map(beyond).sum()
        };
        let side = |side: &[u64], end: f64| -> Vec<(f64, f64)> {
            shares().map(|share| (end * share, lost(side, (end * share).abs()))).collect()
        };
        let [below, above] = [side(&self.below, self.ends[0]), side(&self.above, self.ends[1])];
        let count: u64 = self.below.iter().chain(&self.above).sum();
        let mut best = (f64::INFINITY, self.ends);
        for (low, lost_below) in &below {
            for (high, lost_above) in &above {
                let step = (high - low) / STEPS;
                let lost = lost_below + lost_above + count as f64 * step * step / 12.0;
                if lost < best.0 {
                    best = (lost, [*low, *high]);
                }
            }
        }
        best.1.map(|end| end as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(elements: &[f32]) -> Range {
        let mut seen = Histogram::default();
        elements.chunks(7).for_each(|some| seen.add(some));
        seen.range()
    }

    #[test]
    fn what_is_even_keeps_its_ends() {
        let even: Vec<f32> = (0..1000).map(|i| i as f32 / 100.0 - 2.0).collect();
        assert_eq!(range(&even), [-2.0, 7.99]);
        assert_eq!(range(&[]), [0.0; 2]);
        assert_eq!(range(&[0.0, f32::NAN, f32::INFINITY]), [0.0; 2]);
        assert_eq!(range(&[3.0, 1e-30]), [0.0, 3.0]);
        assert_eq!(range(&[f32::MIN_POSITIVE / 2.0, -f32::MAX]), [-f32::MAX, f32::MIN_POSITIVE / 2.0]);
    }

    /// A single outlier among a million elements does not justify longer steps for all others.
    #[test]
    fn what_is_far_away_is_cut_off() {
        let mut many: Vec<f32> = (0..1_000_000).map(|i| (i % 100) as f32 / 100.0).collect();
        many.push(4.0);
        let [low, high] = range(&many);
        assert!(low == 0.0 && (1.0..2.0).contains(&high), "{high}");
        let loss = |high: f32| -> f64 {
            let code = |x: f32| (x / high * 255.0).round().min(255.0) * high / 255.0;
            many.iter().map(|x| f64::from(x - code(*x)).powi(2)).sum()
        };
        assert!(loss(high) < 0.9 * loss(4.0));
    }
}
