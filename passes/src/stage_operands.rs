//! y = pad(f(x)); z = contract(y, w)  =>  z = contract(pad(f(x)), w): operand A is padded where it is read
//!
//! Each work item computes the window of A that it reads into scratch memory, once for each strip of columns, so only
//! cheap functions qualify. Without this pass, a padded image would be written and read again, in a wider type than its
//! source. If the image already has the type that is multiplied, a separate kernel pads it, which was measured to be no
//! slower.

use crate::class::Class as Equality;
use crate::inline_maps::{self, inlined};
use crate::rewrite::{Rewrites, Rule};
use crate::steps::{Uses, kernel};
use sardonyx_base::Result;
use sardonyx_dialects::flow::{Body, Class, Kernel, Memlet, Program};
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_kernels::lower;

/// Maximum number of operations per element; with more, recomputation costs more than a copy of the image.
const OPERATIONS_MAX: usize = 4;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    let rule = Rule::of_class(Equality::Exact, "padding");
    rewrites.programs(module, |rewrites, program| rewrites.sweep(program, rule, find, inline_maps::apply))
}

fn find(program: &Program, uses: &Uses, consumer: usize) -> Option<inline_maps::Site> {
    let step = &program.steps[consumer];
    let contraction = kernel(step).filter(|k| k.class() == Class::Contract)?;
    step.args.iter().enumerate().find_map(|(operand, &id)| {
        let producer = uses.producers[id].filter(|_| uses.consumers[id] == [consumer] && !program.is_output(id))?;
        let map = kernel(&program.steps[producer]).filter(|k| is_cheap_padding(k))?;
        let (merged, _) = inlined(&program.steps[producer], map, step, contraction, operand);
        let stages = merged.class() == Class::Contract && lower(&merged).is_ok_and(|lowered| lowered.stages());
        stages.then(|| inline_maps::Site::new(producer, consumer, operand))
    })
}

/// Whether a map has one result, stored at its own points, that is padded, wider than the container it is computed
/// from, and computed with few operations.
fn is_cheap_padding(k: &Kernel) -> bool {
    let [store] = &k.stores[..] else { return false };
    let cheap = |body: &Body| match body {
        Body::Load { .. } | Body::Const(_) | Body::Index(_) => Some(0),
        Body::Convert(_, _) => Some(1),
        Body::Apply { f, .. } => match f {
            ScalarFn::And | ScalarFn::Le | ScalarFn::Lt | ScalarFn::Select => Some(0),
            ScalarFn::Add | ScalarFn::Sub | ScalarFn::Mul | ScalarFn::Max | ScalarFn::Min => Some(1),
            _ => None,
        },
        Body::Reduce { .. } => None,
    };
    let operations = k.body.iter().try_fold(0, |n, s| Some(n + cheap(&s.body)?));
    let widens = |m: &Memlet| k.reads[m.container].dtype.bits() < k.writes[0].dtype.bits();
    k.class() == Class::Map
        && k.padded_load(store.value).is_some_and(widens)
        && inline_maps::places_of_vars(k).is_some()
        && operations.is_some_and(|n| n <= OPERATIONS_MAX)
}
