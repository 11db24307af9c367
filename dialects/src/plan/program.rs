//! `plan.entry`s and the `plan.kernel`s that they launch, as plain data

use crate::flow::prepared::Prepared;
use crate::flow::{Container, Kernel, Source, State, TensorValue, Window};
use crate::sdx::{Check, Symbol};
use sardonyx_base::Dim;
use sardonyx_base::plan::{Action, Step};
use std::collections::BTreeMap;

/// A piece of memory; steps refer to buffers by index.
#[derive(Clone, Debug, PartialEq)]
pub enum Buffer {
    Input {
        name: String,
        container: Container,
    },
    Output {
        name: String,
        container: Container,
    },
    /// A constant from the parameter store; with a window it is packed (see `flow.param`).
    Param {
        source: Source,
        window: Option<Window>,
        container: Container,
    },
    Const {
        value: TensorValue,
        container: Container,
    },
    /// Bytes of the arena; `offset` is absent until memory is planned.
    Arena {
        bytes: Dim,
        offset: Option<Dim>,
    },
    /// A result of a host step, which allocates its memory.
    Value {
        container: Container,
    },
}

/// An entry point.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    pub name: String,
    pub symbols: BTreeMap<String, Symbol>,
    pub checks: Vec<Check>,
    pub states: Vec<State>,
    pub buffers: Vec<Buffer>,
    pub steps: Vec<Step>,
    /// Size of the whole arena in bytes; absent until memory is planned.
    pub arena_bytes: Option<Dim>,
    /// Whether the entry point is called by host steps of other entry points only.
    pub internal: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub entries: Vec<Entry>,
    /// Distinct kernels of all entries: the symbol in the code, and the kernel as its first launch has it.
    pub kernels: Vec<(String, Kernel)>,
    /// Parameters that are computed from others when the artifact is written.
    pub prepared: Prepared,
}

impl Entry {
    pub fn symbol_lo(&self, name: &str) -> i64 {
        self.symbols.get(name).map_or(0, |s| s.lo)
    }

    pub fn launches(&self) -> usize {
        self.steps.iter().filter(|s| matches!(s.action, Action::Launch(_))).count()
    }

    /// Inputs, or outputs, in order: (buffer, name, container).
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
