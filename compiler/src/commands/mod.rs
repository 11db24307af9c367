//! compile, check, devices, explain, ops: the commands that need the compiler; those that do not are the runtime's

mod check;
mod compile;
mod devices;
mod explain;
mod layers;
mod movement;
mod ops;
mod progress;

pub use check::{CheckArgs, check};
pub use compile::{CompileArgs, passes_named, run_compile};
pub use devices::{DevicesArgs, devices};
pub use explain::{ExplainArgs, explain};
pub use movement::{MovementArgs, kernels_json, movement_json};
pub use ops::{OpsArgs, ops};
pub use progress::Progress;

use sardonyx_runtime::{Error, Result};
use std::io::Write;

fn say(out: &mut dyn Write, line: &str) -> Result<()> {
    writeln!(out, "{line}").map_err(|e| Error::io("standard output", "write", &e))
}
