//! memory of a GPU that the caller passes for an input or an output

use sardonyx_base::{DType, Error, Result, Tensor, TensorView};
use std::num::NonZeroUsize;
use std::ops::Range;

/// A tensor in the memory of a session's GPU, which belongs to the caller: row-major, elements as in the host's memory.
#[derive(Clone, Debug)]
pub struct DeviceTensor {
    dtype: DType,
    dims: Vec<usize>,
    address: u64,
    bytes: usize,
    /// The stream of [`used_on`](DeviceTensor::used_on), as an address.
    stream: Option<NonZeroUsize>,
}

/// An input of a call: in the host's memory, or in that of the GPU.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Copied to the GPU.
    Host(TensorView<'a>),
    /// Read in place.
    Device(&'a DeviceTensor),
}

/// Alignment in bytes of memory that kernels of a GPU use in place.
pub(crate) const DEVICE_ALIGNMENT: u64 = 16;

impl DeviceTensor {
    /// Returns a tensor at an address (`CUdeviceptr`), for an input. Errors: E0202 if its size overflows, E0107 for
    /// types that GPUs do not store, such as strings.
    ///
    /// # Safety
    /// During calls that read the tensor, the memory is there, in the GPU's context that the model was loaded in, and
    /// nothing writes it. Work that writes it before has been waited for, or is on the session's stream
    /// ([`SessionOptions::cuda_stream`](crate::SessionOptions::cuda_stream)), or on that of
    /// [`used_on`](DeviceTensor::used_on). Bools are 0 or 1, and elements of fewer
    /// than 8 bits are extended to a byte.
    pub unsafe fn new(dtype: DType, dims: &[usize], address: u64) -> Result<DeviceTensor> {
        let n = dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
        let bytes = n.and_then(|n| dtype.bytes_for(n)).ok_or_else(|| {
            Error::user("E0202", format!("a tensor of {dims:?} elements of type {dtype} has no representable size"))
        })?;
        // SAFETY: the caller guarantees it.
        let space = unsafe { DeviceTensor::space(dtype, address, bytes) }?;
        Ok(DeviceTensor { dims: dims.to_vec(), ..space })
    }

    /// Returns memory for an output of at most `bytes` bytes, whose dimensions the call sets. Errors: E0107 as for
    /// [`new`](DeviceTensor::new), E0202 if it would end beyond the largest address.
    ///
    /// # Safety
    /// As for [`new`](DeviceTensor::new); during calls that write the tensor, nothing else uses the memory.
    pub unsafe fn space(dtype: DType, address: u64, bytes: usize) -> Result<DeviceTensor> {
        if dtype.is_opaque() {
            return Err(Error::user("E0107", format!("a GPU stores no elements of type {dtype}")));
        }
        if address.checked_add(bytes as u64).is_none() {
            return Err(Error::user("E0202", format!("{bytes} bytes at {address:#x} end beyond the largest address")));
        }
        Ok(DeviceTensor { dtype, dims: vec![], address, bytes, stream: None })
    }

    /// States that work on a stream (`CUstream`, also 1 and 2, the default streams) may use the memory: calls wait for
    /// what is on it before they begin; neither a deadline nor a cancellation ends this wait. Work on the session's own
    /// stream is in order without it.
    ///
    /// # Safety
    /// The stream is there, and not being captured, during calls.
    pub unsafe fn used_on(self, stream: *mut std::ffi::c_void) -> DeviceTensor {
        DeviceTensor { stream: NonZeroUsize::new(stream.expose_provenance()), ..self }
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the extent of each axis, outermost first; empty for a scalar, and for an output before the first call.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Returns the address in the GPU's memory.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the number of bytes of the memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn stream(&self) -> Option<NonZeroUsize> {
        self.stream
    }

    pub(crate) fn range(&self) -> Range<u64> {
        self.address..self.address + self.bytes as u64
    }

    /// Whether kernels can use the memory as a buffer of `bytes` bytes.
    pub(crate) fn is_usable(&self, bytes: usize) -> bool {
        self.address.is_multiple_of(DEVICE_ALIGNMENT) && bytes <= self.bytes
    }

    pub(crate) fn set_dims(&mut self, dims: &[usize]) {
        self.dims.clear();
        self.dims.extend_from_slice(dims);
    }
}

impl<'a> Input<'a> {
    pub(crate) fn on_host(&self) -> Option<TensorView<'a>> {
        match self {
            Input::Host(view) => Some(*view),
            Input::Device(_) => None,
        }
    }

    pub(crate) fn on_device(&self) -> Option<&'a DeviceTensor> {
        match self {
            Input::Host(_) => None,
            Input::Device(tensor) => Some(tensor),
        }
    }

    pub(crate) fn dtype(&self) -> DType {
        match self {
            Input::Host(view) => view.dtype(),
            Input::Device(tensor) => tensor.dtype(),
        }
    }

    pub(crate) fn dims(&self) -> &[usize] {
        match self {
            Input::Host(view) => view.dims(),
            Input::Device(tensor) => tensor.dims(),
        }
    }
}

impl<'a> From<TensorView<'a>> for Input<'a> {
    fn from(view: TensorView<'a>) -> Input<'a> {
        Input::Host(view)
    }
}

impl<'a> From<&'a Tensor> for Input<'a> {
    fn from(tensor: &'a Tensor) -> Input<'a> {
        Input::Host(tensor.into())
    }
}

impl<'a> From<&'a DeviceTensor> for Input<'a> {
    fn from(tensor: &'a DeviceTensor) -> Input<'a> {
        Input::Device(tensor)
    }
}
