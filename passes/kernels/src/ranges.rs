//! %2 < 24 where %2 runs from 0 to 23  =>  true: subranges of a variable in which comparisons with it are constant
//!
//! Concatenations and paddings select by comparisons; within a subrange only one branch is left, without a comparison.

use super::def::*;
use sardonyx_base::dim::Symbol;
use sardonyx_dialects::scalar::ScalarFn;

/// Maximum number of subranges: with more, the additional code costs more than the comparisons it saves.
const PIECES_MAX: usize = 8;

/// Returns the subranges `from..to` of a variable; empty if there is only one, or if there are more than `PIECES_MAX`.
pub fn pieces(def: &KernelDef, var: usize) -> Vec<(i64, i64)> {
    let Some(extent) = def.extent(var).as_const() else { return vec![] };
    let changes = (0..def.body.len()).filter_map(|k| Comparison::find(def, k, var)?.change());
    let mut ends: Vec<i64> = changes.filter(|at| (1..extent).contains(at)).chain([extent]).collect();
    ends.sort();
    ends.dedup();
    let mut from = 0;
    let pieces: Vec<(i64, i64)> = ends.into_iter().map(|to| (std::mem::replace(&mut from, to), to)).collect();
    if (2..=PIECES_MAX).contains(&pieces.len()) { pieces } else { vec![] }
}

/// step · variable + rest > 0
struct Comparison {
    step: i64,
    rest: i64,
}

impl Comparison {
    /// Matches a comparison of two indices in which only the variable is unknown.
    fn find(def: &KernelDef, k: usize, var: usize) -> Option<Comparison> {
        let Op::Apply { f: f @ (ScalarFn::Lt | ScalarFn::Le), args } = &def.body[k].op else { return None };
        let index = |k: usize| if let Op::Index(d) = &def.body[k].op { Some(d.clone()) } else { None };
        let (step, rest) = (index(args[1])? - index(args[0])?).linear_in(&Symbol::Variable(var))?;
        let rest = rest.as_const()?.checked_add((*f == ScalarFn::Le) as i64)?;
        Some(Comparison { step: step.as_const()?, rest })
    }

    fn holds(&self, at: i64) -> bool {
        self.step as i128 * at as i128 + self.rest as i128 > 0
    }

    /// Returns the value of the variable at which the result of the comparison differs from that at the value before.
    fn change(&self) -> Option<i64> {
        match self.step {
            0 => None,
            step if step > 0 => Some(self.rest.checked_neg()?.checked_div_euclid(step)? + 1),
            step => Some((self.rest.checked_add(-step - 1)?).checked_div_euclid(-step)?),
        }
    }
}

/// Truth of each statement where the variable has the value `at`; `None` if this value alone does not determine it.
pub fn known(def: &KernelDef, var: usize, at: i64) -> Vec<Option<bool>> {
    let mut known: Vec<Option<bool>> = vec![];
    for step in &def.body {
        let truth = match &step.op {
            Op::Apply { f: ScalarFn::Lt | ScalarFn::Le, .. } => {
                Comparison::find(def, known.len(), var).map(|c| c.holds(at))
            }
            Op::Apply { f: ScalarFn::And, args } => match (known[args[0]], known[args[1]]) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                (Some(true) | None, None) | (None, Some(true)) => None,
            },
            Op::Apply { f: ScalarFn::Or, args } => match (known[args[0]], known[args[1]]) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                (Some(false) | None, None) | (None, Some(false)) => None,
            },
            Op::Apply { f: ScalarFn::Not, args } => known[args[0]].map(|truth| !truth),
            Op::Apply { .. } | Op::Load { .. } | Op::Const(_) | Op::Index(_) => None,
            Op::Convert(_, _) | Op::Reduce { .. } => None,
        };
        known.push(truth);
    }
    known
}

#[cfg(test)]
mod tests {
    use super::super::lower;
    use super::*;
    use sardonyx_base::{DType, Dim};
    use sardonyx_dialects::flow::kernel::{Body, Container, Kernel, Memlet, Statement, Store};

    #[test]
    fn a_concatenation_falls_into_the_parts_of_its_operands() {
        let dims = |texts: &[&str]| -> Vec<Dim> { texts.iter().map(|t| Dim::parse(t).unwrap()).collect() };
        let container = |d: &[&str]| Container::plain(DType::F32, dims(d));
        let of = |body: Body, dtype| Statement { body, dtype };
        let index = |text: &str| of(Body::Index(Dim::parse(text).unwrap()), DType::I64);
        let load = |container: usize, at: &[&str], guard| {
            of(Body::Load { memlet: Memlet { container, index: dims(at) }, guard: Some(guard) }, DType::F32)
        };
        let apply = |f, args: &[usize], dtype| of(Body::Apply { f, args: args.to_vec() }, dtype);
        let body = vec![
            index("%1"),
            index("24"),
            apply(ScalarFn::Lt, &[0, 1], DType::Bool),
            load(0, &["%0", "%1"], 2),
            apply(ScalarFn::Not, &[2], DType::Bool),
            load(1, &["%0", "%1 - 24"], 4),
            apply(ScalarFn::Select, &[2, 3, 5], DType::F32),
        ];
        let kernel = Kernel {
            outer: dims(&["n", "40"]),
            inner: vec![],
            deep: vec![],
            reads: vec![container(&["n", "24"]), container(&["n", "16"])],
            writes: vec![container(&["n", "40"])],
            body,
            stores: vec![Store { memlet: Memlet { container: 0, index: dims(&["%0", "%1"]) }, value: 6 }],
        };
        kernel.check().unwrap();
        let def = lower(&kernel).unwrap().def;
        assert_eq!(pieces(&def, 1), [(0, 24), (24, 40)]);
        assert_eq!(pieces(&def, 0), []);
        let truths = |at: i64| [2, 4].map(|k| known(&def, 1, at)[k]);
        assert_eq!(truths(23), [Some(true), Some(false)]);
        assert_eq!(truths(24), [Some(false), Some(true)]);
    }

    #[test]
    fn a_comparison_changes_where_it_is_said_to() {
        for (step, rest) in (-5..=5).flat_map(|s| (-30..=30).map(move |r| (s, r))) {
            let c = Comparison { step, rest };
            let changes: Vec<i64> = (-40..=40).filter(|&at| c.holds(at) != c.holds(at - 1)).collect();
            let said: Vec<i64> = c.change().into_iter().filter(|at| (-40..=40).contains(at)).collect();
            assert_eq!(said, changes, "{step} {rest}");
        }
    }
}
