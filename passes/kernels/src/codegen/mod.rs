//! KernelDef …  =>  one shared object: MLIR text, LLVM IR, machine code per CPU level, linked; or PTX, which is text
//!
//! The result depends on the kernels only: not on the host's CPU, its paths or its clock.

mod link;
mod lower;
pub mod ptx;

use crate::emit::{functions, levels_of};
use crate::linear::Lowered;
use prost::Message;
use sardonyx_base::cpu::Level;
use sardonyx_base::plan::{KERNELS_SYMBOL, Kernel, Plan};
use sardonyx_base::{Error, Result};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Emits each kernel for the levels that it has code for. Kernel `k0` is exported as `k0_v3`, `k0_v4`, …; the object imports
/// nothing.
///
/// Symbols must be distinct. Errors: E0002 where the linker cannot be run; E0901 where MLIR or LLVM refuse the code,
/// which is a defect of ours.
pub fn build_shared_object(kernels: &[(String, &Lowered)]) -> Result<Vec<u8>> {
    build_with_declarations(kernels, &levels_of(kernels.iter().map(|(_, l)| *l)), &[])
}

/// The same for some levels, with what the plan says of the kernels.
pub fn build_with_declarations(
    kernels: &[(String, &Lowered)],
    levels: &[Level],
    declared: &[Kernel],
) -> Result<Vec<u8>> {
    let modules: Vec<(Level, String)> = levels.iter().map(|&v| (v, text(kernels, v))).collect();
    // Data has the lowest of the levels that the code has anyway.
    let lowest = modules.first().filter(|_| !declared.is_empty());
    let table = lowest.map(|(level, _)| (KERNELS_SYMBOL, *level, table(declared)));
    let modules: Vec<(&str, Level, &str)> = modules.iter().map(|(v, text)| (v.name(), *v, text.as_str())).collect();
    let table = table.iter().map(|(name, level, text)| (*name, *level, text.as_str()));
    link::shared_object(&objects(&modules.into_iter().chain(table).collect::<Vec<_>>())?)
}

/// Machine code of named modules, in their order. Each is compiled by itself, the longest ones first, on as many threads as
/// the machine has.
fn objects<'a>(modules: &[(&'a str, Level, &str)]) -> Result<Vec<(&'a str, Vec<u8>)>> {
    let mut order: Vec<usize> = (0..modules.len()).collect();
    order.sort_by_key(|&i| Reverse(modules[i].2.len()));
    let next = AtomicUsize::new(0);
    let work = || {
        let context = lower::context();
        let mut objects = vec![];
        while let Some(&i) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (name, level, text) = modules[i];
            objects.push((i, (name, lower::object(&context, text, level)?)));
        }
        Ok(objects)
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(modules.len());
    let ended = |_| Err(Error::defect("a thread of the code generation panicked"));
    let objects = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(ended)).collect::<Result<Vec<_>>>()
    });
    let by_index: BTreeMap<usize, _> = objects?.into_iter().flatten().collect();
    Ok(by_index.into_values().collect())
}

/// Their number of bytes, then the declarations, as data of the object: a plan that says otherwise is refused.
fn table(declared: &[Kernel]) -> String {
    let message = Plan { kernels: declared.to_vec(), ..Plan::default() }.write().encode_to_vec();
    let bytes = [&(message.len() as u64).to_le_bytes()[..], &message].concat();
    let text: String = bytes.iter().map(|b| format!("\\{b:02X}")).collect();
    format!(
        r#"llvm.mlir.global external constant @{KERNELS_SYMBOL}("{text}") {{alignment = 8 : i64}} : !llvm.array<{} x i8>"#,
        bytes.len()
    )
}

/// The kernels of one level as a module of kernel-level MLIR.
pub fn text(kernels: &[(String, &Lowered)], level: Level) -> String {
    functions(kernels.iter().map(|(symbol, l)| (symbol.as_str(), *l)), level)
}

/// The machine code of one level as assembly text, for dumps.
pub fn assembly(kernels: &[(String, &Lowered)], level: Level) -> Result<String> {
    lower::assembly(&lower::context(), &text(kernels, level), level)
}
