//! load a[%0, %1 + 4] where %1 < 3, load a[%0, $2]  =>  the number of elements of `a` accessed, over symbols
//!
//! The dimensions of an access are divided into groups that share no iteration variable. The positions in a group's
//! dimensions are numbered in row-major order; the accessed numbers usually form a range. The number of accessed
//! elements is the product of the groups' counts. Several accesses to one container are united by inclusion and
//! exclusion.
//!
//! All extents are assumed to be positive.

use super::facts::{Facts, Range, own_vars};
use sardonyx_base::Dim;
use sardonyx_base::dim::{Atom, Symbol, product};
use sardonyx_dialects::flow::kernel::Kernel;
use std::collections::BTreeSet;

/// Precision of a count, from best to worst; a sum is as precise as its least precise term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sure {
    /// Equal to the number at run time.
    Exact,
    /// Equal to the number at run time if data-dependent indices are as different as possible and data-dependent guards
    /// hold.
    ByData,
    /// Upper bound of the number at run time.
    AtMost,
}

/// A number of elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// Number of elements, over the model's symbols.
    pub words: Dim,
    /// Precision of `words`.
    pub sure: Sure,
}

/// A load or store: its index, and the ranges of the iteration variables for which its guard holds.
pub struct Access<'k> {
    pub index: &'k [Dim],
    pub ranges: Vec<Range>,
    pub sure: Sure,
}

/// Maximum number of accesses that are united by inclusion and exclusion.
const UNITED_MAX: usize = 5;

/// Returns the number of distinct elements of a container with these dimensions that the accesses reach.
pub fn reached(facts: &Facts, dims: &[Dim], accesses: &[Access]) -> Count {
    let elements = product(dims);
    let mut boxes: Vec<Reach> = vec![];
    for access in accesses {
        let reach = Reach::from_access(facts, dims, access);
        if !boxes.contains(&reach) {
            boxes.push(reach);
        }
    }
    if let Some(all) = boxes.iter().find(|b| b.words() == elements) {
        return Count { words: elements, sure: all.sure };
    }
    let inside = |i: usize| (0..boxes.len()).any(|j| j != i && boxes[j].contains(&boxes[i], facts));
    let outermost: Vec<&Reach> = (0..boxes.len()).filter(|i| !inside(*i)).map(|i| &boxes[i]).collect();
    let sure = outermost.iter().map(|b| b.sure).max().unwrap_or(Sure::Exact);
    match united(facts, &outermost) {
        Some(words) => Count { words, sure },
        None => {
            let sum = outermost.iter().fold(Dim::constant(0), |s, b| s + b.words());
            Count { words: facts.least(&sum, &elements), sure: Sure::AtMost }
        }
    }
}

/// Returns |A ∪ B ∪ …| = |A| + |B| − |A ∩ B| …, or `None` if an intersection is unknown.
fn united(facts: &Facts, reaches: &[&Reach]) -> Option<Dim> {
    if reaches.len() > UNITED_MAX {
        return None;
    }
    let mut words = Dim::constant(0);
    for subset in 1u32..1 << reaches.len() {
        let mut members = (0..reaches.len()).filter(|i| subset >> i & 1 == 1).map(|i| reaches[i]);
        let first = members.next()?.clone();
        let common = members.try_fold(first, |common, next| common.intersection(next, facts))?;
        match subset.count_ones() % 2 {
            1 => words = words + common.words(),
            _ => words = words - common.words(),
        }
    }
    Some(words)
}

/// The elements reached by one access: a product over groups of dimensions. The last group has no dimensions; it
/// contains one element, or none if nothing is accessed.
#[derive(Clone, Debug, PartialEq)]
struct Reach {
    groups: Vec<Group>,
    sure: Sure,
}

#[derive(Clone, Debug, PartialEq)]
struct Group {
    dims: Vec<usize>,
    set: Set,
}

#[derive(Clone, Debug, PartialEq)]
enum Set {
    /// The `n` numbers lo, lo + step, ….
    Run { lo: Dim, n: Dim, step: i64 },
    /// `n` of the values that the expression `of` takes over the ranges `over`; which of the values is not known. Two
    /// sets with equal expressions over equal ranges are the same set.
    Some { n: Dim, of: Dim, over: Vec<Range> },
}

impl Set {
    fn words(&self) -> &Dim {
        match self {
            Set::Run { n, .. } | Set::Some { n, .. } => n,
        }
    }

    fn run(lo: Dim, n: Dim, step: i64) -> Set {
        let step = if n.is_const(1) { 1 } else { step };
        Set::Run { lo, n, step }
    }

    fn contains(&self, other: &Set, facts: &Facts) -> bool {
        match (self, other) {
            (Set::Run { lo: a, n, step: 1 }, Set::Run { lo: b, n: m, step: 1 }) => {
                facts.ge(b, a) && facts.ge(&(a.clone() + n.clone()), &(b.clone() + m.clone()))
            }
            _ => self == other,
        }
    }

    fn intersection(&self, other: &Set, facts: &Facts) -> Option<Set> {
        match (self, other) {
            _ if self == other => Some(self.clone()),
            (Set::Run { lo: a, n, step: 1 }, Set::Run { lo: b, n: m, step: 1 }) => {
                let end = facts.least(&(a.clone() + n.clone()), &(b.clone() + m.clone()));
                let lo = facts.greatest(a, b);
                let n = facts.greatest(&(end - lo.clone()), &Dim::constant(0));
                Some(Set::Run { lo, n, step: 1 })
            }
            _ => None,
        }
    }
}

impl Reach {
    fn from_access(facts: &Facts, dims: &[Dim], access: &Access) -> Reach {
        // A variable with a single value is replaced by that value.
        let fixed = |symbol: &Symbol| {
            let range = access.ranges.get(symbol.variable()?)?;
            range.n.is_const(1).then(|| range.lo.clone())
        };
        let index: Vec<Dim> = access.index.iter().map(|d| d.substitute(&fixed)).collect();
        let moved: Vec<BTreeSet<usize>> = index.iter().map(|d| own_vars(d, &facts.deps)).collect();
        let mut sure = access.sure;
        let mut groups = vec![];
        // Variables whose range may be empty under the guard; if one is empty, nothing is accessed.
        let full = full_ranges(facts.kernel);
        let maybe = |v: &usize| access.ranges[*v] != full[*v] && !facts.ge(&access.ranges[*v].n, &Dim::constant(1));
        let mut open: BTreeSet<usize> = (0..access.ranges.len()).filter(&maybe).collect();
        for members in grouped(&moved) {
            let extents: Vec<&Dim> = members.iter().map(|d| &dims[*d]).collect();
            let flat = members.iter().fold(Dim::constant(0), |flat, d| flat * dims[*d].clone() + index[*d].clone());
            let vars: BTreeSet<usize> = members.iter().flat_map(|d| moved[*d].iter().copied()).collect();
            let is_line =
                |v: &usize| flat.linear_in(&Symbol::Variable(*v)).is_some_and(|(factor, _)| !factor.is_const(0));
            if vars.len() == 1 && vars.iter().all(is_line) {
                open.retain(|v| !vars.contains(v));
            }
            let set = image(facts, &flat, &access.ranges).unwrap_or_else(|| {
                let data = !flat.statements().is_empty();
                sure = sure.max(if data { Sure::ByData } else { Sure::AtMost });
                let over: Vec<Range> = vars.iter().map(|v| access.ranges[*v].clone()).collect();
                let points = product(over.iter().map(|r| &r.n));
                Set::Some { n: facts.least(&points, &product(extents)), of: flat, over }
            });
            groups.push(Group { dims: members, set });
        }
        let some = open.iter().fold(Dim::constant(1), |some, v| facts.least(&some, &access.ranges[*v].n));
        groups.push(Group { dims: vec![], set: Set::run(Dim::constant(0), some, 1) });
        Reach { groups, sure }
    }

    fn words(&self) -> Dim {
        product(self.groups.iter().map(|g| g.set.words()))
    }

    fn pairs<'a>(&'a self, other: &'a Reach) -> Option<impl Iterator<Item = (&'a Group, &'a Group)>> {
        let pairs = || self.groups.iter().zip(&other.groups);
        (self.groups.len() == other.groups.len() && pairs().all(|(a, b)| a.dims == b.dims)).then(pairs)
    }

    fn contains(&self, other: &Reach, facts: &Facts) -> bool {
        // Two equal sets do not contain each other here, so that one of them remains.
        self.sure <= other.sure
            && self != other
            && self.pairs(other).is_some_and(|mut pairs| pairs.all(|(a, b)| a.set.contains(&b.set, facts)))
    }

    fn intersection(&self, other: &Reach, facts: &Facts) -> Option<Reach> {
        let common =
            |(a, b): (&Group, &Group)| Some(Group { dims: a.dims.clone(), set: a.set.intersection(&b.set, facts)? });
        let groups = self.pairs(other)?.map(common).collect::<Option<Vec<Group>>>()?;
        Some(Reach { groups, sure: self.sure.max(other.sure) })
    }
}

/// Groups the dimensions that share variables; the dimensions within a group are in ascending order.
fn grouped(moved: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(BTreeSet<usize>, Vec<usize>)> = vec![];
    for (d, vars) in moved.iter().enumerate() {
        let (with, without): (Vec<_>, Vec<_>) = groups.into_iter().partition(|(of, _)| !of.is_disjoint(vars));
        let mut group = (vars.clone(), vec![d]);
        for (of, dims) in with {
            group.0.extend(of);
            group.1.extend(dims);
        }
        group.1.sort();
        groups = without;
        groups.push(group);
    }
    let mut groups: Vec<Vec<usize>> = groups.into_iter().map(|(_, dims)| dims).collect();
    groups.sort();
    groups
}

/// A term factor · digit, where the digit ranges over `lo .. lo + n`.
struct Digit {
    factor: Dim,
    lo: Dim,
    n: Dim,
}

/// Returns the values of an expression, if they form one range or a mixed-radix number without carries.
fn image(facts: &Facts, number: &Dim, ranges: &[Range]) -> Option<Set> {
    let mut rest = number.clone();
    let mut digits: Vec<Digit> = vec![];
    while let Some(atom) = division(&rest) {
        let (digit, without) = divided(facts, &rest, &atom, ranges)?;
        digits.push(digit);
        rest = without;
    }
    for v in own_vars(&rest, &[]) {
        let (factor, without) = rest.linear_in(&Symbol::Variable(v))?;
        let Range { lo, n } = ranges[v].clone();
        digits.push(Digit { factor, lo, n });
        rest = without;
    }
    if rest.has_own() || digits.iter().any(|d| d.factor.has_own()) {
        return None;
    }
    match combined(facts, rest, digits)? {
        Combined::Run { lo, n, step } => Some(Set::run(lo, n, step)),
        Combined::Apart { n } => {
            let over = own_vars(number, &[]).into_iter().map(|v| ranges[v].clone()).collect();
            Some(Set::Some { n, of: number.clone(), over })
        }
    }
}

/// Returns a division ⌊a / b⌋ that is a factor of a term and whose dividend contains iteration variables.
fn division(d: &Dim) -> Option<Atom> {
    let atoms = d.terms().flat_map(|(atoms, _)| atoms);
    atoms.into_iter().find(|a| matches!(a, Atom::FloorDiv(n, _) if !own_vars(n, &[]).is_empty())).cloned()
}

/// Removes the division ⌊a / b⌋ from an expression, and returns it as a digit: ⌊a / b⌋ itself or, if the expression
/// also contains a matching multiple of `a`, `a mod b`.
fn divided(facts: &Facts, number: &Dim, atom: &Atom, ranges: &[Range]) -> Option<(Digit, Dim)> {
    let Atom::FloorDiv(a, b) = atom else { return None };
    // A variable that the kernel does not have stands for the quotient.
    let quotient = Symbol::Variable(ranges.len());
    let (factor, rest) = number.replace(atom, &quotient.clone().into()).linear_in(&quotient)?;
    let Set::Run { lo, n, step: 1 } = image(facts, a, ranges)? else { return None };
    let zero = Dim::constant(0);
    if own_vars(a, &[]).is_disjoint(&own_vars(&rest, &[])) {
        let first = lo.floordiv(b);
        let last = (lo + n - Dim::constant(1)).floordiv(b);
        return Some((Digit { factor, n: last - first.clone() + Dim::constant(1), lo: first }, rest));
    }
    // f·a − f·b·⌊a / b⌋ = f·(a mod b)
    let f = factor.exact_div(b)? * Dim::constant(-1);
    let rest = rest - f.clone() * (**a).clone();
    let n = if facts.ge(&n, b) { (**b).clone() } else { facts.least(&n, b) };
    (lo == zero && own_vars(a, &[]).is_disjoint(&own_vars(&rest, &[]))).then_some((Digit { factor: f, lo, n }, rest))
}

/// The set of values of a sum of digits.
enum Combined {
    Run {
        lo: Dim,
        n: Dim,
        step: i64,
    },
    /// The values are distinct, with gaps between them.
    Apart {
        n: Dim,
    },
}

/// Returns the values of offset + Σ factor · digit, adding digits from the smallest factor up.
fn combined(facts: &Facts, mut lo: Dim, digits: Vec<Digit>) -> Option<Combined> {
    let one = || Dim::constant(1);
    let mut open = vec![];
    for Digit { mut factor, lo: first, n } in digits {
        lo = lo + factor.clone() * first;
        if !facts.ge(&factor, &Dim::constant(0)) {
            // The factor is negative: the digit is counted from its upper end, so that its factor becomes positive.
            lo = lo + factor.clone() * (n.clone() - one());
            factor = factor * Dim::constant(-1);
            if !facts.ge(&factor, &Dim::constant(0)) {
                return None;
            }
        }
        if !n.is_const(1) && !factor.is_const(0) {
            open.push((factor, n));
        }
    }
    if open.len() == 1 && open[0].0.as_const().is_none() {
        return Some(Combined::Apart { n: open.remove(0).1 });
    }
    let step = open.iter().filter_map(|(f, _)| f.as_const()).min();
    if step.is_none() && !open.is_empty() {
        return None;
    }
    let step = step.unwrap_or(1);
    // Number of values of the sum so far, and the distance from the first value to the end of the range, in units of
    // `step`.
    let (mut n, mut span) = (one(), one());
    while !open.is_empty() {
        let times = |f: &Dim| f.exact_div(&Dim::constant(step));
        let continues = |(f, _): &(Dim, Dim)| n == span && times(f).is_some_and(|q| facts.ge(&n, &q));
        let beside = |(f, _): &(Dim, Dim)| times(f).is_some_and(|q| facts.ge(&q, &span));
        let next = open.iter().position(continues);
        let (factor, extent) = open.remove(next.or_else(|| open.iter().position(beside))?);
        span = span + times(&factor)? * (extent.clone() - one());
        n = if next.is_some() { span.clone() } else { n * extent };
    }
    Some(if n == span { Combined::Run { lo, n, step } } else { Combined::Apart { n } })
}

/// Returns the full ranges of a kernel's iteration variables.
pub fn full_ranges(kernel: &Kernel) -> Vec<Range> {
    kernel.extents().map(|n| Range { lo: Dim::constant(0), n: n.clone() }).collect()
}
