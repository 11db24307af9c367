//! Two tiles in shared memory  =>  fragments in registers  =>  accumulation on tensor cores
//!
//! A fragment register covers eight rows by 16 bytes of k for every element type: thread `4g + t` of a warp
//! has the bytes from `4t` to `4t + 3` of row `g`. `ldmatrix` loads four such registers, or two if a warp has eight
//! rows. Operands with 4-byte elements (f32, bytes in panels) that are contiguous along M or N use ordinary loads.
//!
//! An f32 is split into two tf32: x = hi + lo + ε, |lo| ≤ 2^-11·|x|, |ε| ≤ 2^-21·|x|; a·b ≈ lo·hi + hi·lo + hi·hi,
//! where each product is exact and the sum is in f32.

use super::copy::{log2, shift, swizzle};
use super::operand::{Inner, Operand};
use super::plan::Gemm;
use crate::asm::{Asm, Bin, Elem, Ptx, Ty, Val};
use sardonyx_base::DType;
use std::ops::Range;

/// Bytes of k that one instruction multiplies.
pub const STEP_BYTES: i64 = 32;

/// Types of both operands of a tensor-core product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factors {
    /// f32 by f32, each split into two tf32.
    F32,
    /// f16 by f16, accumulated in f32.
    F16,
    /// bf16 by bf16, accumulated in f32.
    BF16,
    /// f32 by codes, which tf32 represents exactly.
    Codes,
    /// Bytes, each operand signed or unsigned.
    Bytes([DType; 2]),
}

impl Factors {
    /// Returns the types of a product; `None` if this module does not support them.
    pub fn new(left: DType, right: DType) -> Option<Factors> {
        match (left, right) {
            (DType::F32, DType::F32) => Some(Factors::F32),
            (DType::F16, DType::F16) => Some(Factors::F16),
            (DType::BF16, DType::BF16) => Some(Factors::BF16),
            (DType::F32, DType::I4 | DType::I8) => Some(Factors::Codes),
            (DType::I8 | DType::U8, DType::I8 | DType::U8) => Some(Factors::Bytes([left, right])),
            (DType::I8 | DType::U8, DType::I4) => Some(Factors::Bytes([left, DType::I8])),
            _ => None,
        }
    }

    /// Returns the type of the accumulators.
    pub fn sum(self) -> Elem {
        match self {
            Factors::F32 | Factors::F16 | Factors::BF16 | Factors::Codes => Elem::F32,
            Factors::Bytes(_) => Elem::I32,
        }
    }

    /// Returns whether operand A is split into two tf32, which gives NaN for infinities and numbers that round to them.
    pub fn is_split(self) -> bool {
        matches!(self, Factors::F32 | Factors::Codes)
    }

    /// Returns the number of bits of a code of operand B if threads must convert the codes; `None` if operand B is
    /// multiplied as it is.
    pub fn code_bits(self, right: DType) -> Option<i64> {
        (self == Factors::Codes || right == DType::I4).then_some(right.bits() as i64)
    }

    /// Returns the name of the instruction, with its shape and types.
    fn instruction(self) -> String {
        let shape = match self {
            Factors::F32 | Factors::Codes => "m16n8k8",
            Factors::F16 | Factors::BF16 => "m16n8k16",
            Factors::Bytes(_) => "m16n8k32",
        };
        format!("mma.sync.aligned.{shape}.{}", self.types())
    }

    /// Returns the name of the instruction that multiplies a 2:4 operand A, with twice as many elements along K. It is
    /// wrong for types that are split, which no sparse kernel has.
    pub(super) fn sparse_instruction(self) -> String {
        let shape = if matches!(self, Factors::Bytes(_)) { "m16n8k64" } else { "m16n8k32" };
        format!("mma.sp.sync.aligned.{shape}.{}", self.types())
    }

    fn types(self) -> String {
        match self {
            Factors::F32 | Factors::Codes => "row.col.f32.tf32.tf32.f32".into(),
            Factors::F16 => "row.col.f32.f16.f16.f32".into(),
            Factors::BF16 => "row.col.f32.bf16.bf16.f32".into(),
            Factors::Bytes(types) => {
                let [left, right] = types.map(|t| if t == DType::U8 { "u8" } else { "s8" });
                format!("row.col.s32.{left}.{right}.s32")
            }
        }
    }
}

/// Addresses of a warp's fragments of one operand.
pub struct Reader<'a> {
    operand: &'a Operand,
    /// Number of rows of the operand that the warp multiplies.
    rows: i64,
    /// Offsets in a tile: one per step if lines run along k. If lines run along rows: one per 16 rows; for elements of
    /// 4 bytes one per 8 rows, at most four; for elements of 16 bytes only one.
    places: Vec<Val>,
    codes: Option<Codes>,
}

/// Eight rows by 32 bytes of k, in two registers.
pub type Fragment = [Val; 2];

impl<'a> Reader<'a> {
    /// Computes a thread's addresses. `warp` is the index of the warp along the operand's rows.
    pub fn new(asm: &mut Ptx, factors: Factors, operand: &'a Operand, rows: i64, warp: Val) -> Reader<'a> {
        let lane = asm.special("%laneid");
        let codes = operand.code_bits.map(|bits| Codes::new(asm, factors, bits, lane));
        let bits = |asm: &mut Ptx, right: i64, mask: i64| {
            let v = shift(asm, Bin::ShRUI, lane, right);
            let mask = asm.int(mask, Ty::I32);
            asm.bin(Bin::AndI, v, mask)
        };
        let first = shift(asm, Bin::ShLI, warp, log2(rows));
        let (line, bytes, each) = match (operand.inner, operand.element_bytes) {
            // Two matrices: lane 8j + r addresses row r of matrix j.
            (Inner::K, _) if rows == 8 => {
                let (within, half) = (bits(asm, 0, 7), bits(asm, 3, 1));
                let line = asm.bin(Bin::AddI, first, within);
                (line, shift(asm, Bin::ShLI, half, 4), operand.pitch() / STEP_BYTES)
            }
            // The matrices are those of `Inner::K`, two or four, but a line holds 16 bytes along k of every row.
            (Inner::Rows, 16) => {
                let two = rows > 8;
                let (within, half) = (bits(asm, 0, if two { 15 } else { 7 }), bits(asm, if two { 4 } else { 3 }, 1));
                let row = asm.bin(Bin::AddI, first, within);
                (half, shift(asm, Bin::ShLI, row, 4), 1)
            }
            (Inner::Rows, 2) if rows == 8 => (bits(asm, 0, 15), shift(asm, Bin::ShLI, first, 1), 1),
            (Inner::K, _) => {
                // Lane 8j + r addresses row r of matrix j: rows 0..8, then rows 8..16, then both again for the next 16
                // bytes of k.
                let (within, half) = (bits(asm, 0, 15), bits(asm, 4, 1));
                let line = asm.bin(Bin::AddI, first, within);
                (line, shift(asm, Bin::ShLI, half, 4), operand.pitch() / STEP_BYTES)
            }
            (Inner::Rows, 4) => {
                let group = bits(asm, 2, 7);
                let line = match (codes, factors) {
                    (None, _) => bits(asm, 0, 3),
                    // A line holds a step of a column (eight codes of 4 bits), or half a step (four codes of 8 bits).
                    (Some(_), Factors::Codes) => asm.int(0, Ty::I32),
                    (Some(_), _) => bits(asm, 1, 1),
                };
                let row = asm.bin(Bin::AddI, first, group);
                (line, shift(asm, Bin::ShLI, row, 2), (rows / 8).min(4))
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
        Reader { operand, rows, places, codes }
    }

    /// Restricts the reader to the steps of a slice, given by its index and its number of steps.
    pub fn part(mut self, asm: &mut Ptx, slice: Option<(Val, i64)>) -> Self {
        let Some((slice, steps)) = slice else { return self };
        let operand = self.operand;
        // Number of lines of a step if lines run along rows. The swizzle repeats after eight lines, so it is the same
        // in every slice.
        let lines = match operand.element_bytes {
            4 => 8,
            16 => 2,
            _ => 16,
        };
        let (op, bytes) = match operand.inner {
            Inner::K => (Bin::XorI, steps * STEP_BYTES),
            Inner::Rows => (Bin::AddI, steps * lines * operand.pitch()),
        };
        let by = shift(asm, Bin::ShLI, slice, log2(bytes));
        self.places = self.places.iter().map(|place| asm.bin(op, *place, by)).collect();
        self
    }

    /// Returns the fragments of step `step` in the tile at `tile`, one per eight rows.
    pub(super) fn fragments(&self, asm: &mut Ptx, tile: Val, step: i64) -> Vec<Fragment> {
        let (operand, pitch) = (self.operand, self.operand.pitch());
        let mut fragments = vec![];
        if operand.inner == Inner::Rows && operand.element_bytes == 4 {
            let lines = self.codes.as_ref().map_or([step * 8, step * 8 + 4], |codes| codes.lines(step));
            let at = lines.map(|line| -> Vec<Val> {
                // Swizzle by the bits of the line that do not depend on the thread.
                let by = asm.int(operand.layout().swizzle_of(line) << 4, Ty::I32);
                let known = asm.known_int(by) == Some(0);
                let place = |p: &Val| if known { *p } else { asm.bin(Bin::XorI, *p, by) };
                let places: Vec<Val> = self.places.iter().map(place).collect();
                places.into_iter().map(|p| asm.bin(Bin::AddI, tile, p)).collect()
            });
            for block in 0..self.rows / 8 {
                let load = |asm: &mut Ptx, half: usize| {
                    let at = asm.name(at[half][(block % 4) as usize], 0);
                    let offset = lines[half] * pitch + block / 4 * 128;
                    asm.instruction(Ty::I32, "ld.shared.b32", &[format!("[{at}+{offset}]")])
                };
                fragments.push(match &self.codes {
                    None => [0, 1].map(|half| load(asm, half)),
                    Some(codes) => codes.fragment(asm, lines, load),
                });
            }
            return fragments;
        }
        if self.rows == 8 {
            let (place, offset, trans) = match operand.inner {
                Inner::K => (self.places[step as usize], 0, ""),
                Inner::Rows if operand.element_bytes == 16 => (self.places[0], step * 2 * pitch, ""),
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
                Inner::Rows if operand.element_bytes == 16 => (self.places[0], step * 2 * pitch + pair * 256, ""),
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

/// Conversion of codes in shared memory to a thread's fragments of operand B. Four bytes of a column are stored side by
/// side: four codes of 8 bits along k, or eight of 4 bits, the first four in the low nibbles.
#[derive(Clone, Copy)]
struct Codes {
    factors: Factors,
    bits: i64,
    /// First bit of the thread's codes; for bytes expanded from nibbles, the number of bits by which they are shifted
    /// up.
    first: Val,
}

impl Codes {
    fn new(asm: &mut Ptx, factors: Factors, bits: i64, lane: Val) -> Codes {
        let (one, three) = (asm.int(1, Ty::I32), asm.int(3, Ty::I32));
        let first = match factors {
            Factors::Codes => {
                let thread = asm.bin(Bin::AndI, lane, three);
                shift(asm, Bin::ShLI, thread, 3)
            }
            // Low nibbles are shifted up by four.
            _ => {
                let odd = asm.bin(Bin::AndI, lane, one);
                let even = asm.bin(Bin::XorI, odd, one);
                shift(asm, Bin::ShLI, even, 2)
            }
        };
        Codes { factors, bits, first }
    }

    /// Lines from which the two registers of a fragment are loaded, without the part that depends on the thread.
    fn lines(&self, step: i64) -> [i64; 2] {
        match (self.factors, self.bits) {
            (Factors::Codes, 4) => [step; 2],
            (Factors::Codes, _) => [2 * step, 2 * step + 1],
            _ => [4 * step, 4 * step + 2],
        }
    }

    fn fragment(&self, asm: &mut Ptx, lines: [i64; 2], load: impl Fn(&mut Ptx, usize) -> Val) -> Fragment {
        let low = load(asm, 0);
        let high = if lines[0] == lines[1] { low } else { load(asm, 1) };
        if self.factors != Factors::Codes {
            // These bytes are 16 times the codes.
            let mask = asm.int(0xF0F0_F0F0_u32.cast_signed().into(), Ty::I32);
            return [low, high].map(|word| {
                let up = asm.bin(Bin::ShLI, word, self.first);
                asm.bin(Bin::AndI, up, mask)
            });
        }
        let four = asm.int(4, Ty::I32);
        let second = if lines[0] == lines[1] { asm.bin(Bin::AddI, self.first, four) } else { self.first };
        [(low, self.first), (high, second)].map(|(word, first)| {
            let operands = [asm.name(word, 0), asm.name(first, 0), self.bits.to_string()];
            let code = asm.instruction(Ty::I32, "bfe.s32", &operands);
            let code = asm.name(code, 0);
            asm.instruction(Ty::I32, "cvt.rn.f32.s32", &[code])
        })
    }
}

/// Accumulators of a warp: for every 16 rows and 8 columns, the four elements of a thread; the columns of one
/// contraction after those of another.
pub struct Sums {
    pub of: Vec<Vec<Val>>,
}

impl Sums {
    pub fn zeros(asm: &mut Ptx, gemm: &Gemm, elem: Elem) -> Sums {
        let (rows, columns) = (gemm.shape.warp_m() / 16, gemm.shape.warp_n() / 8);
        let zero = asm.zero(Ty::new(elem, 4));
        let mut sum = || {
            let v = asm.register(zero.ty);
            asm.set(v, zero);
            v
        };
        Sums { of: (0..rows).map(|_| (0..columns).map(|_| sum()).collect()).collect() }
    }

    /// Adds the accumulators `parts`, and resets them to 0.
    pub fn take(&self, asm: &mut Ptx, parts: &Sums) {
        for (sum, part) in self.of.iter().flatten().zip(parts.of.iter().flatten()) {
            let total = asm.bin(Bin::AddF, *sum, *part);
            asm.set(*sum, total);
            let zero = asm.zero(part.ty);
            asm.set(*part, zero);
        }
    }

    /// Adds the integer accumulators of the other slices of K to those of the first, through shared memory, where the
    /// tiles are no longer needed. `warp` is the index of the warp in the block, `tiles` the address of the tiles.
    pub fn gather(&self, asm: &mut Ptx, gemm: &Gemm, (warp, is_first): (Val, Val), tiles: Val) {
        // No copies are in flight: those of every k tile have been waited for.
        asm.line("bar.sync 0;");
        let all: Vec<Val> = self.of.iter().flatten().copied().collect();
        // Each register takes 128 bytes: four of each thread of a warp.
        let per_warp = all.len() as i64 * 4 * 128;
        let lane = asm.special("%laneid");
        let (lane, each) = (shift(asm, Bin::ShLI, lane, 2), asm.int(per_warp, Ty::I32));
        let at = asm.bin(Bin::MulI, warp, each);
        let at = asm.bin(Bin::AddI, at, tiles);
        let at = asm.bin(Bin::AddI, at, lane);
        let at = asm.name(at, 0);
        let others = asm.int(1, Ty::new(Elem::I1, 1));
        let others = asm.bin(Bin::XorI, is_first, others);
        let place = |sum: usize, i: u32| (sum as i64 * 4 + i64::from(i)) * 128;
        asm.if_then(others, |asm| {
            for (n, sum) in all.iter().enumerate() {
                for i in 0..4 {
                    let value = asm.name(*sum, i);
                    asm.line(&format!("st.shared.b32 [{at}+{}], {value};", place(n, i)));
                }
            }
        });
        asm.line("bar.sync 0;");
        asm.if_then(is_first, |asm| {
            for slice in 1..gemm.shape.slices {
                let before = slice * gemm.shape.warps() * per_warp;
                for (n, sum) in all.iter().enumerate() {
                    let other = asm.register(sum.ty);
                    for i in 0..4 {
                        let value = asm.name(other, i);
                        asm.line(&format!("ld.shared.b32 {value}, [{at}+{}];", before + place(n, i)));
                    }
                    let total = asm.bin(Bin::AddI, *sum, other);
                    asm.set(*sum, total);
                }
            }
        });
    }

    /// Adds the products of some steps of one stage, given its tiles: A's, then each B's.
    pub fn add(&self, asm: &mut Ptx, factors: Factors, readers: &[Reader], tiles: &[Val], steps: Range<i64>) {
        for step in steps {
            let mut fragments = readers.iter().zip(tiles).map(|(r, tile)| r.fragments(asm, *tile, step));
            let a = fragments.next().expect("A comes first");
            let b: Vec<Fragment> = fragments.flatten().collect();
            let a = Parts::new(asm, factors, a);
            self.add_products(asm, factors, &a, &b);
        }
    }

    /// Adds the products of some fragments.
    pub fn add_products(&self, asm: &mut Ptx, factors: Factors, a: &Parts, b: &[Fragment]) {
        let instruction = factors.instruction();
        let each = |asm: &mut Ptx, a: &[Fragment], b: &[Fragment]| self.products(asm, &instruction, a, b);
        // Small terms come first; each pass visits all accumulators, so that consecutive instructions are
        // independent.
        match factors {
            Factors::F32 => {
                let b = Parts::new(asm, factors, b.to_vec());
                each(asm, &a.low, &b.high);
                each(asm, &a.high, &b.low);
                each(asm, &a.high, &b.high);
            }
            Factors::Codes => {
                each(asm, &a.low, b);
                each(asm, &a.high, b);
            }
            Factors::F16 | Factors::BF16 | Factors::Bytes(_) => each(asm, &a.high, b),
        }
    }

    fn products(&self, asm: &mut Ptx, kind: &str, a: &[Fragment], b: &[Fragment]) {
        for (sums, rows) in self.of.iter().zip(a.chunks(2)) {
            for (sum, columns) in sums.iter().zip(b) {
                let sums: Vec<String> = (0..4).map(|i| asm.name(*sum, i)).collect();
                let a = [rows[0][0], rows[1][0], rows[0][1], rows[1][1]].map(|v| asm.name(v, 0)).join(", ");
                let b = columns.map(|v| asm.name(v, 0)).join(", ");
                let sums = sums.join(", ");
                asm.line(&format!("{kind} {{{sums}}}, {{{a}}}, {{{b}}}, {{{sums}}};"));
            }
        }
    }
}

/// Fragments in the types that the instructions take: f32 is split into two tf32.
pub struct Parts {
    high: Vec<Fragment>,
    low: Vec<Fragment>,
}

impl Parts {
    pub fn new(asm: &mut Ptx, factors: Factors, fragments: Vec<Fragment>) -> Parts {
        match factors {
            Factors::F32 | Factors::Codes => split(asm, &fragments),
            Factors::F16 | Factors::BF16 | Factors::Bytes(_) => Parts { high: fragments, low: vec![] },
        }
    }
}

/// x  =>  its nearest tf32, and the remainder, of which the instruction uses the upper bits.
///
/// `cvt.rna.tf32` would take four instructions on sm_80, because of infinities and NaN, so that all conversions
/// together would take as long as the products. If x is NaN, so is at least the second part; infinities, and
/// numbers that round to them, give NaN too (see `exact.rs`).
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
