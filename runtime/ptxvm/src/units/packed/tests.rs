//! Every operation of f16 and bf16 against exact sums, rounded by the general conversion or compared with neighbours

use super::*;
use crate::units::testing::{Random, Sum, assert_rounded};

const PLAIN: Finish = Finish { ftz: false, sat: false, relu: false };

fn format(half: Half) -> Format {
    match half {
        Half::F16 => Format::F16,
        Half::Bf16 => Format::Bf16,
    }
}

/// The steps to the next value of the format, on f64 values.
fn steps(half: Half) -> (impl Fn(f64) -> f64, impl Fn(f64) -> f64) {
    let step = move |x: f64, up: bool| {
        // Ranks number the values of the format in increasing order: 0 is +0, and -1 the greatest negative value.
        let bits = format(half).narrow(x, Rounding::Rn, false) as i32;
        let rank = if bits & 0x8000 != 0 { -(bits & 0x7fff) } else { bits };
        let rank = rank + if up { 1 } else { -1 };
        f64::from(half.widen(if rank < 0 { (-rank | 0x8000) as u16 } else { rank as u16 }))
    };
    (move |x| step(x, false), move |x| step(x, true))
}

fn judge(half: Half, what: &str, bits: u16, products: &[(f64, f64)]) {
    let minus = |terms: &[(f64, f64)], factor: f64| {
        let scaled = products.iter().map(|&(x, y)| (x * factor, y));
        Sum::new(&scaled.chain(terms.iter().copied()).collect::<Vec<_>>()).sign()
    };
    let compare = |x: f64| minus(&[(x, -1.0)], 1.0);
    let middle = |x: f64, y: f64| {
        let order = minus(&[(x, -1.0), (y, -1.0)], 2.0);
        // A tie must go to the even pattern.
        assert!(order.is_ne() || bits & 1 == 0, "{what}: tie to odd {bits:#x}");
        order
    };
    assert_rounded(what, half.widen(bits).into(), Rounding::Rn, steps(half), compare, middle);
}

#[test]
fn results_are_rounded_once() {
    let mut r = Random(61);
    for half in [Half::F16, Half::Bf16] {
        for i in 0..60_000 {
            let any = |r: &mut Random| {
                let bits = r.u32() as u16;
                // In half of the cases, the exponents are moderate, so that both terms affect the sum.
                if r.below(2) == 0 {
                    bits
                } else if half == Half::F16 {
                    bits & 0x83ff | 0x3800
                } else {
                    bits & 0x807f | 0x3f00
                }
            };
            let (a, b) = (any(&mut r), any(&mut r));
            let c = if i % 3 == 0 { mul(half, a, b, PLAIN) ^ 0x8000 } else { any(&mut r) };
            if [a, b, c].iter().any(|&x| !half.widen(x).is_finite()) {
                continue;
            }
            let [x, y, z] = [a, b, c].map(|v| f64::from(half.widen(v)));
            judge(half, &format!("{half:?} {x:e} + {y:e}"), add(half, a, b, PLAIN), &[(x, 1.0), (y, 1.0)]);
            judge(half, &format!("{half:?} {x:e} - {y:e}"), sub(half, a, b, PLAIN), &[(x, 1.0), (y, -1.0)]);
            judge(half, &format!("{half:?} {x:e} * {y:e}"), mul(half, a, b, PLAIN), &[(x, y)]);
            judge(half, &format!("{half:?} {x:e} * {y:e} + {z:e}"), fma(half, a, b, c, PLAIN), &[(x, y), (z, 1.0)]);
        }
    }
}

#[test]
fn an_fma_that_two_roundings_would_spoil() {
    // 1.000000001b squared is 1 + 2^-9 + 2^-20, just above a tie of f16 (2^-10 apart): the product rounded first
    // would tie the other way after adding 2^-11.
    let [a, c] = [1.0 + 2f64.powi(-10), 2f64.powi(-11)].map(|x| Format::F16.narrow(x, Rounding::Rn, false) as u16);
    let exact = (1.0 + 2f64.powi(-10)).powi(2) + 2f64.powi(-11);
    assert_eq!(u32::from(fma(Half::F16, a, a, c, PLAIN)), Format::F16.narrow(exact, Rounding::Rn, false));
    assert_ne!(fma(Half::F16, a, a, c, PLAIN), add(Half::F16, mul(Half::F16, a, a, PLAIN), c, PLAIN));
}

#[test]
fn finishing_clamps_flushes_and_rectifies() {
    let f16 = |x: f32| f32_to_f16(x);
    let sat = Finish { sat: true, ..PLAIN };
    let relu = Finish { relu: true, ..PLAIN };
    let ftz = Finish { ftz: true, ..PLAIN };
    assert_eq!(add(Half::F16, f16(1.0), f16(1.0), sat), f16(1.0));
    assert_eq!(add(Half::F16, f16(-1.0), f16(0.5), sat), 0);
    assert_eq!(add(Half::F16, 0x7c00, 0xfc00, sat), 0);
    assert_eq!(fma(Half::F16, f16(2.0), f16(-3.0), f16(1.0), relu), 0);
    assert_eq!(fma(Half::Bf16, 0x7f80, 0, 0, relu), 0x7fff);
    assert_eq!(fma(Half::Bf16, 0x3f80, 0x3f80, 0x3f80, relu), 0x4000);
    // Twice the least subnormal number is subnormal; so is half the least normal number.
    assert_eq!((add(Half::F16, 1, 1, PLAIN), add(Half::F16, 1, 1, ftz)), (2, 0));
    assert_eq!(mul(Half::F16, 0x8400, f16(0.5), ftz), 0x8000);
    assert_eq!(
        (neg(Half::F16, 0x3c00, false), neg(Half::F16, 3, true), abs(Half::Bf16, 0xbf80, false)),
        (0xbc00, 0x8000, 0x3f80)
    );
}

#[test]
fn extrema_and_pairs() {
    use Extremum::{Max, Min};
    assert_eq!(extremum(Max, Half::F16, 0x7e00, 0x3c00, false, false, false), 0x3c00);
    assert_eq!(extremum(Max, Half::F16, 0x7e00, 0x3c00, false, true, false), 0x7fff);
    assert_eq!(extremum(Min, Half::Bf16, 0x0000, 0x8000, false, false, false), 0x8000);
    assert_eq!(extremum(Min, Half::F16, 0xc000, 0x3c00, false, false, true), 0xbc00);
    assert_eq!(map2(0x3c00_4000, 0x3c00_3c00, |a, b| add(Half::F16, a, b, PLAIN)), 0x4000_4200);
    assert_eq!(map1(0x3c00_c000, |a| neg(Half::F16, a, false)), 0xbc00_4000);
    assert_eq!(map3(0x3f80_4000, 0x3f80_3f80, 0, |a, b, c| fma(Half::Bf16, a, b, c, PLAIN)), 0x3f80_4000);
    assert_eq!(convert_pair(Half::F16, 1.0, 2.0, Rounding::Rn, false, false), 0x3c00_4000);
    assert_eq!(convert_pair(Half::Bf16, -1.0, f32::NAN, Rounding::Rn, true, false), 0x0000_7fff);
    assert_eq!(convert_pair(Half::F16, 1e6, -1e6, Rounding::Rn, false, true), 0x7bff_fbff);
    assert_eq!(convert_pair(Half::F16, 65519.0, 1.0, Rounding::Rz, false, false), 0x7bff_3c00);
}
