//! actual, expected  =>  the largest differences, and whether they are within a tolerance

use crate::{
    DType, Tensor, Value,
    widen::{parts, widen},
};

/// When an actual value a is accepted for an expected value e. Floats pass if |a - e| <= atol + rtol·|e|, unless
/// `instead` defines another criterion. Integers and bools pass if |a - e| is at most `atol`, or the limit of `Ulps`.
/// NaN equals NaN.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Tolerated error relative to |e|, for floats.
    pub rtol: f64,
    /// Tolerated absolute error.
    pub atol: f64,
    /// Criterion that decides about floats instead of `rtol` and `atol`, if there is one.
    pub instead: Option<Instead>,
}

/// Criterion for floats that replaces `rtol` and `atol`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Instead {
    /// At most this many representable numbers apart.
    Ulps(u64),
    /// |a - e| is at most this fraction of the tensor's largest |e|: for results in which large values cancel.
    OfMax(f64),
    /// The cosine of the angle between the tensors is at least this, and each row along the last axis has its
    /// largest element at the same position in both: for quantised values.
    Cosine(f64),
    /// The L2 norm of a - e is at most this fraction of the L2 norm of e: for values that are represented by codes.
    Length(f64),
}

/// Largest errors of an actual tensor or value, and the number of its elements that fail.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Difference {
    /// Largest |a - e|; infinite if unequal floats include an infinity or NaN, and 0 for strings.
    pub abs_max: f64,
    /// Largest error relative to the expected value, where that is not 0.
    pub rel_max: f64,
    /// Largest distance in representable numbers; 0 for integers.
    pub ulps_max: u64,
    /// Cosine of the angle between the tensors; none if they have no elements.
    pub cosine: Option<f64>,
    /// L2 norm of the difference, divided by that of the expected values.
    pub relative: f64,
    /// Number of elements outside the tolerance.
    pub n_failed: usize,
    /// Number of elements compared; for a sequence or a map, those of all its tensors.
    pub n: usize,
    /// Position of the element with the largest error relative to its tolerance, with the actual and the expected
    /// value.
    pub worst: Option<(Vec<usize>, f64, f64)>,
}

/// The relative error in the L2 norm, accumulated over the elements of any number of tensors.
#[derive(Clone, Copy, Debug, Default)]
pub struct Relative {
    apart: f64,
    length: f64,
}

impl Relative {
    /// Adds a pair of elements. Equal infinities, or two NaNs, count as no error.
    pub fn add(&mut self, actual: f64, expected: f64) {
        let same = actual == expected || actual.is_nan() && expected.is_nan();
        self.apart += if same { 0.0 } else { (actual - expected) * (actual - expected) };
        self.length += if expected.is_finite() { expected * expected } else { 0.0 };
    }

    /// Returns the L2 norm of the errors divided by that of the expected values; 0 without errors.
    pub fn error(&self) -> f64 {
        if self.apart == 0.0 { 0.0 } else { (self.apart / self.length).sqrt() }
    }
}

/// Compares two tensors; the error says which types or shapes differ.
pub fn compare(actual: &Tensor, expected: &Tensor, tolerance: &Tolerance) -> Result<Difference, String> {
    if actual.dtype() != expected.dtype() {
        return Err(format!("the type is {}, expected {}", actual.dtype(), expected.dtype()));
    }
    if actual.dims() != expected.dims() {
        return Err(format!("the shape is {:?}, expected {:?}", actual.dims(), expected.dims()));
    }
    match actual.dtype() {
        DType::String => return strings(actual, expected),
        DType::Value => return values(actual, expected, tolerance),
        _ => {}
    }
    let ulp_type = actual.dtype();
    let (actual, expected) = (parts(&widen(actual)), parts(&widen(expected)));
    let mut difference = Difference { n: actual.len(), ..Difference::default() };
    let (mut worst, mut squares, mut relative) = (-1.0, [0.0; 3], Relative::default());
    let scale = match tolerance.instead {
        Some(Instead::OfMax(_)) => {
            (0..expected.len()).filter_map(|i| expected.get_f64(i)).map(f64::abs).fold(0.0, f64::max)
        }
        _ => 0.0,
    };
    for i in 0..actual.len() {
        let one = match (actual.dtype().is_float(), actual.get_f64(i), expected.get_f64(i)) {
            (true, Some(a), Some(e)) => float(ulp_type, a, e, tolerance, scale),
            (false, Some(a), Some(e)) => integer(&actual, &expected, i, a, e, tolerance),
            (_, None, _) | (_, _, None) => return Err(format!("{} cannot be compared", actual.dtype())),
        };
        difference.abs_max = difference.abs_max.max(one.abs);
        difference.rel_max = difference.rel_max.max(one.rel);
        difference.ulps_max = difference.ulps_max.max(one.ulps);
        difference.n_failed += (one.excess > 1.0) as usize;
        let (a, e) = (one.actual, one.expected);
        squares.iter_mut().zip([a * a, e * e, a * e]).for_each(|(sum, x)| *sum += x);
        relative.add(a, e);
        if one.excess > worst {
            worst = one.excess;
            difference.worst = Some((position(i, actual.dims()), one.actual, one.expected));
        }
    }
    difference.cosine = cosine(actual.len(), squares);
    difference.relative = relative.error();
    if let Some(Instead::Length(most)) = tolerance.instead.filter(|_| actual.dtype().is_float()) {
        difference.n_failed = if difference.relative <= most { 0 } else { difference.n };
    }
    if let Some(Instead::Cosine(least)) = tolerance.instead.filter(|_| actual.dtype().is_float()) {
        let near = difference.cosine.is_none_or(|cosine| cosine >= least);
        difference.n_failed = if near { rows_led_elsewhere(&actual, &expected) } else { difference.n };
    }
    Ok(difference)
}

/// The cosine for n elements with these sums of a², e² and a·e: `None` without elements, 1 if all elements are 0.
fn cosine(n: usize, [aa, ee, ae]: [f64; 3]) -> Option<f64> {
    match (n, aa == 0.0 && ee == 0.0) {
        (0, _) => None,
        (_, true) => Some(1.0),
        (_, false) => Some(ae / (aa.sqrt() * ee.sqrt())).map(|c| if c.is_finite() { c } else { 0.0 }),
    }
}

/// Number of rows along the last axis whose largest element is at different positions in `a` and `e`.
fn rows_led_elsewhere(a: &Tensor, e: &Tensor) -> usize {
    let width = a.dims().last().copied().unwrap_or(1).max(1);
    let leader = |t: &Tensor, row: usize| {
        let at = |i: &usize| t.get_f64(row * width + i).unwrap_or(f64::NAN);
        (0..width).reduce(|best, i| if at(&i) > at(&best) { i } else { best })
    };
    (0..a.len() / width).filter(|row| leader(a, *row) != leader(e, *row)).count()
}

/// Compares strings for equality.
fn strings(actual: &Tensor, expected: &Tensor) -> Result<Difference, String> {
    let (a, e) = (actual.strings().unwrap_or_default(), expected.strings().unwrap_or_default());
    let n_failed = a.iter().zip(&e).filter(|(a, e)| a != e).count();
    Ok(Difference { n: a.len(), n_failed, ..Difference::default() })
}

/// Compares sequences, optionals and maps element by element; keys of maps must be equal.
fn values(actual: &Tensor, expected: &Tensor, tolerance: &Tolerance) -> Result<Difference, String> {
    fn both(a: &Value, e: &Value, tolerance: &Tolerance, all: &mut Difference) -> Result<(), String> {
        match (a, e) {
            (Value::Tensor(a), Value::Tensor(e)) => {
                all.include(compare(a, e, tolerance)?);
                Ok(())
            }
            (Value::Sequence(a), Value::Sequence(e)) if a.len() == e.len() => {
                a.iter().zip(e).try_for_each(|(a, e)| both(a, e, tolerance, all))
            }
            (Value::Sequence(a), Value::Sequence(e)) => {
                Err(format!("the sequence has {} elements, expected {}", a.len(), e.len()))
            }
            (Value::Optional(None), Value::Optional(None)) => Ok(()),
            (Value::Optional(Some(a)), Value::Optional(Some(e))) => both(a, e, tolerance, all),
            (Value::Map { keys, values }, Value::Map { keys: wanted, values: expected }) if keys == wanted => {
                both(values, expected, tolerance, all)
            }
            (a, e) => Err(format!("the value is {}, expected {}", a.kind_name(), e.kind_name())),
        }
    }
    let decoded = |t: &Tensor| Value::from_tensor(t).map_err(|e| e.message);
    let mut all = Difference::default();
    both(&decoded(actual)?, &decoded(expected)?, tolerance, &mut all)?;
    Ok(all)
}

impl Difference {
    /// Includes the differences of another tensor of the same value.
    fn include(&mut self, other: Difference) {
        self.abs_max = self.abs_max.max(other.abs_max);
        self.rel_max = self.rel_max.max(other.rel_max);
        self.ulps_max = self.ulps_max.max(other.ulps_max);
        self.relative = self.relative.max(other.relative);
        self.cosine = [self.cosine, other.cosine].into_iter().flatten().reduce(f64::min);
        self.n_failed += other.n_failed;
        self.n += other.n;
        if self.worst.is_none() || other.n_failed > 0 {
            self.worst = other.worst;
        }
    }
}

struct Element {
    actual: f64,
    expected: f64,
    abs: f64,
    rel: f64,
    ulps: u64,
    /// Error divided by the tolerated error; above 1, the element fails.
    excess: f64,
}

/// Compares one element of a floating-point tensor; `scale` is the largest expected magnitude in the tensor.
fn float(dtype: DType, actual: f64, expected: f64, tolerance: &Tolerance, scale: f64) -> Element {
    let same = actual == expected || (actual.is_nan() && expected.is_nan());
    let abs = match same {
        true => 0.0,
        // There is an infinity or NaN on one side only.
        false if !actual.is_finite() || !expected.is_finite() => f64::INFINITY,
        false => (actual - expected).abs(),
    };
    let rel = if expected != 0.0 && abs > 0.0 { abs / expected.abs() } else { 0.0 };
    let rel = if rel.is_nan() { f64::INFINITY } else { rel };
    let ulps = if same { 0 } else { ulps_apart(dtype, actual, expected) };
    let excess = match tolerance.instead {
        Some(Instead::Ulps(max)) => ratio(ulps as f64, max as f64),
        _ if abs.is_infinite() => f64::INFINITY,
        Some(Instead::OfMax(part)) => ratio(abs, part * scale),
        Some(Instead::Cosine(_) | Instead::Length(_)) | None => {
            ratio(abs, tolerance.atol + tolerance.rtol * expected.abs())
        }
    };
    Element { actual, expected, abs, rel, ulps, excess }
}

fn integer(a: &Tensor, e: &Tensor, i: usize, actual: f64, expected: f64, tolerance: &Tolerance) -> Element {
    // `get_i64` returns the bits of a u64, which are cast back, so that large values are compared exactly.
    let exact = |t: &Tensor| match t.dtype() {
        DType::U64 => t.get_i64(i).map_or(0, |v| v as u64 as i128),
        _ => t.get_i64(i).map_or(0, |v| v as i128),
    };
    let abs = (exact(a) - exact(e)).unsigned_abs() as f64;
    let rel = if expected != 0.0 { abs / expected.abs() } else { 0.0 };
    let allowed = match tolerance.instead {
        Some(Instead::Ulps(max)) => max as f64,
        Some(Instead::OfMax(_) | Instead::Cosine(_) | Instead::Length(_)) | None => tolerance.atol,
    };
    Element { actual, expected, abs, rel, ulps: 0, excess: ratio(abs, allowed) }
}

fn ratio(value: f64, allowed: f64) -> f64 {
    match (value == 0.0, allowed > 0.0) {
        (true, _) => 0.0,
        (false, true) => value / allowed,
        (false, false) => f64::INFINITY,
    }
}

/// Number of representable values of the type from `a` to `b`; infinity is next to the largest finite value.
fn ulps_apart(dtype: DType, a: f64, b: f64) -> u64 {
    if a.is_nan() || b.is_nan() {
        return u64::MAX;
    }
    // Maps sign and magnitude to a number line on which -0 and 0 coincide.
    let line = |v: f64| {
        let (magnitude, negative) = match dtype {
            DType::F64 => ((v.to_bits() & (u64::MAX >> 1)) as i128, v.is_sign_negative()),
            DType::F16 => ((half::f16::from_f64(v).to_bits() & 0x7fff) as i128, v.is_sign_negative()),
            DType::BF16 => ((half::bf16::from_f64(v).to_bits() & 0x7fff) as i128, v.is_sign_negative()),
            // Narrower floats are compared as the f32 that they were widened to.
            _ => (((v as f32).to_bits() & 0x7fff_ffff) as i128, v.is_sign_negative()),
        };
        if negative { -magnitude } else { magnitude }
    };
    u64::try_from((line(a) - line(b)).unsigned_abs()).unwrap_or(u64::MAX)
}

fn position(mut i: usize, dims: &[usize]) -> Vec<usize> {
    let mut out = vec![0; dims.len()];
    for (at, &dim) in out.iter_mut().zip(dims).rev() {
        *at = i % dim.max(1);
        i /= dim.max(1);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: Tolerance = Tolerance { rtol: 1e-3, atol: 1e-4, instead: None };

    fn floats(a: &[f32], e: &[f32], tolerance: Tolerance) -> Difference {
        let t = |v: &[f32]| Tensor::from_vec(vec![v.len()], v.to_vec());
        compare(&t(a), &t(e), &tolerance).unwrap()
    }

    #[test]
    fn special_values_equal_themselves_only() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        assert_eq!(floats(&[nan, inf, -inf, -0.0], &[nan, inf, -inf, 0.0], DEFAULT).n_failed, 0);
        assert_eq!(floats(&[nan, 1.0, inf, inf, 1.0], &[1.0, nan, -inf, 1.0, inf], DEFAULT).n_failed, 5);
    }

    #[test]
    fn errors_are_measured_and_located() {
        let d = floats(&[1.0, 2.0, 100.0], &[1.0, 2.5, 100.01], DEFAULT);
        assert_eq!((d.abs_max, d.n_failed, d.n), (0.5, 1, 3));
        assert!((d.rel_max - 0.2).abs() < 1e-9);
        assert_eq!(d.worst, Some((vec![1], 2.0, 2.5)));
        let t = |v: Vec<f32>| Tensor::from_vec(vec![2, 3], v);
        let d = compare(&t(vec![0.0; 6]), &t(vec![0.0, 0.0, 0.0, 0.0, 0.0, 9.0]), &DEFAULT).unwrap();
        assert_eq!(d.worst.unwrap().0, [1, 2]);
    }

    #[test]
    fn ulps_replace_the_tolerance() {
        let one_up = f32::from_bits(1f32.to_bits() + 3);
        let with = |max| Tolerance { instead: Some(Instead::Ulps(max)), ..DEFAULT };
        assert_eq!(floats(&[one_up], &[1.0], with(3)).n_failed, 0);
        let d = floats(&[one_up, -1e-45], &[1.0, 1e-45], with(2));
        assert_eq!((d.n_failed, d.ulps_max), (1, 3));
    }

    #[test]
    fn errors_may_be_of_the_largest_or_of_the_whole() {
        let with = |instead| Tolerance { instead: Some(instead), ..DEFAULT };
        let n_failed = |a: &[f32], e: &[f32], instead| floats(a, e, with(instead)).n_failed;
        assert_eq!(n_failed(&[0.05, 1000.0], &[0.0, 1000.0], Instead::OfMax(1e-4)), 0);
        assert_eq!(n_failed(&[0.2, 1000.0], &[0.0, 1000.0], Instead::OfMax(1e-4)), 1);
        assert_eq!(n_failed(&[1.0, 0.01, 0.0], &[1.0, 0.0, 0.01], Instead::Cosine(0.999)), 0);
        assert_eq!(n_failed(&[1.0, 0.1, 0.0], &[1.0, 0.0, 0.1], Instead::Cosine(0.999)), 3);
        assert_eq!(n_failed(&[1.0, 1.001], &[1.001, 1.0], Instead::Cosine(0.999)), 1);
        assert_eq!(n_failed(&[f32::NAN, 1.0], &[1.0, 1.0], Instead::Cosine(0.9)), 2);
        assert_eq!(floats(&[0.0, 0.0], &[0.0, 0.0], DEFAULT).cosine, Some(1.0));
        assert_eq!(floats(&[], &[], DEFAULT).cosine, None);
    }

    #[test]
    fn integers_are_exact_and_wide() {
        let t = |v: i64| Tensor::scalar(v);
        assert_eq!(compare(&t(i64::MAX), &t(i64::MAX - 1), &DEFAULT).unwrap().n_failed, 1);
        assert_eq!(compare(&t(5000), &t(5001), &DEFAULT).unwrap().n_failed, 1);
        let slack = Tolerance { atol: 1.0, ..DEFAULT };
        assert_eq!(compare(&t(5000), &t(5001), &slack).unwrap().n_failed, 0);
        let u = |v: u64| Tensor::scalar(v);
        assert_eq!(compare(&u(u64::MAX), &u(0), &DEFAULT).unwrap().abs_max, u64::MAX as f64);
    }

    #[test]
    fn strings_and_sequences_are_compared() {
        let t = |v: &[&str]| Tensor::from_strings(vec![v.len()], v);
        assert_eq!(compare(&t(&["a", "b"]), &t(&["a", "c"]), &DEFAULT).unwrap().n_failed, 1);
        let s = |v: &[f32]| {
            let one = |v: &f32| Value::Tensor(Tensor::scalar(*v));
            Value::Sequence(v.iter().map(one).collect()).into_tensor()
        };
        let d = compare(&s(&[1.0, 2.0]), &s(&[1.0, 2.5]), &DEFAULT).unwrap();
        assert_eq!((d.n, d.n_failed, d.abs_max), (2, 1, 0.5));
        assert!(compare(&s(&[1.0]), &s(&[]), &DEFAULT).unwrap_err().contains("1 elements, expected 0"));
    }

    #[test]
    fn other_types_and_shapes_are_told() {
        let e = compare(&Tensor::scalar(1f32), &Tensor::scalar(1f64), &DEFAULT).unwrap_err();
        assert_eq!(e, "the type is f32, expected f64");
        let e = compare(&Tensor::scalar(1f32), &Tensor::from_vec(vec![1], vec![1f32]), &DEFAULT).unwrap_err();
        assert_eq!(e, "the shape is [], expected [1]");
        let narrow = |b: &'static [u8]| Tensor::new(DType::I4, vec![2], bytes::Bytes::from_static(b)).unwrap();
        assert_eq!(compare(&narrow(&[0xff, 1]), &narrow(&[0xfe, 1]), &DEFAULT).unwrap().n_failed, 1);
    }
}
