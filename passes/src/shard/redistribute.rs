//! a value as a rank holds it  =>  the same value as an operation needs it
//!
//! A whole value becomes split by a slice or, if it results from data movement or elementwise functions, by computing
//! only the part. Split to whole is an all-gather; partial to whole an all-reduce, partial to split a reduce-scatter.

use super::Along;
use super::split::{Ranks, Split, State};
use crate::find_caches;
use crate::remark::Missed;
use sardonyx_base::host::Collective;
use sardonyx_base::reduction::Reduction;
use sardonyx_base::{DType, Dim, HostOp, Result};
use sardonyx_dialects::params::Part;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Graph, Host, Node, Op, TensorType, Value};
use std::collections::{BTreeMap, HashMap};

/// The program of a rank under construction.
pub struct Local<'g> {
    /// The program of all ranks together.
    pub graph: &'g Graph,
    pub ranks: Ranks,
    out: Graph,
    /// By value of the whole program: the rank's value and its state.
    placed: Vec<(Value, State)>,
    wholes: HashMap<Value, Value>,
    splits: HashMap<(Value, Split), Value>,
    /// By value: whether it depends on parameters and constants only.
    fixed: Vec<bool>,
    /// Number of uses of each value.
    uses: Vec<usize>,
    /// How the input of each cache is split, in this entry point and earlier ones.
    pub states: &'g mut States,
    next_group: usize,
    pub missed: Vec<Missed>,
    pub along: Along,
    gathered_weights: HashMap<Value, Value>,
}

/// Every rank holds weights of fewer bytes whole: gathering them would save little.
pub const GATHERED_BYTES_MIN: i64 = 64 << 10;

/// Returns, by value, whether it depends on parameters and constants only.
pub fn fixed_values(graph: &Graph) -> Vec<bool> {
    let mut fixed: Vec<bool> = vec![];
    for node in &graph.nodes {
        let source = matches!(node.op, Op::Param { .. } | Op::Const(_) | Op::Dims(_) | Op::Iota { .. });
        let moved = !node.args.is_empty() && node.args.iter().all(|a| fixed[a.index()]);
        fixed.push(source || moved && node.op.binds().is_empty() && !matches!(node.op, Op::Host(_)));
    }
    fixed
}

/// Splits of caches by the name of their input; `None` if every rank has the whole cache.
pub type States = BTreeMap<String, Option<Split>>;

impl<'g> Local<'g> {
    pub fn new(graph: &'g Graph, ranks: Ranks, states: &'g mut States) -> Local<'g> {
        let next_group = graph.next_group();
        let out = Graph { nodes: vec![], outputs: vec![], ..graph.clone() };
        let (placed, wholes, splits) = (vec![], HashMap::new(), HashMap::new());
        let (fixed, uses) = (fixed_values(graph), find_caches::uses(graph));
        let (missed, along, gathered_weights) = (vec![], Along::default(), HashMap::new());
        Local {
            graph,
            ranks,
            out,
            placed,
            wholes,
            splits,
            fixed,
            uses,
            states,
            next_group,
            missed,
            along,
            gathered_weights,
        }
    }

    pub fn state(&self, v: Value) -> &State {
        &self.placed[v.index()].1
    }

    /// Returns the rank's part of a value.
    pub fn own(&self, v: Value) -> Value {
        self.placed[v.index()].0
    }

    pub fn is_fixed(&self, v: Value) -> bool {
        self.fixed[v.index()]
    }

    /// Whether the value is an append that a call may execute in place, in the memory of the first operand.
    pub fn is_state(&self, v: Value) -> bool {
        find_caches::is_state(self.graph, &self.uses, v)
    }

    /// Restricts an input that is not used yet to the rank's part.
    pub fn cut_input(&mut self, v: Value, part: Part, split: &Split) -> Value {
        let own = self.own(v);
        let node = &mut self.out.nodes[own.index()];
        node.ty = split.local(&node.ty, &self.ranks);
        if let Op::Input { parts, .. } = &mut node.op {
            parts.push(part);
        }
        self.placed[v.index()].1 = State::Split(split.clone());
        own
    }

    /// Records the rank's part of the next value of the whole program, and its state.
    pub fn put(&mut self, value: Value, state: State) {
        self.placed.push((value, state));
    }

    /// Adds a node to the rank's program. `ty` is its type, unless that follows from the operation and its operands.
    pub fn add(&mut self, op: Op, args: &[Value], ty: TensorType, origins: &[String]) -> Result<Value> {
        let takes_type = matches!(op, Op::Const(_) | Op::Reduce { .. } | Op::Contract(_) | Op::Gather { .. })
            || matches!(op, Op::Transpose { .. } | Op::Map(_) | Op::Concat { .. } | Op::Append { .. });
        self.out.add_as(op, args, (!takes_type).then_some(ty), origins)
    }

    /// Returns the whole value, equal on every rank.
    pub fn whole_value(&mut self, v: Value) -> Result<Value> {
        if let Some(&known) = self.wholes.get(&v) {
            return Ok(known);
        }
        let (own, state) = self.placed[v.index()].clone();
        let node = self.graph.node(v);
        let whole = match state {
            State::Whole => own,
            State::Partial(f) => {
                let op = Collective::AllReduce { mesh: self.ranks.axis, f };
                self.exchange(op, own, node.ty.clone(), &node.origins)?
            }
            State::Split(split) => self.gathered(own, &split, &node.ty, &node.origins)?,
            // The ranks' parts overlap, so the whole value is computed again instead of gathered.
            State::Halo(_) => {
                let args = node.args.iter().map(|a| self.whole_value(*a)).collect::<Result<Vec<Value>>>()?;
                self.add(node.op.clone(), &args, node.ty.clone(), &node.origins)?
            }
        };
        self.wholes.insert(v, whole);
        Ok(whole)
    }

    /// Returns the whole value for the operation that is being placed. Weights may be gathered at this point.
    pub fn needed_whole(&mut self, v: Value) -> Result<Value> {
        let is_needed_in_calls = self.fixed.get(self.placed.len()).is_some_and(|fixed| !fixed);
        let split = if self.along.gathers && is_needed_in_calls { self.split_of_weights(v) } else { None };
        match split {
            Some(split) => self.weights(v, &split),
            None => self.whole_value(v),
        }
    }

    /// Returns how weights that calls gather are split over the ranks; `None` for fewer than `GATHERED_BYTES_MIN`
    /// bytes, and for values that are not a parameter, possibly transposed or converted.
    fn split_of_weights(&self, v: Value) -> Option<Split> {
        let (ty, mut source) = (self.graph.ty(v), v);
        while let node @ Node { op: Op::Transpose { .. } | Op::Convert(_), .. } = self.graph.node(source) {
            source = node.args[0];
        }
        let bytes = ty.elements().as_const()?.saturating_mul(ty.dtype.bytes() as i64);
        let is_kept = matches!(self.graph.node(source).op, Op::Param { .. }) && bytes >= GATHERED_BYTES_MIN;
        let extents = || ty.dims.iter().map(|n| n.as_const().unwrap_or(0));
        // The first dimension that is long enough is split: the further out, the longer the contiguous runs of a part.
        let dim = extents().position(|n| n >= self.ranks.size).filter(|_| is_kept)?;
        Some(Split::plain(dim, &ty.dims[dim], &self.ranks))
    }

    fn weights(&mut self, v: Value, split: &Split) -> Result<Value> {
        if let Some(&known) = self.gathered_weights.get(&v) {
            return Ok(known);
        }
        let (own, node) = (self.split(v, split)?, self.graph.node(v));
        let whole = self.gathered(own, split, &node.ty, &node.origins)?;
        self.gathered_weights.insert(v, whole);
        Ok(whole)
    }

    pub fn exchange(&mut self, op: Collective, arg: Value, ty: TensorType, origins: &[String]) -> Result<Value> {
        let group = self.next_group;
        self.next_group += 1;
        let host = Host { op: HostOp::Collective(op), bodies: vec![], group, result: 0, binds: vec![] };
        self.add(Op::Host(Box::new(host)), &[arg], ty, origins)
    }

    /// Returns the type with the dimension of a split replaced by three, of which the middle one counts units.
    fn opened(ty: &TensorType, split: &Split, units: Dim) -> TensorType {
        let mut dims = ty.dims.clone();
        dims.splice(split.dim..=split.dim, [split.outer.clone(), units, split.unit.clone()]);
        TensorType::new(ty.dtype, dims)
    }

    pub fn gathered(&mut self, own: Value, split: &Split, ty: &TensorType, origins: &[String]) -> Result<Value> {
        let gather = |dim| Collective::AllGather { mesh: self.ranks.axis, dim };
        if split.outer.is_const(1) {
            return self.exchange(gather(split.dim), own, ty.clone(), origins);
        }
        let gather = gather(split.dim + 1);
        let open = self.add(Op::Reshape, &[own], Self::opened(ty, split, split.len(&self.ranks)), origins)?;
        let all = self.exchange(gather, open, Self::opened(ty, split, split.count.clone()), origins)?;
        self.add(Op::Reshape, &[all], ty.clone(), origins)
    }

    /// Returns the rank's part of the value under a split.
    pub fn split(&mut self, v: Value, split: &Split) -> Result<Value> {
        let key = (v, split.clone());
        if let Some(&known) = self.splits.get(&key) {
            return Ok(known);
        }
        let (own, state) = self.placed[v.index()].clone();
        let node = self.graph.node(v);
        let part = match state {
            State::Split(has) if has == *split => own,
            State::Partial(f) => self.scattered(own, f, split, node)?,
            State::Whole => self.part_of_whole(v, split)?,
            State::Split(_) | State::Halo(_) => {
                let whole = self.whole_value(v)?;
                self.sliced(whole, split, &node.ty, &node.origins)?
            }
        };
        self.splits.insert(key, part);
        Ok(part)
    }

    fn scattered(&mut self, own: Value, f: Reduction, split: &Split, node: &Node) -> Result<Value> {
        let (mesh, local) = (self.ranks.axis, split.local(&node.ty, &self.ranks));
        if split.outer.is_const(1) && (split.unit.is_const(1) || split.count.is_const(self.ranks.size)) {
            let op = Collective::ReduceScatter { mesh, f, dim: split.dim };
            return self.exchange(op, own, local, &node.origins);
        }
        let op = Collective::ReduceScatter { mesh, f, dim: split.dim + 1 };
        let open = self.add(Op::Reshape, &[own], Self::opened(&node.ty, split, split.count.clone()), &node.origins)?;
        let units = Self::opened(&node.ty, split, split.len(&self.ranks));
        let part = self.exchange(op, open, units, &node.origins)?;
        self.add(Op::Reshape, &[part], local, &node.origins)
    }

    fn sliced(&mut self, whole: Value, split: &Split, ty: &TensorType, origins: &[String]) -> Result<Value> {
        let (start, local) = (split.start(&self.ranks), split.local(ty, &self.ranks));
        let slice = |dim: usize, rank: usize, start: Dim| {
            let starts = (0..rank).map(|i| if i == dim { start.clone() } else { Dim::constant(0) }).collect();
            Op::Slice { starts, steps: vec![1; rank] }
        };
        if split.outer.is_const(1) {
            return self.add(slice(split.dim, ty.rank(), start * split.unit.clone()), &[whole], local, origins);
        }
        let open = self.add(Op::Reshape, &[whole], Self::opened(ty, split, split.count.clone()), origins)?;
        let units = Self::opened(ty, split, split.len(&self.ranks));
        let part = self.add(slice(split.dim + 1, ty.rank() + 2, start), &[open], units, origins)?;
        self.add(Op::Reshape, &[part], local, origins)
    }

    /// Returns the rank's part of a whole value. The results of data movement and elementwise functions are computed
    /// from parts of the operands, so that no rank computes, or reads from a parameter, the parts of other ranks.
    fn part_of_whole(&mut self, v: Value, split: &Split) -> Result<Value> {
        let node = self.graph.node(v);
        let (local, origins) = (split.local(&node.ty, &self.ranks), node.origins.as_slice());
        let part = match &node.op {
            Op::Param { name, parts, bounded } => self.part(node, split).map(|part| {
                let parts = [parts.as_slice(), &[part]].concat();
                (Op::Param { name: name.clone(), parts, bounded: *bounded }, vec![])
            }),
            Op::Broadcast { dims } => match dims.iter().position(|d| *d == split.dim) {
                Some(at) if !self.graph.ty(node.args[0]).dims[at].is_const(1) => {
                    Some((node.op.clone(), vec![self.split(node.args[0], &split.at(at))?]))
                }
                Some(_) | None => Some((node.op.clone(), vec![self.whole_value(node.args[0])?])),
            },
            Op::Transpose { perm } => {
                Some((node.op.clone(), vec![self.split(node.args[0], &split.at(perm[split.dim]))?]))
            }
            Op::Map(_) | Op::Convert(_) => {
                let args = node.args.iter().map(|a| self.split(*a, split)).collect::<Result<Vec<Value>>>()?;
                Some((node.op.clone(), args))
            }
            Op::Reshape => {
                let from = &self.graph.ty(node.args[0]).dims;
                match split.through_reshape(&node.ty.dims, from, &self.ranks) {
                    Some(before) => Some((Op::Reshape, vec![self.split(node.args[0], &before)?])),
                    None => None,
                }
            }
            Op::Iota { axis } if *axis != split.dim => Some((node.op.clone(), vec![])),
            Op::Iota { .. } if split.outer.is_const(1) => return self.iota(split, local, origins),
            _ => None,
        };
        match part {
            Some((op, args)) => self.add(op, &args, local, origins),
            None => {
                let whole = self.whole_value(v)?;
                self.sliced(whole, split, &node.ty, origins)
            }
        }
    }

    /// Returns the rank's part of a parameter or an input, if the dimension is constant.
    pub fn part(&self, node: &Node, split: &Split) -> Option<Part> {
        node.ty.dims.get(split.dim)?.as_const().filter(|n| split.extent().is_const(*n))?;
        let positive = |d: &Dim| d.as_const().filter(|n| *n > 0);
        let (outer, count, unit) = (positive(&split.outer)?, positive(&split.count)?, positive(&split.unit)?);
        Some(Part { axis: split.dim, outer, count, unit, start: split.start(&self.ranks), len: split.len(&self.ranks) })
    }

    /// Adds the rank's part of an iota, which starts at the rank's first position.
    fn iota(&mut self, split: &Split, local: TensorType, origins: &[String]) -> Result<Value> {
        let count = self.add(Op::Iota { axis: split.dim }, &[], local.clone(), origins)?;
        let start = Op::Dims(vec![split.start(&self.ranks) * split.unit.clone()]);
        let start = self.add(start, &[], TensorType::new(DType::I64, vec![]), origins)?;
        let start = self.add(Op::Broadcast { dims: vec![] }, &[start], local.clone(), origins)?;
        self.add(Op::Map(ScalarFn::Add), &[count, start], local, origins)
    }

    /// Makes the outputs whole, except caches of which each rank keeps a part. Returns the remarks.
    pub fn finish(&mut self) -> Result<Vec<Missed>> {
        for (name, v) in &self.graph.outputs {
            let continues_part = self.is_state(*v) && matches!(self.state(*v), State::Split(_));
            let value = if continues_part { self.own(*v) } else { self.whole_value(*v)? };
            self.out.outputs.push((name.clone(), value));
        }
        Ok(std::mem::take(&mut self.missed))
    }

    pub fn into_graph(self) -> Graph {
        self.out
    }
}
