//! a matrix  =>  its bytes: element by element, or in panels that a kernel streams
//!
//! To add an encoding: add a variant, its row, and its arm in each function here; then its use by kernels (`storage` in
//! `sardonyx-kernels`), and the pass that requests it.

use crate::dim::product;
use crate::{DType, Dim, Error, Result, Tensor};

/// How the values of a container are stored, apart from their type and the order of its dimensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encoding {
    /// Elements one after another.
    #[default]
    Plain,
    /// A matrix [k, n], stored as an array [ceil(n / width)][ceil(k / depth)][width][depth] with zeros as padding.
    /// Instructions that multiply groups of narrow elements read `depth` rows of a column at a time. With depth 8,
    /// eight rows of 4-bit elements occupy four bytes: row i is the low half of byte i mod 4 if i < 4, else the high
    /// half.
    Panels {
        /// Number of columns of a panel, not 0.
        width: usize,
        /// Number of rows of a column that are adjacent in memory, not 0.
        depth: usize,
    },
}

/// Fills a slice with the elements of a row from a column on.
pub type ReadRow<'a> = dyn FnMut(i64, i64, &mut [u8]) -> Result<()> + 'a;

struct Row {
    /// Prefix of the encoding's names.
    prefix: &'static str,
    /// Parses the part of a name after the prefix; `None` if that part is not the sizes of the encoding.
    read: fn(&str) -> Option<Encoding>,
}

/// Sorted by prefix.
static ROWS: &[Row] = &[
    Row { prefix: "panels", read: panels },
    Row { prefix: "plain", read: |rest| rest.is_empty().then_some(Encoding::Plain) },
];

/// Parses the sizes of panels: `32`, `32x2`.
fn panels(sizes: &str) -> Option<Encoding> {
    let size = |text: &str| text.parse().ok().filter(|n| *n > 0);
    let (width, depth) = match sizes.split_once('x') {
        // Depth 1 must be omitted, so that each encoding has one name.
        Some((width, depth)) => (size(width)?, size(depth).filter(|d| *d > 1)?),
        None => (size(sizes)?, 1),
    };
    Some(Encoding::Panels { width, depth })
}

impl Encoding {
    /// Returns the name: `plain`, `panels32`, `panels32x2`.
    pub fn name(self) -> String {
        match self {
            Encoding::Plain => "plain".into(),
            Encoding::Panels { width, depth: 1 } => format!("panels{width}"),
            Encoding::Panels { width, depth } => format!("panels{width}x{depth}"),
        }
    }

    /// Parses a name as [`name`](Encoding::name) returns it; `None` for any other text.
    pub fn from_name(name: &str) -> Option<Encoding> {
        ROWS.iter().find_map(|row| (row.read)(name.strip_prefix(row.prefix)?))
    }

    /// Number of rows of a column that are adjacent in memory; 1 for a plain matrix.
    pub fn depth(self) -> usize {
        match self {
            Encoding::Plain => 1,
            Encoding::Panels { depth, .. } => depth,
        }
    }

    /// Number of elements of this type per byte, low bits first.
    pub fn per_byte(self, dtype: DType) -> usize {
        match self {
            Encoding::Panels { depth: NIBBLE_ROWS, .. } if dtype.bits() == 4 => 2,
            Encoding::Plain | Encoding::Panels { .. } => 1,
        }
    }

    /// The reason why containers of these dimensions cannot have this encoding; none if they can.
    pub fn refuses(self, dims: &[Dim]) -> Option<&'static str> {
        match self {
            Encoding::Plain => None,
            Encoding::Panels { width, depth } => {
                (dims.len() != 2 || width == 0 || depth == 0).then_some("panels hold a matrix and have a width")
            }
        }
    }

    /// Bytes that a container with these dimensions in memory occupies, with padding; 0 if its elements have no fixed
    /// width.
    pub fn bytes(self, dtype: DType, dims: &[Dim]) -> Dim {
        let elements = match (self, dims) {
            (Encoding::Panels { width, depth }, [k, n]) => {
                let (width, depth) = (Dim::constant(width as i64), Dim::constant(depth as i64));
                n.ceildiv(&width) * width * k.ceildiv(&depth) * depth
            }
            (Encoding::Plain | Encoding::Panels { .. }, _) => product(dims),
        };
        match self.per_byte(dtype) {
            1 => elements * Dim::constant(dtype.bytes() as i64),
            n => elements.floordiv(&Dim::constant(n as i64)),
        }
    }

    /// The bytes of a tensor in this encoding. Errors: E0901 if a tensor of its dimensions cannot be encoded.
    pub fn encoded(self, tensor: &Tensor) -> Result<Vec<u8>> {
        let dims: Vec<Dim> = tensor.dims().iter().map(|&d| Dim::constant(d as i64)).collect();
        if let Some(why) = self.refuses(&dims) {
            return Err(Error::defect(why));
        }
        let (&[k, n], width, false) = (tensor.dims(), tensor.dtype().bytes(), self == Encoding::Plain) else {
            return Ok(tensor.bytes().to_vec());
        };
        let (k, n) = (k as i64, n as i64);
        let outside = || Error::defect("a matrix is read outside of its elements");
        let row = &mut |row: i64, column: i64, out: &mut [u8]| {
            strided(tensor.bytes(), width, row * n + column, 1, out).ok_or_else(outside)
        };
        let mut out = vec![];
        let write = &mut |part: &[u8]| {
            out.extend_from_slice(part);
            Ok(())
        };
        self.encode(tensor.dtype(), [k, n], row, write)?;
        Ok(out)
    }

    /// Passes the bytes of a matrix of k rows and n columns to `write`, one panel at a time.
    pub fn encode(
        self,
        dtype: DType,
        [k, n]: [i64; 2],
        row: &mut ReadRow<'_>,
        write: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let (width, depth) = match self {
            // A plain matrix is encoded as a single panel with all columns.
            Encoding::Plain => (n.max(1) as usize, 1),
            Encoding::Panels { width, depth } => (width, depth),
        };
        let bytes = dtype.bytes();
        let mut rows = vec![0; depth * width * bytes];
        let mut panel = Vec::new();
        for first in (0..n).step_by(width) {
            panel.clear();
            for group in (0..k).step_by(depth) {
                // What lies outside of the matrix is padding.
                rows.fill(0);
                let columns = ((n - first) as usize).min(width);
                for (at, out) in (group..k).zip(rows.chunks_exact_mut((width * bytes).max(1))) {
                    row(at, first, &mut out[..columns * bytes])?;
                }
                match (bytes, self.per_byte(dtype)) {
                    _ if depth == 1 => panel.extend_from_slice(&rows),
                    (1, 2) => interleave_halves(&rows, width, &mut panel),
                    (1, _) => interleave::<1>(&rows, width, &mut panel),
                    (2, _) => interleave::<2>(&rows, width, &mut panel),
                    (4, _) => interleave::<4>(&rows, width, &mut panel),
                    (8, _) => interleave::<8>(&rows, width, &mut panel),
                    _ => return Err(Error::defect(format!("elements of type {dtype} are not stored in panels"))),
                }
            }
            write(&panel)?;
        }
        Ok(())
    }
}

/// Fills `out` with elements of `width` bytes: the one at index `start` of `from`, and those that follow `stride`
/// elements apart. `None` if one lies outside of `from`.
pub fn strided(from: &[u8], width: usize, start: i64, stride: i64, out: &mut [u8]) -> Option<()> {
    fn copied<const WIDTH: usize>(from: &[u8], start: i64, stride: i64, out: &mut [u8]) -> Option<()> {
        let (from, _) = from.as_chunks::<WIDTH>();
        let (out, _) = out.as_chunks_mut::<WIDTH>();
        let mut at = start;
        for element in out {
            *element = *from.get(usize::try_from(at).ok()?)?;
            at = at.checked_add(stride)?;
        }
        Some(())
    }
    match (stride, width) {
        (1, _) => {
            let start = usize::try_from(start).ok()?.checked_mul(width)?;
            out.copy_from_slice(from.get(start..start.checked_add(out.len())?)?);
            Some(())
        }
        (_, 1) => copied::<1>(from, start, stride, out),
        (_, 2) => copied::<2>(from, start, stride, out),
        (_, 4) => copied::<4>(from, start, stride, out),
        (_, 8) => copied::<8>(from, start, stride, out),
        (_, 16) => copied::<16>(from, start, stride, out),
        _ => None,
    }
}

/// Appends the elements of `rows`, of `columns` elements each, column by column.
fn interleave<const WIDTH: usize>(rows: &[u8], columns: usize, panel: &mut Vec<u8>) {
    let (elements, _) = rows.as_chunks::<WIDTH>();
    for column in 0..columns {
        elements.iter().skip(column).step_by(columns).for_each(|element| panel.extend_from_slice(element));
    }
}

/// Like [`interleave`] with two 4-bit elements per byte: of a column, the second half becomes the high bits of the
/// first half.
fn interleave_halves(rows: &[u8], columns: usize, panel: &mut Vec<u8>) {
    let (low, high) = rows.split_at(rows.len() / 2);
    for column in 0..columns {
        let pairs = low.iter().zip(high).skip(column).step_by(columns);
        panel.extend(pairs.map(|(low, high)| *low & 15 | high << 4));
    }
}

/// Depth of panels that hold two 4-bit elements per byte.
pub const NIBBLE_ROWS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_encoding_has_one_name() {
        assert!(ROWS.windows(2).all(|w| w[0].prefix < w[1].prefix));
        for encoding in
            [Encoding::Plain, Encoding::Panels { width: 16, depth: 1 }, Encoding::Panels { width: 32, depth: 4 }]
        {
            assert_eq!(Encoding::from_name(&encoding.name()), Some(encoding));
        }
        for name in ["", "plain1", "panels", "panels0", "panels32x1", "panels32x", "panels-1", "blocks32"] {
            assert_eq!(Encoding::from_name(name), None, "{name}");
        }
    }

    #[test]
    fn elements_are_those_that_are_written() {
        for encoding in [
            Encoding::Plain,
            Encoding::Panels { width: 2, depth: 1 },
            Encoding::Panels { width: 2, depth: 2 },
            Encoding::Panels { width: 4, depth: 4 },
        ] {
            for [k, n] in [[3, 3], [2, 4], [1, 1], [0, 2]] {
                let matrix = Tensor::from_vec(vec![k, n], (1..=k * n).map(|v| v as i16).collect());
                let bytes = encoding.encoded(&matrix).unwrap();
                let dims = [k, n].map(|d| Dim::constant(d as i64));
                assert_eq!(encoding.bytes(DType::I16, &dims), Dim::constant(bytes.len() as i64));
                let values = bytes.chunks(2).map(|b| i16::from_le_bytes([b[0], b[1]]));
                let mut values: Vec<i16> = values.filter(|v| *v > 0).collect();
                values.sort_unstable();
                assert!(values.into_iter().eq(1..=(k * n) as i16), "each element once");
            }
        }
    }

    #[test]
    fn strided_elements_lie_inside_of_what_is_read() {
        let from: Vec<u8> = (0..12).collect();
        let read = |width: usize, start, stride| {
            let mut out = vec![0; 2 * width];
            strided(&from, width, start, stride, &mut out).map(|()| out)
        };
        assert_eq!(read(1, 9, 2), Some(vec![9, 11]));
        assert_eq!(read(2, 5, -3), Some(vec![10, 11, 4, 5]));
        assert_eq!(read(4, 1, 1), Some((4..12).collect()));
        for (width, start, stride) in [(1, 11, 1), (1, 10, 2), (2, -1, 1), (4, 1, -2), (8, 0, 1), (8, 0, i64::MAX)] {
            assert_eq!(read(width, start, stride), None, "{width} {start} {stride}");
        }
    }

    #[test]
    fn panels_hold_columns_side_by_side_and_zeros_beyond_the_matrix() {
        let matrix = Tensor::from_vec(vec![3, 3], (1..=9u8).collect());
        let panels = |width, depth| Encoding::Panels { width, depth }.encoded(&matrix).unwrap();
        assert_eq!(panels(2, 1), [1, 2, 4, 5, 7, 8, 3, 0, 6, 0, 9, 0]);
        assert_eq!(panels(2, 2), [1, 4, 2, 5, 7, 0, 8, 0, 3, 6, 0, 0, 9, 0, 0, 0]);
        let codes = Tensor::new(DType::I4, vec![9, 1], (0..9u8).collect::<Vec<u8>>().into()).unwrap();
        let nibbles = Encoding::Panels { width: 1, depth: NIBBLE_ROWS };
        assert_eq!(nibbles.encoded(&codes).unwrap(), [0x40, 0x51, 0x62, 0x73, 8, 0, 0, 0]);
        assert_eq!(nibbles.bytes(DType::I4, &[9, 1].map(Dim::constant)), Dim::constant(8));
        let wrong = Encoding::Panels { width: 4, depth: 1 }.encoded(&Tensor::scalar(1f32));
        assert_eq!(wrong.unwrap_err().code, "E0901");
        assert_eq!(Encoding::Panels { width: 0, depth: 1 }.encoded(&matrix).unwrap_err().code, "E0901");
    }
}
