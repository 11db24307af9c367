//! probabilities of pairs of classes [n, k·(k - 1)/2]  =>  of classes [n, k]
//!
//! Wu, Lin, Weng: Probability Estimates for Multi-class Classification by Pairwise Coupling (2004), its second method,
//! with the tolerance and iteration limit of LIBSVM and ONNX Runtime: the result depends on where the iteration ends.

use super::{Budget, unfit};
use crate::{Result, Tensor};

const ROUNDS_MAX: usize = 100;

/// Couples each row in f32. The pair (i, j) with i < j holds the probability of i, given that the class is i or j.
pub fn couple(pairs: &Tensor, budget: &Budget) -> Result<Tensor> {
    let &[n, n_pairs] = pairs.dims() else {
        return Err(unfit(format!("pairs of classes are rows, not {:?}", pairs.dims())));
    };
    let wrong = || unfit(format!("{n_pairs} columns of {} are no pairs of classes", pairs.dtype()));
    let all = budget.values::<f32>(pairs)?.ok_or_else(wrong)?;
    // If n = k·(k - 1)/2, then k = ⌊√(2 n)⌋ + 1.
    let k = n_pairs.saturating_mul(2).isqrt() + 1;
    let is_count = k >= 2 && k.checked_mul(k - 1).is_some_and(|twice| twice == n_pairs.saturating_mul(2));
    if !is_count {
        return Err(wrong());
    }
    if n == 0 {
        return Ok(Tensor::from_vec(vec![n, k], Vec::<f32>::new()));
    }
    let mut room = Room::new(k, budget)?;
    let mut rows = budget.room(n.saturating_mul(k))?;
    for row in 0..n {
        room.couple(&all[row * n_pairs..][..n_pairs], budget)?;
        rows.extend_from_slice(&room.p);
    }
    Ok(Tensor::from_vec(vec![n, k], rows))
}

/// Buffers for the computation of one row, named as in the paper; `qp` is the product of matrix Q and vector p.
struct Room {
    k: usize,
    r: Vec<f32>,
    q: Vec<f32>,
    qp: Vec<f32>,
    /// The result.
    p: Vec<f32>,
}

impl Room {
    fn new(k: usize, budget: &Budget) -> Result<Room> {
        let [r, q] = [budget.filled(0f32, k.saturating_mul(k))?, budget.filled(0f32, k.saturating_mul(k))?];
        Ok(Room { k, r, q, qp: budget.filled(0f32, k)?, p: budget.filled(0f32, k)? })
    }

    fn couple(&mut self, pairs: &[f32], budget: &Budget) -> Result<()> {
        let Room { k, r, q, qp, p } = self;
        let k = *k;
        let mut rest = pairs.iter();
        for i in 0..k {
            budget.work(k)?;
            for (j, pair) in (i + 1..k).zip(&mut rest) {
                (r[i * k + j], r[j * k + i]) = (*pair, 1.0 - pair);
            }
        }
        for i in 0..k {
            budget.work(k)?;
            q[i * k + i] = 0.0;
            for j in (0..k).filter(|j| *j != i) {
                q[i * k + i] += r[j * k + i] * r[j * k + i];
                q[i * k + j] = -r[j * k + i] * r[i * k + j];
            }
        }
        p.fill(1.0 / k as f32);
        for _ in 0..ROUNDS_MAX {
            for i in 0..k {
                budget.work(k)?;
                qp[i] = (0..k).map(|j| q[i * k + j] * p[j]).sum();
            }
            let mut pqp: f32 = p.iter().zip(&*qp).map(|(p, qp)| p * qp).sum();
            if qp.iter().all(|x| (x - pqp).abs() < 0.005 / k as f32) {
                break;
            }
            for i in 0..k {
                budget.work(k)?;
                let step = (pqp - qp[i]) / q[i * k + i];
                p[i] += step;
                pqp = (pqp + step * (step * q[i * k + i] + 2.0 * qp[i])) / (1.0 + step) / (1.0 + step);
                for j in 0..k {
                    qp[j] = (qp[j] + step * q[i * k + j]) / (1.0 + step);
                    p[j] /= 1.0 + step;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn couple(pairs: &Tensor) -> Result<Tensor> {
        super::couple(pairs, &Budget::unlimited())
    }

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
