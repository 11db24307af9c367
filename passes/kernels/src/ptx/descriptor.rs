//! Tiles in shared memory  =>  the descriptors with which `wgmma` reads them (PTX ISA, "Matrix Descriptor Format"), and
//! its instructions
//!
//! A line of a tile takes 128 bytes, whose 16-byte chunks have the 128-byte swizzle, except in tiles of packed constants.
//! It holds a row of the operand or, if rows are contiguous, one value of k of 64 rows.

use super::gemm::copy::shift;
use super::gemm::mma::Factors;
use super::gemm::operand::Lines;
use super::ring::{LINE_BYTES, PATTERN_BYTES};
use crate::asm::{Asm, Bin, Cast, Elem, Ptx, Ty, Val};

/// Number of rows that a warpgroup multiplies.
pub const ROWS: i64 = 64;
/// Number of 16-bit elements along k that one dense instruction multiplies, and their bytes.
pub const STEP: i64 = 16;
pub const STEP_BYTES: i64 = 2 * STEP;

/// The way in which `wgmma` reads the tiles of an operand.
pub struct Tile {
    /// Whether rows are contiguous instead of k.
    pub rows_inside: bool,
    /// Descriptor without the start address.
    constant: u64,
    /// Bytes from one instruction along k to the next.
    step_bytes: i64,
    /// Bytes from the first 128 bytes of all lines to the next 128; 0 if lines are not longer.
    part_bytes: i64,
    /// Bytes from one warpgroup's rows to the next one's.
    pub warpgroup_bytes: i64,
}

impl Tile {
    /// Lines along k: groups of eight follow each other. `of_step` is the number of bytes along k that one instruction
    /// multiplies.
    pub fn along_k(lines: Lines, of_step: i64) -> Tile {
        Tile {
            rows_inside: false,
            constant: swizzled_descriptor(16),
            step_bytes: of_step,
            part_bytes: lines.block_bytes.unwrap_or(0),
            warpgroup_bytes: ROWS * LINE_BYTES,
        }
    }

    /// Lines along rows: a block holds 64 rows for all `k_tile` values of k.
    pub fn along_rows(k_tile: i64) -> Tile {
        let block = k_tile * LINE_BYTES;
        Tile {
            rows_inside: true,
            constant: swizzled_descriptor(block),
            step_bytes: STEP * LINE_BYTES,
            part_bytes: 0,
            warpgroup_bytes: block,
        }
    }

    /// Chunks of 16 bytes along k, as constants are packed: eight rows of a chunk are 128 bytes, and follow each other
    /// without a swizzle; chunks lie `pitch` bytes apart.
    pub fn of_chunks(pitch: i64) -> Tile {
        let constant = (128 >> 4) << 32 | (pitch as u64 >> 4) << 16;
        Tile { rows_inside: false, constant, step_bytes: 2 * pitch, part_bytes: 0, warpgroup_bytes: ROWS * 16 }
    }

    /// Offset in bytes of the elements that instruction `step` multiplies.
    fn offset(&self, step: i64) -> i64 {
        let bytes = step * self.step_bytes;
        match self.part_bytes {
            0 => bytes,
            part => bytes / LINE_BYTES * part + bytes % LINE_BYTES,
        }
    }

    /// Returns the descriptor of the tile at `at`.
    pub fn descriptor(&self, asm: &mut Ptx, at: Val) -> Val {
        let start = shift(asm, Bin::ShRUI, at, 4);
        let start = asm.cast(Cast::ExtUI, start, Elem::I64);
        let constant = asm.i64(self.constant as i64);
        asm.bin(Bin::AddI, start, constant)
    }

    /// Returns the descriptor of the elements that instruction `step` multiplies, given the tile's descriptor.
    pub fn of_step(&self, asm: &mut Ptx, descriptor: Val, step: i64) -> Val {
        let by = asm.i64(self.offset(step) >> 4);
        asm.bin(Bin::AddI, descriptor, by)
    }
}

/// Emits one instruction: sums = a·b, plus the sums if it `adds` to them. A is a descriptor or a list of registers;
/// `turned` says for each operand in shared memory whether its rows are contiguous (1) instead of k (0). If A is sparse,
/// `positions` are the lane's positions and their selector.
pub fn multiply(
    asm: &mut Ptx,
    factors: Factors,
    sums: &[Val],
    (a, b): (&str, Val),
    (adds, turned): (bool, &str),
    positions: Option<(Val, i64)>,
) {
    let registers: Vec<String> =
        sums.iter().flat_map(|sum| (0..4).map(|i| asm.name(*sum, i)).collect::<Vec<_>>()).collect();
    let ty = if factors == Factors::BF16 { "bf16" } else { "f16" };
    let adds = asm.int(adds.into(), Ty::new(Elem::I1, 1));
    let (adds, b, n) = (asm.name(adds, 0), asm.name(b, 0), 8 * sums.len());
    let (sparse, step, positions) = match positions {
        Some((word, selector)) => (".sp", 2 * STEP, format!("{}, {selector}, ", asm.name(word, 0))),
        None => ("", STEP, String::new()),
    };
    asm.line(&format!(
        "wgmma.mma_async{sparse}.sync.aligned.m64n{n}k{step}.f32.{ty}.{ty} {{{}}}, {a}, {b}, {positions}{adds}, 1, 1, {turned};",
        registers.join(", ")
    ));
}

/// Descriptor of a tile with the 128-byte swizzle, without its address.
fn swizzled_descriptor(leading_bytes: i64) -> u64 {
    1 << 62 | (PATTERN_BYTES as u64 >> 4) << 32 | (leading_bytes as u64 >> 4) << 16
}
