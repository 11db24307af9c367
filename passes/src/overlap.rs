//! plan.host "AllReduce …" among steps that neither produce its operand nor need its result  =>  plan.host "begin …",
//! those steps, plan.host "wait …"
//!
//! A rank whose operand of a collective is ready need not wait for the other ranks until it needs the result. Among the
//! launches and copies up to the next host step or binding, those that do not need the result are moved before those
//! that do. A collective begins when its operand has been computed, and ends before its result is read or its operand
//! overwritten. At most one collective is under way at a time, and none while a symbol is bound, since binding may move
//! memory. The begin and wait steps both name the operand's and the result's buffers, so that memory planning keeps
//! these buffers alive in between.

use crate::rewrite::Rewrites;
use sardonyx_base::{HostOp, Result};
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::plan::{Action, Host, HostCall, Operand, Plan, Step};

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    let Some(mut plan) = Plan::read(module.operation())? else { return Ok(()) };
    let written: Vec<usize> = plan.kernels.iter().map(|(_, kernel)| kernel.writes.len()).collect();
    let mut changed = false;
    for entry in plan.entries.iter_mut().filter(|entry| !entry.internal) {
        changed |= overlap(&mut entry.steps, &written, rewrites);
    }
    if changed { plan.replace(module) } else { Ok(()) }
}

const RULE: &str = "compute meanwhile";

fn overlap(steps: &mut Vec<Step>, written: &[usize], rewrites: &mut Rewrites) -> bool {
    let (mut changed, mut at) = (false, 0);
    while at < steps.len() {
        let halves = halves(&steps[at]);
        at += 1;
        let Some((host, [begin, wait])) = halves else { continue };
        let free = |step: &&Step| is_movable(step) && !touches(step, &host, written);
        let before = steps[..at - 1].iter().rev().take_while(free).count();
        let behind = at + steps[at..].iter().take_while(|step| is_movable(step)).count();
        let (independent, dependent) = parted(&steps[at..behind], &host, written);
        let mut meanwhile = steps[at - 1 - before..at - 1].iter().chain(&independent);
        let computes = meanwhile.any(|step| matches!(step.action, Action::Launch(_)));
        if !computes || !rewrites.allow(RULE, &steps[at - 1].origins) {
            continue;
        }
        let n = independent.len();
        let between = independent.into_iter().chain([wait]).chain(dependent);
        steps.splice(at - 1..behind, between);
        steps.insert(at - 1 - before, begin);
        // Continues with the step after the wait.
        at += n + 1;
        changed = true;
    }
    changed
}

/// Splits steps into those that can run before the result of a collective is available, and those that cannot, keeping
/// the order within each list.
fn parted(steps: &[Step], host: &Host, written: &[usize]) -> (Vec<Step>, Vec<Step>) {
    let (mut independent, mut dependent): (Vec<Step>, Vec<Step>) = (vec![], vec![]);
    for step in steps {
        let (all, own) = (step.buffers(), writes(step, written));
        let follows = |other: &Step| {
            writes(other, written).iter().any(|b| all.contains(b)) || other.buffers().iter().any(|b| own.contains(b))
        };
        match touches(step, host, written) || dependent.iter().any(follows) {
            true => dependent.push(step.clone()),
            false => independent.push(step.clone()),
        }
    }
    (independent, dependent)
}

/// Returns whether a step reads or writes the result of a collective, or writes its operand.
fn touches(step: &Step, host: &Host, written: &[usize]) -> bool {
    let is_of = |operands: &[Operand], buffer: &usize| operands.iter().any(|o| o.buffer == *buffer);
    writes(step, written).iter().any(|b| is_of(&host.args, b)) || step.buffers().iter().any(|b| is_of(&host.results, b))
}

fn is_movable(step: &Step) -> bool {
    matches!(step.action, Action::Launch(_) | Action::Copy(_))
}

/// Returns a collective, and the begin and wait steps into which it is split; `None` if the step is not a collective.
fn halves(step: &Step) -> Option<(Host, [Step; 2])> {
    let Action::Host(host) = &step.action else { return None };
    let HostOp::Collective(op) = host.call.op else { return None };
    let half = |op: HostOp| Step {
        action: Action::Host(Host { call: HostCall { op, ..host.call.clone() }, ..host.clone() }),
        origins: step.origins.clone(),
    };
    Some((host.clone(), [half(HostOp::Begin(op)), half(HostOp::Wait(op))]))
}

/// Returns the buffers that a step writes; `written` gives the number of results of each kernel, which are its last
/// buffers.
fn writes(step: &Step, written: &[usize]) -> Vec<usize> {
    match &step.action {
        Action::Launch(launch) => {
            let read = launch.buffers.len().saturating_sub(written[launch.kernel]);
            launch.buffers[read..].to_vec()
        }
        Action::Copy(copy) => vec![copy.to],
        Action::Bind(_) | Action::Host(_) => vec![],
    }
}
