//! the plan as plain data, every index checked and every expression parsed
//!
//! What is proved here, the session relies on: indices are in range, expressions use only symbols that have a value
//! at that point, kernels write only outputs and the arena, and nothing is read before something wrote it. What
//! depends on the dimensions of a call (sizes, offsets, overlaps) is checked per shape, in `shape.rs`.
//!
//! Native code is trusted, plans are not. A kernel's signature and what it requires of a launch are declared in the
//! code entry itself and must be repeated by the plan (`code.rs`); per shape every launch must fulfil the requirements,
//! so that no parameter, buffer, offset or grid of a plan makes a kernel of our compiler leave its buffers. Not proved:
//! that the numbers are right (the self-test samples that), and what a kernel does whose compiler declared nothing.

mod entry;
mod host;
mod needed;
mod states;
mod verify;
pub(crate) mod world;

use sardonyx_base::solve::Source;
use sardonyx_base::{Dim, Error, Result, plan};
use std::collections::BTreeMap;
use std::ops::{Deref, Range};

pub use crate::bind::{at_most, bind_capacities, describe, origin};
pub use sardonyx_base::plan::{
    Action, Buffer, Check, Derived, Host, Kernel, KernelTarget, Launch, Operand, Place, Port, State, Step, Symbol,
    Units,
};
pub use verify::verify;

pub struct Program {
    pub symbols: Vec<Symbol>,
    pub symbol_index: BTreeMap<String, usize>,
    pub derived: Vec<Derived>,
    /// Byte ranges in `weights`.
    pub constants: Vec<Range<usize>>,
    /// By constant: this rank reads it.
    pub needed: Vec<bool>,
    /// The hash of each, where there are several ranks.
    pub hashes: Vec<String>,
    pub kernels: Vec<Kernel>,
    pub entries: Vec<Entry>,
    /// How many ranks run it together, along each axis; empty for one.
    pub mesh: Vec<usize>,
    /// The coordinates of the rank that this program is for: symbols and their values.
    pub coordinates: Vec<(usize, i64)>,
    /// By kernel: the one of its targets that the device in use runs; empty on a CPU.
    chosen: Vec<usize>,
}

impl Program {
    /// Makes every kernel the one of a GPU target. Errors: E0401.
    pub fn choose_target(&mut self, name: &str) -> Result<()> {
        let chosen = self.kernels.iter().enumerate().map(|(i, kernel)| {
            let found = kernel.targets.iter().position(|t| t.target == name);
            found.ok_or_else(|| plan::malformed(format!("kernel {i} `{}` has no launch for {name}", kernel.symbol)))
        });
        self.chosen = chosen.collect::<Result<_>>()?;
        Ok(())
    }

    /// How the device in use launches a kernel; none on a CPU.
    pub fn target(&self, kernel: usize) -> Option<&KernelTarget> {
        self.chosen.get(kernel).map(|&at| &self.kernels[kernel].targets[at])
    }

    /// The symbol of a name that the verifier has found declared.
    pub fn symbol(&self, name: &str) -> &Symbol {
        &self.symbols[self.symbol_index[name]]
    }

    /// The value of a symbol, where it has one yet.
    pub fn value(&self, values: &[Option<i64>], name: &str) -> Option<i64> {
        self.symbol_index.get(name).and_then(|&at| values[at])
    }

    pub fn eval(&self, values: &[Option<i64>], dim: &Dim) -> Result<i64> {
        dim.eval(&|name| self.value(values, name))
    }

    /// The entry point that a call of one runs: the tightest of those made for some sizes that has those of the inputs.
    pub fn tightest(&self, entry: usize, dims: &[&[usize]]) -> usize {
        let fits = |at: &usize| {
            let same = |(port, dims): (&Port, &&[usize])| {
                let fixed = |(d, n): (&Dim, &usize)| d.as_const().is_none_or(|d| usize::try_from(d) == Ok(*n));
                port.dims.len() == dims.len() && port.dims.iter().zip(*dims).all(fixed)
            };
            self.entries[*at].inputs.iter().zip(dims).all(same)
        };
        self.entries[entry].specialized.iter().copied().find(fits).unwrap_or(entry)
    }

    /// The index of the entry point with this name. Errors: E0301.
    pub fn entry_index(&self, name: &str) -> Result<usize> {
        self.entries.iter().position(|e| e.name == name && !e.internal).ok_or_else(|| {
            let names: Vec<&str> = self.entries.iter().filter(|e| !e.internal).map(|e| e.name.as_str()).collect();
            let error = Error::user("E0301", format!("the model has no entry point `{name}`"));
            error.help(format!("it has {}", names.join(", ")))
        })
    }
}

/// An entry point of the plan, with what follows from it.
pub struct Entry {
    plan: plan::Entry,
    /// By input, by output: the state that it is the old or the new end of.
    pub input_states: Vec<Option<usize>>,
    pub output_states: Vec<Option<usize>>,
    /// The dimensions of what this rank has of each: of a state, it may be a part.
    pub own_inputs: Vec<Vec<Dim>>,
    pub own_outputs: Vec<Vec<Dim>>,
    /// What gives symbols their values, in the order to evaluate it in.
    pub sources: Vec<Source>,
    /// The same where the states are in a cache, which may not know all their dimensions.
    pub sources_in_place: Vec<Source>,
    /// The symbols of `sources`, and the capacities, as indices into `Program.symbols`; their values identify a shape.
    pub bound: Vec<usize>,
    /// By buffer, by check: the stage from which on its expressions have values.
    pub buffer_stages: Vec<usize>,
    pub check_stages: Vec<usize>,
    /// Where the pointers and the parameters of each step begin in the entry's arrays of all; at last, their ends.
    pub pointers_at: Vec<usize>,
    pub params_at: Vec<usize>,
    /// By step: this rank takes part in it.
    pub needed: Vec<bool>,
    /// Stage `i` begins after the `i`-th step that binds symbols.
    pub n_stages: usize,
    /// The entry points with some of its dimensions fixed, as indices into `Program.entries`: those with most first.
    pub specialized: Vec<usize>,
}

impl Deref for Entry {
    type Target = plan::Entry;

    fn deref(&self) -> &plan::Entry {
        &self.plan
    }
}

impl Entry {
    /// How many dimensions of its inputs are known.
    pub fn n_fixed(&self) -> usize {
        self.inputs.iter().flat_map(|port| &port.dims).filter(|d| d.as_const().is_some()).count()
    }

    /// What a rank has of the input or output that a state is an end of.
    pub fn units(&self, state: Option<usize>) -> &[Units] {
        state.map_or(&[], |at| &self.states[at].units)
    }

    /// The inputs that a call with a cache takes: those that are no state.
    pub fn fresh_inputs(&self) -> impl Iterator<Item = &Port> {
        self.inputs.iter().zip(&self.input_states).filter(|(_, state)| state.is_none()).map(|(port, _)| port)
    }

    /// Places of a step's parameters among those of all steps.
    pub fn params(&self, step: usize) -> Range<usize> {
        self.params_at[step]..self.params_at[step + 1]
    }

    /// Places of a step's pointers among those of all steps.
    pub fn pointers(&self, step: usize) -> Range<usize> {
        self.pointers_at[step]..self.pointers_at[step + 1]
    }
}
