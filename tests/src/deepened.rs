//! a model of a few layers  =>  the same model with more layers; each added layer is a copy of the second, renamed

use sardonyx::onnx::proto::{ModelProto, NodeProto, ValueInfoProto};
use std::collections::BTreeSet;

/// Describes how the names in a model contain the number of a layer. Layers are counted from 0.
pub struct Layers {
    /// Text before the number, such as `/model/layers.`.
    pub prefix: &'static str,
    /// Name of the value that a layer passes to the next one, without the prefix, the layer's number and `/`.
    pub carried: &'static str,
    /// Texts before the layer's number in the names of states: one for inputs, one for the outputs that continue them.
    pub states: &'static [&'static str],
    /// Number of layers of the given model, at least 2.
    pub n: usize,
}

impl Layers {
    /// Returns the model with `n` layers; `None` if no node of the second or the last layer is found by its name.
    pub fn deepened(&self, model: &ModelProto, n: usize) -> Option<ModelProto> {
        let mut out = model.clone();
        let graph = out.graph.as_mut()?;
        let of_layer = |node: &NodeProto, k: usize| node.name.contains(&self.numbered(k));
        let second: Vec<NodeProto> = graph.node.iter().filter(|x| of_layer(x, 1)).cloned().collect();
        let own: BTreeSet<&String> = second.iter().flat_map(|x| &x.output).collect();
        let copies = (self.n..n).flat_map(|k| {
            let rename = |name: &mut String| *name = self.renamed(name, k, own.contains(name));
            let mut nodes = second.clone();
            for node in &mut nodes {
                node.name = node.name.replace(&self.numbered(1), &self.numbered(k));
                node.input.iter_mut().chain(&mut node.output).for_each(rename);
            }
            nodes
        });
        let copies: Vec<NodeProto> = copies.collect();
        let end = graph.node.iter().rposition(|x| of_layer(x, self.n - 1))? + 1;
        let (last, new_last) = (self.handed_on(self.n - 1), self.handed_on(n - 1));
        for input in graph.node[end..].iter_mut().flat_map(|x| &mut x.input).filter(|i| **i == last) {
            input.clone_from(&new_last);
        }
        graph.node.splice(end..end, copies);
        let more = |ports: &[ValueInfoProto]| -> Vec<ValueInfoProto> {
            let of_second = ports.iter().filter(|p| self.states.iter().any(|s| p.name.starts_with(&format!("{s}1."))));
            let of_second: Vec<_> = of_second.cloned().collect();
            let copy = |k: usize| {
                let one = move |p: &ValueInfoProto| ValueInfoProto { name: self.state(&p.name, k), ..p.clone() };
                of_second.iter().map(one).collect::<Vec<_>>()
            };
            (self.n..n).flat_map(copy).collect()
        };
        let (inputs, outputs) = (more(&graph.input), more(&graph.output));
        graph.input.extend(inputs);
        graph.output.extend(outputs);
        (!second.is_empty() && !graph.output.is_empty()).then_some(out)
    }

    fn numbered(&self, k: usize) -> String {
        format!("{}{k}/", self.prefix)
    }

    fn handed_on(&self, k: usize) -> String {
        format!("{}{}", self.numbered(k), self.carried)
    }

    /// Returns the name in layer `k` that corresponds to a name of the second layer. `own` says whether a node of the
    /// second layer computes the named value; weights and other shared values keep their names.
    fn renamed(&self, name: &str, k: usize, own: bool) -> String {
        let state = self.state(name, k);
        match name {
            _ if name == self.handed_on(0) => self.handed_on(k - 1),
            _ if state != name => state,
            _ if !own => name.to_string(),
            _ if name.contains(&self.numbered(1)) => name.replace(&self.numbered(1), &self.numbered(k)),
            _ => format!("{name}_{k}"),
        }
    }

    fn state(&self, name: &str, k: usize) -> String {
        let of = |s: &&str| Some(format!("{s}{k}.{}", name.strip_prefix(&format!("{s}1."))?));
        self.states.iter().find_map(of).unwrap_or_else(|| name.to_string())
    }
}
