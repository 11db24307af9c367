//! `plan.entry`s and the `plan.kernel`s that they launch, as plain data

use crate::flow::prepared::Prepared;
use crate::flow::{Container, Kernel, Source, State, TensorValue, Window};
use crate::sdx::{Check, Symbol};
use sardonyx_base::plan::{Action, Step};
use sardonyx_base::{Dim, dim};
use std::collections::BTreeMap;

/// A piece of memory; steps refer to buffers by index.
#[derive(Clone, Debug, PartialEq)]
pub enum Buffer {
    /// The memory of an input.
    Input {
        /// Name of the input.
        name: String,
        /// Type, dimensions and storage.
        container: Container,
    },
    /// The memory of an output.
    Output {
        /// Name of the output.
        name: String,
        /// Type, dimensions and storage.
        container: Container,
    },
    /// A constant from the parameter store; with a window it is packed (see `flow.param`).
    Param {
        /// Parameters that the constant is computed from.
        source: Source,
        /// Elements of the source that form the packed matrix; `None` if the buffer is the whole source.
        window: Option<Window>,
        /// Type, dimensions and storage.
        container: Container,
    },
    /// A small constant.
    Const {
        /// The constant as a tensor.
        value: TensorValue,
        /// Type, dimensions and storage.
        container: Container,
    },
    /// Bytes of the arena; `offset` is absent until memory is planned.
    Arena {
        /// Size in bytes.
        bytes: Dim,
        /// Position of the first byte in the arena.
        offset: Option<Dim>,
    },
    /// A result of a host step, which allocates its memory.
    Value {
        /// Type, dimensions and storage of the result.
        container: Container,
    },
}

/// An entry point.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// Symbol name of the entry point.
    pub name: String,
    /// Symbols that the dimensions refer to, by name.
    pub symbols: BTreeMap<String, Symbol>,
    /// Equalities of dimensions that a call must satisfy.
    pub checks: Vec<Check>,
    /// Outputs that continue an input. Indices count the inputs and the outputs, not all buffers.
    pub states: Vec<State>,
    /// All memory that the steps use. The buffers of inputs are in the order of the inputs, and those of outputs in the
    /// order of the outputs.
    pub buffers: Vec<Buffer>,
    /// Steps in order of execution; they refer to buffers by index.
    pub steps: Vec<Step>,
    /// Size of the whole arena in bytes; absent until memory is planned.
    pub arena_bytes: Option<Dim>,
    /// Whether the entry point is called by host steps of other entry points only.
    pub internal: bool,
}

/// The entry points of a module, and the kernels and prepared parameters that they share.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Entry points, internal ones included; host steps refer to them by index, and by name in the IR.
    pub entries: Vec<Entry>,
    /// Kernels of all entries, each with its symbol in the code. Launches of kernels with equal definitions share the
    /// kernel of the first of them.
    pub kernels: Vec<(String, Kernel)>,
    /// Parameters that are computed from others when the artifact is written.
    pub prepared: Prepared,
}

impl Entry {
    /// Returns the lower bound of a symbol; 0 if it is not declared.
    pub fn symbol_lo(&self, symbol: &dim::Symbol) -> i64 {
        symbol.name().and_then(|name| self.symbols.get(name)).map_or(0, |s| s.lo)
    }

    /// Returns the number of steps that launch a kernel.
    pub fn launches(&self) -> usize {
        self.steps.iter().filter(|s| matches!(s.action, Action::Launch(_))).count()
    }

    /// Returns the inputs, or the outputs, in order: index of the buffer, name, container.
    pub fn ports(&self, inputs: bool) -> Vec<(usize, &str, &Container)> {
        let port = |(i, b): (usize, &'_ Buffer)| match (b, inputs) {
            (Buffer::Input { .. }, true) | (Buffer::Output { .. }, false) => Some(i),
            (Buffer::Input { .. }, false) | (Buffer::Output { .. }, true) => None,
            (Buffer::Param { .. } | Buffer::Const { .. } | Buffer::Arena { .. } | Buffer::Value { .. }, _) => None,
        };
        let places: Vec<usize> = self.buffers.iter().enumerate().filter_map(port).collect();
        let named = |i: usize| match &self.buffers[i] {
            Buffer::Input { name, container } | Buffer::Output { name, container } => {
                Some((i, name.as_str(), container))
            }
            Buffer::Param { .. } | Buffer::Const { .. } | Buffer::Arena { .. } | Buffer::Value { .. } => None,
        };
        places.into_iter().filter_map(named).collect()
    }
}
