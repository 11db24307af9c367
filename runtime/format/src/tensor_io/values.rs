//! ONNX `SequenceProto`, `OptionalProto`, `MapProto`  =>  `Value`
//!
//! The messages do not identify their own kind; the model's type determines it. Field numbers are those of the public
//! schema (onnx-data.proto).

use super::proto::TensorProto;
use bytes::Bytes;
use prost::Message;
use sardonyx_base::value::{Kind, Value};
use sardonyx_base::{Error, Result, Tensor};

/// `SequenceProto` or `OptionalProto`, which have the same fields; an optional has at most one value.
#[derive(Clone, PartialEq, Message)]
struct ElementsProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "2")]
    elem_type: i32,
    #[prost(message, repeated, tag = "3")]
    tensors: Vec<TensorProto>,
    #[prost(message, repeated, tag = "5")]
    sequences: Vec<ElementsProto>,
    /// The optionals of a sequence, or the inner optional of an optional.
    #[prost(message, repeated, tag = "7")]
    optionals: Vec<ElementsProto>,
    /// Encoded maps, which are decoded only where a map is expected.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    maps: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct MapProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "2")]
    key_type: i32,
    #[prost(int64, repeated, tag = "3")]
    keys: Vec<i64>,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    string_keys: Vec<Bytes>,
    #[prost(message, optional, tag = "5")]
    values: Option<ElementsProto>,
}

/// Reads the bytes of a `.pb` file as a value of the given kind. Returns the name in the file, and the value as a
/// tensor. Errors: E0302, and those of `TensorProto::to_tensor`.
pub fn read_value(bytes: Bytes, kind: &Kind) -> Result<(String, Tensor)> {
    let wrong = |e| Error::user("E0302", format!("not an ONNX {kind}: {e}"));
    match kind {
        Kind::Tensor => {
            let proto = TensorProto::from_bytes(bytes)?;
            let tensor = proto.to_tensor()?;
            Ok((proto.name, tensor))
        }
        Kind::Sequence(_) | Kind::Optional(_) => {
            let proto = ElementsProto::decode(bytes).map_err(wrong)?;
            let value = elements(&proto, kind)?;
            Ok((proto.name, value.into_tensor()))
        }
        Kind::Map(of) => {
            let proto = MapProto::decode(bytes).map_err(wrong)?;
            let value = map(&proto, of)?;
            Ok((proto.name, value.into_tensor()))
        }
    }
}

fn elements(proto: &ElementsProto, kind: &Kind) -> Result<Value> {
    Ok(match kind {
        Kind::Sequence(of) => Value::Sequence(inner(proto, of)?),
        Kind::Optional(of) => {
            let mut values = inner(proto, of)?;
            match values.len() {
                0 | 1 => Value::Optional(values.pop().map(Box::new)),
                n => return Err(Error::user("E0302", format!("an optional with {n} values"))),
            }
        }
        Kind::Tensor | Kind::Map(_) => return Err(Error::defect("elements of neither a sequence nor an optional")),
    })
}

fn inner(proto: &ElementsProto, of: &Kind) -> Result<Vec<Value>> {
    match of {
        Kind::Tensor => proto.tensors.iter().map(|t| t.to_tensor().map(Value::Tensor)).collect(),
        Kind::Sequence(_) => proto.sequences.iter().map(|s| elements(s, of)).collect(),
        Kind::Optional(_) => proto.optionals.iter().map(|o| elements(o, of)).collect(),
        Kind::Map(of) => {
            let decode = |bytes: &Bytes| {
                MapProto::decode(bytes.clone()).map_err(|e| Error::user("E0302", format!("not an ONNX map: {e}")))
            };
            proto.maps.iter().map(|bytes| map(&decode(bytes)?, of)).collect()
        }
    }
}

fn map(proto: &MapProto, of: &Kind) -> Result<Value> {
    let keys = match proto.string_keys.is_empty() {
        true => Tensor::from_vec(vec![proto.keys.len()], proto.keys.clone()),
        false => Tensor::from_strings(vec![proto.string_keys.len()], &proto.string_keys),
    };
    let values = proto.values.as_ref().map_or(Ok(vec![]), |values| inner(values, of))?;
    if values.len() != keys.len() {
        return Err(Error::user("E0302", format!("a map of {} keys and {} values", keys.len(), values.len())));
    }
    Ok(Value::Map { keys, values: Box::new(Value::Sequence(values)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(v: f32) -> (TensorProto, Value) {
        let t = Tensor::from_vec(vec![1], vec![v]);
        (TensorProto::from_tensor("", &t), Value::Tensor(t))
    }

    fn read(proto: &impl Message, kind: &str) -> Value {
        let bytes = proto.encode_to_vec().into();
        Value::from_tensor(&read_value(bytes, &Kind::parse(kind).unwrap()).unwrap().1).unwrap()
    }

    #[test]
    fn the_model_says_what_the_bytes_are() {
        let (proto, value) = tensor(1.5);
        let one = ElementsProto { tensors: vec![proto.clone()], ..ElementsProto::default() };
        assert_eq!(read(&one, "sequence(tensor)"), Value::Sequence(vec![value.clone()]));
        assert_eq!(read(&one, "optional(tensor)"), Value::Optional(Some(Box::new(value.clone()))));
        assert_eq!(read(&ElementsProto::default(), "optional(tensor)"), Value::Optional(None));
        let nested = ElementsProto { sequences: vec![one.clone()], ..ElementsProto::default() };
        let inside = Value::Sequence(vec![value.clone()]);
        assert_eq!(read(&nested, "optional(sequence(tensor))"), Value::Optional(Some(Box::new(inside))));
        let map = MapProto { keys: vec![7], values: Some(one.clone()), ..MapProto::default() };
        let values = Box::new(Value::Sequence(vec![value]));
        assert_eq!(read(&map, "map(tensor)"), Value::Map { keys: Tensor::from_vec(vec![1], vec![7i64]), values });
        let two = ElementsProto { tensors: vec![proto.clone(), proto], ..ElementsProto::default() };
        assert!(read_value(two.encode_to_vec().into(), &Kind::parse("optional(tensor)").unwrap()).is_err());
    }
}
