//! The level of a function, and replacement of the functions of a module

use sardonyx_base::Result;
use sardonyx_dialects::mlir::Operation;

/// Replaces each function of a module for which `rewrite` returns a new one.
pub fn rewrite_functions(
    module: Operation,
    mut rewrite: impl FnMut(Operation) -> Result<Option<Operation>>,
) -> Result<()> {
    let Some(block) = module.block(0) else { return Ok(()) };
    for op in block.operations().into_iter().filter(|op| op.name() == "func.func") {
        if let Some(new) = rewrite(op)? {
            block.insert_before(op, new);
            op.detach();
            op.erase();
        }
    }
    Ok(())
}

/// Whether a function is of the value level: its operations are `sdx`, and its arguments are tensors.
pub fn is_sdx(function: Operation) -> bool {
    is_level(function, "sdx.", "!sdx.tensor")
}

/// Whether a function consists of kernels and containers.
pub fn is_flow(function: Operation) -> bool {
    is_level(function, "flow.", "!flow.container")
}

fn is_level(function: Operation, prefix: &str, types: &str) -> bool {
    let Some(block) = function.block(0) else { return false };
    block.operations().iter().all(|op| op.name().starts_with(prefix) || op.name() == "func.return")
        && block.arguments().iter().all(|v| v.ty().text().starts_with(types))
}
