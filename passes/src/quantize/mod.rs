//! contract(x, w)  =>  contract(s · q(x), t · q(w)): where that is asked for, factors are whole numbers times a scale
//!
//! Weights have a scale for each column, which they know when the artifact is written; what they are multiplied with has one
//! for each row, found where the row is made. A table of which rows are read has one for each row too. None has a zero point:
//! 0 stays 0, and a row of zeros has the scale 1/127.
//! Sums of products are exact then, and what is lost is lost in the factors. Here only values change; that products of bytes
//! are multiplied as bytes, and that codes are in the file, is the work of passes behind.

use crate::options::Quantize;
use crate::remark::Missed;
use crate::rewrite::Rewrites;
use sardonyx_base::{DType, Dim, Result, Tensor};
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Graph, Node, Op, TensorType, Value};
use std::collections::HashMap;

/// The largest code; −128 is left out, so that −x has the codes of x.
const CODE_MAX: f32 = 127.0;
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
    let constant = constants(graph);
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
            Ok(Some(Site::Product(summed))) if rewrites.allow("int8", &node.origins) => {
                for (arg, axes) in new.args.iter_mut().zip(summed) {
                    let known = made.get(&(*arg, axes.clone())).copied();
                    let value = match known {
                        Some(value) => value,
                        None => Coded::of(&mut out, *arg, &axes, &node.origins)?.value(&mut out, &node.origins)?,
                    };
                    made.insert((*arg, axes), value);
                    *arg = value;
                }
            }
            Ok(Some(Site::Rows)) if rewrites.allow("int8-rows", &node.origins) => {
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

/// Where weights are read.
enum Site {
    /// A product; the axes of both factors that are summed over.
    Product([Vec<usize>; 2]),
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
    Ok(Some(Site::Product([axes(&spec.left), axes(&spec.right)])))
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
    let scale = b.add(Op::Broadcast { dims: kept.to_vec() }, &[scale], Some(whole))?;
    b.map(ScalarFn::Mul, &[wide, scale])
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
