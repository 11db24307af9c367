//! an operation, how one of its operands is split  =>  how all of its operands and its result are split
//!
//! These are properties of an operation along one axis of the mesh. They serve both the propagation of splits
//! (`rules.rs`) and the search for the best splits (`distribute/`).

use super::halo;
use super::split::{Ranks, Split, State};
use sardonyx_base::host::Collective;
use sardonyx_base::reduction::Reduction;
use sardonyx_base::{Dim, HostOp};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{ContractSpec, Graph, Node, Op, TensorType};

/// How the operands and the result of an operation are distributed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    pub operands: Vec<State>,
    pub result: State,
}

impl Signature {
    /// The signature in which every rank executes the whole operation.
    pub fn replicated(node: &Node) -> Signature {
        Signature { operands: vec![State::Whole; node.args.len()], result: State::Whole }
    }

    fn leading(split: &Split, node: &Node, result: State) -> Signature {
        let mut operands = vec![State::Whole; node.args.len()];
        operands[0] = State::Split(split.clone());
        Signature { operands, result }
    }

    /// The signature in which all operands and the result are split in the same way.
    fn alike(split: &Split, node: &Node) -> Signature {
        let state = State::Split(split.clone());
        Signature { operands: vec![state.clone(); node.args.len()], result: state }
    }
}

/// Returns the signature in which operand `arg` has the given state, or `None` if the operation then needs whole
/// operands.
pub fn signature(graph: &Graph, ranks: &Ranks, node: &Node, arg: usize, state: &State) -> Option<Signature> {
    let has = match state {
        State::Split(split) => split,
        State::Partial(f) => return sum_of_parts(node, *f),
        State::Halo(has) => return halo::of_padded(node, has),
        State::Whole => return None,
    };
    let from = |arg: usize| &graph.ty(node.args[arg]).dims;
    let leads = |to: Split| Signature::leading(has, node, State::Split(to));
    match &node.op {
        Op::Map(_) => Some(Signature::alike(has, node)),
        Op::Concat { axis } => (has.dim != *axis).then(|| Signature::alike(has, node)),
        Op::Contract(spec) => product(spec, arg, has),
        Op::Gather { axis } => gather((graph, ranks), node, *axis, arg, has),
        Op::Append { axis } => (arg == 1 && has.dim != *axis).then(|| Signature::alike(has, node)),
        _ if arg != 0 => None,
        Op::Convert(_) | Op::Place(_) => Some(leads(has.clone())),
        Op::Reduce { f, axes } if axes.contains(&has.dim) => {
            let by = reduction(*f).filter(|by| by.admits(node.ty.dtype))?;
            Some(Signature::leading(has, node, State::Partial(by)))
        }
        Op::Reduce { axes, .. } => Some(leads(has.at(has.dim - axes.iter().filter(|a| **a < has.dim).count()))),
        Op::Slice { starts, steps } => {
            let runs = sliced_runs(has, starts, steps, &node.ty);
            runs.or_else(|| halo::of_slice(ranks, node, (starts, steps), has)).map(|(split, _)| leads(split))
        }
        Op::Pad { low } => {
            let all = node.ty.dims[has.dim] == from(0)[has.dim];
            if all && low[has.dim].is_const(0) {
                return Some(leads(has.clone()));
            }
            let halo = halo::of_padding(graph, ranks, node, low, has)?;
            Some(Signature::leading(has, node, State::Halo(Box::new(halo))))
        }
        Op::Window(w) if has.dim == w.axis => halo::of_own_elements(ranks, node, w, has).map(leads),
        Op::Window(_) => Some(leads(has.clone())),
        Op::Reshape => has.through_reshape(from(0), &node.ty.dims, ranks).map(leads),
        Op::Transpose { perm } => perm.iter().position(|p| *p == has.dim).map(|dim| leads(has.at(dim))),
        Op::Broadcast { dims } => {
            let to = has.at(dims[has.dim]);
            (node.ty.dims[to.dim] == from(0)[has.dim]).then(|| leads(to))
        }
        Op::Host(host) => exchanged(&host.op, ranks.axis, has).then(|| leads(has.clone())),
        // An operation that is not listed takes whole operands.
        _ => None,
    }
}

/// Returns the signature that follows from the states of operands: a partial one if all are partial, otherwise that of
/// the first split operand for which there is a signature. A contraction prefers a split along K, because operands that
/// are both split along K need no exchange.
pub fn follows(graph: &Graph, ranks: &Ranks, node: &Node, states: &[&State]) -> Option<Signature> {
    let is_partial = |s: &&&State| matches!(s, State::Partial(_));
    if !states.is_empty() && states.iter().all(|s| is_partial(&s)) {
        let partial = signature(graph, ranks, node, 0, states[0]);
        if let Some(all) = partial.filter(|p| p.operands.iter().zip(states).all(|(need, has)| need == *has)) {
            return Some(all);
        }
    }
    let split = states.iter().enumerate().filter(|(_, s)| matches!(s, State::Split(_) | State::Halo(_)));
    let mut ways = split.filter_map(|(i, state)| signature(graph, ranks, node, i, state));
    if let Op::Contract(_) = node.op {
        let ways: Vec<Signature> = ways.collect();
        let sums = |way: &&Signature| matches!(way.result, State::Partial(_));
        return ways.iter().find(sums).or(ways.first()).cloned();
    }
    ways.next()
}

/// Returns the signature of a sum or difference of partial values, which is partial, too; `None` for other operations.
fn sum_of_parts(node: &Node, f: Reduction) -> Option<Signature> {
    let adds = matches!(node.op, Op::Map(ScalarFn::Add | ScalarFn::Sub)) && f == Reduction::Add;
    adds.then(|| Signature { operands: vec![State::Partial(f); node.args.len()], result: State::Partial(f) })
}

fn product(spec: &ContractSpec, arg: usize, has: &Split) -> Option<Signature> {
    let sides = [&spec.left, &spec.right];
    let letter = sides[arg][has.dim];
    let operand = |letters: &Vec<char>| match letters.iter().position(|c| *c == letter) {
        Some(dim) => State::Split(has.at(dim)),
        None => State::Whole,
    };
    let result = match spec.result.iter().position(|c| *c == letter) {
        Some(dim) => State::Split(has.at(dim)),
        None => State::Partial(Reduction::Add),
    };
    Some(Signature { operands: sides.map(operand).to_vec(), result })
}

/// Returns the signature of a gather. A table split by rows gives 0 for rows of other ranks. Each rank must have at
/// least one row, because an index of another rank's row is replaced by the index of a row that exists.
fn gather((graph, ranks): (&Graph, &Ranks), node: &Node, axis: usize, arg: usize, has: &Split) -> Option<Signature> {
    let n_indices = graph.ty(node.args[1]).rank();
    let split = State::Split(has.clone());
    match arg {
        0 if has.dim != axis => {
            let to = if has.dim < axis { has.dim } else { has.dim + n_indices - 1 };
            Some(Signature { operands: vec![split, State::Whole], result: State::Split(has.at(to)) })
        }
        0 => {
            let adds = Reduction::Add.admits(node.ty.dtype) && has.outer.is_const(1) && has.none_is_empty(ranks);
            let by = State::Partial(Reduction::Add);
            adds.then(|| Signature { operands: vec![split, State::Whole], result: by })
        }
        _ => Some(Signature { operands: vec![State::Whole, split], result: State::Split(has.at(axis + has.dim)) }),
    }
}

/// Whether ranks along another axis of the mesh may execute an exchange on a value that is split in this way.
fn exchanged(op: &HostOp, axis: usize, has: &Split) -> bool {
    match op {
        HostOp::Collective(op) if op.mesh() == axis => false,
        HostOp::Collective(Collective::AllReduce { .. } | Collective::Send { .. }) => true,
        HostOp::Collective(
            Collective::AllGather { dim, .. } | Collective::ReduceScatter { dim, .. } | Collective::Halo { dim, .. },
        ) => *dim != has.dim,
        _ => false,
    }
}

/// Returns the split of a slice that takes some of the runs of units of `has`, and the index of its first run.
pub fn sliced_runs(has: &Split, starts: &[Dim], steps: &[i64], ty: &TensorType) -> Option<(Split, Dim)> {
    let run = has.count.clone() * has.unit.clone();
    let outer = ty.dims[has.dim].exact_div(&run).filter(|_| steps[has.dim] == 1)?;
    Some((Split { outer, ..has.clone() }, starts[has.dim].exact_div(&run)?))
}

fn reduction(f: ReduceFn) -> Option<Reduction> {
    Reduction::from_name(f.name())
}
