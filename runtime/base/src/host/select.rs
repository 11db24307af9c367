//! NonZero, NonMaxSuppression: the indices of the elements that satisfy a condition

use super::{Budget, numbers, unfit};
use crate::{Result, Tensor};

pub fn nonzero(x: &Tensor, budget: &Budget) -> Result<Vec<Tensor>> {
    let number = |i: usize| x.get_f64(i).ok_or_else(|| unfit(format!("NonZero of {} is not possible", x.dtype())));
    let mut found = vec![];
    for piece in budget.pieces(x.len()) {
        for i in piece? {
            if number(i)? != 0.0 {
                budget.push(&mut found, i)?;
            }
        }
    }
    let mut indices = budget.room(found.len().saturating_mul(x.rank()))?;
    // The index along a dimension is a digit of the element's row-major index, in mixed radix.
    let mut stride = x.len();
    for &extent in x.dims() {
        stride = stride.checked_div(extent).unwrap_or(0);
        for piece in budget.pieces(found.len()) {
            let digit = |i: &usize| i.checked_div(stride).map_or(0, |at| (at % extent) as i64);
            indices.extend(found[piece?].iter().map(digit));
        }
    }
    Ok(vec![numbers(vec![x.rank(), found.len()], indices)])
}

/// For each batch and class, selects up to `most` boxes whose score exceeds `score`, by descending score, except boxes
/// whose intersection over union with an already selected box exceeds `overlap`.
pub fn non_max_suppression(
    boxes: &Tensor,
    scores: &Tensor,
    [most, overlap, score]: [&Tensor; 3],
    center: bool,
    budget: &Budget,
) -> Result<Vec<Tensor>> {
    let wrong = || unfit(format!("boxes {:?} and scores {:?} do not fit", boxes.dims(), scores.dims()));
    let (&[n_batches, n_boxes, 4], &[b, n_classes, m]) = (boxes.dims(), scores.dims()) else { return Err(wrong()) };
    let (Some(boxes), Some(scores)) = (budget.values::<f32>(boxes)?, budget.values::<f32>(scores)?) else {
        return Err(wrong());
    };
    if (b, m) != (n_batches, n_boxes) {
        return Err(wrong());
    }
    let most = usize::try_from(most.get_i64(0).unwrap_or(0)).unwrap_or(0);
    let [overlap, least] = [overlap, score].map(|t| t.get_f64(0).unwrap_or(0.0) as f32);
    let (mut selected, mut order, mut taken) = (vec![], vec![], vec![]);
    for batch in 0..n_batches {
        let corners = |i: usize| Corners::new(&boxes[(batch * n_boxes + i) * 4..][..4], center);
        for class in 0..n_classes {
            budget.work(1)?;
            let scores = &scores[(batch * n_classes + class) * n_boxes..][..n_boxes];
            order.clear();
            for piece in budget.pieces(n_boxes) {
                for i in piece?.filter(|&i| scores[i] > least) {
                    budget.push(&mut order, i)?;
                }
            }
            // Boxes with equal scores are in the order of their indices.
            budget.sort_by(&mut order, 1, |&i, &j| scores[j].total_cmp(&scores[i]).then(i.cmp(&j)))?;
            taken.clear();
            for &i in &order {
                if taken.len() >= most {
                    break;
                }
                budget.work(1 + taken.len())?;
                let here = corners(i);
                if taken.iter().all(|other| here.overlap(other) <= overlap) {
                    budget.push(&mut taken, here)?;
                    for index in [batch, class, i] {
                        budget.push(&mut selected, index as i64)?;
                    }
                }
            }
        }
    }
    Ok(vec![numbers(vec![selected.len() / 3, 3], selected)])
}

/// A box, as the corner with its smallest coordinates and the corner with its largest coordinates.
struct Corners {
    low: [f32; 2],
    high: [f32; 2],
}

impl Corners {
    fn new(given: &[f32], center: bool) -> Corners {
        let [a, b, c, d] = [given[0], given[1], given[2], given[3]];
        let (p, q) = match center {
            true => ([a - c / 2.0, b - d / 2.0], [a + c / 2.0, b + d / 2.0]),
            false => ([a, b], [c, d]),
        };
        Corners { low: [p[0].min(q[0]), p[1].min(q[1])], high: [p[0].max(q[0]), p[1].max(q[1])] }
    }

    fn area(&self) -> f32 {
        (self.high[0] - self.low[0]) * (self.high[1] - self.low[1])
    }

    /// Intersection over union; 0 if one of the boxes has no area.
    fn overlap(&self, other: &Corners) -> f32 {
        let side = |i: usize| (self.high[i].min(other.high[i]) - self.low[i].max(other.low[i])).max(0.0);
        let common = side(0) * side(1);
        let whole = self.area() + other.area() - common;
        let some = self.area() > 0.0 && other.area() > 0.0 && whole > 0.0;
        if some { common / whole } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn indices_of_what_is_not_zero_are_in_row_major_order() {
        let free = Budget::unlimited();
        let x = Tensor::from_vec(vec![2, 3], vec![0.0f32, 1.0, 0.0, f32::NAN, 0.0, -0.0]);
        let found = &nonzero(&x, &free).unwrap()[0];
        assert_eq!((found.dims(), found.to_vec::<i64>().unwrap()), (&[2, 2][..], vec![0, 1, 1, 0]));
        let scalar = &nonzero(&Tensor::scalar(3i64), &free).unwrap()[0];
        assert_eq!(scalar.dims(), [0, 1]);
        let empty = &nonzero(&Tensor::zeros(DType::F32, vec![3, 0]), &free).unwrap()[0];
        assert_eq!(empty.dims(), [2, 0]);
    }

    #[test]
    fn boxes_that_overlap_a_better_one_are_left_out() {
        let free = Budget::unlimited();
        let boxes = vec![0.0f32, 0.0, 1.0, 1.0, 1.0, 1.1, 0.0, 0.1, 5.0, 5.0, 6.0, 6.0];
        let boxes = Tensor::from_vec(vec![1, 3, 4], boxes);
        let scores = Tensor::from_vec(vec![1, 1, 3], vec![0.5f32, 0.9, 0.1]);
        let [most, overlap, least] = [Tensor::scalar(9i64), Tensor::scalar(0.5f32), Tensor::scalar(0.0f32)];
        let run = |least: &Tensor| {
            let found = non_max_suppression(&boxes, &scores, [&most, &overlap, least], false, &free).unwrap();
            found[0].to_vec::<i64>().unwrap()
        };
        assert_eq!(run(&least), [0, 0, 1, 0, 0, 2]);
        assert_eq!(run(&Tensor::scalar(0.2f32)), [0, 0, 1]);
        let short = Tensor::zeros(DType::F32, vec![1, 2, 4]);
        assert!(non_max_suppression(&short, &scores, [&most, &overlap, &least], false, &free).is_err());
    }
}
