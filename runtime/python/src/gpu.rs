//! arrays in the memory of a GPU (`__cuda_array_interface__`)  =>  tensors, in place

use crate::arrays::dtype_named;
use crate::error::{raised, wrong};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sardonyx_runtime::{DType, DeviceTensor, SessionOptions};

/// The attribute by which PyTorch, CuPy, Numba and others describe an array in the memory of a GPU.
const INTERFACE: &str = "__cuda_array_interface__";

/// The type by which PyTorch describes bf16.
const BF16: &str = "V2";

/// The default stream that waits for all others (`CU_STREAM_LEGACY`).
const DEFAULT_STREAM: usize = 1;

/// An array in the memory of a GPU, for the duration of a call. It keeps the owner of its memory alive.
pub struct GpuArray<'py> {
    pub array: Bound<'py, PyAny>,
    pub shape: Vec<usize>,
    pub tensor: DeviceTensor,
    /// The stream whose work may use the memory, as an address; 0 if the owner names none.
    stream: usize,
}

impl<'py> GpuArray<'py> {
    /// Returns the array; `None` if the value is not in the memory of a GPU. `is_written` is true for an output.
    pub fn new(name: &str, value: &Bound<'py, PyAny>, is_written: bool) -> PyResult<Option<GpuArray<'py>>> {
        let Some(interface) = value.getattr_opt(INTERFACE)? else { return Ok(None) };
        let interface = interface.cast_into::<PyDict>()?;
        let field = |key: &str| interface.get_item(key).map(|value| value.filter(|value| !value.is_none()));
        let needed = |key: &str| field(key)?.ok_or_else(|| wrong(format!("the {INTERFACE} of `{name}` lacks `{key}`")));
        let shape: Vec<usize> = needed("shape")?.extract()?;
        let (address, is_read_only): (u64, bool) = needed("data")?.extract()?;
        let typestr: String = needed("typestr")?.extract()?;
        let strides: Option<Vec<i64>> = field("strides")?.map(|strides| strides.extract()).transpose()?;
        let version: i64 = field("version")?.map_or(Ok(0), |version| version.extract())?;
        // Before version 3 an owner, such as PyTorch, could name no stream: its work is on the default one.
        let unnamed = if version < 3 { DEFAULT_STREAM } else { 0 };
        let stream: usize = field("stream")?.map_or(Ok(unnamed), |stream| stream.extract())?;
        if field("mask")?.is_some() {
            return Err(wrong(format!("the array for `{name}` has a mask")));
        }
        let known = |name: &str| if name == BF16 { Some(DType::BF16) } else { dtype_named(name) };
        let dtype = typestr.strip_prefix(['<', '=', '|']).and_then(known);
        let dtype = dtype.ok_or_else(|| wrong(format!("the array for `{name}` has the type {typestr}")))?;
        if address == 0 && !shape.contains(&0) {
            return Err(wrong(format!("the array for `{name}` is at no address")));
        }
        if is_written && is_read_only {
            return Err(wrong(format!("the array for `{name}` must be writeable")));
        }
        // SAFETY: the owner, which is alive, describes its memory; the caller must not write it during the call.
        let tensor = unsafe { DeviceTensor::new(dtype, &shape, address) }.map_err(raised)?;
        if strides.is_some_and(|strides| !is_contiguous(&shape, &strides, dtype.bytes() as i64)) {
            return Err(wrong(format!("the array for `{name}` must be contiguous")));
        }
        Ok(Some(GpuArray { array: value.clone(), shape, tensor, stream }))
    }

    /// Returns the tensor for a call of a session that works on this stream, which need not wait for it.
    pub fn for_session_on(&self, stream: usize) -> DeviceTensor {
        let tensor = self.tensor.clone();
        match self.stream == stream {
            true => tensor,
            // SAFETY: the array's owner names a stream that exists.
            false => unsafe { tensor.used_on(std::ptr::with_exposed_provenance_mut(self.stream)) },
        }
    }
}

/// Whether the elements of an array with these strides in bytes are adjacent, in row-major order.
fn is_contiguous(shape: &[usize], strides: &[i64], element: i64) -> bool {
    let mut expected = Some(element);
    let is_next = |(size, stride): (&usize, &i64)| {
        let holds = *size <= 1 || expected == Some(*stride);
        expected = expected.and_then(|bytes| bytes.checked_mul(i64::try_from(*size).ok()?));
        holds
    };
    shape.len() == strides.len() && (shape.contains(&0) || shape.iter().zip(strides).rev().all(is_next))
}

/// Has a session work on the caller's stream, given as an address; 0, as PyTorch and CuPy call it, is the default
/// stream. Also returns the address for [`GpuArray::for_session_on`], which is 0 for a stream of the session's own.
pub fn on_stream(options: SessionOptions, stream: Option<usize>) -> (SessionOptions, usize) {
    let stream = stream.map_or(0, |stream| if stream == 0 { DEFAULT_STREAM } else { stream });
    // SAFETY: the caller keeps the stream as long as the session.
    (unsafe { options.cuda_stream(std::ptr::with_exposed_provenance_mut(stream)) }, stream)
}
