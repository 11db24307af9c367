//! the plan as plain data: every index is checked, and every expression parsed
//!
//! The session relies on what is proved here: indices are in range, expressions use only symbols that have a value at
//! that point, kernels write only outputs and the arena, and nothing is read before it is written. Properties that
//! depend on the dimensions of a call (sizes, offsets, overlaps) are checked per shape, in `shape.rs`.
//!
//! Native code is trusted, plans are not. A kernel's signature and its requirements on a launch are declared in the
//! code itself, and the plan must repeat them (`code.rs`); every launch of a shape must meet the requirements, so that
//! no parameter, buffer, offset or grid of a plan makes a kernel of our compiler access memory outside its buffers. The
//! checks do not prove that results are right (the self-test samples that), nor that kernels without such a declaration
//! stay within their buffers.

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

/// A verified plan, for one rank.
pub struct Program {
    /// Symbols of the dimensions, as the manifest declares them.
    pub symbols: Vec<Symbol>,
    /// By name: the index in `symbols`.
    pub symbol_index: BTreeMap<String, usize>,
    /// Dimension names of the model that equal expressions of the symbols.
    pub derived: Vec<Derived>,
    /// By constant: the byte range of this rank's part in the artifact's entry `weights`.
    pub constants: Vec<Range<usize>>,
    /// By constant: whether this rank reads it.
    pub needed: Vec<bool>,
    /// By constant: the BLAKE3 hash of the bytes in its range.
    pub hashes: Vec<String>,
    /// Kernels, which launches refer to by index.
    pub kernels: Vec<Kernel>,
    /// Entry points, including those that only host steps call.
    pub entries: Vec<Entry>,
    /// Number of ranks along each axis; empty for a single rank.
    pub mesh: Vec<usize>,
    /// The coordinates of the rank that this program is for: indices of symbols and their values.
    pub coordinates: Vec<(usize, i64)>,
    /// By kernel: index in `Kernel::targets` of the target that the device in use runs; empty on a CPU.
    chosen: Vec<usize>,
}

impl Program {
    /// Selects a GPU target for every kernel. Errors: E0401.
    pub fn choose_target(&mut self, name: &str) -> Result<()> {
        let chosen = self.kernels.iter().enumerate().map(|(i, kernel)| {
            let found = kernel.targets.iter().position(|t| t.target == name);
            found.ok_or_else(|| plan::malformed(format!("kernel {i} `{}` has no launch for {name}", kernel.symbol)))
        });
        self.chosen = chosen.collect::<Result<_>>()?;
        Ok(())
    }

    /// Returns the launch parameters of a kernel on the device in use; `None` on a CPU.
    pub fn target(&self, kernel: usize) -> Option<&KernelTarget> {
        self.chosen.get(kernel).map(|&at| &self.kernels[kernel].targets[at])
    }

    /// Returns the symbol with this name, which must be declared. The verifier has checked this for names in the plan.
    pub fn symbol(&self, name: &str) -> &Symbol {
        &self.symbols[self.symbol_index[name]]
    }

    /// Returns the value of a symbol, if it has one yet.
    pub fn value(&self, values: &[Option<i64>], name: &str) -> Option<i64> {
        self.symbol_index.get(name).and_then(|&at| values[at])
    }

    /// Returns the value of an expression. Errors: E0204 for a symbol without a value, E0202 on overflow.
    pub fn eval(&self, values: &[Option<i64>], dim: &Dim) -> Result<i64> {
        dim.eval_named(&|name| self.value(values, name))
    }

    /// Returns the entry point that a call of `entry` runs for these input dimensions: of its specializations that fit,
    /// the one with the most fixed dimensions, otherwise `entry` itself.
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

    /// Returns the index of the entry point with this name. Errors: E0301 if there is none, or only host steps call it.
    pub fn entry_index(&self, name: &str) -> Result<usize> {
        self.entries.iter().position(|e| e.name == name && !e.internal).ok_or_else(|| {
            let names: Vec<&str> = self.entries.iter().filter(|e| !e.internal).map(|e| e.name.as_str()).collect();
            let error = Error::user("E0301", format!("the model has no entry point `{name}`"));
            error.help(format!("it has {}", names.join(", ")))
        })
    }
}

/// An entry point of the plan, with data derived from it.
pub struct Entry {
    plan: plan::Entry,
    /// By input: the state whose old value it is.
    pub input_states: Vec<Option<usize>>,
    /// By output: the state whose new value it is.
    pub output_states: Vec<Option<usize>>,
    /// By input: the dimensions on this rank, which may have only a part of a state.
    pub own_inputs: Vec<Vec<Dim>>,
    /// By output: the dimensions on this rank, which may have only a part of a state.
    pub own_outputs: Vec<Vec<Dim>>,
    /// How to solve for the symbols of the inputs, in the order of evaluation.
    pub sources: Vec<Source>,
    /// How to solve for the symbols of the inputs in calls with a cache: as far as possible from inputs that are not
    /// states, because an empty cache does not know all dimensions of its states.
    pub sources_in_place: Vec<Source>,
    /// Indices of the symbols that have values when a call begins: those of `sources`, capacities, kept positions, and
    /// coordinates of the rank. Their values identify a shape.
    pub bound: Vec<usize>,
    /// By buffer: the first stage in which its expressions have values.
    pub buffer_stages: Vec<usize>,
    /// By check: the first stage in which both of its sides have values.
    pub check_stages: Vec<usize>,
    /// By step: where its pointers begin in the list of the pointers of all steps; last, the length of the list.
    pub pointers_at: Vec<usize>,
    /// By step: where its parameters begin in the list of the parameters of all steps; last, the length of the list.
    pub params_at: Vec<usize>,
    /// By step: whether this rank takes part in it.
    pub needed: Vec<bool>,
    /// Number of stages. A stage ends with each step that reads a symbol from data, and with each host step that is not
    /// a collective.
    pub n_stages: usize,
    /// Indices of the entry points that fix some of its dimensions, those with the most fixed ones first.
    pub specialized: Vec<usize>,
}

impl Deref for Entry {
    type Target = plan::Entry;

    fn deref(&self) -> &plan::Entry {
        &self.plan
    }
}

impl Entry {
    /// Returns the number of input dimensions that are constant.
    pub fn n_fixed(&self) -> usize {
        self.inputs.iter().flat_map(|port| &port.dims).filter(|d| d.as_const().is_some()).count()
    }

    /// Returns how the input or output of a state is partitioned among the ranks; empty if it is not.
    pub fn units(&self, state: Option<usize>) -> &[Units] {
        state.map_or(&[], |at| &self.states[at].units)
    }

    /// Returns the inputs that a call with a cache takes: those that are not states.
    pub fn fresh_inputs(&self) -> impl Iterator<Item = &Port> {
        self.inputs.iter().zip(&self.input_states).filter(|(_, state)| state.is_none()).map(|(port, _)| port)
    }

    /// Returns the range of a step's parameters in the list of the parameters of all steps.
    pub fn params(&self, step: usize) -> Range<usize> {
        self.params_at[step]..self.params_at[step + 1]
    }

    /// Returns the range of a step's pointers in the list of the pointers of all steps.
    pub fn pointers(&self, step: usize) -> Range<usize> {
        self.pointers_at[step]..self.pointers_at[step + 1]
    }
}
