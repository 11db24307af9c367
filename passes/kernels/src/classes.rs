//! Classes of kernels  =>  the planners of each class, for CPUs and for GPUs

use super::cpu::CpuPlan;
use super::def::KernelDef;
use super::ptx::{self, GpuPlan};
use super::target::Target;
use super::{attention, contract, map, normalise, sparse, turned};
use sardonyx_dialects::flow::kernel::Class;
use std::sync::Arc;

type ForCpu = fn(&KernelDef) -> Option<Arc<dyn CpuPlan>>;
type ForGpu = fn(&KernelDef, Target) -> Option<Box<dyn GpuPlan>>;

/// Planners of a class in order of preference: the last one accepts every kernel of the class.
struct ClassRow {
    cpu: &'static [ForCpu],
    gpu: &'static [ForGpu],
}

fn row(class: Class) -> &'static ClassRow {
    match class {
        Class::Map => &ClassRow { cpu: &[turned::planned, map::planned], gpu: &[ptx::map::planned] },
        Class::Normalise => &ClassRow {
            cpu: &[sparse::planned, normalise::planned],
            gpu: &[ptx::gemm::planned_two_of_four, ptx::gemm::windows::planned, ptx::rows::planned],
        },
        Class::Contract => {
            &ClassRow { cpu: &[contract::planned, normalise::planned], gpu: &[ptx::gemm::planned, ptx::rows::planned] }
        }
        Class::Groups => &ClassRow {
            cpu: &[contract::planned, normalise::planned],
            gpu: &[ptx::gemm::planned, ptx::attention::planned],
        },
        Class::Attention => {
            &ClassRow { cpu: &[attention::planned, normalise::planned], gpu: &[ptx::attention::planned] }
        }
    }
}

pub fn plan_for_cpu(def: &KernelDef) -> Arc<dyn CpuPlan> {
    let plan = row(def.class).cpu.iter().find_map(|planned| planned(def));
    plan.expect("the last planner of a class takes every kernel")
}

pub fn plan_for_gpu(def: &KernelDef, target: Target) -> Box<dyn GpuPlan> {
    let plan = row(def.class).gpu.iter().find_map(|planned| planned(def, target));
    plan.expect("the last planner of a class takes every kernel")
}
