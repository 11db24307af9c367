//! seq + past, 384*batch, (n + 15) floordiv 16: dimension expressions in a normal form
//!
//! A `Dim` is a polynomial with integer coefficients over atoms: symbols, `floordiv`, `max`, `min`.
//! Expressions that are equal as polynomials are equal `Dim`s, print the same text, and are parsed back from it.
//! Symbols stand for non-negative integers; `mod` and `ceildiv` are rewritten to `floordiv`.
//! Overflow does not panic: it gives the absorbing value [`Dim::overflow`], which prints as `overflow`.

mod bounds;
mod symbol;
mod text;

pub use bounds::Bounds;
pub use symbol::Symbol;

#[cfg(test)]
mod tests;

use crate::{Error, Result};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{Add, Mul, Neg, Range, Sub};
use std::sync::Arc;

/// A factor of a monomial.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    /// A non-negative integer whose value is given when the expression is evaluated.
    Symbol(Symbol),
    /// ⌊first / second⌋; it has no value unless the second operand is positive.
    FloorDiv(Arc<Dim>, Arc<Dim>),
    /// The larger of two operands, which are stored in sorted order: `max(a, b)` and `max(b, a)` are the same atom.
    Max(Arc<Dim>, Arc<Dim>),
    /// The smaller of two operands, which are stored in sorted order, as for `Max`.
    Min(Arc<Dim>, Arc<Dim>),
}

/// A product of atoms, sorted, with repetition.
pub type Monomial = Vec<Atom>;

/// An integer expression: a polynomial over [`Atom`]s in normal form, or [`Dim::overflow`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dim {
    /// The coefficient of each monomial, never 0. The coefficient of the empty monomial is the constant term.
    terms: BTreeMap<Monomial, i64>,
    overflow: bool,
}

/// Maximum number of terms, more than any model needs. A larger expression counts as overflowed, so that hostile input
/// cannot make expressions grow without bound.
const TERMS_MAX: usize = 4096;

/// Maximum number of symbols and operations within one atom, counted at each occurrence.
const ATOM_WEIGHT_MAX: usize = 4096;

/// Maximum number of terms that a polynomial division processes; a longer division counts as not exact.
const DIVISION_MAX: usize = 1 << 16;

/// Maximum number of minima that a proof of a lower bound examines; each doubles the number of cases.
const MINIMA_MAX: usize = 3;

impl Dim {
    /// Returns the expression of a constant.
    pub fn constant(value: i64) -> Dim {
        let mut terms = BTreeMap::new();
        if value != 0 {
            terms.insert(vec![], value);
        }
        Dim { terms, overflow: false }
    }

    /// The absorbing value that every arithmetic overflow gives.
    pub fn overflow() -> Dim {
        Dim { terms: BTreeMap::new(), overflow: true }
    }

    fn atom(atom: Atom) -> Dim {
        // A shared operand is visited at each occurrence: the weight of `x mod 7 mod 5 mod 3 …` doubles at every `mod`.
        if atom.weight() > ATOM_WEIGHT_MAX {
            return Dim::overflow();
        }
        Dim { terms: BTreeMap::from([(vec![atom], 1)]), overflow: false }
    }

    /// A coefficient times a product of atoms, as returned by [`terms`](Dim::terms).
    pub fn term(monomial: &[Atom], c: i64) -> Dim {
        let mut sorted = monomial.to_vec();
        sorted.sort();
        Dim::from_terms([(sorted, i128::from(c))].into_iter())
    }

    fn from_terms(terms: impl Iterator<Item = (Monomial, i128)>) -> Dim {
        let mut sum: BTreeMap<Monomial, i128> = BTreeMap::new();
        for (monomial, c) in terms {
            *sum.entry(monomial).or_default() += c;
        }
        let mut out = BTreeMap::new();
        for (monomial, c) in sum {
            match i64::try_from(c) {
                Ok(0) => {}
                Ok(c) => drop(out.insert(monomial, c)),
                Err(_) => return Dim::overflow(),
            }
        }
        if out.len() > TERMS_MAX { Dim::overflow() } else { Dim { terms: out, overflow: false } }
    }

    /// Number of symbols and operations, counted at each occurrence: the cost of walking the expression.
    fn weight(&self) -> usize {
        self.terms.keys().flatten().fold(0, |sum, atom| sum.saturating_add(atom.weight()))
    }

    fn scaled(mut self, by: i64) -> Dim {
        if by == 0 {
            return Dim::constant(0);
        }
        for c in self.terms.values_mut() {
            match c.checked_mul(by) {
                Some(product) => *c = product,
                None => return Dim::overflow(),
            }
        }
        self
    }

    /// Whether this is the absorbing value [`Dim::overflow`].
    pub fn is_overflow(&self) -> bool {
        self.overflow
    }

    /// Returns the value if the expression is a constant; `None` otherwise, and on overflow.
    pub fn as_const(&self) -> Option<i64> {
        match (self.overflow, self.terms.len()) {
            (true, _) => None,
            (false, 0) => Some(0),
            (false, 1) => self.terms.get(&vec![]).copied(),
            (false, _) => None,
        }
    }

    /// Returns whether the expression is the constant `value`.
    pub fn is_const(&self, value: i64) -> bool {
        self.as_const() == Some(value)
    }

    /// Monomials with their coefficients, in a fixed order.
    pub fn terms(&self) -> impl Iterator<Item = (&[Atom], i64)> {
        self.terms.iter().map(|(m, &c)| (m.as_slice(), c))
    }

    fn constant_term(&self) -> i64 {
        self.terms.get(&vec![]).copied().unwrap_or(0)
    }

    /// ⌊self / divisor⌋ for a positive divisor. Simplifies if the divisor divides some terms or the whole polynomial.
    pub fn floordiv(&self, divisor: &Dim) -> Dim {
        if self.overflow || divisor.overflow || divisor.as_const().is_some_and(|d| d <= 0) {
            return Dim::overflow();
        }
        if let (Some(a), Some(b)) = (self.as_const(), divisor.as_const()) {
            return Dim::constant(a.div_euclid(b));
        }
        if divisor.is_const(1) || self.is_const(0) {
            return self.clone();
        }
        if let Some(exact) = self.exact_div(divisor) {
            return exact;
        }
        // Terms that the divisor d divides are moved out of the floor: ⌊(q·d + r) / d⌋ = q + ⌊r / d⌋.
        let mut whole = Dim::constant(0);
        let mut rest = Dim::constant(0);
        for (monomial, &c) in &self.terms {
            let term = Dim { terms: BTreeMap::from([(monomial.clone(), c)]), overflow: false };
            match term.exact_div(divisor) {
                Some(q) => whole = whole + q,
                None => rest = rest + term,
            }
        }
        // The constant term is reduced too, so that (n + 17) floordiv 16 = 1 + (n + 1) floordiv 16.
        if let Some(d) = divisor.as_const() {
            let c = rest.constant_term();
            whole = whole + Dim::constant(c.div_euclid(d));
            rest = rest - Dim::constant(c) + Dim::constant(c.rem_euclid(d));
            if rest.overflow {
                return Dim::overflow();
            }
            if rest.is_const(0) || rest.as_const().is_some() {
                return whole;
            }
        }
        whole + Dim::atom(Atom::FloorDiv(Arc::new(rest), Arc::new(divisor.clone())))
    }

    /// Returns ⌈self / divisor⌉ for a positive divisor.
    pub fn ceildiv(&self, divisor: &Dim) -> Dim {
        (self.clone() + divisor.clone() - Dim::constant(1)).floordiv(divisor)
    }

    /// Returns self - ⌊self / divisor⌋·divisor for a positive divisor: the remainder, which is not negative.
    pub fn modulo(&self, divisor: &Dim) -> Dim {
        self.clone() - self.floordiv(divisor) * divisor.clone()
    }

    /// Returns the larger of `self` and `other`: an [`Atom::Max`] unless it is known which one is larger.
    pub fn maximum(&self, other: &Dim) -> Dim {
        // For example, max(0, n - min(1, n)) is n - min(1, n).
        for (zero, larger) in [(self, other), (other, self)] {
            if zero.is_const(0) && larger.lower_bound(&|_| 0).is_some_and(|lo| lo >= 0) {
                return larger.clone();
            }
        }
        self.ordered(other, Atom::Max, |difference| difference >= 0)
    }

    /// Returns the smaller of `self` and `other`: an [`Atom::Min`] unless their difference is constant.
    pub fn minimum(&self, other: &Dim) -> Dim {
        self.ordered(other, Atom::Min, |difference| difference <= 0)
    }

    fn ordered(&self, other: &Dim, atom: fn(Arc<Dim>, Arc<Dim>) -> Atom, first: fn(i64) -> bool) -> Dim {
        if self.overflow || other.overflow {
            return Dim::overflow();
        }
        // The difference of two constants may overflow i64.
        let difference = match (self.as_const(), other.as_const()) {
            (Some(a), Some(b)) => Some(a.cmp(&b) as i64),
            _ => (self.clone() - other.clone()).as_const(),
        };
        match difference {
            Some(d) if first(d) => self.clone(),
            Some(_) => other.clone(),
            None if self < other => Dim::atom(atom(Arc::new(self.clone()), Arc::new(other.clone()))),
            None => Dim::atom(atom(Arc::new(other.clone()), Arc::new(self.clone()))),
        }
    }

    /// The polynomial quotient, if the division has no remainder (the divisor is assumed to be positive).
    pub fn exact_div(&self, divisor: &Dim) -> Option<Dim> {
        if self.overflow || divisor.overflow || divisor.terms.is_empty() {
            return None;
        }
        // Monomials are ordered by degree first. Multiplication keeps that order, so each round divides the largest
        // monomial that is left.
        let graded = |(m, &c): (&Monomial, &i64)| ((m.len(), m.clone()), c);
        let mut below: Vec<_> = divisor.terms.iter().map(graded).collect();
        below.sort();
        let ((_, lead), lead_c) = below.pop()?;
        let mut rest: BTreeMap<(usize, Monomial), i64> = self.terms.iter().map(graded).collect();
        let mut quotient = BTreeMap::new();
        let rounds = self.terms.len().min(DIVISION_MAX / divisor.terms.len());
        for _ in 0..=rounds {
            let Some(((_, monomial), c)) = rest.pop_last() else {
                return Some(Dim { terms: quotient, overflow: false });
            };
            let left = monomial_div(&monomial, &lead)?;
            // `None` also for i64::MIN by -1, whose quotient overflows i64.
            if c.checked_rem(lead_c)? != 0 {
                return None;
            }
            let q = c / lead_c;
            for ((_, monomial), c) in &below {
                let mut product: Monomial = left.iter().chain(monomial).cloned().collect();
                product.sort();
                let key = (product.len(), product);
                let taken = q.checked_mul(*c)?;
                match rest.remove(&key).unwrap_or(0).checked_sub(taken)? {
                    0 => {}
                    c => drop(rest.insert(key, c)),
                }
            }
            quotient.insert(left, q);
        }
        rest.is_empty().then_some(Dim { terms: quotient, overflow: false })
    }

    /// Returns the value of the expression, given the values of its symbols. Errors: E0204 for a symbol without a
    /// value; E0202 on overflow, or if the divisor of a `floordiv` is not positive.
    pub fn eval(&self, value: &dyn Fn(&Symbol) -> Option<i64>) -> Result<i64> {
        let overflow = || Error::user("E0202", format!("the value of `{self}` overflows"));
        if self.overflow {
            return Err(overflow());
        }
        let mut sum = 0i64;
        for (monomial, &c) in &self.terms {
            let mut product = c;
            for atom in monomial {
                product = product.checked_mul(atom.eval(value)?).ok_or_else(overflow)?;
            }
            sum = sum.checked_add(product).ok_or_else(overflow)?;
        }
        Ok(sum)
    }

    /// Returns the value of the expression, given the values of its named symbols. Errors: like [`eval`](Dim::eval).
    pub fn eval_named(&self, value: &dyn Fn(&str) -> Option<i64>) -> Result<i64> {
        self.eval(&|symbol| value(symbol.name()?))
    }

    /// Returns the value of the expression, given the parameters of a launch. Errors: like [`eval`](Dim::eval).
    pub fn eval_params(&self, params: &[i64]) -> Result<i64> {
        self.eval(&|symbol| params.get(symbol.param()?).copied())
    }

    /// Replaces each launch parameter `p0`, `p1`, … by the element of `params` with its number.
    pub fn by_params(&self, params: &[Dim]) -> Dim {
        self.substitute(&|symbol| params.get(symbol.param()?).cloned())
    }

    /// Replaces the symbols for which `by` returns an expression.
    pub fn substitute(&self, by: &dyn Fn(&Symbol) -> Option<Dim>) -> Dim {
        if self.overflow {
            return Dim::overflow();
        }
        let mut sum = Dim::constant(0);
        for (monomial, &c) in &self.terms {
            let product = monomial.iter().fold(Dim::constant(c), |p, atom| {
                p * match atom {
                    Atom::Symbol(symbol) => by(symbol).unwrap_or_else(|| symbol.clone().into()),
                    Atom::FloorDiv(a, b) => a.substitute(by).floordiv(&b.substitute(by)),
                    Atom::Max(a, b) => a.substitute(by).maximum(&b.substitute(by)),
                    Atom::Min(a, b) => a.substitute(by).minimum(&b.substitute(by)),
                }
            });
            sum = sum + product;
        }
        sum
    }

    /// The atom, if the expression is a single atom.
    pub fn as_atom(&self) -> Option<&Atom> {
        let (monomial, &c) = self.terms.iter().next()?;
        match (self.terms.len(), c, monomial.as_slice()) {
            (1, 1, [atom]) => Some(atom),
            _ => None,
        }
    }

    /// Replaces an atom wherever it occurs, inner expressions included.
    pub fn replace(&self, from: &Atom, by: &Dim) -> Dim {
        if self.overflow {
            return Dim::overflow();
        }
        let one = |atom: &Atom| match atom {
            a if a == from => by.clone(),
            Atom::Symbol(symbol) => symbol.clone().into(),
            Atom::FloorDiv(a, b) => a.replace(from, by).floordiv(&b.replace(from, by)),
            Atom::Max(a, b) => a.replace(from, by).maximum(&b.replace(from, by)),
            Atom::Min(a, b) => a.replace(from, by).minimum(&b.replace(from, by)),
        };
        let term = |(m, &c): (&Monomial, &i64)| m.iter().fold(Dim::constant(c), |p, atom| p * one(atom));
        self.terms.iter().map(term).fold(Dim::constant(0), |sum, t| sum + t)
    }

    /// Returns (coefficient, rest) with `self = symbol * coefficient + rest`; the coefficient is 0 if the symbol does
    /// not occur. `None` if the symbol occurs more than once in a term, or within an atom such as a `floordiv`.
    pub fn linear_in(&self, symbol: &Symbol) -> Option<(Dim, Dim)> {
        let mut coefficient = Dim::constant(0);
        let mut rest = Dim::constant(0);
        for (monomial, &c) in &self.terms {
            let (hit, other): (Vec<Atom>, Vec<Atom>) =
                monomial.iter().cloned().partition(|a| matches!(a, Atom::Symbol(s) if s == symbol));
            let deeper = Dim { terms: BTreeMap::from([(other.clone(), c)]), overflow: false };
            if hit.len() > 1 || deeper.symbols().contains(symbol) {
                return None;
            }
            if hit.len() == 1 {
                coefficient = coefficient + deeper;
            } else {
                rest = rest + deeper;
            }
        }
        if self.overflow { None } else { Some((coefficient, rest)) }
    }

    /// Returns a lower bound, given lower bounds of the symbols; `None` if none can be derived term by term.
    pub fn lower_bound(&self, symbol_lo: &dyn Fn(&Symbol) -> i64) -> Option<i64> {
        if self.overflow {
            return None;
        }
        // Each symbol is replaced by lo + s' with s' ≥ 0. If all coefficients are then non-negative, the value is at
        // least the constant term.
        let shifted = self.substitute(&|symbol| match symbol_lo(symbol) {
            0 => None,
            lo => Some(Dim::from(symbol.clone()) + Dim::constant(lo)),
        });
        shifted.least(MINIMA_MAX)
    }

    /// Returns a lower bound, given that all symbols are at least 0. Since -min(a, b) is at least -a and at least -b,
    /// a subtracted minimum is replaced by each of its operands in turn, for at most `n_minima` minima.
    fn least(&self, n_minima: usize) -> Option<i64> {
        if self.overflow {
            return None;
        }
        let taken = self.terms.iter().find_map(|(m, &c)| match m.as_slice() {
            [Atom::Min(a, b)] if c < 0 => Some((Dim::term(m, c), c, [a, b])),
            _ => None,
        });
        if let (Some((term, c, sides)), Some(rest)) = (taken, n_minima.checked_sub(1)) {
            let by = |side: &Dim| (self.clone() - term.clone() + Dim::constant(c) * side.clone()).least(rest);
            return sides.into_iter().filter_map(|side| by(side)).max();
        }
        for (monomial, c) in self.terms.iter().filter(|(m, _)| !m.is_empty()) {
            if *c < 0 || !monomial.iter().all(Atom::non_negative) {
                return None;
            }
        }
        Some(self.constant_term())
    }

    /// Whether `self >= other` can be proved for all symbols at or above their lower bounds.
    pub fn provably_ge(&self, other: &Dim, symbol_lo: &dyn Fn(&Symbol) -> i64) -> bool {
        (self.clone() - other.clone()).lower_bound(symbol_lo).is_some_and(|lo| lo >= 0)
    }
}

impl Ord for Dim {
    fn cmp(&self, other: &Dim) -> Ordering {
        // Atoms share their operands, so `self` and `other` are often the same object.
        match std::ptr::eq(self, other) {
            true => Ordering::Equal,
            false => (&self.terms, self.overflow).cmp(&(&other.terms, other.overflow)),
        }
    }
}

impl PartialOrd for Dim {
    fn partial_cmp(&self, other: &Dim) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Atom {
    fn weight(&self) -> usize {
        match self {
            Atom::Symbol(_) => 1,
            Atom::FloorDiv(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                a.weight().saturating_add(b.weight()).saturating_add(1)
            }
        }
    }

    fn eval(&self, value: &dyn Fn(&Symbol) -> Option<i64>) -> Result<i64> {
        Ok(match self {
            Atom::Symbol(symbol) => {
                value(symbol).ok_or_else(|| Error::user("E0204", format!("the symbol `{symbol}` has no value")))?
            }
            Atom::FloorDiv(a, b) => {
                let (a, b) = (a.eval(value)?, b.eval(value)?);
                let quotient = if b > 0 { a.checked_div_euclid(b) } else { None };
                quotient.ok_or_else(|| Error::user("E0202", format!("{a} floordiv {b} has no value")))?
            }
            Atom::Max(a, b) => a.eval(value)?.max(b.eval(value)?),
            Atom::Min(a, b) => a.eval(value)?.min(b.eval(value)?),
        })
    }

    /// Whether the atom is provably non-negative for all non-negative values of the symbols.
    fn non_negative(&self) -> bool {
        let at_least_zero = |d: &Dim| d.lower_bound(&|_| 0).is_some_and(|lo| lo >= 0);
        match self {
            Atom::Symbol(_) => true,
            Atom::FloorDiv(a, _) => at_least_zero(a),
            Atom::Max(a, b) => at_least_zero(a) || at_least_zero(b),
            Atom::Min(a, b) => at_least_zero(a) && at_least_zero(b),
        }
    }
}

fn monomial_div(a: &Monomial, b: &Monomial) -> Option<Monomial> {
    let mut left = a.clone();
    for atom in b {
        left.remove(left.iter().position(|x| x == atom)?);
    }
    Some(left)
}

impl Add for Dim {
    type Output = Dim;
    fn add(self, other: Dim) -> Dim {
        if self.overflow || other.overflow {
            return Dim::overflow();
        }
        // The smaller sum is merged into the larger, so that a sum built term by term is not copied for every term.
        let (mut sum, small) = if self.terms.len() < other.terms.len() { (other, self) } else { (self, other) };
        for (monomial, c) in small.terms {
            match sum.terms.entry(monomial) {
                Entry::Vacant(entry) => drop(entry.insert(c)),
                Entry::Occupied(mut entry) => match entry.get().checked_add(c) {
                    Some(0) => drop(entry.remove()),
                    Some(total) => *entry.get_mut() = total,
                    None => return Dim::overflow(),
                },
            }
        }
        if sum.terms.len() > TERMS_MAX { Dim::overflow() } else { sum }
    }
}

impl Neg for Dim {
    type Output = Dim;
    fn neg(self) -> Dim {
        self * Dim::constant(-1)
    }
}

impl Sub for Dim {
    type Output = Dim;
    fn sub(self, other: Dim) -> Dim {
        self + -other
    }
}

impl Mul for Dim {
    type Output = Dim;
    fn mul(self, other: Dim) -> Dim {
        if self.overflow || other.overflow || self.terms.len().saturating_mul(other.terms.len()) > TERMS_MAX {
            return Dim::overflow();
        }
        if let Some(c) = other.as_const() {
            return self.scaled(c);
        }
        let product = |(a, &ca): (&Monomial, &i64), (b, &cb): (&Monomial, &i64)| {
            let mut monomial: Monomial = a.iter().chain(b).cloned().collect();
            monomial.sort();
            (monomial, ca as i128 * cb as i128)
        };
        if self.terms.keys().chain(other.terms.keys()).any(|m| m.len() > 16) {
            return Dim::overflow();
        }
        Dim::from_terms(self.terms.iter().flat_map(|a| other.terms.iter().map(move |b| product(a, b))))
    }
}

impl From<i64> for Dim {
    fn from(value: i64) -> Dim {
        Dim::constant(value)
    }
}

/// Product of dimensions; 1 for none.
pub fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Dim {
    dims.into_iter().fold(Dim::constant(1), |p, d| p * d.clone())
}

/// Returns, for each dimension of `merged`, the range of adjacent dimensions of `dims` that it is the product of; `None`
/// if there are no such ranges.
pub fn merged_groups(dims: &[Dim], merged: &[Dim]) -> Option<Vec<Range<usize>>> {
    let (mut groups, mut start) = (vec![], 0);
    for whole in merged {
        let end = (start + 1..=dims.len()).find(|&end| product(&dims[start..end]) == *whole)?;
        groups.push(start..end);
        start = end;
    }
    (start == dims.len()).then_some(groups)
}

/// Returns a range as text: `1..512`, or `1..` without an upper bound.
pub fn range(lo: i64, hi: Option<i64>) -> String {
    format!("{lo}..{}", hi.map_or(String::new(), |hi| hi.to_string()))
}
