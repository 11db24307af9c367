//! contract(x, param w[k, n])  =>  contract(x, param w in panels of 32 columns): constants lie as the kernel streams them

use crate::Rewrites;
use crate::fusion::parameter;
use sardonyx_base::Result;
use sardonyx_dialects::flow::{FlowOp, Program, Source, Step};
use sardonyx_dialects::mlir::Operation;
use sardonyx_kernels::{Packable, packable};

pub fn run(module: Operation, rewrites: &mut Rewrites) -> Result<()> {
    rewrites.programs(module, |rewrites, program| {
        for i in 0..program.steps.len() {
            let site = matches(program, i).filter(|_| rewrites.allow("panels", &program.steps[i].origins));
            if let Some((sources, site)) = site {
                let before = rewrites.validates().then(|| program.clone());
                apply(program, i, sources, site);
                if let Some(before) = before {
                    let mut after = program.clone();
                    crate::fusion::sort_steps(&mut after);
                    rewrites.check_programs(&before, &after)?;
                }
            }
        }
        crate::fusion::sort_steps(program);
        crate::fusion::drop_dead(program);
        Ok(())
    })
}

/// The kernel's packed form, and the parameter behind each of its factors.
fn matches(program: &Program, step: usize) -> Option<(Vec<Source>, Packable)> {
    let site = packable(crate::fusion::kernel(&program.steps[step])?)?;
    let (args, producers) = (&program.steps[step].args, program.producers());
    let sources = site.factors.iter().map(|f| parameter(program, &producers, args[f.operand]));
    let sources: Option<Vec<Source>> = sources.collect();
    Some((sources?, site))
}

fn apply(program: &mut Program, step: usize, sources: Vec<Source>, site: Packable) {
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
