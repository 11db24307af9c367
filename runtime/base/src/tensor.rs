//! A dense tensor: element type, dimensions, little-endian bytes

use crate::{DType, Error, Result, minifloat};
use bytes::Bytes;

/// A dense row-major tensor. The bytes may be part of a mapped file, at any alignment. Equal tensors have equal bits.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Tensor {
    dtype: DType,
    dims: Vec<usize>,
    data: Bytes,
}

/// Product of the dimensions, or `None` on overflow.
pub fn element_count(dims: &[usize]) -> Option<usize> {
    if dims.contains(&0) {
        return Some(0);
    }
    dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
}

/// A Rust type that represents one element type: it has no padding, and its bytes are the element's (see
/// [`TensorView::from_slice`](crate::TensorView::from_slice)). No other crate can implement the trait.
pub trait Element: Copy + Send + sealed::Sealed + 'static {
    /// The element type that this Rust type represents.
    const DTYPE: DType;
    /// Size of an element in bytes.
    const BYTES: usize;
    /// Reads an element from its little-endian bytes, exactly [`BYTES`](Element::BYTES) of them.
    fn read(bytes: &[u8]) -> Self;
}

/// Returns the bytes of values, in place. An [`Element`] has no padding, so all bytes are initialised.
pub fn bytes_of_values<T: Element>(values: &[T]) -> &[u8] {
    // SAFETY: the bytes are the memory of `values`, with the same lifetime.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Returns bytes as values of a Rust type, in place; `None` if `dtype` is not the type's, if the bytes are not aligned
/// for it or not a whole number of elements, or if a `bool` is neither 0 nor 1.
pub fn values_of_bytes<T: Element>(dtype: DType, bytes: &[u8]) -> Option<&[T]> {
    let fits = T::DTYPE == dtype
        && (bytes.is_empty() || bytes.as_ptr().cast::<T>().is_aligned())
        && bytes.len().is_multiple_of(T::BYTES);
    let valid = fits && (dtype != DType::Bool || bytes.iter().all(|b| *b <= 1));
    // SAFETY: the values are the memory of `bytes`, with the same lifetime, aligned, and of whole elements; every bit
    // pattern of a number is a value, and bools are 0 or 1.
    let values = || unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / T::BYTES) };
    valid.then(|| if bytes.is_empty() { &[] } else { values() })
}

/// Owns the values whose memory a tensor uses.
struct Owned<T>(Vec<T>);

impl<T: Element> AsRef<[u8]> for Owned<T> {
    fn as_ref(&self) -> &[u8] {
        bytes_of_values(&self.0)
    }
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! element {
    ($($ty:ty => $dtype:ident),*) => { $(impl sealed::Sealed for $ty {}

    impl Element for $ty {
        const DTYPE: DType = DType::$dtype;
        const BYTES: usize = size_of::<$ty>();
        fn read(bytes: &[u8]) -> Self {
            let mut raw = [0; size_of::<$ty>()];
            raw.copy_from_slice(bytes);
            <$ty>::from_le_bytes(raw)
        }
    })* };
}
element!(f32 => F32, f64 => F64, half::f16 => F16, half::bf16 => BF16,
         u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64);

impl sealed::Sealed for bool {}

impl Element for bool {
    const DTYPE: DType = DType::Bool;
    const BYTES: usize = 1;
    fn read(bytes: &[u8]) -> Self {
        bytes[0] != 0
    }
}

impl Tensor {
    /// Wraps bytes as a tensor. Errors: E0302 if the bytes do not match type and dimensions, E0202 if the size
    /// overflows.
    pub fn new(dtype: DType, dims: Vec<usize>, data: Bytes) -> Result<Tensor> {
        let count = element_count(&dims);
        let wrong =
            || Error::user("E0202", format!("a tensor of {dims:?} elements of type {dtype} has no representable size"));
        match dtype {
            DType::String => crate::strings::check(count.ok_or_else(wrong)?, &data)?,
            DType::Value if dims.is_empty() => crate::value::check(&data)?,
            _ => {
                let bytes = count.and_then(|n| dtype.bytes_for(n)).ok_or_else(wrong)?;
                if bytes != data.len() {
                    let message =
                        format!("a {dtype} tensor of {dims:?} has {bytes} bytes, but {} are given", data.len());
                    return Err(Error::user("E0302", message));
                }
            }
        }
        Ok(Tensor { dtype, dims, data })
    }

    /// Wraps the bytes of a value that was just encoded, without checking them.
    pub(crate) fn of_value(data: Vec<u8>) -> Tensor {
        Tensor { dtype: DType::Value, dims: vec![], data: data.into() }
    }

    /// Returns a tensor that takes over the memory of `values`. Panics if `dims` and `values` disagree, which is
    /// the caller's mistake.
    pub fn from_vec<T: Element>(dims: Vec<usize>, values: Vec<T>) -> Tensor {
        assert_eq!(element_count(&dims), Some(values.len()), "dims {dims:?}");
        Tensor { dtype: T::DTYPE, dims, data: Bytes::from_owner(Owned(values)) }
    }

    /// Returns a tensor of rank 0 with this element.
    pub fn scalar<T: Element>(value: T) -> Tensor {
        Tensor::from_vec(vec![], vec![value])
    }

    /// Returns a tensor of zeros. Panics if the size overflows, which the caller must rule out.
    pub fn zeros(dtype: DType, dims: Vec<usize>) -> Tensor {
        let bytes = element_count(&dims).and_then(|n| dtype.bytes_for(n)).expect("a checked size");
        Tensor { dtype, dims, data: vec![0; bytes].into() }
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the extent of each axis, outermost first; empty for a scalar.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Returns the number of axes; 0 for a scalar.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Returns the number of elements; 1 for a scalar.
    pub fn len(&self) -> usize {
        element_count(&self.dims).unwrap_or(0)
    }

    /// Whether an axis has extent 0, so that there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the elements in row-major order, or the encoding of strings and values.
    pub fn bytes(&self) -> &Bytes {
        &self.data
    }

    /// Returns the elements as a Rust type, in place; `None` if the tensor has another type, or if its bytes are not
    /// aligned for the type. Bytes of a file may be unaligned; outputs of calls are always aligned.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        values_of_bytes(self.dtype, &self.data)
    }

    /// A copy of the elements as a Rust type, or `None` if the tensor has another type.
    pub fn to_vec<T: Element>(&self) -> Option<Vec<T>> {
        let copied = || self.data.chunks_exact(T::BYTES).map(T::read).collect();
        (T::DTYPE == self.dtype).then(|| self.as_slice().map(<[T]>::to_vec).unwrap_or_else(copied))
    }

    /// Element `i` in row-major order as f64 (integers beyond 2^53 are rounded); `None` for strings and complex types.
    pub fn get_f64(&self, i: usize) -> Option<f64> {
        let width = self.dtype.bytes();
        let at = self.data.get(i * width..(i + 1) * width)?;
        Some(match self.dtype {
            DType::F32 => f32::read(at) as f64,
            DType::F64 => f64::read(at),
            DType::F16 => half::f16::read(at).to_f64(),
            DType::BF16 => half::bf16::read(at).to_f64(),
            DType::Bool => bool::read(at) as u8 as f64,
            DType::U64 => u64::read(at) as f64,
            _ if self.dtype.is_float() => minifloat::decode(self.dtype, at[0].into())?,
            _ => self.get_i64(i)? as f64,
        })
    }

    /// Element `i` as i64; `None` for anything but integers and bool.
    pub fn get_i64(&self, i: usize) -> Option<i64> {
        let width = self.dtype.bytes();
        let at = self.data.get(i * width..(i + 1) * width)?;
        Some(match self.dtype {
            DType::Bool => bool::read(at) as i64,
            DType::U8 | DType::U4 | DType::U2 => u8::read(at) as i64,
            DType::I8 | DType::I4 | DType::I2 => i8::read(at) as i64,
            DType::U16 => u16::read(at) as i64,
            DType::I16 => i16::read(at) as i64,
            DType::U32 => u32::read(at) as i64,
            DType::I32 => i32::read(at) as i64,
            DType::U64 => u64::read(at) as i64,
            DType::I64 => i64::read(at),
            _ => return None,
        })
    }

    /// The same bytes with other dimensions of the same element count.
    pub fn with_dims(&self, dims: Vec<usize>) -> Result<Tensor> {
        Tensor::new(self.dtype, dims, self.data.clone())
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor({} {:?})", self.dtype, self.dims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_the_round_trip() {
        let t = Tensor::from_vec(vec![2, 2], vec![1.0f32, -2.0, 3.5, f32::INFINITY]);
        assert_eq!(t.to_vec::<f32>().unwrap(), [1.0, -2.0, 3.5, f32::INFINITY]);
        assert_eq!(t.to_vec::<i32>(), None);
        assert_eq!(t.as_slice::<f32>().unwrap()[1..3], [-2.0, 3.5]);
        assert_eq!(t.as_slice::<i32>(), None);
        assert_eq!(t.get_f64(2), Some(3.5));
    }

    #[test]
    fn values_are_never_copied() {
        let values = vec![1i64, 2, 3];
        let start = values.as_ptr();
        let t = Tensor::from_vec(vec![3], values);
        assert_eq!(t.as_slice::<i64>().unwrap().as_ptr(), start);
    }

    #[test]
    fn bytes_that_are_no_values_are_no_slice() {
        let shifted = Bytes::from(vec![0u8; 17]);
        let odd = shifted.slice(1..);
        let unaligned = if odd.as_ptr().cast::<i64>().is_aligned() { shifted.slice(..16) } else { odd };
        assert_eq!(Tensor::new(DType::I64, vec![2], unaligned).unwrap().as_slice::<i64>(), None);
        let bools = |bytes: &'static [u8]| Tensor::new(DType::Bool, vec![2], Bytes::from_static(bytes)).unwrap();
        assert_eq!(bools(&[1, 0]).as_slice::<bool>(), Some(&[true, false][..]));
        assert_eq!(bools(&[1, 2]).as_slice::<bool>(), None);
    }

    #[test]
    fn a_wrong_length_is_refused() {
        assert_eq!(Tensor::new(DType::F32, vec![3], Bytes::from_static(&[0; 8])).unwrap_err().code, "E0302");
        assert_eq!(Tensor::new(DType::F32, vec![1 << 40, 1 << 40], Bytes::new()).unwrap_err().code, "E0202");
    }
}
