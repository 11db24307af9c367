//! The value of each statement of a kernel at a masked position: a number, a hidden score, or an unusable value

use super::proof::Fact;
use sardonyx_base::DType;
use sardonyx_dialects::flow::{Body, Kernel, Memlet};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};

/// Scores of at most this value are hidden: their softmax weight is 0 in f32 if the row has any score that is not
/// hidden, unless the unmasked scores are themselves in the thousands.
pub const HIDDEN_MAX: f64 = -1e4;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Known {
    /// The same number wherever the mask is 0.
    Number(f64),
    /// A number of at most `HIDDEN_MAX`.
    Hidden,
    /// A value that depends only on kept positions, or on values that are the same whether or not masked positions are
    /// computed.
    Kept,
    /// A value that depends on the contents of a masked position.
    Left,
}

use Known::{Hidden, Kept, Left, Number};

impl Known {
    fn is_hidden(self) -> bool {
        matches!(self, Hidden) || matches!(self, Number(v) if v <= HIDDEN_MAX)
    }

    fn is_zero(self) -> bool {
        self == Number(0.0)
    }
}

/// The batch variable, and the variable of the masked position.
pub type Place = (usize, usize);

/// The positions that a kernel reduces over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduced {
    /// Only kept positions: a masked position must contribute nothing to the reduction.
    Kept,
    /// All positions; a masked position may contribute any value.
    All,
    /// No position: the reduction is within each position.
    Within,
}

/// Returns what is known of each statement if the mask excludes position `place`, or `None` if the result of a
/// reduction would change without the masked positions.
pub fn statements(
    k: &Kernel,
    fact: &dyn Fn(&Memlet) -> Option<Fact>,
    place: Place,
    reduced: Reduced,
) -> Option<Vec<Known>> {
    let levels = k.levels();
    let mut known: Vec<Known> = vec![];
    for statement in &k.body {
        let value = match &statement.body {
            Body::Load { memlet, guard } => match guard.map(|g| known[g]) {
                Some(Number(0.0)) => Number(0.0),
                Some(Left) => Left,
                Some(Number(_) | Hidden | Kept) | None => load(fact, memlet, place, &known),
            },
            Body::Const(v) => Number(*v),
            Body::Index(_) => Kept,
            Body::Apply { f, args } => apply(*f, &args.iter().map(|a| known[*a]).collect::<Vec<_>>()),
            Body::Convert(a, _) => convert(known[*a], statement.dtype),
            Body::Reduce { f, arg } => {
                let deep = levels[*arg] == sardonyx_dialects::flow::Level::Deep;
                let value = known[*arg];
                match (deep, reduced) {
                    (true, _) if value == Left => Left,
                    (true, _) => Kept,
                    (false, Reduced::Kept) => {
                        let nothing = match f {
                            ReduceFn::Add => value.is_zero(),
                            ReduceFn::Max => value.is_hidden(),
                            ReduceFn::Min | ReduceFn::Mul => false,
                        };
                        nothing.then_some(Kept)?
                    }
                    (false, Reduced::All) if matches!(value, Left | Hidden) => return None,
                    (false, Reduced::Within) if matches!(value, Left | Hidden) => Left,
                    (false, Reduced::All | Reduced::Within) => Kept,
                }
            }
        };
        known.push(value);
    }
    Some(known)
}

fn load(fact: &dyn Fn(&Memlet) -> Option<Fact>, memlet: &Memlet, place: Place, known: &[Known]) -> Known {
    let by_data = |d: &sardonyx_base::Dim| d.statements().into_iter().any(|k| known[k] == Left);
    if memlet.index.iter().any(by_data) {
        return Left;
    }
    let Some(fact) = fact(memlet) else { return Kept };
    let at = (memlet.index[fact.axes.0].as_variable(), memlet.index[fact.axes.1].as_variable());
    match (at == (Some(place.0), Some(place.1)), fact.at_masked) {
        (true, Some(v)) => Number(v),
        (true, None) if fact.packed => Left,
        (true, None) | (false, _) => Kept,
    }
}

fn convert(value: Known, to: DType) -> Known {
    match value {
        Number(v) if to == DType::Bool => Number(f64::from(v != 0.0)),
        Number(v) if !to.is_float() => Number(v.trunc()),
        Hidden if !to.is_float() => Left,
        other => other,
    }
}

fn apply(f: ScalarFn, args: &[Known]) -> Known {
    use ScalarFn::*;
    if let (Select, &[condition, yes, no]) = (f, args) {
        return match condition {
            Number(c) if c != 0.0 => yes,
            Number(_) => no,
            Hidden | Left => Left,
            Kept if yes == no => yes,
            Kept if yes.is_hidden() && no.is_hidden() => Hidden,
            Kept if yes == Left || no == Left => Left,
            Kept => Kept,
        };
    }
    let left = args.contains(&Left);
    match (f, args) {
        (_, &[Number(a)]) => one(f, a).map_or(Kept, Number),
        (_, &[Number(a), Number(b)]) => two(f, a, b).map_or(Kept, Number),
        (Mul | And, &[a, b]) if a.is_zero() || b.is_zero() => Number(0.0),
        (Div, &[a, _]) if a.is_zero() => Number(0.0),
        (Add, &[a, b] | &[b, a]) if a.is_hidden() && !matches!(b, Number(v) if v > 0.0) => Hidden,
        (Min, &[a, b]) if a.is_hidden() || b.is_hidden() => Hidden,
        (Sub, &[a, b]) if a.is_hidden() && !b.is_hidden() => Hidden,
        (Mul, &[a, Number(v)] | &[Number(v), a]) if a.is_hidden() && v >= 1.0 => Hidden,
        (Exp, &[a]) if a.is_hidden() => Number(0.0),
        (IsNan, &[a]) if a.is_hidden() => Number(0.0),
        _ if left || args.contains(&Hidden) => Left,
        _ => Kept,
    }
}

fn one(f: ScalarFn, a: f64) -> Option<f64> {
    use ScalarFn::*;
    Some(match f {
        Abs => a.abs(),
        Exp => a.exp(),
        IsNan => f64::from(a.is_nan()),
        Neg => -a,
        Not => f64::from(a == 0.0),
        Atan | Ceil | Cos | Erf | Floor | Log | Round | Sign | Sin | Sqrt | Tanh => return None,
        Add | And | BitAnd | BitOr | BitXor | Div | Eq | Le | Lt | Max | Min | Mul | Or | Pow | Rem | Select => {
            return None;
        }
        Shl | Shr | Sub | Xor => return None,
    })
}

fn two(f: ScalarFn, a: f64, b: f64) -> Option<f64> {
    use ScalarFn::*;
    Some(match f {
        Add => a + b,
        And => f64::from(a != 0.0 && b != 0.0),
        Eq => f64::from(a == b),
        Le => f64::from(a <= b),
        Lt => f64::from(a < b),
        Max => a.max(b),
        Min => a.min(b),
        Mul => a * b,
        Or => f64::from(a != 0.0 || b != 0.0),
        Sub => a - b,
        Xor => f64::from((a != 0.0) != (b != 0.0)),
        Abs | Atan | BitAnd | BitOr | BitXor | Ceil | Cos | Div | Erf | Exp | Floor | IsNan | Log | Neg | Not => {
            return None;
        }
        Pow | Rem | Round | Select | Shl | Shr | Sign | Sin | Sqrt | Tanh => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_hidden_by_what_is_added_and_its_weight_is_nothing() {
        let bias = apply(ScalarFn::Mul, &[Number(1.0), Number(-10000.0)]);
        let x = apply(ScalarFn::Add, &[bias, Left]);
        assert_eq!(x, Hidden);
        let power = apply(ScalarFn::Exp, &[apply(ScalarFn::Sub, &[x, Kept])]);
        assert_eq!(apply(ScalarFn::Mul, &[power, Left]), Number(0.0));
    }

    #[test]
    fn a_small_bias_hides_nothing() {
        assert_eq!(apply(ScalarFn::Add, &[Number(-100.0), Left]), Left);
        assert_eq!(apply(ScalarFn::Add, &[Number(-100.0), Kept]), Kept);
        assert_eq!(apply(ScalarFn::Mul, &[Hidden, Number(0.5)]), Left);
        assert_eq!(apply(ScalarFn::Sub, &[Hidden, Hidden]), Left);
    }

    #[test]
    fn a_choice_by_the_mask_is_known() {
        assert_eq!(apply(ScalarFn::Select, &[Number(0.0), Left, Number(-1e9)]), Number(-1e9));
        assert_eq!(apply(ScalarFn::Select, &[Kept, Left, Kept]), Left);
        assert_eq!(convert(Number(0.0), DType::Bool), Number(0.0));
    }
}
