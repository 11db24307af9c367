//! KernelDef …  =>  one shared object: MLIR text, LLVM IR, machine code per CPU variant, linked; or PTX, which is text
//!
//! The result depends on the kernels only: not on the host's CPU, its paths or its clock.

mod link;
mod lower;
pub mod ptx;

use prost::Message;
use sardonyx_passes::kernel::{KernelDef, Variant, functions};
use sardonyx_runtime::Result;
use sardonyx_runtime::plan::{KERNELS_SYMBOL, Kernel, Plan};

/// Emits each kernel for the variants that it has code for. Kernel `k0` is exported as `k0_v3`, `k0_v4`, …; the object imports
/// nothing.
///
/// Symbols must be distinct. Errors: E0002 where the linker cannot be run; E0901 where MLIR or LLVM refuse the code,
/// which is a defect of ours.
pub fn build_shared_object(kernels: &[(String, &KernelDef)]) -> Result<Vec<u8>> {
    let variants = Variant::of(kernels.iter().map(|(_, def)| *def));
    let modules: Vec<(Variant, String)> = variants.into_iter().map(|v| (v, text(kernels, v))).collect();
    link_modules(&modules, &[])
}

/// The same from modules of kernel-level MLIR, one per variant, with what the kernels declare of themselves.
pub fn link_modules(modules: &[(Variant, String)], declared: &[Kernel]) -> Result<Vec<u8>> {
    let context = lower::context();
    let mut objects = vec![];
    for (variant, module) in modules {
        objects.push((variant.name(), lower::object(&context, module, *variant)?));
    }
    if !declared.is_empty() {
        objects.push((KERNELS_SYMBOL, lower::object(&context, &table(declared), Variant::ALL[0])?));
    }
    link::shared_object(&objects)
}

/// Their number of bytes, then the declarations, as data of the object: a plan that says otherwise is refused.
fn table(declared: &[Kernel]) -> String {
    let message = Plan { kernels: declared.to_vec(), ..Plan::default() }.encode_to_vec();
    let bytes = [&(message.len() as u64).to_le_bytes()[..], &message].concat();
    let text: String = bytes.iter().map(|b| format!("\\{b:02X}")).collect();
    format!(
        r#"llvm.mlir.global external constant @{KERNELS_SYMBOL}("{text}") {{alignment = 8 : i64}} : !llvm.array<{} x i8>"#,
        bytes.len()
    )
}

/// The kernels of one variant as a module of kernel-level MLIR.
pub fn text(kernels: &[(String, &KernelDef)], variant: Variant) -> String {
    functions(kernels.iter().map(|(symbol, def)| (symbol.as_str(), *def)), variant)
}

/// The machine code of one variant as assembly text, for dumps.
pub fn assembly(kernels: &[(String, &KernelDef)], variant: Variant) -> Result<String> {
    lower::assembly(&lower::context(), &text(kernels, variant), variant)
}
