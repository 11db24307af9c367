//! FP32  <=>  f32: the element types that KServe's protocol has names for

use sardonyx_base::DType;

/// (name in the protocol, type)
static ROWS: &[(&str, DType)] = &[
    ("BF16", DType::BF16),
    ("BOOL", DType::Bool),
    ("BYTES", DType::String),
    ("FP16", DType::F16),
    ("FP32", DType::F32),
    ("FP64", DType::F64),
    ("INT16", DType::I16),
    ("INT32", DType::I32),
    ("INT64", DType::I64),
    ("INT8", DType::I8),
    ("UINT16", DType::U16),
    ("UINT32", DType::U32),
    ("UINT64", DType::U64),
    ("UINT8", DType::U8),
];

pub fn dtype_from_name(name: &str) -> Option<DType> {
    ROWS.iter().find(|row| row.0 == name).map(|row| row.1)
}

/// Returns the protocol's name of an element type; `None` for types that the protocol cannot carry.
pub fn name_of_dtype(dtype: DType) -> Option<&'static str> {
    ROWS.iter().find(|row| row.1 == dtype).map(|row| row.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_lead_back() {
        assert!(ROWS.windows(2).all(|w| w[0].0 < w[1].0));
        for (name, dtype) in ROWS {
            assert_eq!((dtype_from_name(name), name_of_dtype(*dtype)), (Some(*dtype), Some(*name)));
        }
        assert_eq!(name_of_dtype(DType::C64), None);
    }
}
