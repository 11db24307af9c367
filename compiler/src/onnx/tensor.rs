//! TensorProto  =>  type, dimensions and little-endian bytes; raw data is shared with the mapped file

use super::external::External;
use super::proto::TensorProto;
use super::types::{SIZE_LIMIT, dtype};
use bytes::Bytes;
use sardonyx_base::{DType, Error, Result, Tensor, packed, tensor::element_count};

const EXTERNAL: i32 = 1;

/// Reads one tensor. Errors: E0107 unknown type, E0202 impossible dimensions, E0302 payload of a wrong length, E0105
/// external data.
pub fn tensor_data(proto: &TensorProto, external: &mut External) -> Result<Tensor> {
    // A tensor without a name belongs to a node, whose name the caller adds.
    convert(proto, external).map_err(|e| if proto.name.is_empty() { e } else { e.node(&proto.name) })
}

/// Dimensions and element count. Refuses negative dimensions, and dimensions of 2^62 or more, even if another dimension
/// is 0. Refuses counts of 2^62 or more.
pub fn checked_dims(dims: &[i64]) -> Result<(Vec<usize>, usize)> {
    let refuse = |why: &str| {
        Error::user("E0202", format!("a tensor has dimensions {}: {why}", shown(dims)))
            .help("the file is damaged, or its writer had an overflow; export it again")
    };
    if dims.iter().any(|&d| d < 0) {
        return Err(refuse("one is negative"));
    }
    if dims.iter().any(|&d| d as u64 >= SIZE_LIMIT) {
        return Err(refuse("one is 2^62 or more"));
    }
    let dims: Vec<usize> = dims.iter().map(|&d| d as usize).collect();
    let count = element_count(&dims).filter(|&n| (n as u64) < SIZE_LIMIT);
    count.map(|n| (dims, n)).ok_or_else(|| refuse("their product overflows"))
}

/// Dimensions for a message, which shows only the first few: a hostile file may list a million.
fn shown(dims: &[i64]) -> String {
    match dims.len() {
        ..=8 => format!("{dims:?}"),
        n => format!("{:?} and {} more", &dims[..8], n - 8),
    }
}

fn convert(proto: &TensorProto, external: &mut External) -> Result<Tensor> {
    let dtype = dtype(proto.data_type)?;
    let (dims, count) = checked_dims(&proto.dims)?;
    if proto.segment.is_some() {
        return Err(malformed("the tensor is a segment of a larger one".into()));
    }
    if dtype == DType::String {
        return strings(proto, dims, count);
    }
    let bytes_needed = packed::packed_bytes_for(dtype, count).ok_or_else(|| {
        Error::user("E0202", format!("a {dtype} tensor of {} elements has no representable size", count))
            .help("the file is damaged, or its writer had an overflow; export it again")
    })?;
    let data = if proto.data_location == EXTERNAL {
        external.read(proto, bytes_needed)?
    } else if !proto.raw_data.is_empty() {
        if typed_len(proto) != 0 {
            return Err(malformed("the tensor has both raw and typed data".into()));
        }
        proto.raw_data.clone()
    } else {
        typed(proto, dtype)?
    };
    if data.len() != bytes_needed {
        let message =
            format!("a {dtype} tensor of dimensions {dims:?} needs {bytes_needed} bytes, but has {}", data.len());
        return Err(malformed(message));
    }
    let data = packed::normalise(dtype, packed::unpack(dtype, count, data));
    Tensor::new(dtype, dims, data)
}

fn strings(proto: &TensorProto, dims: Vec<usize>, count: usize) -> Result<Tensor> {
    if !proto.raw_data.is_empty() || proto.data_location == EXTERNAL {
        return Err(malformed("a string tensor cannot have raw or external data".into()));
    }
    if proto.string_data.len() != count {
        let found = proto.string_data.len();
        return Err(malformed(format!("a string tensor of dimensions {dims:?} has {found} strings")));
    }
    Ok(Tensor::from_strings(dims, &proto.string_data))
}

fn malformed(message: String) -> Box<Error> {
    Error::user("E0302", message).help("the file is damaged or was written by a faulty tool; export it again")
}

fn typed_len(proto: &TensorProto) -> usize {
    proto.float_data.len()
        + proto.int32_data.len()
        + proto.int64_data.len()
        + proto.double_data.len()
        + proto.uint64_data.len()
        + proto.string_data.len()
}

/// The payload from the typed field that the element type prescribes; all other typed fields have to be empty.
fn typed(proto: &TensorProto, dtype: DType) -> Result<Bytes> {
    use DType::*;
    let (used, bytes) = match dtype {
        F32 | C64 => (proto.float_data.len(), le_bytes(&proto.float_data, |v| v.to_le_bytes())),
        F64 | C128 => (proto.double_data.len(), le_bytes(&proto.double_data, |v| v.to_le_bytes())),
        I64 => (proto.int64_data.len(), le_bytes(&proto.int64_data, |v| v.to_le_bytes())),
        U64 => (proto.uint64_data.len(), le_bytes(&proto.uint64_data, |v| v.to_le_bytes())),
        U32 => (proto.uint64_data.len(), narrow_u32(&proto.uint64_data)?),
        I32 => (proto.int32_data.len(), le_bytes(&proto.int32_data, |v| v.to_le_bytes())),
        U16 | I16 | F16 | BF16 => (proto.int32_data.len(), narrow::<2>(&proto.int32_data)?),
        // One entry is one byte. For packed types the byte holds two or four elements, the first in the low bits.
        U8 | I8 | Bool | F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ | F8E8M0 | U4 | I4 | F4E2M1 | U2 | I2 => {
            (proto.int32_data.len(), narrow::<1>(&proto.int32_data)?)
        }
        String | Value => return Err(Error::defect(format!("{dtype} has no byte payload"))),
    };
    if used != typed_len(proto) {
        return Err(malformed(format!("a {dtype} tensor has data in a field for another type")));
    }
    Ok(bytes)
}

fn le_bytes<T: Copy, const N: usize>(values: &[T], to_le: impl Fn(T) -> [u8; N]) -> Bytes {
    let mut out = Vec::with_capacity(values.len() * N);
    values.iter().for_each(|&v| out.extend_from_slice(&to_le(v)));
    out.into()
}

/// The low N bytes of each entry. Writers sign-extend negative numbers and zero-extend bit patterns; both are valid.
fn narrow<const N: usize>(values: &[i32]) -> Result<Bytes> {
    let bits = 8 * N as u32;
    let range = -(1i32 << (bits - 1))..(1i32 << bits);
    if let Some(v) = values.iter().find(|v| !range.contains(v)) {
        return Err(malformed(format!("the value {v} in int32_data does not fit {bits} bits")));
    }
    let mut out = Vec::with_capacity(values.len() * N);
    values.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()[..N]));
    Ok(out.into())
}

fn narrow_u32(values: &[u64]) -> Result<Bytes> {
    match values.iter().find(|&&v| v > u32::MAX as u64) {
        Some(v) => Err(malformed(format!("the value {v} in uint64_data does not fit 32 bits"))),
        None => Ok(le_bytes(values, |v| (v as u32).to_le_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(proto: TensorProto) -> Result<Tensor> {
        tensor_data(&proto, &mut External::absent())
    }

    fn dense(proto: TensorProto) -> Tensor {
        read(proto).unwrap().clone()
    }

    #[test]
    fn every_type_reads_its_typed_field() {
        for dtype in DType::all().filter(|&d| d != DType::String) {
            let mut proto = TensorProto { data_type: dtype.onnx_code(), dims: vec![5], ..Default::default() };
            use DType::*;
            let expected: Vec<u8> = match dtype {
                F32 => {
                    proto.float_data = vec![1.0, -2.0, 0.5, f32::INFINITY, 3.0];
                    proto.float_data.iter().flat_map(|v| v.to_le_bytes()).collect()
                }
                C64 => {
                    proto.float_data = (0..10).map(|v| v as f32).collect();
                    proto.float_data.iter().flat_map(|v| v.to_le_bytes()).collect()
                }
                F64 => {
                    proto.double_data = vec![1.0, -2.0, 0.5, f64::NEG_INFINITY, 3.0];
                    proto.double_data.iter().flat_map(|v| v.to_le_bytes()).collect()
                }
                C128 => {
                    proto.double_data = (0..10).map(|v| v as f64).collect();
                    proto.double_data.iter().flat_map(|v| v.to_le_bytes()).collect()
                }
                I64 => {
                    proto.int64_data = vec![i64::MIN, -1, 0, 1, i64::MAX];
                    proto.int64_data.iter().flat_map(|v| v.to_le_bytes()).collect()
                }
                U64 => {
                    proto.uint64_data = vec![u64::MAX, 1, 2, 3, 4];
                    proto.uint64_data.iter().flat_map(|v| v.to_le_bytes()).collect()
                }
                U32 => {
                    proto.uint64_data = vec![u32::MAX as u64, 1, 2, 3, 4];
                    proto.uint64_data.iter().flat_map(|v| (*v as u32).to_le_bytes()).collect()
                }
                I32 => {
                    proto.int32_data = vec![i32::MIN, -1, 0, 1, i32::MAX];
                    proto.int32_data.iter().flat_map(|v| v.to_le_bytes()).collect()
                }
                I16 | U16 | F16 | BF16 => {
                    proto.int32_data = vec![-1, 65535, 0x3c00, 1, -32768];
                    vec![0xff, 0xff, 0xff, 0xff, 0, 0x3c, 1, 0, 0, 0x80]
                }
                Bool => {
                    proto.int32_data = vec![1, 0, 2, 0, 1];
                    vec![1, 0, 1, 0, 1]
                }
                U8 | I8 | F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ | F8E8M0 => {
                    proto.int32_data = vec![-1, 255, 0, 1, -128];
                    vec![255, 255, 0, 1, 128]
                }
                U4 | I4 | F4E2M1 => {
                    proto.int32_data = vec![0x21, 0xf3, 0x05];
                    vec![1, 2, 3, if dtype == I4 { 0xff } else { 15 }, 5]
                }
                U2 | I2 => {
                    proto.int32_data = vec![0b11100100, 0b01];
                    if dtype == I2 { vec![0, 1, 0xfe, 0xff, 1] } else { vec![0, 1, 2, 3, 1] }
                }
                String | Value => unreachable!("filtered out"),
            };
            let tensor = dense(proto);
            assert_eq!((tensor.dtype(), &tensor.bytes()[..]), (dtype, &expected[..]));
        }
    }

    #[test]
    fn raw_bytes_are_shared_not_copied() {
        let raw = Bytes::from(vec![0u8; 12]);
        let tensor = dense(TensorProto { data_type: 1, dims: vec![3], raw_data: raw.clone(), ..Default::default() });
        assert_eq!(tensor.bytes().as_ptr(), raw.as_ptr());
    }

    #[test]
    fn a_payload_that_contradicts_the_dimensions_is_refused() {
        let of = |dims: &[i64], data_type| TensorProto { dims: dims.to_vec(), data_type, ..Default::default() };
        let cases = [
            (TensorProto { raw_data: vec![0; 11].into(), ..of(&[3], 1) }, "E0302"),
            (TensorProto { raw_data: vec![0; 12].into(), float_data: vec![0.0; 3], ..of(&[3], 1) }, "E0302"),
            (TensorProto { float_data: vec![0.0; 2], ..of(&[3], 1) }, "E0302"),
            (TensorProto { float_data: vec![0.0; 3], ..of(&[3], 7) }, "E0302"),
            (TensorProto { int32_data: vec![256], ..of(&[1], 2) }, "E0302"),
            (TensorProto { uint64_data: vec![1 << 32], ..of(&[1], 12) }, "E0302"),
            (TensorProto { string_data: vec![Bytes::new()], ..of(&[2], 8) }, "E0302"),
            (TensorProto { segment: Some(Default::default()), ..of(&[0], 1) }, "E0302"),
            (of(&[-1], 1), "E0202"),
            (of(&[0, 1 << 62], 1), "E0202"),
            (of(&[1 << 40, 1 << 40], 1), "E0202"),
            (of(&[1 << 61], 15), "E0202"),
            (of(&[1], 0), "E0107"),
            (of(&[1], 27), "E0107"),
        ];
        for (proto, code) in cases {
            let e = read(proto.clone()).unwrap_err();
            assert_eq!(e.code, code, "{proto:?}: {e}");
            assert!(e.help.is_some());
        }
    }

    #[test]
    fn empty_and_scalar_tensors() {
        assert!(dense(TensorProto { data_type: 1, dims: vec![0, 4], ..Default::default() }).is_empty());
        let scalar = dense(TensorProto { data_type: 7, int64_data: vec![5], ..Default::default() });
        assert_eq!((scalar.rank(), scalar.get_i64(0)), (0, Some(5)));
    }
}
