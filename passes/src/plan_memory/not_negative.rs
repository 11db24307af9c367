//! 4*h*w >= ((h + 1) floordiv 2)*((w + 1) floordiv 2)  =>  true: proofs for all values of the symbols

use sardonyx_base::Dim;
use sardonyx_base::dim::{Atom, Symbol};
use std::collections::BTreeSet;

/// Maximum number of symbols whose value 0 a proof considers as a separate case; each such symbol doubles the number of
/// cases.
const SPLIT_MAX: usize = 3;

/// Tries to prove `d >= 0` for all symbol values at or above their lower bounds. Divisions are replaced by bounds, and
/// the value 0 of a symbol is treated as a separate case.
pub fn not_negative(d: &Dim, lo: &dyn Fn(&Symbol) -> i64) -> bool {
    if d.lower_bound(lo).is_some_and(|bound| bound >= 0) {
        return true;
    }
    let zero: Vec<_> = d.symbols().into_iter().filter(|s| lo(s) == 0).take(SPLIT_MAX).collect();
    (0..1u32 << zero.len()).all(|case| {
        let is_zero = |s: &Symbol| zero.iter().position(|z| z == s).is_some_and(|at| case & (1 << at) != 0);
        let here = d.substitute(&|s| is_zero(s).then(|| Dim::constant(0)));
        by_bounds(here, &|s| if zero.contains(s) { lo(s).max(1) } else { lo(s) })
    })
}

/// Replaces divisions by lower bounds in positive terms and by upper bounds in negative terms, the outermost division
/// first, until the positive terms cover the negative ones.
fn by_bounds(mut d: Dim, lo: &dyn Fn(&Symbol) -> i64) -> bool {
    const ROUNDS_MAX: usize = 24;
    for _ in 0..ROUNDS_MAX {
        if d.is_overflow() {
            return false;
        }
        if is_covered(&d, lo) {
            return true;
        }
        match coarser(&d, lo) {
            Some(next) => d = next,
            None => return false,
        }
    }
    false
}

/// Whether positive terms cover every negative term: `8*a*b` covers `2*a` and `6*b` if a and b are at least 1.
fn is_covered(d: &Dim, lo: &dyn Fn(&Symbol) -> i64) -> bool {
    let mut added: Vec<(&[Atom], i64)> = d.terms().filter(|(_, c)| *c > 0).collect();
    // Positive terms with the most factors are used last, because they can cover every term that their divisors can
    // cover.
    added.sort_by_key(|(m, _)| m.len());
    for (monomial, c) in d.terms().filter(|(_, c)| *c < 0) {
        let (Some(mut open), Some(_)) = (c.checked_neg(), product_bound(monomial, lo)) else { return false };
        for (by, left) in &mut added {
            let Some(times) = quotient(by, monomial).and_then(|rest| product_bound(&rest, lo)) else { continue };
            if times > 0 && open > 0 {
                let taken = (open.div_euclid(times) + i64::from(open % times > 0)).min(*left);
                *left -= taken;
                open = open.saturating_sub(taken.saturating_mul(times));
            }
        }
        if open > 0 {
            return false;
        }
    }
    added.iter().all(|(m, left)| *left == 0 || product_bound(m, lo).is_some())
}

/// Returns the factors of `a / b`; `None` if `b` does not divide `a`.
fn quotient(a: &[Atom], b: &[Atom]) -> Option<Vec<Atom>> {
    let mut rest = a.to_vec();
    for atom in b {
        rest.remove(rest.iter().position(|r| r == atom)?);
    }
    Some(rest)
}

/// Returns a lower bound of a product, or `None` if a factor may be negative.
fn product_bound(monomial: &[Atom], lo: &dyn Fn(&Symbol) -> i64) -> Option<i64> {
    let bound = |atom: &Atom| match atom {
        Atom::Symbol(s) => Some(lo(s)),
        Atom::FloorDiv(x, by) => Some(sum_bound(x, lo)?.div_euclid(by.as_const()?)),
        Atom::Max(a, b) => Some(sum_bound(a, lo)?.max(sum_bound(b, lo)?)),
        Atom::Min(a, b) => Some(sum_bound(a, lo)?.min(sum_bound(b, lo)?)),
    };
    monomial.iter().try_fold(1i64, |product, atom| bound(atom).filter(|b| *b >= 0)?.checked_mul(product))
}

fn sum_bound(d: &Dim, lo: &dyn Fn(&Symbol) -> i64) -> Option<i64> {
    let term = |(m, c): (&[Atom], i64)| match m.is_empty() {
        true => Some(c),
        false => product_bound(m, lo)?.checked_mul(c).filter(|_| c > 0),
    };
    if d.is_overflow() { None } else { d.terms().try_fold(0i64, |sum, t| term(t)?.checked_add(sum)) }
}

/// Returns a lower bound of a positive multiple of `d`, in which one division is eliminated: of those that are factors
/// of terms, the one with the deepest nesting inside.
fn coarser(d: &Dim, lo: &dyn Fn(&Symbol) -> i64) -> Option<Dim> {
    let atoms: BTreeSet<&Atom> = d.terms().flat_map(|(m, _)| m).collect();
    let divisions = atoms.into_iter().filter(|a| matches!(a, Atom::FloorDiv(..)));
    let atom = divisions.max_by(|a, b| depth(a).cmp(&depth(b)).then(b.cmp(a)))?;
    let Atom::FloorDiv(x, by) = atom else { return None };
    let by = by.as_const()?;
    let mut sum = Dim::constant(0);
    for (monomial, c) in d.terms() {
        let Some(at) = monomial.iter().position(|a| a == atom) else {
            sum = sum + Dim::term(monomial, c) * Dim::constant(by);
            continue;
        };
        let mut rest = monomial.to_vec();
        rest.remove(at);
        // Bounds of one factor carry over to the product only if the other factors are not negative.
        product_bound(&rest, lo)?;
        let bound = if c > 0 { (**x).clone() - Dim::constant(by - 1) } else { (**x).clone() };
        sum = sum + Dim::term(&rest, c) * bound;
    }
    Some(sum)
}

fn depth(atom: &Atom) -> usize {
    match atom {
        Atom::Symbol(_) => 0,
        Atom::FloorDiv(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
            let inner = |d: &Dim| d.terms().flat_map(|(m, _)| m).map(depth).max().unwrap_or(0);
            1 + inner(a).max(inner(b))
        }
    }
}
