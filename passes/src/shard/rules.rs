//! operation, how a rank has its operands  =>  the rank's operation, and how the rank has its result
//!
//! An operation keeps a split that it does not look across, and makes others whole. A sum over what is split is partial.

use super::redistribute::Local;
use super::split::{Split, State};
use crate::remark::Missed;
use sardonyx_base::reduction::Reduction;
use sardonyx_base::{DType, Dim, Error, Result, Tensor};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{ContractSpec, Node, Op, Place, TensorType, Value};

impl Local<'_> {
    /// Puts the next value of the program into that of the rank.
    pub fn place(&mut self, v: Value) -> Result<()> {
        let graph = self.graph;
        let node = graph.node(v);
        let result = match &node.op {
            Op::Map(f) => self.map(*f, node)?,
            Op::Convert(_) => self.along(node, |split, _| Some(split.clone()))?,
            Op::Reduce { f, axes } => self.reduce(*f, axes, node)?,
            Op::Contract(spec) => self.contract(v, spec, node)?,
            Op::Gather { axis } => self.gather(*axis, node)?,
            Op::Slice { starts, steps } => self.slice(starts, steps, node)?,
            Op::Pad { low } => self.along(node, |split, node| {
                let all = node.ty.dims[split.dim] == graph.ty(node.args[0]).dims[split.dim];
                (all && low[split.dim].is_const(0)).then(|| split.clone())
            })?,
            Op::Window(w) => self.along(node, |split, _| (split.dim != w.axis).then(|| split.clone()))?,
            Op::Concat { axis } => self.along_all(node, |split| split.dim != *axis)?,
            Op::Reshape => {
                let ranks = self.ranks.clone();
                self.along(node, |split, node| {
                    split.through_reshape(&graph.ty(node.args[0]).dims, &node.ty.dims, &ranks)
                })?
            }
            Op::Transpose { perm } => {
                self.along(node, |split, _| Some(split.at(perm.iter().position(|p| *p == split.dim)?)))?
            }
            Op::Broadcast { dims } => self.along(node, |split, node| {
                let to = split.at(dims[split.dim]);
                (node.ty.dims[to.dim] == graph.ty(node.args[0]).dims[split.dim]).then_some(to)
            })?,
            Op::Input { .. } | Op::Param { .. } | Op::Const(_) | Op::Dims(_) | Op::Iota { .. } => self.same(node)?,
            Op::Append { axis } => self.append(v, *axis, node)?,
            Op::Bind { .. } | Op::Host(_) => self.same(node)?,
            Op::Place(place) => self.placed(place, node)?,
        };
        let (value, state) = result;
        self.put(value, state);
        Ok(())
    }

    /// The operation on whole operands.
    fn same(&mut self, node: &Node) -> Result<(Value, State)> {
        let args = node.args.iter().map(|a| self.whole(*a)).collect::<Result<Vec<Value>>>()?;
        Ok((self.add(node.op.clone(), &args, node.ty.clone(), &node.origins)?, State::Whole))
    }

    /// The operation on what a rank has of the first operand, where `through` says how the result is split then; further
    /// operands are whole.
    fn along(&mut self, node: &Node, through: impl Fn(&Split, &Node) -> Option<Split>) -> Result<(Value, State)> {
        let State::Split(has) = self.state(node.args[0]).clone() else { return self.same(node) };
        let Some(split) = through(&has, node) else { return self.same(node) };
        let mut args = vec![self.split(node.args[0], &has)?];
        for rest in &node.args[1..] {
            args.push(self.whole(*rest)?);
        }
        let local = split.local(&node.ty, &self.ranks);
        Ok((self.add(node.op.clone(), &args, local, &node.origins)?, State::Split(split)))
    }

    /// As the model says; what it says of other axes of the mesh stays.
    fn placed(&mut self, place: &Place, node: &Node) -> Result<(Value, State)> {
        let arg = node.args[0];
        if place.mesh != self.ranks.axis {
            return self.along(node, |split, _| Some(split.clone()));
        }
        let Some((dim, outer, unit)) = &place.split else { return Ok((self.whole(arg)?, State::Whole)) };
        let run = outer.clone() * unit.clone();
        let count = node.ty.dims[*dim].exact_div(&run).ok_or_else(|| {
            let (extent, name) = (&node.ty.dims[*dim], node.origins.first().map_or("", String::as_str));
            let message = format!("dimension {dim} of {extent} elements is not {outer} times units of {unit}");
            Error::user("E0108", message).node(name)
        })?;
        let split = Split::new(*dim, [outer.clone(), count, unit.clone()], &self.ranks);
        Ok((self.split(arg, &split)?, State::Split(split)))
    }

    /// A state that grows in place is split as what is appended to it, where what reads it needs it so: each rank then
    /// keeps its own part, and callers who have it whole get it whole.
    fn append(&mut self, v: Value, axis: usize, node: &Node) -> Result<(Value, State)> {
        let [past, next] = [node.args[0], node.args[1]];
        let name = match &self.graph.node(past).op {
            Op::Input { name, .. } if self.is_state(v) => name.clone(),
            _ => return self.same(node),
        };
        let own = match self.state(next) {
            State::Split(split) if split.dim != axis && self.meets_its_like(v, split) => Some(split.clone()),
            State::Split(_) | State::Whole | State::Partial(_) => None,
        };
        // Of all entry points the first decides: a cache is one for all.
        let split = self.states.entry(name).or_insert(own).clone();
        let Some((split, part)) = split.and_then(|s| Some((s.clone(), self.part(self.graph.node(past), &s)?))) else {
            return self.same(node);
        };
        let past = self.cut_input(past, part, &split);
        let next = self.split(next, &split)?;
        let local = split.local(&node.ty, &self.ranks);
        Ok((self.add(node.op.clone(), &[past, next], local, &node.origins)?, State::Split(split)))
    }

    /// A slice keeps a split of another dimension, and what it takes whole; of several runs it may take some: the queries,
    /// keys or values of one product.
    fn slice(&mut self, starts: &[Dim], steps: &[i64], node: &Node) -> Result<(Value, State)> {
        let State::Split(has) = self.state(node.args[0]).clone() else { return self.same(node) };
        let Some((split, first)) = self.sliced_runs(&has, starts, steps, &node.ty) else { return self.same(node) };
        let mut starts = starts.to_vec();
        starts[has.dim] = first * split.len(&self.ranks) * split.unit.clone();
        let arg = self.split(node.args[0], &has)?;
        let local = split.local(&node.ty, &self.ranks);
        let op = Op::Slice { starts, steps: steps.to_vec() };
        Ok((self.add(op, &[arg], local, &node.origins)?, State::Split(split)))
    }

    /// The operation on operands that are all split as the first of them is that is split so that it may be.
    fn along_all(&mut self, node: &Node, keeps: impl Fn(&Split) -> bool) -> Result<(Value, State)> {
        let split = node.args.iter().find_map(|a| match self.state(*a) {
            State::Split(split) if keeps(split) => Some(split.clone()),
            State::Split(_) | State::Whole | State::Partial(_) => None,
        });
        let Some(split) = split else { return self.same(node) };
        let args = node.args.iter().map(|a| self.split(*a, &split)).collect::<Result<Vec<Value>>>()?;
        let local = split.local(&node.ty, &self.ranks);
        Ok((self.add(node.op.clone(), &args, local, &node.origins)?, State::Split(split)))
    }

    /// Sums of what is partial are partial too.
    fn map(&mut self, f: ScalarFn, node: &Node) -> Result<(Value, State)> {
        let partial = State::Partial(Reduction::Add);
        let sums = matches!(f, ScalarFn::Add | ScalarFn::Sub) && node.args.iter().all(|a| *self.state(*a) == partial);
        if sums {
            let args: Vec<Value> = node.args.iter().map(|a| self.own(*a)).collect();
            return Ok((self.add(node.op.clone(), &args, node.ty.clone(), &node.origins)?, partial));
        }
        self.along_all(node, |_| true)
    }

    fn reduce(&mut self, f: ReduceFn, axes: &[usize], node: &Node) -> Result<(Value, State)> {
        let State::Split(has) = self.state(node.args[0]).clone() else { return self.same(node) };
        let arg = self.split(node.args[0], &has)?;
        if axes.contains(&has.dim) {
            let Some(by) = reduction(f).filter(|by| by.admits(node.ty.dtype)) else { return self.same(node) };
            let partial = self.add(node.op.clone(), &[arg], node.ty.clone(), &node.origins)?;
            return Ok((partial, State::Partial(by)));
        }
        let split = has.at(has.dim - axes.iter().filter(|a| **a < has.dim).count());
        let local = split.local(&node.ty, &self.ranks);
        Ok((self.add(node.op.clone(), &[arg], local, &node.origins)?, State::Split(split)))
    }

    fn contract(&mut self, v: Value, spec: &ContractSpec, node: &Node) -> Result<(Value, State)> {
        let sides = [(&spec.left, node.args[0]), (&spec.right, node.args[1])];
        let has = |(letters, arg): &(&Vec<char>, Value)| match self.state(*arg) {
            State::Split(split) => Some((letters[split.dim], split.clone())),
            State::Whole | State::Partial(_) => None,
        };
        // Of two the one that is summed over: what is split along both sides needs no exchange of the larger result.
        let both = [has(&sides[0]), has(&sides[1])];
        let chosen = both.iter().flatten().find(|(c, _)| !spec.result.contains(c)).or(both.iter().flatten().next());
        let begins = chosen.is_none();
        let Some((letter, split)) = chosen.cloned().or_else(|| self.seed(v, spec)) else {
            if node.args.iter().any(|a| self.is_fixed(*a)) {
                let detail = format!("`{spec}` of {} and {}", self.graph.ty(node.args[0]), self.graph.ty(node.args[1]));
                let missed = Missed::because("every rank computes the whole product", &detail);
                self.missed.push(Missed { node: node.origins.first().cloned(), ..missed });
            }
            return self.same(node);
        };
        let mut args = vec![];
        for (letters, arg) in sides {
            args.push(match letters.iter().position(|c| *c == letter) {
                Some(dim) => self.split(arg, &split.at(dim))?,
                None => self.whole(arg)?,
            });
        }
        let Some(dim) = spec.result.iter().position(|c| *c == letter) else {
            let partial = self.add(node.op.clone(), &args, node.ty.clone(), &node.origins)?;
            return Ok((partial, State::Partial(Reduction::Add)));
        };
        let split = split.at(dim);
        let local = split.local(&node.ty, &self.ranks);
        let part = self.add(node.op.clone(), &args, local, &node.origins)?;
        if begins && !self.stays(v, &split) {
            return Ok((self.gathered(part, &split, &node.ty, &node.origins)?, State::Whole));
        }
        Ok((part, State::Split(split)))
    }

    fn gather(&mut self, axis: usize, node: &Node) -> Result<(Value, State)> {
        let [data, indices] = [node.args[0], node.args[1]];
        let n_indices = self.graph.ty(indices).rank();
        let (result, data, indices) = match (self.state(data).clone(), self.state(indices).clone()) {
            (State::Split(has), _) if has.dim != axis => {
                let to = if has.dim < axis { has.dim } else { has.dim + n_indices - 1 };
                (has.at(to), self.split(data, &has)?, self.whole(indices)?)
            }
            (_, State::Split(has)) => (has.at(axis + has.dim), self.whole(data)?, self.split(indices, &has)?),
            _ => return self.looked_up(axis, node),
        };
        let local = result.local(&node.ty, &self.ranks);
        Ok((self.add(node.op.clone(), &[data, indices], local, &node.origins)?, State::Split(result)))
    }

    /// Rows of a table of which each rank has some: those of other ranks are 0, and the sum over all ranks has them all.
    fn looked_up(&mut self, axis: usize, node: &Node) -> Result<(Value, State)> {
        let [data, indices] = [node.args[0], node.args[1]];
        let (table, at) = (self.graph.ty(data).clone(), self.graph.ty(indices).clone());
        let adds = Reduction::Add.admits(table.dtype);
        if !matches!(self.graph.node(data).op, Op::Param { .. }) || !adds || !self.splits_table(&table, axis) {
            return self.same(node);
        }
        let (split, origins) = (Split::plain(axis, &table.dims[axis], &self.ranks), node.origins.as_slice());
        let (data, indices) = (self.split(data, &split)?, self.whole(indices)?);
        let elements = |split: &Split, n: Dim| n * split.unit.clone();
        let (first, n) = (elements(&split, split.start(&self.ranks)), elements(&split, split.len(&self.ranks)));
        let first = self.number(first, &at, origins)?;
        let (n, none) = (self.number(n, &at, origins)?, self.number(Dim::constant(0), &at, origins)?);
        let own = self.add(Op::Map(ScalarFn::Sub), &[indices, first], at.clone(), origins)?;
        let mask = TensorType::new(DType::Bool, at.dims.clone());
        let behind = self.add(Op::Map(ScalarFn::Le), &[none, own], mask.clone(), origins)?;
        let before = self.add(Op::Map(ScalarFn::Lt), &[own, n], mask.clone(), origins)?;
        let inside = self.add(Op::Map(ScalarFn::And), &[behind, before], mask, origins)?;
        let row = self.add(Op::Map(ScalarFn::Select), &[inside, own, none], at, origins)?;
        let found = self.add(node.op.clone(), &[data, row], node.ty.clone(), origins)?;
        let dims = (axis..axis + self.graph.ty(node.args[1]).rank()).collect();
        let mask = TensorType::new(DType::Bool, node.ty.dims.clone());
        let inside = self.add(Op::Broadcast { dims }, &[inside], mask, origins)?;
        let dtype = node.ty.dtype;
        let zero = Op::Const(Tensor::new(dtype, vec![], vec![0; dtype.bytes()].into())?);
        let zero = self.add(zero, &[], TensorType::new(dtype, vec![]), origins)?;
        let zero = self.add(Op::Broadcast { dims: vec![] }, &[zero], node.ty.clone(), origins)?;
        let rows = self.add(Op::Map(ScalarFn::Select), &[inside, found, zero], node.ty.clone(), origins)?;
        Ok((rows, State::Partial(Reduction::Add)))
    }

    /// A number for each element.
    fn number(&mut self, value: Dim, like: &TensorType, origins: &[String]) -> Result<Value> {
        let one = self.add(Op::Dims(vec![value]), &[], TensorType::new(DType::I64, vec![]), origins)?;
        self.add(Op::Broadcast { dims: vec![] }, &[one], like.clone(), origins)
    }
}

fn reduction(f: ReduceFn) -> Option<Reduction> {
    Reduction::from_name(f.name())
}
