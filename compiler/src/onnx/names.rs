//! A wanted name  =>  one that nothing else has

use super::proto::{GraphProto, NodeProto};
use std::collections::{HashMap, HashSet};

/// Hands out names once. Names of the file are reserved: a made-up name never takes one away from its owner.
#[derive(Default)]
pub struct Names {
    reserved: HashSet<String>,
    taken: HashSet<String>,
    /// Where to go on counting, so that a thousand nodes of one name do not cost a million tries.
    next: HashMap<String, usize>,
}

impl Names {
    /// For a name that stands in the file: the first to ask gets it.
    pub fn claim(&mut self, name: &str) -> String {
        match self.taken.insert(name.to_string()) {
            true => name.to_string(),
            false => self.fresh(name),
        }
    }

    /// `base`, or `base_1`, `base_2`, … where that is taken.
    pub fn fresh(&mut self, base: &str) -> String {
        let free = |names: &Names, name: &str| !names.reserved.contains(name) && !names.taken.contains(name);
        let mut name = base.to_string();
        while !free(self, &name) {
            let next = self.next.entry(base.to_string()).or_insert(0);
            *next += 1;
            name = format!("{base}_{next}");
        }
        self.taken.insert(name.clone());
        name
    }

    pub fn reserve(&mut self, name: &str) {
        if !name.is_empty() {
            self.reserved.insert(name.to_string());
        }
    }
}

/// Reserves the names that the model's graph and its subgraphs use; function bodies are renamed, so theirs are free.
pub fn reserve_all(graph: &GraphProto, nodes: &mut Names, values: &mut Names) {
    graph.input.iter().chain(&graph.output).for_each(|v| values.reserve(&v.name));
    graph.initializer.iter().for_each(|t| values.reserve(&t.name));
    graph.sparse_initializer.iter().for_each(|t| values.reserve(super::sparse::sparse_name(t)));
    for node in &graph.node {
        nodes.reserve(&node.name);
        node.input.iter().chain(&node.output).for_each(|name| values.reserve(name));
        subgraphs(node).for_each(|graph| reserve_all(graph, nodes, values));
    }
}

fn subgraphs(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    node.attribute.iter().flat_map(|a| a.g.as_deref().into_iter().chain(&a.graphs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_names_avoid_the_files_names() {
        let mut names = Names::default();
        names.reserve("Add_1");
        assert_eq!(names.fresh("Add_1"), "Add_1_1");
        assert_eq!(names.claim("Add_1"), "Add_1");
        assert_eq!(names.claim("Add_1"), "Add_1_2");
        assert_eq!(names.fresh("Mul_0"), "Mul_0");
    }
}
