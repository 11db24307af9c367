//! where splitting begins: at a product with a parameter whose other operand every rank has
//!
//! The columns of the parameter are split. The next product along these columns then has a part of each sum, which one
//! all-reduce makes whole: the rule for pairs of products. Columns that are heads afterwards are split by whole heads.

use super::algebra::signature;
use super::redistribute::Local;
use super::split::{Split, State};
use crate::usual::USUAL;
use sardonyx_base::Dim;
use sardonyx_base::dim::product;
use sardonyx_dialects::sdx::{ContractSpec, Graph, Node, Op, TensorType, Value};
use std::collections::HashMap;

/// A product is worth an exchange of its result where that takes less time than it saves: multiply-adds per second of a
/// rank, seconds until all have met, bytes per second that are exchanged. A processor's core, and what cores share.
const PRODUCTS: f64 = 25e9;
const LATENCY: f64 = 5e-6;
const BANDWIDTH: f64 = 4e9;

/// A table of fewer bytes is on every rank.
const TABLE_BYTES_MIN: i64 = 16 << 20;

impl Local<'_> {
    /// The operand of a product by which it is split, and how.
    pub fn seed(&self, v: Value, spec: &ContractSpec) -> Option<(usize, Split)> {
        if !self.seeds {
            return None;
        }
        let node = self.graph.node(v);
        let sides = [(&spec.left, node.args[0]), (&spec.right, node.args[1])];
        let [(own, weight), (other, _)] = match sides.map(|(_, v)| self.is_fixed(v)) {
            [false, true] => [sides[1], sides[0]],
            [true, false] => sides,
            _ => return None,
        };
        let extent = |c: char| {
            let at = own.iter().position(|l| *l == c)?;
            self.graph.ty(weight).dims[at].as_const()
        };
        let depth: i64 = own.iter().filter(|c| !spec.result.contains(c)).map(|c| extent(*c).unwrap_or(1)).product();
        let elements = node.ty.elements().eval(&|_| Some(USUAL.other)).ok()? as f64;
        let (mine, saved) = (elements * depth as f64, 1.0 - 1.0 / self.ranks.size as f64);
        if mine * saved / PRODUCTS < LATENCY + elements * node.ty.dtype.bytes() as f64 / BANDWIDTH {
            return None;
        }
        let columns = own.iter().filter(|c| spec.result.contains(c) && !other.contains(c));
        let (extent, letter) = columns.filter_map(|c| Some((extent(*c)?, *c))).max_by_key(|(n, _)| *n)?;
        if extent < self.ranks.size {
            return None;
        }
        let dim = spec.result.iter().position(|c| *c == letter)?;
        let units =
            head_units(self.graph, v, dim).unwrap_or([Dim::constant(1), Dim::constant(extent), Dim::constant(1)]);
        let (arg, at) = (usize::from(weight == node.args[1]), own.iter().position(|c| *c == letter)?);
        Some((arg, Split::new(at, units, &self.ranks)))
    }

    /// Whether something is gained by leaving a value split: a later product sums over the dimension, and nothing looks along
    /// it before.
    pub fn stays(&self, v: Value, split: &Split) -> bool {
        let mut summed = false;
        let looks_along = self.follow(v, split, |node, at, has| {
            summed |= matches!(&node.op, Op::Contract(spec) if result_dim(spec, at, has).is_none());
            matches!(&node.op, Op::Reduce { axes, .. } if axes.contains(&has.dim))
        });
        !looks_along && summed
    }

    /// Whether the products that read a value have it split as it is here, perhaps in other dimensions: then the other
    /// operand, whose units are as many, is split alike. That is so too where each rank has equally many units; not where
    /// ranks have fewer or no heads of keys of which each serves several heads of queries.
    pub fn meets_its_like(&self, v: Value, split: &Split) -> bool {
        let mut alike = true;
        self.follow(v, split, |node, _, has| {
            alike &= !matches!(node.op, Op::Contract(_)) || has.unit.is_const(1);
            matches!(node.op, Op::Contract(_))
        });
        alike || split.count.is_const(self.ranks.size)
    }

    /// Shows who reads a split value, as which operand and how it is split then, and who reads what they make of it; until
    /// `ends` says so. Gives whether it did.
    fn follow(&self, v: Value, split: &Split, mut ends: impl FnMut(&Node, usize, &Split) -> bool) -> bool {
        let mut seen: HashMap<Value, Split> = HashMap::from([(v, split.clone())]);
        for (reader, node) in self.graph.values().skip(v.index() + 1) {
            let Some((at, has)) = node.args.iter().enumerate().find_map(|(i, a)| Some((i, seen.get(a)?))) else {
                continue;
            };
            if ends(node, at, has) {
                return true;
            }
            let after = signature(self.graph, &self.ranks, node, at, &State::Split(has.clone())).map(|s| s.result);
            if let Some(State::Split(split)) = after {
                seen.insert(reader, split);
            }
        }
        false
    }

    /// Whether a table is worth to be split by rows, so that each rank has some and looks for those: where it is large. That
    /// saves memory, not time.
    pub fn splits_table(&self, table: &TensorType, axis: usize) -> bool {
        let rows = table.dims[axis].as_const().unwrap_or(0);
        let bytes = table.elements().as_const().unwrap_or(0).saturating_mul(table.dtype.bytes() as i64);
        self.seeds && rows >= self.ranks.size * self.ranks.size && bytes >= TABLE_BYTES_MIN
    }
}

/// What the first reshape that reads a value, perhaps behind maps, makes of a dimension: of several factors the largest
/// but the last, which are the heads where the last one is what a head has. Slices of it may be read instead: queries, keys
/// and values of one product.
pub fn head_units(graph: &Graph, v: Value, dim: usize) -> Option<[Dim; 3]> {
    let mut seen: HashMap<Value, (usize, Dim)> = HashMap::from([(v, (dim, Dim::constant(1)))]);
    for (reader, node) in graph.values().skip(v.index() + 1) {
        let Some((arg, (dim, runs))) = node.args.iter().find_map(|a| Some((*a, seen.get(a)?.clone()))) else {
            continue;
        };
        let from = &graph.ty(arg).dims;
        let (dim, runs) = match &node.op {
            Op::Map(_) | Op::Convert(_) => (dim, runs),
            Op::Transpose { perm } => (perm.iter().position(|p| *p == dim)?, runs),
            Op::Slice { starts, .. } => {
                let (all, some) = (&from[dim], &node.ty.dims[dim]);
                starts[dim].exact_div(some)?;
                (dim, runs * all.exact_div(some)?)
            }
            Op::Reshape => match factors(&from[dim], from, &node.ty.dims, dim)? {
                (at, [_]) => (at, runs),
                (_, inner) => {
                    let before_last = 0..inner.len() - 1;
                    let (_, at) = before_last.filter_map(|i| Some((inner[i].as_const()?, i))).max()?;
                    return Some([runs * product(&inner[..at]), inner[at].clone(), product(&inner[at + 1..])]);
                }
            },
            _ => return None,
        };
        seen.insert(reader, (dim, runs));
    }
    None
}

/// The dimension of a product's result that an operand's split dimension is; none where it is summed over.
fn result_dim(spec: &ContractSpec, at: usize, has: &Split) -> Option<usize> {
    let letters = if at == 0 { &spec.left } else { &spec.right };
    spec.result.iter().position(|c| *c == letters[has.dim])
}

/// The dimensions that a reshape makes of one: from which on, and which.
fn factors<'d>(extent: &Dim, from: &[Dim], to: &'d [Dim], dim: usize) -> Option<(usize, &'d [Dim])> {
    let before = product(&from[..dim]);
    let first = (0..to.len()).find(|at| product(&to[..*at]) == before)?;
    let end = (first + 1..=to.len()).find(|end| product(&to[first..*end]) == *extent)?;
    Some((first, &to[first..end]))
}
