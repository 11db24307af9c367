//! sequence, optional, map  <=>  a scalar tensor of type `value`, whose bytes encode it
//!
//! With this encoding, every input and output of a model is a [`Tensor`], and code that only passes tensors on needs no
//! case for other values. An encoded value is a tag byte, followed by these fields:
//!
//! ```text
//! 0 tensor    type code i32, rank u32, dimensions u64 …, length u64, bytes
//! 1 sequence  length u64, values …
//! 2 nothing   (an optional without a value)
//! 3 something a value
//! 4 map       a value of keys (a tensor), a value of values
//! ```

use crate::host::Budget;
use crate::{DType, Error, Result, Tensor};
use bytes::{Buf, Bytes};

/// A value of an ONNX type: a tensor, a sequence, an optional or a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A tensor of any element type except [`DType::Value`].
    Tensor(Tensor),
    /// Any number of values in order: ONNX `seq`.
    Sequence(Vec<Value>),
    /// A value, or none: ONNX `optional`.
    Optional(Option<Box<Value>>),
    /// Keys, a vector of strings or i64, and one value for each key: ONNX `map`.
    Map {
        /// The keys, of rank 1.
        keys: Tensor,
        /// The sequence of the values, in the order of the keys.
        values: Box<Value>,
    },
}

/// The structure of a value, as a model declares it: `tensor`, `sequence(tensor)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A tensor of any type and shape.
    Tensor,
    /// A sequence of values of this kind.
    Sequence(Box<Kind>),
    /// An optional value of this kind.
    Optional(Box<Kind>),
    /// A map with values of this kind.
    Map(Box<Kind>),
}

/// Maximum nesting depth of values; no model needs more.
const DEPTH_MAX: usize = 8;

impl Value {
    /// Decodes a tensor of type `value`, and returns any other tensor as [`Value::Tensor`]. Errors: E0302.
    pub fn from_tensor(tensor: &Tensor) -> Result<Value> {
        Value::from_tensor_within(tensor, &Budget::unlimited())
    }

    /// Like [`from_tensor`](Value::from_tensor), within the limits of a call.
    pub(crate) fn from_tensor_within(tensor: &Tensor, budget: &Budget) -> Result<Value> {
        if tensor.dtype() != DType::Value {
            return Ok(Value::Tensor(tensor.clone()));
        }
        let mut data = tensor.bytes().clone();
        let value = read(&mut data, 0, budget)?;
        if data.is_empty() { Ok(value) } else { Err(damaged("there is more behind it")) }
    }

    /// Encodes the value as a scalar of type `value`; a tensor is returned unchanged.
    pub fn into_tensor(self) -> Tensor {
        match self {
            Value::Tensor(tensor) => tensor,
            Value::Sequence(_) | Value::Optional(_) | Value::Map { .. } => {
                let mut data = vec![];
                // Without limits, writing fails only if no memory is left for the bytes.
                let _ = write(&self, &mut data, &Budget::unlimited());
                Tensor::of_value(data)
            }
        }
    }

    /// Like [`into_tensor`](Value::into_tensor), within the limits of a call.
    pub(crate) fn into_tensor_within(self, budget: &Budget) -> Result<Tensor> {
        match self {
            Value::Tensor(tensor) => Ok(tensor),
            Value::Sequence(_) | Value::Optional(_) | Value::Map { .. } => {
                let mut data = budget.room(encoded_bytes(&self, budget)?)?;
                write(&self, &mut data, budget)?;
                Ok(Tensor::of_value(data))
            }
        }
    }

    /// The elements of a sequence. Errors: E0301 for another value.
    pub fn into_sequence(self) -> Result<Vec<Value>> {
        match self {
            Value::Sequence(values) => Ok(values),
            Value::Tensor(_) | Value::Optional(_) | Value::Map { .. } => {
                Err(Error::user("E0301", format!("a sequence is wanted, not {}", self.kind_name())))
            }
        }
    }

    /// Returns the kind with an article, for messages: `a sequence`.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Value::Tensor(_) => "a tensor",
            Value::Sequence(_) => "a sequence",
            Value::Optional(_) => "an optional",
            Value::Map { .. } => "a map",
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kind::Tensor => f.write_str("tensor"),
            Kind::Sequence(of) => write!(f, "sequence({of})"),
            Kind::Optional(of) => write!(f, "optional({of})"),
            Kind::Map(of) => write!(f, "map({of})"),
        }
    }
}

impl Kind {
    /// Parses text that `Display` has written; `None` for any other text, and for nesting beyond 8 levels.
    pub fn parse(text: &str) -> Option<Kind> {
        fn nested(text: &str, depth: usize) -> Option<Kind> {
            if text == "tensor" {
                return Some(Kind::Tensor);
            }
            let (name, inside) = text.strip_suffix(')')?.split_once('(').filter(|_| depth < DEPTH_MAX)?;
            let of = Box::new(nested(inside, depth + 1)?);
            Some(match name {
                "sequence" => Kind::Sequence(of),
                "optional" => Kind::Optional(of),
                "map" => Kind::Map(of),
                _ => return None,
            })
        }
        nested(text, 0)
    }
}

fn damaged(what: &str) -> Box<Error> {
    Error::user("E0302", format!("the bytes are no value: {what}"))
}

/// Checks that bytes encode a value, without building the value. Errors: E0302.
pub(crate) fn check(data: &Bytes) -> Result<()> {
    let mut data = data.clone();
    skip(&mut data, 0)?;
    if data.is_empty() { Ok(()) } else { Err(damaged("there is more behind it")) }
}

/// Number of encoded bytes of a tensor except its dimensions and data: tag, type code, rank and length.
const TENSOR_BYTES: usize = 1 + 4 + 4 + 8;

fn encoded_bytes(value: &Value, budget: &Budget) -> Result<usize> {
    budget.work(1)?;
    let of_tensor = |t: &Tensor| TENSOR_BYTES + 8 * t.rank() + t.bytes().len();
    Ok(match value {
        Value::Tensor(tensor) => of_tensor(tensor),
        Value::Sequence(values) => {
            let mut sum = 9usize;
            for value in values {
                sum = sum.saturating_add(encoded_bytes(value, budget)?);
            }
            sum
        }
        Value::Optional(None) => 1,
        Value::Optional(Some(value)) => encoded_bytes(value, budget)?.saturating_add(1),
        Value::Map { keys, values } => encoded_bytes(values, budget)?.saturating_add(1 + of_tensor(keys)),
    })
}

fn write(value: &Value, out: &mut Vec<u8>, budget: &Budget) -> Result<()> {
    budget.work(1)?;
    let mut put = |bytes: &[u8]| budget.append(out, bytes);
    match value {
        Value::Tensor(tensor) => write_tensor(tensor, out, budget),
        Value::Sequence(values) => {
            put(&[1])?;
            put(&(values.len() as u64).to_le_bytes())?;
            values.iter().try_for_each(|v| write(v, out, budget))
        }
        Value::Optional(None) => put(&[2]),
        Value::Optional(Some(value)) => {
            put(&[3])?;
            write(value, out, budget)
        }
        Value::Map { keys, values } => {
            put(&[4])?;
            write_tensor(keys, out, budget)?;
            write(values, out, budget)
        }
    }
}

fn write_tensor(tensor: &Tensor, out: &mut Vec<u8>, budget: &Budget) -> Result<()> {
    let mut put = |bytes: &[u8]| budget.append(out, bytes);
    put(&[0])?;
    put(&tensor.dtype().code().to_le_bytes())?;
    put(&(tensor.rank() as u32).to_le_bytes())?;
    tensor.dims().iter().try_for_each(|d| put(&(*d as u64).to_le_bytes()))?;
    put(&(tensor.bytes().len() as u64).to_le_bytes())?;
    put(tensor.bytes())
}

/// Reads the tag of the next value, which is nested at `depth`. Errors: E0302 at the end of the data, and beyond
/// `DEPTH_MAX`.
fn read_tag(data: &mut Bytes, depth: usize) -> Result<u8> {
    if depth > DEPTH_MAX {
        return Err(damaged("it is nested too deeply"));
    }
    data.try_get_u8().map_err(|_| damaged("it is cut off"))
}

fn read_length(data: &mut Bytes) -> Result<u64> {
    data.try_get_u64_le().map_err(|_| damaged("it is cut off"))
}

fn no_keys() -> Box<Error> {
    damaged("its keys are no tensor")
}

/// Like [`read`], but discards the value.
fn skip(data: &mut Bytes, depth: usize) -> Result<()> {
    match read_tag(data, depth)? {
        0 => read_tensor(data).map(drop),
        // Each value takes at least one byte, so if the length is too large, there is an error at the end of the data.
        1 => (0..read_length(data)?).try_for_each(|_| skip(data, depth + 1)),
        2 => Ok(()),
        3 => skip(data, depth + 1),
        4 => {
            if read_tag(data, depth + 1)? != 0 {
                return Err(no_keys());
            }
            read_tensor(data)?;
            skip(data, depth + 1)
        }
        other => Err(damaged(&format!("there is no kind {other}"))),
    }
}

fn read(data: &mut Bytes, depth: usize, budget: &Budget) -> Result<Value> {
    budget.work(1)?;
    Ok(match read_tag(data, depth)? {
        0 => Value::Tensor(read_tensor(data)?),
        1 => {
            let mut values = vec![];
            for _ in 0..read_length(data)? {
                let value = read(data, depth + 1, budget)?;
                budget.push(&mut values, value)?;
            }
            Value::Sequence(values)
        }
        2 => Value::Optional(None),
        3 => Value::Optional(Some(Box::new(read(data, depth + 1, budget)?))),
        4 => {
            let Value::Tensor(keys) = read(data, depth + 1, budget)? else { return Err(no_keys()) };
            Value::Map { keys, values: Box::new(read(data, depth + 1, budget)?) }
        }
        other => return Err(damaged(&format!("there is no kind {other}"))),
    })
}

fn read_tensor(data: &mut Bytes) -> Result<Tensor> {
    let short = |_| damaged("it is cut off");
    let code = data.try_get_i32_le().map_err(short)?;
    let dtype = DType::from_code(code).ok_or_else(|| damaged(&format!("there is no type {code}")))?;
    let rank = data.try_get_u32_le().map_err(short)? as usize;
    let mut dims = vec![];
    for _ in 0..rank {
        let d = data.try_get_u64_le().map_err(short)?;
        dims.push(usize::try_from(d).map_err(|_| damaged("a dimension is too large"))?);
    }
    let length = usize::try_from(data.try_get_u64_le().map_err(short)?).unwrap_or(usize::MAX);
    if dtype == DType::Value || length > data.len() {
        return Err(damaged("it is cut off, or a value is called a tensor"));
    }
    Tensor::new(dtype, dims, data.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Value> {
        let floats = Value::Tensor(Tensor::from_vec(vec![2], vec![1f32, 2.0]));
        let strings = Value::Tensor(Tensor::from_strings(vec![1], &["x"]));
        let map = Value::Map {
            keys: Tensor::from_strings(vec![2], &["a", "b"]),
            values: Box::new(Value::Sequence(vec![floats.clone(), floats.clone()])),
        };
        vec![
            Value::Sequence(vec![]),
            Value::Sequence(vec![floats.clone(), strings, Value::Sequence(vec![floats.clone()])]),
            Value::Optional(None),
            Value::Optional(Some(Box::new(Value::Sequence(vec![floats])))),
            map,
        ]
    }

    #[test]
    fn values_survive_the_round_trip() {
        for value in samples() {
            let tensor = value.clone().into_tensor();
            assert_eq!((tensor.dtype(), tensor.dims()), (DType::Value, &[][..]));
            assert_eq!(Value::from_tensor(&tensor).unwrap(), value);
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        for value in samples() {
            let good = value.into_tensor().bytes().clone();
            for cut in 0..good.len() {
                assert!(Tensor::new(DType::Value, vec![], good.slice(..cut)).is_err());
            }
            for i in 0..good.len() {
                let mut bytes = good.to_vec();
                bytes[i] ^= 0xff;
                // The result is another value or an error, but no panic.
                let _ = Tensor::new(DType::Value, vec![], bytes.into());
            }
        }
        let deep = [vec![3u8; 100], vec![2]].concat();
        assert!(Tensor::new(DType::Value, vec![], deep.into()).is_err());
    }

    #[test]
    fn kinds_are_read_as_they_were_written() {
        for text in ["tensor", "sequence(tensor)", "optional(sequence(tensor))", "sequence(map(tensor))"] {
            assert_eq!(Kind::parse(text).unwrap().to_string(), text);
        }
        for wrong in ["", "sequence", "sequence(tensor", "list(tensor)", &"sequence(".repeat(20)] {
            assert_eq!(Kind::parse(wrong), None);
        }
    }
}
