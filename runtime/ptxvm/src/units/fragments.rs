//! registers of a warp  <=>  a[m,k], b[k,n], c[m,n] of an mma.sync tile, row-major
//!
//! Seen as 32-bit registers, the fragments of all shapes except those of f64 have the same layout. With `g = lane / 4`
//! and `t = lane % 4`, the registers of an A with 16 rows alternate between rows `g` and `g + 8` for each 16-byte block
//! of K, and register `r` of B holds column `g` of block `r`. In a block, a lane owns the four bytes from `4t` (PTX
//! ISA, "Matrix Fragments for mma").

use super::Lanes;
use super::format::{bf16_to_f32, e4m3_to_f32, f16_to_f32};

/// Number of columns of B, C and D in every shape.
pub const N: usize = 8;

/// The element types of A and B, except f64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// IEEE 754 half precision.
    F16,
    /// The upper half of an f32.
    Bf16,
    /// An f32 whose lower 13 bits the multiplier ignores.
    Tf32,
    /// An 8-bit float with 4 exponent bits and 3 mantissa bits, without infinities.
    E4m3,
    /// An 8-bit float with 5 exponent bits and 2 mantissa bits.
    E5m2,
    /// A signed 8-bit integer.
    S8,
    /// An unsigned 8-bit integer.
    U8,
    /// A signed 4-bit integer.
    S4,
    /// An unsigned 4-bit integer.
    U4,
}

impl Element {
    /// Parses the name of a type without its dot, such as `bf16`; `None` for any other text.
    pub fn parse(text: &str) -> Option<Element> {
        Some(match text {
            "f16" => Element::F16,
            "bf16" => Element::Bf16,
            "tf32" => Element::Tf32,
            "e4m3" => Element::E4m3,
            "e5m2" => Element::E5m2,
            "s8" => Element::S8,
            "u8" => Element::U8,
            "s4" => Element::S4,
            "u4" => Element::U4,
            _ => return None,
        })
    }

    /// Returns the number of bits that an element takes in a register; 32 for tf32.
    pub const fn bits(self) -> usize {
        match self {
            Element::Tf32 => 32,
            Element::F16 | Element::Bf16 => 16,
            Element::E4m3 | Element::E5m2 | Element::S8 | Element::U8 => 8,
            Element::S4 | Element::U4 => 4,
        }
    }

    /// Returns the value of the element in the low bits of `word`.
    #[inline(always)]
    pub fn value(self, word: u32) -> f32 {
        match self {
            Element::F16 => f16_to_f32(word as u16),
            Element::Bf16 => bf16_to_f32(word as u16),
            // The multiplier reads only the upper 19 bits; the lower bits may hold any value.
            Element::Tf32 => f32::from_bits(word & 0xffff_e000),
            Element::E4m3 => e4m3_to_f32(word as u8),
            // e5m2 is the upper byte of an f16.
            Element::E5m2 => f16_to_f32((word as u16) << 8),
            Element::S8 => f32::from(word as i8),
            Element::U8 => f32::from(word as u8),
            Element::S4 => f32::from((word << 4) as i8 >> 4),
            Element::U4 => f32::from(word as u8 & 15),
        }
    }

    /// Returns whether the type is an integer, so that products are accumulated in s32.
    pub const fn is_integer(self) -> bool {
        match self {
            Element::F16 | Element::Bf16 | Element::Tf32 | Element::E4m3 | Element::E5m2 => false,
            Element::S8 | Element::U8 | Element::S4 | Element::U4 => true,
        }
    }
}

/// The type in which a tile is multiplied: f64, or f32 if all sums are exact in f32.
pub trait Number: Copy + Default + From<f32> + std::ops::Add<Output = Self> + std::ops::Mul<Output = Self> {}

impl Number for f32 {}
impl Number for f64 {}

/// Collects A of a shape with 16 or 8 rows from the registers of a warp.
#[inline]
pub fn gather_a<T: Number, const M: usize, const K: usize>(element: Element, registers: &[Lanes]) -> [[T; K]; M] {
    let mut tile = [[T::default(); K]; M];
    let halves = M / 8;
    for (r, register) in registers.iter().enumerate() {
        let (half, block) = (r % halves, r / halves);
        for g in 0..8 {
            let row = &mut tile[g + 8 * half];
            let words: &[u32; 4] = register[4 * g..4 * g + 4].try_into().expect("four words");
            decode(element, words, block, row);
        }
    }
    tile
}

/// Collects B, which has 8 columns, from the registers of a warp.
#[inline]
pub fn gather_b<T: Number, const K: usize>(element: Element, registers: &[Lanes]) -> [[T; N]; K] {
    let mut columns = [[T::default(); K]; N];
    for (block, register) in registers.iter().enumerate() {
        for (g, column) in columns.iter_mut().enumerate() {
            let words: &[u32; 4] = register[4 * g..4 * g + 4].try_into().expect("four words");
            decode(element, words, block, column);
        }
    }
    std::array::from_fn(|k| std::array::from_fn(|n| columns[n][k]))
}

/// Decodes the 16 bytes of block `block` of a row of A or a column of B.
#[inline(always)]
fn decode<T: Number>(element: Element, words: &[u32; 4], block: usize, row: &mut [T]) {
    // The element type is a constant in each match arm, so that the compiler generates a separate loop for each type.
    match element {
        Element::F16 => fields::<T, 16>(words, block, row, |x| Element::F16.value(x)),
        Element::Bf16 => fields::<T, 16>(words, block, row, |x| Element::Bf16.value(x)),
        Element::Tf32 => fields::<T, 32>(words, block, row, |x| Element::Tf32.value(x)),
        Element::E4m3 => fields::<T, 8>(words, block, row, |x| Element::E4m3.value(x)),
        Element::E5m2 => fields::<T, 8>(words, block, row, |x| Element::E5m2.value(x)),
        Element::S8 => fields::<T, 8>(words, block, row, |x| Element::S8.value(x)),
        Element::U8 => fields::<T, 8>(words, block, row, |x| Element::U8.value(x)),
        Element::S4 => fields::<T, 4>(words, block, row, |x| Element::S4.value(x)),
        Element::U4 => fields::<T, 4>(words, block, row, |x| Element::U4.value(x)),
    }
}

#[inline(always)]
fn fields<T: Number, const BITS: usize>(words: &[u32; 4], block: usize, row: &mut [T], value: impl Fn(u32) -> f32) {
    let per_word = 32 / BITS;
    let row = &mut row[4 * per_word * block..][..4 * per_word];
    for (word, out) in words.iter().zip(row.chunks_exact_mut(per_word)) {
        for (i, out) in out.iter_mut().enumerate() {
            *out = T::from(value(word >> (BITS * i)));
        }
    }
}

/// Calls `visit(lane, i, row, column)` for each accumulator element of a shape with `m` (8 or 16) rows; `i` counts the
/// elements of a lane.
#[inline(always)]
pub fn for_accumulators(m: usize, mut visit: impl FnMut(usize, usize, usize, usize)) {
    for i in 0..m / 4 {
        for lane in 0..32 {
            visit(lane, i, lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2);
        }
    }
}

/// Adds a[m,k] · b[k,n] to c[m,n], for an even number of rows.
#[inline]
pub fn multiply<T: Number, const K: usize>(a: &[[T; K]], b: &[[T; N]; K], c: &mut [[T; N]]) {
    // Two rows at a time give enough independent accumulators to hide the latency of an addition.
    for (a, c) in a.chunks_exact(2).zip(c.chunks_exact_mut(2)) {
        let (mut upper, mut lower) = (c[0], c[1]);
        for k in 0..K {
            for n in 0..N {
                upper[n] = upper[n] + a[0][k] * b[k][n];
                lower[n] = lower[n] + a[1][k] * b[k][n];
            }
        }
        (c[0], c[1]) = (upper, lower);
    }
}
