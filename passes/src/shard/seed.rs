//! where splitting begins: at a product with a parameter whose other operand every rank has
//!
//! The columns of the parameter are split. The next product along these columns then has a part of each sum, which one
//! all-reduce makes whole: the rule for pairs of products. Columns that are heads afterwards are split by whole heads.

use super::redistribute::Local;
use super::split::Split;
use crate::usual::USUAL;
use sardonyx_base::Dim;
use sardonyx_base::dim::product;
use sardonyx_dialects::sdx::{ContractSpec, Op, Value};

/// Multiply-adds per element of the result from which on a product is worth an exchange of its result: fewer are done
/// sooner than an element is carried.
const DEPTH_MIN: i64 = 32;

impl Local<'_> {
    /// The letter of a product to split, and how.
    pub fn seed(&self, v: Value, spec: &ContractSpec) -> Option<(char, Split)> {
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
        if depth < DEPTH_MIN {
            return None;
        }
        let columns = own.iter().filter(|c| spec.result.contains(c) && !other.contains(c));
        let (extent, letter) = columns.filter_map(|c| Some((extent(*c)?, *c))).max_by_key(|(n, _)| *n)?;
        if extent < self.ranks.size {
            return None;
        }
        let dim = spec.result.iter().position(|c| *c == letter)?;
        let units = self.units(v, dim).unwrap_or([Dim::constant(1), Dim::constant(extent), Dim::constant(1)]);
        Some((letter, Split::new(dim, units, &self.ranks)))
    }

    /// What the first reshape that reads a value, perhaps behind maps, makes of a dimension: of several factors the largest
    /// but the last, which are the heads where the last one is what a head has.
    fn units(&self, v: Value, dim: usize) -> Option<[Dim; 3]> {
        let extent = &self.graph.ty(v).dims[dim];
        let (mut values, mut dim_of) = (vec![v], vec![dim]);
        for (reader, node) in self.graph.values().skip(v.index() + 1) {
            let Some(at) = values.iter().position(|value| node.args.contains(value)) else { continue };
            let dim = dim_of[at];
            match &node.op {
                Op::Map(_) | Op::Convert(_) => {
                    values.push(reader);
                    dim_of.push(dim);
                }
                Op::Transpose { perm } => {
                    values.push(reader);
                    dim_of.push(perm.iter().position(|p| *p == dim)?);
                }
                Op::Reshape => return factors(extent, &self.graph.ty(node.args[0]).dims, &node.ty.dims, dim),
                _ => return None,
            }
        }
        None
    }

    /// Whether a table is worth to be split by rows, so that each rank looks for those that it has: no rank is without
    /// rows, and a usual call looks up few of them.
    pub fn splits_table(&self, rows: i64, indices: &Dim) -> bool {
        let looked_up = indices.eval(&|_| Some(USUAL.other)).unwrap_or(i64::MAX);
        rows >= self.ranks.size * self.ranks.size && looked_up.saturating_mul(4) <= rows
    }
}

/// The dimension of `from` as factors of `to`, where it becomes several dimensions.
fn factors(extent: &Dim, from: &[Dim], to: &[Dim], dim: usize) -> Option<[Dim; 3]> {
    let before = product(&from[..dim]);
    let first = (0..to.len()).find(|at| product(&to[..*at]) == before)?;
    let end = (first + 1..=to.len()).find(|end| product(&to[first..*end]) == *extent)?;
    let inner = &to[first..end];
    let (_, at) = (0..inner.len().checked_sub(1)?).filter_map(|i| Some((inner[i].as_const()?, i))).max()?;
    Some([product(&inner[..at]), inner[at].clone(), product(&inner[at + 1..])])
}
