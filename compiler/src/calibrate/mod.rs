//! a model, data  =>  the codes of its weights, each rounded by what it is multiplied with
//!
//! The products are taken in order. What the weights of one are multiplied with comes from products that are rounded already,
//! so that each makes good what those before it lost.

pub mod data;
mod gptq;
mod walk;

use crate::import::{DimRange, ParamStore};
use crate::module::{graph, lower_model};
use crate::onnx::Model;
use crate::pipeline::{self, Watch};
use gptq::{Seen, rounded};
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_dialects::sdx::Graph;
use sardonyx_passes::calibrated::{Calibrated, Codes};
use sardonyx_passes::quantize::{Product, products};
use sardonyx_passes::{Options, Params, Quantize, Rewrites};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use walk::Walk;

/// The stage behind which products are found, and rounded by the next one.
const STAGE: &str = "e-graph";

/// What calibration came to.
pub struct Calibration {
    pub calibrated: Calibrated,
    /// The codes and their scales.
    pub params: ParamStore,
    pub layers: Vec<Layer>,
}

/// What rounding the weights of a product lost.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The ONNX nodes.
    pub origins: Vec<String>,
    pub bits: u32,
    /// Weights of a group.
    pub size: usize,
    /// Relative errors (L2) of the weights, and of the product on the data.
    pub weight_error: f64,
    pub product_error: f64,
    /// The damping of the products of the data that they had a Cholesky factor with.
    pub damping: f64,
}

/// Errors: E0001 where no weights are rounded by data; E0301 for data that the model does not take.
pub fn calibrate(
    model: &Model,
    dims: &BTreeMap<String, DimRange>,
    options: &Options,
    data: &[PathBuf],
) -> Result<Calibration> {
    if !matches!(options.quantize, Quantize::Int4 | Quantize::Int3) {
        let message = "`--calibrate` is for weights of 4 or 3 bits: nothing else is rounded by data";
        return Err(Error::user("E0001", message).help("give `--quantize int4` or `int3`, or leave out `--calibrate`"));
    }
    let context = sardonyx_passes::context();
    context.attach_diagnostic_handler(|_| true);
    let (mut module, params) = lower_model(&context, model, dims)?;
    let mut rewrites = Rewrites::new(Options {
        params: Params::new(params.clone()),
        fuel: None,
        remarks: false,
        validate: false,
        ..options.clone()
    });
    let watch = Watch { stop_after: Some(STAGE.into()), ..Watch::default() };
    pipeline::run_with(&context, &mut module, &watch, &mut rewrites, &mut |_| Ok(()))?;
    let graph = graph(&module)?;
    let samples = data::samples(data, &graph)?;
    let products = products(&graph, options);
    let mut walk = Walk::new(&graph, params, &samples, &products);
    let mut made = ParamStore::new();
    let (mut found, mut layers) = (HashMap::new(), vec![]);
    let mut at = 0;
    while at < products.len() {
        // Weights that are multiplied with the same.
        let left = products[at].left;
        let same = products[at..].iter().take_while(|p| p.left == left).count();
        let seen =
            Seen::new(walk.products_of(left)?, products[at].parts[1]).map_err(|e| named(e, &graph, &products[at]))?;
        for product in &products[at..at + same] {
            let weights = walk.weights(product)?;
            let values = weights.to_vec::<f32>().ok_or_else(|| Error::defect("weights are no f32"))?;
            let result = rounded(&seen, &values, product.parts, product.bits, product.size);
            walk.round(product, Tensor::from_vec(weights.dims().to_vec(), result.weights));
            let [codes, scale] = ["codes", "scales"].map(|what| format!("@{what}{}", layers.len()));
            let (axis, groups) = (product.axis, product.parts[1] / product.size);
            let with = |sizes: &[usize]| {
                let mut dims = weights.dims().to_vec();
                dims.splice(axis..=axis, sizes.iter().copied());
                dims
            };
            made.insert(codes.clone(), Tensor::from_vec(with(&[groups, product.size]), result.codes));
            made.insert(scale.clone(), Tensor::from_vec(with(&[groups]), result.scales));
            found.insert(product.meaning, Codes { codes, scale, bits: product.bits, size: product.size as i64 });
            let origins = graph.node(product.node).origins.clone();
            let (bits, size, damping) = (product.bits, product.size, result.damping);
            let (weight_error, product_error) = (result.weight_error, result.product_error);
            layers.push(Layer { origins, bits, size, weight_error, product_error, damping });
        }
        at += same;
    }
    let is_random = data::is_random(data);
    Ok(Calibration { calibrated: Calibrated::new(found, is_random), params: made, layers })
}

fn named(error: Box<Error>, graph: &Graph, product: &Product) -> Box<Error> {
    match graph.node(product.node).origins.first() {
        Some(origin) => error.node(origin),
        None => error,
    }
}

#[cfg(test)]
mod tests;
