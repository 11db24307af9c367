//! Compiles a graph to an artifact, and compares the results of the runtime's calls with those of the interpreter

use super::{Case, compare, expected};
use melior::Context as MlirContext;
use melior::ir::{Location, Module};
use sardonyx::import::ParamStore;
use sardonyx_base::{Result, Tensor};
use sardonyx_dialects::mlir::{self, Context, Operation};
use sardonyx_dialects::plan::Plan;
use sardonyx_dialects::sdx::SymbolKind;
use sardonyx_kernels::Target;
use sardonyx_passes::{Named, Options, Precision, Rewrites};
use sardonyx_runtime::{Model, SessionOptions};
use sardonyx_tests::emitted::emit;
use sardonyx_tests::trust::trusted;

/// Compiles and checks the case in every precision. Returns false, without compiling, if a dimension symbol of the
/// graph gets its value from data.
pub fn check(context: &MlirContext, case: &Case) -> std::result::Result<bool, String> {
    if case.graph.symbols.values().any(|s| s.kind == SymbolKind::Data) {
        return Ok(false);
    }
    for (_, precision) in Precision::NAMES {
        check_in(context, case, *precision)?;
    }
    Ok(true)
}

fn check_in(context: &MlirContext, case: &Case, precision: Precision) -> std::result::Result<(), String> {
    let model = load(context, case, precision).map_err(|e| format!("{} in {}: {e}", case.name, precision.name()))?;
    for threads in [1, 2] {
        let options = SessionOptions::default().threads(threads);
        let session = model.session(&options).map_err(|e| e.to_string())?;
        for inputs in &case.calls {
            let wanted = expected(case, inputs).map_err(|e| e.to_string())?;
            // Kernels compute transcendental functions to a few units in the last place of f32.
            let tolerance = match precision {
                Precision::F32 => (wanted.reassociated * 2.0).max(1e-6),
                Precision::Bf16 => wanted.narrowed,
            };
            let given: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
            let got =
                session.run_entry(&case.graph.name, &given).map_err(|e| format!("{}: {inputs:?}: {e}", case.name))?;
            compare(&wanted, tolerance, &got)
                .map_err(|what| format!("{} in {}: {inputs:?}: {what}", case.name, precision.name()))?;
        }
    }
    Ok(())
}

fn load(context: &MlirContext, case: &Case, precision: Precision) -> Result<Model> {
    let mut module = Module::new(Location::unknown(context));
    mlir::Module::new(&mut module).push(case.graph.write(Context::new(context))?)?;
    let mut rewrites = Rewrites::new(Options { precision, ..Options::default() });
    sardonyx_passes::run_pipeline_with(context, &mut module, &sardonyx::pipeline::pipeline(), &mut rewrites)?;
    let raw = Operation::of_module(&module);
    let plan = Plan::read(raw)?.expect("a plan was made");
    let params: ParamStore = case.params.clone();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("case.sdx");
    emit(&path, &plan, &params, &[Target::cpu()])?;
    Model::load(&path, &trusted())
}
