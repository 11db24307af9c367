//! Conversions of integers, compared with exact sums and wider integers; NaN and out-of-range floats, with the ISA

use super::*;
use crate::units::testing::{DIRECTED, Random, assert_rounded, f32_steps};
use std::cmp::Ordering;

const MODES: [IntRounding; 4] = [IntRounding::Rni, IntRounding::Rzi, IntRounding::Rmi, IntRounding::Rpi];

/// Compares an integer with a finite float exactly.
fn order(x: i128, y: f64) -> Ordering {
    // Floats beyond 2^100 exceed every tested integer in magnitude; the integral part of smaller floats is exact in
    // i128.
    if y.abs() > 2f64.powi(100) {
        return if y > 0.0 { Ordering::Less } else { Ordering::Greater };
    }
    let floor = y.floor();
    x.cmp(&(floor as i128)).then(if y > floor { Ordering::Less } else { Ordering::Equal })
}

fn any_integer(r: &mut Random) -> i128 {
    let bits = r.u64() >> r.below(64);
    let near = bits.wrapping_add((1u64 << 40).wrapping_mul(r.below(2)));
    match r.below(4) {
        0 => i128::from(bits),
        1 => i128::from(bits as i64),
        2 => -i128::from(near >> 1),
        _ => i128::from(near),
    }
}

#[test]
fn integers_become_floats_in_every_mode() {
    let mut r = Random(81);
    for _ in 0..50_000 {
        let x = any_integer(&mut r);
        for mode in DIRECTED {
            let middle = |x: i128| move |y: f64, z: f64| order(2 * x, y + z);
            let what = format!("{x}");
            assert_rounded(&what, int_to_f32(x, mode).into(), mode, f32_steps(), |y| order(x, y), middle(x));
            // The sum of two neighbouring f64 may not fit an f64, so they are compared as integers.
            let middle = |y: f64, z: f64| (2 * x).cmp(&(y as i128 + z as i128));
            let steps = (f64::next_down, f64::next_up);
            assert_rounded(&what, int_to_f64(x, mode), mode, steps, |y| order(x, y), middle);
        }
        assert_eq!(int_to_f32(x, Rounding::Rn).to_bits(), (x as f32).to_bits());
    }
    assert_eq!(int_to_format(65520, Format::F16, Rounding::Rn), 0x7c00);
    assert_eq!(int_to_format(65520, Format::F16, Rounding::Rz), 0x7bff);
    assert_eq!(int_to_format(-3, Format::Bf16, Rounding::Rn), 0xc040);
    // This integer is 1 above a tie, a difference that f64 cannot represent.
    assert_eq!(int_to_format((1 << 62) + (1 << 54) + 1, Format::Bf16, Rounding::Rn), 0x5e81);
}

#[test]
fn floats_become_integers_and_clamp() {
    let to = |x: f64, mode, width, signed| float_to_int(x, mode, width, signed, false);
    let halves = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.75, -2.75];
    let expected = [
        [-2, -2, 0, 0, 2, 2, 3, -3],
        [-2, -1, 0, 0, 1, 2, 2, -2],
        [-3, -2, -1, 0, 1, 2, 2, -3],
        [-2, -1, 0, 1, 2, 3, 3, -2],
    ];
    for (mode, expected) in MODES.into_iter().zip(expected) {
        assert_eq!(halves.map(|x| to(x, mode, 32, true) as i64), expected, "{mode:?}");
    }
    for width in [8, 16, 32, 64] {
        let (max_u, max_s) = (u64::MAX >> (64 - width), (i64::MAX >> (64 - width)) as u64);
        for mode in MODES {
            assert_eq!((to(1e30, mode, width, false), to(-1e30, mode, width, false)), (max_u, 0));
            assert_eq!((to(f64::INFINITY, mode, width, true), to(-1e30, mode, width, true)), (max_s, !max_s));
            assert_eq!(to(-1.0, mode, width, false), 0);
        }
    }
    let mut r = Random(82);
    for _ in 0..50_000 {
        let x = r.f64();
        if x.is_nan() {
            continue;
        }
        for mode in MODES {
            // The expected value, by definition: x rounded down or up as the mode selects, in 128 bits, then clamped to
            // the type.
            let clamped = x.clamp(-1e25, 1e25);
            let (low, rest) = (clamped.floor() as i128, clamped - clamped.floor());
            let up = match mode {
                IntRounding::Rni => rest > 0.5 || rest == 0.5 && low % 2 != 0,
                IntRounding::Rzi => rest > 0.0 && low < 0,
                IntRounding::Rmi => false,
                IntRounding::Rpi => rest > 0.0,
            };
            let value = low + i128::from(up);
            for width in [8, 16, 32, 64] {
                let (max_u, max_s) = (u64::MAX >> (64 - width), i64::MAX >> (64 - width));
                assert_eq!(to(x, mode, width, false), value.clamp(0, max_u.into()) as u64, "{x:e} {mode:?} u{width}");
                let expected = value.clamp(!i128::from(max_s), max_s.into()) as i64;
                assert_eq!(to(x, mode, width, true) as i64, expected, "{x:e} {mode:?} s{width}");
            }
        }
    }
}

#[test]
fn nan_becomes_zero_or_the_top_bit() {
    let of = |width, signed, from_f64| float_to_int(f64::NAN, IntRounding::Rni, width, signed, from_f64);
    assert_eq!([of(32, true, false), of(32, false, false), of(8, true, false)], [0, 0, 0]);
    assert_eq!([of(64, true, false), of(64, false, false)], [1 << 63, 1 << 63]);
    assert_eq!([of(32, true, true) as i64, of(16, true, true) as i64], [i32::MIN.into(), i16::MIN.into()]);
    assert_eq!([of(32, false, true), of(8, false, true)], [1 << 31, 1 << 7]);
}

#[test]
fn integral_floats_keep_signs_and_specials() {
    assert_eq!(MODES.map(|m| round_f32(-0.5, m).to_bits()), [-0.0f32, -0.0, -1.0, -0.0].map(f32::to_bits));
    assert_eq!(MODES.map(|m| round_f64(2.5, m)), [2.0, 2.0, 2.0, 3.0]);
    assert_eq!(round_f32(f32::NEG_INFINITY, IntRounding::Rni), f32::NEG_INFINITY);
    assert_eq!(round_f32(-f32::NAN, IntRounding::Rzi).to_bits(), 0x7fff_ffff);
}
