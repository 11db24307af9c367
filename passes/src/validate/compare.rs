//! two tensors, the class of a rewrite  =>  a description of their difference, if it is larger than the class allows

use crate::class::Class;
use sardonyx_base::{DType, Tensor};

/// Returns the tolerance of results as a fraction of the largest element: large enough for many roundings, too small
/// for a wrong term.
fn share(dtype: DType, class: Class) -> f64 {
    match dtype {
        _ if class == Class::Narrowing => 3e-2,
        DType::F64 => 1e-9,
        DType::F32 => 1e-4,
        _ => 3e-2,
    }
}

/// Whether at least half of the elements are not NaN. NaN counts as equal to NaN, whatever its cause, so tensors of
/// mostly NaN prove little.
pub fn says_something(t: &Tensor) -> bool {
    let nan = (0..t.len()).filter(|&i| t.dtype().is_float() && t.get_f64(i).is_none_or(f64::is_nan)).count();
    2 * nan <= t.len()
}

/// Returns a description of the difference, or `None` if the tensors agree as closely as the class requires.
pub fn differs(want: &Tensor, got: &Tensor, class: Class) -> Option<String> {
    if (want.dtype(), want.dims()) != (got.dtype(), got.dims()) {
        return Some(format!("{} {:?}, not {} {:?}", got.dtype(), got.dims(), want.dtype(), want.dims()));
    }
    let magnitudes = (0..want.len()).filter_map(|i| want.get_f64(i)).map(f64::abs).filter(|x| x.is_finite());
    let tolerance = share(want.dtype(), class) * magnitudes.fold(1.0, f64::max);
    let equal = |i: usize| {
        if !want.dtype().is_float() {
            return want.get_i64(i) == got.get_i64(i);
        }
        let (Some(w), Some(g)) = (want.get_f64(i), got.get_f64(i)) else { return false };
        match class {
            _ if w.is_nan() && g.is_nan() => true,
            Class::Exact => w.to_bits() == g.to_bits(),
            Class::FiniteOnly if !w.is_finite() => true,
            Class::Reassociating | Class::Narrowing | Class::FiniteOnly => w == g || (w - g).abs() <= tolerance,
        }
    };
    let i = (0..want.len()).find(|&i| !equal(i))?;
    let shown = |t: &Tensor| match t.dtype().is_float() {
        true => t.get_f64(i).map_or("nothing".into(), |v| format!("{v:?}")),
        false => t.get_i64(i).map_or("nothing".into(), |v| v.to_string()),
    };
    let bound = match class {
        Class::Exact => "exactly".into(),
        Class::Reassociating | Class::Narrowing | Class::FiniteOnly => format!("within {tolerance:.1e}"),
    };
    Some(format!("element {i} of {} {:?} is {}, not {} ({bound})", want.dtype(), want.dims(), shown(got), shown(want)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_says_what_is_equal() {
        let t = |values: [f32; 2]| Tensor::from_vec(vec![2], values.to_vec());
        assert_eq!(differs(&t([1.0, 2.0]), &t([1.0, 2.0]), Class::Exact), None);
        assert!(differs(&t([1.0, 2.0]), &t([1.0, 2.0000002]), Class::Exact).is_some());
        assert_eq!(differs(&t([1.0, 2.0]), &t([1.0, 2.0000002]), Class::Reassociating), None);
        let wrong = differs(&t([1.0, 2.0]), &t([1.0, 2.01]), Class::Reassociating);
        assert_eq!(wrong.unwrap(), "element 1 of f32 [2] is 2.009999990463257, not 2.0 (within 2.0e-4)");
        assert!(differs(&t([f32::INFINITY, 2.0]), &t([1.0, 2.0]), Class::Reassociating).is_some());
        assert_eq!(differs(&t([f32::INFINITY, 2.0]), &t([1.0, 2.0]), Class::FiniteOnly), None);
        assert!(differs(&t([0.0, 2.0]), &t([-0.0, 2.0]), Class::Exact).is_some());
    }
}
