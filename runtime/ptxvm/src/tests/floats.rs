//! Floating-point arithmetic, comparisons and conversions through PTX text

use super::{check_doubles, check_words};

const ONE: u32 = 0x3f80_0000;
const TWO: u32 = 0x4000_0000;
const NAN: u32 = 0x7fff_ffff;
const TINY: u32 = 0x0000_0100;

/// Wraps `body`, which computes %f4 from %f1, %f2 and %f3, into a text that computes %r4 from %r1, %r2 and %r3.
fn floats(body: &str) -> String {
    format!("mov.b32 %f1, %r1; mov.b32 %f2, %r2; mov.b32 %f3, %r3; {body} mov.b32 %r4, %f4;")
}

#[track_caller]
fn check(rows: &[(&str, [u32; 3], u32)]) {
    for (body, inputs, expected) in rows {
        check_words(&[(&floats(body), *inputs, *expected)]);
    }
}

#[test]
fn arithmetic_of_f32() {
    check(&[
        ("add.f32 %f4, %f1, %f2;", [ONE, ONE, 0], TWO),
        ("sub.f32 %f4, %f1, %f2;", [TWO, ONE, 0], ONE),
        ("add.ftz.f32 %f4, %f1, %f2;", [TINY, 0, 0], 0),
        ("add.rp.f32 %f4, %f1, %f2;", [ONE, TINY, 0], ONE + 1),
        ("add.sat.f32 %f4, %f1, %f2;", [TWO, ONE, 0], ONE),
        ("mul.rn.f32 %f4, %f1, 0f40000000;", [ONE, 0, 0], TWO),
        ("fma.rn.f32 %f4, %f1, %f2, %f3;", [0x3f80_0001, 0x3f80_0001, 0xbf80_0002], 0x2880_0000),
        ("fma.rm.f32 %f4, %f1, %f2, %f3;", [ONE, ONE, TINY], ONE),
        ("mad.rn.f32 %f4, %f1, %f2, %f3;", [TWO, TWO, ONE], 0x40a0_0000),
        ("div.rn.f32 %f4, %f1, %f2;", [ONE, 0x4040_0000, 0], 0x3eaa_aaab),
        ("div.full.f32 %f4, %f1, %f2;", [ONE, TWO, 0], 0x3f00_0000),
        ("min.f32 %f4, %f1, %f2;", [NAN, ONE, 0], ONE),
        ("max.NaN.f32 %f4, %f1, %f2;", [NAN, ONE, 0], NAN),
        ("neg.f32 %f4, %f1;", [ONE, 0, 0], ONE | 0x8000_0000),
        ("abs.f32 %f4, %f1;", [ONE | 0x8000_0000, 0, 0], ONE),
        ("copysign.f32 %f4, %f1, %f2;", [0x8000_0000, ONE, 0], ONE | 0x8000_0000),
        ("rcp.approx.f32 %f4, %f1;", [TWO, 0, 0], 0x3f00_0000),
        ("rcp.rn.f32 %f4, %f1;", [0x4040_0000, 0, 0], 0x3eaa_aaab),
        ("sqrt.rn.f32 %f4, %f1;", [TWO, 0, 0], 0x3fb5_04f3),
        ("rsqrt.approx.ftz.f32 %f4, %f1;", [TINY, 0, 0], 0x7f80_0000),
        ("ex2.approx.f32 %f4, %f1;", [ONE, 0, 0], TWO),
        ("lg2.approx.f32 %f4, %f1;", [TWO, 0, 0], ONE),
        ("sin.approx.f32 %f4, %f1;", [0, 0, 0], 0),
        ("cos.approx.f32 %f4, %f1;", [0, 0, 0], ONE),
        ("tanh.approx.f32 %f4, %f1;", [0x4180_0000, 0, 0], ONE),
        ("selp.f32 %f4, 0f3F800000, %f2, 1;", [0, TWO, 0], ONE),
    ]);
}

#[test]
fn comparisons_of_f32() {
    let rows = [
        ("lt", ONE, TWO, 1),
        ("lt", NAN, TWO, 0),
        ("ltu", NAN, TWO, 1),
        ("eq", NAN, NAN, 0),
        ("equ", NAN, NAN, 1),
        ("ne", NAN, ONE, 0),
        ("neu", NAN, ONE, 1),
        ("geu", ONE, TWO, 0),
        ("num", ONE, TWO, 1),
        ("nan", ONE, NAN, 1),
        ("eq", 0, 0x8000_0000, 1),
    ];
    for (name, a, b, expected) in rows {
        let body =
            format!("mov.b32 %f1, %r1; mov.b32 %f2, %r2; setp.{name}.f32 %p1, %f1, %f2; selp.b32 %r4, 1, 0, %p1;");
        check_words(&[(&body, [a, b, 0], expected)]);
    }
    check_words(&[
        ("mov.b32 %f1, %r1; testp.subnormal.f32 %p1, %f1; selp.b32 %r4, 1, 0, %p1;", [TINY, 0, 0], 1),
        ("mov.b32 %f1, %r1; testp.notanumber.f32 %p1, %f1; selp.b32 %r4, 1, 0, %p1;", [ONE, 0, 0], 0),
    ]);
}

#[test]
fn conversions() {
    check_words(&[
        ("mov.b32 %f1, %r1; cvt.rni.s32.f32 %r4, %f1;", [0x4020_0000, 0, 0], 2),
        ("mov.b32 %f1, %r1; cvt.rpi.s32.f32 %r4, %f1;", [0x4020_0000, 0, 0], 3),
        ("mov.b32 %f1, %r1; cvt.rzi.u32.f32 %r4, %f1;", [0xc020_0000, 0, 0], 0),
        (
            "mov.b32 %f1, %r1; cvt.rzi.s8.f32 %h1, %f1; cvt.s32.s16 %r4, %h1;",
            [0xc3ff_0000, 0, 0],
            128u32.wrapping_neg(),
        ),
        ("cvt.rn.f32.s32 %f1, %r1; mov.b32 %r4, %f1;", [u32::MAX, 0, 0], 0xbf80_0000),
        ("cvt.rn.f32.u32 %f1, %r1; mov.b32 %r4, %f1;", [u32::MAX, 0, 0], 0x4f80_0000),
        ("mov.b32 %f1, %r1; cvt.rmi.f32.f32 %f2, %f1; mov.b32 %r4, %f2;", [0xc020_0000, 0, 0], 0xc040_0000),
        ("mov.b32 %f1, %r1; cvt.sat.f32.f32 %f2, %f1; mov.b32 %r4, %f2;", [TWO, 0, 0], ONE),
        ("mov.b32 %f1, %r1; cvt.rn.f16.f32 %h1, %f1; mov.b32 %r4, {%h1, %h1};", [ONE, 0, 0], 0x3c00_3c00),
        ("mov.b32 {%h1, %h2}, %r1; cvt.f32.f16 %f1, %h2; mov.b32 %r4, %f1;", [0x3c00_0000, 0, 0], ONE),
        ("mov.b32 {%h1, %h2}, %r1; cvt.f32.bf16 %f1, %h2; mov.b32 %r4, %f1;", [0x4000_0000, 0, 0], TWO),
        ("mov.b32 %f1, %r1; mov.b32 %f2, %r2; cvt.rn.bf16x2.f32 %r4, %f1, %f2;", [ONE, TWO, 0], 0x3f80_4000),
        ("mov.b32 %f1, %r1; mov.b32 %f2, %r2; cvt.rn.f16x2.f32 %r4, %f1, %f2;", [ONE, TWO, 0], 0x3c00_4000),
        ("mov.b32 %f1, %r1; cvt.rna.tf32.f32 %r4, %f1;", [0x3f80_1fff, 0, 0], 0x3f80_2000),
        ("cvt.s32.s8 %r4, %r1;", [0x80, 0, 0], 0xffff_ff80),
        ("cvt.u32.u8 %r4, %r1;", [0x1ff, 0, 0], 0xff),
        ("cvt.sat.u8.s32 %r4, %r1;", [300, 0, 0], 255),
        ("cvt.sat.s8.s32 %r4, %r1;", [300u32.wrapping_neg(), 0, 0], 128u32.wrapping_neg()),
        ("cvt.pack.sat.s8.s32.b32 %r4, %r1, %r2, %r3;", [300, 5, 0xabcd], 0xabcd_7f05),
    ]);
    check_doubles(&[
        (
            "mov.b64 %fd1, %rd3; cvt.rn.f32.f64 %f1, %fd1; cvt.f64.f32 %fd2, %f1; mov.b64 %rd6, %fd2;",
            [0x3fb9_9999_9999_999a, 0, 0],
            0x3fb9_9999_a000_0000,
        ),
        ("mov.b64 %fd1, %rd3; cvt.rzi.s64.f64 %rd6, %fd1;", [0xc004_0000_0000_0000, 0, 0], 2u64.wrapping_neg()),
        ("cvt.rn.f64.s64 %fd1, %rd3; mov.b64 %rd6, %fd1;", [u64::MAX, 0, 0], 0xbff0_0000_0000_0000),
        (
            "mov.b64 %fd1, %rd3; mov.b64 %fd2, %rd4; fma.rn.f64 %fd3, %fd1, %fd2, %fd2; mov.b64 %rd6, %fd3;",
            [2f64.to_bits(), 3f64.to_bits(), 0],
            9f64.to_bits(),
        ),
        (
            "mov.b64 %fd1, %rd3; mov.b64 %fd2, %rd4; div.rn.f64 %fd3, %fd1, %fd2; mov.b64 %rd6, %fd3;",
            [1f64.to_bits(), 3f64.to_bits(), 0],
            (1f64 / 3.0).to_bits(),
        ),
        (
            "mov.b64 %fd1, %rd3; sqrt.rn.f64 %fd3, %fd1; mov.b64 %rd6, %fd3;",
            [2f64.to_bits(), 0, 0],
            2f64.sqrt().to_bits(),
        ),
        (
            "mov.b64 %fd1, %rd3; setp.gt.f64 %p1, %fd1, 0d0000000000000000; selp.b64 %rd6, 7, 8, %p1;",
            [2f64.to_bits(), 0, 0],
            7,
        ),
    ]);
}

#[test]
fn halves_and_pairs() {
    check_words(&[
        ("add.rn.f16x2 %r4, %r1, %r2;", [0x3c00_4000, 0x3c00_3c00, 0], 0x4000_4200),
        ("mul.bf16x2 %r4, %r1, %r2;", [0x3f80_4000, 0x4000_4000, 0], 0x4000_4080),
        ("fma.rn.bf16x2 %r4, %r1, %r2, %r3;", [0x3f80_4000, 0x4000_4000, 0x3f80_3f80], 0x4040_40a0),
        ("fma.rn.relu.f16x2 %r4, %r1, %r2, %r3;", [0x3c00_3c00, 0xbc00_3c00, 0], 0x0000_3c00),
        ("max.f16x2 %r4, %r1, %r2;", [0x3c00_4000, 0x4000_3c00, 0], 0x4000_4000),
        ("neg.bf16x2 %r4, %r1;", [0x3f80_bf80, 0, 0], 0xbf80_3f80),
        ("mov.b32 {%h1, %h2}, %r1; add.f16 %h3, %h1, %h2; cvt.u32.u16 %r4, %h3;", [0x3c00_4000, 0, 0], 0x4200),
        ("mov.b32 {%h1, %h2}, %r1; setp.lt.f16 %p1, %h2, %h1; selp.b32 %r4, 1, 0, %p1;", [0x3c00_4000, 0, 0], 1),
        ("setp.lt.f16x2 %p1|%p2, %r1, %r2; selp.b32 %r4, 1, 0, %p2;", [0x3c00_4000, 0x4000_3c00, 0], 1),
        ("ex2.approx.f16x2 %r4, %r1;", [0x3c00_0000, 0, 0], 0x4000_3c00),
        ("tanh.approx.bf16x2 %r4, %r1;", [0x0000_4200, 0, 0], 0x0000_3f80),
    ]);
}
