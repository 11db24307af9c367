//! Commands that need the compiler: compile, plan, simulate, check, bisect, reduce, devices, explain, ops

mod bisect;
mod check;
mod compile;
mod devices;
mod embedder;
mod explain;
mod layers;
mod movement;
mod ops;
mod plan;
mod progress;
mod reduce;
mod simulate;
mod supervise;
mod values;

pub use bisect::{BisectArgs, bisect};
pub use check::{CheckArgs, check};
pub use compile::{CompileArgs, run_compile};
pub use devices::{DevicesArgs, devices};
pub use explain::{ExplainArgs, explain};
pub use movement::{MovementArgs, kernels_json, movement_json};
pub use ops::{OpsArgs, ops};
pub use plan::{PlanArgs, plan};
pub use progress::Progress;
pub use reduce::{ReduceArgs, reduce};
pub use simulate::{SimulateArgs, simulate};
pub use values::passes_named;

use sardonyx_base::{Error, Result};
use sardonyx_format::file::write_whole;
use std::io::Write;

fn say(out: &mut dyn Write, line: &str) -> Result<()> {
    writeln!(out, "{line}").map_err(|e| Error::io("standard output", "write", &e))
}
