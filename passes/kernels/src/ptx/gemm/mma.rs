//! Two tiles in shared memory  =>  fragments in registers  =>  sums on tensor cores
//!
//! A fragment register covers eight rows by 16 bytes of k for every element type: thread `4g + t` has the four bytes
//! `4t` of row `g`. `ldmatrix` brings four of them, or two where a warp has eight rows; f32 with rows inside comes by
//! ordinary loads.
//!
//! An f32 is taken as two tf32: x = hi + lo + ε, |lo| ≤ 2^-11·|x|, |ε| ≤ 2^-21·|x|; a·b ≈ lo·hi + hi·lo + hi·hi, each
//! product exact, summed in f32.

use super::copy::{log2, shift, swizzle};
use super::operand::{Inner, Operand};
use super::plan::Gemm;
use crate::asm::{Asm, Bin, Elem, Ptx, Ty, Val};
use sardonyx_base::DType;

/// Bytes of k of one instruction.
const STEP_BYTES: i64 = 32;

/// Where a warp's fragments of one operand lie.
pub struct Reader<'a> {
    operand: &'a Operand,
    /// Rows of the warp.
    rows: i64,
    /// Per step in a line of k, or per pair of row blocks where rows are inside: the first place, from the stage on.
    places: Vec<Val>,
}

/// Eight rows by 32 bytes of k, in two registers.
pub type Fragment = [Val; 2];

impl<'a> Reader<'a> {
    /// `warp` counts the warps along the operand's rows.
    pub fn new(asm: &mut Ptx, operand: &'a Operand, rows: i64, warp: Val) -> Reader<'a> {
        let lane = asm.special("%laneid");
        let bits = |asm: &mut Ptx, right: i64, mask: i64| {
            let v = shift(asm, Bin::ShRUI, lane, right);
            let mask = asm.int(mask, Ty::I32);
            asm.bin(Bin::AndI, v, mask)
        };
        let first = shift(asm, Bin::ShLI, warp, log2(rows));
        let (line, bytes, each) = match (operand.inner, operand.element_bytes) {
            // The same with two matrices: lane 8j + r addresses row r of matrix j.
            (Inner::K, _) if rows == 8 => {
                let (within, half) = (bits(asm, 0, 7), bits(asm, 3, 1));
                let line = asm.bin(Bin::AddI, first, within);
                (line, shift(asm, Bin::ShLI, half, 4), operand.pitch() / STEP_BYTES)
            }
            (Inner::Rows, 2) if rows == 8 => (bits(asm, 0, 15), shift(asm, Bin::ShLI, first, 1), 1),
            (Inner::K, _) => {
                // Lane 8j + r addresses row r of matrix j: rows 0..8, rows 8..16, then the next 16 bytes of k.
                let (within, half) = (bits(asm, 0, 15), bits(asm, 4, 1));
                let line = asm.bin(Bin::AddI, first, within);
                (line, shift(asm, Bin::ShLI, half, 4), operand.pitch() / STEP_BYTES)
            }
            (Inner::Rows, 4) => {
                let (group, k) = (bits(asm, 2, 7), bits(asm, 0, 3));
                let row = asm.bin(Bin::AddI, first, group);
                (k, shift(asm, Bin::ShLI, row, 2), (rows / 8).min(4))
            }
            (Inner::Rows, _) => {
                let (within, upper, half) = (bits(asm, 0, 7), bits(asm, 4, 1), bits(asm, 3, 1));
                let upper = shift(asm, Bin::ShLI, upper, 3);
                let line = asm.bin(Bin::AddI, within, upper);
                let bytes = shift(asm, Bin::ShLI, first, 1);
                let half = shift(asm, Bin::ShLI, half, 4);
                (line, asm.bin(Bin::AddI, bytes, half), rows / 16)
            }
        };
        let start = shift(asm, Bin::ShLI, line, log2(operand.pitch()));
        let by = swizzle(asm, operand.layout(), line);
        let bytes = asm.bin(Bin::XorI, bytes, by);
        let place = asm.bin(Bin::AddI, start, bytes);
        let places = (0..each).map(|i| {
            let by = asm.int(i * STEP_BYTES, Ty::I32);
            if i == 0 { place } else { asm.bin(Bin::XorI, place, by) }
        });
        let places = places.collect();
        Reader { operand, rows, places }
    }

    /// The fragments of step `step` of the stage whose tile begins at `tile`, one per eight rows.
    fn fragments(&self, asm: &mut Ptx, tile: Val, step: i64) -> Vec<Fragment> {
        let (operand, pitch) = (self.operand, self.operand.pitch());
        let steps = (operand.k_tile * operand.element_bytes) / STEP_BYTES;
        debug_assert!(step < steps);
        let mut fragments = vec![];
        if operand.inner == Inner::Rows && operand.element_bytes == 4 {
            let at: Vec<Val> = self.places.iter().map(|p| asm.bin(Bin::AddI, tile, *p)).collect();
            for block in 0..self.rows / 8 {
                fragments.push([0, 4].map(|k| {
                    let at = asm.name(at[(block % 4) as usize], 0);
                    let offset = (step * 8 + k) * pitch + block / 4 * 128;
                    asm.instruction(Ty::I32, "ld.shared.b32", &[format!("[{at}+{offset}]")])
                }));
            }
            return fragments;
        }
        if self.rows == 8 {
            let (place, offset, trans) = match operand.inner {
                Inner::K => (self.places[step as usize], 0, ""),
                Inner::Rows => (self.places[0], step * 16 * pitch, ".trans"),
            };
            let at = asm.bin(Bin::AddI, tile, place);
            let at = asm.name(at, 0);
            let v = asm.register(Ty::new(Elem::I32, 2));
            let names = [asm.name(v, 0), asm.name(v, 1)].join(", ");
            asm.line(&format!("ldmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 {{{names}}}, [{at}+{offset}];"));
            fragments.push([0, 1].map(|k| asm.extract(v, k)));
        }
        for pair in 0..self.rows / 16 {
            let (place, offset, trans) = match operand.inner {
                Inner::K => (self.places[step as usize], pair * 16 * pitch, ""),
                Inner::Rows => (self.places[pair as usize], step * 16 * pitch, ".trans"),
            };
            let at = asm.bin(Bin::AddI, tile, place);
            let at = asm.name(at, 0);
            let v = asm.register(Ty::new(Elem::I32, 4));
            let names: Vec<String> = (0..4).map(|i| asm.name(v, i)).collect();
            asm.line(&format!(
                "ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{{}}}, [{at}+{offset}];",
                names.join(", ")
            ));
            fragments.extend([0, 1].map(|block| [0, 2].map(|k| asm.extract(v, block + k))));
        }
        fragments
    }
}

/// A warp's sums: per 16 rows and 8 columns the four elements of a thread; the columns of each sum in turn.
pub struct Sums {
    pub of: Vec<Vec<Val>>,
}

impl Sums {
    pub fn zeros(asm: &mut Ptx, gemm: &Gemm) -> Sums {
        let (rows, columns) = (gemm.shape.warp_m() / 16, gemm.shape.warp_n() / 8);
        let zero = asm.zero(Ty::new(Elem::F32, 4));
        let mut sum = || {
            let v = asm.register(zero.ty);
            asm.set(v, zero);
            v
        };
        Sums { of: (0..rows).map(|_| (0..columns).map(|_| sum()).collect()).collect() }
    }

    /// Adds the products of one stage, which has these tiles: A's, then each B's.
    pub fn add(&self, asm: &mut Ptx, dtype: DType, readers: &[Reader], tiles: &[Val]) {
        let a = readers[0].operand;
        for step in 0..a.k_tile * a.element_bytes / STEP_BYTES {
            let mut fragments = readers.iter().zip(tiles).map(|(r, tile)| r.fragments(asm, *tile, step));
            let a = fragments.next().expect("A comes first");
            let b: Vec<Fragment> = fragments.flatten().collect();
            let a = Parts::of(asm, dtype, a);
            self.add_products(asm, dtype, &a, &b);
        }
    }

    /// Adds the products of some fragments.
    pub fn add_products(&self, asm: &mut Ptx, dtype: DType, a: &Parts, b: &[Fragment]) {
        let kind = match dtype {
            DType::BF16 => "m16n8k16.row.col.f32.bf16.bf16.f32",
            DType::F16 => "m16n8k16.row.col.f32.f16.f16.f32",
            _ => {
                let b = Parts::of(asm, dtype, b.to_vec());
                // The small terms first; each pass goes over all sums, so that none waits for itself.
                for (a, b) in [(&a.low, &b.high), (&a.high, &b.low), (&a.high, &b.high)] {
                    self.products(asm, "m16n8k8.row.col.f32.tf32.tf32.f32", a, b);
                }
                return;
            }
        };
        self.products(asm, kind, &a.high, b);
    }

    fn products(&self, asm: &mut Ptx, kind: &str, a: &[Fragment], b: &[Fragment]) {
        for (sums, rows) in self.of.iter().zip(a.chunks(2)) {
            for (sum, columns) in sums.iter().zip(b) {
                let sums: Vec<String> = (0..4).map(|i| asm.name(*sum, i)).collect();
                let a = [rows[0][0], rows[1][0], rows[0][1], rows[1][1]].map(|v| asm.name(v, 0)).join(", ");
                let b = columns.map(|v| asm.name(v, 0)).join(", ");
                let sums = sums.join(", ");
                asm.line(&format!("mma.sync.aligned.{kind} {{{sums}}}, {{{a}}}, {{{b}}}, {{{sums}}};"));
            }
        }
    }
}

/// Fragments as the instructions take them: of f32 two tf32 each.
pub struct Parts {
    high: Vec<Fragment>,
    low: Vec<Fragment>,
}

impl Parts {
    pub fn of(asm: &mut Ptx, dtype: DType, fragments: Vec<Fragment>) -> Parts {
        match dtype {
            DType::BF16 | DType::F16 => Parts { high: fragments, low: vec![] },
            _ => split(asm, &fragments),
        }
    }
}

/// x  =>  its nearest tf32, and what is left, of which the instruction takes the upper bits.
///
/// `cvt.rna.tf32` would be four instructions each time on sm_80, because of infinities and NaN, and together they would
/// take as long as the products. Of a NaN here the second part is one at least; infinities give NaN too, see `exact`.
fn split(asm: &mut Ptx, fragments: &[Fragment]) -> Parts {
    let mut both = Parts { high: vec![], low: vec![] };
    let (half, upper) = (asm.int(0x1000, Ty::I32), asm.int(-0x2000, Ty::I32));
    for fragment in fragments {
        let parts = fragment.map(|x| {
            let up = asm.bin(Bin::AddI, x, half);
            let hi = asm.bin(Bin::AndI, up, upper);
            let operands = [asm.name(x, 0), asm.name(hi, 0)];
            (hi, asm.instruction(Ty::I32, "sub.rn.f32", &operands))
        });
        both.high.push(parts.map(|p| p.0));
        both.low.push(parts.map(|p| p.1));
    }
    both
}
