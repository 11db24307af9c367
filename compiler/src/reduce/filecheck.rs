//! a reduced function, a pipeline  =>  the FileCheck file that the fault fails and a right compiler passes
//!
//! The lines to be found are not those of the IR that a right pipeline gives, which nobody has yet, but what the function
//! computes: the pipeline must not change that, however it rewrites.

use crate::meaning::{describe, functions};
use melior::Context;
use melior::ir::Module;
use sardonyx_base::{Error, Result};

/// A test longer than this is not small.
pub const LINES_MAX: usize = 30;

/// `about` says what the fault was, a line each; `call` is the made-up call that shows it.
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

/// FileCheck takes these for patterns.
fn escaped(line: &str) -> String {
    line.replace("[[", "{{\\[\\[}}")
}
