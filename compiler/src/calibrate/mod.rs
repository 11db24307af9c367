//! a model, data  =>  the codes of its weights, rounded so that products with the activations of the data change least
//!
//! Matrix products with constant weights are processed in order. If the code type is given, the activations of each
//! product are computed with the weights of earlier products already rounded, so that each compensates for the errors
//! of its predecessors. If a type is chosen for each layer, all candidates are computed with unrounded weights.

mod auto;
pub mod data;
mod gptq;
pub mod hessian;
mod histogram;
mod knapsack;
pub mod score;
pub mod walk;

use crate::import::{DimRange, ParamStore};
use crate::module::graph_after;
use crate::onnx::Model;
use auto::Choice;
use data::Sample;
use gptq::{Zeros, error_of_rows, errors_of_bytes, rounded};
use half::bf16;
use hessian::{Seen, relative};
use knapsack::Candidate;
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_dialects::sdx::{Graph, Value};
use sardonyx_passes::calibrated::{Calibrated, Codes, Meaning, Rounding};
use sardonyx_passes::quantize::{Product, images, products, tables};
use sardonyx_passes::{Activations, CodeType, KvCache, Options, Params, Quantize};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use walk::Walk;

/// The stage after which products are found; the next stage rounds them.
const STAGE: &str = "e-graph";

/// Result of a calibration.
pub struct Calibration {
    /// Codes chosen for the weights, or ranges of the inputs of int8 convolutions.
    pub calibrated: Calibrated,
    /// The codes and their scales, as parameters.
    pub params: ParamStore,
    /// Storage and error of each product or table; empty if only ranges are computed.
    pub layers: Vec<Layer>,
    /// The calls on which the error of the outputs is measured.
    pub data: Data,
}

/// Calls on which the error of the outputs is measured.
#[derive(Default)]
pub struct Data {
    /// The held-out calls, or all calls if none were held out.
    pub samples: Vec<Sample>,
    /// Whether the samples were held out, that is, not used for rounding.
    pub is_unseen: bool,
}

/// How the weights of one layer are stored, and the error of rounding them.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The ONNX nodes.
    pub origins: Vec<String>,
    /// Type of the codes; `None` if the weights stay as they are.
    pub code: Option<CodeType>,
    /// Number of weights in a group.
    pub size: usize,
    /// Relative error (L2) of the product on the data, or of the table. If a type is chosen for each layer, this
    /// includes the error of int8 activations.
    pub error: f64,
    /// Relative error (L2) of the weights themselves.
    pub weight_error: f64,
    /// The damping that was needed for Σ xᵀx of the data to have a Cholesky factor.
    pub damping: f64,
    /// Bytes of the weights as stored.
    pub bytes: u64,
}

/// With [`Judge::Budget`], one in this many calls is held out for measuring, and at least one.
const UNSEEN_OF: usize = 4;

/// Decides whether a choice of codes for each layer is accepted.
pub enum Judge<'a> {
    /// Bound on the relative error of the outputs, on held-out calls.
    Budget(f64),
    /// Whether an artifact with these roundings and these codes is accepted.
    Artifact(&'a mut dyn FnMut(Calibrated, &ParamStore) -> Result<bool>),
}

/// Rounds the weights of a model by data. With `Quantize::Auto`, `judge` accepts or rejects choices of codes; `pruned`
/// replaces parameters of the model by pruned ones, whose zeros stay. Errors: E0001 if this quantisation does not use
/// data; E0301 for data that does not fit the model; E0501 if the judge accepts nothing.
pub fn calibrate(
    model: &Model,
    dims: &BTreeMap<String, DimRange>,
    options: &Options,
    (data, pruned): (&[PathBuf], Option<&ParamStore>),
    judge: Option<Judge>,
) -> Result<Calibration> {
    use Quantize::{Auto, Fp8, Int3, Int4, Int8};
    if !matches!(options.quantize, Int8 | Int4 | Int3 | Fp8 | Auto) {
        let message = "`--calibrate` is for int8, int4, int3, fp8 and for a choice: nothing else is rounded by data";
        let help =
            "give `--quantize int8`, `int4`, `int3`, `fp8` or `auto`, or `--sparsify`, or leave out `--calibrate`";
        return Err(Error::user("E0001", message).help(help));
    }
    let with_pruned = |params: &ParamStore| -> ParamStore {
        let changed = pruned.into_iter().flatten().map(|(name, t)| (name.clone(), t.clone()));
        params.clone().into_iter().chain(changed).collect()
    };
    let asked = |params: &ParamStore| Options {
        params: Params::new(with_pruned(params)),
        fuel: None,
        remarks: false,
        validate: false,
        // The data matches the model's own inputs, including its f32 caches.
        kv_cache: KvCache::F32,
        ..options.clone()
    };
    let (graph, params) = graph_after(model, dims, STAGE, asked)?;
    let params = with_pruned(&params);
    let samples = data::samples(data, &graph)?;
    let is_random = data::is_random(data);
    let zeros = if pruned.is_some() { Zeros::Stay } else { Zeros::Change };
    let mut rounder = Rounder { graph: &graph, made: ParamStore::new(), zeros };
    if options.quantize == Quantize::Int8 {
        // Data for pruning was given; it is not an error if there is nothing to calibrate with it.
        let calibrated = match pruned.is_some() && images(&graph, options).is_empty() {
            true => Calibrated::default(),
            false => ranges(&graph, (params, &samples), options, is_random)?,
        };
        let data = Data { samples, is_unseen: false };
        return Ok(Calibration { calibrated, params: ParamStore::new(), layers: vec![], data });
    }
    let products = products(&graph, options);
    let Some(judge) = judge.filter(|_| options.quantize == Quantize::Auto) else {
        let mut walk = Walk::new(&graph, params, &samples, factors(&products));
        let (found, layers) = rounder.all(&mut walk, &products)?;
        let calibrated = Calibrated::new(found, is_random);
        let data = Data { samples, is_unseen: false };
        return Ok(Calibration { calibrated, params: rounder.made, layers, data });
    };
    let (n, keeps) = (samples.len(), matches!(judge, Judge::Budget(_)));
    let is_unseen = |i: usize| keeps && (i % UNSEEN_OF == UNSEEN_OF - 1 || (n < UNSEEN_OF && i + 1 == n));
    let (mut unseen, mut seen) = (vec![], vec![]);
    for (i, sample) in samples.into_iter().enumerate() {
        if is_unseen(i) { &mut unseen } else { &mut seen }.push(sample);
    }
    if seen.is_empty() {
        let error = Error::user(
            "E0301",
            "one call is not enough: what is chosen is measured on calls that nothing was rounded by",
        );
        return Err(error.help("give two or more with `--calibrate`"));
    }
    let mut walk = Walk::new(&graph, params.clone(), &seen, factors(&products));
    let (choices, layers) = rounder.candidates(&mut walk, &products, options)?;
    let params: ParamStore = params.into_iter().chain(rounder.made.clone()).collect();
    let (chosen, demand) = match judge {
        Judge::Budget(budget) => {
            let mut passes = auto::within((&graph, &params), options, &unseen, budget)?;
            (auto::choose(&choices, &mut passes)?, format!("the outputs are at most {budget} off"))
        }
        Judge::Artifact(passes) => {
            let mut passes = |calibrated| passes(calibrated, &rounder.made);
            (auto::choose(&choices, &mut passes)?, "the score drops by no more than `--drop`".to_string())
        }
    };
    let message = || format!("nothing can be rounded so that {demand}");
    let chosen = chosen.ok_or_else(|| at_fault(Error::user("E0501", message()), &layers))?;
    let layers = layers.into_iter().zip(&chosen.candidates).map(|(mut of, &c)| of.swap_remove(c)).collect();
    let data = Data { samples: if keeps { unseen } else { seen }, is_unseen: keeps };
    Ok(Calibration { calibrated: Calibrated::new(chosen.found, is_random), params: rounder.made, layers, data })
}

/// Ranges of the inputs of convolutions. Errors: E0001 if there are none, or if activations stay in floating point.
fn ranges(
    graph: &Graph,
    (params, samples): (ParamStore, &[Sample]),
    options: &Options,
    is_random: bool,
) -> Result<Calibrated> {
    let images = images(graph, options);
    if images.is_empty() || options.activations() != Activations::Int8 {
        let message =
            "no scale is found by data here: rows of activations have scales of their own, found in each call";
        let help = "`--calibrate` with int8 is for convolutions, with activations of int8: leave it out";
        return Err(Error::user("E0001", message).help(help));
    }
    let walk = Walk::new(graph, params, samples, []);
    let values: Vec<Value> = images.iter().map(|(v, _)| *v).collect();
    let found = images.iter().zip(walk.ranges(&values)?).map(|((_, meaning), range)| (*meaning, range)).collect();
    Ok(Calibrated::new(HashMap::new(), is_random).with_ranges(found))
}

/// Adds to the error's help the three layers whose least harmful rounding has the largest error.
fn at_fault(error: Box<Error>, layers: &[Vec<Layer>]) -> Box<Error> {
    let least = |of: &Vec<Layer>| of.iter().skip(1).min_by(|a, b| a.error.total_cmp(&b.error)).cloned();
    let mut worst: Vec<Layer> = layers.iter().filter_map(least).collect();
    worst.sort_by(|a, b| b.error.total_cmp(&a.error));
    let names: Vec<String> =
        worst.iter().take(3).map(|l| format!("{} ({:.1e})", l.origins.join(" + "), l.error)).collect();
    error.help(format!("allow more with `--error-budget` or `--drop`; these layers lose most: {}", names.join(", ")))
}

/// Rounds weights and collects their codes as parameters.
struct Rounder<'a> {
    graph: &'a Graph,
    made: ParamStore,
    zeros: Zeros,
}

impl Rounder<'_> {
    /// Rounds the weights of all products in order, each for activations computed with earlier products already
    /// rounded.
    fn all(&mut self, walk: &mut Walk, products: &[Product]) -> Result<(HashMap<Meaning, Rounding>, Vec<Layer>)> {
        let (mut found, mut layers) = (HashMap::new(), vec![]);
        for same in same_left(products) {
            let (seen, _) = self.seen(walk, &same[0])?;
            for product in same {
                let (codes, layer, weights) = self.codes(&seen, walk, product)?;
                walk.round(product, weights);
                found.insert(product.meaning, Rounding::Codes(codes));
                layers.push(layer);
            }
        }
        Ok((found, layers))
    }

    /// The alternatives for storing the weights of each product and each table, and the cost and error of each.
    fn candidates(
        &mut self,
        walk: &mut Walk,
        products: &[Product],
        options: &Options,
    ) -> Result<(Vec<Choice>, Vec<Vec<Layer>>)> {
        let (mut choices, mut layers) = (vec![], vec![]);
        for same in same_left(products) {
            let (seen, lost) = self.seen(walk, &same[0])?;
            let lost = if options.activations() == Activations::Int8 { lost } else { 0.0 };
            for product in same {
                let [outer, k, inner] = product.parts;
                let (n, columns) = ((outer * k * inner) as u64, (outer * inner) as u64);
                let values = floats(&walk.weights(product)?)?;
                let [error, weight_error] = errors_of_bytes(&seen, &values, product.parts);
                let layer = |code: Option<CodeType>, [error, weight_error]: [f64; 2], bytes: u64| {
                    let origins = self.graph.node(product.node).origins.clone();
                    Layer { origins, code, size: k, error, weight_error, damping: 0.0, bytes }
                };
                let bytes = layer(Some(CodeType::BYTES), [error.hypot(lost), weight_error], n + 4 * columns);
                let mut of = vec![layer(None, [0.0; 2], 4 * n), bytes];
                let mut roundings = vec![None, Some(Rounding::Nearest)];
                if product.code != CodeType::BYTES {
                    let (codes, layer, _) = self.codes(&seen, walk, product)?;
                    of.push(Layer { error: layer.error.hypot(lost), ..layer });
                    roundings.push(Some(Rounding::Codes(codes)));
                }
                choices.push(choice(product.meaning, roundings, &of));
                layers.push(of);
            }
        }
        for table in tables(self.graph, options) {
            let [rows, length] = table.dims;
            let error = error_of_rows(&floats(&walk.value(table.table)?)?, length);
            let origins = self.graph.node(table.node).origins.clone();
            let n = (rows * length) as u64;
            let (size, bytes) = (length, 4 * n);
            let whole = Layer { origins, code: None, size, error: 0.0, weight_error: 0.0, damping: 0.0, bytes };
            let bytes = n + 4 * rows as u64;
            let of =
                vec![whole.clone(), Layer { code: Some(CodeType::BYTES), error, weight_error: error, bytes, ..whole }];
            choices.push(choice(table.meaning, vec![None, Some(Rounding::Nearest)], &of));
            layers.push(of);
        }
        Ok((choices, layers))
    }

    /// Statistics of the operand that a product's weights are multiplied with, and its relative error as 8-bit codes.
    fn seen(&self, walk: &mut Walk, product: &Product) -> Result<(Seen, f64)> {
        let (factor, k) = (walk.factor(product.left)?, product.parts[1]);
        let whole: f64 = (0..k).map(|i| factor.products[i * k + i]).sum();
        let seen = Seen::new(factor.products, k).map_err(|e| named(e, self.graph, product))?;
        Ok((seen, relative(factor.lost, whole)))
    }

    /// Rounds the weights of a product. Returns the names of the new parameters, a report, and the dequantised weights.
    fn codes(&mut self, seen: &Seen, walk: &Walk, product: &Product) -> Result<(Codes, Layer, Tensor)> {
        let weights = walk.weights(product)?;
        let result = rounded(seen, &floats(&weights)?, product.parts, (product.code, product.size), self.zeros);
        let [codes, scale] = ["codes", "scales"].map(|what| format!("@{what}{}", self.made.len() / 2));
        let (axis, groups) = (product.axis, product.parts[1] / product.size);
        let with = |sizes: &[usize]| {
            let mut dims = weights.dims().to_vec();
            dims.splice(axis..=axis, sizes.iter().copied());
            dims
        };
        let (code, size) = (product.code, product.size);
        let scales = match code {
            CodeType::Int(_) => {
                Tensor::from_vec(with(&[groups]), result.scales.into_iter().map(bf16::from_f32).collect())
            }
            CodeType::Float(_) => Tensor::from_vec(with(&[groups]), result.scales),
        };
        let bytes = result.codes.len() * code.dtype().bits() as usize / 8 + scales.bytes().len();
        self.made.insert(codes.clone(), Tensor::new(code.parameter(), with(&[groups, size]), result.codes.into())?);
        self.made.insert(scale.clone(), scales);
        let origins = self.graph.node(product.node).origins.clone();
        let (damping, error) = (result.damping, result.product_error);
        let codes = Codes { codes, scale, code, size: size as i64 };
        let weights = Tensor::from_vec(weights.dims().to_vec(), result.weights);
        let weight_error = result.weight_error;
        let (code, bytes) = (Some(code), bytes as u64);
        Ok((codes, Layer { origins, code, size, error, weight_error, damping, bytes }, weights))
    }
}

fn choice(meaning: Meaning, roundings: Vec<Option<Rounding>>, layers: &[Layer]) -> Choice {
    let one = |(rounding, layer): (Option<Rounding>, &Layer)| {
        (rounding, Candidate { cost: layer.bytes, lost: layer.error * layer.error })
    };
    Choice { meaning, candidates: roundings.into_iter().zip(layers).map(one).collect() }
}

/// The operands that weights are multiplied with.
fn factors(products: &[Product]) -> impl Iterator<Item = Value> {
    products.iter().map(|p| p.left.0)
}

/// Groups of consecutive products that share operand A.
fn same_left(products: &[Product]) -> impl Iterator<Item = &[Product]> {
    products.chunk_by(|a, b| a.left == b.left)
}

fn floats(weights: &Tensor) -> Result<Vec<f32>> {
    weights.to_vec::<f32>().ok_or_else(|| Error::defect("weights are no f32"))
}

fn named(error: Box<Error>, graph: &Graph, product: &Product) -> Box<Error> {
    match graph.node(product.node).origins.first() {
        Some(origin) => error.node(origin),
        None => error,
    }
}

#[cfg(test)]
mod tests;
