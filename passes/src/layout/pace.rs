//! a kernel with given layouts  =>  its estimated time, from moved bytes, operations and the efficiency of its code

use super::sort_outer;
use crate::fuse::Costs;
use crate::steps::{kernel, parameter};
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::{Kernel, Layout, Program};
use sardonyx_kernels::{Lowered, Pace, lower, packable};

/// Estimates the times of a program's kernels.
pub struct Pricer<'p> {
    program: &'p Program,
    costs: &'p Costs,
    producers: Vec<Option<usize>>,
}

impl<'p> Pricer<'p> {
    pub fn new(program: &'p Program, costs: &'p Costs) -> Pricer<'p> {
        Pricer { program, costs, producers: program.producers() }
    }

    /// Returns the estimated time of a step's kernel in picoseconds; 0 for a step without a kernel. `layout` returns
    /// the layout to assume for a container; `None` keeps the container's own.
    pub fn cost(&self, step: usize, layout: &dyn Fn(Id) -> Option<&'p Layout>) -> u64 {
        let step = &self.program.steps[step];
        let Some(k) = kernel(step) else { return 0 };
        let mut k = k.clone();
        for (container, id) in k.reads.iter_mut().zip(&step.args).chain(k.writes.iter_mut().zip(&step.results)) {
            if let Some(layout) = layout(*id) {
                container.layout = layout.clone();
            }
        }
        sort_outer(&mut k);
        let pace = self.lowered(&k, &step.args).map_or(Pace::UNKNOWN, |lowered| lowered.pace());
        self.costs.paced(&k, self.program, pace)
    }

    /// Lowers the kernel, with constant factors packed as later passes will do; `None` if it cannot be lowered.
    fn lowered(&self, k: &Kernel, args: &[Id]) -> Option<Lowered> {
        let constant = |operand: usize| parameter(self.program, &self.producers, args[operand]).is_some();
        let packed = packable(k, self.costs.target).filter(|p| p.factors.iter().all(|f| constant(f.operand)));
        lower(packed.as_ref().map_or(k, |p| &p.kernel)).ok()
    }
}
