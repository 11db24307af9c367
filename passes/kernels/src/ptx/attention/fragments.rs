//! Tiles in shared memory  =>  fragments in registers  =>  scores and weighted sums of values on tensor cores
//!
//! Of every 8 keys, thread `4g + t` holds the scores of keys 2t and 2t + 1. In the second product, the thread must
//! provide the elements of operand A for these keys. The instruction for 16-bit operands expects keys 2t and 2t + 1
//! from the thread. The instruction for f32 (tf32) expects elements t and t + 4 along k. It therefore sees the keys in
//! the order 0 2 4 6 1 3 5 7, and the values are read in the same order.

use super::super::gemm::copy::{log2, shift};
use super::super::gemm::mma::{Factors, Fragment, Parts, Sums};
use super::plan::{Flash, ROWS};
use crate::asm::{Asm, Bin, Cast, Elem, Ptx, Ty, Val};

/// Number of fragments of eight columns that are in registers at a time.
const TOGETHER: usize = 8;

/// Per-thread addresses and offsets that are the same for all tiles of keys.
pub struct Readers<'a> {
    flash: &'a Flash,
    /// Address of the warp's queries, and the thread's offset from it.
    q_rows: Val,
    q: Val,
    /// Offset in a tile of keys.
    k: Val,
    /// Offsets in a tile of values, one for each 32 bytes of the 128 bytes within which the swizzle permutes chunks.
    v: Vec<Val>,
}

impl<'a> Readers<'a> {
    /// Computes the addresses of a thread. `q_tile` is the address of the block's queries; `warp_m` is the warp's index
    /// along the rows, `warp_n` its index among the warps that share the same rows.
    pub fn new(asm: &mut Ptx, flash: &'a Flash, q_tile: Val, (warp_m, warp_n): (Val, Val)) -> Readers<'a> {
        let lane = asm.special("%laneid");
        let bits = |asm: &mut Ptx, right: i64, mask: i64| {
            let v = shift(asm, Bin::ShRUI, lane, right);
            let mask = asm.int(mask, Ty::I32);
            asm.bin(Bin::AndI, v, mask)
        };
        // Lane 8j + r addresses row r of matrix j: rows 0..8, then rows 8..16, then both again for the next 16 bytes of
        // d.
        let (within, half, low) = (bits(asm, 0, 15), bits(asm, 4, 1), bits(asm, 0, 7));
        let chunk = asm.bin(Bin::XorI, half, low);
        let chunk = shift(asm, Bin::ShLI, chunk, 4);
        let line = shift(asm, Bin::ShLI, within, log2(flash.k.lines.pitch));
        let k = asm.bin(Bin::AddI, line, chunk);
        let q = k;
        let rows = shift(asm, Bin::ShLI, warp_m, log2(ROWS * flash.q.lines.pitch));
        let q_rows = asm.bin(Bin::AddI, q_tile, rows);
        let k = match flash.warp_keys() {
            // Two matrices are loaded at a time: lane 8j + r addresses row r of matrix j.
            8 => {
                let (line, half) = (shift(asm, Bin::ShLI, low, log2(flash.k.lines.pitch)), bits(asm, 3, 1));
                let chunk = asm.bin(Bin::XorI, half, low);
                let chunk = shift(asm, Bin::ShLI, chunk, 4);
                asm.bin(Bin::AddI, line, chunk)
            }
            _ => k,
        };
        let own_keys = shift(asm, Bin::ShLI, warp_n, log2(flash.warp_keys() * flash.k.lines.pitch));
        let k = asm.bin(Bin::AddI, k, own_keys);
        let place = match flash.v.lines.element_bytes {
            4 => {
                let (group, t) = (bits(asm, 2, 7), bits(asm, 0, 3));
                let line = shift(asm, Bin::ShLI, t, 1 + log2(flash.v.lines.pitch));
                let (first, by) = (shift(asm, Bin::ShLI, group, 2), shift(asm, Bin::ShLI, t, 5));
                let place = asm.bin(Bin::AddI, first, by);
                asm.bin(Bin::AddI, place, line)
            }
            // Lines of keys 0..8, then 8..16, then both again for the next 8 columns.
            _ => {
                let line = shift(asm, Bin::ShLI, within, log2(flash.v.lines.pitch));
                asm.bin(Bin::AddI, line, chunk)
            }
        };
        let own_columns = if flash.warps_n == 1 {
            asm.int(0, Ty::I32)
        } else {
            let bytes = 8 * flash.v.lines.element_bytes * flash.warp_columns();
            shift(asm, Bin::ShLI, warp_n, log2(bytes))
        };
        let place = asm.bin(Bin::XorI, place, own_columns);
        let v = (0..4).map(|i| exclusive_or(asm, place, 32 * i)).collect();
        Readers { flash, q_rows, q, k, v }
    }

    /// Returns the scores of the warp's queries and of the keys in the tile at `tile`: for every eight keys, a thread
    /// has four scores.
    pub fn scores(&self, asm: &mut Ptx, factors: Factors, tile: Val, steps: i64) -> Sums {
        let flash = self.flash;
        let sums = zeros(asm, flash.warp_keys() / 8);
        for step in 0..steps {
            let within = exclusive_or(asm, self.q, 32 * step);
            let a_at = asm.bin(Bin::AddI, self.q_rows, within);
            let v = load_matrices(asm, a_at, 0, 4, "");
            let a = pairs_of(asm, v);
            let a = Parts::new(asm, factors, a);
            let within = exclusive_or(asm, self.k, 32 * step);
            let b_at = asm.bin(Bin::AddI, tile, within);
            let mut b: Vec<Fragment> = vec![];
            for pair in 0..flash.warp_keys() / 16 {
                let v = load_matrices(asm, b_at, pair * 16 * flash.k.lines.pitch, 4, "");
                b.extend(pairs_of(asm, v));
            }
            if flash.warp_keys() == 8 {
                let v = load_matrices(asm, b_at, 0, 2, "");
                b.push([0, 1].map(|k| asm.extract(v, k)));
            }
            sums.add_products(asm, factors, &a, &b);
        }
        sums
    }

    /// Adds the products of the exponentials with the values in the tile at `tile`. For every eight keys, `powers`
    /// holds the four exponentials of a thread: two of its row, and two of the row eight below.
    pub fn add_values(&self, asm: &mut Ptx, factors: Factors, tile: Val, powers: &[[Val; 2]], sums: &Sums) {
        let places: Vec<Val> = self.v.iter().map(|v| asm.bin(Bin::AddI, tile, *v)).collect();
        let keys_of_step = if factors == Factors::F32 { 1 } else { 2 };
        for (step, of_step) in powers.chunks(keys_of_step).enumerate() {
            let a = fragments_of(asm, factors, of_step);
            let a = Parts::new(asm, factors, a);
            let n = sums.of[0].len();
            for first in (0..n).step_by(TOGETHER) {
                let end = (first + TOGETHER).min(n);
                let mut b = self.values(asm, &places, step as i64, first, end);
                b.truncate(end - first);
                let part = Sums { of: vec![sums.of[0][first..end].to_vec()] };
                part.add_products(asm, factors, &a, &b);
            }
        }
    }

    /// Fragments of columns `8·first..8·end` for one step of keys.
    fn values(&self, asm: &mut Ptx, places: &[Val], step: i64, first: usize, end: usize) -> Vec<Fragment> {
        let lines = self.flash.v.lines;
        if lines.element_bytes == 4 {
            let one = |n: usize, asm: &mut Ptx| {
                let at = asm.name(places[n % 4], 0);
                [0, 1].map(|odd| {
                    let offset = (step * 8 + odd) * lines.pitch + (n / 4 * 128) as i64;
                    asm.instruction(Ty::I32, "ld.shared.b32", &[format!("[{at}+{offset}]")])
                })
            };
            return (first..end).map(|n| one(n, asm)).collect();
        }
        let mut fragments = vec![];
        for pair in first / 2..end.div_ceil(2) {
            let offset = step * 16 * lines.pitch + (pair / 4 * 128) as i64;
            let v = load_matrices(asm, places[pair % 4], offset, 4, ".trans");
            // The matrices come in the order: both blocks of eight keys for eight columns, then both for the next
            // eight.
            fragments.extend([0, 2].map(|n| [0, 1].map(|k| asm.extract(v, n + k))));
        }
        fragments
    }
}

/// Creates accumulators of 16 rows by `columns` times eight columns, set to 0: four per thread and eight columns.
pub fn zeros(asm: &mut Ptx, columns: i64) -> Sums {
    let zero = asm.zero(Ty::new(Elem::F32, 4));
    let mut sum = || {
        let v = asm.register(zero.ty);
        asm.set(v, zero);
        v
    };
    Sums { of: vec![(0..columns).map(|_| sum()).collect()] }
}

/// Converts exponentials to fragments of operand A of the second product.
pub fn fragments_of(asm: &mut Ptx, factors: Factors, powers: &[[Val; 2]]) -> Vec<Fragment> {
    [0, 1]
        .map(|row| {
            if factors == Factors::F32 {
                let bits = asm.cast(Cast::Bitcast, powers[0][row], Elem::I32);
                return [0, 1].map(|k| asm.extract(bits, k));
            }
            let name = if factors == Factors::F16 { "cvt.rn.f16x2.f32" } else { "cvt.rn.bf16x2.f32" };
            [0, 1].map(|half| match powers.get(half) {
                Some(pair) => {
                    let operands = [asm.name(pair[row], 1), asm.name(pair[row], 0)];
                    asm.instruction(Ty::I32, name, &operands)
                }
                None => asm.zero(Ty::I32),
            })
        })
        .to_vec()
}

fn load_matrices(asm: &mut Ptx, at: Val, offset: i64, n: u32, how: &str) -> Val {
    let v = asm.register(Ty::new(Elem::I32, n));
    let names: Vec<String> = (0..n).map(|i| asm.name(v, i)).collect();
    let at = asm.name(at, 0);
    asm.line(&format!("ldmatrix.sync.aligned.m8n8.x{n}{how}.shared.b16 {{{}}}, [{at}+{offset}];", names.join(", ")));
    v
}

/// Returns the fragments of rows 0..8 and 8..16, each with both halves of the 32 bytes that a step reads of a row.
fn pairs_of(asm: &mut Ptx, v: Val) -> Vec<Fragment> {
    [0, 1].map(|block| [0, 2].map(|k| asm.extract(v, block + k))).to_vec()
}

fn exclusive_or(asm: &mut Ptx, v: Val, by: i64) -> Val {
    if by == 0 {
        return v;
    }
    let by = asm.int(by, Ty::I32);
    asm.bin(Bin::XorI, v, by)
}
