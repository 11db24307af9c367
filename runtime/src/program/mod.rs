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
mod states;
mod verify;

use sardonyx_base::plan::SymbolKind;
use sardonyx_base::solve::Source;
use sardonyx_base::{DType, Dim, Error, HostOp, Kind, Result};
use std::collections::BTreeMap;
use std::ops::Range;

pub use crate::bind::{at_most, bind_capacities, describe, origin};
pub use verify::verify;

pub struct Program {
    pub symbols: Vec<Symbol>,
    pub symbol_index: BTreeMap<String, usize>,
    pub derived: Vec<Derived>,
    /// Byte ranges in `weights`.
    pub constants: Vec<Range<usize>>,
    pub kernels: Vec<Kernel>,
    pub entries: Vec<Entry>,
}

impl Program {
    /// Makes every kernel the one of a GPU target. Errors: E0401.
    pub fn choose_target(&mut self, name: &str) -> Result<()> {
        for (i, kernel) in self.kernels.iter_mut().enumerate() {
            let found = kernel.targets.iter().position(|t| t.name == name);
            let what = || verify::broken(format!("kernel {i} `{}` has no launch for {name}", kernel.symbol));
            kernel.target = Some(found.ok_or_else(what)?);
        }
        Ok(())
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

pub struct Symbol {
    pub name: String,
    pub kind: SymbolKind,
    pub lo: i64,
    pub hi: Option<i64>,
}

impl Symbol {
    pub fn admits(&self, value: i64) -> bool {
        value >= self.lo && self.hi.is_none_or(|hi| value <= hi)
    }

    pub fn range(&self) -> String {
        sardonyx_base::dim::range(self.lo, self.hi)
    }
}

/// A name of the model that equals an expression of the symbols.
pub struct Derived {
    pub name: String,
    pub equals: Dim,
    pub lo: i64,
    pub hi: Option<i64>,
    pub why: String,
}

pub struct Kernel {
    pub symbol: String,
    pub writes: Vec<bool>,
    pub params: usize,
    pub scratch_bytes: Dim,
    pub class: String,
    /// Over `p0`, …, `b0`, … and `grid`: see [`plan::Kernel`].
    pub requires: Vec<Dim>,
    pub indexes: Vec<Dim>,
    pub targets: Vec<Target>,
    /// Operations and bytes of a launch, over `p0`, …, `b0`, …; for those who look.
    pub work: Option<(Dim, Dim)>,
    /// The one of `targets` that the device in use runs; none on a CPU.
    pub target: Option<usize>,
}

/// How a kernel is launched on a GPU.
pub struct Target {
    pub name: String,
    /// Blocks, over `p0`, …
    pub grid: Dim,
    /// Threads of a block.
    pub block: u32,
    pub shared_bytes: u32,
}

impl Kernel {
    pub fn target(&self) -> Option<&Target> {
        self.target.map(|at| &self.targets[at])
    }
}

pub struct Entry {
    pub name: String,
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
    pub buffers: Vec<Buffer>,
    pub steps: Vec<Step>,
    pub arena_bytes: Dim,
    pub checks: Vec<Check>,
    pub states: Vec<State>,
    /// What gives symbols their values, in the order to evaluate it in.
    pub sources: Vec<Source>,
    /// The same where the states are in a cache, which may not know all their dimensions.
    pub sources_in_place: Vec<Source>,
    /// The symbols of `sources`, and the capacities, as indices into `Program.symbols`; their values identify a shape.
    pub bound: Vec<usize>,
    /// Totals over the launches: all pointers and all parameters of an entry lie in one array each.
    pub n_pointers: usize,
    pub n_params: usize,
    /// Stage `i` begins after the `i`-th step that binds symbols.
    pub n_stages: usize,
    /// Only host steps of other entry points call it.
    pub internal: bool,
    /// The entry points with some of its dimensions fixed, as indices into `Program.entries`: those with most first.
    pub specialized: Vec<usize>,
}

impl Entry {
    /// How many dimensions of its inputs are known.
    pub fn n_fixed(&self) -> usize {
        self.inputs.iter().flat_map(|port| &port.dims).filter(|d| d.as_const().is_some()).count()
    }
}

pub struct Port {
    pub name: String,
    pub dtype: DType,
    pub dims: Vec<Dim>,
    pub buffer: usize,
    /// What it is made of; a tensor mostly.
    pub kind: Kind,
    /// The state that it is the old or the new end of, as an index into `Entry.states`.
    pub state: Option<usize>,
}

/// An output that is an input with more positions at the end of one axis; see [`plan::State`].
pub struct State {
    pub input: usize,
    pub output: usize,
    pub axis: usize,
    /// Indices into `Program.symbols`.
    pub input_capacity: usize,
    pub output_capacity: usize,
    pub kept: Option<usize>,
}

pub struct Buffer {
    pub bytes: Dim,
    pub place: Location,
    /// From this stage on its size and offset have a value.
    pub stage: usize,
}

pub enum Location {
    Input(usize),
    Output(usize),
    Constant(usize),
    Arena(Dim),
    /// Made by a host step.
    Value,
}

pub struct Check {
    pub left: Dim,
    pub right: Dim,
    pub why: String,
    pub stage: usize,
}

pub enum Step {
    Launch(Launch),
    Copy { from: usize, to: usize },
    Bind { symbol: usize, buffer: usize },
    Host(Host),
}

impl Step {
    /// Whether what follows knows more symbols than what came before; a host step always begins a stage.
    pub fn ends_stage(&self) -> bool {
        match self {
            Step::Launch(_) | Step::Copy { .. } => false,
            Step::Bind { .. } | Step::Host(_) => true,
        }
    }
}

/// Code of the runtime, or calls of other entry points; see [`plan::Host`].
pub struct Host {
    pub op: HostOp,
    pub args: Vec<Operand>,
    pub results: Vec<HostResult>,
    /// Indices into `Program.entries`, greater than that of the entry point which this is a step of.
    pub bodies: Vec<usize>,
    pub origins: Vec<String>,
}

pub struct Operand {
    pub buffer: usize,
    pub dtype: DType,
    pub dims: Vec<Dim>,
}

pub struct HostResult {
    pub index: usize,
    pub value: Operand,
    /// (axis, symbol)
    pub binds: Vec<(usize, usize)>,
}

pub struct Launch {
    pub kernel: usize,
    pub buffers: Vec<usize>,
    pub params: Vec<Dim>,
    pub grid: Dim,
    pub origins: Vec<String>,
    /// The state that it carries from its input to its output.
    pub carries: Option<usize>,
    /// Where its pointers and parameters are in the entry's arrays.
    pub pointers_at: usize,
    pub params_at: usize,
}
