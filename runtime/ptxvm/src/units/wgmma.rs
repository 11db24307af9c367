//! wgmma.mma_async of one warp: a[16,k] · b[k,n] + d[16,n], operands as 16-byte pieces, accumulators in registers
//!
//! A warpgroup computes 64 rows; its warp `w` computes rows `16w..=16w+15`, independently of the other warps. With
//! every element type, a row of A has 32 bytes along k, which are two pieces. If A is sparse, these are the kept
//! elements, and a column of B has four pieces. Products are summed as in `mma`; the rounding of these sums has not
//! been compared with that of a GPU yet (`testdata/goldens/probe_sm_90a.ptx`).

use super::Lanes;
use super::cut;
use super::float::canonical;
use super::format::f16_to_f32;
use super::fragments::{Element, N};
use super::packed::Half;
use super::sparse::Sparsity;

/// Number of rows that one warp computes.
pub const ROWS: usize = 16;
/// Number of 16-byte pieces of A along k.
pub const PIECES: usize = 2;
/// Number of 16-bit elements in a piece.
const PER_PIECE: usize = 8;

/// 16 bytes of an operand, as little-endian words.
pub type Piece = [u32; 4];

/// Type of the accumulators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// One f32 in each register.
    F32,
    /// Two f16 in each register, the first in the lower half.
    F16,
    /// One signed 32-bit integer in each register.
    S32,
}

/// A parsed `wgmma.mma_async`: shape and types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wgmma {
    /// Number of columns of B and D, a multiple of 8 up to 256.
    pub n: usize,
    /// Element type of A.
    pub a: Element,
    /// Element type of B; it may differ from A's only for 8-bit types.
    pub b: Element,
    /// Type of the accumulators, which are both input and output.
    pub sum: Sum,
    /// How A is stored, if it is sparse.
    pub sparsity: Option<Sparsity>,
    saturate: bool,
}

/// Scale factors of the accumulators and the products.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Whether the previous values of the accumulators are added.
    pub d: bool,
    /// Factor of the products: -1 or 1.
    pub product: f64,
}

impl Wgmma {
    /// Parses the dot-separated parts after `wgmma.mma_async.sync.aligned`, as in `m64n128k16 f32 bf16 bf16`.
    pub fn parse(parts: &[&str]) -> Result<Wgmma, String> {
        Wgmma::parse_any(parts, false)
    }

    /// Parses the parts after `wgmma.mma_async.sp.sync.aligned`; k in a shape is twice that of the dense instruction.
    pub fn parse_sparse(parts: &[&str]) -> Result<Wgmma, String> {
        Wgmma::parse_any(parts, true)
    }

    fn parse_any(parts: &[&str], is_sparse: bool) -> Result<Wgmma, String> {
        let unsupported = || format!("`wgmma.mma_async` with `.{}` is not supported", parts.join("."));
        let saturate = parts.contains(&"satfinite");
        let names: Vec<&str> = parts.iter().copied().filter(|part| *part != "satfinite").collect();
        let &[shape, d, a, b] = names.as_slice() else { return Err(unsupported()) };
        let (Some(a), Some(b)) = (Element::parse(a), Element::parse(b)) else { return Err(unsupported()) };
        let sum = match (d, a, b) {
            ("f32", Element::F16 | Element::Bf16 | Element::Tf32, _) if a == b => Sum::F32,
            ("f16", Element::F16, Element::F16) => Sum::F16,
            ("f32", Element::E4m3 | Element::E5m2, Element::E4m3 | Element::E5m2) => Sum::F32,
            ("f16", Element::E4m3 | Element::E5m2, Element::E4m3 | Element::E5m2) => Sum::F16,
            ("s32", Element::S8 | Element::U8, Element::S8 | Element::U8) => Sum::S32,
            _ => return Err(unsupported()),
        };
        let sizes = shape.strip_prefix("m64n").and_then(|rest| rest.split_once('k'));
        let sizes = sizes.and_then(|(n, k)| Some((n.parse::<usize>().ok()?, k.parse::<usize>().ok()?)));
        let (n, k) = sizes.ok_or_else(unsupported)?;
        let has_n = match sum {
            Sum::F32 | Sum::F16 => n % 8 == 0 && (8..=256).contains(&n),
            Sum::S32 => matches!(n, 8 | 24) || n % 16 == 0 && (16..=256).contains(&n),
        };
        let sparsity = is_sparse.then(|| Sparsity::new(a, k));
        let wgmma = Wgmma { n, a, b, sum, sparsity, saturate };
        if !has_n || k != wgmma.k() || saturate && sum != Sum::S32 {
            return Err(unsupported());
        }
        Ok(wgmma)
    }

    /// Returns the extent of the K dimension: the number of elements that fit into the pieces of a column of B.
    pub fn k(&self) -> usize {
        self.pieces_of_b() * 16 * 8 / self.a.bits()
    }

    /// Returns the number of pieces of a column of B.
    pub fn pieces_of_b(&self) -> usize {
        if self.sparsity.is_some() { 2 * PIECES } else { PIECES }
    }

    /// Returns the number of valid sparsity selectors, which count from 0; 0 if A is dense.
    pub fn selectors(&self) -> u32 {
        self.sparsity.map_or(0, Sparsity::selectors)
    }

    /// Returns the dense rows of a warp's A, given the kept elements, the metadata of the lanes and the selector.
    pub fn expand(&self, kept: &[f64], e: &Lanes, selector: u32) -> Vec<f64> {
        let Some(sparsity) = self.sparsity else { return kept.to_vec() };
        let k = self.k();
        let mut dense = vec![0.0; ROWS * k];
        for (row, (kept, dense)) in kept.chunks_exact(k / 2).zip(dense.chunks_exact_mut(k)).enumerate() {
            sparsity.expand_row(kept, (e, selector), row, dense);
        }
        dense
    }

    /// Returns the number of accumulator registers per lane.
    pub fn n_d(&self) -> usize {
        match self.sum {
            Sum::F32 | Sum::S32 => self.n / 2,
            Sum::F16 => self.n / 4,
        }
    }

    /// Returns whether operands in shared memory may be contiguous along the rows of A or the columns of B instead of k
    /// (the `imm-trans` operands).
    pub fn has_transposes(&self) -> bool {
        self.a.bits() == 16
    }

    /// Multiplies `a[row][k]` and `b[column][k]`, both contiguous along k, and updates the accumulators `d`.
    pub fn run(&self, a: &[f64], b: &[f64], scale: Scale, d: &mut [Lanes]) {
        match (self.sum, self.k()) {
            (Sum::F32, 32) if self.a.bits() == 16 => return self.run_cut::<32>(a, b, scale, d),
            (Sum::F32, 16) => return self.run_cut::<16>(a, b, scale, d),
            (Sum::F32, 8) => return self.run_cut::<8>(a, b, scale, d),
            (_, _) => {}
        }
        let k = self.k();
        let mut products = vec![0.0; ROWS * self.n];
        for (a, sums) in a.chunks_exact(k).zip(products.chunks_exact_mut(self.n)) {
            for (b, sum) in b.chunks_exact(k).zip(sums) {
                *sum = scale.product * a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            }
        }
        for (lane, i) in (0..32).flat_map(|lane| (0..self.n / 2).map(move |i| (lane, i))) {
            self.add(products[self.index_of(lane, i)], scale.d, (lane, i), d);
        }
    }

    /// Multiplies with f32 accumulators, eight columns at a time, and truncates sums as [`cut`] describes.
    fn run_cut<const K: usize>(&self, a: &[f64], b: &[f64], scale: Scale, d: &mut [Lanes]) {
        let a: [[f64; K]; ROWS] = std::array::from_fn(|row| std::array::from_fn(|k| scale.product * a[row * K + k]));
        for first in (0..self.n).step_by(N) {
            let b: [[f64; N]; K] = std::array::from_fn(|k| std::array::from_fn(|n| b[(first + n) * K + k]));
            let mut sums = [[0.0; N]; ROWS];
            let own = (0..32).flat_map(|lane| (0..4).map(move |i| (lane, first / 2 + i)));
            if scale.d {
                for (lane, i) in own.clone() {
                    let (row, column) = place(lane, i);
                    sums[row][column - first] = f64::from(f32::from_bits(d[i][lane]));
                }
            }
            cut::multiply(&a, &b, &mut sums);
            for (lane, i) in own {
                let (row, column) = place(lane, i);
                d[i][lane] = canonical(sums[row][column - first] as f32).to_bits();
            }
        }
    }

    fn index_of(&self, lane: usize, i: usize) -> usize {
        let (row, column) = place(lane, i);
        row * self.n + column
    }

    /// Adds a product to one accumulator, rounding or wrapping by its type.
    fn add(&self, product: f64, adds: bool, (lane, i): (usize, usize), d: &mut [Lanes]) {
        match self.sum {
            Sum::F32 => {
                let old = if adds { f64::from(f32::from_bits(d[i][lane])) } else { 0.0 };
                d[i][lane] = canonical((old + product) as f32).to_bits();
            }
            Sum::S32 => {
                let old = if adds { d[i][lane] as i32 } else { 0 };
                // Sums of 64 products of bytes are integers that fit f64 and i32.
                let product = product as i32;
                let sum = if self.saturate { old.saturating_add(product) } else { old.wrapping_add(product) };
                d[i][lane] = sum as u32;
            }
            Sum::F16 => {
                let (word, shift) = (&mut d[i / 2][lane], 16 * (i % 2));
                let old = if adds { f64::from(f16_to_f32((*word >> shift) as u16)) } else { 0.0 };
                let bits = u32::from(Half::F16.narrow(old + product));
                *word = *word & !(0xffff << shift) | bits << shift;
            }
        }
    }
}

/// Returns the row (of the warp's 16) and the column of accumulator `i` of a lane (PTX ISA, "Register Fragments for
/// wgmma").
pub fn place(lane: usize, i: usize) -> (usize, usize) {
    (lane / 4 + 8 * ((i >> 1) & 1), 8 * (i >> 2) + 2 * (lane % 4) + (i & 1))
}

/// Returns the pieces of an operand A that a warp holds in four registers, row by row.
pub fn pieces_of_registers(registers: &[Lanes]) -> Vec<Piece> {
    let piece = |i: usize| {
        let (row, block) = (i / PIECES, i % PIECES);
        let register = &registers[row / 8 + 2 * block];
        std::array::from_fn(|t| register[4 * (row % 8) + t])
    };
    (0..ROWS * PIECES).map(piece).collect()
}

/// The dimension along which an operand is contiguous in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Major {
    /// The K dimension, for both operands.
    K,
    /// Rows of A, or columns of B.
    Rows,
}

/// The layout of a matrix in shared memory (PTX ISA, "Matrix Descriptor Format").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Offset of the matrix in shared memory, in bytes; a multiple of 16.
    pub start: u32,
    leading_bytes: u32,
    stride_bytes: u32,
    /// Bytes of a row of the swizzle pattern; 16 without a swizzle.
    pattern_bytes: u32,
}

impl Descriptor {
    /// Decodes the 64 bits of a matrix descriptor. Fails if it has a base offset, which is not supported.
    pub fn new(bits: u64) -> Result<Descriptor, String> {
        let field = |first: u32| ((bits >> first & 0x3fff) as u32) << 4;
        if bits >> 49 & 7 != 0 {
            return Err(format!("has a base offset in its descriptor {bits:#018x}, which is not supported"));
        }
        let pattern_bytes = match bits >> 62 {
            0 => 16,
            1 => 128,
            2 => 64,
            _ => 32,
        };
        Ok(Descriptor { start: field(0), leading_bytes: field(16), stride_bytes: field(32), pattern_bytes })
    }

    /// Applies the swizzle, which depends on the address itself and not on the offset in the matrix.
    fn swizzled(&self, at: u32) -> u32 {
        swizzle(at, self.pattern_bytes)
    }

    /// Returns the addresses of the pieces of rows `first..first + rows`, where the elements of a row fill `n` pieces.
    /// If the matrix is K-major, the pieces are in row order; otherwise, they are in the order of k and then of groups
    /// of eight rows.
    pub fn pieces(&self, major: Major, first: usize, rows: usize, n: usize) -> Vec<u32> {
        let width = self.pattern_bytes;
        match major {
            Major::K => {
                let piece = |row: u32, block: u32| {
                    let line = self.start + row / 8 * self.stride_bytes + row % 8 * width;
                    let within = if width == 16 { block * self.leading_bytes } else { block * 16 };
                    self.swizzled(line + within)
                };
                let rows = first as u32..(first + rows) as u32;
                rows.flat_map(|row| (0..n as u32).map(move |block| (row, block)))
                    .map(|(row, block)| piece(row, block))
                    .collect()
            }
            Major::Rows => {
                let piece = |k: u32, bytes: u32| {
                    let (across, along) = match width {
                        16 => (self.stride_bytes, self.leading_bytes),
                        _ => (self.leading_bytes, self.stride_bytes),
                    };
                    let line = self.start + bytes / width * across + k / 8 * along + k % 8 * width;
                    self.swizzled(line + bytes % width)
                };
                let (from, to) = (first / PER_PIECE, (first + rows) / PER_PIECE);
                (0..(n * PER_PIECE) as u32)
                    .flat_map(|k| (from as u32..to as u32).map(move |eight| (k, eight * 16)))
                    .map(|(k, bytes)| piece(k, bytes))
                    .collect()
            }
        }
    }
}

/// Returns the address that a swizzle of `pattern_bytes` gives to the 16 bytes at `at`.
pub fn swizzle(at: u32, pattern_bytes: u32) -> u32 {
    match pattern_bytes {
        128 => at ^ ((at >> 7 & 7) << 4),
        64 => at ^ ((at >> 7 & 3) << 4),
        32 => at ^ ((at >> 7 & 1) << 4),
        _ => at,
    }
}

/// Returns the elements `[row][k]` of pieces that are in the order of [`Descriptor::pieces`], for the same `n`.
pub fn elements(element: Element, major: Major, pieces: &[Piece], n: usize) -> Vec<f64> {
    let (bits, k) = (element.bits(), n * 16 * 8 / element.bits());
    let per_piece = 128 / bits;
    let values = pieces.iter().flat_map(|piece| {
        (0..per_piece).map(move |i| f64::from(element.value(piece[i * bits / 32] >> (i * bits % 32))))
    });
    match major {
        Major::K => values.collect(),
        Major::Rows => {
            let rows = pieces.len() * per_piece / k;
            let mut tile = vec![0.0; rows * k];
            values.enumerate().for_each(|(i, value)| tile[i % rows * k + i / rows] = value);
            tile
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_and_types_that_exist() {
        let parse = |text: &str| Wgmma::parse(&text.split('.').collect::<Vec<_>>());
        let known = parse("m64n128k16.f32.bf16.bf16").unwrap();
        assert_eq!((known.n, known.k(), known.n_d()), (128, 16, 64));
        assert_eq!(parse("m64n256k16.f16.f16.f16").unwrap().n_d(), 64);
        assert_eq!(parse("m64n8k8.f32.tf32.tf32").unwrap().k(), 8);
        assert_eq!(parse("m64n24k32.s32.s8.u8").unwrap().k(), 32);
        for wrong in [
            "m64n40k32.s32.s8.s8",
            "m64n128k8.f32.bf16.bf16",
            "m64n12k16.f32.f16.f16",
            "m64n128k16.f16.bf16.bf16",
            "m64n264k16.f32.f16.f16",
            "m64n128k16.f32.f16.bf16",
            "m64n128k32.f32.bf16.bf16",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let sparse = |text: &str| Wgmma::parse_sparse(&text.split('.').collect::<Vec<_>>());
        assert_eq!(sparse("m64n128k32.f32.bf16.bf16").unwrap().selectors(), 2);
        assert_eq!(sparse("m64n16k64.s32.s8.u8").unwrap().selectors(), 1);
        assert!(sparse("m64n128k16.f32.bf16.bf16").is_err());
    }

    #[test]
    fn kept_elements_take_the_places_that_the_metadata_says() {
        // Nibble 1110 keeps the last two of four elements; of two tf32, it keeps the second.
        for (text, chunk) in [
            ("m64n8k32.f32.bf16.bf16", 4),
            ("m64n8k64.s32.s8.u8", 4),
            ("m64n8k64.f32.e4m3.e4m3", 4),
            ("m64n8k16.f32.tf32.tf32", 2),
        ] {
            let wgmma = Wgmma::parse_sparse(&text.split('.').collect::<Vec<_>>()).unwrap();
            let kept: Vec<f64> = (0..ROWS * wgmma.k() / 2).map(|i| i as f64 + 1.0).collect();
            let dense = wgmma.expand(&kept, &[0xeeee_eeee; 32], 0);
            for (at, value) in dense.iter().enumerate() {
                let (four, place) = (at / chunk, at % chunk);
                let stored = if place < chunk / 2 { 0.0 } else { kept[four * chunk / 2 + place - chunk / 2] };
                assert_eq!(*value, stored, "{text}: element {at}");
            }
        }
    }

    #[test]
    fn descriptors_place_pieces() {
        // K-major: rows of 64 16-bit elements (128 bytes), in groups of eight rows. The descriptor refers to the second
        // step of k.
        let bits = (1024u64 + 32) >> 4 | 1 << 16 | (1024 >> 4) << 32 | 1 << 62;
        let found = Descriptor::new(bits).unwrap().pieces(Major::K, 8, 2, 2);
        assert_eq!(found, [2048 + 32, 2048 + 48, 2048 + 128 + 48, 2048 + 128 + 32]);
        // K-major without a swizzle: eight rows of 16 bytes are contiguous, and pieces along k are 128 bytes apart.
        let bits = (128u64 >> 4) << 16 | (256 >> 4) << 32;
        let found = Descriptor::new(bits).unwrap().pieces(Major::K, 8, 2, 2);
        assert_eq!(found, [256, 384, 272, 400]);
        // The matrix is contiguous along the rows; 128 bytes hold one k of 64 rows.
        let bits = (4096u64 >> 4) << 16 | (1024 >> 4) << 32 | 1 << 62;
        let found = Descriptor::new(bits).unwrap().pieces(Major::Rows, 64, 16, 2);
        assert_eq!(found[..4], [4096, 4112, 4096 + 128 + 16, 4096 + 128]);
        assert_eq!(found[16], 4096 + 1024);
        assert!(Descriptor::new(1 << 49).is_err());
    }
}
