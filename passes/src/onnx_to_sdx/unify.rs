//! s0 == s1  =>  one symbol replaces the other everywhere; equations that cannot be solved are checked by the call

use super::builder::Builder;
use sardonyx_base::dim::{self, Atom};
use sardonyx_base::{Dim, Error, Result};
use sardonyx_dialects::sdx::{Check, Symbol, SymbolKind};

impl Builder {
    /// Makes two dimensions equal and rewrites the graph accordingly: solves for a symbol if possible, else replaces an
    /// expression and adds a condition that the call checks. Errors: those of `decide`, and E0201 if neither is
    /// possible.
    pub fn unify(&mut self, a: &Dim, b: &Dim) -> Result<()> {
        if self.decide(a, b)? { Ok(()) } else { Err(self.unequal(a, b)) }
    }

    /// Makes two dimensions equal if the equation can be solved. Returns `false` if it cannot, although the dimensions
    /// may be equal in some call. Errors: E0201 or E0204 if the dimensions are provably equal in no call, for instance
    /// because of the ranges of their symbols.
    pub fn decide(&mut self, a: &Dim, b: &Dim) -> Result<bool> {
        if a == b {
            return Ok(true);
        }
        let is_data = |s: &str| self.graph.symbols.get(s).is_some_and(is_from_data);
        let Some((symbol, by)) = solve(a, b, &is_data, &|s| self.rank_of(s)) else {
            if self.never_equal(a, b) {
                return Err(self.unequal(a, b));
            }
            if self.assume_bound(a, b)? || self.assume_bound(b, a)? || self.assume_atom(a, b) || self.assume_atom(b, a)
            {
                return Ok(true);
            }
            return Ok(self.assume_factors(a, b) || self.assume_share(a, b)? || self.assume_term(a, b)?);
        };
        if is_data(&symbol) {
            self.assume_data(&symbol, &by);
            return Ok(true);
        }
        self.check_range(&symbol, &by)?;
        self.substitute(&symbol, &by);
        Ok(true)
    }

    fn unequal(&self, a: &Dim, b: &Dim) -> Box<Error> {
        let help = match (a.as_const(), b.as_const()) {
            (Some(_), Some(_)) => "check the shapes of the node's inputs",
            (_, None) | (None, _) => "give their symbols values that agree, with --dim NAME=N",
        };
        self.error("E0201", format!("the dimensions {a} and {b} must be equal")).help(help)
    }

    /// Whether no call can make two dimensions equal: one is always larger, or the terms of their difference have a
    /// common factor that does not divide its constant.
    fn never_equal(&self, a: &Dim, b: &Dim) -> bool {
        let one = Dim::constant(1);
        let above = |x: &Dim, y: &Dim| x.provably_ge(&(y.clone() + one.clone()), &|s| self.graph.symbol_lo(s));
        let difference = a.clone() - b.clone();
        let constant = difference.terms().find(|(m, _)| m.is_empty()).map_or(0, |(_, c)| c);
        let factors = difference.terms().filter(|(m, _)| !m.is_empty()).fold(0, |g, (_, c)| gcd(g, c.unsigned_abs()));
        above(a, b) || above(b, a) || factors > 1 && constant.unsigned_abs() % factors != 0
    }

    /// Rejects conditions that no call can meet, because later nodes have contradicted them.
    pub fn refuse_contradictions(&self) -> Result<()> {
        let broken = self.graph.checks.iter().find(|c| self.never_equal(&c.left, &c.right));
        broken.map_or(Ok(()), |c| Err(self.unequal(&c.left, &c.right).node(&c.why)))
    }

    /// 256*n - max(0, n - 1) == 255*n + 1 implies that max(0, n - 1) is n - 1: a term that occurs once in an equation
    /// and is not a symbol is replaced by the rest of the equation.
    fn assume_term(&mut self, a: &Dim, b: &Dim) -> Result<bool> {
        let difference = reduced(a.clone() - b.clone());
        let from_data = |d: &Dim| d.names().iter().any(|s| self.graph.symbols.get(&**s).is_some_and(is_from_data));
        let solved = |(monomial, c): (&[Atom], i64)| {
            let ([Atom::FloorDiv(..) | Atom::Max(..) | Atom::Min(..)], 1 | -1) = (monomial, c) else { return None };
            let term = Dim::term(monomial, 1);
            let value = (difference.clone() - Dim::term(monomial, c)) * Dim::constant(-c);
            // Sizes of inputs are known before values from data, so that such values must not replace them.
            (from_data(&term) || !from_data(&value)).then_some((term, value))
        };
        let all: Vec<(Dim, Dim)> = difference.terms().filter_map(solved).collect();
        for (term, value) in all {
            if self.assume_bound(&term, &value)? || self.assume_atom(&term, &value) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// a*b == c*d is true if a == c and b == d. This solution is assumed, because only it determines the sizes, and
    /// every call has to satisfy it. Common factors are cancelled first.
    fn assume_factors(&mut self, a: &Dim, b: &Dim) -> bool {
        let (Some(mut left), Some(mut right)) = (factors(a), factors(b)) else { return false };
        let common: Vec<String> = left.iter().filter(|s| right.contains(s)).cloned().collect();
        for s in common {
            if let (Some(i), Some(j)) = (left.iter().position(|x| *x == s), right.iter().position(|x| *x == s)) {
                left.remove(i);
                right.remove(j);
            }
        }
        if left.len() != right.len() || left.is_empty() {
            return false;
        }
        // Both lists are sorted by name. Undeclared dimensions are named by input and axis (`ids_1`), so that those of
        // two inputs are paired axis by axis.
        let before = self.clone();
        for (l, r) in left.iter().zip(&right) {
            if self.unify(&Dim::symbol(l), &Dim::symbol(r)).is_err() {
                *self = before;
                return false;
            }
        }
        true
    }

    /// d - min(n, d floordiv 2) == min(n, d floordiv 2) is true if d is twice the minimum: d is made a multiple of 2,
    /// and d / 2 replaces the minimum.
    fn assume_share(&mut self, a: &Dim, b: &Dim) -> Result<bool> {
        let difference = a.clone() - b.clone();
        let multiple = difference.terms().find_map(|(monomial, c)| {
            let [atom @ (Atom::FloorDiv(..) | Atom::Max(..) | Atom::Min(..))] = monomial else { return None };
            let rest = Dim::term(monomial, c) - difference.clone();
            let rest = if c < 0 { -rest } else { rest };
            let times = c.checked_abs().filter(|times| *times > 1)?;
            (rest.replace(atom, &Dim::constant(0)) == rest).then(|| (Dim::term(monomial, 1), times, rest))
        });
        let Some((atom, times, rest)) = multiple else { return Ok(false) };
        let before = self.clone();
        let Some(part) = self.divide(&rest, times)? else { return Ok(false) };
        // The division may have rewritten the dimension in other symbols.
        let whole = part.clone() * Dim::constant(times);
        let atom = atom.substitute(&|s| (rest.as_symbol() == Some(s)).then(|| whole.clone()));
        let agreed = self.unify(&atom, &part).is_ok();
        if !agreed {
            *self = before;
        }
        Ok(agreed)
    }

    /// Returns the position of a symbol among the dimensions of the inputs: of two equal symbols, the one with the
    /// lower position stays and replaces the other. A symbol without a position comes last.
    fn rank_of(&self, symbol: &str) -> usize {
        let dims = self.graph.inputs().flat_map(|(_, _, ty)| &ty.dims);
        dims.into_iter().position(|d| d.as_name() == Some(symbol)).unwrap_or(usize::MAX)
    }

    /// Returns d / n if d is a multiple of n in every call. If d is a symbol of an input that need not be a multiple, n
    /// times a new symbol replaces it, so that calls cannot give other sizes. Returns `None` for other dimensions, and
    /// if the symbol's range contains no multiple of n.
    pub fn divide(&mut self, d: &Dim, n: i64) -> Result<Option<Dim>> {
        if n <= 0 {
            return Err(self.error("E0106", format!("{d} cannot be divided into {n} parts")));
        }
        if let Some(part) = d.exact_div(&Dim::constant(n)) {
            return Ok(Some(part));
        }
        let Some((name, whole)) = d.as_name().and_then(|s| self.graph.symbols.get_key_value(s)) else {
            return Ok(None);
        };
        if whole.kind != SymbolKind::Input {
            return Ok(None);
        }
        let (lo, hi) = (whole.lo / n + i64::from(whole.lo % n != 0), whole.hi.map(|hi| hi / n));
        if hi.is_some_and(|hi| hi < lo) {
            return Ok(None);
        }
        let (name, mut part) = (name.clone(), format!("{name}_per_{n}"));
        while self.graph.symbols.contains_key(&part) {
            part.push('_');
        }
        self.graph.symbols.insert(part.clone(), Symbol { kind: SymbolKind::Input, lo, hi });
        let part = Dim::symbol(&part);
        self.substitute(&name, &(part.clone() * Dim::constant(n)));
        Ok(Some(part))
    }

    /// Rejects the equation symbol == by, where `by` is a constant or a symbol, if no values in the ranges satisfy it.
    fn check_range(&self, symbol: &str, by: &Dim) -> Result<()> {
        let Some(range) = self.graph.symbols.get(symbol) else { return Ok(()) };
        let said = |lo: i64, hi: Option<i64>| sardonyx_base::dim::range(lo, hi);
        let apart = |lo: i64, hi: Option<i64>| hi.is_some_and(|hi| hi < range.lo) || range.hi.is_some_and(|h| h < lo);
        let own = said(range.lo, range.hi);
        let help = "let the ranges of --dim overlap, or leave one of them out";
        if let Some(c) = by.as_const()
            && apart(c, Some(c))
        {
            return Err(self.error("E0201", format!("the dimension {symbol}, in {own}, must be {c}")).help(help));
        }
        if let Some((name, other)) = by.as_name().and_then(|s| self.graph.symbols.get_key_value(s))
            && apart(other.lo, other.hi)
        {
            let other = said(other.lo, other.hi);
            let message = format!("the dimensions {symbol}, in {own}, and {name}, in {other}, must be equal");
            return Err(self.error("E0204", message).help(help));
        }
        Ok(())
    }

    /// Replaces a symbol from data, whose value cannot be chosen: the call checks the equation, and the types use the
    /// other side.
    fn assume_data(&mut self, symbol: &str, by: &Dim) {
        self.rewrite_dims(|d| {
            if d.names().contains(symbol) {
                *d = d.substitute(&|s| (s == symbol).then(|| by.clone()));
            }
        });
        self.add_check(Dim::symbol(symbol), by.clone());
    }

    /// n floordiv 2 == m floordiv 2: the call checks an equation that cannot be solved, and one side replaces the
    /// other.
    fn assume_atom(&mut self, unsolved: &Dim, value: &Dim) -> bool {
        let Some(atom @ (Atom::FloorDiv(..) | Atom::Max(..) | Atom::Min(..))) = unsolved.as_atom().cloned() else {
            return false;
        };
        // `value` must not contain the expression that it replaces.
        if value.replace(&atom, &Dim::constant(0)) != *value {
            return false;
        }
        self.add_check(unsolved.clone(), value.clone());
        let value = value.clone();
        self.rewrite_dims(|d| *d = d.replace(&atom, &value));
        true
    }

    /// Requires a <= b, unless that follows already. Narrows the range of the only symbol in the condition, and adds a
    /// check of the call unless the range is enough.
    pub fn require_at_most(&mut self, a: &Dim, b: &Dim) -> Result<()> {
        if b.provably_ge(a, &|s| self.graph.symbol_lo(s)) {
            return Ok(());
        }
        if let (Some(a), Some(b)) = (a.as_const(), b.as_const()) {
            return Err(self.error("E0201", format!("{a} positions are read from {b}")));
        }
        // b*t - t + s <= b*t becomes s <= t.
        let (a, b) = sides(&(a.clone() - b.clone()));
        let is_range = a.as_name().is_some_and(|s| self.graph.symbols.contains_key(s)) && b.as_const().is_some();
        self.narrow(&(b.clone() - a.clone()))?;
        if !is_range {
            self.add_check(a.maximum(&b), b);
        }
        Ok(())
    }

    /// Uses c*s + k >= 0 as a bound of the symbol s: from below if c is positive, else from above.
    fn narrow(&mut self, at_least_0: &Dim) -> Result<()> {
        let names = at_least_0.names();
        let Some(name) = names.first().filter(|_| names.len() == 1) else { return Ok(()) };
        let linear =
            at_least_0.linear_in(&dim::Symbol::Named(name.clone())).and_then(|(c, k)| c.as_const().zip(k.as_const()));
        let Some((c, k)) = linear.filter(|(c, k)| *c != 0 && *k != i64::MIN) else { return Ok(()) };
        let why = self.origin.clone();
        let Some(symbol) = self.graph.symbols.get_mut(&**name) else { return Ok(()) };
        let refuse =
            |message: String| Err(Error::user("E0204", message).node(&why).help("choose a range that fits with --dim"));
        if c > 0 {
            let least = (-k).div_euclid(c) + i64::from((-k).rem_euclid(c) != 0);
            if let Some(hi) = symbol.hi.filter(|hi| *hi < least) {
                return refuse(format!("the dimension {name}, at most {hi}, must be at least {least}"));
            }
            symbol.lo = symbol.lo.max(least);
        } else {
            let most = k.div_euclid(c.saturating_neg());
            if symbol.lo > most {
                return refuse(format!("the dimension {name}, at least {}, must be at most {most}", symbol.lo));
            }
            symbol.hi = Some(symbol.hi.map_or(most, |hi| hi.min(most)));
        }
        Ok(())
    }

    /// Adds an equation that every call must satisfy; one with symbols from data is checked once these are known.
    pub fn add_check(&mut self, left: Dim, right: Dim) {
        let check = Check { left, right, why: self.origin.clone() };
        if !self.graph.checks.iter().any(|c| (&c.left, &c.right) == (&check.left, &check.right)) {
            self.graph.checks.push(check);
        }
    }

    /// min(x, c) == x implies x <= c: the bound is declared, or checked by the call, and x replaces the minimum.
    fn assume_bound(&mut self, bounded: &Dim, value: &Dim) -> Result<bool> {
        let Some(atom) = bounded.as_atom().cloned() else { return Ok(false) };
        let other = match &atom {
            Atom::Min(x, y) | Atom::Max(x, y) if **x == *value => y.clone(),
            Atom::Min(x, y) | Atom::Max(x, y) if **y == *value => x.clone(),
            Atom::Min(..) | Atom::Max(..) | Atom::Symbol(_) | Atom::FloorDiv(..) => return Ok(false),
        };
        match atom {
            Atom::Min(..) => self.require_at_most(value, &other)?,
            _ => self.require_at_most(&other, value)?,
        }
        let value = value.clone();
        self.rewrite_dims(|d| {
            if !d.names().is_empty() {
                *d = d.replace(&atom, &value);
            }
        });
        Ok(true)
    }

    fn substitute(&mut self, symbol: &str, by: &Dim) {
        self.rewrite_dims(|d| {
            if d.names().contains(symbol) {
                *d = d.substitute(&|s| (s == symbol).then(|| by.clone()));
            }
        });
        for check in &mut self.graph.checks {
            for side in [&mut check.left, &mut check.right] {
                *side = side.substitute(&|s| (s == symbol).then(|| by.clone()));
            }
        }
        self.graph.checks.retain(|c| c.left != c.right);
        self.derive(symbol, by);
    }

    /// Keeps a replaced symbol as a name for the dimension `by`: the range of the symbol still applies, and users of
    /// the model may still write the name.
    fn derive(&mut self, symbol: &str, by: &Dim) {
        let Some(gone) = self.graph.symbols.get_mut(symbol) else { return };
        let (lo, hi) = (gone.lo, gone.hi);
        gone.kind = SymbolKind::Derived { equals: by.clone(), why: self.origin.clone() };
        if let Some(kept) = by.as_name().and_then(|s| self.graph.symbols.get_mut(s)) {
            kept.lo = kept.lo.max(lo);
            kept.hi = [kept.hi, hi].into_iter().flatten().min();
        }
    }

    /// Changes every dimension expression of the graph, except those of the checks.
    fn rewrite_dims(&mut self, rewrite: impl Fn(&mut Dim)) {
        for node in &mut self.graph.nodes {
            node.ty.dims.iter_mut().for_each(&rewrite);
            node.op.dims_mut().into_iter().for_each(&rewrite);
        }
        for symbol in self.graph.symbols.values_mut() {
            match &mut symbol.kind {
                SymbolKind::Derived { equals, .. } => rewrite(equals),
                SymbolKind::Input | SymbolKind::Data | SymbolKind::Capacity | SymbolKind::Kept => {}
                SymbolKind::Rank { .. } => {}
            }
        }
        self.contents.iter_mut().flatten().flatten().for_each(&rewrite);
    }
}

fn is_from_data(symbol: &Symbol) -> bool {
    symbol.kind == SymbolKind::Data
}

/// Returns the symbols of a product, each as often as it occurs; `None` if the product has other factors.
fn factors(d: &Dim) -> Option<Vec<String>> {
    let mut rest = d.clone();
    let mut out = vec![];
    for s in d.names() {
        while let Some(quotient) = rest.exact_div(&Dim::symbol(&s)) {
            out.push(s.to_string());
            rest = quotient;
        }
    }
    rest.is_const(1).then_some(out)
}

/// The terms with positive coefficients, and the negated terms with negative ones.
fn sides(difference: &Dim) -> (Dim, Dim) {
    let zero = Dim::constant(0);
    difference.terms().fold((zero.clone(), zero), |(more, less), (monomial, c)| {
        let term = Dim::term(monomial, c);
        if c > 0 { (more + term, less) } else { (more, less - term) }
    })
}

/// Returns a symbol that has coefficient ±1 in `a - b`, and the expression that makes `a == b` true. Symbols from data
/// are taken first, then those with the highest `rank` (position among the dimensions of the inputs).
fn solve(a: &Dim, b: &Dim, is_data: &dyn Fn(&str) -> bool, rank: &dyn Fn(&str) -> usize) -> Option<(String, Dim)> {
    // A side that is just a symbol is replaced first, so that the names in the other side stay.
    let mut bare: Vec<(&str, &Dim)> = vec![];
    for (side, other) in [(a, b), (b, a)] {
        if let Some(name) = side.as_name()
            && !other.names().contains(name)
        {
            bare.push((name, other));
        }
    }
    bare.sort_by_key(|(name, _)| (is_data(name), rank(name)));
    let solved = |(name, other): &(&str, &Dim)| (name.to_string(), (*other).clone());
    // A dimension of an input is not replaced by a value from data, because inputs are known first.
    let from_data = |d: &Dim| d.names().iter().any(|s| is_data(s));
    if let Some(found) = bare.iter().rev().find(|(name, other)| is_data(name) || !from_data(other)) {
        return Some(solved(found));
    }
    let difference = reduced(a.clone() - b.clone());
    let mut names: Vec<_> = difference.names().into_iter().collect();
    names.sort_by_key(|name| (is_data(name), rank(name)));
    let found = names.iter().rev().find_map(|name| {
        let (coefficient, rest) = difference.linear_in(&dim::Symbol::Named(name.clone()))?;
        if !is_data(name) && from_data(&rest) {
            return None;
        }
        match coefficient.as_const()? {
            1 => Some((name.to_string(), -rest)),
            -1 => Some((name.to_string(), rest)),
            _ => None,
        }
    });
    // As a last resort, a dimension of an input is replaced by a value from data, if the types cannot be written in
    // another way.
    found.or_else(|| bare.last().map(solved))
}

/// 64*b*s - 64*c*s  =>  b - c: cancels factors common to all terms. In a call where a cancelled factor is 0, the
/// original equation holds for any b and c; they nevertheless have to agree in such a call too.
fn reduced(difference: Dim) -> Dim {
    let mut out = difference;
    let gcd = out.terms().fold(0u64, |g, (_, c)| gcd(g, c.unsigned_abs()));
    let gcd = i64::try_from(gcd).ok().filter(|&g| g > 1);
    let factors: Vec<Dim> =
        gcd.into_iter().map(Dim::constant).chain(out.names().iter().map(|s| Dim::symbol(s))).collect();
    for factor in factors {
        while let Some(quotient) = out.exact_div(&factor).filter(|q| !q.is_const(0) && q.as_const().is_none()) {
            out = quotient;
        }
    }
    out
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(t: &str) -> Dim {
        Dim::parse(t).unwrap()
    }

    #[test]
    fn equations_are_solved_for_one_symbol() {
        let solve = |a: &str, b: &str| {
            let rank = |s: &str| ["b", "past", "seq", "total", "c"].iter().position(|x| *x == s).unwrap_or(9);
            super::solve(&dim(a), &dim(b), &|s| s.starts_with("data"), &rank).map(|(s, d)| format!("{s} = {d}"))
        };
        let is = |text: &str| Some(text.to_string());
        assert_eq!(solve("a", "b + 1"), is("a = b + 1"));
        assert_eq!(solve("b", "c"), is("c = b"));
        assert_eq!(solve("c", "b"), is("c = b"));
        assert_eq!(solve("past + seq", "total + 1"), is("total = past + seq - 1"));
        assert_eq!(solve("64*b*seq", "64*c*seq"), is("c = b"));
        assert_eq!(solve("2*b", "6"), is("b = 3"));
        assert_eq!(solve("b", "data0"), is("data0 = b"));
        assert_eq!(solve("b", "data0 + 1"), is("data0 = b - 1"));
        assert_eq!(solve("b", "2*data0"), is("b = 2*data0"));
        for (a, b) in [("2*b", "3"), ("2*b", "3*c"), ("4", "5"), ("b floordiv 2", "c floordiv 2")] {
            assert_eq!(solve(a, b), None, "{a} = {b}");
        }
    }
}
