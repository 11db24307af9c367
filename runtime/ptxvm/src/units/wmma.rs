//! wmma.load, wmma.mma, wmma.store: d[m,n] = a[m,k] · b[k,n] + c[m,n] on opaque fragments
//!
//! The ISA fixes the number of registers of a fragment, but not which lane holds which element; kernels may only load,
//! multiply, store, and treat all elements alike. Here, each lane holds a run of consecutive elements: by rows for A
//! and the accumulators, by columns for B. f16 fragments of A and B always have eight registers, and repeat their
//! elements where the matrix is too small to fill them.

use super::Lanes;
use super::float::canonical;
use super::fragments::Element;
use super::packed::Half;

/// Number of elements of the largest matrix of any shape: 32 x 16.
const ELEMENTS_MAX: usize = 512;

/// The operand of the product that a fragment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The left operand, m x k.
    A,
    /// The right operand, k x n.
    B,
    /// C or D.
    Accumulator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Element(Element),
    F32,
    S32,
}

/// One operand: the shape of its matrix, and the type of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    role: Role,
    kind: Kind,
    rows: usize,
    columns: usize,
}

impl Fragment {
    /// Parses the shape and type of an instruction, such as `m16n16k16` and `s8`.
    pub fn parse(role: Role, shape: &str, kind: &str) -> Result<Fragment, String> {
        let unsupported = || format!("`wmma` with `.{shape}.{kind}` is not supported");
        let kind = match (role, kind) {
            (Role::Accumulator, "f32") => Kind::F32,
            (Role::Accumulator, "s32") => Kind::S32,
            (Role::Accumulator, "f16") => Kind::Element(Element::F16),
            (Role::Accumulator, _) => return Err(unsupported()),
            // wmma has no 8-bit floats.
            (Role::A | Role::B, "e4m3" | "e5m2") => return Err(unsupported()),
            (Role::A | Role::B, kind) => Kind::Element(Element::parse(kind).ok_or_else(unsupported)?),
        };
        let (m, n, k) = match shape {
            "m16n16k16" => (16, 16, 16),
            "m32n8k16" => (32, 8, 16),
            "m8n32k16" => (8, 32, 16),
            "m16n16k8" => (16, 16, 8),
            "m8n8k32" => (8, 8, 32),
            _ => return Err(unsupported()),
        };
        let fits = match (kind, k) {
            (Kind::Element(Element::Tf32), _) => k == 8,
            (Kind::Element(Element::S4 | Element::U4), _) => k == 32,
            (Kind::Element(Element::F16), _) => k == 16,
            (Kind::Element(Element::Bf16 | Element::S8 | Element::U8), _) => k == 16,
            (Kind::Element(Element::E4m3 | Element::E5m2), _) => false,
            (Kind::F32, _) => k < 32,
            (Kind::S32, _) => k > 8,
        };
        let (rows, columns) = match role {
            Role::A => (m, k),
            Role::B => (k, n),
            Role::Accumulator => (m, n),
        };
        if fits { Ok(Fragment { role, kind, rows, columns }) } else { Err(unsupported()) }
    }

    /// Returns the number of bits of one element, in registers and in memory.
    pub fn element_bits(&self) -> usize {
        match self.kind {
            Kind::Element(element) => element.bits(),
            Kind::F32 | Kind::S32 => 32,
        }
    }

    /// Returns the number of elements that a lane moves to or from memory, which are the first ones in its registers.
    pub fn elements(&self) -> usize {
        self.rows * self.columns / 32
    }

    /// Returns the number of registers per lane, including the repeated elements of small f16 fragments.
    pub fn registers(&self) -> usize {
        match (self.kind, self.role) {
            (Kind::Element(Element::F16), Role::A | Role::B) => 8,
            (Kind::Element(_) | Kind::F32 | Kind::S32, _) => self.elements() * self.element_bits() / 32,
        }
    }

    /// Returns the row and the column of element `i` of `lane`.
    pub fn position(&self, lane: usize, i: usize) -> (usize, usize) {
        let at = lane * self.elements() + i % self.elements();
        match self.role {
            Role::A | Role::Accumulator => (at / self.columns, at % self.columns),
            Role::B => (at % self.rows, at / self.rows),
        }
    }

    /// Returns the leading dimension, in elements, of a matrix stored without gaps.
    pub fn width(&self, row_major: bool) -> usize {
        if row_major { self.columns } else { self.rows }
    }

    /// Returns the length of the runs of a lane's elements that are contiguous in memory. Runs start at multiples of
    /// this number.
    pub fn run(&self, row_major: bool) -> usize {
        if row_major != (self.role == Role::B) { self.elements().min(self.width(row_major)) } else { 1 }
    }

    /// Returns the offset, in elements, of element `i` of `lane` from the matrix's address, for a leading dimension of
    /// `stride` elements.
    pub fn offset(&self, lane: usize, i: usize, row_major: bool, stride: u64) -> u64 {
        let (row, column) = self.position(lane, i);
        let (outer, inner) = if row_major { (row, column) } else { (column, row) };
        (outer as u64).wrapping_mul(stride).wrapping_add(inner as u64)
    }

    /// After a load, fills the remaining registers of an f16 fragment with copies of the first elements.
    pub fn repeat(&self, registers: &mut [Lanes]) {
        let distinct = self.elements() * self.element_bits() / 32;
        for r in distinct..registers.len() {
            registers[r] = registers[r % distinct];
        }
    }

    /// Returns the matrix by rows, or by columns for B.
    fn read(&self, registers: &[Lanes]) -> [f64; ELEMENTS_MAX] {
        let (n, bits) = (self.elements(), self.element_bits());
        let mut matrix = [0.0; ELEMENTS_MAX];
        for lane in 0..32 {
            for i in 0..n {
                let word = registers[i * bits / 32][lane] >> (i * bits % 32);
                matrix[lane * n + i] = self.value(word);
            }
        }
        matrix
    }

    fn value(&self, word: u32) -> f64 {
        match self.kind {
            Kind::Element(element) => f64::from(element.value(word)),
            Kind::F32 => f64::from(f32::from_bits(word)),
            Kind::S32 => f64::from(word as i32),
        }
    }

    fn write(&self, matrix: &[f64; ELEMENTS_MAX], saturate: bool, registers: &mut [Lanes]) {
        let n = self.elements();
        for lane in 0..32 {
            for (i, &value) in matrix[lane * n..(lane + 1) * n].iter().enumerate() {
                match self.kind {
                    Kind::F32 => registers[i][lane] = canonical(value as f32).to_bits(),
                    // Sums of integers are far below 2^53; casts of floats saturate.
                    Kind::S32 if saturate => registers[i][lane] = value as i32 as u32,
                    Kind::S32 => registers[i][lane] = value as i64 as u32,
                    Kind::Element(_) => {
                        let bits = u32::from(Half::F16.narrow(value));
                        let kept = if i % 2 == 0 { 0 } else { registers[i / 2][lane] };
                        registers[i / 2][lane] = kept | bits << (16 * (i % 2));
                    }
                }
            }
        }
    }
}

/// A parsed `wmma.mma`. The layouts of A and B were applied when they were loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wmma {
    /// Operand A, m x k.
    pub a: Fragment,
    /// Operand B, k x n.
    pub b: Fragment,
    /// Accumulators that are added, m x n.
    pub c: Fragment,
    /// Result, m x n; its type may differ from that of C (f16 or f32).
    pub d: Fragment,
    /// `.satfinite` of integer shapes: clamps instead of wrapping.
    saturate: bool,
}

impl Wmma {
    /// Parses the dot-separated parts after `wmma.mma.sync.aligned`: `row col m16n16k16 s32 s8 s8 s32`, or with two
    /// types `row col m16n16k16 f32 f16` for f16 operands; `satfinite` may follow.
    pub fn parse(modifiers: &[&str]) -> Result<Wmma, String> {
        let unsupported = || format!("`wmma.mma` with `.{}` is not supported", modifiers.join("."));
        let (parts, saturate) = match modifiers.split_last() {
            Some((&"satfinite", rest)) => (rest, true),
            Some(_) | None => (modifiers, false),
        };
        let (shape, [d, a, b, c]) = match *parts {
            ["row" | "col", "row" | "col", shape, d, c] => (shape, [d, "f16", "f16", c]),
            ["row" | "col", "row" | "col", shape, d, a, b, c] => (shape, [d, a, b, c]),
            _ => return Err(unsupported()),
        };
        let wmma = Wmma {
            a: Fragment::parse(Role::A, shape, a)?,
            b: Fragment::parse(Role::B, shape, b)?,
            c: Fragment::parse(Role::Accumulator, shape, c)?,
            d: Fragment::parse(Role::Accumulator, shape, d)?,
            saturate,
        };
        let accumulators = match a {
            "f16" => [d, c].iter().all(|x| ["f16", "f32"].contains(x)),
            "bf16" | "tf32" => [d, c] == ["f32", "f32"] && !saturate,
            _ => [d, c] == ["s32", "s32"],
        };
        if a == b && accumulators { Ok(wmma) } else { Err(unsupported()) }
    }

    /// Computes d = a · b + c with f64 accumulators.
    pub fn run(&self, a: &[Lanes], b: &[Lanes], c: &[Lanes], d: &mut [Lanes]) {
        let (a, b, mut sums) = (self.a.read(a), self.b.read(b), self.c.read(c));
        let (m, n, k) = (self.a.rows, self.b.columns, self.a.columns);
        for row in 0..m {
            for column in 0..n {
                let products = a[row * k..][..k].iter().zip(&b[column * k..][..k]).map(|(x, y)| x * y);
                sums[row * n + column] += products.sum::<f64>();
            }
        }
        self.d.write(&sums, self.saturate, d);
    }
}

#[cfg(test)]
mod tests;
