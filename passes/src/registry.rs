//! `builtin.module(…)`  =>  a run: how a pipeline string finds the passes beside MLIR's own

use crate::{PASSES, Rewrites, Run};
use melior::Context;
use melior::dialect::DialectRegistry;
use melior::pass::{ExternalPass, PassManager, create_external};
use melior::utility::{
    parse_pass_pipeline, register_all_dialects, register_all_llvm_translations, register_all_passes,
};
use mlir_sys::{MlirContext, MlirDialectRegistry, MlirPass, mlirContextEnableMultithreading};
use sardonyx_base::{Error, Result};
use sardonyx_dialects::mlir::Operation;
use std::cell::RefCell;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

unsafe extern "C" {
    fn sardonyxRegisterDialects(registry: MlirDialectRegistry);
    fn sardonyxRegisterPass(make: unsafe extern "C" fn(*mut c_void) -> MlirPass, data: *mut c_void);
}

/// What passes share with who runs the pipeline: MLIR's pass manager hands on neither arguments nor results.
#[derive(Default)]
struct Scope {
    rewrites: Rewrites,
    /// The error of the pass that failed last: MLIR's own report carries only text.
    failure: Option<Box<Error>>,
}

thread_local! {
    /// That of the pipeline that runs on this thread, where one does.
    static SCOPE: RefCell<Scope> = RefCell::default();
}

/// One address per pass serves as its type id.
#[repr(align(8))]
struct PassId(#[allow(dead_code)] u8);
static IDS: [PassId; 32] = [const { PassId(0) }; 32];

unsafe extern "C" fn make(row: *mut c_void) -> MlirPass {
    let index = row as usize;
    let pass = move |op: melior::ir::OperationRef, pass: ExternalPass| {
        let module = Operation(melior::ir::operation::OperationLike::to_raw(&op));
        // A panic must not cross into C++; it is a defect like others.
        let result = catch_unwind(AssertUnwindSafe(|| run(index, module)));
        let result = result.unwrap_or_else(|_| Err(Error::defect(format!("the pass {} failed", PASSES[index].name))));
        if let Err(e) = result {
            module.emit_error(&e.to_string());
            SCOPE.with(|s| s.borrow_mut().failure.replace(e));
            pass.signal_failure();
        }
    };
    let id = melior::ir::r#type::TypeId::create(&IDS[index]);
    let row = &PASSES[index];
    create_external(pass, id, row.name, row.name, row.summary, "builtin.module", &[]).to_raw()
}

fn run(index: usize, module: Operation) -> Result<()> {
    let row = &PASSES[index];
    let class = SCOPE.with(|s| s.borrow().rewrites.options().target.class());
    if row.only_for.is_some_and(|only| only != class) {
        return Ok(());
    }
    match row.run {
        Run::Lowering(run) => run(module),
        Run::Rewriting(run) => SCOPE.with(|s| {
            // Out of its cell while the pass runs, which may run a pipeline of its own.
            let mut rewrites = std::mem::take(&mut s.borrow_mut().rewrites);
            rewrites.begin(row.name, row.class);
            let result = run(module, &mut rewrites);
            s.borrow_mut().rewrites = rewrites;
            result
        }),
    }
}

static REGISTER: Once = Once::new();

/// A context with every dialect loaded and every pass registered, ours and MLIR's.
pub fn context() -> Context {
    REGISTER.call_once(|| {
        register_all_passes();
        for index in 0..PASSES.len() {
            // The callback gets the row's index in place of a pointer.
            unsafe { sardonyxRegisterPass(make, index as *mut c_void) };
        }
    });
    let registry = DialectRegistry::new();
    register_all_dialects(&registry);
    unsafe { sardonyxRegisterDialects(registry.to_raw()) };
    let context = Context::new();
    context.append_dialect_registry(&registry);
    context.load_all_available_dialects();
    register_all_llvm_translations(&context);
    // One thread: a pass reports its failure through a thread-local, and output must not depend on timing.
    unsafe { mlirContextEnableMultithreading(MlirContext { ptr: context.to_raw().ptr }, false) };
    context
}

/// Runs `builtin.module(…)` over a module; the error is the failing pass's own, or E0402 where the module was written
/// by a newer compiler.
pub fn run_pipeline(context: &Context, module: &mut melior::ir::Module, pipeline: &str) -> Result<()> {
    run_pipeline_with(context, module, pipeline, &mut Rewrites::default())
}

/// The same within the fuel of a compilation, which goes on counting what its passes apply.
pub fn run_pipeline_with(
    context: &Context,
    module: &mut melior::ir::Module,
    pipeline: &str,
    rewrites: &mut Rewrites,
) -> Result<()> {
    crate::version::check_version(Operation(melior::ir::operation::OperationLike::to_raw(&module.as_operation())))?;
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
