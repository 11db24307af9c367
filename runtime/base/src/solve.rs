//! [batch, past + seq], [batch, seq]  =>  batch = size; seq = size; past = size - seq
//!
//! Determines which dimension of which input gives a symbol its value. A dimension that is a bare symbol is preferred
//! to an expression, and the first bare symbol to later ones. An expression is solved for a symbol once this symbol is
//! its only unknown. Callers check that all other dimensions agree with the values.

use crate::Dim;
use crate::dim::Symbol;
use std::sync::Arc;

/// A dimension that gives a symbol its value: size = coefficient * symbol + rest. All symbols of `rest` have earlier
/// sources.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The symbol that gets its value from the dimension.
    pub symbol: Arc<str>,
    /// Index of the input.
    pub input: usize,
    /// Index of the dimension in the input.
    pub axis: usize,
    /// The coefficient, which is not 0.
    pub coefficient: i64,
    /// The summand that is subtracted from the size before the division.
    pub rest: Dim,
}

impl Source {
    /// Returns the symbol's value if the dimension has this size; `known` returns the values of other symbols. `None`
    /// if no non-negative integer gives that size, or if `rest` has no value.
    pub fn value(&self, size: i64, known: &dyn Fn(&str) -> Option<i64>) -> Option<i64> {
        let rest = self.rest.eval_named(known).ok()?;
        let multiple = size.checked_sub(rest)?;
        let exact = multiple.checked_rem(self.coefficient)? == 0;
        multiple.checked_div(self.coefficient).filter(|&v| exact && v >= 0)
    }

    /// Whether the dimension is the symbol itself.
    pub fn is_bare(&self) -> bool {
        self.coefficient == 1 && self.rest.is_const(0)
    }
}

/// Maximum number of passes over the expressions. A chain in which each expression needs the symbol of the next one
/// takes at most one pass per expression; symbols of longer chains may get no source.
const ROUNDS_MAX: usize = 16;

/// The sources of all symbols that are `wanted` and that the dimensions determine, in the order of evaluation.
pub fn sources<'a>(inputs: impl IntoIterator<Item = &'a [Dim]>, wanted: &dyn Fn(&str) -> bool) -> Vec<Source> {
    further(vec![], inputs.into_iter().enumerate(), wanted)
}

/// Returns `found` together with the sources of the symbols that further inputs determine; each input is given with its
/// index.
pub fn further<'a>(
    mut found: Vec<Source>,
    inputs: impl IntoIterator<Item = (usize, &'a [Dim])>,
    wanted: &dyn Fn(&str) -> bool,
) -> Vec<Source> {
    let number = |(input, dims): (usize, &'a [Dim])| dims.iter().enumerate().map(move |(axis, d)| (input, axis, d));
    let all: Vec<(usize, usize, &Dim)> = inputs.into_iter().flat_map(number).collect();
    let mut known: std::collections::BTreeSet<Arc<str>> = found.iter().map(|s| s.symbol.clone()).collect();
    for &(input, axis, dim) in &all {
        if let Some(name) = dim.as_name()
            && wanted(name)
            && known.insert(Arc::from(name))
        {
            found.push(Source { symbol: name.into(), input, axis, coefficient: 1, rest: Dim::constant(0) });
        }
    }
    let mut left: Vec<_> = all.into_iter().filter(|(_, _, d)| d.as_name().is_none()).collect();
    for _ in 0..ROUNDS_MAX {
        let before = found.len();
        left.retain(|&(input, axis, dim)| {
            let unknown: Vec<Arc<str>> = dim.names().into_iter().filter(|s| !known.contains(s)).collect();
            if let [symbol] = unknown.as_slice()
                && wanted(symbol)
                && let Some((coefficient, rest)) = dim.linear_in(&Symbol::Named(symbol.clone()))
                && let Some(coefficient) = coefficient.as_const().filter(|&c| c != 0)
            {
                known.insert(symbol.clone());
                found.push(Source { symbol: symbol.clone(), input, axis, coefficient, rest });
            }
            unknown.len() > 1
        });
        if found.len() == before {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(texts: &[&str]) -> Vec<Dim> {
        texts.iter().map(|t| Dim::parse(t).unwrap()).collect()
    }

    fn shown(inputs: &[&[&str]]) -> Vec<String> {
        let inputs: Vec<Vec<Dim>> = inputs.iter().map(|i| dims(i)).collect();
        let found = sources(inputs.iter().map(Vec::as_slice), &|s| !s.starts_with("data"));
        let one = |s: &Source| format!("{}*{} + {} at {}.{}", s.coefficient, s.symbol, s.rest, s.input, s.axis);
        found.iter().map(one).collect()
    }

    #[test]
    fn bare_symbols_come_first() {
        let inputs: &[&[&str]] = &[&["b", "past + seq"], &["b", "seq"], &["past"]];
        assert_eq!(shown(inputs), ["1*b + 0 at 0.0", "1*seq + 0 at 1.1", "1*past + 0 at 2.0"]);
    }

    #[test]
    fn an_expression_is_solved_for_its_only_unknown() {
        assert_eq!(shown(&[&["past + seq"], &["seq"]]), ["1*seq + 0 at 1.0", "1*past + seq at 0.0"]);
        assert_eq!(shown(&[&["2*n + 3"]]), ["2*n + 3 at 0.0"]);
        assert_eq!(shown(&[&["a + b"], &["b + c"], &["c"]]), ["1*c + 0 at 2.0", "1*b + c at 1.0", "1*a + b at 0.0"]);
    }

    #[test]
    fn what_does_not_determine_a_symbol_is_no_source() {
        for dim in ["a + b", "a*a", "a floordiv 2", "max(a, 3)", "a*b + c", "data0", "data0 + 1", "7"] {
            assert_eq!(shown(&[&[dim]]), Vec::<String>::new(), "{dim}");
        }
        // A coefficient that may be 0 determines nothing.
        assert_eq!(shown(&[&["a*b"], &["b"]]), ["1*b + 0 at 1.0"]);
    }

    #[test]
    fn values_are_counts() {
        let source = |text: &str| sources([dims(&[text, "seq"]).as_slice()], &|_| true).pop().unwrap();
        let value = |text: &str, size: i64| source(text).value(size, &|s| (s == "seq").then_some(5));
        assert_eq!((value("past + seq", 9), value("past + seq", 5), value("past + seq", 4)), (Some(4), Some(0), None));
        assert_eq!((value("2*n + seq", 9), value("2*n + seq", 8)), (Some(2), None));
        assert_eq!((value("seq - n", 3), value("seq - n", 6)), (Some(2), None));
        assert_eq!(value("n + seq", i64::MIN), None);
    }
}
