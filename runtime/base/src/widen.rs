//! bf16, f8*, f4  =>  f32;  i4, i2  =>  i8;  u4, u2  =>  u8: exact, for printing, comparing and numpy

use crate::{DType, Tensor};

/// Returns the values of a narrow type in a wider type that numpy supports, exactly; other types are unchanged.
pub fn widen(tensor: &Tensor) -> Tensor {
    use DType::*;
    let (dims, n, data) = (tensor.dims().to_vec(), tensor.len(), tensor.bytes());
    match tensor.dtype() {
        BF16 | F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ | F8E8M0 | F4E2M1 => {
            Tensor::from_vec(dims, (0..n).map(|i| tensor.get_f64(i).unwrap_or(f64::NAN) as f32).collect())
        }
        U4 | U2 => Tensor::from_vec(dims, data.to_vec()),
        I4 | I2 => Tensor::from_vec(dims, data.iter().map(|&b| b as i8).collect()),
        F32 | U8 | I8 | U16 | I16 | I32 | I64 | String | Value | Bool | F16 | F64 | U32 | U64 | C64 | C128 => {
            tensor.clone()
        }
    }
}

/// Returns a complex tensor as a real one with a further last dimension: real and imaginary part. Other types are
/// unchanged.
pub fn parts(tensor: &Tensor) -> Tensor {
    let real = match tensor.dtype() {
        DType::C64 => DType::F32,
        DType::C128 => DType::F64,
        _ => return tensor.clone(),
    };
    let dims = tensor.dims().iter().copied().chain([2]).collect();
    // Twice as many elements of half the width have the same number of bytes.
    Tensor::new(real, dims, tensor.bytes().clone()).unwrap_or_else(|_| tensor.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn floats(dtype: DType, bytes: &'static [u8], n: usize) -> Vec<f32> {
        widen(&Tensor::new(dtype, vec![n], Bytes::from_static(bytes)).unwrap()).to_vec().unwrap()
    }

    #[test]
    fn small_floats_have_their_documented_values() {
        let v = floats(DType::F8E4M3FN, &[0x00, 0x01, 0x38, 0x7e, 0x7f, 0xb8], 6);
        assert_eq!((&v[..4], v[4].is_nan(), v[5]), (&[0.0, 0.001953125, 1.0, 448.0][..], true, -1.0));
        let v = floats(DType::F8E5M2, &[0x01, 0x3c, 0x7b, 0x7c, 0x7d, 0xfc], 6);
        assert_eq!((&v[..4], v[4].is_nan()), (&[2f32.powi(-16), 1.0, 57344.0, f32::INFINITY][..], true));
        assert_eq!(v[5], f32::NEG_INFINITY);
        let v = floats(DType::F8E4M3FNUZ, &[0x80, 0x7f, 0x40], 3);
        assert_eq!((v[0].is_nan(), &v[1..]), (true, &[240.0, 1.0][..]));
        let v = floats(DType::F8E5M2FNUZ, &[0x7f, 0x40], 2);
        assert_eq!(v, [57344.0, 1.0]);
        assert_eq!(floats(DType::F4E2M1, &[0, 1, 2, 7, 15], 5), [0.0, 0.5, 1.0, 6.0, -6.0]);
        assert_eq!(floats(DType::F8E8M0, &[127, 128, 0], 3), [1.0, 2.0, 2f32.powi(-127)]);
    }

    #[test]
    fn narrow_integers_keep_their_values() {
        let t = Tensor::new(DType::I4, vec![3], Bytes::from_static(&[0xff, 7, 0xf8])).unwrap();
        assert_eq!(widen(&t).to_vec::<i8>().unwrap(), [-1, 7, -8]);
        let t = Tensor::new(DType::U2, vec![2], Bytes::from_static(&[0, 3])).unwrap();
        assert_eq!(widen(&t).to_vec::<u8>().unwrap(), [0, 3]);
    }
}
