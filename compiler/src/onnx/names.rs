//! a desired name  =>  a unique name

use super::proto::{GraphProto, NodeProto};
use std::collections::{HashMap, HashSet};

/// Allocates unique names. Names in the file are reserved, so that a generated name never collides with one of them.
#[derive(Default)]
pub struct Names {
    reserved: HashSet<String>,
    taken: HashSet<String>,
    /// Next suffix to try for each base name, so that a thousand nodes of one name do not need a million attempts.
    next: HashMap<String, usize>,
}

impl Names {
    /// Allocates a name that occurs in the file: the first caller gets the name itself.
    pub fn claim(&mut self, name: &str) -> String {
        match self.taken.insert(name.to_string()) {
            true => name.to_string(),
            false => self.fresh(name),
        }
    }

    /// Allocates `base`, or else the first free one of `base_1`, `base_2`, ….
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

/// Reserves the names in the model's graph and its subgraphs, but not in function bodies, which are renamed.
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
