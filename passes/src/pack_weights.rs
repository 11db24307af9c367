//! contract(x, param w[k, n])  =>  contract(x, param w in panels of 32 columns): constants lie as the kernel streams them

use crate::rewrite::Found;
use crate::rewrite::Rewrites;
use crate::steps::{kernel, parameter};
use sardonyx_base::Result;
use sardonyx_dialects::flow::{FlowOp, Program, Source, Step};
use sardonyx_dialects::mlir::Operation;
use sardonyx_kernels::{Packable, packable};

pub fn run(module: Operation, rewrites: &mut Rewrites) -> Result<()> {
    rewrites.programs(module, |rewrites, program| rewrites.each_step(program, matches, apply))
}

/// The kernel's packed form, and the parameter behind each of its factors.
type Site = (Vec<Source>, Packable);

fn matches(program: &Program, step: usize) -> Found<Site> {
    let Some(packed) = kernel(&program.steps[step]).and_then(packable) else { return Ok(None) };
    let (args, producers) = (&program.steps[step].args, program.producers());
    let sources = packed.factors.iter().map(|f| parameter(program, &producers, args[f.operand]));
    let sources: Option<Vec<Source>> = sources.collect();
    Ok(sources.map(|sources| ("panels".into(), (sources, packed))))
}

fn apply(program: &mut Program, step: usize, (sources, site): Site) {
    for (source, factor) in sources.into_iter().zip(site.factors) {
        let id = program.container(site.kernel.reads[factor.packed].clone());
        let op = FlowOp::Param { source, window: Some(factor.window) };
        program.steps.push(Step { op, args: vec![], results: vec![id], origins: vec![] });
        let args = &mut program.steps[step].args;
        match factor.packed < args.len() {
            true => args[factor.packed] = id,
            false => args.push(id),
        }
    }
    program.steps[step].op = FlowOp::Kernel(Box::new(site.kernel));
}
