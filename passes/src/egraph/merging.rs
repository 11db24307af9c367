//! x · a + p, x · b + q => slices of x · concat(a, b) + concat(p, q): linear maps of one input become one
//!
//! Only parameters are concatenated, which is done once, when the artifact is written. Consumers read a slice of the
//! merged result in place. An activation cannot do that efficiently: it is fused as the epilogue of a product, but on a
//! slice it would be a kernel of its own. A product that feeds an activation therefore stays alone, such as the gate of
//! a gated network, and so does the product multiplied by that gate, which then has no other part to merge with. A
//! product that is a result of the function also stays alone, as it has a buffer of its own.

use super::contraction::spec_of;
use super::expr::{Expr, Site, broadcast, class, map, op, slice_axis};
use super::rule::{Rule, code};
use crate::class::Class::Exact;
use egg::Id;
use sardonyx_base::Dim;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{ContractSpec, Op};

pub static RULES: &[Rule] = &[
    code(
        "merge-affine-maps",
        Exact,
        "add in (concat (add (contract#1 ?x param) (broadcast param)) (add (contract#1 ?x param) (broadcast param)))",
        merge_affine_maps,
    ),
    code(
        "merge-linear-maps",
        Exact,
        "contract in (concat (contract#1 ?x param) (contract#1 ?x param))",
        merge_linear_maps,
    ),
];

/// One map x · weight + bias; the bias varies along the dimension that only the weight has.
struct Part {
    weight: Id,
    bias: Option<Id>,
}

/// A contraction with a parameter, in whose spec exactly one letter belongs to the parameter and not to the other
/// operand.
struct Linear<'a> {
    spec: &'a ContractSpec,
    x: Id,
    /// Positions of the letter that only the weight has: `axis` among the weight's dimensions, `place` in the result.
    axis: usize,
    place: usize,
}

fn linear<'a>(s: &Site, spec: &'a ContractSpec, args: &[Id]) -> Option<Linear<'a>> {
    let mut own = spec.right.iter().enumerate().filter(|(_, c)| !spec.left.contains(c));
    let (axis, c) = own.next()?;
    let place = spec.result.iter().position(|r| r == c)?;
    let fits = own.next().is_none() && is_param(s, args[1]) && !s.is_constant(args[0]);
    fits.then_some(Linear { spec, x: args[0], axis, place })
}

pub fn is_param(s: &Site, id: Id) -> bool {
    s.find(id, |op| matches!(op, Op::Param { .. }).then_some(())).next().is_some()
}

fn merge_linear_maps(s: &Site) -> Vec<Expr> {
    let of = |spec| linear(s, spec, &s.node.args);
    let Some(linear) = spec_of(s.op()).and_then(of) else { return vec![] };
    merged(s, &linear, s.arg(1), |part| part.bias.is_none()).into_iter().collect()
}

fn merge_affine_maps(s: &Site) -> Vec<Expr> {
    let mut out = vec![];
    for (spec, n) in s.find(s.arg(0), spec_of) {
        let Some(linear) = linear(s, spec, &n.args) else { continue };
        let biased =
            |part: &Part| part.bias.is_some_and(|b| !s.same(part.weight, n.args[1]) || is_bias_of(s, b, &linear));
        out.extend(merged(s, &linear, n.args[1], biased));
    }
    out
}

/// Whether the site adds this bias to the product, rather than the bias of another map.
fn is_bias_of(s: &Site, bias: Id, linear: &Linear) -> bool {
    vectors(s, s.arg(1), linear.place).iter().any(|b| s.same(*b, bias))
}

/// Merges all parts that `fits` accepts into one map, and returns the slice of its result that belongs to the weight
/// `own`.
fn merged(s: &Site, linear: &Linear, own: Id, fits: impl Fn(&Part) -> bool) -> Option<Expr> {
    let parts: Vec<Part> = parts(s, linear, own).into_iter().filter(fits).collect();
    let own = parts.iter().position(|p| s.same(p.weight, own)).filter(|_| parts.len() > 1)?;
    let extent = |p: &Part| s.dims_of(p.weight)[linear.axis].clone();
    let sum = |parts: &[Part]| parts.iter().map(extent).fold(Dim::constant(0), |sum, d| sum + d);
    let mut dims = s.ty().dims.clone();
    dims[linear.place] = sum(&parts);
    let weights = op(Op::Concat { axis: linear.axis }, parts.iter().map(|p| class(p.weight)).collect());
    let mut whole = op(Op::Contract(linear.spec.clone()), vec![class(linear.x), weights]);
    if let Some(biases) = parts.iter().map(|p| p.bias.map(class)).collect::<Option<Vec<Expr>>>() {
        let bias = broadcast(op(Op::Concat { axis: 0 }, biases), vec![linear.place], &dims);
        whole = map(ScalarFn::Add, vec![whole, bias]);
    }
    Some(slice_axis(whole, &dims, linear.place, sum(&parts[..own]), extent(&parts[own])))
}

/// The parameters that the same input is contracted with by the same spec, with their biases, ordered by e-class.
/// Products that stay alone are left out.
fn parts(s: &Site, linear: &Linear, own: Id) -> Vec<Part> {
    let mut out: Vec<Part> = vec![];
    let own = s.dims_of(own);
    let alike = |dims: &[Dim]| dims.iter().zip(own).enumerate().all(|(i, (a, b))| i == linear.axis || a == b);
    for user in s.users(linear.x) {
        for (_, n) in s.find(user, |op| spec_of(op).filter(|o| *o == linear.spec)) {
            let weight = s.egraph.find(n.args[1]);
            let fresh = s.same(n.args[0], linear.x) && is_param(s, weight) && alike(s.dims_of(weight));
            if fresh && !out.iter().any(|p| p.weight == weight) {
                let (bias, sum) = biased(s, user, linear.place);
                if !is_activated(s, sum, ACTIVATION_DEPTH) && !is_result(s, sum, MOTIONS_MAX) {
                    out.push(Part { weight, bias });
                }
            }
        }
    }
    out.sort_by_key(|p| p.weight);
    out
}

/// The bias added to a product, and the sum; `None` and the product itself if there is no bias.
fn biased(s: &Site, product: Id, place: usize) -> (Option<Id>, Id) {
    for user in s.users(product) {
        for (_, n) in s.find(user, |op| (*op == Op::Map(ScalarFn::Add)).then_some(())) {
            if let Some(bias) = vectors(s, n.args[1], place).first().copied().filter(|_| s.same(n.args[0], product)) {
                return (Some(bias), user);
            }
        }
    }
    (None, product)
}

/// The parameter vectors that a value is a broadcast of, along dimension `place`.
fn vectors(s: &Site, id: Id, place: usize) -> Vec<Id> {
    let along = |op: &Op| matches!(op, Op::Broadcast { dims } if *dims == [place]).then_some(());
    let whole = |v: &Id| is_param(s, *v) && s.dims_of(*v)[0] == s.dims_of(id)[place];
    s.find(id, along).map(|(_, n)| n.args[0]).filter(whole).collect()
}

/// Maximum number of reshapes and transposes between a product and a result of the function.
const MOTIONS_MAX: usize = 3;

fn is_result(s: &Site, id: Id, depth: usize) -> bool {
    let moves = |op: &Op| matches!(op, Op::Reshape | Op::Transpose { .. }).then_some(());
    let moved = |user: &Id| s.find(*user, moves).any(|(_, n)| s.same(n.args[0], id));
    s.is_output(id) || (depth > 0 && s.users(id).iter().filter(|u| moved(u)).any(|u| is_result(s, *u, depth - 1)))
}

/// How many elementwise functions after a product are searched for an activation.
const ACTIVATION_DEPTH: usize = 4;

/// Whether the value is read by an activation function, directly or after some arithmetic.
fn is_activated(s: &Site, id: Id, depth: usize) -> bool {
    s.users(id).into_iter().any(|user| {
        s.find(user, |op| if let Op::Map(f) = op { Some(*f) } else { None })
            .filter(|(_, n)| n.args.iter().any(|a| s.same(*a, id)))
            .any(|(f, _)| activates(f) || (depth > 1 && is_activated(s, user, depth - 1)))
    })
}

fn activates(f: ScalarFn) -> bool {
    match f {
        ScalarFn::Exp | ScalarFn::Log | ScalarFn::Tanh | ScalarFn::Erf | ScalarFn::Sqrt | ScalarFn::Pow => true,
        ScalarFn::Atan
        | ScalarFn::Sin
        | ScalarFn::Cos
        | ScalarFn::Max
        | ScalarFn::Min
        | ScalarFn::Select
        | ScalarFn::Abs => true,
        ScalarFn::Add | ScalarFn::Sub | ScalarFn::Mul | ScalarFn::Div | ScalarFn::Neg | ScalarFn::Rem => false,
        ScalarFn::Floor | ScalarFn::Ceil | ScalarFn::Round | ScalarFn::Sign | ScalarFn::IsNan => false,
        ScalarFn::Eq | ScalarFn::Lt | ScalarFn::Le | ScalarFn::Not | ScalarFn::And | ScalarFn::Or => false,
        ScalarFn::Xor => false,
        ScalarFn::BitAnd | ScalarFn::BitOr | ScalarFn::BitXor | ScalarFn::Shl | ScalarFn::Shr => false,
    }
}
