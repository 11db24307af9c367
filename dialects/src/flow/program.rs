//! `func.func` of flow operations as plain data: containers and the steps that produce them, in order

use super::kernel::{Container, Kernel, Layout};
use super::prepared::Prepared;
use super::transform::Transform;
use crate::params::Part;
use crate::sdx::{Check, Symbol};
use sardonyx_base::plan::HostCall;
use sardonyx_base::{Dim, Tensor, dim};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Index into [`Program::containers`].
pub type Id = usize;

/// Operation of a [`Step`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FlowOp {
    /// Constants from the parameter store. With a window, the result is a packed matrix: its element [k, n] is
    /// source[offset + k*stride_k + n*stride_n].
    Param {
        /// Parameters that the result is computed from.
        source: Source,
        /// Elements of the source that form the packed matrix; `None` if the result is the whole source.
        window: Option<Window>,
    },
    /// A small constant.
    Const(TensorValue),
    /// Reinterprets the argument's memory with the result's dimensions.
    View,
    /// Binds a data-dependent symbol to the first i64 of the argument.
    Bind {
        /// Name of the symbol that is bound.
        symbol: String,
    },
    /// A kernel; it is shared, because the programs that a search compares differ in only a few kernels.
    Kernel(Arc<Kernel>),
    /// A host operation: the runtime's Rust code computes the results.
    Host(HostCall<String>),
}

impl FlowOp {
    /// The data-dependent symbols that the step binds.
    pub fn binds(&self) -> Vec<&str> {
        match self {
            FlowOp::Bind { symbol } => vec![symbol],
            FlowOp::Host(host) => host.binds().collect(),
            FlowOp::Param { .. } | FlowOp::Const(_) | FlowOp::View | FlowOp::Kernel(_) => vec![],
        }
    }
}

/// Parameters concatenated along an axis; usually a single parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// Names in the parameter store, in the order of concatenation; at least one.
    pub names: Vec<String>,
    /// For each name, the parts of the parameter that a rank holds; empty if every rank holds all parameters as a
    /// whole.
    pub parts: Vec<Vec<Part>>,
    /// Axis of the concatenation; unused for a single parameter.
    pub axis: usize,
    /// Function of the parameters that is computed when the artifact is written.
    pub transform: Option<Transform>,
}

impl Source {
    /// Returns the source that is a single whole parameter, untransformed.
    pub fn one(name: &str) -> Source {
        Source { names: vec![name.into()], parts: vec![], axis: 0, transform: None }
    }

    /// The parts of one parameter that a rank holds.
    pub fn part(name: &str, parts: &[Part]) -> Source {
        let parts = if parts.is_empty() { vec![] } else { vec![parts.to_vec()] };
        Source { parts, ..Source::one(name) }
    }

    /// Each name with its parts.
    pub fn each(&self) -> impl Iterator<Item = (&str, &[Part])> {
        let parts = |i: usize| self.parts.get(i).map_or(&[][..], Vec::as_slice);
        self.names.iter().enumerate().map(move |(i, name)| (name.as_str(), parts(i)))
    }

    /// Display name: the names of the parameters, joined by ` + `.
    pub fn name(&self) -> String {
        self.names.join(" + ")
    }
}

/// A constant; two constants are equal if their types, dimensions and bytes are equal.
#[derive(Clone, Debug)]
pub struct TensorValue(pub Tensor);

impl PartialEq for TensorValue {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (&self.0, &other.0);
        a.dtype() == b.dtype() && a.dims() == b.dims() && a.bytes() == b.bytes()
    }
}

impl Eq for TensorValue {}

impl Hash for TensorValue {
    fn hash<H: Hasher>(&self, to: &mut H) {
        (self.0.dtype(), self.0.dims()).hash(to);
        self.0.bytes().hash(to);
    }
}

/// The elements of a parameter that a packed matrix [k, n] contains; offset and strides are in elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window {
    /// Position in the parameter of the matrix element [0, 0].
    pub offset: i64,
    /// Stride of the rows, or of the outermost digit of the row number if there are `digits`.
    pub stride_k: i64,
    /// Stride of the columns.
    pub stride_n: i64,
    /// The row number may be split into digits of different extents, such as channel, row and column in a convolution's
    /// window. (extent, stride) of each digit except the outermost, outer ones first; empty if the row is not split.
    pub digits: Vec<(i64, i64)>,
}

impl Window {
    /// The element at row `k`, column 0; `None` if the position overflows or an extent is 0.
    pub fn row(&self, mut k: i64) -> Option<i64> {
        let mut at = self.offset;
        for &(extent, stride) in self.digits.iter().rev() {
            at = at.checked_add(k.checked_rem(extent)?.checked_mul(stride)?)?;
            k = k.checked_div(extent)?;
        }
        at.checked_add(k.checked_mul(self.stride_k)?)
    }

    /// Minimum number of elements of a parameter that contains this window with k rows and n columns; `None` on
    /// overflow.
    pub fn elements(&self, k: i64, n: i64) -> Option<i64> {
        let columns = (n - 1).max(0).checked_mul(self.stride_n.max(0))?;
        self.row((k - 1).max(0))?.checked_add(columns)?.checked_add(1)
    }
}

/// One operation of a [`Program`].
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Operation that computes the results.
    pub op: FlowOp,
    /// Containers that are read, in the order of the operands.
    pub args: Vec<Id>,
    /// Containers that are written, each by this step only; empty for `Bind`.
    pub results: Vec<Id>,
    /// Names of the ONNX nodes that the step originates from.
    pub origins: Vec<String>,
}

/// An output that continues an input: it has more positions along an axis, and may share the input's memory. The
/// layouts of their two containers give the axis along which the output is longer, and the capacity along that axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Index of the input.
    pub input: usize,
    /// Index of the output.
    pub output: usize,
    /// Symbol of kind `Kept`: the number of positions that need not be rewritten; none if that number is always 0.
    pub kept: Option<String>,
    /// The parts of input and output that a rank holds; callers pass and receive the whole tensors. Empty if every rank
    /// holds all.
    pub parts: Vec<Part>,
}

/// A function of the flow level: containers, and the steps that compute them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Symbol name of the function.
    pub name: String,
    /// Inputs and results of all steps; an [`Id`] is an index into this list.
    pub containers: Vec<Container>,
    /// Name and container of each input, in order of the arguments.
    pub inputs: Vec<(String, Id)>,
    /// Name and container of each output, in order.
    pub outputs: Vec<(String, Id)>,
    /// Steps in order of execution.
    pub steps: Vec<Step>,
    /// Symbols that the dimensions refer to, by name.
    pub symbols: BTreeMap<String, Symbol>,
    /// Equalities of dimensions that a call must satisfy.
    pub checks: Vec<Check>,
    /// Outputs that continue an input, such as caches.
    pub states: Vec<State>,
    /// Whether the program is called by host steps of other programs only.
    pub internal: bool,
    /// Programs that the host steps call, by name; empty unless the program was read by [`Program::read_whole`].
    pub bodies: BTreeMap<String, Program>,
    /// Programs that compute the prepared parameters that the steps read, as far as these programs are known.
    pub prepared: Prepared,
}

impl Program {
    /// Appends a container; returns its index.
    pub fn container(&mut self, container: Container) -> Id {
        self.containers.push(container);
        self.containers.len() - 1
    }

    /// The step that produces each container; none for inputs.
    pub fn producers(&self) -> Vec<Option<usize>> {
        let mut out = vec![None; self.containers.len()];
        for (i, step) in self.steps.iter().enumerate() {
            for &r in &step.results {
                out[r] = Some(i);
            }
        }
        out
    }

    /// The steps that read each container, in order.
    pub fn consumers(&self) -> Consumers {
        let mut ends = vec![0; self.containers.len() + 1];
        let mut each = |id: Id, _: usize| ends[id + 1] += 1;
        self.each_reader(&mut each);
        for id in 0..self.containers.len() {
            ends[id + 1] += ends[id];
        }
        let mut next = ends.clone();
        let mut steps = vec![0; ends[self.containers.len()]];
        self.each_reader(&mut |id, step| {
            steps[next[id]] = step;
            next[id] += 1;
        });
        Consumers { ends, steps }
    }

    /// Calls `each` for every pair of a container and a step that reads it, once per pair.
    fn each_reader(&self, each: &mut dyn FnMut(Id, usize)) {
        for (i, step) in self.steps.iter().enumerate() {
            let first = |at: &usize| !step.args[..*at].contains(&step.args[*at]);
            (0..step.args.len()).filter(first).for_each(|at| each(step.args[at], i));
        }
    }

    /// Whether the container is an output of the program.
    pub fn is_output(&self, id: Id) -> bool {
        self.outputs.iter().any(|(_, o)| *o == id)
    }

    /// Returns the lower bound of a symbol; 0 if it is not declared.
    pub fn symbol_lo(&self, symbol: &dim::Symbol) -> i64 {
        symbol.name().and_then(|name| self.symbols.get(name)).map_or(0, |s| s.lo)
    }
}

/// The steps that read each container, as two flat lists: they are cheaper to recompute after every rewrite than a list
/// per container.
pub struct Consumers {
    /// Container `id` has `steps[ends[id]..ends[id + 1]]`.
    ends: Vec<usize>,
    steps: Vec<usize>,
}

impl std::ops::Index<Id> for Consumers {
    type Output = [usize];

    fn index(&self, id: Id) -> &[usize] {
        &self.steps[self.ends[id]..self.ends[id + 1]]
    }
}

impl Layout {
    /// Returns the text of the layout in the IR, such as `row_major`, `capacity<2, room>` or `order<1, 0>`.
    pub fn name(&self) -> String {
        match self {
            Layout::RowMajor => "row_major".into(),
            Layout::Capacity { axis, size } => format!("capacity<{axis}, {size}>"),
            Layout::Order(order) => {
                let axes: Vec<String> = order.iter().map(usize::to_string).collect();
                format!("order<{}>", axes.join(", "))
            }
        }
    }

    /// Parses what [`Layout::name`] returns; `None` if the size is no symbol or the order no permutation.
    pub fn from_name(name: &str) -> Option<Layout> {
        if name == "row_major" {
            return Some(Layout::RowMajor);
        }
        if let Some(inside) = name.strip_prefix("capacity<") {
            let (axis, size) = inside.strip_suffix('>')?.split_once(", ")?;
            let size = Dim::parse(size).ok().filter(|d| d.as_name().is_some())?;
            return Some(Layout::Capacity { axis: axis.parse().ok()?, size });
        }
        let axes = name.strip_prefix("order<")?.strip_suffix('>')?.split(", ").map(|axis| axis.parse().ok());
        let order: Vec<usize> = axes.collect::<Option<_>>()?;
        let whole = (0..order.len()).all(|axis| order.contains(&axis));
        whole.then_some(Layout::Order(order))
    }
}
