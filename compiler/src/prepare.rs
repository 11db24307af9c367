//! programs that compute parameters  =>  their values, by compiled code or, if they are small, by the interpreter
//!
//! Programs that differ only in the names of their parameters share one entry point, whose inputs are the parameters.
//! Its code is always that of the lowest CPU level, so that the bytes do not depend on the machine that compiles.

use crate::session::session;
use melior::ir::{Location, Module};
use sardonyx_base::view::TensorView;
use sardonyx_base::{Dim, Error, Result, Tensor};
use sardonyx_dialects::flow::prepared::{self, Prepared};
use sardonyx_dialects::flow::{FlowOp, Program, Source};
use sardonyx_dialects::interp::{Values, joined};
use sardonyx_dialects::mlir::{self, Operation};
use sardonyx_dialects::params::ParamValues;
use sardonyx_dialects::plan::Plan;
use sardonyx_runtime::RunOptions;
use std::collections::{BTreeMap, BTreeSet};

/// If all containers of the programs together have fewer elements, interpreting is faster than compiling.
const ELEMENTS_MIN: i64 = 1 << 20;

/// The pipeline for these programs: their kernels are fused and launched in order.
const PIPELINE: &str = "builtin.module(fuse,schedule,plan-memory)";

/// Values of prepared parameters, computed by compiled code; empty if they are so small that interpreting is faster.
pub fn values(prepared: &Prepared, params: &dyn ParamValues) -> Result<BTreeMap<String, Tensor>> {
    let work = prepared.values().flat_map(|p| &p.containers).filter_map(elements).fold(0, i64::saturating_add);
    if work < ELEMENTS_MIN { Ok(BTreeMap::new()) } else { compiled(prepared, params) }
}

fn compiled(prepared: &Prepared, params: &dyn ParamValues) -> Result<BTreeMap<String, Tensor>> {
    let context = sardonyx_passes::context();
    context.attach_diagnostic_handler(|_| true);
    let mut module = Module::new(Location::unknown(&context));
    let mut entries: BTreeMap<String, String> = BTreeMap::new();
    for (name, program) in prepared {
        let cx = mlir::Context::new(&context);
        let (_, open) = prepared::named(opened(program).0, cx)?;
        if !entries.values().any(|known| *known == open.name) {
            mlir::Module::new(&mut module).push(open.write(cx)?)?;
        }
        entries.insert(name.clone(), open.name);
    }
    sardonyx_passes::run_pipeline(&context, &mut module, PIPELINE)?;
    let plan = Plan::read(Operation::of_module(&module))?.ok_or_else(|| Error::defect("nothing to prepare is left"))?;
    let session = session(plan, &BTreeMap::new())?;
    let mut done: BTreeMap<String, Tensor> = BTreeMap::new();
    for name in in_order(prepared) {
        let value = {
            let known = |name: &str| done.get(name).cloned().map_or_else(|| params.value(name), Ok);
            let (_, sources) = opened(&prepared[name]);
            let inputs = sources.iter().map(|source| joined(source, &known)).collect::<Result<Vec<Tensor>>>()?;
            let names: Vec<String> = (0..inputs.len()).map(input).collect();
            let views: Vec<(&str, TensorView)> =
                names.iter().map(String::as_str).zip(inputs.iter().map(Into::into)).collect();
            session.run_with(&entries[name], &views, &mut [], &RunOptions::default())?.into_iter().next()
        };
        let (_, value) = value.ok_or_else(|| Error::defect(format!("nothing is prepared for `{name}`")))?;
        done.insert(name.to_string(), value);
    }
    Ok(done)
}

fn elements(c: &sardonyx_dialects::flow::Container) -> Option<i64> {
    c.dims.iter().map(Dim::as_const).try_fold(1i64, |n, d| n.checked_mul(d?))
}

fn input(i: usize) -> String {
    format!("p{i}")
}

/// The program with its parameters turned into inputs, and the sources of these inputs.
fn opened(program: &Program) -> (Program, Vec<Source>) {
    let (mut open, mut sources) = (Program { steps: vec![], ..program.clone() }, vec![]);
    for step in &program.steps {
        match &step.op {
            FlowOp::Param { source, window: None } => {
                open.inputs.push((input(sources.len()), step.results[0]));
                sources.push(source.clone());
            }
            _ => open.steps.push(step.clone()),
        }
    }
    (open, sources)
}

/// The names in an order in which each comes after those that it is made of.
fn in_order(prepared: &Prepared) -> Vec<&str> {
    fn visit<'p>(prepared: &'p Prepared, name: &'p str, seen: &mut BTreeSet<&'p str>, order: &mut Vec<&'p str>) {
        let Some((name, program)) = prepared.get_key_value(name).filter(|_| !seen.contains(name)) else { return };
        seen.insert(name);
        for made_of in program.made_of() {
            if let Some((known, _)) = prepared.get_key_value(&made_of) {
                visit(prepared, known, seen, order);
            }
        }
        order.push(name);
    }
    let (mut seen, mut order) = (BTreeSet::new(), vec![]);
    prepared.keys().for_each(|name| visit(prepared, name, &mut seen, &mut order));
    order
}

/// Parameters and prepared parameters: the latter from `values` if present, else by interpreting their programs.
pub struct Store<'a> {
    pub params: &'a dyn ParamValues,
    pub prepared: &'a Prepared,
    pub values: &'a BTreeMap<String, Tensor>,
}

impl ParamValues for Store<'_> {
    fn value(&self, name: &str) -> Result<Tensor> {
        match self.values.get(name) {
            Some(value) => Ok(value.clone()),
            None => Values { params: self.params, prepared: self.prepared }.value(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_base::DType;
    use sardonyx_format::tensor_io::Synthetic;
    use sardonyx_passes::{Options, Quantize, Rewrites};

    /// Two products of the same size and one of another.
    static TEXT: &str = r#"
func.func @main(%x: !sdx.tensor<[m, 64], f32>) -> !sdx.tensor<[m, 96], f32> {
  %u = sdx.param "u" : !sdx.tensor<[64, 64], f32>
  %v = sdx.param "v" : !sdx.tensor<[64, 64], f32>
  %w = sdx.param "w" : !sdx.tensor<[64, 96], f32>
  %0 = sdx.contract "mk,kn->mn"(%x, %u) : (!sdx.tensor<[m, 64], f32>, !sdx.tensor<[64, 64], f32>) -> !sdx.tensor<[m, 64], f32>
  %1 = sdx.contract "mk,kn->mn"(%0, %v) : (!sdx.tensor<[m, 64], f32>, !sdx.tensor<[64, 64], f32>) -> !sdx.tensor<[m, 64], f32>
  %2 = sdx.contract "mk,kn->mn"(%1, %w) : (!sdx.tensor<[m, 64], f32>, !sdx.tensor<[64, 96], f32>) -> !sdx.tensor<[m, 96], f32>
  return %2 : !sdx.tensor<[m, 96], f32>
}"#;

    #[test]
    fn code_prepares_what_the_interpreter_does() {
        let context = sardonyx_passes::context();
        let mut module = Module::parse(&context, TEXT).unwrap();
        let mut rewrites = Rewrites::new(Options { quantize: Quantize::Int8, ..Options::default() });
        let pipeline = "builtin.module(quantize,sdx-to-flow,prepare-weights)";
        sardonyx_passes::run_pipeline_with(&context, &mut module, pipeline, &mut rewrites).unwrap();
        let prepared = prepared::read(Operation::of_module(&module)).unwrap();
        assert_eq!(prepared.len(), 6, "codes and scales of three");
        let params = |name: &str| {
            let columns = if name == "w" { 96 } else { 64 };
            Synthetic::Random.tensor(DType::F32, vec![64, columns], name.bytes().map(u64::from).sum())
        };
        let made = compiled(&prepared, &params).unwrap();
        let meant = Values { params: &params, prepared: &prepared };
        for name in prepared.keys() {
            assert_eq!(made[name], meant.value(name).unwrap(), "{name}");
        }
        let codes: Vec<i8> =
            made.values().filter(|t| t.dtype() == DType::I8).flat_map(|t| t.to_vec().unwrap()).collect();
        assert_eq!((codes.iter().min(), codes.iter().max()), (Some(&-127), Some(&127)));
    }
}
