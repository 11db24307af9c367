//! The table of passes, and their registration with MLIR, whose pipeline strings can then name them

use crate::class::Class;
use crate::near_misses;
use crate::rewrite::{Review, Rewrites};
use crate::slow_launches;
use crate::version::check_version;
use melior::Context;
use melior::dialect::DialectRegistry;
use melior::pass::{ExternalPass, PassManager, create_external};
use melior::utility::{
    parse_pass_pipeline, register_all_dialects, register_all_llvm_translations, register_all_passes,
};
use mlir_sys::{MlirContext, MlirDialectRegistry, MlirPass, mlirContextEnableMultithreading};
use sardonyx_base::{Error, Result};
use sardonyx_dialects::mlir::{Module, Operation};
use sardonyx_kernels::target;
use std::cell::RefCell;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// A pass over a whole module.
pub struct PassRow {
    /// Name in pipeline strings, such as `fold-constants`.
    pub name: &'static str,
    /// What the pass does, in one line of help text.
    pub summary: &'static str,
    /// How closely the program after the pass agrees with the one before.
    pub class: Class,
    /// Whether the pass must run, because it lowers the program to the next level or for another reason. Each rewrite
    /// of a pass for which this is false is optional and takes fuel.
    pub is_lowering: bool,
    /// The only class of devices for which the pass runs; all classes if `None`.
    only_for: Option<target::Class>,
    /// Called after the pass if remarks are requested.
    review: Option<Review>,
    run: Run,
}

/// All passes, in the order of the default pipeline (`compiler/src/pipeline.rs`).
pub static PASSES: &[PassRow] = &[
    lowering("onnx-to-sdx", "Lowers ONNX nodes to the closed basis and infers every type", crate::onnx_to_sdx::run),
    rewriting(
        "find-caches",
        "Makes an input that comes back longer a state that grows in place",
        crate::find_caches::run,
    ),
    PassRow {
        class: Class::Narrowing,
        ..lowering(
            "narrow-caches",
            "Makes caches hold their rows in fewer bits, where that is asked for",
            crate::narrow_caches::run,
        )
    },
    rewriting("fold-constants", "Evaluates operations on small constants and on shapes", crate::fold_constants::run),
    rewriting("simplify", "Applies exact rewrites: motion that moves nothing, neutral operands", crate::simplify::run),
    PassRow {
        class: Class::Reassociating,
        ..lowering("shard", "Splits a program over the ranks of a mesh", crate::shard::run)
    },
    of_class(
        Class::Reassociating,
        "e-graph",
        "Chooses the cheapest of everything that the rules say is equal",
        crate::egraph::run,
    ),
    of_class(
        Class::Narrowing,
        "quantize",
        "Makes factors of products with weights codes times a scale, where that is asked for",
        crate::quantize::run,
    ),
    lowering("sdx-to-flow", "Makes each operation a kernel with explicit memlets", crate::sdx_to_flow::run),
    PassRow {
        class: Class::Narrowing,
        ..lowering("widen-halves", "Computes f16 as f32, which is rounded when it is stored", crate::widen_halves::run)
    }
    .only_for(target::Class::Cpu),
    of_class(
        Class::Reassociating,
        "prepare-weights",
        "Computes what arithmetic makes of parameters alone when the artifact is written",
        crate::prepare_weights::prepare,
    ),
    rewriting(
        "split-extrema",
        "Splits a maximum or minimum over a whole tensor into one of each row and one of the rows",
        crate::split_extrema::run,
    ),
    rewriting("inline-maps", "Computes maps where they are read", crate::inline_maps::run)
        .reviewed_by(near_misses::REVIEW),
    rewriting("fuse-epilogues", "Lets maps follow a reduction in registers", crate::fuse_epilogues::run)
        .reviewed_by(near_misses::REVIEW),
    rewriting("fuse-reductions", "Joins kernels that walk the same rows", crate::fuse_reductions::run)
        .reviewed_by(near_misses::REVIEW),
    of_class(Class::Reassociating, "fuse", "Merges kernels so that the least is moved", crate::fuse::run)
        .reviewed_by(near_misses::REVIEW),
    of_class(
        Class::Narrowing,
        "drop-roundings",
        "Keeps in f32 what a kernel rounds to f16 again",
        crate::drop_roundings::run,
    )
    .only_for(target::Class::Cpu),
    of_class(
        Class::Reassociating,
        "fuse-attention",
        "Makes scores, softmax and weighted sum one kernel",
        crate::fuse_attention::run,
    ),
    rewriting("fuse-siblings", "Joins kernels that read the same points", crate::fuse_siblings::run),
    rewriting(
        "split-columns",
        "Sums each part of a product's columns where what reads the parts follows in registers",
        crate::split_columns::run,
    )
    .only_for(target::Class::Cpu),
    of_class(
        Class::Reassociating,
        "remove-padding",
        "Computes no rows that the attention mask leaves out",
        crate::remove_padding::run,
    )
    .only_for(target::Class::Cpu),
    of_class(
        Class::FiniteOnly,
        "int8-contractions",
        "Multiplies bytes where they are dequantised and multiplied",
        crate::int8_contractions::run,
    ),
    of_class(
        Class::Reassociating,
        "expand-weights",
        "Computes what else is made of parameters alone when the artifact is written",
        crate::prepare_weights::expand,
    ),
    of_class(
        Class::FiniteOnly,
        "skip-masked-keys",
        "Has attention go over lists of the keys that a constant mask lets each block of rows see",
        crate::skip_masked_keys::run,
    )
    .only_for(target::Class::Cpu),
    rewriting("choose-layouts", "Orders dimensions in memory as the kernels around want them", crate::layout::run),
    of_class(
        Class::FiniteOnly,
        "choose-algorithms",
        "Computes convolutions by Winograd's algorithm",
        crate::choose_algorithms::run,
    )
    .only_for(target::Class::Cpu),
    of_class(
        Class::FiniteOnly,
        "skip-zeros",
        "Multiplies with the words alone of weights that are mostly 0",
        crate::skip_zeros::run,
    ),
    rewriting("tabulate", "Looks up functions of a single byte", crate::tabulate::run).only_for(target::Class::Cpu),
    rewriting("pack-weights", "Lays constants out as the kernels stream them", crate::pack_weights::run),
    of_class(
        Class::Narrowing,
        "lower-precision",
        "Makes factors bf16, where that is asked for",
        crate::lower_precision::run,
    ),
    rewriting("stage-operands", "Pads left factors of contractions where they are read", crate::stage_operands::run)
        .only_for(target::Class::Cpu)
        .reviewed_by(slow_launches::REVIEW),
    lowering("schedule", "Orders launches, gives them buffers, keeps equal kernels once", crate::schedule::run),
    rewriting(
        "overlap",
        "Has ranks compute what does not need a collective's result before they wait for it",
        crate::overlap::run,
    ),
    lowering("plan-memory", "Places buffers in one arena", crate::plan_memory::run),
    lowering(
        "lower-kernels",
        "Writes each kernel in upstream dialects, for every CPU variant",
        crate::lower_kernels::run,
    )
    .only_for(target::Class::Cpu),
];

type Run = fn(&mut Module, &mut Rewrites) -> Result<()>;

const fn lowering(name: &'static str, summary: &'static str, run: Run) -> PassRow {
    PassRow { name, summary, class: Class::Exact, is_lowering: true, only_for: None, review: None, run }
}

/// A pass whose rewrites are exact.
const fn rewriting(name: &'static str, summary: &'static str, run: Run) -> PassRow {
    of_class(Class::Exact, name, summary, run)
}

const fn of_class(class: Class, name: &'static str, summary: &'static str, run: Run) -> PassRow {
    PassRow { name, summary, class, is_lowering: false, only_for: None, review: None, run }
}

unsafe extern "C" {
    fn sardonyxRegisterDialects(registry: MlirDialectRegistry);
    fn sardonyxRegisterPass(make: unsafe extern "C" fn(*mut c_void) -> MlirPass, data: *mut c_void);
}

impl PassRow {
    const fn reviewed_by(self, review: Review) -> PassRow {
        PassRow { review: Some(review), ..self }
    }

    const fn only_for(self, class: target::Class) -> PassRow {
        PassRow { only_for: Some(class), ..self }
    }
}

/// State shared between passes and the caller of the pipeline: MLIR's pass manager passes neither arguments nor
/// results.
#[derive(Default)]
struct Scope {
    rewrites: Rewrites,
    /// The error of the last pass that failed; MLIR's own report contains only text.
    failure: Option<Box<Error>>,
}

thread_local! {
    /// The state of the pipeline running on this thread, if any.
    static SCOPE: RefCell<Scope> = RefCell::default();
}

/// MLIR uses the address of a row as the id of its pass, and requires this alignment.
const _: () = assert!(align_of::<PassRow>() >= 8);

unsafe extern "C" fn make(row: *mut c_void) -> MlirPass {
    let row = &PASSES[row as usize];
    let pass = move |op: melior::ir::OperationRef, pass: ExternalPass| {
        // SAFETY: MLIR lends the module to the pass alone, while the pass runs.
        let mut module = unsafe { Module::from_raw(melior::ir::operation::OperationLike::to_raw(&op)) };
        // A panic must not cross into C++; it is reported as a defect.
        let result = catch_unwind(AssertUnwindSafe(|| run(row, &mut module)));
        let result = result.unwrap_or_else(|_| Err(Error::defect(format!("the pass {} failed", row.name))));
        if let Err(e) = result {
            module.operation().emit_error(&e.to_string());
            SCOPE.with(|s| s.borrow_mut().failure.replace(e));
            pass.signal_failure();
        }
    };
    let id = melior::ir::r#type::TypeId::create(row);
    create_external(pass, id, row.name, row.name, row.summary, "builtin.module", &[]).to_raw()
}

fn run(row: &PassRow, module: &mut Module) -> Result<()> {
    let class = SCOPE.with(|s| s.borrow().rewrites.options().target.class());
    if row.only_for.is_some_and(|only| only != class) {
        return Ok(());
    }
    SCOPE.with(|s| {
        // The rewrites are taken out of the cell while the pass runs, because the pass may run a pipeline of its own.
        let mut rewrites = std::mem::take(&mut s.borrow_mut().rewrites);
        rewrites.begin(row.name, row.class, row.review);
        let result = (row.run)(module, &mut rewrites);
        s.borrow_mut().rewrites = rewrites;
        result
    })
}

static REGISTER: Once = Once::new();

/// Returns a context with every dialect loaded and every pass registered, both ours and MLIR's.
pub fn context() -> Context {
    REGISTER.call_once(|| {
        register_all_passes();
        for index in 0..PASSES.len() {
            // The callback receives the row's index instead of a pointer. SAFETY: `make` treats its argument as an
            // index and never dereferences it; it is called with indices only.
            unsafe { sardonyxRegisterPass(make, index as *mut c_void) };
        }
    });
    let registry = DialectRegistry::new();
    register_all_dialects(&registry);
    // SAFETY: the registry exists; MLIR adds to it.
    unsafe { sardonyxRegisterDialects(registry.to_raw()) };
    let context = Context::new();
    context.append_dialect_registry(&registry);
    context.load_all_available_dialects();
    register_all_llvm_translations(&context);
    // Single-threaded: a pass reports its failure through a thread-local, and output must not depend on timing.
    // SAFETY: the context exists, and nothing else uses it yet.
    unsafe { mlirContextEnableMultithreading(MlirContext { ptr: context.to_raw().ptr }, false) };
    context
}

/// Parses a module; returns `None` if the text is not a module. MLIR reports the reason to the context's diagnostic
/// handler, except for a zero byte, which MLIR's interface cannot take.
pub fn parse<'c>(context: &'c Context, text: &str) -> Option<melior::ir::Module<'c>> {
    if text.contains('\0') { None } else { melior::ir::Module::parse(context, text) }
}

/// Runs `builtin.module(…)` on a module. Errors: those of the failing pass, or E0402 if the module was written by a
/// newer compiler.
pub fn run_pipeline(context: &Context, module: &mut melior::ir::Module, pipeline: &str) -> Result<()> {
    run_pipeline_with(context, module, pipeline, &mut Rewrites::default())
}

/// As [`run_pipeline`], with the context of a compilation, which limits and records the rewrites that passes apply.
pub fn run_pipeline_with(
    context: &Context,
    module: &mut melior::ir::Module,
    pipeline: &str,
    rewrites: &mut Rewrites,
) -> Result<()> {
    check_version(Operation::of_module(module))?;
    let manager = PassManager::new(context);
    parse_pass_pipeline(manager.as_operation_pass_manager(), pipeline).map_err(|e| {
        Error::user("E0001", format!("`{pipeline}` is no pass pipeline: {e}"))
            .help("`sardonyx-opt --help` lists the passes")
    })?;
    manager.enable_verifier(true);
    let scope = Scope { rewrites: std::mem::take(rewrites), failure: None };
    let outside = SCOPE.replace(scope);
    let result = manager.run(module);
    let inside = SCOPE.replace(outside);
    *rewrites = inside.rewrites;
    match (result, inside.failure) {
        (_, Some(own)) => Err(own),
        (Err(_), None) => Err(Error::defect("a pass of MLIR failed, or the verifier refused what a pass wrote")),
        (Ok(()), None) => Ok(()),
    }
}
