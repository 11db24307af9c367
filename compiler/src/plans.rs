//! a model's module, targets  =>  a plan for each class of the targets
//!
//! Stages that do not depend on the target run once, and the others once for each target class. Remarks, rewrite counts
//! and fuel of the shared stages count for every class, so that adding a target changes nothing for the others.

use crate::pipeline::{self, Event, Watch};
use melior::Context;
use melior::ir::Module;
use sardonyx_base::{Error, Result};
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::plan::Plan;
use sardonyx_kernels::Target;
use sardonyx_kernels::target::Class;
use sardonyx_passes::Rewrites;
use std::ops::Range;
use std::time::Duration;

/// The result of the pipeline for a target class.
pub struct Planned {
    /// The first target of the class; its cost model was used.
    pub target: Target,
    /// The plan for all targets of the class.
    pub plan: Plan,
    /// Rewrites that were applied, those of the shared stages included.
    pub rewrites: Rewrites,
}

/// Result of the pipeline.
pub enum Made {
    /// One plan for each class; at least one.
    Plans(Vec<Planned>),
    /// The stage to stop after was reached: the IR at this point, for the first class, and its rewrites.
    Stopped(String, Box<Rewrites>),
}

/// Time that each stage took, summed over all classes.
pub type Times = Vec<(&'static str, Duration)>;

/// Context for taking a module through the stages.
pub struct Way<'a, 'c> {
    /// MLIR context of the module.
    pub context: &'c Context,
    /// Which IR to show, and which stages to skip or to stop after.
    pub watch: &'a Watch,
    /// Targets to compile for, in any order.
    pub targets: &'a [Target],
    /// Receives the time of each stage.
    pub times: &'a mut Times,
    /// Called with the events of the shared stages and of those for the first class.
    pub observe: &'a mut dyn FnMut(Event<'_, 'c>) -> Result<()>,
}

impl<'c> Way<'_, 'c> {
    /// Runs the stages. Errors: E0001 if `watch` names an unknown stage; those of the passes.
    pub fn plans(mut self, mut module: Module<'c>, mut rewrites: Rewrites) -> Result<Made> {
        self.watch.check()?;
        let leads = leads(self.targets);
        let [shared, own] = pipeline::parts();
        if self.stages(&mut module, shared, &mut rewrites, None)? {
            return Ok(Made::Stopped(pipeline::text(&module)?, Box::new(rewrites)));
        }
        let mut planned = vec![];
        for (i, &target) in leads.iter().enumerate() {
            let mut copy = copy(&module)?;
            let mut rewrites = rewrites.of_target(target, leads.len() == 1);
            let of = (leads.len() > 1).then_some((target, i));
            if self.stages(&mut copy, own.clone(), &mut rewrites, of)? {
                return Ok(Made::Stopped(pipeline::text(&copy)?, Box::new(rewrites)));
            }
            let plan =
                Plan::read(Operation::of_module(&copy))?.ok_or_else(|| Error::defect("the pipeline made no plan"))?;
            planned.push(Planned { target, plan, rewrites });
        }
        Ok(Made::Plans(planned))
    }

    /// Runs the stages in a range, and returns whether the stage to stop after was among them. `of` is the target and
    /// the index of its class, if there are several classes and the stages are not shared.
    fn stages(
        &mut self,
        module: &mut Module<'c>,
        stages: Range<usize>,
        rewrites: &mut Rewrites,
        of: Option<(Target, usize)>,
    ) -> Result<bool> {
        let watch = Watch { of: of.map(|(target, _)| target), ..self.watch.clone() };
        let mut silent = |_: Event| Ok(());
        let observe: &mut dyn FnMut(Event<'_, 'c>) -> Result<()> =
            if of.is_some_and(|(_, i)| i > 0) { &mut silent } else { self.observe };
        let times = pipeline::run_stages(self.context, module, stages, &watch, rewrites, observe)?;
        let stops = times.last().is_some_and(|(name, _)| watch.stop_after.as_deref() == Some(name));
        for (name, took) in times {
            match self.times.iter_mut().find(|(known, _)| *known == name) {
                Some((_, time)) => *time += took,
                None => self.times.push((name, took)),
            }
        }
        Ok(stops)
    }
}

/// The first target of each class.
pub fn leads(targets: &[Target]) -> Vec<Target> {
    Class::ALL.into_iter().filter_map(|class| targets.iter().copied().find(|t| t.class() == class)).collect()
}

fn copy<'c>(module: &Module<'c>) -> Result<Module<'c>> {
    let copy = Module::from_operation((*module.as_operation()).clone());
    copy.ok_or_else(|| Error::defect("a copy of a module is none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_target_of_each_class_leads() {
        let names = |targets: &[&str]| -> Vec<&str> {
            let targets: Vec<Target> = targets.iter().map(|name| Target::from_name(name).unwrap()).collect();
            leads(&targets).into_iter().map(Target::name).collect()
        };
        assert_eq!(names(&["cuda:sm_90a", "cpu", "cuda:sm_80"]), ["cpu", "cuda:sm_90a"]);
        assert_eq!(names(&["cuda:sm_80"]), ["cuda:sm_80"]);
    }
}
