//! seq + past, 384*batch, (n + 15) floordiv 16: dimension expressions in one normal form
//!
//! A `Dim` is a polynomial with integer coefficients over atoms: symbols, `floordiv`, `max`, `min`.
//! Two expressions that are equal as polynomials are equal as values, print the same and parse back.
//! Symbols stand for non-negative integers; `mod` and `ceildiv` are rewritten to `floordiv`.
//! Overflow does not panic: it gives the absorbing value [`Dim::overflow`], which prints as `overflow`.

use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Add, Mul, Neg, Sub};
use std::sync::Arc;

/// What a monomial multiplies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    Symbol(Arc<str>),
    FloorDiv(Arc<Dim>, Arc<Dim>),
    Max(Arc<Dim>, Arc<Dim>),
    Min(Arc<Dim>, Arc<Dim>),
}

/// A product of atoms, sorted, with repetition.
pub type Monomial = Vec<Atom>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dim {
    /// Sorted by monomial; no zero coefficient. The empty monomial is the constant term.
    terms: BTreeMap<Monomial, i64>,
    overflow: bool,
}

/// More terms than any model needs; beyond it an expression counts as overflowed, so that hostile input cannot
/// make expressions grow without bound.
const TERMS_MAX: usize = 4096;
const PARSE_DEPTH_MAX: usize = 32;

impl Dim {
    pub fn constant(value: i64) -> Dim {
        let mut terms = BTreeMap::new();
        if value != 0 {
            terms.insert(vec![], value);
        }
        Dim { terms, overflow: false }
    }

    pub fn symbol(name: &str) -> Dim {
        Dim::atom(Atom::Symbol(name.into()))
    }

    /// The absorbing value of every arithmetic overflow.
    pub fn overflow() -> Dim {
        Dim { terms: BTreeMap::new(), overflow: true }
    }

    fn atom(atom: Atom) -> Dim {
        Dim { terms: BTreeMap::from([(vec![atom], 1)]), overflow: false }
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

    pub fn is_overflow(&self) -> bool {
        self.overflow
    }

    pub fn as_const(&self) -> Option<i64> {
        match (self.overflow, self.terms.len()) {
            (true, _) => None,
            (false, 0) => Some(0),
            (false, 1) => self.terms.get(&vec![]).copied(),
            (false, _) => None,
        }
    }

    pub fn is_const(&self, value: i64) -> bool {
        self.as_const() == Some(value)
    }

    /// The name, where the expression is one bare symbol.
    pub fn as_symbol(&self) -> Option<&str> {
        let (monomial, &c) = self.terms.iter().next()?;
        match (self.terms.len(), c, monomial.as_slice()) {
            (1, 1, [Atom::Symbol(name)]) => Some(name),
            _ => None,
        }
    }

    /// Monomials with their coefficients, in a fixed order.
    pub fn terms(&self) -> impl Iterator<Item = (&[Atom], i64)> {
        self.terms.iter().map(|(m, &c)| (m.as_slice(), c))
    }

    fn constant_term(&self) -> i64 {
        self.terms.get(&vec![]).copied().unwrap_or(0)
    }

    /// ⌊self / divisor⌋ for a positive divisor. Exact where every term, or the whole polynomial, divides.
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
        // Terms that divide leave the floor: ⌊(q·d + r) / d⌋ = q + ⌊r / d⌋.
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

    pub fn ceildiv(&self, divisor: &Dim) -> Dim {
        (self.clone() + divisor.clone() - Dim::constant(1)).floordiv(divisor)
    }

    pub fn modulo(&self, divisor: &Dim) -> Dim {
        self.clone() - self.floordiv(divisor) * divisor.clone()
    }

    pub fn maximum(&self, other: &Dim) -> Dim {
        self.ordered(other, Atom::Max, |difference| difference >= 0)
    }

    pub fn minimum(&self, other: &Dim) -> Dim {
        self.ordered(other, Atom::Min, |difference| difference <= 0)
    }

    fn ordered(&self, other: &Dim, atom: fn(Arc<Dim>, Arc<Dim>) -> Atom, first: fn(i64) -> bool) -> Dim {
        if self.overflow || other.overflow {
            return Dim::overflow();
        }
        // The difference of two constants may be no i64, though both are.
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

    /// The polynomial quotient, where the division leaves nothing over (the divisor is taken to be positive).
    pub fn exact_div(&self, divisor: &Dim) -> Option<Dim> {
        if self.overflow || divisor.overflow || divisor.terms.is_empty() {
            return None;
        }
        let (lead, &lead_c) = divisor.terms.last_key_value()?;
        let mut rest = self.clone();
        let mut quotient = Dim::constant(0);
        for _ in 0..=self.terms.len() {
            // Any term that the leading term divides may be next; take the largest.
            let Some((monomial, &c)) = rest.terms.iter().next_back() else { return Some(quotient) };
            let left = monomial_div(monomial, lead)?;
            // `None` also for i64::MIN by -1, whose quotient is no i64.
            if c.checked_rem(lead_c)? != 0 {
                return None;
            }
            let q = Dim { terms: BTreeMap::from([(left, c / lead_c)]), overflow: false };
            rest = rest - q.clone() * divisor.clone();
            quotient = quotient + q;
            if rest.overflow {
                return None;
            }
        }
        rest.terms.is_empty().then_some(quotient)
    }

    /// The value under an assignment of the symbols; an error names a symbol without a value, or the overflow.
    pub fn eval(&self, value: &dyn Fn(&str) -> Option<i64>) -> Result<i64> {
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

    /// Replaces symbols for which `by` has an expression.
    pub fn substitute(&self, by: &dyn Fn(&str) -> Option<Dim>) -> Dim {
        if self.overflow {
            return Dim::overflow();
        }
        let mut sum = Dim::constant(0);
        for (monomial, &c) in &self.terms {
            let product = monomial.iter().fold(Dim::constant(c), |p, atom| {
                p * match atom {
                    Atom::Symbol(name) => by(name).unwrap_or_else(|| Dim::symbol(name)),
                    Atom::FloorDiv(a, b) => a.substitute(by).floordiv(&b.substitute(by)),
                    Atom::Max(a, b) => a.substitute(by).maximum(&b.substitute(by)),
                    Atom::Min(a, b) => a.substitute(by).minimum(&b.substitute(by)),
                }
            });
            sum = sum + product;
        }
        sum
    }

    /// The atom, where the expression is one bare atom.
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
            Atom::Symbol(name) => Dim::symbol(name),
            Atom::FloorDiv(a, b) => a.replace(from, by).floordiv(&b.replace(from, by)),
            Atom::Max(a, b) => a.replace(from, by).maximum(&b.replace(from, by)),
            Atom::Min(a, b) => a.replace(from, by).minimum(&b.replace(from, by)),
        };
        let term = |(m, &c): (&Monomial, &i64)| m.iter().fold(Dim::constant(c), |p, atom| p * one(atom));
        self.terms.iter().map(term).fold(Dim::constant(0), |sum, t| sum + t)
    }

    /// All symbols that occur, sorted.
    pub fn symbols(&self) -> BTreeSet<Arc<str>> {
        let mut out = BTreeSet::new();
        self.collect_symbols(&mut out);
        out
    }

    fn collect_symbols(&self, out: &mut BTreeSet<Arc<str>>) {
        for atom in self.terms.keys().flatten() {
            match atom {
                Atom::Symbol(name) => drop(out.insert(name.clone())),
                Atom::FloorDiv(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                    a.collect_symbols(out);
                    b.collect_symbols(out);
                }
            }
        }
    }

    /// `self = symbol * coefficient + rest`, where the symbol occurs at most once per term and in no inner
    /// expression; the coefficient is 0 where it does not occur.
    pub fn linear_in(&self, symbol: &str) -> Option<(Dim, Dim)> {
        let mut coefficient = Dim::constant(0);
        let mut rest = Dim::constant(0);
        for (monomial, &c) in &self.terms {
            let (hit, other): (Vec<Atom>, Vec<Atom>) =
                monomial.iter().cloned().partition(|a| matches!(a, Atom::Symbol(s) if &**s == symbol));
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

    /// A lower bound under lower bounds of the symbols, where one follows term by term.
    pub fn lower_bound(&self, symbol_lo: &dyn Fn(&str) -> i64) -> Option<i64> {
        if self.overflow {
            return None;
        }
        // Writing each symbol as lo + s' turns "all coefficients non-negative" into a proof for all s' ≥ 0.
        let shifted = self.substitute(&|name| match symbol_lo(name) {
            0 => None,
            lo => Some(Dim::symbol(name) + Dim::constant(lo)),
        });
        if shifted.overflow {
            return None;
        }
        for (monomial, c) in shifted.terms.iter().filter(|(m, _)| !m.is_empty()) {
            if *c < 0 || !monomial.iter().all(|a| a.non_negative(symbol_lo)) {
                return None;
            }
        }
        Some(shifted.constant_term())
    }

    /// True where `self >= other` follows for all symbols at or above their lower bounds.
    pub fn provably_ge(&self, other: &Dim, symbol_lo: &dyn Fn(&str) -> i64) -> bool {
        (self.clone() - other.clone()).lower_bound(symbol_lo).is_some_and(|lo| lo >= 0)
    }

    /// Reads what `Display` writes, and more: `+ - * floordiv ceildiv mod max(a, b) min(a, b)`, parentheses.
    pub fn parse(text: &str) -> Result<Dim> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let dim = parser.sum()?;
        parser.skip_space();
        if parser.at < text.len() {
            return Err(parser.error("an operator"));
        }
        Ok(dim)
    }
}

impl Atom {
    fn eval(&self, value: &dyn Fn(&str) -> Option<i64>) -> Result<i64> {
        Ok(match self {
            Atom::Symbol(name) => {
                value(name).ok_or_else(|| Error::user("E0204", format!("the symbol `{name}` has no value")))?
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

    fn non_negative(&self, symbol_lo: &dyn Fn(&str) -> i64) -> bool {
        let at_least_zero = |d: &Dim| d.lower_bound(symbol_lo).is_some_and(|lo| lo >= 0);
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
        Dim::from_terms(self.terms.into_iter().chain(other.terms).map(|(m, c)| (m, c as i128)))
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

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.overflow {
            return f.write_str("overflow");
        }
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        // Symbols first, the constant last: `seq + past + 1`.
        let ordered = self.terms.iter().filter(|(m, _)| !m.is_empty());
        let ordered = ordered.chain(self.terms.iter().filter(|(m, _)| m.is_empty()));
        for (i, (monomial, &c)) in ordered.enumerate() {
            match (i, c < 0) {
                (0, true) => f.write_str("-")?,
                (0, false) => {}
                (_, true) => f.write_str(" - ")?,
                (_, false) => f.write_str(" + ")?,
            }
            let magnitude = c.unsigned_abs();
            if monomial.is_empty() || magnitude != 1 {
                write!(f, "{magnitude}")?;
            }
            for (j, atom) in monomial.iter().enumerate() {
                if j > 0 || magnitude != 1 {
                    f.write_str("*")?;
                }
                write!(f, "{atom}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Symbol(name) if plain_name(name) => f.write_str(name),
            Atom::Symbol(name) => write!(f, "\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")),
            Atom::FloorDiv(a, b) => write!(f, "(({a}) floordiv ({b}))"),
            Atom::Max(a, b) => write!(f, "max({a}, {b})"),
            Atom::Min(a, b) => write!(f, "min({a}, {b})"),
        }
    }
}

static WORDS: &[&str] = &["ceildiv", "floordiv", "max", "min", "mod", "overflow"];

/// Names that need no quotes. `%` and `$` begin the compiler's own symbols (iteration variables, loaded indices).
fn plain_name(name: &str) -> bool {
    let body = name.strip_prefix(['%', '$']).unwrap_or(name);
    let own = body.len() < name.len();
    let mut chars = body.chars();
    let first = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || (own && c.is_ascii_digit()));
    first && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.')) && !WORDS.contains(&name)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn error(&self, wanted: &str) -> Box<Error> {
        let shown: String = self.text.chars().take(80).collect();
        Error::user("E0204", format!("`{shown}` is not a dimension expression: expected {wanted} at byte {}", self.at))
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip_space();
        let hit = self.rest().starts_with(token);
        self.at += if hit { token.len() } else { 0 };
        hit
    }

    fn word(&mut self) -> Option<&'a str> {
        self.skip_space();
        let rest = self.rest();
        let lead = if rest.starts_with(['%', '$']) { 1 } else { 0 };
        let body = &rest[lead..];
        let len = body.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))).unwrap_or(body.len());
        let starts = body.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || lead == 1);
        (len > 0 && starts).then(|| {
            self.at += lead + len;
            &rest[..lead + len]
        })
    }

    fn sum(&mut self) -> Result<Dim> {
        self.depth += 1;
        if self.depth > PARSE_DEPTH_MAX {
            return Err(self.error("less nesting"));
        }
        let mut left = if self.eat("-") { self.negative()? } else { self.product()? };
        loop {
            if self.eat("+") {
                left = left + self.product()?;
            } else if self.eat("-") {
                left = left + self.negative()?;
            } else {
                self.depth -= 1;
                return Ok(left);
            }
        }
    }

    /// What follows a minus. The least i64 has no positive counterpart.
    fn negative(&mut self) -> Result<Dim> {
        self.skip_space();
        let least = "9223372036854775808";
        match self.rest().strip_prefix(least).is_some_and(|after| !after.starts_with(|c: char| c.is_ascii_digit())) {
            true => {
                self.at += least.len();
                self.times(Dim::constant(i64::MIN))
            }
            false => Ok(-self.product()?),
        }
    }

    fn product(&mut self) -> Result<Dim> {
        let first = self.factor()?;
        self.times(first)
    }

    /// A product whose first factor has been read.
    fn times(&mut self, mut left: Dim) -> Result<Dim> {
        loop {
            if self.eat("*") {
                left = left * self.factor()?;
                continue;
            }
            let before = self.at;
            match self.word() {
                Some("floordiv") => left = self.divide(&left, Dim::floordiv)?,
                Some("ceildiv") => left = self.divide(&left, Dim::ceildiv)?,
                Some("mod") => left = self.divide(&left, Dim::modulo)?,
                _ => {
                    self.at = before;
                    return Ok(left);
                }
            }
        }
    }

    fn divide(&mut self, left: &Dim, by: fn(&Dim, &Dim) -> Dim) -> Result<Dim> {
        let right = self.factor()?;
        if right.as_const().is_some_and(|d| d <= 0) {
            return Err(self.error("a positive divisor"));
        }
        Ok(by(left, &right))
    }

    fn factor(&mut self) -> Result<Dim> {
        self.skip_space();
        let rest = self.rest();
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if digits > 0 {
            self.at += digits;
            return Ok(rest[..digits].parse().map_or(Dim::overflow(), Dim::constant));
        }
        if self.eat("(") {
            let inner = self.sum()?;
            return if self.eat(")") { Ok(inner) } else { Err(self.error("`)`")) };
        }
        if rest.starts_with('"') {
            return self.quoted();
        }
        match self.word() {
            Some("max") => self.pair(Dim::maximum),
            Some("min") => self.pair(Dim::minimum),
            Some("overflow") => Ok(Dim::overflow()),
            Some(name) => Ok(Dim::symbol(name)),
            None => Err(self.error("a number, a name or `(`")),
        }
    }

    fn pair(&mut self, of: fn(&Dim, &Dim) -> Dim) -> Result<Dim> {
        if !self.eat("(") {
            return Err(self.error("`(`"));
        }
        let a = self.sum()?;
        if !self.eat(",") {
            return Err(self.error("`,`"));
        }
        let b = self.sum()?;
        if self.eat(")") { Ok(of(&a, &b)) } else { Err(self.error("`)`")) }
    }

    /// A name in quotes; `\"` and `\\` stand for the characters themselves.
    fn quoted(&mut self) -> Result<Dim> {
        let mut name = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += i + 1;
                    return Ok(Dim::symbol(&name));
                }
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                c => name.push(c),
            }
        }
        Err(self.error("a closing quote"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(text: &str) -> Dim {
        Dim::parse(text).unwrap()
    }

    #[test]
    fn equal_polynomials_are_one_value() {
        assert_eq!(dim("seq + 1 + past"), dim("past + seq + 1"));
        assert_eq!(dim("(a + b) * (a - b)"), dim("a*a - b*b"));
        assert_eq!(dim("(n + 17) floordiv 16"), dim("1 + (n + 1) floordiv 16"));
        assert_eq!(dim("(16*n + 5) floordiv 16"), dim("n"));
    }

    #[test]
    fn exact_division_cancels() {
        assert_eq!(dim("(384*batch*seq) floordiv (batch*seq)"), dim("384"));
        assert_eq!(dim("(a*a - b*b)").exact_div(&dim("a + b")), Some(dim("a - b")));
        assert_eq!(dim("a*b + 1").exact_div(&dim("a")), None);
    }

    #[test]
    fn printing_and_parsing_are_inverse() {
        for text in [
            "0",
            "-3",
            "batch",
            "past + seq",
            "(n + 15) floordiv 16 * 64",
            "max(a, b + 1)",
            "n mod 7",
            "\"odd name\" + 2",
            "%0*384 + $1",
        ] {
            let d = dim(text);
            assert_eq!(dim(&d.to_string()), d, "{text} prints as {d}");
        }
    }

    #[test]
    fn values_agree_with_integer_arithmetic() {
        // A small linear congruential generator: the cases are the same on every machine.
        let mut state = 7u64;
        let mut next = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for _ in 0..2000 {
            let (a, b, c, k) = (next(40) as i64, next(40) as i64, next(9) as i64 + 1, next(7) as i64 + 1);
            let d = ((dim("a") * Dim::constant(k) + dim("b")).floordiv(&dim("c"))).modulo(&Dim::constant(k));
            let value = |s: &str| [("a", a), ("b", b), ("c", c)].iter().find(|(n, _)| *n == s).map(|(_, v)| *v);
            assert_eq!(d.eval(&value).unwrap(), ((a * k + b).div_euclid(c)).rem_euclid(k));
        }
    }

    #[test]
    fn overflow_is_a_value_not_a_panic() {
        let big = Dim::constant(1 << 62);
        assert!((big.clone() * Dim::constant(4)).is_overflow());
        assert!((big.clone() + big.clone()).is_overflow());
        assert!(dim("99999999999999999999").is_overflow());
        assert!((Dim::symbol("a") * big).eval(&|_| Some(4)).is_err());
        // i64::MIN has no negative and no quotient by -1.
        for text in ["(-9223372036854775807 - 1)*a floordiv (b - a)", "(a - 9223372036854775807 - 1) floordiv 7"] {
            dim(text);
        }
    }

    #[test]
    fn bounds_are_proved_not_guessed() {
        let zero = |_: &str| 0;
        assert!(dim("4*a + b").provably_ge(&dim("a"), &zero));
        assert!(!dim("a").provably_ge(&dim("b"), &zero));
        assert!(dim("2*a").provably_ge(&dim("a + 1"), &|_| 1));
        assert!(!dim("2*a").provably_ge(&dim("a + 1"), &zero));
    }

    #[test]
    fn a_linear_part_can_be_taken_out() {
        let (coefficient, rest) = dim("384*%0 + 64*%1 + k").linear_in("%0").unwrap();
        assert_eq!((coefficient, rest), (dim("384"), dim("64*%1 + k")));
        assert!(dim("%0 floordiv 2").linear_in("%0").is_none());
    }

    #[test]
    fn odd_names_and_the_least_number_survive_the_round_trip() {
        for name in ["a b", "q\"uo\\te", "zero\u{200b}width", "é", "max", "0x"] {
            let d = Dim::symbol(name) + Dim::constant(1);
            assert_eq!(Dim::parse(&d.to_string()).unwrap(), d, "{name}");
        }
        let least = Dim::constant(i64::MIN);
        for d in [least.clone(), dim("n") * least.clone() + dim("m"), dim("n") + least.clone()] {
            assert_eq!(Dim::parse(&d.to_string()).unwrap(), d);
        }
        assert!(Dim::parse("-9223372036854775809").unwrap().is_overflow());
        assert_eq!(least.maximum(&least).as_const(), Some(i64::MIN));
        assert_eq!(least.minimum(&Dim::constant(i64::MAX)).as_const(), Some(i64::MIN));
        assert_eq!(least.maximum(&Dim::constant(i64::MAX)).as_const(), Some(i64::MAX));
    }

    #[test]
    fn nonsense_is_refused_with_a_position() {
        for text in ["", "a +", "(a", "a b", "a floordiv 0", "max(a)", &"(".repeat(1000)] {
            assert!(Dim::parse(text).is_err(), "{text}");
        }
    }
}
