//! messages::Plan  <=>  Plan: expressions parsed, types and operations known, all required parts present
//!
//! The compiler writes a [`Plan`], and the runtime executes it. Fields have the same names and meaning as in
//! `sardonyx.proto`. Before execution, the runtime's verifier checks what is not checked here: that indices are in
//! range, that symbols have values, and that buffers are written before they are read.

use super::messages::{self, SymbolKind, buffer, step};
use super::wire::{Wire, checked, malformed};
use crate::host::part_dims;
use crate::{DType, Dim, HostOp, Kind, Result};

/// The content of a plan: entry points, with the constants and kernels that they use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Entry points, which host steps refer to by index.
    pub entries: Vec<Entry>,
    /// Constants in the `weights` entry of the archive.
    pub constants: Vec<Constant>,
    /// Kernels, which launches refer to by index.
    pub kernels: Vec<Kernel>,
}

impl Plan {
    /// Parses and checks the fields of a message. Errors: E0401.
    pub fn read(message: &messages::Plan) -> Result<Plan> {
        let messages::Plan { entries, constants, kernels } = message;
        let (constants, kernels) = (Wire::read(constants, "constants")?, Wire::read(kernels, "kernels")?);
        Ok(Plan { entries: Wire::read(entries, "entries")?, constants, kernels })
    }

    /// Returns the message that [`read`](Plan::read) parses to this plan.
    pub fn write(&self) -> messages::Plan {
        let Plan { entries, constants, kernels } = self;
        messages::Plan { entries: entries.write(), constants: constants.write(), kernels: kernels.write() }
    }
}

/// A dimension symbol of the model as the manifest declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Symbol {
    /// Name in expressions, unique in the manifest.
    pub name: String,
    /// What determines the symbol's value.
    pub kind: SymbolKind,
    /// Lower bound, inclusive.
    pub lo: i64,
    /// Upper bound, inclusive; `None` if there is none.
    pub hi: Option<i64>,
}

impl Symbol {
    /// Whether a value is within the bounds.
    pub fn admits(&self, value: i64) -> bool {
        value >= self.lo && self.hi.is_none_or(|hi| value <= hi)
    }

    /// Returns the bounds as text: `1..512`, or `1..` without an upper bound.
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
    /// A dimension name of the model that is not a symbol, because it equals an expression over the symbols.
    Derived {
        /// Name of a dimension in the model.
        name: String,
        /// Value of the dimension, over the symbols of the manifest.
        equals: Dim,
        /// Lower bound, inclusive.
        lo: i64,
        /// Upper bound, inclusive; `None` if there is none.
        hi: Option<i64>,
        /// The ONNX node that requires the equality.
        why: String,
    }
    |message, _field, _i| format!("derived symbol `{}`", message.name)
}

/// A function of the model that can be called.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Name by which the function is called, such as `main`.
    pub name: String,
    /// Inputs, in the order in which a call passes them.
    pub inputs: Vec<Port>,
    /// Outputs, in the order in which a call returns them.
    pub outputs: Vec<Port>,
    /// Memory that the steps access; steps refer to buffers by index.
    pub buffers: Vec<Buffer>,
    /// Steps, in the order of execution.
    pub steps: Vec<Step>,
    /// Size of the arena in bytes.
    pub arena_bytes: Dim,
    /// Equalities that a call must satisfy.
    pub checks: Vec<Check>,
    /// Outputs that each continue an input by further positions, such as caches.
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
    Port {
        /// Name in the model.
        name: String,
        /// Element type; `value` for anything but a tensor.
        dtype: DType,
        /// Extent of each axis, outermost first.
        dims: Vec<Dim>,
        /// Index into [`Entry::buffers`].
        buffer: usize,
        /// Structure of the value.
        kind: Kind,
    }
    |message, field, _i| format!("{field} `{}`", message.name)
}

checked! {
    /// An output that continues an input: it consists of the input and further positions at the end of one axis.
    State {
        /// Index into [`Entry::inputs`].
        input: usize,
        /// Index into [`Entry::outputs`].
        output: usize,
        /// Axis along which the output has further positions.
        axis: usize,
        /// Symbol of the axis's extent in the memory of the input.
        input_capacity: String,
        /// Symbol of the axis's extent in the memory of the output.
        output_capacity: String,
        /// Symbol of the number of positions that a launch from the input to the output skips: those of the input if
        /// both share memory, otherwise 0. `None` if there is no such launch.
        kept: Option<String>,
        /// Cuts, applied in order, that select the part of the state that a rank holds; empty if every rank holds all.
        units: Vec<Units>,
    }
    |_message, _field, i| format!("state {i}")
}

checked! {
    /// A cut of a state along one axis of the mesh. The dimension that is cut consists of `outer` runs of `count`
    /// units; each rank holds some of the units of every run.
    Units {
        /// Index of an axis of the mesh.
        mesh: usize,
        /// Dimension that is cut.
        dim: usize,
        /// Number of runs that the dimension consists of.
        outer: u64,
        /// Number of units of a run, on all ranks together.
        count: u64,
        /// Number of elements of a unit.
        unit: u64,
    }
    |_message, _field, i| format!("cut {i}")
}

impl Units {
    /// Number of elements along the dimension on all ranks together. Errors: E0401 if this number is 0 or exceeds i64.
    pub fn extent(&self) -> Result<i64> {
        let all = self.outer.checked_mul(self.count).and_then(|n| n.checked_mul(self.unit));
        let all = all.and_then(|n| i64::try_from(n).ok()).filter(|n| *n > 0);
        all.ok_or_else(|| malformed(format!("{} runs of {} units of {}", self.outer, self.count, self.unit)))
    }

    /// First unit and number of units that a rank holds of each run, given its coordinate and the number of ranks along
    /// the axis of the mesh.
    pub fn part(&self, ranks: usize, coordinate: &Dim) -> [Dim; 2] {
        part_dims(&Dim::constant(self.count as i64), ranks as i64, coordinate)
    }
}

checked! {
    /// `left == right` in every call. `max(a, b) == b` means `a <= b`.
    Check {
        /// Left side, over the symbols of the entry point.
        left: Dim,
        /// Right side, over the symbols of the entry point.
        right: Dim,
        /// The ONNX node that requires the equality.
        why: String,
    }
}

checked! {
    /// A piece of memory.
    Buffer {
        /// Size in bytes.
        bytes: Dim,
        /// Location of the memory.
        place: Place,
    }
    |_message, _field, i| format!("buffer {i}")
}

/// Location of the memory of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// Memory of the input with this index, read only.
    Input(usize),
    /// Memory of the output with this index.
    Output(usize),
    /// Memory of the constant with this index, read only.
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

/// An action of an entry point, with the ONNX nodes that it computes.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The action that is executed.
    pub action: Action,
    /// Names of the ONNX nodes that the step computes; the file does not store them for copies and binds.
    pub origins: Vec<String>,
}

/// What a step executes.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Runs a kernel.
    Launch(Launch),
    /// Copies a buffer to another one.
    Copy(Copy),
    /// Reads the value of a symbol from a buffer.
    Bind(Bind),
    /// Performs a host operation.
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

    /// Whether the step may bind symbols that later steps use: true of binds, and of host steps that are not exchanges
    /// between ranks.
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
        /// Index into [`Plan::kernels`].
        kernel: usize,
        /// Buffers in the kernel's order.
        buffers: Vec<usize>,
        /// Values of the kernel's parameters `p0`, `p1`, ….
        params: Vec<Dim>,
        /// Number of work items.
        grid: Dim,
        /// If the launch copies the input of a state to its output: the index into [`Entry::states`].
        carries: Option<usize>,
        ; origins
    }
}

checked! {
    /// Copies a whole buffer.
    Copy {
        /// Index of the source buffer.
        from: usize,
        /// Index of the destination buffer, which has the size of the source buffer.
        to: usize,
    }
}

checked! {
    /// Binds a data-dependent symbol to the first i64 of a buffer.
    Bind {
        /// The symbol that gets the value.
        symbol: String,
        /// Index into [`Entry::buffers`].
        buffer: usize,
    }
}

/// A step that is performed by code of the runtime, or by entry points that it calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// The operation, with the results that are used.
    pub call: HostCall<usize>,
    /// The operands, in order.
    pub args: Vec<Operand>,
    /// Buffer, type and dimensions of each result in `call.results`. The buffers are at [`Place::Value`], except that
    /// the result of an exchange between ranks is in the arena or an output.
    pub results: Vec<Operand>,
}

/// A host operation without its operands. Entry points are identified by `Body`: names in the IR, indices into
/// `Plan.entries` in the plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostCall<Body> {
    /// The operation with its attributes.
    pub op: HostOp,
    /// The entry points that the operation calls.
    pub bodies: Vec<Body>,
    /// The results that some step reads.
    pub results: Vec<HostResult>,
}

/// A result of a host operation that some step reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostResult {
    /// Index among the results of the operation.
    pub index: usize,
    /// Pairs: an axis of the result, and the data-dependent symbol that is bound to its size.
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
    Operand {
        /// Index into [`Entry::buffers`].
        buffer: usize,
        /// Element type.
        dtype: DType,
        /// Extent of each axis, outermost first.
        dims: Vec<Dim>,
    }
}

impl<Body> HostCall<Body> {
    /// Returns the data-dependent symbols that the results bind.
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
    Constant {
        /// Name of the constant.
        name: String,
        /// Element type.
        dtype: DType,
        /// Byte offset in `weights`, a multiple of 64.
        offset: u64,
        /// Size in bytes.
        bytes: u64,
        /// Layout and encoding, such as `row_major` or `panels32`.
        layout: String,
        /// The part that each rank holds, in rank order, if the parts differ; `offset` and `bytes` are 0 then.
        parts: Vec<Part>,
        /// BLAKE3 in hexadecimal; empty for a single rank, and if there are parts.
        blake3: String,
    }
    |_message, _field, i| format!("constant {i}")
}

checked! {
    /// The part of a constant that one rank holds.
    Part {
        /// Byte offset in `weights`.
        offset: u64,
        /// Size in bytes.
        bytes: u64,
        /// BLAKE3 in hexadecimal.
        blake3: String,
    }
}

checked! {
    /// An axis of the mesh, with the symbol of the coordinate along it.
    MeshAxis {
        /// Name of the axis.
        name: String,
        /// Number of ranks along the axis.
        size: usize,
        /// Symbol of the coordinate along the axis.
        symbol: String,
    }
    |message, _field, _i| format!("mesh axis `{}`", message.name)
}

checked! {
    /// A kernel. Its expressions are over the parameters of a launch `p0`, `p1`, …, the sizes of its buffers in bytes
    /// `b0`, `b1`, …, and the number of work items `grid`.
    Kernel {
        /// Symbol in the archive's native code without the suffix of the CPU level, and name of the `.entry` in PTX.
        symbol: String,
        /// For each buffer, whether the kernel writes it.
        writes: Vec<bool>,
        /// Number of integer parameters.
        params: usize,
        /// Scratch memory of a thread in bytes.
        scratch_bytes: Dim as launch,
        /// Class such as `map` or `contract`.
        class: String,
        /// Values that must not be negative in a launch with work items, so that the kernel stays within its buffers.
        requires: Vec<Dim> as launch,
        /// Largest valid value of each index that is read from data. Like the values of `requires`, it must not be
        /// negative in a launch with work items; it is negative if the indexed dimension has no elements.
        indexes: Vec<Dim> as launch,
        /// Launch parameters for each GPU target of the plan; empty if there is none.
        targets: Vec<KernelTarget>,
        /// Number of floating-point operations of a launch, for information only; `None` if not counted.
        flops: Option<Dim> as launch,
        /// Bytes that a launch reads and writes, each counted once; for information only.
        moved_bytes: Option<Dim> as launch,
    }
    |message, _field, i| format!("kernel {i} `{}`", message.symbol)
}

checked! {
    /// How a kernel is launched on a GPU.
    KernelTarget {
        /// Architecture such as `sm_80`.
        target: String,
        /// Number of blocks of the one-dimensional grid; if it is 0, nothing is launched.
        grid: Dim as launch,
        /// Number of threads of a block.
        block: u32,
        /// Dynamic shared memory of a block in bytes.
        shared_bytes: u32,
        /// Identity of the kernel in files of measured tiles; empty unless the artifact is for measuring them.
        key: String,
        /// Name of the kernel's tile; empty if `key` is.
        tile: String,
    }
}
