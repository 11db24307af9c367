//! MLIR's contexts, attributes and types: text, numbers, tensors and dimensions  <=>  attributes and types

#![expect(clippy::undocumented_unsafe_blocks, reason = "the parent module's documentation has the argument")]

use super::{Handle, copied, printed, string_ref};
use mlir_sys::*;
use sardonyx_base::{DType, Dim, Error, Result, Tensor, packed};
use std::marker::PhantomData;

/// A context with the dialects of all levels loaded.
pub type Context<'c> = Handle<'c, MlirContext>;
/// An attribute, which the context owns.
pub type Attr<'c> = Handle<'c, MlirAttribute>;
/// A type, which the context owns.
pub type Type<'c> = Handle<'c, MlirType>;

unsafe extern "C" {
    fn sardonyxTensorGet(dims: MlirAttribute, elem: MlirType) -> MlirType;
    fn sardonyxContainerGet(dims: MlirAttribute, elem: MlirType, layout: MlirStringRef) -> MlirType;
    fn sardonyxTypeIsTensor(t: MlirType) -> bool;
    fn sardonyxTypeIsContainer(t: MlirType) -> bool;
    fn sardonyxTypeDims(t: MlirType) -> MlirAttribute;
    fn sardonyxTypeElem(t: MlirType) -> MlirType;
    fn sardonyxContainerLayout(t: MlirType) -> MlirStringRef;
}

/// Element types in MLIR's spelling. Signless integers represent ONNX's signed ones.
static ELEMENTS: &[(DType, &str)] = &[
    (DType::F32, "f32"),
    (DType::U8, "ui8"),
    (DType::I8, "i8"),
    (DType::U16, "ui16"),
    (DType::I16, "i16"),
    (DType::I32, "i32"),
    (DType::I64, "i64"),
    (DType::String, "!sdx.string"),
    (DType::Bool, "i1"),
    (DType::F16, "f16"),
    (DType::F64, "f64"),
    (DType::U32, "ui32"),
    (DType::U64, "ui64"),
    (DType::C64, "complex<f32>"),
    (DType::C128, "complex<f64>"),
    (DType::BF16, "bf16"),
    (DType::F8E4M3FN, "f8E4M3FN"),
    (DType::F8E4M3FNUZ, "f8E4M3FNUZ"),
    (DType::F8E5M2, "f8E5M2"),
    (DType::F8E5M2FNUZ, "f8E5M2FNUZ"),
    (DType::U4, "ui4"),
    (DType::I4, "i4"),
    (DType::F4E2M1, "f4E2M1FN"),
    (DType::F8E8M0, "f8E8M0FNU"),
    (DType::U2, "ui2"),
    (DType::I2, "i2"),
    (DType::Value, "!sdx.value"),
];

impl<'c> Context<'c> {
    /// Borrows a context.
    pub fn new(context: &'c melior::Context) -> Context<'c> {
        Handle { raw: context.to_raw(), owner: PhantomData }
    }

    /// Panics if an object is of another context, which may not live as long as this one.
    pub(super) fn check(self, other: MlirContext) {
        assert!(self.raw.ptr == other.ptr, "an object of another MLIR context");
    }

    /// A string attribute.
    pub fn str(self, s: &str) -> Attr<'c> {
        self.wrap(unsafe { mlirStringAttrGet(self.raw, string_ref(s)) })
    }

    /// The unit attribute, which has no value: only its presence matters.
    pub fn unit(self) -> Attr<'c> {
        self.wrap(unsafe { mlirUnitAttrGet(self.raw) })
    }

    /// An integer attribute of type `i64`.
    pub fn i64(self, v: i64) -> Attr<'c> {
        self.wrap(unsafe { mlirIntegerAttrGet(self.element(DType::I64).raw, v) })
    }

    /// A float attribute of type `f32`.
    pub fn f32(self, v: f32) -> Attr<'c> {
        self.wrap(unsafe { mlirFloatAttrDoubleGet(self.raw, self.element(DType::F32).raw, v as f64) })
    }

    /// A float attribute of type `f64`.
    pub fn f64(self, v: f64) -> Attr<'c> {
        self.wrap(unsafe { mlirFloatAttrDoubleGet(self.raw, self.element(DType::F64).raw, v) })
    }

    /// An array attribute.
    pub fn array(self, items: &[Attr]) -> Attr<'c> {
        items.iter().for_each(|a| self.check(unsafe { mlirAttributeGetContext(a.raw) }));
        let raw: Vec<MlirAttribute> = items.iter().map(|a| a.raw).collect();
        self.wrap(unsafe { mlirArrayAttrGet(self.raw, raw.len() as isize, raw.as_ptr()) })
    }

    /// An array of strings, each the text of an item.
    pub fn strs<S: ToString>(self, items: &[S]) -> Attr<'c> {
        self.array(&items.iter().map(|s| self.str(&s.to_string())).collect::<Vec<_>>())
    }

    /// A dense array of `i64`.
    pub fn i64s(self, items: &[i64]) -> Attr<'c> {
        self.wrap(unsafe { mlirDenseI64ArrayGet(self.raw, items.len() as isize, items.as_ptr()) })
    }

    /// A reference to the operation with this symbol name.
    pub fn symbol(self, name: &str) -> Attr<'c> {
        self.wrap(unsafe { mlirFlatSymbolRefAttrGet(self.raw, string_ref(name)) })
    }

    /// An attribute that holds a type.
    pub fn type_attr(self, t: Type) -> Attr<'c> {
        self.wrap(unsafe { mlirTypeAttrGet(t.raw) })
    }

    /// A dictionary attribute.
    pub fn dict(self, entries: &[(String, Attr)]) -> Attr<'c> {
        let raw: Vec<MlirNamedAttribute> = entries.iter().map(|(n, a)| self.named(n, *a)).collect();
        self.wrap(unsafe { mlirDictionaryAttrGet(self.raw, raw.len() as isize, raw.as_ptr()) })
    }

    pub(super) fn named(self, name: &str, attr: Attr) -> MlirNamedAttribute {
        self.check(unsafe { mlirAttributeGetContext(attr.raw) });
        unsafe { mlirNamedAttributeGet(mlirIdentifierGet(self.raw, string_ref(name)), attr.raw) }
    }

    /// An elements attribute; opaque values are stored as their bytes, which [`Attr::as_constant`] reads back.
    pub fn dense(self, t: &Tensor) -> Result<Attr<'c>> {
        if t.dtype().is_opaque() {
            return self.dense(&Tensor::from_vec(vec![t.bytes().len()], t.bytes().to_vec()));
        }
        let shape: Vec<i64> = t.dims().iter().map(|&d| d as i64).collect();
        let elem = self.element(t.dtype());
        let shaped =
            unsafe { mlirRankedTensorTypeGet(shape.len() as isize, shape.as_ptr(), elem.raw, mlirAttributeGetNull()) };
        if t.dtype() == DType::Bool {
            let values: Vec<i32> = t.bytes().iter().map(|b| (*b != 0) as i32).collect();
            return Ok(
                self.wrap(unsafe { mlirDenseElementsAttrBoolGet(shaped, values.len() as isize, values.as_ptr()) })
            );
        }
        // MLIR requires the buffer to be aligned for the element, and the bits above those of an element to be 0.
        let aligned: Vec<u64> = match t.dtype().bits() {
            bits @ ..8 => aligned_copy(&t.bytes().iter().map(|b| b & ((1 << bits) - 1)).collect::<Vec<u8>>()),
            _ => aligned_copy(t.bytes()),
        };
        let raw = unsafe { mlirDenseElementsAttrRawBufferGet(shaped, t.bytes().len(), aligned.as_ptr().cast()) };
        match raw.ptr.is_null() {
            true => Err(Error::defect(format!("{t:?} makes no elements attribute"))),
            false => Ok(self.wrap(raw)),
        }
    }

    /// Returns the MLIR type that represents an element type in containers and statements.
    pub fn element(self, t: DType) -> Type<'c> {
        let (_, name) = ELEMENTS[t as usize];
        let width = |prefix: &str| name.strip_prefix(prefix).and_then(|digits| digits.parse().ok());
        // The common types avoid the parser, because this is called for each statement.
        match (t, width("i"), width("ui")) {
            (DType::F32, ..) => self.wrap(unsafe { mlirF32TypeGet(self.raw) }),
            (_, Some(bits), _) => self.wrap(unsafe { mlirIntegerTypeGet(self.raw, bits) }),
            (_, _, Some(bits)) => self.wrap(unsafe { mlirIntegerTypeUnsignedGet(self.raw, bits) }),
            _ => self.parse_type(name),
        }
    }

    /// Parses a type. Panics if the text is not a type, or if its dialect is not loaded.
    pub fn parse_type(self, text: &str) -> Type<'c> {
        let raw = unsafe { mlirTypeParseGet(self.raw, string_ref(text)) };
        assert!(!raw.ptr.is_null(), "`{text}` is no type");
        self.wrap(raw)
    }

    /// An `!sdx.tensor`.
    pub fn tensor(self, dtype: DType, dims: &[Dim]) -> Type<'c> {
        self.wrap(unsafe { sardonyxTensorGet(self.strs(dims).raw, self.element(dtype).raw) })
    }

    /// A `!flow.container` with the layout that the text `layout` describes.
    pub fn container(self, dtype: DType, dims: &[Dim], layout: &str) -> Type<'c> {
        self.wrap(unsafe { sardonyxContainerGet(self.strs(dims).raw, self.element(dtype).raw, string_ref(layout)) })
    }

    /// A function type.
    pub fn function_type(self, inputs: &[Type], results: &[Type]) -> Type<'c> {
        let raw = |v: &[Type]| v.iter().map(|t| t.raw).collect::<Vec<_>>();
        let (i, r) = (raw(inputs), raw(results));
        self.wrap(unsafe { mlirFunctionTypeGet(self.raw, i.len() as isize, i.as_ptr(), r.len() as isize, r.as_ptr()) })
    }
}

fn aligned_copy(bytes: &[u8]) -> Vec<u64> {
    let mut out = vec![0u64; bytes.len().div_ceil(8)];
    for (word, chunk) in out.iter_mut().zip(bytes.chunks(8)) {
        let mut raw = [0; 8];
        raw[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_le_bytes(raw);
    }
    out
}

impl<'c> Attr<'c> {
    fn when<T>(self, is: unsafe extern "C" fn(MlirAttribute) -> bool, get: impl Fn(MlirAttribute) -> T) -> Option<T> {
        unsafe { is(self.raw) }.then(|| get(self.raw))
    }

    /// Returns the string, or `None` if the attribute is not a string; the readers below do likewise.
    pub fn as_str(self) -> Option<String> {
        self.when(mlirAttributeIsAString, |a| unsafe { copied(mlirStringAttrGetValue(a)) })
    }

    /// The symbol name of a flat reference.
    pub fn as_symbol(self) -> Option<String> {
        self.when(mlirAttributeIsAFlatSymbolRef, |a| unsafe { copied(mlirFlatSymbolRefAttrGetValue(a)) })
    }

    /// The value of an integer attribute.
    pub fn as_i64(self) -> Option<i64> {
        self.when(mlirAttributeIsAInteger, |a| unsafe { mlirIntegerAttrGetValueInt(a) })
    }

    /// The value of a float attribute.
    pub fn as_f64(self) -> Option<f64> {
        self.when(mlirAttributeIsAFloat, |a| unsafe { mlirFloatAttrGetValueDouble(a) })
    }

    /// The type that a type attribute holds.
    pub fn as_type(self) -> Option<Type<'c>> {
        self.when(mlirAttributeIsAType, |a| self.wrap(unsafe { mlirTypeAttrGetValue(a) }))
    }

    /// The items of an array attribute.
    pub fn as_array(self) -> Option<Vec<Attr<'c>>> {
        self.when(mlirAttributeIsAArray, |a| unsafe {
            (0..mlirArrayAttrGetNumElements(a)).map(|i| self.wrap(mlirArrayAttrGetElement(a, i))).collect()
        })
    }

    /// The strings of an array of strings.
    pub fn as_strs(self) -> Option<Vec<String>> {
        self.as_array()?.into_iter().map(Attr::as_str).collect()
    }

    /// The items of a dense array of `i64`.
    pub fn as_i64s(self) -> Option<Vec<i64>> {
        self.when(mlirAttributeIsADenseI64Array, |a| unsafe {
            (0..mlirDenseArrayGetNumElements(a)).map(|i| mlirDenseI64ArrayGetElement(a, i)).collect()
        })
    }

    /// The entries of a dictionary, sorted by name.
    pub fn as_dict(self) -> Option<Vec<(String, Attr<'c>)>> {
        self.when(mlirAttributeIsADictionary, |a| unsafe {
            let entry = |i| {
                let named = mlirDictionaryAttrGetElement(a, i);
                (copied(mlirIdentifierStr(named.name)), self.wrap(named.attribute))
            };
            (0..mlirDictionaryAttrGetNumElements(a)).map(entry).collect()
        })
    }

    /// Reads a constant of a known type, as written by [`Context::dense`].
    pub fn as_constant(self, dtype: DType, dims: &[Dim]) -> Option<Tensor> {
        let stored = self.as_dense()?;
        if !dtype.is_opaque() {
            return Some(stored);
        }
        let dims = dims.iter().map(|d| usize::try_from(d.as_const()?).ok()).collect::<Option<Vec<usize>>>()?;
        Tensor::new(dtype, dims, stored.bytes().clone()).ok()
    }

    /// The elements of an elements attribute; a splat is repeated.
    pub fn as_dense(self) -> Option<Tensor> {
        let (dtype, dims, count) = self.when(mlirAttributeIsADenseElements, |a| unsafe {
            let shaped = mlirAttributeGetType(a);
            let dims: Vec<usize> = (0..mlirShapedTypeGetRank(shaped))
                .map(|i| mlirShapedTypeGetDimSize(shaped, i as isize) as usize)
                .collect();
            (
                self.wrap(mlirShapedTypeGetElementType(shaped)).as_element(),
                dims,
                mlirElementsAttrGetNumElements(a) as usize,
            )
        })?;
        let dtype = dtype?;
        let splat = unsafe { mlirDenseElementsAttrIsSplat(self.raw) };
        let bytes: Vec<u8> = if dtype == DType::Bool {
            let at = |i: usize| match splat {
                true => unsafe { mlirDenseElementsAttrGetBoolSplatValue(self.raw) as u8 },
                false => unsafe { mlirDenseElementsAttrGetBoolValue(self.raw, i as isize) as u8 },
            };
            (0..count).map(at).collect()
        } else {
            let width = dtype.bytes();
            let stored = if splat { 1 } else { count };
            let data = unsafe { mlirDenseElementsAttrGetRawData(self.raw) }.cast::<u8>();
            let raw = if stored == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data, stored * width) } };
            if splat { raw.repeat(count) } else { raw.to_vec() }
        };
        Tensor::new(dtype, dims, packed::normalise(dtype, bytes.into())).ok()
    }
}

impl std::fmt::Display for Attr<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&printed(|write, to| unsafe { mlirAttributePrint(self.raw, Some(write), to) }))
    }
}

impl<'c> Type<'c> {
    /// Prints the type in MLIR's syntax.
    pub fn text(self) -> String {
        printed(|write, to| unsafe { mlirTypePrint(self.raw, Some(write), to) })
    }

    /// The element type that this type represents.
    pub fn as_element(self) -> Option<DType> {
        // The common types avoid the printer, because this is called for each statement.
        let text = match unsafe { (mlirTypeIsAF32(self.raw), mlirTypeIsAInteger(self.raw)) } {
            (true, _) => return Some(DType::F32),
            (_, true) => self.integer_text(),
            (false, false) => self.text(),
        };
        ELEMENTS.iter().find(|(_, name)| *name == text).map(|(t, _)| *t)
    }

    fn integer_text(self) -> String {
        let sign = match unsafe { (mlirIntegerTypeIsSignless(self.raw), mlirIntegerTypeIsUnsigned(self.raw)) } {
            (true, _) => "",
            (_, true) => "u",
            (false, false) => "s",
        };
        format!("{sign}i{}", unsafe { mlirIntegerTypeGetWidth(self.raw) })
    }

    /// Dimensions and element type of an `!sdx.tensor` or a `!flow.container`.
    pub fn as_shaped(self) -> Option<(Vec<Dim>, DType)> {
        if !unsafe { sardonyxTypeIsTensor(self.raw) || sardonyxTypeIsContainer(self.raw) } {
            return None;
        }
        let dims = self.wrap(unsafe { sardonyxTypeDims(self.raw) }).as_strs()?;
        let dims = dims.iter().map(|d| Dim::parse(d).ok()).collect::<Option<_>>()?;
        Some((dims, self.wrap(unsafe { sardonyxTypeElem(self.raw) }).as_element()?))
    }

    /// The layout text of a `!flow.container`.
    pub fn container_layout(self) -> Option<String> {
        unsafe { sardonyxTypeIsContainer(self.raw).then(|| copied(sardonyxContainerLayout(self.raw))) }
    }
}
