//! candidates for each layer, a judge  =>  the choice with the fewest bytes of weights that the judge accepts
//!
//! The loss of a layer is the squared relative error of its own matrix product or table. A complete choice, one
//! candidate for each layer, is judged by the error of the outputs on held-out calls, or by the user's score of an
//! artifact. Choices are tried from the smallest on, each with a tighter bound on the total loss, so a larger error
//! budget never yields more bytes.

use super::data::Sample;
use super::knapsack::{Candidate, cheapest};
use super::walk::code;
use crate::import::ParamStore;
use sardonyx_base::compare::Relative;
use sardonyx_base::{Result, Tensor};
use sardonyx_dialects::sdx::Graph;
use sardonyx_passes::Options;
use sardonyx_passes::calibrated::{Calibrated, Meaning, Rounding};
use std::collections::HashMap;

/// The stage that quantises.
const STAGE: &str = "quantize";
/// Number of bounds on the loss that are tried before the search gives up.
const STEPS: i32 = 48;
/// Ratio of each bound to the one before.
const STEP: f64 = std::f64::consts::FRAC_1_SQRT_2;

/// The weights of one matrix product or embedding table, and the alternatives for storing them.
pub struct Choice {
    pub meaning: Meaning,
    /// The first candidate leaves the weights as they are.
    pub candidates: Vec<(Option<Rounding>, Candidate)>,
}

/// The chosen roundings, and the index of the candidate taken for each choice.
pub struct Chosen {
    pub found: HashMap<Meaning, Rounding>,
    pub candidates: Vec<usize>,
}

/// Returns the smallest choice that `passes` accepts; `None` if it accepts none that rounds anything.
pub fn choose(choices: &[Choice], passes: &mut dyn FnMut(Calibrated) -> Result<bool>) -> Result<Option<Chosen>> {
    let rows: Vec<Vec<Candidate>> = choices.iter().map(|c| c.candidates.iter().map(|(_, c)| *c).collect()).collect();
    let all: f64 = rows.iter().map(|row| row.iter().map(|c| c.lost).fold(0.0, f64::max)).sum();
    let mut tried: Vec<Vec<usize>> = vec![];
    for step in 0..STEPS {
        let Some(candidates) = cheapest(&rows, all * STEP.powi(step)) else { break };
        if tried.contains(&candidates) {
            continue;
        }
        let rounding = |(choice, &c): (&Choice, &usize)| Some((choice.meaning, choice.candidates[c].0.clone()?));
        let found: HashMap<Meaning, Rounding> = choices.iter().zip(&candidates).filter_map(rounding).collect();
        if found.is_empty() {
            break;
        }
        if passes(Calibrated::new(found.clone(), false))? {
            return Ok(Some(Chosen { found, candidates }));
        }
        tried.push(candidates);
    }
    Ok(None)
}

/// Returns a judge that accepts a choice if the relative error of the outputs on `unseen` calls is at most `budget`.
pub fn within<'a>(
    (graph, params): (&'a Graph, &'a ParamStore),
    options: &'a Options,
    unseen: &'a [Sample],
    budget: f64,
) -> Result<impl FnMut(Calibrated) -> Result<bool> + 'a> {
    let expected = outputs(graph, params, Options::default(), unseen)?;
    Ok(move |calibrated| {
        let actual = outputs(graph, params, Options { calibrated, ..options.clone() }, unseen)?;
        Ok(error(&expected, &actual) <= budget)
    })
}

fn outputs(graph: &Graph, params: &ParamStore, options: Options, samples: &[Sample]) -> Result<Vec<Vec<Tensor>>> {
    let session = code(graph, params, STAGE, options)?;
    let run = |sample: &Sample| Ok(sample.outputs(&session, &[])?.into_iter().map(|(_, t)| t).collect());
    samples.iter().map(run).collect()
}

/// Largest relative error (L2) of any floating-point output, taken over all calls.
fn error(expected: &[Vec<Tensor>], actual: &[Vec<Tensor>]) -> f64 {
    let n = expected.first().map_or(0, Vec::len);
    let of_output = |o: usize| {
        let mut relative = Relative::default();
        for (e, a) in expected.iter().zip(actual) {
            (0..e[o].len()).filter_map(|i| a[o].get_f64(i).zip(e[o].get_f64(i))).for_each(|(a, e)| relative.add(a, e));
        }
        relative.error()
    };
    let errors = (0..n).filter(|o| expected[0][*o].dtype().is_float()).map(of_output);
    // NaN counts as infinitely wrong.
    errors.fold(0.0, |most, e| if e.is_nan() { f64::INFINITY } else { most.max(e) })
}
