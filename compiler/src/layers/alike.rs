//! a value, a tensor of the program  =>  whether the tensor holds the value: unchanged, permuted, or as a part
//!
//! A rewrite may store a value with its dimensions permuted or reshaped, or beside another value in one tensor.
//! Rewrites keep no record of that, so the elements are compared.

use sardonyx_base::{DType, Tensor};

/// Tensors of higher rank are compared without permutation, because there would be too many orders.
const RANK_MAX: usize = 5;

/// Elements of a tensor, with statistics that do not depend on their order.
#[derive(Clone, Debug)]
pub struct Numbers {
    pub dtype: DType,
    /// Dimensions other than 1.
    pub dims: Vec<usize>,
    pub values: Vec<f64>,
    low: f64,
    high: f64,
    /// Sum of the magnitudes.
    sum: f64,
    n_finite: usize,
    /// A typical magnitude of the smaller elements, for the tolerance.
    scale: f64,
}

/// Tolerance of a comparison. It is also relative to the typical magnitude of the tensor, because an element that
/// results from cancellation has the error of its larger operands.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Relative tolerance; at least 6e-2 for bf16 and 8e-3 for f16; unused for integers.
    pub rtol: f64,
    /// Absolute tolerance; unused for integers, which have to be equal.
    pub atol: f64,
}

/// Differences between a value and a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Apart {
    /// Largest absolute difference; infinite where elements differ and one of them is not finite.
    pub abs_max: f64,
    /// Largest difference relative to the value's element, where that is not 0.
    pub rel_max: f64,
    /// Number of elements that are not finite although the value's element is finite.
    pub n_nonfinite: usize,
    /// Number of elements outside the tolerance.
    pub n_outside: usize,
}

impl Numbers {
    /// Reads the elements of a tensor; `None` if they are not real numbers.
    pub fn read(t: &Tensor) -> Option<Numbers> {
        let values = (0..t.len()).map(|i| t.get_f64(i)).collect::<Option<Vec<f64>>>()?;
        let dims = t.dims().iter().copied().filter(|&d| d != 1).collect();
        Some(Numbers::new(t.dtype(), dims, values))
    }

    fn new(dtype: DType, dims: Vec<usize>, values: Vec<f64>) -> Numbers {
        let (mut low, mut high, mut sum, mut n_finite) = (0f64, 0f64, 0f64, 0);
        for (i, v) in values.iter().filter(|v| v.is_finite()).enumerate() {
            (low, high) = if i == 0 { (*v, *v) } else { (low.min(*v), high.max(*v)) };
            (sum, n_finite) = (sum + v.abs(), i + 1);
        }
        let scale = scale(&values);
        Numbers { dtype, dims, values, low, high, sum, n_finite, scale }
    }

    /// Element-by-element differences; `None` if the element counts differ.
    pub fn apart_in_place(&self, held: &Numbers, bound: Bound) -> Option<Apart> {
        (self.values.len() == held.values.len()).then(|| apart(self, held, &Order::Same, bound))
    }

    /// Removes the dimensions along which all elements are equal; `None` if there are none.
    pub fn without_repeats(&self) -> Option<Numbers> {
        let (mut dims, mut values) = (self.dims.clone(), self.values.clone());
        for axis in (0..dims.len()).rev() {
            let after: usize = dims[axis + 1..].iter().product();
            let block = dims[axis] * after;
            let repeats = |b: &[f64]| b.chunks(after).all(|c| c.iter().zip(b).all(|(x, y)| same(*x, *y)));
            if !values.is_empty() && values.chunks(block).all(repeats) {
                values = values.chunks(block).flat_map(|b| &b[..after]).copied().collect();
                dims.remove(axis);
            }
        }
        (dims.len() < self.dims.len()).then(|| Numbers::new(self.dtype, dims, values))
    }

    pub fn is_finite(&self) -> bool {
        self.n_finite == self.values.len()
    }

    fn largest(&self) -> f64 {
        self.low.abs().max(self.high.abs())
    }
}

/// 16 times the lower quartile of the non-zero finite magnitudes. With the maximum instead, a mask value of -1e38 would
/// hide all differences.
fn scale(values: &[f64]) -> f64 {
    let mut magnitudes: Vec<f64> = values.iter().map(|v| v.abs()).filter(|v| *v > 0.0 && v.is_finite()).collect();
    let at = magnitudes.len() / 4;
    if magnitudes.is_empty() { 0.0 } else { *magnitudes.select_nth_unstable_by(at, f64::total_cmp).1 * 16.0 }
}

impl Bound {
    /// Relative and absolute tolerance for a value; its type may be less precise than `rtol`.
    fn tolerances(self, value: &Numbers) -> (f64, f64) {
        let rtol = match value.dtype {
            DType::BF16 => self.rtol.max(6e-2),
            DType::F16 => self.rtol.max(8e-3),
            dtype if dtype.is_float() => self.rtol,
            _ => return (0.0, 0.0),
        };
        (rtol, self.atol + 0.1 * rtol * value.scale.min(value.largest()))
    }

    fn holds(self, value: &Numbers, wanted: f64, got: f64) -> bool {
        let (rtol, slack) = self.tolerances(value);
        same(wanted, got) || wanted.is_finite() && (wanted - got).abs() <= slack + rtol * wanted.abs()
    }

    /// Returns whether two tensors are equal within the tolerance, without permutation.
    pub fn holds_for(self, wanted: &Tensor, got: &Tensor) -> bool {
        wanted == got || self.apart(wanted, got).is_some_and(|a| a.n_outside == 0)
    }

    /// The differences; `None` if type or shape differ, or if the elements are not real numbers.
    pub fn apart(self, wanted: &Tensor, got: &Tensor) -> Option<Apart> {
        let alike = wanted.dtype() == got.dtype() && wanted.dims() == got.dims();
        let numbers = Numbers::read(wanted).zip(Numbers::read(got)).filter(|_| alike);
        numbers.and_then(|(w, g)| w.apart_in_place(&g, self))
    }

    /// Quick test by statistics: false only if no order of `held` can match `value`.
    fn possible(self, value: &Numbers, held: &Numbers) -> bool {
        let ((rtol, slack), n) = (self.tolerances(value), value.n_finite as f64);
        let near = |a: f64, b: f64, by: f64| (a - b).abs() <= by;
        let each = slack + rtol * value.largest();
        value.values.len() == held.values.len()
            && value.n_finite == held.n_finite
            && value.dtype.is_float() == held.dtype.is_float()
            && near(value.low, held.low, each)
            && near(value.high, held.high, each)
            // Sums have rounding errors of their own.
            && near(value.sum, held.sum, n * slack + (rtol + 1e-12 * n) * value.sum)
    }
}

fn same(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}

/// How the elements of two tensors correspond: whose dimensions are permuted, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Order {
    Same,
    Value(Vec<usize>),
    Held(Vec<usize>),
}

fn orders(value: &Numbers, held: &Numbers) -> Vec<Order> {
    let of = |dims: &[usize]| match dims.len() {
        2..=RANK_MAX => permutations(dims.len()),
        _ => vec![],
    };
    let moved = |p: &Vec<usize>| p.iter().enumerate().any(|(i, &d)| i != d);
    let by_value = of(&value.dims).into_iter().filter(moved).map(Order::Value);
    // Permuting `held` finds nothing new unless it has more dimensions than the value.
    let finer = held.dims.len() > value.dims.len();
    let by_held = of(&held.dims).into_iter().filter(|p| finer && moved(p)).map(Order::Held);
    [Order::Same].into_iter().chain(by_value).chain(by_held).collect()
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    let mut out = vec![vec![]];
    for _ in 0..n {
        let longer = |p: &Vec<usize>| {
            let free: Vec<usize> = (0..n).filter(|d| !p.contains(d)).collect();
            free.into_iter().map(|d| [&p[..], &[d]].concat()).collect::<Vec<_>>()
        };
        out = out.iter().flat_map(longer).collect();
    }
    out
}

/// Visits pairs of (wanted, got) elements in an order until `each` returns false.
fn walk(value: &Numbers, held: &Numbers, order: &Order, each: &mut dyn FnMut(f64, f64) -> bool) {
    let (moved, dims, perm) = match order {
        Order::Same => {
            let mut pairs = value.values.iter().zip(&held.values);
            let _ = pairs.all(|(v, h)| each(*v, *h));
            return;
        }
        Order::Value(perm) => (&value.values, &value.dims, perm),
        Order::Held(perm) => (&held.values, &held.dims, perm),
    };
    let mut strides = vec![1; dims.len()];
    for i in (0..dims.len().saturating_sub(1)).rev() {
        strides[i] = strides[i + 1] * dims[i + 1];
    }
    let (extents, steps): (Vec<usize>, Vec<usize>) = perm.iter().map(|&p| (dims[p], strides[p])).unzip();
    let (mut index, mut at) = (vec![0; extents.len()], 0);
    for i in 0..moved.len() {
        let go_on = match order {
            Order::Same | Order::Value(_) => each(moved[at], held.values[i]),
            Order::Held(_) => each(value.values[i], moved[at]),
        };
        if !go_on {
            return;
        }
        for d in (0..extents.len()).rev() {
            (index[d], at) = (index[d] + 1, at + steps[d]);
            if index[d] < extents[d] {
                break;
            }
            (index[d], at) = (0, at - extents[d] * steps[d]);
        }
    }
}

/// The differences, if some order of `held` matches the value.
pub fn find(value: &Numbers, held: &Numbers, bound: Bound) -> Option<Apart> {
    if !bound.possible(value, held) {
        return None;
    }
    let fits = |order: &Order| {
        let mut good = true;
        walk(value, held, order, &mut |v, h| {
            good = bound.holds(value, v, h);
            good
        });
        good
    };
    let order = orders(value, held).into_iter().find(fits)?;
    Some(apart(value, held, &order, bound))
}

/// Like [`find`], but compares the value with the parts of `held`: the equally large slices along one dimension.
pub fn find_part(value: &Numbers, held: &Numbers, bound: Bound) -> Option<Apart> {
    parts(value.values.len(), held).iter().find_map(|part| find(value, part, bound))
}

/// The differences in the order with the smallest total difference; `None` if the element counts differ, or if only one
/// of the types is a floating-point type.
pub fn nearest(value: &Numbers, held: &Numbers, bound: Bound) -> Option<Apart> {
    if value.values.len() != held.values.len() || value.dtype.is_float() != held.dtype.is_float() {
        return None;
    }
    let mean = |order: &Order| {
        let mut sum = 0.0;
        walk(value, held, order, &mut |v, h| {
            sum += if v.is_finite() && h.is_finite() { (v - h).abs() } else { 0.0 };
            true
        });
        sum
    };
    let order = orders(value, held).into_iter().min_by(|a, b| mean(a).total_cmp(&mean(b)))?;
    Some(apart(value, held, &order, bound))
}

fn apart(value: &Numbers, held: &Numbers, order: &Order, bound: Bound) -> Apart {
    let mut out = Apart::default();
    walk(value, held, order, &mut |v, h| {
        let abs = match same(v, h) {
            true => 0.0,
            false if !v.is_finite() || !h.is_finite() => f64::INFINITY,
            false => (v - h).abs(),
        };
        out.abs_max = out.abs_max.max(abs);
        out.rel_max = out.rel_max.max(if abs > 0.0 && v != 0.0 { abs / v.abs() } else { 0.0 });
        out.n_nonfinite += (v.is_finite() && !h.is_finite()) as usize;
        out.n_outside += !bound.holds(value, v, h) as usize;
        true
    });
    out
}

/// All slices of `n` elements into which `held` can be split evenly along one dimension.
fn parts(n: usize, held: &Numbers) -> Vec<Numbers> {
    let total = held.values.len();
    if n == 0 || n >= total || !total.is_multiple_of(n) {
        return vec![];
    }
    let n_parts = total / n;
    let split = |axis: usize| {
        let width = held.dims[axis] / n_parts;
        let after: usize = held.dims[axis + 1..].iter().product();
        let (block, piece) = (held.dims[axis] * after, width * after);
        let dims: Vec<usize> = (0..held.dims.len()).map(|d| if d == axis { width } else { held.dims[d] }).collect();
        let dims: Vec<usize> = dims.into_iter().filter(|&d| d != 1).collect();
        let one = move |k: usize| {
            let rows = held.values.chunks(block).flat_map(|row| &row[k * piece..(k + 1) * piece]);
            Numbers::new(held.dtype, dims.clone(), rows.copied().collect())
        };
        (0..n_parts).map(one).collect::<Vec<_>>()
    };
    (0..held.dims.len()).filter(|&axis| held.dims[axis].is_multiple_of(n_parts)).flat_map(split).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Bound = Bound { rtol: 1e-3, atol: 1e-4 };

    fn numbers(dims: &[usize], values: Vec<f32>) -> Numbers {
        Numbers::read(&Tensor::from_vec(dims.to_vec(), values)).unwrap()
    }

    fn count(dims: &[usize]) -> Numbers {
        numbers(dims, (0..dims.iter().product::<usize>()).map(|i| (i as f32).sin()).collect())
    }

    /// The elements of `n` with its dimensions permuted by `perm`.
    fn moved(n: &Numbers, perm: &[usize]) -> Numbers {
        let mut values = vec![];
        let none = Numbers::new(n.dtype, n.dims.clone(), vec![0.0; n.values.len()]);
        walk(n, &none, &Order::Value(perm.to_vec()), &mut |v, _| {
            values.push(v as f32);
            true
        });
        numbers(&perm.iter().map(|&p| n.dims[p]).collect::<Vec<_>>(), values)
    }

    #[test]
    fn strings_are_equal_or_not() {
        let [a, b] = ["a", "b"].map(|text| Tensor::from_strings(vec![1], &[text]));
        assert!(BOUND.holds_for(&a, &a.clone()) && !BOUND.holds_for(&a, &b));
    }

    #[test]
    fn a_value_is_found_in_any_order_and_under_any_dimensions() {
        let value = count(&[2, 3, 4]);
        assert_eq!(find(&value, &count(&[1, 24]), BOUND).unwrap().abs_max, 0.0);
        for perm in permutations(3) {
            let held = moved(&value, &perm);
            assert!(find(&value, &held, BOUND).is_some(), "{perm:?}");
            // Reshaped, with the permutation on either side.
            let flat = Numbers { dims: vec![24], ..held.clone() };
            assert!(find(&value, &flat, BOUND).is_some(), "{perm:?}");
            assert!(find(&flat, &value, BOUND).is_some(), "{perm:?}");
        }
        let mut other = value.values.clone();
        other.swap(0, 5);
        assert!(find(&value, &Numbers::new(DType::F32, vec![2, 3, 4], other), BOUND).is_none());
    }

    #[test]
    fn repeated_numbers_are_there_once() {
        let n = numbers(&[2, 3, 2], vec![1., 2., 1., 2., 1., 2., 3., 4., 3., 4., 3., 4.]);
        let once = n.without_repeats().unwrap();
        assert_eq!((once.dims, once.values), (vec![2, 2], vec![1., 2., 3., 4.]));
        assert_eq!(numbers(&[2, 2], vec![5.; 4]).without_repeats().unwrap().values, [5.0]);
        assert!(count(&[2, 3]).without_repeats().is_none());
    }

    #[test]
    fn a_part_is_found_along_any_dimension() {
        let whole = count(&[2, 6, 5]);
        let middle: Vec<f32> =
            (0..2).flat_map(|b| (10..20).map(move |i| b * 30 + i)).map(|i| (i as f32).sin()).collect();
        let value = numbers(&[2, 2, 5], middle);
        assert!(find(&value, &whole, BOUND).is_none());
        assert_eq!(find_part(&value, &whole, BOUND).unwrap().n_outside, 0);
        assert!(find_part(&moved(&value, &[2, 0, 1]), &whole, BOUND).is_some());
        assert!(find_part(&count(&[2, 2, 5]), &whole, BOUND).is_none());
    }

    #[test]
    fn what_is_near_is_measured_in_its_order() {
        let value = count(&[3, 4]);
        let mut held = moved(&value, &[1, 0]);
        held.values[5] += 0.5;
        let d = nearest(&value, &held, BOUND).unwrap();
        assert!((d.abs_max - 0.5).abs() < 1e-6);
        assert_eq!((d.n_outside, d.n_nonfinite), (1, 0));
        held.values[5] = f64::NAN;
        let d = nearest(&value, &held, BOUND).unwrap();
        assert_eq!((d.abs_max, d.n_outside, d.n_nonfinite), (f64::INFINITY, 1, 1));
    }

    #[test]
    fn special_values_are_found_and_missed() {
        let inf = f32::INFINITY;
        let value = numbers(&[4], vec![1.0, -inf, f32::NAN, 2.0]);
        assert!(find(&value, &value, BOUND).is_some());
        assert!(find(&value, &numbers(&[4], vec![1.0, inf, f32::NAN, 2.0]), BOUND).is_none());
        assert!(find(&value, &numbers(&[4], vec![1.0, 0.0, f32::NAN, 2.0]), BOUND).is_none());
        // A small element may be off by the rounding error of the large elements beside it, but not by that of a mask's
        // huge values; integers must be equal.
        let among = |large: f32, small: f32| numbers(&[5], vec![large, large, large, large, small]);
        assert!(find(&among(1e4, 0.001), &among(1e4, 0.5), BOUND).is_some());
        let masked = |v: f32| numbers(&[5], vec![0.1, 0.2, v, -1e38, -1e38]);
        assert!(find(&masked(0.3), &masked(0.35), BOUND).is_none());
        let int = |v: Vec<i64>| Numbers::read(&Tensor::from_vec(vec![v.len()], v)).unwrap();
        assert!(find(&int(vec![1000, 1]), &int(vec![1000, 1]), BOUND).is_some());
        assert!(find(&int(vec![1000, 1]), &int(vec![1001, 1]), BOUND).is_none());
    }
}
