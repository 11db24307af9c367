//! (convert(q) - zero) · scale  =>  q, zero, scale: recognises a value that is a dequantised byte

use crate::splice::from_data;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::{Body, Kernel, Level};
use sardonyx_dialects::scalar::{Conversion, ScalarFn};
use std::collections::BTreeSet;

/// A dequantised byte; the fields are numbers of statements of the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bytes {
    /// The i8 or u8 value.
    pub byte: usize,
    /// The i32 zero point, subtracted from the byte.
    pub zero: Option<usize>,
    /// The f32 scale, by which the difference is multiplied.
    pub scale: Option<usize>,
    /// The condition under which the byte is read; where it is false, the value is 0 (padding).
    pub guard: Option<usize>,
}

/// Recognises an i32 or f32 value that is a dequantised byte.
pub fn bytes(k: &Kernel, value: usize) -> Option<Bytes> {
    if let Body::Apply { f: ScalarFn::Select, args } = &k.body[value].body {
        let inside = bytes(k, args[1]).filter(|b| constant(k, args[2]) == Some(0.0) && b.guard.is_none())?;
        return Some(Bytes { guard: Some(args[0]), ..inside });
    }
    match k.body[value].dtype {
        DType::I32 => difference(k, value),
        DType::F32 => match &k.body[value].body {
            Body::Apply { f: ScalarFn::Mul, args } => {
                let with = |v: usize, scale: usize| Some(Bytes { scale: Some(scale), ..converted(k, v)? });
                with(args[0], args[1]).or_else(|| with(args[1], args[0]))
            }
            _ => converted(k, value),
        },
        _ => None,
    }
}

/// Recognises an f32 value converted from an integer.
fn converted(k: &Kernel, value: usize) -> Option<Bytes> {
    match k.body[value].body {
        Body::Convert(from, Conversion::Value) if k.body[from].dtype == DType::I32 => difference(k, from),
        Body::Convert(_, Conversion::Value) => widened(k, value),
        _ => None,
    }
}

fn difference(k: &Kernel, value: usize) -> Option<Bytes> {
    match &k.body[value].body {
        Body::Apply { f: ScalarFn::Sub, args } => Some(Bytes { zero: Some(args[1]), ..widened(k, args[0])? }),
        _ => widened(k, value),
    }
}

/// Recognises a byte that is only widened, without a zero point or a scale.
pub fn widened(k: &Kernel, value: usize) -> Option<Bytes> {
    match k.body[value].body {
        Body::Convert(byte, Conversion::Value) if matches!(k.body[byte].dtype, DType::I8 | DType::U8) => {
            Some(Bytes { byte, ..Bytes::default() })
        }
        _ => None,
    }
}

/// Returns the value of a constant statement.
pub fn constant(k: &Kernel, statement: usize) -> Option<f64> {
    match k.body[statement].body {
        Body::Const(v) => Some(v),
        _ => None,
    }
}

/// Whether a statement depends on reductions (or on data-dependent indices) but has one value per row, so that its
/// kernel can store it as an additional result.
pub fn is_of_row(k: &Kernel, statement: usize) -> bool {
    moves_with(k, statement).is_none() && k.levels()[statement] == Level::Row
}

/// Returns the variables on which a statement depends, or `None` if it depends on a reduction or on a data-dependent
/// index and so cannot be computed elsewhere.
pub fn moves_with(k: &Kernel, statement: usize) -> Option<BTreeSet<usize>> {
    let (mut open, mut vars) = (vec![statement], BTreeSet::new());
    while let Some(at) = open.pop() {
        match &k.body[at].body {
            Body::Load { memlet, .. } if memlet.index.iter().any(from_data) => return None,
            Body::Load { memlet, guard } => {
                vars.extend(memlet.index.iter().flat_map(Dim::variables));
                open.extend(guard);
            }
            Body::Const(_) => {}
            Body::Index(d) if from_data(d) => return None,
            Body::Index(d) => vars.extend(d.variables()),
            Body::Apply { args, .. } => open.extend(args),
            Body::Convert(arg, _) => open.push(*arg),
            Body::Reduce { .. } => return None,
        }
    }
    Some(vars)
}
