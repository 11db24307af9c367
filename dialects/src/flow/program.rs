//! `func.func` of flow operations as plain data: containers, and what produces them, in order

use super::kernel::{Container, Kernel, Layout};
use super::prepared::Prepared;
use super::transform::Transform;
use crate::params::Part;
use crate::sdx::{Check, Symbol};
use sardonyx_base::plan::HostCall;
use sardonyx_base::{Dim, Tensor};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Index into [`Program::containers`].
pub type Id = usize;

#[derive(Clone, Debug, PartialEq)]
pub enum FlowOp {
    /// Constants from the parameter store; with a window, packed from src[offset + k*stride_k + n*stride_n].
    Param {
        source: Source,
        window: Option<Window>,
    },
    Const(TensorValue),
    /// The argument's memory under the result's dimensions.
    View,
    /// Gives a data-dependent symbol the first i64 of the argument.
    Bind {
        symbol: String,
    },
    /// Shared: programs that a search compares differ in a few of their kernels.
    Kernel(Arc<Kernel>),
    /// Rust code of the runtime gives the results.
    Host(HostCall<String>),
}

impl FlowOp {
    /// The data-dependent symbols that it gives their values.
    pub fn binds(&self) -> Vec<&str> {
        match self {
            FlowOp::Bind { symbol } => vec![symbol],
            FlowOp::Host(host) => host.binds().collect(),
            FlowOp::Param { .. } | FlowOp::Const(_) | FlowOp::View | FlowOp::Kernel(_) => vec![],
        }
    }
}

/// Parameters one behind the other along an axis; mostly it is one alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    pub names: Vec<String>,
    /// By name: what a rank has of each; empty where every rank has all of them.
    pub parts: Vec<Vec<Part>>,
    pub axis: usize,
    /// What is computed from them when the artifact is written.
    pub transform: Option<Transform>,
}

impl Source {
    pub fn one(name: &str) -> Source {
        Source { names: vec![name.into()], parts: vec![], axis: 0, transform: None }
    }

    /// What a rank has of one parameter.
    pub fn part(name: &str, parts: &[Part]) -> Source {
        let parts = if parts.is_empty() { vec![] } else { vec![parts.to_vec()] };
        Source { parts, ..Source::one(name) }
    }

    /// Each name with its parts.
    pub fn each(&self) -> impl Iterator<Item = (&str, &[Part])> {
        let parts = |i: usize| self.parts.get(i).map_or(&[][..], Vec::as_slice);
        self.names.iter().enumerate().map(move |(i, name)| (name.as_str(), parts(i)))
    }

    /// What it is called: the names of what it is made of.
    pub fn name(&self) -> String {
        self.names.join(" + ")
    }
}

/// A constant; equal when type, dimensions and bytes are.
#[derive(Clone, Debug)]
pub struct TensorValue(pub Tensor);

impl PartialEq for TensorValue {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (&self.0, &other.0);
        a.dtype() == b.dtype() && a.dims() == b.dims() && a.bytes() == b.bytes()
    }
}

/// Which elements of a parameter a packed matrix [k, n] holds, in elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window {
    pub offset: i64,
    /// Of the rows, or of their outermost digit.
    pub stride_k: i64,
    pub stride_n: i64,
    /// (extent, stride) of further digits of a row's number, outer ones first: the offsets of a convolution's window.
    pub digits: Vec<(i64, i64)>,
}

impl Window {
    /// The element of row `k`, column 0; none where that is no number.
    pub fn row(&self, mut k: i64) -> Option<i64> {
        let mut at = self.offset;
        for &(extent, stride) in self.digits.iter().rev() {
            at = at.checked_add(k.checked_rem(extent)?.checked_mul(stride)?)?;
            k = k.checked_div(extent)?;
        }
        at.checked_add(k.checked_mul(self.stride_k)?)
    }

    /// How many elements a parameter has at least, of which this is a matrix of k rows and n columns.
    pub fn elements(&self, k: i64, n: i64) -> Option<i64> {
        let columns = (n - 1).max(0).checked_mul(self.stride_n.max(0))?;
        self.row((k - 1).max(0))?.checked_add(columns)?.checked_add(1)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub op: FlowOp,
    pub args: Vec<Id>,
    pub results: Vec<Id>,
    pub origins: Vec<String>,
}

/// An output that continues an input, and may do so in its memory. The containers of both say along which axis, and how
/// many positions there is room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Among the inputs.
    pub input: usize,
    /// Among the outputs.
    pub output: usize,
    /// The symbol of kind `Kept` that counts the positions which need not be written; absent where there never are any.
    pub kept: Option<String>,
    /// What a rank has of both: callers give and get them whole. Empty where every rank has all.
    pub parts: Vec<Part>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    pub name: String,
    pub containers: Vec<Container>,
    pub inputs: Vec<(String, Id)>,
    pub outputs: Vec<(String, Id)>,
    pub steps: Vec<Step>,
    pub symbols: BTreeMap<String, Symbol>,
    pub checks: Vec<Check>,
    pub states: Vec<State>,
    /// Only host steps of other programs call it.
    pub internal: bool,
    /// The programs that its host steps call, where it was read to be run (`Program::read_whole`).
    pub bodies: BTreeMap<String, Program>,
    /// Programs of the prepared parameters that it reads, as far as they are known here.
    pub prepared: Prepared,
}

impl Program {
    pub fn container(&mut self, container: Container) -> Id {
        self.containers.push(container);
        self.containers.len() - 1
    }

    /// Which step produces each container; none for inputs.
    pub fn producers(&self) -> Vec<Option<usize>> {
        let mut out = vec![None; self.containers.len()];
        for (i, step) in self.steps.iter().enumerate() {
            for &r in &step.results {
                out[r] = Some(i);
            }
        }
        out
    }

    /// Which steps need each container, in order.
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

    /// Every container and step that reads it, once.
    fn each_reader(&self, each: &mut dyn FnMut(Id, usize)) {
        for (i, step) in self.steps.iter().enumerate() {
            let first = |at: &usize| !step.args[..*at].contains(&step.args[*at]);
            (0..step.args.len()).filter(first).for_each(|at| each(step.args[at], i));
        }
    }

    pub fn is_output(&self, id: Id) -> bool {
        self.outputs.iter().any(|(_, o)| *o == id)
    }

    pub fn symbol_lo(&self, name: &str) -> i64 {
        self.symbols.get(name).map_or(0, |s| s.lo)
    }
}

/// The steps that read each container. Asked for after every rewrite, so it is two lists and not one for each.
pub struct Consumers {
    /// Where the steps of each container end, after a 0.
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

    pub fn from_name(name: &str) -> Option<Layout> {
        if name == "row_major" {
            return Some(Layout::RowMajor);
        }
        if let Some(inside) = name.strip_prefix("capacity<") {
            let (axis, size) = inside.strip_suffix('>')?.split_once(", ")?;
            let size = Dim::parse(size).ok().filter(|d| d.as_symbol().is_some())?;
            return Some(Layout::Capacity { axis: axis.parse().ok()?, size });
        }
        let axes = name.strip_prefix("order<")?.strip_suffix('>')?.split(", ").map(|axis| axis.parse().ok());
        let order: Vec<usize> = axes.collect::<Option<_>>()?;
        let whole = (0..order.len()).all(|axis| order.contains(&axis));
        whole.then_some(Layout::Order(order))
    }
}
