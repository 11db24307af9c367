//! tensors of the caller, and tensors returned by a call

use crate::border::guard;
use crate::border::{Handle, array, check_memory, handle, read, slice, structs, text, write, wrong};
use crate::error::{c_string, sdx_error};
use sardonyx_runtime::{DType, DeviceTensor, Error, Outputs, Result, Tensor, TensorBuffer, TensorView};
use std::ffi::{CString, c_char, c_void};
use std::ops::Range;
use std::ptr::null;

/// Element types, numbered as in ONNX. An element of 2 or 4 bits occupies one byte.
pub const SDX_F32: i32 = 1;
/// Unsigned integer of 8 bits.
pub const SDX_U8: i32 = 2;
/// Signed integer of 8 bits.
pub const SDX_I8: i32 = 3;
/// Unsigned integer of 16 bits.
pub const SDX_U16: i32 = 4;
/// Signed integer of 16 bits.
pub const SDX_I16: i32 = 5;
/// Signed integer of 32 bits.
pub const SDX_I32: i32 = 6;
/// Signed integer of 64 bits.
pub const SDX_I64: i32 = 7;
/// Strings, only in returned outputs: n + 1 `uint64_t` offsets into the text that follows them.
pub const SDX_STRING: i32 = 8;
/// Boolean of one byte: 0 or 1.
pub const SDX_BOOL: i32 = 9;
/// IEEE 754 binary16.
pub const SDX_F16: i32 = 10;
/// IEEE 754 binary64 (`double`).
pub const SDX_F64: i32 = 11;
/// Unsigned integer of 32 bits.
pub const SDX_U32: i32 = 12;
/// Unsigned integer of 64 bits.
pub const SDX_U64: i32 = 13;
/// bfloat16: the upper half of an `SDX_F32`.
pub const SDX_BF16: i32 = 16;

/// An input, which the library only reads, or an output that the library owns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sdx_tensor {
    /// `sizeof(sdx_tensor)`, set by the caller.
    pub struct_bytes: usize,
    /// Name of the input or the output.
    pub name: *const c_char,
    /// `SDX_F32` …
    pub dtype: i32,
    /// Number of dimensions, at most 64; 0 for a scalar.
    pub rank: u32,
    /// An array of `rank` sizes.
    pub dims: *const usize,
    /// The elements in row-major order. An input aligned for its element type is read in place; otherwise it is copied.
    pub data: *const c_void,
    /// Size of `data` in bytes; must match `dtype` and `dims`.
    pub bytes: usize,
    /// If nonzero, `data` is an address (`CUdeviceptr`) in the memory of the GPU and the context that the model was loaded
    /// in; it is copied within the GPU if it is not aligned to 16 bytes. Work that writes it has been waited for, or is on
    /// the session's `cuda_stream`. Booleans are 0 or 1, and elements of 2 or 4 bits are extended to their byte.
    pub on_device: i32,
}

/// Memory of the caller for an output.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sdx_buffer {
    /// `sizeof(sdx_buffer)`, set by the caller.
    pub struct_bytes: usize,
    /// Name of the output.
    pub name: *const c_char,
    /// Element type, `SDX_F32` …; a call fails with E0301 if it is not that of the output.
    pub dtype: i32,
    /// Before a call, the capacity of `dims`; afterwards, the rank of the output.
    pub rank: u32,
    /// Receives the dimensions of the output; may be NULL.
    pub dims: *mut usize,
    /// Receives the elements in row-major order. Written in place if it is aligned for the element type.
    pub data: *mut c_void,
    /// Size of `data` in bytes; at least the size of the output.
    pub bytes: usize,
    /// If nonzero, `data` is an address (`CUdeviceptr`) in the memory of the model's GPU, as in `sdx_tensor`. In a call with
    /// inputs or buffers in the GPU's memory, no buffer is in the host's.
    pub on_device: i32,
}

structs!(sdx_tensor, sdx_buffer);

/// The largest rank that is accepted.
const RANK_MAX: u32 = 64;

fn dtype_of(code: i32) -> Result<DType> {
    let dtype = DType::from_onnx(code).ok_or_else(|| wrong(format!("{code} is no element type")))?;
    match dtype.is_opaque() {
        true => Err(wrong(format!("tensors of {dtype} cannot be given from C"))),
        false => Ok(dtype),
    }
}

fn addresses<T>(data: &[T]) -> Range<usize> {
    let start = data.as_ptr().addr();
    start..start + size_of_val(data)
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

/// The inputs and buffers of a call, in Rust types.
#[derive(Default)]
pub struct Given<'a> {
    /// Name and tensor of each input, in the caller's order.
    pub inputs: Vec<(&'a str, TensorView<'a>)>,
    /// Name and memory of each output that has a buffer.
    pub buffers: Vec<(&'a str, TensorBuffer<'a>)>,
    /// Name and tensor of each input in the memory of a GPU.
    pub device_inputs: Vec<(&'a str, DeviceTensor)>,
    /// Name and memory of each output that is written to the memory of a GPU.
    pub device_buffers: Vec<(&'a str, DeviceTensor)>,
    /// The caller's structs of `buffers`, and then of `device_buffers`.
    at: Vec<*mut sdx_buffer>,
}

impl<'a> Given<'a> {
    /// SAFETY: the pointers and sizes in the structs are valid for `'a`.
    pub unsafe fn new(inputs: (*const sdx_tensor, usize), buffers: (*mut sdx_buffer, usize)) -> Result<Given<'a>> {
        let mut given = Given::default();
        // SAFETY: `inputs` is an array of structs, of the size in their `struct_bytes`.
        for one in unsafe { array(inputs.0, inputs.1) }? {
            // SAFETY: `one` is a struct of the array.
            let tensor = unsafe { read(one) }?;
            // SAFETY: the name is null or a C string.
            let name = unsafe { text(tensor.name, "sdx_tensor.name") }?;
            check_rank(tensor.rank, name)?;
            // SAFETY: `dims` points to `rank` sizes.
            let dims = unsafe { slice(tensor.dims, tensor.rank as usize, "sdx_tensor.dims") }?;
            let of_input = |e: Box<Error>| e.node(format!("input `{name}`"));
            if tensor.on_device != 0 {
                // SAFETY: the caller guarantees the same for the GPU's memory.
                let made = dtype_of(tensor.dtype).and_then(|dtype| unsafe { on_device(dtype, dims, &tensor) });
                given.device_inputs.push((name, made.map_err(of_input)?));
                continue;
            }
            // SAFETY: `data` points to `bytes` bytes, which are not modified during `'a`.
            let data = unsafe { slice(tensor.data.cast::<u8>(), tensor.bytes, "sdx_tensor.data") }?;
            let view = dtype_of(tensor.dtype).and_then(|dtype| TensorView::new(dtype, dims, data));
            given.inputs.push((name, view.map_err(of_input)?));
        }
        let read_only: Vec<Range<usize>> = given.inputs.iter().map(|(_, view)| addresses(view.bytes())).collect();
        let (mut written, mut device_at): (Vec<Range<usize>>, Vec<*mut sdx_buffer>) = (vec![], vec![]);
        // SAFETY: `buffers` is an array of structs, of the size in their `struct_bytes`.
        for one in unsafe { array(buffers.0.cast_const(), buffers.1) }? {
            // SAFETY: `one` is a struct of the array.
            let buffer = unsafe { read(one) }?;
            // SAFETY: the name is null or a C string.
            let name = unsafe { text(buffer.name, "sdx_buffer.name") }?;
            let of_output = |e: Box<Error>| e.node(format!("output `{name}`"));
            let dtype = dtype_of(buffer.dtype).map_err(of_output)?;
            if buffer.on_device != 0 {
                let address = device_address(buffer.data, buffer.bytes, "sdx_buffer.data")?;
                // SAFETY: the caller guarantees that nothing else uses the memory.
                let space = unsafe { DeviceTensor::space(dtype, address, buffer.bytes) };
                given.device_buffers.push((name, space.map_err(of_output)?));
                device_at.push(one.cast_mut());
                continue;
            }
            check_memory(buffer.data.cast::<u8>(), buffer.bytes, "sdx_buffer.data")?;
            let range = buffer.data.addr()..buffer.data.addr() + buffer.bytes;
            if read_only.iter().chain(&written).any(|other| overlap(other, &range)) {
                return Err(wrong(format!("the buffer of `{name}` overlaps an input or another buffer")));
            }
            written.push(range);
            let data = match buffer.bytes {
                0 => &mut [][..],
                // SAFETY: `data` points to `n` writable bytes, which overlap no input and no other buffer.
                n => unsafe { std::slice::from_raw_parts_mut(buffer.data.cast::<u8>(), n) },
            };
            given.buffers.push((name, TensorBuffer::new(dtype, data)));
            given.at.push(one.cast_mut());
        }
        given.at.append(&mut device_at);
        if given.uses_device() && !given.buffers.is_empty() {
            return Err(wrong("a call with tensors in the memory of a GPU has no buffer in the host's"));
        }
        Ok(given)
    }

    /// Whether an input or a buffer is in the memory of a GPU.
    pub fn uses_device(&self) -> bool {
        !self.device_inputs.is_empty() || !self.device_buffers.is_empty()
    }

    /// Returns the name and the dimensions of each buffer, in the order of `at`.
    fn written(&self) -> impl Iterator<Item = (&'a str, &[usize])> {
        let on_host = self.buffers.iter().map(|(name, buffer)| (*name, buffer.dims()));
        on_host.chain(self.device_buffers.iter().map(|(name, tensor)| (*name, tensor.dims())))
    }

    /// Checks that the dimensions of the outputs can be written, before a call has an effect: of how many dimensions an
    /// output is does not depend on the call. Unknown names are left to the call.
    ///
    /// SAFETY: as for `new`.
    pub unsafe fn check_dims(&self, rank_of: impl Fn(&str) -> Option<usize>) -> Result<()> {
        for ((name, _), &at) in self.written().zip(&self.at) {
            // SAFETY: `at` is a struct of the array, as `new` has checked.
            let given = unsafe { read(at) }?;
            let Some(n) = rank_of(name).filter(|_| !given.dims.is_null()) else { continue };
            check_space(&given, name, n)?;
        }
        Ok(())
    }

    /// Writes the dimensions of the outputs to the caller's structs.
    ///
    /// SAFETY: as for `new`.
    pub unsafe fn write_dims(&self) -> Result<()> {
        for ((name, dims), &at) in self.written().zip(&self.at) {
            // SAFETY: `at` is a struct of the array, as `new` has checked.
            let mut given = unsafe { read(at) }?;
            if !given.dims.is_null() {
                check_space(&given, name, dims.len())?;
                // SAFETY: the caller's `dims` has space for `rank` sizes, which is at least `dims.len()`.
                unsafe { std::ptr::copy_nonoverlapping(dims.as_ptr(), given.dims, dims.len()) };
            }
            given.rank = dims.len() as u32;
            // SAFETY: as above; the struct is writable.
            unsafe { write(given, at) }?;
        }
        Ok(())
    }
}

/// Returns an address in the memory of a GPU.
fn device_address(data: *const c_void, bytes: usize, name: &str) -> Result<u64> {
    match data.is_null() && bytes > 0 {
        true => Err(wrong(format!("`{name}` is null"))),
        false => Ok(data.addr() as u64),
    }
}

/// Returns an input in the memory of a GPU.
///
/// SAFETY: as for [`DeviceTensor::new`].
unsafe fn on_device(dtype: DType, dims: &[usize], given: &sdx_tensor) -> Result<DeviceTensor> {
    let address = device_address(given.data, given.bytes, "sdx_tensor.data")?;
    // SAFETY: the caller guarantees it.
    let tensor = unsafe { DeviceTensor::new(dtype, dims, address) }?;
    match tensor.bytes() == given.bytes {
        true => Ok(tensor),
        false => Err(wrong(format!("{dims:?} elements of {dtype} have {} bytes, not {}", tensor.bytes(), given.bytes))),
    }
}

/// Refuses a buffer whose `dims` cannot take `n` sizes.
fn check_space(given: &sdx_buffer, name: &str, n: usize) -> Result<()> {
    check_rank(given.rank, name)?;
    if n > given.rank as usize {
        let room = given.rank;
        return Err(wrong(format!("the output `{name}` has {n} dimensions, `dims` has room for {room}")));
    }
    match given.dims.is_aligned() {
        true => Ok(()),
        false => Err(wrong("`sdx_buffer.dims` is not aligned")),
    }
}

fn check_rank(rank: u32, name: &str) -> Result<()> {
    match rank {
        0..=RANK_MAX => Ok(()),
        _ => Err(wrong(format!("`{name}` has {rank} dimensions; at most {RANK_MAX} are possible"))),
    }
}

/// The tensors returned by a call.
pub struct sdx_outputs {
    tensors: Vec<(CString, Tensor)>,
}

handle!(sdx_outputs = b"sdxoutpu");

impl sdx_outputs {
    /// Takes the named tensors of a call or a cache, in the order in which `sdx_outputs_at` returns them.
    pub fn new(outputs: impl IntoIterator<Item = (String, Tensor)>) -> sdx_outputs {
        sdx_outputs { tensors: outputs.into_iter().map(|(name, t)| (c_string(&name), t)).collect() }
    }
}

impl From<Outputs> for sdx_outputs {
    fn from(outputs: Outputs) -> sdx_outputs {
        sdx_outputs::new(outputs)
    }
}

fn borrowed((name, tensor): &(CString, Tensor)) -> sdx_tensor {
    sdx_tensor {
        struct_bytes: 0,
        name: name.as_ptr(),
        dtype: tensor.dtype().code(),
        rank: tensor.rank() as u32,
        dims: if tensor.rank() == 0 { null() } else { tensor.dims().as_ptr() },
        data: tensor.bytes().as_ptr().cast(),
        bytes: tensor.bytes().len(),
        on_device: 0,
    }
}

/// Returns the number of tensors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_outputs_count(outputs: *const sdx_outputs) -> usize {
    // SAFETY: the caller passes null or a live handle.
    unsafe { sdx_outputs::get(outputs) }.map_or(0, |outputs| outputs.tensors.len())
}

/// Writes the tensor at `index` to `tensor`, whose `struct_bytes` the caller has set. Its pointers are valid until the
/// outputs are freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_outputs_at(
    outputs: *const sdx_outputs,
    index: usize,
    tensor: *mut sdx_tensor,
) -> *mut sdx_error {
    guard(|| {
        // SAFETY: the caller passes null or a live handle.
        let outputs = unsafe { sdx_outputs::get(outputs) }?;
        let found = outputs.tensors.get(index);
        let found = found.ok_or_else(|| wrong(format!("there is no output {index}, but {}", outputs.tensors.len())))?;
        // SAFETY: the caller passes null, or a writable struct of the size in its `struct_bytes`.
        unsafe { write(borrowed(found), tensor) }
    })
}

/// Like `sdx_outputs_at`, but finds the tensor by the name of the output.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_outputs_find(
    outputs: *const sdx_outputs,
    name: *const c_char,
    tensor: *mut sdx_tensor,
) -> *mut sdx_error {
    guard(|| {
        // SAFETY: the caller passes null or a live handle as `outputs`, and null or a C string as `name`.
        let (outputs, name) = unsafe { (sdx_outputs::get(outputs)?, text(name, "name")?) };
        let found = outputs.tensors.iter().find(|(known, _)| known.to_str() == Ok(name));
        let found = found.ok_or_else(|| wrong(format!("the call has not returned `{name}`")))?;
        // SAFETY: the caller passes null, or a writable struct of the size in its `struct_bytes`.
        unsafe { write(borrowed(found), tensor) }
    })
}

/// Frees the tensors, and with them the memory that the structs of `sdx_outputs_at` point to. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_outputs_free(outputs: *mut sdx_outputs) {
    // SAFETY: the caller passes null or a live handle, which it no longer uses.
    unsafe { sdx_outputs::free(outputs) }
}
