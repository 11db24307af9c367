//! a node's name  =>  the rules that led to its operation, in order

use super::language::{EGraph, ENode};
use super::rule::Rule;
use super::saturate::{Run, Step};
use super::table::OpId;
use egg::Id;
use sardonyx_dialects::sdx::Graph;
use std::collections::{BTreeMap, VecDeque};

/// For each node of a new function, its origins and the rules that led to it from the old function.
#[derive(Clone, Debug, Default)]
pub struct Explanations {
    /// One explanation for each node of the new function, in its order.
    pub nodes: Vec<Explanation>,
}

/// Origins of a node of the new function, and the rules that led to it.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// ONNX nodes that the node implements.
    pub origins: Vec<String>,
    /// Text of the node's operation, such as `sdx.contract "abc,dc->abd"`.
    pub operation: String,
    /// Rule applications that led to the operation, in order; empty if no rule did.
    pub chain: Vec<Link>,
}

/// One rule application, which replaced `before` by `after`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Index in the order in which equalities were found.
    pub found: usize,
    /// Name of the rule.
    pub rule: &'static str,
    /// Class of the rule, such as `exact`.
    pub class: &'static str,
    /// Text of the operation that the rule replaced.
    pub before: String,
    /// Text of the operation that replaced it.
    pub after: String,
}

/// Explains the nodes of the graph `after`, given with the class and the e-graph node of each; the graph `before` is
/// given with the classes of its values.
pub fn explanations(
    egraph: &EGraph,
    rules: &[Rule],
    run: &Run,
    before: (&Graph, &[Id]),
    after: (&Graph, &[(Id, ENode)]),
) -> Explanations {
    let mut steps: BTreeMap<Id, Vec<&Step>> = BTreeMap::new();
    for step in &run.steps {
        steps.entry(egraph.find(step.class)).or_default().push(step);
    }
    let mut was: BTreeMap<Id, Vec<OpId>> = BTreeMap::new();
    for (v, _) in before.0.values() {
        let id = before.1[v.index()];
        was.entry(egraph.find(id)).or_default().push(egraph.id_to_node(id).op);
    }
    let explain = |(node, (class, made)): (&sardonyx_dialects::sdx::Node, &(Id, ENode))| {
        let (none, nothing) = (vec![], vec![]);
        let steps = steps.get(class).unwrap_or(&none);
        let path = path(was.get(class).unwrap_or(&nothing), made.op, steps);
        let op = |id: OpId| egraph.analysis.table.op(id).text();
        let link = |s: &&Step| Link {
            found: s.found,
            rule: rules[s.rule].name,
            class: rules[s.rule].class.name(),
            before: op(s.from),
            after: op(s.to),
        };
        let chain = path.iter().map(link).collect();
        Explanation { origins: node.origins.clone(), operation: node.op.text(), chain }
    };
    Explanations { nodes: after.0.nodes.iter().zip(after.1).map(explain).collect() }
}

/// Returns the shortest chain of a class's steps from one of the old function's operations `from` to the operation
/// `to`; empty if the node with `to` was created as an operand of another value's new expression.
fn path<'a>(from: &[OpId], to: OpId, steps: &[&'a Step]) -> Vec<&'a Step> {
    let mut came: BTreeMap<OpId, Option<&'a Step>> = from.iter().map(|&op| (op, None)).collect();
    let mut queue: VecDeque<OpId> = from.iter().copied().collect();
    // A class that a rule created for another value starts with its own first step.
    if from.is_empty() {
        queue.extend(steps.first().map(|s| s.from));
        came.extend(queue.iter().map(|&op| (op, None)));
    }
    while let Some(op) = queue.pop_front() {
        for step in steps.iter().filter(|s| s.from == op) {
            came.entry(step.to).or_insert_with(|| {
                queue.push_back(step.to);
                Some(step)
            });
        }
    }
    let (mut out, mut at) = (vec![], to);
    while let Some(Some(step)) = came.get(&at) {
        out.push(*step);
        at = step.from;
    }
    out.reverse();
    out
}

impl Explanations {
    /// Lines of text about the nodes that originate from the ONNX node `name`; empty if there are none.
    pub fn lines_for(&self, name: &str) -> Vec<String> {
        let mut out = vec![];
        for e in self.nodes.iter().filter(|e| e.origins.iter().any(|o| o == name)) {
            out.push(format!("{}: {}", name, e.operation));
            if e.chain.is_empty() {
                out.push("  as it was".into());
            }
            out.extend(e.chain.iter().map(|l| format!("  {} => {} by {} ({})", l.before, l.after, l.rule, l.class)));
        }
        out
    }
}
