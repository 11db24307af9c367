//! If, Loop, Scan  =>  the branch that is known to be taken, an unrolled body, or host operations that call functions

use super::builder::Builder;
use super::dynamic;
use super::held::Held;
use super::lower_block;
use super::node::Node;
use super::outline::{Outlined, merged};
use super::recur::{Loop, Turned, truth};
use sardonyx_base::{DType, Dim, Error, HostOp, Result, Tensor};
use sardonyx_dialects::mlir::{Block, Val};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Op, TensorType, Value};
use std::collections::BTreeSet;

type Outputs = Result<Vec<Value>>;

/// Returns the values from outside a block that it uses: for each, its key in the scope of `b`, and its value in `b`.
pub fn captures(b: &Builder, block: Block) -> Vec<(usize, Value)> {
    fn walk(block: Block, defined: &mut BTreeSet<usize>, used: &mut Vec<usize>) {
        defined.extend(block.arguments().iter().map(|v: &Val| v.key()));
        for op in block.operations() {
            used.extend(op.operands().iter().map(|v| v.key()));
            (0..).map_while(|i| op.block(i)).for_each(|inner| walk(inner, defined, used));
            defined.extend(op.results().iter().map(|v| v.key()));
        }
    }
    let (mut defined, mut used) = (BTreeSet::new(), vec![]);
    walk(block, &mut defined, &mut used);
    let mut seen = BTreeSet::new();
    let outer = used.into_iter().filter(|key| !defined.contains(key) && seen.insert(*key));
    outer.filter_map(|key| Some((key, b.scope.get(&key).copied().flatten()?))).collect()
}

fn values(captures: &[(usize, Value)]) -> Vec<Value> {
    captures.iter().map(|(_, v)| *v).collect()
}

/// Adds captured values to the scope of a builder: each key of `captures` gets the value of `own` at the same index.
pub fn enter(b: &mut Builder, captures: &[(usize, Value)], own: &[Value]) {
    b.scope.extend(captures.iter().zip(own).map(|((key, _), v)| (*key, Some(*v))));
}

fn condition(b: &mut Builder, node: &Node, v: Value) -> Result<Value> {
    match b.dtype(v) == DType::Bool && b.rank(v) <= 1 {
        true => dynamic::scalar(b, v),
        false => Err(node.error("E0201", format!("a condition is one bool, not {}", b.ty(v)))),
    }
}

pub fn if_(b: &mut Builder, node: &Node) -> Outputs {
    let given = node.input(0)?;
    let condition = condition(b, node, given)?;
    let branches = [node.body("then_branch")?, node.body("else_branch")?];
    if let Some(known) = b.constants(condition) {
        return lower_block(b, branches[usize::from(known == [0])], &[]);
    }
    let mut outlined = |block: Block| {
        let (outer, name) = (captures(b, block), b.body_name());
        b.outline(&name, &[], &values(&outer), &mut |child, _, own| {
            enter(child, &outer, own);
            lower_block(child, block, &[])
        })
    };
    let then = outlined(branches[0])?;
    let both = outlined(branches[1]).and_then(|otherwise| match unlike(node, &then, &otherwise) {
        Some(e) => Err(e),
        None => Ok(otherwise),
    });
    let otherwise = match (both, equality(b, condition)) {
        (Ok(otherwise), _) => otherwise,
        // PyTorch exports `squeeze` of a dimension that may be 1 as an If whose branches differ in rank, and the nodes
        // after the If fit the rank of only one branch. The then branch is taken, and the dimensions that the condition
        // compares must be equal.
        (Err(_), Some((l, r))) => {
            b.unify(&l, &r)?;
            return lower_block(b, branches[0], &[]);
        }
        (Err(e), None) => return Err(e),
    };
    let (mut types, mut fresh) = (vec![], vec![]);
    for (&v, &w) in then.outputs.iter().zip(&otherwise.outputs) {
        let (left, right) = (then.ty(v).clone(), otherwise.ty(w).clone());
        let both = left.dims.iter().zip(&right.dims).map(|(l, r)| vec![then.outside(l), otherwise.outside(r)]);
        let dims: Vec<Dim> = both.map(|both| merged(b, both, &mut fresh)).collect();
        types.push(TensorType::new(left.dtype, dims));
    }
    let op = HostOp::If { n_then: then.captured.len() };
    let args = [vec![condition], then.captured.clone(), otherwise.captured.clone()].concat();
    let held: Vec<Held> = then.held.iter().zip(&otherwise.held).map(|(t, o)| t.grown(o)).collect();
    let names = vec![b.adopt(then), b.adopt(otherwise)];
    let results = b.host_calling(op, names, &args, &types, &fresh)?;
    results.iter().zip(held).for_each(|(v, held)| b.hold(*v, held));
    Ok(results)
}

/// Returns an error if the branches differ in the number, element types or ranks of their outputs.
fn unlike(node: &Node, then: &Outlined, otherwise: &Outlined) -> Option<Box<Error>> {
    if then.outputs.len() != otherwise.outputs.len() {
        return Some(node.error("E0103", "the branches have different numbers of outputs"));
    }
    let types = then.outputs.iter().zip(&otherwise.outputs).map(|(&v, &w)| (then.ty(v), otherwise.ty(w)));
    let mut apart = types.filter(|(l, r)| l.dtype != r.dtype || l.rank() != r.rank());
    apart.next().map(|(l, r)| node.error("E0203", format!("the branches give {l} and {r}")))
}

/// Returns both sides of the comparison if a condition is the equality of two dimensions.
fn equality(b: &Builder, mut condition: Value) -> Option<(Dim, Dim)> {
    while let Op::Reshape | Op::Broadcast { .. } = b.graph.node(condition).op {
        condition = b.graph.node(condition).args[0];
    }
    let node = b.graph.node(condition);
    let (Op::Map(ScalarFn::Eq), [l, r]) = (&node.op, node.args.as_slice()) else { return None };
    let (l, r) = (b.contents(*l)?.first()?.clone(), b.contents(*r)?.first()?.clone());
    // The constant term of `l` is subtracted from both sides: n floordiv 2 + 1 == 1 becomes n floordiv 2 == 0.
    let plain = l.terms().filter(|(monomial, _)| monomial.is_empty()).map(|(_, c)| c).sum();
    let plain = Dim::constant(plain);
    Some((l - plain.clone(), r - plain))
}

pub fn loop_(b: &mut Builder, node: &Node) -> Outputs {
    let block = node.body("body")?;
    let trips = match node.optional(0) {
        Some(v) => {
            let v = b.convert(v, DType::I64)?;
            dynamic::scalar(b, v)?
        }
        None => b.constant(Tensor::scalar(i64::MAX))?,
    };
    let start = match node.optional(1) {
        Some(v) => condition(b, node, v)?,
        None => b.constant(truth())?,
    };
    let carried = (2..node.inputs.len()).map(|i| node.input(i)).collect::<Result<Vec<_>>>()?;
    let outer = captures(b, block);
    let (n, captured) = (carried.len(), values(&outer));
    if block.arguments().len() != n + 2 {
        return Err(node.error("E0103", format!("the body has {} inputs, not {}", block.arguments().len(), n + 2)));
    }
    let turns = Loop { trips, start, carried: &carried, captured: &captured };
    let (mut out, stacked) = b.iterate(&turns, &mut |b, turn| {
        enter(b, &outer, turn.captured);
        let given: Vec<Value> = [&[turn.index, turn.goes_on], turn.carried].concat();
        let mut done = lower_block(b, block, &given)?;
        if done.len() < n + 1 {
            return Err(node.error("E0103", format!("the body has {} outputs, not at least {}", done.len(), n + 1)));
        }
        let stacked = done.split_off(n + 1);
        let goes_on = condition(b, node, done.remove(0))?;
        Ok(Turned { goes_on, carried: done, stacked })
    })?;
    out.extend(stacked);
    Ok(out)
}

/// Scan. Before opset 9 the first dimension is a batch, whose elements are scanned separately.
pub fn scan(b: &mut Builder, node: &Node) -> Outputs {
    let block = node.body("body")?;
    let n_scanned = node.require("num_scan_inputs", node.int("num_scan_inputs")?)?;
    let batched = node.opset < 9;
    if batched && node.optional(0).is_some() {
        return Err(node.error("E0107", "sequence_lens is not supported"));
    }
    let all = (usize::from(batched)..node.inputs.len()).map(|i| node.input(i)).collect::<Result<Vec<_>>>()?;
    let n_states = usize::try_from(n_scanned).ok().filter(|n| *n > 0).and_then(|n| all.len().checked_sub(n));
    let n_states = n_states.ok_or_else(|| node.error("E0106", format!("`num_scan_inputs` = {n_scanned}")))?;
    if block.arguments().len() != all.len() {
        let n = block.arguments().len();
        return Err(node.error("E0103", format!("the body has {n} inputs, not {}", all.len())));
    }
    let outer = captures(b, block);
    let plan = Scan { node, block, n_states, outer: &outer };
    if !batched {
        return plan.run(b, &all, &values(&outer));
    }
    let batch = b.dims(all[0]).first().cloned().unwrap_or(Dim::constant(1));
    let scanned: Vec<(Value, usize)> = all.iter().map(|v| (*v, 0)).collect();
    for &v in &all {
        let own = b.dims(v).first().cloned().unwrap_or(Dim::constant(1));
        b.unify(&batch, &own)?;
    }
    let (_, out) = b.scan(&batch, &[], &scanned, &values(&outer), &mut |b, turn| {
        Ok((vec![], plan.run(b, turn.slices, turn.captured)?))
    })?;
    Ok(out)
}

struct Scan<'a> {
    node: &'a Node<'a>,
    block: Block<'a>,
    n_states: usize,
    outer: &'a [(usize, Value)],
}

impl Scan<'_> {
    /// The list in an attribute, which must have `n` entries; the default is all 0.
    fn list(&self, name: &str, n: usize) -> Result<Vec<i64>> {
        let list = self.node.ints(name)?.unwrap_or_else(|| vec![0; n]);
        match list.len() == n {
            true => Ok(list),
            false => Err(self.node.error("E0106", format!("`{name}` has {} entries, not {n}", list.len()))),
        }
    }

    /// Builds the scan of one sequence. `all` are the states, then the scanned values; `captured` are the values that
    /// the block captures, as values of `b`.
    fn run(&self, b: &mut Builder, all: &[Value], captured: &[Value]) -> Outputs {
        let (states, scanned) = all.split_at(self.n_states);
        let old = self.node.opset < 9;
        let directions = self.list(if old { "directions" } else { "scan_input_directions" }, scanned.len())?;
        let axes = self.list("scan_input_axes", scanned.len())?;
        let mut axes_at = vec![];
        let mut inputs = vec![];
        for ((&v, axis), direction) in scanned.iter().zip(axes).zip(directions) {
            let axis = self.node.axis(axis, b.rank(v))?;
            axes_at.push(axis);
            inputs.push(if direction == 1 { reversed(b, v, axis)? } else { v });
        }
        let n = b.dims(inputs[0])[axes_at[0]].clone();
        for (&v, &axis) in inputs.iter().zip(&axes_at) {
            let own = b.dims(v)[axis].clone();
            b.unify(&n, &own)?;
        }
        let n = b.dims(inputs[0])[axes_at[0]].clone();
        let pairs: Vec<(Value, usize)> = inputs.into_iter().zip(axes_at).collect();
        let (mut out, stacked) = b.scan(&n, states, &pairs, captured, &mut |b, turn| {
            enter(b, self.outer, turn.captured);
            let mut done = lower_block(b, self.block, &[turn.carried, turn.slices].concat())?;
            if done.len() < self.n_states {
                return Err(self.node.error("E0103", "the body has too few outputs"));
            }
            let stacked = done.split_off(self.n_states);
            Ok((done, stacked))
        })?;
        let directions = if old { vec![0; stacked.len()] } else { self.list("scan_output_directions", stacked.len())? };
        let axes = self.list("scan_output_axes", stacked.len())?;
        for ((v, axis), direction) in stacked.into_iter().zip(axes).zip(directions) {
            let v = if direction == 1 { reversed(b, v, 0)? } else { v };
            let axis = self.node.axis(axis, b.rank(v))?;
            let mut perm: Vec<usize> = (1..b.rank(v)).collect();
            perm.insert(axis, 0);
            out.push(b.transpose(v, perm)?);
        }
        Ok(out)
    }
}

/// Reverses the order of the elements along an axis.
pub fn reversed(b: &mut Builder, v: Value, axis: usize) -> Result<Value> {
    let n = b.dims(v)[axis].clone();
    let mut starts = vec![Dim::constant(0); b.rank(v)];
    let mut steps = vec![1; b.rank(v)];
    (starts[axis], steps[axis]) = (n - Dim::constant(1), -1);
    let ty = b.ty(v).clone();
    b.add_typed(Op::Slice { starts, steps }, &[v], Some(ty))
}
