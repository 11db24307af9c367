//! prmt, bfe, bfi, bfind, lop3, shf, shl, mul24, add.cc, dp4a, sad: integer instructions with corner cases
//!
//! Plain wrapping add, sub, mul, and, or, xor, popc, clz and brev are Rust's own methods and are not repeated here.

/// How `prmt` forms its selectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrmtMode {
    /// Four selector nibbles; bit 3 of a nibble replicates the sign of the chosen byte.
    Default,
    /// `.f4e` (forward 4 extract): four consecutive bytes, from byte `c & 3` upwards.
    F4e,
    /// `.b4e` (backward 4 extract): four consecutive bytes, from byte `c & 3` downwards, modulo 8.
    B4e,
    /// `.rc8` (replicate 8): byte `c & 3` in all four positions.
    Rc8,
    /// `.ecl` (edge clamp left): position `i` takes byte `max(i, c & 3)`.
    Ecl,
    /// `.ecr` (edge clamp right): position `i` takes byte `min(i, c & 3)`.
    Ecr,
    /// `.rc16` (replicate 16): half `c & 1` of `a` in both halves.
    Rc16,
}

/// `prmt.b32{.mode} d, a, b, c`: selects four of the eight bytes of `a` (0..3) and `b` (4..7).
#[inline]
pub fn prmt(mode: PrmtMode, a: u32, b: u32, c: u32) -> u32 {
    let s = c & 3;
    let selectors = match mode {
        PrmtMode::Default => c,
        PrmtMode::F4e => [0x3210, 0x4321, 0x5432, 0x6543][s as usize],
        PrmtMode::B4e => [0x5670, 0x6701, 0x7012, 0x0123][s as usize],
        PrmtMode::Rc8 => s * 0x1111,
        PrmtMode::Ecl => [0x3210, 0x3211, 0x3222, 0x3333][s as usize],
        PrmtMode::Ecr => [0x0000, 0x1110, 0x2210, 0x3210][s as usize],
        PrmtMode::Rc16 => [0x1010, 0x3232, 0x1010, 0x3232][s as usize],
    };
    let bytes = u64::from(b) << 32 | u64::from(a);
    let mut d = 0;
    for i in 0..4 {
        let selector = selectors >> (4 * i) & 15;
        let byte = (bytes >> (8 * (selector & 7))) as u8;
        let byte = if selector & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte };
        d |= u32::from(byte) << (8 * i);
    }
    d
}

/// `bfe.u32`: extracts `len` bits of `a` from bit `pos` on; `len` and `pos` are taken modulo 256, and bits past the top
/// are 0.
#[inline]
pub fn bfe_u32(a: u32, pos: u32, len: u32) -> u32 {
    bfe_u64(u64::from(a), pos, len) as u32
}

/// `bfe.u64`.
#[inline]
pub fn bfe_u64(a: u64, pos: u32, len: u32) -> u64 {
    let (pos, len) = (pos & 255, len & 255);
    a.checked_shr(pos).unwrap_or(0) & low_mask(len)
}

/// `bfe.s32`: like `bfe.u32`, but sign-extended with the field's top bit, or with bit 31 if the field reaches past bit
/// 31; an empty field is 0.
#[inline]
pub fn bfe_s32(a: u32, pos: u32, len: u32) -> u32 {
    bfe_signed(u64::from(a), pos, len, 31) as u32
}

/// `bfe.s64`.
#[inline]
pub fn bfe_s64(a: u64, pos: u32, len: u32) -> u64 {
    bfe_signed(a, pos, len, 63)
}

#[inline]
fn bfe_signed(a: u64, pos: u32, len: u32, msb: u32) -> u64 {
    let (pos, len) = (pos & 255, len & 255);
    if len == 0 {
        return 0;
    }
    let negative = a >> (pos + len - 1).min(msb) & 1 == 1;
    let available = len.min((msb + 1).saturating_sub(pos));
    let field = a.checked_shr(pos).unwrap_or(0) & low_mask(available);
    if negative { field | !low_mask(available) } else { field }
}

/// `bfi.b32 f, a, b, pos, len`: replaces bits `pos..pos + len` of `b` by the low `len` bits of `a`.
#[inline]
pub fn bfi_b32(a: u32, b: u32, pos: u32, len: u32) -> u32 {
    bfi_b64(u64::from(a), u64::from(b), pos, len) as u32
}

/// `bfi.b64`.
#[inline]
pub fn bfi_b64(a: u64, b: u64, pos: u32, len: u32) -> u64 {
    let (pos, len) = (pos & 255, len & 255);
    let mask = low_mask(len).checked_shl(pos).unwrap_or(0);
    b & !mask | a.checked_shl(pos).unwrap_or(0) & mask
}

/// `bfind{.shiftamt}.u32`: position of the highest set bit, or with `.shiftamt` the left shift that moves it to the
/// top; `0xffff_ffff` if no bit is set.
#[inline]
pub fn bfind_u32(a: u32, shift_amount: bool) -> u32 {
    match (a, shift_amount) {
        (0, _) => u32::MAX,
        (_, true) => a.leading_zeros(),
        (_, false) => 31 - a.leading_zeros(),
    }
}

/// `bfind{.shiftamt}.s32`: like `bfind.u32`, for the highest bit that differs from the sign.
#[inline]
pub fn bfind_s32(a: u32, shift_amount: bool) -> u32 {
    bfind_u32(if (a as i32) < 0 { !a } else { a }, shift_amount)
}

/// `bfind{.shiftamt}.u64`; the result is 32 bits.
#[inline]
pub fn bfind_u64(a: u64, shift_amount: bool) -> u32 {
    match (a, shift_amount) {
        (0, _) => u32::MAX,
        (_, true) => a.leading_zeros(),
        (_, false) => 63 - a.leading_zeros(),
    }
}

/// `bfind{.shiftamt}.s64`.
#[inline]
pub fn bfind_s64(a: u64, shift_amount: bool) -> u32 {
    bfind_u64(if (a as i64) < 0 { !a } else { a }, shift_amount)
}

/// `fns.b32 d, mask, base, offset`: position of the `offset`-th set bit of `mask` from bit `base` upwards, or downwards
/// if `offset` is negative; if `offset` is 0, `base` if bit `base` is set. `0xffff_ffff` if there is no such bit.
pub fn fns(mask: u32, base: u32, offset: i32) -> u32 {
    let mut left = offset.unsigned_abs().max(1);
    let mut at = i64::from(base);
    let step = if offset < 0 { -1 } else { 1 };
    if offset == 0 {
        return if base < 32 && mask >> base & 1 == 1 { base } else { u32::MAX };
    }
    while (0..32).contains(&at) {
        left -= mask >> at & 1;
        if left == 0 {
            return at as u32;
        }
        at += step;
    }
    u32::MAX
}

/// `lop3.b32 d, a, b, c, table`: bit `4a + 2b + c` of `table`, for each bit position.
#[inline]
pub fn lop3(a: u32, b: u32, c: u32, table: u32) -> u32 {
    let term = |i: u32| {
        let on = 0u32.wrapping_sub(table >> i & 1);
        let pick = |x: u32, bit: u32| if i >> bit & 1 == 1 { x } else { !x };
        on & pick(a, 2) & pick(b, 1) & pick(c, 0)
    };
    (0..8).fold(0, |d, i| d | term(i))
}

/// `shf.l.{wrap,clamp}.b32 d, a, b, c`: the upper word of `b:a` shifted left by `c` modulo 32, or by at most 32.
#[inline]
pub fn shf_l(a: u32, b: u32, c: u32, wrap: bool) -> u32 {
    let n = if wrap { c & 31 } else { c.min(32) };
    ((u64::from(b) << 32 | u64::from(a)) << n >> 32) as u32
}

/// `shf.r.{wrap,clamp}.b32 d, a, b, c`: the lower word of `b:a` shifted right.
#[inline]
pub fn shf_r(a: u32, b: u32, c: u32, wrap: bool) -> u32 {
    let n = if wrap { c & 31 } else { c.min(32) };
    ((u64::from(b) << 32 | u64::from(a)) >> n) as u32
}

/// `shl.b16`/`.b32`/`.b64` on the low `width` bits: amounts of `width` or more give 0.
#[inline]
pub fn shl(a: u64, n: u32, width: u32) -> u64 {
    if n >= width { 0 } else { a << n & low_mask(width) }
}

/// `shr.u16`/`.u32`/`.u64` (and `.b`): amounts of `width` or more give 0.
#[inline]
pub fn shr(a: u64, n: u32, width: u32) -> u64 {
    if n >= width { 0 } else { (a & low_mask(width)) >> n }
}

/// `shr.s16`/`.s32`/`.s64`: amounts of `width` or more fill the result with the sign.
#[inline]
pub fn shr_signed(a: u64, n: u32, width: u32) -> u64 {
    (sign_extend(a, width) >> n.min(width - 1)) as u64 & low_mask(width)
}

/// Returns the low `width` (1 to 64) bits of `a` as a signed number.
#[inline]
pub fn sign_extend(a: u64, width: u32) -> i64 {
    (a << (64 - width)) as i64 >> (64 - width)
}

/// `mul.hi.u32`: the upper 32 bits of the 64-bit product.
#[inline]
pub fn mul_hi_u32(a: u32, b: u32) -> u32 {
    ((u64::from(a) * u64::from(b)) >> 32) as u32
}

/// `mul.hi.s32`: the upper 32 bits of the signed 64-bit product.
#[inline]
pub fn mul_hi_s32(a: u32, b: u32) -> u32 {
    ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32
}

/// `mul.hi.u64`: the upper 64 bits of the 128-bit product.
#[inline]
pub fn mul_hi_u64(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

/// `mul.hi.s64`: the upper 64 bits of the signed 128-bit product.
#[inline]
pub fn mul_hi_s64(a: u64, b: u64) -> u64 {
    ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64
}

/// `mul24.lo`/`.hi.u32`: bits 0..32 or 16..48 of the product of the low 24 bits.
#[inline]
pub fn mul24_u32(a: u32, b: u32, hi: bool) -> u32 {
    let product = u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff);
    (product >> if hi { 16 } else { 0 }) as u32
}

/// `mul24.lo`/`.hi.s32`.
#[inline]
pub fn mul24_s32(a: u32, b: u32, hi: bool) -> u32 {
    let product = sign_extend(u64::from(a), 24) * sign_extend(u64::from(b), 24);
    (product >> if hi { 16 } else { 0 }) as u32
}

/// `add{c}{.cc}.u32`: `a + b + carry` and the carry out. `mad.lo.cc` and `mad.hi.cc` use it to add the lower or upper
/// half of a product.
#[inline]
pub fn add_carry_u32(a: u32, b: u32, carry: bool) -> (u32, bool) {
    let sum = u64::from(a) + u64::from(b) + u64::from(carry);
    (sum as u32, sum >> 32 != 0)
}

/// `sub{c}{.cc}.u32`: `a - b - borrow` and the borrow out, which PTX keeps in the same flag as the carry.
#[inline]
pub fn sub_borrow_u32(a: u32, b: u32, borrow: bool) -> (u32, bool) {
    let (difference, first) = a.overflowing_sub(b);
    let (difference, second) = difference.overflowing_sub(u32::from(borrow));
    (difference, first | second)
}

/// `add{c}{.cc}.u64`: `a + b + carry` and the carry out.
#[inline]
pub fn add_carry_u64(a: u64, b: u64, carry: bool) -> (u64, bool) {
    let (sum, first) = a.overflowing_add(b);
    let (sum, second) = sum.overflowing_add(u64::from(carry));
    (sum, first | second)
}

/// `sub{c}{.cc}.u64`: `a - b - borrow` and the borrow out.
#[inline]
pub fn sub_borrow_u64(a: u64, b: u64, borrow: bool) -> (u64, bool) {
    let (difference, first) = a.overflowing_sub(b);
    let (difference, second) = difference.overflowing_sub(u64::from(borrow));
    (difference, first | second)
}

/// `dp4a.atype.btype`: `c` plus the four byte products, wrapping.
#[inline]
pub fn dp4a(a: u32, a_signed: bool, b: u32, b_signed: bool, c: u32) -> u32 {
    (0..4).fold(c, |sum, i| {
        let product = field(a, 8 * i, 8, a_signed).wrapping_mul(field(b, 8 * i, 8, b_signed));
        sum.wrapping_add(product as u32)
    })
}

/// `dp2a.{lo,hi}.atype.btype`: `c` plus the two 16-bit fields of `a` times bytes 0, 1 (`.lo`) or 2, 3 (`.hi`) of `b`.
#[inline]
pub fn dp2a(hi: bool, a: u32, a_signed: bool, b: u32, b_signed: bool, c: u32) -> u32 {
    let b = if hi { b >> 16 } else { b };
    (0..2).fold(c, |sum, i| {
        let product = field(a, 16 * i, 16, a_signed).wrapping_mul(field(b, 8 * i, 8, b_signed));
        sum.wrapping_add(product as u32)
    })
}

/// Returns `len` (1 to 31) bits of `a` from bit `pos` on, sign- or zero-extended.
#[inline]
fn field(a: u32, pos: u32, len: u32, signed: bool) -> i32 {
    let top = (a >> pos) << (32 - len);
    if signed { top as i32 >> (32 - len) } else { (top >> (32 - len)) as i32 }
}

/// `sad.u32`: `c + |a - b|`.
#[inline]
pub fn sad_u32(a: u32, b: u32, c: u32) -> u32 {
    c.wrapping_add(a.abs_diff(b))
}

/// `sad.s32`.
#[inline]
pub fn sad_s32(a: u32, b: u32, c: u32) -> u32 {
    c.wrapping_add((a as i32).abs_diff(b as i32))
}

/// `div.u32`. Division by zero is unspecified in PTX; here, as in NVIDIA's assembler, quotient and remainder are all
/// ones.
#[inline]
pub fn div_u32(a: u32, b: u32) -> u32 {
    a.checked_div(b).unwrap_or(u32::MAX)
}

/// `div.s32`: truncates. Division by zero gives all ones, and `MIN / -1` wraps to `MIN`.
#[inline]
pub fn div_s32(a: u32, b: u32) -> u32 {
    if b == 0 { u32::MAX } else { (a as i32).wrapping_div(b as i32) as u32 }
}

/// `div.u64`; all ones for division by zero, like [`div_u32`].
#[inline]
pub fn div_u64(a: u64, b: u64) -> u64 {
    a.checked_div(b).unwrap_or(u64::MAX)
}

/// `div.s64`: truncates; division by zero and `MIN / -1` are treated as in [`div_s32`].
#[inline]
pub fn div_s64(a: u64, b: u64) -> u64 {
    if b == 0 { u64::MAX } else { (a as i64).wrapping_div(b as i64) as u64 }
}

/// `rem.u32`; all ones for division by zero, like [`div_u32`].
#[inline]
pub fn rem_u32(a: u32, b: u32) -> u32 {
    a.checked_rem(b).unwrap_or(u32::MAX)
}

/// `rem.s32`: the result has the sign of the dividend.
#[inline]
pub fn rem_s32(a: u32, b: u32) -> u32 {
    if b == 0 { u32::MAX } else { (a as i32).wrapping_rem(b as i32) as u32 }
}

/// `rem.u64`; all ones for division by zero.
#[inline]
pub fn rem_u64(a: u64, b: u64) -> u64 {
    a.checked_rem(b).unwrap_or(u64::MAX)
}

/// `rem.s64`: the result has the sign of the dividend; all ones for division by zero.
#[inline]
pub fn rem_s64(a: u64, b: u64) -> u64 {
    if b == 0 { u64::MAX } else { (a as i64).wrapping_rem(b as i64) as u64 }
}

/// `add.sat.s32`.
#[inline]
pub fn add_sat_s32(a: u32, b: u32) -> u32 {
    (a as i32).saturating_add(b as i32) as u32
}

/// `sub.sat.s32`.
#[inline]
pub fn sub_sat_s32(a: u32, b: u32) -> u32 {
    (a as i32).saturating_sub(b as i32) as u32
}

/// `mad.hi.sat.s32`.
#[inline]
pub fn mad_hi_sat_s32(a: u32, b: u32, c: u32) -> u32 {
    add_sat_s32(mul_hi_s32(a, b), c)
}

/// Returns a mask of the low `n` bits; all ones if `n` is 64 or more.
#[inline]
fn low_mask(n: u32) -> u64 {
    1u64.checked_shl(n).map_or(u64::MAX, |bit| bit - 1)
}

#[cfg(test)]
mod tests;
