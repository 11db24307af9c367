//! The element types of ONNX: code, name, width

/// An element type. An element of less than a byte occupies a whole byte in memory (see [`packed`](crate::packed)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// 32-bit IEEE 754 float: ONNX `FLOAT`.
    F32,
    /// 8-bit unsigned integer: ONNX `UINT8`.
    U8,
    /// 8-bit signed integer: ONNX `INT8`.
    I8,
    /// 16-bit unsigned integer: ONNX `UINT16`.
    U16,
    /// 16-bit signed integer: ONNX `INT16`.
    I16,
    /// 32-bit signed integer: ONNX `INT32`.
    I32,
    /// 64-bit signed integer: ONNX `INT64`.
    I64,
    /// A string of bytes, not necessarily UTF-8: ONNX `STRING`.
    String,
    /// A byte that is 0 or 1: ONNX `BOOL`.
    Bool,
    /// 16-bit IEEE 754 float: ONNX `FLOAT16`.
    F16,
    /// 64-bit IEEE 754 float: ONNX `DOUBLE`.
    F64,
    /// 32-bit unsigned integer: ONNX `UINT32`.
    U32,
    /// 64-bit unsigned integer: ONNX `UINT64`.
    U64,
    /// Complex number of two f32: ONNX `COMPLEX64`.
    C64,
    /// Complex number of two f64: ONNX `COMPLEX128`.
    C128,
    /// 16-bit float with the exponent of f32: ONNX `BFLOAT16`.
    BF16,
    /// Float of 4 exponent and 3 mantissa bits, with NaN and without infinity: ONNX `FLOAT8E4M3FN`.
    F8E4M3FN,
    /// Float of 4 exponent and 3 mantissa bits, with NaN as the code of -0: ONNX `FLOAT8E4M3FNUZ`.
    F8E4M3FNUZ,
    /// Float of 5 exponent and 2 mantissa bits, with infinity and NaN: ONNX `FLOAT8E5M2`.
    F8E5M2,
    /// Float of 5 exponent and 2 mantissa bits, with NaN as the code of -0: ONNX `FLOAT8E5M2FNUZ`.
    F8E5M2FNUZ,
    /// 4-bit unsigned integer: ONNX `UINT4`.
    U4,
    /// 4-bit signed integer: ONNX `INT4`.
    I4,
    /// Float of 2 exponent bits and 1 mantissa bit, all codes finite: ONNX `FLOAT4E2M1`.
    F4E2M1,
    /// Power of two from 2^-127 to 2^127, or NaN, for scales: ONNX `FLOAT8E8M0`.
    F8E8M0,
    /// 2-bit unsigned integer: ONNX `UINT2`.
    U2,
    /// 2-bit signed integer: ONNX `INT2`.
    I2,
    /// A sequence, an optional or a map ([`Value`](crate::Value)) instead of a tensor; not one of ONNX's element types.
    Value,
}

/// Rows: type; code, which is that of ONNX's `TensorProto.DataType` if there is one; name in the IR and in messages;
/// bits per element, 0 without a fixed width.
static ROWS: &[(DType, i32, &str, u32)] = &[
    (DType::F32, 1, "f32", 32),
    (DType::U8, 2, "u8", 8),
    (DType::I8, 3, "i8", 8),
    (DType::U16, 4, "u16", 16),
    (DType::I16, 5, "i16", 16),
    (DType::I32, 6, "i32", 32),
    (DType::I64, 7, "i64", 64),
    (DType::String, 8, "string", 0),
    (DType::Bool, 9, "bool", 8),
    (DType::F16, 10, "f16", 16),
    (DType::F64, 11, "f64", 64),
    (DType::U32, 12, "u32", 32),
    (DType::U64, 13, "u64", 64),
    (DType::C64, 14, "c64", 64),
    (DType::C128, 15, "c128", 128),
    (DType::BF16, 16, "bf16", 16),
    (DType::F8E4M3FN, 17, "f8e4m3fn", 8),
    (DType::F8E4M3FNUZ, 18, "f8e4m3fnuz", 8),
    (DType::F8E5M2, 19, "f8e5m2", 8),
    (DType::F8E5M2FNUZ, 20, "f8e5m2fnuz", 8),
    (DType::U4, 21, "u4", 4),
    (DType::I4, 22, "i4", 4),
    (DType::F4E2M1, 23, "f4e2m1", 4),
    (DType::F8E8M0, 24, "f8e8m0", 8),
    (DType::U2, 25, "u2", 2),
    (DType::I2, 26, "i2", 2),
    (DType::Value, -1, "value", 0),
];

impl DType {
    fn row(self) -> &'static (DType, i32, &'static str, u32) {
        &ROWS[self as usize]
    }

    /// The type's number in ONNX's `TensorProto.DataType`; -1 for [`DType::Value`], which has none.
    pub fn onnx_code(self) -> i32 {
        self.row().1
    }

    /// Returns the type with this number in ONNX's `TensorProto.DataType`; `None` for an unknown number.
    pub fn from_onnx(code: i32) -> Option<DType> {
        DType::from_code(code).filter(|t| *t != DType::Value)
    }

    /// The type's number in artifacts: ONNX's, or -1 for [`DType::Value`].
    pub fn code(self) -> i32 {
        self.row().1
    }

    /// Returns the type with this number in artifacts; the inverse of [`code`](DType::code).
    pub fn from_code(code: i32) -> Option<DType> {
        ROWS.iter().find(|row| row.1 == code).map(|row| row.0)
    }

    /// Returns the name in the IR and in messages, such as `f32`.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Returns the type with this name, [`DType::Value`] included; `None` for an unknown name.
    pub fn from_name(name: &str) -> Option<DType> {
        ROWS.iter().find(|row| row.2 == name).map(|row| row.0)
    }

    /// Returns the element types of ONNX: all except [`DType::Value`].
    pub fn all() -> impl Iterator<Item = DType> {
        ROWS.iter().map(|row| row.0).filter(|t| *t != DType::Value)
    }

    /// Bits per element; 0 for strings and values, which have no fixed width.
    pub fn bits(self) -> u32 {
        self.row().3
    }

    /// Whether the elements are strings or values: no kernel accesses them, and their size in bytes is known only at
    /// run time.
    pub fn is_opaque(self) -> bool {
        self.bits() == 0
    }

    /// Bytes per element in memory; 0 without a fixed width.
    pub fn bytes(self) -> usize {
        self.bits().div_ceil(8) as usize
    }

    /// Bytes that `elements` elements occupy in memory; `None` without a fixed width or on overflow.
    pub fn bytes_for(self, elements: usize) -> Option<usize> {
        if self.bits() == 0 { None } else { elements.checked_mul(self.bytes()) }
    }

    /// Whether the elements are floating-point numbers of any width; false for complex numbers.
    pub fn is_float(self) -> bool {
        use DType::*;
        matches!(self, F32 | F16 | F64 | BF16 | F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ | F4E2M1 | F8E8M0)
    }

    /// Whether the elements are integers of any width; false for `bool`.
    pub fn is_int(self) -> bool {
        self.is_signed_int() || self.is_unsigned_int()
    }

    /// Whether the elements are signed integers.
    pub fn is_signed_int(self) -> bool {
        matches!(self, DType::I2 | DType::I4 | DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }

    /// Whether the elements are unsigned integers; false for `bool`.
    pub fn is_unsigned_int(self) -> bool {
        matches!(self, DType::U2 | DType::U4 | DType::U8 | DType::U16 | DType::U32 | DType::U64)
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_at_their_own_index() {
        for (i, row) in ROWS.iter().enumerate() {
            assert_eq!(row.0 as usize, i);
            assert_eq!(DType::from_code(row.1), Some(row.0));
            assert_eq!(DType::from_name(row.2), Some(row.0));
        }
    }

    #[test]
    fn narrow_types_take_a_byte() {
        assert_eq!(DType::I4.bytes_for(3), Some(3));
        assert_eq!(DType::F64.bytes_for(usize::MAX), None);
    }
}
