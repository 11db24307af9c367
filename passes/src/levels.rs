//! The IR level of a function (sdx or flow), and replacement of the functions of a module

use sardonyx_base::Result;
use sardonyx_dialects::mlir::{Module, NewOperation, Operation};

/// Replaces each function of a module for which `rewrite` returns a new one.
pub fn rewrite_functions<'m>(
    module: &mut Module<'m>,
    mut rewrite: impl FnMut(Operation) -> Result<Option<NewOperation<'m>>>,
) -> Result<()> {
    module.replace(|op| match op.name().as_str() {
        "func.func" => Ok(rewrite(op)?.map(|new| vec![new])),
        _ => Ok(None),
    })
}

/// Whether a function is at the sdx level: its operations are `sdx`, and its arguments are tensors.
pub fn is_sdx(function: Operation) -> bool {
    is_level(function, "sdx.", "!sdx.tensor")
}

/// Whether a function is at the flow level: its operations are `flow`, and its arguments are containers.
pub fn is_flow(function: Operation) -> bool {
    is_level(function, "flow.", "!flow.container")
}

fn is_level(function: Operation, prefix: &str, types: &str) -> bool {
    let Some(block) = function.block(0) else { return false };
    block.operations().iter().all(|op| op.name().starts_with(prefix) || op.name() == "func.return")
        && block.arguments().iter().all(|v| v.ty().text().starts_with(types))
}
