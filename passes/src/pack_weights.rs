//! contract(x, param w[k, n])  =>  contract(x, param w in panels of 32 columns): constants lie as the kernel streams them

use crate::Rewrites;
use crate::kernel::{Packable, packable};
use sardonyx_dialects::flow::{FlowOp, Program, Source, Step, Window};
use sardonyx_dialects::mlir::Operation;
use sardonyx_runtime::Result;

pub fn run(module: Operation, rewrites: &mut Rewrites) -> Result<()> {
    rewrites.functions(module, |rewrites, function| {
        if !crate::is_flow(function) {
            return Ok(None);
        }
        let mut program = Program::read(function)?;
        for i in 0..program.steps.len() {
            let site = matches(&program, i).filter(|_| rewrites.allow("panels", &program.steps[i].origins));
            if let Some((source, site)) = site {
                let before = rewrites.validates().then(|| program.clone());
                apply(&mut program, i, source, site);
                if let Some(before) = before {
                    let mut after = program.clone();
                    crate::fusion::sort_steps(&mut after);
                    rewrites.check_programs(&before, &after)?;
                }
            }
        }
        crate::fusion::sort_steps(&mut program);
        crate::fusion::drop_dead(&mut program);
        program.write(function.context()).map(Some)
    })
}

/// The parameter behind an operand, through views: packing reads the bytes, whatever dimensions they go under.
fn parameter(program: &Program, id: usize) -> Option<Source> {
    let step = program.producers()[id].map(|s| &program.steps[s])?;
    match &step.op {
        FlowOp::Param { source, window: None } => Some(source.clone()),
        FlowOp::View => parameter(program, step.args[0]),
        FlowOp::Param { .. } | FlowOp::Const(_) | FlowOp::Bind { .. } | FlowOp::Kernel(_) => None,
    }
}

fn matches(program: &Program, step: usize) -> Option<(Source, Packable)> {
    let site = packable(crate::fusion::kernel(&program.steps[step])?)?;
    let source = parameter(program, program.steps[step].args[site.operand])?;
    Some((source, site))
}

fn apply(program: &mut Program, step: usize, source: Source, site: Packable) {
    let packed = site.kernel.reads[site.operand].clone();
    let window = Window { offset: site.offset, stride_k: site.stride_k, stride_n: site.stride_n };
    let id = program.container(packed);
    let op = FlowOp::Param { source, window: Some(window) };
    program.steps.push(Step { op, args: vec![], update: None, results: vec![id], origins: vec![] });
    program.steps[step].args[site.operand] = id;
    program.steps[step].op = FlowOp::Kernel(Box::new(site.kernel));
}
