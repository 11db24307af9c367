//! plan.kernel @k0  =>  module @v4 { llvm.func @k0_v4 … }: each kernel in upstream dialects, for every CPU variant
//!
//! If a CPU variant adds instructions that only some kernels use, only these kernels are generated for it; each other
//! kernel runs its code for the best variant that this one includes. The plan stays in the outer module, next to the
//! modules of the variants. The code generators are in `passes/kernels`; this pass only calls them for the kernels of
//! the plan.

use crate::rewrite::Rewrites;
use sardonyx_base::{Error, Result};
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::plan::Plan;
use sardonyx_kernels::{functions, levels_of, lower};

pub fn run(module: &mut Module, _: &mut Rewrites) -> Result<()> {
    let Some(plan) = Plan::read(module.operation())? else { return Ok(()) };
    if plan.kernels.is_empty() {
        return Ok(());
    }
    let lowered = plan.kernels.iter().map(|(symbol, kernel)| Ok((symbol, lower(kernel)?)));
    let lowered = lowered.collect::<Result<Vec<_>>>()?;
    for variant in levels_of(lowered.iter().map(|(_, l)| l)) {
        let functions = functions(lowered.iter().map(|(symbol, l)| (symbol.as_str(), l)), variant);
        let text = format!("module @{} {{\n{functions}}}", variant.name());
        let parsed = module.context().parse(&text);
        module.push(parsed.ok_or_else(|| Error::defect(format!("the kernels of {} do not parse", variant.name())))?)?;
    }
    Ok(())
}
