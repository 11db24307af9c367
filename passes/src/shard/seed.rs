//! the start of splitting: a contraction of a whole operand with a parameter
//!
//! The columns of the parameter are split. The next contraction then reduces over these columns, so each rank has
//! partial sums, which a single all-reduce completes: the usual pairing of contractions. Columns that later become
//! heads are split in whole heads.

use super::algebra::signature;
use super::redistribute::{GATHERED_BYTES_MIN, Local};
use super::split::{Split, State};
use crate::usual::USUAL;
use sardonyx_base::Dim;
use sardonyx_base::dim::product;
use sardonyx_dialects::sdx::{ContractSpec, Graph, Node, Op, TensorType, Value};
use std::collections::HashMap;

/// Splitting a contraction pays off if it saves more time than exchanging the result takes. Assumed rates for cores of
/// a processor: multiply-adds per second of a rank, seconds until all ranks have met, bytes per second exchanged
/// between cores.
const PRODUCTS: f64 = 25e9;
pub const LATENCY: f64 = 5e-6;
pub const BANDWIDTH: f64 = 4e9;

/// Every rank holds tables of fewer bytes whole.
const TABLE_BYTES_MIN: i64 = 16 << 20;

impl Local<'_> {
    /// Returns the index of a contraction's parameter, and the split of its columns; `None` if that does not pay off.
    pub fn seed(&self, v: Value, spec: &ContractSpec) -> Option<(usize, Split)> {
        if !self.along.seeds {
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

    /// Whether leaving a value split pays off: a later contraction reduces over the dimension, and no `reduce`
    /// does.
    pub fn stays(&self, v: Value, split: &Split) -> bool {
        let mut summed = false;
        let looks_along = self.follow(v, split, |node, at, has| {
            summed |= matches!(&node.op, Op::Contract(spec) if result_dim(spec, at, has).is_none());
            matches!(&node.op, Op::Reduce { axes, .. } if axes.contains(&has.dim))
        });
        !looks_along && summed
    }

    /// Whether the other operand of the first contraction that consumes a value, directly or through operations that
    /// keep it split, is split in the same way: each unit must be a single index of the dimension there, or there must
    /// be as many units as ranks. This is not so, for instance, if there are fewer key heads than ranks and each key
    /// head serves several query heads.
    pub fn meets_its_like(&self, v: Value, split: &Split) -> bool {
        let mut alike = true;
        self.follow(v, split, |node, _, has| {
            alike &= !matches!(node.op, Op::Contract(_)) || has.unit.is_const(1);
            matches!(node.op, Op::Contract(_))
        });
        alike || split.count.is_const(self.ranks.size)
    }

    /// Calls `ends` for each consumer of a split value, and for consumers of results that remain split, with the
    /// operand's index and its split, until `ends` returns true. Returns whether it did.
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

    /// Whether a table is large enough to be split by rows, so that each rank looks up the rows that it has. This
    /// saves memory, not time. Where weights are gathered, rows that are looked up take fewer bytes than the table.
    pub fn splits_table(&self, table: &TensorType, axis: usize) -> bool {
        let rows = table.dims[axis].as_const().unwrap_or(0);
        let bytes = table.elements().as_const().unwrap_or(0).saturating_mul(table.dtype.bytes() as i64);
        let least = if self.along.gathers { GATHERED_BYTES_MIN } else { TABLE_BYTES_MIN };
        let is_asked = self.along.seeds || self.along.gathers;
        is_asked && rows >= self.ranks.size * self.ranks.size && bytes >= least
    }
}

/// Returns [outer, count, unit] for a dimension, as the first reshape that reads the value splits it, possibly after
/// maps. The units are counted by the largest of the resulting dimensions except the last; these are the heads if the
/// last dimension holds the elements of a head. The reshape may also read a slice of the value, such as the
/// queries, keys or values from one contraction.
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

/// Returns the dimension of a contraction's result that corresponds to the operand's split dimension; `None` if it is
/// reduced.
fn result_dim(spec: &ContractSpec, at: usize, has: &Split) -> Option<usize> {
    let letters = if at == 0 { &spec.left } else { &spec.right };
    spec.result.iter().position(|c| *c == letters[has.dim])
}

/// Returns the dimensions into which a reshape splits a dimension, and the index of the first one.
fn factors<'d>(extent: &Dim, from: &[Dim], to: &'d [Dim], dim: usize) -> Option<(usize, &'d [Dim])> {
    let before = product(&from[..dim]);
    let first = (0..to.len()).find(|at| product(&to[..*at]) == before)?;
    let end = (first + 1..=to.len()).find(|end| product(&to[first..*end]) == *extent)?;
    Some((first, &to[first..end]))
}
