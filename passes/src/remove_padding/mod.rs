//! kernels over [batch, positions, ..]  =>  kernels over the rows that the attention mask keeps
//!
//! A batch of sequences of different lengths is padded, and a mask tells which positions count. Operations on single
//! rows need not be computed for the positions that do not count. `proof` finds an input that is such a mask and the
//! kernels that it affects; `apply` packs the rows at the entry, runs the kernels on packed rows, and unpacks the
//! results where all positions are needed.
//!
//! The pass applies by default if no output contains masked rows. If an output contains masked rows, the pass applies
//! only with the option `masked-rows=zero`, which states that these rows are not used; they become 0.

mod apply;
mod known;
mod proof;

pub(crate) use known::HIDDEN_MAX;

use crate::options::MaskedRows;
use crate::remark::Missed;
use crate::rewrite::{Rewrites, Rule};
use crate::steps::{kernel, origins_of};
use proof::{Miss, Proof, Role};
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::{Class, FlowOp, Kernel, Program, Step};
use sardonyx_dialects::mlir::Module;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    let zero = rewrites.options().masked_rows == MaskedRows::Zero;
    rewrites.programs(module, |rewrites, program| pack(program, rewrites, zero))
}

fn pack(program: &mut Program, rewrites: &mut Rewrites, zero: bool) -> Result<()> {
    // Programs with caches are excluded, because a cache fixes the position of each row.
    if program.internal || !program.states.is_empty() || !has_attention(program) {
        return Ok(());
    }
    let masks = masks(program);
    let exchanges = |step: &Step| matches!(&step.op, FlowOp::Host(host) if host.op.exchange().is_some());
    if let (Some(step), false) = (program.steps.iter().find(|step| exchanges(step)), masks.is_empty()) {
        let node = step.origins.last().cloned();
        let missed = Missed::because("ranks exchange rows of padding too", "their number is not counted there");
        rewrites.missed(Missed { node, ..missed });
        return Ok(());
    }
    for mask in masks {
        match Proof::find(program, mask, zero) {
            Ok(proof) if proof.gains(program) => {
                let packed = |(_, role): &(usize, &Role)| **role != Role::AsItIs;
                let steps: Vec<usize> = proof.roles.iter().enumerate().filter(packed).map(|(step, _)| step).collect();
                let first: Vec<String> = origins_of(program, &steps).into_iter().take(1).collect();
                let Some(new) = apply::apply(program, &proof, &first) else { continue };
                // With `zero`, masked rows of outputs change to 0 as the option requests, so the rewrite is not
                // validated.
                let rule = Rule { is_checked: !zero, ..Rule::from("rows") };
                return rewrites.apply(program, rule, &steps, |program| *program = new).map(drop);
            }
            Ok(_) => {}
            Err(miss) if miss.is_mask => tell(program, rewrites, mask, &miss),
            Err(_) => {}
        }
    }
    Ok(())
}

fn has_attention(program: &Program) -> bool {
    program.steps.iter().filter_map(kernel).any(|k| k.class() == Class::Attention)
}

/// Returns the inputs that may be masks: two-dimensional inputs whose second dimension is the number of keys of some
/// attention.
fn masks(program: &Program) -> Vec<Id> {
    let keys = |k: &Kernel, d: &Dim| k.class() == Class::Attention && k.inner.contains(d);
    let fits = |id: &Id| {
        let c = &program.containers[*id];
        let read = program.steps.iter().filter_map(kernel).any(|k| c.dims.len() == 2 && keys(k, &c.dims[1]));
        read && c.is_plain() && (c.dtype.is_float() || c.dtype.is_int() || c.dtype == DType::Bool)
    };
    let ids = program.inputs.iter().map(|(_, id)| *id);
    ids.filter(fits).collect()
}

fn tell(program: &Program, rewrites: &mut Rewrites, mask: Id, miss: &Miss) {
    if !rewrites.options().remarks {
        return;
    }
    let name = program.inputs.iter().find(|(_, id)| *id == mask).map(|(name, _)| name.as_str()).unwrap_or_default();
    let origins = miss.step.map(|s| program.steps[s].origins.clone()).unwrap_or_default();
    let node = origins.last().cloned();
    let detail = Some(format!("rows of `{name}`"));
    rewrites.missed(Missed { reason: miss.reason, node, origins, detail, remedy: miss.remedy });
}
