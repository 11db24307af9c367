//! a function before and after  =>  each value that is now computed differently, checked against its old computation
//!
//! For the checks, every use of a value is redirected to the first value of the old function that it equals according
//! to the e-graph. A check therefore involves few rules: it compares two old values that were found equal, or an old
//! value with a new operation, whose operands are old values wherever such values exist.

use super::Report;
use crate::class::Class;
use crate::rewrite::Rewrites;
use sardonyx_base::Result;
use sardonyx_dialects::sdx::{Graph, Node, Value};

/// Checks each value that is computed differently against its old computation. `first` is the number, among all
/// rewrites, of the first equality that the e-graph found. Errors: E0901 if the two computations have different
/// results.
pub fn check(before: &Graph, after: &Graph, report: &Report, first: usize, rewrites: &mut Rewrites) -> Result<()> {
    let the_first = |v: &Value| report.first.get(v.index()).copied().unwrap_or(*v);
    let mut both = before.clone();
    both.nodes.iter_mut().flat_map(|n| &mut n.args).for_each(|a| *a = the_first(a));
    let is_same = |both: &Graph, was: Value, node: &Node, args: &[Value]| {
        let old = both.node(was);
        old.args == args && old.ty == node.ty && (args.is_empty() || old.op == node.op)
    };
    let mut changed: Vec<(Option<Value>, Value, Value)> = vec![];
    for (v, _) in before.values() {
        let was = the_first(&v);
        let node = both.node(v);
        if was != v && !is_same(&both, was, node, &node.args) {
            changed.push((None, was, v));
        }
    }
    let mut now: Vec<Value> = vec![];
    for (v, node) in after.values() {
        let args: Vec<Value> = node.args.iter().map(|a| now[a.index()]).collect();
        let was = report.equals.get(v.index()).copied().flatten();
        now.push(match was {
            Some(was) if is_same(&both, was, node, &args) => was,
            Some(was) => {
                let is = both.push(Node { args, ..node.clone() });
                changed.push((Some(v), was, is));
                was
            }
            None => both.push(Node { args, ..node.clone() }),
        });
    }
    for (v, was, is) in changed {
        let chain = v.and_then(|v| report.explanations.nodes.get(v.index())).map_or(&[][..], |e| &e.chain);
        let mut found: Vec<usize> = chain.iter().map(|link| link.found).collect();
        if found.is_empty() {
            found = report.found.get(was.index()).map_or(vec![], |found| found.to_vec());
        }
        let numbers: Vec<usize> = found.iter().map(|n| first + n).collect();
        let none = (f64::NEG_INFINITY, f64::INFINITY);
        let bounds = |v: Value| report.bounds.get(v.index()).copied().unwrap_or(none);
        // Some rules hold only for finite values, and the new computation may result from one of these rules.
        rewrites.check_values((&both, before.nodes.len()), (was, is), Class::FiniteOnly, &bounds, &numbers)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egraph::{Explanations, explain};
    use crate::options::Options;
    use sardonyx_base::{DType, Dim};
    use sardonyx_dialects::scalar::ScalarFn;
    use sardonyx_dialects::sdx::{Op, TensorType};

    /// Returns a graph that computes f(x) * x.
    fn graph(f: ScalarFn) -> Graph {
        let mut g = Graph { name: "f".into(), ..Graph::default() };
        let ty = TensorType::new(DType::F32, vec![Dim::constant(5)]);
        let x = g.push(Node {
            op: Op::Input { name: "x".into(), parts: vec![] },
            args: vec![],
            ty: ty.clone(),
            origins: vec![],
        });
        let y = g.push(Node { op: Op::Map(f), args: vec![x], ty: ty.clone(), origins: vec!["/f".into()] });
        let z = g.push(Node { op: Op::Map(ScalarFn::Mul), args: vec![y, x], ty, origins: vec!["/mul".into()] });
        g.outputs = vec![("z".into(), z)];
        g
    }

    #[test]
    fn the_equality_that_is_wrong_is_named() {
        let (before, after) = (graph(ScalarFn::Exp), graph(ScalarFn::Tanh));
        let mut rewrites = Rewrites::new(Options { validate: true, ..Options::default() });
        rewrites.begin("e-graph", Class::FiniteOnly, None);
        assert!(rewrites.allow("right", &["/mul".into()]) && rewrites.allow("wrong", &["/f".into()]));
        let link =
            explain::Link { found: 1, rule: "wrong", class: "exact", before: "exp".into(), after: "tanh".into() };
        let chain = |chain| explain::Explanation { origins: vec![], operation: String::new(), chain };
        let nodes = vec![chain(vec![]), chain(vec![link]), chain(vec![])];
        let equals = before.values().map(|(v, _)| Some(v)).collect();
        let report = Report { equals, explanations: Explanations { nodes }, ..Report::default() };
        let error = check(&before, &after, &report, 1, &mut rewrites).unwrap_err();
        assert!(error.message.starts_with("rewrite 2 (e-graph: wrong) changes what"), "{error}");
        assert_eq!(error.node.as_deref(), Some("/f"));
        check(&before, &before, &report, 1, &mut rewrites).unwrap();
    }

    #[test]
    fn old_values_that_are_wrongly_equal_are_found() {
        let mut g = graph(ScalarFn::Exp);
        let node = Node { op: Op::Map(ScalarFn::Tanh), ..g.nodes[1].clone() };
        let wrong = g.push(node);
        g.outputs.push(("y".into(), wrong));
        let mut rewrites = Rewrites::new(Options { validate: true, ..Options::default() });
        rewrites.begin("e-graph", Class::FiniteOnly, None);
        assert!(rewrites.allow("right", &["/mul".into()]) && rewrites.allow("wrong", &["/f".into()]));
        let first = vec![Value(0), Value(1), Value(2), Value(1)];
        let found = vec![vec![], vec![1], vec![0], vec![1]];
        let report = Report { first, found: found.into_iter().map(Into::into).collect(), ..Report::default() };
        let error = check(&g, &graph(ScalarFn::Exp), &report, 1, &mut rewrites).unwrap_err();
        assert!(error.message.starts_with("rewrite 2 (e-graph: wrong) changes what"), "{error}");
    }
}
