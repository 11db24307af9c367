//! contractions of dequantised bytes, with all signs and zero points  =>  the same numbers from byte contractions

use super::groups::are_numbers;
use crate::validate::{validated, validated_for};
use sardonyx_base::{DType, Tensor};
use sardonyx_dialects::flow::Source;
use sardonyx_kernels::Target;
use sardonyx_kernels::target::Class;
use std::collections::BTreeMap;

/// Returns a target that multiplies unsigned by signed bytes only, and a target that multiplies bytes of any signs.
fn targets() -> [Target; 2] {
    ["cpu", "cuda:sm_80"].map(|name| Target::from_name(name).unwrap())
}

/// Builds (x - zx) · sx times (w - zw) · sw[n] in f32, or without scales in i32.
fn product(left: &str, right: &str, [zx, zw]: [i64; 2], float: bool) -> String {
    let (wide, scaled) = if float { ("f32", true) } else { ("i32", false) };
    let factor = |name: &str, from: &str, dims: &str, zero: i64, scale: &str| {
        let end = match scaled {
            true => format!(
                "%{name}f = sdx.convert %{name}d : !sdx.tensor<{dims}, i32> -> !sdx.tensor<{dims}, f32>
                 {scale}
                 %{name}w = sdx.map \"mul\"(%{name}f, %{name}s) : (!sdx.tensor<{dims}, f32>, !sdx.tensor<{dims}, f32>) -> !sdx.tensor<{dims}, f32>"
            ),
            false => String::new(),
        };
        format!(
            "%{name}i = sdx.convert %{name} : !sdx.tensor<{dims}, {from}> -> !sdx.tensor<{dims}, i32>
             %{name}c = sdx.const dense<{zero}> : tensor<i32> : !sdx.tensor<[], i32>
             %{name}z = sdx.broadcast %{name}c to [] : !sdx.tensor<[], i32> -> !sdx.tensor<{dims}, i32>
             %{name}d = sdx.map \"sub\"(%{name}i, %{name}z) : (!sdx.tensor<{dims}, i32>, !sdx.tensor<{dims}, i32>) -> !sdx.tensor<{dims}, i32>
             {end}"
        )
    };
    let last = if scaled { "w" } else { "d" };
    let x = factor(
        "x",
        left,
        "[m, 20]",
        zx,
        "%xs = sdx.broadcast %s to [] : !sdx.tensor<[], f32> -> !sdx.tensor<[m, 20], f32>",
    );
    let w = factor(
        "w",
        right,
        "[20, 9]",
        zw,
        "%ws = sdx.broadcast %t to [1] : !sdx.tensor<[9], f32> -> !sdx.tensor<[20, 9], f32>",
    );
    format!(
        "func.func @f(%x: !sdx.tensor<[m, 20], {left}>, %s: !sdx.tensor<[], f32>) -> !sdx.tensor<[m, 9], {wide}> {{
           %w = sdx.param \"w\" : !sdx.tensor<[20, 9], {right}>
           %t = sdx.param \"t\" : !sdx.tensor<[9], f32>
           {x}
           {w}
           %y = sdx.contract \"mk,kn->mn\"(%x{last}, %w{last}) : (!sdx.tensor<[m, 20], {wide}>, !sdx.tensor<[20, 9], {wide}>) -> !sdx.tensor<[m, 9], {wide}>
           return %y : !sdx.tensor<[m, 9], {wide}>
         }}"
    )
}

#[test]
fn every_sign_and_zero_point() {
    for (left, right) in [("ui8", "i8"), ("ui8", "ui8"), ("i8", "i8"), ("i8", "ui8")] {
        for zeros in [[0, 0], [7, 0], [0, 11], [100, 119]] {
            for (float, target) in [false, true].into_iter().flat_map(|float| targets().map(|target| (float, target))) {
                let text = product(left, right, zeros, float);
                let what = format!("{left} {right} {zeros:?} {float} {target:?}");
                let passes = "sdx-to-flow,inline-maps,int8-contractions";
                let (rules, checks) = validated_for(target, &text, passes).expect(&what);
                assert!(rules.contains(&"bytes") && !checks.contains("skipped"), "{what}: {rules:?} {checks}");
            }
        }
    }
}

/// A zero point outside the range of a byte could overflow i32 accumulators.
#[test]
fn far_zero_points_stay() {
    let text = product("ui8", "i8", [1 << 30, 0], true);
    let (rules, _) = validated(&text, "sdx-to-flow,inline-maps,int8-contractions").unwrap();
    assert!(!rules.contains(&"bytes"), "{rules:?}");
}

/// The padding of an image becomes its zero point, if that is a byte of the image's type.
#[test]
fn padded_images() {
    for (from, zero, applies) in [("ui8", 7, true), ("i8", -7, true), ("ui8", -7, false)] {
        let text = format!(
            "!p = !sdx.tensor<[n, 10, 8], i32>
             func.func @f(%x: !sdx.tensor<[n, 8, 8], {from}>) -> !sdx.tensor<[n, 8, 16], i32> {{
               %w = sdx.param \"w\" : !sdx.tensor<[16, 3, 8], i8>
               %0 = sdx.convert %x : !sdx.tensor<[n, 8, 8], {from}> -> !sdx.tensor<[n, 8, 8], i32>
               %c = sdx.const dense<{zero}> : tensor<i32> : !sdx.tensor<[], i32>
               %z = sdx.broadcast %c to [] : !sdx.tensor<[], i32> -> !sdx.tensor<[n, 8, 8], i32>
               %1 = sdx.map \"sub\"(%0, %z) : (!sdx.tensor<[n, 8, 8], i32>, !sdx.tensor<[n, 8, 8], i32>) -> !sdx.tensor<[n, 8, 8], i32>
               %nothing = sdx.const dense<0> : tensor<i32> : !sdx.tensor<[], i32>
               %2 = sdx.pad %1 with %nothing low [\"0\", \"1\", \"0\"] : (!sdx.tensor<[n, 8, 8], i32>, !sdx.tensor<[], i32>) -> !p
               %3 = sdx.window %2 axis 1 size \"3\" stride 1 dilation 1 : !p -> !sdx.tensor<[n, 8, 8, 3], i32>
               %4 = sdx.convert %w : !sdx.tensor<[16, 3, 8], i8> -> !sdx.tensor<[16, 3, 8], i32>
               %5 = sdx.contract \"nhci,oic->nho\"(%3, %4) : (!sdx.tensor<[n, 8, 8, 3], i32>, !sdx.tensor<[16, 3, 8], i32>) -> !sdx.tensor<[n, 8, 16], i32>
               return %5 : !sdx.tensor<[n, 8, 16], i32>
             }}"
        );
        let (rules, _) = validated(&text, "sdx-to-flow,inline-maps,int8-contractions").expect(from);
        assert_eq!(rules.contains(&"bytes"), applies, "{from} {zero}: {rules:?}");
    }
}

/// The forms of the left factor of a contraction in groups.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Left {
    Floats,
    /// Bytes with one scale for each row.
    Rows,
    /// Bytes with one scale for each row and group.
    Groups,
}

/// Builds x[m, 48] times (convert(w) - z) · s[g, n] + t[g, n] in three groups of 16.
fn in_groups(codes: &str, zero: Option<i64>, added: bool, left: Left) -> String {
    let of = |name: &str, from: &str, dims: &str| {
        format!("%{name} = sdx.broadcast %{from} to [0, 2] : !sdx.tensor<[3, 9], f32> -> !sdx.tensor<{dims}, f32>")
    };
    let both =
        |f: &str, result: &str, a: &str, b: &str| format!("%{result} = sdx.map \"{f}\"(%{a}, %{b}) : (!w, !w) -> !w");
    let zero = match zero {
        Some(zero) => format!(
            "%z0 = sdx.const dense<{zero}.0> : tensor<f32> : !sdx.tensor<[], f32>
             %z = sdx.broadcast %z0 to [] : !sdx.tensor<[], f32> -> !w
             {}",
            both("sub", "d", "c", "z")
        ),
        None => "%d = sdx.reshape %c : !w -> !w".to_string(),
    };
    let added = match added {
        true => format!("{}\n{}", of("t0", "t", "[3, 16, 9]"), both("add", "v", "p", "t0")),
        false => "%v = sdx.reshape %p : !w -> !w".to_string(),
    };
    let bytes = |dims: &str, row: &str, at: &str| {
        format!(
            "%most = sdx.const dense<1.2e2> : tensor<f32> : !sdx.tensor<[], f32>
             %wide = sdx.broadcast %most to [] : !sdx.tensor<[], f32> -> !sdx.tensor<{dims}, f32>
             %xd = sdx.reshape %xb : !x -> !sdx.tensor<{dims}, f32>
             %x0 = sdx.map \"mul\"(%xd, %wide) : (!sdx.tensor<{dims}, f32>, !sdx.tensor<{dims}, f32>) -> !sdx.tensor<{dims}, f32>
             %x1 = sdx.map \"round\"(%x0) : (!sdx.tensor<{dims}, f32>) -> !sdx.tensor<{dims}, f32>
             %x2 = sdx.convert %x1 : !sdx.tensor<{dims}, f32> -> !sdx.tensor<{dims}, i8>
             %xc = sdx.convert %x2 : !sdx.tensor<{dims}, i8> -> !sdx.tensor<{dims}, f32>
             %xs = sdx.broadcast %r to {at} : !sdx.tensor<{row}, f32> -> !sdx.tensor<{dims}, f32>
             %xp = sdx.map \"mul\"(%xc, %xs) : (!sdx.tensor<{dims}, f32>, !sdx.tensor<{dims}, f32>) -> !sdx.tensor<{dims}, f32>
             %x = sdx.reshape %xp : !sdx.tensor<{dims}, f32> -> !x"
        )
    };
    let (row, left) = match left {
        Left::Floats => ("[m]", "%x = sdx.reshape %xb : !x -> !x".to_string()),
        Left::Rows => ("[m]", bytes("[m, 48]", "[m]", "[0]")),
        Left::Groups => ("[m, 3]", bytes("[m, 3, 16]", "[m, 3]", "[0, 1]")),
    };
    format!(
        "!w = !sdx.tensor<[3, 16, 9], f32>
         !x = !sdx.tensor<[m, 48], f32>
         func.func @f(%xb: !x, %r: !sdx.tensor<{row}, f32>) -> !sdx.tensor<[m, 9], f32> {{
           %w = sdx.param \"w\" : !sdx.tensor<[3, 16, 9], {codes}>
           %s = sdx.param \"s\" : !sdx.tensor<[3, 9], f32>
           %t = sdx.param \"t\" : !sdx.tensor<[3, 9], f32>
           %c = sdx.convert %w : !sdx.tensor<[3, 16, 9], {codes}> -> !w
           {zero}
           {}
           {}
           {added}
           %u = sdx.reshape %v : !w -> !sdx.tensor<[48, 9], f32>
           {left}
           %y = sdx.contract \"mk,kn->mn\"(%x, %u) : (!x, !sdx.tensor<[48, 9], f32>) -> !sdx.tensor<[m, 9], f32>
           return %y : !sdx.tensor<[m, 9], f32>
         }}",
        of("s0", "s", "[3, 16, 9]"),
        both("mul", "p", "d", "s0"),
    )
}

#[test]
fn codes_with_a_scale_for_each_group() {
    for codes in ["i4", "ui4", "i8", "ui8", "f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ"] {
        for (zero, added) in [(None, false), (Some(8), false), (Some(3), false), (None, true), (Some(128), true)] {
            let lefts = [Left::Floats, Left::Rows, Left::Groups];
            for (left, target) in lefts.into_iter().flat_map(|left| targets().map(|target| (left, target))) {
                let text = in_groups(codes, zero, added, left);
                let what = format!("{codes} {zero:?} {added} {left:?} {target:?}");
                let passes = "sdx-to-flow,inline-maps,int8-contractions";
                let (rules, checks) = validated_for(target, &text, passes).expect(&what);
                // GPU kernels do not decode floats of 8 bits.
                let taken = !codes.starts_with('f') || target.class() == Class::Cpu;
                assert!(
                    rules.contains(&"groups") == taken && !checks.contains("skipped"),
                    "{what}: {rules:?} {checks}"
                );
            }
        }
    }
}

/// Codes of NaN or infinity are detected, because the kernels would decode them as finite numbers.
#[test]
fn codes_that_are_no_numbers_are_seen() {
    for (dtype, none) in [(DType::F8E4M3FN, 0x7f), (DType::F8E4M3FNUZ, 0x80), (DType::F8E5M2, 0xfc)] {
        for (code, numbers) in [(0x33, true), (none, false)] {
            let codes = Tensor::new(dtype, vec![3], vec![0x12, code, 0xb4].into()).unwrap();
            let params = BTreeMap::from([("w".to_string(), codes)]);
            assert_eq!(are_numbers(&Source::one("w"), &params), numbers, "{dtype} {code:#x}");
            assert!(are_numbers(&Source::one("not made yet"), &params));
        }
    }
}
