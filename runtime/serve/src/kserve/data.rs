//! [[1, 2], [3, 4]] or bytes  <=>  the elements of a tensor, never more than its shape has

use half::{bf16, f16};
use sardonyx_base::{DType, Tensor};
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, SeqAccess, Visitor};
use std::fmt;

/// Maximum nesting depth of lists; no model has tensors of higher rank.
const NESTING_MAX: usize = 32;

/// Converts a JSON value to an element; `None` if the element type cannot represent it.
trait FromJson: Sized {
    fn from_unsigned(_: u64) -> Option<Self> {
        None
    }

    fn from_signed(_: i64) -> Option<Self> {
        None
    }

    fn from_float(_: f64) -> Option<Self> {
        None
    }

    fn from_bool(_: bool) -> Option<Self> {
        None
    }

    fn from_text(_: &str) -> Option<Self> {
        None
    }
}

macro_rules! integers {
    ($($ty:ty),*) => { $(impl FromJson for $ty {
        fn from_unsigned(value: u64) -> Option<Self> {
            value.try_into().ok()
        }

        fn from_signed(value: i64) -> Option<Self> {
            value.try_into().ok()
        }
    })* };
}
integers!(u8, i8, u16, i16, u32, i32, u64, i64);

macro_rules! floats {
    ($($ty:ty: $round:expr),*) => { $(impl FromJson for $ty {
        fn from_unsigned(value: u64) -> Option<Self> {
            Some($round(value as f64))
        }

        fn from_signed(value: i64) -> Option<Self> {
            Some($round(value as f64))
        }

        fn from_float(value: f64) -> Option<Self> {
            Some($round(value))
        }
    })* };
}
floats!(f64: |v| v, f32: |v| v as f32, f16: f16::from_f64, bf16: bf16::from_f64);

impl FromJson for bool {
    fn from_bool(value: bool) -> Option<bool> {
        Some(value)
    }
}

impl FromJson for String {
    fn from_text(text: &str) -> Option<String> {
        Some(text.into())
    }
}

/// Collects the elements of lists nested up to `NESTING_MAX` deep, and fails at the first one beyond `max`.
struct Elements<'a, T> {
    dtype: DType,
    into: &'a mut Vec<T>,
    max: usize,
    depth: usize,
}

impl<T> Elements<'_, T> {
    fn push<E: Error>(self, element: Option<T>, value: impl fmt::Display) -> Result<(), E> {
        let Elements { dtype, into, max, depth } = self;
        let element =
            element.ok_or_else(|| E::custom(format!("element {} is {value}, which is no {dtype}", into.len())))?;
        match depth > 0 && into.len() < max {
            true => into.push(element),
            false if depth == 0 => return Err(E::custom("it is no list")),
            false => return Err(E::custom(format!("there are more than {max} elements"))),
        }
        Ok(())
    }
}

impl<'de, T: FromJson> DeserializeSeed<'de> for Elements<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, T: FromJson> Visitor<'de> for Elements<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "a list of {} elements", self.dtype)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.push(T::from_unsigned(value), value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.push(T::from_signed(value), value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.push(T::from_float(value), value)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.push(T::from_bool(value), value)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.push(T::from_text(text), "a string")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Elements { dtype, into, max, depth } = self;
        if depth >= NESTING_MAX {
            return Err(A::Error::custom(format!("lists are nested deeper than {NESTING_MAX} times")));
        }
        while list.next_element_seed(Elements { dtype, into: &mut *into, max, depth: depth + 1 })?.is_some() {}
        Ok(())
    }
}

/// Parses exactly `count` elements of one type and passes them to `tensor`.
fn collected<T: FromJson>(
    dtype: DType,
    count: usize,
    text: &str,
    tensor: impl FnOnce(Vec<T>) -> Tensor,
) -> Result<Tensor, String> {
    let mut elements = Vec::new();
    let mut from = serde_json::Deserializer::from_str(text);
    Elements { dtype, into: &mut elements, max: count, depth: 0 }.deserialize(&mut from).map_err(|e| e.to_string())?;
    if elements.len() != count {
        return Err(format!("there are {} elements instead of {count}", elements.len()));
    }
    Ok(tensor(elements))
}

/// Parses the elements of a flat or nested JSON list. `dims` must have `count` elements.
pub fn from_json(dtype: DType, dims: &[usize], count: usize, text: &str) -> Result<Tensor, String> {
    macro_rules! rows {
        ($($dtype:ident => $ty:ty),*) => { match dtype {
            $(DType::$dtype => collected::<$ty>(dtype, count, text, |v| Tensor::from_vec(dims.to_vec(), v)),)*
            DType::String => collected::<String>(dtype, count, text, |v| Tensor::from_strings(dims.to_vec(), &v)),
            _ => Err(format!("{dtype} has no form in JSON")),
        } };
    }
    rows!(F32 => f32, F64 => f64, F16 => f16, BF16 => bf16, Bool => bool,
          U8 => u8, I8 => i8, U16 => u16, I16 => i16, U32 => u32, I32 => i32, U64 => u64, I64 => i64)
}

/// Writes the elements of a tensor as a flat JSON list; NaN and infinity, which JSON lacks, are written as `null`.
pub fn write_json(tensor: &Tensor, out: &mut Vec<u8>) -> Result<(), String> {
    fn write<T: serde::Serialize>(values: &[T], out: &mut Vec<u8>) -> Result<(), String> {
        serde_json::to_writer(out, values).map_err(|e| e.to_string())
    }
    macro_rules! rows {
        ($($dtype:ident => $ty:ty),*) => { match tensor.dtype() {
            $(DType::$dtype => match tensor.as_slice::<$ty>() {
                Some(values) => write(values, out),
                None => write(&tensor.to_vec::<$ty>().unwrap_or_default(), out),
            },)*
            DType::F16 => write(&widened(tensor), out),
            DType::BF16 => write(&widened(tensor), out),
            DType::String => write(&tensor.texts().map_err(|e| e.message)?, out),
            other => Err(format!("{other} has no form in JSON")),
        } };
    }
    rows!(F32 => f32, F64 => f64, Bool => bool,
          U8 => u8, I8 => i8, U16 => u16, I16 => i16, U32 => u32, I32 => i32, U64 => u64, I64 => i64)
}

fn widened(tensor: &Tensor) -> Vec<f64> {
    (0..tensor.len()).map(|i| tensor.get_f64(i).unwrap_or(f64::NAN)).collect()
}

/// Returns the tensor with these bytes; every string is preceded by its length as a little-endian u32.
pub fn from_bytes(dtype: DType, dims: &[usize], count: usize, data: bytes::Bytes) -> Result<Tensor, String> {
    if dtype == DType::String {
        return Ok(Tensor::from_strings(dims.to_vec(), &split_strings(&data, count)?));
    }
    if dtype == DType::Bool && data.iter().any(|b| *b > 1) {
        return Err("a byte of a BOOL tensor is neither 0 nor 1".into());
    }
    Tensor::new(dtype, dims.to_vec(), data).map_err(|e| e.message)
}

fn split_strings(data: &[u8], count: usize) -> Result<Vec<&[u8]>, String> {
    let (mut strings, mut rest) = (Vec::new(), data);
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let (string, after) =
            after.split_at_checked(length).ok_or("a string is longer than what follows its length")?;
        strings.push(string);
        rest = after;
        if strings.len() > count {
            break;
        }
    }
    match strings.len() == count && rest.is_empty() {
        true => Ok(strings),
        false => Err(format!("the bytes are not {count} strings with their lengths as u32 before them")),
    }
}

/// Returns the bytes of a binary tensor, in the format of [`from_bytes`].
pub fn to_bytes(tensor: &Tensor) -> bytes::Bytes {
    let Some(strings) = tensor.strings() else { return tensor.bytes().clone() };
    let mut out = Vec::with_capacity(tensor.bytes().len());
    for string in strings {
        out.extend((string.len() as u32).to_le_bytes());
        out.extend(string);
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_nested_and_flat() {
        let read = |text| from_json(DType::F32, &[2, 2], 4, text).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(read("[1, 2.5, -3e0, 4]"), [1.0, 2.5, -3.0, 4.0]);
        assert_eq!(read("[[1, 2.5], [-3, 4]]"), [1.0, 2.5, -3.0, 4.0]);
    }

    #[test]
    fn wrong_elements_are_refused() {
        let refused = |dtype, text: &str| from_json(dtype, &[2], 2, text).unwrap_err();
        assert!(refused(DType::F32, "[1, 2, 3]").contains("more than 2 elements"));
        assert!(refused(DType::F32, "[1]").contains("1 elements instead of 2"));
        assert!(refused(DType::U8, "[1, 300]").contains("300"));
        assert!(refused(DType::I64, "[1, 1.5]").contains("1.5"));
        assert!(refused(DType::I64, "{}").contains("a list of i64 elements"));
        assert!(refused(DType::C64, "[1, 2]").contains("no form in JSON"));
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(from_json(DType::F32, &[1], 1, &deep).is_err());
        let deep = format!("{}1{}", "[".repeat(40), "]".repeat(40));
        assert!(from_json(DType::F32, &[1], 1, &deep).unwrap_err().contains("nested deeper"));
    }

    #[test]
    fn json_keeps_the_bits_of_a_float() {
        let values: Vec<f32> = (0..1000u32).map(|i| f32::from_bits(i.wrapping_mul(0x9E37_79B9) >> 2)).collect();
        let tensor = Tensor::from_vec(vec![1000], values);
        let mut text = vec![];
        write_json(&tensor, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(from_json(DType::F32, &[1000], 1000, &text).unwrap(), tensor);
    }

    #[test]
    fn binary_strings_have_their_lengths_before_them() {
        let tensor = Tensor::from_strings(vec![2], &["a", "öß"]);
        let bytes = to_bytes(&tensor);
        assert_eq!(&bytes[..5], [1, 0, 0, 0, b'a']);
        assert_eq!(from_bytes(DType::String, &[2], 2, bytes.clone()).unwrap(), tensor);
        assert!(from_bytes(DType::String, &[3], 3, bytes.clone()).is_err());
        assert!(from_bytes(DType::String, &[1], 1, bytes).is_err());
        let lies = bytes::Bytes::from_static(&[255, 255, 255, 255, 0]);
        assert!(from_bytes(DType::String, &[1], 1, lies).unwrap_err().contains("longer"));
    }
}
