//! Einsum "bij,bjk,k->bi"(x, y, z)  =>  contract "bij,bjk->bik", contract "bik,k->bi": one operand at a time

use super::builder::Builder;
use super::coordinates::iota;
use super::node::Node;
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, Value};

type Outputs = Result<Vec<Value>>;

/// A value whose dimensions are named by letters.
struct Term {
    v: Value,
    letters: Vec<char>,
}

pub fn einsum(b: &mut Builder, node: &Node) -> Outputs {
    let equation = node.str_or("equation", "")?;
    let args = node.all_inputs()?;
    let types: Vec<_> = args.iter().map(|v| b.dtype(*v)).collect();
    let Some(&first) = types.first() else { return Err(node.error("E0103", "has no input")) };
    if types.iter().any(|&t| ScalarFn::Mul.result(&[first, t]).is_err()) {
        return Err(node.error("E0107", format!("takes numbers of one type, not {types:?}")));
    }
    let ranks: Vec<usize> = args.iter().map(|v| b.rank(*v)).collect();
    let named = names(&equation, &ranks)
        .map_err(|reason| node.error("E0106", format!("the equation `{equation}` is not understood: {reason}")))?;
    let mut terms = vec![];
    for (v, letters) in args.into_iter().zip(named.terms) {
        terms.push(plain(b, Term { v, letters })?);
    }
    let mut rest = terms.into_iter();
    let Some(mut product) = rest.next() else { return Err(node.error("E0103", "has no input")) };
    let mut later: Vec<Term> = rest.collect();
    while !later.is_empty() {
        let next = later.remove(0);
        let wanted = |c: char| named.result.contains(&c) || later.iter().any(|t| t.letters.contains(&c));
        product = multiply(b, product, next, &wanted)?;
    }
    product = sum_out(b, product, &|c| named.result.contains(&c))?;
    let present: Vec<char> = named.result.iter().copied().filter(|c| product.letters.contains(c)).collect();
    let perm = present.iter().filter_map(|c| product.letters.iter().position(|d| d == c)).collect();
    let y = b.transpose(product.v, perm)?;
    // A letter of the result whose dimension of 1 was dropped from all operands becomes a dimension of 1 again.
    let mut extents = b.dims(y).into_iter();
    let one = Dim::constant(1);
    let extent = |c: &char| if present.contains(c) { extents.next().unwrap_or(one.clone()) } else { one.clone() };
    let dims: Vec<Dim> = named.result.iter().map(extent).collect();
    Ok(vec![b.reshape(y, &dims)?])
}

/// One letter per dimension of each operand and of the result, including the dimensions that an ellipsis stands for.
struct Names {
    terms: Vec<Vec<char>>,
    result: Vec<char>,
}

/// Number of letters that an equation can use.
const RANK_MAX: usize = 52;

fn names(equation: &str, ranks: &[usize]) -> std::result::Result<Names, String> {
    let text: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match text.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (text.as_str(), None),
    };
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != ranks.len() {
        return Err(format!("{} terms for {} operands", terms.len(), ranks.len()));
    }
    let letters = |term: &str| -> std::result::Result<Vec<char>, String> {
        let plain = term.replacen("...", "", 1);
        match plain.chars().find(|c| !c.is_ascii_alphabetic()) {
            Some(odd) => Err(format!("`{odd}` is no letter")),
            None => Ok(plain.chars().collect()),
        }
    };
    let mut widths = vec![];
    for (term, &rank) in terms.iter().zip(ranks) {
        let named = letters(term)?.len();
        widths.push(match (term.contains("..."), rank.checked_sub(named)) {
            (true, Some(width)) => width,
            (false, Some(0)) => 0,
            _ => return Err(format!("`{term}` names {named} dimensions of {rank}")),
        });
    }
    let used: Vec<char> = text.chars().filter(char::is_ascii_alphabetic).collect();
    let mut spare = ('a'..='z').chain('A'..='Z').filter(|c| !used.contains(c));
    let width = widths.iter().copied().max().unwrap_or(0).min(RANK_MAX);
    let ellipsis: Vec<char> = spare.by_ref().take(width).collect();
    if ellipsis.len() < widths.iter().copied().max().unwrap_or(0) {
        return Err("it names more dimensions than there are letters".into());
    }
    let expand = |term: &str, own: usize| -> std::result::Result<Vec<char>, String> {
        let (before, after) = term.split_once("...").unwrap_or((term, ""));
        let middle = if term.contains("...") { &ellipsis[ellipsis.len() - own..] } else { &[] };
        Ok(letters(before)?.into_iter().chain(middle.iter().copied()).chain(letters(after)?).collect())
    };
    let result = match right {
        Some(right) => expand(right, width)?,
        None => {
            // Implicit result: the dimensions of the ellipsis, then the letters that occur once, sorted.
            let mut once: Vec<char> =
                used.iter().copied().filter(|c| used.iter().filter(|d| *d == c).count() == 1).collect();
            once.sort();
            ellipsis.iter().copied().chain(once).collect()
        }
    };
    let terms = terms.iter().zip(&widths).map(|(t, &w)| expand(t, w)).collect::<std::result::Result<Vec<_>, _>>()?;
    if let Some(c) = result.iter().find(|c| !terms.iter().flatten().any(|d| d == *c)) {
        return Err(format!("no operand has `{c}`"));
    }
    if (0..result.len()).any(|i| result[..i].contains(&result[i])) {
        return Err("a letter of the result repeats".into());
    }
    Ok(Names { terms, result })
}

/// Takes diagonals so that each letter occurs once, and drops dimensions of 1, which broadcast.
fn plain(b: &mut Builder, mut t: Term) -> Result<Term> {
    while let Some((i, j)) = repeated(&t.letters) {
        t.v = diagonal(b, t.v, i, j)?;
        t.letters.remove(j);
        // The diagonal is the last dimension.
        let c = t.letters.remove(i);
        t.letters.push(c);
    }
    let dims = b.dims(t.v);
    let long: Vec<usize> = (0..dims.len()).filter(|&i| !dims[i].is_const(1)).collect();
    let kept: Vec<Dim> = long.iter().map(|&i| dims[i].clone()).collect();
    Ok(Term { v: b.reshape(t.v, &kept)?, letters: long.iter().map(|&i| t.letters[i]).collect() })
}

fn repeated(letters: &[char]) -> Option<(usize, usize)> {
    (0..letters.len()).find_map(|j| letters[..j].iter().position(|c| *c == letters[j]).map(|i| (i, j)))
}

/// x[.., n, .., n, ..] => y[.., n]: every (n + 1)th of the n * n elements
fn diagonal(b: &mut Builder, x: Value, i: usize, j: usize) -> Result<Value> {
    let (n, other) = (b.dims(x)[i].clone(), b.dims(x)[j].clone());
    b.unify(&n, &other)?;
    let perm: Vec<usize> = (0..b.rank(x)).filter(|&k| k != i && k != j).chain([i, j]).collect();
    let x = b.transpose(x, perm)?;
    let mut dims = b.dims(x);
    let (Some(n), Some(_)) = (dims.pop(), dims.pop()) else { return Ok(x) };
    let axis = dims.len();
    dims.push(n.clone() * n.clone());
    let flat = b.reshape(x, &dims)?;
    let place = iota(b, 0, std::slice::from_ref(&n))?;
    let step = b.dims_scalar(n + Dim::constant(1))?;
    let place = b.map2(ScalarFn::Mul, place, step)?;
    b.add(Op::Gather { axis }, &[flat, place])
}

/// Sums over the letters that are not wanted.
fn sum_out(b: &mut Builder, t: Term, wanted: &dyn Fn(char) -> bool) -> Result<Term> {
    let axes: Vec<usize> = (0..t.letters.len()).filter(|&i| !wanted(t.letters[i])).collect();
    let v = b.reduce(ReduceFn::Add, t.v, &axes, false)?;
    Ok(Term { v, letters: t.letters.into_iter().filter(|&c| wanted(c)).collect() })
}

fn multiply(b: &mut Builder, x: Term, y: Term, wanted: &dyn Fn(char) -> bool) -> Result<Term> {
    let x = sum_out(b, x, &|c| wanted(c) || y.letters.contains(&c))?;
    let y = sum_out(b, y, &|c| wanted(c) || x.letters.contains(&c))?;
    let shared = |c: &char| x.letters.contains(c) && y.letters.contains(c);
    let batch = x.letters.iter().filter(|c| shared(c) && wanted(**c));
    let own = x.letters.iter().chain(&y.letters).filter(|c| !shared(c));
    let letters: Vec<char> = batch.chain(own).copied().collect();
    let text = |v: &[char]| v.iter().collect::<String>();
    if x.letters.iter().any(|c| shared(c) && !wanted(*c)) {
        let spec = format!("{},{}->{}", text(&x.letters), text(&y.letters), text(&letters));
        return Ok(Term { v: b.contract(&spec, x.v, y.v)?, letters });
    }
    // Nothing is reduced: both operands get the same letters, with dimensions of 1 where one is missing.
    let (left, right) = (laid_out(b, &x, &letters)?, laid_out(b, &y, &letters)?);
    Ok(Term { v: b.map2(ScalarFn::Mul, left, right)?, letters })
}

fn laid_out(b: &mut Builder, t: &Term, letters: &[char]) -> Result<Value> {
    let order = letters.iter().filter_map(|c| t.letters.iter().position(|d| d == c)).collect();
    let v = b.transpose(t.v, order)?;
    let mut extents = b.dims(v).into_iter();
    let one = Dim::constant(1);
    let extent = |c: &char| if t.letters.contains(c) { extents.next().unwrap_or(one.clone()) } else { one.clone() };
    let dims: Vec<Dim> = letters.iter().map(extent).collect();
    b.reshape(v, &dims)
}

#[cfg(test)]
mod tests {
    fn names(equation: &str, ranks: &[usize]) -> Result<String, String> {
        let n = super::names(equation, ranks)?;
        let text = |v: &Vec<char>| v.iter().collect::<String>();
        Ok(format!("{}->{}", n.terms.iter().map(text).collect::<Vec<_>>().join(","), text(&n.result)))
    }

    #[test]
    fn every_dimension_gets_a_letter() {
        let is = |text: &str| Ok(text.to_string());
        assert_eq!(names("ij, jk -> ik", &[2, 2]), is("ij,jk->ik"));
        assert_eq!(names("ij,jk", &[2, 2]), is("ij,jk->ik"));
        assert_eq!(names("ba", &[2]), is("ba->ab"));
        assert_eq!(names("...ii ->...i", &[4]), is("abii->abi"));
        assert_eq!(names("...i,...i", &[3, 2]), is("abi,bi->ab"));
        assert_eq!(names("i...->...", &[1]), is("i->"));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (equation, ranks) in [("ij", vec![3]), ("ij,jk->ik", vec![2]), ("ij->ii", vec![2]), ("ij->k", vec![2])] {
            assert!(names(equation, &ranks).is_err(), "{equation}");
        }
        assert!(names("i.j->i", &[2]).is_err());
        assert!(names("...->...", &[99]).is_err());
    }
}
