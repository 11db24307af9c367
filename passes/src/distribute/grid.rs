//! a product, a number of ranks  =>  the grid of ranks that touches the fewest words
//!
//! C = A·B with extents m, n and k is cut into dm · dn · dk equal blocks, one for each rank. A rank touches its blocks of
//! A, B and C. Cuts along m and n alone (as in SUMMA) leave large blocks of A and B if k is large; the best blocks are
//! nearly cubes (COSMA; Kwasniewski et al., 2019).

use super::search::{Choice, Search};
use super::space::products;
use crate::shard::{Signature, State, fixed_values};
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::sdx::{ContractSpec, Graph, Node, Op};
use std::collections::BTreeMap;

/// Extent of products that an axis of a grid cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Rows,
    Columns,
    /// The sums, so that each rank has a part of every number.
    Depth,
}

/// Returns the words that a rank touches: its blocks of A, B and C. Extents and cuts are those of m, n and k.
pub fn words([m, n, k]: [f64; 3], [dm, dn, dk]: [usize; 3]) -> f64 {
    let [dm, dn, dk] = [dm, dn, dk].map(|d| d as f64);
    m * k / (dm * dk) + k * n / (dk * dn) + m * n / (dm * dn)
}

/// Returns the cuts [dm, dn, dk] for which a rank touches the fewest words; of equal ones the first in ascending order.
pub fn grid(extents: [f64; 3], ranks: usize) -> [usize; 3] {
    let divisors = |n: usize| (1..=n).filter(move |d| n.is_multiple_of(*d));
    let all = divisors(ranks).flat_map(|dm| divisors(ranks / dm).map(move |dn| [dm, dn, ranks / dm / dn]));
    let fitting = all.filter(|cuts| cuts.iter().zip(extents).all(|(d, n)| *d as f64 <= n));
    fitting.min_by(|a, b| words(extents, *a).total_cmp(&words(extents, *b))).unwrap_or([1, 1, ranks])
}

/// Returns the grid of the products that take most of a program's multiplications, among those grids that cut all three
/// extents; as the sizes of three axes of a mesh, which cut rows, columns and sums.
pub fn of_program(graph: &Graph, size: &dyn Fn(&Dim) -> Result<f64>, ranks: usize) -> Result<Option<[usize; 3]>> {
    let (live, fixed) = (graph.live(), fixed_values(graph));
    let mut work: BTreeMap<[usize; 3], f64> = BTreeMap::new();
    for (_, node) in graph.values().filter(|(v, _)| live[v.index()] && !fixed[v.index()]) {
        let Some(extents) = extents(graph, node, size)? else { continue };
        *work.entry(grid(extents, ranks)).or_default() += products(graph, node, size)?;
    }
    // Of equal ones the first.
    let most = work.into_iter().rev().filter(|(cuts, _)| cuts.iter().all(|d| *d > 1));
    Ok(most.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(cuts, _)| cuts))
}

/// Returns the extents m, n and k of a contraction, `None` for other operations and if batches are multiplied.
fn extents(graph: &Graph, node: &Node, size: &dyn Fn(&Dim) -> Result<f64>) -> Result<Option<[f64; 3]>> {
    let Op::Contract(spec) = &node.op else { return Ok(None) };
    let letters = [(0, Cut::Rows), (1, Cut::Columns), (0, Cut::Depth)];
    let is_batch = |c: &char| spec.right.contains(c) && spec.result.contains(c);
    if spec.left.iter().any(is_batch) {
        return Ok(None);
    }
    let mut extents = [1.0; 3];
    for (extent, (side, cut)) in extents.iter_mut().zip(letters) {
        let own = [&spec.left, &spec.right][side].iter().zip(&graph.ty(node.args[side]).dims);
        for (_, dim) in own.filter(|(c, _)| cut_of(spec, **c) == cut) {
            *extent *= size(dim)?;
        }
    }
    Ok(Some(extents))
}

fn cut_of(spec: &ContractSpec, letter: char) -> Cut {
    match (spec.result.contains(&letter), spec.left.contains(&letter)) {
        (false, _) => Cut::Depth,
        (true, true) => Cut::Rows,
        (true, false) => Cut::Columns,
    }
}

/// Returns the choice in which the axes of the mesh cut all products as a grid does, and everything else is whole.
pub fn choice(search: &Search) -> Choice {
    let mut choice = search.replicated();
    let cuts = [Cut::Rows, Cut::Columns, Cut::Depth];
    for ((space, cut), of_axis) in search.spaces.iter().zip(cuts).zip(&mut choice) {
        for (v, node) in space.graph.values() {
            let found = space.ways[v.index()].iter().position(|way| cuts_so(node, way, cut));
            of_axis[v.index()] = found.unwrap_or(0);
        }
    }
    choice
}

/// Returns whether a strategy cuts a contraction in this way.
fn cuts_so(node: &Node, way: &Signature, cut: Cut) -> bool {
    let Op::Contract(spec) = &node.op else { return false };
    let sides = [&spec.left, &spec.right];
    way.operands.iter().zip(sides).any(|(state, letters)| match state {
        State::Split(split) => cut_of(spec, letters[split.dim]) == cut,
        State::Whole | State::Partial(_) | State::Halo(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words in millions that a rank touches, with the best grid.
    fn touched(extents: [i64; 3], ranks: usize) -> ([usize; 3], f64) {
        let extents = extents.map(|n| n as f64);
        let cuts = grid(extents, ranks);
        (cuts, (words(extents, cuts) / 1e5).round() / 10.0)
    }

    #[test]
    fn grids_touch_the_known_numbers_of_words() {
        let cube = [12288; 3];
        assert_eq!(touched(cube, 4), ([1, 2, 2], 188.7));
        assert_eq!(touched(cube, 8), ([2, 2, 2], 113.2));
        assert_eq!(touched(cube, 16), ([2, 2, 4], 75.5));
        assert_eq!(touched(cube, 64), ([4, 4, 4], 28.3));
        assert_eq!(touched([2048, 12288, 49152], 8), ([1, 1, 8], 113.2));
        // No grid of so many ranks touches less than 3·(mnk/p)^(2/3) words.
        for ranks in [4, 8, 16, 64] {
            let bound = 3.0 * (12288f64.powi(3) / ranks as f64).powf(2.0 / 3.0);
            assert!(touched(cube, ranks).1 * 1e6 >= bound * 0.999);
        }
    }

    #[test]
    fn few_rows_are_not_cut_into_more_parts_than_there_are() {
        assert_eq!(grid([1.0, 4096.0, 4096.0], 16)[0], 1);
        assert_eq!(grid([1.0, 1.0, 1.0], 4), [1, 1, 4]);
    }
}
