//! batch = 8, rows in 0..1024  =>  `rows*384 - batch` in -8..393208: intervals of expressions

use super::{Atom, Dim, Symbol};
use crate::{Error, Result};

/// The smallest and the largest value of an expression.
pub type Bounds = (i64, i64);

impl Dim {
    /// The interval of the expression's values, given an interval for each symbol. It may be wider than necessary: the
    /// occurrences of a symbol are treated as independent. Errors: E0204 for a symbol without values, E0202 on
    /// overflow.
    pub fn bounds(&self, value: &dyn Fn(&Symbol) -> Option<Bounds>) -> Result<Bounds> {
        let overflow = || Error::user("E0202", format!("the bounds of `{self}` overflow"));
        if self.is_overflow() {
            return Err(overflow());
        }
        let mut sum: Bounds = (0, 0);
        for (monomial, c) in self.terms() {
            let mut product = (c, c);
            for atom in monomial {
                let factor = atom.bounds(value)?;
                product = extremes(product, factor, i64::checked_mul).ok_or_else(overflow)?;
            }
            let both = sum.0.checked_add(product.0).zip(sum.1.checked_add(product.1));
            sum = both.ok_or_else(overflow)?;
        }
        Ok(sum)
    }
}

impl Atom {
    fn bounds(&self, value: &dyn Fn(&Symbol) -> Option<Bounds>) -> Result<Bounds> {
        let of_both = |a: &Dim, b: &Dim| Ok((a.bounds(value)?, b.bounds(value)?));
        match self {
            Atom::Symbol(symbol) => {
                value(symbol).ok_or_else(|| Error::user("E0204", format!("the symbol `{symbol}` has no value")))
            }
            Atom::FloorDiv(a, b) => {
                let (a, b) = of_both(a, b)?;
                let quotient = |a: i64, b: i64| if b > 0 { a.checked_div_euclid(b) } else { None };
                // Division by less than 1 has no value, so the divisor is at least 1 in every valid call.
                let quotients = extremes(a, (b.0.max(1), b.1), quotient);
                quotients.ok_or_else(|| Error::user("E0202", format!("{a:?} floordiv {b:?} has no value")))
            }
            Atom::Max(a, b) => of_both(a, b).map(|(a, b)| (a.0.max(b.0), a.1.max(b.1))),
            Atom::Min(a, b) => of_both(a, b).map(|(a, b)| (a.0.min(b.0), a.1.min(b.1))),
        }
    }
}

/// Bounds of an operation that is monotone in each operand for every fixed value of the other.
fn extremes(a: Bounds, b: Bounds, op: impl Fn(i64, i64) -> Option<i64>) -> Option<Bounds> {
    let ends = [op(a.0, b.0)?, op(a.0, b.1)?, op(a.1, b.0)?, op(a.1, b.1)?];
    Some((*ends.iter().min()?, *ends.iter().max()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(text: &str, a: Bounds, b: Bounds) -> Result<Bounds> {
        Dim::parse(text)?.bounds(&|symbol| match symbol.name()? {
            "a" => Some(a),
            "b" => Some(b),
            _ => None,
        })
    }

    #[test]
    fn every_value_lies_between_the_bounds() {
        let texts =
            ["a*b - 3*a", "64*((9*a + b + 27) floordiv 64)", "max(a - b, 2)", "a - 2*min(a, b)", "7 floordiv (b + 1)"];
        for text in texts {
            let (dim, (lo, hi)) = (Dim::parse(text).unwrap(), bounds(text, (0, 9), (2, 5)).unwrap());
            for (a, b) in (0..=9).flat_map(|a| (2..=5).map(move |b| (a, b))) {
                let value = dim.eval_named(&|name| Some(if name == "a" { a } else { b })).unwrap();
                assert!((lo..=hi).contains(&value), "{text} at {a}, {b}");
            }
        }
    }

    #[test]
    fn points_have_points() {
        assert_eq!(bounds("a*b + 7 floordiv a", (3, 3), (5, 5)).unwrap(), (17, 17));
        assert_eq!(bounds("-2*a + b", (0, 4), (1, 1)).unwrap(), (-7, 1));
    }

    #[test]
    fn what_has_no_bounds_is_an_error() {
        assert_eq!(bounds("c", (0, 0), (0, 0)).unwrap_err().code, "E0204");
        assert_eq!(bounds("a*b", (0, i64::MAX), (0, 2)).unwrap_err().code, "E0202");
    }
}
