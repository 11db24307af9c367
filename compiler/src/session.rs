//! a plan, parameters  =>  code for this machine, and a session that runs it: what the compiler itself computes

use crate::emit::{self, Product};
use crate::import::ParamStore;
use crate::plans::Planned;
use sardonyx_base::cpu::Level;
use sardonyx_base::{Error, Result};
use sardonyx_dialects::plan::Plan;
use sardonyx_kernels::Target;
use sardonyx_passes::Rewrites;
use sardonyx_runtime::{LoadOptions, Model, Session, SessionOptions, Trust};

/// Of the least level of CPUs: what it computes is the same on any of them, whatever number of threads there is.
pub fn session(plan: Plan, params: &ParamStore) -> Result<Session> {
    let folder = tempfile::tempdir().map_err(|e| Error::defect(format!("no folder for an artifact: {e}")))?;
    let path = folder.path().join("inner.sdx");
    let planned = [Planned { target: Target::cpu(), plan, rewrites: Rewrites::default() }];
    let targets = [Target::cpu()];
    let product = Product { most: Level::all().next(), ..Product::of_plans(&planned, params, &targets) };
    emit::write(&path, &product, &emit::build(&product)?)?;
    let options = own().selftest(false).cpu(Level::all().next());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Model::load(&path, &options)?.session(&SessionOptions::default().threads(threads))
}

/// To load what this program has just written.
pub fn own() -> LoadOptions {
    // SAFETY: the code in the file is what the compiler has generated.
    LoadOptions::new(unsafe { Trust::file() })
}
