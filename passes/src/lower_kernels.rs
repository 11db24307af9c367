//! plan.kernel @k0  =>  module @v4 { llvm.func @k0_v4 … }: each kernel in upstream dialects, for every CPU variant
//!
//! A variant with instructions that only some kernels use has these alone; the others run the code of the best variant
//! before. The plan stays beside the modules. How a kernel is made is in `kernel/`; this pass is where the two levels meet.

use crate::rewrite::Rewrites;
use sardonyx_base::{Error, Result};
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::plan::Plan;
use sardonyx_kernels::{functions, levels_of, lower};

pub fn run(module: Operation, _: &mut Rewrites) -> Result<()> {
    let (Some(plan), Some(block)) = (Plan::read(module)?, module.block(0)) else { return Ok(()) };
    if plan.kernels.is_empty() {
        return Ok(());
    }
    let lowered = plan.kernels.iter().map(|(symbol, kernel)| Ok((symbol, lower(kernel)?)));
    let lowered = lowered.collect::<Result<Vec<_>>>()?;
    for variant in levels_of(lowered.iter().map(|(_, l)| l)) {
        let functions = functions(lowered.iter().map(|(symbol, l)| (symbol.as_str(), l)), variant);
        let text = format!("module @{} {{\n{functions}}}", variant.name());
        let parsed = Operation::parse(module.context(), &text);
        block.push(parsed.ok_or_else(|| Error::defect(format!("the kernels of {} do not parse", variant.name())))?);
    }
    Ok(())
}
