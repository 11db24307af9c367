//! sdx graph, parameters, inputs  =>  outputs: the semantics of the value level, in straightforward code
//!
//! Float operations are computed in f64 and rounded once to the element type at each node; integers are exact modulo
//! the width of their type. These semantics are the reference for folding, for rewrites and for devices;
//! FLOATING_POINT.md states the rules.

mod bind;
mod compute;
pub mod count;
pub mod host;
pub mod kernel;
mod movement;
mod numbers;
mod ports;
pub mod program;
mod scalar;
pub mod symbolic;
#[cfg(test)]
mod tests;
pub mod world;

pub use count::count_graph;
pub use kernel::{Touched, run_counted, run_kernel, run_statements};
pub use movement::transposed;
pub use numbers::int_range;
pub use program::{KernelCall, Values, count_program, joined, joined_in, run_program, run_program_by, run_program_in};
pub use symbolic::contents;
pub use world::{Setting, World, on_ranks};

use crate::params::{ParamValues, value_of};
use crate::sdx::{Graph, Node, Op, TensorType, Value};
use bind::Symbols;
use ports::Ports;
use sardonyx_base::tensor::element_count;
use sardonyx_base::{DType, Dim, Error, Result, Tensor};

/// Maximum number of elements of a tensor that is interpreted; larger sizes are refused before allocation.
pub const ELEMENTS_MAX: usize = 1 << 31;

/// Computes the outputs, in the graph's order. Errors: E0107, E0201, E0202, E0204, E0301, E0303, those of `params` and
/// of host operations, and E0901 if the graph itself is malformed.
pub fn run(graph: &Graph, params: &dyn ParamValues, inputs: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>> {
    run_all(graph, params, inputs, &mut |_, _| Ok(()))
}

/// Like [`run`], and calls `each` with the value of every node, in order. A value is dropped after its last use.
pub fn run_all(
    graph: &Graph,
    params: &dyn ParamValues,
    inputs: &[(String, Tensor)],
    each: &mut dyn FnMut(Value, &Tensor) -> Result<()>,
) -> Result<Vec<(String, Tensor)>> {
    run_in(graph, Setting::alone(params), inputs, each)
}

/// Like [`run_all`], as one rank of a mesh.
pub fn run_in(
    graph: &Graph,
    setting: Setting,
    inputs: &[(String, Tensor)],
    each: &mut dyn FnMut(Value, &Tensor) -> Result<()>,
) -> Result<Vec<(String, Tensor)>> {
    check_order(graph)?;
    let ports = Ports { symbols: &graph.symbols, world: setting.world };
    let parts = |name: &str| graph.inputs().find(|(_, own, _)| *own == name).map_or(&[][..], |(v, ..)| graph.parts(v));
    let inputs = &ports.cut(inputs, parts)?;
    let mut hosts = host::Groups::default();
    let mut symbols = Symbols::new(graph.into(), inputs, setting.world)?;
    let mut uses = graph.uses();
    let mut values: Vec<Option<Tensor>> = vec![None; graph.nodes.len()];
    for (v, node) in graph.values() {
        let args: Option<Vec<Tensor>> = node.args.iter().map(|a| values[a.index()].clone()).collect();
        let args = args.ok_or_else(|| Error::defect("a value was dropped before its last use"))?;
        let value = match &node.op {
            Op::Host(host) => hosts.result(graph, host, v, &args, setting, &mut symbols),
            _ => step(node, &args, setting.params, inputs, &mut symbols),
        };
        let value = value.map_err(|e| e.node(label(v, node)))?;
        each(v, &value)?;
        values[v.index()] = (uses[v.index()] > 0).then_some(value);
        for a in &node.args {
            uses[a.index()] -= 1;
            if uses[a.index()] == 0 {
                values[a.index()] = None;
            }
        }
    }
    let output = |(name, v): &(String, Value)| {
        let value = values[v.index()].clone().ok_or_else(|| Error::defect("an output was dropped"))?;
        Ok((name.clone(), ports.gather_output(value, graph.output_parts(*v))?))
    };
    graph.outputs.iter().map(output).collect()
}

fn step(
    node: &Node,
    args: &[Tensor],
    params: &dyn ParamValues,
    inputs: &[(String, Tensor)],
    symbols: &mut Symbols,
) -> Result<Tensor> {
    let given = if let Op::Input { name, .. } = &node.op {
        bind::input(inputs, name)?.clone()
    } else if let Op::Param { name, parts, .. } = &node.op {
        value_of(params, name, parts, &|name| symbols.get(name))?
    } else if let Op::Bind { symbol } = &node.op {
        let [value] = operands(node, args)?;
        let one = (value.len() == 1 && value.dtype() == DType::I64).then(|| value.get_i64(0)).flatten();
        symbols.bind(symbol, one.ok_or_else(|| Error::defect("a symbol is bound to one i64"))?)?;
        value.clone()
    } else {
        return evaluate(node, args, &|name| symbols.get(name));
    };
    Expected::new(&node.ty, &|name| symbols.get(name))?.accept(given)
}

/// The value of one node, given its operands and symbols. Inputs, parameters, `bind` and host operations need more
/// context and are refused.
pub fn evaluate(node: &Node, args: &[Tensor], symbols: &dyn Fn(&str) -> Option<i64>) -> Result<Tensor> {
    let expected = Expected::new(&node.ty, symbols)?;
    let numbers = |list: &[Dim]| list.iter().map(|d| d.eval_named(symbols)).collect::<Result<Vec<i64>>>();
    let one = || operands::<1>(node, args).map(|[a]| a);
    let value = match &node.op {
        Op::Input { .. } | Op::Param { .. } | Op::Bind { .. } | Op::Host(_) => {
            return Err(Error::defect(format!("`{}` has no value of its own", node.op.name())));
        }
        Op::Const(tensor) => tensor.clone(),
        Op::Place(_) => one()?.clone(),
        Op::Dims(list) => {
            let dims = if node.ty.rank() == 0 && list.len() == 1 { vec![] } else { vec![list.len()] };
            Tensor::from_vec(dims, numbers(list)?)
        }
        Op::Map(f) => compute::map(*f, args, &expected)?,
        Op::Convert(how) => compute::convert(*how, one()?, &expected)?,
        Op::Reduce { f, axes } => compute::reduce(*f, axes, one()?, &expected)?,
        Op::Contract(spec) => {
            let [left, right] = operands(node, args)?;
            compute::contract(spec, left, right, &expected)?
        }
        Op::Gather { axis } => {
            let [data, indices] = operands(node, args)?;
            movement::gather(*axis, data, indices, &expected)?
        }
        Op::Slice { starts, steps } => movement::slice(&numbers(starts)?, steps, one()?, &expected)?,
        Op::Pad { low } => {
            let [data, value] = operands(node, args)?;
            movement::pad(&numbers(low)?, data, value, &expected)?
        }
        Op::Window(w) => movement::window(w, w.size.eval_named(symbols)?, one()?, &expected)?,
        Op::Concat { axis } | Op::Append { axis } => movement::concat(*axis, args, &expected)?,
        Op::Reshape => movement::reshape(one()?, &expected)?,
        Op::Transpose { perm } => movement::transpose(perm, one()?, &expected)?,
        Op::Broadcast { dims } => movement::broadcast(dims, one()?, &expected)?,
        Op::Iota { axis } => movement::iota(*axis, &expected)?,
    };
    expected.accept(value)
}

/// A node's type with its dimensions evaluated: none is negative, and the product of the nonzero ones is at most
/// [`ELEMENTS_MAX`].
pub(crate) struct Expected<'a> {
    ty: &'a TensorType,
    pub dtype: DType,
    pub dims: Vec<usize>,
}

impl<'a> Expected<'a> {
    pub fn new(ty: &'a TensorType, symbols: &dyn Fn(&str) -> Option<i64>) -> Result<Expected<'a>> {
        numbers::check_dtype(ty.dtype)?;
        Ok(Expected { ty, dtype: ty.dtype, dims: extents(&ty.dims, symbols)? })
    }

    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Checks that computed dimensions are those of the type; to be called before the result is allocated.
    pub fn agree(&self, computed: &[usize]) -> Result<()> {
        if computed == self.dims {
            return Ok(());
        }
        let message = format!("the dimensions are {computed:?}, but its type {} says {:?}", self.ty, self.dims);
        Err(Error::user("E0201", message))
    }

    fn accept(&self, value: Tensor) -> Result<Tensor> {
        self.agree(value.dims())?;
        if value.dtype() != self.dtype {
            return Err(Error::defect(format!("the elements are {}, but its type is {}", value.dtype(), self.ty)));
        }
        Ok(value)
    }
}

/// Evaluates dimensions. Errors: E0201 for a negative one, E0202 if the product of those that are not 0 exceeds
/// [`ELEMENTS_MAX`], and those of `eval_named`.
pub(crate) fn extents(dims: &[Dim], symbols: &dyn Fn(&str) -> Option<i64>) -> Result<Vec<usize>> {
    let extent = |d: &Dim| {
        let n = d.eval_named(symbols)?;
        usize::try_from(n).map_err(|_| Error::user("E0201", format!("the dimension `{d}` is {n}")))
    };
    let out = dims.iter().map(extent).collect::<Result<Vec<usize>>>()?;
    // Products of the other dimensions serve as strides even if one dimension is 0.
    let nonzero: Vec<usize> = out.iter().map(|&n| n.max(1)).collect();
    if element_count(&nonzero).is_none_or(|n| n > ELEMENTS_MAX) {
        return Err(Error::user("E0202", format!("a tensor of {out:?} has more than {ELEMENTS_MAX} elements"))
            .help("give smaller input dimensions"));
    }
    Ok(out)
}

fn operands<'a, const N: usize>(node: &Node, args: &'a [Tensor]) -> Result<&'a [Tensor; N]> {
    let wrong = |_| Error::defect(format!("`{}` takes {N} operands, not {}", node.op.name(), args.len()));
    args.try_into().map_err(wrong)
}

fn check_order(graph: &Graph) -> Result<()> {
    let n = graph.nodes.len();
    let late = graph.values().find(|(v, node)| node.args.iter().any(|a| a >= v));
    if let Some((v, node)) = late {
        return Err(Error::defect("an operand does not come before its use").node(label(v, node)));
    }
    match graph.outputs.iter().find(|(_, v)| v.index() >= n) {
        Some((name, _)) => Err(Error::defect(format!("the output `{name}` is no value of the graph"))),
        None => Ok(()),
    }
}

/// The name of a node in errors: its ONNX origins, else the name of an input or parameter, else its number.
fn label(v: Value, node: &Node) -> String {
    if !node.origins.is_empty() {
        return node.origins.join(", ");
    }
    if let Op::Input { name, .. } | Op::Param { name, .. } = &node.op {
        return name.clone();
    }
    format!("%{} ({})", v.0, node.op.name())
}
