//! Parameters computed from parameters when the artifact is written: each is a program in the nested module `@prepared`
//!
//! Such a parameter is named `@` followed by its program's name, which is a hash of the program's text. Entry points,
//! plans and targets with the same computation therefore share one parameter.

use super::program::{FlowOp, Program};
use crate::mlir::{Attr, Block, Context, NewBlock, Operation, Parts};
use sardonyx_base::hash::hash;
use sardonyx_base::{Error, Result};
use std::collections::BTreeMap;

/// Maps the name of each prepared parameter to its program, which has no inputs and the parameter as its only output.
pub type Prepared = BTreeMap<String, Program>;

const MODULE: &str = "prepared";

/// Names a program after the hash of its text; returns the name of its parameter and the program. Errors: E0901.
pub fn named(program: Program, cx: Context) -> Result<(String, Program)> {
    let mut program = Program { name: MODULE.into(), ..program };
    let text = program.write(cx)?.operation().to_string();
    program.name = format!("w{:016x}", hash(text.as_bytes()));
    Ok((parameter(&program), program))
}

/// The name of the parameter that a program computes.
fn parameter(program: &Program) -> String {
    format!("@{}", program.name)
}

/// The nested module of prepared parameters, if there is one.
fn nested<'m>(module: Operation<'m>) -> Option<Operation<'m>> {
    let named = |op: &Operation| op.attr("sym_name").and_then(Attr::as_str).as_deref() == Some(MODULE);
    let all = module.block(0)?.operations();
    all.into_iter().find(|op| op.name() == "builtin.module" && named(op))
}

/// Reads the prepared parameters of a module.
pub fn read(module: Operation) -> Result<Prepared> {
    let functions = nested(module).and_then(|nested| nested.block(0)).map_or(vec![], Block::operations);
    let one = |function: Operation| {
        let program = Program::read(function)?;
        Ok((parameter(&program), program))
    };
    functions.into_iter().filter(|op| op.name() == "func.func").map(one).collect()
}

/// Adds prepared parameters to a module, except those that it already has. Errors: E0901.
pub fn write(module: Operation, prepared: &Prepared) -> Result<()> {
    if prepared.is_empty() {
        return Ok(());
    }
    let (cx, known) = (module.context(), read(module)?);
    let nested = match nested(module) {
        Some(nested) => nested,
        None => {
            let (attrs, regions) = ([("sym_name", cx.str(MODULE))], vec![NewBlock::new(cx, &[])]);
            let nested = cx.build(Parts { name: "builtin.module", attrs: &attrs, regions, ..Parts::default() })?;
            module.block(0).ok_or_else(|| Error::defect("a module has no body"))?.push(nested)
        }
    };
    let block = nested.block(0).ok_or_else(|| Error::defect("a module has no body"))?;
    for (name, program) in prepared {
        if !known.contains_key(name) {
            block.push(program.write(cx)?);
        }
    }
    Ok(())
}

impl Program {
    /// Replaces each step that reads a prepared parameter by the steps of its program, if `self.prepared` has it.
    pub fn inline_prepared(&mut self) {
        let prepared = std::mem::take(&mut self.prepared);
        let of = |op: &FlowOp| match op {
            FlowOp::Param { source, window: None } if source.names.len() == 1 && source.transform.is_none() => {
                prepared.get(&source.names[0])
            }
            _ => None,
        };
        for mut step in std::mem::take(&mut self.steps) {
            let (Some(program), Some(&result)) = (of(&step.op), step.results.first()) else {
                self.steps.push(step);
                continue;
            };
            let mut ids: Vec<usize> = vec![];
            for (id, container) in program.containers.iter().enumerate() {
                let is_result = program.outputs.first().is_some_and(|(_, output)| *output == id);
                ids.push(if is_result { result } else { self.container(container.clone()) });
            }
            for inner in &program.steps {
                step = inner.clone();
                step.args.iter_mut().chain(&mut step.results).for_each(|id| *id = ids[*id]);
                self.steps.push(step);
            }
        }
    }

    /// Names of the parameters from which this program computes a prepared parameter, each once.
    pub fn made_of(&self) -> Vec<String> {
        let mut names: Vec<String> = vec![];
        for step in &self.steps {
            let FlowOp::Param { source, .. } = &step.op else { continue };
            names.extend(source.names.iter().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>());
        }
        names
    }
}
