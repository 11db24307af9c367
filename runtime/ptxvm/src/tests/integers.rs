//! Integer arithmetic and logic against results computed by hand

use super::{check_doubles, check_words};

const NEG: u32 = u32::MAX;

#[test]
fn arithmetic_of_words() {
    check_words(&[
        ("add.s32 %r4, %r1, %r2;", [NEG, 5, 0], 4),
        ("add.sat.s32 %r4, %r1, %r2;", [0x7fff_ffff, 5, 0], 0x7fff_ffff),
        ("sub.u32 %r4, %r1, %r2;", [3, 5, 0], NEG - 1),
        ("mul.lo.s32 %r4, %r1, %r2;", [NEG, 7, 0], 7u32.wrapping_neg()),
        ("mul.hi.s32 %r4, %r1, %r2;", [NEG, 7, 0], NEG),
        ("mul.hi.u32 %r4, %r1, %r2;", [NEG, 7, 0], 6),
        ("mul24.lo.u32 %r4, %r1, %r2;", [0xff00_0003, 5, 0], 15),
        ("mad.lo.s32 %r4, %r1, %r2, %r3;", [3, 4, 5], 17),
        ("mad.hi.u32 %r4, %r1, %r2, %r3;", [0x8000_0000, 4, 5], 7),
        ("div.s32 %r4, %r1, %r2;", [7u32.wrapping_neg(), 2, 0], 3u32.wrapping_neg()),
        ("div.u32 %r4, %r1, %r2;", [7, 0, 0], NEG),
        ("rem.s32 %r4, %r1, %r2;", [7u32.wrapping_neg(), 4, 0], 3u32.wrapping_neg()),
        ("rem.u32 %r4, %r1, %r2;", [7, 4, 0], 3),
        ("min.s32 %r4, %r1, %r2;", [NEG, 4, 0], NEG),
        ("min.u32 %r4, %r1, %r2;", [NEG, 4, 0], 4),
        ("max.s32 %r4, %r1, %r2;", [NEG, 4, 0], 4),
        ("abs.s32 %r4, %r1;", [NEG - 4, 0, 0], 5),
        ("neg.s32 %r4, %r1;", [5, 0, 0], 5u32.wrapping_neg()),
        ("sad.s32 %r4, %r1, %r2, %r3;", [NEG, 4, 10], 15),
        ("dp4a.s32.u32 %r4, %r1, %r2, %r3;", [0xff01_0203, 0x0201_0101, 10], 14),
        ("dp2a.lo.s32.s32 %r4, %r1, %r2, %r3;", [0xffff_0002, 0x0000_0305, 1], 8),
    ]);
}

#[test]
fn halves_and_carries() {
    check_words(&[
        ("cvt.u16.u32 %h1, %r1; cvt.u16.u32 %h2, %r2; add.u16 %h3, %h1, %h2; cvt.u32.u16 %r4, %h3;", [0xffff, 3, 0], 2),
        (
            "cvt.u16.u32 %h1, %r1; cvt.u16.u32 %h2, %r2; min.s16 %h3, %h1, %h2; cvt.s32.s16 %r4, %h3;",
            [0xffff, 3, 0],
            NEG,
        ),
        ("cvt.u16.u32 %h1, %r1; cvt.u16.u32 %h2, %r2; mul.wide.s16 %r4, %h1, %h2;", [0xffff, 3, 0], NEG - 2),
        ("cvt.u16.u32 %h1, %r1; shr.s16 %h3, %h1, 4; cvt.u32.u16 %r4, %h3;", [0x8000, 0, 0], 0xf800),
        ("cvt.u16.u32 %h1, %r1; shl.b16 %h3, %h1, 4; cvt.u32.u16 %r4, %h3;", [0xffff, 0, 0], 0xfff0),
        ("add.cc.u32 %r4, %r1, %r2; addc.u32 %r4, %r3, 0;", [NEG, 1, 10], 11),
        ("sub.cc.u32 %r4, %r1, %r2; subc.u32 %r4, %r3, 0;", [0, 1, 10], 9),
        ("mad.lo.cc.u32 %r4, %r1, %r2, %r3; madc.hi.u32 %r4, %r1, %r2, 0;", [NEG, 2, 3], 2),
    ]);
    check_doubles(&[
        ("mul.wide.s32 %rd6, -2, 5;", [0; 3], 10u64.wrapping_neg()),
        ("cvt.u32.u64 %r1, %rd3; mad.wide.u32 %rd6, %r1, 3, %rd4;", [0xffff_ffff, 1, 0], 0x2_ffff_fffe),
        ("add.s64 %rd6, %rd3, %rd4;", [u64::MAX, 3, 0], 2),
        ("mul.lo.s64 %rd6, %rd3, %rd4;", [u64::MAX, 3, 0], 3u64.wrapping_neg()),
        ("mul.hi.u64 %rd6, %rd3, %rd4;", [u64::MAX, 3, 0], 2),
        ("div.s64 %rd6, %rd3, %rd4;", [9u64.wrapping_neg(), 2, 0], 4u64.wrapping_neg()),
        ("rem.u64 %rd6, %rd3, %rd4;", [9, 4, 0], 1),
        ("max.s64 %rd6, %rd3, %rd4;", [u64::MAX, 4, 0], 4),
        ("shl.b64 %rd6, %rd3, 40;", [3, 0, 0], 3 << 40),
        ("shr.s64 %rd6, %rd3, 70;", [1 << 63, 0, 0], u64::MAX),
        ("bfe.u64 %rd6, %rd3, 8, 16;", [0x1234_5678, 0, 0], 0x3456),
        ("bfi.b64 %rd6, %rd3, %rd4, 8, 8;", [0xab, 0x1111_1111, 0], 0x1111_ab11),
        ("selp.b64 %rd6, %rd3, %rd4, 0;", [1, 2, 0], 2),
        ("cvt.u32.u64 %r1, %rd3; cvt.s64.s32 %rd6, %r1;", [0xffff_fffe, 0, 0], u64::MAX - 1),
    ]);
}

#[test]
fn logic_of_words() {
    check_words(&[
        ("and.b32 %r4, %r1, %r2;", [12, 10, 0], 8),
        ("or.b32 %r4, %r1, %r2;", [12, 10, 0], 14),
        ("xor.b32 %r4, %r1, %r2;", [12, 10, 0], 6),
        ("not.b32 %r4, %r1;", [5, 0, 0], !5),
        ("cnot.b32 %r4, %r1;", [0, 0, 0], 1),
        ("lop3.b32 %r4, %r1, %r2, %r3, 0x1e;", [0xf0, 0xcc, 0xaa], 0x1e),
        ("lop3.b32 %r4, %r1, %r2, %r3, 0x96;", [0xf0, 0xcc, 0xaa], 0x96),
        ("lop3.b32 %r4, %r1, %r2, %r3, 0xe2;", [0xf0, 0xcc, 0xaa], 0xe2),
        ("lop3.b32 %r4, %r1, %r2, %r3, 0xf8;", [0xf0, 0xcc, 0xaa], 0xf8),
        ("lop3.b32 %r4, %r1, %r2, %r3, 0xea;", [0xf0, 0xcc, 0xaa], 0xea),
        ("shl.b32 %r4, %r1, %r2;", [3, 33, 0], 0),
        ("shr.u32 %r4, %r1, %r2;", [0x8000_0000, 31, 0], 1),
        ("shr.s32 %r4, %r1, %r2;", [0x8000_0000, 40, 0], NEG),
        ("shf.l.wrap.b32 %r4, %r1, %r2, %r3;", [0x8000_0000, 1, 1], 3),
        ("shf.r.clamp.b32 %r4, %r1, %r2, %r3;", [1, 7, 40], 7),
        ("prmt.b32 %r4, %r1, %r2, 0x5410;", [0x1111_2222, 0x3333_4444, 0], 0x4444_2222),
        ("bfe.s32 %r4, %r1, 4, 4;", [0x80, 0, 0], NEG - 7),
        ("bfi.b32 %r4, %r1, %r2, 4, 8;", [0xab, 0xffff_ffff, 0], 0xffff_fabf),
        ("bfind.u32 %r4, %r1;", [0x100, 0, 0], 8),
        ("bfind.shiftamt.u32 %r4, %r1;", [0x100, 0, 0], 23),
        ("clz.b32 %r4, %r1;", [1, 0, 0], 31),
        ("popc.b32 %r4, %r1;", [0xff, 0, 0], 8),
        ("brev.b32 %r4, %r1;", [1, 0, 0], 0x8000_0000),
        ("mov.b32 {%h1, %h2}, %r1; mov.b32 %r4, {%h2, %h1};", [0x1234_5678, 0, 0], 0x5678_1234),
    ]);
}

#[test]
fn predicates_and_choices() {
    check_words(&[
        ("setp.lt.s32 %p1, %r1, %r2; selp.b32 %r4, 1, 2, %p1;", [NEG, 4, 0], 1),
        ("setp.lt.u32 %p1, %r1, %r2; selp.b32 %r4, 1, 2, %p1;", [NEG, 4, 0], 2),
        ("setp.hs.u32 %p1, %r1, %r2; selp.b32 %r4, 1, 2, %p1;", [4, 4, 0], 1),
        ("setp.eq.s32 %p1|%p2, %r1, %r2; selp.b32 %r4, 1, 2, %p2;", [4, 4, 0], 2),
        ("setp.ne.s32 %p1, %r3, 0; setp.lt.and.s32 %p2, %r1, %r2, !%p1; selp.b32 %r4, 1, 2, %p2;", [3, 4, 0], 1),
        ("setp.ne.s32 %p1, %r3, 0; setp.lt.xor.s32 %p2, %r1, %r2, %p1; selp.b32 %r4, 1, 2, %p2;", [3, 4, 1], 2),
        ("set.gt.u32.s32 %r4, %r1, %r2;", [5, 4, 0], NEG),
        ("set.gt.f32.s32 %f1, %r1, %r2; mov.b32 %r4, %f1;", [5, 4, 0], 0x3f80_0000),
        ("slct.s32.s32 %r4, %r1, %r2, %r3;", [5, 4, NEG], 4),
        ("setp.eq.s32 %p1, %r1, 5; not.pred %p2, %p1; or.pred %p3, %p1, %p2; selp.b32 %r4, 1, 0, %p3;", [5, 0, 0], 1),
        ("setp.eq.s32 %p1, %r1, 5; mov.pred %p2, -1; xor.pred %p3, %p1, %p2; selp.b32 %r4, 1, 0, %p3;", [5, 0, 0], 0),
        ("setp.eq.s32 %p1, %r1, 5; mov.u32 %r4, 1; @!%p1 mov.u32 %r4, 2;", [4, 0, 0], 2),
    ]);
}
