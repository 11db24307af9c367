//! messages::Plan  <=>  Plan: expressions parsed, types and operations known, all required parts present
//!
//! The form of the plan that the compiler writes, and that the runtime verifies further and runs. Fields have the names
//! and the meaning that they have in `sardonyx.proto`. The verifier checks that indices are in range, that symbols have
//! values, and that buffers have been written before they are read.

use super::messages::{self, SymbolKind, buffer, step};
use super::wire::{Wire, checked, malformed};
use crate::host::part_dims;
use crate::{DType, Dim, HostOp, Kind, Result};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub entries: Vec<Entry>,
    pub constants: Vec<Constant>,
    pub kernels: Vec<Kernel>,
}

impl Plan {
    /// Parses and checks the fields of a message. Errors: E0401.
    pub fn read(message: &messages::Plan) -> Result<Plan> {
        let messages::Plan { entries, constants, kernels } = message;
        let (constants, kernels) = (Wire::read(constants, "constants")?, Wire::read(kernels, "kernels")?);
        Ok(Plan { entries: Wire::read(entries, "entries")?, constants, kernels })
    }

    pub fn write(&self) -> messages::Plan {
        let Plan { entries, constants, kernels } = self;
        messages::Plan { entries: entries.write(), constants: constants.write(), kernels: kernels.write() }
    }
}

/// A dimension symbol of the model as the manifest declares it.
#[derive(Clone, Debug, PartialEq)]
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
        crate::dim::range(self.lo, self.hi)
    }
}

impl Wire<messages::Symbol> for Symbol {
    fn read(message: &messages::Symbol, _field: &str) -> Result<Symbol> {
        let messages::Symbol { name, kind, lo, hi } = message.clone();
        let wrong = |_| malformed(format!("the symbol `{name}` has the unknown kind {kind}"));
        Ok(Symbol { kind: SymbolKind::try_from(kind).map_err(wrong)?, name, lo, hi })
    }

    fn write(&self) -> messages::Symbol {
        messages::Symbol { name: self.name.clone(), kind: self.kind as i32, lo: self.lo, hi: self.hi }
    }
}

checked! {
    /// A name of the model that equals an expression of the symbols.
    Derived { name: String, equals: Dim, lo: i64, hi: Option<i64>, why: String, }
    |message, _field, _i| format!("derived symbol `{}`", message.name)
}

/// A function of the model that can be called.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub name: String,
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
    pub buffers: Vec<Buffer>,
    pub steps: Vec<Step>,
    pub arena_bytes: Dim,
    pub checks: Vec<Check>,
    pub states: Vec<State>,
    /// Whether the entry point is called by host steps of other entry points only.
    pub internal: bool,
    /// The entry point that this one specializes by fixing some dimensions.
    pub specializes: Option<String>,
}

impl Wire<messages::Entry> for Entry {
    fn read(message: &messages::Entry, _field: &str) -> Result<Entry> {
        let body = message.body.as_ref().ok_or_else(|| malformed("it has no body".into()))?;
        Ok(Entry {
            name: message.name.clone(),
            inputs: Wire::read(&message.inputs, "input")?,
            outputs: Wire::read(&message.outputs, "output")?,
            buffers: Wire::read(&message.buffers, "buffers")?,
            steps: Wire::read(&body.steps, "steps")?,
            arena_bytes: Wire::read(&message.arena_bytes, "arena_bytes")?,
            checks: Wire::read(&message.checks, "checks")?,
            states: Wire::read(&message.states, "states")?,
            internal: message.internal,
            specializes: Wire::read(&message.specializes, "specializes")?,
        })
    }

    fn write(&self) -> messages::Entry {
        messages::Entry {
            name: self.name.clone(),
            inputs: self.inputs.write(),
            outputs: self.outputs.write(),
            buffers: self.buffers.write(),
            body: Some(messages::Block { steps: self.steps.write() }),
            arena_bytes: self.arena_bytes.write(),
            checks: self.checks.write(),
            states: self.states.write(),
            internal: self.internal,
            specializes: self.specializes.write(),
        }
    }

    fn label(message: &messages::Entry, _field: &str, _i: usize) -> Option<String> {
        Some(format!("entry point `{}`", message.name))
    }
}

checked! {
    /// A named input or output.
    Port { name: String, dtype: DType, dims: Vec<Dim>, buffer: usize, kind: Kind, }
    |message, field, _i| format!("{field} `{}`", message.name)
}

checked! {
    /// An output that is an input with more positions at the end of one axis.
    State {
        input: usize,
        output: usize,
        axis: usize,
        input_capacity: String,
        output_capacity: String,
        kept: Option<String>,
        units: Vec<Units>,
    }
    |_message, _field, i| format!("state {i}")
}

checked! {
    /// The units of a state that a rank holds along one axis of the mesh.
    Units { mesh: usize, dim: usize, outer: u64, count: u64, unit: u64, }
    |_message, _field, i| format!("cut {i}")
}

impl Units {
    /// Number of elements of the dimension on all ranks together. Errors: E0401 if it is out of range.
    pub fn extent(&self) -> Result<i64> {
        let all = self.outer.checked_mul(self.count).and_then(|n| n.checked_mul(self.unit));
        let all = all.and_then(|n| i64::try_from(n).ok()).filter(|n| *n > 0);
        all.ok_or_else(|| malformed(format!("{} runs of {} units of {}", self.outer, self.count, self.unit)))
    }

    /// First unit and number of units of a rank, given its coordinate and the number of ranks.
    pub fn part(&self, ranks: usize, coordinate: &Dim) -> [Dim; 2] {
        part_dims(&Dim::constant(self.count as i64), ranks as i64, coordinate)
    }
}

checked! {
    /// `left == right` in every call. `max(a, b) == b` means `a <= b`.
    Check {
        left: Dim,
        right: Dim,
        /// The ONNX node that requires it.
        why: String,
    }
}

checked! {
    /// A piece of memory.
    Buffer { bytes: Dim, place: Place, }
    |_message, _field, i| format!("buffer {i}")
}

#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    Input(usize),
    Output(usize),
    Constant(usize),
    /// Stored in the arena at this offset.
    Arena(Dim),
    /// Allocated by a host step.
    Value,
}

impl Wire<Option<buffer::Place>> for Place {
    fn read(message: &Option<buffer::Place>, field: &str) -> Result<Place> {
        Ok(match message {
            Some(buffer::Place::Input(i)) => Place::Input(*i as usize),
            Some(buffer::Place::Output(i)) => Place::Output(*i as usize),
            Some(buffer::Place::Constant(i)) => Place::Constant(*i as usize),
            Some(buffer::Place::Arena(offset)) => Place::Arena(Wire::read(offset, field)?),
            Some(buffer::Place::Value(_)) => Place::Value,
            None => return Err(malformed("it has no place".into())),
        })
    }

    fn write(&self) -> Option<buffer::Place> {
        Some(match self {
            Place::Input(i) => buffer::Place::Input(i.write()),
            Place::Output(i) => buffer::Place::Output(i.write()),
            Place::Constant(i) => buffer::Place::Constant(i.write()),
            Place::Arena(offset) => buffer::Place::Arena(offset.write()),
            Place::Value => buffer::Place::Value(messages::Value {}),
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub action: Action,
    /// The ONNX nodes that the step computes; those of copies and binds are not stored in the file.
    pub origins: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Launch(Launch),
    Copy(Copy),
    Bind(Bind),
    Host(Host),
}

impl Step {
    /// The buffers that the step accesses.
    pub fn buffers(&self) -> Vec<usize> {
        match &self.action {
            Action::Launch(launch) => launch.buffers.clone(),
            Action::Copy(copy) => vec![copy.from, copy.to],
            Action::Bind(bind) => vec![bind.buffer],
            Action::Host(host) => host.args.iter().chain(&host.results).map(|operand| operand.buffer).collect(),
        }
    }

    /// The symbols that the step binds.
    pub fn binds(&self) -> Vec<&str> {
        match &self.action {
            Action::Launch(_) | Action::Copy(_) => vec![],
            Action::Bind(bind) => vec![&bind.symbol],
            Action::Host(host) => host.call.binds().collect(),
        }
    }

    /// Whether later steps know more symbols than earlier ones: after a bind, or after a host step that is not an
    /// exchange.
    pub fn ends_stage(&self) -> bool {
        match &self.action {
            Action::Launch(_) | Action::Copy(_) => false,
            Action::Bind(_) => true,
            Action::Host(host) => host.call.op.exchange().is_none(),
        }
    }
}

impl Wire<messages::Step> for Step {
    fn read(message: &messages::Step, field: &str) -> Result<Step> {
        let (action, origins) = match &message.action {
            Some(step::Action::Launch(launch)) => (Action::Launch(Wire::read(launch, field)?), launch.origins.clone()),
            Some(step::Action::Copy(copy)) => (Action::Copy(Wire::read(copy, field)?), vec![]),
            Some(step::Action::Bind(bind)) => (Action::Bind(Wire::read(bind, field)?), vec![]),
            Some(step::Action::Host(host)) => (Action::Host(Wire::read(host, field)?), host.origins.clone()),
            None => return Err(malformed("it does nothing that this version knows".into())),
        };
        Ok(Step { action, origins })
    }

    fn write(&self) -> messages::Step {
        let origins = self.origins.clone();
        let action = match &self.action {
            Action::Launch(launch) => step::Action::Launch(messages::Launch { origins, ..launch.write() }),
            Action::Copy(copy) => step::Action::Copy(copy.write()),
            Action::Bind(bind) => step::Action::Bind(bind.write()),
            Action::Host(host) => step::Action::Host(messages::Host { origins, ..host.write() }),
        };
        messages::Step { action: Some(action) }
    }

    fn label(message: &messages::Step, _field: &str, i: usize) -> Option<String> {
        let origins = match &message.action {
            Some(step::Action::Launch(launch)) => launch.origins.as_slice(),
            Some(step::Action::Host(host)) => &host.origins,
            Some(step::Action::Copy(_) | step::Action::Bind(_)) | None => &[],
        };
        Some(step_label(i, origins))
    }
}

/// The name of a step in errors: `step 3 (/layer/Add)`.
pub fn step_label(i: usize, origins: &[String]) -> String {
    origins.first().map_or(format!("step {i}"), |origin| format!("step {i} ({origin})"))
}

checked! {
    /// Runs a kernel over the work items `0..grid`.
    Launch {
        kernel: usize,
        /// Buffers in the kernel's order.
        buffers: Vec<usize>,
        params: Vec<Dim>,
        grid: Dim,
        /// If the launch copies a state's input to its output, index of the state.
        carries: Option<usize>,
        ; origins
    }
}

checked! {
    /// Copies a whole buffer.
    Copy { from: usize, to: usize, }
}

checked! {
    /// Binds a data-dependent symbol to the first i64 of a buffer.
    Bind { symbol: String, buffer: usize, }
}

/// A step that is performed by code of the runtime, or by entry points that it calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    pub call: HostCall<usize>,
    pub args: Vec<Operand>,
    /// The results as tensors; each buffer is a `Value`, except that the result of an exchange is placed.
    pub results: Vec<Operand>,
}

/// A host operation without its operands. Entry points are identified by `Body`: names in the IR, indices into
/// `Plan.entries` in the plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostCall<Body> {
    pub op: HostOp,
    /// The entry points that the operation calls.
    pub bodies: Vec<Body>,
    /// The results that some step reads.
    pub results: Vec<HostResult>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostResult {
    /// Index among the results of the operation.
    pub index: usize,
    /// Axes, and the data-dependent symbols that are bound to their sizes.
    pub binds: Vec<(usize, String)>,
}

impl Wire<messages::Binding> for (usize, String) {
    fn read(message: &messages::Binding, _field: &str) -> Result<(usize, String)> {
        Ok((message.axis as usize, message.symbol.clone()))
    }

    fn write(&self) -> messages::Binding {
        messages::Binding { axis: self.0.write(), symbol: self.1.clone() }
    }
}

checked! {
    /// A buffer, with the type and dimensions of the tensor that it holds.
    Operand { buffer: usize, dtype: DType, dims: Vec<Dim>, }
}

impl<Body> HostCall<Body> {
    pub fn binds(&self) -> impl Iterator<Item = &str> {
        self.results.iter().flat_map(|r| &r.binds).map(|(_, symbol)| symbol.as_str())
    }
}

impl Wire<messages::Host> for Host {
    fn read(message: &messages::Host, _field: &str) -> Result<Host> {
        let (mut values, mut results) = (vec![], vec![]);
        for result in &message.results {
            let value = result.value.as_ref().ok_or_else(|| malformed("a result without a value".into()))?;
            values.push(Operand::read(value, "value")?);
            results.push(HostResult { index: result.index as usize, binds: Wire::read(&result.binds, "binds")? });
        }
        let (op, bodies) = (Wire::read(&message.op, "op")?, Wire::read(&message.bodies, "bodies")?);
        let args = Wire::read(&message.args, "args")?;
        Ok(Host { call: HostCall { op, bodies, results }, args, results: values })
    }

    fn write(&self) -> messages::Host {
        let result = |(result, value): (&HostResult, &Operand)| messages::HostResult {
            index: result.index.write(),
            value: Some(value.write()),
            binds: result.binds.write(),
        };
        messages::Host {
            op: self.call.op.write(),
            args: self.args.write(),
            results: self.call.results.iter().zip(&self.results).map(result).collect(),
            bodies: self.call.bodies.write(),
            origins: vec![],
        }
    }
}

checked! {
    /// A constant in the `weights` entry.
    Constant { name: String, dtype: DType, offset: u64, bytes: u64, layout: String, parts: Vec<Part>, blake3: String, }
    |_message, _field, i| format!("constant {i}")
}

checked! {
    /// The part of a constant that one rank holds.
    Part { offset: u64, bytes: u64, blake3: String, }
}

checked! {
    /// An axis of the mesh, with the symbol of the coordinate along it.
    MeshAxis { name: String, size: usize, symbol: String, }
    |message, _field, _i| format!("mesh axis `{}`", message.name)
}

checked! {
    /// Expressions are over `p0`, …, `b0`, … and `grid`: see [`LaunchSymbol`](super::LaunchSymbol).
    Kernel {
        symbol: String,
        /// For each buffer, whether the kernel writes it.
        writes: Vec<bool>,
        params: usize,
        scratch_bytes: Dim,
        class: String,
        requires: Vec<Dim>,
        indexes: Vec<Dim>,
        targets: Vec<KernelTarget>,
        /// Operations and bytes of a launch, for information only.
        flops: Option<Dim>,
        moved_bytes: Option<Dim>,
    }
    |message, _field, i| format!("kernel {i} `{}`", message.symbol)
}

checked! {
    /// How a kernel is launched on a GPU.
    KernelTarget { target: String, grid: Dim, block: u32, shared_bytes: u32, }
}
