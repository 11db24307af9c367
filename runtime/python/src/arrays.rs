//! NumPy arrays  <=>  tensors, in place

use crate::error::{raised, wrong};
use crate::gpu::GpuArray;
use numpy::npyffi::flags::NPY_ARRAY_WRITEABLE;
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use sardonyx_runtime::{DType, Tensor, TensorBuffer, TensorView};

/// Element types: kind and size of an element in NumPy, and the name of the type in `ml_dtypes` if NumPy lacks it.
/// Without `ml_dtypes`, an output of such a type has the NumPy type of its bytes.
static TYPES: &[(DType, &str, Option<&str>)] = &[
    (DType::F32, "f4", None),
    (DType::F64, "f8", None),
    (DType::F16, "f2", None),
    (DType::I64, "i8", None),
    (DType::I32, "i4", None),
    (DType::I16, "i2", None),
    (DType::I8, "i1", None),
    (DType::U64, "u8", None),
    (DType::U32, "u4", None),
    (DType::U16, "u2", None),
    (DType::U8, "u1", None),
    (DType::Bool, "b1", None),
    (DType::C64, "c8", None),
    (DType::C128, "c16", None),
    (DType::BF16, "u2", Some("bfloat16")),
    (DType::F8E4M3FN, "u1", Some("float8_e4m3fn")),
    (DType::F8E4M3FNUZ, "u1", Some("float8_e4m3fnuz")),
    (DType::F8E5M2, "u1", Some("float8_e5m2")),
    (DType::F8E5M2FNUZ, "u1", Some("float8_e5m2fnuz")),
    (DType::F8E8M0, "u1", Some("float8_e8m0fnu")),
    (DType::F4E2M1, "u1", Some("float4_e2m1fn")),
    (DType::U4, "u1", Some("uint4")),
    (DType::I4, "i1", Some("int4")),
    (DType::U2, "u1", Some("uint2")),
    (DType::I2, "i1", Some("int2")),
];

static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

fn numpy(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    NUMPY.get_or_try_init(py, || Ok(py.import("numpy")?.unbind())).map(|module| module.bind(py))
}

/// An input, for the duration of a call. It keeps the owner of its data alive.
pub enum Input<'py> {
    Array(Bound<'py, PyUntypedArray>, DType),
    /// NumPy has no contiguous storage for strings, so they are copied.
    Strings(Tensor),
    OnGpu(GpuArray<'py>),
}

impl<'py> Input<'py> {
    /// Uses an array, or an object that supports DLPack, in place; NumPy converts other objects to an array. Data is
    /// copied only if it is not contiguous or has another byte order.
    pub fn new(name: &str, value: &Bound<'py, PyAny>) -> PyResult<Input<'py>> {
        let py = value.py();
        let array = value.cast::<PyUntypedArray>();
        if let (Err(_), Some(array)) = (&array, GpuArray::new(name, value, false)?) {
            return Ok(Input::OnGpu(array));
        }
        let array = match array {
            Ok(array) => array.clone(),
            Err(_) if value.hasattr("__dlpack__")? => numpy(py)?.call_method1("from_dlpack", (value,))?.cast_into()?,
            Err(_) => numpy(py)?.call_method1("asarray", (value,))?.cast_into()?,
        };
        if matches!(array.dtype().kind(), b'U' | b'S' | b'O') {
            return Ok(Input::Strings(strings(name, &array)?));
        }
        let array = match array.is_c_contiguous() && array.dtype().is_native_byteorder() != Some(false) {
            true => array,
            false => {
                let native = array.dtype().call_method1("newbyteorder", ("=",))?;
                numpy(py)?.call_method1("ascontiguousarray", (array, native))?.cast_into()?
            }
        };
        let dtype = dtype_of(&array)?;
        Ok(Input::Array(array, dtype.ok_or_else(|| wrong(format!("the input `{name}` has no type of tensors")))?))
    }

    /// The array of the host from which the input is read; `None` for strings.
    pub fn array(&self) -> Option<&Bound<'py, PyUntypedArray>> {
        match self {
            Input::Array(array, _) => Some(array),
            Input::Strings(_) | Input::OnGpu(_) => None,
        }
    }

    pub fn view(&self) -> PyResult<TensorView<'_>> {
        match self {
            Input::Strings(tensor) => Ok(tensor.into()),
            Input::OnGpu(_) => {
                Err(wrong("an array in the memory of a GPU is for `Session.run`, on a model on that GPU"))
            }
            Input::Array(array, dtype) => {
                // SAFETY: a contiguous array has this many bytes, and lives as long as `self`. If its content is
                // modified during a call, the call reads old or new values.
                let data = unsafe { std::slice::from_raw_parts(start(array), bytes(array)) };
                TensorView::new(*dtype, array.shape(), data).map_err(raised)
            }
        }
    }
}

/// The address from which a call reads an input. Tests compare it.
#[pyfunction]
pub fn _input_address(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    Ok(Input::new("input", value)?.view()?.bytes().as_ptr().addr())
}

/// Address of an array's data; never null, even if the array is empty.
fn start(array: &Bound<'_, PyUntypedArray>) -> *mut u8 {
    // SAFETY: the array is alive.
    let data = unsafe { (*array.as_array_ptr()).fields.data }.cast::<u8>();
    if data.is_null() { std::ptr::NonNull::dangling().as_ptr() } else { data }
}

fn bytes(array: &Bound<'_, PyUntypedArray>) -> usize {
    array.len() * array.dtype().itemsize()
}

fn strings(name: &str, array: &Bound<'_, PyUntypedArray>) -> PyResult<Tensor> {
    let flat: Vec<Bound<'_, PyAny>> = array.call_method0("ravel")?.call_method0("tolist")?.extract()?;
    let text = |item: &Bound<'_, PyAny>| match item.extract::<String>() {
        Ok(text) => Ok(text),
        Err(_) => Ok(String::from_utf8_lossy(&item.extract::<Vec<u8>>()?).into_owned()),
    };
    let texts = flat.iter().map(text).collect::<PyResult<Vec<String>>>();
    let texts = texts.map_err(|_| wrong(format!("the input `{name}` holds objects that are no strings")))?;
    Ok(Tensor::from_strings(array.shape().to_vec(), &texts))
}

/// Returns the type of this kind and size in NumPy, such as `f4`.
pub fn dtype_named(numpy: &str) -> Option<DType> {
    TYPES.iter().find(|(_, known, other)| other.is_none() && *known == numpy).map(|(dtype, ..)| *dtype)
}

fn dtype_of(array: &Bound<'_, PyUntypedArray>) -> PyResult<Option<DType>> {
    let dtype = array.dtype();
    if let Some(found) = dtype_named(&format!("{}{}", char::from(dtype.kind()), dtype.itemsize())) {
        return Ok(Some(found));
    }
    let name: String = dtype.getattr("name")?.extract()?;
    Ok(TYPES.iter().find(|(.., other)| *other == Some(name.as_str())).map(|(found, ..)| *found))
}

/// Wraps an array of the caller to which an output is written.
pub fn buffer<'a>(name: &str, array: &'a Bound<'_, PyUntypedArray>) -> PyResult<TensorBuffer<'a>> {
    let dtype = dtype_of(array)?.ok_or_else(|| wrong(format!("the array for `{name}` has no type of tensors")))?;
    // SAFETY: the array is alive.
    let flags = unsafe { (*array.as_array_ptr()).fields.flags };
    if !array.is_c_contiguous()
        || flags & NPY_ARRAY_WRITEABLE == 0
        || array.dtype().is_native_byteorder() == Some(false)
    {
        return Err(wrong(format!(
            "the array for `{name}` must be contiguous, writeable and of the native byte order"
        )));
    }
    // SAFETY: a contiguous array has this many bytes and lives for `'a`; the caller must not access it during the call,
    // as for any NumPy function with `out`.
    Ok(TensorBuffer::new(dtype, unsafe { std::slice::from_raw_parts_mut(start(array), bytes(array)) }))
}

/// The memory of an output, shared with the arrays created over it.
#[pyclass(frozen, module = "sardonyx._native", name = "_Owner")]
pub struct Owner {
    tensor: Tensor,
    typestr: &'static str,
}

#[pymethods]
impl Owner {
    /// NumPy's protocol for arrays over foreign memory.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", self.typestr)?;
        interface.set_item("shape", PyTuple::new(py, self.tensor.dims())?)?;
        // The memory is writeable (`False` for read-only), because an output's memory has no other owner.
        interface.set_item("data", (self.tensor.bytes().as_ptr().addr(), false))?;
        Ok(interface)
    }
}

/// Creates an array over the memory of an output. Strings are copied.
pub fn array<'py>(py: Python<'py>, tensor: Tensor) -> PyResult<Bound<'py, PyAny>> {
    let dtype = tensor.dtype();
    if dtype.is_opaque() {
        let texts = tensor.texts().map_err(raised)?;
        let array = numpy(py)?.call_method1("array", (texts, "O"))?;
        return array.call_method1("reshape", (PyTuple::new(py, tensor.dims())?,));
    }
    let row = TYPES.iter().find(|(known, ..)| *known == dtype);
    let (_, typestr, other) = row.ok_or_else(|| wrong(format!("an output of type {dtype} has no array")))?;
    let array = numpy(py)?.call_method1("asarray", (Owner { tensor, typestr },))?;
    match other.and_then(|name| py.import("ml_dtypes").and_then(|module| module.getattr(name)).ok()) {
        Some(dtype) => array.call_method1("view", (dtype,)),
        None => Ok(array),
    }
}
