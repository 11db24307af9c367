//! mma.sp, wgmma.sp: kept elements of A and their metadata  =>  the dense A tile, with zeros elsewhere
//!
//! Two of every four columns are kept (for tf32, one of every two). A nibble of metadata holds the positions of the two
//! kept columns, `first | second << 2`; for tf32, the nibble 0100 keeps element 0 and 1110 keeps element 1 (PTX ISA,
//! "mma.sp").

use super::Lanes;
use super::fragments::{Element, Number};

/// The lanes of a quad (four consecutive lanes) that supply the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suppliers {
    /// One lane, chosen by the selector, with a half-word per row.
    OneLane,
    /// Two lanes, chosen by the selector: one for each half of the columns, with a half-word per row.
    LanePair,
    /// Two lanes, chosen by the selector: one for each of the two rows, with a word each.
    RowPair,
    /// All four lanes: the low bit of the lane selects the row, the high bit the half of the columns.
    All,
}

/// The storage of A in a sparse shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sparsity {
    suppliers: Suppliers,
    /// Columns per nibble: 4, or 2 for tf32.
    chunk: usize,
}

impl Sparsity {
    /// Returns the storage for an element type of A and the depth `k` before compression.
    pub(super) fn new(a: Element, k: usize) -> Sparsity {
        let chunk = if a.bits() == 32 { 2 } else { 4 };
        let suppliers = match (a.bits(), k / chunk) {
            (8, 8) => Suppliers::RowPair,
            (_, 4) => Suppliers::OneLane,
            (_, 8) => Suppliers::LanePair,
            (_, _) => Suppliers::All,
        };
        Sparsity { suppliers, chunk }
    }

    pub(super) fn selectors(self) -> u32 {
        match self.suppliers {
            Suppliers::OneLane => 4,
            Suppliers::LanePair | Suppliers::RowPair => 2,
            Suppliers::All => 1,
        }
    }

    /// Returns the metadata nibble of a chunk of columns in a row.
    fn nibble(self, e: &Lanes, selector: usize, row: usize, chunk: usize) -> u32 {
        let (g, upper) = (row % 8, row / 8);
        let (lane, nibble) = match self.suppliers {
            Suppliers::OneLane => (selector, 4 * upper + chunk),
            Suppliers::LanePair => (2 * selector + chunk / 4, 4 * upper + chunk % 4),
            Suppliers::RowPair => (2 * selector + upper, chunk),
            Suppliers::All => (upper + 2 * (chunk / 8), chunk % 8),
        };
        e[4 * g + lane] >> (4 * nibble) & 15
    }
}

/// Returns the dense tile. A selector that the shape does not have is taken modulo [`Sparsity::selectors`].
pub(super) fn expand<T: Number, const M: usize, const K: usize, const HALF: usize>(
    kept: &[[T; HALF]; M],
    sparsity: Sparsity,
    e: &Lanes,
    selector: u32,
) -> [[T; K]; M] {
    let mut dense = [[T::default(); K]; M];
    for (row, (kept, dense)) in kept.iter().zip(&mut dense).enumerate() {
        sparsity.expand_row(kept, (e, selector), row, dense);
    }
    dense
}

impl Sparsity {
    /// Places the kept elements of a row into `dense`, which must hold zeros.
    pub(super) fn expand_row<T: Copy>(self, kept: &[T], (e, selector): (&Lanes, u32), row: usize, dense: &mut [T]) {
        let selector = (selector % self.selectors()) as usize;
        for (chunk, dense) in dense.chunks_exact_mut(self.chunk).enumerate() {
            let nibble = self.nibble(e, selector, row, chunk) as usize;
            if self.chunk == 2 {
                dense[nibble >> 1 & 1] = kept[chunk];
            } else {
                dense[nibble & 3] = kept[2 * chunk];
                dense[nibble >> 2] = kept[2 * chunk + 1];
            }
        }
    }
}
