//! sdx.map "exp"(%x)  =>  flow.kernel { load; apply "exp"; store }: one kernel per operation, explicit movement
//!
//! Values that are the same scalar everywhere (constants, symbols, functions of these) get no container: they are
//! copied into the kernels that use them. A reshape is a view, unless `reshape_index` finds an index map for it, which
//! fusion can see through: for instance if it only adds or drops dimensions of extent 1.

mod reshapes;
mod states;

use crate::levels::{is_sdx, rewrite_functions};
use crate::rewrite::Rewrites;
use reshapes::{interleaves, merging_reshape, splitting_reshape, unit_reshape};
use sardonyx_base::{DType, Dim, Error, Result, Tensor};
use sardonyx_dialects::flow::{
    Body, Container, FlowOp, HostCall, HostResult, Kernel, Layout, Memlet, Program, Source, Statement, Step, Store,
    TensorValue,
};
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::params::Part;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{ContractSpec, Graph, Host, Node, Op, Symbol, TensorType, Value};
use states::{States, taken_names};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub fn run(module: &mut Module, _: &mut Rewrites) -> Result<()> {
    let (taken, cx) = (taken_names(module.operation())?, module.context());
    rewrite_functions(module, |function| {
        if !is_sdx(function) {
            return Ok(None);
        }
        convert(&Graph::read(function)?, &taken)?.write(cx).map(Some)
    })
}

/// How a value is represented.
#[derive(Clone)]
enum Place {
    Container(usize),
    /// A value that is the same at every point: statements without loads and without iteration variables. The last
    /// statement is the value.
    Scalar(Vec<Statement>),
}

struct Converter<'g> {
    graph: &'g Graph,
    program: Program,
    places: Vec<Place>,
    states: States,
    /// For each value: whether only contractions read it.
    only_contracted: Vec<bool>,
    /// For each value: whether only elementwise functions read it, directly or through slices and unit reshapes.
    only_mapped: Vec<bool>,
    /// For each value: whether it is computed elementwise from a cache. Such a value has as many positions as the
    /// cache, so it is not stored.
    of_states: Vec<bool>,
    /// Containers of the results of host operations, by group and index of the result.
    hosts: BTreeMap<(usize, usize), usize>,
}

fn convert(graph: &Graph, taken: &BTreeSet<String>) -> Result<Program> {
    let states = States::from_graph(graph, taken);
    let mut symbols = graph.symbols.clone();
    symbols.extend(states.symbols.iter().cloned().map(|(name, kind)| (name, Symbol { kind, lo: 0, hi: None })));
    let (name, checks, ports) = (graph.name.clone(), graph.checks.clone(), states.ports(graph));
    let program = Program { name, symbols, checks, states: ports, internal: graph.internal, ..Program::default() };
    let live = graph.live();
    let only_contracted = only_read_by(graph, &live, |node, _| matches!(node.op, Op::Contract(_)));
    let only_mapped = only_mapped(graph, &live);
    let of_states = of_states(graph, &states);
    let (places, hosts) = (vec![], BTreeMap::new());
    let mut c = Converter { graph, program, places, states, only_contracted, only_mapped, of_states, hosts };
    for (v, node) in graph.values() {
        let place = match live[v.index()] || matches!(node.op, Op::Input { .. }) {
            true => c.place(v, node).map_err(|e| match node.origins.first() {
                Some(origin) => e.node(origin),
                None => e,
            })?,
            false => Place::Scalar(vec![]),
        };
        c.places.push(place);
    }
    for (name, v) in &graph.outputs {
        let id = c.materialise(*v)?;
        c.program.outputs.push((name.clone(), id));
    }
    Ok(c.program)
}

fn container_of(ty: &TensorType) -> Container {
    Container::plain(ty.dtype, ty.dims.clone())
}

fn vars(from: usize, count: usize) -> Vec<Dim> {
    (from..from + count).map(Kernel::var).collect()
}

/// A kernel body under construction.
struct BodyBuilder {
    kernel: Kernel,
    args: Vec<usize>,
}

impl BodyBuilder {
    fn new(outer: &[Dim], inner: &[Dim]) -> BodyBuilder {
        let (reads, writes, body, stores) = (vec![], vec![], vec![], vec![]);
        let kernel = Kernel { outer: outer.to_vec(), inner: inner.to_vec(), deep: vec![], reads, writes, body, stores };
        BodyBuilder { kernel, args: vec![] }
    }

    fn push(&mut self, body: Body, dtype: DType) -> usize {
        self.kernel.body.push(Statement { body, dtype });
        self.kernel.body.len() - 1
    }

    fn apply(&mut self, f: ScalarFn, args: &[usize], dtype: DType) -> usize {
        self.push(Body::Apply { f, args: args.to_vec() }, dtype)
    }
}

impl Converter<'_> {
    fn place(&mut self, v: Value, node: &Node) -> Result<Place> {
        if let Some(statements) = self.scalar(node) {
            return Ok(Place::Scalar(statements));
        }
        Ok(Place::Container(match &node.op {
            Op::Input { name, .. } => {
                let layout = self.states.layouts.get(&v).cloned().unwrap_or(Layout::RowMajor);
                let id = self.program.container(Container { layout, ..container_of(&node.ty) });
                self.program.inputs.push((name.clone(), id));
                id
            }
            Op::Param { name, parts, .. } => {
                self.step(FlowOp::Param { source: Source::part(name, parts), window: None }, vec![], node)
            }
            Op::Const(t) => self.step(FlowOp::Const(TensorValue(t.clone())), vec![], node),
            Op::Dims(values) => self.dims_kernel(values, node),
            Op::Map(f) => self.map_kernel(node, |b, args, dtype| b.apply(*f, args, dtype))?,
            Op::Convert(how) => self.map_kernel(node, |b, args, dtype| b.push(Body::Convert(args[0], *how), dtype))?,
            Op::Reduce { f, axes } => self.reduce_kernel(*f, axes, node)?,
            Op::Contract(spec) => self.contract_kernel(spec, node)?,
            Op::Gather { axis } => self.gather_kernel(*axis, node)?,
            Op::Slice { starts, steps } => {
                let index =
                    (0..node.ty.rank()).map(|i| starts[i].clone() + Kernel::var(i) * Dim::constant(steps[i])).collect();
                self.index_kernel(node, index)?
            }
            Op::Window(w) => {
                let mut index = vars(0, node.ty.rank() - 1);
                let offset = Kernel::var(node.ty.rank() - 1) * Dim::constant(w.dilation);
                index[w.axis] = index[w.axis].clone() * Dim::constant(w.stride) + offset;
                self.index_kernel(node, index)?
            }
            Op::Pad { low } => self.pad_kernel(low, node)?,
            Op::Concat { axis } => match self.joined_params(*axis, node) {
                Some(source) => self.step(FlowOp::Param { source, window: None }, vec![], node),
                None => self.concat_kernel(*axis, node)?,
            },
            Op::Append { axis } => self.append_kernel(v, *axis, node)?,
            Op::Reshape => match self.reshape_index(v, node) {
                Some(index) => self.index_kernel(node, index)?,
                None => {
                    let arg = self.dense(node.args[0])?;
                    self.step(FlowOp::View, vec![arg], node)
                }
            },
            Op::Transpose { perm } => {
                let mut index = vec![Dim::constant(0); perm.len()];
                perm.iter().enumerate().for_each(|(i, &p)| index[p] = Kernel::var(i));
                self.index_kernel(node, index)?
            }
            Op::Broadcast { dims } => {
                let from = &self.graph.ty(node.args[0]).dims;
                let at = |(i, &d): (usize, &usize)| match from[i].is_const(1) {
                    true => Dim::constant(0),
                    false => Kernel::var(d),
                };
                let index = dims.iter().enumerate().map(at).collect();
                self.index_kernel(node, index)?
            }
            Op::Iota { axis } => {
                let mut b = BodyBuilder::new(&node.ty.dims, &[]);
                let v = b.push(Body::Index(Kernel::var(*axis)), DType::I64);
                self.finish(b, v, node)
            }
            Op::Place(_) => return Err(Error::defect("a place that the stage `shard` did not see")),
            Op::Bind { symbol } => {
                let arg = self.materialise(node.args[0])?;
                let op = FlowOp::Bind { symbol: symbol.clone() };
                let origins = node.origins.clone();
                self.program.steps.push(Step { op, args: vec![arg], results: vec![], origins });
                arg
            }
            Op::Host(host) => self.host(host, node)?,
        }))
    }

    /// Returns the container of a host operation's result. The first result of a group adds one step for all results of
    /// the group, as their operands are the same.
    fn host(&mut self, host: &Host, node: &Node) -> Result<usize> {
        if let Some(&id) = self.hosts.get(&(host.group, host.result)) {
            return Ok(id);
        }
        let mut args = vec![];
        for &arg in &node.args {
            args.push(self.dense(arg)?);
        }
        let (graph, live) = (self.graph, self.graph.live());
        let (mut results, mut ids, mut origins) = (vec![], vec![], vec![]);
        for (v, other) in graph.values().filter(|(v, _)| live[v.index()]) {
            let Op::Host(h) = &other.op else { continue };
            if !h.same_run(host) || self.hosts.contains_key(&(h.group, h.result)) {
                continue;
            }
            let id = self.program.container(container_of(graph.ty(v)));
            self.hosts.insert((h.group, h.result), id);
            results.push(HostResult { index: h.result, binds: h.binds.clone() });
            ids.push(id);
            for origin in &other.origins {
                if !origins.contains(origin) {
                    origins.push(origin.clone());
                }
            }
        }
        let op = FlowOp::Host(HostCall { op: host.op.clone(), bodies: host.bodies.clone(), results });
        self.program.steps.push(Step { op, args, results: ids, origins });
        let found = self.hosts.get(&(host.group, host.result));
        found.copied().ok_or_else(|| Error::defect("a result of a host operation is in no group"))
    }

    /// Returns the statements that compute a value which is the same scalar everywhere; `None` for other values.
    fn scalar(&self, node: &Node) -> Option<Vec<Statement>> {
        let of = |v: Value| match &self.places[v.index()] {
            Place::Scalar(s) => Some(s.clone()),
            Place::Container(_) => None,
        };
        match &node.op {
            Op::Const(t) => {
                let first = t.get_f64(0)?;
                // An f64 represents integers below 2^53 exactly; 2^53 itself may be a rounded 2^53 + 1.
                let exact = first.abs() < (1u64 << 53) as f64 || t.dtype().is_float();
                let same = (1..t.len()).all(|i| t.get_f64(i).is_some_and(|v| v.to_bits() == first.to_bits()));
                (exact && same).then(|| vec![Statement { body: Body::Const(first), dtype: t.dtype() }])
            }
            Op::Dims(values) if values.len() == 1 => {
                Some(vec![Statement { body: Body::Index(values[0].clone()), dtype: DType::I64 }])
            }
            Op::Broadcast { .. } | Op::Reshape => of(node.args[0]),
            Op::Convert(how) => {
                let mut s = of(node.args[0])?;
                s.push(Statement { body: Body::Convert(s.len() - 1, *how), dtype: node.ty.dtype });
                Some(s)
            }
            Op::Map(f) => {
                let mut all: Vec<Statement> = vec![];
                let mut args = vec![];
                for &arg in &node.args {
                    append(&mut all, &of(arg)?);
                    args.push(all.len() - 1);
                }
                all.push(Statement { body: Body::Apply { f: *f, args }, dtype: node.ty.dtype });
                Some(all)
            }
            _ => None,
        }
    }

    fn step(&mut self, op: FlowOp, args: Vec<usize>, node: &Node) -> usize {
        let id = self.program.container(container_of(&node.ty));
        self.program.steps.push(Step { op, args, results: vec![id], origins: node.origins.clone() });
        id
    }

    /// Returns the container of a value; for a scalar, adds a kernel that writes it to a new container.
    fn materialise(&mut self, v: Value) -> Result<usize> {
        let statements = match &self.places[v.index()] {
            Place::Container(id) => return Ok(*id),
            Place::Scalar(s) => s.clone(),
        };
        let node = self.graph.node(v).clone();
        let mut b = BodyBuilder::new(&node.ty.dims, &[]);
        append(&mut b.kernel.body, &statements);
        let value = statements.len().checked_sub(1).ok_or_else(|| Error::defect("a dead value is used"))?;
        Ok(self.finish(b, value, &node))
    }

    /// Ends a body: stores `value` at the iteration variables of all of the node's dimensions.
    fn finish(&mut self, mut b: BodyBuilder, value: usize, node: &Node) -> usize {
        let index = vars(0, node.ty.rank());
        b.kernel.stores.push(Store { memlet: Memlet { container: 0, index }, value });
        b.kernel.writes.push(container_of(&node.ty));
        self.step(FlowOp::Kernel(Arc::new(b.kernel)), b.args, node)
    }

    /// Adds a statement that reads a value at an index; a scalar's statements are copied in instead.
    fn read(&mut self, b: &mut BodyBuilder, v: Value, index: Vec<Dim>, guard: Option<usize>) -> Result<usize> {
        if let Place::Scalar(statements) = &self.places[v.index()] {
            append(&mut b.kernel.body, statements);
            return Ok(b.kernel.body.len() - 1);
        }
        let id = self.materialise(v)?;
        Ok(self.load(b, id, index, guard))
    }

    fn load(&self, b: &mut BodyBuilder, id: usize, index: Vec<Dim>, guard: Option<usize>) -> usize {
        let container = b.args.iter().position(|&a| a == id).unwrap_or_else(|| {
            b.args.push(id);
            b.kernel.reads.push(self.program.containers[id].clone());
            b.args.len() - 1
        });
        b.push(Body::Load { memlet: Memlet { container, index }, guard }, self.program.containers[id].dtype)
    }

    fn map_kernel(&mut self, node: &Node, f: impl Fn(&mut BodyBuilder, &[usize], DType) -> usize) -> Result<usize> {
        let mut b = BodyBuilder::new(&node.ty.dims, &[]);
        let mut args = vec![];
        for &arg in &node.args {
            args.push(self.read(&mut b, arg, vars(0, node.ty.rank()), None)?);
        }
        let value = f(&mut b, &args, node.ty.dtype);
        Ok(self.finish(b, value, node))
    }

    /// Adds the kernel result[%…] = operand[index].
    fn index_kernel(&mut self, node: &Node, index: Vec<Dim>) -> Result<usize> {
        let mut b = BodyBuilder::new(&node.ty.dims, &[]);
        let value = self.read(&mut b, node.args[0], index, None)?;
        Ok(self.finish(b, value, node))
    }

    /// Returns the index map of a reshape that fusion should see through; `None` for a reshape that becomes a view.
    fn reshape_index(&self, v: Value, node: &Node) -> Option<Vec<Dim>> {
        let from = &self.graph.ty(node.args[0]).dims;
        let of = |op: fn(&Op) -> bool| op(&self.graph.node(node.args[0]).op);
        // A slice has no memory of its own that a view could refer to, because its consumers index the sliced tensor.
        // The rows of a cache are not contiguous, so they permit no view either.
        let part = of(|op| matches!(op, Op::Slice { .. } | Op::Append { .. }));
        let split = part.then(|| splitting_reshape(from, &node.ty.dims)).flatten();
        unit_reshape(from, &node.ty.dims).or(split).or_else(|| {
            // A broadcast need not be stored if contractions are the only consumers of the reshape, or if the reshape
            // is computed from a cache: the consumers can index the operand of the broadcast instead.
            let repeated = of(|op| matches!(op, Op::Broadcast { .. }));
            let only_read = self.only_contracted[v.index()] || self.of_states[v.index()];
            // A transpose that interleaves images is not stored either: its innermost axis is shorter than a vector.
            let transposed = of(|op| matches!(op, Op::Transpose { .. }));
            let apart = transposed && self.only_mapped[v.index()] && interleaves(from, &node.ty.dims);
            (repeated && only_read || apart).then(|| merging_reshape(from, &node.ty.dims)).flatten()
        })
    }

    fn reduce_kernel(&mut self, f: sardonyx_dialects::scalar::ReduceFn, axes: &[usize], node: &Node) -> Result<usize> {
        let from = self.graph.ty(node.args[0]).clone();
        let inner: Vec<Dim> = axes.iter().map(|&a| from.dims[a].clone()).collect();
        let (mut row, mut column) = (0, node.ty.rank());
        let index = (0..from.rank()).map(|i| {
            let next = if axes.contains(&i) { &mut column } else { &mut row };
            *next += 1;
            Kernel::var(*next - 1)
        });
        let index = index.collect();
        let mut b = BodyBuilder::new(&node.ty.dims, &inner);
        // A reduction needs an operand with a value at each point, so a scalar operand is written to memory first.
        let id = self.materialise(node.args[0])?;
        b.args.push(id);
        b.kernel.reads.push(self.program.containers[id].clone());
        let point = b.push(Body::Load { memlet: Memlet { container: 0, index }, guard: None }, from.dtype);
        let value = b.push(Body::Reduce { f, arg: point }, from.dtype);
        Ok(self.finish(b, value, node))
    }

    fn contract_kernel(&mut self, spec: &ContractSpec, node: &Node) -> Result<usize> {
        let summed = spec.summed();
        let extent = |c: &char| {
            let at =
                |letters: &[char], v: Value| Some(self.graph.ty(v).dims[letters.iter().position(|l| l == c)?].clone());
            at(&spec.left, node.args[0]).or_else(|| at(&spec.right, node.args[1])).unwrap_or(Dim::constant(1))
        };
        let inner: Vec<Dim> = summed.iter().map(extent).collect();
        let var = |c: &char| {
            let at = spec.result.iter().chain(&summed).position(|l| l == c).unwrap_or(0);
            Kernel::var(at)
        };
        let mut b = BodyBuilder::new(&node.ty.dims, &inner);
        let mut points = vec![];
        for (letters, v) in [(&spec.left, node.args[0]), (&spec.right, node.args[1])] {
            points.push(self.read(&mut b, v, letters.iter().map(var).collect(), None)?);
        }
        let dtype = node.ty.dtype;
        let product = b.apply(ScalarFn::Mul, &points, dtype);
        let value = match inner.is_empty() {
            true => product,
            false => b.push(Body::Reduce { f: sardonyx_dialects::scalar::ReduceFn::Add, arg: product }, dtype),
        };
        Ok(self.finish(b, value, node))
    }

    fn gather_kernel(&mut self, axis: usize, node: &Node) -> Result<usize> {
        let rank = self.graph.ty(node.args[1]).rank();
        let mut b = BodyBuilder::new(&node.ty.dims, &[]);
        let at = self.read(&mut b, node.args[1], vars(axis, rank), None)?;
        let mut index = vars(0, axis);
        index.push(Kernel::value(at));
        index.extend(vars(axis + rank, node.ty.rank() - axis - rank));
        // The table is stored in memory even if all its elements are equal, because the load checks the index.
        let table = self.materialise(node.args[0])?;
        let value = self.load(&mut b, table, index, None);
        Ok(self.finish(b, value, node))
    }

    /// Adds a bool statement: lo <= at < hi for one dimension.
    fn inside(b: &mut BodyBuilder, at: Dim, lo: Option<Dim>, hi: Option<Dim>) -> Option<usize> {
        let index = b.push(Body::Index(at), DType::I64);
        let above = lo.map(|lo| {
            let lo = b.push(Body::Index(lo), DType::I64);
            b.apply(ScalarFn::Le, &[lo, index], DType::Bool)
        });
        let below = hi.map(|hi| {
            let hi = b.push(Body::Index(hi), DType::I64);
            b.apply(ScalarFn::Lt, &[index, hi], DType::Bool)
        });
        match (above, below) {
            (Some(x), Some(y)) => Some(b.apply(ScalarFn::And, &[x, y], DType::Bool)),
            (one, other) => one.or(other),
        }
    }

    fn pad_kernel(&mut self, low: &[Dim], node: &Node) -> Result<usize> {
        let from = self.graph.ty(node.args[0]).clone();
        let mut b = BodyBuilder::new(&node.ty.dims, &[]);
        let mut guard: Option<usize> = None;
        for (i, (low, extent)) in low.iter().zip(&from.dims).enumerate() {
            if low.is_const(0) && *extent == node.ty.dims[i] {
                continue;
            }
            let at = Kernel::var(i) - low.clone();
            let here = Self::inside(&mut b, at, Some(Dim::constant(0)), Some(extent.clone()));
            guard = match (guard, here) {
                (Some(x), Some(y)) => Some(b.apply(ScalarFn::And, &[x, y], DType::Bool)),
                (one, other) => one.or(other),
            };
        }
        let index = (0..from.rank()).map(|i| Kernel::var(i) - low[i].clone()).collect();
        let inside = self.read(&mut b, node.args[0], index, guard)?;
        let outside = self.read(&mut b, node.args[1], vec![], None)?;
        let value = match guard {
            Some(g) => b.apply(ScalarFn::Select, &[g, inside, outside], node.ty.dtype),
            None => inside,
        };
        Ok(self.finish(b, value, node))
    }

    /// Returns the source of a concatenated parameter if all operands are parameters; the parameters are concatenated
    /// when the artifact is written.
    fn joined_params(&self, axis: usize, node: &Node) -> Option<Source> {
        let name = |v: &Value| match &self.graph.node(*v).op {
            Op::Param { name, parts, .. } => Some((name.clone(), parts.clone())),
            _ => None,
        };
        let all: Vec<(String, Vec<Part>)> = node.args.iter().map(name).collect::<Option<_>>()?;
        let (names, parts): (Vec<String>, Vec<Vec<Part>>) = all.into_iter().unzip();
        let parts = if parts.iter().all(Vec::is_empty) { vec![] } else { parts };
        (names.len() > 1).then_some(Source { names, parts, axis, transform: None })
    }

    /// Adds the kernel select(i < n0, a[i], select(i < n0 + n1, b[i - n0], …)).
    fn concat_kernel(&mut self, axis: usize, node: &Node) -> Result<usize> {
        let mut b = BodyBuilder::new(&node.ty.dims, &[]);
        let value = self.joined(&mut b, axis, &vars(0, node.ty.rank()), node)?;
        Ok(self.finish(b, value, node))
    }

    /// Adds statements that read a concatenation at index `at`; returns the statement of the value.
    fn joined(&mut self, b: &mut BodyBuilder, axis: usize, at: &[Dim], node: &Node) -> Result<usize> {
        let mut start = Dim::constant(0);
        let mut parts: Vec<(usize, usize)> = vec![];
        for &arg in &node.args {
            let end = start.clone() + self.graph.ty(arg).dims[axis].clone();
            let guard = Self::inside(b, at[axis].clone(), Some(start.clone()), Some(end.clone()));
            let guard = guard.ok_or_else(|| Error::defect("a bounded range has a guard"))?;
            let mut index = at.to_vec();
            index[axis] = index[axis].clone() - start;
            parts.push((guard, self.read(b, arg, index, Some(guard))?));
            start = end;
        }
        let (_, mut value) = parts.pop().ok_or_else(|| Error::defect("a concat without operands"))?;
        for (guard, part) in parts.into_iter().rev() {
            value = b.apply(ScalarFn::Select, &[guard, part, value], node.ty.dtype);
        }
        Ok(value)
    }

    /// Adds a kernel for a vector of symbolic values: select(i == 0, d0, select(i == 1, d1, …)).
    fn dims_kernel(&mut self, values: &[Dim], node: &Node) -> usize {
        let mut b = BodyBuilder::new(&node.ty.dims, &[]);
        let at = b.push(Body::Index(Kernel::var(0)), DType::I64);
        let Some((last, first)) = values.split_last() else {
            return self.step(FlowOp::Const(TensorValue(Tensor::zeros(DType::I64, vec![0]))), vec![], node);
        };
        let mut value = b.push(Body::Index(last.clone()), DType::I64);
        for (i, d) in first.iter().enumerate().rev() {
            let i = b.push(Body::Index(Dim::constant(i as i64)), DType::I64);
            let here = b.apply(ScalarFn::Eq, &[at, i], DType::Bool);
            let d = b.push(Body::Index(d.clone()), DType::I64);
            value = b.apply(ScalarFn::Select, &[here, d, value], DType::I64);
        }
        self.finish(b, value, node)
    }
}

/// Appends statements, renumbering their operands.
fn append(to: &mut Vec<Statement>, statements: &[Statement]) {
    let base = to.len();
    to.extend(statements.iter().map(|s| Statement { body: s.body.shifted(base), dtype: s.dtype }));
}

/// Returns, for each value, whether it is computed elementwise from a cache.
fn of_states(graph: &Graph, states: &States) -> Vec<bool> {
    let mut out: Vec<bool> = vec![];
    for (v, node) in graph.values() {
        let of_args = node.args.iter().any(|a| out[a.index()]);
        out.push(match &node.op {
            Op::Append { .. } => states.layouts.contains_key(&v),
            Op::Map(_) | Op::Convert(_) | Op::Broadcast { .. } | Op::Reshape => of_args,
            _ => false,
        });
    }
    out
}

/// Returns, for each value, whether all its readers are elementwise functions, or slices and reshapes that only add or
/// drop dimensions of extent 1, whose results in turn have only such readers.
fn only_mapped(graph: &Graph, live: &[bool]) -> Vec<bool> {
    only_read_by(graph, live, |node, itself| match node.op {
        Op::Map(_) => true,
        Op::Slice { .. } => itself,
        Op::Reshape => itself && unit_reshape(&graph.ty(node.args[0]).dims, &node.ty.dims).is_some(),
        _ => false,
    })
}

/// Returns, for each value, whether it has readers, is no output, and `counts` holds for all its readers. The second
/// argument of `counts` is whether the same is true of the reader's own value.
fn only_read_by(graph: &Graph, live: &[bool], counts: impl Fn(&Node, bool) -> bool) -> Vec<bool> {
    let (mut read, mut otherwise) = (vec![false; graph.nodes.len()], vec![false; graph.nodes.len()]);
    graph.outputs.iter().for_each(|(_, v)| otherwise[v.index()] = true);
    let nodes: Vec<(Value, &Node)> = graph.values().filter(|(v, _)| live[v.index()]).collect();
    // In reverse order, all readers of a value are visited before the value itself.
    for (v, node) in nodes.into_iter().rev() {
        let itself = read[v.index()] && !otherwise[v.index()];
        let found = if counts(node, itself) { &mut read } else { &mut otherwise };
        node.args.iter().for_each(|a| found[a.index()] = true);
    }
    read.iter().zip(&otherwise).map(|(read, other)| *read && !*other).collect()
}
