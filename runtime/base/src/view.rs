//! tensors whose bytes belong to the caller: `TensorView` to read, `TensorBuffer` to write

use crate::tensor::{Element, bytes_of_values, element_count, values_of_bytes};
use crate::{DType, Error, Result, Tensor};

// Typed slices are reinterpreted as the little-endian bytes that kernels and files use.
const _: () = assert!(cfg!(target_endian = "little"));

/// A borrowed input: type, dimensions, little-endian bytes in row-major order. A call reads the bytes in place if they
/// are aligned for their element type (a typed slice always is), and copies them otherwise.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    dtype: DType,
    dims: &'a [usize],
    data: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// Returns a view of bytes. Errors: E0302 if their number does not match type and dimensions, E0202 on overflow.
    pub fn new(dtype: DType, dims: &'a [usize], data: &'a [u8]) -> Result<TensorView<'a>> {
        let bytes = element_count(dims).and_then(|n| dtype.bytes_for(n)).ok_or_else(|| {
            Error::user("E0202", format!("a tensor of {dims:?} elements of type {dtype} has no representable size"))
        })?;
        if bytes != data.len() {
            let message = format!("a {dtype} tensor of {dims:?} has {bytes} bytes, but {} are given", data.len());
            return Err(Error::user("E0302", message));
        }
        Ok(TensorView { dtype, dims, data })
    }

    /// Returns a view of values of a Rust type, without copying them. Errors: as for [`new`](TensorView::new).
    pub fn from_slice<T: Element>(dims: &'a [usize], values: &'a [T]) -> Result<TensorView<'a>> {
        TensorView::new(T::DTYPE, dims, bytes_of_values(values))
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the extent of each axis, outermost first; empty for a scalar.
    pub fn dims(&self) -> &'a [usize] {
        self.dims
    }

    /// Returns the number of axes; 0 for a scalar.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Returns the elements as little-endian bytes in row-major order.
    pub fn bytes(&self) -> &'a [u8] {
        self.data
    }

    /// Returns the elements as values of a Rust type, without copying them; `None` if the view has another type, or if
    /// the bytes are not aligned for the type.
    pub fn as_slice<T: Element>(&self) -> Option<&'a [T]> {
        values_of_bytes(self.dtype, self.data)
    }

    /// Returns an owned copy. Errors: E0304 if there is no memory for it.
    pub fn to_tensor(&self) -> Result<Tensor> {
        let mut bytes = vec![];
        let refuse = |_| Error::user("E0304", format!("cannot allocate {} bytes", self.data.len()));
        bytes.try_reserve_exact(self.data.len()).map_err(refuse)?;
        bytes.extend_from_slice(self.data);
        Tensor::new(self.dtype, self.dims.to_vec(), bytes.into())
    }
}

impl<'a> From<&'a Tensor> for TensorView<'a> {
    fn from(tensor: &'a Tensor) -> TensorView<'a> {
        TensorView { dtype: tensor.dtype(), dims: tensor.dims(), data: tensor.bytes() }
    }
}

impl std::fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TensorView({} {:?})", self.dtype, self.dims)
    }
}

/// Returns whether memory at an address can hold elements of a type: the address is a multiple of their size.
pub fn is_aligned(start: *const u8, dtype: DType) -> bool {
    (start as usize).is_multiple_of(dtype.bytes().max(1))
}

/// Memory of the caller for one output. It may be larger than the output. Kernels write into it directly if it is
/// aligned for the element type and at least as large as the plan's upper bound for the output; otherwise the output is
/// copied into it.
pub struct TensorBuffer<'a> {
    dtype: DType,
    dims: Vec<usize>,
    data: &'a mut [u8],
}

impl<'a> TensorBuffer<'a> {
    /// Returns a buffer for an output with this element type. It has no dimensions until a call has written an output.
    pub fn new(dtype: DType, data: &'a mut [u8]) -> TensorBuffer<'a> {
        TensorBuffer { dtype, dims: Vec::new(), data }
    }

    /// Returns a buffer over a slice of numbers. Errors: E0107 for `bool`, where bytes other than 0 and 1 are invalid.
    pub fn from_slice<T: Element>(values: &'a mut [T]) -> Result<TensorBuffer<'a>> {
        if T::DTYPE == DType::Bool {
            return Err(Error::user("E0107", "a bool output needs a buffer of bytes").help("use TensorBuffer::new"));
        }
        let (start, bytes) = (values.as_mut_ptr().cast::<u8>(), std::mem::size_of_val(values));
        // SAFETY: the bytes are the memory of `values`, also borrowed exclusively; elements have no padding, and every
        // bit pattern of a number is a value.
        let data = unsafe { std::slice::from_raw_parts_mut(start, bytes) };
        Ok(TensorBuffer::new(T::DTYPE, data))
    }

    /// Returns the element type of the outputs that a call may write into the buffer.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the dimensions of the output that the last call wrote; empty before the first call.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Returns the whole memory. A call writes its output to the front: the elements of a tensor with the dimensions
    /// [`dims`](TensorBuffer::dims). After a failed call, the content is undefined.
    pub fn bytes(&self) -> &[u8] {
        self.data
    }

    /// Returns the output that the last call wrote, as a Rust type; `None` if the output has another type, or if the
    /// bytes are not aligned for the type.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        let written = self.dtype.bytes_for(element_count(&self.dims)?)?;
        values_of_bytes(self.dtype, self.data.get(..written)?)
    }

    /// Returns the whole of the caller's memory, including the part after the output.
    pub fn into_bytes(self) -> &'a mut [u8] {
        self.data
    }

    /// Returns the whole of the caller's memory, for a call that writes an output to its front.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.data
    }

    /// Sets the dimensions of the output that a call has written.
    pub fn set_dims(&mut self, dims: &[usize]) {
        self.dims = dims.to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_the_slice_itself() {
        let values = [1.0f32, -2.0, 3.5, 4.0];
        let view = TensorView::from_slice(&[2, 2], &values).unwrap();
        assert_eq!(view.bytes().as_ptr(), values.as_ptr().cast());
        assert_eq!((view.dtype(), view.dims(), view.bytes().len()), (DType::F32, &[2, 2][..], 16));
        let t = Tensor::from_vec(vec![2, 2], values.to_vec());
        assert_eq!(TensorView::from(&t).bytes(), view.bytes());
        assert_eq!(TensorView::from_slice(&[3], &values).unwrap_err().code, "E0302");
        assert_eq!(TensorView::from_slice(&[usize::MAX, 2], &values).unwrap_err().code, "E0202");
    }

    #[test]
    fn a_bool_slice_is_no_buffer() {
        assert_eq!(TensorBuffer::from_slice(&mut [true, false]).err().unwrap().code, "E0107");
        assert_eq!(TensorBuffer::from_slice(&mut [1i64, 2]).unwrap().bytes().len(), 16);
    }
}
