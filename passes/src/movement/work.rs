//! kernel, operator  =>  its class and its number of operations, for comparison with the words moved

use super::facts::Facts;
use sardonyx_base::Dim;
use sardonyx_base::dim::product;
use sardonyx_dialects::flow::kernel::{Body, Class, Kernel};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Graph, Op, Operator, Role, Value};
use std::collections::BTreeMap;

/// The operator classes of "Data Movement Is All You Need" (2021), and two more: attention as one kernel, and copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Sums of products, with the functions after them.
    Contraction,
    /// Contractions and reductions in one kernel.
    Attention,
    /// A reduction with the elementwise functions around it.
    Normalisation,
    /// Scalar functions without reductions.
    Elementwise,
    /// Elements moved without computation.
    Copy,
}

impl Kind {
    /// All classes, in the order of their declaration.
    pub const ALL: [Kind; 5] = [Kind::Contraction, Kind::Attention, Kind::Normalisation, Kind::Elementwise, Kind::Copy];

    /// Returns the class in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Contraction => "contraction",
            Kind::Attention => "attention",
            Kind::Normalisation => "normalisation",
            Kind::Elementwise => "elementwise",
            Kind::Copy => "copy",
        }
    }

    /// Classifies a kernel.
    pub fn from_kernel(kernel: &Kernel) -> Kind {
        match kernel.class() {
            Class::Contract | Class::Groups => Kind::Contraction,
            Class::Attention => Kind::Attention,
            Class::Normalise => Kind::Normalisation,
            Class::Map if kernel.stores.iter().all(|s| only_moved(kernel, s.value)) => Kind::Copy,
            Class::Map => Kind::Elementwise,
        }
    }

    /// Classifies an operator by the contractions, reductions and scalar functions among its nodes.
    pub fn from_operator(graph: &Graph, operator: &Operator) -> Kind {
        let is = |f: &dyn Fn(&Op) -> bool| operator.nodes.iter().filter(|v| f(&graph.node(**v).op)).count();
        let products = is(&|op| matches!(op, Op::Contract(_)));
        let maps = is(&|op| op.role() == Role::Elementwise && *op != Op::Map(ScalarFn::Select));
        match (products, is(&|op| matches!(op, Op::Reduce { .. })), maps) {
            (0, 0, 0) => Kind::Copy,
            (0, 0, _) => Kind::Elementwise,
            (0, _, _) => Kind::Normalisation,
            (1, _, _) => Kind::Contraction,
            (_, 0, _) => Kind::Contraction,
            (_, _, _) => Kind::Attention,
        }
    }
}

/// Whether a statement only moves or selects elements by position, without computing on them.
fn only_moved(kernel: &Kernel, k: usize) -> bool {
    match &kernel.body[k].body {
        Body::Load { .. } | Body::Const(_) | Body::Index(_) => true,
        Body::Apply { f: ScalarFn::Select, args } => {
            let placed = |k: usize| !Facts::from_kernel(kernel, &|_| 0).is_by_data(k);
            placed(args[0]) && args[1..].iter().all(|a| only_moved(kernel, *a))
        }
        Body::Apply { .. } | Body::Convert(_, _) | Body::Reduce { .. } => false,
    }
}

/// Returns the number of floating-point operations of an operator at the sdx level: one per element of a scalar
/// function's result, except for select, one per reduced element, and two per product of a contraction. Only operations
/// with float results count.
pub fn operator_flops(graph: &Graph, operator: &Operator) -> Dim {
    let elements = |v: Value| graph.ty(v).elements();
    let of = |v: &Value| {
        let node = graph.node(*v);
        match &node.op {
            _ if !node.ty.dtype.is_float() => Dim::constant(0),
            Op::Map(ScalarFn::Select) => Dim::constant(0),
            Op::Map(_) => elements(*v),
            Op::Reduce { .. } => elements(node.args[0]),
            Op::Contract(spec) => {
                let mut extents = BTreeMap::new();
                for (letters, arg) in [(&spec.left, node.args[0]), (&spec.right, node.args[1])] {
                    extents.extend(letters.iter().zip(&graph.ty(arg).dims));
                }
                Dim::constant(2) * product(extents.into_values())
            }
            _ => Dim::constant(0),
        }
    };
    operator.nodes.iter().map(of).fold(Dim::constant(0), |sum, d| sum + d)
}
