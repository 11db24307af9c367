//! sdx  =>  e-graph of the expressions that the rules prove equal  =>  the cheapest sdx function in it
//!
//! Each topic has a file with a table of rules, one rule per line. A limit that is reached ends the search without an
//! error: extraction then chooses among what has been found, which includes the original function.

mod activation;
mod algebra;
mod attention;
mod checks;
mod contraction;
mod cost;
mod embedding;
mod explain;
mod expr;
mod extract;
mod language;
mod merging;
mod motion;
mod normal;
mod normalisation;
mod quantisation;
mod range;
mod rebuild;
mod rotary;
mod rule;
mod saturate;
mod table;
#[cfg(test)]
mod tests;

pub use cost::Rates;
pub use explain::{Explanation, Explanations, Link};

use crate::levels::is_sdx;
use crate::rewrite::Rewrites;
use extract::Budget;
use rule::{Compiled, Rule};
use sardonyx_base::{Error, Result};
use sardonyx_dialects::mlir::{Module, Operation};
use sardonyx_dialects::sdx::{Graph, Value};
use sardonyx_kernels::Target;
use saturate::Limits;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The rule tables, sorted by topic; each rule name occurs in only one table.
static TOPICS: &[&[Rule]] = &[
    activation::RULES,
    algebra::RULES,
    attention::RULES,
    contraction::RULES,
    embedding::RULES,
    merging::RULES,
    motion::RULES,
    normalisation::RULES,
    quantisation::RULES,
    rotary::RULES,
];

/// Cost model, and limits of the search.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rates of the device, from which the costs of nodes are computed.
    pub rates: Rates,
    /// Whether rules that hold only for finite values also apply where the values are not proved finite.
    pub allow_finite: bool,
    /// Number of e-graph nodes allowed for each node of the function, in addition to 2000.
    pub growth_max: usize,
    /// Limit on the iterations; each one matches all rules before it adds the first equality.
    pub iterations_max: usize,
}

impl Options {
    /// Returns the default limits with the rates of a target.
    pub fn for_target(target: Target) -> Options {
        Options { rates: Rates::for_target(target), allow_finite: false, growth_max: 8, iterations_max: 16 }
    }
}

/// Summary of an optimisation.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Number of nodes of the old function.
    pub nodes_before: usize,
    /// Number of nodes of the new function.
    pub nodes_after: usize,
    /// Number of nodes of the e-graph at the end of the search.
    pub egraph_nodes: usize,
    /// Number of iterations of the search.
    pub iterations: usize,
    /// Whether the search ended before the rules stopped finding equalities: by a limit, or for lack of fuel.
    pub limited: bool,
    /// Whether the new function is proved to be the cheapest in the e-graph.
    pub proved: bool,
    /// Cost of the old function in picoseconds; 0 if nothing was extracted.
    pub cost_before: u64,
    /// Cost of the new function in picoseconds; 0 if nothing was extracted.
    pub cost_after: u64,
    /// Number of equalities added, by rule; rules that added none are left out.
    pub fired: Vec<(String, usize)>,
    /// Rules that led to each node of the new function.
    pub explanations: Explanations,
    /// For each node of the new function, the first value of the old function that it equals, if any.
    pub equals: Vec<Option<Value>>,
    /// For each value of the old function, the first value of that function that it equals, possibly itself.
    pub first: Vec<Value>,
    /// For each value of the old function, the equalities added to its e-class, numbered as in [`Link::found`].
    pub found: Vec<Arc<[usize]>>,
    /// For each value of the old function, bounds on its elements.
    pub bounds: Vec<(f64, f64)>,
}

/// Optimises each function. Each equality that is added uses one unit of fuel; without fuel, functions are unchanged.
pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    rewrites.graphs(module, |rewrites, graph| {
        if !rewrites.has_fuel() {
            return Ok(());
        }
        let first = rewrites.applied().len() + 1;
        let mut options = Options::for_target(rewrites.options().target);
        // On a mesh, expressions over parameters are evaluated in each call, not when the model is compiled.
        options.rates.prepares_weights = rewrites.options().mesh.is_empty();
        let allow = &mut |rule: &'static str, origins: &[String]| rewrites.allow(rule, origins);
        let (new, report) = optimise_within(graph, &options, allow)?;
        if rewrites.options().validate {
            checks::check(graph, &new, &report, first, rewrites)?;
        }
        *graph = new;
        Ok(())
    })
}

/// Optimises the sdx functions in `module` for CPUs. Returns lines of text: each operation of the results that comes
/// from the ONNX node `name`, and the rules that led to it. Errors: E0001 if there is no such operation.
pub fn explain_node(module: Operation, name: &str) -> Result<Vec<String>> {
    let Some(block) = module.block(0) else { return Ok(vec![]) };
    let mut out = vec![];
    for function in block.operations().into_iter().filter(|op| op.name() == "func.func" && is_sdx(*op)) {
        let (_, report) = optimise(&Graph::read(function)?, &Options::for_target(Target::cpu()))?;
        out.extend(report.explanations.lines_for(name));
    }
    match out.is_empty() {
        false => Ok(out),
        true => Err(Error::user("E0001", format!("no operation comes from a node `{name}`"))
            .help("the names are the nodes of the model, and the locations of its operations: `sardonyx-opt --print-locations`")),
    }
}

/// Returns the cheapest graph that was found. An error is a defect, such as a rule whose two sides differ in type.
pub fn optimise(graph: &Graph, options: &Options) -> Result<(Graph, Report)> {
    optimise_within(graph, options, &mut |_, _| true)
}

type Allow<'a> = &'a mut dyn FnMut(&'static str, &[String]) -> bool;

/// As [`optimise`], with a callback: `allow` is called before each equality with the rule's name and the ONNX nodes
/// that the value comes from. If it returns false, the equality is not added and the search ends.
fn optimise_within(graph: &Graph, options: &Options, allow: Allow) -> Result<(Graph, Report)> {
    let rules: Vec<Rule> = TOPICS.iter().flat_map(|t| t.iter().copied()).collect();
    let compiled: Vec<Compiled> = rule::compile(&rules);
    let defect = |what: String| Error::defect(format!("the e-graph of `{}`: {what}", graph.name));
    let (mut egraph, ids) = language::load(graph).map_err(defect)?;
    let limits = Limits {
        nodes_max: 2000 + options.growth_max * graph.nodes.len(),
        iterations_max: options.iterations_max,
        sites_max: 500 + graph.nodes.len(),
    };
    let mut ask = |rule: usize, node: usize| allow(rules[rule].name, &graph.nodes[node].origins);
    let run = saturate::saturate(&mut egraph, &compiled, &limits, options.allow_finite, &mut ask).map_err(defect)?;
    let budget = Budget { choices_max: 30, exact_steps_max: 200_000, refine_steps_max: 20_000_000 };
    let fired = compiled.iter().zip(&run.fired).filter(|(_, n)| **n > 0);
    let mut report = Report {
        nodes_before: graph.nodes.len(),
        nodes_after: graph.nodes.len(),
        egraph_nodes: egraph.total_number_of_nodes(),
        iterations: run.iterations,
        limited: run.limited,
        fired: fired.map(|(c, n)| (c.name.clone(), *n)).collect(),
        ..Report::default()
    };
    let Some(rebuilt) = rebuild::rebuild(&egraph, graph, &ids, &options.rates, &budget) else {
        return Ok((graph.clone(), report));
    };
    report.nodes_after = rebuilt.graph.nodes.len();
    (report.cost_before, report.cost_after) = (rebuilt.cost_before, rebuilt.cost_after);
    report.proved = rebuilt.proved;
    let class = |id: &egg::Id| egraph.find(*id);
    let mut of_class = BTreeMap::new();
    for (v, _) in graph.values() {
        of_class.entry(class(&ids[v.index()])).or_insert(v);
    }
    let mut found: BTreeMap<egg::Id, Vec<usize>> = BTreeMap::new();
    run.steps.iter().for_each(|step| found.entry(class(&step.class)).or_default().push(step.found));
    report.first = ids.iter().map(|id| of_class[&class(id)]).collect();
    let found: BTreeMap<egg::Id, Arc<[usize]>> = found.into_iter().map(|(id, all)| (id, all.into())).collect();
    report.found = ids.iter().map(|id| found.get(&class(id)).cloned().unwrap_or_default()).collect();
    report.equals = rebuilt.nodes.iter().map(|(id, _)| of_class.get(&class(id)).copied()).collect();
    let range = |id: &egg::Id| egraph[class(id)].data.range;
    report.bounds = ids.iter().map(|id| (range(id).lo, range(id).hi)).collect();
    report.explanations = explain::explanations(&egraph, &rules, &run, (graph, &ids), (&rebuilt.graph, &rebuilt.nodes));
    Ok((rebuilt.graph, report))
}
