//! KernelDef …  =>  one shared object (MLIR text, LLVM IR, machine code per CPU level, linked), or PTX text
//!
//! The result depends only on the kernels and the requested levels or target, not on the host's CPU, paths or clock.

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

/// Compiles kernels, given with their symbols, into one shared object: each kernel for the CPU levels that it has code
/// for. Kernel `k0` is exported as `k0_v3`, `k0_v4`, …; the object imports nothing.
///
/// The symbols must be distinct. Errors: E0901 if MLIR, LLVM or the linker rejects the code, which is a defect of the
/// compiler.
pub fn build_shared_object(kernels: &[(String, &Lowered)]) -> Result<Vec<u8>> {
    build_with_declarations(kernels, &levels_of(kernels.iter().map(|(_, l)| *l)), &[])
}

/// As [`build_shared_object`], for given levels; also embeds the plan's declarations of the kernels.
pub fn build_with_declarations(
    kernels: &[(String, &Lowered)],
    levels: &[Level],
    declared: &[Kernel],
) -> Result<Vec<u8>> {
    let modules: Vec<(Level, String)> = levels.iter().map(|&v| (v, text(kernels, v))).collect();
    // The declarations are data, which no level affects; their module is compiled for the lowest level of the code.
    let lowest = modules.first().filter(|_| !declared.is_empty());
    let table = lowest.map(|(level, _)| (KERNELS_SYMBOL, *level, table(declared)));
    let modules: Vec<(&str, Level, &str)> = modules.iter().map(|(v, text)| (v.name(), *v, text.as_str())).collect();
    let table = table.iter().map(|(name, level, text)| (*name, *level, text.as_str()));
    link::shared_object(&objects(&modules.into_iter().chain(table).collect::<Vec<_>>())?)
}

/// Returns the machine code of named modules, in their order. Each module is compiled separately, longest first, on at
/// most as many threads as the machine has CPUs.
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

/// Returns an MLIR module whose only content is the data of the declarations, preceded by their size in bytes. The
/// runtime refuses a plan that differs from the declarations.
fn table(declared: &[Kernel]) -> String {
    let message = Plan { kernels: declared.to_vec(), ..Plan::default() }.write().encode_to_vec();
    let bytes = [&(message.len() as u64).to_le_bytes()[..], &message].concat();
    let text: String = bytes.iter().map(|b| format!("\\{b:02X}")).collect();
    format!(
        r#"llvm.mlir.global external constant @{KERNELS_SYMBOL}("{text}") {{alignment = 8 : i64}} : !llvm.array<{} x i8>"#,
        bytes.len()
    )
}

/// Returns an MLIR module with the kernels that have their own code for a level.
pub fn text(kernels: &[(String, &Lowered)], level: Level) -> String {
    functions(kernels.iter().map(|(symbol, l)| (symbol.as_str(), *l)), level)
}

/// Returns the assembly text of the machine code of one level, for dumps.
pub fn assembly(kernels: &[(String, &Lowered)], level: Level) -> Result<String> {
    lower::assembly(&lower::context(), &text(kernels, level), level)
}
