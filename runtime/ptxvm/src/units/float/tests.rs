//! Directed roundings of f32 and f64, compared with exact sums; special values, compared with the tables of the ISA

use super::*;
use crate::units::testing::{DIRECTED, Random, Sum, assert_rounded, f32_steps};

const TRIALS: usize = 20_000;

fn finite_f32(r: &mut Random) -> f32 {
    std::iter::repeat_with(|| r.f32()).find(|x| x.is_finite()).unwrap()
}

fn finite_f64(r: &mut Random) -> f64 {
    std::iter::repeat_with(|| r.f64()).find(|x| x.is_finite()).unwrap()
}

/// Checks `result` against the exact sum of `products`.
fn judge_f32(what: &str, result: f32, rounding: Rounding, products: &[(f64, f64)]) {
    let minus = |terms: &[(f64, f64)], factor: f64| {
        let scaled = products.iter().map(|&(x, y)| (x * factor, y));
        Sum::new(&scaled.chain(terms.iter().copied()).collect::<Vec<_>>()).sign()
    };
    let compare = |x: f64| minus(&[(x, -1.0)], 1.0);
    let middle = |x: f64, y: f64| minus(&[(x, -1.0), (y, -1.0)], 2.0);
    assert_rounded(what, result.into(), rounding, f32_steps(), compare, middle);
}

fn judge_f64(what: &str, result: f64, rounding: Rounding, products: &[(f64, f64)]) {
    let minus = |terms: &[(f64, f64)], times: usize| {
        let all = products.iter().copied().cycle().take(products.len() * times);
        Sum::new(&all.chain(terms.iter().copied()).collect::<Vec<_>>()).sign()
    };
    let compare = |x: f64| minus(&[(x, -1.0)], 1);
    let middle = |x: f64, y: f64| minus(&[(x, -1.0), (y, -1.0)], 2);
    assert_rounded(what, result, rounding, (f64::next_down, f64::next_up), compare, middle);
}

#[test]
fn f32_sums_and_products_are_rounded_as_asked() {
    let mut r = Random(1);
    for i in 0..TRIALS {
        let [a, b, c] = [(); 3].map(|()| finite_f32(&mut r));
        // Every third case is close to cancellation.
        let c = if i % 3 == 0 { -(a * b) } else { c };
        let (a64, b64, c64) = (f64::from(a), f64::from(b), f64::from(c));
        for mode in DIRECTED {
            judge_f32(&format!("{a:e} + {b:e}"), add_f32(a, b, mode), mode, &[(a64, 1.0), (b64, 1.0)]);
            judge_f32(&format!("{a:e} * {b:e}"), mul_f32(a, b, mode), mode, &[(a64, b64)]);
            if c.is_finite() {
                let what = format!("fma({a:e}, {b:e}, {c:e})");
                judge_f32(&what, fma_f32(a, b, c, mode), mode, &[(a64, b64), (c64, 1.0)]);
            }
        }
        // Rounding to nearest, with ties and overflow, must agree with the host processor.
        if c.is_finite() {
            let expected = canonical(a.mul_add(b, c));
            assert_eq!(fma_f32(a, b, c, Rounding::Rn).to_bits(), expected.to_bits(), "fma({a:e}, {b:e}, {c:e})");
        }
    }
}

#[test]
fn f32_quotients_and_roots_are_rounded_as_asked() {
    let mut r = Random(2);
    for _ in 0..TRIALS {
        let (a, b) = (finite_f32(&mut r), finite_f32(&mut r));
        if b == 0.0 {
            continue;
        }
        let (a64, b64) = (f64::from(a), f64::from(b));
        // Comparing a / b with x is equivalent to comparing a * sign(b) with x * |b|.
        let (n, d) = (a64 * b64.signum(), b64.abs());
        for mode in DIRECTED {
            let compare = |x: f64| Sum::new(&[(n, 1.0), (x, -d)]).sign();
            let middle = |x: f64, y: f64| Sum::new(&[(n, 2.0), (x, -d), (y, -d)]).sign();
            let what = format!("{a:e} / {b:e}");
            assert_rounded(&what, div_f32(a, b, mode).into(), mode, f32_steps(), compare, middle);
            let s = a.abs();
            let root = sqrt_f32(s, mode);
            let compare = |x: f64| Sum::new(&[(s.into(), 1.0), (x, -x)]).sign();
            let middle = |x: f64, y: f64| Sum::new(&[(s.into(), 4.0), (x + y, -(x + y))]).sign();
            assert_rounded(&format!("sqrt {s:e}"), root.into(), mode, f32_steps(), compare, middle);
        }
        assert_eq!(div_f32(a, b, Rounding::Rn).to_bits(), canonical(a / b).to_bits());
    }
}

#[test]
fn f64_arithmetic_is_rounded_as_asked() {
    let mut r = Random(3);
    for i in 0..TRIALS / 2 {
        let [a, b, c] = [(); 3].map(|()| finite_f64(&mut r));
        let c = if i % 3 == 0 && (a * b).is_finite() { -(a * b) } else { c };
        for mode in DIRECTED {
            judge_f64(&format!("{a:e} + {b:e}"), add_f64(a, b, mode), mode, &[(a, 1.0), (b, 1.0)]);
            judge_f64(&format!("{a:e} * {b:e}"), mul_f64(a, b, mode), mode, &[(a, b)]);
            judge_f64(&format!("fma({a:e}, {b:e}, {c:e})"), fma_f64(a, b, c, mode), mode, &[(a, b), (c, 1.0)]);
            if b != 0.0 {
                let (n, d) = (a * b.signum(), b.abs());
                let compare = |x: f64| Sum::new(&[(n, 1.0), (x, -d)]).sign();
                let middle = |x: f64, y: f64| Sum::new(&[(n, 2.0), (x, -d), (y, -d)]).sign();
                let steps = (f64::next_down, f64::next_up);
                let what = format!("{a:e} / {b:e}");
                assert_rounded(&what, div_f64(a, b, mode), mode, steps, compare, middle);
            }
            let s = a.abs();
            let compare = |x: f64| Sum::new(&[(s, 1.0), (x, -x)]).sign();
            let middle = |x: f64, y: f64| Sum::new(&[(s, 4.0), (x, -x), (x, -y), (x, -y), (y, -y)]).sign();
            let steps = (f64::next_down, f64::next_up);
            assert_rounded(&format!("sqrt {s:e}"), sqrt_f64(s, mode), mode, steps, compare, middle);
        }
        // The functions in `exact` round to nearest as the host processor does, ties included.
        assert_eq!(exact::fma(a, b, c, Rounding::Rn).to_bits(), a.mul_add(b, c).to_bits(), "fma({a:e}, {b:e}, {c:e})");
        assert_eq!(exact::div(a, b, Rounding::Rn).to_bits(), (a / b).to_bits(), "{a:e} / {b:e}");
        assert_eq!(exact::sqrt(a.abs(), Rounding::Rn).to_bits(), a.abs().sqrt().to_bits(), "sqrt {a:e}");
    }
}

#[test]
fn exact_zeros_take_the_sign_of_the_mode() {
    for mode in DIRECTED {
        let zero = if mode == Rounding::Rm { -0.0f32 } else { 0.0 };
        assert_eq!(add_f32(1.5, -1.5, mode).to_bits(), zero.to_bits(), "{mode:?}");
        assert_eq!(add_f32(0.0, -0.0, mode).to_bits(), zero.to_bits(), "{mode:?}");
        assert_eq!(fma_f32(3.0, 2.0, -6.0, mode).to_bits(), zero.to_bits(), "{mode:?}");
        assert_eq!(add_f64(1.5, -1.5, mode).to_bits(), f64::from(zero).to_bits(), "{mode:?}");
        assert_eq!(fma_f64(0.0, 2.0, -0.0, mode).to_bits(), f64::from(zero).to_bits(), "{mode:?}");
        assert_eq!(add_f32(-0.0, -0.0, mode).to_bits(), (-0.0f32).to_bits());
        assert_eq!(add_f32(0.0, 0.0, mode).to_bits(), 0);
        assert_eq!(add_f64(-0.0, -0.0, mode).to_bits(), (-0.0f64).to_bits());
    }
}

#[test]
fn infinities_and_nan_pass_through_every_mode() {
    for mode in DIRECTED {
        assert_eq!(add_f32(f32::INFINITY, 1.0, mode), f32::INFINITY);
        assert_eq!(fma_f32(f32::NEG_INFINITY, 2.0, 1.0, mode), f32::NEG_INFINITY);
        assert_eq!(div_f32(-1.0, 0.0, mode), f32::NEG_INFINITY);
        assert_eq!(mul_f64(f64::INFINITY, -1.0, mode), f64::NEG_INFINITY);
        for nan in [
            add_f32(f32::INFINITY, f32::NEG_INFINITY, mode),
            mul_f32(0.0, f32::INFINITY, mode),
            fma_f32(f32::NAN, 0.0, 1.0, mode),
            sqrt_f32(-1.0, mode),
            div_f32(0.0, 0.0, mode),
        ] {
            assert_eq!(nan.to_bits(), NAN_F32, "{mode:?}");
        }
        assert!(fma_f64(f64::INFINITY, 1.0, f64::NEG_INFINITY, mode).is_nan());
        assert!(sqrt_f64(-1.0, mode).is_nan());
    }
}

#[test]
fn min_and_max_follow_the_isa_on_nan_and_zeros() {
    use Extremum::{Max, Min};
    let f = |which, a, b| extremum_f32(which, a, b, false, false).to_bits();
    assert_eq!((f(Min, 1.0, f32::NAN), f(Max, f32::NAN, 1.0)), (1f32.to_bits(), 1f32.to_bits()));
    assert_eq!((f(Min, f32::NAN, f32::NAN), f(Min, 0.0, -0.0)), (NAN_F32, 0x8000_0000));
    assert_eq!((f(Max, -0.0, 0.0), f(Max, 0.0, -0.0), f(Max, -0.0, -0.0)), (0, 0, 0x8000_0000));
    assert_eq!(extremum_f32(Max, 1.0, f32::NAN, true, false).to_bits(), NAN_F32);
    assert_eq!(extremum_f32(Min, -3.0, 2.0, false, true), -2.0);
    assert_eq!(extremum_f32(Max, -3.0, -2.0, false, true), 3.0);
    assert_eq!(extremum_f64(Min, f64::NAN, -1.0), -1.0);
    assert_eq!(extremum_f64(Max, -0.0, 0.0).to_bits(), 0);
}

#[test]
fn saturation_and_flushing() {
    assert_eq!(
        [-1.0, -0.0, 0.5, 1.5, f32::INFINITY].map(|x| sat(x).to_bits()),
        [0.0, 0.0, 0.5, 1.0, 1.0f32].map(f32::to_bits)
    );
    assert_eq!(sat(f32::NAN).to_bits(), 0);
    assert_eq!(sat_f64(f64::NAN).to_bits(), 0);
    assert_eq!(
        [0x0000_0001, 0x807f_ffff, 0x0080_0000].map(|b| ftz(f32::from_bits(b)).to_bits()),
        [0, 0x8000_0000, 0x80_0000]
    );
    assert!(ftz(f32::NAN).is_nan());
}
