//! a graph  =>  the uses of weights: contractions, and lookups of rows in tables

use crate::simplify::splat;
use sardonyx_base::DType;
use sardonyx_dialects::sdx::{Graph, Node, Op, Value};

/// Tensors with fewer weights are not quantised, because the scales of their rows would cost too much.
const WEIGHTS_MIN: i64 = 4096;

/// How weights are used.
pub enum Site {
    /// A contraction: the reduction axes of both operands, the index of the operand that is the weights, and the layout
    /// of the other operand.
    Product { summed: [Vec<usize>; 2], weights: usize, other: Other },
    /// Lookup of rows of a table.
    Rows,
}

/// The layout of the operand that weights are multiplied by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Other {
    /// Rows, reduced along the last axis.
    Rows,
    /// Images, reduced over the channels of each pixel.
    Pixels,
    /// The window of a convolution.
    Window,
}

/// Returns how a node uses f32 weights; `None` if it uses none. The error is the reason why its weights are not
/// quantised.
pub fn site(graph: &Graph, node: &Node, constant: &[bool]) -> std::result::Result<Option<Site>, &'static str> {
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
    let axes =
        |letters: &[char]| -> Vec<usize> { (0..letters.len()).filter(|i| summed.contains(&letters[*i])).collect() };
    let (summed, weights) = ([axes(&spec.left), axes(&spec.right)], usize::from(constant[right.index()]));
    let other = match summed[1 - weights][..] {
        _ if is_window(graph, other) => Other::Window,
        [axis] if axis + 1 == graph.ty(other).rank() => Other::Rows,
        _ => Other::Pixels,
    };
    Ok(Some(Site::Product { summed, weights, other }))
}

/// Whether a value is obtained from the windows of a convolution's operand by data movement only.
fn is_window(graph: &Graph, v: Value) -> bool {
    let node = graph.node(v);
    matches!(node.op, Op::Window(_)) || is_moved(graph, node) && is_window(graph, node.args[0])
}

/// Whether a value consists of another value's elements in other positions, and zeros.
fn is_moved(graph: &Graph, node: &Node) -> bool {
    match node.op {
        Op::Window(_) | Op::Reshape | Op::Transpose { .. } | Op::Slice { .. } | Op::Broadcast { .. } => true,
        Op::Pad { .. } => splat(graph, node.args[1]) == Some(0.0),
        _ => false,
    }
}

/// Returns the value from which `v` is obtained by data movement only; `v` itself if an operation computes it.
pub fn source(graph: &Graph, v: Value) -> Value {
    let node = graph.node(v);
    if is_moved(graph, node) { source(graph, node.args[0]) } else { v }
}

/// Returns, for each value, whether it depends on at least one parameter, and otherwise on constants only.
pub fn constants(graph: &Graph) -> Vec<bool> {
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

/// Returns, for each value, whether all its uses lead to outputs through elementwise operations and data movement only.
pub fn last_products(graph: &Graph) -> Vec<bool> {
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
