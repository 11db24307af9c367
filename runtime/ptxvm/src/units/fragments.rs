//! (lane, element) of a register fragment  <=>  (row, column) of an mma.sync tile
//!
//! As 32-bit registers every shape reads alike: with `g = lane / 4` and `t = lane % 4`, register `r` of A holds row
//! `g + 8 * (r % 2)` and the 16-byte block `r / 2` of K, register `r` of B column `g` and block `r`; in a block a lane
//! owns the four bytes from `4t` (PTX ISA, "Matrix Fragments for mma").

/// Elements of `bits` in the four bytes of one register.
pub const fn per_register(bits: u32) -> usize {
    (32 / bits) as usize
}

/// Row and column of element `i` of A (row-major fragment of an m16 shape) in `lane`, elements of `bits` each.
pub fn a_position(bits: u32, lane: usize, i: usize) -> (usize, usize) {
    let per = per_register(bits);
    let (register, within) = (i / per, i % per);
    (lane / 4 + 8 * (register % 2), per * (lane % 4) + within + 4 * per * (register / 2))
}

/// Row (k) and column (n) of element `i` of B (column-major fragment of an n8 shape).
pub fn b_position(bits: u32, lane: usize, i: usize) -> (usize, usize) {
    let per = per_register(bits);
    let (register, within) = (i / per, i % per);
    (per * (lane % 4) + within + 4 * per * register, lane / 4)
}

/// Row and column of accumulator element `i` of 4 (m16n8).
pub fn c_position(lane: usize, i: usize) -> (usize, usize) {
    (lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2)
}
