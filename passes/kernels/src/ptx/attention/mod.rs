//! o[b, i, e] = Σj softmax(Σd q[b, i, d] · k[b, j, d])·v[b, j, e]  =>  one launch, no scores in memory

mod fill;
mod finish;
mod flash;
mod fragments;
mod movement;
mod plain;
mod plain_movement;
mod plan;
mod roles;
mod softmax;
mod sums;
mod warpgroups;

use super::movement::{Launch, Traffic};
use super::{Form, GpuPlan};
use crate::asm::Ptx;
use crate::cx::Cx;
use crate::def::KernelDef;
use crate::target::Target;
use plain::Plain;
pub use plan::Flash;

/// Plans attention: on tensor cores if it has the standard form, else without them.
pub fn planned(def: &KernelDef, target: Target) -> Option<Box<dyn GpuPlan>> {
    Some(match Flash::for_target(def, target) {
        Some(flash) => Box::new(flash),
        None => Box::new(Plain::from_def(def)),
    })
}

impl GpuPlan for Flash {
    fn requests(&self, launch: &Launch) -> Vec<Traffic> {
        self.traffic(launch)
    }

    fn emit(&self, cx: &Cx<Ptx>, asm: &mut Ptx) -> Form {
        flash::emit(cx, asm, self)
    }

    fn is_on_tensor_cores(&self) -> bool {
        true
    }

    fn tile(&self) -> Option<String> {
        Some(self.name())
    }

    fn others(&self, def: &KernelDef) -> Vec<Box<dyn GpuPlan>> {
        self.of_one_team(def).into_iter().map(|plan| Box::new(plan) as Box<dyn GpuPlan>).collect()
    }
}

impl GpuPlan for Plain {
    fn requests(&self, launch: &Launch) -> Vec<Traffic> {
        self.traffic(launch)
    }

    fn emit(&self, cx: &Cx<Ptx>, asm: &mut Ptx) -> Form {
        plain::emit(cx, asm, self)
    }
}
