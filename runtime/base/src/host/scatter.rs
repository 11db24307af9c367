//! Scatter: applies one update after the other, so that the result is determined by their order

use super::{Budget, unfit};
use crate::reduction::Reduction;
use crate::{DType, Result, Tensor};

/// Bytes that are updated between two checks of the limits; a multiple of every element size.
const AT_ONCE: usize = 1 << 16;

pub fn scatter(x: &Tensor, rows: &Tensor, updates: &Tensor, f: Option<Reduction>, budget: &Budget) -> Result<Tensor> {
    let wrong = || unfit(format!("{:?} at {:?} do not update {:?}", updates.dims(), rows.dims(), x.dims()));
    let ([n_rows, width], [count]) = (x.dims(), rows.dims()) else { return Err(wrong()) };
    if updates.dims() != [*count, *width] || updates.dtype() != x.dtype() || rows.dtype() != DType::I64 {
        return Err(wrong());
    }
    if x.dtype().is_opaque() || f.is_some_and(|f| !f.admits(x.dtype())) {
        return Err(unfit(format!("elements of type {} are not updated", x.dtype())));
    }
    let bytes = width * x.dtype().bytes();
    if bytes == 0 {
        return Ok(x.clone());
    }
    let mut out = budget.copied(x.bytes())?;
    let combine = |into: &mut [u8], update: &[u8]| match f {
        Some(f) => f.combine(x.dtype(), into, update),
        None => into.copy_from_slice(update),
    };
    let n_at_once = (AT_ONCE / bytes).max(1);
    for (k, group) in updates.bytes().chunks(n_at_once * bytes).enumerate() {
        for (i, update) in group.chunks_exact(bytes).enumerate() {
            let row = rows.get_i64(k * n_at_once + i).and_then(|row| usize::try_from(row).ok());
            let row = row.filter(|row| row < n_rows);
            let row = row.ok_or_else(|| unfit(format!("an update is for a row outside 0..{n_rows}")))?;
            let into = &mut out[row * bytes..][..bytes];
            if bytes <= AT_ONCE {
                combine(into, update);
                continue;
            }
            for (into, update) in into.chunks_mut(AT_ONCE).zip(update.chunks(AT_ONCE)) {
                budget.work(AT_ONCE / 8)?;
                combine(into, update);
            }
        }
        budget.work(group.len() / bytes + AT_ONCE / 8)?;
    }
    Tensor::new(x.dtype(), x.dims().to_vec(), out.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scatter(x: &Tensor, rows: &Tensor, updates: &Tensor, f: Option<Reduction>) -> Result<Tensor> {
        super::scatter(x, rows, updates, f, &Budget::unlimited())
    }

    fn run(f: Option<Reduction>) -> Vec<f32> {
        let x = Tensor::from_vec(vec![3, 1], vec![1.0f32, 2.0, 3.0]);
        let rows = Tensor::from_vec(vec![3], vec![2i64, 0, 2]);
        let updates = Tensor::from_vec(vec![3, 1], vec![5.0f32, 7.0, 4.0]);
        scatter(&x, &rows, &updates, f).unwrap().to_vec().unwrap()
    }

    #[test]
    fn updates_are_combined_in_their_order() {
        assert_eq!(run(None), [7.0, 2.0, 4.0]);
        assert_eq!(run(Some(Reduction::Add)), [8.0, 2.0, 12.0]);
        assert_eq!(run(Some(Reduction::Mul)), [7.0, 2.0, 60.0]);
        assert_eq!(run(Some(Reduction::Max)), [7.0, 2.0, 5.0]);
        assert_eq!(run(Some(Reduction::Min)), [1.0, 2.0, 3.0]);
    }

    #[test]
    fn operands_that_do_not_fit_are_no_panic() {
        let (x, rows) = (Tensor::zeros(DType::F32, vec![2, 3]), Tensor::zeros(DType::I64, vec![1]));
        for updates in [Tensor::zeros(DType::F32, vec![1, 2]), Tensor::zeros(DType::F64, vec![1, 3])] {
            assert_eq!(scatter(&x, &rows, &updates, None).unwrap_err().code, "E0303");
        }
        for row in [-1i64, 2, i64::MIN, i64::MAX] {
            let (row, updates) = (Tensor::from_vec(vec![1], vec![row]), Tensor::zeros(DType::F32, vec![1, 3]));
            assert_eq!(scatter(&x, &row, &updates, None).unwrap_err().code, "E0303");
        }
        let flags = Tensor::zeros(DType::Bool, vec![2, 3]);
        assert!(scatter(&flags, &rows, &Tensor::zeros(DType::Bool, vec![1, 3]), Some(Reduction::Max)).is_err());
        let empty = Tensor::zeros(DType::F32, vec![0, 3]);
        let none = Tensor::zeros(DType::I64, vec![0]);
        assert_eq!(scatter(&empty, &none, &Tensor::zeros(DType::F32, vec![0, 3]), None).unwrap(), empty);
        assert!(scatter(&empty, &rows, &Tensor::zeros(DType::F32, vec![1, 3]), None).is_err());
    }
}
