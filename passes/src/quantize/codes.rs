//! a value  =>  codes, scales along some axes, and the value decoded from them

use super::builder::Builder;
use super::grid::{Grid, Step};
use crate::calibrated::{CodeType, Codes, Range};
use sardonyx_base::minifloat::format;
use sardonyx_base::{DType, Dim, Result, Tensor};
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Graph, Op, TensorType, Value};

/// The largest code of 8-bit codes that do not use −128, so that x and −x have opposite codes.
const CODE_MAX: f32 = 127.0;

/// Float codes only: the largest magnitude among values that share a scale becomes the largest code times one of these
/// factors, all of which are tried. In formats whose maximum is 1.75 times a power of two, the products are 1.75, 1.5,
/// 1.25 and 1 times this power.
pub const SHARES: [f32; 4] = [1.0, 6.0 / 7.0, 5.0 / 7.0, 4.0 / 7.0];

/// The format of the codes of an operand.
#[derive(Clone, Copy)]
pub enum Form {
    /// 8-bit codes, with one scale along the reduction axes.
    Whole(CodeType),
    /// One scale for each group of `size` codes.
    Groups { code: CodeType, size: i64 },
    /// The grid that the weights are already on: a type of code and a group size that reproduce them exactly.
    Grid(Grid),
}

/// A value as codes, with a scale for each index of the axes that are not reduced over (`kept`).
pub struct Coded {
    pub codes: Value,
    pub scale: Value,
    kept: Vec<usize>,
}

impl Coded {
    /// Encodes a value with one scale along the axes `summed`, which are reduced over or form a looked-up row.
    pub fn new(graph: &mut Graph, x: Value, summed: &[usize], code: CodeType, origins: &[String]) -> Result<Coded> {
        let whole = graph.ty(x).clone();
        let kept: Vec<usize> = (0..whole.rank()).filter(|i| !summed.contains(i)).collect();
        let mut b = Builder { graph, origins };
        if let CodeType::Float(dtype) = code {
            let [codes, scale] = floats(&mut b, (x, summed), &kept, dtype)?;
            return Ok(Coded { codes, scale, kept });
        }
        let size = b.map(ScalarFn::Abs, &[x])?;
        let largest = b.add(Op::Reduce { f: ReduceFn::Max, axes: summed.to_vec() }, &[size], None)?;
        let (zero, one) = (b.number(0.0, largest)?, b.number(1.0, largest)?);
        let nothing = b.map(ScalarFn::Eq, &[largest, zero])?;
        let largest = b.map(ScalarFn::Select, &[nothing, one, largest])?;
        let most = b.number(CODE_MAX, largest)?;
        let (steps, scale) = (b.map(ScalarFn::Div, &[most, largest])?, b.map(ScalarFn::Div, &[largest, most])?);
        let steps = b.add(Op::Broadcast { dims: kept.clone() }, &[steps], Some(whole.clone()))?;
        let codes = b.map(ScalarFn::Mul, &[x, steps])?;
        let codes = b.map(ScalarFn::Round, &[codes])?;
        let narrow = TensorType::new(DType::I8, whole.dims);
        let codes = b.add(Op::Convert(Conversion::Value), &[codes], Some(narrow))?;
        Ok(Coded { codes, scale, kept })
    }

    pub fn value(&self, graph: &mut Graph, origins: &[String]) -> Result<Value> {
        times(&mut Builder { graph, origins }, self.codes, self.scale, &self.kept)
    }

    /// Looks up and decodes the rows given by `indices`.
    pub fn rows(&self, graph: &mut Graph, indices: Value, origins: &[String]) -> Result<Value> {
        let mut b = Builder { graph, origins };
        let codes = b.add(Op::Gather { axis: 0 }, &[self.codes, indices], None)?;
        let scale = b.add(Op::Gather { axis: 0 }, &[self.scale, indices], None)?;
        let kept: Vec<usize> = (0..b.graph.ty(scale).rank()).collect();
        times(&mut b, codes, scale, &kept)
    }
}

/// Encodes a value within a range as u8 and decodes it again; all elements share one scale and one zero point.
pub fn in_range(graph: &mut Graph, x: Value, [low, high]: Range, origins: &[String]) -> Result<Value> {
    let most = f32::from(u8::MAX);
    let (low, high) = (low.min(0.0), high.max(0.0));
    let width = Some(high - low).filter(|width| *width > 0.0 && width.is_finite()).unwrap_or(1.0);
    let zero = (-low * (most / width)).round_ties_even();
    let mut b = Builder { graph, origins };
    let steps = b.number(most / width, x)?;
    let codes = b.map(ScalarFn::Mul, &[x, steps])?;
    let mut codes = b.map(ScalarFn::Round, &[codes])?;
    if zero != 0.0 {
        let zero = b.number(zero, x)?;
        codes = b.map(ScalarFn::Add, &[codes, zero])?;
    }
    codes = b.convert(codes, DType::U8)?;
    if zero != 0.0 {
        codes = b.convert(codes, DType::I32)?;
        let zero = b.integer(zero as i32, codes)?;
        codes = b.map(ScalarFn::Sub, &[codes, zero])?;
    }
    let scale = b.add(Op::Const(Tensor::scalar(width / most)), &[], None)?;
    times(&mut b, codes, scale, &[])
}

/// Returns float codes and scales, with one scale along the axes `summed`: of those that `SHARES` gives, the scale with
/// the smallest sum of squared errors.
fn floats(b: &mut Builder, (x, summed): (Value, &[usize]), kept: &[usize], dtype: DType) -> Result<[Value; 2]> {
    let most = format(dtype).map_or(1.0, |format| format.max() as f32);
    let size = b.map(ScalarFn::Abs, &[x])?;
    let largest = b.add(Op::Reduce { f: ReduceFn::Max, axes: summed.to_vec() }, &[size], None)?;
    let (zero, one) = (b.number(0.0, largest)?, b.number(1.0, largest)?);
    let [above, below] = [most, -most].map(|limit| b.number(limit, x));
    let limits = [above?, below?];
    let codes = |b: &mut Builder, scale: Value| {
        let steps = b.map(ScalarFn::Div, &[x, scale])?;
        // If the scale is subnormal, rounding may have made it too small, so that a quotient exceeds the largest code.
        let steps = b.map(ScalarFn::Min, &[steps, limits[0]])?;
        let steps = b.map(ScalarFn::Max, &[steps, limits[1]])?;
        b.convert(steps, dtype)
    };
    let mut best: Option<[Value; 2]> = None;
    for share in SHARES {
        let by = b.number(most * share, largest)?;
        let scale = b.map(ScalarFn::Div, &[largest, by])?;
        let nothing = b.map(ScalarFn::Eq, &[scale, zero])?;
        let scale = b.map(ScalarFn::Select, &[nothing, one, scale])?;
        let wide = spread(b, scale, kept, x)?;
        let found = codes(b, wide)?;
        let found = b.convert(found, DType::F32)?;
        let found = b.map(ScalarFn::Mul, &[found, wide])?;
        let lost = b.map(ScalarFn::Sub, &[x, found])?;
        let lost = b.map(ScalarFn::Mul, &[lost, lost])?;
        let lost = b.add(Op::Reduce { f: ReduceFn::Add, axes: summed.to_vec() }, &[lost], None)?;
        best = Some(match best {
            None => [lost, scale],
            Some([least, of_least]) => {
                let less = b.map(ScalarFn::Lt, &[lost, least])?;
                let [lost, scale] = [[lost, least], [scale, of_least]]
                    .map(|[this, other]| b.map(ScalarFn::Select, &[less, this, other]));
                [lost?, scale?]
            }
        });
    }
    let scale = best.map_or(one, |[_, scale]| scale);
    let wide = spread(b, scale, kept, x)?;
    Ok([codes(b, wide)?, scale])
}

/// Encodes weights with a scale for each group along an axis, which is split into groups and elements. With
/// `Step::Signed`, the weight of largest magnitude becomes the most negative code, which has no positive counterpart.
pub fn in_groups(graph: &mut Graph, (w, axis): (Value, usize), form: Form, origins: &[String]) -> Result<InGroups> {
    let (size, step, code) = match form {
        // All weights of a column are a single group.
        Form::Whole(code) => (graph.ty(w).dims[axis].as_const().unwrap_or(1), Step::Signed, code),
        Form::Groups { code, size } => (size, Step::Signed, code),
        Form::Grid(Grid { step, size }) => (size as i64, step, CodeType::Int(if step == Step::Bytes { 8 } else { 4 })),
    };
    let whole = graph.ty(w).clone();
    let (dims, kept) = apart(&whole, axis, size);
    let mut b = Builder { graph, origins };
    let apart = TensorType::new(DType::F32, dims.clone());
    let w = b.add(Op::Reshape, &[w], Some(apart.clone()))?;
    let bits = match code {
        CodeType::Int(bits) => bits,
        CodeType::Float(dtype) => {
            let [codes, scale] = floats(&mut b, (w, &[axis + 1]), &kept, dtype)?;
            return Ok(InGroups { codes, scale, least: None, kept, whole });
        }
    };
    let [high, low] = [ReduceFn::Max, ReduceFn::Min].map(|f| b.add(Op::Reduce { f, axes: vec![axis + 1] }, &[w], None));
    let (high, low) = (high?, low?);
    let (zero, one) = (b.number(0.0, high)?, b.number(1.0, high)?);
    let opposite = b.map(ScalarFn::Neg, &[low])?;
    let least_code = -f32::from(1u16 << (bits - 1));
    let (range, by) = match step {
        Step::Least => (b.map(ScalarFn::Sub, &[high, low])?, 15.0),
        Step::Bytes => (b.map(ScalarFn::Max, &[high, opposite])?, CODE_MAX),
        Step::Signed => {
            let above = b.map(ScalarFn::Le, &[opposite, high])?;
            (b.map(ScalarFn::Select, &[above, high, low])?, least_code)
        }
    };
    let by = b.number(by, high)?;
    let exact = b.map(ScalarFn::Div, &[range, by])?;
    // Quantisers that produce a grid use f16 scales; other scales are bf16, which has the same range of exponents as
    // the f32 weights.
    let stored = if matches!(form, Form::Grid(_)) { DType::F16 } else { DType::BF16 };
    let narrow_scale = b.convert(exact, stored)?;
    let scale = b.convert(narrow_scale, DType::F32)?;
    let nothing = b.map(ScalarFn::Eq, &[scale, zero])?;
    let divisor = b.map(ScalarFn::Select, &[nothing, one, scale])?;
    let least = match step {
        Step::Least => Some(b.convert(low, DType::F16)?),
        Step::Signed | Step::Bytes => None,
    };
    let mut above = w;
    if let Some(least) = least {
        let wide = b.convert(least, DType::F32)?;
        let least = spread(&mut b, wide, &kept, w)?;
        above = b.map(ScalarFn::Sub, &[w, least])?;
    }
    let divisor = spread(&mut b, divisor, &kept, w)?;
    let codes = b.map(ScalarFn::Div, &[above, divisor])?;
    let mut codes = b.map(ScalarFn::Round, &[codes])?;
    if let Form::Groups { .. } = form {
        let most = b.number(-least_code - 1.0, codes)?;
        codes = b.map(ScalarFn::Min, &[codes, most])?;
    }
    let dtype = match step {
        Step::Least => DType::U4,
        Step::Signed | Step::Bytes => code.dtype(),
    };
    let narrow = TensorType::new(dtype, dims);
    let codes = b.add(Op::Convert(Conversion::Value), &[codes], Some(narrow))?;
    Ok(InGroups { codes, scale: narrow_scale, least, kept, whole })
}

/// Returns the dimensions of codes in groups, and the axes of the codes that the scales have, too.
fn apart(whole: &TensorType, axis: usize, size: i64) -> (Vec<Dim>, Vec<usize>) {
    let mut dims = whole.dims.clone();
    let groups = dims[axis].floordiv(&Dim::constant(size));
    dims.splice(axis..=axis, [groups, Dim::constant(size)]);
    let kept = (0..dims.len()).filter(|i| *i != axis + 1).collect();
    (dims, kept)
}

/// Returns weights as the codes and scales that calibration stored as parameters, with the axis split into groups and
/// elements.
pub fn from_parameters(
    graph: &mut Graph,
    (w, axis): (Value, usize),
    found: &Codes,
    origins: &[String],
) -> Result<InGroups> {
    let whole = graph.ty(w).clone();
    let (dims, kept) = apart(&whole, axis, found.size);
    let mut b = Builder { graph, origins };
    let mut param = |name: &String, dtype: DType, dims: Vec<Dim>| {
        let op = Op::Param { name: name.clone(), parts: vec![], bounded: true };
        b.add(op, &[], Some(TensorType::new(dtype, dims)))
    };
    let scale = param(&found.scale, found.code.scale(), kept.iter().map(|d| dims[*d].clone()).collect())?;
    let codes = param(&found.codes, found.code.parameter(), dims)?;
    let codes = b.convert(codes, found.code.dtype())?;
    Ok(InGroups { codes, scale, least: None, kept, whole })
}

/// Weights as codes, with an axis split into groups and elements.
pub struct InGroups {
    codes: Value,
    scale: Value,
    least: Option<Value>,
    /// The axes of the codes that the scale has, too: all except the elements of a group.
    kept: Vec<usize>,
    /// The original type of the weights.
    whole: TensorType,
}

impl InGroups {
    pub fn value(self, graph: &mut Graph, origins: &[String]) -> Result<Value> {
        let mut b = Builder { graph, origins };
        let mut value = times(&mut b, self.codes, self.scale, &self.kept)?;
        if let Some(least) = self.least {
            let least = spread(&mut b, least, &self.kept, value)?;
            value = b.map(ScalarFn::Add, &[value, least])?;
        }
        b.add(Op::Reshape, &[value], Some(self.whole))
    }

    /// Looks up and decodes the rows of a table given by `indices`.
    pub fn rows(self, graph: &mut Graph, indices: Value, origins: &[String]) -> Result<Value> {
        let mut b = Builder { graph, origins };
        let mut at = |v: Value| b.add(Op::Gather { axis: 0 }, &[v, indices], None);
        let (codes, scale, least) = (at(self.codes)?, at(self.scale)?, self.least.map(at).transpose()?);
        let kept = (0..graph.ty(scale).rank()).collect();
        let mut dims = graph.ty(indices).dims.clone();
        dims.extend(self.whole.dims[1..].iter().cloned());
        InGroups { codes, scale, least, kept, whole: TensorType::new(DType::F32, dims) }.value(graph, origins)
    }
}

/// Multiplies codes by their scale, broadcast over them.
fn times(b: &mut Builder, codes: Value, scale: Value, kept: &[usize]) -> Result<Value> {
    let whole = TensorType::new(DType::F32, b.graph.ty(codes).dims.clone());
    let wide = b.add(Op::Convert(Conversion::Value), &[codes], Some(whole.clone()))?;
    let scale = spread(b, scale, kept, wide)?;
    b.map(ScalarFn::Mul, &[wide, scale])
}

/// Broadcasts a value, whose dimensions are the axes `kept` of `like`, to the shape of `like`, and widens it to f32. It
/// is widened after the broadcast, so that the artifact does not store scales in f32.
fn spread(b: &mut Builder, x: Value, kept: &[usize], like: Value) -> Result<Value> {
    let (dtype, dims) = (b.graph.ty(x).dtype, b.graph.ty(like).dims.clone());
    let x = b.add(Op::Broadcast { dims: kept.to_vec() }, &[x], Some(TensorType::new(dtype, dims)))?;
    b.convert(x, DType::F32)
}
