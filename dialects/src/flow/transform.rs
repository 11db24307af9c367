//! a parameter  =>  a tensor computed from it when the artifact is written: w[o, c, 3, 3]  =>  u[16, o / b, c, b]
//!
//! To add a transform: add a variant and its row here, and the pass that requests it.

use super::kernel::Container;
use super::sparse::{Format, Part, TwoOfFour, Windows};
use sardonyx_base::{DType, Dim, Error, Result, Tensor};
use std::fmt;

/// A function of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transform {
    /// w[o, c, 3, 3]  =>  u[16, o / b, c, b]: filters transformed for Winograd's F(2x2, 3x3), in blocks of b =
    /// `filter_block` output channels; u[4p + q] = Σ G[p, i] G[q, j] w[i, j] over i and j, G as in `FILTER`.
    Winograd,
    /// Like `Winograd`, but for filters of f16; the result is f32.
    WinogradF16,
    /// u8  =>  i8, subtracting 128; i8 is unchanged; u4  =>  i4, subtracting 8.
    Signed,
    /// w[n, c, …] of i8 or u8  =>  w[n, c + 1 …, …] of i8, as `Signed` gives it, with as many zeros behind each c that
    /// c becomes a multiple of 4.
    Padded,
    /// w[n, …]  =>  Σ w[n, …] in i32 for each n; w is i8, or u8 from which 128 is subtracted.
    RowSums,
    /// w[…, n]  =>  Σ w[…, n] in i32 for each n; w has the types that `RowSums` accepts.
    ColumnSums,
    /// One container of a sparse matrix.
    Sparse(Part, Format),
}

/// Type and dimensions of a parameter, if they are known.
pub type Taken = Option<(DType, Vec<usize>)>;

struct Row {
    transform: Transform,
    /// Name in the IR.
    name: &'static str,
    /// The container of the result for a parameter in row-major order; none if the transform does not accept it.
    gives: fn(&Container) -> Option<Container>,
    /// Type and dimensions of the parameter, as [`Transform::takes`] returns them.
    takes: fn(DType, &[usize], Option<usize>) -> Taken,
    compute: fn(&Tensor) -> Result<Tensor>,
}

/// Transforms without arguments, which their name identifies.
static ROWS: &[Row] = &[
    Row {
        transform: Transform::Winograd,
        name: "winograd",
        gives: |w| matrices(w, DType::F32),
        takes: |_, dims, _| filters(DType::F32, dims),
        compute: |w| winograd(w, DType::F32),
    },
    Row {
        transform: Transform::WinogradF16,
        name: "winograd_f16",
        gives: |w| matrices(w, DType::F16),
        takes: |_, dims, _| filters(DType::F16, dims),
        compute: |w| winograd(w, DType::F16),
    },
    Row {
        transform: Transform::Signed,
        name: "signed",
        gives: |w| Some(Container { dtype: with_sign(w.dtype)?, ..w.clone() }),
        takes: |dtype, dims, _| Some((if dtype == DType::I4 { DType::U4 } else { DType::U8 }, dims.to_vec())),
        compute: |w| match w.dtype() {
            DType::U4 => {
                let codes: Vec<u8> = w.bytes().iter().map(|code| code.wrapping_sub(8)).collect();
                Tensor::new(DType::I4, w.dims().to_vec(), codes.into())
            }
            _ => Ok(Tensor::from_vec(w.dims().to_vec(), signed(w)?)),
        },
    },
    Row {
        transform: Transform::Padded,
        name: "padded",
        gives: |w| {
            let (_, dims) =
                is_bytes(w).then(|| padded(&w.dims.iter().map(Dim::as_const).collect::<Option<Vec<_>>>()?))??;
            Some(Container::plain(DType::I8, dims.into_iter().map(Dim::constant).collect()))
        },
        takes: |_, dims, elements| {
            let all = dims.iter().product::<usize>();
            let per_channel = all.checked_div(*dims.get(1)?).filter(|n| *n > 0)?;
            let mut dims = dims.to_vec();
            // A parameter whose channels need no padding has as many elements.
            dims[1] = elements.map_or(Some(dims[1]), |n| n.checked_div(per_channel))?;
            Some((DType::U8, dims))
        },
        compute: pad,
    },
    Row {
        transform: Transform::RowSums,
        name: "row_sums",
        gives: |w| sums(w, w.dims.first()?),
        takes: |dtype, dims, elements| {
            let n = dims.first().copied().filter(|n| *n > 0)?;
            Some((dtype, vec![n, elements?.div_ceil(n)]))
        },
        compute: |w| byte_sums(w, true),
    },
    Row {
        transform: Transform::ColumnSums,
        name: "column_sums",
        gives: |w| sums(w, w.dims.last()?),
        takes: |dtype, dims, elements| {
            let n = dims.first().copied().filter(|n| *n > 0)?;
            Some((dtype, vec![elements?.div_ceil(n), n]))
        },
        compute: |w| byte_sums(w, false),
    },
];

impl Transform {
    /// Returns the row of a transform without arguments; `None` for a sparse one.
    fn row(self) -> Option<&'static Row> {
        ROWS.iter().find(|row| row.transform == self)
    }

    /// Returns the name, without the format of a sparse matrix.
    pub fn name(self) -> &'static str {
        match self {
            Transform::Sparse(part, _) => part.name(),
            _ => self.row().map_or("", |row| row.name),
        }
    }

    /// Parses what `to_string` writes.
    pub fn from_name(text: &str) -> Option<Transform> {
        let plain = ROWS.iter().find(|row| row.name == text).map(|row| row.transform);
        plain.or_else(|| {
            let (part, sizes) = text.split_once(' ')?;
            let (part, format) = (Part::from_name(part)?, Format::from_text(sizes)?);
            format.parts().contains(&part).then_some(Transform::Sparse(part, format))
        })
    }

    /// Returns the transform with results of another type, if this transform can round values; otherwise `self`.
    pub fn of_type(self, dtype: DType) -> Transform {
        match self {
            Transform::Sparse(part, Format::TwoOfFour(matrix)) => {
                Transform::Sparse(part, Format::TwoOfFour(TwoOfFour { dtype, ..matrix }))
            }
            Transform::Sparse(part, Format::Windows(matrix)) => {
                Transform::Sparse(part, Format::Windows(Windows { dtype, ..matrix }))
            }
            _ => self,
        }
    }

    /// Returns the container of the result for a parameter in row-major order; `None` if the transform does not accept
    /// the parameter.
    pub fn gives(self, parameter: &Container) -> Option<Container> {
        match self {
            Transform::Sparse(part, format) => format.container(part).filter(|_| format.is_of(parameter)),
            _ => (self.row()?.gives)(parameter),
        }
    }

    /// Returns type and dimensions of the parameter, derived from those of the result and, if known, the parameter's
    /// number of elements; `None` if these do not determine the dimensions. For `RowSums` and `ColumnSums`, the
    /// returned type is that of the sums, because they do not determine the parameter's type, and the dimensions are
    /// those of a matrix.
    pub fn takes(self, dtype: DType, dims: &[usize], elements: Option<usize>) -> Taken {
        match self {
            Transform::Sparse(_, format) => Some((format.dtype(), format.grid().parameter_dims())),
            _ => (self.row()?.takes)(dtype, dims, elements),
        }
    }

    /// Returns the transformed parameter. Errors: E0901 for a parameter that the transform does not accept.
    pub fn compute(self, parameter: &Tensor) -> Result<Tensor> {
        match self {
            Transform::Sparse(part, format) => format.part(part, parameter),
            _ => (self.row().ok_or_else(|| Error::defect("a transform has no row"))?.compute)(parameter),
        }
    }
}

impl fmt::Display for Transform {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Transform::Sparse(_, format) => write!(f, "{} {format}", self.name()),
            _ => f.write_str(self.name()),
        }
    }
}

fn is_bytes(w: &Container) -> bool {
    matches!(w.dtype, DType::I8 | DType::U8)
}

fn with_sign(dtype: DType) -> Option<DType> {
    match dtype {
        DType::U8 | DType::I8 => Some(DType::I8),
        DType::U4 => Some(DType::I4),
        _ => None,
    }
}

fn sums(w: &Container, n: &Dim) -> Option<Container> {
    is_bytes(w).then(|| Container::plain(DType::I32, vec![n.clone()]))
}

/// Returns bytes as i8: i8 values are unchanged, and 128 is subtracted from u8 values.
fn signed(bytes: &Tensor) -> Result<Vec<i8>> {
    let less = |bytes: Vec<u8>| bytes.into_iter().map(|b| (b ^ 0x80).cast_signed()).collect();
    let found = bytes.to_vec::<i8>().or_else(|| bytes.to_vec::<u8>().map(less));
    found.ok_or_else(|| Error::defect("a tensor of bytes is needed"))
}

/// Number of neighbours that one instruction multiplies: what `Padded` makes channels a multiple of.
pub const WORD_BYTES: i64 = 4;

/// Number of elements of a channel, and the dimensions with padded channels; `None` if there are no channels.
fn padded(dims: &[i64]) -> Option<(usize, Vec<i64>)> {
    let channel = dims.get(2..)?.iter().product::<i64>();
    let mut dims = dims.to_vec();
    dims[1] = dims[1].checked_add(WORD_BYTES - 1)? / WORD_BYTES * WORD_BYTES;
    Some((usize::try_from(channel).ok()?, dims))
}

/// w[n, c, …]  =>  the same with zeros behind the last channel
fn pad(w: &Tensor) -> Result<Tensor> {
    let values = signed(w)?;
    let dims: Vec<i64> = w.dims().iter().map(|d| *d as i64).collect();
    let (channel, dims) = padded(&dims).ok_or_else(|| Error::defect("a vector has no channels"))?;
    let dims: Vec<usize> = dims.into_iter().map(|d| d as usize).collect();
    let (from, to) = ((w.dims()[1] * channel).max(1), dims[1] * channel);
    let mut out = Vec::with_capacity(dims.iter().product());
    for row in values.chunks(from) {
        out.extend(row);
        out.resize(out.len() + to - from, 0i8);
    }
    Ok(Tensor::from_vec(dims, out))
}

/// w[n, …] or w[…, n]  =>  the sum for each n
fn byte_sums(w: &Tensor, by_rows: bool) -> Result<Tensor> {
    let n = if by_rows { w.dims().first() } else { w.dims().last() };
    let (n, values) = (n.copied().ok_or_else(|| Error::defect("a number has no rows"))?, signed(w)?);
    let mut sums = vec![0i32; n];
    let each = values.len().checked_div(n).unwrap_or(0).max(1);
    for (at, value) in values.into_iter().enumerate() {
        let n = if by_rows { at / each } else { at % n };
        sums[n] = sums[n].wrapping_add(i32::from(value));
    }
    Ok(Tensor::from_vec(vec![n], sums))
}

/// Returns the number of output channels in a block, whose filters are interleaved; there are `n_out` channels in all.
pub fn filter_block(n_out: i64) -> i64 {
    if n_out % 32 == 0 { 32 } else { n_out }
}

/// w[o, c, 3, 3]  =>  u[16, o / b, c, b]
fn matrices(w: &Container, dtype: DType) -> Option<Container> {
    let dims: Option<Vec<i64>> = w.dims.iter().map(Dim::as_const).collect();
    let &[o, c, 3, 3] = dims.as_deref().filter(|_| w.dtype == dtype)? else { return None };
    let block = filter_block(o);
    let dims = [16, o.checked_div(block).unwrap_or(0), c, block].map(Dim::constant);
    Some(Container::plain(DType::F32, dims.to_vec()))
}

/// u[16, o / b, c, b]  =>  w[o, c, 3, 3]
fn filters(dtype: DType, dims: &[usize]) -> Taken {
    let &[_, blocks, n_in, block] = dims else { return None };
    Some((dtype, vec![blocks * block, n_in, 3, 3]))
}

/// Rows of Winograd's G, which transforms a filter of three values to four.
const FILTER: [[f64; 3]; 4] = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]];

/// w[o, c, 3, 3]  =>  u[16, o / b, c, b], computed in f64 and rounded once
fn winograd(w: &Tensor, dtype: DType) -> Result<Tensor> {
    let values: Option<Vec<f64>> = (0..w.len()).map(|i| w.get_f64(i)).collect();
    let (&[n_out, n_in, 3, 3], Some(values), true) = (w.dims(), values, w.dtype() == dtype) else {
        return Err(Error::defect("what is transformed is no tensor of 3x3 filters"));
    };
    let block = filter_block(n_out as i64).max(1) as usize;
    let mut out = Vec::with_capacity(16 * n_in * n_out);
    for (p, q) in (0..16).map(|at| (FILTER[at / 4], FILTER[at % 4])) {
        for (first, c) in (0..n_out).step_by(block).flat_map(|first| (0..n_in).map(move |c| (first, c))) {
            out.extend((first..first + block).map(|o| {
                let filter = &values[9 * (o * n_in + c)..][..9];
                let weighted = filter.iter().enumerate().map(|(at, w)| p[at / 3] * q[at % 3] * w);
                weighted.sum::<f64>() as f32
            }));
        }
    }
    Ok(Tensor::from_vec(vec![16, n_out / block, n_in, block], out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transform_is_what_its_name_says() {
        for row in ROWS {
            assert_eq!(Transform::from_name(row.name), Some(row.transform));
        }
    }

    #[test]
    fn what_is_computed_is_what_a_transform_gives() {
        let bytes = Tensor::from_vec(vec![2, 3], vec![0u8, 128, 255, 1, 2, 3]);
        let filters = Tensor::from_vec(vec![64, 2, 3, 3], (0..64 * 2 * 9).map(|v| v as f32).collect());
        let halves = (0..64 * 2 * 9).map(|v| half::f16::from_f32(v as f32)).collect();
        let halves = Tensor::from_vec(vec![64, 2, 3, 3], halves);
        for row in ROWS {
            let taken = [&bytes, &filters, &halves].into_iter().filter_map(|t| {
                let dims = t.dims().iter().map(|d| Dim::constant(*d as i64)).collect();
                Some((t, row.transform.gives(&Container::plain(t.dtype(), dims))?))
            });
            let taken: Vec<_> = taken.collect();
            assert_eq!(taken.len(), 1, "{}", row.name);
            let (parameter, gives) = &taken[0];
            let result = row.transform.compute(parameter).unwrap();
            let dims: Vec<Dim> = result.dims().iter().map(|d| Dim::constant(*d as i64)).collect();
            assert_eq!((result.dtype(), &dims), (gives.dtype, &gives.dims), "{}", row.name);
            let (_, dims) = row.transform.takes(result.dtype(), result.dims(), Some(parameter.len())).unwrap();
            assert_eq!(dims, parameter.dims(), "{}", row.name);
        }
        assert_eq!(Transform::Winograd.compute(&bytes).unwrap_err().code, "E0901");
        assert_eq!(Transform::Signed.compute(&filters).unwrap_err().code, "E0901");
    }
}
