//! [k, n]  <=>  [ceil(n / width)][k][width]: a matrix in panels of columns, zero padded

use sardonyx_runtime::{DType, Error, Result, Tensor};

/// The bytes of a matrix [k, n] in panels of `width` columns, as [ceil(n / width)][k][width].
pub fn pack_panels(matrix: &Tensor, width: usize) -> Result<Vec<u8>> {
    let &[k, n] = matrix.dims() else {
        return Err(Error::defect(format!("a tensor of rank {} has no panels", matrix.rank())));
    };
    let size = panel_bytes(matrix.dtype(), k, n, width)?;
    let element = matrix.dtype().bytes();
    let mut out = vec![0; size];
    for (row, source) in matrix.bytes().chunks_exact((n * element).max(1)).enumerate() {
        for (panel, columns) in source.chunks(width * element).enumerate() {
            let at = (panel * k + row) * width * element;
            out[at..at + columns.len()].copy_from_slice(columns);
        }
    }
    Ok(out)
}

/// The matrix [k, n] whose panels `bytes` are; the padding is not looked at.
pub fn unpack_panels(dtype: DType, k: usize, n: usize, width: usize, bytes: &[u8]) -> Result<Tensor> {
    let size = panel_bytes(dtype, k, n, width)?;
    if bytes.len() != size {
        let message = format!("a {dtype} matrix [{k}, {n}] in panels of {width} has {size} bytes, not {}", bytes.len());
        return Err(Error::user("E0302", message));
    }
    let element = dtype.bytes();
    let mut out = Vec::with_capacity(k * n * element);
    for row in 0..k {
        for panel in 0..n.div_ceil(width) {
            let at = (panel * k + row) * width;
            let columns = width.min(n - panel * width);
            out.extend_from_slice(&bytes[at * element..(at + columns) * element]);
        }
    }
    Tensor::new(dtype, vec![k, n], out.into())
}

fn panel_bytes(dtype: DType, k: usize, n: usize, width: usize) -> Result<usize> {
    if width == 0 || dtype.bits() < 8 {
        return Err(Error::defect(format!("{dtype} does not lie in panels of width {width}")));
    }
    let columns = n.div_ceil(width).checked_mul(width);
    let bytes = columns.and_then(|c| c.checked_mul(k)).and_then(|count| dtype.bytes_for(count));
    bytes.ok_or_else(|| Error::user("E0202", format!("the panels of [{k}, {n}] have no representable size")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_in_panels_and_the_last_is_padded() {
        let m = Tensor::from_vec(vec![2, 3], vec![1i16, 2, 3, 4, 5, 6]);
        let packed = pack_panels(&m, 2).unwrap();
        let expected = Tensor::from_vec(vec![8], vec![1i16, 2, 4, 5, 3, 0, 6, 0]);
        assert_eq!(packed, expected.bytes().to_vec());
        let back = unpack_panels(DType::I16, 2, 3, 2, &packed).unwrap();
        assert_eq!((back.dims(), back.bytes()), (m.dims(), m.bytes()));
    }

    #[test]
    fn packing_and_unpacking_are_inverse() {
        for (k, n, width) in [(1, 1, 16), (3, 32, 16), (5, 33, 16), (0, 4, 2), (4, 0, 2), (7, 5, 1)] {
            let m = Tensor::from_vec(vec![k, n], (0..k * n).map(|i| i as f32).collect());
            let packed = pack_panels(&m, width).unwrap();
            assert_eq!(packed.len(), n.div_ceil(width) * k * width * 4);
            assert_eq!(unpack_panels(DType::F32, k, n, width, &packed).unwrap().bytes(), m.bytes());
        }
    }

    #[test]
    fn what_cannot_be_packed_is_refused() {
        assert_eq!(pack_panels(&Tensor::scalar(1f32), 4).unwrap_err().code, "E0901");
        assert_eq!(pack_panels(&Tensor::from_vec(vec![1, 1], vec![1f32]), 0).unwrap_err().code, "E0901");
        assert_eq!(unpack_panels(DType::F32, 1, 1, 2, &[0; 4]).unwrap_err().code, "E0302");
        assert_eq!(unpack_panels(DType::F32, usize::MAX, 2, 2, &[]).unwrap_err().code, "E0202");
    }
}
