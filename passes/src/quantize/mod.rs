//! contract(x, w)  =>  contract(s · q(x), t · q(w)): where that is asked for, factors are whole numbers times a scale
//!
//! Weights have a scale for each column, or for each group of it, which they know when the artifact is written; what they are
//! multiplied with has one for each row, found where the row is made, or stays as it is. A table of which rows are read has
//! one for each row too, and bytes, as the last product has. None has a zero point: 0 stays 0, and a row of zeros has a scale
//! all the same.
//! Sums of products are exact then, and what is lost is lost in the factors. Here only values change; that products of bytes
//! are multiplied as bytes, and that codes are in the file, is the work of passes behind.

mod grid;

use crate::options::{Activations, Group, Options, Quantize};
use crate::remark::Missed;
use crate::rewrite::Rewrites;
use grid::{Grid, Step, grid};
use sardonyx_base::{DType, Dim, Result, Tensor};
use sardonyx_dialects::interp;
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::params::ParamValues;
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Graph, Node, Op, TensorType, Value};
use std::collections::HashMap;

/// The largest code of 8 bits; −128 is left out, so that −x has the codes of x.
const CODE_MAX: f32 = 127.0;
/// Codes of 4 bits that four bytes hold: a group has whole ones.
const CODES_MIN: i64 = 8;
/// Fewer weights than these are not worth the rows' scales.
const WEIGHTS_MIN: i64 = 4096;

pub fn run(module: Operation, rewrites: &mut Rewrites) -> Result<()> {
    if rewrites.options().quantize == Quantize::None {
        return Ok(());
    }
    rewrites.graphs(module, |rewrites, graph| {
        *graph = quantized(graph, rewrites)?;
        Ok(())
    })
}

fn quantized(graph: &Graph, rewrites: &mut Rewrites) -> Result<Graph> {
    let (constant, last) = (constants(graph), last_products(graph));
    let mut out = Graph { nodes: vec![], outputs: vec![], ..graph.clone() };
    let mut map: Vec<Value> = vec![];
    // By value and axes.
    let mut made: HashMap<(Value, Vec<usize>), Value> = HashMap::new();
    for (_, node) in graph.values() {
        let mut new = Node { args: node.args.iter().map(|a| map[a.index()]).collect(), ..node.clone() };
        let kept = node.origins.iter().any(|origin| rewrites.options().keep.iter().any(|keep| keep.is_match(origin)));
        let found = match site(graph, node, &constant) {
            Ok(Some(_)) if kept => Err("it was asked for"),
            found => found,
        };
        match found {
            Ok(Some(Site::Product { summed, weights })) if rewrites.allow("codes", &node.origins) => {
                let options = rewrites.options();
                let form = match options.quantize {
                    Quantize::Lossless => exact(&out, new.args[weights], &summed[weights], &options.params)?,
                    _ => Some(form(options, (&out, new.args[weights]), &summed[weights], last[map.len()])),
                };
                let Some(form) = form else {
                    let node = node.origins.first().cloned();
                    rewrites.missed(Missed { node, ..Missed::because("weights stay in f32", "they lie on no grid") });
                    map.push(out.push(new));
                    continue;
                };
                for (at, (arg, axes)) in new.args.iter_mut().zip(summed).enumerate() {
                    let form = match (at == weights, rewrites.options().activations()) {
                        (true, _) => form,
                        (false, Activations::Int8) => Form::Bytes,
                        (false, Activations::F32) => continue,
                    };
                    let known = made.get(&(*arg, axes.clone())).copied();
                    let value = match (known, form) {
                        (Some(value), _) => value,
                        (None, Form::Bytes) => {
                            Coded::of(&mut out, *arg, &axes, &node.origins)?.value(&mut out, &node.origins)?
                        }
                        (None, form @ (Form::Groups { .. } | Form::Grid(_))) => {
                            let coded = in_groups(&mut out, (*arg, axes[0]), form, &node.origins)?;
                            coded.value(&mut out, &node.origins)?
                        }
                    };
                    made.insert((*arg, axes), value);
                    *arg = value;
                }
            }
            Ok(Some(Site::Rows)) if rewrites.options().quantize == Quantize::Lossless => {
                let (table, indices) = (new.args[0], new.args[1]);
                let form = exact(&out, table, &[1], &rewrites.options().params)?;
                if let Some(form) = form.filter(|_| rewrites.allow("rows", &node.origins)) {
                    let coded = in_groups(&mut out, (table, 1), form, &node.origins)?;
                    map.push(coded.rows(&mut out, indices, &node.origins)?);
                    continue;
                }
            }
            Ok(Some(Site::Rows)) if rewrites.allow("rows", &node.origins) => {
                let (table, indices) = (new.args[0], new.args[1]);
                let coded = Coded::of(&mut out, table, &[1], &node.origins)?;
                map.push(coded.rows(&mut out, indices, &node.origins)?);
                continue;
            }
            Ok(_) => {}
            Err(why) => {
                let node = node.origins.first().cloned();
                rewrites.missed(Missed { node, ..Missed::because("weights stay in f32", why) });
            }
        }
        map.push(out.push(new));
    }
    out.outputs = graph.outputs.iter().map(|(name, v)| (name.clone(), map[v.index()])).collect();
    Ok(out)
}

/// Which values follow from parameters, one at least, and from nothing else.
fn constants(graph: &Graph) -> Vec<bool> {
    let mut fixed: Vec<bool> = vec![];
    let mut constant: Vec<bool> = vec![];
    for (_, node) in graph.values() {
        let open = matches!(node.op, Op::Input { .. } | Op::Host(_) | Op::Bind { .. } | Op::Dims(_));
        fixed.push(!open && node.args.iter().all(|a| fixed[a.index()]));
        let has_param = matches!(node.op, Op::Param { .. }) || node.args.iter().any(|a| constant[a.index()]);
        constant.push(has_param && fixed[fixed.len() - 1]);
    }
    constant
}

/// Which values reach outputs by elementwise arithmetic, and are read by nothing else.
fn last_products(graph: &Graph) -> Vec<bool> {
    let mut read = vec![false; graph.nodes.len()];
    let mut last = vec![true; graph.nodes.len()];
    graph.outputs.iter().for_each(|(_, v)| read[v.index()] = true);
    for (v, node) in graph.values().collect::<Vec<_>>().into_iter().rev() {
        let moves =
            matches!(node.op, Op::Map(_) | Op::Convert(_) | Op::Reshape | Op::Transpose { .. } | Op::Slice { .. });
        let is_last = last[v.index()] && read[v.index()];
        for arg in &node.args {
            read[arg.index()] = true;
            last[arg.index()] &= moves && is_last;
        }
    }
    last
}

/// What the codes of a factor are.
#[derive(Clone, Copy)]
enum Form {
    /// Of 8 bits, with one scale along the sum.
    Bytes,
    /// Of so many bits, with one scale for so many of them.
    Groups { bits: u32, size: i64 },
    /// What they are already.
    Grid(Grid),
}

/// The grid that weights lie on, which are summed over these axes.
fn exact(graph: &Graph, weights: Value, summed: &[usize], params: &dyn ParamValues) -> Result<Option<Form>> {
    let &[axis] = summed else { return Ok(None) };
    let Some(values) = moved(graph, weights, params)?.and_then(|t| t.to_vec::<f32>().map(|v| (v, t.dims().to_vec())))
    else {
        return Ok(None);
    };
    let (values, dims) = values;
    let parts = [dims[..axis].iter().product(), dims[axis], dims[axis + 1..].iter().product()];
    let found = grid(&values, parts).filter(|grid| grid.size as i64 % CODES_MIN == 0);
    Ok(found.map(Form::Grid))
}

/// The value of a parameter, or of what is only moved of some.
fn moved(graph: &Graph, v: Value, params: &dyn ParamValues) -> Result<Option<Tensor>> {
    let node = graph.node(v);
    match &node.op {
        Op::Param { parts, .. } if parts.is_empty() => {}
        Op::Reshape | Op::Transpose { .. } | Op::Slice { .. } | Op::Concat { .. } => {}
        _ => return Ok(None),
    }
    let mut args = vec![];
    for arg in &node.args {
        let Some(value) = moved(graph, *arg, params)? else { return Ok(None) };
        args.push(value);
    }
    match &node.op {
        Op::Param { name, .. } => params.value(name).map(Some),
        _ => interp::evaluate(node, &args, &|_| None).map(Some),
    }
}

/// The form of weights that are summed over these axes. The last product of a model keeps 8 bits: what it loses nothing behind
/// it makes good.
fn form(options: &Options, (graph, weights): (&Graph, Value), summed: &[usize], last: bool) -> Form {
    let bits = options.quantize.bits().filter(|_| !last).unwrap_or(8);
    let (&[axis], Some(dims)) = (summed, graph.ty(weights).static_dims()) else { return Form::Bytes };
    let length = dims[axis] as i64;
    let size = match options.group() {
        Group::Of(size) if bits < 8 || options.group.is_some() => size,
        Group::Of(_) | Group::Channel => length,
    };
    let size = if length % size == 0 { size } else { length };
    match options.activations() {
        Activations::Int8 if bits == 8 && size == length => Form::Bytes,
        _ if size % CODES_MIN != 0 => Form::Bytes,
        Activations::Int8 | Activations::F32 => Form::Groups { bits, size },
    }
}

/// Weights as codes with a scale for each group along an axis, which is two meanwhile, and back: the largest of a group, with
/// its sign, is the code that has no other sign.
fn in_groups(graph: &mut Graph, (w, axis): (Value, usize), form: Form, origins: &[String]) -> Result<InGroups> {
    let (size, step, bits) = match form {
        // One group of all.
        Form::Bytes => (graph.ty(w).dims[axis].as_const().unwrap_or(1), Step::Signed, 8),
        Form::Groups { bits, size } => (size, Step::Signed, bits),
        Form::Grid(Grid { step, size }) => (size as i64, step, if step == Step::Bytes { 8 } else { 4 }),
    };
    let whole = graph.ty(w).clone();
    let mut b = Builder { graph, origins };
    let mut dims = whole.dims.clone();
    let groups = dims[axis].floordiv(&Dim::constant(size));
    dims.splice(axis..=axis, [groups, Dim::constant(size)]);
    let apart = TensorType::new(DType::F32, dims.clone());
    let kept: Vec<usize> = (0..dims.len()).filter(|i| *i != axis + 1).collect();
    let w = b.add(Op::Reshape, &[w], Some(apart.clone()))?;
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
    // A grid was made with scales of f16; the exponents of ours are those of the weights.
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
    let dtype = match (bits, step) {
        (8, _) => DType::I8,
        (_, Step::Least) => DType::U4,
        (_, Step::Signed | Step::Bytes) => DType::I4,
    };
    let narrow = TensorType::new(dtype, dims);
    let codes = b.add(Op::Convert(Conversion::Value), &[codes], Some(narrow))?;
    Ok(InGroups { codes, scale: narrow_scale, least, kept, whole })
}

/// Weights as codes of an axis that is two.
struct InGroups {
    codes: Value,
    scale: Value,
    least: Option<Value>,
    /// The axes of the codes that the scale has.
    kept: Vec<usize>,
    /// As they were.
    whole: TensorType,
}

impl InGroups {
    fn value(self, graph: &mut Graph, origins: &[String]) -> Result<Value> {
        let mut b = Builder { graph, origins };
        let mut value = times(&mut b, self.codes, self.scale, &self.kept)?;
        if let Some(least) = self.least {
            let least = spread(&mut b, least, &self.kept, value)?;
            value = b.map(ScalarFn::Add, &[value, least])?;
        }
        b.add(Op::Reshape, &[value], Some(self.whole))
    }

    /// The rows of a table that `indices` name.
    fn rows(self, graph: &mut Graph, indices: Value, origins: &[String]) -> Result<Value> {
        let mut b = Builder { graph, origins };
        let mut at = |v: Value| b.add(Op::Gather { axis: 0 }, &[v, indices], None);
        let (codes, scale, least) = (at(self.codes)?, at(self.scale)?, self.least.map(at).transpose()?);
        let kept = (0..graph.ty(scale).rank()).collect();
        let mut dims = graph.ty(indices).dims.clone();
        dims.extend(self.whole.dims[1..].iter().cloned());
        InGroups { codes, scale, least, kept, whole: TensorType::new(DType::F32, dims) }.value(graph, origins)
    }
}

/// Where weights are read.
enum Site {
    /// A product; the axes of both factors that are summed over, and which of them is of weights.
    Product { summed: [Vec<usize>; 2], weights: usize },
    /// Rows of a table.
    Rows,
}

/// `None` where no weights are read; the error is why some stay as they are.
fn site(graph: &Graph, node: &Node, constant: &[bool]) -> std::result::Result<Option<Site>, &'static str> {
    if let (Op::Gather { axis: 0 }, &[table, _]) = (&node.op, &node.args[..]) {
        let ty = graph.ty(table);
        let elements = ty.static_dims().map_or(0, |dims| dims.iter().product::<usize>() as i64);
        let is_table = constant[table.index()] && ty.dtype == DType::F32 && ty.rank() == 2 && elements >= WEIGHTS_MIN;
        return Ok(is_table.then_some(Site::Rows));
    }
    let (Op::Contract(spec), &[left, right]) = (&node.op, &node.args[..]) else { return Ok(None) };
    let (other, weights) = match (constant[left.index()], constant[right.index()]) {
        (false, true) => (left, right),
        (true, false) => (right, left),
        (true, true) | (false, false) => return Ok(None),
    };
    if [left, right].iter().any(|v| graph.ty(*v).dtype != DType::F32) {
        return Ok(None);
    }
    let summed = spec.summed();
    if summed.is_empty() || !summed.iter().all(|c| spec.left.contains(c) && spec.right.contains(c)) {
        return Ok(None);
    }
    let Some(sizes) = graph.ty(weights).static_dims() else { return Err("the size of its weights is not known") };
    if (sizes.iter().product::<usize>() as i64) < WEIGHTS_MIN {
        return Err("its weights are few");
    }
    if spec.left.iter().any(|c| spec.right.contains(c) && spec.result.contains(c)) {
        return Err("it is several products, of weights of their own each");
    }
    if is_window(graph, other) {
        return Err("what a convolution reads has no rows: it needs one scale, from calibration");
    }
    let axes = |letters: &[char]| (0..letters.len()).filter(|i| summed.contains(&letters[*i])).collect();
    let summed = [axes(&spec.left), axes(&spec.right)];
    Ok(Some(Site::Product { summed, weights: usize::from(constant[right.index()]) }))
}

/// Whether a value is read through the window of a convolution.
fn is_window(graph: &Graph, v: Value) -> bool {
    let node = graph.node(v);
    match node.op {
        Op::Window(_) => true,
        Op::Reshape | Op::Transpose { .. } | Op::Slice { .. } | Op::Broadcast { .. } => is_window(graph, node.args[0]),
        _ => false,
    }
}

/// A value as codes, and a scale for each place along the axes that are kept.
struct Coded {
    codes: Value,
    scale: Value,
    kept: Vec<usize>,
}

impl Coded {
    /// The codes of what is summed over, or read as a row, have one scale.
    fn of(graph: &mut Graph, x: Value, summed: &[usize], origins: &[String]) -> Result<Coded> {
        let whole = graph.ty(x).clone();
        let kept: Vec<usize> = (0..whole.rank()).filter(|i| !summed.contains(i)).collect();
        let mut b = Builder { graph, origins };
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

    fn value(&self, graph: &mut Graph, origins: &[String]) -> Result<Value> {
        times(&mut Builder { graph, origins }, self.codes, self.scale, &self.kept)
    }

    /// The rows that `indices` name.
    fn rows(&self, graph: &mut Graph, indices: Value, origins: &[String]) -> Result<Value> {
        let mut b = Builder { graph, origins };
        let codes = b.add(Op::Gather { axis: 0 }, &[self.codes, indices], None)?;
        let scale = b.add(Op::Gather { axis: 0 }, &[self.scale, indices], None)?;
        let kept: Vec<usize> = (0..b.graph.ty(scale).rank()).collect();
        times(&mut b, codes, scale, &kept)
    }
}

/// Codes times the scale that is spread over them.
fn times(b: &mut Builder, codes: Value, scale: Value, kept: &[usize]) -> Result<Value> {
    let whole = TensorType::new(DType::F32, b.graph.ty(codes).dims.clone());
    let wide = b.add(Op::Convert(Conversion::Value), &[codes], Some(whole.clone()))?;
    let scale = spread(b, scale, kept, wide)?;
    b.map(ScalarFn::Mul, &[wide, scale])
}

/// A number for each place along the axes that are kept, in all places of another value, as f32. It is widened where it is
/// used: a scale in f32 would be what the file has.
fn spread(b: &mut Builder, x: Value, kept: &[usize], like: Value) -> Result<Value> {
    let (dtype, dims) = (b.graph.ty(x).dtype, b.graph.ty(like).dims.clone());
    let x = b.add(Op::Broadcast { dims: kept.to_vec() }, &[x], Some(TensorType::new(dtype, dims)))?;
    b.convert(x, DType::F32)
}

/// Nodes that stand for the same ONNX nodes.
struct Builder<'a> {
    graph: &'a mut Graph,
    origins: &'a [String],
}

impl Builder<'_> {
    fn add(&mut self, op: Op, args: &[Value], ty: Option<TensorType>) -> Result<Value> {
        self.graph.add_as(op, args, ty, self.origins)
    }

    fn map(&mut self, f: ScalarFn, args: &[Value]) -> Result<Value> {
        self.add(Op::Map(f), args, None)
    }

    /// The same numbers, rounded to the type; nothing is added where they have it.
    fn convert(&mut self, x: Value, dtype: DType) -> Result<Value> {
        if self.graph.ty(x).dtype == dtype {
            return Ok(x);
        }
        let ty = TensorType::new(dtype, self.graph.ty(x).dims.clone());
        self.add(Op::Convert(Conversion::Value), &[x], Some(ty))
    }

    /// A number in every place of another value.
    fn number(&mut self, x: f32, like: Value) -> Result<Value> {
        let scalar = self.add(Op::Const(Tensor::scalar(x)), &[], None)?;
        let dims: Vec<Dim> = self.graph.ty(like).dims.clone();
        match dims.is_empty() {
            true => Ok(scalar),
            false => self.add(Op::Broadcast { dims: vec![] }, &[scalar], Some(TensorType::new(DType::F32, dims))),
        }
    }
}
