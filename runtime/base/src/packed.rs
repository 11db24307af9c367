//! elements of 4 and 2 bits in files, low bits first  <=>  a byte per element in memory
//!
//! In memory a signed integer is sign-extended to its byte; the upper bits of other types are 0. So threads can write
//! adjacent elements independently, and equal values have equal bytes.

use crate::DType;
use bytes::Bytes;

/// Bytes of `elements` elements as ONNX stores them; `None` for strings or on overflow.
pub fn packed_bytes_for(dtype: DType, elements: usize) -> Option<usize> {
    match dtype.bits() {
        bits @ 1..8 => elements.checked_mul(bits as usize)?.checked_add(7).map(|b| b / 8),
        _ => dtype.bytes_for(elements),
    }
}

/// Converts `n` elements from ONNX's storage to a byte each. Types of whole bytes are unchanged.
pub fn unpack(dtype: DType, n: usize, data: Bytes) -> Bytes {
    let bits = match dtype.bits() {
        bits @ 1..8 => bits as usize,
        _ => return data,
    };
    let per_byte = 8 / bits;
    (0..n).map(|i| held(dtype, data[i / per_byte] >> (i % per_byte * bits))).collect::<Vec<u8>>().into()
}

/// Converts elements from a byte each to ONNX's storage. Types of whole bytes are unchanged.
pub fn pack(dtype: DType, data: &Bytes) -> Bytes {
    let bits = match dtype.bits() {
        bits @ 1..8 => bits as usize,
        _ => return data.clone(),
    };
    let join = |group: &[u8]| group.iter().enumerate().fold(0, |b, (i, v)| b | (v & mask(dtype)) << (i * bits));
    data.chunks(8 / bits).map(join).collect::<Vec<u8>>().into()
}

fn mask(dtype: DType) -> u8 {
    (1 << dtype.bits()) - 1
}

/// The byte in memory of an element of 2 or 4 bits, or of a bool, from a byte with arbitrary upper bits; bytes of other
/// types are unchanged.
pub fn held(dtype: DType, byte: u8) -> u8 {
    match dtype {
        DType::Bool => (byte != 0) as u8,
        DType::I4 => (((byte << 4) as i8) >> 4) as u8,
        DType::I2 => (((byte << 6) as i8) >> 6) as u8,
        DType::U4 | DType::F4E2M1 | DType::U2 => byte & mask(dtype),
        _ => byte,
    }
}

/// Whether each byte is a valid element in memory (see [`held`]).
pub fn is_held(dtype: DType, data: &[u8]) -> bool {
    match dtype {
        DType::Bool | DType::I4 | DType::I2 | DType::U4 | DType::F4E2M1 | DType::U2 => {
            data.iter().all(|&b| held(dtype, b) == b)
        }
        _ => true,
    }
}

/// Replaces each byte by the valid element in memory that [`held`] returns.
pub fn normalise(dtype: DType, data: Bytes) -> Bytes {
    match is_held(dtype, &data) {
        true => data,
        false => data.iter().map(|&b| held(dtype, b)).collect::<Vec<u8>>().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_elements_come_back() {
        let cases: [(DType, usize, &'static [u8], &[u8]); 5] = [
            (DType::I4, 3, &[0x7f, 0x08], &[0xff, 7, 0xf8]),
            (DType::U4, 3, &[0x7f, 0x08], &[15, 7, 8]),
            (DType::U2, 5, &[0b11_10_01_00, 0b01], &[0, 1, 2, 3, 1]),
            (DType::I2, 4, &[0b11_10_01_00], &[0, 1, 0xfe, 0xff]),
            (DType::F4E2M1, 2, &[0xf1], &[1, 15]),
        ];
        for (dtype, n, packed, memory) in cases {
            let unpacked = unpack(dtype, n, Bytes::from_static(packed));
            assert_eq!(&unpacked[..], memory, "{dtype}");
            assert_eq!(&pack(dtype, &unpacked)[..], packed, "{dtype}");
            assert_eq!(packed_bytes_for(dtype, n), Some(packed.len()));
            assert!(is_held(dtype, &unpacked));
        }
        assert_eq!(packed_bytes_for(DType::F64, usize::MAX), None);
    }
}
