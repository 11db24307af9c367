//! [k, n]  <=>  [ceil(n / width)][ceil(k / depth)][width][depth]: a matrix in panels of columns, zero padded

use sardonyx_base::{DType, Error, Result, Tensor};

/// The bytes of a matrix [k, n] in panels of `width` columns, of which `depth` rows lie side by side.
pub fn pack_panels(matrix: &Tensor, width: usize, depth: usize) -> Result<Vec<u8>> {
    let &[k, n] = matrix.dims() else {
        return Err(Error::defect(format!("a tensor of rank {} has no panels", matrix.rank())));
    };
    let size = panel_bytes(matrix.dtype(), (k, n), (width, depth))?;
    let element = matrix.dtype().bytes();
    let mut out = vec![0; size];
    for row in 0..k {
        for column in 0..n {
            let from = (row * n + column) * element;
            let to = place(k, (width, depth), (row, column)) * element;
            out[to..to + element].copy_from_slice(&matrix.bytes()[from..from + element]);
        }
    }
    Ok(out)
}

/// The matrix [k, n] whose panels `bytes` are; the padding is not looked at.
pub fn unpack_panels(dtype: DType, (k, n): (usize, usize), panels: (usize, usize), bytes: &[u8]) -> Result<Tensor> {
    let size = panel_bytes(dtype, (k, n), panels)?;
    if bytes.len() != size {
        let (width, depth) = panels;
        let what = format!("a {dtype} matrix [{k}, {n}] in panels of {width} x {depth}");
        return Err(Error::user("E0302", format!("{what} has {size} bytes, not {}", bytes.len())));
    }
    let element = dtype.bytes();
    let mut out = Vec::with_capacity(k * n * element);
    for row in 0..k {
        for column in 0..n {
            let at = place(k, panels, (row, column)) * element;
            out.extend_from_slice(&bytes[at..at + element]);
        }
    }
    Tensor::new(dtype, vec![k, n], out.into())
}

/// The number of an element in panels of a matrix of k rows.
fn place(k: usize, (width, depth): (usize, usize), (row, column): (usize, usize)) -> usize {
    let group = column / width * k.div_ceil(depth) + row / depth;
    (group * width + column % width) * depth + row % depth
}

fn panel_bytes(dtype: DType, (k, n): (usize, usize), (width, depth): (usize, usize)) -> Result<usize> {
    if width == 0 || depth == 0 || dtype.bits() < 8 {
        return Err(Error::defect(format!("{dtype} does not lie in panels of {width} x {depth}")));
    }
    let columns = n.div_ceil(width).checked_mul(width);
    let rows = k.div_ceil(depth).checked_mul(depth);
    let count = columns.zip(rows).and_then(|(c, r)| c.checked_mul(r));
    let bytes = count.and_then(|count| dtype.bytes_for(count));
    bytes.ok_or_else(|| Error::user("E0202", format!("the panels of [{k}, {n}] have no representable size")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_in_panels_and_the_last_is_padded() {
        let m = Tensor::from_vec(vec![2, 3], vec![1i16, 2, 3, 4, 5, 6]);
        let packed = pack_panels(&m, 2, 1).unwrap();
        let expected = Tensor::from_vec(vec![8], vec![1i16, 2, 4, 5, 3, 0, 6, 0]);
        assert_eq!(packed, expected.bytes().to_vec());
        let back = unpack_panels(DType::I16, (2, 3), (2, 1), &packed).unwrap();
        assert_eq!((back.dims(), back.bytes()), (m.dims(), m.bytes()));
    }

    #[test]
    fn rows_of_a_column_lie_side_by_side_and_the_last_group_is_padded() {
        let m = Tensor::from_vec(vec![3, 3], vec![1i16, 2, 3, 4, 5, 6, 7, 8, 9]);
        let packed = pack_panels(&m, 2, 2).unwrap();
        let expected = Tensor::from_vec(vec![16], vec![1i16, 4, 2, 5, 7, 0, 8, 0, 3, 6, 0, 0, 9, 0, 0, 0]);
        assert_eq!(packed, expected.bytes().to_vec());
    }

    #[test]
    fn packing_and_unpacking_are_inverse() {
        for (k, n, width) in [(1, 1, 16), (3, 32, 16), (5, 33, 16), (0, 4, 2), (4, 0, 2), (7, 5, 1)] {
            for depth in [1usize, 2, 4] {
                let m = Tensor::from_vec(vec![k, n], (0..k * n).map(|i| i as f32).collect());
                let packed = pack_panels(&m, width, depth).unwrap();
                assert_eq!(packed.len(), n.div_ceil(width) * k.div_ceil(depth) * depth * width * 4);
                assert_eq!(unpack_panels(DType::F32, (k, n), (width, depth), &packed).unwrap().bytes(), m.bytes());
            }
        }
    }

    #[test]
    fn what_cannot_be_packed_is_refused() {
        let one = Tensor::from_vec(vec![1, 1], vec![1f32]);
        assert_eq!(pack_panels(&Tensor::scalar(1f32), 4, 1).unwrap_err().code, "E0901");
        assert_eq!(pack_panels(&one, 0, 1).unwrap_err().code, "E0901");
        assert_eq!(pack_panels(&one, 1, 0).unwrap_err().code, "E0901");
        assert_eq!(unpack_panels(DType::F32, (1, 1), (2, 1), &[0; 4]).unwrap_err().code, "E0302");
        assert_eq!(unpack_panels(DType::F32, (usize::MAX, 2), (2, 1), &[]).unwrap_err().code, "E0202");
    }
}
