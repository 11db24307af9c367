//! bf16, f8*, f4  =>  f32;  i4, i2  =>  i8;  u4, u2  =>  u8: exact, for printing, comparing and numpy

use crate::{DType, Tensor};

/// The same values in a type that is at least a byte wide and that numpy knows; other types pass unchanged.
pub fn widen(tensor: &Tensor) -> Tensor {
    use DType::*;
    let (dims, n, data) = (tensor.dims().to_vec(), tensor.len(), tensor.bytes());
    let dtype = tensor.dtype();
    match dtype {
        BF16 => {
            let pairs = data.chunks_exact(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32());
            Tensor::from_vec(dims, pairs.collect())
        }
        F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ | F8E8M0 => {
            Tensor::from_vec(dims, data.iter().map(|&b| small_float(dtype, b)).collect())
        }
        F4E2M1 => Tensor::from_vec(dims, fields(data, n, 4).map(|b| small_float(dtype, b)).collect()),
        U4 => Tensor::from_vec(dims, fields(data, n, 4).collect()),
        U2 => Tensor::from_vec(dims, fields(data, n, 2).collect()),
        I4 => Tensor::from_vec(dims, fields(data, n, 4).map(|b| ((b << 4) as i8) >> 4).collect()),
        I2 => Tensor::from_vec(dims, fields(data, n, 2).map(|b| ((b << 6) as i8) >> 6).collect()),
        F32 | U8 | I8 | U16 | I16 | I32 | I64 | String | Value | Bool | F16 | F64 | U32 | U64 | C64 | C128 => {
            tensor.clone()
        }
    }
}

/// `n` unsigned fields of `bits` each, low bits first.
fn fields(data: &[u8], n: usize, bits: usize) -> impl Iterator<Item = u8> + '_ {
    let per_byte = 8 / bits;
    (0..n).map(move |i| data[i / per_byte] >> (i % per_byte * bits) & ((1 << bits) - 1))
}

/// The value of an 8- or 4-bit float (ONNX "Float stored in 8 bits"; OCP MX for f4e2m1 and f8e8m0).
fn small_float(dtype: DType, bits: u8) -> f32 {
    let (exponent_bits, mantissa_bits, bias) = match dtype {
        DType::F8E4M3FN => (4, 3, 7),
        DType::F8E4M3FNUZ => (4, 3, 8),
        DType::F8E5M2 => (5, 2, 15),
        DType::F8E5M2FNUZ => (5, 2, 16),
        DType::F4E2M1 => (2, 1, 1),
        DType::F8E8M0 if bits == 0xff => return f32::NAN,
        DType::F8E8M0 => return (bits as f32 - 127.0).exp2(),
        other => unreachable!("{other} is not a small float"),
    };
    let magnitude = bits & ((1 << (exponent_bits + mantissa_bits)) - 1);
    let negative = bits != magnitude;
    let exponent = (magnitude >> mantissa_bits) as i32;
    let mantissa = (magnitude & ((1 << mantissa_bits) - 1)) as f32 / (1 << mantissa_bits) as f32;
    let value = match dtype {
        DType::F8E4M3FN if magnitude == 0x7f => f32::NAN,
        DType::F8E4M3FNUZ | DType::F8E5M2FNUZ if bits == 0x80 => return f32::NAN,
        DType::F8E5M2 if magnitude == 0x7c => f32::INFINITY,
        DType::F8E5M2 if magnitude > 0x7c => f32::NAN,
        _ if exponent == 0 => mantissa * ((1 - bias) as f32).exp2(),
        _ => (1.0 + mantissa) * ((exponent - bias) as f32).exp2(),
    };
    if negative { -value } else { value }
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
        assert_eq!(floats(DType::F4E2M1, &[0x10, 0x72, 0x0f], 5), [0.0, 0.5, 1.0, 6.0, -6.0]);
        assert_eq!(floats(DType::F8E8M0, &[127, 128, 0], 3), [1.0, 2.0, 2f32.powi(-127)]);
    }

    #[test]
    fn packed_integers_are_sign_extended() {
        let t = Tensor::new(DType::I4, vec![3], Bytes::from_static(&[0x7f, 0x08])).unwrap();
        assert_eq!(widen(&t).to_vec::<i8>().unwrap(), [-1, 7, -8]);
        let t = Tensor::new(DType::U2, vec![5], Bytes::from_static(&[0b11_10_01_00, 0b01])).unwrap();
        assert_eq!(widen(&t).to_vec::<u8>().unwrap(), [0, 1, 2, 3, 1]);
        let t = Tensor::new(DType::I2, vec![4], Bytes::from_static(&[0b11_10_01_00])).unwrap();
        assert_eq!(widen(&t).to_vec::<i8>().unwrap(), [0, 1, -2, -1]);
    }
}
