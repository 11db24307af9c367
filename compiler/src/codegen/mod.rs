//! KernelDef …  =>  one shared object: MLIR text, LLVM IR, machine code per CPU variant, linked
//!
//! The result depends on the kernels only: not on the host's CPU, its paths or its clock.

mod link;
mod lower;

use sardonyx_passes::kernel::{KernelDef, Variant};
use sardonyx_runtime::Result;

/// Emits all kernels for all variants. Kernel `k0` is exported as `k0_v3` and `k0_v4`; the object imports nothing.
///
/// Symbols must be distinct. Errors: E0002 where the linker cannot be run; E0901 where MLIR or LLVM refuse the code,
/// which is a defect of ours.
pub fn build_shared_object(kernels: &[(String, &KernelDef)]) -> Result<Vec<u8>> {
    link_modules(&Variant::ALL.map(|variant| (variant, text(kernels, variant))))
}

/// The same from modules of kernel-level MLIR, one per variant.
pub fn link_modules(modules: &[(Variant, String)]) -> Result<Vec<u8>> {
    let context = lower::context();
    let mut objects = vec![];
    for (variant, module) in modules {
        objects.push((variant.name(), lower::object(&context, module, *variant)?));
    }
    link::shared_object(&objects)
}

/// The kernels of one variant as a module of kernel-level MLIR.
pub fn text(kernels: &[(String, &KernelDef)], variant: Variant) -> String {
    kernels.iter().map(|(symbol, def)| def.emit(symbol, variant)).collect()
}

/// The machine code of one variant as assembly text, for dumps.
pub fn assembly(kernels: &[(String, &KernelDef)], variant: Variant) -> Result<String> {
    lower::assembly(&lower::context(), &text(kernels, variant), variant)
}
