//! Approximations within 0.501 units in the last place of an f64 reference, and the ISA's special values

use super::*;
use crate::units::float::NAN_F32;
use crate::units::testing::Random;

/// Returns the distance of `got` from the exact value, in units in the last place of the exact value.
fn ulps(got: f32, exact: f64) -> f64 {
    let exponent = (exact.abs().log2().floor() as i32).clamp(-126, 127);
    (f64::from(got) - exact).abs() / 2f64.powi(exponent - 23)
}

fn check(name: &str, f: impl Fn(f32) -> f32, reference: impl Fn(f64) -> f64, domain: impl Fn(f32) -> bool) {
    let mut r = Random(71);
    for i in 0..200_000 {
        let x = match i % 4 {
            0 => f32::from_bits(r.u32()),
            1 => (r.below(1 << 30) as f32 / (1 << 29) as f32 - 1.0) * 100.0,
            2 => r.f32(),
            // Arguments near 1, at which the logarithm is close to zero.
            _ => 1.0 + (r.below(1 << 20) as f32 - 524_288.0) / (1u64 << (r.below(20) + 24)) as f32,
        };
        let exact = reference(x.into());
        if !domain(x) || !exact.is_finite() || exact.abs() > f64::from(f32::MAX) {
            continue;
        }
        let got = f(x);
        assert!(ulps(got, exact) <= 0.501, "{name}({x:e}) = {got:e}, exactly {exact:e}");
    }
}

#[test]
fn approximations_are_all_but_correctly_rounded() {
    let any = |x: f32| x.is_finite();
    let positive = |x: f32| x > 0.0 && x.is_finite();
    check("ex2", ex2, f64::exp2, any);
    check("lg2", lg2, f64::log2, positive);
    check("rcp", rcp, |x| 1.0 / x, any);
    check("rsqrt", rsqrt, |x| 1.0 / x.sqrt(), positive);
    check("sqrt", sqrt, f64::sqrt, positive);
    check("tanh", tanh, f64::tanh, any);
    check("sin", sin, f64::sin, |x| x.is_normal() && x.abs() < 1e6);
    check("cos", cos, f64::cos, |x| x.abs() < 1e6);
    let mut r = Random(72);
    for _ in 0..50_000 {
        let (a, b) = (r.f32(), r.f32());
        let exact = f64::from(a) / f64::from(b);
        if exact.is_finite() && exact.abs() <= f64::from(f32::MAX) {
            assert!(ulps(div_full(a, b), exact) <= 0.5, "{a:e} / {b:e}");
            if b.abs() <= 2f32.powi(126) {
                assert_eq!(div_approx(a, b).to_bits(), div_full(a, b).to_bits());
            }
        }
    }
}

#[test]
fn special_values_are_those_of_the_tables() {
    let (inf, tiny) = (f32::INFINITY, f32::from_bits(1));
    let bits = |f: fn(f32) -> f32, xs: [f32; 7]| xs.map(|x| f(x).to_bits());
    let xs = [-inf, -tiny, -0.0, 0.0, tiny, inf, f32::NAN];
    let expect = |ys: [f32; 6]| -> [u32; 7] {
        std::array::from_fn(|i| if i == 6 || ys[i].is_nan() { NAN_F32 } else { ys[i].to_bits() })
    };
    let nan = f32::NAN;
    assert_eq!(bits(ex2, xs), expect([0.0, 1.0, 1.0, 1.0, 1.0, inf]));
    assert_eq!(bits(lg2, xs), expect([nan, nan, -inf, -inf, -149.0, inf]));
    assert_eq!(bits(rcp, xs), expect([-0.0, -inf, -inf, inf, inf, 0.0]));
    assert_eq!(bits(rsqrt, xs)[0..4], expect([nan, nan, -inf, inf, 0.0, 0.0])[0..4]);
    assert_eq!(bits(rsqrt, xs)[5..], expect([0.0; 6])[5..]);
    assert_eq!(bits(sqrt, xs)[0..4], expect([nan, nan, -0.0, 0.0, 0.0, 0.0])[0..4]);
    assert_eq!(bits(sqrt, xs)[5..], [inf.to_bits(), NAN_F32]);
    assert_eq!(bits(sin, xs), expect([nan, -0.0, -0.0, 0.0, 0.0, nan]));
    assert_eq!(bits(cos, xs), expect([nan, 1.0, 1.0, 1.0, 1.0, nan]));
    assert_eq!(bits(tanh, xs), expect([-1.0, -tiny, -0.0, 0.0, tiny, 1.0]));
    assert_eq!(
        [ex2(-149.0).to_bits(), ex2(-151.0).to_bits(), ex2(128.0).to_bits(), ex2(127.0).to_bits()],
        [1, 0, inf.to_bits(), 254 << 23]
    );
    assert_eq!(
        [lg2(1.0).to_bits(), lg2(8.0).to_bits(), lg2(f32::from_bits(1 << 9)).to_bits()],
        [0f32, 3.0, -140.0].map(f32::to_bits)
    );
}

#[test]
fn quick_division_by_huge_numbers_is_zero() {
    let huge = 2f32.powi(127);
    assert_eq!(div_approx(huge, huge), 0.0);
    assert_eq!(div_approx(-3.0, huge).to_bits(), (-0.0f32).to_bits());
    assert_eq!(div_approx(f32::INFINITY, huge).to_bits(), NAN_F32);
    assert_eq!(div_approx(huge, 2f32.powi(126)), 2.0);
    assert_eq!((div_full(huge, huge), div_approx(1.0, f32::INFINITY), div_approx(1.0, 0.0)), (1.0, 0.0, f32::INFINITY));
    assert_eq!(div_approx(0.0, 0.0).to_bits(), NAN_F32);
}

#[test]
fn half_precision_and_f64_variants() {
    assert_eq!(half(Half::F16, 0x3c00, ex2), 0x4000);
    assert_eq!(half(Half::Bf16, 0x4040, ex2), 0x4100);
    assert_eq!(half(Half::F16, 0x7e00, tanh), 0x7fff);
    for bits in 0..=u16::MAX {
        let x = Half::F16.widen(bits);
        if x.is_finite() {
            let exact = f64::from(x).tanh();
            let got = f64::from(Half::F16.widen(half(Half::F16, bits, tanh)));
            assert!((got - exact).abs() <= 2f64.powi(-10), "tanh({x})");
        }
    }
    assert_eq!(
        (rcp_approx_f64(4.0), rcp_approx_f64(-0.0), rcp_approx_f64(5e-324)),
        (0.25, f64::NEG_INFINITY, f64::INFINITY)
    );
    let third = rcp_approx_f64(3.0);
    assert!(third.to_bits() as u32 == 0 && (third * 3.0 - 1.0).abs() < 2f64.powi(-20));
    assert_eq!((rsqrt_approx_f64(4.0, true), rsqrt_approx_f64(2.0, false)), (0.5, 1.0 / 2f64.sqrt()));
}

/// The expected values are those to which NVIDIA's assembler (ptxas of CUDA 13.5) folds instructions on constants.
#[test]
fn results_agree_with_the_constants_that_an_assembler_folds() {
    let check = |name: &str, f: fn(f32) -> f32, folded: &[(u32, u32)]| {
        for &(x, expected) in folded {
            assert_eq!(f(f32::from_bits(x)).to_bits(), expected, "{name} {x:#x}");
        }
    };
    check(
        "ex2",
        ex2,
        &[
            (0x3f80_0000, 0x4000_0000),
            (0xff80_0000, 0x0),
            (0x0000_0001, 0x3f80_0000),
            (0x8000_0000, 0x3f80_0000),
            (0xbf80_0000, 0x3f00_0000),
            (0x7f00_0000, 0x7f80_0000),
            (0xc316_0000, 0x0),
            (0x4300_0000, 0x7f80_0000),
            (0xc319_0000, 0x0),
        ],
    );
    check(
        "lg2",
        lg2,
        &[(0x3f80_0000, 0x0), (0x0000_0001, 0xc315_0000), (0x7f00_0000, 0x42fe_0000), (0x4300_0000, 0x40e0_0000)],
    );
    check(
        "rcp",
        rcp,
        &[
            (0x3f80_0000, 0x3f80_0000),
            (0xff80_0000, 0x8000_0000),
            (0x0000_0001, 0x7f80_0000),
            (0x8000_0000, 0xff80_0000),
            (0xbf80_0000, 0xbf80_0000),
            (0x7f00_0000, 0x40_0000),
            (0xc316_0000, 0xbbda_740e),
            (0x4300_0000, 0x3c00_0000),
            (0xc319_0000, 0xbbd6_2b81),
        ],
    );
    check(
        "rsqrt",
        rsqrt,
        &[
            (0x3f80_0000, 0x3f80_0000),
            (0x0000_0001, 0x64b5_04f3),
            (0x8000_0000, 0xff80_0000),
            (0x7f00_0000, 0x1fb5_04f3),
            (0x4300_0000, 0x3db5_04f3),
        ],
    );
    check(
        "sqrt",
        sqrt,
        &[
            (0x3f80_0000, 0x3f80_0000),
            (0x0000_0001, 0x1a35_04f3),
            (0x8000_0000, 0x8000_0000),
            (0x7f00_0000, 0x5f35_04f3),
            (0x4300_0000, 0x4135_04f3),
        ],
    );
    check(
        "sin",
        sin,
        &[
            (0x3f80_0000, 0x3f57_6aa4),
            (0x0000_0001, 0x0),
            (0x8000_0000, 0x8000_0000),
            (0xbf80_0000, 0xbf57_6aa4),
            (0x7f00_0000, 0x3f1f_9631),
            (0xc316_0000, 0x3f37_0224),
            (0x4300_0000, 0x3f38_95ed),
            (0xc319_0000, 0xbf4e_7045),
        ],
    );
    check(
        "cos",
        cos,
        &[
            (0x3f80_0000, 0x3f0a_5140),
            (0x0000_0001, 0x3f80_0000),
            (0x8000_0000, 0x3f80_0000),
            (0xbf80_0000, 0x3f0a_5140),
            (0x7f00_0000, 0x3f48_2b8f),
            (0xc316_0000, 0x3f33_021a),
            (0x4300_0000, 0xbf31_619f),
            (0xc319_0000, 0xbf17_6401),
        ],
    );
}
