//! Kernel-level MLIR text  =>  LLVM dialect  =>  LLVM IR  =>  machine code of one CPU level

use inkwell::OptimizationLevel;
use inkwell::context::Context as LlvmContext;
use inkwell::module::Module as LlvmModule;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{CodeModel, FileType, InitializationConfig, RelocMode, Target, TargetMachine, TargetTriple};
use melior::Context;
use melior::dialect::DialectRegistry;
use melior::ir::Module;
use melior::pass::PassManager;
use melior::utility;
use sardonyx_base::cpu::Level;
use sardonyx_base::{Error, Result};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Once;

static PIPELINE: &str = "builtin.module(convert-scf-to-cf,convert-vector-to-llvm,convert-math-to-llvm,convert-to-llvm,\
                         reconcile-unrealized-casts)";

/// Passes that clean up the code: kernels are already written with their final vectors, blocks and unrolling.
/// `default<O3>` would vectorise and unroll the loops over single elements, whatever its options.
static OPTIMISE: &str = "function(simplifycfg,early-cse<memssa>,instcombine<no-verify-fixpoint>,\
                         loop-mssa(loop-rotate<header-duplication>,licm<allowspeculation>),\
                         simplifycfg,gvn,instcombine<no-verify-fixpoint>,loop-mssa(licm<allowspeculation>),\
                         early-cse<memssa>,simplifycfg,dce)";

/// Returns a context with all upstream dialects and their translations to LLVM IR, for use by one thread.
pub fn context() -> Context {
    // Passes are registered once per process.
    static PASSES: Once = Once::new();
    PASSES.call_once(utility::register_all_passes);
    let registry = DialectRegistry::new();
    utility::register_all_dialects(&registry);
    let context = Context::new();
    context.append_dialect_registry(&registry);
    context.load_all_available_dialects();
    utility::register_all_llvm_translations(&context);
    // A single thread makes the order of diagnostics the same on every machine.
    context.enable_multi_threading(false);
    context
}

pub fn object(context: &Context, text: &str, level: Level) -> Result<Vec<u8>> {
    compile(context, text, level, FileType::Object)
}

pub fn assembly(context: &Context, text: &str, level: Level) -> Result<String> {
    let bytes = compile(context, text, level, FileType::Assembly)?;
    String::from_utf8(bytes).map_err(|e| Error::defect(format!("LLVM wrote assembly that is not text: {e}")))
}

fn compile(context: &Context, text: &str, level: Level, file_type: FileType) -> Result<Vec<u8>> {
    let module = lowered(context, text)?;
    let llvm = LlvmContext::create();
    // SAFETY: both bindings are linked to the same LLVM; the module is translated into `llvm` and owned by
    // `translated`.
    let translated = unsafe {
        let raw = mlir_sys::mlirTranslateModuleToLLVMIR(module.as_operation().to_raw(), llvm.raw().cast());
        if raw.is_null() {
            return Err(Error::defect("a kernel cannot be translated to LLVM IR"));
        }
        LlvmModule::new(raw.cast())
    };
    let machine = machine(level)?;
    translated.set_triple(&TargetTriple::create(level.arch().triple));
    translated.set_data_layout(&machine.get_target_data().get_data_layout());
    let refused = |what: &str, e: &dyn std::fmt::Display| Error::defect(format!("LLVM {what}: {e}"));
    translated.verify().map_err(|e| refused("does not verify a kernel", &e))?;
    let options = PassBuilderOptions::create();
    translated.run_passes(OPTIMISE, &machine, options).map_err(|e| refused("cannot optimise a kernel", &e))?;
    let code = machine.write_to_memory_buffer(&translated, file_type);
    Ok(code.map_err(|e| refused("cannot emit a kernel", &e))?.as_slice().to_vec())
}

/// Parses, verifies and lowers a module to the LLVM dialect.
fn lowered<'c>(context: &'c Context, text: &str) -> Result<Module<'c>> {
    let messages = Rc::new(RefCell::new(vec![]));
    let sink = messages.clone();
    let handler = context.attach_diagnostic_handler(move |d| {
        sink.borrow_mut().push(format!("{}: {d}", d.location()));
        true
    });
    let module = Module::parse(context, text).ok_or("does not parse").and_then(|mut module| {
        let manager = PassManager::new(context);
        utility::parse_pass_pipeline(manager.as_operation_pass_manager(), PIPELINE).map_err(|_| "has no pipeline")?;
        manager.run(&mut module).map_err(|_| "does not lower")?;
        Ok(module)
    });
    context.detach_diagnostic_handler(handler);
    module.map_err(|what| Error::defect(format!("a kernel's MLIR {what}: {}", messages.borrow().join("; "))))
}

fn machine(level: Level) -> Result<TargetMachine> {
    Target::initialize_x86(&InitializationConfig::default());
    let (arch, (cpu, features)) = (level.arch(), level.llvm());
    let triple = TargetTriple::create(arch.triple);
    let target = Target::from_triple(&triple);
    let target = target.map_err(|e| Error::defect(format!("LLVM lacks {}: {e}", arch.name)))?;
    let optimised = OptimizationLevel::Aggressive;
    target
        .create_target_machine(&triple, cpu, &features, optimised, RelocMode::PIC, CodeModel::Default)
        .ok_or_else(|| Error::defect(format!("LLVM has no target machine for {cpu}")))
}
