//! weights  =>  the grid that contains them: multiples of a scale for each group, plus a minimum weight
//!
//! Weights that were quantised earlier, in a GGUF file or in training, are still codes times a scale (a grid) after
//! conversion to f32. The grid is found by repeating the steps of quantisers, which compute a 16-bit scale from the
//! range of a group or from its largest weight. A grid is accepted only if it reproduces every weight exactly.

use half::f16;

/// How the codes of a group represent weights; each operation is rounded to f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// q · s + m with unsigned 4-bit q: s is the range divided by 15, m the minimum weight.
    Least,
    /// q · s with 4-bit q: s is the weight of largest magnitude, with its sign, divided by -8.
    Signed,
    /// q · s with 8-bit q: s is the largest magnitude divided by 127.
    Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    pub step: Step,
    /// Number of weights in a group.
    pub size: usize,
}

const STEPS: [Step; 3] = [Step::Least, Step::Signed, Step::Bytes];
const SIZES: [usize; 4] = [32, 64, 128, 256];

/// Returns the grid of weights[outer, length, inner], whose groups run along the middle axis.
pub fn grid(weights: &[f32], [outer, length, inner]: [usize; 3]) -> Option<Grid> {
    let sizes = SIZES.into_iter().filter(|size| length % size == 0 && *size < length).chain([length]);
    let all: Vec<Grid> = sizes.flat_map(|size| STEPS.map(|step| Grid { step, size })).collect();
    all.into_iter().find(|grid| {
        let mut group = vec![0.0; grid.size];
        let starts = (0..outer).flat_map(|o| (0..length).step_by(grid.size).map(move |k| (o * length + k) * inner));
        starts.flat_map(|start| start..start + inner).all(|start| {
            group.iter_mut().enumerate().for_each(|(j, w)| *w = weights[start + j * inner]);
            grid.step.holds(&group)
        })
    })
}

impl Step {
    /// Returns the smallest and the largest code.
    fn codes(self) -> (f32, f32) {
        match self {
            Step::Least => (0.0, 15.0),
            Step::Signed => (-8.0, 7.0),
            Step::Bytes => (-127.0, 127.0),
        }
    }

    fn holds(self, group: &[f32]) -> bool {
        let high = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let low = group.iter().copied().fold(f32::INFINITY, f32::min);
        let (range, by, least) = match self {
            Step::Least => (high - low, 15.0, low),
            Step::Signed => (if high >= -low { high } else { low }, -8.0, 0.0),
            Step::Bytes => (high.max(-low), 127.0, 0.0),
        };
        let scale = f16::from_f32(range / by).to_f32();
        let scale = if scale == 0.0 { 1.0 } else { scale };
        let (first, last) = self.codes();
        let exact = f16::from_f32(least).to_f32() == least;
        let on = |w: &f32| {
            let code = ((w - least) / scale).round_ties_even();
            (first..=last).contains(&code) && code * scale + least == *w
        };
        scale.is_finite() && exact && group.iter().all(on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns n pseudo-random numbers in 0..1.
    fn random(n: usize) -> Vec<f32> {
        let mut state = 7u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32
        };
        (0..n).map(|_| next()).collect()
    }

    fn rounded(weights: &[f32], size: usize, step: Step) -> Vec<f32> {
        let group = |w: &[f32]| -> Vec<f32> {
            let high = w.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let low = w.iter().copied().fold(f32::INFINITY, f32::min);
            let half = |x: f32| f16::from_f32(x).to_f32();
            let (scale, least) = match step {
                Step::Least => (half((high - low) / 15.0), half(low)),
                Step::Signed => (half(if high >= -low { high } else { low } / -8.0), 0.0),
                Step::Bytes => (half(high.max(-low) / 127.0), 0.0),
            };
            let (first, last) = step.codes();
            w.iter().map(|w| ((w - least) / scale).round_ties_even().clamp(first, last) * scale + least).collect()
        };
        weights.chunks(size).flat_map(group).collect()
    }

    #[test]
    fn what_was_rounded_to_a_grid_lies_on_it() {
        let weights: Vec<f32> = random(4 * 256).iter().map(|x| x - 0.4).collect();
        for (step, size) in [(Step::Least, 32), (Step::Signed, 64), (Step::Bytes, 32), (Step::Bytes, 256)] {
            let found = grid(&rounded(&weights, size, step), [4, 256, 1]);
            assert_eq!(found, Some(Grid { step, size }));
        }
        assert_eq!(grid(&weights, [4, 256, 1]), None);
        let mut almost = rounded(&weights, 32, Step::Least);
        almost[700] = f32::from_bits(almost[700].to_bits() + 1);
        assert_eq!(grid(&almost, [4, 256, 1]), None, "one weight is another number in its last bit");
    }

    #[test]
    fn groups_lie_along_the_sum() {
        let rows = rounded(&random(64 * 3), 32, Step::Least);
        let columns: Vec<f32> = (0..64 * 3).map(|at| rows[at % 3 * 64 + at / 3]).collect();
        assert_eq!(grid(&columns, [1, 64, 3]), Some(Grid { step: Step::Least, size: 32 }));
        assert_eq!(grid(&vec![0.0; 64], [1, 64, 1]).map(|g| g.size), Some(32), "zeros lie on any");
        assert_eq!(grid(&[f32::NAN; 64], [1, 64, 1]), None);
    }
}
