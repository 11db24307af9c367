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
    let n_at_once = (AT_ONCE / bytes).max(1);
    let mut at = budget.room(n_at_once.min(*count))?;
    for (k, group) in updates.bytes().chunks(n_at_once * bytes).enumerate() {
        at.clear();
        for row in numbers_of(rows, k * n_at_once, group.len() / bytes) {
            let row = row.and_then(|row| usize::try_from(row).ok()).filter(|row| row < n_rows);
            at.push(row.ok_or_else(|| unfit(format!("an update is for a row outside 0..{n_rows}")))?);
        }
        match f {
            Some(f) if *width == 1 => f.combine_at(x.dtype(), &mut out, &at, group),
            None if bytes == 4 => copy_at::<4>(&mut out, &at, group),
            None if bytes == 8 => copy_at::<8>(&mut out, &at, group),
            _ => {
                for (row, update) in at.iter().zip(group.chunks_exact(bytes)) {
                    let into = &mut out[row * bytes..][..bytes];
                    for (into, update) in into.chunks_mut(AT_ONCE).zip(update.chunks(AT_ONCE)) {
                        if bytes > AT_ONCE {
                            budget.work(AT_ONCE / 8)?;
                        }
                        match f {
                            Some(f) => f.combine(x.dtype(), into, update),
                            None => into.copy_from_slice(update),
                        }
                    }
                }
            }
        }
        budget.work(group.len() / bytes + AT_ONCE / 8)?;
    }
    Tensor::new(x.dtype(), x.dims().to_vec(), out.into())
}

/// Returns the elements `first..first + n` of a tensor of i64.
fn numbers_of(x: &Tensor, first: usize, n: usize) -> impl Iterator<Item = Option<i64>> + '_ {
    let range = first..first + n;
    let near = x.as_slice::<i64>().and_then(|all| all.get(range.clone()));
    range.enumerate().map(move |(i, at)| near.map_or_else(|| x.get_i64(at), |near| Some(near[i])))
}

/// Copies each element of N bytes to its place.
fn copy_at<const N: usize>(out: &mut [u8], at: &[usize], from: &[u8]) {
    let out = out.as_chunks_mut::<N>().0;
    at.iter().zip(from.as_chunks::<N>().0).for_each(|(at, update)| out[*at] = *update);
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
