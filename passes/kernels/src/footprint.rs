//! load a[p0 + p1·%0], %0 < p2  =>  p0 ≥ 0, p1 ≥ 0, b0 ≥ 4·(p0 + p1·(p2 − 1) + 1): conditions on a launch
//!
//! The compiler derives a plan's launch requirements from these conditions, which the runtime checks before a launch
//! touches memory. `p{n}` are the launch's parameters, `b{n}` the sizes of its buffers in bytes (reads first), `grid`
//! its number of work items. A condition is an expression that must not be negative. The conditions apply to launches
//! that have work items. An index that the kernel itself checks against a limit is taken to be in `0..limit`.

use super::def::*;
use super::scalar;
use sardonyx_base::Dim;
use sardonyx_base::dim::{Atom, Symbol};
use sardonyx_dialects::scalar::ScalarFn;

/// Expressions that must not be negative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Conditions on the launch as a whole: its grid, its extents, its divisors.
    pub launch: Vec<Dim>,
    /// For each access, loads before stores, alternative lists of conditions; the access is within its buffer if all
    /// conditions of one list hold.
    pub accesses: Vec<Vec<Vec<Dim>>>,
    /// Limits of data-dependent indices of unguarded accesses, less one: if a limit is 0, no index can be in range.
    pub limits: Vec<Dim>,
}

impl KernelDef {
    /// Returns the conditions on launches, over the parameters, if the kernel has `grid` work items; a launch may have
    /// fewer.
    pub fn footprint(&self, grid: Dim) -> Footprint {
        let mut launch = vec![grid - Symbol::Grid.into()];
        launch.extend((0..self.n_vars()).map(|v| self.extent(v).dim()));
        let (mut accesses, mut limits) = (vec![], vec![]);
        for step in &self.body {
            match &step.op {
                Op::Load { access, guard } => {
                    let ways = [self.known(*guard), vec![]];
                    accesses.push(self.ways(&ways, access, access.buffer, &self.reads[access.buffer]));
                    if guard.is_none() {
                        limits.extend(access.computed.iter().filter_map(|c| c.limit));
                    }
                    access.computed.iter().for_each(|c| divisors(&c.expr, &mut launch));
                }
                Op::Index(d) => divisors(d, &mut launch),
                Op::Const(_) | Op::Apply { .. } | Op::Convert(_, _) | Op::Reduce { .. } => {}
            }
        }
        for write in &self.stores {
            let buffer = self.reads.len() + write.access.buffer;
            accesses.push(self.ways(&[vec![]], &write.access, buffer, &self.writes[write.access.buffer]));
            write.access.computed.iter().for_each(|c| divisors(&c.expr, &mut launch));
            limits.extend(write.access.computed.iter().filter_map(|c| c.limit));
        }
        let mut limits: Vec<Dim> = limits.into_iter().map(|l| l.dim() - Dim::constant(1)).collect();
        for list in [&mut launch, &mut limits] {
            list.retain(|d| d.as_const().is_none_or(|c| c < 0));
            list.sort();
            list.dedup();
        }
        Footprint { launch, accesses, limits }
    }

    fn ways(&self, known: &[Vec<Known>], access: &Access, buffer: usize, storage: &Storage) -> Vec<Vec<Dim>> {
        let mut ways: Vec<Vec<Dim>> = known.iter().filter_map(|k| self.bound(k, access, buffer, storage)).collect();
        ways.dedup();
        ways
    }

    /// Conditions for an access to stay within its buffer; `None` if no bound is found.
    fn bound(&self, known: &[Known], access: &Access, buffer: usize, storage: &Storage) -> Option<Vec<Dim>> {
        let mut needs = vec![];
        let one = Dim::constant(1);
        let mut coords: Vec<(Dim, Dim)> =
            access.coords.iter().map(|c| self.range(&self.line(c), known, &mut needs)).collect::<Option<_>>()?;
        for part in &access.computed {
            let stride = part.stride.dim();
            let (a, b) = match part.limit {
                Some(limit) => (Dim::constant(0), limit.dim() - one.clone()),
                None => self.range(&part.expr, known, &mut needs)?,
            };
            needs.push(stride.clone());
            let (lo, hi) = coords.get_mut(part.coord)?;
            (*lo, *hi) = (lo.clone() + a * stride.clone(), hi.clone() + b * stride);
        }
        let elements = match (storage.panels, &coords[..]) {
            (Some(panels), [row, column]) => {
                let (width, rows) = (Dim::constant(panels.width), Dim::constant(panels.rows));
                needs.extend([row.0.clone(), column.0.clone(), rows - one.clone() - row.1.clone()]);
                (column.1.floordiv(&width) + one) * Dim::constant(panels.groups() * panels.places()) * width
            }
            (Some(_), _) => return None,
            (None, _) => {
                let (lo, hi) = coords[0].clone();
                needs.push(lo);
                hi + one
            }
        };
        let bytes = Dim::constant(scalar::stored(storage.dtype).bits() as i64 / 8);
        needs.push(Dim::from(Symbol::BufferBytes(buffer)) - elements * bytes);
        needs.retain(|d| d.as_const().is_none_or(|c| c < 0));
        needs.sort();
        needs.dedup();
        Some(needs)
    }

    fn line(&self, line: &Linear) -> Dim {
        let terms = line.strides.iter().enumerate().map(|(v, s)| Dim::variable(v) * s.dim());
        terms.fold(line.offset.dim(), |sum, t| sum + t)
    }

    /// Minimum and maximum of an expression over the iteration space, valid under the conditions added to `needs`.
    fn range(&self, d: &Dim, known: &[Known], needs: &mut Vec<Dim>) -> Option<(Dim, Dim)> {
        let (mut lo, mut hi, mut rest) = (Dim::constant(0), Dim::constant(0), d.clone());
        let mut add = |factor: Dim, from: Dim, to: Dim, needs: &mut Vec<Dim>| {
            let negative = factor.as_const().is_some_and(|c| c < 0);
            if factor.as_const().is_none() {
                needs.push(factor.clone());
            }
            let (from, to) = if negative { (to, from) } else { (from, to) };
            (lo, hi) = (lo.clone() + factor.clone() * from, hi.clone() + factor * to);
        };
        for k in known {
            let Some(v) = k.what.variables().first().copied() else { continue };
            let (Some((c, _)), Some((of, _))) =
                (rest.linear_in(&Symbol::Variable(v)), k.what.linear_in(&Symbol::Variable(v)))
            else {
                continue;
            };
            if !of.is_const(1) || c.is_const(0) {
                continue;
            }
            let without = rest.clone() - c.clone() * k.what.clone();
            if without.variables().iter().any(|v| k.what.variables().contains(v)) {
                continue;
            }
            rest = without;
            add(c, k.lo.clone(), k.hi.clone(), needs);
        }
        loop {
            let found = quotients(&rest);
            // k·a − k·b·⌊a / b⌋ is k times the remainder of a / b.
            let remainder = found.iter().find_map(|(atom, c, a, b)| {
                let n = b.as_const().filter(|n| c % n == 0 && *c < 0)?;
                let left = rest.clone() + Dim::constant(c / n) * (a.clone() - b.clone() * atom.clone());
                (left.terms().count() < rest.terms().count()).then_some((-c / n, n, left))
            });
            match (remainder, found.into_iter().next()) {
                (Some((k, n, left)), _) => {
                    add(Dim::constant(k), Dim::constant(0), Dim::constant(n - 1), needs);
                    rest = left;
                }
                (None, Some((atom, c, a, b))) => {
                    let (from, to) = self.range(&a, known, needs)?;
                    add(Dim::constant(c), from.floordiv(&b), to.floordiv(&b), needs);
                    rest = rest - Dim::constant(c) * atom;
                }
                (None, None) => break,
            }
        }
        for v in rest.variables() {
            let (c, left) = rest.linear_in(&Symbol::Variable(v))?;
            if !c.variables().is_empty() {
                return None;
            }
            add(c, Dim::constant(0), self.extent(v).dim() - Dim::constant(1), needs);
            rest = left;
        }
        let free = rest.statements().is_empty();
        free.then(|| (lo + rest.clone(), hi + rest))
    }

    /// Bounds that a guard implies: expressions that the comparisons of its conjunction bound on both sides.
    fn known(&self, guard: Option<usize>) -> Vec<Known> {
        let (mut open, mut found) = (Vec::from_iter(guard), vec![]);
        let mut bounds: Vec<(Dim, Option<Dim>, Option<Dim>)> = vec![];
        let index = |k: usize| if let Op::Index(d) = &self.body[k].op { Some(d.clone()) } else { None };
        while let Some(k) = open.pop() {
            let Op::Apply { f, args } = &self.body[k].op else { continue };
            match (f, &args[..]) {
                (ScalarFn::And, args) => open.extend(args),
                (ScalarFn::Le | ScalarFn::Lt, &[a, b]) => {
                    let (Some(a), Some(b)) = (index(a), index(b)) else { continue };
                    let strict = Dim::constant((*f == ScalarFn::Lt) as i64);
                    match (a.variables().is_empty(), b.variables().is_empty()) {
                        (true, false) => bounds.push((b, Some(a + strict), None)),
                        (false, true) => bounds.push((a, None, Some(b - strict))),
                        (true, true) | (false, false) => {}
                    }
                }
                _ => {}
            }
        }
        for (what, lo, _) in &bounds {
            let hi = bounds.iter().find_map(|(w, _, hi)| hi.clone().filter(|_| w == what));
            if let (Some(lo), Some(hi)) = (lo.clone(), hi) {
                found.push(Known { what: what.clone(), lo, hi });
            }
        }
        found
    }
}

/// lo ≤ what ≤ hi wherever the guard is true.
struct Known {
    what: Dim,
    lo: Dim,
    hi: Dim,
}

/// Terms c·⌊a / b⌋ that contain an iteration variable: the quotient, c, a and b.
fn quotients(d: &Dim) -> Vec<(Dim, i64, Dim, Dim)> {
    let one = |(monomial, c): (&[Atom], i64)| match monomial {
        [Atom::FloorDiv(a, b)] if !a.variables().is_empty() && b.variables().is_empty() => {
            Some((a.floordiv(b), c, (**a).clone(), (**b).clone()))
        }
        _ => None,
    };
    d.terms().filter_map(one).collect()
}

/// Collects every divisor less one: this must not be negative, because the kernel divides by the divisor.
fn divisors(d: &Dim, found: &mut Vec<Dim>) {
    for atom in d.terms().flat_map(|(m, _)| m) {
        match atom {
            Atom::Symbol(_) => {}
            Atom::FloorDiv(a, b) => {
                found.push((**b).clone() - Dim::constant(1));
                divisors(a, found);
                divisors(b, found);
            }
            Atom::Max(a, b) | Atom::Min(a, b) => {
                divisors(a, found);
                divisors(b, found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lower;
    use super::*;
    use sardonyx_base::DType;
    use sardonyx_dialects::flow::kernel::{Body, Container, Kernel, Memlet, Statement, Store};
    use std::collections::BTreeMap;

    fn dims(texts: &[&str]) -> Vec<Dim> {
        texts.iter().map(|t| Dim::parse(t).unwrap()).collect()
    }

    fn statement(body: Body, dtype: DType) -> Statement {
        Statement { body, dtype }
    }

    /// result[%0, %1, …] = operand[read] where the guards `lo ≤ what < hi` hold.
    fn copy(outer: &[&str], shape: &[&str], read: &[&str], guards: &[(&str, &str, &str)]) -> Kernel {
        let container = |d: &[&str]| Container::plain(DType::F32, dims(d));
        let (mut body, mut guard) = (vec![], None);
        for (what, lo, hi) in guards {
            for text in [what, lo, hi] {
                body.push(statement(Body::Index(Dim::parse(text).unwrap()), DType::I64));
            }
            let n = body.len();
            let apply = |f, a, b| statement(Body::Apply { f, args: vec![a, b] }, DType::Bool);
            body.push(apply(ScalarFn::Le, n - 2, n - 3));
            body.push(apply(ScalarFn::Lt, n - 3, n - 1));
            body.push(apply(ScalarFn::And, n, n + 1));
            if let Some(before) = guard.replace(n + 2) {
                body.push(apply(ScalarFn::And, before, n + 2));
                guard = Some(n + 3);
            }
        }
        let load = Body::Load { memlet: Memlet { container: 0, index: dims(read) }, guard };
        body.push(statement(load, DType::F32));
        let written = Memlet { container: 0, index: (0..outer.len()).map(Dim::variable).collect() };
        let stores = vec![Store { memlet: written, value: body.len() - 1 }];
        Kernel {
            outer: dims(outer),
            inner: vec![],
            deep: vec![],
            reads: vec![container(shape)],
            writes: vec![container(outer)],
            body,
            stores,
        }
    }

    /// Number of bytes from the start of the operand to the end of the last element that is read, found by visiting
    /// every point.
    fn touched(kernel: &Kernel, value: &dyn Fn(&str) -> Option<i64>, guards: &[(&str, &str, &str)]) -> i64 {
        let extents: Vec<i64> = kernel.outer.iter().map(|d| d.eval_named(value).unwrap()).collect();
        let sizes: Vec<i64> = kernel.reads[0].dims.iter().map(|d| d.eval_named(value).unwrap()).collect();
        let Some(Body::Load { memlet, .. }) = kernel.body.last().map(|s| &s.body) else { panic!("a load") };
        let mut last = 0;
        for point in 0..extents.iter().product::<i64>() {
            let mut rest = point;
            let mut at = vec![0; extents.len()];
            for v in (0..extents.len()).rev() {
                (at[v], rest) = (rest % extents[v], rest / extents[v]);
            }
            let here = |s: &Symbol| s.variable().map(|v| at[v]).or_else(|| value(s.name()?));
            let of = |text: &str| Dim::parse(text).unwrap().eval(&here).unwrap();
            if guards.iter().all(|(what, lo, hi)| of(lo) <= of(what) && of(what) < of(hi)) {
                let flat = memlet.index.iter().zip(&sizes).fold(0, |f, (d, n)| f * n + d.eval(&here).unwrap());
                assert!(flat >= 0, "the test reads before its operand");
                last = last.max(4 * (flat + 1));
            }
        }
        last
    }

    /// Extents, operand, indices, guards, and whether the bound is exact.
    type Row<'a> = (&'a [&'a str], &'a [&'a str], &'a [&'a str], &'a [(&'a str, &'a str, &'a str)], bool);

    #[test]
    fn the_demand_is_what_a_walk_over_all_points_touches() {
        let rows: &[Row] = &[
            (&["b", "s", "8"], &["b", "s", "8"], &["%0", "%1", "%2"], &[], true),
            (&["h", "s", "8"], &["s", "h", "8"], &["%1", "%0", "%2"], &[], true),
            (&["b", "3"], &["b", "s"], &["%0", "s - 1"], &[], true),
            (&["b", "4"], &["b", "9"], &["%0", "7 - 2*%1"], &[], true),
            (&["6"], &["2", "3"], &["%0 floordiv 3", "%0 mod 3"], &[], true),
            (&["24"], &["2", "3", "4"], &["%0 floordiv 12", "(%0 floordiv 4) mod 3", "%0 mod 4"], &[], true),
            (&["b", "s + 2"], &["b", "s"], &["%0", "%1 - 1"], &[("%1 - 1", "0", "s")], true),
            (&["b + h", "4"], &["h", "4"], &["%0 - b", "%1"], &[("%0", "b", "b + h")], true),
            (&["s", "5", "3"], &["5", "s"], &["%1 + %2 - 1", "%0"], &[("%1 + %2 - 1", "0", "5")], true),
            (
                &["7", "7", "3", "3"],
                &["5", "5"],
                &["%0 + %2 - 2", "%1 + %3 - 2"],
                &[("%0 + %2 - 2", "0", "5"), ("%1 + %3 - 2", "0", "5")],
                true,
            ),
            (&["s"], &["s"], &["max(%0 - 1, 0)"], &[], false),
        ];
        for (outer, shape, read, guards, exact) in rows {
            let kernel = copy(outer, shape, read, guards);
            let lowered = lower(&kernel).unwrap();
            let footprint = lowered.footprint();
            let symbols = BTreeMap::from([("b", 2), ("h", 3), ("s", 5)]);
            let model = |s: &str| symbols.get(s).copied();
            let params: Vec<i64> = lowered.params.iter().map(|p| p.eval_named(&model).unwrap()).collect();
            let grid = lowered.grid.eval_named(&model).unwrap();
            let bytes = touched(&kernel, &model, guards);
            let holds = |d: &Dim, bytes: i64, grid: i64| {
                let of = |s: &Symbol| match s {
                    Symbol::Grid => Some(grid),
                    Symbol::BufferBytes(0) => Some(bytes),
                    Symbol::BufferBytes(1) => Some(i64::MAX / 8),
                    s => params.get(s.param()?).copied(),
                };
                d.eval(&of).unwrap() >= 0
            };
            assert!(footprint.launch.iter().all(|d| holds(d, bytes, grid)), "{read:?}: {footprint:?}");
            assert!(!footprint.launch.iter().all(|d| holds(d, bytes, grid + 1)), "{read:?}: one work item too many");
            let ways = &footprint.accesses[0];
            let within = |bytes| ways.iter().any(|way| way.iter().all(|d| holds(d, bytes, grid)));
            assert_eq!(within(bytes), *exact, "{read:?} touches {bytes} bytes: {ways:?}");
            assert!(!within(bytes - 1), "{read:?} touches {bytes} bytes: {ways:?}");
        }
    }
}
