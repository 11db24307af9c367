//! Integer instructions, compared with a bit-by-bit transcription of the ISA's pseudocode in wider arithmetic

use super::*;
use crate::units::testing::Random;

/// Shift amounts and field lengths around the values at which the behaviour of instructions changes.
fn amount(r: &mut Random) -> u32 {
    [0, 1, 5, 15, 16, 24, 31, 32, 33, 40, 63, 64, 65, 200, 255, 256, 300][r.below(17) as usize]
}

fn bit(a: u64, i: i64, width: i64) -> u64 {
    if (0..width).contains(&i) { a >> i & 1 } else { 0 }
}

#[test]
fn bit_fields_follow_the_pseudocode() {
    let mut r = Random(51);
    for _ in 0..20_000 {
        let (a, b, pos, len) = (r.u64(), r.u64(), amount(&mut r), amount(&mut r));
        let (p, l) = (i64::from(pos & 255), i64::from(len & 255));
        let extract = |a: u64, width: i64, signed: bool| {
            let msb = width - 1;
            let sign = if !signed || l == 0 { 0 } else { bit(a, (p + l - 1).min(msb), width) };
            (0..width).fold(0u64, |d, i| d | if i < l && p + i <= msb { bit(a, p + i, width) } else { sign } << i)
        };
        assert_eq!(u64::from(bfe_u32(a as u32, pos, len)), extract(a, 32, false), "{a:#x} {pos} {len}");
        assert_eq!(u64::from(bfe_s32(a as u32, pos, len)), extract(a, 32, true), "{a:#x} {pos} {len}");
        assert_eq!(bfe_u64(a, pos, len), extract(a, 64, false), "{a:#x} {pos} {len}");
        assert_eq!(bfe_s64(a, pos, len), extract(a, 64, true), "{a:#x} {pos} {len}");
        let insert = |width: i64| {
            (0..width)
                .fold(0, |d, i| d | if (p..p + l).contains(&i) { bit(a, i - p, width) } else { bit(b, i, width) } << i)
        };
        assert_eq!(u64::from(bfi_b32(a as u32, b as u32, pos, len)), insert(32), "{a:#x} {b:#x} {pos} {len}");
        assert_eq!(bfi_b64(a, b, pos, len), insert(64), "{a:#x} {b:#x} {pos} {len}");
    }
}

#[test]
fn the_highest_bit_is_found_from_either_end() {
    assert_eq!([bfind_u32(0, false), bfind_u32(1, false), bfind_u32(0x8000_0001, false)], [u32::MAX, 0, 31]);
    assert_eq!([bfind_u32(1, true), bfind_u32(0x8000_0000, true), bfind_u32(0, true)], [31, 0, u32::MAX]);
    assert_eq!([bfind_s32(u32::MAX, false), bfind_s32(-2i32 as u32, false), bfind_s32(4, false)], [u32::MAX, 0, 2]);
    assert_eq!([bfind_u64(1 << 40, false), bfind_u64(1 << 40, true), bfind_u64(0, true)], [40, 23, u32::MAX]);
    assert_eq!([bfind_s64(-1i64 as u64, false), bfind_s64(!(1 << 50), true)], [u32::MAX, 13]);
    assert_eq!([fns(0b1011, 0, 1), fns(0b1011, 0, 3), fns(0b1011, 1, 2), fns(0b1011, 0, 4)], [0, 3, 3, u32::MAX]);
    assert_eq!(
        [fns(0b1011, 3, -2), fns(0b1011, 2, 0), fns(0b1011, 3, 0), fns(0b1011, 40, 1)],
        [1, u32::MAX, 3, u32::MAX]
    );
}

#[test]
fn permutations_follow_the_selector_tables() {
    let (a, b) = (0x8373_6353, 0xf7e6_d5c4);
    let p = |mode, c| prmt(mode, a, b, c);
    assert_eq!(p(PrmtMode::Default, 0x3210), a);
    assert_eq!(p(PrmtMode::Default, 0x7654), b);
    assert_eq!(p(PrmtMode::Default, 0x0b4c), 0x53ff_c4ff);
    assert_eq!(p(PrmtMode::Default, 0x888f), 0x0000_00ff);
    // The pairs (mode, selector) of the ISA's table, given as the four source bytes d.b3 to d.b0.
    let table = [
        (PrmtMode::F4e, [[3, 2, 1, 0], [4, 3, 2, 1], [5, 4, 3, 2], [6, 5, 4, 3]]),
        (PrmtMode::B4e, [[5, 6, 7, 0], [6, 7, 0, 1], [7, 0, 1, 2], [0, 1, 2, 3]]),
        (PrmtMode::Rc8, [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]]),
        (PrmtMode::Ecl, [[3, 2, 1, 0], [3, 2, 1, 1], [3, 2, 2, 2], [3, 3, 3, 3]]),
        (PrmtMode::Ecr, [[0, 0, 0, 0], [1, 1, 1, 0], [2, 2, 1, 0], [3, 2, 1, 0]]),
        (PrmtMode::Rc16, [[1, 0, 1, 0], [3, 2, 3, 2], [1, 0, 1, 0], [3, 2, 3, 2]]),
    ];
    let source = [0x53, 0x63, 0x73, 0x83, 0xc4, 0xd5, 0xe6, 0xf7];
    for (mode, rows) in table {
        for (selector, row) in rows.into_iter().enumerate() {
            let expected = row.into_iter().fold(0, |d, i: usize| d << 8 | source[i]);
            // Only the two low bits of the selector count.
            assert_eq!(p(mode, 0xfff0 + selector as u32), expected, "{mode:?} {selector}");
        }
    }
}

#[test]
fn shifts_clamp_or_wrap() {
    let mut r = Random(52);
    for _ in 0..5000 {
        let (a, b, n) = (r.u32(), r.u32(), amount(&mut r));
        let wide = u128::from(b) << 32 | u128::from(a);
        for (wrap, n_used) in [(true, n % 32), (false, n.min(32))] {
            assert_eq!(shf_l(a, b, n, wrap), (wide << n_used >> 32) as u32);
            assert_eq!(shf_r(a, b, n, wrap), (wide >> n_used) as u32);
        }
        for width in [16, 32, 64] {
            let mask = u64::MAX >> (64 - width);
            let x = r.u64() & mask;
            let n_used = n.min(100);
            assert_eq!(
                shl(x, n, width),
                (u128::from(x) << n_used.min(64)) as u64 & mask & if n < width { mask } else { 0 }
            );
            assert_eq!(u128::from(shr(x, n, width)), u128::from(x) >> n_used);
            let signed = i128::from((x << (64 - width)) as i64 >> (64 - width));
            assert_eq!(shr_signed(x, n, width), (signed >> n_used) as u64 & mask);
        }
        let (c, table) = (r.u32(), r.u32() & 255);
        let expected = (0..32).fold(0, |d, i| {
            let index = (a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1;
            d | (table >> index & 1) << i
        });
        assert_eq!(lop3(a, b, c, table), expected);
    }
    // The constants from which compilers compute the table.
    assert_eq!(lop3(0xf0, 0xcc, 0xaa, 0x96) & 0xff, 0xf0 ^ 0xcc ^ 0xaa);
}

#[test]
fn products_carries_and_sums_agree_with_wider_arithmetic() {
    let mut r = Random(53);
    for _ in 0..5000 {
        let (a, b, c) = (r.u32(), r.u32(), r.u32());
        let (wide_a, wide_b) = (r.u64(), r.u64());
        assert_eq!(mul_hi_u32(a, b), ((u128::from(a) * u128::from(b)) >> 32) as u32);
        assert_eq!(mul_hi_s32(a, b), ((i128::from(a as i32) * i128::from(b as i32)) >> 32) as u32);
        // The upper half of the signed product is the upper half of the unsigned product minus each operand whose
        // partner is negative.
        let correction = |x: u64, y: u64| if (x as i64) < 0 { y } else { 0 };
        let upper = mul_hi_u64(wide_a, wide_b);
        let signed = upper.wrapping_sub(correction(wide_a, wide_b)).wrapping_sub(correction(wide_b, wide_a));
        assert_eq!(mul_hi_s64(wide_a, wide_b), signed);
        let s24 = |x: u32| i64::from((x << 8) as i32 >> 8);
        let u24 = |x: u32| u64::from(x << 8 >> 8);
        assert_eq!(mul24_u32(a, b, false), (u24(a) * u24(b)) as u32);
        assert_eq!(mul24_u32(a, b, true), (u24(a) * u24(b) / 65536) as u32);
        assert_eq!(mul24_s32(a, b, false), (s24(a) * s24(b)) as u32);
        assert_eq!(mul24_s32(a, b, true), (s24(a) * s24(b)).div_euclid(65536) as u32);

        // A 128-bit sum and difference through four limbs.
        let (x, y) = (u128::from(r.u64()) << 64 | u128::from(r.u64()), u128::from(r.u64()) << 64 | u128::from(r.u64()));
        let limb = |v: u128, i: usize| (v >> (32 * i)) as u32;
        let mut sum = (0, false);
        let mut difference = (0, false);
        for i in 0..4 {
            let (s, carry) = add_carry_u32(limb(x, i), limb(y, i), sum.1);
            sum = (sum.0 | u128::from(s) << (32 * i), carry);
            let (d, borrow) = sub_borrow_u32(limb(x, i), limb(y, i), difference.1);
            difference = (difference.0 | u128::from(d) << (32 * i), borrow);
        }
        assert_eq!(sum, x.overflowing_add(y));
        assert_eq!(difference, x.overflowing_sub(y));
        let (low, carry) = add_carry_u64(x as u64, y as u64, false);
        let (high, carry) = add_carry_u64((x >> 64) as u64, (y >> 64) as u64, carry);
        assert_eq!((u128::from(high) << 64 | u128::from(low), carry), x.overflowing_add(y));
        let (low, borrow) = sub_borrow_u64(x as u64, y as u64, false);
        let (high, borrow) = sub_borrow_u64((x >> 64) as u64, (y >> 64) as u64, borrow);
        assert_eq!((u128::from(high) << 64 | u128::from(low), borrow), x.overflowing_sub(y));

        for (a_signed, b_signed) in [(false, false), (false, true), (true, false), (true, true)] {
            let byte = |v: u32, i: usize, signed: bool| {
                let byte = v.to_le_bytes()[i];
                if signed { i64::from(byte as i8) } else { i64::from(byte) }
            };
            let word = |v: u32, i: usize, signed: bool| {
                let word = (v >> (16 * i)) as u16;
                if signed { i64::from(word as i16) } else { i64::from(word) }
            };
            let four: i64 = (0..4).map(|i| byte(a, i, a_signed) * byte(b, i, b_signed)).sum();
            assert_eq!(dp4a(a, a_signed, b, b_signed, c), (i64::from(c) + four) as u32);
            for (hi, from) in [(false, 0), (true, 2)] {
                let two: i64 = (0..2).map(|i| word(a, i, a_signed) * byte(b, from + i, b_signed)).sum();
                assert_eq!(dp2a(hi, a, a_signed, b, b_signed, c), (i64::from(c) + two) as u32);
            }
        }
        assert_eq!(sad_u32(a, b, c), (i64::from(c) + (i64::from(a) - i64::from(b)).abs()) as u32);
        assert_eq!(sad_s32(a, b, c), (i64::from(c) + (i64::from(a as i32) - i64::from(b as i32)).abs()) as u32);
        let clamp = |x: i64| x.clamp(i32::MIN.into(), i32::MAX.into()) as u32;
        assert_eq!(add_sat_s32(a, b), clamp(i64::from(a as i32) + i64::from(b as i32)));
        assert_eq!(sub_sat_s32(a, b), clamp(i64::from(a as i32) - i64::from(b as i32)));
        assert_eq!(
            mad_hi_sat_s32(a, b, c),
            clamp(((i64::from(a as i32) * i64::from(b as i32)) >> 32) + i64::from(c as i32))
        );
    }
}

#[test]
fn division_by_zero_and_overflow_have_one_answer() {
    let (min, minus_one) = (i32::MIN as u32, u32::MAX);
    assert_eq!(
        [div_u32(7, 2), div_u32(7, 0), div_s32(-7i32 as u32, 2), div_s32(7, 0)],
        [3, u32::MAX, -3i32 as u32, u32::MAX]
    );
    assert_eq!(
        [rem_u32(7, 2), rem_u32(7, 0), rem_s32(-7i32 as u32, 2), rem_s32(7, 0)],
        [1, u32::MAX, -1i32 as u32, u32::MAX]
    );
    assert_eq!((div_s32(min, minus_one), rem_s32(min, minus_one)), (min, 0));
    let min = i64::MIN as u64;
    assert_eq!([div_u64(7, 0), div_s64(7, 0), rem_u64(7, 0), rem_s64(7, 0)], [u64::MAX; 4]);
    assert_eq!((div_s64(min, u64::MAX), rem_s64(min, u64::MAX)), (min, 0));
    assert_eq!(
        (div_u64(9, 2), rem_u64(9, 2), div_s64(-9i64 as u64, 2), rem_s64(-9i64 as u64, 2)),
        (4, 1, -4i64 as u64, -1i64 as u64)
    );
}

/// Results of these instructions on constants as folded by NVIDIA's assembler (ptxas of CUDA 13.5): an independent
/// implementation of the same specification.
#[test]
fn corners_agree_with_the_constants_that_an_assembler_folds() {
    let (a, b) = (0x8373_6353, 0xf7e6_d5c4);
    for (pos, len, expected) in [
        (0, 0, 0x0),
        (28, 20, 0x8),
        (31, 1, 0x1),
        (32, 5, 0x0),
        (40, 3, 0x0),
        (4, 8, 0x35),
        (0, 32, 0x8373_6353),
        (0, 40, 0x8373_6353),
        (255, 1, 0x0),
        (4, 300, 0x837_3635),
        (260, 8, 0x35),
        (16, 16, 0x8373),
        (40, 0, 0x0),
    ] {
        assert_eq!(bfe_u32(a, pos, len), expected, "bfe.u32 {pos} {len}");
    }
    for (pos, len, expected) in [
        (0, 0, 0x0),
        (28, 20, 0xffff_fff8),
        (31, 1, 0xffff_ffff),
        (32, 5, 0xffff_ffff),
        (40, 3, 0xffff_ffff),
        (4, 8, 0x35),
        (0, 32, 0x8373_6353),
        (0, 40, 0x8373_6353),
        (255, 1, 0xffff_ffff),
        (4, 300, 0xf837_3635),
        (260, 8, 0x35),
        (16, 16, 0xffff_8373),
        (40, 0, 0x0),
    ] {
        assert_eq!(bfe_s32(a, pos, len), expected, "bfe.s32 {pos} {len}");
    }
    for (pos, len, expected) in [
        (0, 0, 0xf7e6_d5c4),
        (28, 20, 0x37e6_d5c4),
        (31, 1, 0xf7e6_d5c4),
        (32, 5, 0xf7e6_d5c4),
        (4, 8, 0xf7e6_d534),
        (0, 32, 0x8373_6353),
        (0, 40, 0x8373_6353),
        (255, 1, 0xf7e6_d5c4),
        (4, 300, 0x3736_3534),
        (260, 8, 0xf7e6_d534),
    ] {
        assert_eq!(bfi_b32(a, b, pos, len), expected, "bfi {pos} {len}");
    }
    for (x, expected) in [(0, 0xffff_ffff), (1, 0x0), (0x8373_6353, 0x1f), (0xffff_ffff, 0x1f), (0x0000_1000, 0xc)] {
        assert_eq!(bfind_u32(x, false), expected, "bfind.u32 {x:#x}");
    }
    for (x, expected) in [(0, 0xffff_ffff), (1, 0x1f), (0x8373_6353, 0x0), (0xffff_ffff, 0x0), (0x0000_1000, 0x13)] {
        assert_eq!(bfind_u32(x, true), expected, "bfind.shiftamt.u32 {x:#x}");
    }
    for (x, expected) in
        [(0, 0xffff_ffff), (1, 0x0), (0x8373_6353, 0x1e), (0xffff_ffff, 0xffff_ffff), (0x0000_1000, 0xc)]
    {
        assert_eq!(bfind_s32(x, false), expected, "bfind.s32 {x:#x}");
    }
    for (x, expected) in
        [(0, 0xffff_ffff), (1, 0x1f), (0x8373_6353, 0x1), (0xffff_ffff, 0xffff_ffff), (0x0000_1000, 0x13)]
    {
        assert_eq!(bfind_s32(x, true), expected, "bfind.shiftamt.s32 {x:#x}");
    }
    for (n, expected) in
        [(0, 0xf7e6_d5c4), (5, 0xfcda_b890), (31, 0x41b9_b1a9), (32, 0xf7e6_d5c4), (33, 0xefcd_ab89), (40, 0xe6d5_c483)]
    {
        assert_eq!(shf_l(a, b, n, true), expected, "shf.l.wrap {n}");
    }
    for (n, expected) in
        [(0, 0xf7e6_d5c4), (5, 0xfcda_b890), (31, 0x41b9_b1a9), (32, 0x8373_6353), (33, 0x8373_6353), (40, 0x8373_6353)]
    {
        assert_eq!(shf_l(a, b, n, false), expected, "shf.l.clamp {n}");
    }
    for (n, expected) in
        [(0, 0x8373_6353), (5, 0x241b_9b1a), (31, 0xefcd_ab89), (32, 0x8373_6353), (33, 0x41b9_b1a9), (40, 0xc483_7363)]
    {
        assert_eq!(shf_r(a, b, n, true), expected, "shf.r.wrap {n}");
    }
    for (n, expected) in
        [(0, 0x8373_6353), (5, 0x241b_9b1a), (31, 0xefcd_ab89), (32, 0xf7e6_d5c4), (33, 0xf7e6_d5c4), (40, 0xf7e6_d5c4)]
    {
        assert_eq!(shf_r(a, b, n, false), expected, "shf.r.clamp {n}");
    }
    let mul24 = [mul24_u32(a, b, false), mul24_u32(a, b, true), mul24_s32(a, b, false), mul24_s32(a, b, true)];
    assert_eq!(mul24, [0x968e_1a8c, 0x680b_968e, 0x438e_1a8c, 0xf4a8_438e]);
    assert_eq!([mul_hi_s32(a, b), mul_hi_u32(a, b)], [0x3f0_a32c, 0x7f4a_dc43]);
    assert_eq!([add_sat_s32(a, b), sub_sat_s32(a, b)], [0x8000_0000, 0x8b8c_8d8f]);
    for (base, offset, expected) in [
        (0, 1, 0x0),
        (0, 3, 0x3),
        (1, 2, 0x3),
        (0, 4, 0xffff_ffff),
        (3, -2, 0x1),
        (2, 0, 0xffff_ffff),
        (3, 0, 0x3),
        (40, 1, 0xffff_ffff),
    ] {
        assert_eq!(fns(0b1011, base, offset), expected, "fns {base} {offset}");
    }
    assert_eq!([div_u32(7, 0), div_s32(7, 0), rem_u32(7, 0), rem_s32(-7i32 as u32, 0)], [u32::MAX; 4]);
}
