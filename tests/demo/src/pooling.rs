//! hidden[b, s, d], mask[b, s]  =>  sentence vectors [b, d]: the mean over the tokens, scaled to L2 norm 1

/// Returns, for each sentence, the mean of the positions whose mask is not 0, scaled to length 1. `dims` is [b, s, d];
/// sums are in f64.
pub fn sentence_vectors(hidden: &[f32], mask: &[i64], dims: [usize; 3]) -> Vec<Vec<f64>> {
    let [b, s, d] = dims;
    assert!(hidden.len() == b * s * d && mask.len() == b * s, "dims {dims:?}");
    (0..b).map(|i| sentence_vector(&hidden[i * s * d..][..s * d], &mask[i * s..][..s], d)).collect()
}

/// Returns the cosine of two vectors of length 1.
pub fn cosine(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Returns the vector of one sentence. The sum need not be divided by the number of tokens, because it is scaled to
/// length 1 anyway.
fn sentence_vector(hidden: &[f32], mask: &[i64], d: usize) -> Vec<f64> {
    let mut sum = vec![0.0; d];
    for (token, _) in hidden.chunks_exact(d).zip(mask).filter(|(_, m)| **m != 0) {
        sum.iter_mut().zip(token).for_each(|(s, x)| *s += f64::from(*x));
    }
    let norm = cosine(&sum, &sum).sqrt();
    sum.iter_mut().for_each(|x| *x /= norm);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_does_not_count() {
        let hidden = [3.0, 0.0, 3.0, 8.0, 100.0, 100.0, 0.0, -2.0, 9.0, 9.0, 9.0, 9.0];
        let vectors = sentence_vectors(&hidden, &[1, 1, 0, 1, 0, 0], [2, 3, 2]);
        assert_eq!(vectors, [[0.6, 0.8], [0.0, -1.0]]);
        assert_eq!(cosine(&vectors[0], &vectors[1]), -0.8);
    }
}
