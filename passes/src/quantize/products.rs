//! a graph  =>  the products whose weights are rounded to few bits

use super::codes::Form;
use super::form;
use super::sites::{Site, constants, last_products, site};
use crate::calibrated::Meaning;
use crate::options::{Options, Quantize};
use sardonyx_dialects::sdx::{Graph, Node, Value};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// A product of weights, which have a scale for each group along the axis that is summed over.
#[derive(Clone, Debug)]
pub struct Product {
    pub node: Value,
    /// What the weights are multiplied with, and the axis of it that is summed over.
    pub left: (Value, usize),
    /// Which argument of the node the weights are.
    pub operand: usize,
    pub weights: Value,
    /// The axis of the weights that is summed over.
    pub axis: usize,
    /// The same in all entry points of a model.
    pub meaning: Meaning,
    /// The sizes of the weights before the axis, of it and behind it.
    pub parts: [usize; 3],
    pub bits: u32,
    /// Weights of a group.
    pub size: usize,
}

/// The products of a graph that calibration can round.
pub fn products(graph: &Graph, options: &Options) -> Vec<Product> {
    if matches!(options.quantize, Quantize::None | Quantize::Lossless) {
        return vec![];
    }
    let (constant, last) = (constants(graph), last_products(graph));
    let product = |(v, node): (Value, &Node)| {
        let Ok(Some(Site::Product { summed, weights: operand })) = site(graph, node, &constant) else { return None };
        if options.keeps(&node.origins) {
            return None;
        }
        let value = node.args[operand];
        let form = form(options, (graph, value), &summed[operand], last[v.index()]);
        let (&[left_axis], &[axis], Form::Groups { bits, size }) =
            (&summed[1 - operand][..], &summed[operand][..], form)
        else {
            return None;
        };
        let dims = graph.ty(value).static_dims()?;
        let parts = [dims[..axis].iter().product(), dims[axis], dims[axis + 1..].iter().product()];
        let left = (node.args[1 - operand], left_axis);
        let meaning = meaning(graph, value, axis);
        Some(Product { node: v, left, operand, weights: value, axis, meaning, parts, bits, size: size as usize })
    };
    graph.values().filter_map(product).collect()
}

/// What weights are, whatever their number: their operations down to the names of parameters, and the axis that is summed over.
pub(super) fn meaning(graph: &Graph, weights: Value, axis: usize) -> Meaning {
    fn hash(graph: &Graph, v: Value) -> u64 {
        let node = graph.node(v);
        let mut hasher = DefaultHasher::new();
        (&node.op, &node.ty).hash(&mut hasher);
        node.args.iter().for_each(|arg| hash(graph, *arg).hash(&mut hasher));
        hasher.finish()
    }
    Meaning { value: hash(graph, weights), axis }
}
