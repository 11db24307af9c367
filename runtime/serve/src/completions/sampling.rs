//! the scores of all tokens  =>  the next token

use sardonyx_base::random::Random;
use sardonyx_base::{Error, Result, Tensor};

/// Parameters for drawing a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divisor of the scores before tokens are drawn; 0 always takes the most likely token.
    pub temperature: f64,
    /// Tokens are drawn from the smallest set of most likely tokens whose probabilities add up to this value.
    pub top_p: f64,
    /// Equal seeds and equal scores draw equal tokens.
    pub seed: u64,
}

/// Draws the tokens of one text.
pub struct Sampler {
    sampling: Sampling,
    random: Random,
}

impl Sampler {
    pub fn new(sampling: Sampling) -> Sampler {
        Sampler { sampling, random: Random::new(sampling.seed) }
    }

    /// Returns the token after the last position of logits of shape `[1, positions, tokens]`. Errors: E0303 if all
    /// scores are NaN.
    pub fn next(&mut self, logits: &Tensor) -> Result<u32> {
        let width = logits.dims().last().copied().unwrap_or(0);
        let first = logits.len() - width.min(logits.len());
        let scores: Vec<f64> = match logits.as_slice::<f32>() {
            Some(all) => all[first..].iter().map(|x| f64::from(*x)).collect(),
            None => (first..logits.len()).map(|i| logits.get_f64(i).unwrap_or(f64::NAN)).collect(),
        };
        let best =
            likeliest(&scores).ok_or_else(|| Error::user("E0303", "the scores of the next token are no numbers"))?;
        // Beside an infinite score, all other tokens have the weight 0.
        let drawn = match self.sampling.temperature > 0.0 && scores[best].is_finite() {
            true => self.drawn(&scores, scores[best]),
            false => best,
        };
        u32::try_from(drawn).map_err(|_| Error::defect("a token beyond 32 bits"))
    }

    fn drawn(&mut self, scores: &[f64], most: f64) -> usize {
        let weight = |(token, score): (usize, &f64)| (token, ((score - most) / self.sampling.temperature).exp());
        // A NaN weight fails the comparison, so its token is never drawn.
        let mut weights: Vec<(usize, f64)> = scores.iter().enumerate().map(weight).filter(|(_, w)| *w > 0.0).collect();
        let mut total: f64 = weights.iter().map(|(_, w)| w).sum();
        if self.sampling.top_p < 1.0 {
            weights.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            let wanted = self.sampling.top_p * total;
            let mut sum = 0.0;
            let kept = weights.iter().position(|(_, w)| {
                sum += w;
                sum >= wanted
            });
            weights.truncate(kept.map_or(weights.len(), |last| last + 1));
            total = weights.iter().map(|(_, w)| w).sum();
        }
        let mut left = self.random.fraction() * total;
        for (token, weight) in &weights {
            left -= weight;
            if left < 0.0 {
                return *token;
            }
        }
        // Rounding may leave `left` at or above 0 after the last token.
        weights.last().map_or(0, |(token, _)| *token)
    }
}

/// Returns the index of the largest score, where ties go to the first; `None` if all scores are NaN.
fn likeliest(scores: &[f64]) -> Option<usize> {
    let numbers = scores.iter().enumerate().filter(|(_, score)| !score.is_nan());
    numbers.reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(token, _)| token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logits(scores: &[f32]) -> Tensor {
        Tensor::from_vec(vec![1, 1, scores.len()], scores.to_vec())
    }

    fn sampler(temperature: f64, top_p: f64, seed: u64) -> Sampler {
        Sampler::new(Sampling { temperature, top_p, seed })
    }

    #[test]
    fn without_temperature_the_first_of_the_likeliest_is_taken() {
        let mut greedy = sampler(0.0, 1.0, 1);
        assert_eq!(greedy.next(&logits(&[1.0, 3.0, f32::NAN, 3.0])).unwrap(), 1);
        assert_eq!(greedy.next(&logits(&[f32::NAN; 3])).unwrap_err().code, "E0303");
        let two = Tensor::from_vec(vec![1, 2, 2], vec![9.0f32, 0.0, 0.0, 1.0]);
        assert_eq!(greedy.next(&two).unwrap(), 1);
    }

    #[test]
    fn tokens_are_drawn_as_often_as_they_are_likely() {
        let scores = logits(&[0.0, 3f32.ln(), f32::NEG_INFINITY]);
        let mut random = sampler(1.0, 1.0, 7);
        let drawn: Vec<u32> = (0..4000).map(|_| random.next(&scores).unwrap()).collect();
        let ones = drawn.iter().filter(|token| **token == 1).count();
        assert!((2850..3150).contains(&ones) && !drawn.contains(&2), "{ones}");
        let mut again = sampler(1.0, 1.0, 7);
        assert!(drawn.iter().all(|token| again.next(&scores).unwrap() == *token));
        // Halving the temperature squares the ratio of the probabilities.
        let mut cold = sampler(0.5, 1.0, 7);
        let ones = (0..4000).filter(|_| cold.next(&scores).unwrap() == 1).count();
        assert!((3480..3720).contains(&ones), "{ones}");
    }

    #[test]
    fn an_infinite_score_is_certain() {
        let mut random = sampler(1.0, 0.9, 3);
        assert_eq!(random.next(&logits(&[0.0, 1.0, f32::INFINITY, 2.0])).unwrap(), 2);
    }

    #[test]
    fn the_nucleus_has_no_more_tokens_than_it_needs() {
        let scores = logits(&[4f32.ln(), 3f32.ln(), 2f32.ln(), 1f32.ln()]);
        let mut nucleus = sampler(1.0, 0.7, 3);
        let drawn: Vec<u32> = (0..1000).map(|_| nucleus.next(&scores).unwrap()).collect();
        assert!(drawn.contains(&0) && drawn.contains(&1) && drawn.iter().all(|token| *token < 2));
        let mut one = sampler(5.0, 0.0, 3);
        assert!((0..100).all(|_| one.next(&scores).unwrap() == 0));
    }
}
