//! kernels of a plan  =>  one PTX module, and the launch of each kernel

use crate::linear::{Lowered, lower};
use crate::ptx::{self, GpuLaunch, PtxKernel};
use crate::target::Target;
use crate::tuning::{self, Tiled, Tiles};
use prost::Message;
use sardonyx_base::plan::{self as file, KERNELS_COMMENT, Kernel, KernelTarget};
use sardonyx_base::{Error, Result};
use sardonyx_dialects::flow::{FlowOp, Program};
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::plan::{Action, Plan};
use std::sync::Arc;

/// PTX of the kernels of a plan for one target.
pub struct PtxModule {
    /// GPU that the kernels are planned for; the module's `.target` directive names it.
    pub target: Target,
    /// Name of the module in the artifact: that of the target, such as `sm_80`, or `sm_80~1` for candidate 1.
    pub name: String,
    kernels: Vec<PtxKernel>,
    /// For each kernel whose tile was selected, its key and the name of this tile. Measured tiles are selected by name,
    /// candidates by number.
    selected: Vec<Option<(String, String)>>,
    /// True if the tiles are candidates, which are to be measured.
    is_candidate: bool,
}

impl PtxModule {
    /// Emits one entry for each kernel of the plan, in the order of `lowered`. Errors: E0110 for a measured tile that a
    /// kernel cannot have, E0202 for a grid that overflows, E0901 for a launch beyond the device's limits or one that a
    /// plan cannot describe.
    pub fn emit(plan: &Plan, lowered: &[Lowered], target: Target, tiles: Tiles) -> Result<PtxModule> {
        let named = plan.kernels.iter().zip(lowered).enumerate();
        let emit = |(i, ((symbol, _), l)): (usize, (&(String, _), &Lowered))| {
            let tiled = tuning::emit(symbol, l, target, tiles);
            let tiled = tiled.and_then(|Tiled { emitted, selected }| Ok((said_by_plans(emitted)?, selected)));
            tiled.map_err(|e| match origin(plan, i) {
                Some(node) => e.node(node),
                None => e,
            })
        };
        let (kernels, selected) = named.map(emit).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let ptx = target.ptx().unwrap_or_default();
        let name = file::candidate_target(ptx, if let Tiles::Candidate(i) = tiles { i } else { 0 });
        Ok(PtxModule { target, name, kernels, selected, is_candidate: matches!(tiles, Tiles::Candidate(_)) })
    }

    /// Returns the number of kernels with a tile that was measured to be the fastest.
    pub fn measured(&self) -> usize {
        if self.is_candidate { 0 } else { self.selected.iter().flatten().count() }
    }

    /// Returns the launch dimensions of kernel `i`, and for a candidate its key and its tile.
    pub fn launch(&self, i: usize) -> KernelTarget {
        let GpuLaunch { grid, block, shared_bytes, .. } = self.kernels[i].launch.clone();
        let (key, tile) = self.selected[i].clone().filter(|_| self.is_candidate).unwrap_or_default();
        KernelTarget { target: self.name.clone(), grid, block, shared_bytes, key, tile }
    }

    /// Returns the text of the module, which ends with the plan's declarations of the kernels: the runtime refuses a
    /// plan that differs from them.
    pub fn text(&self, declared: &[Kernel]) -> String {
        let message = file::Plan { kernels: declared.to_vec(), ..file::Plan::default() }.write().encode_to_vec();
        let digits: String = message.iter().map(|b| format!("{b:02x}")).collect();
        format!("{}\n{KERNELS_COMMENT}{digits}\n", ptx::module(self.target, &self.kernels).trim_end())
    }
}

/// Returns the kernel if a plan can describe its launch. Errors: E0901 if its launch needs a property that plans have
/// no field for.
fn said_by_plans(kernel: PtxKernel) -> Result<PtxKernel> {
    match kernel.launch.cluster == 1 && kernel.launch.tensor_maps.is_empty() {
        true => Ok(kernel),
        false => Err(Error::defect("a plan cannot say that a launch has clusters or tensor maps")),
    }
}

/// Returns the first ONNX node of the first launch of a kernel.
fn origin(plan: &Plan, kernel: usize) -> Option<&str> {
    let mut steps = plan.entries.iter().flat_map(|e| &e.steps);
    let step = steps.find(|s| matches!(&s.action, Action::Launch(launch) if launch.kernel == kernel))?;
    step.origins.first().map(String::as_str)
}

/// Returns the PTX of a module's kernels: those of its plan, or if it has none, those in its functions, named `k0`,
/// `k1`, … in order.
pub fn text_of(module: Operation, target: Target) -> Result<String> {
    let kernels = match Plan::read(module)? {
        Some(plan) => plan.kernels,
        None => flow_kernels(module)?,
    };
    let emit = |(symbol, kernel): &(String, _)| lower(kernel)?.for_gpu(target).emit(symbol);
    let kernels = kernels.iter().map(emit).collect::<Result<Vec<PtxKernel>>>()?;
    if kernels.is_empty() {
        let error = Error::user("E0001", "the module has no kernels to write as PTX");
        return Err(error.help("lower it to the level of `flow` or of plans first, with --pass-pipeline"));
    }
    Ok(ptx::module(target, &kernels))
}

fn flow_kernels(module: Operation) -> Result<Vec<(String, sardonyx_dialects::flow::Kernel)>> {
    let mut found = vec![];
    let functions = module.block(0).map_or(vec![], |b| b.operations());
    for function in functions.into_iter().filter(|op| op.name() == "func.func") {
        let is_kernel = |op: Operation| op.name() == "flow.kernel";
        if !function.block(0).is_some_and(|b| b.operations().into_iter().any(is_kernel)) {
            continue;
        }
        for step in Program::read(function)?.steps {
            if let FlowOp::Kernel(kernel) = step.op {
                found.push((format!("k{}", found.len()), Arc::unwrap_or_clone(kernel)));
            }
        }
    }
    Ok(found)
}
