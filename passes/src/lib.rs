//! Every rewrite of one level, or from one level to the next; each is found by name in a pipeline string

mod choose_algorithms;
mod draft;
pub mod egraph;
mod find_caches;
mod fold_constants;
mod fuse;
mod fuse_attention;
mod fuse_epilogues;
mod fuse_reductions;
mod fuse_siblings;
mod fusion;
mod inline_maps;
mod int8_contractions;
mod layout;
mod lower_kernels;
mod lower_precision;
mod miss;
pub mod movement;
mod onnx_to_sdx;
pub mod options;
mod pack_weights;
mod plan_memory;
#[cfg(test)]
mod random;
mod registry;
pub mod remove_padding;
mod rewrite;
pub mod schedule;
mod sdx_to_flow;
mod simplify;
pub mod usual;
mod validate;
mod version;

pub use egraph::Class;
pub use fusion::{drop_dead, tidy};
pub use lower_precision::attention::narrowed as narrowed_attention;
pub use onnx_to_sdx::{Device as OperatorDevice, OPERATORS, Operator, has_open_rank, is_supported, keeps_rank};
pub use options::{Layouts, MaskedRows, Named, Options, Precision};
pub use registry::{context, run_pipeline, run_pipeline_with};
pub use rewrite::{Missed, Remark, Rewrite, Rewrites};
pub use simplify::{FurtherRule, with_rule};
pub use validate::Validation;
pub use version::{IR_VERSION, set_version};

use sardonyx_base::Result;
use sardonyx_dialects::mlir::Operation;
use sardonyx_kernels::target;

/// A pass over a whole module.
pub struct PassRow {
    pub name: &'static str,
    pub summary: &'static str,
    /// How equal a program is to what it was before the pass.
    pub class: Class,
    pub run: Run,
    /// It does nothing in the plan of other devices.
    pub only_for: Option<target::Class>,
}

#[derive(Clone, Copy)]
pub enum Run {
    /// Goes to the next level, or must be done for another reason.
    Lowering(fn(Operation) -> Result<()>),
    /// Could be left out, each rewrite of it could: what it applies, it asks for.
    Rewriting(fn(Operation, &mut Rewrites) -> Result<()>),
}

/// In the order of the default pipeline (`compiler/src/pipeline.rs`).
pub static PASSES: &[PassRow] = &[
    lowering("onnx-to-sdx", "Lowers ONNX nodes to the closed basis and infers every type", onnx_to_sdx::run),
    rewriting("find-caches", "Makes an input that comes back longer a state that grows in place", find_caches::run),
    rewriting("fold-constants", "Evaluates operations on small constants and on shapes", fold_constants::run),
    rewriting("simplify", "Applies exact rewrites: motion that moves nothing, neutral operands", simplify::run),
    of_class(
        Class::Reassociating,
        "e-graph",
        "Chooses the cheapest of everything that the rules say is equal",
        egraph::run,
    ),
    lowering("sdx-to-flow", "Makes each operation a kernel with explicit memlets", sdx_to_flow::run),
    rewriting("inline-maps", "Computes maps where they are read", inline_maps::run),
    rewriting("fuse-epilogues", "Lets maps follow a reduction in registers", fuse_epilogues::run),
    rewriting("fuse-reductions", "Joins kernels that walk the same rows", fuse_reductions::run),
    of_class(Class::Reassociating, "fuse", "Merges kernels so that the least is moved", fuse::run),
    of_class(
        Class::Reassociating,
        "fuse-attention",
        "Makes scores, softmax and weighted sum one kernel",
        fuse_attention::run,
    ),
    rewriting("fuse-siblings", "Joins kernels that read the same points", fuse_siblings::run),
    of_class(
        Class::Reassociating,
        "remove-padding",
        "Computes no rows that the attention mask leaves out",
        remove_padding::run,
    )
    .only_for(target::Class::Cpu),
    of_class(
        Class::FiniteOnly,
        "int8-contractions",
        "Multiplies bytes where they are dequantised and multiplied",
        int8_contractions::run,
    )
    .only_for(target::Class::Cpu),
    rewriting("choose-layouts", "Orders dimensions in memory as the kernels around want them", layout::run),
    of_class(
        Class::FiniteOnly,
        "choose-algorithms",
        "Computes convolutions by Winograd's algorithm",
        choose_algorithms::run,
    )
    .only_for(target::Class::Cpu),
    rewriting("pack-weights", "Lays constants out as the kernels stream them", pack_weights::run),
    of_class(
        Class::Narrowing,
        "lower-precision",
        "Makes factors bf16, where the module asks for it",
        lower_precision::run,
    ),
    lowering("schedule", "Orders launches, gives them buffers, keeps equal kernels once", schedule::run),
    lowering("plan-memory", "Places buffers in one arena", plan_memory::run),
    lowering("lower-kernels", "Writes each kernel in upstream dialects, for every CPU variant", lower_kernels::run)
        .only_for(target::Class::Cpu),
];

const fn lowering(name: &'static str, summary: &'static str, run: fn(Operation) -> Result<()>) -> PassRow {
    PassRow { name, summary, class: Class::Exact, run: Run::Lowering(run), only_for: None }
}

/// A rewriting pass after which a program is exactly what it was.
const fn rewriting(
    name: &'static str,
    summary: &'static str,
    run: fn(Operation, &mut Rewrites) -> Result<()>,
) -> PassRow {
    of_class(Class::Exact, name, summary, run)
}

const fn of_class(
    class: Class,
    name: &'static str,
    summary: &'static str,
    run: fn(Operation, &mut Rewrites) -> Result<()>,
) -> PassRow {
    PassRow { name, summary, class, run: Run::Rewriting(run), only_for: None }
}

impl PassRow {
    const fn only_for(self, class: target::Class) -> PassRow {
        PassRow { only_for: Some(class), ..self }
    }
}

/// Replaces each function of a module for which `rewrite` gives a new one.
fn rewrite_functions(module: Operation, mut rewrite: impl FnMut(Operation) -> Result<Option<Operation>>) -> Result<()> {
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
