//! Ranges of a kernel's iteration variables, from its extents and guards: %1 where 0 <= %1 - 4 < n  =>  4 .. n + 4

use super::image::Sure;
use sardonyx_base::Dim;
use sardonyx_base::dim::Symbol;
use sardonyx_dialects::flow::kernel::{Body, Kernel, Level};
use sardonyx_dialects::scalar::{Conversion, ScalarFn};
use std::collections::BTreeSet;

/// The values of a variable: `lo .. lo + n`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    pub lo: Dim,
    pub n: Dim,
}

/// A kernel, the lower bounds of the symbols, and the variables on which its statements depend.
pub struct Facts<'k> {
    pub kernel: &'k Kernel,
    pub lo: &'k dyn Fn(&Symbol) -> i64,
    /// For each statement, the iteration variables on which its value depends.
    pub deps: Vec<BTreeSet<usize>>,
}

/// Returns the iteration variables in an index expression, including the variables on which referenced statements
/// depend, as `deps` gives them.
pub fn own_vars(d: &Dim, deps: &[BTreeSet<usize>]) -> BTreeSet<usize> {
    let mut vars = BTreeSet::from_iter(d.variables());
    vars.extend(d.statements().into_iter().filter_map(|k| deps.get(k)).flatten());
    vars
}

impl<'k> Facts<'k> {
    pub fn from_kernel(kernel: &'k Kernel, lo: &'k dyn Fn(&Symbol) -> i64) -> Facts<'k> {
        let mut deps: Vec<BTreeSet<usize>> = vec![];
        let levels = kernel.levels();
        for statement in &kernel.body {
            let mut vars = BTreeSet::new();
            match &statement.body {
                Body::Load { memlet, guard } => {
                    vars.extend(memlet.index.iter().flat_map(|d| own_vars(d, &deps)));
                    vars.extend(guard.iter().flat_map(|g| &deps[*g]));
                }
                Body::Const(_) => {}
                Body::Index(d) => vars = own_vars(d, &deps),
                Body::Apply { args, .. } => vars.extend(args.iter().flat_map(|a| &deps[*a])),
                Body::Convert(a, _) => vars = deps[*a].clone(),
                Body::Reduce { arg, .. } => {
                    let combined = levels[*arg].max(Level::Point);
                    vars = deps[*arg].iter().copied().filter(|v| kernel.level_of_var(*v) < combined).collect();
                }
            }
            deps.push(vars);
        }
        Facts { kernel, lo, deps }
    }

    /// Whether `a >= b` follows from the symbols' lower bounds.
    pub fn ge(&self, a: &Dim, b: &Dim) -> bool {
        a.provably_ge(b, self.lo)
    }

    pub fn least(&self, a: &Dim, b: &Dim) -> Dim {
        if self.ge(b, a) {
            return a.clone();
        }
        if self.ge(a, b) { b.clone() } else { a.minimum(b) }
    }

    pub fn greatest(&self, a: &Dim, b: &Dim) -> Dim {
        if self.ge(a, b) {
            return a.clone();
        }
        if self.ge(b, a) { b.clone() } else { a.maximum(b) }
    }

    /// Returns ranges of the variables that include all points at which a guard holds, and how precise these ranges
    /// are.
    pub fn ranges(&self, guard: Option<usize>) -> (Vec<Range>, Sure) {
        let mut ranges = super::image::full_ranges(self.kernel);
        let sure = guard.map_or(Sure::Exact, |g| self.narrow(g, &mut ranges));
        (ranges, sure)
    }

    fn narrow(&self, guard: usize, ranges: &mut [Range]) -> Sure {
        let Body::Apply { f, args } = &self.kernel.body[guard].body else { return self.unknown(guard) };
        let number = |k: usize| self.number(k);
        match (f, args.as_slice()) {
            (ScalarFn::And, [a, b]) => self.narrow(*a, ranges).max(self.narrow(*b, ranges)),
            (ScalarFn::Le | ScalarFn::Lt, [a, b]) => match (number(*a), number(*b)) {
                (Some(a), Some(b)) => {
                    let strict = Dim::constant(matches!(f, ScalarFn::Lt) as i64);
                    self.at_least_zero(&(b - a - strict), ranges)
                }
                _ => self.unknown(guard),
            },
            (ScalarFn::Eq, [a, b]) => match (number(*a), number(*b)) {
                (Some(a), Some(b)) => {
                    let above = self.at_least_zero(&(b.clone() - a.clone()), ranges);
                    above.max(self.at_least_zero(&(a - b), ranges))
                }
                _ => self.unknown(guard),
            },
            _ => self.unknown(guard),
        }
    }

    /// Returns the precision of the ranges under a guard that this analysis cannot express as ranges, and which
    /// therefore does not narrow them.
    fn unknown(&self, guard: usize) -> Sure {
        if self.is_by_data(guard) { Sure::ByData } else { Sure::AtMost }
    }

    pub fn is_by_data(&self, k: usize) -> bool {
        let index = |d: &Dim| d.statements().into_iter().any(|k| self.is_by_data(k));
        match &self.kernel.body[k].body {
            Body::Load { .. } => true,
            Body::Const(_) => false,
            Body::Index(d) => index(d),
            Body::Apply { args, .. } => args.iter().any(|a| self.is_by_data(*a)),
            Body::Convert(a, _) | Body::Reduce { arg: a, .. } => self.is_by_data(*a),
        }
    }

    /// Returns the value of an integer statement as an expression, if it is one.
    fn number(&self, k: usize) -> Option<Dim> {
        match &self.kernel.body[k].body {
            Body::Index(d) => Some(d.clone()),
            Body::Const(c) if c.fract() == 0.0 && c.abs() < 9e15 => Some(Dim::constant(*c as i64)),
            Body::Const(_) => None,
            Body::Convert(_, Conversion::Bits) => None,
            Body::Convert(a, Conversion::Value) => self.number(*a).filter(|_| !self.kernel.body[k].dtype.is_float()),
            Body::Load { .. } | Body::Apply { .. } | Body::Reduce { .. } => None,
        }
    }

    /// Narrows ranges by `d >= 0`, where `d` is a variable plus a constant, or a constant minus a variable.
    fn at_least_zero(&self, d: &Dim, ranges: &mut [Range]) -> Sure {
        let vars = own_vars(d, &[]);
        let data = !d.statements().is_empty();
        let [v] = vars.iter().copied().collect::<Vec<_>>()[..] else {
            let holds = !data && vars.is_empty() && self.ge(d, &Dim::constant(0));
            return if holds { Sure::Exact } else { Sure::AtMost };
        };
        let Some((factor, rest)) = d.linear_in(&Symbol::Variable(v)).filter(|_| !data) else { return Sure::AtMost };
        let Range { lo, n } = &ranges[v];
        let end = lo.clone() + n.clone();
        let (lo, end) = match factor.as_const() {
            Some(1) => (self.greatest(lo, &(rest * Dim::constant(-1))), end),
            Some(-1) => (lo.clone(), self.least(&end, &(rest + Dim::constant(1)))),
            _ => return Sure::AtMost,
        };
        let n = self.greatest(&(end - lo.clone()), &Dim::constant(0));
        ranges[v] = Range { lo, n };
        Sure::Exact
    }
}
