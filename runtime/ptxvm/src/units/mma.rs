//! mma.sync: d[m,n] = a[m,k] · b[k,n] + c[m,n] of one warp, operands in the registers of its 32 lanes
//!
//! Products of 16-bit floats and of tf32 are added to an f32 C as on an H100 (see `cut`). Products of 8-bit floats, and
//! those with an f16 C or D, are added in f64 and rounded once to D: the ISA leaves the order and the rounding of the
//! summation open. Integer tiles are multiplied in f32, which holds every sum of products exactly, and added to C in
//! integers.

use super::Lanes;
use super::cut;
use super::float::canonical;
use super::format::f16_to_f32;
use super::fragments::{Element, N, Number, for_accumulators, gather_a, gather_b, multiply};
use super::packed::Half;
use super::sparse::{self, Sparsity};

/// A parsed `mma`: shape, types, and the number of 32-bit registers of each operand per lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mma {
    m: usize,
    k: usize,
    kind: Kind,
    sparsity: Option<Sparsity>,
    /// `.satfinite` of integer shapes: clamps instead of wrapping.
    saturate: bool,
    /// Number of registers of A per lane; only the stored half of a sparse A counts.
    pub n_a: usize,
    /// Number of registers of B per lane.
    pub n_b: usize,
    /// Number of registers of C per lane.
    pub n_c: usize,
    /// Number of registers of D per lane.
    pub n_d: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Float or integer elements; `c_f16` and `d_f16` tell whether C and D are f16.
    Tile {
        a: Element,
        b: Element,
        c_f16: bool,
        d_f16: bool,
    },
    F64,
}

impl Mma {
    /// Parses the dot-separated parts after `mma.sync.aligned`, as in `m16n8k16 row col f32 bf16 bf16 f32`.
    pub fn parse(modifiers: &[&str]) -> Result<Mma, String> {
        Mma::parse_any(modifiers, false)
    }

    /// Parses the dot-separated parts after `mma.sp.sync.aligned` or `mma.sp::ordered_metadata.sync.aligned`.
    pub fn parse_sparse(modifiers: &[&str]) -> Result<Mma, String> {
        Mma::parse_any(modifiers, true)
    }

    fn parse_any(modifiers: &[&str], sparse: bool) -> Result<Mma, String> {
        let unsupported = || format!("`mma` with `.{}` is not supported", modifiers.join("."));
        let saturate = modifiers.contains(&"satfinite");
        let parts: Vec<&str> = modifiers.iter().copied().filter(|&part| part != "satfinite").collect();
        let &[shape, "row", "col", d, a, b, c] = parts.as_slice() else {
            return Err(unsupported());
        };
        let (m, k) = match shape.split_once("n8k") {
            Some(("m16", k)) => (16, k.parse::<usize>().map_err(|_| unsupported())?),
            Some(("m8", k)) => (8, k.parse::<usize>().map_err(|_| unsupported())?),
            Some(_) | None => return Err(unsupported()),
        };
        if [d, a, b, c] == ["f64"; 4] {
            let known = !sparse && !saturate && matches!((m, k), (8, 4) | (16, 4 | 8 | 16));
            let mma = Mma { m, k, kind: Kind::F64, sparsity: None, saturate, n_a: 0, n_b: 0, n_c: 0, n_d: 0 };
            return if known { Ok(mma.with_registers(64, 64, 64)) } else { Err(unsupported()) };
        }
        let (Some(a), Some(b)) = (Element::parse(a), Element::parse(b)) else {
            return Err(unsupported());
        };
        let floats = matches!((d, c), ("f32" | "f16", "f32" | "f16")) && !a.is_integer() && !saturate;
        let narrow = matches!(a, Element::F16 | Element::E4m3 | Element::E5m2);
        let accumulators =
            if a.is_integer() { (d, c) == ("s32", "s32") } else { floats && (narrow || (d, c) == ("f32", "f32")) };
        let depth = if sparse { k / 2 } else { k };
        if !accumulators || !pairs(a, b) || !has_depth(a, m, depth) || sparse && !has_sparse(a, m, k) {
            return Err(unsupported());
        }
        let kind = Kind::Tile { a, b, c_f16: c == "f16", d_f16: d == "f16" };
        let sparsity = sparse.then(|| Sparsity::new(a, k));
        let mma = Mma { m, k, kind, sparsity, saturate, n_a: 0, n_b: 0, n_c: 0, n_d: 0 };
        let bits = |text| if text == "f16" { 16 } else { 32 };
        Ok(mma.with_registers(a.bits(), bits(c), bits(d)))
    }

    fn with_registers(self, element_bits: usize, c_bits: usize, d_bits: usize) -> Mma {
        let register_bits = 32 * 32;
        let stored = if self.sparsity.is_some() { self.k / 2 } else { self.k };
        Mma {
            n_a: self.m * stored * element_bits / register_bits,
            n_b: N * self.k * element_bits / register_bits,
            n_c: self.m * N * c_bits / register_bits,
            n_d: self.m * N * d_bits / register_bits,
            ..self
        }
    }

    /// Computes d = a · b + c; `a`, `b`, `c` and `d` have `n_a`, `n_b`, `n_c` and `n_d` registers. An f64 takes two
    /// registers, the low word first.
    pub fn run(&self, a: &[Lanes], b: &[Lanes], c: &[Lanes], d: &mut [Lanes]) {
        self.run_any(a, b, c, None, d);
    }

    /// Computes `mma.sp` with the metadata register `e`; `selector` must be below [`Mma::selectors`].
    pub fn run_sparse(&self, a: &[Lanes], b: &[Lanes], c: &[Lanes], e: &Lanes, selector: u32, d: &mut [Lanes]) {
        self.run_any(a, b, c, Some((e, selector)), d);
    }

    /// Returns the number of values of the sparsity selector; 0 for a dense shape.
    pub fn selectors(&self) -> u32 {
        self.sparsity.map_or(0, Sparsity::selectors)
    }

    fn run_any(&self, a: &[Lanes], b: &[Lanes], c: &[Lanes], metadata: Option<(&Lanes, u32)>, d: &mut [Lanes]) {
        match (self.m, self.k) {
            (8, 4) => run_f64::<8, 4>(a, b, c, d),
            (16, 4) if self.kind == Kind::F64 => run_f64::<16, 4>(a, b, c, d),
            (16, 8) if self.kind == Kind::F64 => run_f64::<16, 8>(a, b, c, d),
            (16, 16) if self.kind == Kind::F64 => run_f64::<16, 16>(a, b, c, d),
            (8, 16) => self.run_tile::<8, 16, 8>(a, b, c, None, d),
            (8, 32) => self.run_tile::<8, 32, 16>(a, b, c, None, d),
            (16, 4) => self.run_tile::<16, 4, 2>(a, b, c, metadata, d),
            (16, 8) => self.run_tile::<16, 8, 4>(a, b, c, metadata, d),
            (16, 16) => self.run_tile::<16, 16, 8>(a, b, c, metadata, d),
            (16, 32) => self.run_tile::<16, 32, 16>(a, b, c, metadata, d),
            (16, 64) => self.run_tile::<16, 64, 32>(a, b, c, metadata, d),
            (m, k) => unreachable!("m{m}n8k{k} was parsed"),
        }
    }

    /// Runs a shape with float or integer elements. `HALF` is `K / 2`, the number of stored columns of a sparse A.
    fn run_tile<const M: usize, const K: usize, const HALF: usize>(
        &self,
        a: &[Lanes],
        b: &[Lanes],
        c: &[Lanes],
        metadata: Option<(&Lanes, u32)>,
        d: &mut [Lanes],
    ) {
        let Kind::Tile { a: a_element, b: b_element, c_f16, d_f16 } = self.kind else {
            unreachable!("f64 shapes have a path of their own");
        };
        if a_element.is_integer() {
            let a = self.a_tile::<f32, M, K, HALF>(a_element, a, metadata);
            let mut sums = [[0f32; N]; M];
            multiply(&a, &gather_b::<f32, K>(b_element, b), &mut sums);
            self.add_integers::<M>(&sums, c, d);
        } else {
            let a = self.a_tile::<f64, M, K, HALF>(a_element, a, metadata);
            let mut sums = read_floats::<M>(c, c_f16);
            let b = gather_b::<f64, K>(b_element, b);
            match c_f16 || d_f16 || b_element.bits() == 8 {
                true => multiply(&a, &b, &mut sums),
                false => cut::multiply(&a, &b, &mut sums),
            }
            write_floats::<M>(&sums, d, d_f16);
        }
    }

    #[inline]
    fn a_tile<T: Number, const M: usize, const K: usize, const HALF: usize>(
        &self,
        element: Element,
        a: &[Lanes],
        metadata: Option<(&Lanes, u32)>,
    ) -> [[T; K]; M] {
        match (self.sparsity, metadata) {
            (Some(sparsity), Some((e, selector))) => {
                sparse::expand(&gather_a::<T, M, HALF>(element, a), sparsity, e, selector)
            }
            (Some(_), None) | (None, Some(_) | None) => gather_a::<T, M, K>(element, a),
        }
    }

    fn add_integers<const M: usize>(&self, sums: &[[f32; N]; M], c: &[Lanes], d: &mut [Lanes]) {
        for_accumulators(M, |lane, i, row, column| {
            // The sums are integers below 2^24.
            let (sum, c) = (sums[row][column] as i32, c[i][lane] as i32);
            d[i][lane] = if self.saturate { c.saturating_add(sum) } else { c.wrapping_add(sum) } as u32;
        });
    }
}

/// Returns whether these element types of A and B may be combined: integers may differ in signedness, and 8-bit floats
/// in format.
fn pairs(a: Element, b: Element) -> bool {
    match a {
        Element::F16 | Element::Bf16 | Element::Tf32 => a == b,
        Element::E4m3 | Element::E5m2 => matches!(b, Element::E4m3 | Element::E5m2),
        Element::S8 | Element::U8 => matches!(b, Element::S8 | Element::U8),
        Element::S4 | Element::U4 => matches!(b, Element::S4 | Element::U4),
    }
}

/// Returns whether a dense shape with `m` rows and depth `k` exists. A row of A takes 16 bytes; in shapes with 16 rows,
/// it may also take 32 bytes.
fn has_depth(a: Element, m: usize, k: usize) -> bool {
    let block = 128 / a.bits();
    match (m, a.is_integer()) {
        (8, true) => k == block,
        (8, false) => false,
        // The shapes of 8-bit floats, m16n8k16 and m16n8k32, also have these two depths.
        (16, _) => k == block || k == 2 * block,
        (_, _) => false,
    }
}

/// Returns whether a sparse shape is supported, provided that the dense shape of half its depth is. Shapes of 4-bit
/// integers are not implemented. Shapes of 8-bit floats exist only with depth 64, for which all lanes supply metadata.
fn has_sparse(a: Element, m: usize, k: usize) -> bool {
    m == 16 && a.bits() > 4 && (a.is_integer() || a.bits() > 8 || k == 64)
}

fn read_floats<const M: usize>(c: &[Lanes], f16: bool) -> [[f64; N]; M] {
    let mut tile = [[0.0; N]; M];
    for_accumulators(M, |lane, i, row, column| {
        let value =
            if f16 { f16_to_f32((c[i / 2][lane] >> (16 * (i % 2))) as u16) } else { f32::from_bits(c[i][lane]) };
        tile[row][column] = f64::from(value);
    });
    tile
}

fn write_floats<const M: usize>(tile: &[[f64; N]; M], d: &mut [Lanes], f16: bool) {
    if f16 {
        let narrow = tile.map(|row| row.map(|value| u32::from(Half::F16.narrow(value))));
        for_accumulators(M, |lane, i, row, column| {
            // Elements are stored in pairs, the first in the lower half.
            let value = narrow[row][column];
            d[i / 2][lane] = if i % 2 == 0 { value } else { d[i / 2][lane] | value << 16 };
        });
    } else {
        let narrow = tile.map(|row| row.map(|value| canonical(value as f32).to_bits()));
        for_accumulators(M, |lane, i, row, column| d[i][lane] = narrow[row][column]);
    }
}

/// Runs an f64 shape. Lane 4g + t owns the elements of A in columns t, t + 4, … of row g and, if M is 16, of row g + 8.
fn run_f64<const M: usize, const K: usize>(a: &[Lanes], b: &[Lanes], c: &[Lanes], d: &mut [Lanes]) {
    let element = |registers: &[Lanes], i: usize, lane: usize| {
        f64::from_bits(u64::from(registers[2 * i + 1][lane]) << 32 | u64::from(registers[2 * i][lane]))
    };
    let halves = M / 8;
    let (mut a_tile, mut b_tile) = ([[0.0; K]; M], [[0.0; N]; K]);
    for lane in 0..32 {
        let (g, t) = (lane / 4, lane % 4);
        for i in 0..M * K / 32 {
            a_tile[g + 8 * (i % halves)][t + 4 * (i / halves)] = element(a, i, lane);
        }
        for i in 0..K / 4 {
            b_tile[t + 4 * i][g] = element(b, i, lane);
        }
    }
    for_accumulators(M, |lane, i, row, column| {
        // Double-precision tensor cores compute fused multiply-adds in the order of k.
        let sum = (0..K).fold(element(c, i, lane), |sum, k| a_tile[row][k].mul_add(b_tile[k][column], sum));
        (d[2 * i][lane], d[2 * i + 1][lane]) = (sum.to_bits() as u32, (sum.to_bits() >> 32) as u32);
    });
}

#[cfg(test)]
mod tests;
