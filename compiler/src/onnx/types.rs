//! TypeProto  =>  ValueType; dimensions written as `?`, ``, 0 or -1 are unknown

use super::model::{DimSpec, ValueInfo, ValueType};
use super::proto::{DimensionValue, TensorShapeProto, TypeProto, ValueInfoProto, type_proto};
use sardonyx_base::{DType, Error, Result};

/// Dimensions and element counts stay below 2^62, so that arithmetic on them does not overflow.
pub const SIZE_LIMIT: u64 = 1 << 62;

pub fn value_info(proto: &ValueInfoProto, name: String) -> Result<ValueInfo> {
    let ty = match &proto.r#type {
        Some(ty) => value_type(ty).map_err(|e| e.node(&proto.name))?,
        None => None,
    };
    Ok(ValueInfo { name, ty })
}

/// Converts a type message; returns `None` if it leaves the type or the element type open.
pub fn value_type(proto: &TypeProto) -> Result<Option<ValueType>> {
    use type_proto::Value::*;
    let Some(value) = &proto.value else { return Ok(None) };
    let nested = |element: &Option<Box<TypeProto>>| -> Result<Option<Box<ValueType>>> {
        Ok(element.as_deref().map(value_type).transpose()?.flatten().map(Box::new))
    };
    Ok(match value {
        TensorType(t) | SparseTensorType(t) if t.elem_type == 0 => None,
        TensorType(t) => Some(ValueType::Tensor { dtype: dtype(t.elem_type)?, dims: dims(&t.shape)? }),
        SparseTensorType(t) => Some(ValueType::SparseTensor { dtype: dtype(t.elem_type)?, dims: dims(&t.shape)? }),
        SequenceType(s) => nested(&s.elem_type)?.map(ValueType::Sequence),
        OptionalType(o) => nested(&o.elem_type)?.map(ValueType::Optional),
        MapType(m) => match nested(&m.value_type)? {
            Some(value) => Some(ValueType::Map { key: dtype(m.key_type)?, value }),
            None => None,
        },
        OpaqueType(o) => Some(ValueType::Opaque { domain: o.domain.clone(), name: o.name.clone() }),
    })
}

pub fn dtype(code: i32) -> Result<DType> {
    DType::from_onnx(code).ok_or_else(|| {
        let message = match code {
            0 => "the element type is missing (TensorProto.DataType 0)".to_string(),
            code => format!("unknown element type: TensorProto.DataType {code}"),
        };
        Error::user("E0107", message).help("the types 1 (f32) to 26 (i2) of ONNX are known; cast to one of them")
    })
}

fn dims(shape: &Option<TensorShapeProto>) -> Result<Option<Vec<DimSpec>>> {
    let Some(shape) = shape else { return Ok(None) };
    let dims: Vec<DimSpec> = shape.dim.iter().map(|d| dim(&d.value)).collect::<Result<_>>()?;
    let fixed = dims.iter().filter_map(|d| match d {
        DimSpec::Fixed(n) => Some(*n as u64),
        DimSpec::Named(_) | DimSpec::Unknown => None,
    });
    let product = fixed.into_iter().try_fold(1u64, |n, d| n.checked_mul(d).filter(|&n| n < SIZE_LIMIT));
    if product.is_none() {
        return Err(too_large(format!("the declared shape {dims:?} has 2^62 elements or more")));
    }
    Ok(Some(dims))
}

fn dim(value: &Option<DimensionValue>) -> Result<DimSpec> {
    match value {
        None => Ok(DimSpec::Unknown),
        Some(DimensionValue::DimValue(n)) => number(*n),
        Some(DimensionValue::DimParam(text)) => match (text.trim(), text.trim().parse::<i64>()) {
            ("" | "?", _) => Ok(DimSpec::Unknown),
            (_, Ok(n)) => number(n),
            (name, Err(_)) => Ok(DimSpec::Named(name.to_string())),
        },
    }
}

fn number(n: i64) -> Result<DimSpec> {
    match n {
        -1 | 0 => Ok(DimSpec::Unknown),
        n if n < 0 => Err(too_large(format!("a declared dimension is {n}"))),
        n if n as u64 >= SIZE_LIMIT => Err(too_large(format!("a declared dimension is {n}, 2^62 or more"))),
        n => Ok(DimSpec::Fixed(n)),
    }
}

fn too_large(message: String) -> Box<Error> {
    Error::user("E0202", message).help("declare the dimension as a name, or with its real size")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::Dimension;

    fn shape(values: Vec<DimensionValue>) -> Option<TensorShapeProto> {
        Some(TensorShapeProto { dim: values.into_iter().map(|v| Dimension { value: Some(v) }).collect() })
    }

    #[test]
    fn every_way_to_write_unknown() {
        use DimensionValue::*;
        let text = |s: &str| DimParam(s.to_string());
        let spelled = vec![DimValue(-1), DimValue(0), text(""), text("?"), text("-1"), text(" s15 + s70"), DimValue(7)];
        let mut proto = shape(spelled).unwrap();
        proto.dim.push(Dimension { value: None });
        let [a, b, c, d, e, f, g, h] = dims(&Some(proto)).unwrap().unwrap().try_into().unwrap();
        assert!([a, b, c, d, e, h].iter().all(|d| *d == DimSpec::Unknown));
        assert_eq!((f, g), (DimSpec::Named("s15 + s70".into()), DimSpec::Fixed(7)));
    }

    #[test]
    fn sizes_beyond_the_limit_are_refused() {
        use DimensionValue::DimValue;
        for values in [vec![DimValue(-2)], vec![DimValue(1 << 62)], vec![DimValue(1 << 31), DimValue(1 << 31)]] {
            assert_eq!(dims(&shape(values)).unwrap_err().code, "E0202");
        }
        assert!(dims(&shape(vec![DimValue(1 << 31), DimValue((1 << 31) - 1)])).is_ok());
    }

    #[test]
    fn nested_types_are_kept() {
        let tensor =
            TypeProto { value: Some(type_proto::Value::TensorType(type_proto::Tensor { elem_type: 7, shape: None })) };
        let map = type_proto::Map { key_type: 8, value_type: Some(Box::new(tensor)) };
        let map = TypeProto { value: Some(type_proto::Value::MapType(Box::new(map))) };
        let sequence = type_proto::Element { elem_type: Some(Box::new(map)) };
        let sequence = TypeProto { value: Some(type_proto::Value::SequenceType(Box::new(sequence))) };
        let i64_tensor = ValueType::Tensor { dtype: DType::I64, dims: None };
        let map = ValueType::Map { key: DType::String, value: Box::new(i64_tensor) };
        assert_eq!(value_type(&sequence).unwrap(), Some(ValueType::Sequence(Box::new(map))));
        assert_eq!(dtype(27).unwrap_err().code, "E0107");
    }
}
