//! Every rewrite of one level, or from one level to the next; each is found by name in a pipeline string

pub mod device_spec;
mod find_caches;
mod fold_constants;
mod fuse;
mod fuse_epilogues;
mod fuse_reductions;
mod fusion;
mod inline_maps;
pub mod kernel;
mod lower_kernels;
mod onnx_to_sdx;
mod pack_weights;
mod plan_memory;
mod registry;
pub mod schedule;
mod sdx_to_flow;
mod simplify;
mod version;

pub use device_spec::DeviceSpec;
pub use onnx_to_sdx::{OPERATORS, Operator, is_supported};
pub use registry::{context, run_pipeline};
pub use version::{IR_VERSION, set_version};

use sardonyx_dialects::mlir::Operation;
use sardonyx_runtime::Result;

/// A pass over a whole module.
pub struct PassRow {
    pub name: &'static str,
    pub summary: &'static str,
    pub run: fn(Operation) -> Result<()>,
}

/// In the order of the default pipeline (`compiler/src/pipeline.rs`).
pub static PASSES: &[PassRow] = &[
    row("onnx-to-sdx", "Lowers ONNX nodes to the closed basis and infers every type", onnx_to_sdx::run),
    row("find-caches", "Makes an input that comes back longer a state that grows in place", find_caches::run),
    row("fold-constants", "Evaluates operations on small constants and on shapes", fold_constants::run),
    row("simplify", "Applies exact rewrites: motion that moves nothing, neutral operands", simplify::run),
    row("sdx-to-flow", "Makes each operation a kernel with explicit memlets", sdx_to_flow::run),
    row("inline-maps", "Computes maps where they are read", inline_maps::run),
    row("fuse-epilogues", "Lets maps follow a reduction in registers", fuse_epilogues::run),
    row("fuse-reductions", "Joins kernels that walk the same rows", fuse_reductions::run),
    row("fuse", "Merges kernels so that the least is moved", fuse::run),
    row("pack-weights", "Lays constants out as the kernels stream them", pack_weights::run),
    row("schedule", "Orders launches, gives them buffers, keeps equal kernels once", schedule::run),
    row("plan-memory", "Places buffers in one arena", plan_memory::run),
    row("lower-kernels", "Writes each kernel in upstream dialects, for every CPU variant", lower_kernels::run),
];

const fn row(name: &'static str, summary: &'static str, run: fn(Operation) -> Result<()>) -> PassRow {
    PassRow { name, summary, run }
}

/// Replaces each function of a module for which `rewrite` gives a new one.
fn rewrite_functions(module: Operation, rewrite: impl Fn(Operation) -> Result<Option<Operation>>) -> Result<()> {
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

/// A function of the value level: all its operations are, and its arguments are tensors.
fn is_sdx(function: Operation) -> bool {
    is_level(function, "sdx.", "!sdx.tensor")
}

fn is_flow(function: Operation) -> bool {
    is_level(function, "flow.", "!flow.container")
}

fn is_level(function: Operation, prefix: &str, types: &str) -> bool {
    let Some(block) = function.block(0) else { return false };
    block.operations().iter().all(|op| op.name().starts_with(prefix) || op.name() == "func.return")
        && block.arguments().iter().all(|v| v.ty().text().starts_with(types))
}
