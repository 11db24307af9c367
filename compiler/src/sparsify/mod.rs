//! weights, rules  =>  the same weights, with the least important ones set to 0
//!
//! The importance of a weight is its magnitude, or follows from its activations on data; with `obs`, the weights that
//! stay compensate for the removed ones. Nothing is trained: the error of the outputs is measured, and `--error-budget`
//! refuses large errors.

mod groups;
mod mask;
mod obs;
mod rule;

pub use rule::{Choice, Rule, Saliency};

use crate::calibrate::data::{Sample, samples};
use crate::calibrate::hessian::{Seen, relative};
use crate::calibrate::walk::Walk;
use crate::import::{DimRange, ParamStore};
use crate::module::graph_after;
use crate::onnx::Model;
use crate::precision::worst;
use mask::{largest, part_of};
use sardonyx_base::json::Json;
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_dialects::sdx::Graph;
use sardonyx_passes::weights::{Weights, weights};
use sardonyx_passes::{Options, Params};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The stage after which products and their weights are found.
const STAGE: &str = "simplify";

/// Result of pruning.
pub struct Sparsified {
    /// The parameters that changed.
    pub params: ParamStore,
    /// The loss of each pruned product, in the order of the products.
    pub pruned: Vec<Pruned>,
    /// The calls of the data; empty if there is no data.
    pub samples: Vec<Sample>,
}

/// The loss of a product by the pruning of its weights.
#[derive(Clone, Debug)]
pub struct Pruned {
    /// ONNX nodes of the product.
    pub origins: Vec<String>,
    /// The choice that applied, as written by the user.
    pub rule: String,
    /// Share of the weights that are 0 now.
    pub zeros: f64,
    /// Relative error (L2) of the product on the data, with earlier products already pruned; `None` without data.
    pub error: Option<f64>,
    /// Relative error (L2) of the weights themselves.
    pub weight_error: f64,
}

impl Pruned {
    /// Returns the loss as a JSON object, for reports.
    pub fn json(&self) -> Json {
        Json::Object(vec![
            ("origins", Json::list(self.origins.iter().map(String::as_str))),
            ("rule", self.rule.as_str().into()),
            ("zeros", self.zeros.into()),
            ("error", self.error.into()),
            ("weight_error", self.weight_error.into()),
        ])
    }
}

impl Pruned {
    /// The loss that products are ranked by: of the product, or else of the weights.
    pub fn loss(&self) -> f64 {
        self.error.unwrap_or(self.weight_error)
    }
}

impl fmt::Display for Pruned {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Pruned { origins, rule, zeros, error, weight_error } = self;
        let product = error.map_or(String::new(), |error| format!("{error:.4} off on the data, "));
        let zeros = 100.0 * zeros;
        write!(
            f,
            "pruned: {product}weights {weight_error:.4} off, {zeros:.1} % are 0 by {rule}: {}",
            origins.join(" + ")
        )
    }
}

/// Adds the products that lose most to an error about the outputs (E0501).
pub fn name_worst(mut error: Box<Error>, pruned: &[Pruned]) -> Box<Error> {
    if error.code != "E0501" || pruned.is_empty() {
        return error;
    }
    let name = |p: &Pruned| format!("{} ({:.2e})", p.origins.join(" + "), p.loss());
    let names: Vec<String> = worst(pruned, SHOWN, Pruned::loss).into_iter().map(name).collect();
    let before = error.help.clone().unwrap_or_default();
    error.help = Some(format!("{before}; these layers lose most by `--sparsify`: {}", names.join(", ")));
    error
}

/// Number of layers that a diagnostic names.
const SHOWN: usize = 3;

/// Prunes the weights of a model. Errors: E0001 for a rule that matches no product; E0301 for data that does not fit.
pub fn sparsify(
    model: &Model,
    dims: &BTreeMap<String, DimRange>,
    options: &Options,
    choices: &[Choice],
    (saliency, data): (Saliency, &[PathBuf]),
) -> Result<Sparsified> {
    let asked = |params: &ParamStore| Options {
        params: Params::new(params.clone()),
        target: options.target,
        nchwc_block: options.nchwc_block,
        activations: options.activations,
        ..Options::default()
    };
    let (graph, params) = graph_after(model, dims, STAGE, asked)?;
    let all = weights(&graph);
    let mut found = vec![];
    for weights in &all {
        // The first rule that matches a product applies.
        let choice = choices.iter().find(|c| c.is_for(&weights.origins));
        found.extend(choice.map(|choice| Found { weights, choice }));
    }
    if let Some(choice) = choices.iter().find(|c| !found.iter().any(|f| std::ptr::eq(f.choice, *c))) {
        return Err(no_product(choice, &all));
    }
    let samples = samples(data, &graph)?;
    let walk = Walk::new(&graph, params.clone(), &samples, found.iter().map(|f| f.weights.factor.0));
    let walk = (!samples.is_empty()).then_some(walk);
    let (changed, taken) = (ParamStore::new(), BTreeMap::new());
    let mut made = Made { graph: &graph, params, changed, taken, walk, saliency };
    let pruned = made.prune(&found, choices)?;
    let params = made.changed;
    Ok(Sparsified { params, pruned, samples })
}

/// Weights of a product, and the rule that applies to them.
struct Found<'a> {
    weights: &'a Weights,
    choice: &'a Choice,
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

/// The statistics that the saliency needs of the operand that a product's weights are multiplied with.
enum Known {
    Nothing,
    /// [k, k]: Σ xᵀx.
    Products(Vec<f64>),
    Factor(Seen),
}

impl Known {
    fn products(&self) -> Option<&[f64]> {
        match self {
            Known::Nothing => None,
            Known::Products(products) => Some(products),
            Known::Factor(seen) => Some(&seen.products),
        }
    }
}

struct Made<'g> {
    graph: &'g Graph,
    params: ParamStore,
    changed: ParamStore,
    /// For each parameter, which of its elements are weights of a product that has been pruned.
    taken: BTreeMap<String, Vec<bool>>,
    /// Computes statistics of the products, if there is data.
    walk: Option<Walk<'g>>,
    saliency: Saliency,
}

impl Made<'_> {
    /// Prunes the products in order; the data of each comes from products that are already pruned.
    fn prune(&mut self, found: &[Found], choices: &[Choice]) -> Result<Vec<Pruned>> {
        let mut masks = match self.saliency {
            Saliency::Magnitude => self.masks(found, choices)?,
            Saliency::Obd | Saliency::Obs => vec![],
        }
        .into_iter();
        let mut report = vec![];
        for same in found.chunk_by(|a, b| a.weights.factor == b.weights.factor) {
            let known = self.known(same[0].weights)?;
            for Found { weights, choice } in same {
                let places = weights.places(self.graph)?;
                let before = self.values(weights, &places)?;
                let is_own = self.take(weights, &places);
                let (dims, rule) = (weights.dims, choice.rule);
                let after = match (&known, masks.next()) {
                    (_, Some(kept)) => left_out(&before, &kept),
                    // Weights that are shared with another product are only pruned, because compensating for the data
                    // of this product would harm the other one.
                    (Known::Factor(seen), None) if is_own => obs::prune(seen, &before, dims, rule),
                    (Known::Factor(Seen { products, .. }) | Known::Products(products), None) => {
                        obs::prune_by_diagonal(products, &before, dims, rule)
                    }
                    (Known::Nothing, None) => {
                        return Err(Error::defect("weights are pruned by data, and there is none"));
                    }
                };
                self.set(weights, &places, &after)?;
                let error = known.products().map(|products| obs::product_error(products, &before, &after, dims));
                report.push(pruned((weights, choice), (&before, &after), error));
            }
        }
        Ok(report)
    }

    /// Marks the weights of each product that stay, by magnitude.
    fn masks(&self, found: &[Found], choices: &[Choice]) -> Result<Vec<Vec<bool>>> {
        let mut masks: Vec<Vec<bool>> = vec![vec![]; found.len()];
        for choice in choices {
            let own: Vec<usize> = (0..found.len()).filter(|i| std::ptr::eq(found[*i].choice, choice)).collect();
            let weights: Vec<&Weights> = own.iter().map(|i| found[*i].weights).collect();
            let values = |w: &&Weights| self.values(w, &w.places(self.graph)?);
            let values = weights.iter().map(values).collect::<Result<Vec<_>>>()?;
            own.into_iter().zip(largest_of_all(choice.rule, &weights, &values)).for_each(|(i, kept)| masks[i] = kept);
        }
        Ok(masks)
    }

    fn known(&mut self, weights: &Weights) -> Result<Known> {
        let Some(walk) = &mut self.walk else { return Ok(Known::Nothing) };
        let (factor, axes) = &weights.factor;
        let products = walk.products(*factor, axes)?;
        match self.saliency {
            Saliency::Magnitude | Saliency::Obd => Ok(Known::Products(products)),
            Saliency::Obs => {
                let seen = Seen::in_order(products, (0..weights.dims[1]).collect());
                let named = |e: Box<Error>| match weights.origins.first() {
                    Some(origin) => e.node(origin),
                    None => e,
                };
                seen.map(Known::Factor).map_err(named)
            }
        }
    }

    fn value(&self, name: &str) -> Result<Vec<f32>> {
        let tensor = self.changed.get(name).or_else(|| self.params.get(name));
        let values = tensor.and_then(Tensor::to_vec::<f32>);
        values.ok_or_else(|| Error::defect(format!("`{name}` has no value of f32")))
    }

    /// The weights of a product, row-major.
    fn values(&self, weights: &Weights, places: &[(usize, usize)]) -> Result<Vec<f32>> {
        let params = weights.params.keys().map(|name| self.value(name)).collect::<Result<Vec<_>>>()?;
        Ok(places.iter().map(|(param, at)| params[*param][*at]).collect())
    }

    /// Marks elements as weights of a product. Returns whether none of them belonged to another product before.
    fn take(&mut self, weights: &Weights, places: &[(usize, usize)]) -> bool {
        let mut is_own = true;
        for (at, (name, n)) in weights.params.iter().enumerate() {
            let taken = self.taken.entry(name.clone()).or_insert_with(|| vec![false; *n]);
            for (_, element) in places.iter().filter(|(param, _)| *param == at) {
                is_own &= !std::mem::replace(&mut taken[*element], true);
            }
        }
        is_own
    }

    fn set(&mut self, weights: &Weights, places: &[(usize, usize)], values: &[f32]) -> Result<()> {
        let mut params = weights.params.keys().map(|name| self.value(name)).collect::<Result<Vec<_>>>()?;
        for ((param, at), value) in places.iter().zip(values) {
            params[*param][*at] = *value;
        }
        for (name, values) in weights.params.keys().zip(params) {
            let dims = self.params.get(name).map_or(vec![], |t| t.dims().to_vec());
            let tensor = Tensor::from_vec(dims, values);
            if let Some(walk) = &mut self.walk {
                walk.set(name, tensor.clone());
            }
            self.changed.insert(name.clone(), tensor);
        }
        Ok(())
    }
}

fn left_out(values: &[f32], kept: &[bool]) -> Vec<f32> {
    values.iter().zip(kept).map(|(v, kept)| if *kept { *v } else { 0.0 }).collect()
}

fn pruned((weights, choice): (&Weights, &Choice), (before, after): (&[f32], &[f32]), error: Option<f64>) -> Pruned {
    let lost = before.iter().zip(after).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let whole = before.iter().map(|v| f64::from(*v).powi(2)).sum();
    let n_zeros = after.iter().filter(|v| **v == 0.0).count();
    Pruned {
        origins: weights.origins.clone(),
        rule: choice.text.clone(),
        zeros: n_zeros as f64 / after.len().max(1) as f64,
        error,
        weight_error: relative(lost, whole),
    }
}

/// Marks the weights of each product that stay, by magnitude; a `global` rule compares all products together.
fn largest_of_all(rule: Rule, weights: &[&Weights], values: &[Vec<f32>]) -> Vec<Vec<bool>> {
    let sizes = |values: &[f32]| -> Vec<f32> { values.iter().map(|v| v.abs()).collect() };
    let each = |score: &dyn Fn(&[f32]) -> Vec<f32>| {
        weights.iter().zip(values).map(|(w, values)| mask::kept(rule, w.dims, &score(values))).collect()
    };
    match rule {
        Rule::Global(part) => {
            let all: Vec<f32> = values.iter().flat_map(|values| sizes(values)).collect();
            let mut stays = largest(&all, part_of(all.len(), part)).into_iter();
            values.iter().map(|values| stays.by_ref().take(values.len()).collect()).collect()
        }
        Rule::Neighbours { .. } | Rule::Groups(_) => each(&sizes),
        // The score of a block is the sum of its weights' squares.
        Rule::Blocks { .. } => each(&|values| values.iter().map(|v| v * v).collect()),
    }
}
