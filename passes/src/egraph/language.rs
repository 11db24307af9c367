//! sdx graph  =>  e-graph: nodes are (operation, attributes, operands); classes have facts: type, contents, range, …

use super::range::{self, EXTENT_MAX, Range};
use super::table::{OpId, Table, TypeId, spelled_alike};
use egg::{Analysis, DidMerge, Id, Language};
use sardonyx_base::dim::Symbol;
use sardonyx_base::{DType, Dim, Tensor};
use sardonyx_dialects::interp;
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{BOUND, Graph, Node, Op, Role, TensorType, infer};
use std::collections::BTreeMap;

/// An operation of the [`Table`], applied to classes of values. New operations of the dialect need no change here.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ENode {
    pub op: OpId,
    pub args: Box<[Id]>,
}

impl Language for ENode {
    type Discriminant = OpId;

    fn discriminant(&self) -> OpId {
        self.op
    }

    fn matches(&self, other: &ENode) -> bool {
        self.op == other.op && self.args.len() == other.args.len()
    }

    fn children(&self) -> &[Id] {
        &self.args
    }

    fn children_mut(&mut self) -> &mut [Id] {
        &mut self.args
    }
}

pub type EGraph = egg::EGraph<ENode, Facts>;

/// Facts about the value of a class.
#[derive(Clone, Debug)]
pub struct Data {
    pub ty: TypeId,
    /// All elements, if they are known at compile time: those of a constant, or computed ones if they are few.
    pub value: Option<Tensor>,
    /// The scalar (rank 0) that every element equals, if any.
    pub splat: Option<Tensor>,
    pub range: Range,
    /// Whether the value is known to be computed from parameters and constants alone, and to have fixed dimensions.
    pub constant: bool,
    /// Index of the function's first node that is in the class. A class that a rule created has the index of the class
    /// that the rule matched.
    pub origin: usize,
    narrowings: u8,
}

/// Maximum number of times that the range of a class is narrowed: in a cyclic e-graph, narrowing might never end.
const NARROWINGS_MAX: u8 = 8;

/// Maximum number of elements of a value that is evaluated from known operands.
const ELEMENTS_MAX: usize = 64;

#[derive(Default)]
pub struct Facts {
    pub table: Table,
    /// Lower bounds of the symbols.
    lows: BTreeMap<String, i64>,
    /// Classes that changed since the list was last taken.
    pub dirty: Vec<Id>,
    /// Index of the function's node to which newly added classes are attributed.
    pub origin: usize,
    /// The classes of the function's results.
    pub outputs: Vec<Id>,
    /// Description of the first two classes of different types that a rule declared equal; `None` if there are none.
    pub defect: Option<String>,
}

impl Facts {
    pub fn new(graph: &Graph) -> Facts {
        Facts { lows: graph.symbols.iter().map(|(n, s)| (n.clone(), s.lo)).collect(), ..Facts::default() }
    }

    pub fn symbol_lo(&self, symbol: &Symbol) -> i64 {
        symbol.name().and_then(|name| self.lows.get(name)).copied().unwrap_or(0)
    }

    fn bounds(&self, d: &Dim) -> (f64, f64) {
        match d.as_const() {
            Some(c) => (c as f64, c as f64),
            None => (d.lower_bound(&|s| self.symbol_lo(s)).unwrap_or(0).max(0) as f64, EXTENT_MAX),
        }
    }

    fn value(&self, op: &Op, ty: &TensorType, args: &[&Data]) -> Option<Tensor> {
        if let Op::Const(t) = op {
            return Some(t.clone());
        }
        let dims = ty.static_dims()?;
        let few = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).is_some_and(|n| n <= ELEMENTS_MAX);
        let values: Vec<Tensor> = args.iter().map(|a| a.value.clone()).collect::<Option<_>>()?;
        (few && !values.is_empty()).then(|| evaluate(op, ty, &values)).flatten()
    }

    /// Returns whether all indices of a gather are known to be in range. Any other gather has to be executed, because a
    /// call with an index out of range must be refused.
    fn finds_all(&self, axis: usize, args: &[&Data]) -> bool {
        let (at, extent) = (args[1].range, self.bounds(&self.table.ty(args[0].ty).dims[axis]).0);
        at.lo >= 0.0 && at.hi < extent
    }

    fn splat(&self, op: &Op, ty: &TensorType, args: &[&Data]) -> Option<Tensor> {
        let scalars = || args.iter().map(|a| a.splat.clone()).collect::<Option<Vec<Tensor>>>();
        match op {
            Op::Const(t) => uniform(t),
            Op::Gather { axis } => args[0].splat.clone().filter(|_| self.finds_all(*axis, args)),
            // An append is never replaced by a splat, because its result extends the buffer of its first operand.
            Op::Append { .. } => None,
            op => match op.role() {
                Role::Elementwise => evaluate(op, &TensorType::new(ty.dtype, vec![]), &scalars()?),
                Role::View => args[0].splat.clone(),
                Role::Copy => {
                    let all = scalars()?;
                    all.iter().all(|t| *t == all[0]).then(|| all[0].clone())
                }
                Role::Given | Role::Marker | Role::Reduction | Role::Product | Role::Host => None,
            },
        }
    }

    fn range(&self, op: &Op, ty: &TensorType, args: &[&Data], same: bool) -> Range {
        let ranges: Vec<Range> = args.iter().map(|a| a.range).collect();
        let operand = |i: usize| self.table.ty(args[i].ty);
        match op {
            Op::Const(t) => Range::from_values((0..t.len()).filter_map(|i| t.get_f64(i))),
            Op::Dims(list) => list.iter().fold(Range::from_values([].into_iter()), |r, d| {
                let (lo, hi) = self.bounds(d);
                // A constant is its own bound, even if negative; a symbolic dimension that may be negative has no
                // bounds.
                let sure = d.as_const().is_some() || d.lower_bound(&|s| self.symbol_lo(s)).is_some_and(|l| l >= 0);
                r.union(if sure { Range::new(lo, hi) } else { Range::any(DType::I64) })
            }),
            Op::Map(f) => range::map(*f, &ranges, same, operand(0).dtype, ty.dtype),
            Op::Convert(Conversion::Bits) => Range::any(ty.dtype),
            Op::Convert(Conversion::Value) => range::convert(ranges[0], operand(0).dtype, ty.dtype),
            Op::Reduce { f, axes } => {
                let bounds: Vec<(f64, f64)> = axes.iter().map(|&a| self.bounds(&operand(0).dims[a])).collect();
                let empty = bounds.iter().any(|(lo, _)| *lo < 1.0);
                range::reduce(*f, ranges[0], empty, bounds.iter().map(|b| b.1).product(), ty.dtype)
            }
            // A result that is derived from the range alone would remove the gather, and with it the check of the
            // index.
            Op::Gather { axis } if !self.finds_all(*axis, args) && (ty.dtype.is_int() || ranges[0].is_single()) => {
                Range::any(ty.dtype)
            }
            Op::Gather { .. } => ranges[0],
            Op::Iota { axis } => Range::new(0.0, (self.bounds(&ty.dims[*axis]).1 - 1.0).max(0.0)),
            Op::Param { bounded: true, .. } => Range::any(ty.dtype).intersection(Range::new(-BOUND, BOUND)),
            Op::Contract(spec) => {
                let product = range::map(ScalarFn::Mul, &ranges, false, ty.dtype, ty.dtype);
                let sides = [&spec.left, &spec.right].into_iter().zip(0..);
                let letters = sides.flat_map(|(side, i)| side.iter().zip(&operand(i).dims));
                let summed: BTreeMap<&char, f64> =
                    letters.filter(|(c, _)| !spec.result.contains(c)).map(|(c, d)| (c, self.bounds(d).1)).collect();
                range::reduce(ReduceFn::Add, product, true, summed.values().product(), ty.dtype)
            }
            op => match op.role() {
                Role::View => ranges[0],
                Role::Copy => ranges[1..].iter().fold(ranges[0], |r, o| r.union(*o)),
                Role::Given | Role::Elementwise | Role::Marker | Role::Reduction | Role::Product | Role::Host => {
                    Range::any(ty.dtype)
                }
            },
        }
    }
}

/// Returns the scalar that all elements equal, if there is one.
fn uniform(t: &Tensor) -> Option<Tensor> {
    let width = t.dtype().bytes();
    let first = (width > 0 && !t.is_empty()).then(|| t.bytes().slice(..width))?;
    let same = t.bytes().chunks(width).all(|c| c == &first[..]);
    same.then(|| Tensor::new(t.dtype(), vec![], first).ok()).flatten()
}

/// Evaluates an operation with the interpreter; `None` if the interpreter returns an error, as for element types
/// without arithmetic.
fn evaluate(op: &Op, ty: &TensorType, args: &[Tensor]) -> Option<Tensor> {
    let node = Node { op: op.clone(), args: vec![], ty: ty.clone(), origins: vec![] };
    interp::evaluate(&node, args, &|_| None).ok()
}

impl Analysis<ENode> for Facts {
    type Data = Data;

    fn make(egraph: &mut EGraph, enode: &ENode, _id: Id) -> Data {
        let facts = &egraph.analysis;
        let (op, ty) = (facts.table.op(enode.op), facts.table.ty_of(enode.op));
        let args: Vec<&Data> = enode.args.iter().map(|a| &egraph[*a].data).collect();
        let same = enode.args.len() >= 2 && egraph.find(enode.args[0]) == egraph.find(enode.args[1]);
        let full = facts.table.ty(ty);
        let value = facts.value(op, full, &args);
        let splat = value.as_ref().and_then(uniform).or_else(|| facts.splat(op, full, &args));
        let decided = full.dtype == DType::Bool && splat.is_none() && !enode.args.is_empty();
        let known = if decided { facts.range(op, full, &args, same) } else { Range::any(DType::Bool) };
        let splat = if known.lo == known.hi { Some(Tensor::scalar(known.lo != 0.0)) } else { splat };
        let held = splat.as_ref().and_then(|t| t.get_f64(0));
        let constant = match op {
            Op::Param { .. } | Op::Const(_) => true,
            Op::Host(_) => false,
            Op::Input { .. } | Op::Bind { .. } | Op::Append { .. } | Op::Dims(_) | Op::Iota { .. } => false,
            _ => full.static_dims().is_some() && args.iter().all(|a| a.constant),
        };
        let range = match held {
            Some(v) if !v.is_nan() && v.abs() < EXTENT_MAX => Range::new(v, v),
            _ => facts.range(op, full, &args, same),
        };
        Data { ty, value, splat, range, constant, origin: facts.origin, narrowings: 0 }
    }

    fn merge(&mut self, to: &mut Data, from: Data) -> DidMerge {
        if to.ty != from.ty && self.defect.is_none() {
            let (a, b) = (self.table.ty(to.ty), self.table.ty(from.ty));
            self.defect = Some(format!("a value of type {a} was said to equal one of type {b}"));
        }
        let mut did = DidMerge(false, false);
        let meet = to.range.intersection(from.range);
        // Contradictory facts belong to code that no call reaches, or to a defect that the validation finds.
        let meet = if meet.lo <= meet.hi { meet } else { to.range };
        if meet != to.range && to.narrowings < NARROWINGS_MAX {
            (to.range, to.narrowings) = (meet, to.narrowings + 1);
            did.0 = true;
        }
        did.1 |= meet != from.range;
        for (mine, other) in [(&mut to.value, &from.value), (&mut to.splat, &from.splat)] {
            did.0 |= mine.is_none() && other.is_some();
            did.1 |= mine.is_some() && other.is_none();
            *mine = mine.take().or_else(|| other.clone());
        }
        // A class whose origin alone changes does not require its parents to be analysed again.
        to.origin = to.origin.min(from.origin);
        did.0 |= from.constant && !to.constant;
        did.1 |= to.constant && !from.constant;
        to.constant |= from.constant;
        did
    }

    /// Adds known contents to the class as a constant node, so that equal constants are in one class however they were
    /// computed.
    fn modify(egraph: &mut EGraph, id: Id) {
        egraph.analysis.dirty.push(id);
        let data = &egraph[id].data;
        let ty = data.ty;
        if let Some(value) = data.value.clone() {
            let node = ENode { op: egraph.analysis.table.op_id(Op::Const(value), ty), args: [].into() };
            let constant = egraph.add(node);
            egraph.union(id, constant);
        } else if let Some(scalar) = data.splat.clone() {
            let scalar_ty = egraph.analysis.table.type_id(&TensorType::new(scalar.dtype(), vec![]));
            let op = egraph.analysis.table.op_id(Op::Const(scalar), scalar_ty);
            let scalar = egraph.add(ENode { op, args: [].into() });
            let op = egraph.analysis.table.op_id(Op::Broadcast { dims: vec![] }, ty);
            let repeated = egraph.add(ENode { op, args: [scalar].into() });
            egraph.union(id, repeated);
        }
    }
}

/// Adds an operation. Its type follows from the operands or, for an operation such as a reshape, is taken from
/// `declared`.
pub fn add(egraph: &mut EGraph, op: Op, args: &[Id], declared: Option<&TensorType>) -> Result<Id, String> {
    let types: Vec<&TensorType> = args.iter().map(|a| egraph.analysis.table.ty(egraph[*a].data.ty)).collect();
    let ty = infer::result_type(&op, &types, declared)?;
    if ty.dims.iter().any(|d| d.is_overflow() || d.as_const().is_some_and(|c| c < 0)) {
        return Err(format!("the type {ty} has no values"));
    }
    let op = match op {
        Op::Contract(spec) => Op::Contract(spelled_alike(&spec)),
        other => other,
    };
    let table = &mut egraph.analysis.table;
    let ty = table.type_id(&ty);
    let op = table.op_id(op, ty);
    Ok(egraph.add(ENode { op, args: args.into() }))
}

/// Returns the e-graph of a function, and the class of each of the function's values.
pub fn load(graph: &Graph) -> Result<(EGraph, Vec<Id>), String> {
    let mut egraph = EGraph::new(Facts::new(graph));
    let mut ids: Vec<Id> = vec![];
    for (i, node) in graph.nodes.iter().enumerate() {
        egraph.analysis.origin = i;
        let args: Vec<Id> = node.args.iter().map(|a| ids[a.index()]).collect();
        ids.push(add(&mut egraph, node.op.clone(), &args, Some(&node.ty))?);
    }
    egraph.analysis.outputs = graph.outputs.iter().map(|(_, v)| ids[v.index()]).collect();
    egraph.rebuild();
    Ok((egraph, ids))
}
