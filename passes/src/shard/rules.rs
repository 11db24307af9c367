//! an operation, the states of its operands on a rank  =>  the rank's operation, and the state of its result
//!
//! An operation keeps a split along dimensions that it processes independently, and makes other operands whole. A
//! reduction over a split dimension gives a partial result.

use super::algebra::{Signature, follows, signature, sliced_runs};
use super::halo::of_slice;
use super::redistribute::Local;
use super::split::{Split, State};
use crate::remark::Missed;
use sardonyx_base::{DType, Dim, Error, Result, Tensor};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{ContractSpec, Node, Op, Place, TensorType, Value};

impl Local<'_> {
    /// Adds the next value of the program to the program of the rank.
    pub fn place(&mut self, v: Value) -> Result<()> {
        let graph = self.graph;
        let node = graph.node(v);
        let (value, state) = match &node.op {
            Op::Contract(spec) => self.contract(v, spec, node)?,
            Op::Append { axis } => self.append(v, *axis, node)?,
            Op::Place(place) if place.mesh == self.ranks.axis => self.placed(place, node)?,
            _ => match self.lead(node) {
                Some(signature) => self.follow_signature(node, &signature)?,
                None => match &node.op {
                    Op::Gather { axis } => self.looked_up_by_size(*axis, node)?,
                    _ => self.same(node)?,
                },
            },
        };
        self.put(value, state);
        Ok(())
    }

    fn lead(&self, node: &Node) -> Option<Signature> {
        let states: Vec<&State> = node.args.iter().map(|a| self.state(*a)).collect();
        follows(self.graph, &self.ranks, node, &states)
    }

    /// Adds the operation, with operands in the states that the signature requires.
    fn follow_signature(&mut self, node: &Node, signature: &Signature) -> Result<(Value, State)> {
        let state = signature.result.clone();
        if let (Op::Gather { axis }, Some(State::Split(rows))) = (&node.op, signature.operands.first())
            && rows.dim == *axis
        {
            return Ok((self.looked_up(*axis, rows, node)?, state));
        }
        if let (Op::Pad { low }, Some(State::Split(has)), State::Halo(halo)) =
            (&node.op, signature.operands.first(), &state)
        {
            return Ok((self.padded(node, low, has, halo)?, state));
        }
        let mut args = vec![];
        for (arg, need) in node.args.iter().zip(&signature.operands) {
            args.push(match need {
                State::Whole => self.needed_whole(*arg)?,
                State::Split(split) => self.split(*arg, split)?,
                State::Partial(_) | State::Halo(_) => self.own(*arg),
            });
        }
        let (op, ty) = match &state {
            State::Split(split) => {
                (self.op_on_part(node, &signature.operands, split), split.local(&node.ty, &self.ranks))
            }
            State::Halo(halo) => (node.op.clone(), halo.local(&node.ty, &self.ranks)),
            State::Whole | State::Partial(_) => (node.op.clone(), node.ty.clone()),
        };
        Ok((self.add(op, &args, ty, &node.origins)?, state))
    }

    /// Returns the operation on a part. A slice of several runs of units, for instance of the queries, keys or values
    /// from one contraction, starts where these runs start in the rank's part. A slice with a stride starts where its
    /// first element is in the part.
    fn op_on_part(&self, node: &Node, operands: &[State], split: &Split) -> Op {
        let (Op::Slice { starts, steps }, [State::Split(has)]) = (&node.op, operands) else { return node.op.clone() };
        let of_runs = sliced_runs(has, starts, steps, &node.ty)
            .map(|(_, first)| first * split.len(&self.ranks) * split.unit.clone());
        let first = of_runs.or_else(|| Some(of_slice(&self.ranks, node, (starts, steps), has)?.1));
        let mut starts = starts.clone();
        if let Some(first) = first {
            starts[has.dim] = first;
        }
        Op::Slice { starts, steps: steps.clone() }
    }

    /// Adds the operation on whole operands.
    fn same(&mut self, node: &Node) -> Result<(Value, State)> {
        self.follow_signature(node, &Signature::replicated(node))
    }

    /// Adds a value with a placement given by the model or the plan.
    fn placed(&mut self, place: &Place, node: &Node) -> Result<(Value, State)> {
        let arg = node.args[0];
        let Some((dim, outer, unit)) = &place.split else { return Ok((self.whole_value(arg)?, State::Whole)) };
        let run = outer.clone() * unit.clone();
        let count = node.ty.dims[*dim].exact_div(&run).ok_or_else(|| {
            let (extent, name) = (&node.ty.dims[*dim], node.origins.first().map_or("", String::as_str));
            let message = format!("dimension {dim} of {extent} elements is not {outer} times units of {unit}");
            Error::user("E0108", message).node(name)
        })?;
        let split = Split::new(*dim, [outer.clone(), count, unit.clone()], &self.ranks);
        Ok((self.split(arg, &split)?, State::Split(split)))
    }

    /// Adds an append. A cache that grows in place is split like the value appended to it, if the model or the plan
    /// places that value, or if the split suits the cache's consumers (`meets_its_like`). Each rank then keeps its
    /// part.
    fn append(&mut self, v: Value, axis: usize, node: &Node) -> Result<(Value, State)> {
        let [past, next] = [node.args[0], node.args[1]];
        let name = match &self.graph.node(past).op {
            Op::Input { name, .. } if self.is_state(v) => name.clone(),
            _ => return self.same(node),
        };
        let is_placed = matches!(self.graph.node(next).op, Op::Place(_));
        let own = match self.state(next) {
            State::Split(split) if split.dim != axis && (is_placed || self.meets_its_like(v, split)) => {
                Some(split.clone())
            }
            State::Split(_) | State::Whole | State::Partial(_) | State::Halo(_) => None,
        };
        // The first entry point decides, as all entry points share a cache.
        let split = self.states.entry(name).or_insert(own).clone();
        let Some((split, part)) = split.and_then(|s| Some((s.clone(), self.part(self.graph.node(past), &s)?))) else {
            return self.same(node);
        };
        let past = self.cut_input(past, part, &split);
        let next = self.split(next, &split)?;
        let local = split.local(&node.ty, &self.ranks);
        Ok((self.add(node.op.clone(), &[past, next], local, &node.origins)?, State::Split(split)))
    }

    fn contract(&mut self, v: Value, spec: &ContractSpec, node: &Node) -> Result<(Value, State)> {
        if let Some(way) = self.lead(node) {
            return self.follow_signature(node, &way);
        }
        let Some((arg, split)) = self.seed(v, spec) else {
            if node.args.iter().any(|a| self.is_fixed(*a)) {
                let detail = format!("`{spec}` of {} and {}", self.graph.ty(node.args[0]), self.graph.ty(node.args[1]));
                let missed = Missed::because("every rank computes the whole product", &detail);
                self.missed.push(Missed { node: node.origins.first().cloned(), ..missed });
            }
            return self.same(node);
        };
        let Some(way) = signature(self.graph, &self.ranks, node, arg, &State::Split(split)) else {
            return self.same(node);
        };
        let (part, state) = self.follow_signature(node, &way)?;
        match &state {
            State::Split(split) if !self.stays(v, split) => {
                Ok((self.gathered(part, split, &node.ty, &node.origins)?, State::Whole))
            }
            _ => Ok((part, state)),
        }
    }

    /// Splits a large table by rows, so that each rank looks up the rows that it has. This saves memory, not time.
    fn looked_up_by_size(&mut self, axis: usize, node: &Node) -> Result<(Value, State)> {
        let table = self.graph.ty(node.args[0]);
        let is_param = matches!(self.graph.node(node.args[0]).op, Op::Param { .. });
        if !is_param || !self.splits_table(table, axis) {
            return self.same(node);
        }
        let rows = State::Split(Split::plain(axis, &table.dims[axis], &self.ranks));
        match signature(self.graph, &self.ranks, node, 0, &rows) {
            Some(signature) => self.follow_signature(node, &signature),
            None => self.same(node),
        }
    }

    /// Looks up rows in a table split by rows: rows of other ranks are 0, and the sum over all ranks gives every row.
    fn looked_up(&mut self, axis: usize, split: &Split, node: &Node) -> Result<Value> {
        let [data, indices] = [node.args[0], node.args[1]];
        let (at, origins) = (self.graph.ty(indices).clone(), node.origins.as_slice());
        let (data, indices) = (self.split(data, split)?, self.whole_value(indices)?);
        let elements = |split: &Split, n: Dim| n * split.unit.clone();
        let (first, n) = (elements(split, split.start(&self.ranks)), elements(split, split.len(&self.ranks)));
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
        self.add(Op::Map(ScalarFn::Select), &[inside, found, zero], node.ty.clone(), origins)
    }

    /// Broadcasts a number to the shape of `like`.
    fn number(&mut self, value: Dim, like: &TensorType, origins: &[String]) -> Result<Value> {
        let one = self.add(Op::Dims(vec![value]), &[], TensorType::new(DType::I64, vec![]), origins)?;
        self.add(Op::Broadcast { dims: vec![] }, &[one], like.clone(), origins)
    }
}
