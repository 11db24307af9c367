//! shape(x)[0] * 2  =>  [2*batch]: the elements of small integer tensors as expressions of the symbols
//!
//! Either all elements are known or none. An expression denotes the exact integer: an element that is not constant is
//! assumed to be a count that fits its type, and so are the intermediate values from which it is computed.

use super::evaluate;
use super::numbers::int_range;
use super::scalar::{int_div, int_rem};
use crate::scalar::{Conversion, ReduceFn, ScalarFn};
use crate::sdx::{Node, Op, Role, TensorType};
use sardonyx_base::dim::Symbol;
use sardonyx_base::tensor::element_count;
use sardonyx_base::{DType, Dim, Tensor};

/// Maximum number of elements of a tensor whose contents are determined; no shape or permutation has more.
pub const CONTENTS_MAX: usize = 64;

/// An operand's type and, if they are known, its elements in row-major order.
pub type Argument<'a> = (&'a TensorType, Option<&'a [Dim]>);

/// The elements of an op's result in row-major order, as expressions of the graph's symbols; bools are 0 and 1. `None`
/// if they cannot be determined: the type is not i64, i32 or bool, the size is not constant or exceeds
/// [`CONTENTS_MAX`], an operand is unknown, or the symbols' lower bounds do not decide a comparison.
pub fn contents(
    op: &Op,
    ty: &TensorType,
    args: &[Argument<'_>],
    graph_symbol_lo: &dyn Fn(&Symbol) -> i64,
) -> Option<Vec<Dim>> {
    let n = small_count(ty)?;
    let proof = Proof { lo: graph_symbol_lo };
    let elements = match op {
        Op::Const(tensor) => (0..tensor.len()).map(|i| tensor.get_i64(i).map(Dim::constant)).collect::<Option<_>>()?,
        Op::Dims(list) => list.clone(),
        Op::Map(f) => {
            let args = args.iter().map(|a| a.1.filter(|x| x.len() == n)).collect::<Option<Vec<_>>>()?;
            let operands = |i: usize| -> Vec<&Dim> { args.iter().map(|a| &a[i]).collect() };
            (0..n).map(|i| proof.map(*f, &operands(i))).collect::<Option<_>>()?
        }
        Op::Convert(Conversion::Bits) => return None,
        Op::Convert(Conversion::Value) if ty.dtype == DType::Bool => {
            only(args)?.1?.iter().map(|x| Some(bit(!proof.equal(x, &0.into())?))).collect::<Option<_>>()?
        }
        Op::Convert(Conversion::Value) => only(args)?.1?.to_vec(),
        Op::Reduce { f, axes } => proof.reduce(*f, axes, only(args)?, ty)?,
        Op::Iota { .. } => constants(&evaluate(&bare(op.clone(), ty.clone()), &[], &|_| None).ok()?)?,
        Op::Gather { axis } => {
            let [data, indices] = args else { return None };
            let at: Vec<i64> = indices.1?.iter().map(Dim::as_const).collect::<Option<_>>()?;
            let at = Tensor::from_vec(static_dims(indices.0, at.len())?, at);
            moved(Op::Gather { axis: *axis }, ty, &[*data], &[at])?
        }
        op => match op.role() {
            Role::View | Role::Copy => moved(op.clone(), ty, args, &[])?,
            Role::Marker => only(args)?.1?.to_vec(),
            Role::Given | Role::Elementwise | Role::Reduction | Role::Product | Role::Host => return None,
        },
    };
    (elements.len() == n && elements.iter().all(|d| representable(d, ty.dtype))).then_some(elements)
}

fn small_count(ty: &TensorType) -> Option<usize> {
    let supported = matches!(ty.dtype, DType::I64 | DType::I32 | DType::Bool);
    element_count(&ty.static_dims()?).filter(|&n| supported && n <= CONTENTS_MAX)
}

fn static_dims(ty: &TensorType, count: usize) -> Option<Vec<usize>> {
    ty.static_dims().filter(|dims| element_count(dims) == Some(count))
}

/// Whether the type can hold the expression: a constant that would wrap is not the value of the element.
fn representable(d: &Dim, dtype: DType) -> bool {
    let in_range = |c: i64| int_range(dtype).is_some_and(|(lo, hi)| (lo..=hi).contains(&c.into()));
    !d.is_overflow() && d.as_const().is_none_or(in_range)
}

fn only<'a, 'b>(args: &'b [Argument<'a>]) -> Option<&'b Argument<'a>> {
    let [arg] = args else { return None };
    Some(arg)
}

fn constants(t: &Tensor) -> Option<Vec<Dim>> {
    (0..t.len()).map(|i| t.get_i64(i).map(Dim::constant)).collect()
}

fn bare(op: Op, ty: TensorType) -> Node {
    Node { op, args: vec![], ty, origins: vec![] }
}

/// The elements of the result of an op that only moves elements. The interpreter runs the op on the numbers of the
/// elements instead of the elements, so the semantics of movement is implemented once. The operands in `rest`, such as
/// indices, are passed unchanged after those in `args`.
fn moved(op: Op, ty: &TensorType, args: &[Argument<'_>], rest: &[Tensor]) -> Option<Vec<Dim>> {
    let mut elements: Vec<Dim> = vec![];
    let mut numbered = vec![];
    for (ty, known) in args {
        let known = known.filter(|k| k.len() <= CONTENTS_MAX)?;
        let numbers: Vec<i64> = (elements.len()..elements.len() + known.len()).map(|i| i as i64).collect();
        numbered.push(Tensor::from_vec(static_dims(ty, known.len())?, numbers));
        elements.extend_from_slice(known);
    }
    numbered.extend_from_slice(rest);
    let node = bare(op, TensorType::new(DType::I64, ty.dims.clone()));
    let from: Vec<i64> = evaluate(&node, &numbered, &|_| None).ok()?.to_vec()?;
    from.iter().map(|&i| elements.get(usize::try_from(i).ok()?).cloned()).collect()
}

fn bit(b: bool) -> Dim {
    Dim::constant(b.into())
}

/// Decides comparisons by the lower bounds of the symbols.
struct Proof<'a> {
    lo: &'a dyn Fn(&Symbol) -> i64,
}

impl Proof<'_> {
    /// Whether `a >= b + least` can be proved for all values of the symbols.
    fn ge(&self, a: &Dim, b: &Dim, least: i64) -> bool {
        let difference = a.clone() - b.clone() - Dim::constant(least);
        // Each symbol is first replaced by lo + s' with s' >= 0, so that its lower bound also counts within floordiv
        // and max.
        let shifted = difference.substitute(&|s| Some(Dim::from(s.clone()) + Dim::constant((self.lo)(s).max(0))));
        shifted.provably_ge(&Dim::constant(0), &|_| 0)
    }

    fn equal(&self, a: &Dim, b: &Dim) -> Option<bool> {
        if a == b {
            return Some(true);
        }
        (self.ge(a, b, 1) || self.ge(b, a, 1)).then_some(false)
    }

    fn less(&self, a: &Dim, b: &Dim) -> Option<bool> {
        match (self.ge(b, a, 1), self.ge(a, b, 0)) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            (false, false) => None,
        }
    }

    fn maximum(&self, a: &Dim, b: &Dim) -> Dim {
        match (self.ge(a, b, 0), self.ge(b, a, 0)) {
            (true, _) => a.clone(),
            (_, true) => b.clone(),
            (false, false) => a.maximum(b),
        }
    }

    fn minimum(&self, a: &Dim, b: &Dim) -> Dim {
        match (self.ge(a, b, 0), self.ge(b, a, 0)) {
            (true, _) => b.clone(),
            (_, true) => a.clone(),
            (false, false) => a.minimum(b),
        }
    }

    fn map(&self, f: ScalarFn, args: &[&Dim]) -> Option<Dim> {
        let of = |i: usize| args.get(i).copied();
        let zero = Dim::constant(0);
        let truth = |i: usize| of(i)?.as_const().map(|c| c != 0);
        Some(match f {
            ScalarFn::Abs if self.ge(of(0)?, &zero, 0) => of(0)?.clone(),
            ScalarFn::Abs => self.maximum(of(0)?, &-of(0)?.clone()),
            ScalarFn::Add => of(0)?.clone() + of(1)?.clone(),
            ScalarFn::And => bit(truth(0)? && truth(1)?),
            ScalarFn::Div => self.divide(of(0)?, of(1)?)?,
            ScalarFn::Eq => bit(self.equal(of(0)?, of(1)?)?),
            ScalarFn::Le => bit(!self.less(of(1)?, of(0)?)?),
            ScalarFn::Lt => bit(self.less(of(0)?, of(1)?)?),
            ScalarFn::Max => self.maximum(of(0)?, of(1)?),
            ScalarFn::Min => self.minimum(of(0)?, of(1)?),
            ScalarFn::Mul => of(0)?.clone() * of(1)?.clone(),
            ScalarFn::Neg => -of(0)?.clone(),
            ScalarFn::Not => bit(!truth(0)?),
            ScalarFn::Or => bit(truth(0)? || truth(1)?),
            ScalarFn::Rem => self.remainder(of(0)?, of(1)?)?,
            ScalarFn::Select => of(if truth(0)? { 1 } else { 2 })?.clone(),
            ScalarFn::Sub => of(0)?.clone() - of(1)?.clone(),
            ScalarFn::Xor => bit(truth(0)? != truth(1)?),
            ScalarFn::Atan
            | ScalarFn::BitAnd
            | ScalarFn::BitOr
            | ScalarFn::BitXor
            | ScalarFn::Ceil
            | ScalarFn::Cos
            | ScalarFn::Erf
            | ScalarFn::Exp
            | ScalarFn::Floor
            | ScalarFn::IsNan
            | ScalarFn::Log
            | ScalarFn::Pow
            | ScalarFn::Round
            | ScalarFn::Shl
            | ScalarFn::Shr
            | ScalarFn::Sign
            | ScalarFn::Sin
            | ScalarFn::Sqrt
            | ScalarFn::Tanh => return None,
        })
    }

    /// Quotient rounded towards zero; 0 if the divisor is the constant 0. `None` if it cannot be expressed by
    /// `floordiv`, which rounds down. It can if the divisor is positive or a negative constant, and the division is
    /// exact or the dividend is not negative.
    fn divide(&self, a: &Dim, b: &Dim) -> Option<Dim> {
        if let (Some(a), Some(b)) = (a.as_const(), b.as_const()) {
            return i64::try_from(int_div(a.into(), b.into())).ok().map(Dim::constant);
        }
        match b.as_const() {
            Some(0) => return Some(Dim::constant(0)),
            Some(c) if c < 0 => return Some(-self.divide(a, &-b.clone())?),
            Some(_) | None => {}
        }
        let positive = self.ge(b, &Dim::constant(0), 1);
        match a.exact_div(b) {
            Some(exact) if positive => Some(exact),
            _ if positive && self.ge(a, &Dim::constant(0), 0) => Some(a.floordiv(b)),
            _ => None,
        }
    }

    /// Remainder with the sign of the divisor; 0 if the divisor is the constant 0. `None` if the sign of a divisor that
    /// is not constant is unknown.
    fn remainder(&self, a: &Dim, b: &Dim) -> Option<Dim> {
        if let (Some(a), Some(b)) = (a.as_const(), b.as_const()) {
            return i64::try_from(int_rem(a.into(), b.into())).ok().map(Dim::constant);
        }
        match b.as_const() {
            Some(0) => Some(Dim::constant(0)),
            Some(c) if c < 0 => Some(-self.remainder(&-a.clone(), &-b.clone())?),
            Some(_) => Some(a.modulo(b)),
            None => self.ge(b, &Dim::constant(0), 1).then(|| a.modulo(b)),
        }
    }

    fn reduce(&self, f: ReduceFn, axes: &[usize], arg: &Argument<'_>, ty: &TensorType) -> Option<Vec<Dim>> {
        let known = arg.1.filter(|k| k.len() <= CONTENTS_MAX)?;
        let dims = static_dims(arg.0, known.len())?;
        // The reduced axes are moved to the end, so that each result element combines one run of operand elements.
        let kept = (0..dims.len()).filter(|d| !axes.contains(d));
        let perm: Vec<usize> = kept.chain(axes.iter().copied()).collect();
        let permuted =
            perm.iter().map(|&d| dims.get(d).map(|&n| Dim::constant(n as i64))).collect::<Option<Vec<_>>>()?;
        let runs = moved(Op::Transpose { perm }, &TensorType::new(DType::I64, permuted), &[*arg], &[])?;
        let n = element_count(&ty.static_dims()?)?;
        let run = runs.len().checked_div(n).unwrap_or(0);
        (0..n).map(|i| self.combine(f, &runs[i * run..(i + 1) * run], ty.dtype)).collect()
    }

    fn combine(&self, f: ReduceFn, run: &[Dim], dtype: DType) -> Option<Dim> {
        let neutral = i64::try_from(super::scalar::neutral_int(f, dtype).ok()?).ok()?;
        let combined = run.iter().cloned().reduce(|a, b| match f {
            ReduceFn::Add => a + b,
            ReduceFn::Mul => a * b,
            ReduceFn::Max => self.maximum(&a, &b),
            ReduceFn::Min => self.minimum(&a, &b),
        });
        Some(combined.unwrap_or(Dim::constant(neutral)))
    }
}
#[cfg(test)]
mod tests;
