//! the steps of an entry point, the position of a rank in the mesh  =>  the steps that the rank takes part in
//!
//! A pipeline is a program that every rank could run alone, with sends between its stages. Only the receiver needs the
//! value that is sent, and the sender needs only the steps that compute this value. The values that each rank needs are
//! found backwards from the outputs, which the first rank returns to the caller. All ranks derive the same needs from
//! the same plan, so no rank waits for one that does not take part.

use super::{Action, Place, Program, Step};
use sardonyx_base::host::Collective;
use sardonyx_base::plan;

/// Returns, by step, whether this rank takes part. The entry point must be verified. Without sends, every rank takes
/// part in all steps.
pub fn needed_steps(program: &Program, entry: &plan::Entry) -> Vec<bool> {
    let sends = |step: &Step| matches!(exchange(step), Some(Collective::Send { .. }));
    if !entry.steps.iter().any(sends) {
        return vec![true; entry.steps.len()];
    }
    let mut needs = Needs::new(program, entry);
    let mut taken = vec![false; entry.steps.len()];
    for (i, step) in entry.steps.iter().enumerate().rev() {
        taken[i] = needs.step(program, entry, step)[needs.own];
    }
    taken
}

/// Returns, by constant, whether a step that the rank takes part in reads it.
pub fn needed_constants(program: &Program) -> Vec<bool> {
    let mut needed = vec![false; program.constants.len()];
    for entry in &program.entries {
        let mut reads = |buffer: usize| {
            if let Place::Constant(at) = entry.buffers[buffer].place {
                needed[at] = true;
            }
        };
        for (step, _) in entry.steps.iter().zip(&entry.needed).filter(|(_, needed)| **needed) {
            match &step.action {
                Action::Launch(launch) => launch.buffers.iter().for_each(|buffer| reads(*buffer)),
                Action::Copy(copy) => reads(copy.from),
                Action::Bind(bind) => reads(bind.buffer),
                Action::Host(host) => host.args.iter().for_each(|arg| reads(arg.buffer)),
            }
        }
    }
    needed
}

fn exchange(step: &Step) -> Option<&Collective> {
    match &step.action {
        Action::Host(host) => host.call.op.exchange(),
        Action::Launch(_) | Action::Copy(_) | Action::Bind(_) => None,
    }
}

struct Needs<'p> {
    mesh: &'p [usize],
    n_ranks: usize,
    own: usize,
    /// By buffer, and by rank: whether the rank needs its content.
    by: Vec<Vec<bool>>,
}

impl<'p> Needs<'p> {
    fn new(program: &'p Program, entry: &plan::Entry) -> Needs<'p> {
        let mesh = program.mesh.as_slice();
        let n_ranks: usize = mesh.iter().product();
        let own = mesh.iter().zip(&program.coordinates).fold(0, |rank, (size, (_, at))| rank * size + *at as usize);
        let mut by = vec![vec![false; n_ranks]; entry.buffers.len()];
        for (i, port) in entry.outputs.iter().enumerate() {
            // Each rank keeps its own part of a state.
            let is_state = entry.states.iter().any(|state| state.output == i);
            by[port.buffer][..if is_state { n_ranks } else { 1 }].fill(true);
        }
        Needs { mesh, n_ranks, own, by }
    }

    /// Returns the ranks that take part in a step. The needs of all later steps must be known.
    fn step(&mut self, program: &Program, entry: &plan::Entry, step: &Step) -> Vec<bool> {
        let all = vec![true; self.n_ranks];
        let (takes, reads, read): (Vec<bool>, Vec<bool>, Vec<usize>) = match &step.action {
            Action::Launch(launch) => {
                let mut ranks = vec![false; self.n_ranks];
                let writes = &program.kernels[launch.kernel].writes;
                for (&buffer, _) in launch.buffers.iter().zip(writes).filter(|(_, writes)| **writes) {
                    unite(&mut ranks, &self.by[buffer]);
                }
                (ranks.clone(), ranks, launch.buffers.clone())
            }
            Action::Copy(copy) => {
                let opaque = matches!(entry.buffers[copy.from].place, Place::Value);
                let ranks = if opaque { all } else { self.by[copy.to].clone() };
                (ranks.clone(), ranks, vec![copy.from])
            }
            // All ranks need the symbol, because sizes depend on it.
            Action::Bind(bind) => (all.clone(), all, vec![bind.buffer]),
            Action::Host(host) => {
                let args = host.args.iter().map(|arg| arg.buffer).collect();
                match (host.call.op.exchange(), &host.results[..]) {
                    (Some(op), [to]) => {
                        let [takes, reads] = op.taking_part(self.mesh, &self.by[to.buffer]);
                        (takes, reads, args)
                    }
                    _ => (all.clone(), all, args),
                }
            }
        };
        read.into_iter().for_each(|buffer| unite(&mut self.by[buffer], &reads));
        takes
    }
}

fn unite(set: &mut [bool], other: &[bool]) {
    set.iter_mut().zip(other).for_each(|(own, other)| *own |= other);
}
