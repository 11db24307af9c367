//! a reduced function, a pipeline  =>  a FileCheck file that fails with the fault and passes with a correct compiler
//!
//! The expected lines are not the IR of a correct pipeline, which is not known yet, but the outputs that the function
//! computes: no pipeline may change these, however it rewrites.

use crate::meaning::{describe, functions};
use melior::Context;
use melior::ir::Module;
use sardonyx_base::{Error, Result};

/// Maximum number of lines of a test that counts as small.
pub const LINES_MAX: usize = 30;

/// Returns the text of the test. `about` has lines that describe the fault; `call` is the index of the synthetic call
/// that shows it.
pub fn filecheck(context: &Context, function: &str, pipeline: &str, call: usize, about: &[String]) -> Result<String> {
    let module =
        Module::parse(context, function).ok_or_else(|| Error::defect("a reduced function cannot be read back"))?;
    let numbers = describe(&functions(&module)?, call)?;
    let which = if call == 0 { String::new() } else { format!("={call}") };
    let mut text = format!(
        "// RUN: sardonyx-opt %s --pass-pipeline='builtin.module({pipeline})' --interpret{which} | FileCheck %s\n\n"
    );
    about.iter().for_each(|line| text += &format!("// {line}\n"));
    text += "// The numbers are what the function computes before any pass.\n\n";
    for (i, line) in numbers.lines().enumerate() {
        text += &format!("// CHECK{}: {}{{{{$}}}}\n", if i == 0 { "" } else { "-NEXT" }, escaped(line));
    }
    Ok(text + "\n" + function)
}

/// Escapes `[[`, which FileCheck would read as the beginning of a variable.
fn escaped(line: &str) -> String {
    line.replace("[[", "{{\\[\\[}}")
}
