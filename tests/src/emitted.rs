//! a plan and its kernels  =>  an artifact, as the compiler writes it

use sardonyx::emit::{Product, build, write};
use sardonyx::import::ParamStore;
use sardonyx::plans::{Planned, leads};
use sardonyx_base::Result;
use sardonyx_dialects::plan::Plan;
use sardonyx_kernels::Target;
use sardonyx_passes::Rewrites;
use std::any::Any;
use std::path::Path;

/// Writes an artifact without a self-test. All targets run the same plan.
pub fn emit(path: &Path, plan: &Plan, params: &ParamStore, targets: &[Target]) -> Result<()> {
    let of = |target: Target| Planned { target, plan: plan.clone(), rewrites: Rewrites::default() };
    let planned: Vec<Planned> = leads(targets).into_iter().map(of).collect();
    let product = Product::of_plans(&planned, params, targets);
    write(path, &product, &build(&product)?).map(drop)
}

/// Returns the message of a caught panic.
pub fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|t| t.to_string())).unwrap_or_default()
}
