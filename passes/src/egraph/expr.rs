//! Views of an e-graph that rules read, and expressions over its classes that rules build

use super::language::{EGraph, ENode, add};
use super::range::Range;
use egg::Id;
use sardonyx_base::{DType, Dim, Tensor};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Op, TensorType};

/// One node of one class, to which a rule may apply.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    pub egraph: &'a EGraph,
    pub class: Id,
    pub node: &'a ENode,
}

/// Expression that a rule finds equal to the site.
#[derive(Clone, Debug)]
pub enum Expr {
    Class(Id),
    /// The type is given where it does not follow from the operands.
    Node(Op, Option<TensorType>, Vec<Expr>),
}

impl<'a> Site<'a> {
    pub fn op(&self) -> &'a Op {
        self.op_of(self.node)
    }

    pub fn op_of(&self, node: &ENode) -> &'a Op {
        self.egraph.analysis.table.op(node.op)
    }

    pub fn arg(&self, i: usize) -> Id {
        self.node.args[i]
    }

    pub fn ty(&self) -> &'a TensorType {
        self.ty_of(self.class)
    }

    pub fn ty_of(&self, id: Id) -> &'a TensorType {
        self.egraph.analysis.table.ty(self.egraph[id].data.ty)
    }

    pub fn dims_of(&self, id: Id) -> &'a [Dim] {
        &self.ty_of(id).dims
    }

    /// The nodes of a class.
    pub fn nodes(&self, id: Id) -> &'a [ENode] {
        &self.egraph[id].nodes
    }

    /// The nodes of a class whose operation `look` accepts, each with the result of `look`.
    pub fn find<T: 'a>(
        &self,
        id: Id,
        look: impl Fn(&'a Op) -> Option<T> + 'a,
    ) -> impl Iterator<Item = (T, &'a ENode)> + 'a {
        let table = &self.egraph.analysis.table;
        self.egraph[id].nodes.iter().filter_map(move |n| look(table.op(n.op)).map(|t| (t, n)))
    }

    pub fn splat(&self, id: Id) -> Option<f64> {
        self.egraph[id].data.splat.as_ref()?.get_f64(0)
    }

    pub fn splat_tensor(&self, id: Id) -> Option<Tensor> {
        self.egraph[id].data.splat.clone()
    }

    pub fn value(&self, id: Id) -> Option<&'a Tensor> {
        self.egraph[id].data.value.as_ref()
    }

    pub fn range(&self, id: Id) -> Range {
        self.egraph[id].data.range
    }

    /// Whether the value depends only on parameters and constants.
    pub fn is_constant(&self, id: Id) -> bool {
        self.egraph[id].data.constant
    }

    pub fn same(&self, a: Id, b: Id) -> bool {
        self.egraph.find(a) == self.egraph.find(b)
    }

    /// The classes with a node that has `id` as an operand, in order.
    pub fn users(&self, id: Id) -> Vec<Id> {
        let mut users: Vec<Id> = self.egraph[id].parents().map(|p| self.egraph.find(p)).collect();
        users.sort();
        users.dedup();
        users
    }

    pub fn is_output(&self, id: Id) -> bool {
        self.egraph.analysis.outputs.iter().any(|o| self.same(*o, id))
    }

    /// Whether the dimension is at least 1 for all values of the symbols.
    pub fn never_empty(&self, d: &Dim) -> bool {
        d.lower_bound(&|s| self.egraph.analysis.symbol_lo(s)).is_some_and(|lo| lo >= 1)
    }
}

pub fn class(id: Id) -> Expr {
    Expr::Class(id)
}

pub fn op(op: Op, args: Vec<Expr>) -> Expr {
    Expr::Node(op, None, args)
}

pub fn typed(op: Op, ty: TensorType, args: Vec<Expr>) -> Expr {
    Expr::Node(op, Some(ty), args)
}

pub fn map(f: ScalarFn, args: Vec<Expr>) -> Expr {
    op(Op::Map(f), args)
}

pub fn reshape(a: Expr, dims: &[Dim]) -> Expr {
    // The element type is that of the operand, whatever is declared here.
    typed(Op::Reshape, TensorType::new(DType::F32, dims), vec![a])
}

pub fn transpose(a: Expr, perm: Vec<usize>) -> Expr {
    op(Op::Transpose { perm }, vec![a])
}

pub fn broadcast(a: Expr, at: Vec<usize>, dims: &[Dim]) -> Expr {
    typed(Op::Broadcast { dims: at }, TensorType::new(DType::F32, dims), vec![a])
}

/// A scalar repeated over `dims`.
pub fn splat(scalar: Tensor, dims: &[Dim]) -> Expr {
    broadcast(op(Op::Const(scalar), vec![]), vec![], dims)
}

/// `count` elements along one axis, from `start` on.
pub fn slice_axis(a: Expr, dims: &[Dim], axis: usize, start: Dim, count: Dim) -> Expr {
    let (mut starts, mut to) = (vec![Dim::constant(0); dims.len()], dims.to_vec());
    (starts[axis], to[axis]) = (start, count);
    let steps = vec![1; dims.len()];
    typed(Op::Slice { starts, steps }, TensorType::new(DType::F32, to), vec![a])
}

/// `value` as a scalar of the given type; `None` for types that rules do not compute with.
pub fn scalar(dtype: DType, value: f64) -> Option<Tensor> {
    Some(match dtype {
        DType::F32 => Tensor::scalar(value as f32),
        DType::F64 => Tensor::scalar(value),
        DType::F16 => Tensor::scalar(half::f16::from_f64(value)),
        DType::BF16 => Tensor::scalar(half::bf16::from_f64(value)),
        DType::I64 => Tensor::scalar(value as i64),
        DType::I32 => Tensor::scalar(value as i32),
        DType::Bool => Tensor::scalar(value != 0.0),
        _ => return None,
    })
}

impl Expr {
    pub fn add(&self, egraph: &mut EGraph) -> Result<Id, String> {
        match self {
            Expr::Class(id) => Ok(egraph.find(*id)),
            Expr::Node(op, ty, args) => {
                let args: Vec<Id> = args.iter().map(|a| a.add(egraph)).collect::<Result<_, String>>()?;
                add(egraph, op.clone(), &args, ty.as_ref())
            }
        }
    }

    /// Upper bound on the number of nodes that `add` creates.
    pub fn size(&self) -> usize {
        match self {
            Expr::Class(_) => 0,
            Expr::Node(_, _, args) => 1 + args.iter().map(Expr::size).sum::<usize>(),
        }
    }
}
