//! a graph, samples  =>  statistics of the operands that weights are multiplied with, computed part by part
//!
//! A part is the subgraph between values that are already known and the next requested value. It is compiled and run on
//! each sample, and the values that later parts use are kept, so that the whole takes about as long as one call for
//! each sample.

use super::data::Sample;
use super::histogram::Histogram;
use crate::import::ParamStore;
use crate::module::MAIN;
use crate::pipeline::{self, Watch};
use crate::session::session;
use melior::ir::{Location, Module};
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_dialects::interp;
use sardonyx_dialects::mlir::{self, Operation};
use sardonyx_dialects::plan::Plan;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{ContractSpec, Graph, Node, Op, TensorType, Value};
use sardonyx_passes::calibrated::Range;
use sardonyx_passes::quantize::{Product, as_bytes};
use sardonyx_passes::{Options, Params, Rewrites};
use sardonyx_runtime::Session;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The first stage that is run on a part, which is an `sdx` graph that earlier stages have already rewritten.
const FIRST: &str = "sdx-to-flow";
/// Statistics, over all samples, of an operand that weights are multiplied with.
pub struct Factor {
    /// Σ xᵀx over the rows x of the operand: a [k, k] matrix, where k is the length of a row.
    pub products: Vec<f64>,
    /// Σ (x − q)² over all elements, where q is x rounded to 8-bit codes with one scale for each row.
    pub lost: f64,
}

/// Evaluation of a graph on samples, part by part, with the weights of earlier products already replaced.
pub struct Walk<'a> {
    graph: &'a Graph,
    samples: &'a [Sample],
    params: ParamStore,
    /// For each product whose weights have been rounded: which operand the weights are, and the parameter that replaces
    /// them.
    rounded: HashMap<Value, (usize, String)>,
    consumers: Vec<Vec<Value>>,
    /// For each value, whether it is a requested operand or is needed to compute one.
    needed: Vec<bool>,
    /// For each value, whether it depends on parameters and sizes alone; such a value is recomputed in each part that
    /// uses it.
    free: Vec<bool>,
    done: Vec<bool>,
    /// Known values that later parts still use, one tensor for each sample.
    held: BTreeMap<Value, Vec<Tensor>>,
}

impl<'a> Walk<'a> {
    /// `factors`: the values that are multiplied with weights and whose statistics will be requested.
    pub fn new(
        graph: &'a Graph,
        params: ParamStore,
        samples: &'a [Sample],
        factors: impl IntoIterator<Item = Value>,
    ) -> Walk<'a> {
        let n = graph.nodes.len();
        let (mut consumers, mut free) = (vec![vec![]; n], vec![]);
        for (v, node) in graph.values() {
            node.args.iter().for_each(|arg| consumers[arg.index()].push(v));
            let open = matches!(node.op, Op::Input { .. } | Op::Host(_) | Op::Bind { .. });
            free.push(!open && node.args.iter().all(|arg| free[arg.index()]));
        }
        let mut needed = vec![false; n];
        factors.into_iter().for_each(|v| needed[v.index()] = true);
        for (v, node) in graph.values().collect::<Vec<_>>().into_iter().rev() {
            if needed[v.index()] {
                node.args.iter().for_each(|arg| needed[arg.index()] = true);
            }
        }
        let (rounded, held) = (HashMap::new(), BTreeMap::new());
        Walk { graph, samples, params, rounded, consumers, needed, free, done: vec![false; n], held }
    }

    /// The weights of a product, as in the model.
    pub fn weights(&self, product: &Product) -> Result<Tensor> {
        self.value(product.weights)
    }

    /// Computes a value that depends on parameters alone.
    pub fn value(&self, v: Value) -> Result<Tensor> {
        let mut part = BTreeSet::new();
        let mut open = vec![v];
        while let Some(v) = open.pop() {
            if part.insert(v) {
                open.extend(&self.graph.node(v).args);
            }
        }
        let mut known: BTreeMap<Value, Tensor> = BTreeMap::new();
        for v in part {
            let node = self.graph.node(v);
            let value = match &node.op {
                Op::Param { name, .. } => {
                    self.params.get(name).cloned().ok_or_else(|| Error::defect(format!("`{name}` has no value")))?
                }
                _ => {
                    let args: Vec<Tensor> = node.args.iter().filter_map(|arg| known.get(arg).cloned()).collect();
                    interp::evaluate(node, &args, &|_| None)?
                }
            };
            known.insert(v, value);
        }
        known.remove(&v).ok_or_else(|| Error::defect("a value is not made of what is before it"))
    }

    /// Makes the product use these weights in all later parts.
    pub fn round(&mut self, product: &Product, weights: Tensor) {
        let name = format!("@rounded{}", self.rounded.len());
        self.params.insert(name.clone(), weights);
        self.rounded.insert(product.node, (product.operand, name));
    }

    /// Gives the parameter this value in all later parts.
    pub fn set(&mut self, name: &str, value: Tensor) {
        self.params.insert(name.to_string(), value);
    }

    /// Statistics of a value that is reduced along `axis`: Σ xᵀx, and the squared error of its 8-bit codes.
    pub fn factor(&mut self, (value, axis): (Value, usize)) -> Result<Factor> {
        let sums =
            self.sums(value, |graph, x| Ok(vec![products(graph, x, &[axis])?, lost_as_bytes(graph, x, axis)?]))?;
        let [products, lost] = <[Vec<f64>; 2]>::try_from(sums).map_err(|_| no_sums())?;
        Ok(Factor { products, lost: lost.first().copied().unwrap_or(0.0) })
    }

    /// Returns Σ xᵀx as a [k, k] matrix, where `axes` of x, the last one innermost, together make up the k positions.
    pub fn products(&mut self, value: Value, axes: &[usize]) -> Result<Vec<f64>> {
        self.sums(value, |graph, x| Ok(vec![products(graph, x, axes)?]))?.pop().ok_or_else(no_sums)
    }

    /// Runs the part that computes `value`, and the results that `made` adds to the part's graph. Returns the sums of
    /// these results over the samples, in f64 and in sample order.
    fn sums(
        &mut self,
        value: Value,
        made: impl FnOnce(&mut Graph, Value) -> Result<Vec<Value>>,
    ) -> Result<Vec<Vec<f64>>> {
        let part = self.part(value);
        let after: Vec<Value> = part.iter().copied().filter(|v| self.is_read_later(*v, &part)).collect();
        let (mut graph, map) = self.graph_of(&part, &[value])?;
        graph.outputs = after.iter().map(|v| (name(*v), map[v])).collect();
        let summed = made(&mut graph, map[&value])?;
        graph.outputs.extend(summed.iter().enumerate().map(|(i, v)| (format!("@sum{i}"), *v)));
        let session = code(&graph, &self.params, FIRST, Options::default())?;
        let mut sums = vec![vec![]; summed.len()];
        let mut known: BTreeMap<Value, Vec<Tensor>> = BTreeMap::new();
        for (i, sample) in self.samples.iter().enumerate() {
            let held = self.held.iter().filter(|(v, _)| map.contains_key(v)).map(|(v, ts)| (name(*v), ts[i].clone()));
            let outputs = sample.outputs(&session, &held.collect::<Vec<_>>())?;
            for (v, (_, tensor)) in after.iter().zip(&outputs) {
                known.entry(*v).or_default().push(tensor.clone());
            }
            for (sum, (_, tensor)) in sums.iter_mut().zip(outputs.iter().skip(after.len())) {
                add(sum, &tensor.to_vec::<f32>().ok_or_else(no_sums)?);
            }
        }
        self.held.extend(known);
        part.iter().for_each(|v| self.done[v.index()] = true);
        let (graph, done, consumers, needed) = (self.graph, &self.done, &self.consumers, &self.needed);
        let waits = |v: &Value| consumers[v.index()].iter().any(|c| needed[c.index()] && !done[c.index()]);
        self.held.retain(|v, _| !matches!(graph.node(*v).op, Op::Input { .. }) && waits(v));
        Ok(sums)
    }

    /// Returns, for each value, the range whose 8-bit codes have the least squared error over all samples.
    pub fn ranges(&self, values: &[Value]) -> Result<Vec<Range>> {
        let part: BTreeSet<Value> = values.iter().flat_map(|v| self.part(*v)).collect();
        let (mut graph, map) = self.graph_of(&part, values)?;
        graph.outputs = values.iter().map(|v| (name(*v), map[v])).collect();
        let session = code(&graph, &self.params, FIRST, Options::default())?;
        let mut seen = vec![Histogram::default(); values.len()];
        for sample in self.samples {
            for (seen, (_, output)) in seen.iter_mut().zip(sample.outputs(&session, &[])?) {
                seen.add(&output.to_vec::<f32>().ok_or_else(|| Error::defect("what is multiplied is no f32"))?);
            }
        }
        Ok(seen.iter().map(Histogram::range).collect())
    }

    /// All values that `value` is computed from and that are not known yet, and the operations that bind sizes.
    fn part(&self, value: Value) -> BTreeSet<Value> {
        let binds = self.graph.values().filter(|(_, node)| !node.op.binds().is_empty()).map(|(v, _)| v);
        let mut open: Vec<Value> = binds.chain([value]).collect();
        let mut part = BTreeSet::new();
        while let Some(v) = open.pop() {
            if !self.held.contains_key(&v) && part.insert(v) {
                open.extend(&self.graph.node(v).args);
            }
        }
        part
    }

    fn is_read_later(&self, v: Value, part: &BTreeSet<Value>) -> bool {
        let later = |c: &Value| self.needed[c.index()] && !self.done[c.index()] && !part.contains(c);
        let is_input = matches!(self.graph.node(v).op, Op::Input { .. });
        !is_input && !self.free[v.index()] && self.consumers[v.index()].iter().any(later)
    }

    /// The part as a graph of its own. Its inputs are those of the model, which determine the sizes, and the known
    /// values that the part or `wanted` needs.
    fn graph_of(&self, part: &BTreeSet<Value>, wanted: &[Value]) -> Result<(Graph, HashMap<Value, Value>)> {
        let whole = self.graph;
        let mut graph = Graph {
            name: MAIN.into(),
            symbols: whole.symbols.clone(),
            checks: whole.checks.clone(),
            bodies: whole.bodies.clone(),
            ..Graph::default()
        };
        let mut map = HashMap::new();
        for (v, _, _) in whole.inputs() {
            map.insert(v, graph.push(whole.node(v).clone()));
        }
        let read: BTreeSet<Value> = part.iter().flat_map(|v| whole.node(*v).args.iter().copied()).collect();
        for v in self.held.keys().filter(|v| read.contains(v) || wanted.contains(v)) {
            let op = Op::Input { name: name(*v), parts: vec![] };
            map.insert(*v, graph.push(Node { op, args: vec![], ..whole.node(*v).clone() }));
        }
        for v in part.iter().filter(|v| !matches!(whole.node(**v).op, Op::Input { .. })) {
            let mut node = whole.node(*v).clone();
            node.args = node.args.iter().map(|arg| map[arg]).collect();
            if let Op::Append { axis } = node.op {
                node.op = Op::Concat { axis };
            }
            if let Some((operand, name)) = self.rounded.get(v) {
                let ty: TensorType = whole.ty(whole.node(*v).args[*operand]).clone();
                let op = Op::Param { name: name.clone(), parts: vec![], bounded: false };
                node.args[*operand] = graph.push(Node { op, args: vec![], ty, origins: vec![] });
            }
            map.insert(*v, graph.push(node));
        }
        Ok((graph, map))
    }
}

fn lost_as_bytes(graph: &mut Graph, x: Value, axis: usize) -> Result<Value> {
    let bytes = as_bytes(graph, x, axis)?;
    let lost = graph.add_as(Op::Map(ScalarFn::Sub), &[x, bytes], None, &[])?;
    let squares = graph.add_as(Op::Map(ScalarFn::Mul), &[lost, lost], None, &[])?;
    let axes = (0..graph.ty(x).rank()).collect();
    graph.add_as(Op::Reduce { f: ReduceFn::Add, axes }, &[squares], None, &[])
}

fn no_sums() -> Box<Error> {
    Error::defect("a part of a graph gives no sums")
}

fn add(sums: &mut Vec<f64>, values: &[f32]) {
    sums.resize(values.len(), 0.0);
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(*value));
}

fn name(v: Value) -> String {
    format!("@{}", v.0)
}

/// Adds xᵀx as a [k, k] matrix, where `axes` of x, the last one innermost, together make up the k positions.
fn products(graph: &mut Graph, x: Value, axes: &[usize]) -> Result<Value> {
    graph.add_as(Op::Contract(square(graph.ty(x).rank(), axes)), &[x, x], None, &[])
}

/// The contraction of a value with itself that reduces over all axes except `axes`.
fn square(rank: usize, axes: &[usize]) -> ContractSpec {
    let left: Vec<char> = ('a'..='z').take(rank).collect();
    let mut right = left.clone();
    axes.iter().for_each(|axis| right[*axis] = left[*axis].to_ascii_uppercase());
    let result = [&left, &right].iter().flat_map(|letters| axes.iter().map(|axis| letters[*axis])).collect();
    ContractSpec { result, left, right }
}

/// Compiles a graph from the stage `first` on.
pub fn code(graph: &Graph, params: &ParamStore, first: &str, options: Options) -> Result<Session> {
    let context = sardonyx_passes::context();
    context.attach_diagnostic_handler(|_| true);
    let mut module = Module::new(Location::unknown(&context));
    sardonyx_passes::set_version(Operation::of_module(&module));
    for function in [graph].into_iter().chain(graph.bodies.values()) {
        mlir::Module::new(&mut module).push(function.write(mlir::Context::new(&context))?)?;
    }
    let first = pipeline::STAGES.iter().position(|(name, _)| *name == first).unwrap_or(0);
    // The pass that removes padding needs the number of unmasked rows, and each part would have to count them again.
    let watch = Watch { without: vec!["remove-padding", pipeline::KERNELS], ..Watch::default() };
    let mut rewrites = Rewrites::new(Options { params: Params::new(params.clone()), ..options });
    pipeline::run_stages(&context, &mut module, first..pipeline::STAGES.len(), &watch, &mut rewrites, &mut |_| Ok(()))?;
    let plan =
        Plan::read(Operation::of_module(&module))?.ok_or_else(|| Error::defect("a part of a graph has no plan"))?;
    session(plan, params)
}
