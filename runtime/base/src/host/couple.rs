//! probabilities of pairs of classes [n, k·(k - 1)/2]  =>  of classes [n, k]
//!
//! Wu, Lin, Weng: Probability Estimates for Multi-class Classification by Pairwise Coupling (2004), its second method, with
//! the tolerance and the number of rounds that LIBSVM and ONNX Runtime have: where the iteration ends is part of the result.

use super::unfit;
use crate::{DType, Result, Tensor};

const ROUNDS_MAX: usize = 100;

/// Row by row in f32. A pair (i, j) with i < j has the probability of i where it is one of the two.
pub fn couple(pairs: &Tensor) -> Result<Tensor> {
    let &[n, n_pairs] = pairs.dims() else {
        return Err(unfit(format!("pairs of classes are rows, not {:?}", pairs.dims())));
    };
    let k = (2..=n_pairs + 1).find(|k| k * (k - 1) / 2 >= n_pairs).filter(|k| k * (k - 1) / 2 == n_pairs);
    let Some(k) = k.filter(|_| pairs.dtype() == DType::F32) else {
        return Err(unfit(format!("{n_pairs} columns of {} are no pairs of classes", pairs.dtype())));
    };
    let all: Vec<f32> = pairs.bytes().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let rows = (0..n).flat_map(|row| coupled(&all[row * n_pairs..][..n_pairs], k)).collect();
    Ok(Tensor::from_vec(vec![n, k], rows))
}

fn coupled(pairs: &[f32], k: usize) -> Vec<f32> {
    let mut r = vec![0f32; k * k];
    let places = (0..k).flat_map(|i| (i + 1..k).map(move |j| (i, j)));
    for ((i, j), p) in places.zip(pairs) {
        (r[i * k + j], r[j * k + i]) = (*p, 1.0 - p);
    }
    let mut q = vec![0f32; k * k];
    for i in 0..k {
        for j in (0..k).filter(|j| *j != i) {
            q[i * k + i] += r[j * k + i] * r[j * k + i];
            q[i * k + j] = -r[j * k + i] * r[i * k + j];
        }
    }
    let mut p = vec![1.0 / k as f32; k];
    for _ in 0..ROUNDS_MAX {
        let mut qp: Vec<f32> = (0..k).map(|i| (0..k).map(|j| q[i * k + j] * p[j]).sum()).collect();
        let mut pqp: f32 = p.iter().zip(&qp).map(|(p, qp)| p * qp).sum();
        if qp.iter().all(|x| (x - pqp).abs() < 0.005 / k as f32) {
            break;
        }
        for i in 0..k {
            let step = (pqp - qp[i]) / q[i * k + i];
            p[i] += step;
            pqp = (pqp + step * (step * q[i * k + i] + 2.0 * qp[i])) / (1.0 + step) / (1.0 + step);
            for j in 0..k {
                qp[j] = (qp[j] + step * q[i * k + j]) / (1.0 + step);
                p[j] /= 1.0 + step;
            }
        }
    }
    p
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consistent_pairs_give_their_classes() {
        // p = (0.2, 0.3, 0.5), whose pairs are p[i] / (p[i] + p[j]).
        let pairs = Tensor::from_vec(vec![1, 3], vec![0.4f32, 0.2 / 0.7, 0.3 / 0.8]);
        let p = couple(&pairs).unwrap();
        let wanted = [0.2, 0.3, 0.5];
        assert!((0..3).all(|i| (p.get_f64(i).unwrap() - wanted[i]).abs() < 2e-3), "{p:?}");
        assert_eq!(couple(&Tensor::zeros(DType::F32, vec![0, 6])).unwrap().dims(), [0, 4]);
        assert!(couple(&Tensor::zeros(DType::F32, vec![1, 2])).is_err());
        assert!(couple(&Tensor::zeros(DType::F32, vec![1, 0])).is_err());
        assert!(couple(&Tensor::zeros(DType::F64, vec![1, 3])).is_err());
    }
}
