//! weights, rules  =>  the same weights, of which the smallest are 0
//!
//! The smallest weights become 0 (magnitude pruning). Nothing is trained: the error of the outputs is
//! measured, and `--error-budget` refuses what is too far off.

mod groups;
mod rule;

pub use rule::{Choice, Rule};

use crate::import::{DimRange, ParamStore};
use crate::module::graph_after;
use crate::onnx::Model;
use sardonyx_base::json::Json;
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_dialects::sdx::Graph;
use sardonyx_passes::weights::{Weights, weights};
use sardonyx_passes::{Options, Params};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

/// The stage behind which products and their weights are found.
const STAGE: &str = "simplify";

/// The loss of a product's weights by pruning.
#[derive(Clone, Debug)]
pub struct Pruned {
    pub origins: Vec<String>,
    pub rule: String,
    /// The part of the weights that is 0 now.
    pub zeros: f64,
    /// Euclidean length of what was left out over that of all.
    pub error: f64,
}

impl Pruned {
    pub fn json(&self) -> Json {
        Json::Object(vec![
            ("origins", Json::list(self.origins.iter().map(String::as_str))),
            ("rule", self.rule.as_str().into()),
            ("zeros", self.zeros.into()),
            ("weight_error", self.error.into()),
        ])
    }
}

impl fmt::Display for Pruned {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Pruned { origins, rule, zeros, error } = self;
        let zeros = 100.0 * zeros;
        write!(f, "pruned: weights {error:.4} off, {zeros:.1} % are 0 by {rule}: {}", origins.join(" + "))
    }
}

/// The parameters that change, and what became of each product. Errors: E0001 for a rule that is for no product.
pub fn sparsify(
    model: &Model,
    dims: &BTreeMap<String, DimRange>,
    options: &Options,
    choices: &[Choice],
) -> Result<(ParamStore, Vec<Pruned>)> {
    let asked = |params: &ParamStore| Options {
        params: Params::new(params.clone()),
        target: options.target,
        ..Options::default()
    };
    let (graph, params) = graph_after(model, dims, STAGE, asked)?;
    let found = weights(&graph);
    let mut made = Made { graph: &graph, params, changed: ParamStore::new() };
    let mut report = vec![];
    for (at, choice) in choices.iter().enumerate() {
        // The first rule that is for a product counts.
        let is_own = |w: &&Weights| choices.iter().position(|c| c.is_for(&w.origins)) == Some(at);
        let own: Vec<&Weights> = found.iter().filter(is_own).collect();
        if own.is_empty() {
            return Err(no_product(choice, &found));
        }
        let values = own.iter().map(|w| made.values(w)).collect::<Result<Vec<Vec<f32>>>>()?;
        let kept = kept(choice.rule, &own, &values);
        for ((weights, before), kept) in own.iter().zip(&values).zip(&kept) {
            made.prune(weights, kept)?;
            report.push(pruned(weights, choice, before, kept));
        }
    }
    Ok((made.changed, report))
}

fn no_product(choice: &Choice, found: &[Weights]) -> Box<Error> {
    let nodes: Vec<&str> = found.iter().filter_map(|w| w.origins.first()).map(String::as_str).collect();
    let message = format!("`--sparsify {}` is for no product that has weights of its own", choice.text);
    let help = match nodes.split_at(nodes.len().min(8)) {
        ([], _) => "the model has none of 4096 weights or more in f32".to_string(),
        (some, []) => format!("these have: {}", some.join(" ")),
        (some, more) => format!("these have: {} and {} more", some.join(" "), more.len()),
    };
    Error::user("E0001", message).help(help)
}

struct Made<'g> {
    graph: &'g Graph,
    params: ParamStore,
    changed: ParamStore,
}

impl Made<'_> {
    fn value(&self, name: &str) -> Result<Vec<f32>> {
        let tensor = self.changed.get(name).or_else(|| self.params.get(name));
        let values = tensor.and_then(Tensor::to_vec::<f32>);
        values.ok_or_else(|| Error::defect(format!("`{name}` has no value of f32")))
    }

    /// Gives the weights of a product row by row.
    fn values(&self, weights: &Weights) -> Result<Vec<f32>> {
        let params = weights.params.keys().map(|name| self.value(name)).collect::<Result<Vec<_>>>()?;
        Ok(weights.places(self.graph)?.into_iter().map(|(param, at)| params[param][at]).collect())
    }

    fn prune(&mut self, weights: &Weights, kept: &[bool]) -> Result<()> {
        let mut params = weights.params.keys().map(|name| self.value(name)).collect::<Result<Vec<_>>>()?;
        for ((param, at), _) in weights.places(self.graph)?.into_iter().zip(kept).filter(|(_, kept)| !**kept) {
            params[param][at] = 0.0;
        }
        for (name, values) in weights.params.keys().zip(params) {
            let dims = self.params.get(name).map_or(vec![], |t| t.dims().to_vec());
            self.changed.insert(name.clone(), Tensor::from_vec(dims, values));
        }
        Ok(())
    }
}

fn pruned(weights: &Weights, choice: &Choice, before: &[f32], kept: &[bool]) -> Pruned {
    let energy = |of: &dyn Fn(bool) -> bool| -> f64 {
        let all = before.iter().zip(kept).filter(|(_, kept)| of(**kept));
        all.map(|(v, _)| f64::from(*v).powi(2)).sum()
    };
    let zeros = before.iter().zip(kept).filter(|(v, kept)| !**kept || **v == 0.0).count();
    let all = energy(&|_| true);
    Pruned {
        origins: weights.origins.clone(),
        rule: choice.text.clone(),
        zeros: zeros as f64 / before.len().max(1) as f64,
        error: if all > 0.0 { (energy(&|kept| !kept) / all).sqrt() } else { 0.0 },
    }
}

/// Marks the weights of each product that stay.
fn kept(rule: Rule, weights: &[&Weights], values: &[Vec<f32>]) -> Vec<Vec<bool>> {
    match rule {
        Rule::Global(part) => {
            let sizes: Vec<f32> = values.iter().flatten().map(|v| v.abs()).collect();
            let mut stays = largest(&sizes, part).into_iter();
            values.iter().map(|values| stays.by_ref().take(values.len()).collect()).collect()
        }
        Rule::Neighbours { n, m } => {
            let each = |(weights, values): (&&Weights, &Vec<f32>)| neighbours(weights.dims[1], values, n, m);
            weights.iter().zip(values).map(each).collect()
        }
        Rule::Groups(sizes) => {
            // A rule has sizes that there is a format for.
            let each = |(weights, values): (&&Weights, &Vec<f32>)| {
                groups::kept(weights.dims, values, sizes).unwrap_or_else(|| vec![true; values.len()])
            };
            weights.iter().zip(values).map(each).collect()
        }
        Rule::Blocks { part, rows, columns } => {
            let each = |(weights, values): (&&Weights, &Vec<f32>)| blocks(weights.dims, values, part, [rows, columns]);
            weights.iter().zip(values).map(each).collect()
        }
    }
}

/// Marks the numbers that stay when this part of them, the smallest, is left out; of equal ones the first are.
fn largest(sizes: &[f32], part: f64) -> Vec<bool> {
    let n_left_out = (part * sizes.len() as f64).round() as usize;
    let mut sorted = sizes.to_vec();
    let Some((below, threshold, _)) =
        (n_left_out < sizes.len()).then(|| sorted.select_nth_unstable_by(n_left_out, f32::total_cmp))
    else {
        return vec![false; sizes.len()];
    };
    let threshold = *threshold;
    let mut n_equal = below.iter().filter(|size| **size == threshold).count();
    let is_kept = |size: &f32| match size.total_cmp(&threshold) {
        Ordering::Less => false,
        Ordering::Greater => true,
        Ordering::Equal => {
            let left_out = n_equal > 0;
            n_equal -= usize::from(left_out);
            !left_out
        }
    };
    sizes.iter().map(is_kept).collect()
}

/// Marks the `n` largest of each `m` along a row, and as large a part of a shorter group at its end.
fn neighbours(columns: usize, values: &[f32], n: usize, m: usize) -> Vec<bool> {
    let group = |group: &[f32]| {
        let sizes: Vec<f32> = group.iter().map(|v| v.abs()).collect();
        let kept = (n * group.len()).div_ceil(m);
        largest(&sizes, 1.0 - kept as f64 / group.len() as f64)
    };
    values.chunks(columns.max(1)).flat_map(|row| row.chunks(m).flat_map(group)).collect()
}

/// Marks the weights of all blocks but this part of them, those with the least energy.
fn blocks([rows, columns]: [usize; 2], values: &[f32], part: f64, size: [usize; 2]) -> Vec<bool> {
    let across = columns.div_ceil(size[1]);
    let block = |at: usize| at / columns.max(1) / size[0] * across + at % columns.max(1) / size[1];
    let mut energies = vec![0f32; rows.div_ceil(size[0]) * across];
    values.iter().enumerate().for_each(|(at, v)| energies[block(at)] += v * v);
    let kept = largest(&energies, part);
    (0..values.len()).map(|at| kept[block(at)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_neighbours_stay() {
        let row = [1.0, -4.0, 3.0, 0.5, 0.0, 0.0, 0.0, 0.0, 7.0, 8.0];
        let kept = neighbours(10, &row, 2, 4);
        assert_eq!(kept, [false, true, true, false, false, false, true, true, false, true]);
    }

    #[test]
    fn blocks_are_kept_whole() {
        let matrix = [1.0, 1.0, 9.0, 0.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0];
        let expected = [false, false, true, true, true, true, true, false, false, false];
        assert_eq!(blocks([2, 5], &matrix, 0.5, [1, 2]), expected);
        assert_eq!(blocks([2, 5], &matrix, 0.34, [2, 2])[4..5], [false]);
    }

    #[test]
    fn a_part_is_that_part() {
        assert_eq!(largest(&[3.0, 1.0, 1.0, 2.0], 0.5), [true, false, false, true]);
        assert!(largest(&[], 0.5).is_empty());
    }
}
