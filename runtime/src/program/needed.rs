//! the steps of an entry point, the place of a rank in the mesh  =>  the steps that the rank takes part in
//!
//! A pipeline is a program that every rank could run alone, with sends between its stages: only the receiver needs what is
//! sent, and of the steps before a send only those that the sender needs for it. Which rank needs what follows backwards
//! from the outputs, which the first rank gives to the caller. All ranks derive the same from the same plan, so that nobody
//! waits for a rank that does not come.

use super::{Action, Place, Program, Step};
use sardonyx_base::host::Collective;
use sardonyx_base::plan;

/// Ranks as bits.
type Set = Vec<u64>;

/// By step. The entry point is verified; without sends every rank takes part in all steps.
pub fn needed_steps(program: &Program, entry: &plan::Entry) -> Vec<bool> {
    let sends = |step: &Step| matches!(exchange(step), Some(Collective::Send { .. }));
    if !entry.steps.iter().any(sends) {
        return vec![true; entry.steps.len()];
    }
    let mut needs = Needs::new(program, entry);
    let mut taken = vec![false; entry.steps.len()];
    for (i, step) in entry.steps.iter().enumerate().rev() {
        let ranks = needs.step(program, entry, step);
        taken[i] = has(&ranks, needs.own);
    }
    taken
}

/// By constant: a step that the rank takes part in reads it.
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
    /// By buffer: the ranks that need what is in it.
    of: Vec<Set>,
}

impl<'p> Needs<'p> {
    fn new(program: &'p Program, entry: &plan::Entry) -> Needs<'p> {
        let mesh = program.mesh.as_slice();
        let n_ranks: usize = mesh.iter().product();
        let own = mesh.iter().zip(&program.coordinates).fold(0, |rank, (size, (_, at))| rank * size + *at as usize);
        let mut of = vec![vec![0; n_ranks.div_ceil(64)]; entry.buffers.len()];
        for (i, port) in entry.outputs.iter().enumerate() {
            // Each rank keeps its own part of a state.
            let is_state = entry.states.iter().any(|state| state.output == i);
            let ranks = if is_state { n_ranks } else { 1 };
            (0..ranks).for_each(|rank| insert(&mut of[port.buffer], rank));
        }
        Needs { mesh, n_ranks, own, of }
    }

    /// The ranks that take part in a step, when those that take part in the steps after it are known.
    fn step(&mut self, program: &Program, entry: &plan::Entry, step: &Step) -> Set {
        let all = || {
            (0..self.n_ranks).fold(vec![0; self.n_ranks.div_ceil(64)], |mut all, rank| {
                insert(&mut all, rank);
                all
            })
        };
        match &step.action {
            Action::Launch(launch) => {
                let writes = &program.kernels[launch.kernel].writes;
                let written = launch.buffers.iter().zip(writes).filter(|(_, writes)| **writes);
                let ranks = written.fold(vec![0; self.n_ranks.div_ceil(64)], |mut ranks, (buffer, _)| {
                    unite(&mut ranks, &self.of[*buffer]);
                    ranks
                });
                launch.buffers.iter().for_each(|buffer| unite(&mut self.of[*buffer], &ranks));
                ranks
            }
            Action::Copy(copy) => {
                let opaque = matches!(entry.buffers[copy.from].place, Place::Value);
                let ranks = if opaque { all() } else { self.of[copy.to].clone() };
                unite(&mut self.of[copy.from], &ranks);
                ranks
            }
            // Sizes depend on it.
            Action::Bind(bind) => {
                let ranks = all();
                unite(&mut self.of[bind.buffer], &ranks);
                ranks
            }
            Action::Host(host) => {
                let ranks = match (host.call.op.exchange(), &host.results[..]) {
                    (Some(op), [to]) => {
                        let (takes, reads) = self.exchange(op, &self.of[to.buffer]);
                        host.args.iter().for_each(|arg| unite(&mut self.of[arg.buffer], &reads));
                        return takes;
                    }
                    _ => all(),
                };
                host.args.iter().for_each(|arg| unite(&mut self.of[arg.buffer], &ranks));
                ranks
            }
        }
    }

    /// The ranks that take part in an exchange whose result some need, and those that need their operand.
    fn exchange(&self, op: &Collective, needed: &Set) -> (Set, Set) {
        let axis = op.mesh();
        let stride: usize = self.mesh[axis + 1..].iter().product();
        let group = |rank: usize| {
            let first = rank - rank / stride % self.mesh[axis] * stride;
            (0..self.mesh[axis]).map(move |at| first + at * stride)
        };
        let (mut takes, mut reads) = (vec![0; needed.len()], vec![0; needed.len()]);
        for rank in (0..self.n_ranks).filter(|rank| has(needed, *rank)) {
            match *op {
                Collective::Send { from, to, .. } if rank / stride % self.mesh[axis] == to => {
                    let sender = group(rank).nth(from).unwrap_or(rank);
                    insert(&mut takes, rank);
                    insert(&mut takes, sender);
                    insert(&mut reads, sender);
                }
                // Who neither sends nor receives keeps its own.
                Collective::Send { .. } => {
                    insert(&mut takes, rank);
                    insert(&mut reads, rank);
                }
                _ => group(rank).for_each(|rank| {
                    insert(&mut takes, rank);
                    insert(&mut reads, rank);
                }),
            }
        }
        (takes, reads)
    }
}

fn insert(set: &mut Set, rank: usize) {
    set[rank / 64] |= 1 << (rank % 64);
}

fn has(set: &Set, rank: usize) -> bool {
    set[rank / 64] >> (rank % 64) & 1 == 1
}

fn unite(set: &mut Set, other: &Set) {
    set.iter_mut().zip(other).for_each(|(own, other)| *own |= other);
}
