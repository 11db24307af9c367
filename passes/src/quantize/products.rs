//! a graph  =>  the contractions whose weights can be quantised by calibration

use super::codes::Form;
use super::form;
use super::sites::{Other, Site, constants, last_products, site, source};
use crate::calibrated::{CodeType, Meaning};
use crate::options::{Options, Quantize};
use sardonyx_dialects::sdx::{Graph, Node, Value};
use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// A contraction with weights that have a scale for each group along the reduction axis.
#[derive(Clone, Debug)]
pub struct Product {
    /// Result of the contraction.
    pub node: Value,
    /// The operand that the weights are multiplied by, and its reduction axis.
    pub left: (Value, usize),
    /// Index of the weights among the node's arguments.
    pub operand: usize,
    /// The weights, with static dimensions.
    pub weights: Value,
    /// The reduction axis of the weights.
    pub axis: usize,
    /// Identifies the weights; equal in all entry points of a model.
    pub meaning: Meaning,
    /// Product of the weights' dimensions before the axis, extent of the axis, and product of the dimensions after it.
    pub parts: [usize; 3],
    /// Type of the codes.
    pub code: CodeType,
    /// Number of weights in a group.
    pub size: usize,
}

/// Returns the contractions of a graph that calibration can quantise.
pub fn products(graph: &Graph, options: &Options) -> Vec<Product> {
    let any = match options.quantize {
        Quantize::None | Quantize::Lossless => return vec![],
        Quantize::Int8 | Quantize::Int4 | Quantize::Int3 => false,
        Quantize::Fp8 | Quantize::Auto => true,
    };
    let (constant, last, meanings) = (constants(graph), last_products(graph), Meanings::new(graph));
    let product = |(v, node): (Value, &Node)| {
        let Ok(Some(Site::Product { summed, weights: operand, other })) = site(graph, node, &constant) else {
            return None;
        };
        if other == Other::Window || options.keeps(&node.origins) {
            return None;
        }
        let value = node.args[operand];
        let (&[left_axis], &[axis]) = (&summed[1 - operand][..], &summed[operand][..]) else { return None };
        let dims = graph.ty(value).static_dims()?;
        let (code, size) = match form(options, (graph, value), &[axis], last[v.index()]) {
            Form::Groups { code, size } => (code, size),
            Form::Whole(code) if any => (code, dims[axis] as i64),
            Form::Whole(_) | Form::Grid(_) => return None,
        };
        let parts = [dims[..axis].iter().product(), dims[axis], dims[axis + 1..].iter().product()];
        let left = (node.args[1 - operand], left_axis);
        let meaning = meanings.weights(value, axis);
        Some(Product { node: v, left, operand, weights: value, axis, meaning, parts, code, size: size as usize })
    };
    graph.values().filter_map(product).collect()
}

/// A table whose rows are looked up.
#[derive(Clone, Debug)]
pub struct Table {
    /// Result of the lookup.
    pub node: Value,
    /// The table, a constant with two static dimensions.
    pub table: Value,
    /// Number and length of the rows.
    pub dims: [usize; 2],
    /// Identifies the table; equal in all entry points of a model.
    pub meaning: Meaning,
}

/// Returns the tables of a graph whose rows may be quantised to 8-bit codes.
pub fn tables(graph: &Graph, options: &Options) -> Vec<Table> {
    let (constant, meanings) = (constants(graph), Meanings::new(graph));
    let table = |(v, node): (Value, &Node)| {
        let Ok(Some(Site::Rows)) = site(graph, node, &constant) else { return None };
        let table = node.args[0];
        let &[rows, length] = &graph.ty(table).static_dims()?[..] else { return None };
        let meaning = meanings.weights(table, 1);
        (!options.keeps(&node.origins)).then_some(Table { node: v, table, dims: [rows, length], meaning })
    };
    graph.values().filter_map(table).collect()
}

/// Returns the values that are multiplied by weights but have no rows that are contiguous in memory, such as images of
/// convolutions, each with the hash of its definition.
pub fn images(graph: &Graph, options: &Options) -> Vec<(Value, u64)> {
    let (constant, meanings) = (constants(graph), Meanings::new(graph));
    let mut found = BTreeMap::new();
    for (_, node) in graph.values() {
        if let Ok(Some(Site::Product { weights, other: Other::Pixels | Other::Window, .. })) =
            site(graph, node, &constant)
            && !options.keeps(&node.origins)
        {
            let source = source(graph, node.args[1 - weights]);
            found.insert(source, meanings.value(source));
        }
    }
    found.into_iter().collect()
}

/// Hashes of the expressions that define values, down to the names of parameters; independent of the numbering of
/// values.
pub(super) struct Meanings(Vec<u64>);

impl Meanings {
    pub fn new(graph: &Graph) -> Meanings {
        let mut known: Vec<u64> = vec![];
        for (_, node) in graph.values() {
            let mut hasher = DefaultHasher::new();
            (&node.op, &node.ty).hash(&mut hasher);
            node.args.iter().for_each(|arg| known[arg.index()].hash(&mut hasher));
            known.push(hasher.finish());
        }
        Meanings(known)
    }

    pub fn value(&self, v: Value) -> u64 {
        self.0[v.index()]
    }

    /// Identifies weights that are reduced over this axis.
    pub fn weights(&self, v: Value, axis: usize) -> Meaning {
        Meaning { value: self.0[v.index()], axis }
    }
}
