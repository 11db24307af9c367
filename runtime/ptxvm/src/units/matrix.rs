//! ldmatrix, stmatrix: rows of 16 bytes, one per lane  <=>  8x8 tiles of b16 spread over a warp
//!
//! Lane `8j + r` supplies row `r` of tile `j`. With `g = lane / 4`, `t = lane % 4`, register `j` holds elements
//! `(g, 2t)` and `(g, 2t + 1)`, or with `.trans` elements `(2t, g)` and `(2t + 1, g)` (PTX ISA, ldmatrix).

use super::Lanes;

/// The 16 bytes at one row address, as little-endian words.
pub type Row = [u32; 4];

/// Registers of `ldmatrix.x{count}`: `rows[8j + r]` is row `r` of tile `j`, and `count` is 1, 2 or 4.
pub fn ldmatrix(rows: &[Row; 32], count: usize, trans: bool) -> [Lanes; 4] {
    let mut registers = [[0; 32]; 4];
    for (j, register) in registers.iter_mut().enumerate().take(count) {
        let tile = &rows[8 * j..8 * j + 8];
        for (lane, value) in register.iter_mut().enumerate() {
            let (g, t) = (lane / 4, lane % 4);
            *value = if trans { half(&tile[2 * t], g) | half(&tile[2 * t + 1], g) << 16 } else { tile[g][t] };
        }
    }
    registers
}

/// The rows that `stmatrix.x{count}` writes: row `8j + r` of the result belongs to the address of lane `8j + r`.
pub fn stmatrix(registers: &[Lanes], trans: bool) -> [Row; 32] {
    let mut rows = [[0; 4]; 32];
    for (j, register) in registers.iter().enumerate() {
        let tile = &mut rows[8 * j..8 * j + 8];
        for (lane, &value) in register.iter().enumerate() {
            let (g, t) = (lane / 4, lane % 4);
            if trans {
                tile[2 * t][g / 2] |= (value & 0xffff) << (16 * (g % 2));
                tile[2 * t + 1][g / 2] |= value >> 16 << (16 * (g % 2));
            } else {
                tile[g][t] = value;
            }
        }
    }
    rows
}

/// Element `i` of 8 in a row.
fn half(row: &Row, i: usize) -> u32 {
    row[i / 2] >> (16 * (i % 2)) & 0xffff
}

#[cfg(test)]
mod tests;
