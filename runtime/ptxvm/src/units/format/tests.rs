//! Every 8- and 16-bit pattern and every boundary between neighbours, compared with a search of the sorted values

use super::*;
use crate::units::testing::{DIRECTED, Random};

/// The value of a pattern in f64, computed from its fields by the definition of the format.
fn value(format: Format, bits: u32) -> f64 {
    let l = format.layout();
    let width = l.exponent_bits + l.mantissa_bits;
    let bits = bits >> l.shift;
    let exponent = (bits >> l.mantissa_bits & ((1 << l.exponent_bits) - 1)) as i32;
    let mantissa = f64::from(bits & ((1 << l.mantissa_bits) - 1)) / f64::from(1 << l.mantissa_bits);
    let bias = (1 << (l.exponent_bits - 1)) - 1;
    let top = (1 << l.exponent_bits) - 1;
    let magnitude = match (exponent, l.infinity) {
        (0, _) => mantissa * 2f64.powi(1 - bias),
        (e, true) if e == top => {
            if mantissa == 0.0 {
                f64::INFINITY
            } else {
                f64::NAN
            }
        }
        (e, false) if e == top && mantissa == 0.875 => f64::NAN,
        (e, _) => (1.0 + mantissa) * 2f64.powi(e - bias),
    };
    if bits >> width & 1 == 1 { -magnitude } else { magnitude }
}

const FORMATS: [(Format, u32); 4] =
    [(Format::F16, 1 << 16), (Format::Bf16, 1 << 16), (Format::E4m3, 1 << 8), (Format::E5m2, 1 << 8)];

#[test]
fn widening_gives_the_value_of_every_pattern() {
    for (format, n) in FORMATS {
        for bits in 0..n {
            let (wide, expected) = (format.widen(bits), value(format, bits));
            assert!(
                wide.is_nan() && expected.is_nan() || f64::from(wide).to_bits() == expected.to_bits(),
                "{format:?} {bits:#x}"
            );
        }
    }
    for bits in 0..1u16 << 15 {
        let (ours, theirs) = (f16_to_f32(bits), half::f16::from_bits(bits).to_f32());
        assert!(ours.is_nan() && theirs.is_nan() || ours.to_bits() == theirs.to_bits(), "{bits:#x}");
    }
}

/// Rounds by search among the sorted non-negative finite values: a value's index in the list is its bit pattern.
fn search(format: Format, sorted: &[f64], x: f64, rounding: Rounding, satfinite: bool) -> u32 {
    let l = format.layout();
    let sign = u32::from(x.is_sign_negative()) << (l.exponent_bits + l.mantissa_bits);
    let magnitude = x.abs();
    let last = sorted.len() - 1;
    let below = sorted.partition_point(|&v| v <= magnitude) - 1;
    // Above the largest finite value, the value one step further is the upper neighbour; a result rounded up to it
    // becomes infinity.
    let step = sorted[last] - sorted[last - 1];
    let next = if below == last { sorted[last] + step } else { sorted[below + 1] };
    let up = match rounding {
        _ if magnitude == sorted[below] => false,
        Rounding::Rn => {
            let (low, high) = (magnitude - sorted[below], next - magnitude);
            low > high || low == high && below % 2 == 1
        }
        Rounding::Rna => magnitude - sorted[below] >= next - magnitude,
        Rounding::Rz => false,
        Rounding::Rm => x < 0.0,
        Rounding::Rp => x > 0.0,
    };
    let position = if x.is_infinite() { last + 1 } else { below + usize::from(up) };
    (sign | if satfinite { position.min(last) } else { position } as u32) << l.shift
}

#[test]
fn narrowing_rounds_every_boundary_as_the_search_does() {
    let mut r = Random(7);
    for (format, n) in FORMATS {
        let sorted: Vec<f64> = (0..n / 2).map(|bits| value(format, bits)).take_while(|v| v.is_finite()).collect();
        assert!(sorted.is_sorted());
        let next = |i: usize| sorted.get(i + 1).copied().unwrap_or_else(|| 2.0 * sorted[i] - sorted[i - 1]);
        for i in 0..sorted.len() {
            let (low, middle) = (sorted[i], (sorted[i] + next(i)) / 2.0);
            let inside = low + (next(i) - low) * (r.below(1 << 20) as f64 / (1 << 20) as f64);
            for x in [low, low.next_up(), middle.next_down(), middle, middle.next_up(), inside] {
                for x in [x, -x] {
                    for mode in DIRECTED.into_iter().chain([Rounding::Rna]) {
                        for satfinite in [false, true] {
                            let expected = search(format, &sorted, x, mode, satfinite);
                            assert_eq!(format.narrow_any(x, mode, satfinite), expected, "{format:?} {x:e} {mode:?}");
                            assert_eq!(
                                format.narrow(x, mode, satfinite),
                                expected,
                                "{format:?} {x:e} {mode:?} {satfinite}"
                            );
                        }
                    }
                }
            }
        }
        for x in [f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -1e300, 1e-300, -f64::MIN_POSITIVE, 5e-324] {
            for mode in DIRECTED.into_iter().chain([Rounding::Rna]) {
                let expected = search(format, &sorted, x, mode, true);
                assert_eq!(format.narrow(x, mode, true), expected, "{format:?} {x:e} {mode:?}");
            }
        }
        assert_eq!(format.narrow(f64::NAN, Rounding::Rn, true), format.nan());
    }
    assert_eq!(Format::F16.narrow(65520.0, Rounding::Rn, false), 0x7c00);
    assert_eq!(Format::F16.narrow(65520.0, Rounding::Rz, false), 0x7bff);
    assert_eq!(Format::E4m3.narrow(1e9, Rounding::Rn, false), 0x7f);
    assert_eq!(Format::E4m3.narrow(-1e9, Rounding::Rn, true), 0xfe);
    assert_eq!(Format::E5m2.narrow(f64::INFINITY, Rounding::Rn, true), 0x7b);
}

#[test]
fn fast_conversions_agree_with_the_general_one_and_with_half() {
    let mut r = Random(8);
    let near_f16 = |r: &mut Random| {
        let tie = 0x1000 * r.below(2) as u32;
        (f16_to_f32(r.u32() as u16).to_bits() + tie).wrapping_add(r.below(5) as u32).wrapping_sub(2)
    };
    for i in 0..400_000 {
        let x = match i % 3 {
            0 => r.f32(),
            1 => f32::from_bits(near_f16(&mut r)),
            _ => f32::from_bits((r.u32() & 0xffff_0000).wrapping_add(0x7fff + r.below(3) as u32)),
        };
        assert_eq!(u32::from(f32_to_f16(x)), Format::F16.narrow_any(x.into(), Rounding::Rn, false), "{x:e}");
        assert_eq!(u32::from(f32_to_bf16(x)), Format::Bf16.narrow_any(x.into(), Rounding::Rn, false), "{x:e}");
        assert_eq!(f32_to_tf32(x), Format::Tf32.narrow(x.into(), Rounding::Rna, false), "{x:e}");
        if !x.is_nan() {
            assert_eq!(f32_to_f16(x), half::f16::from_f32(x).to_bits(), "{x:e}");
            assert_eq!(f32_to_bf16(x), half::bf16::from_f32(x).to_bits(), "{x:e}");
        }
    }
    for bits in 0..=u16::MAX {
        if bits & 0x7fff <= 0x7c00 {
            assert_eq!(f32_to_f16(f16_to_f32(bits)), bits);
        }
        if bits & 0x7fff <= 0x7f80 {
            assert_eq!(f32_to_bf16(bf16_to_f32(bits)), bits);
        }
    }
}

#[test]
fn tf32_ignores_and_clears_the_low_bits() {
    assert_eq!(Format::Tf32.widen(0x3f80_1fff), 1.0);
    assert_eq!(f32_to_tf32(f32::from_bits(0x3f80_0fff)), 0x3f80_0000);
    assert_eq!(f32_to_tf32(f32::from_bits(0x3f80_1000)), 0x3f80_2000);
    assert_eq!(Format::Tf32.narrow(f32::MAX.into(), Rounding::Rn, true), 0x7f7f_e000);
    assert_eq!(f32_to_tf32(f32::NAN), 0x7fff_ffff);
}

#[test]
fn relu_keeps_nan_and_drops_negative_values() {
    assert_eq!([-1.0, -0.0, 2.0].map(|x| relu(x).to_bits()), [0, 0, 2f32.to_bits()]);
    assert_eq!(relu(-f32::NAN).to_bits(), 0x7fff_ffff);
}

/// Results of `cvt` on constants as folded by NVIDIA's assembler (ptxas of CUDA 13.5): f32, f16, bf16, tf32.
#[test]
fn results_agree_with_the_constants_that_an_assembler_folds() {
    let folded = [
        (0x7fc0_0000, 0x7fff, 0x7fff, 0x7fc0_0000),
        (0xffc0_0000, 0x7fff, 0x7fff, 0xffc0_0000),
        (0x477f_f000, 0x7c00, 0x4780, 0x4780_0000),
        (0x477f_efff, 0x7bff, 0x4780, 0x477f_e000),
        (0x3300_0000, 0x0, 0x3300, 0x3300_0000),
        (0x3300_0001, 0x1, 0x3300, 0x3300_0000),
        (0x387f_e000, 0x400, 0x3880, 0x387f_e000),
        (0x7f80_0000, 0x7c00, 0x7f80, 0x7f80_0000),
        (0x3f80_1000, 0x3c00, 0x3f80, 0x3f80_2000),
        (0x3f80_3000, 0x3c02, 0x3f80, 0x3f80_4000),
        (0x3f81_8000, 0x3c0c, 0x3f82, 0x3f81_8000),
        (0x3f80_8000, 0x3c04, 0x3f80, 0x3f80_8000),
    ];
    for (x, f16, bf16, tf32) in folded {
        let x = f32::from_bits(x);
        assert_eq!((f32_to_f16(x), f32_to_bf16(x)), (f16, bf16), "{x:e}");
        // GPUs may return another NaN for tf32, so NaN is not compared.
        assert!(x.is_nan() || f32_to_tf32(x) == tf32, "{x:e}");
    }
}
