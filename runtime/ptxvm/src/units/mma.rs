//! mma.sync: D = A * B + C of one warp, operands in the registers of its 32 lanes

use super::Lanes;

/// A parsed `mma.sync.aligned...` or `mma.sp...`: shape, types, number of registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mma {
    pub n_a: usize,
    pub n_b: usize,
    pub n_c: usize,
    pub n_d: usize,
}

impl Mma {
    /// The dot-separated parts after `mma.sync.aligned`: `m16n8k16 row col f32 bf16 bf16 f32`.
    pub fn parse(modifiers: &[&str]) -> Result<Mma, String> {
        todo!("{modifiers:?}")
    }

    /// `d` may not alias the operands; it has `n_d` registers. f64 takes two registers per element, low word first.
    pub fn run(&self, a: &[Lanes], b: &[Lanes], c: &[Lanes], d: &mut [Lanes]) {
        todo!("{a:?} {b:?} {c:?} {d:?}")
    }
}
