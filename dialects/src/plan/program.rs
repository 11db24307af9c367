//! `plan.entry` and the `plan.kernel`s that it launches, as plain data

use crate::flow::{Container, Kernel, TensorValue, Window};
use crate::sdx::{Equality, Symbol};
use sardonyx_runtime::Dim;
use std::collections::BTreeMap;

/// The memory of something; steps refer to buffers by index.
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
    /// A constant of the parameter store; with a window it is packed (see `flow.param`).
    Param {
        name: String,
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
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Runs kernel `kernel` over the work items 0..grid.
    Launch {
        kernel: usize,
        buffers: Vec<usize>,
        params: Vec<Dim>,
        grid: Dim,
    },
    Copy {
        from: usize,
        to: usize,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub action: Action,
    /// The ONNX nodes that it computes.
    pub origins: Vec<String>,
}

impl Step {
    /// Buffers that it touches.
    pub fn buffers(&self) -> Vec<usize> {
        match &self.action {
            Action::Launch { buffers, .. } => buffers.clone(),
            Action::Copy { from, to } => vec![*from, *to],
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Of the entry point.
    pub name: String,
    pub symbols: BTreeMap<String, Symbol>,
    pub checks: Vec<Equality>,
    pub buffers: Vec<Buffer>,
    pub steps: Vec<Step>,
    /// Distinct kernels: the symbol in the code, and the first launch's form of it.
    pub kernels: Vec<(String, Kernel)>,
    /// Bytes of the whole arena; absent until memory is planned.
    pub arena_bytes: Option<Dim>,
}

impl Plan {
    pub fn symbol_lo(&self, name: &str) -> i64 {
        self.symbols.get(name).map_or(0, |s| s.lo)
    }
}
