//! a program, an axis of the mesh  =>  the strategies of each operation along it
//!
//! A value computed from parameters and constants alone is available in any form: it has no strategies, as each rank
//! loads its own part.

use crate::shard::{Ranks, Signature, Split, State, fixed_values, head_units, signature};
use crate::usual::Sizes;
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::sdx::{Graph, Node, Op, Value};

pub struct Space<'g> {
    pub graph: &'g Graph,
    pub ranks: Ranks,
    pub fixed: Vec<bool>,
    /// By value: the signatures with which it can be computed. The first one computes the whole value on every rank.
    /// Fixed and dead values have none.
    pub ways: Vec<Vec<Signature>>,
    /// By value: its consumers.
    pub readers: Vec<Vec<Value>>,
    /// By value: whether it is an output.
    is_output: Vec<bool>,
    pub elements: Vec<f64>,
    /// By value: the number of multiplications of a contraction; 0 for other operations.
    pub products: Vec<f64>,
    sizes: &'g Sizes,
}

/// Maximum number of strategies of an operation; later ones are dropped.
const WAYS_MAX: usize = 16;

impl<'g> Space<'g> {
    pub fn new(graph: &'g Graph, ranks: Ranks, sizes: &'g Sizes) -> Result<Space<'g>> {
        let n = graph.nodes.len();
        let mut space = Space {
            graph,
            ranks,
            fixed: fixed_values(graph),
            ways: vec![vec![]; n],
            readers: vec![vec![]; n],
            is_output: vec![false; n],
            elements: vec![],
            products: vec![],
            sizes,
        };
        let live = graph.live();
        for (v, node) in graph.values() {
            space.elements.push(space.size(&node.ty.elements())?);
            space.products.push(products(graph, node, &|d| space.size(d))?);
            if !live[v.index()] || space.fixed[v.index()] {
                continue;
            }
            for arg in &node.args {
                if space.readers[arg.index()].last() != Some(&v) {
                    space.readers[arg.index()].push(v);
                }
            }
            space.ways[v.index()] = space.ways_of(v, node)?;
        }
        for (_, v) in &graph.outputs {
            space.is_output[v.index()] = true;
        }
        Ok(space)
    }

    fn size(&self, d: &Dim) -> Result<f64> {
        Ok(d.eval_named(&|name| self.sizes.get(name).copied())? as f64)
    }

    /// Returns whether the value is an output that the caller receives whole. A cache that grows in place stays
    /// distributed instead.
    pub fn is_wanted_whole(&self, v: Value) -> bool {
        self.is_output[v.index()] && !matches!(self.graph.node(v).op, Op::Append { .. })
    }

    /// Returns the fraction of a value held by the rank that holds most of it.
    pub fn share(&self, state: &State) -> f64 {
        match state {
            State::Whole | State::Partial(_) => 1.0,
            State::Split(split) => self.share_of(split),
            State::Halo(halo) => self.share_of(&halo.places),
        }
    }

    fn share_of(&self, split: &Split) -> f64 {
        match self.size(&split.count) {
            Ok(count) if count > 0.0 => (count / self.ranks.size as f64).ceil() / count,
            Ok(_) | Err(_) => 1.0,
        }
    }

    fn ways_of(&self, v: Value, node: &Node) -> Result<Vec<Signature>> {
        let mut ways = vec![Signature::replicated(node)];
        let mut add = |arg: usize, state: &State| {
            let way = signature(self.graph, &self.ranks, node, arg, state);
            if let Some(way) = way.filter(|way| ways.len() < WAYS_MAX && !ways.contains(way) && self.is_useful(way)) {
                ways.push(way);
            }
        };
        if matches!(node.op, Op::Host(_) | Op::Bind { .. } | Op::Input { .. }) {
            return Ok(ways);
        }
        for (i, arg) in node.args.iter().enumerate() {
            for way in &self.ways[arg.index()] {
                add(i, &way.result);
            }
        }
        // Where the result's columns are reshaped into heads, they are split in units of whole heads.
        if let Op::Contract(spec) = &node.op {
            for (dim, letter) in spec.result.iter().enumerate() {
                let Some(units) = head_units(self.graph, v, dim) else { continue };
                let sides = [&spec.left, &spec.right];
                let of =
                    sides.iter().enumerate().find_map(|(i, side)| Some((i, side.iter().position(|c| c == letter)?)));
                if let Some((arg, at)) = of {
                    add(arg, &State::Split(Split::new(at, units, &self.ranks)));
                }
            }
        }
        for (i, arg) in node.args.iter().enumerate() {
            let ty = self.graph.ty(*arg);
            for (dim, extent) in ty.dims.iter().enumerate() {
                if self.size(extent)? >= self.ranks.size as f64 {
                    add(i, &State::Split(Split::plain(dim, extent, &self.ranks)));
                }
            }
        }
        Ok(ways)
    }

    /// Whether every split operand leaves each rank with less than the whole operand.
    fn is_useful(&self, way: &Signature) -> bool {
        way.operands.iter().all(|s| !matches!(s, State::Split(_)) || self.share(s) < 1.0)
    }

    /// Returns the fraction of the work done by the rank that does most of it.
    pub fn work_share(&self, way: &Signature) -> f64 {
        way.operands.iter().map(|s| self.share(s)).fold(1.0, f64::min)
    }

    /// Returns the states that a consumer needs of value `v`, one for each operand that is `v`.
    pub fn needs<'w>(&'w self, reader: Value, way: &'w Signature, v: Value) -> impl Iterator<Item = &'w State> {
        let args = self.graph.node(reader).args.iter().zip(&way.operands);
        args.filter(move |(arg, _)| **arg == v).map(|(_, state)| state)
    }
}

/// Returns the total number of multiplications of a contraction, or 0 for other operations.
pub fn products(graph: &Graph, node: &Node, size: &dyn Fn(&Dim) -> Result<f64>) -> Result<f64> {
    let Op::Contract(spec) = &node.op else { return Ok(0.0) };
    let mut all = size(&node.ty.elements())?;
    for letter in spec.summed() {
        let sides = [&spec.left, &spec.right].into_iter().zip(&node.args);
        let extent = sides
            .into_iter()
            .find_map(|(side, arg)| side.iter().position(|c| *c == letter).map(|at| &graph.ty(*arg).dims[at]));
        all *= extent.map_or(Ok(1.0), size)?;
    }
    Ok(all)
}
