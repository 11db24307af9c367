//! After each pass of the pipeline, and as machine code, a program still has the meaning of its original graph: random
//! and handwritten graphs

mod compiled;
mod quantised;
mod random;
mod sharded;
mod written;

use melior::Context as MlirContext;
use melior::ir::{Location, Module};
use sardonyx_base::{DType, Error, Result, Tensor};
use sardonyx_dialects::flow::Program;
use sardonyx_dialects::interp;
use sardonyx_dialects::mlir::{self, Block, Context, Operation};
use sardonyx_dialects::sdx::{Graph, Op};
use sardonyx_passes::{Class, Options, PASSES, Precision, Rewrites};
use std::collections::BTreeMap;

static PIPELINE: &[&str] = &[
    "find-caches",
    "fold-constants",
    "simplify",
    "cse",
    "e-graph",
    "simplify",
    "cse",
    "sdx-to-flow",
    "widen-halves",
    "prepare-weights",
    "split-extrema",
    "fuse",
    "drop-roundings",
    "fuse-attention",
    "inline-maps",
    "fuse-siblings",
    "split-columns",
    "remove-padding",
    "int8-contractions",
    "expand-weights",
    "skip-masked-keys",
    "choose-layouts",
    "choose-algorithms",
    "skip-zeros",
    "tabulate",
    "pack-weights",
    "lower-precision",
    "stage-operands",
];

/// A graph with its parameters and the inputs of some calls.
pub struct Case {
    /// Name in messages about failures, such as `seed 7`.
    pub name: String,
    /// The original graph, which each pass must keep equivalent.
    pub graph: Graph,
    /// Values of the graph's parameters, by name.
    pub params: BTreeMap<String, Tensor>,
    /// Inputs of each call, by name.
    pub calls: Vec<Vec<(String, Tensor)>>,
}

type Outputs = Vec<(String, Tensor)>;

/// The expected outputs of one call, and the tolerances of actual outputs.
struct Expected {
    outputs: Outputs,
    /// Tolerance after passes that are exact except for the order of sums.
    exact: f64,
    /// Tolerance after a pass that changes roundings.
    reassociated: f64,
    /// Tolerance after operands of contractions were rounded to bf16.
    narrowed: f64,
}

impl Expected {
    fn tolerance(&self, class: Class) -> f64 {
        match class {
            Class::Exact => self.exact,
            // All values of these tests are finite.
            Class::Reassociating | Class::FiniteOnly => self.reassociated,
            Class::Narrowing => self.narrowed,
        }
    }
}

/// Runs the interpreter. A pass may reorder sums, and round the products of a contraction one by one: the exact
/// tolerance is the error of one rounding of the largest value that occurs, times the length of the longest value plus
/// the number of nodes. For a pass that changes roundings it is four times that, with the unit of the least precise
/// type that occurs.
fn expected(case: &Case, inputs: &[(String, Tensor)]) -> Result<Expected> {
    let (mut largest, mut longest) = (1f64, 1usize);
    let (mut narrow, mut rounding) = (false, 2f64.powi(-53));
    let params = |name: &str| param(case, name);
    let outputs = interp::run_all(&case.graph, &params, inputs, &mut |v, t| {
        longest = longest.max(t.len());
        let node = case.graph.node(v);
        narrow |= matches!(node.op, Op::Contract(_)) && t.dtype() == DType::F32;
        if t.dtype().is_float() {
            rounding = rounding.max(unit(t.dtype()));
            let finite = (0..t.len()).filter_map(|i| t.get_f64(i)).map(f64::abs).filter(|x| x.is_finite());
            largest = finite.fold(largest, f64::max);
        }
        Ok(())
    })?;
    let summed = 2f64.powi(if narrow { -24 } else { -53 });
    let count = (longest + case.graph.nodes.len()) as f64;
    let of = |rounding: f64| 4.0 * rounding * largest * count;
    let narrowed = of(rounding.max(unit(DType::BF16)));
    Ok(Expected { outputs, exact: summed * largest * count, reassociated: of(rounding), narrowed })
}

/// Relative error of one rounding.
fn unit(dtype: DType) -> f64 {
    2f64.powi(match dtype {
        DType::F64 => -53,
        DType::F32 => -24,
        DType::F16 => -11,
        _ => -8,
    })
}

fn param(case: &Case, name: &str) -> Result<Tensor> {
    case.params.get(name).cloned().ok_or_else(|| Error::defect(format!("no parameter `{name}`")))
}

/// Outputs of the module's function, in the sdx or the flow dialect.
fn outputs(case: &Case, module: Operation, function: Operation, inputs: &[(String, Tensor)]) -> Result<Outputs> {
    let params = |name: &str| param(case, name);
    let at_flow = function.block(0).is_some_and(|b| {
        let flow = |name: String| name.starts_with("flow.");
        b.operations().iter().any(|op| flow(op.name()))
            || b.arguments().iter().any(|v| v.ty().container_layout().is_some())
    });
    match at_flow {
        true => interp::run_program(&Program::read_whole(function, module)?, &params, inputs),
        false => interp::run(&Graph::read(function)?, &params, inputs),
    }
}

fn compare(wanted: &Expected, tolerance: f64, got: &[(String, Tensor)]) -> std::result::Result<(), String> {
    if wanted.outputs.len() != got.len() {
        return Err(format!("{} outputs, not {}", got.len(), wanted.outputs.len()));
    }
    for ((name, want), (other, got)) in wanted.outputs.iter().zip(got) {
        if name != other || want.dtype() != got.dtype() || want.dims() != got.dims() {
            return Err(format!("the output is {other} {got:?}, not {name} {want:?}"));
        }
        let differs = |i: &usize| !close(want, got, *i, tolerance);
        if let Some(i) = (0..want.len()).find(differs) {
            let (want, got) = (want.get_f64(i), got.get_f64(i));
            return Err(format!("element {i} of {name} is {got:?}, not {want:?} within {tolerance:e}"));
        }
    }
    Ok(())
}

/// Integers, NaNs and infinities must be equal, other floats within the tolerance. The sign of a zero does not matter.
fn close(want: &Tensor, got: &Tensor, i: usize, tolerance: f64) -> bool {
    if !want.dtype().is_float() {
        return want.get_i64(i) == got.get_i64(i);
    }
    let (Some(w), Some(g)) = (want.get_f64(i), got.get_f64(i)) else { return false };
    match w.is_finite() && w != 0.0 {
        true => (w - g).abs() <= tolerance,
        false => w.to_bits() == g.to_bits() || (w.is_nan() && g.is_nan()) || (w == 0.0 && g.abs() <= tolerance),
    }
}

/// The functions of a module as text.
fn text(module: &Module) -> String {
    let operations = Operation::of_module(module).block(0).map_or(vec![], Block::operations);
    operations.iter().map(|op| op.to_string()).collect()
}

/// Checks a graph after each pass. Returns how many contractions were lowered to bf16.
fn check(context: &MlirContext, case: &Case) -> std::result::Result<usize, String> {
    let wanted = case.calls.iter().map(|inputs| expected(case, inputs)).collect::<Result<Vec<_>>>();
    let wanted = wanted.map_err(|e| format!("{}: the graph itself: {e}", case.name))?;
    let mut module = Module::new(Location::unknown(context));
    let function = case.graph.write(Context::new(context)).map_err(|e| e.to_string())?;
    let before = function.operation().to_string();
    mlir::Module::new(&mut module).push(function).map_err(|e| e.to_string())?;
    let mut done = vec![];
    let mut classes = vec![];
    // The validation must accept every rewrite, because the resulting programs are checked to be right.
    let mut rewrites = Rewrites::new(Options { validate: true, precision: Precision::Bf16, ..Options::default() });
    for &pass in PIPELINE {
        done.push(pass);
        let fail =
            |what: String, now: String| format!("{} after {}: {what}\n{before}\n=>\n{now}", case.name, done.join(","));
        let before_pass = text(&module);
        sardonyx_passes::run_pipeline_with(context, &mut module, &format!("builtin.module({pass})"), &mut rewrites)
            .map_err(|e| fail(e.to_string(), before_pass.clone()))?;
        // A pass that changed nothing grants no tolerance. MLIR's own passes, which are not in `PASSES`, are exact.
        let row = PASSES.iter().find(|row| row.name == pass && text(&module) != before_pass);
        classes.push(row.map_or(Class::Exact, |row| row.class));
        let whole = Operation::of_module(&module);
        let function = whole.block(0).expect("a body").operations()[0];
        for (inputs, wanted) in case.calls.iter().zip(&wanted) {
            let got =
                outputs(case, whole, function, inputs).map_err(|e| fail(format!("{inputs:?}: {e}"), text(&module)))?;
            let tolerance = classes.iter().map(|class| wanted.tolerance(*class)).fold(0.0, f64::max);
            compare(wanted, tolerance, &got).map_err(|what| fail(format!("{inputs:?}: {what}"), text(&module)))?;
        }
    }
    Ok(rewrites.applied().iter().filter(|r| r.pass == "lower-precision").count())
}

fn check_all(cases: impl Iterator<Item = Case>) -> usize {
    let context = sardonyx_passes::context();
    context.attach_diagnostic_handler(|d| {
        eprintln!("{d}");
        true
    });
    cases.map(|case| check(&context, &case).unwrap_or_else(|what| panic!("{what}"))).sum()
}

/// Seeds of the random graphs; another range is given by `MEANING_SEEDS=1000..5000`.
fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("MEANING_SEEDS").ok();
    let given = given.as_deref().and_then(|text| text.split_once(".."));
    match given.map(|(lo, hi)| (lo.parse(), hi.parse())) {
        Some((Ok(lo), Ok(hi))) => lo..hi,
        Some(_) => panic!("MEANING_SEEDS is LO..HI"),
        None => 0..400,
    }
}

#[test]
fn random_graphs() {
    check_all(seeds().map(random::case));
}

#[test]
fn sharded_graphs() {
    let context = sardonyx_passes::context();
    let seeds = seeds().start..seeds().end.max(seeds().start + 500);
    let check = |seed| sharded::check(&context, &random::case(seed), seed).unwrap_or_else(|what| panic!("{what}"));
    let collectives: usize = seeds.map(check).sum();
    assert!(collectives > 500, "only {collectives} collectives");
}

#[test]
fn compiled_graphs() {
    let context = sardonyx_passes::context();
    let cases = (0..40).map(random::case).chain(written::cases());
    let ran = cases.filter(|case| compiled::check(&context, case).unwrap_or_else(|what| panic!("{what}"))).count();
    assert!(ran >= 20, "only {ran} graphs were compiled");
}

#[test]
fn quantised_graphs() {
    quantised::check(&sardonyx_passes::context());
}

#[test]
fn written_graphs() {
    assert!(check_all(written::cases().into_iter()) > 0, "no contraction became bf16");
}
