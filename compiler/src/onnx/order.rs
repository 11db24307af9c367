//! nodes in any order  =>  topological order; undefined names, duplicate names and cycles are refused

use super::model::{Attribute, Graph, Node};
use sardonyx_base::{Error, Result};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};

/// Checks a model's graph and its subgraphs, and sorts the nodes of each. Errors: E0104.
pub fn check(graph: &mut Graph) -> Result<()> {
    let mut outputs = HashSet::new();
    if let Some(output) = graph.outputs.iter().find(|o| !outputs.insert(o.name.as_str())) {
        return Err(malformed(format!("`{}` is an output of the model twice", output.name), "list every output once"));
    }
    check_in(graph, None).map(drop)
}

/// For each value of a graph, the index of the node that defines it, or [`GIVEN`].
type Defined = HashMap<String, usize>;

/// Marks values that are defined by an input or an initializer.
const GIVEN: usize = usize::MAX;

struct Scope<'a> {
    defined: &'a Defined,
    outer: Option<&'a Scope<'a>>,
}

impl Scope<'_> {
    fn has(&self, name: &str) -> bool {
        self.defined.contains_key(name) || self.outer.is_some_and(|outer| outer.has(name))
    }
}

/// Checks and sorts a graph. Returns the names that it uses from enclosing graphs.
fn check_in(graph: &mut Graph, outer: Option<&Scope>) -> Result<BTreeSet<String>> {
    let defined = definitions(graph)?;
    let scope = Scope { defined: &defined, outer };
    let mut free = BTreeSet::new();
    let mut needs: Vec<Vec<usize>> = Vec::with_capacity(graph.nodes.len());
    for node in &mut graph.nodes {
        let mut used: BTreeSet<String> = node.inputs.iter().flatten().cloned().collect();
        for subgraph in node.attributes.values_mut().flat_map(Attribute::graphs_mut) {
            used.append(&mut check_in(subgraph, Some(&scope)).map_err(|e| e.node(&node.name))?);
        }
        let mut from = vec![];
        for name in used {
            match defined.get(&name) {
                Some(&GIVEN) => {}
                Some(&i) => from.push(i),
                None if scope.has(&name) => drop(free.insert(name)),
                None => return Err(undefined(&name, "is used").node(&node.name)),
            }
        }
        needs.push(from);
    }
    for output in &graph.outputs {
        if !scope.has(&output.name) {
            return Err(undefined(&output.name, &format!("is an output of graph `{}`", graph.name)));
        }
        if !defined.contains_key(&output.name) {
            free.insert(output.name.clone());
        }
    }
    sort(graph, &needs)?;
    Ok(free)
}

fn definitions(graph: &Graph) -> Result<Defined> {
    let inputs = graph.inputs.iter().map(|v| (&v.name, GIVEN));
    let initializers = graph.initializers.iter().map(|i| (&i.name, GIVEN));
    let outputs = graph.nodes.iter().enumerate().flat_map(|(i, n)| n.outputs.iter().flatten().map(move |o| (o, i)));
    let mut defined = Defined::new();
    for (name, by) in inputs.chain(initializers).chain(outputs) {
        if let Some(first) = defined.insert(name.clone(), by) {
            let who = |by: usize| match graph.nodes.get(by) {
                Some(node) => format!("node `{}`", node.name),
                None => "an input or initializer".to_string(),
            };
            let message = format!("`{name}` is defined twice, by {} and by {}", who(first), who(by));
            let e = malformed(message, "every value of a graph needs a name of its own");
            return Err(match graph.nodes.get(by) {
                Some(node) => e.node(&node.name),
                None => e.node(name),
            });
        }
    }
    Ok(defined)
}

/// Kahn's algorithm. Ties go to the node that comes first in the file, so that a sorted file stays as it is.
fn sort(graph: &mut Graph, needs: &[Vec<usize>]) -> Result<()> {
    if needs.iter().enumerate().all(|(i, from)| from.iter().all(|&j| j < i)) {
        return Ok(());
    }
    let mut users: Vec<Vec<usize>> = vec![vec![]; needs.len()];
    for (i, from) in needs.iter().enumerate() {
        from.iter().for_each(|&j| users[j].push(i));
    }
    let mut missing: Vec<usize> = needs.iter().map(Vec::len).collect();
    let mut ready: BinaryHeap<Reverse<usize>> = (0..needs.len()).filter(|&i| missing[i] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(needs.len());
    while let Some(Reverse(i)) = ready.pop() {
        order.push(i);
        for &user in &users[i] {
            missing[user] -= 1;
            if missing[user] == 0 {
                ready.push(Reverse(user));
            }
        }
    }
    if let Some(start) = missing.iter().position(|&n| n > 0) {
        return Err(cycle(graph, needs, &missing, start));
    }
    let mut nodes: Vec<Option<Node>> = std::mem::take(&mut graph.nodes).into_iter().map(Some).collect();
    graph.nodes = order.into_iter().filter_map(|i| nodes[i].take()).collect();
    Ok(())
}

/// Reports a cycle. Every unsorted node depends on another unsorted node, so following these dependencies must lead
/// into a cycle.
fn cycle(graph: &Graph, needs: &[Vec<usize>], missing: &[usize], start: usize) -> Box<Error> {
    let mut path = vec![];
    let mut seen: HashMap<usize, usize> = HashMap::new();
    let mut at = start;
    while !seen.contains_key(&at) {
        seen.insert(at, path.len());
        path.push(at);
        match needs[at].iter().find(|&&j| missing[j] > 0) {
            Some(&j) => at = j,
            None => return Error::defect("a node waits for nothing, but was not sorted"),
        }
    }
    // The path goes from users to producers; the message shows the direction of the data.
    let mut names: Vec<&str> = path[seen[&at]..].iter().rev().map(|&i| graph.nodes[i].name.as_str()).collect();
    let first = names[0].to_string();
    let n_more = names.len().saturating_sub(NAMES_SHOWN);
    names.truncate(NAMES_SHOWN);
    let more = if n_more > 0 { format!(" -> {n_more} more") } else { String::new() };
    let message = format!("the graph has a cycle: {}{more} -> {first}", names.join(" -> "));
    malformed(message, "use a Loop or Scan for values that depend on their own past").node(first)
}

const NAMES_SHOWN: usize = 12;

fn undefined(name: &str, how: &str) -> Box<Error> {
    malformed(
        format!("`{name}` {how}, but nothing defines it"),
        "it has to be an input, an initializer, or an output of a node of the graph or of one around it",
    )
}

fn malformed(message: String, help: &str) -> Box<Error> {
    Error::user("E0104", message).help(help)
}
