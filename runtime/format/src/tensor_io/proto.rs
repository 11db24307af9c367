//! ONNX `TensorProto`  <=>  `Tensor`
//!
//! Field numbers are those of the public ONNX schema (onnx.proto, IR version 13). The payload `raw_data` is a slice
//! of the message's own buffer: decoding does not copy it.

use bytes::Bytes;
use prost::Message;
use sardonyx_base::{DType, Error, Result, Tensor, packed, tensor};

/// ONNX `TensorProto`: a named tensor, with its elements in `raw_data`, in one typed field, or in another file.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// Size of each dimension, outermost first; must not be negative.
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub dims: Vec<i64>,
    /// Element type by its number in `TensorProto.DataType`, see [`DType::from_onnx`].
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    /// Which part of a larger tensor this is; [`to_tensor`](TensorProto::to_tensor) refuses parts.
    #[prost(message, optional, tag = "3")]
    pub segment: Option<Segment>,
    /// Elements of f32, or real and imaginary parts of c64.
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    /// Elements of i32 and narrower integers, bools, or bit patterns of narrow floats; packed below 8 bits.
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    /// Elements of a tensor of strings.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub string_data: Vec<Bytes>,
    /// Elements of i64.
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    /// Name of the tensor; empty if it has none.
    #[prost(string, tag = "8")]
    pub name: String,
    /// Elements in row-major order, little-endian, packed below 8 bits; empty if another field holds them.
    #[prost(bytes = "bytes", tag = "9")]
    pub raw_data: Bytes,
    /// Elements of f64, or real and imaginary parts of c128.
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    /// Elements of u32 or u64.
    #[prost(uint64, repeated, tag = "11")]
    pub uint64_data: Vec<u64>,
    /// Documentation for readers of the model, which is ignored.
    #[prost(string, tag = "12")]
    pub doc_string: String,
    /// Where external data is: the values of `location`, `offset` and `length`.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// Location of the data: 0 in this message; 1 ([`EXTERNAL`]) in the file that `external_data` names.
    #[prost(int32, tag = "14")]
    pub data_location: i32,
}

/// Value of `data_location` for data in another file.
pub const EXTERNAL: i32 = 1;

/// ONNX `TensorProto.Segment`: the chunk of a large tensor that a message holds.
#[derive(Clone, PartialEq, Message)]
pub struct Segment {
    /// Position at which the chunk begins.
    #[prost(int64, tag = "1")]
    pub begin: i64,
    /// Position at which the chunk ends.
    #[prost(int64, tag = "2")]
    pub end: i64,
}

/// ONNX `StringStringEntryProto`: an entry of a map.
#[derive(Clone, PartialEq, Message)]
pub struct StringStringEntryProto {
    /// Key, such as `location`.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Value of the key; numbers are decimal.
    #[prost(string, tag = "2")]
    pub value: String,
}

impl TensorProto {
    /// Decodes a message; `raw_data` is a slice of `bytes`. Errors: E0302.
    pub fn from_bytes(bytes: Bytes) -> Result<TensorProto> {
        TensorProto::decode(bytes).map_err(|e| Error::user("E0302", format!("not an ONNX tensor: {e}")))
    }

    /// Encodes the message.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    /// Converts a tensor; the elements are in `raw_data`, or strings in `string_data`.
    pub fn from_tensor(name: &str, tensor: &Tensor) -> TensorProto {
        let strings = tensor.strings();
        TensorProto {
            // A dimension exceeds i64::MAX only if another dimension is 0.
            dims: tensor.dims().iter().map(|&d| i64::try_from(d).unwrap_or(i64::MAX)).collect(),
            data_type: tensor.dtype().onnx_code(),
            name: name.to_string(),
            raw_data: if strings.is_some() { Bytes::new() } else { packed::pack(tensor.dtype(), tensor.bytes()) },
            string_data: strings.unwrap_or_default().into_iter().map(Bytes::copy_from_slice).collect(),
            ..TensorProto::default()
        }
    }

    /// Returns the element type. Errors: E0107 for an unknown number.
    pub fn dtype(&self) -> Result<DType> {
        DType::from_onnx(self.data_type).ok_or_else(|| {
            self.named(Error::user("E0107", format!("{} is not a known tensor element type", self.data_type)))
        })
    }

    /// The dimensions. Errors: E0302 for negative ones.
    pub fn shape(&self) -> Result<Vec<usize>> {
        let dim = |&d: &i64| usize::try_from(d).map_err(|_| self.broken(format!("dimension {d} is negative")));
        self.dims.iter().map(dim).collect()
    }

    /// The dense tensor, from whichever field holds the data. The caller must have resolved external data before (by
    /// copying its bytes to `raw_data` and setting `data_location` to 0).
    pub fn to_tensor(&self) -> Result<Tensor> {
        let (dtype, dims) = (self.dtype()?, self.shape()?);
        if self.data_location == EXTERNAL {
            return Err(
                self.named(Error::user("E0105", "the tensor's data is in another file, which is not read here"))
            );
        }
        if self.segment.is_some() {
            return Err(self.broken("the tensor is one segment of a larger one".into()));
        }
        if dtype == DType::String {
            return self.strings(dims);
        }
        let count = tensor::element_count(&dims)
            .filter(|&n| dtype.bytes_for(n).is_some_and(|b| b <= isize::MAX as usize))
            .ok_or_else(|| self.named(Error::user("E0202", format!("the size of {dims:?} {dtype} overflows"))))?;
        let data = self.payload(dtype, count)?;
        let wanted = packed::packed_bytes_for(dtype, count).unwrap_or(0);
        if data.len() != wanted {
            let message = format!("a {dtype} tensor of {dims:?} has {wanted} bytes, but {} are given", data.len());
            return Err(self.broken(message));
        }
        let data = packed::normalise(dtype, packed::unpack(dtype, count, data));
        Tensor::new(dtype, dims, data).map_err(|e| self.named(e))
    }

    fn strings(&self, dims: Vec<usize>) -> Result<Tensor> {
        if tensor::element_count(&dims) != Some(self.string_data.len()) || !self.raw_data.is_empty() {
            let given = self.string_data.len();
            return Err(self.broken(format!("{dims:?} strings need one entry each in string_data, {given} are given")));
        }
        Ok(Tensor::from_strings(dims, &self.string_data))
    }

    fn payload(&self, dtype: DType, count: usize) -> Result<Bytes> {
        let typed = self.float_data.len()
            + self.int32_data.len()
            + self.int64_data.len()
            + self.double_data.len()
            + self.uint64_data.len();
        if !self.raw_data.is_empty() {
            return match typed {
                0 => Ok(self.raw_data.clone()),
                _ => Err(self.broken("the data is given twice, raw and typed".into())),
            };
        }
        let mut out = Vec::new();
        let (field, given, wanted) = self.typed_field(dtype, count);
        if given != wanted || typed != given {
            let message = format!("{:?} {dtype} needs {wanted} values in {field}, but {given} are given", self.dims);
            return Err(self.broken(message));
        }
        // The values are present, so this much memory is proportional to the file.
        out.reserve_exact(packed::packed_bytes_for(dtype, count).unwrap_or(0));
        self.write_typed(dtype, &mut out)?;
        Ok(out.into())
    }

    /// (field that the schema assigns to the type, number of values given, number of values needed)
    fn typed_field(&self, dtype: DType, count: usize) -> (&'static str, usize, usize) {
        use DType::*;
        match dtype {
            F32 => ("float_data", self.float_data.len(), count),
            C64 => ("float_data", self.float_data.len(), count.saturating_mul(2)),
            F64 => ("double_data", self.double_data.len(), count),
            C128 => ("double_data", self.double_data.len(), count.saturating_mul(2)),
            I64 => ("int64_data", self.int64_data.len(), count),
            U32 | U64 => ("uint64_data", self.uint64_data.len(), count),
            // Each value is one byte, with two or four elements.
            U4 | I4 | F4E2M1 => ("int32_data", self.int32_data.len(), count.div_ceil(2)),
            U2 | I2 => ("int32_data", self.int32_data.len(), count.div_ceil(4)),
            U8 | I8 | U16 | I16 | I32 | Bool | F16 | BF16 | F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ | F8E8M0 => {
                ("int32_data", self.int32_data.len(), count)
            }
            String | Value => ("string_data", self.string_data.len(), count),
        }
    }

    fn write_typed(&self, dtype: DType, out: &mut Vec<u8>) -> Result<()> {
        use DType::*;
        match dtype {
            F32 | C64 => self.float_data.iter().for_each(|v| out.extend(v.to_le_bytes())),
            F64 | C128 => self.double_data.iter().for_each(|v| out.extend(v.to_le_bytes())),
            I64 => self.int64_data.iter().for_each(|v| out.extend(v.to_le_bytes())),
            U64 => self.uint64_data.iter().for_each(|v| out.extend(v.to_le_bytes())),
            U32 => {
                for &v in &self.uint64_data {
                    let v = u32::try_from(v).map_err(|_| self.broken(format!("{v} does not fit u32")))?;
                    out.extend(v.to_le_bytes());
                }
            }
            I32 => self.int32_data.iter().for_each(|v| out.extend(v.to_le_bytes())),
            I8 => self.write_narrow(i8::MIN as i32..=i8::MAX as i32, 1, out)?,
            I16 => self.write_narrow(i16::MIN as i32..=i16::MAX as i32, 2, out)?,
            Bool => self.write_narrow(0..=1, 1, out)?,
            // 16-bit floats are stored as their bit pattern, as are the narrower ones.
            U16 | F16 | BF16 => self.write_narrow(0..=u16::MAX as i32, 2, out)?,
            U8 | F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ | F8E8M0 | U4 | I4 | F4E2M1 | U2 | I2 => {
                self.write_narrow(0..=u8::MAX as i32, 1, out)?
            }
            String | Value => return Err(self.broken(format!("{dtype} has no typed data"))),
        }
        Ok(())
    }

    fn write_narrow(&self, range: std::ops::RangeInclusive<i32>, width: usize, out: &mut Vec<u8>) -> Result<()> {
        for v in &self.int32_data {
            if !range.contains(v) {
                return Err(self.broken(format!("the value {v} in int32_data is outside {range:?}")));
            }
            out.extend(&v.to_le_bytes()[..width]);
        }
        Ok(())
    }

    fn broken(&self, message: String) -> Box<Error> {
        self.named(Error::user("E0302", message))
    }

    fn named(&self, error: Box<Error>) -> Box<Error> {
        if self.name.is_empty() { error } else { error.node(format!("tensor `{}`", self.name)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proto(dtype: DType, dims: &[i64]) -> TensorProto {
        TensorProto { dims: dims.to_vec(), data_type: dtype.onnx_code(), name: "t".into(), ..TensorProto::default() }
    }

    #[test]
    fn raw_data_is_not_copied_and_survives_the_round_trip() {
        let t = Tensor::from_vec(vec![2, 2], vec![1.5f32, -2.0, 0.0, f32::NAN]);
        let bytes = Bytes::from(TensorProto::from_tensor("x", &t).to_bytes());
        let range = bytes.as_ptr_range();
        let back = TensorProto::from_bytes(bytes.clone()).unwrap();
        assert_eq!((back.name.as_str(), &back.dims[..]), ("x", &[2, 2][..]));
        let tensor = back.to_tensor().unwrap();
        assert_eq!(tensor.bytes(), t.bytes());
        assert!(range.contains(&tensor.bytes().as_ptr()));
    }

    #[test]
    fn every_typed_field_is_read() {
        let read = |p: TensorProto| p.to_tensor().unwrap().bytes().to_vec();
        let int32 = |t, n: i64, v: &[i32]| read(TensorProto { int32_data: v.to_vec(), ..proto(t, &[n]) });
        assert_eq!(read(TensorProto { float_data: vec![1.0], ..proto(DType::F32, &[1]) }), 1f32.to_le_bytes());
        assert_eq!(read(TensorProto { double_data: vec![2.0], ..proto(DType::F64, &[]) }), 2f64.to_le_bytes());
        assert_eq!(read(TensorProto { int64_data: vec![-3], ..proto(DType::I64, &[1]) }), (-3i64).to_le_bytes());
        assert_eq!(read(TensorProto { uint64_data: vec![7], ..proto(DType::U32, &[1]) }), 7u32.to_le_bytes());
        assert_eq!(read(TensorProto { uint64_data: vec![7], ..proto(DType::U64, &[1]) }), 7u64.to_le_bytes());
        assert_eq!(read(TensorProto { float_data: vec![1.0, 2.0], ..proto(DType::C64, &[1]) }).len(), 8);
        assert_eq!(int32(DType::I8, 2, &[-1, 5]), [255, 5]);
        assert_eq!(int32(DType::U16, 1, &[0x1234]), [0x34, 0x12]);
        assert_eq!(int32(DType::F16, 1, &[0x3c00]), half::f16::ONE.to_le_bytes());
        assert_eq!(int32(DType::BF16, 1, &[0x3f80]), half::bf16::ONE.to_le_bytes());
        assert_eq!(int32(DType::F8E5M2, 2, &[0x3c, 0xff]), [0x3c, 0xff]);
        assert_eq!(int32(DType::Bool, 2, &[1, 0]), [1, 0]);
        assert_eq!(int32(DType::I4, 3, &[0xf1, 0x03]), [1, 0xff, 3]);
        assert_eq!(int32(DType::U2, 5, &[0xe4, 1]), [0, 1, 2, 3, 1]);
        let t = Tensor::new(DType::I4, vec![3], Bytes::from_static(&[1, 0xff, 3])).unwrap();
        assert_eq!(&TensorProto::from_tensor("t", &t).raw_data[..], [0xf1, 0x03]);
    }

    #[test]
    fn lies_about_size_or_type_are_refused() {
        let code = |p: TensorProto| p.to_tensor().unwrap_err().code;
        let raw = |dtype, dims: &[i64], n: usize| TensorProto { raw_data: vec![0; n].into(), ..proto(dtype, dims) };
        assert_eq!(code(raw(DType::F32, &[3], 8)), "E0302");
        assert_eq!(code(raw(DType::F32, &[-1], 4)), "E0302");
        assert_eq!(code(raw(DType::F32, &[1 << 40, 1 << 40], 4)), "E0202");
        assert_eq!(code(proto(DType::F32, &[1 << 40])), "E0302");
        assert_eq!(code(TensorProto { data_type: 99, ..proto(DType::F32, &[]) }), "E0107");
        assert_eq!(code(proto(DType::String, &[1])), "E0302");
        assert_eq!(code(TensorProto { data_location: EXTERNAL, ..proto(DType::F32, &[1]) }), "E0105");
        assert_eq!(code(TensorProto { int32_data: vec![256], ..proto(DType::U8, &[1]) }), "E0302");
        assert_eq!(code(TensorProto { float_data: vec![1.0], ..raw(DType::F32, &[1], 4) }), "E0302");
        assert_eq!(code(TensorProto { int64_data: vec![1], ..proto(DType::F32, &[1]) }), "E0302");
        let e = raw(DType::F32, &[3], 8).to_tensor().unwrap_err();
        assert_eq!(e.message, "a f32 tensor of [3] has 12 bytes, but 8 are given");
        assert_eq!(e.node.as_deref(), Some("tensor `t`"));
    }

    #[test]
    fn an_empty_tensor_needs_no_data() {
        assert_eq!(proto(DType::F32, &[0, 1 << 62]).to_tensor().unwrap().len(), 0);
    }

    #[test]
    fn truncated_messages_are_errors() {
        let t = Tensor::from_vec(vec![8], (0..8i64).collect());
        let bytes = TensorProto::from_tensor("x", &t).to_bytes();
        for n in 1..bytes.len() {
            // A cut between fields still decodes, but then data is missing.
            let cut = TensorProto::from_bytes(Bytes::copy_from_slice(&bytes[..n]));
            assert!(cut.and_then(|p| p.to_tensor()).is_err(), "cut at {n}");
        }
    }
}
