//! Thin handles over MLIR's C API, with the reading and building functions that the levels need
//!
//! Handles are plain copies of MLIR's pointers and live as long as the context and module that they came from; code
//! that keeps one longer is wrong, as in C++. Therefore `unsafe` is confined to this file and `hooks.rs` in this crate.

use mlir_sys::*;
use sardonyx_base::{DType, Dim, Error, Result, Tensor, packed};
use std::ffi::c_void;

#[derive(Clone, Copy)]
pub struct Context(pub MlirContext);
#[derive(Clone, Copy)]
pub struct Attr(pub MlirAttribute);
#[derive(Clone, Copy)]
pub struct Type(pub MlirType);
#[derive(Clone, Copy)]
pub struct Operation(pub MlirOperation);
#[derive(Clone, Copy)]
pub struct Block(pub MlirBlock);
#[derive(Clone, Copy)]
pub struct Val(pub MlirValue);

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

fn string_ref(s: &str) -> MlirStringRef {
    MlirStringRef { data: s.as_ptr().cast(), length: s.len() }
}

pub(crate) fn owned(s: MlirStringRef) -> String {
    // MLIR strings are bytes: names from a model are UTF-8, anything else is converted lossily. The data pointer of an
    // empty string may be null, which is invalid for a slice.
    let bytes = if s.length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(s.data.cast::<u8>(), s.length) } };
    String::from_utf8_lossy(bytes).into_owned()
}

unsafe extern "C" fn append(text: MlirStringRef, to: *mut c_void) {
    unsafe { &mut *to.cast::<String>() }.push_str(&owned(text));
}

impl Context {
    pub fn str(self, s: &str) -> Attr {
        Attr(unsafe { mlirStringAttrGet(self.0, string_ref(s)) })
    }

    pub fn unit(self) -> Attr {
        Attr(unsafe { mlirUnitAttrGet(self.0) })
    }

    pub fn i64(self, v: i64) -> Attr {
        Attr(unsafe { mlirIntegerAttrGet(self.element(DType::I64).0, v) })
    }

    pub fn f32(self, v: f32) -> Attr {
        Attr(unsafe { mlirFloatAttrDoubleGet(self.0, self.element(DType::F32).0, v as f64) })
    }

    pub fn f64(self, v: f64) -> Attr {
        Attr(unsafe { mlirFloatAttrDoubleGet(self.0, self.element(DType::F64).0, v) })
    }

    pub fn array(self, items: &[Attr]) -> Attr {
        let raw: Vec<MlirAttribute> = items.iter().map(|a| a.0).collect();
        Attr(unsafe { mlirArrayAttrGet(self.0, raw.len() as isize, raw.as_ptr()) })
    }

    pub fn strs<S: ToString>(self, items: &[S]) -> Attr {
        self.array(&items.iter().map(|s| self.str(&s.to_string())).collect::<Vec<_>>())
    }

    pub fn i64s(self, items: &[i64]) -> Attr {
        Attr(unsafe { mlirDenseI64ArrayGet(self.0, items.len() as isize, items.as_ptr()) })
    }

    pub fn symbol(self, name: &str) -> Attr {
        Attr(unsafe { mlirFlatSymbolRefAttrGet(self.0, string_ref(name)) })
    }

    pub fn type_attr(self, t: Type) -> Attr {
        Attr(unsafe { mlirTypeAttrGet(t.0) })
    }

    pub fn dict(self, entries: &[(String, Attr)]) -> Attr {
        let raw: Vec<MlirNamedAttribute> = entries.iter().map(|(n, a)| self.named(n, *a)).collect();
        Attr(unsafe { mlirDictionaryAttrGet(self.0, raw.len() as isize, raw.as_ptr()) })
    }

    fn named(self, name: &str, attr: Attr) -> MlirNamedAttribute {
        unsafe { mlirNamedAttributeGet(mlirIdentifierGet(self.0, string_ref(name)), attr.0) }
    }

    /// An elements attribute; strings and values are stored as their bytes, which [`Attr::as_constant`] reads back.
    pub fn dense(self, t: &Tensor) -> Result<Attr> {
        if t.dtype().is_opaque() {
            return self.dense(&Tensor::from_vec(vec![t.bytes().len()], t.bytes().to_vec()));
        }
        let shape: Vec<i64> = t.dims().iter().map(|&d| d as i64).collect();
        let elem = self.element(t.dtype());
        let shaped =
            unsafe { mlirRankedTensorTypeGet(shape.len() as isize, shape.as_ptr(), elem.0, mlirAttributeGetNull()) };
        if t.dtype() == DType::Bool {
            let values: Vec<i32> = t.bytes().iter().map(|b| (*b != 0) as i32).collect();
            return Ok(Attr(unsafe { mlirDenseElementsAttrBoolGet(shaped, values.len() as isize, values.as_ptr()) }));
        }
        // MLIR requires the buffer to be aligned for the element, and the bits above those of an element to be 0.
        let aligned: Vec<u64> = match t.dtype().bits() {
            bits @ ..8 => aligned_copy(&t.bytes().iter().map(|b| b & ((1 << bits) - 1)).collect::<Vec<u8>>()),
            _ => aligned_copy(t.bytes()),
        };
        let raw = unsafe { mlirDenseElementsAttrRawBufferGet(shaped, t.bytes().len(), aligned.as_ptr().cast()) };
        match raw.ptr.is_null() {
            true => Err(Error::defect(format!("{t:?} makes no elements attribute"))),
            false => Ok(Attr(raw)),
        }
    }

    pub fn element(self, t: DType) -> Type {
        let (_, name) = ELEMENTS[t as usize];
        let width = |prefix: &str| name.strip_prefix(prefix).and_then(|digits| digits.parse().ok());
        // The common types avoid the parser, because this is called for each statement.
        match (t, width("i"), width("ui")) {
            (DType::F32, ..) => Type(unsafe { mlirF32TypeGet(self.0) }),
            (_, Some(bits), _) => Type(unsafe { mlirIntegerTypeGet(self.0, bits) }),
            (_, _, Some(bits)) => Type(unsafe { mlirIntegerTypeUnsignedGet(self.0, bits) }),
            _ => self.parse_type(name),
        }
    }

    pub fn parse_type(self, text: &str) -> Type {
        Type(unsafe { mlirTypeParseGet(self.0, string_ref(text)) })
    }

    pub fn tensor(self, dtype: DType, dims: &[Dim]) -> Type {
        Type(unsafe { sardonyxTensorGet(self.strs(dims).0, self.element(dtype).0) })
    }

    pub fn container(self, dtype: DType, dims: &[Dim], layout: &str) -> Type {
        Type(unsafe { sardonyxContainerGet(self.strs(dims).0, self.element(dtype).0, string_ref(layout)) })
    }

    pub fn function_type(self, inputs: &[Type], results: &[Type]) -> Type {
        let raw = |v: &[Type]| v.iter().map(|t| t.0).collect::<Vec<_>>();
        let (i, r) = (raw(inputs), raw(results));
        Type(unsafe { mlirFunctionTypeGet(self.0, i.len() as isize, i.as_ptr(), r.len() as isize, r.as_ptr()) })
    }

    /// A location that names ONNX nodes.
    fn location(self, origins: &[String]) -> MlirLocation {
        let unknown = unsafe { mlirLocationUnknownGet(self.0) };
        let named = |n: &String| unsafe { mlirLocationNameGet(self.0, string_ref(n), unknown) };
        match origins {
            [] => unknown,
            [one] => named(one),
            many => {
                let all: Vec<MlirLocation> = many.iter().map(named).collect();
                unsafe { mlirLocationFusedGet(self.0, all.len() as isize, all.as_ptr(), mlirAttributeGetNull()) }
            }
        }
    }

    /// Creates a detached operation; `regions` has one block per region. An error is a defect of the caller.
    pub fn build(self, parts: Parts<'_>) -> Result<Operation> {
        let operands: Vec<MlirValue> = parts.operands.iter().map(|v| v.0).collect();
        let results: Vec<MlirType> = parts.results.iter().map(|t| t.0).collect();
        let attrs: Vec<MlirNamedAttribute> = parts.attrs.iter().map(|(n, a)| self.named(n, *a)).collect();
        let op = unsafe {
            let mut state = mlirOperationStateGet(string_ref(parts.name), self.location(parts.origins));
            mlirOperationStateAddOperands(&mut state, operands.len() as isize, operands.as_ptr());
            mlirOperationStateAddResults(&mut state, results.len() as isize, results.as_ptr());
            mlirOperationStateAddAttributes(&mut state, attrs.len() as isize, attrs.as_ptr());
            let regions: Vec<MlirRegion> = (parts.regions.iter())
                .map(|block| {
                    let region = mlirRegionCreate();
                    mlirRegionAppendOwnedBlock(region, block.0);
                    region
                })
                .collect();
            mlirOperationStateAddOwnedRegions(&mut state, regions.len() as isize, regions.as_ptr());
            mlirOperationCreate(&mut state)
        };
        match op.ptr.is_null() {
            true => Err(Error::defect(format!("`{}` cannot be created", parts.name))),
            false => Ok(Operation(op)),
        }
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

/// The components of an operation to be built.
#[derive(Default)]
pub struct Parts<'a> {
    pub name: &'a str,
    pub operands: &'a [Val],
    pub results: &'a [Type],
    pub attrs: &'a [(&'a str, Attr)],
    pub regions: &'a [Block],
    pub origins: &'a [String],
}

impl Attr {
    fn when<T>(self, is: unsafe extern "C" fn(MlirAttribute) -> bool, get: impl Fn(MlirAttribute) -> T) -> Option<T> {
        (!self.0.ptr.is_null() && unsafe { is(self.0) }).then(|| get(self.0))
    }

    pub fn as_str(self) -> Option<String> {
        self.when(mlirAttributeIsAString, |a| owned(unsafe { mlirStringAttrGetValue(a) }))
    }

    pub fn as_symbol(self) -> Option<String> {
        self.when(mlirAttributeIsAFlatSymbolRef, |a| owned(unsafe { mlirFlatSymbolRefAttrGetValue(a) }))
    }

    pub fn as_i64(self) -> Option<i64> {
        self.when(mlirAttributeIsAInteger, |a| unsafe { mlirIntegerAttrGetValueInt(a) })
    }

    pub fn as_f64(self) -> Option<f64> {
        self.when(mlirAttributeIsAFloat, |a| unsafe { mlirFloatAttrGetValueDouble(a) })
    }

    pub fn as_type(self) -> Option<Type> {
        self.when(mlirAttributeIsAType, |a| Type(unsafe { mlirTypeAttrGetValue(a) }))
    }

    pub fn as_array(self) -> Option<Vec<Attr>> {
        self.when(mlirAttributeIsAArray, |a| unsafe {
            (0..mlirArrayAttrGetNumElements(a)).map(|i| Attr(mlirArrayAttrGetElement(a, i))).collect()
        })
    }

    pub fn as_strs(self) -> Option<Vec<String>> {
        self.as_array()?.into_iter().map(Attr::as_str).collect()
    }

    pub fn as_i64s(self) -> Option<Vec<i64>> {
        self.when(mlirAttributeIsADenseI64Array, |a| unsafe {
            (0..mlirDenseArrayGetNumElements(a)).map(|i| mlirDenseI64ArrayGetElement(a, i)).collect()
        })
    }

    pub fn as_dict(self) -> Option<Vec<(String, Attr)>> {
        self.when(mlirAttributeIsADictionary, |a| unsafe {
            let entry = |i| {
                let named = mlirDictionaryAttrGetElement(a, i);
                (owned(mlirIdentifierStr(named.name)), Attr(named.attribute))
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

    pub fn as_dense(self) -> Option<Tensor> {
        let (dtype, dims, count) = self.when(mlirAttributeIsADenseElements, |a| unsafe {
            let shaped = mlirAttributeGetType(a);
            let dims: Vec<usize> = (0..mlirShapedTypeGetRank(shaped))
                .map(|i| mlirShapedTypeGetDimSize(shaped, i as isize) as usize)
                .collect();
            (Type(mlirShapedTypeGetElementType(shaped)).as_element(), dims, mlirElementsAttrGetNumElements(a) as usize)
        })?;
        let dtype = dtype?;
        let splat = unsafe { mlirDenseElementsAttrIsSplat(self.0) };
        let bytes: Vec<u8> = if dtype == DType::Bool {
            let at = |i: usize| match splat {
                true => unsafe { mlirDenseElementsAttrGetBoolSplatValue(self.0) as u8 },
                false => unsafe { mlirDenseElementsAttrGetBoolValue(self.0, i as isize) as u8 },
            };
            (0..count).map(at).collect()
        } else {
            let width = dtype.bytes();
            let stored = if splat { 1 } else { count };
            let data = unsafe { mlirDenseElementsAttrGetRawData(self.0) }.cast::<u8>();
            let raw = if stored == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data, stored * width) } };
            if splat { raw.repeat(count) } else { raw.to_vec() }
        };
        Tensor::new(dtype, dims, packed::normalise(dtype, bytes.into())).ok()
    }
}

impl std::fmt::Display for Attr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        unsafe { mlirAttributePrint(self.0, Some(append), (&raw mut text).cast()) };
        f.write_str(&text)
    }
}

impl Type {
    pub fn text(self) -> String {
        let mut text = String::new();
        unsafe { mlirTypePrint(self.0, Some(append), (&raw mut text).cast()) };
        text
    }

    pub fn as_element(self) -> Option<DType> {
        // The common types avoid the printer, because this is called for each statement.
        let text = match unsafe { (mlirTypeIsAF32(self.0), mlirTypeIsAInteger(self.0)) } {
            (true, _) => return Some(DType::F32),
            (_, true) => self.integer_text(),
            (false, false) => self.text(),
        };
        ELEMENTS.iter().find(|(_, name)| *name == text).map(|(t, _)| *t)
    }

    fn integer_text(self) -> String {
        let sign = match unsafe { (mlirIntegerTypeIsSignless(self.0), mlirIntegerTypeIsUnsigned(self.0)) } {
            (true, _) => "",
            (_, true) => "u",
            (false, false) => "s",
        };
        format!("{sign}i{}", unsafe { mlirIntegerTypeGetWidth(self.0) })
    }

    /// Dimensions and element type of an `!sdx.tensor` or a `!flow.container`.
    pub fn as_shaped(self) -> Option<(Vec<Dim>, DType)> {
        if !unsafe { sardonyxTypeIsTensor(self.0) || sardonyxTypeIsContainer(self.0) } {
            return None;
        }
        let dims = Attr(unsafe { sardonyxTypeDims(self.0) }).as_strs()?;
        let dims = dims.iter().map(|d| Dim::parse(d).ok()).collect::<Option<_>>()?;
        Some((dims, Type(unsafe { sardonyxTypeElem(self.0) }).as_element()?))
    }

    pub fn container_layout(self) -> Option<String> {
        unsafe { sardonyxTypeIsContainer(self.0).then(|| owned(sardonyxContainerLayout(self.0))) }
    }

    /// Input and result types of a function type.
    pub fn as_function(self) -> Option<(Vec<Type>, Vec<Type>)> {
        unsafe {
            mlirTypeIsAFunction(self.0).then(|| {
                let inputs =
                    (0..mlirFunctionTypeGetNumInputs(self.0)).map(|i| Type(mlirFunctionTypeGetInput(self.0, i)));
                let results =
                    (0..mlirFunctionTypeGetNumResults(self.0)).map(|i| Type(mlirFunctionTypeGetResult(self.0, i)));
                (inputs.collect(), results.collect())
            })
        }
    }
}

impl Val {
    pub fn ty(self) -> Type {
        Type(unsafe { mlirValueGetType(self.0) })
    }

    /// An identity for use as a map key.
    pub fn key(self) -> usize {
        self.0.ptr as usize
    }
}

impl Operation {
    /// Parses and verifies a detached operation; `None` if it is malformed (MLIR has then reported why).
    pub fn parse(cx: Context, text: &str) -> Option<Operation> {
        let raw = unsafe { mlirOperationCreateParse(cx.0, string_ref(text), string_ref("generated")) };
        (!raw.ptr.is_null()).then_some(Operation(raw))
    }

    pub fn name(self) -> String {
        owned(unsafe { mlirIdentifierStr(mlirOperationGetName(self.0)) })
    }

    pub fn context(self) -> Context {
        Context(unsafe { mlirOperationGetContext(self.0) })
    }

    pub fn attr(self, name: &str) -> Option<Attr> {
        let raw = unsafe { mlirOperationGetAttributeByName(self.0, string_ref(name)) };
        (!raw.ptr.is_null()).then_some(Attr(raw))
    }

    pub fn operands(self) -> Vec<Val> {
        unsafe { (0..mlirOperationGetNumOperands(self.0)).map(|i| Val(mlirOperationGetOperand(self.0, i))).collect() }
    }

    pub fn results(self) -> Vec<Val> {
        unsafe { (0..mlirOperationGetNumResults(self.0)).map(|i| Val(mlirOperationGetResult(self.0, i))).collect() }
    }

    /// The first block of region `i`.
    pub fn block(self, i: usize) -> Option<Block> {
        unsafe {
            if i as isize >= mlirOperationGetNumRegions(self.0) {
                return None;
            }
            let block = mlirRegionGetFirstBlock(mlirOperationGetRegion(self.0, i as isize));
            (!block.ptr.is_null()).then_some(Block(block))
        }
    }

    /// Names of the ONNX nodes in its location.
    pub fn origins(self) -> Vec<String> {
        fn collect(at: MlirLocation, out: &mut Vec<String>) {
            unsafe {
                if mlirLocationIsAName(at) {
                    let name = owned(mlirIdentifierStr(mlirLocationNameGetName(at)));
                    if !out.contains(&name) {
                        out.push(name);
                    }
                } else if mlirLocationIsAFused(at) {
                    let n = mlirLocationFusedGetNumLocations(at) as usize;
                    let mut all = vec![at; n];
                    mlirLocationFusedGetLocations(at, all.as_mut_ptr());
                    all.into_iter().for_each(|l| collect(l, out));
                }
            }
        }
        let mut out = vec![];
        collect(unsafe { mlirOperationGetLocation(self.0) }, &mut out);
        out
    }

    /// Reports an error at the operation's location to the context's diagnostic handlers.
    pub fn emit_error(self, message: &str) {
        let text = std::ffi::CString::new(message.replace('\0', " ")).unwrap_or_default();
        unsafe { mlirEmitError(mlirOperationGetLocation(self.0), text.as_ptr()) }
    }

    pub fn erase(self) {
        unsafe { mlirOperationDestroy(self.0) }
    }

    pub fn detach(self) {
        unsafe { mlirOperationRemoveFromParent(self.0) }
    }

    pub fn set_attr(self, name: &str, attr: Attr) {
        unsafe { mlirOperationSetAttributeByName(self.0, string_ref(name), attr.0) }
    }

    pub fn verify(self) -> bool {
        unsafe { mlirOperationVerify(self.0) }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        unsafe { mlirOperationPrint(self.0, Some(append), (&raw mut text).cast()) };
        f.write_str(&text)
    }
}

impl Block {
    /// A detached block with arguments.
    pub fn new(cx: Context, arguments: &[Type]) -> Block {
        let types: Vec<MlirType> = arguments.iter().map(|t| t.0).collect();
        let unknown = vec![unsafe { mlirLocationUnknownGet(cx.0) }; types.len()];
        Block(unsafe { mlirBlockCreate(types.len() as isize, types.as_ptr(), unknown.as_ptr()) })
    }

    pub fn push(self, op: Operation) {
        unsafe { mlirBlockAppendOwnedOperation(self.0, op.0) }
    }

    pub fn insert_before(self, next: Operation, op: Operation) {
        unsafe { mlirBlockInsertOwnedOperationBefore(self.0, next.0, op.0) }
    }

    pub fn arguments(self) -> Vec<Val> {
        unsafe { (0..mlirBlockGetNumArguments(self.0)).map(|i| Val(mlirBlockGetArgument(self.0, i))).collect() }
    }

    pub fn operations(self) -> Vec<Operation> {
        let mut out = vec![];
        let mut at = unsafe { mlirBlockGetFirstOperation(self.0) };
        while !at.ptr.is_null() {
            out.push(Operation(at));
            at = unsafe { mlirOperationGetNextInBlock(at) };
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_string_comes_back() {
        let context = melior::Context::new();
        let cx = Context(context.to_raw());
        assert_eq!(cx.str("").as_str().as_deref(), Some(""));
        assert_eq!(owned(MlirStringRef { data: std::ptr::null(), length: 0 }), "");
    }
}
